#!/bin/sh
# streams.sh DRIVERS - stdout that is closed, without a reader or without room, files that may not grow, and metrics
# of a run that goes on; prints TAP.
drivers=$1
mpirun=$(cd "$(dirname "$0")/.." && pwd)/mpirun
. "$(dirname "$0")/../rigs/points.sh"

train="$drivers/looping_pipeline --mesh data=1,model=2 --layers 2 --hidden 8 --batch 8 --microbatches 2"
model='--model-dimension 16 --n-heads 2 --latent-dim 8 --rope-dim 4 --sequence 8 --layers-per-block 1 --blocks 2'

# one_line PROGRAM TEXT
one_line() {
    [ "$(wc -l <err)" = 1 ] && grep -q "^$1: .*$2" err
}

only_objects() {
    [ -s "$1" ] && ! grep -qv '^{.*}$' "$1"
}

# ---- closed descriptors ----

: >out
for driver in convolution custom_module regression looping_step heads 'gpipe' 'sharding' 'plan' 'schedule' 'loss_equality --mesh data=1,model=1 --layers 2 --hidden 8 --steps 1' \
    'transformer --help' 'plan --help' 'report --help' 'diff --help' 'tokens --help' 'sharding --show-placement'; do
    "$drivers/"$driver >&- 2>err
    status=$?
    [ $status = 3 ] && one_line "${driver%% *}.*" 'stdout: Bad file descriptor'
    point "${driver%% -*}: stdout is closed"
done
for driver in looping_pipeline 'transformer train'; do
    run="$train"
    [ "$driver" = looping_pipeline ] || run="$drivers/transformer train --mesh data=1 $model --batch 2 --data text"
    seq 1000 >text
    for json in '' --json; do
        for closed in '>&-' '<&- >&-' '<&- >&- 2>&-'; do
            rm -rf saved metrics trace gradients
            : >err
            eval "$run \$json --steps 3 --metrics metrics --trace trace --gradients gradients --save saved 2>err $closed"
            status=$?
            [ $status = 3 ] && only_objects metrics && grep -q '"step":1,' metrics && grep -q '^{"displayTime' trace &&
                [ -s gradients ] && [ "$(ls saved | wc -l)" = 1 ] &&
                { [ "$closed" = '<&- >&- 2>&-' ] || one_line "$driver" 'stdout: Bad file descriptor'; }
            point "$driver $json: closed are $closed"
        done
    done
done
"$drivers/plan" --output expected && "$drivers/plan" --output got >&- 2>err
status=$?
[ $status = 0 ] && [ ! -s err ] && cmp -s got expected
point 'nothing is printed, and so stdout may be closed'
$train --steps 1 --metrics metrics <&- >out 2>err
status=$?
[ $status = 0 ] && [ ! -s err ] && only_objects metrics
point 'nothing is read, and so stdin may be closed'

# ---- no room ----

for driver in convolution custom_module regression looping_step heads 'custom_module --help' 'transformer --help'; do
    "$drivers/"$driver >/dev/full 2>err
    status=$?
    [ $status = 3 ] && one_line "${driver%% *}" 'stdout: No space left'
    point "$driver: a full disk"
done
for driver in convolution custom_module regression gpipe 'loss_equality --steps 1 --hidden 16 --batch 32'; do
    "$drivers/"$driver --trace /dev/full >out 2>err
    status=$?
    [ $status = 3 ] && one_line "${driver%% *}" '/dev/full: No space left'
    point "$driver: a full disk under the trace"
done
rm -rf saved
$train --steps 100 --save saved --json >/dev/full 2>err
status=$?
[ $status = 3 ] && one_line looping_pipeline 'stdout: No space left' && [ "$(ls saved)" = step-00000002.safetensors ]
point 'a full disk under stdout: the run was saved'
rm -rf saved
$train --steps 100 --save saved --metrics /dev/full >out 2>err
status=$?
[ $status = 3 ] && one_line looping_pipeline '/dev/full: No space left' && [ -z "$(ls saved)" ]
point 'a full disk under the metrics: the run does not begin'

# limited BLOCKS STDOUT COMMAND...: runs COMMAND; no file may become longer than BLOCKS blocks. stderr is a pipe, so the
# limit does not cut it off.
limited() {
    blocks=$1 stdout=$2
    shift 2
    {
        (ulimit -f "$blocks" && exec "$@") 2>&1 >"$stdout"
        echo $? >code
    } | cat >err
    read -r status <code
}
for option in metrics gradients trace; do
    rm -f file
    [ $option = trace ] || echo older >file
    limited $([ $option = metrics ] && echo 0 || echo 1) /dev/null $train --steps 20 --$option file
    [ $status = 3 ] && one_line looping_pipeline 'file.*File too large' &&
        { [ $option != gradients ] || grep -q older file; }
    point "a limit on files: $option"
done
rm -rf saved file
limited 200 /dev/null $train --steps 10000 --save saved --metrics file # a checkpoint has 171 blocks
[ $status = 3 ] && one_line looping_pipeline 'file: File too large' && [ "$(ls saved | wc -l)" = 1 ]
point 'a limit on files: the run is saved if its metrics are full'
rm -rf saved
$train --steps 1 --save saved >out 2>err
cp -r saved before
limited 1 /dev/null $train --steps 2 --resume saved --save saved
[ $status = 3 ] && one_line looping_pipeline 'File too large' && diff -r before saved >out
point 'a limit on files: the older checkpoint stays'
limited 0 /dev/null "$drivers/plan" --output file
[ $status = 3 ] && one_line plan 'file: File too large'
point 'a limit on files: plan --output'
for driver in plan schedule sharding gpipe convolution custom_module regression 'plan --help'; do
    limited 0 out "$drivers/"$driver
    [ $status = 3 ] && one_line "${driver%% *}" 'stdout: File too large'
    point "a limit on files: stdout of $driver"
done

# ---- a reader that is gone ----

for json in '' --json; do
    rm -rf saved
    { timeout -s KILL 60 $train $json --steps 1000000 --save saved --metrics metrics 2>err; echo $? >code; } | head -n 1 >out
    read -r status <code
    count=$(ls saved | sed -n 's/^step-0*\([0-9]*\).safetensors$/\1/p')
    [ "$status" = 3 ] && one_line looping_pipeline 'stdout: Broken pipe' && [ "$count" -ge 1 ] && [ "$count" -lt 100000 ] &&
        only_objects metrics && tail -n 1 metrics | grep -q '"interrupted":true'
    point "a lost reader $json: the run stops and is saved"
    $train --json --steps $((count + 2)) --resume saved >out 2>err
    status=$?
    [ $status = 0 ] && [ ! -s err ] && [ "$(grep -c '"step"' out)" = 2 ] && head -n 1 out | grep -q "\"step\":$count,"
    point "a lost reader $json: and goes on"
done
rm -rf saved metrics
: >metrics
mkfifo pipe
$train --json --steps 1000000 --save saved --metrics metrics >pipe 2>err &
pid=$!
(
    lines=0 tries=0
    until [ "$lines" -gt 0 ] && [ "$lines" = "$(wc -l <metrics)" ] || [ $((tries += 1)) -gt 100 ]; do
        lines=$(wc -l <metrics)
        sleep 0.3
    done
    kill -TERM $pid
    tries=0
    while kill -0 $pid 2>/dev/null && [ $((tries += 1)) -le 100 ]; do sleep 0.1; done
) <pipe &
wait $pid
status=$?
[ $status = 3 ] && one_line looping_pipeline 'stdout: nobody reads it' && [ "$(ls saved | wc -l)" = 1 ]
point 'SIGTERM while a full pipe waits for its reader'
wait
$train --engine mpi --mesh data=1,model=1 --dry-run >out 2>err || true
if grep -q 'is not in this build' err; then
    skip 'a lost reader of a process among others' 'engine mpi is not in this build'
elif command -v mpirun >/dev/null; then
    rm -rf saved
    timeout -s KILL 60 "$mpirun" 2 sh -c '"$@" | head -n 1' - $train --engine mpi --json --steps 1000000 --save saved \
        >out 2>err
    status=$?
    [ "$(ls saved | wc -l)" = 1 ] && [ "$(grep -c '^looping_pipeline: stdout: Broken pipe$' err)" = 1 ]
    point 'a lost reader of a process among others'
else
    skip 'a lost reader of a process among others' 'mpirun is not installed'
fi
# A coordinate whose output has no reader does not come back.
mkfifo full
exec 9<>full
timeout -s KILL 60 $train --json --steps 1000000 --timeout 1 >full 2>err
status=$?
exec 9>&-
: >out
[ $status = 3 ] && grep -q '^shardloop: coordinate 0 (data=0, model=0) is absent: no sign of it for 1 s, since ' err &&
    [ "$(tail -n 1 err)" = 'shardloop: the run has ended, and coordinate 0 (data=0, model=0) has not returned from the program: the process ends in 5 s' ]
point 'a coordinate that never comes back'
# A program that leaves no files ends as other tools do.
{ "$drivers/schedule" --stages 64 --microbatches 512 2>err; echo $? >code; } | head -n 1 >out
read -r status <code
[ "$status" = 141 ] && [ ! -s err ]
point 'schedule ends by SIGPIPE'

# ---- metrics of a run that goes on ----

rm -rf saved metrics
$train --steps 4 --save saved --metrics metrics >out 2>err && cp metrics first &&
    $train --steps 6 --resume saved --metrics metrics >out 2>err
status=$?
[ $status = 0 ] && [ ! -s err ] && head -n 4 first >lines && head -n 4 metrics | cmp -s - lines && [ "$(wc -l <metrics)" = 7 ] &&
    only_objects metrics && sed -n 5p metrics | grep -q '^{"step":4,'
point 'a run that goes on adds to its metrics'
printf '{"step":4,"lo' >>first
cp first metrics
$train --steps 5 --resume saved --metrics metrics >out 2>err
status=$?
[ $status = 0 ] && [ ! -s err ] && head -n 4 metrics | cmp -s - lines && sed -n 5p metrics | grep -q '^{"step":4,.*}$' &&
    [ "$(wc -l <metrics)" = 6 ]
point 'a line that was cut off goes'
$train --steps 2 --metrics metrics >out 2>err
status=$?
[ $status = 0 ] && [ "$(wc -l <metrics)" = 3 ] && head -n 1 metrics | grep -q '^{"step":0,'
point 'a new run begins a new file'
rm metrics
$train --steps 5 --resume saved --metrics metrics >out 2>err
status=$?
[ $status = 0 ] && [ "$(wc -l <metrics)" = 2 ]
point 'a run that goes on may begin a file'

# ---- files that become shorter ----

mkfifo reader
seq 5000 >shrinks
$drivers/transformer train --mesh data=1 $model --batch 2 --data shrinks --steps 100000 >reader 2>err &
pid=$!
exec 9<reader
read -r line <&9 # it has begun
: >shrinks
cat <&9 >/dev/null
wait $pid
status=$?
exec 9<&-
[ $status = 3 ] && one_line transformer 'a file that it reads has become shorter meanwhile'
point 'data that are cut off in the middle of a run'

plan
