#!/bin/sh
# graph.sh DRIVERS DEVICE - steps as graphs of the GPU's: the same bits, on threads in the place of GPUs (DEVICE fake-cuda);
# on other devices there are none; prints TAP.
drivers=$1 device=$2
. "$(dirname "$0")/../../rigs/points.sh"

small='--mesh data=1,model=1 --layers 2 --hidden 16 --batch 16 --microbatches 2 --schedule plain --steps 7 --warmup 3'
small="$small --lr-schedule cosine --dropout 0.2"
for n in 0 1 2 3 4 5 6 7 8 9; do echo "Line $n of a text that is long enough to be divided, not to be read."; done >text
model='train --mesh data=1,pipe=1,tensor=1 --model-dimension 16 --n-heads 2 --blocks 1 --layers-per-block 1 --sequence 8'
model="$model --latent-dim 8 --rope-dim 4 --batch 4 --data text --steps 6 --warmup 3 --dropout 0.2"

# same NAME ARGUMENT...: losses and the last gradients are those without graphs.
same() {
    name=$1
    shift
    call "$@" --json --gradients plain --graph off
    values loss >losses
    [ $status = 0 ] && [ -s losses ] && call "$@" --json --gradients graphs --graph "$graph"
    values loss | cmp -s - losses && [ $status = 0 ] && cmp -s plain graphs
    point "${driver##*/}: $name: $*"
}

if [ "$device" != fake-cuda ]; then
    driver=$drivers/looping_pipeline
    refuses '--graph on: needs an NVIDIA GPU, and this build computes on the device ' $small --graph on
    driver=$drivers/loss_equality
    refuses '--graph on: needs an NVIDIA GPU' --graph on
    driver=$drivers/transformer
    refused '--graph on: needs an NVIDIA GPU' $model --graph on
    driver=$drivers/looping_pipeline graph=auto
    same 'auto is nothing here' $small
    call $small --graph auto --profile
    [ $status = 0 ] && grep -q '^graphs: the device has none$' out
    point 'the profile says so'
    plan
    exit
fi

graph=on
driver=$drivers/looping_pipeline
same 'the same bits' $small
same 'with clipping, and passes' $small --clip 0.5 --accumulate 2 --batch 32
same 'pipelines' $small --mesh data=1,model=2
driver=$drivers/transformer
same 'the same bits' $model

driver=$drivers/looping_pipeline
call $small --graph on --profile
[ $status = 0 ] && grep -q '^graphs: 5 of 7 steps; in the last one [0-9]* of [0-9]* calls were in [1-9][0-9]* graphs, where ' out
point 'the profile tells how many steps were graphs'
export FAKE_CUDA_FAIL=cuStreamBeginCapture_v2@2
graph=on
call $small --graph on
[ $status = 3 ] && grep -q 'device 0: cuStreamBeginCapture: a graph of the step: unknown error' err
point 'what must be graphs and is refused ends the run'
call $small --graph auto --profile
[ $status = 0 ]
point 'what may be graphs goes on without'
plan
