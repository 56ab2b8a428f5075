#!/bin/sh
# interactive.sh DRIVERS DATA - transformer generate --interactive: lines through a pipe, in several layouts; messages as
# templates write them; refusals; and a terminal (interactive.py). Prints TAP.
driver=$1/transformer
tool=$(cd "$(dirname "$0")" && pwd)/interactive.py
mpirun=$(cd "$(dirname "$0")/../../.." && pwd)/mpirun
tokenizer=$2/tokenizers/gpt2.json
. "$(dirname "$0")/../../../rigs/points.sh"

small="--model-dimension 16 --n-heads 4 --latent-dim 8 --rope-dim 4 --blocks 2 --layers-per-block 2 --vocab-size 128"
talk="generate $small --sequence 700 --interactive"

# say LINES ARGUMENT...: the driver with LINES, as printf has them, on its standard input.
say() {
    lines=$1
    shift
    printf "$lines" | timeout 120 "$driver" "$@" >out 2>err
    status=$?
}

# ---- text that goes on ----

# Each answer is that of one run with the whole text before it; tokens follow from the seed and the place alone.
codes() { # bytes of the answers in out, a line each
    od -An -v -tu1 out | awk '
        { for (i = 1; i <= NF; i++) code[++n] = $i }
        END {
            for (at = 1; at <= n; at += 6) {
                line = code[at]
                for (i = 1; i < 5; i++) line = line "," code[at + i]
                print line
            }
        }'
}
for seed in 42 43 44 45 46 47 48 49; do # a seed whose answers are printable characters
    one=$("$driver" generate $small --sequence 700 --mesh data=1 --prompt ab --length 7 --json --seed $seed 2>err | sed -n 's/.*"tokens":\[\([0-9,]*\)\].*/\1/p')
    two=$("$driver" generate $small --sequence 700 --mesh data=1 --prompt-tokens "$one,99,100" --length 14 --json --seed $seed 2>err | sed -n 's/.*"tokens":\[\([0-9,]*\)\].*/\1/p')
    echo "$two" | tr , '\n' | awk '$1 < 32 || $1 > 126 { odd = 1 } END { exit odd }' && break
done
printf '%s\n%s\n' "$(echo "$one" | cut -d, -f3-)" "$(echo "$two" | cut -d, -f10-)" >wanted
for layout in data=1 pipe=2 tensor=2 data=2 data=2,pipe=2,tensor=2 pipe=4 'data=1 --cache expanded'; do
    say 'ab\n\ncd' $talk --answer 5 --seed $seed --mesh $layout
    codes >made
    [ $status = 0 ] && cmp -s made wanted && grep -q 'a conversation (one text) of up to 700 tokens' err
    point "two lines on $layout"
done
cp out expected
"$driver" generate $small --engine mpi --mesh data=1 --dry-run >out 2>err || true
if grep -q 'is not in this build' err; then
    skip 'two processes' 'engine mpi is not in this build'
elif command -v mpirun >/dev/null; then
    printf 'ab\ncd\n' | timeout 120 "$mpirun" 2 "$driver" $talk --answer 5 --seed $seed --engine mpi --mesh pipe=2 >out 2>err
    cmp -s out expected
    point 'two processes'
else
    skip 'two processes' 'mpirun is not installed'
fi

# A line of more tokens than a pass has, and one of a few, behind cached tokens.
long=$(seq 180 | tr -d '\n') # 432 digits
rest=$(seq 30 | tr -d '\n')
for attention in mla gqa; do
    sizes=$small
    [ $attention = mla ] || sizes=$(echo "$small" | sed 's/--latent-dim 8 --rope-dim 4//')
    say "$long\n$rest\n" generate $sizes --sequence 700 --interactive --attention $attention --answer 1 --temperature 0 --mesh pipe=2
    cp out made
    call generate $sizes --attention $attention --sequence 700 --mesh data=1 --prompt "$long" --length 433 --temperature 0
    first=$(tail -c 2 out)
    call generate $sizes --attention $attention --sequence 700 --mesh data=1 --prompt "$long$first$rest" --length 485 --temperature 0
    { echo "$first" && tail -c 2 out; } >wanted
    cmp -s made wanted
    point "$attention: what is cached is what was said"
done
say 'a\nb\nc\n' $talk --length 12 --answer 5 --mesh data=2
[ $status = 0 ] && [ "$(wc -l <out)" = 2 ] && [ "$(grep -c '^transformer: the conversation has all of its 12 tokens (--length): it ends here$' err)" = 1 ]
point 'a line for which there is no room'
say 'a\nb\n' $talk --length 6 --answer 50 --mesh pipe=2
[ $status = 0 ] && [ "$(wc -l <out)" = 1 ] && grep -q 'has all of its 6 tokens (--length)' err
point 'an answer for which there is no room'
say '' $talk --mesh data=2
[ $status = 0 ] && [ ! -s out ]
point 'nothing is said'
( sleep 1.5 && printf 'ab\n' && sleep 1 && printf 'cd\n' ) | timeout 120 "$driver" $talk --answer 5 --seed $seed --mesh data=2 --timeout 0.4 --checked >out 2>err
cmp -s out expected
point 'who waits for a line is not missed'
printf 'ab\n' | timeout 120 "$driver" $talk --answer 5 --mesh data=1 >/dev/full 2>err
[ $? = 3 ] && grep -q 'stdout: No space left' err
point 'a full disk'
call $talk --dry-run --mesh data=2
[ $status = 0 ] && grep -q coordinate out
point 'what it would take'

# ---- messages ----

cat >chats.jsonl <<'END'
{"messages": [{"role": "user", "content": "Say one."}, {"role": "assistant", "content": "one"}, {"role": "user", "content": "Say two."}, {"role": "assistant", "content": "two"}]}
END
call train $small --sequence 192 --chat chats.jsonl --validation 0 --batch 2 --steps 150 --lr 0.01 --mesh data=1 --save run
say 'Say one.\nSay two.\n' generate --params run --interactive --chat-template chatml --temperature 0 --length 192 --mesh tensor=2
[ $status = 0 ] && printf 'one\ntwo\n' | cmp -s - out && grep -q 'a conversation (ChatML) of up to 192 tokens' err
point 'ChatML, whose answers end'
# An answer that was cut off is ended by the template.
for layout in data=1 data=2,pipe=2; do
    say 'Say one.\nSay two.\n' generate --params run --interactive --chat-template chatml --system Be. --temperature 0 --answer 2 --length 192 --mesh $layout
    cp out made
    text="$(printf '<|im_start|>system\nBe.<|im_end|>\n<|im_start|>user\nSay one.<|im_end|>\n<|im_start|>assistant\n')"
    call generate --params run --prompt "$text
" --temperature 0 --length $((${#text} + 3))
    first=$(tail -n 1 out)
    text=$(printf '%s\n%s<|im_end|>\n<|im_start|>user\nSay two.<|im_end|>\n<|im_start|>assistant\n' "$text" "$first")
    call generate --params run --prompt "$text
" --temperature 0 --length $((${#text} + 3))
    { echo "$first" && tail -n 1 out; } >wanted
    cmp -s made wanted
    point "a system's message, and answers that are cut off, on $layout"
done

# ---- a terminal ----

if ! command -v python3 >/dev/null; then
    skip 'a terminal' 'there is no python3'
else
    python3 "$tool" "$driver" $talk --seed $seed >out 2>err
    status=$?
    cat out
    points=$((points + $(grep -cE '^(not )?ok ' out)))
    [ $status = 0 ]
    point 'a terminal'
fi

# ---- refusals ----

for option in 'prompt a' 'prompt-tokens 1' 'prompts chats.jsonl' 'logits file' json 'samples 2' 'in-flight 1' 'groups 1'; do
    refused "--${option%% *}: is read only without --interactive" $talk --$option
done
for option in 'system a' 'answer 5' 'chat-template chatml'; do
    refused "--${option%% *}: is read only with --interactive" generate $small --$option
done
refused '--system: there is no template of chats' $talk --system a
refused '--system: there is no template of chats' $talk --system a --chat-template none
refused '--stop: answers end where the template of chats says so' $talk --stop a --chat-template chatml
refused 'the tokenizer has no token <|im_start|>' $talk --vocab-size 50257 --tokenizer "$tokenizer" --chat-template chatml
refused 'tokens is unknown' $talk --vocab-size 300
refused '--answer: "0" is not an integer from 1' $talk --answer 0
say 'a\303\n' $talk --mesh data=2
[ $status = 2 ] && [ ! -s out ] && grep -q 'stdin: byte 195, but the vocabulary has 128 tokens' err
point 'a byte that is no token'
head -c 1100000 /dev/zero | tr '\0' a >long
timeout 120 "$driver" $talk --mesh data=1 <long >out 2>err
[ $? = 2 ] && [ ! -s out ] && grep -q 'stdin: a line of more than 1048576 bytes' err
point 'a line without end'

plan
