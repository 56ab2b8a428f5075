#!/bin/sh
# flip.sh DRIVERS [MPIRUN] - a bit that flips in the memory of one of three replicas is found after the step, and a run
# with --restart goes on from its last checkpoint, to the bytes of a run that nothing has disturbed; prints TAP.
drivers=$(cd "$1" && pwd) mpirun=$2 here=$(cd "$(dirname "$0")" && pwd)
[ ! -w /dev/shm ] || export TMPDIR="${TMPDIR:-/dev/shm}" # in memory, where syncing is short
. "$here/../../rigs/points.sh"

frozen=input_dense.kernel
run="$drivers/looping_pipeline --mesh data=3,model=1 --schedule single --layers 2 --hidden 8 --batch 12 --microbatches 2
    --zero 0 --freeze $frozen --check-replicas --steps 300 --save-every 5"
last=step-00000300.safetensors

# disturb NAME VARIABLE WHO ARGUMENT...: a run in which a bit of the process with VARIABLE flips; the line names WHO.
disturb() {
    name=$1 variable=$2 who=$3
    shift 3
    rm -rf broken
    $run --save broken --restart 3 "$@" >out 2>err </dev/null &
    pid=$!
    timeout 100 python3 "$here/../../faults/flip.py" $pid "$variable" "$(ls whole/step-* | head -n 1)" $frozen broken >flips
    flipped=$?
    ends_in_time 0 100
    ended=$?
    began=$(cat flips)
    if [ $flipped = 77 ]; then
        skip "$name" 'the memory of other processes cannot be written here'
        return
    fi
    [ $flipped = 0 ] && [ $ended = 0 ] && [ "$(grep -c "parameter $frozen: coordinate $who (.*) has other bits than the 2 others" err)" = 1 ] &&
        grep -q 'ended with status 1; restart 1 of 3 goes on from broken/'"$began" err && cmp -s whole/$last broken/$last
    point "$name"
}

$run --save whole >out 2>err
status=$?
[ $status = 0 ] && [ -s whole/$last ]
point 'a run that nothing disturbs'
disturb 'one of three threads' PATH '[0-2]'
if [ "$mpirun" ]; then
    for how in OMPI_COMM_WORLD_RANK PMI_RANK; do
        "$mpirun" 1 env 2>/dev/null | grep -q "^$how=" && variable=$how
    done
    disturb 'one of three processes' "$variable=1" 1 --engine mpi --launcher "$mpirun 3"
else
    skip 'one of three processes' 'MPI is not in this build'
fi
plan
