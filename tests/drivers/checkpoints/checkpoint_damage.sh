#!/bin/sh
# checkpoint_damage.sh DRIVERS DATA - damaged checkpoints and parameters are refused by every command that reads them,
# before anything is written; checkpoints of version 1 are read; prints TAP.
drivers=$1
data=$(cd "$2" && pwd)
[ ! -w /dev/shm ] || export TMPDIR="${TMPDIR:-/dev/shm}" # in memory, where syncing is short
. "$(dirname "$0")/../../rigs/points.sh"

driver=$drivers/transformer
seq 1 400 >text
model='--mesh data=1 --model-dimension 4 --n-heads 1 --latent-dim 2 --rope-dim 2 --sequence 8 --layers-per-block 1
    --blocks 1 --vocab-size 64 --batch 2 --data text'
train="train $model --optimizer sgd --momentum 0.9"
evaluate="evaluate $model"
generate="generate --mesh data=1 --model-dimension 4 --n-heads 1 --latent-dim 2 --rope-dim 2 --sequence 8
    --layers-per-block 1 --blocks 1 --vocab-size 64 --prompt-tokens 1"

name() {
    printf '%s/step-%08d.safetensors' "${2:-saved}" "$1"
}

# put FILE PLACE OCTAL: sets the byte at PLACE.
put() {
    printf "\\$3" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}

# flip FILE PLACE BIT
flip() {
    byte=$(od -An -tu1 -j "$2" -N 1 "$1")
    put "$1" "$2" "$(printf '%03o' $((byte ^ (1 << $3))))"
}

size_of() {
    wc -c <"$1"
}

# losses: prints the losses of the last call's steps.
losses() {
    sed -n 's/.*"step":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' out
}

call $train --steps 4 --save saved --save-every 2 --json
losses >expected
[ $status = 0 ] && [ ! -s err ] && [ "$(ls saved | tr '\n' ' ')" = 'step-00000002.safetensors step-00000004.safetensors ' ]
point 'a run leaves two checkpoints'

# ---- single bits ----

# The only checkpoint of its folder, so that no older one can stand in. A bit of the header's length, of a brace, a key,
# the checksums, a text, the first and the last number.
size=$(size_of "$(name 2)")
header=$(od -An -tu8 -N 8 "$(name 2)")
mkdir damaged
for place in 0 8 12 40 60 $((header / 2)) $((header + 6)) $((8 + header)) $((8 + header + 2000)) $((size - 1)); do
    cp "$(name 2)" "$(name 2 damaged)"
    flip "$(name 2 damaged)" "$place" $((place % 8))
    echo kept | tee metrics >trace
    refused "$(name 2 damaged): " $train --steps 4 --resume damaged --save other --metrics metrics --trace trace --json
    [ "$(cat metrics)" = kept ] && [ "$(cat trace)" = kept ] && [ -z "$(ls other 2>/dev/null)" ]
    point "and nothing is written: byte $place"
done
refused 'is damaged: its checksum is ' $train --steps 4 --params damaged --metrics metrics
[ "$(cat metrics)" = kept ]
point 'and nothing is written: --params'
refused 'is damaged: its checksum is ' $evaluate --params damaged
refused 'is damaged: its checksum is ' $generate --params "$(name 2 damaged)"

# If there is an older checkpoint, the line names it, and a run can resume from it.
cp "$(name 4)" whole
flip "$(name 4)" $((size - 2)) 3
refused "$(name 4): tensor " $train --steps 4 --resume saved --json
grep -q "is damaged: its checksum is [0-9a-f]*, the file says [0-9a-f]*; an older checkpoint is $(name 2)\$" err
point 'an older checkpoint is named'
refused "; an older checkpoint is $(name 2)" $evaluate --params saved
call $train --steps 4 --resume "$(name 2)" --json
tail -n 2 expected >want
losses >got
[ $status = 0 ] && [ ! -s err ] && cmp -s want got
point 'and goes on'

# A file that was cut short is skipped, and a line reports it.
head -c $((size / 2)) whole >"$(name 4)"
call $train --steps 4 --resume saved --json
losses >got
[ $status = 0 ] && [ "$(wc -l <err)" = 1 ] && grep -q "^transformer: $(name 4): .*; $(name 2) is taken in its place\$" err &&
    cmp -s want got
point 'a checkpoint that was cut short is passed over'
call $evaluate --params saved
[ $status = 0 ] && [ "$(wc -l <err)" = 1 ] && grep -q "; $(name 2) is taken in its place" err
point 'also for --params'
call $train --steps 3 --resume saved --save saved --json
[ $status = 0 ] && [ "$(wc -l <err)" = 1 ] && [ -e "$(name 3)" ]
point 'and the run goes on where it saves'
rm "$(name 3)"

# ---- names and values ----

mkdir renamed
cp "$(name 2)" "$(name 3 renamed)"
refused 'the name says step 3, and the checkpoint says step 2' $train --steps 4 --resume renamed
refused 'the name says step 3, and the checkpoint says step 2' $evaluate --params renamed

# The last value becomes a NaN in a file that has no checksums.
cp "$data/checkpoint_version_1.safetensors" nan
size=$(size_of nan)
put nan $((size - 1)) 177
put nan $((size - 2)) 300
for command in "$evaluate --params" "$generate --params" "$train --steps 4 --params" "$train --steps 4 --resume"; do
    call $command nan
    [ $status = 2 ] && [ ! -s out ] && grep -q '^transformer.*: nan: tensor .*: value [0-9]* is not finite$' err &&
        [ "$(grep -vc 'carries no checksums' err)" = 1 ]
    point "not finite: ${command%% *} ${command##* }"
done

# ---- the first version ----

# It was saved after two steps of the run above, by a program that wrote version 1.
first="$data/checkpoint_version_1.safetensors"
line="^transformer: .*checkpoint_version_1.safetensors carries no checksums: damage in it would go unnoticed\$"
call $train --steps 4 --resume "$first" --json
[ $status = 0 ] && [ "$(wc -l <err)" = 1 ] && grep -q "$line" err && losses | paste -d ' ' - want |
    awk '{ d = $2 - $4 } $1 != $3 || d * d > 1e-8 * $2 * $2 { exit 1 } END { if (NR != 2) exit 1 }'
point 'goes on with the same losses'
for command in "$evaluate" "$generate" "$train --steps 1"; do
    call $command --params "$first"
    [ $status = 0 ] && [ "$(grep -c . err)" -ge 1 ] && grep -q "$line" err
    point "gives its values: ${command%% *}"
done
call $train --steps 3 --resume "$first" --save newer
[ $status = 0 ] && call $train --steps 4 --resume newer && [ $status = 0 ] && [ ! -s err ]
point 'what it has become has checksums'

# ---- links ----

# begin ARGUMENT...: starts a run in the background; returns when it has taken steps.
begin() {
    : >log
    "$driver" $train "$@" >log 2>err </dev/null &
    pid=$!
    tries=0
    until [ "$(wc -l <log)" -gt 3 ] || [ $((tries += 1)) -gt 100 ]; do sleep 0.1; done
}

# Metrics are more than a pipe holds, so the run waits for their reader, and the link exists before the checkpoint.
echo mine >outside
mkfifo pipe
{ ln -s ../outside "$(name 1000 linked)" && touch made; cat >/dev/null; } <pipe &
call $train --steps 1000 --save linked --metrics pipe
wait
[ $status = 0 ] && [ -e made ] && [ "$(grep -vc '^transformer: saved in ' err)" = 0 ] && [ "$(cat outside)" = mine ] && [ ! -L "$(name 1000 linked)" ] &&
    [ -f "$(name 1000 linked)" ]
point 'a link under the name of a checkpoint is replaced'
ln -s outside link
call $train --steps 2 --gradients link
[ $status = 0 ] && [ -L link ] && [ "$(size_of outside)" -gt 1000 ]
point 'a link that a user names is followed'
ln -s missing/outside astray
refused 'astray/: cannot be written' $train --steps 2 --gradients astray/
ln -s /dev/null device
refused 'device: cannot be opened: it is a device, allowed is a regular file' $train --steps 2 --gradients device

# ---- directories removed during a run ----

for way in '' --save-async; do
    begin --steps 1000000 --save gone --save-every 1 $way
    tries=0
    until ! [ -e gone ] || [ $((tries += 1)) -gt 200 ]; do rm -rf gone 2>/dev/null; done
    wait $pid
    status=$?
    tail -n 3 log >out
    [ $status = 3 ] && [ "$(wc -l <err)" = 1 ] && grep -q '^transformer.*: gone' err
    point "a directory that is removed while the run saves in it $way"
done

plan
