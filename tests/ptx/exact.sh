#!/bin/sh
# exact.sh DRIVERS SOURCE - with --exact the executed device code has the same bits over layouts and engines; prints TAP.
drivers=$1 source=$2
. "$source/tests/rigs/points.sh"
. "$source/tests/drivers/exact/layouts.sh"
export FAKE_CUDA_DEVICES=8

classifier='looping_pipeline --steps 2 --layers 2 --hidden 16 --microbatches 2 --batch 32 --dropout 0.1'
begins classifier "$classifier --exact data=4" --mesh data=1,model=1
same --mesh data=4,model=1
same --mesh data=2,model=2 --engine nccl

latent='transformer train --steps 2 --model-dimension 32 --n-heads 2 --blocks 1 --layers-per-block 2 --sequence 24 --latent-dim 8'
latent="$latent --rope-dim 8 --batch 4 --microbatches 2 --clip 0.5 --exact data=2,tensor=2 --data $source/LICENSE"
begins 'latent attention' "$latent" --mesh tensor=1
same --mesh data=2,tensor=2,pipe=2 --fsdp
same --mesh tensor=2 --engine nccl

grouped='transformer train --steps 2 --attention gqa --model-dimension 64 --n-heads 4 --kv-heads 2 --blocks 1 --layers-per-block 1'
grouped="$grouped --sequence 32 --batch 4 --exact data=2 --precision bf16 --storage bf16 --data $source/LICENSE"
begins 'products of bf16' "$grouped" --mesh data=1
same --mesh data=2 --engine nccl
plan
