#!/bin/sh
# resume.sh DRIVERS DATA - a checkpoint describes its run: commands that use it need no options of the model, and a
# resumed run has the results of an uninterrupted one; prints TAP.
drivers=$(cd "$1" && pwd)
data=$(cd "$2" && pwd)
mpirun=$(cd "$(dirname "$0")/../.." && pwd)/mpirun
[ ! -w /dev/shm ] || export TMPDIR="${TMPDIR:-/dev/shm}" # in memory, where syncing is short
. "$(dirname "$0")/../../rigs/points.sh"

driver=$drivers/transformer
model='--model-dimension 16 --n-heads 2 --latent-dim 8 --rope-dim 4 --sequence 8 --layers-per-block 1 --blocks 2'
how='--mesh data=2,pipe=1 --steps 12 --batch 4 --data text --validation 0.2 --lr 0.01 --warmup 3 --lr-schedule cosine
    --min-lr 0.001 --clip 1 --dropout 0.1 --microbatches 2 --seed 7'
seq 1 2000 >text

# name STEPS DIRECTORY
name() {
    printf '%s/step-%08d.safetensors' "$2" "$1"
}

# losses FILE: prints the losses of its steps.
losses() {
    sed -n 's/.*"step":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$1"
}

# stop STEPS: copies the checkpoint after STEPS of the run in whole to saved.
stop() {
    rm -rf saved
    mkdir saved
    cp "$(name "$1" whole)" saved
}

# said LINE: the only line on stderr matches LINE, a pattern of grep.
said() {
    [ "$(wc -l <err)" = 1 ] && grep -q "^transformer: $1\$" err
}

# ---- nothing but --resume ----

call train $model $how --save whole --save-every 6 --metrics whole.metrics --json
losses out >expected
[ $status = 0 ] && [ ! -s err ] && [ "$(wc -l <expected)" = 12 ] && tail -n 1 out | grep -q '"saved":"whole/step-00000012'
point 'a run that nobody interrupts'
stop 6
mkdir elsewhere
(cd elsewhere && call train --resume ../saved --save ../saved --json && cp out err .. && exit "$status")
status=$?
losses out >got
tail -n 6 expected | cmp -s - got && [ $status = 0 ] && [ ! -s err ] && cmp -s "$(name 12 saved)" "$(name 12 whole)"
point 'the same bits with nothing but --resume, from another directory'
stop 6
call train --resume saved --mesh data=1,tensor=2 --json
losses out | paste -d ' ' - got | awk '{ d = $2 - $4 } $1 != $3 || d * d > 1e-8 * $2 * $2 { exit 1 } END { if (NR != 6) exit 1 }' &&
    [ $status = 0 ] && [ ! -s err ]
point 'another mesh: the same run within rounding'
"$driver" train --engine mpi --mesh data=1 --dry-run >out 2>err </dev/null
if grep -q 'is not in this build' err; then
    point 'processes are left out of this build'
elif command -v mpirun >/dev/null; then
    timeout 120 "$mpirun" 2 "$driver" train --engine mpi --resume saved --save saved --json >out 2>err </dev/null
    status=$?
    [ $status = 0 ] && [ ! -s err ] && cmp -s "$(name 12 saved)" "$(name 12 whole)"
    point 'processes: the same bits with nothing but --resume'
    timeout 120 "$mpirun" 2 "$driver" train --engine mpi --resume saved --save saved --steps 13 >out 2>err </dev/null
    grep -q "go on with: mpirun -n 2 $driver train --engine mpi --resume saved --save saved --steps 26\$" err
    point 'processes: the command that goes on starts them'
else
    skip 'processes' 'mpirun is not installed'
fi
rm -rf saved
# ---- passes over the data ----

call train $model --data text --mesh data=1 --batch 4 --epochs 2 --save passes --json
[ $status = 0 ] && steps=$(grep -c '^{"step".*"loss"' out) && windows=$(( $(wc -c <text) * 9 / 10 / 8 )) &&
    [ $steps -le $(( (2 * windows + 3) / 4 )) ] && [ $steps -ge $(( (2 * windows - 2) / 4 )) ] && [ -e "$(name $steps passes)" ]
point '--epochs 2 takes each sample twice'
call train --resume passes --epochs 3 --json
[ $status = 0 ] && more=$(grep -c '^{"step".*"loss"' out) && [ $((2 * more)) -ge $((steps - 2)) ] && [ $((2 * more)) -le $((steps + 2)) ]
point 'and a run goes on for one more'
refused '--steps: is read only without --epochs' train $model --data text --mesh data=1 --epochs 2 --steps 3
rm -rf passes
call train $model $how --steps 0 --save saved
[ $status = 0 ] && said "saved in $(name 0 saved); go on with: $driver train --resume saved --save saved --steps 100" &&
    ! grep -q nan out
point '--steps 0 saves the initial values'
call train --resume saved --save saved --steps 12 --json
[ $status = 0 ] && said "--steps 12 overrides 0 of the run in $(name 0 saved)" && cmp -s "$(name 12 saved)" "$(name 12 whole)"
point 'and goes on from them'

stop 6
call train --resume saved --mesh data=4 --json
[ $status = 0 ] && [ ! -s err ]
point 'a mesh on which the microbatches do not fit has its own'
call train --resume saved --save saved --mesh data=2,pipe=1 --json
[ $status = 0 ] && [ ! -s err ] && cmp -s "$(name 12 saved)" "$(name 12 whole)"
point "the run's own mesh keeps them, and the bits"

driver=$drivers/looping_pipeline
small='--layers 4 --hidden 16 --batch 32 --microbatches 4'
for with in '--mesh data=2,model=2 --schedule 1f1b --optimizer sgd --momentum 0.9 --lr-schedule cosine --dropout 0.2' \
    '--schedule single --clip 0.5 --decay-biases' '--mesh data=1,model=2 --schedule plain --epochs 4 --batch 16 --precision bf16'; do
    rm -rf whole.l saved.l
    case $with in *--epochs*) steps= ;; *) steps='--steps 4' ;; esac
    call $small $with $steps --save whole.l --save-every 2 --json
    mkdir saved.l
    cp "$(name 2 whole.l)" saved.l
    call --resume saved.l --save saved.l --json
    [ $status = 0 ] && [ ! -s err ] && cmp -s "$(name 4 saved.l)" "$(name 4 whole.l)"
    point "the same bits: looping_pipeline $with"
done
call --resume saved.l --steps 6 --json
[ $status = 0 ] && [ ! -s err ] && [ "$(grep -c '"step"' out)" = 2 ]
point '--steps goes before --epochs, and a constant rate goes on without a word'
call --resume saved.l --epochs 6 --json
[ $status = 0 ] && [ ! -s err ] && [ "$(grep -c '"step"' out)" -gt 0 ]
point 'nor does it tell of more epochs'
driver=$drivers/transformer
for command in generate evaluate train; do
    refused 'model is classifier in the checkpoint, and transformer here' $command --params saved.l
done

# ---- messages ----

driver=$drivers/transformer
stop 6
call train --resume saved --lr 0.5 --clip 2 --batch 4 --json
[ $status = 0 ] && said "--lr 0.5 overrides 0.01, --clip 2 overrides 1 of the run in $(name 6 saved)"
point 'what is overridden is said in a line'
call train --resume saved --beta1 0.5 --steps 10 --json
[ $status = 0 ] && said "--steps 10 overrides 12, --beta1 0.5 overrides what it was of the run in $(name 6 saved)"
point 'also a number of steps that the learning rate depends on'
refused 'blocks is 2 in the checkpoint, and 4 here' train --resume saved --blocks 4
refused 'seed is 7 in the checkpoint, and 8 here' train --resume saved --seed 8
refused 'optimizer is adamw in the checkpoint, and sgd here' train --resume saved --optimizer sgd
refused 'model-dimension is 16 in the checkpoint, and 8 here' evaluate --params saved --model-dimension 8
refused 'n-heads is 2 in the checkpoint, and 4 here' generate --params saved --n-heads 4
refused 'blocks is 2 in the checkpoint, and 1 here' train --params saved --blocks 1
cp text kept
seq 5 2000 >text
call train --resume saved --json
[ $status = 0 ] && said "--data: the data have changed since $(name 6 saved) was saved: .* tokens, .* XXH3 .* there, and .* here"
point 'other data under the same name are said'
call evaluate --params saved --json
[ $status = 0 ] && said "--data: the data have changed since $(name 6 saved) was saved: .*"
point 'also where they are evaluated'
mv text gone
refused "$work/text: cannot be opened" train --resume saved
grep -q '(the data of the run in saved/step-[0-9]*.safetensors; --data names others)$' err
point 'and it says where the name is from'
call train --resume saved --data kept --json
[ $status = 0 ] && said "--data $work/kept overrides $work/text of the run in $(name 6 saved)"
point 'data that were moved are given'
mv kept text
call train --resume whole --save whole --metrics whole.metrics
[ $status = 0 ] && said "nothing to do: the run in $(name 12 whole) has taken all its 12 steps; --steps 24 goes on" &&
    ! grep -q nan out && [ "$(losses whole.metrics)" = "$(cat expected)" ] && tail -n 1 whole.metrics | grep -q final_loss
point 'a run that has taken its steps has nothing to do'
call train --resume whole --steps 5
[ $status = 0 ] && grep -q "nothing to do: $(name 12 whole) is after 12 steps already, and --steps is 5\$" err
point 'a run that has taken more steps than it is asked for says so'
stop 6
call train --resume saved
[ $status = 0 ] && grep -qx 'nothing of these 6 steps will be kept; --save DIR keeps them' out
point 'a resumed run that keeps nothing says so'

# ---- nothing but --params ----

# result: prints the last run's line without its times, and without its process, whose bytes vary.
result() { sed 's/,"sequences_per_second".*,"memory"/,"memory"/; s/,"processes".*//' out; }
call evaluate --params whole --json
result >short
call evaluate $model --data text --validation 0.2 --params whole --json
[ $status = 0 ] && [ ! -s err ] && result | cmp -s - short && grep -q loss short
point 'evaluate: the data of the run'
head -c 1000 text >other
call train $model --data text --mesh data=1 --steps 2 --batch 4 --evaluate-every 2 --eval-data other --save own --json
sed -n 's/.*"evaluation_loss":\([^,}]*\).*/\1/p' out >short
call evaluate --params own --json
sed -n 's/.*"evaluation_loss":\([^,}]*\).*/\1/p' out | paste -d ' ' - short |
    awk '{ d = $1 - $2 } d * d > 1e-10 * $2 * $2 { exit 1 } END { if (NF != 2) exit 1 }' &&
    [ $status = 0 ] && [ ! -s err ] && grep -q '"tokens":999' out
point 'evaluate: the --eval-data of the run'
echo more >>other
call evaluate --params own --json
[ $status = 0 ] && [ "$(wc -l <err)" = 1 ] && grep -q -- '--eval-data: the data have changed since' err
point 'evaluate: --eval-data that have changed'
call evaluate --params own --data text --json
[ $status = 0 ] && [ ! -s err ] && ! grep -q '"tokens":1004' out
point 'evaluate: data that are given take the place of --eval-data'
call train $model --heads 1 --data text --mesh data=1 --steps 0 --save one
call generate --params one --length 5 --prompt 1
[ $status = 0 ] && call evaluate --params one && [ $status = 0 ]
point 'evaluate and generate run on one coordinate'
"$drivers/looping_pipeline" --mesh data=1,model=1 --hidden 8 --layers 1 --batch 8 --steps 0 --save classifier >out 2>err
refused 'model is classifier in the checkpoint, and transformer here' evaluate --params classifier
call generate --params whole --length 20 --prompt 12 --json
grep -v per_second out >short
call generate $model --params whole --length 20 --prompt 12 --json
[ $status = 0 ] && [ ! -s err ] && grep -v per_second out | cmp -s - short && [ -s short ]
point 'generate'
call train --params whole --data text --steps 1 --json
[ $status = 0 ] && [ ! -s err ] && grep -q '"lr":0.001' out
point 'train: the model is given, the run is new'
call generate --params "$data/checkpoint_version_1.safetensors" --mesh data=1 --prompt-tokens 1 --json
[ $status = 0 ] && [ "$(wc -l <err)" = 1 ] && grep -q 'carries no checksums' err && grep -q '"tokens":\[1,' out
point 'an older checkpoint tells the sizes of its model'

# ---- metrics ----

stop 6
{ head -n 9 whole.metrics && printf '{"step":9,"lo'; } >metrics
call train --resume saved --save saved --metrics metrics
[ $status = 0 ] && losses metrics | cmp -s - expected && [ "$(grep -c final_loss metrics)" = 1 ] &&
    tail -n 1 metrics | grep -q final_loss
point 'after a crash: steps that are taken again have one line'
call train --resume saved --save saved --metrics metrics --steps 14
[ $status = 0 ] && [ "$(losses metrics | wc -l)" = 14 ] && [ "$(wc -l <metrics)" = 15 ]
point 'and the summary comes at the end'
stop 6
for text in 'Dear diary\nno end of line' 'a,b\n1,2\n' '{\n"step": 9,\n"cells": []\n}\n' '[1]\n'; do
    printf "$text" >metrics
    cp metrics before
    refused 'metrics: line 1 is none of a training' train --resume saved --metrics metrics
    cmp -s metrics before
    point 'and the file stays as it is'
done
{ head -n 3 whole.metrics && echo notes; } >metrics
refused 'metrics: line 4 is none of a training' train --resume saved --metrics metrics

# ---- an interrupted run ----

# Metrics are more than a pipe holds, so the run waits for their reader, and the signal comes in time.
rm -rf saved
mkfifo pipe
long="$model --mesh data=1 --steps 1000 --batch 2 --data text"
# interrupt SIGNAL ARGUMENT...: starts a run, and sends SIGNAL after the first line of metrics.
interrupt() {
    signal=$1
    shift
    "$driver" train $long --metrics pipe "$@" >out 2>err </dev/null &
    pid=$!
    {
        read -r line && kill -"$signal" $pid
        cat >/dev/null
    } <pipe
    wait $pid
    status=$?
    answer=$(head -n 1 err)
    sed -i 1d err
}
interrupt INT --save saved
[ $status = 0 ] && [ "$answer" = 'transformer: ends after this step and saves; again: ends now' ] && said 'interrupted after step [0-9]*, saved in saved/step-[0-9]*.safetensors; go on with: .*' &&
    grep -q '^only the end of these 1000 steps will be kept; --save-every N saves on the way, too$' out
point 'an interrupted run tells where it is'
sed 's/.*go on with: //' err >command
timeout 120 sh command >out 2>err </dev/null
status=$?
[ $status = 0 ] && grep -q '^transformer: saved in saved/step-00001000.safetensors; go on with: ' err
point 'and the command that goes on'
# Names of the program, with blanks, in the command.
ln -s "$drivers" 'with blanks'
for program in 'with blanks/transformer' 'with blanks/shardloop transformer'; do
    rm -rf 'a b'
    case $program in *shardloop*) set -- "${program% *}" transformer ;; *) set -- "$program" ;; esac
    "$@" train $model $how --steps 1 --save 'a b' >out 2>err </dev/null
    sed -n 's/.*go on with: //p' err >command # beside a remark: --warmup is longer than this run
    timeout 120 sh command >out 2>err </dev/null
    status=$?
    [ $status = 0 ] && [ -e 'a b/step-00000002.safetensors' ] && case $(cat command) in "'with blanks/"*) ;; *) false ;; esac
    point "the command that goes on, of $program"
done
call train $long --save once
cmp -s "$(name 1000 saved)" "$(name 1000 once)"
point 'which ends as if nothing had been'
interrupt TERM
[ $status = 0 ] && [ "$answer" = 'transformer: ends after this step; again: ends now' ] && said 'interrupted after step [0-9]*; nothing was saved: --save DIR saves' &&
    grep -q '^nothing of these 1000 steps will be kept; --save DIR keeps them$' out
point 'without --save it says that nothing is kept'

plan
