#!/bin/sh
# best.sh DRIVERS - --keep best: the latest checkpoint and the one whose evaluation had the least loss; prints TAP.
drivers=$1
driver=$drivers/transformer
. "$(dirname "$0")/../../rigs/points.sh"

seq 300 >text
model='--mesh data=1 --model-dimension 16 --n-heads 2 --latent-dim 8 --rope-dim 4 --sequence 8 --layers-per-block 1 --blocks 2 --batch 4 --data text'
# The rate is so large that the loss falls and rises again.
train="train $model --lr 0.3 --evaluate-every 2 --save-every 2"

# best METRICS: the step with the least evaluation loss, of the steps with a checkpoint.
best() {
    sed -n 's/.*"step":\([0-9]*\),"evaluation_loss":\([0-9.e+-]*\).*/\2 \1/p' "$1" | LC_ALL=C sort -g | awk 'NR == 1 { print $2 + 1 }'
}
# kept DIR STEP...: the checkpoints in DIR are those of these STEPs.
kept() {
    directory=$1
    shift
    for step; do printf 'step-%08d.safetensors\n' "$step"; done | sort -u >expected
    ls "$directory" | grep '^step' | diff expected - >err
}

for how in '' --save-async; do
    for steps in 10 16; do
        rm -rf saved metrics
        call $train --steps $steps --save saved --keep best --metrics metrics $how
        least=$(best metrics)
        if [ "$how" ] && [ "$least" = $steps ]; then # the one before it may still be there
            ls saved | grep -q "step-0*$steps\.safetensors"
        else
            [ $status = 0 ] && kept saved "$least" $steps
        fi
        point "$steps steps $how: the one after $least steps and the last one"
        grep -q "^{\"step\":$least,\"evaluation_loss\":[0-9.]*}$" saved/best.json
        point 'best.json names it'
    done
done
[ "$least" -lt 16 ]
point "the least loss is none of the last step's"
rm -rf saved metrics
call $train --steps 10 --save saved --keep best --metrics metrics
grep -q "least evaluation loss, [0-9.]*, is that of saved/step-0*$(best metrics)\.safetensors" err
point 'and people are told so'
grep -q -- '--save-every 2 --keep best' err
point 'the command that goes on has it, too'
call train --resume saved --save saved --save-every 2 --evaluate-every 2 --keep best --steps 12 --metrics metrics
[ $status = 0 ] && [ "$(best metrics)" = 6 ] && kept saved 6 12
point 'a run that goes on knows of it'
"$driver" evaluate --params "saved/$(ls saved | grep '^step' | head -n 1)" --data text >out 2>err
[ $? = 0 ]
point 'it is a checkpoint like others'

# ---- refused ----

refused '--keep best: this run makes no evaluations to choose by' train $model --steps 2 --save other --save-every 2 --keep best
refused '--keep best: --save-every is 3, and must be a multiple of the 2 steps between evaluations' train $model --steps 2 --save other --save-every 3 \
    --evaluate-every 2 --keep best
refused '--keep best: --save-every is 0, and must be a multiple of the 1 step between' train $model --steps 2 --save other --evaluate-every 1 --keep best
refused '--keep: "worst" is not an integer from 1 to 1000000, or best' train $model --steps 2 --save other --keep worst
refused '--keep: "0" is not an integer from 1' train $model --steps 2 --save other --keep 0
[ ! -e other ]
point 'nothing is made'
driver=$drivers/looping_pipeline
refuses '--keep best: this run makes no evaluations' --mesh data=1,model=1 --schedule single --steps 2 --save other --save-every 2 --keep best
driver=$drivers/transformer
for text in 'nonsense' '[1]' '{"step":"two","evaluation_loss":1}' '{"step":2}'; do
    echo "$text" >saved/best.json
    refused '--keep best: saved/best.json' train --resume saved --save saved --save-every 2 --evaluate-every 2 --keep best --steps 14
done
echo '{"step":8888,"evaluation_loss":0.001}' >saved/best.json
call train --resume saved --save saved --save-every 2 --evaluate-every 2 --keep best --steps 14
[ $status = 0 ] && grep -q '"step":14,' saved/best.json
point 'a best one that is not there is none'
refused 'saved/best.json: one of the files of --save saved' train --resume saved --save saved --metrics saved/best.json --steps 24
plan
