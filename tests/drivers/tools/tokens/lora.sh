#!/bin/sh
# lora.sh DRIVERS DATA - adapters beside dense layers: they alone train, with the same bits over stages and schedules, and
# commands that read the run see a model without adapters; prints TAP.
drivers=$1
data=$(cd "$2" && pwd) tool=$(cd "$(dirname "$0")" && pwd)/../../published/published.py
[ ! -w /dev/shm ] || export TMPDIR="${TMPDIR:-/dev/shm}" # in memory, where syncing is short
. "$(dirname "$0")/../../../rigs/points.sh"
driver=$drivers/transformer

for n in 0 1 2 3 4 5 6 7 8 9; do echo "Line $n of a text that is long enough to be divided, not to be read."; done >text
model='--model-dimension 32 --n-heads 2 --blocks 2 --layers-per-block 2 --sequence 16 --latent-dim 8 --rope-dim 4'
common="--data text --batch 8 --microbatches 4 --wgrad-group 2 --lr 0.01 --json"

# train DIR ARGUMENT...: saves in DIR.
train() {
    rm -rf "$1"
    directory=$1
    shift
    call train $common --save "$directory" "$@"
}

# tensors DIR KIND: a line with hash and name of each value, of adapters or of others.
tensors() {
    python3 - "$@" <<'END'
import glob, hashlib, json, sys
directory, kind = sys.argv[1:]
path = sorted(glob.glob(directory + "/*.safetensors"))[-1]
with open(path, "rb") as file:
    header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    data = file.read()
for name, tensor in sorted(header.items()):
    if name == "__metadata__" or name.startswith("optimizer."): continue
    begin, end = tensor["data_offsets"]
    if (".lora_" in name) == (kind == "adapters"): print(hashlib.md5(data[begin:end]).hexdigest(), name)
END
}

# moved: the adapters in the file got, all of those in begin.adapters, have other bits.
moved() {
    [ "$(wc -l <got)" = "$(wc -l <begin.adapters)" ] && [ "$(sort got begin.adapters | uniq -d | wc -l)" = 0 ]
}

train base $model --mesh data=1 --steps 3
tensors base others >base.others
[ $status = 0 ] && [ -s base.others ]
point 'a run without adapters'
train begin --params base --mesh data=1 --steps 0 --lora-rank 4
tensors begin adapters >begin.adapters
[ $status = 0 ] && [ -s begin.adapters ]
point 'what adapters begin with'

# ---- frozen and trained tensors ----

for layout in '--mesh data=1' '--mesh data=2,pipe=2,tensor=2' '--mesh data=2,tensor=2 --fsdp --recompute full' \
    '--mesh data=2,pipe=2 --no-fsdp --zero 2 --storage bf16 --recompute selective' '--mesh pipe=2 --spread-head rows --schedule looped-bfs --loops 2' \
    '--mesh data=2,tensor=2 --vocabulary-parallel --precision bf16' '--mesh data=2,pipe=2 --schedule looped-bfs --loops 2 --offload optimizer,activations,weights' \
    '--mesh data=2 --fsdp --no-prefetch --wgrad-group 1 --accumulate 2 --microbatches 2'; do
    train some --params base --steps 2 $layout --lora-rank 4 --check-replicas
    tensors some others | cmp -s - base.others && [ $status = 0 ] && tensors some adapters >got && moved
    point "A and B move, and nothing else: $layout"
done
train some --params base --steps 2 --mesh data=2 --lora-rank 4 --freeze '*.lora_a.kernel'
tensors some adapters | grep lora_a >got
grep lora_a begin.adapters | cmp -s - got && [ $status = 0 ] && tensors some adapters | grep lora_b >got && [ "$(sort got begin.adapters | uniq -d | wc -l)" = 0 ]
point '--freeze holds for adapters, too'
experts='--model-dimension 32 --n-heads 4 --kv-heads 2 --attention gqa --qk-norm --blocks 2 --layers-per-block 1 --sequence 16 --experts 4 --shared-experts 1'
train some $experts --steps 1 --mesh data=2,tensor=4 --lora-rank 3 --check-replicas
tensors some adapters | sed 's/.*layers.0.//' | sort -u >got
for layer in gqa.k gqa.out gqa.q gqa.v moe.shared.down moe.shared.up; do printf '%s\n' $layer.lora_a.kernel $layer.lora_b.kernel; done >expected
[ $status = 0 ] && cmp -s got expected
point 'keys and values that all coordinates have, and experts, which have no adapters'

# ---- several steps, in several layouts ----

train once --params base --steps 4 --mesh data=1 --lora-rank 4
values loss >once.loss
tensors once adapters >expected
for layout in '--mesh pipe=2' '--mesh pipe=4 --schedule 1f1b' '--mesh pipe=2 --schedule looped-bfs --loops 2' '--mesh pipe=2 --schedule zbv --loops 2' \
    '--recompute full --mesh pipe=2' '--mesh data=1 --offload optimizer'; do
    train other --params base --steps 4 $layout --lora-rank 4
    [ $status = 0 ] && tensors other adapters | cmp -s - expected
    point "the same bits over stages and schedules: $layout"
done
for layout in '--mesh tensor=2' '--mesh data=2,tensor=2' '--mesh data=2'; do
    train other --params base --steps 4 $layout --lora-rank 4
    values loss >got
    near 1e-5 got once.loss
    point "near over replicas and shards: $layout"
done
train all --params base --steps 4 --mesh data=1
values loss >got
[ "$(head -1 got)" = "$(head -1 once.loss)" ] && ! cmp -s got once.loss
point 'the first loss is that of the model without adapters'

# ---- memory ----

for layout in '--mesh data=1' '--mesh data=2,pipe=2,tensor=2' '--mesh data=2 --no-fsdp --zero 2 --storage bf16' '--mesh data=2,pipe=2 --schedule looped-bfs --loops 2 --recompute full'; do
    call train --params base $common --steps 1 $layout --lora-rank 4 --dry-run
    planned=$(grep -o '"\(parameters\|gradients\|optimizer\|kept\|recomputed\|workspace\|handover\|caches\|batch\|offloaded\)":[0-9]*' out)
    [ "$layout" != '--mesh data=1' ] || { values optimizer && values gradients; } >optimizer
    train held --params base --steps 1 $layout --lora-rank 4
    held=$(grep '"memory"' out | sed 's/.*"memory":\[//' | grep -o '"\(parameters\|gradients\|optimizer\|kept\|recomputed\|workspace\|handover\|caches\|batch\|offloaded\)":[0-9]*')
    [ $status = 0 ] && [ "$planned" ] && [ "$planned" = "$held" ]
    point "held as planned: $layout"
done
python3 - held/*.safetensors >expected <<'END'
import json, math, sys
with open(sys.argv[-1], "rb") as file:
    header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
shapes = [tensor["shape"] for name, tensor in header.items() if ".lora_" in name and not name.startswith("optimizer.")]
floats = sum((math.prod(shape) + 15) // 16 * 16 for shape in shapes)
print(8 * floats, 4 * floats, sep="\n")
END
cmp -s optimizer expected
point 'optimizer and gradients take what A and B take'

# ---- going on ----

some='--lora-rank 4 --lora-alpha 3 --lora-modules *.q_up,*.mlp.down,blocks.1.*.up'
set -f
train whole --params base --steps 4 --mesh data=2,pipe=2 $some
tensors whole adapters | sed 's/^[^ ]* blocks.//; s/.lora_..kernel//' | sort -u | tr '\n' ' ' >got
[ "$(cat got)" = '0.layers.0.mla.q_up 0.layers.0.mlp.down 0.layers.1.mla.q_up 0.layers.1.mlp.down 1.layers.0.mla.q_up 1.layers.0.mlp.down 1.layers.0.mlp.up 1.layers.1.mla.q_up 1.layers.1.mlp.down 1.layers.1.mlp.up ' ]
point 'layers that patterns name'
train half --params base --steps 2 --mesh data=2,pipe=2 $some
set +f
call train --resume half --steps 4 --save half
[ $status = 0 ] && cmp -s half/step-00000004.safetensors whole/step-00000004.safetensors
point '--resume takes rank, alpha and patterns over'
refused 'lora-rank is 4 in the checkpoint, and 8 here' train --resume half --steps 5 --lora-rank 8
refused 'lora-alpha is 3 in the checkpoint, and 2 here' train --resume half --steps 5 --lora-alpha 2

# ---- a model without ----

train tuned --params base --steps 4 --mesh data=2,pipe=2 --lora-rank 4 --lora-alpha 16 --evaluate-every 4 --evaluate-batches 2 --sample-every 4 --prompt 'Line 3' --length 14 --temperature 0
values evaluation_loss >trained
grep -o '"text": *"[^"]*"' out >sampled
for layout in '' '--mesh pipe=2,tensor=2' '--mesh data=2 --fsdp'; do
    call evaluate --params tuned --data text --batch 8 --evaluate-batches 2 $layout --json
    values evaluation_loss >got
    near 1e-6 got trained && [ ! -s err ]
    point "evaluate reads W + A B ALPHA/R: $layout"
done
call evaluate --params base --data text --batch 8 --evaluate-batches 2 --json
values evaluation_loss >got
[ $status = 0 ] && [ -s got ] && ! near 1e-4 got trained
point 'which is not W'
for cache in latent expanded; do
    call generate --params tuned --prompt 'Line 3' --length 14 --temperature 0 --cache $cache --json
    grep -o '"text": *"[^"]*"' out >got
    [ -s got ] && cmp -s got sampled
    point "generate continues as the run did: $cache"
done
call train $common --params tuned --mesh data=1 --steps 1
values loss | head -1 >expected
call train $common --params tuned --mesh data=2,pipe=2 --steps 1 --lora-rank 2
values loss | head -1 >got
[ $status = 0 ] && near 1e-6 got expected
point '--params: new adapters begin beside what the old ones have made'

python3 "$tool" tokens tokens.safetensors
tokens=5,17,3,60,42,42,7,0,31,12,9,33
for family in llama-untied gpt2 qwen2; do
    published=$data/published/$family
    rm -rf run run.logits logits
    call train --model "$published" --data tokens.safetensors --sequence 16 --batch 4 --steps 3 --lr 0.01 --mesh data=1,pipe=2 --lora-rank 4 --save run --gradients gradients
    call generate --params run --prompt-tokens $tokens --length 13 --temperature 0 --logits run.logits
    call generate --model "$published" --prompt-tokens $tokens --length 13 --temperature 0 --logits logits
    [ $status = 0 ] && [ -s logits ] && [ -s run.logits ] && head -c 20000 gradients | grep -qa 'gqa.q.lora_b.kernel' && ! python3 "$tool" compare logits run.logits >out 2>err
    point "$family: another model"
    for format in hf gguf; do
        rm -rf there
        call export --params run --model "$published" --format $format --to there
        [ $format = hf ] && path=there || path=there/model.gguf
        call generate --model $path --prompt-tokens $tokens --length 13 --temperature 0 --logits logits
        [ $status = 0 ] && ! grep -qa lora_a there/* && python3 "$tool" compare logits run.logits >out 2>err
        point "$family: exported with its adapters: $format ($(cat out))"
    done
done

# ---- refusals ----

for mesh in data=1 data=2,pipe=2; do
    refused 'adapters: no parameter matches "*.nope.lora_?.kernel": names are those in checkpoints' train $model $common --mesh $mesh --lora-rank 4 --lora-modules '*.q_up,*.nope'
    refused 'freeze: "*" matches all parameters: none is left to train' train $model $common --mesh $mesh --lora-rank 4 --freeze '*'
done
refused '--lora-alpha: is read only with --lora-rank' train $model $common --lora-alpha 8
refused '--lora-modules: is read only with --lora-rank' train $model $common --lora-modules '*'
python3 - <<'END'
import json, struct
header, at = {}, 0
for name, shape in ("a.kernel", [4, 6]), ("a.lora_a.kernel", [4, 2]), ("a.lora_b.kernel", [2, 6]):
    end = at + 4 * shape[0] * shape[1]
    header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, end]}
    at = end
text = json.dumps(header).encode()
open("zeros", "wb").write(struct.pack("<Q", len(text)) + text + bytes(at))
END
refused 'zeros: it has adapters, and its option.lora-alpha is missing, not a number up to 1000000' evaluate $model --params zeros --data text
plan
