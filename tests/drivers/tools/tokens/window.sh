#!/bin/sh
# window.sh DRIVERS DATA - transformer --window: a token attends to the last N tokens alone, in all layouts, in training,
# generation, export and import; refusals. Prints TAP.
driver=$1/transformer
models=$(cd "$2/published" && pwd)
tool=$(cd "$(dirname "$0")/../../published" && pwd)/published.py
. "$(dirname "$0")/../../../rigs/points.sh"
if ! command -v python3 >/dev/null; then
    echo '1..0 # SKIP there is no python3'
    exit
fi

# One layer: tokens beyond the window reach a token through no other layer.
own="--attention gqa --n-heads 4 --kv-heads 2 --mlp silu --biases none --model-dimension 32 --layers-per-block 1 --sequence 48"
for n in 1 2 3 4 5 6 7 8 9; do echo "Line $n of a text: $(seq -s' ' $n 20)."; done >text

# logits FILE ARGUMENT...
logits() {
    to=$1
    shift
    call generate --temperature 0 --logits "$to" "$@"
}

# rows FILE FIRST COUNT OUT: the logits of those tokens, as if they were all.
rows() {
    python3 "$tool" rows "$@"
}

call train $own --blocks 1 --data text --steps 20 --lr 0.01 --mesh data=1,pipe=1 --window 8 --save one
[ $status = 0 ]
point 'a training'
logits seen --params one --prompt 'Line 3 of a text: 3 4' --length 22
logits last --params one --prompt ' text: 3 4' --length 11
[ $status = 0 ] && rows seen 20 1 far && rows last 9 1 near && python3 "$tool" compare far near >out 2>err
point "the last of 21 tokens sees what the last of 10 does ($(cat out))"
logits less --params one --prompt 'ext: 3 4' --length 9
rows less 7 1 eight
python3 "$tool" compare far eight >out 2>err
point "and what the last of 8 does ($(cat out))"
logits seven --params one --prompt 'xt: 3 4' --length 8
[ $status = 0 ] && rows seven 6 1 fewer && [ -s fewer ] && ! python3 "$tool" compare far fewer >out 2>err && [ -s out ]
point "but not what the last of 7 does ($(cat out))"

# ---- layouts ----

two="$own --blocks 2 --data text --batch 4 --steps 4 --lr 0.01 --json"
call train $two --window 7 --mesh data=1 --microbatches 4
values loss >one.loss
call train $two --mesh data=1 --microbatches 4
values loss >all.loss
[ $status = 0 ] && ! cmp -s one.loss all.loss
point 'without a window the losses are others'
call train $two --window 48 --mesh data=1 --microbatches 4
values loss >loss
[ $status = 0 ] && cmp -s loss all.loss
point 'with one of the whole sequence they are the same'
for layout in 'pipe=2 --schedule 1f1b' 'pipe=2 --schedule gpipe' 'data=1 --recompute selective' 'pipe=2 --recompute full' 'data=1 --no-fuse'; do
    call train $two --window 7 --microbatches 4 --mesh $layout
    values loss >loss
    [ $status = 0 ] && cmp -s loss one.loss
    point "the same bits on $layout"
done
for layout in tensor=4 data=2,pipe=2; do
    call train $two --window 7 --mesh $layout
    values loss >loss
    [ $status = 0 ] && near 1e-4 loss one.loss
    point "the same within rounding on $layout"
done
call train $two --window 7 --mesh data=1 --microbatches 4 --document-mask --document-token 10
values loss >loss
[ $status = 0 ] && ! cmp -s loss one.loss
point 'documents within a window'

# ---- saved, generated, exported ----

call train $own --blocks 2 --data text --batch 4 --steps 20 --lr 0.01 --mesh data=2 --window 7 --save run
call generate --params run --prompt 'Line 2 of' --length 40 --temperature 0 --json
grep -o '"tokens":[^]]*' out >wanted
for layout in pipe=2 tensor=2 'data=1 --threads 2' 'pipe=2 --samples 3 --in-flight 2'; do
    call generate --params run --prompt 'Line 2 of' --length 40 --temperature 0 --json --mesh $layout
    [ $status = 0 ] && [ -s wanted ] && grep -o '"tokens":[^]]*' out | head -n 1 | cmp -s - wanted
    point "the same tokens on $layout"
done
call export --params run --format hf --to folder
[ $status = 0 ] && grep -q '"model_type": "mistral"' folder/config.json && grep -q '"sliding_window": 7' folder/config.json
point 'exported: a Mistral'
tokens=76,105,110,101,32,51,32,111,102,32,97,32,116
logits want --params run --prompt-tokens $tokens --length 14
logits got --model folder --prompt-tokens $tokens --length 14
[ $status = 0 ] && python3 "$tool" compare got want >out 2>err
point "read again ($(cat out))"
python3 "$tool" config folder wide sliding_window 48
logits wide.logits --model wide --prompt-tokens $tokens --length 14
[ $status = 0 ] && ! python3 "$tool" compare wide.logits want >out 2>err
point 'a window that is no shorter than the context is none'
python3 "$tool" config "$models/llama" mistral model_type '"mistral"'
logits got --model mistral --prompt-tokens 5,17,3,60,42,42,7,0,31,12,9,33 --length 13
[ $status = 0 ] && python3 "$tool" compare got "$models/llama/logits.safetensors" >out 2>err
point "a Mistral without a window ($(cat out))"

# ---- refusals ----

refused '--window: is read only with --attention gqa' train --window 7
refused '--window: "-1" is not an integer from 0' train --attention gqa --window -1
refused '--model and --window: the model' generate --model folder --window 3
refused 'window is 7 in the checkpoint, and 8 here' train --resume run --window 8
refused 'a GGUF file of a mistral cannot say that attention has a window of 7 tokens: --format hf can' export --params run --format gguf --to x
python3 "$tool" config folder wrong sliding_window '"wide"'
refused 'config.json: sliding_window: there must be a number' generate --model wrong --prompt-tokens 1
[ ! -e x ]
point 'nothing was made'
plan
