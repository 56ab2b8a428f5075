#!/bin/sh
# perplexity.sh DRIVERS DATA - models that are trained here, whole or with adapters, and written for others: Hugging Face's
# transformers says the same perplexity of the same tokens in the same windows. Prints TAP.
#
# It takes the first Python that has transformers: $SL_TEST_PYTHON, python3, or that of benchmarks/peers/setup; for GGUF files
# packages gguf and accelerate, too.
driver=$1/transformer
models=$(cd "$2/published" && pwd)
here=$(cd "$(dirname "$0")" && pwd)

has() {
    "$python" -c "import $1" >/dev/null 2>&1
}
found=
for python in "${SL_TEST_PYTHON:-python3}" python3 "$here/../../../build/peers/transformers/bin/python"; do
    has 'torch, transformers' && found=yes && break
done
if [ ! "$found" ]; then
    echo '1..0 # SKIP no Python here has torch and transformers: ./benchmarks/peers/setup transformers installs them'
    exit
fi
. "$here/../../rigs/points.sh"

python3 "$here/published.py" tokens tokens.safetensors
opened=

# trained NAME FAMILY FORMATS OPTION...: a run of FAMILY's model, its perplexity here, and what is written for others, a model a
# line in models.
trained() {
    name=$1 family=$2 formats=$3
    shift 3
    call train --model "$models/$family" --data tokens.safetensors --sequence 16 --batch 4 --steps 3 --lr 0.01 --save "$name" "$@"
    call evaluate --params "$name" --eval-data tokens.safetensors --sequence 16 --batch 4 --json
    values perplexity >"$name.here"
    [ $status = 0 ] && [ "$(values tokens)" = 64 ]
    point "$name: 64 tokens are scored"
    for format in $formats; do
        call export --params "$name" --model "$models/$family" --format $format --to "$name.$format"
        [ $status = 0 ] && ! grep -qa lora_a "$name.$format"/*
        point "$name: written: $format"
        opened="$opened $name.$format"
    done
}
has 'gguf, accelerate' && both='hf gguf' || both=hf
trained adapted llama-untied "$both" --mesh data=1,pipe=2 --lora-rank 4
trained whole llama-untied "$both" --mesh data=2,tensor=3
trained some qwen2 hf --mesh pipe=2 --lora-rank 2 --lora-modules '*.q,*.down'
trained positions gpt2 hf --mesh data=2 --lora-rank 4
call evaluate --model "$models/llama-untied" --eval-data tokens.safetensors --sequence 16 --batch 4 --json
values perplexity >before
! near 1e-2 before adapted.here && ! near 1e-2 before whole.here
point 'training has changed it'

# The other program is started once for all models.
places=
for model in $opened; do
    case $model in
    *.gguf) places="$places $model/model.gguf" ;;
    *) places="$places $model" ;;
    esac
done
"$python" "$here/reference.py" perplexity tokens.safetensors $places >there 2>err
status=$?
cp there out
number=0
for model in $opened; do
    number=$((number + 1))
    sed -n ${number}p there >there.one
    [ $status = 0 ] && near 1e-5 there.one "${model%.*}.here"
    point "$model: transformers says $(cat there.one), and here it is $(cat "${model%.*}.here")"
done
[ "$both" != hf ] || skip 'GGUF files' "$python lacks gguf or accelerate"
plan
