#!/bin/sh
# nccl.sh DRIVERS - --exact by engine nccl: it gathers the terms and adds them in the order of a tree, so that losses and
# gradients have the bits of one coordinate and of engine local; prints TAP.
drivers=$1
. "$(dirname "$0")/../../rigs/points.sh"
. "$(dirname "$0")/layouts.sh"

by_nccl() { same --engine nccl "$@"; }

latent='--model-dimension 64 --n-heads 4 --blocks 1 --layers-per-block 2 --sequence 32 --latent-dim 16'
latent="transformer train --steps 2 $latent --batch 8 --microbatches 2 --clip 0.5 --dropout 0.1"
grouped='--attention gqa --model-dimension 64 --n-heads 4 --kv-heads 4 --blocks 2 --layers-per-block 1 --sequence 32'
grouped="transformer train --steps 2 $grouped --batch 8 --microbatches 2"
classifier='looping_pipeline --steps 2 --layers 4 --hidden 32 --microbatches 4'

begins 'latent attention' "$latent --exact data=2,tensor=4" --mesh tensor=1
by_nccl --mesh tensor=4
by_nccl --mesh data=2,tensor=2,pipe=2 --fsdp

begins 'products of bf16' "$grouped --exact data=2,tensor=4 --precision bf16 --storage bf16 --vocabulary-parallel" --mesh tensor=1
by_nccl --mesh data=2,tensor=4
by_nccl --mesh data=2,tensor=2,pipe=2

begins 'experts' "$grouped --exact data=4 --experts 4 --top-k 2" --mesh data=1
by_nccl --mesh data=4 --fsdp
by_nccl --mesh data=2,pipe=2

begins 'six leaves of the classifier' "$classifier --exact data=6 --batch 96 --precision bf16" --mesh data=1,model=1
by_nccl --mesh data=3,model=2
by_nccl --mesh data=6,model=1 --fsdp
plan
