#!/bin/sh
# machine.sh DRIVERS - coordinates with several GPUs, and with few: access to each other's memory, waiting threads,
# number of streams. The GPUs are threads here; prints TAP.
drivers=$1
. "$(dirname "$0")/../../rigs/points.sh"
driver=$drivers/looping_pipeline
small='--hidden 16 --batch 16 --steps 1'
export FAKE_CUDA_RECORD=$work/record

# runs NAME DEVICES ARGUMENT...: the account of the run is in the file record.
runs() {
    : >record
    export FAKE_CUDA_DEVICES="$1"
    shift
    call "$@" $small
}
# peers: prints pairs of devices: the first can access the second one's memory.
peers() { sed -n 's/.* peer \([0-9]* [0-9]*\)$/\1/p' record | sort -u | tr ' \n' '> '; }

runs 4 --mesh data=2,model=2
[ $status = 0 ] && [ "$(peers)" = '0>1 0>2 0>3 1>0 1>2 1>3 2>0 2>1 2>3 3>0 3>1 3>2 ' ]
point 'each of four GPUs reaches the others'
export FAKE_CUDA_APART=3
runs 4 --mesh data=2,model=2
[ $status = 2 ] && says 'looping_pipeline: ' "do not reach each other's memory: use engine nccl, or let all coordinates share a device"
point 'GPUs that do not meet are refused by engine local'
! grep -q ' peer ' record
point 'before anything is asked of them'
runs 4 --mesh data=1,model=2
[ $status = 0 ] && [ "$(peers | tr ' ' '\n' | grep -c 3)" = 0 ] && [ -n "$(peers)" ]
point 'one that meets no other is left out, where others are enough'
unset FAKE_CUDA_APART
export FAKE_CUDA_FAIL=cudaDeviceEnablePeerAccess@1
runs 2 --mesh data=1,model=2
[ $status = 3 ] && says 'looping_pipeline: coordinate ' ': cudaDeviceEnablePeerAccess: unknown error'
point 'a GPU that is to reach another one, and cannot after all'
unset FAKE_CUDA_FAIL

# flags: with which each device's context begins, before anything else does.
flags() { sed -n 's/.* call cudaInitDevice \([0-9]*\)$/\1/p' record | tr '\n' ' '; }
runs 1 --mesh data=1,model=1 --schedule plain
[ $status = 0 ] && [ "$(flags)" = '1 ' ]
point 'a thread with a core looks on while it waits'
driver=taskset
runs 2 -c "$(taskset -cp $$ | sed 's/.*: \([0-9]*\).*/\1/')" "$drivers/looping_pipeline" --mesh data=1,model=2
[ $status = 0 ] && [ "$(flags)" = '4 4 ' ]
point 'threads that share a core sleep'
driver=$drivers/looping_pipeline

# Each coordinate has a stream, and the thread that starts the run has one at most.
runs 1 --mesh data=2,model=4
streams=$(grep -c 'call cudaStreamCreateWithFlags' record)
[ $status = 0 ] && [ "$streams" -ge 8 ] && [ "$streams" -le 9 ]
point "$streams streams for eight coordinates on a GPU"
runs 1 --mesh data=2,model=4 --offload optimizer,activations,weights
streams=$(grep -c 'call cudaStreamCreateWithFlags' record)
[ $status = 0 ] && [ "$streams" -gt 9 ] && [ "$streams" -le 17 ]
point "$streams where each copies beside its work"
# Engine nccl: no more than the queues that a device has.
runs 4 --mesh data=2,model=2 --engine nccl
if [ $status = 2 ] && grep -q 'not in this build' err; then
    skip 'streams of engine nccl' 'it is not in this build'
else
    streams=$(grep -c 'call cudaStreamCreateWithFlags' record)
    [ $status = 0 ] && [ "$streams" -ge 8 ] && [ "$streams" -le $((4 * 32)) ]
    point "$streams streams for four coordinates of engine nccl"
    export FAKE_CUDA_APART=3
    runs 4 --mesh data=2,model=2 --engine nccl
    [ $status = 0 ] && [ "$(peers)" = '0>1 0>2 1>0 1>2 2>0 2>1 ' ]
    point 'which does with GPUs that do not meet'
fi
plan
