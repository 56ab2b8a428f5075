#!/bin/sh
# frozen.sh DRIVERS DATA - --no-save-frozen: checkpoints of adapters alone, beside whole ones of the same run; runs and
# commands that read them, and refusals if the model is another one; prints TAP.
drivers=$1 driver=$1/transformer
models=$(cd "$2/published" && pwd)
tool=$(cd "$(dirname "$0")" && pwd)/published.py
. "$(dirname "$0")/../../rigs/points.sh"
if ! command -v python3 >/dev/null; then
    echo '1..0 # SKIP there is no python3'
    exit
fi
python3 "$tool" tokens step.safetensors
data='--data step.safetensors --sequence 16 --batch 4'

# trains DIR ARGUMENT...: four steps of the run, saved in DIR.
trains() {
    save=$1
    shift
    call train $data --lora-rank 2 --lr 0.01 --steps 4 --save "$save" --save-every 2 "$@"
    [ $status = 0 ]
}
bytes() { wc -c <"$1"; }

# alike WHOLE ALONE: both checkpoints give the same tokens, the same loss within rounding, the same model for others.
alike() {
    for file in "$1" "$2"; do
        call generate --params "$file" --prompt-tokens 5,17,3 --length 12 --temperature 0 --json --mesh pipe=2
        grep -o '"tokens":[^]]*' out >"$file.tokens"
        call evaluate --params "$file" --eval-data step.safetensors --json --mesh tensor=2
        values loss | cut -c 1-8 >>"$file.tokens"
        call export --params "$file" --format hf --to "$file.hf"
    done
    [ -s "$1.tokens" ] && cmp "$1.tokens" "$2.tokens" && cmp "$1.hf/model.safetensors" "$2.hf/model.safetensors"
}

cp -r "$models/llama-untied" model
trains whole --model model --mesh data=2,tensor=2
trains alone --model model --mesh data=2,tensor=2 --no-save-frozen
# 11832 values, less the bytes of their hashes.
[ $(($(bytes whole/step-00000004.safetensors) - $(bytes alone/step-00000004.safetensors))) -gt 40000 ]
point 'the file of adapters alone is shorter by the other values'
alike whole alone
point 'generate, evaluate and export read them beside the model'

# ---- going on ----

mkdir half
cp alone/step-00000002.safetensors half
call train --resume half --save half
[ $status = 0 ] && cmp alone/step-00000004.safetensors half/step-00000004.safetensors
point 'a resumed run saves the same file'
call train --resume alone --save again --save-frozen --steps 6
call train --resume whole --save straight --steps 6
cmp again/step-00000006.safetensors straight/step-00000006.safetensors
point 'it may save all values again, those of the run that always did'
trains written --model model --mesh data=2,tensor=2 --no-save-frozen --save-async
cmp alone/step-00000002.safetensors written/step-00000002.safetensors
point 'saved in the background'

# ---- of --params ----

trains whole-tuned --params whole --mesh pipe=2
trains tuned --params whole --mesh pipe=2 --no-save-frozen
[ $((2 * $(bytes tuned/step-00000004.safetensors))) -lt "$(bytes whole-tuned/step-00000004.safetensors)" ] &&
    alike whole-tuned tuned
point 'beside a checkpoint that has adapters itself'
rm tuned/step-00000004.safetensors
call train --resume tuned --save tuned
[ $status = 0 ] && alike whole-tuned tuned
point 'which a resumed run reads, too'

# ---- refusals ----

refused 'it is for adapters of a model that --model or --params gives' train $data --attention gqa --lora-rank 2 --save x --no-save-frozen
refused '--save-frozen: is read only with --save' train $data --model model --lora-rank 2 --no-save-frozen
refused '--save-frozen: is read only with --lora-rank' train $data --model model --save x --no-save-frozen
refused 'it is for adapters of a model that' train --resume whole --save whole --steps 8 --no-save-frozen
refused 'alone/step-00000004.safetensors has the values of adapters alone: go on with them by --resume' train $data --params alone
refused 'has adapters already' generate --params alone --adapters whole --prompt-tokens 5
[ ! -e x ]
point 'and nothing is left of them'

# notes FILE KEY [VALUE]: writes FILE, the checkpoint as version 1, without checksums, with note KEY set to VALUE or removed.
notes() {
    python3 - "$@" <<'END'
import json, struct, sys
with open("alone/step-00000004.safetensors", "rb") as file:
    head = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    data = file.read()
notes = head["__metadata__"]
del notes["shardloop.xxh3"]
notes["shardloop.checkpoint"] = "1"
notes.pop(sys.argv[2], None)
notes.update(zip(sys.argv[2:3], sys.argv[3:]))
text = json.dumps(head).encode()
with open(sys.argv[1], "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + data)
END
}
notes noted base.option elsewhere
refused 'noted: base.option is elsewhere in the checkpoint, neither model nor params' generate --prompt-tokens 5 --params noted
notes noted base.option
refused 'noted: base.option is missing in the checkpoint, neither model nor params' train --resume noted
notes noted option.lora-rank many
refused 'noted: --lora-rank is "many" in the checkpoint, which is none of its values' generate --prompt-tokens 5 --params noted
notes noted option.lora-rank
refused 'noted: it has the values of adapters alone, and tells no rank of them' generate --prompt-tokens 5 --params noted
notes noted base
call generate --prompt-tokens 5 --params noted
[ $status = 2 ] && grep -q 'lora_a.kernel, but no ' err
point 'refused: adapters that know no model'
notes noted base.xxh3.model.norm.weight
refused 'tensor model.norm.weight is new: the adapters of noted were trained beside others' generate --prompt-tokens 5 --params noted
notes noted base.xxh3.other 0123456789abcdef
refused 'tensor other is missing: the adapters of noted were trained beside it' generate --prompt-tokens 5 --params noted

mv model moved
for command in 'train --steps 8 --resume' 'evaluate --eval-data step.safetensors --params' 'export --to y --params'; do
    refused "alone/step-00000004.safetensors: its frozen values are those of $PWD/model, which cannot be read: No such file" $command alone
done
cp -r moved model
python3 -c "
data = bytearray(open('model/model.safetensors', 'rb').read())
data[-10] ^= 1 # of the last tensor
open('model/model.safetensors', 'wb').write(data)"
for command in 'train --steps 8 --resume' 'evaluate --eval-data step.safetensors --params' 'generate --prompt-tokens 5 --params'; do
    refused "has other values now: the adapters of alone/step-00000004.safetensors were trained beside the old ones" $command alone
done
rm -r model
cp -r "$models/gpt2" model
refused "$PWD/model: tensor" evaluate --eval-data step.safetensors --params alone
plan
