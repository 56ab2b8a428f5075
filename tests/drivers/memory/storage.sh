#!/bin/sh
# storage.sh DRIVERS - with --storage bf16 a text is learned as with floats, and a checkpoint of one storage is gone on
# with in the other; prints TAP. With SL_TEST_LONG in three times as many steps.
driver=$1/transformer
. "$(dirname "$0")/../../rigs/points.sh"

steps=100
[ -z "${SL_TEST_LONG:-}" ] || steps=300
train='train --model-dimension 32 --n-heads 4 --blocks 1 --layers-per-block 2 --sequence 32 --latent-dim 16 --rope-dim 8
    --batch 16 --lr 0.003 --json'
text='the licenses'
if [ ! -d /usr/share/common-licenses ]; then
    seq 1 20000 >numbers
    train="$train --data numbers"
    text='numbers'
fi

# learn STORAGE ARGUMENT...: the last loss goes to the file loss.STORAGE.
learn() {
    call $train --storage "$@"
    values final_loss >"loss.$1"
    [ $status = 0 ] && [ -s "loss.$1" ]
}

# learns_alike NAME ARGUMENT...: the last loss is within 1 % of the one with --storage f32, which has fallen from above 5.
learns_alike() {
    name=$1
    shift
    learn f32 "$@" && learn bf16 "$@" && near 0.01 loss.f32 loss.bf16 && ! cmp -s loss.f32 loss.bf16 &&
        awk '$1 > 3 { exit 1 }' loss.f32
    point "$name"
}
learns_alike "$steps steps on $text" --steps $steps
learns_alike "$steps steps on $text, products of bf16" --steps $steps --precision bf16

# goes_on FROM TO: values and moments are the checkpoint's, so that the loss is that of a run that has FROM all the time.
goes_on() {
    rm -rf saved
    learn "$1" --steps $steps --mesh data=2 && mv "loss.$1" whole &&
        learn "$1" --steps $((steps / 2)) --mesh data=2 --save saved && learn "$2" --steps $steps --mesh data=2 --resume saved &&
        near 0.01 whole "loss.$2" && [ "$(values step | wc -l)" = $((steps / 2)) ] &&
        [ "$(wc -l <err)" = 1 ] && grep -q "^transformer: --storage $2 overrides $1 of the run in saved/" err
    point "$2 goes on with a checkpoint of $1"
}
goes_on f32 bf16
goes_on bf16 f32

# Runs that do not train have bf16 kernels in every layout. Replicas' losses are added up in another order.
kept="--params saved --model-dimension 32 --n-heads 4 --blocks 1 --layers-per-block 2 --sequence 32 --latent-dim 16 --rope-dim 8
    --storage bf16 --json"
for precision in f32 bf16; do
    rm -f scores
    for mesh in data=1 data=2 pipe=2 "data=2 --fsdp"; do
        call evaluate $kept --precision $precision --batch 16 --mesh $mesh && values evaluation_loss >>scores
    done
    awk 'NR == 1 { first = $1 } { far += ($1 - first) ^ 2 > (1e-7 * first) ^ 2 } END { exit NR != 4 || far }' scores
    point "evaluated alike by products of $precision"
done
plan
