#!/bin/sh
# export.sh DRIVERS DATA DEVICE - models that are written for other programs: read again they give the same logits; a disk that is
# full leaves nothing half written. reference.py has the other programs' word. Prints TAP.
driver=$1/transformer tokens_driver=$1/tokens device=$3
data=$(cd "$2" && pwd)
models=$data/published
tool=$(cd "$(dirname "$0")" && pwd)/published.py
. "$(dirname "$0")/../../rigs/points.sh"
if ! command -v python3 >/dev/null; then
    echo '1..0 # SKIP there is no python3'
    exit
fi
tokens=5,17,3,60,42,42,7,0,31,12,9,33

# gives MODEL WANTED: its logits.
gives() {
    rm -f logits
    call generate --model "$1" --prompt-tokens $tokens --length 13 --temperature 0 --logits logits
    [ $status = 0 ] && python3 "$tool" compare logits "$2" >out 2>err
    point "$1: logits ($(cat out))"
}

# writes TO ARGUMENT...: an export without complaints, but for that of a tokenizer.
writes() {
    to=$1
    shift
    call export --to "$to" "$@"
    [ $status = 0 ] && grep -q "^$to: [0-9]* tensors of a " out && ! grep -v 'no tokenizer is written' err
    point "written: $to $*"
}

for family in llama-untied qwen3 gpt2; do
    writes $family --model "$models/$family" --format hf
    gives $family "$models/$family/logits.safetensors"
done
for family in llama gpt2; do # llama has scaled rotations, and rows in another order
    writes $family.gguf --model "$models/$family" --format gguf
    gives $family.gguf/model.gguf "$models/$family/logits.safetensors"
done
writes back --model gpt2.gguf/model.gguf --format hf
gives back "$models/gpt2/logits.safetensors"

# ---- trained models, in files of a few tensors each, and rounded ----

python3 "$tool" tokens step.safetensors
call train --model "$models/llama-untied" --data step.safetensors --sequence 16 --batch 4 --steps 2 --mesh data=2,tensor=3 --save run
call generate --params run --prompt-tokens $tokens --length 13 --temperature 0 --logits run.logits
writes shards --params run --format hf --file-megabytes 0.02
[ "$(ls shards | tr '\n' ' ')" = 'config.json model-00001-of-00003.safetensors model-00002-of-00003.safetensors model-00003-of-00003.safetensors model.safetensors.index.json ' ]
point 'three files, their index and config.json'
gives shards run.logits
writes half --model "$models/qwen2" --format hf --type bf16
gives half "$models/qwen2/logits.safetensors"

# A run of this library's own is a Llama where its parts are.
own='--attention gqa --n-heads 4 --kv-heads 2 --mlp silu --biases none --model-dimension 32 --layers-per-block 1 --sequence 32'
call train $own --steps 2 --mesh data=2 --save own
call generate --params own --prompt-tokens $tokens --length 13 --temperature 0 --logits own.logits
writes mine --params own --format hf
gives mine own.logits

# less TYPE MOST: rounded to TYPE, logits differ, but by less than MOST of their spread.
less() {
    writes $1 --params own --format gguf --type $1
    call generate --model $1/model.gguf --prompt-tokens $tokens --length 13 --temperature 0 --logits logits
    python3 "$tool" compare logits own.logits >out
    [ $status = 0 ] && awk -v most=$2 '!($1 > 0 && $1 < most) { exit 1 }' out
    point "$1: near ($(cat out))"
}
less f16 0.02
less bf16 0.1
less q8_0 0.3
[ "$(wc -c <q8_0/model.gguf)" -lt "$(wc -c <bf16/model.gguf)" ]
point 'blocks of bytes take less'

# An exported model has the length of its original; with --model also the rest of its config.json.
grep -q '"max_position_embeddings": 64' shards/config.json
point 'the longest sequence is that of the model, not of the run'
cp -r "$models/llama-untied" base
cp "$data/tokenizers/gpt2.json" base/tokenizer.json
sed 's/^{/{"a_key_of_its_own": "kept",/' "$models/llama-untied/config.json" >base/config.json
writes whole --params run --model base --format hf
grep -q '"a_key_of_its_own": "kept"' whole/config.json && cmp -s whole/tokenizer.json base/tokenizer.json
point 'what else the model is, and its tokenizer'
rm whole/tokenizer.json
gives whole run.logits
refused 'the given values have another shape' export --params run --model "$models/llama" --format hf --to other
call train $own --context 4096 --steps 1 --mesh data=1 --save long
writes long.hf --params long --format hf
grep -q '"max_position_embeddings": 4096' long.hf/config.json
point '--context'
call export --help all
[ $status = 0 ] && grep -q '^  --kv-heads ' out && ! grep -qE -- '--(dropout|experts|capacity|vocabulary-parallel|latent-dim) ' out
point 'the options of export are those of models that can be written'
refused '--experts: no such option' export --params run --format hf --to other --experts 2

# ---- tokenizers ----

cp -r "$models/gpt2" folder && cp "$data/tokenizers/gpt2.json" folder/tokenizer.json
writes copied --model folder --format hf
cmp folder/tokenizer.json copied/tokenizer.json
point "a folder's tokenizer is copied"

# remade FORMAT TOKENIZER: a tokenizer written for a file of another kind makes the same tokens.
echo "It's 1999 or 2026:  naïve – and\na tab\t, don't   you?" >words
remade() {
    writes $1 --model "$models/gpt2" --format hf --tokenizer "$2"
    "$tokens_driver" encode --tokenizer "$2" <words >wanted && "$tokens_driver" encode --tokenizer $1 <words | cmp -s wanted &&
        python3 -c "import json; json.load(open('$1/tokenizer_config.json'))"
    point "$1: a tokenizer that is made anew"
}
cp "$data/tokenizers/pieces.json" pieces.other
remade smollm.hf "$data/tokenizers/smollm.gguf"
remade pieces.hf pieces.other
grep -q '"eos_token": "<|' smollm.hf/tokenizer_config.json && ! grep -q 'is written' err
point 'the tokens that begin and end a text'

# ---- refusals, and full disks ----

refused '--steps: no such option' export --model "$models/gpt2" --steps 3 --to x
refused '--model or --params must say' export --to x
refused '--to DIR must say' export --model "$models/gpt2"
refused '--type q8_0: only --format gguf has it' export --model "$models/gpt2" --type q8_0 --to x
refused '--format: "onnx" is not one of hf|gguf' export --model "$models/gpt2" --format onnx --to x
refused '--type: "q4" is not one of f32|f16|bf16|q8_0' export --model "$models/gpt2" --type q4 --to x
refused '--file-megabytes: "0" is not a number from 0.001' export --model "$models/gpt2" --file-megabytes 0 --to x
refused '--to own.logits: cannot be made: it is no directory' export --model "$models/gpt2" --to own.logits
refused '--to x/y: cannot be made: No such file' export --model "$models/gpt2" --to x/y
refused 'cannot hold divisors' export --model llama.gguf/model.gguf --to x
call train --model-dimension 64 --n-heads 4 --blocks 1 --sequence 32 --steps 1 --mesh data=1 --save latent
refused 'no published family has latent attention: the model cannot be written for others; one that is trained with --attention gqa' export --params latent --to x
[ ! -e x ]
point 'nothing was made'

# full TO FORMAT: files end after 8 KB.
full() {
    if [ "$device" = offload ]; then
        skip "a full disk under $2" "the device's runtime needs files, too"
        return
    fi
    (
        trap '' XFSZ
        ulimit -f 16
        exec "$driver" export --model "$models/gpt2" --format $2 --to "$1" >out 2>err
    )
    status=$?
    [ $status = 3 ] && grep -q 'cannot be written: ' err && [ -z "$(ls "$1")" ]
    point "a full disk under $2"
}
full full.hf hf
full full.gguf gguf
plan
