#!/bin/sh
# blocks.sh DRIVERS DATA - quantized weights used from a GGUF file give the results of their floats, in every
# command and layout, and take the file's bytes; prints TAP.
driver=$1/transformer
here=$(cd "$(dirname "$0")" && pwd)
models=$(cd "$2/published" && pwd)
. "$(dirname "$0")/../../rigs/points.sh"
if ! command -v python3 >/dev/null; then
    echo '1..0 # SKIP there is no python3'
    exit
fi
python3 "$here/blocks.py" small.gguf Q8_0,Q4_0,Q4_1,Q5_0,Q5_1
python3 "$here/blocks.py" large.gguf Q6_K,Q4_K,Q5_K,Q2_K,Q3_K,Q8_0 256,4,2,64,1,256,300
small='--model small.gguf'

# ---- logits ----

# logits NAME ARGUMENT...
logits() {
    name=$1
    shift
    call generate --prompt-tokens 5,17,3,60,42,42,7,0,31,12,9,33 --length 13 --temperature 0 --json --logits "$name" "$@"
}
logits small.floats $small --weights storage
logits large.floats --model large.gguf --weights storage

# gives WANTED ARGUMENT...: logits as they are of floats.
gives() {
    wanted=$1
    shift
    rm -f given
    logits given "$@"
    [ $status = 0 ] && [ ! -s err ] && python3 "$here/published.py" compare given "$wanted" >out 2>err
    point "logits of $* ($(cat out))"
}
gives small.floats $small
gives small.floats $small --weights file --mesh pipe=2,tensor=2
gives small.floats $small --mesh tensor=4 # whose parts are no whole blocks
gives small.floats $small --mesh tensor=2 --vocabulary-parallel
gives large.floats --model large.gguf --weights file

# A row's bits depend neither on threads nor on the other rows.
logits one $small --threads 1 && logits two $small --threads 2 && cmp one two && [ -s one ]
point 'threads change no bit'
call generate $small --prompt-tokens 5,17,3 --length 12 --samples 3 --in-flight 3 --json
grep -o '"tokens":\[[^]]*]' out >together
call generate $small --prompt-tokens 5,17,3 --length 12 --samples 3 --in-flight 1 --json
grep -o '"tokens":\[[^]]*]' out | cmp - together && [ "$(sort -u together | wc -l)" = 3 ]
point 'samples in flight together are those of one at a time'

# ---- products of integers ----

# gives_nearly ARGUMENT...: integers change logits by less than a tenth of their spread, and by more than nothing.
gives_nearly() {
    rm -f given
    logits given "$@" --weights integers
    [ $status = 0 ] && [ ! -s err ] && python3 "$here/published.py" compare given "${2%.gguf}.floats" 0.1 >out 2>err &&
        ! cmp -s given "${2%.gguf}.floats"
    point "logits of $* by integers ($(cat out))"
}
gives_nearly $small
gives_nearly $small --mesh pipe=2,tensor=2
gives_nearly $small --mesh tensor=4
gives_nearly --model large.gguf
for level in 2 3; do
    logits whole $small --weights integers && SHARDLOOP_CPU_LEVEL=$level logits low $small --weights integers
    [ -s low ] && python3 "$here/published.py" compare low whole 0.1 >out 2>err
    point "level $level by integers ($(cat out))"
done
logits one $small --threads 1 --weights integers && logits two $small --threads 2 --weights integers && cmp one two && [ -s one ]
point 'threads change no bit of integers'
for flight in 3 1; do
    call generate $small --prompt-tokens 5,17,3 --length 12 --samples 3 --in-flight $flight --json --weights integers
    grep -o '"tokens":\[[^]]*]' out >in_flight_$flight
done
cmp in_flight_3 in_flight_1 && [ "$(sort -u in_flight_1 | wc -l)" = 3 ]
point 'samples in flight together are those of one at a time, by integers'

# ---- evaluation, adapters ----

python3 - <<'END'
import struct
tokens = [(7 * i * i + 3 * i) % 64 for i in range(400)]
open("shard.bin", "wb").write(struct.pack("<256i", 20240520, 1, 400, *[0] * 253) + struct.pack("<400H", *tokens))
END
data='--data shard.bin --validation 0.5 --sequence 16 --batch 4 --json'

# alike TOLERANCE ARGUMENT...: losses with both kinds of weights.
alike() {
    tolerance=$1
    shift
    call "$@" $small $data --weights storage
    values loss >floats
    call "$@" $small $data --weights file
    values loss >blocks
    near "$tolerance" blocks floats && [ -s floats ]
    point "$*"
}
alike 1e-6 evaluate --evaluate-batches 2 --mesh data=2
alike 1e-6 evaluate --evaluate-batches 2 --mesh pipe=2,tensor=2
call evaluate $small $data --evaluate-batches 2 --weights integers
values loss >blocks
near 0.01 blocks floats && [ -s floats ] && ! cmp -s blocks floats
point 'evaluation by integers'
alike 1e-5 train --lora-rank 4 --steps 3 --mesh data=1
alike 1e-5 train --lora-rank 4 --steps 3 --mesh data=2,tensor=2 --check-replicas --recompute full
alike 1e-5 train --lora-rank 4 --steps 2 --mesh data=1,tensor=2 --vocabulary-parallel
alike 1e-3 train --lora-rank 4 --steps 2 --mesh data=1 --storage bf16

call train $small $data --lora-rank 4 --steps 2 --mesh data=1 --save run --no-save-frozen
call train --resume run --steps 3 --json
[ $status = 0 ] && values loss >rest && call train $small $data --lora-rank 4 --steps 3 --mesh data=1 && values loss | tail -n 1 >whole && tail -n 1 rest | cmp - whole
point 'adapters beside them are resumed to the bit'

# ---- memory ----

call generate $small --prompt-tokens 5 --length 4 --dry-run --json
values parameters >bytes
[ "$(cat bytes)" -le "$(wc -c <small.gguf)" ] && [ "$(cat bytes)" -gt 40000 ]
point "parameters take the file's bytes ($(cat bytes))"

# ---- refusals ----

refused '--weights: "q4" is not one of file|integers|storage' generate $small --weights q4
refused '--weights: is read only with --model' generate --weights file
refused 'the model'"'"'s files have no quantized weights' generate --model "$models/llama" --prompt-tokens 1 --weights file
refused '--weights file: products read them as floats' generate $small --prompt-tokens 1 --weights file --precision bf16
refused '--weights integers: training multiplies floats' train $small $data --weights integers --lora-rank 2
refused '--weights integers: products read them as floats' generate $small --prompt-tokens 1 --weights integers --precision bf16
refused '--weights file: all weights train' train $small $data --weights file
refused '--weights file: checkpoints would have all values' train $small $data --weights file --lora-rank 2 --save run
refused '--weights file: --fsdp shards floats' evaluate $small $data --weights file --fsdp
refused '--weights file: --exact' train $small $data --weights file --lora-rank 2 --exact data=2
refused '--weights' export $small --to other --weights file
plan
