#!/bin/sh
# texts.sh DRIVERS DATA - a transformer trains and is evaluated on texts, which a tokenizer makes into tokens; prints TAP.
driver=$1/transformer
tokens=$1/tokens
tokenizer=$2/tokenizers/gpt2.json
. "$(dirname "$0")/../../../rigs/points.sh"

small="--attention gqa --n-heads 4 --kv-heads 2 --mlp silu --biases none --model-dimension 16 --blocks 2 --layers-per-block 1 --sequence 16 --batch 4"
train="train $small --steps 3 --json"

mkdir -p corpus/sub
seq 1 90 >corpus/a
printf '{"text":"zwei","other":"two"}\n\n{"text":"drei \\u00e9\\nx","other":"three"}\n' >corpus/b.jsonl
printf '{"text":"four<|endoftext|>five"}\n' | gzip -c >corpus/sub/c.jsonl.gz
: >corpus/nothing

# ---- the same as shards ----

"$tokens" shards --tokenizer "$tokenizer" --data corpus --save shards --json >out
count=$(values tokens)
call $train --vocab-size 410 --data shards --mesh data=1
values loss >wanted
[ $status = 0 ] && [ "$(wc -l <wanted)" = 3 ]
point 'shards'
call $train --tokenizer "$tokenizer" --data shards --mesh data=1
[ $status = 0 ] && values loss | cmp -s - wanted
point 'a tokenizer says how many tokens there are'
call $train --tokenizer "$tokenizer" --data corpus --mesh data=1 --save run
[ $status = 0 ] && values loss | cmp -s - wanted &&
    tail -n 1 err | grep -qxF "transformer: --data corpus: 4 documents, $count tokens" && [ "$(wc -l <err)" = 2 ]
point 'the text that they were made of: the same bits'
"$tokens" shards --no-special --tokenizer "$tokenizer" --data corpus --save plain --json >out
plain=$(values tokens)
call $train --no-special --tokenizer "$tokenizer" --data corpus --mesh data=1
[ $status = 0 ] && [ "$plain" -gt "$count" ] && tail -n 1 err | grep -qF " $plain tokens"
point 'special tokens are text'
for mesh in data=2,pipe=2 data=1,tensor=2; do
    call $train --tokenizer "$tokenizer" --data corpus --mesh $mesh
    values loss >loss
    [ $status = 0 ] && near 1e-5 loss wanted
    point "the same on $mesh"
done
call $train --tokenizer "$tokenizer" --data corpus/b.jsonl --text-key other --mesh data=1 --sequence 2 --validation 0
[ $status = 0 ] && head -n 1 err | grep -qE '^transformer: --data corpus/b.jsonl: 2 documents, [0-9]+ tokens$'
point 'under another key'

# ---- a run knows its tokenizer ----

call train --resume run --steps 5 --json
[ $status = 0 ] && [ "$(values loss | wc -l)" = 2 ] && grep -qF "$count tokens" err
point 'a run that is resumed reads its text again'
seq 70 130 >held
bytes=$(wc -c <held)
call evaluate --params run --eval-data held --json
values loss >whole
[ $status = 0 ] && awk -v bits="$(values bits_per_byte)" -v tokens="$(values tokens)" -v bytes="$bytes" '
    { d = $1 / log(2) * tokens / bytes / bits - 1; exit !(bytes > tokens && tokens > 50 && d * d < 1e-12) }' whole
point 'bits per byte, of the bytes that tokens stand for'
call evaluate --params run --eval-data held
[ $status = 0 ] && tail -n 1 out | awk '{ exit !($3 > 0 && NF == 4) }'
point 'which stand in the table'
"$tokens" shards --tokenizer "$tokenizer" --data held --save scored >out
call evaluate --params run --eval-data scored --json
[ $status = 0 ] && values loss | cmp -s - whole && [ "$(values bits_per_byte)" ] && ! grep -q null out
point 'shards have bits per byte, too, where there is a tokenizer'
call generate --params run --prompt 'zwei 1' --length 12
[ $status = 0 ] && head -n 1 out | grep -q '^zwei 1'
point 'its prompts are texts'
call train --params run --data corpus --mesh data=2 --steps 2 --sample-every 1 --prompt 'zwei' --length 8
[ $status = 0 ] && [ "$(grep -c '^    zwei' out)" = 2 ]
point 'and so are the samples of a training'
cp "$tokenizer" moved.json
call train $small --tokenizer moved.json --data corpus --mesh data=1 --steps 1 --save other
rm moved.json
refused 'moved.json: cannot be opened' generate --params other --prompt zwei
call generate --params other --prompt-tokens 5,6 --length 5
[ $status = 0 ] && [ "$(wc -w <out)" = 5 ]
point 'a tokenizer that is gone is not missed where there is no text'

# ---- published models ----

mkdir folder
cp "$tokenizer" folder/tokenizer.json
call export --params run --tokenizer folder/tokenizer.json --format hf --to model
[ $status = 0 ] && [ ! -s err ] && cmp -s model/tokenizer.json "$tokenizer"
point 'export: the tokenizer goes along'
call evaluate --model model --sequence 16 --batch 4 --eval-data held --json
values loss >loss
[ $status = 0 ] && near 1e-6 loss whole
point 'a published model reads texts by its tokenizer'
call train --model model --sequence 16 --batch 4 --data corpus --mesh data=2 --steps 2 --save tuned --json
[ $status = 0 ] && [ "$(values loss | wc -l)" = 2 ]
point 'and trains on them'
call evaluate --params tuned --eval-data held --json
[ $status = 0 ] && [ "$(values tokens)" -gt 50 ]
point 'what was saved of it does, too'
call export --params tuned --format hf --to again
[ $status = 0 ] && [ ! -s err ] && cmp -s again/tokenizer.json "$tokenizer"
point 'and is exported with its tokenizer'

# ---- windows that overlap: bytes, whose numbers are known ----

call train --model-dimension 16 --n-heads 2 --latent-dim 8 --rope-dim 4 --blocks 1 --layers-per-block 2 --batch 4 --data held \
    --sequence 16 --mesh data=1 --steps 2 --save bytes
# scores FILE ARGUMENT...: the sum over its tokens.
scores() {
    file=$1
    shift
    call evaluate --params bytes --data held --eval-data "$file" --json "$@"
    echo "$(values loss) $(values tokens)" | awk '{ printf "%.9g\n", $1 * $2 }'
}
head -c 22 held >text # 21 labels: windows begin at 0 and 5
head -c 17 text >begin
tail -c 17 text >end
head -c 12 end >known
{ scores begin && scores end && scores known; } | awk '{ x[NR] = $1 } END { printf "%.9g\n", x[1] + x[2] - x[3] }' >wanted
for layout in data=1 'data=2 --batch 2' data=1,pipe=2; do
    scores text --stride 5 --mesh $layout >sum
    near 1e-6 sum wanted && [ "$(values tokens)" = 21 ]
    point "a token is scored in the first window that has it: $layout"
done
scores held >wanted
for stride in 16 0; do
    scores held --stride $stride >sum
    cmp -s sum wanted
    point "a stride of $stride"
done
for stride in 1 3 15; do
    scores held --stride $stride >sum
    [ "$(values tokens)" = $((bytes - 1)) ]
    point "every token once with a stride of $stride"
done
scores begin --stride 1 >sum
scores begin | cmp -s - sum
point 'one window'
call evaluate --params bytes --data held --eval-data held --stride 4
head -n 1 out | grep -qF "all of its $bytes tokens but the first from at least 12 before them"
point 'people are told'

# ---- ends of samples ----

# A model of bytes that has learned a known text: its output after "a", without an end.
for n in 1 2 3 4 5 6 7 8 9 10 11 12; do printf 'abcdefghij öäü klmnopqrst\n'; done >alphabet
call train --model-dimension 32 --n-heads 2 --latent-dim 8 --rope-dim 4 --blocks 1 --layers-per-block 2 --batch 8 --lr 0.01 \
    --data alphabet --sequence 24 --mesh data=1 --steps 60 --save spelled
bytes="generate --params spelled --prompt abc --temperature 0"
call $bytes --length 60
[ $status = 0 ] && head -c 20 out | grep -qx 'abcdefghij öäü kl' && cp out whole
point 'a sample'
for layout in data=1 pipe=2 tensor=2 data=2; do
    call $bytes --length 60 --mesh $layout --stop 'ü k'
    [ $status = 0 ] && [ "$(cat out)" = 'abcdefghij öä' ]
    point "ends before a text, on $layout"
    call $bytes --length 60 --mesh $layout --stop 'ü k' --json
    [ "$(values tokens_per_second | wc -l)" = 1 ] && grep -qF '"text":"abcdefghij öä"' out && grep -qF '195,188,32,107],' out
    point "in JSON, too, whose tokens have it"
done
call $bytes --length 60 --stop 'bc'
cmp -s out whole || [ "$(cat out)" != abc ]
point 'the prompt is no end'
call $bytes --length 60 --stop 'never'
cmp -s out whole
point 'a text that never comes'
printf 'abc\nklm\n' >two
call generate --params spelled --temperature 0 --length 60 --prompts two --stop 'q' --mesh data=1,pipe=2
[ $status = 0 ] && printf '%s\n' '---- sample 0 of prompt 0' 'abcdefghij öäü klmnop' '---- sample 1 of prompt 1' 'klmnop' | cmp -s - out
point 'each of several samples ends by itself'
call $bytes --length 60 --stop 'ü k' --logits logits
cmp -s out whole || [ "$(cat out)" = 'abcdefghij öä' ]
point 'logits are of all tokens'
# Text comes as it is made: the first half of a long sample is there before the run has ended.
mkfifo stream
"$driver" $bytes --length 20000 --sequence 20000 >stream 2>err &
pid=$!
exec 3<stream # it stays open, or the next write would end the run
head -c 12 <&3 >first
kill -0 $pid 2>/dev/null
came=$?
exec 3<&-
wait $pid
[ $came = 0 ] && [ "$(head -c 10 first)" = abcdefghij ]
point 'text is printed as it comes'
"$driver" $bytes --length 20 >/dev/full 2>err
status=$?
[ $status = 3 ] && [ "$(wc -l <err)" -ge 1 ] && tail -n 1 err | grep -q 'No space left'
point 'generate: a full disk'
end=$(printf "<|endoftext|>" | "$tokens" encode --tokenizer "$tokenizer")
# The token that ends a text: among all tokens of a model that knows nothing there is one soon.
call train $small --tokenizer "$tokenizer" --data corpus --mesh data=1 --steps 1 --save ends
for layout in data=1 pipe=2 data=2,tensor=2; do
    call generate --params ends --prompt-tokens 5 --length 16 --samples 200 --temperature 5 --mesh $layout --json
    grep '"sample"' out >samples
    [ $status = 0 ] && [ "$(wc -l <samples)" = 200 ] && grep -cE '"tokens":\[[0-9,]*\],' samples >/dev/null &&
        awk -F'[][]' -v end="$end" '{ n = split($2, x, ","); for (i = 2; i <= n; i++) if (x[i] == end) { ends++; bad = bad || i < n }
            bad = bad || (n < 16 && x[n] != end) || /endoftext/ } END { exit bad || !ends }' samples
    point "the token that ends a text ends samples, and is not shown, on $layout"
    [ $layout = data=1 ] && cp samples one
    [ $layout = data=2,tensor=2 ] || cmp -s samples one
    point "the same samples on $layout"
done
call generate --params ends --prompt-tokens 5 --length 16 --samples 200 --temperature 5 --no-end-of-text --json
[ "$(grep -o '"tokens":\[[0-9,]*\]' out | awk -F, 'NF == 16' | wc -l)" = 200 ]
point 'or does not'

# ---- refusals ----

refused '--stride 17: a window has 16 tokens' evaluate --params bytes --data held --eval-data held --stride 17
refused '--stride: is read only with --eval-data' evaluate --params bytes --data held --stride 4
refused '--tokenizer nothing: there is no such file or folder' train $small --tokenizer nothing --data corpus/a
refused "corpus/a: " train $small --tokenizer corpus/a --data held
refused 'line 1: no text under the key "body": --text-key KEY names another' train $small --tokenizer "$tokenizer" --data corpus/b.jsonl --validation 0 --text-key body
refused 'its tokenizer has 410 tokens, and the model 100' train $small --vocab-size 100 --tokenizer "$tokenizer" --data corpus/a
refused 'too short: ' train $small --tokenizer "$tokenizer" --data corpus/b.jsonl --validation 0 --sequence 30
refused '--eval-data held: a text, and --data shards/tokens_000000.bin is a shard' train $small --data shards/tokens_000000.bin --vocab-size 410 --eval-data held --evaluate-every 1

plan
