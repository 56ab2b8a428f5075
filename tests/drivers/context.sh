#!/bin/sh
# context.sh DRIVERS [few] - transformer train on a mesh with the axis context, whose coordinates divide sequences: the
# losses, parameters and memory, and refusals; prints TAP. few: one layout of each kind; test_context has all layouts.
driver=$1/transformer
few=
[ "${SL_TEST_LONG:-}" ] || few=$2
. "$(dirname "$0")/../rigs/points.sh"

jackdaws >text
own='--data text --model-dimension 32 --n-heads 4 --blocks 1 --sequence 48 --vocab-size 128 --no-advice'

# same ARGUMENT...: with $options and ARGUMENTs, the steps' losses equal the losses in `single`, to 2e-6.
same() {
    call train $own --batch 8 --steps 4 --json $options "$@"
    values loss >several
    [ $status = 0 ] && [ ! -s err ] && near 2e-6 several single
    point "as on one coordinate: $options $*"
}
[ "$few" ] || for options in '' '--attention gqa --kv-heads 2 --window 20 --clip 0.5' \
    '--document-mask --document-token 98 --dropout 0.1 --accumulate 2' '--attention gqa --lora-rank 4'; do
    call train $own --batch 8 --steps 4 --json $options --mesh data=1
    values loss >single
    same --mesh data=1,context=3
    same --mesh data=2,context=2,pipe=2 --zero 2 --no-fsdp
    same --mesh tensor=2,data=2,context=2 --checked --check-replicas
    same --mesh pipe=2,data=1,context=4 --schedule gpipe --recompute full
    same --mesh data=1,context=3 --context-by ring --checked
    same --mesh tensor=2,data=1,context=4 --context-by ring --zero 2 --no-fsdp
done
options='--experts 8 --capacity 1 --balance 0.3 --shared-experts 1'
call train $own --batch 8 --steps 4 --json $options --mesh data=1
values loss >single
same --mesh data=1,context=4
same --mesh data=2,context=2,pipe=2 --zero 2 --no-fsdp --checked
same --mesh tensor=2,data=1,context=2 --context-by ring --recompute full --check-replicas
options='--attention gqa --window 20'
call train $own --batch 8 --steps 4 --json $options --mesh data=1
values loss >single
same --mesh data=1,context=4 --context-by heads
same --mesh tensor=2,data=2,context=2 --context-by heads --checked
options=
call train $own --batch 8 --steps 4 --json --mesh data=1
values loss >single
same --mesh context=2
same --mesh context=2 --context-by heads
same --mesh context=2 --context-by ring
same --mesh data=2,context=2,tensor=2 --context-by latents --zero 2 --no-fsdp --checked --check-replicas
same --mesh data=2,context=2,tensor=2 --context-by latents --tensor-layout rows --checked --check-replicas
same --mesh context=2,tensor=4 --context-by latents --tensor-layout rows --recompute full
same --mesh context=2,data=1,pipe=2 --no-fsdp

# ---- memory elsewhere: the same losses ----

options='--offload optimizer,activations,weights --offload-dir far'
mkdir far
call train $own --batch 8 --steps 4 --json $options --mesh data=1
values loss >single
same --mesh data=1,context=2
same --mesh data=1,context=4 --context-by ring
same --mesh data=1,context=4 --context-by latents
same --mesh data=2,context=2,pipe=2 --accumulate 2
same --mesh data=1,context=4,tensor=2 --storage f32 --checked

# ---- losses after steps, checkpoints ----

options='--evaluate-every 2'
call train $own --batch 8 --steps 4 --json $options --mesh data=1
values evaluation_loss >single
call train $own --batch 8 --steps 4 --json $options --mesh data=2,context=2
values evaluation_loss >several
[ $status = 0 ] && near 2e-6 several single
point 'evaluations while training'
call train $own --batch 8 --steps 4 --json --mesh data=1
values loss >single
call train $own --batch 8 --steps 2 --json --mesh data=2,context=2 --save run
values loss >several
call train --resume run --steps 4 --json --no-advice --mesh data=1,context=4
values loss >>several
[ $status = 0 ] && near 2e-6 several single
point 'a checkpoint of one size goes on with another'
call evaluate --params run --evaluate-batches 1 --batch 8
[ $status = 0 ]
point 'and is evaluated on one coordinate'

# ---- evaluation ----

# scores ARGUMENT...: the same loss, tokens and scores of choices as on one coordinate, held as planned.
scores() {
    call evaluate --params $params --json "$@"
    { values loss; sed -n 's/.*"scores":\[\([^]]*\)\].*/\1/p' out | tr , '\n'; values tokens; } >several
    planned=$(timeout 120 "$driver" evaluate --params $params --json --dry-run "$@" | sed -n 's/.*"total":\([0-9]*\).*/\1/p' | sort -n | tail -n 1)
    held=$(sed -n 's/.*"memory":\[\(.*\)\],"processes.*/\1/p' out | tr '{' '\n' | sed -n 's/.*"total":\([0-9]*\).*/\1/p' | sort -n | tail -n 1)
    [ $status = 0 ] && near 2e-6 several single && [ "$planned" = "$held" ]
    point "evaluation as on one coordinate: $*"
}
# once ARGUMENT...: the numbers of one coordinate.
once() {
    call evaluate --params $params --json --mesh data=1 "$@"
    { values loss; sed -n 's/.*"scores":\[\([^]]*\)\].*/\1/p' out | tr , '\n'; values tokens; } >single
}
cat >questions.jsonl <<'END'
{"prompt": "one two three ", "choices": ["four", "a"], "answer": 0}
{"prompt": "six seven ", "choices": ["ten", "eight nine", "a"], "answer": 1}
END
params=run
for options in '--data text --evaluate-batches 2 --batch 8' '--eval-data text --stride 24 --batch 4' \
    '--data text --evaluate-batches 2 --batch 4 --document-mask --document-token 98' '--choices questions.jsonl' \
    '--choices questions.jsonl --sequence 14'; do
    case $few$options in few--data* | few*14) continue ;; esac
    once $options
    scores --mesh data=1,context=3 $options
    scores --mesh data=2,context=2,pipe=2 --context-by heads $options
    scores --mesh context=4 --context-by ring $options
    scores --mesh context=2,tensor=2 --context-by latents $options
done
params=of_experts
call train $own --batch 8 --steps 4 --mesh data=1 --experts 6 --capacity 1 --save of_experts
once --choices questions.jsonl --sequence 14
scores --mesh data=1,context=3 --choices questions.jsonl --sequence 14 # padded, but experts have as many slots

# ---- generation: caches are divided ----

# continues ARGUMENT...: the same tokens as on one coordinate, held as planned.
continues() {
    call generate --json --temperature 0 "$@"
    sed -n 's/.*"tokens":\(\[[^]]*\]\).*/\1/p' out >several
    held=$(sed -n 's/.*"memory":\[\(.*\)\],"processes.*/\1/p' out | tr '{' '\n' | values_in total | sort -n | tail -n 1)
    planned=$(timeout 120 "$driver" generate --json --dry-run "$@" | values_in total | sort -n | tail -n 1)
    [ $status = 0 ] && [ -s several ] && cmp -s several single && [ "$held" = "$planned" ]
    point "generation as on one coordinate: $*"
}
values_in() { sed -n 's/.*"'"$1"'":\([0-9]*\).*/\1/p'; }
long="$(head -c 300 text)" # in the caches of several coordinates
learn="train $own --batch 8 --steps 60 --lr 0.01 --mesh data=1 --save"
call $learn latent
call $learn grouped --attention gqa --kv-heads 2 --window 150
for options in '--params latent' '--params latent --storage bf16 --samples 3 --in-flight 2' \
    '--params latent --cache expanded --storage bf16 --samples 3 --in-flight 2' '--params latent --threads 2' \
    '--params grouped --threads 2' '--params grouped --samples 3'; do
    case $few$options in few*--samples* | --*) ;; *) continue ;; esac
    options="$options --length 500"
    call generate --json --temperature 0 --mesh data=1 $options --prompt "$long"
    sed -n 's/.*"tokens":\(\[[^]]*\]\).*/\1/p' out >single
    continues --mesh data=1,context=2 $options --prompt "$long"
    continues --mesh context=3,pipe=2 $options --prompt "$long"
    continues --mesh context=2,tensor=2 $options --prompt "$long"
done
cat >near.py <<'EOT'
import array
import struct
import sys

found = []
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        data = file.read()
    found.append(array.array("f", data[8 + struct.unpack("<Q", data[:8])[0] :]))
assert len(found[0]) == len(found[1]) == 499 * 128
assert max(abs(a - b) for a, b in zip(*found)) < 1e-4 < max(map(abs, found[0]))
EOT
for params in grouped latent; do
    for mesh in data=1 data=1,context=3; do
        call generate --json --temperature 0 --mesh $mesh --params $params --length 500 --prompt "$long" --logits logits.$mesh
    done
    [ $status = 0 ] && python3 near.py logits.data=1 logits.data=1,context=3
    point "logits as on one coordinate: $params"
done
call train $own --batch 8 --steps 2 --sample-every 2 --length 200 --temperature 0 --json --mesh data=1
grep '"tokens":\[' out >single
call train $own --batch 8 --steps 2 --sample-every 2 --length 200 --temperature 0 --json --mesh data=2,context=2
grep '"tokens":\[' out >several
[ $status = 0 ] && [ -s several ] && cmp -s several single
point 'samples of a training'

# ---- conversations: tokens that are not scored, padding, several in a sequence ----

for word in one two three four; do
    printf '{"messages": [{"role": "user", "content": "%s"}, {"role": "assistant", "content": "%s, %s"}]}\n' $word $word $word
done >chats.jsonl
for packing in --pack --no-pack; do
    options="--chat chats.jsonl --validation 0 --model-dimension 32 --n-heads 4 --blocks 1 --sequence 192 --no-advice"
    call train $options $packing --batch 2 --steps 3 --json --mesh data=1
    values loss >single
    call train $options $packing --batch 2 --steps 3 --json --mesh data=2,context=2
    values loss >several
    [ $status = 0 ] && near 2e-6 several single
    point "conversations $packing"
done

# ---- memory ----

for n in 1 2 4 8; do
    call train $own --sequence 2048 --batch 1 --steps 1 --dry-run --json --mesh data=1,context=$n
    echo "$n $(values kept | sort -u)"
done >sizes
awk '{ if (NF != 2) bad = 1; if (NR == 1) whole = $2; part = $1 * $2 / whole; if (part < 0.95 || part > 1.05) bad = 1 }
    END { exit bad || NR != 4 }' sizes
point "saved numbers are divided: $(tr '\n' ';' <sizes)"
call train $own --batch 4 --steps 1 --mesh data=1,context=2,pipe=2 --dry-run --json
values total >planned
call train $own --batch 4 --steps 1 --mesh data=1,context=2,pipe=2 --profile --json
sed -n 's/.*"memory":\[\(.*\)\],"processes.*/\1/p' out | tr '{' '\n' | sed -n 's/.*"total":\([0-9]*\).*/\1/p' >held
[ $status = 0 ] && [ -s held ] && cmp -s planned held
point 'planned bytes are held'

call train $own --batch 4 --steps 2 --mesh data=1,context=4 --context-by ring --trace times --json
[ $status = 0 ] && python3 - times <<'EOT'
import json
import sys

events = json.load(open(sys.argv[1]))
events = events["traceEvents"] if isinstance(events, dict) else events
coordinates = {e["pid"] for e in events if e.get("name") == "keys 2"}
assert len(coordinates) == 4, coordinates
for pid in coordinates:
    of = lambda name: sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e.get("name") == name and e["pid"] == pid)
    keys, attended = of("keys 2"), of("attend 1")
    assert len(attended) == 6 and len(keys) == 12  # three layers, forward and backward; two blocks each
    for i, (begin, end) in enumerate(attended):  # while keys of the next step are on their way
        assert all(sent < begin and end < came for sent, came in keys[2 * i : 2 * i + 2]), (pid, i)
EOT
point 'keys are on their way while earlier ones are attended to'

call train $own --show-shardings --mesh data=2,context=2
holds 'kernels are sharded over both axes' 'tensor,data+context'

# ---- refusals: one line each ----

# wrong TEXT COMMAND ARGUMENT...: status 2, nothing on stdout, one line with TEXT on stderr.
wrong() {
    text=$1
    shift
    call "$@"
    [ $status = 2 ] && [ ! -s out ] && [ "$(wc -l <err)" = 1 ] && grep -qF -- "transformer $1: $text" err
    point "refused: $*"
}
two='--mesh data=1,context=2'
wrong 'mesh axis "context": each of its 5 coordinates has 2 blocks of a sequence, and 48 tokens (--sequence) do not divide' train $own --mesh data=1,context=5
wrong 'mesh axis "context": it comes after "data"' train $own --mesh context=2,data=2
wrong 'the number of experts 3 does not divide over the 2 coordinates along "data,context"' train $own $two --experts 3
wrong 'mesh axis "context": --experts does not take sequences' train $own $two --experts 4 --exact data=1
for way in ring heads latents; do
    wrong "mesh axis \"context\": --context-by $way does not take" train $own $two --exact context=2 --context-by $way
done
wrong 'mesh axis "context": --offload activations does not take' train $own $two --exact context=2 --offload activations
call train $own --mesh data=1,context=8 --context-by heads # any coordinate tells it first
[ $status = 2 ] && [ ! -s out ] && [ "$(wc -l <err)" = 1 ] &&
    grep -qE 'train: coordinate [0-7] .*: blocks.0.layers.0.mla.heads: 4 of queries and 4 of keys' err
point "refused: heads that do not divide over context, by name"
call train $own $two --context-by latents --attention gqa
[ $status = 2 ] && [ ! -s out ] && [ "$(wc -l <err)" = 1 ] && grep -q "gqa.latents: only latent attention has latents" err
point 'refused: latents of attention without them, by name'
wrong 'mesh axis "context": each of its 5 coordinates has 2 blocks' evaluate --data text --params run --mesh data=1,context=5
wrong '--context-by: is read only with --mesh context=2 or more' evaluate --data text --params run --context-by heads
wrong '--context-by: "rings" is not one of gather|ring|heads|latents' train $own $two --context-by rings
wrong '--context-by: is read only with --mesh context=2 or more' train $own --context-by gather
wrong '--context-by: is read only with --mesh context=2 or more' train $own --mesh context=1 --context-by ring
plan
