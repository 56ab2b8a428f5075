#!/bin/sh
# graph.sh DRIVERS DEVICE - steps as graphs of the GPU's: the same bits, on a GPU (DEVICE cuda) or on threads in its place
# (fake-cuda), which fail as told, too; on other devices there are none; prints TAP.
drivers=$1 device=$2
. "$(dirname "$0")/../../../rigs/points.sh"

small='--mesh data=1,model=1 --layers 2 --hidden 16 --batch 16 --microbatches 2 --schedule plain --steps 7 --warmup 3'
small="$small --lr-schedule cosine --dropout 0.2"
for n in 0 1 2 3 4 5 6 7 8 9; do echo "Line $n of a text that is long enough to be divided, not to be read."; done >text
model='train --mesh data=1,pipe=1,tensor=1 --model-dimension 16 --n-heads 2 --blocks 1 --layers-per-block 1 --sequence 8'
model="$model --latent-dim 8 --rope-dim 4 --batch 4 --data text --steps 6 --warmup 3 --dropout 0.2"

# same NAME ARGUMENT...: losses and the last gradients equal those of a run without graphs.
same() {
    name=$1
    shift
    call "$@" --json --gradients plain --graph off
    values loss >losses
    [ $status = 0 ] && [ -s losses ] && call "$@" --json --gradients graphs --graph "$graph"
    values loss | cmp -s - losses && [ $status = 0 ] && cmp -s plain graphs
    point "${driver##*/}: $name: $*"
}

# records ARGUMENT...: the journal's records equal those of a run without graphs.
records() {
    call "$@" --journal plain_journal --graph off
    [ $status = 0 ] && call "$@" --journal graph_journal --graph "$graph"
    tail -n +2 plain_journal/coordinate-00.journal >plain_records # behind the head, which names the options
    [ $status = 0 ] && [ -s plain_records ] && tail -n +2 graph_journal/coordinate-00.journal | cmp -s - plain_records
    point "${driver##*/}: the same journal: $*"
}

if [ "$device" != cuda ] && [ "$device" != fake-cuda ]; then
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
records $small
driver=$drivers/transformer
same 'the same bits' $model
records $model --storage bf16
driver=$drivers/looping_pipeline
call $small --graph on --profile
[ $status = 0 ] && grep -q '^graphs: 5 of 7 steps; in the last one [0-9]* of [0-9]* calls were in [1-9][0-9]* graphs, where ' out
point 'the profile tells how many steps were graphs'
call $small --graph on --profile --json
[ $status = 0 ] && grep -q '^{"graphs":{"steps":7,"replayed":5,"parted":0,"calls":[0-9]*,"graphs":[1-9][0-9]*,"in_graphs":' out
point 'and so in JSON, where none was in part'

# The other points need several GPUs, and calls that fail.
if [ "$device" = cuda ]; then
    plan
    exit
fi

# Engine nccl's sums, gathers and exchanges are parts of graphs. Of two members a sum has one order, so that the losses are
# engine local's, too.
export FAKE_CUDA_DEVICES=16
as_local() {
    call "$@" --json --engine local
    values loss >losses
    [ $status = 0 ] && [ -s losses ] && call "$@" --json --engine nccl --graph on
    values loss | cmp -s - losses && [ $status = 0 ]
    point "${driver##*/}: as engine local: $*"
}

# held ARGUMENT...: graphs hold every sum over data of the last steps: none of them is called.
held() {
    rm -f few more
    FAKE_CUDA_RECORD=few call "$@" --steps 9
    FAKE_CUDA_RECORD=more call "$@" --steps 11
    [ $status = 0 ] && [ "$(outside few)" = "$(outside more)" ] && [ "$(grep -c 'call ncclReduceScatter' few)" -lt "$(grep -c 'call ncclReduceScatter' more)" ]
    point "${driver##*/}: no sum over data comes by itself: $*"
}

# outside RECORD: how often ncclReduceScatter did not come in a graph.
outside() {
    awk '$1 !~ /\./ { split($1, who, "."); last[who[1]] = $3 }
        $3 == "ncclReduceScatter" { split($1, who, "."); count += last[who[1]] != "cuGraphLaunch" }
        END { print count + 0 }' "$1"
}

driver=$drivers/looping_pipeline
same 'sums' $small --mesh data=4,model=1 --engine nccl
same 'pipelines of sums' $small --mesh data=2,model=2 --engine nccl
as_local $small --mesh data=2,model=1
held $small --mesh data=4,model=1 --engine nccl --graph on
FAKE_NCCL_HANG=ncclReduceScatter@9 call $small --mesh data=4,model=1 --engine nccl --graph on --timeout 2
[ $status = 3 ] && grep -q 'psum_scatter over "data" at .*: has not ended after 2 s, though all that it needs have begun it' err
point 'a sum that hangs in a graph is told'
FAKE_NCCL_REFUSE=ncclReduceScatter@9 call $small --mesh data=4,model=1 --engine nccl --graph on
[ $status = 3 ] && grep -q 'NCCL: ncclReduceScatter: internal error' err
point 'and so is one that NCCL refuses'
driver=$drivers/transformer
same 'FSDP' $model --mesh data=4 --fsdp --engine nccl --steps 10
same 'all axes' $model --mesh data=2,pipe=2,tensor=2 --layers-per-block 2 --engine nccl --steps 10
as_local $model --mesh data=1,pipe=1,tensor=2
unset FAKE_CUDA_DEVICES

driver=$drivers/looping_pipeline
export FAKE_CUDA_FAIL=cuStreamBeginCapture_v2@2
graph=on
call $small --graph on
[ $status = 3 ] && grep -q 'device 0: cuStreamBeginCapture: a graph of the step: unknown error' err
point 'what must be graphs and is refused ends the run'
call $small --graph auto --profile
[ $status = 0 ]
point 'what may be graphs goes on without'
plan
