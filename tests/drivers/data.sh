#!/bin/sh
# data.sh DRIVERS - data to train and to evaluate on, lines of evaluations, and text that comes out again;
# prints TAP.
driver=$1/transformer
looping=$1/looping_pipeline
. "$(dirname "$0")/../rigs/points.sh"

# said LINE: LINE is the only line on stderr.
said() {
    [ "$(wc -l <err)" = 1 ] && grep -qxF -- "$1" err
}

model='--model-dimension 16 --n-heads 4 --blocks 2 --layers-per-block 2 --sequence 16 --latent-dim 8 --rope-dim 4'
train="train $model --batch 8 --mesh data=1 --steps 2 --json"
evaluate="evaluate $model --batch 8"
number='-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?'
memory='"coordinate":0'
for key in parameters gradients optimizer activations kept recomputed workspace handover caches batch offloaded runtime total; do
    memory="$memory,\"$key\":[0-9]+"
done
random='transformer: without --params the parameters are random, as they are before a training'

# ---- directories ----

for n in 0 1 2 3 4 5 6 7 8 9; do echo "Zeile $n: ein Text, der lang genug für Öl und Übermut ist."; done >text
mkdir -p corpus/sub/deep
head -n 3 text >corpus/a
sed -n 4,6p text >corpus/b.txt
sed -n 7,8p text >corpus/sub/c
sed -n 9,10p text | gzip -c >corpus/sub/deep/d.txt.gz
call $train --data text
[ $status = 0 ] && [ ! -s err ] && values loss >losses && [ "$(wc -l <losses)" = 2 ]
point 'a text'
call $train --data corpus
values loss | cmp -s - losses && said 'transformer: --data corpus: 4 files, 0.6 kB (1 unpacked)'
point 'the same text as files in directories, one of them packed: the same bits'
mkdir corpus/.git
echo secret >corpus/.git/HEAD
echo secret >corpus/.hidden
printf 'a\0b' >corpus/sub/picture
printf 'a\0b' | gzip -c >corpus/archive.gz
ln -s .. corpus/sub/loop
ln -s ../../text corpus/sub/deep/link
mkfifo corpus/fifo
line='transformer: --data corpus: 4 files, 0.6 kB (1 unpacked); left out: 2 binary files, 2 links, 2 hidden'
call $train --data corpus
values loss | cmp -s - losses && said "$line, 1 that is no regular file"
point 'what is left out is counted'
gzip -c text >packed
call $train --data packed
values loss | cmp -s - losses && [ ! -s err ]
point 'a packed file alone'
head -c 60 packed >corpus/sub/cut
refused 'corpus/sub/cut: what gzip has packed is cut short' $train --data corpus
rm corpus/sub/cut
mkdir binary
head -c 999 /dev/zero >binary/zeros
refused 'binary: no text is in it: all its files are binary (1)' $train --data binary
call $train --data binary/zeros
[ $status = 0 ] && [ ! -s err ]
point 'a binary file alone'

for place in corpus/metrics corpus/sub/metrics corpus/new/metrics corpus/sub/deep/../../b.txt; do
    refused 'one of the files of --data corpus' $train --data corpus --metrics $place
done
ln corpus/sub/c elsewhere
refused 'one of the files of --data corpus' $train --data corpus --metrics elsewhere
call $train --data corpus --metrics corpus/.metrics --save corpus/run
[ $status = 0 ] && [ -s corpus/.metrics ]
point 'what is hidden, and checkpoints, may lie among the data'
call $train --data corpus
values loss | cmp -s - losses && grep -q 'left out: 3 binary files, 2 links, 3 hidden' err
point 'and are left out'

# ---- evaluations ----

size=$(wc -c <text)
times="\\{\"ms\":$number,\"ramp_up_ms\":$number,\"ramp_down_ms\":$number,\"utilization\":$number\\}"
call $evaluate --mesh data=1 --eval-data text --json
[ $status = 0 ] && said "$random" && [ "$(values tokens)" = $((size - 1)) ] && [ "$(wc -l <out)" = 1 ] &&
    grep -qxE "\\{\"loss\":$number,\"perplexity\":$number,\"bits_per_byte\":$number,\"tokens\":[0-9]+,\"evaluation_loss\":$number,\"parameters\":[0-9]+,\"sequences_per_second\":$number,\"measured\":$times,\"simulated\":$times,\"memory\":\\[\\{$memory\\}\\],\"processes\":\\[\\{[^}]*\\}\\]\\}" out
point 'every token but the first is scored; random parameters are called so'
values loss >wanted
awk -v p="$(values perplexity)" -v b="$(values bits_per_byte)" '
    { d = exp($1) / p - 1; e = $1 / log(2) / b - 1; exit !(d * d < 1e-14 && e * e < 1e-14) }' wanted
point 'perplexity and bits per byte are the loss'
for layout in data=8 data=2,pipe=2,tensor=2 'tensor=4 --vocabulary-parallel' 'pipe=2 --schedule zbv' \
    'data=3 --batch 3' 'data=1 --batch 64' 'data=2,tensor=2 --batch 128'; do
    call $evaluate --eval-data text --json --mesh $layout
    values loss >others
    near 2e-6 others wanted && [ "$(values tokens)" = $((size - 1)) ]
    point "the same on $layout"
done
# Measured and then simulated times: a part of a stream takes less time than the stream, and no coordinate works longer.
for layout in data=1 pipe=4 'data=2,pipe=2 --microbatches 4' 'pipe=2 --schedule looped-bfs --loops 2' 'pipe=2 --schedule zbv' \
    'tensor=2 --tensor-pieces 2'; do
    call $evaluate --eval-data text --json --mesh $layout
    tr '{,}' '\n' <out | sed -n 's/"\(ms\|ramp_up_ms\|ramp_down_ms\|utilization\)"://p' | awk '
        { n[NR] = $1 } END { for (i = 0; i < 8; i += 4) bad = bad || !(n[i + 1] > 0 && n[i + 2] >= 0 && n[i + 3] >= 0 &&
            n[i + 2] < n[i + 1] && n[i + 3] < n[i + 1] && n[i + 4] > 0 && n[i + 4] < 1.000001); exit NR != 8 || bad }'
    point "times of the stream on $layout"
done
# Windows are cut at multiples of 16, so the parts' sums are the whole's.
head -c 161 text >first
tail -c +161 text >rest
call $evaluate --mesh data=2 --eval-data first --json
values loss >parts
call $evaluate --mesh data=2 --eval-data rest --json
values loss >>parts
awk -v rest=$((size - 161)) -v whole="$(cat wanted)" '
    { sum += $1 * (NR == 1 ? 160 : rest) } END { d = sum / (160 + rest) / whole - 1; exit !(d * d < 1e-12) }' parts
point 'the sums of two parts are the sum of the whole'
printf 'ab' >two
call $evaluate --mesh data=2 --eval-data two --json
[ "$(values tokens)" = 1 ] && grep -qE "\"loss\":$number," out
point 'one token'
call $evaluate --mesh data=1 --eval-data text
[ $status = 0 ] && said "$random" && [ "$(wc -l <out)" = 5 ] &&
    head -n 1 out | grep -qx "random parameters; --eval-data text, all of its $size tokens" &&
    sed -n 2p out | grep -qxE '[0-9.e+]+ sequences/s: [0-9.]+ ms, ramp-up 0.0, ramp-down 0.0, utilization [0-9]+ %; simulated: [0-9.]+ ms, ramp-up 0.0, ramp-down 0.0, utilization 100 %' &&
    sed -n 3p out | grep -qxE 'memory of the coordinate: [0-9.]+ MB \(parameters [0-9.]+, workspace [0-9.]+\)' &&
    sed -n 4p out | grep -qE '^ *loss \(nats\) +perplexity +bits per byte +tokens$' &&
    tail -n 1 out | grep -qE "^ *$number +$number +$number +$((size - 1))\$"
point 'a table for people'
call $evaluate --mesh data=1 --data text --validation 0.3 --evaluate-batches 2 --json
[ "$(values tokens)" = 256 ]
point 'without --eval-data, batches of the part that is kept'

call train $model --batch 8 --mesh data=2 --steps 4 --json --data text --eval-data first --evaluate-every 2 --save run
values evaluation_loss >during
call $evaluate --mesh pipe=2 --params run --eval-data first --json
[ $status = 0 ] && [ ! -s err ] && [ "$(wc -l <during)" = 2 ] && values loss >after && tail -n 1 during | near 2e-6 after -
point 'a training evaluates on the same data, to the same loss'
call $evaluate --mesh pipe=2 --params run --data text
head -n 1 out | grep -qxE "parameters run/step-0*4.safetensors \(step 4\); data text, the last [0-9]+ of $size tokens, 8 batches of 8 sequences"
point 'what is evaluated: parameters, their step, the data'
call train $model --batch 8 --mesh data=2 --steps 2 --json --data text --evaluate-every 2 --evaluate-batches 2
values evaluation_loss >one
call train $model --batch 8 --mesh data=1 --steps 2 --json --data text --evaluate-every 2 --evaluate-batches 2 --accumulate 4
values evaluation_loss | near 2e-6 one -
point 'an evaluation takes all passes of a batch'

# A shard: 300 tokens of GPT-2.
awk 'function word(n, bytes) { for (; bytes > 0; bytes--) { printf "\\%03o", n % 256; n = int(n / 256) } }
    BEGIN { word(20240520, 4); word(1, 4); word(300, 4); for (i = 3; i < 256; i++) word(0, 4)
            for (i = 0; i < 300; i++) word(i * 7 % 1000, 2) }' >octal
printf "$(cat octal)" >shard.bin
call $evaluate --vocab-size 1000 --mesh data=2 --eval-data shard.bin --json
[ $status = 0 ] && grep -q '"bits_per_byte":null,"tokens":299,' out
point 'bytes of numbered tokens are not known'
call $evaluate --vocab-size 1000 --mesh data=2 --eval-data shard.bin
tail -n 1 out | grep -qE "^ *$number +$number +- +299\$"
point 'which is a dash in the table'
refused '--eval-data shard.bin: a shard, and --data text is a text' $train --data text --eval-data shard.bin --evaluate-every 1
call train $model --vocab-size 1000 --batch 8 --mesh data=1 --steps 1 --data shard.bin --validation 0 --sample-every 1 --length 4
[ $status = 0 ] && grep -qxE '    [0-9]+ [0-9]+ [0-9]+ [0-9]+' out
point 'a sample of numbered tokens'

# ---- text ----

call generate $model --prompt 'é€😀' --length 9
[ $status = 0 ] && [ "$(cat out)" = 'é€😀' ] && head -n 1 err | grep -qxF "$random" &&
    sed -n 2p err | grep -qx 'transformer: random parameters; samples of 9 tokens, the prompt.s 9 included'
point 'a prompt in UTF-8'
call generate $model --params run --prompt-tokens 195,169,10,9,27,255,97 --length 7
[ $status = 0 ] && printf 'é\n\t\\x1b\\xffa\n' | cmp -s - out && ! grep -q random err
point 'control characters and what is no UTF-8 are escaped'
call generate $model --params run --prompt-tokens 195,169,10,9,27,255,97 --length 7 --json
[ ! -s err ] && grep -qxF '{"sample":0,"tokens":[195,169,10,9,27,255,97],"text":"é\n\t\u001B�a"}' out
point 'in JSON the text is UTF-8, and the tokens are what they were'
call $train --data text --sample-every 2 --samples 2 --length 12 --prompt 'ö'
[ "$(grep -cE '^\{"step":1,"sample":[01],"tokens":\[195,182,[0-9,]*\],"text":"ö' out)" = 2 ]
point 'a sample of a training has its step'
call train $model --batch 8 --mesh data=1 --steps 2 --data text --sample-every 2 --length 4 --prompt 'öl
'
grep -A 2 -x 'after step 1: sample' out | tail -n 2 | tr '\n' '|' | grep -qx '    öl|    |'
point 'and people see it indented below it'

# ---- Fashion-MNIST ----

small="--layers 2 --hidden 8 --batch 100 --microbatches 2 --mesh data=1,model=2 --steps 2 --json"
if [ -d /usr/share/datasets/fashion-mnist ]; then
    "$looping" $small --data fashion-mnist:/usr/share/datasets/fashion-mnist >out 2>err && values loss >one &&
        "$looping" $small --data fashion-mnist >out 2>err
    status=$?
    [ $status = 0 ] && [ ! -s err ] && [ "$(wc -l <one)" = 2 ] && values loss | cmp -s - one
    point "fashion-mnist is Debian's"
else
    skip "fashion-mnist is Debian's" 'the package dataset-fashion-mnist is not installed'
fi
# This process alone gets another root of the file system, without the folder.
if unshare -rm sh -c 'mount -t tmpfs none /usr/share' 2>/dev/null; then
    unshare -rm sh -c 'mount -t tmpfs none /usr/share && exec "$@"' sh "$looping" $small --data fashion-mnist >out 2>err
    status=$?
    [ $status = 2 ] && [ "$(wc -l <err)" = 1 ] && grep -q "install Debian's package dataset-fashion-mnist" err
    point 'or its package is named'
else
    skip 'or its package is named' 'file systems cannot be mounted here'
fi

plan
