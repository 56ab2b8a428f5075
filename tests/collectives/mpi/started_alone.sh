#!/bin/sh
# started_alone.sh DRIVERS - a process of engine mpi that no launcher has started, beside one that is stopped and has the
# same parent, as a shell's jobs have: they have nothing to do with each other; prints TAP.
. "$(dirname "$0")/../../rigs/points.sh"
sleep 1000 &
stranger=$!
kill -STOP $stranger
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 HWLOC_HIDE_ERRORS=2
env -u OMPI_COMM_WORLD_RANK -u PMIX_RANK -u PMI_RANK -u SLURM_PROCID "$1/looping_pipeline" --engine mpi --mesh data=1 \
    --layers 2 --hidden 16 --steps 1 --timeout 0.01 >out 2>err
status=$?
[ $status = 0 ] && [ ! -s err ]
point 'its start is no concern of a stopped process'
kill -KILL $stranger
plan
