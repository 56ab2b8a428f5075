#!/bin/sh
# tensor_layout.sh DRIVERS DATA - transformer with --tensor-layout rows: the losses, checkpoints and memory of columns,
# layouts in plans, and refusals; prints TAP.
driver=$1/transformer
laptop=$2/machines/laptop.json
. "$(dirname "$0")/../rigs/points.sh"

jackdaws >text
own='--data text --model-dimension 32 --n-heads 4 --blocks 1 --sequence 32 --vocab-size 128'
quiet=--no-advice
rows='--tensor-layout rows'

# same ARGUMENT...: with $options and ARGUMENTs, the steps' losses by rows equal the losses in `single`, to 2e-6.
same() {
    call train $own $quiet --batch 8 --steps 4 --json $options $rows "$@"
    values loss >several
    [ $status = 0 ] && [ ! -s err ] && near 2e-6 several single
    point "as on one coordinate: $options $*"
}
for options in '' '--attention gqa --kv-heads 2 --window 20 --clip 0.5 --vocabulary-parallel' \
    '--document-mask --document-token 98 --dropout 0.1 --accumulate 2' \
    '--attention gqa --mlp silu --biases none --norm layer --untied-head'; do
    call train $own $quiet --batch 8 --steps 4 --json $options --mesh data=1
    values loss >single
    same --mesh tensor=2 --check-replicas
    same --mesh data=2,pipe=2,tensor=2 --checked --schedule looped-bfs
    same --mesh tensor=2,data=4 --zero 2 --no-fsdp
    same --mesh pipe=2,tensor=2 --schedule gpipe --recompute full --wgrad-group 1
    same --mesh data=2,tensor=2 --recompute selective
    same --mesh data=2,tensor=2 --exact data=2
done
options='--offload optimizer,activations,weights --offload-dir far'
mkdir far
call train $own $quiet --batch 8 --steps 4 --json $options --mesh data=1
values loss >single
same --mesh data=2,tensor=2
options='--attention gqa'
call train $own $quiet --batch 8 --steps 4 --json $options --mesh data=1
values loss >single
same --mesh context=2,tensor=2
options=
call train $own $quiet --batch 8 --steps 4 --json --mesh data=1
values loss >single
same --mesh context=2,tensor=2 --context-by latents
call train $own $quiet --batch 8 --steps 4 --json --storage bf16 --mesh tensor=2
values loss >single
call train $own $quiet --batch 8 --steps 4 --json --storage bf16 --mesh tensor=2 $rows
values loss >several
[ $status = 0 ] && near 2e-3 several single
point 'numbers that are saved as bf16'

# ---- checkpoints, evaluation ----

call train $own $quiet --batch 8 --steps 4 --json --mesh data=1
values loss >single
for first in columns rows; do
    then=rows
    [ $first = columns ] || then=columns
    call train $own $quiet --batch 8 --steps 2 --json --mesh data=2,tensor=2 --tensor-layout $first --save $first
    values loss >several
    call train --resume $first --steps 4 --json --no-advice --mesh pipe=2,tensor=4 --tensor-layout $then
    values loss >>several
    [ $status = 0 ] && near 2e-6 several single
    point "a checkpoint of $first goes on with $then"
done
call evaluate --params rows --data text --evaluate-batches 2 --json --mesh data=1
values loss >single
call evaluate --params rows --data text --evaluate-batches 2 --json --mesh data=2,tensor=2 $rows
values loss >several
[ $status = 0 ] && near 2e-6 several single
point 'evaluation by rows'
call evaluate --params rows --data text --evaluate-batches 2 --json --mesh context=2,tensor=2 --context-by latents $rows
values loss >several
[ $status = 0 ] && near 2e-6 several single
point 'evaluation by rows, of latents over context'

# ---- memory, plans ----

for way in '' '--recompute full' '--storage bf16' '--no-fsdp --zero 0'; do
    call train $own $quiet --batch 4 --steps 1 --mesh data=1,tensor=2,pipe=2 $rows $way --dry-run --json
    values total >planned
    call train $own $quiet --batch 4 --steps 1 --mesh data=1,tensor=2,pipe=2 $rows $way --json
    sed -n 's/.*"memory":\[\(.*\)\],"processes.*/\1/p' out | tr '{' '\n' | sed -n 's/.*"total":\([0-9]*\).*/\1/p' >held
    [ $status = 0 ] && [ -s held ] && cmp -s planned held
    point "planned bytes are held $way"
done
call train $own --batch 8 --attention gqa --plan search --devices 4 --machine "$laptop" --json
sed -n 's/.*tensor=[24][^"]*--tensor-layout \([a-z]*\) .*/\1/p' out | sort -u | xargs >ways
[ $status = 0 ] && [ "$(cat ways)" = 'columns rows' ] && ! grep -q 'tensor=1 --tensor-layout' out
point 'a search has both layouts, where there is an axis'
call train --data text --batch 8 --attention gqa --plan search --mesh tensor=4 --machine "$laptop" --save-options best --json
[ $status = 0 ] && head -n 1 out | grep -q -- "$rows" && grep -q -- "$rows" best
point 'and takes the faster one'
call train @best --steps 1
[ $status = 0 ] && grep -q '"parameters"' out
point 'which runs'
call train $own --plan search --mesh tensor=2 --tensor-layout columns --machine "$laptop" --json
[ $status = 0 ] && ! grep -q -- --tensor-layout out
point 'the layout that is given is not written again'

# ---- refusals ----

refused '--tensor-layout: "row" is not one of columns|rows' train $own --mesh tensor=2 --tensor-layout row
refused '--tensor-layout: is read only with --mesh tensor=2 or more, or with --plan' train $own --mesh data=2 $rows
refused '--tensor-layout: is read only with --mesh tensor=2 or more' evaluate --params rows --data text --mesh data=2 $rows
by_rows="train $own --mesh tensor=2 $rows"
refused 'tensor layout rows does not take experts: take columns' $by_rows --experts 4
refused 'tensor layout rows does not take adapters: take columns' $by_rows --attention gqa --lora-rank 2
refused 'tensor layout rows does not take learned positions: take columns' $by_rows --attention gqa --rope-dim 0 --learned-positions 64
refused 'tensor layout rows does not take pieces of rows: take columns' $by_rows --tensor-pieces 2
refused '--tensor-layout rows: --spread-head does not take it' train $own --vocab-size 8192 $rows --layers-per-block 4 \
    --mesh pipe=2,tensor=2 --schedule looped-bfs --spread-head
refused 'tensor layout rows does not take dropout of divided sequences' train $own --mesh context=2,tensor=2 $rows --dropout 0.1
refused 'the number of heads of keys and values (tensor layout rows) 1 does not divide over the 2 coordinates along "tensor"' \
    $by_rows --attention gqa --kv-heads 1
refused '--tensor-layout rows: --sample-every does not take it' $by_rows --sample-every 1
refused '--tensor-layout: no such option' generate --prompt jack --mesh tensor=2 $rows
call $by_rows --sequence 31 # any coordinate tells it first
[ $status = 2 ] && [ ! -s out ] && [ "$(wc -l <err)" = 1 ] && grep -q '31 rows of a sequence do not divide by the 2 coordinates' err
point 'refused: rows that do not divide'
call $by_rows --exact tensor=2
[ $status = 2 ] && [ ! -s out ] && [ "$(wc -l <err)" = 1 ] && grep -q 'no sums over leaves along "tensor" (--exact tensor=2)' err
point 'refused: leaves along tensor'
plan
