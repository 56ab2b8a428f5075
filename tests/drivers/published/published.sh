#!/bin/sh
# published.sh DRIVERS DATA - models published by others: logits equal those of the models' own library, in any file
# format and layout; prints TAP.
driver=$1/transformer
models=$(cd "$2/published" && pwd)
tool=$(cd "$(dirname "$0")" && pwd)/published.py
. "$(dirname "$0")/../../rigs/points.sh"
if ! command -v python3 >/dev/null; then
    echo '1..0 # SKIP there is no python3'
    exit
fi

tokens=5,17,3,60,42,42,7,0,31,12,9,33

# gives MODEL WANTED ARGUMENT...: its logits.
gives() {
    model=$1 wanted=$2
    shift 2
    rm -f logits
    call generate --model "$model" --prompt-tokens $tokens --length 13 --temperature 0 --json --logits logits "$@"
    [ $status = 0 ] && [ ! -s err ] && python3 "$tool" compare logits "$wanted" >out 2>err
    point "${model##*/} $* ($(cat out))"
}

for family in llama qwen2 qwen3 llama-untied gpt2; do
    gives "$models/$family" "$models/$family/logits.safetensors"
done
gives "$models/llama" "$models/llama/logits.safetensors" --mesh pipe=2,tensor=2
gives "$models/qwen2" "$models/qwen2/logits.safetensors" --mesh tensor=3
gives "$models/qwen3" "$models/qwen3/logits.safetensors" --mesh data=2,pipe=2,tensor=3
gives "$models/llama-untied" "$models/llama-untied/logits.safetensors" --mesh pipe=2,tensor=2 --vocabulary-parallel
gives "$models/gpt2" "$models/gpt2/logits.safetensors" --mesh pipe=2,tensor=3
python3 "$tool" config "$models/gpt2" erf activation_function '"gelu"'
gives erf "$models/gpt2/erf.safetensors"

# ---- GGUF ----

for family in qwen3 llama llama-untied gpt2; do # llama has rope_freqs
    python3 "$tool" gguf "$models/$family" $family.gguf
    gives $family.gguf "$models/$family/logits.safetensors" --mesh tensor=2
done

# ---- a training step ----

python3 "$tool" tokens step.safetensors

# steps FAMILY ARGUMENT...: the loss, and all gradients under their published names.
steps() {
    family=$1
    shift
    call train --model "$models/$family" --data step.safetensors --sequence 16 --batch 4 --steps 1 --json --gradients gradients "$@"
    values loss >loss
    [ $status = 0 ] && python3 "$tool" gradients gradients "$(head -n 1 loss)" "$models/$family/facts.json" >out 2>err
    point "a step of $family $* ($(cat out))"
}
steps llama --mesh tensor=3
steps qwen2 --mesh data=2,pipe=2,tensor=3
steps qwen3 --mesh pipe=2,tensor=2
steps llama-untied --mesh data=2,tensor=2 --vocabulary-parallel
steps llama-untied --mesh data=1,pipe=2 --schedule interleaved-1f1b --loops 1 --spread-head rows
steps gpt2 --mesh data=2,pipe=2,tensor=3

# ---- evaluation and training ----

python3 - <<'END'
import struct
tokens = [(7 * i * i + 3 * i) % 64 for i in range(400)]
open("shard.bin", "wb").write(struct.pack("<256i", 20240520, 1, 400, *[0] * 253) + struct.pack("<400H", *tokens))
END
small='--data shard.bin --validation 0.5 --sequence 16 --batch 6 --json'
for mesh in data=1 data=2 data=1,pipe=2 data=1,tensor=3; do
    call evaluate --model "$models/llama" $small --evaluate-batches 2 --mesh $mesh
    values loss >loss.$mesh
done
near 1e-6 loss.data=2 loss.data=1 && near 1e-6 loss.data=1,pipe=2 loss.data=1 && near 1e-6 loss.data=1,tensor=3 loss.data=1
point 'evaluated alike in all layouts'
for mesh in data=1 data=2,pipe=2 data=1,tensor=6; do
    call train --model "$models/qwen3" $small --steps 4 --mesh $mesh
    values loss >loss.$mesh
done
near 1e-5 loss.data=2,pipe=2 loss.data=1 && near 1e-5 loss.data=1,tensor=6 loss.data=1 && [ "$(wc -l <loss.data=1)" = 4 ]
point 'trained alike in all layouts'


# Another layout resumes a saved run without --model.
for model in "$models/llama" llama.gguf "$models/gpt2"; do
    rm -rf run
    call train --model "$model" --data step.safetensors --sequence 16 --batch 4 --steps 4 --save run --save-every 2 --mesh data=2 --json
    values loss | sed 1,2d >whole
    call train --resume run/step-00000002.safetensors --mesh pipe=2,tensor=3 --steps 4 --json
    values loss >rest
    near 1e-6 rest whole && [ "$(wc -l <rest)" -ge 2 ]
    point "${model##*/}: resumed"
done

# ---- refusals ----

refused 'the number of heads 6 does not divide' generate --model "$models/llama" --prompt-tokens 1 --mesh tensor=4
refused '--model and --n-heads' generate --model "$models/llama" --n-heads 6
refused 'at most 64 tokens' generate --model "$models/llama" --prompt-tokens 1 --length 65
refused 'neither tokenizer.json nor tokenizer.model is in this folder; --tokenizer PATH names one elsewhere' evaluate --model "$models/llama" --data "$tool"
refused 'tokenizer' generate --model "$models/llama" --prompt hello
refused '--model missing: there is no such file or folder' generate --model missing --prompt-tokens 1

# without KEY VALUE TEXT: config.json with that value is refused.
without() {
    rm -rf other
    python3 "$tool" config "$models/llama" other "$1" "$2"
    refused "$3" generate --model other --prompt-tokens 1
}
without model_type '"gpt_neox"' 'config.json: model_type is "gpt_neox"'
without model_type - 'config.json: no model_type'
without hidden_act '"gelu"' 'config.json: hidden_act is gelu'
without rope_parameters '{"rope_theta": 1e4, "rope_type": "longrope"}' 'rope_parameters.rope_type is longrope'
without tie_word_embeddings false 'tensor lm_head.weight is missing'
without partial_rotary_factor 0.5 'config.json: partial_rotary_factor is not 1'
without hidden_size 1e99 'config.json: hidden_size: there must be a number'
without intermediate_size 40 'tensor model.layers.0.mlp.gate_proj.weight is [36, 24], and its sizes say [40, 24]'
without num_hidden_layers 3 'tensor model.layers.2.input_layernorm.weight is missing'
without attention_bias true 'tensor model.layers.0.self_attn.q_proj.bias is missing'
for bytes in 3 20 200 2000 20000; do
    head -c $bytes qwen3.gguf >cut.gguf
    refused 'cut.gguf: ' generate --model cut.gguf --prompt-tokens 1
done
plan
