#!/bin/sh
# drivers.sh DRIVERS SOURCE - whole runs, whose device code is executed on the CPU: equal losses, steps as graphs, journals, generated
# text; prints TAP.
drivers=$1 source=$2
. "$source/tests/rigs/points.sh"
export FAKE_CUDA_DEVICES=1

driver=$drivers/loss_equality
answers '"equal":true' --hidden 64 --steps 4 --json

small='--mesh data=1,model=1 --layers 2 --hidden 16 --batch 16 --microbatches 2 --schedule plain --steps 6 --warmup 3 --dropout 0.2'
model="train --mesh data=1,pipe=1,tensor=1 --model-dimension 16 --n-heads 2 --blocks 1 --layers-per-block 1 --sequence 16"
model="$model --latent-dim 8 --rope-dim 4 --batch 2 --data $source/LICENSE --steps 5 --warmup 2 --dropout 0.2"

# same ARGUMENT...: losses, the last gradients and the journal are the same with graphs and without.
same() {
    for graph in off on; do
        call "$@" --json --gradients gradients_$graph --journal journal_$graph --graph $graph
        [ $status = 0 ] || break
        values loss >losses_$graph
        tail -n +2 journal_$graph/coordinate-00.journal >records_$graph # behind the head, which names the options
    done
    [ $status = 0 ] && [ -s losses_on ] && [ -s records_on ] && cmp -s losses_off losses_on && cmp -s gradients_off gradients_on &&
        cmp -s records_off records_on
    point "${driver##*/}: the same as graphs: $*"
}

driver=$drivers/looping_pipeline
same $small
driver=$drivers/transformer
same $model --storage bf16 --precision bf16

call $model --save model.safetensors
[ $status = 0 ] && call generate --params model.safetensors --prompt "The License " --length 24 --temperature 0
cp out first
[ $status = 0 ] && [ -s first ] && call generate --params model.safetensors --prompt "The License " --length 24 --temperature 0 --mesh tensor=2
[ $status = 0 ] && cmp -s out first
point 'text is generated, the same over two coordinates'
plan
