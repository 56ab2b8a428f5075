#!/bin/sh
# checkpoint.sh DRIVERS - a run that was saved, interrupted or killed resumes with the same results; prints TAP.
drivers=$1
mpirun=$(cd "$(dirname "$0")/../.." && pwd)/mpirun
[ ! -w /dev/shm ] || export TMPDIR="${TMPDIR:-/dev/shm}" # in memory, where syncing is short
. "$(dirname "$0")/../../rigs/points.sh"

driver=$drivers/looping_pipeline
small='--layers 4 --hidden 16 --batch 32 --microbatches 4 --json'

# train STEPS ARGUMENT...: trains, and writes a line for each step to the file losses.
train() {
    steps=$1
    shift
    call $small --steps "$steps" "$@"
    sed -n 's/\("step":[0-9]*,"loss":[^,]*\),.*/\1/p' out >losses
}

# same FILE FILE: both files have the same bytes, and are not empty.
same() {
    [ -s "$1" ] && cmp -s "$1" "$2"
}

# name STEPS [DIRECTORY]
name() {
    printf '%s/step-%08d.safetensors' "${2:-saved}" "$1"
}

# ---- the same run ----

# goes_on ARGUMENT...: ten steps have the same losses and checkpoint as five steps and, after a resume, five more.
goes_on() {
    rm -rf whole saved
    train 10 --save whole "$@"
    mv losses expected
    train 5 --save saved "$@"
    mv losses first
    train 10 --save saved --resume saved "$@"
    cat first losses >got
    [ $status = 0 ] && [ ! -s err ] && same got expected && [ "$(wc -l <losses)" = 5 ] &&
        same "$(name 10)" "$(name 10 whole)"
    point "goes on: $*"
}

# goes_on_from_the_middle ARGUMENT...: a resume after five of ten steps gives the same; the number of all steps is ten
# in both runs, because a falling learning rate depends on it.
goes_on_from_the_middle() {
    rm -rf whole saved
    train 10 --save whole --save-every 5 "$@"
    tail -n 5 losses >expected
    train 10 --save saved --resume "$(name 5 whole)" "$@"
    [ $status = 0 ] && [ ! -s err ] && same losses expected && [ "$(wc -l <losses)" = 5 ] &&
        same "$(name 10)" "$(name 10 whole)"
    point "goes on from the middle: $*"
}
goes_on --mesh data=2,model=4 --schedule looping
goes_on --mesh data=2,model=2 --schedule plain --zero 0
goes_on --mesh data=2,model=1 --schedule single --rng flax
goes_on --mesh data=1,model=2 --schedule 1f1b --precision bf16
goes_on --mesh data=2,model=2 --schedule 1f1b --optimizer sgd --momentum 0.9
goes_on_from_the_middle --mesh data=3,model=2 --rng global --batch 48 --lr-schedule cosine --wgrad-group 2

# Written while the run goes on: the same files, the latest but one of a thread.
for layout in '--mesh data=2,model=4 --schedule looping' '--mesh data=1,model=2 --schedule 1f1b --zero 0 --optimizer sgd --momentum 0.9'; do
    rm -rf whole saved
    train 11 $layout --save whole --save-every 5
    train 11 $layout --save saved --save-every 5 --save-async
    [ $status = 0 ] && [ ! -s err ] && [ "$(ls saved | tr '\n' ' ')" = 'step-00000010.safetensors step-00000011.safetensors ' ] &&
        same "$(name 10)" "$(name 10 whole)" && same "$(name 11)" "$(name 11 whole)" &&
        tail -n 1 out | grep -q '"snapshots":{"count":2,"bytes":[1-9][0-9]*,"copy_ms":[0-9.e-]*,"bytes_per_second":[1-9][0-9.e+]*,"waited_ms":'
    point "saved in the background, the same bytes: $layout"
done
copied=$(sed -n 's/.*"snapshots":{"count":2,"bytes":\([0-9]*\).*/\1/p' out)
runtime() { sed -n '1s/.*"runtime":\([0-9]*\).*/\1/p' out; }
train 11 $layout --dry-run
without=$(runtime)
train 11 $layout --dry-run --save saved --save-every 5 --save-async
[ "$(($(runtime) - without))" = "$copied" ]
point 'a dry run counts the copy'
timeout 60 "$driver" --layers 4 --hidden 16 --batch 32 --microbatches 4 --mesh model=2 --steps 3 --save text --save-every 1 --save-async >out 2>err
status=$?
[ $status = 0 ] && grep -q '^saved in the background: 2 copies of 0\.[0-9] MB, each in [0-9.]* ms ([0-9.]* GB/s); [0-9.]* ms of waiting for writes$' out &&
    grep -q ' --save text --save-every 1 --save-async ' err
point 'people are told how long that took'
refuses '--save-async: is read only with --save and with --save-every' $small --save-async
refuses '--save-async: is read only with --save-every' $small --save other --save-async
refuses '--save-async=1: takes no value' $small --save-async=1

# Sharding the momentum changes no bits; another optimizer does not read it.
rm -rf whole saved
train 5 --mesh data=4,model=2 --optimizer sgd --momentum 0.9 --nesterov --save whole --zero 0
mv losses expected
train 5 --mesh data=4,model=2 --optimizer sgd --momentum 0.9 --nesterov --save saved --zero 1
[ $status = 0 ] && same losses expected && same "$(name 5)" "$(name 5 whole)"
point 'sgd: --zero 0 and 1 are the same bits'
train 10 --mesh data=4,model=2 --optimizer adamw --resume saved --save fresh
[ $status = 2 ] && grep -q 'looping_pipeline: .*: optimizer is sgd in the checkpoint, and adamw here' err &&
    [ "$(wc -l <err)" = 1 ] && [ ! -e fresh ]
point 'another optimizer is refused'

# The transformer, too.
# language STEPS DIRECTORY ARGUMENT...
language() {
    steps=$1 directory=$2
    shift 2
    "$drivers/transformer" train --mesh data=2,pipe=2 --model-dimension 16 --n-heads 2 --latent-dim 8 --rope-dim 4 \
        --sequence 8 --layers-per-block 1 --blocks 2 --optimizer sgd --momentum 0.9 --no-decay-biases --no-fsdp \
        --weight-decay 0.1 --steps "$steps" --save "$directory" "$@" >out 2>err </dev/null
    status=$?
}
rm -rf whole saved other
language 6 whole
language 3 saved
language 6 saved --resume saved
[ $status = 0 ] && [ "$(grep -vc "^transformer: saved in $(name 6); go on with: " err)" = 0 ] &&
    same "$(name 6)" "$(name 6 whole)"
point 'transformer goes on: --optimizer sgd'
language 6 other --zero 0
[ $status = 0 ] && same "$(name 6 other)" "$(name 6 whole)"
point 'transformer, sgd: --zero 0 and 1 are the same bits'

# Other meshes resume it, too.
rm -rf saved elsewhere
train 10 --mesh data=2,model=4 --rng global
mv losses expected
train 5 --mesh data=2,model=4 --rng global --save saved
for mesh in data=1,model=1 data=4,model=2 data=2,model=2; do
    train 10 --mesh $mesh --rng global --resume saved
    [ $status = 0 ] && [ "$(wc -l <losses)" = 5 ] && tail -n 5 expected | paste - losses | sed 's/[^0-9.]\{2,\}/ /g' |
        awk '{ d = $2 - $4 } $1 != $3 || d * d > 1e-8 * $2 * $2 { exit 1 }'
    point "another mesh goes on: $mesh"
done
"$driver" --engine mpi --show-placement >out 2>err </dev/null
if grep -q 'engine "mpi" is not in this build' err; then
    point 'processes are left out of this build'
elif command -v mpirun >/dev/null; then
    train 10 --mesh data=2,model=4 --resume saved --rng global --save elsewhere
    timeout 120 "$mpirun" 8 "$driver" --engine mpi $small --mesh data=2,model=4 --rng global --steps 10 \
        --resume saved --save processes >out 2>err </dev/null
    status=$?
    [ $status = 0 ] && [ ! -s err ] && same "$(name 10 processes)" "$(name 10 elsewhere)"
    point 'processes go on with what threads have saved'
    timeout 120 "$mpirun" 8 "$driver" --engine mpi $small --mesh data=2,model=4 --hidden 32 --resume saved >out 2>err </dev/null
    status=$?
    [ $status = 2 ] && [ ! -s out ] && grep -q 'looping_pipeline: .*: hidden is 16 in the checkpoint, and 32 here' err
    point 'processes refuse what does not fit'
    rm -rf processes threads
    train 7 --mesh data=2,model=2 --save threads --save-every 3
    timeout 120 "$mpirun" 4 "$driver" --engine mpi $small --mesh data=2,model=2 --steps 7 --save processes --save-every 3 --save-async >out 2>err </dev/null
    status=$?
    [ $status = 0 ] && [ ! -s err ] && same "$(name 6 processes)" "$(name 6 threads)" && same "$(name 7 processes)" "$(name 7 threads)"
    point 'processes save in the background'
else
    skip 'processes' 'mpirun is not installed'
fi
train 5 --mesh data=2,model=4 --resume saved
[ $status = 0 ] && [ ! -s err ] && [ ! -s losses ] && grep -q '"final_loss":null' out
point 'a run that has taken its steps has none left'

# ---- files ----

rm -rf saved
train 11 --mesh model=2 --save saved --save-every 4
[ $status = 0 ] && [ ! -s err ] && [ "$(ls saved | tr '\n' ' ')" = 'step-00000008.safetensors step-00000011.safetensors ' ]
point 'at intervals and at the end; the latest two stay'
echo torn >"$(name 12).17.tmp"
head -c 1000 "$(name 11)" >"$(name 11).cut" && mv "$(name 11).cut" "$(name 11)"
train 12 --mesh model=2 --resume saved
[ $status = 0 ] && [ "$(wc -l <err)" = 1 ] && grep -q "truncated; $(name 8) is taken in its place" err &&
    [ "$(wc -l <losses)" = 4 ]
point 'the latest that is whole is resumed'
rm "$(name 11)"
train 12 --mesh model=2 --resume "$(name 8)" --save saved
[ $status = 0 ] && [ ! -s err ] && [ "$(ls saved | tr '\n' ' ')" = 'step-00000008.safetensors step-00000012.safetensors ' ]
point 'what a crash has left is removed'

# ---- models and runs that do not match ----

base="$small --mesh model=2"
refuses 'hidden is 16 in the checkpoint, and 8 here' $base --resume saved --hidden 8
refuses 'layers is 4 in the checkpoint, and 6 here' $base --resume saved --layers 6
refuses 'expansion is 1 in the checkpoint, and 2 here' $base --resume saved --expansion 2
refuses 'batch is 32 in the checkpoint, and 64 here' $base --resume saved --batch 64
refuses 'seed is 42 in the checkpoint, and 7 here' $base --resume saved --seed 7
refuses 'nowhere: cannot be opened: No such file' $base --resume nowhere
mkdir empty
refuses 'empty: there is no checkpoint' $base --resume empty
echo text >file
refuses 'file: ' $base --resume file
refuses '--save-every: is read only with --save' $base --save-every 3
refuses '--save /proc/saved: cannot be made' $base --save /proc/saved
refuses '--save file: cannot be opened' $base --save file
refuses 'is there, and this run begins after 0 steps: resume it (--resume saved)' $base --save saved
refuses 'is there, and this run begins after 8 steps' $base --save saved --resume "$(name 8)"
"$driver" $base --steps 1 --gradients file >out 2>err
refuses 'file: not a checkpoint: its metadata have no shardloop.checkpoint' $base --resume file

# ---- signals ----

# begin ARGUMENT...: starts an endless run in the background; returns when it has trained a while.
begin() {
    : >log
    "$driver" $base --steps 1000000 "$@" >log 2>&1 </dev/null &
    pid=$!
    tries=0
    until [ "$(wc -l <log)" -gt 3 ] || [ $((tries += 1)) -gt 100 ]; do sleep 0.1; done
}

for signal in TERM INT; do
    rm -rf saved
    begin --save saved
    refuses 'another run saves there' $base --save saved
    kill -$signal $pid
    wait $pid
    status=$?
    ls saved >out
    count=$(sed 's/^step-0*\([0-9]*\).safetensors$/\1/' out)
    [ $status = 0 ] && [ "$(wc -l <out)" = 1 ] && [ "$count" -ge 4 ]
    point "SIG$signal: saved after the step"
    train $((count + 2)) --mesh model=2 --resume saved
    [ $status = 0 ] && [ "$(wc -l <losses)" = 2 ] && head -n 1 losses | grep -q "\"step\":$count,"
    point "SIG$signal: and it goes on"
done

rm -rf saved
begin --save saved --save-every 1 --save-async
kill -TERM $pid
wait $pid
status=$?
count=$(ls saved | sed -n 's/^step-0*\([0-9]*\).safetensors$/\1/p' | sort -n | tail -n 1)
[ $status = 0 ] && [ "$(ls saved | wc -l)" = 2 ] && [ "$count" -ge 4 ] && [ -s "$(name $((count - 1)))" ]
point 'SIGTERM waits for what is saved in the background'

# If a run is killed at any moment, it resumes at the last interval, and ends as a run without a kill.
for way in '' --save-async; do
    rm -rf saved once
    begin --save saved --save-every 1 $way
    for moment in 0.0 0.01 0.05 0.02 0.03; do
        sleep $moment
        kill -KILL $pid
        wait $pid 2>/dev/null
        [ "$(ls saved | grep -c 'safetensors$')" -ge 1 ] || break
        begin --save saved --save-every 1 --resume saved $way
    done 2>/dev/null
    kill -KILL $pid
    wait $pid 2>/dev/null
    count=$(ls saved | sed -n 's/^step-0*\([0-9]*\).safetensors$/\1/p' | sort -n | tail -n 1)
    train $((count + 1)) --mesh model=2 --resume saved --save saved
    killed=$status
    train $((count + 1)) --mesh model=2 --save once
    status=$killed
    [ $status = 0 ] && [ "$count" -gt 20 ] && same "$(name $((count + 1)))" "$(name $((count + 1)) once)"
    point "killed five times: the same run $way"
done

# ---- Fashion-MNIST ----

images=/usr/share/datasets/fashion-mnist
if [ -d $images ]; then
    goes_on_from_the_middle --mesh data=2,model=2 --data "fashion-mnist:$images" --batch 8192 --rng global
    refuses 'data is fashion-mnist in the checkpoint, and random here' $small --mesh data=2,model=2 --batch 8192 --resume saved --data random
else
    skip images "there is no $images"
fi

plan
