#!/bin/sh
# tokens.sh DRIVERS DATA - text to tokens and back, as numbers and as shards, which a transformer trains on; prints TAP.
driver=$1/tokens
transformer=$1/transformer
data=$2/tokenizers
. "$(dirname "$0")/../../../rigs/points.sh"

# refuses TEXT ARGUMENT...: status 2 and one line, which also begins with the command's name.
refuses() {
    line=$1
    shift
    call "$@"
    [ $status = 2 ] && [ ! -s out ] && [ "$(wc -l <err)" = 1 ] && grep -q '^tokens\( [a-z]*\)\{0,1\}: ' err && grep -qF -- "$line" err
    point "refused: $line"
}

# fed TEXT ARGUMENT...: with TEXT as stdin, as printf prints it.
fed() {
    text=$1
    shift
    printf "$text" | timeout 60 "$driver" "$@" >out 2>err
    status=$?
}

# fed_refuses STATUS LINE TEXT ARGUMENT...
fed_refuses() {
    wanted=$1 line=$2
    shift 2
    fed "$@"
    [ $status = "$wanted" ] && [ "$(wc -l <err)" = 1 ] && grep -q '^tokens ' err && grep -qF -- "$line" err
    point "refused: $line"
}

for driver_command in '' encode decode shards text; do
    answers 'Usage: tokens' $driver_command --help
    answers 'tokens' $driver_command --version
done

# ---- numbers ----

for tokenizer in gpt2.json qwen2.json smollm.gguf pieces.model pieces.json 'llama3.ranks --pattern llama3'; do
    fed 'The quick  brown\n\tfox, 12345 and \303\251\377\000!\n' encode --tokenizer $data/$tokenizer
    mv out numbers
    [ $status = 0 ] && [ ! -s err ] && "$driver" decode --tokenizer $data/$tokenizer <numbers >back 2>err &&
        printf 'The quick  brown\n\tfox, 12345 and \303\251\377\000!\n' | cmp -s - back
    point "$tokenizer: a text comes back"
done
fed 'the fox\n\nthe fox' encode --lines --tokenizer $data/gpt2.json
mv out numbers
[ $status = 0 ] && [ "$(wc -l <numbers)" = 3 ] && [ "$(sed -n 1p numbers)" = "$(sed -n 3p numbers)" ] &&
    [ -z "$(sed -n 2p numbers)" ] && "$driver" decode --lines --tokenizer $data/gpt2.json <numbers >back &&
    printf 'the fox\n\nthe fox\n' | cmp -s - back
point 'a text a line'
fed 'a<|endoftext|>' encode --tokenizer $data/gpt2.json
[ $status = 0 ] && [ "$(wc -w <out)" = 2 ]
point 'a special token'
fed 'a<|endoftext|>' encode --no-special --tokenizer $data/gpt2.json
[ $status = 0 ] && [ "$(wc -w <out)" -gt 3 ]
point 'what is spelled as one is text'

refuses 'no tokenizer: name one by --tokenizer PATH' encode
refuses 'no command: choose one of encode, decode, shards, text'
refuses 'there is no "encod": choose one of encode, decode, shards, text; did you mean encode?' encod
refuses '--tokenizer nothing: there is no such file or folder' encode --tokenizer nothing
refuses 'no pattern is called "gpt5": choose gpt2, llama3, qwen2, smollm' encode --tokenizer $data/gpt2.json --pattern gpt5
refuses 'ranks do not say how text is divided' encode --tokenizer $data/llama3.ranks
mkdir empty
refuses 'neither tokenizer.json nor tokenizer.model' encode --tokenizer empty
fed_refuses 2 '"x", in text number 1, is no number' '1 x' decode --tokenizer $data/gpt2.json
fed_refuses 2 '"-1", in text number 2' '1\n-1' decode --lines --tokenizer $data/gpt2.json
fed_refuses 2 '"4294967297"' '4294967297' decode --tokenizer $data/gpt2.json
fed_refuses 2 'token number 1 is 410, which the tokenizer does not have: it has 410' '1 410' decode --tokenizer $data/gpt2.json
for run in encode decode; do
    echo 1 2 | "$driver" $run --tokenizer $data/gpt2.json >/dev/full 2>err
    status=$?
    [ $status = 3 ] && [ "$(wc -l <err)" = 1 ] && grep -q 'stdout: No space left' err
    point "$run: a full disk"
    "$driver" $run --tokenizer $data/gpt2.json <&- >out 2>err
    status=$?
    [ $status = 3 ] && [ "$(wc -l <err)" = 1 ] && grep -q 'stdin: ' err
    point "$run: stdin is closed"
done

# ---- shards ----

mkdir -p corpus/sub
printf 'one text\n' >corpus/a
printf '{"text":"zwei"}\n\n{"text":"drei \\u00e9\\nx","more":1}\n' >corpus/b.jsonl
printf '{"text":"four"}\n' | gzip -c >corpus/sub/c.jsonl.gz
: >corpus/nothing
printf '{"text":"one text\\n"}\n{"text":"zwei"}\n{"text":"drei \303\251\\nx"}\n{"text":"four"}\n' >documents
for tokenizer in gpt2.json 'llama3.ranks --pattern llama3'; do
    for threads in 1 3; do
        rm -rf shards
        call shards --tokenizer $data/$tokenizer --data corpus --save shards --shard-tokens 7 --threads $threads --json
        [ $status = 0 ] && [ ! -s err ] && grep -qE '^\{"documents":4,"tokens":[0-9]+,"bytes":[0-9]+,"shards":[0-9]+,"seconds":[^}]+\}$' out &&
            [ "$(values shards)" = "$(ls shards | grep -c '^tokens_0000.*\.bin$')" ] &&
            [ "$(values shards)" = $((($(values tokens) + 6) / 7)) ]
        point "$tokenizer, $threads threads: shards"
        call text --tokenizer $data/$tokenizer --data shards --json
        [ $status = 0 ] && cmp -s out documents
        point "$tokenizer, $threads threads: the documents come back"
        [ $threads = 3 ] || cp -r shards one
    done
    diff -r one shards >out
    point "$tokenizer: the same shards by one thread and by three"
    rm -rf one
done
rm -rf shards
answers '4 documents' shards --tokenizer $data/gpt2.json --data corpus --save shards
answers 'zwei' text --tokenizer $data/gpt2.json --data shards
refuses 'tokens_000000.bin is there already: write to an empty folder' shards --tokenizer $data/gpt2.json --data corpus --save shards
refuses 'these are tokens already, and no text' shards --tokenizer $data/gpt2.json --data shards --save other
refuses 'no shards of tokens' text --tokenizer $data/gpt2.json --data corpus
refuses '--data is missing' shards --tokenizer $data/gpt2.json --save other
refuses '--save is missing' shards --tokenizer $data/gpt2.json --data corpus
refuses '--data is missing' text --tokenizer $data/gpt2.json
refuses '--shard-tokens: "0" is not an integer from 1 to' shards --shard-tokens 0
refuses '--threads: "65" is not an integer from 0 to 64' shards --threads 65
refuses '--save nowhere/other: cannot be made' shards --tokenizer $data/gpt2.json --data corpus --save nowhere/other
printf '{"text":"a"}\n{"text":1}\n' >bad.jsonl
printf '{"text":"a"}\n{"text":\n' >worse.jsonl
refuses 'bad.jsonl: line 2: no text under the key "text"' shards --tokenizer $data/gpt2.json --data bad.jsonl --save other
[ -d other ] && [ -z "$(ls other)" ]
point 'nothing is left of them'
refuses 'worse.jsonl: line 2: ' shards --tokenizer $data/gpt2.json --data worse.jsonl --save other
refuses 'line 1: no text under the key "body"' shards --tokenizer $data/gpt2.json --data bad.jsonl --save other --text-key body
seq 20000 >long
(ulimit -f 8 && exec "$driver" shards --tokenizer $data/gpt2.json --data long --save other) >out 2>err
status=$?
[ $status = 3 ] && [ "$(wc -l <err)" = 1 ] && grep -q 'other/tokens_000000.bin: File too large' err && [ -z "$(ls other)" ]
point 'a disk that is full: one line, and no shard'
"$driver" text --tokenizer $data/gpt2.json --data shards >/dev/full 2>err
status=$?
[ $status = 3 ] && [ "$(wc -l <err)" = 1 ]
point 'text: a full disk'

# ---- a transformer trains on them ----

rm -rf shards
call shards --tokenizer $data/gpt2.json --data long --save shards
"$transformer" train --mesh data=1 --model-dimension 16 --n-heads 2 --latent-dim 8 --rope-dim 4 --sequence 8 --blocks 1 \
    --layers-per-block 1 --batch 2 --steps 2 --vocab-size 410 --data shards --json >out 2>err
status=$?
[ $status = 0 ] && [ "$(grep -c '^{"step"' out)" = 2 ]
point 'a transformer trains on the shards'

plan
