#!/bin/sh
# restart.sh DRIVERS [FAIL_IO] - --restart: a run that is killed at any moment, also while it saves, ends as the run that
# was not killed; signals of a user end it; prints TAP.
drivers=$(cd "$1" && pwd)
fail_io=${2:+$(cd "${2%/*}" && pwd)/${2##*/}}
mpirun=$(cd "$(dirname "$0")/.." && pwd)/mpirun
[ ! -w /dev/shm ] || export TMPDIR="${TMPDIR:-/dev/shm}" # in memory, where syncing is short
. "$(dirname "$0")/../rigs/points.sh"

driver=$drivers/looping_pipeline
small='--layers 2 --hidden 8 --batch 8 --microbatches 2 --json'
steps=60
slow='--mesh model=2 --schedule 1f1b --delay-ms 3' # seconds, on any machine: longer than this script may wait for a core
saves='--save saved --save-every 3'

# name STEPS [DIRECTORY]
name() {
    printf '%s/step-%08d.safetensors' "${2:-saved}" "$1"
}

# same DIRECTORY: the run in saved has the final bytes of the run in DIRECTORY.
same() {
    [ -s "$(name $steps)" ] && cmp -s "$(name $steps)" "$(name $steps "$1")"
}

# begin ARGUMENT...: starts a run in the background; $pid is its watcher's process.
begin() {
    rm -rf saved
    "$driver" $small $slow --steps $steps $saves "$@" >out 2>err </dev/null &
    pid=$!
}

# child: prints the process started by the watcher; nothing once it has ended.
child() {
    cat "/proc/$pid/task/$pid/children" 2>/dev/null
}

# new_child OLD: waits for a child other than OLD; $run is its process.
new_child() {
    tries=0
    until run=$(child) && [ -n "$run" ] && [ "$run" != "$1" ] || [ $((tries += 1)) -gt 1000 ]; do sleep 0.01; done
}

# saved_one: waits until there is a checkpoint.
saved_one() {
    tries=0
    until ls saved/*.safetensors >/dev/null 2>&1 || [ $((tries += 1)) -gt 1000 ]; do sleep 0.01; done
}

# ends: the watcher ends by itself, with $status.
ends() {
    (sleep 100 && kill -KILL $pid) >/dev/null 2>&1 &
    guard=$!
    wait $pid 2>/dev/null
    status=$?
    kill $guard 2>/dev/null
}

# restarts: the number of restarts that the watcher has reported.
restarts() {
    grep -c '^[a-z_]*: the run .*; restart [0-9]* of [0-9]* goes on from ' err
}

call $small $slow --steps $steps --save whole --save-every 3 --metrics whole.metrics
[ $status = 0 ] && [ ! -s err ]
point 'a run that nobody kills'
call $small $slow --steps $steps $saves --restart 3
[ $status = 0 ] && [ ! -s err ] && same whole
point 'nor this one: the watcher says nothing'

# ---- killed ----

# moments COUNT: prints COUNT random moments, in seconds after a start; the same ones each time.
moments() {
    awk -v count="$1" 'BEGIN { srand(21); for (i = 0; i < count; i++) print rand() / 5 }'
}

# killed_at MOMENT...: the run is killed at the next MOMENT after each of its starts, and finally ends.
killed_at() {
    run=
    for moment; do
        new_child "$run"
        sleep $moment
        kill -KILL $run
    done 2>/dev/null
    ends
}

begin --restart 20 --metrics metrics
killed_at 0 0.15 $(moments 4)
[ $status = 0 ] && [ "$(restarts)" -ge 4 ] && [ "$(wc -l <err)" = "$(restarts)" ] && same whole &&
    grep -q "^looping_pipeline: the run was killed by signal 9 (Killed); restart 1 of 20 goes on from " err
point "killed $(restarts) times: the same bytes"
losses() { sed -n 's/.*\("step":[0-9]*,"loss":[^,]*\),.*/\1/p' "$1"; }
losses whole.metrics >expected
losses metrics | cmp -s - expected
point 'and its metrics are those of one run'
begin --restart 20 --save-async
killed_at $(moments 3)
[ $status = 0 ] && [ "$(restarts)" -ge 2 ] && same whole
point "killed $(restarts) times, saving in the background: the same bytes"
if [ -n "$SL_TEST_LONG" ]; then
    usual=$steps steps=1200
    call $small $slow --steps $steps --save long --save-every 3
    for way in '' --save-async; do
        begin --restart 40 $way
        killed_at $(moments 20)
        [ $status = 0 ] && [ "$(restarts)" = 20 ] && same long
        point "killed at 20 moments $way"
    done
    steps=$usual
fi

begin --restart 20
saved_one
new_child ''
kill -KILL $run
new_child "$run" && kill -KILL $run # before it has done anything
new_child "$run"
sleep 0.1
kill -ABRT $run
ends
[ $status = 0 ] && [ "$(restarts)" = 3 ] && same whole && grep -q 'the run was killed by signal 6 (' err &&
    [ "$(grep -c 'goes on from saved/step-000000' err)" = 3 ]
point 'twice in a row, and by another signal'

begin --restart 2
for i in 1 2 3; do
    new_child "$run"
    kill -KILL $run
done
ends
[ $status = 137 ] && [ "$(restarts)" = 2 ] && [ "$(grep -c 'goes on from the beginning$' err)" = 2 ] &&
    grep -q 'the run was killed by signal 9 (Killed); it was started again as often as --restart 2 allows' err
point 'no more often than it may be, with the status of the last run'

# While it saves: every run dies in its second checkpoint, before it is there.
if [ -n "$fail_io" ]; then
    # killed_before CALL ARGUMENT...: kills a run before one of the CALLs that save its checkpoints.
    killed_before() {
        call=$1
        shift
        rm -rf saved
        LD_PRELOAD=$fail_io IO_CALL=$call IO_COUNT=count "$driver" $small --mesh model=2 --schedule 1f1b --steps 2 --save saved \
            --save-every 1 "$@" >out 2>err
        rm -rf saved
        LD_PRELOAD=$fail_io IO_CALL=$call IO_NTH=$(($(cat count) / 2 + 1)) IO_ERROR=kill "$driver" $small --mesh model=2 --schedule 1f1b \
            --steps $steps --save saved --save-every 6 --restart 20 "$@" >out 2>err
        status=$?
        [ $status = 0 ] && [ "$(restarts)" -ge 4 ] && same whole && [ "$(ls saved | grep -vc 'safetensors$')" = 0 ]
        point "killed before each $call of a checkpoint $*: $(restarts) times"
    }
    # fails_in CALL: the same, where a coordinate fails in its thread: the call ends with an error of the disk.
    fails_in() {
        rm -rf saved
        LD_PRELOAD=$fail_io IO_CALL=$1 IO_NTH=$(($(cat count) / 2 + 1)) IO_ERROR=EIO "$driver" $small --mesh model=2 --schedule 1f1b \
            --steps $steps --save saved --save-every 6 --restart 20 >out 2>err
        status=$?
        [ $status = 0 ] && [ "$(restarts)" = 1 ] && grep -q 'the run ended with status 3; restart 1 of 20 goes on from .*, in the same process$' err &&
            same whole
        point "a coordinate fails in $1: it starts again in its process, to the same bytes"
        rm -rf saved
        LD_PRELOAD=$fail_io IO_CALL=$1 IO_NTH=$(($(cat count) / 2 + 1)) IO_AFTER=1 IO_ERROR=EIO "$driver" $small --mesh model=2 --schedule 1f1b \
            --steps $steps --save saved --save-every 6 --restart 40 >out 2>err
        status=$?
        [ $status = 0 ] && [ "$(grep -c 'in the same process$' err)" -ge 4 ] && [ "$(grep -c 'goes on from saved/step-[0-9]*.safetensors$' err)" -ge 4 ] && same whole
        point "it fails there again and again: another process takes over"
    }
    for call in fallocate fsync rename; do killed_before $call; done # the watcher makes no such calls
    fails_in $call
    for call in fsync rename; do killed_before $call --save-async; done
else
    skip 'while it saves' 'calls on files are made to fail on host alone'
fi

# ---- ended ----

usual=$steps steps=1000000 # too many to end before the signal
for signal in TERM INT; do
    begin --restart 3
    saved_one
    kill -$signal $pid
    ends
    last=$(ls saved | tail -n 1 | sed 's/[^0-9]*0*\([0-9]*\).*/\1/')
    [ $status = 0 ] && [ ! -s err ] && [ "$last" -lt $steps ] && tail -n 1 out | grep -q '"interrupted":true'
    point "SIG$signal reaches the run, which saves and is not started again"
done
begin --restart 3
saved_one
run=$(child)
kill -KILL $pid
ends
tries=0
while lives $run && [ $((tries += 1)) -lt 500 ]; do sleep 0.01; done
status=$tries
! lives $run && tail -n 1 out | grep -q '"interrupted":true'
point 'a run whose watcher is killed saves and ends'
steps=$usual

# ---- options that do not fit ----

refuses '--restart 3: needs checkpoints to go on from: --save DIR and --save-every N' $small --restart 3 --save other
refuses '--restart 3: needs checkpoints to go on from' $small --restart 3
refuses '--restart 3: not with --plan' $small --restart 3 --save other --save-every 3 --plan search
refuses '--launcher "  ": names no program' $small --restart 3 --save other --save-every 3 --launcher '  '
refuses '--restart: nowhere/mpirun cannot be started: No such file' $small --restart 3 --save other --save-every 3 \
    --launcher 'nowhere/mpirun -n 2'
refuses 'hidden is 8 in the checkpoint, and 16 here' $small --restart 3 --save other --save-every 3 --hidden 16 --resume whole
PMI_SIZE=2 PMI_RANK=0 call $small --engine mpi --restart 3 --save other --save-every 3
[ $status = 2 ] && [ "$(grep -c -- '--restart 3: mpirun would be started again by each' err)" = 1 ] || grep -q 'not in this build' err
point 'refused: each process of a launcher'
[ ! -e other ]
point 'and nothing was made'

# ---- the transformer ----

driver=$drivers/transformer
tiny='--mesh data=2 --model-dimension 16 --n-heads 2 --latent-dim 8 --rope-dim 4 --sequence 8 --layers-per-block 1 --blocks 1 --json'
rm -rf first whole saved
call train $tiny --steps 2 --save first --seed 3
steps=40
call train --params first $tiny --steps $steps --save whole --save-every 5 --delay-ms 1
"$driver" train --params first $tiny --steps $steps $saves --delay-ms 8 --restart 5 >out 2>err </dev/null &
pid=$!
saved_one
new_child ''
kill -KILL $run
ends
[ $status = 0 ] && [ "$(restarts)" = 1 ] && [ "$(wc -l <err)" = 1 ] && same whole
point 'a run that began with the values of another one'
echo "$tiny --steps $steps $saves --delay-ms 8 --restart 5 --para first" >options
rm -rf saved
"$driver" train @options >out 2>err </dev/null &
pid=$!
saved_one
new_child ''
kill -KILL $run
ends
[ $status = 0 ] && [ "$(restarts)" = 1 ] && [ "$(wc -l <err)" = 1 ] && same whole
point 'options in a file, and cut short'

# ---- processes ----

driver=$drivers/looping_pipeline
# A launcher that dies, and leaves a process behind: it ends before the next run begins.
cat >leaves <<'END'
#!/bin/sh
[ ! -e process ] || ! kill -0 "$(cat process)" 2>/dev/null || echo left >>left
echo start >>starts
"$@" >/dev/null 2>&1
sleep 1 >/dev/null 2>&1 &
echo $! >process
exit 3
END
chmod +x leaves
call $small --steps 4 --save saved_before --save-every 1 --restart 2 --launcher ./leaves
[ $status = 3 ] && [ "$(wc -l <starts)" = 3 ] && [ ! -e left ]
point 'what a dead launcher has left ends before the next run begins, each time'

# ---- machines that do not come back ----

# A launcher that never starts a run on the full mesh, and tells how many processes each one was to have.
cat >shrinks <<'END'
#!/bin/sh
echo "$1" >>asked
[ "$1" -le "$(cat room)" ] || kill -KILL $$
shift
exec "$@"
END
chmod +x shrinks
# fewer ROOM BATCH ARGUMENT...: a run that begins with four replicas, on a launcher with room for ROOM.
fewer() {
    echo "$1" >room
    batch=$2
    shift 2
    rm -rf saved asked
    timeout 60 "$driver" --layers 2 --hidden 8 --batch "$batch" --microbatches 1 --json --mesh data=4,model=1 --schedule 1f1b --steps 9 \
        --save saved --save-every 3 --restart 6 --launcher './shrinks %n' "$@" >out 2>err </dev/null
    status=$?
}
fewer 2 8 --restart-mesh fewer
[ $status = 0 ] && [ "$(tr '\n' ' ' <asked)" = '4 4 2 ' ] && [ -s "$(name 9)" ] && [ "$(restarts)" = 2 ] && [ "$(wc -l <err)" = 2 ] &&
    grep -q 'restart 2 of 6 goes on from the beginning on data=2,model=1: two runs in a row have saved nothing$' err
point 'a launcher that never starts on the full mesh: half of the replicas'
fewer 1 8 --restart-mesh fewer
[ $status = 0 ] && [ "$(tr '\n' ' ' <asked)" = '4 4 2 2 1 ' ] && [ -s "$(name 9)" ]
point 'and a quarter'
fewer 0 8 --restart-mesh fewer
[ $status = 137 ] && [ "$(tr '\n' ' ' <asked)" = '4 4 2 2 1 1 1 ' ] && [ ! -e saved ]
point 'no fewer than one, and no more often than allowed'
fewer 2 8
[ $status = 137 ] && [ "$(sort -u asked)" = 4 ] && ! grep -q ' on data=' err
point 'the same mesh, unless fewer are asked for'
# Four replicas have trained, and two go on from their checkpoint, once.
call --layers 2 --hidden 8 --batch 8 --microbatches 1 --json --mesh data=4,model=1 --schedule 1f1b --steps 6 --save four --save-every 3
fewer 2 8 --restart-mesh fewer --resume four
[ $status = 0 ] && [ "$(tr '\n' ' ' <asked)" = '4 4 2 ' ] && grep -q 'goes on from four on data=2,model=1' err &&
    [ "$(grep -c '"step":' out)" = 3 ]
point 'from a checkpoint of the full mesh'
call --layers 2 --hidden 8 --batch 8 --microbatches 1 --json --mesh data=4,model=1 --schedule 1f1b --steps 9 --save four --resume four
sed -n 's/.*"step":[0-9]*,"loss":\([^,]*\),.*/\1/p' out >expected
fewer 2 8 --restart-mesh fewer --resume "$(name 6 four)"
sed -n 's/.*"step":[0-9]*,"loss":\([^,]*\),.*/\1/p' out >got
near 1e-5 expected got
point 'with the losses of the full mesh, within rounding'

"$driver" --engine mpi --show-placement >out 2>err </dev/null
if grep -q 'engine "mpi" is not in this build' err || ! command -v mpirun >/dev/null; then
    skip 'processes' 'there is no engine mpi, or no mpirun'
    plan
    exit
fi

# processes PARENT: lists the processes started by the launcher, which is a child of the watcher PARENT.
processes() {
    for one in $(cat "/proc/$1/task/$1/children"); do
        tr '\0' '\n' <"/proc/$one/cmdline" | head -n 1 | grep -q 'looping_pipeline$' && echo "$one"
        processes "$one"
    done 2>/dev/null
}
steps=4000
rm -rf whole saved
timeout 120 "$mpirun" 2 "$driver" $small --engine mpi --mesh model=2 --schedule 1f1b --steps $steps --save whole --save-every 100 >out 2>err </dev/null
"$driver" $small --engine mpi --mesh model=2 --schedule 1f1b --steps $steps --save saved --save-every 100 \
    --restart 9 --launcher "$mpirun 2" >out 2>err </dev/null &
pid=$!
saved_one
kill -KILL $(processes $pid | tail -n 1)
tries=0
until [ "$(restarts)" = 1 ] || [ $((tries += 1)) -gt 2000 ]; do sleep 0.01; done
new_child ''
tries=0
until processes $pid | grep -q . || [ $((tries += 1)) -gt 1000 ]; do sleep 0.01; done
sleep 0.3
kill -KILL $run # the launcher
ends
[ $status = 0 ] && [ "$(restarts)" = 2 ] && same whole
point "a process is killed, then the launcher: $(restarts) restarts"

# No --launcher: mpirun -n and the mesh's size, by whatever mpirun is found first.
mkdir found
cat >found/mpirun <<END
#!/bin/sh
echo "\$*" >>asked
[ "\$1" = -n ] || exit 9
shift
PATH=$PATH exec "$mpirun" "\$@"
END
chmod +x found/mpirun
rm -rf saved asked
PATH=$PWD/found:$PATH timeout 120 "$driver" $small --engine mpi --mesh model=2 --schedule 1f1b --steps $steps --save saved \
    --save-every 100 --restart 2 >out 2>err </dev/null
status=$?
[ $status = 0 ] && [ "$(wc -l <asked)" = 1 ] && grep -q '^-n 2 [^ ]*looping_pipeline ' asked && [ "$(restarts)" = 0 ] && same whole
point "without --launcher it is mpirun -n 2: $(cut -c 1-4 asked)"

# One of the processes, at random moments after they have come.
rm -rf saved
"$driver" $small --engine mpi --mesh model=2 --schedule 1f1b --steps $steps --save saved --save-every 100 --save-async \
    --restart 40 --launcher "$mpirun 2" >out 2>err </dev/null &
pid=$!
count=0
kills=2 least=1 # a fast run may end before the second one
[ -z "$SL_TEST_LONG" ] || kills=20 least=10
for moment in $(moments $kills); do
    tries=0
    until [ "$(restarts)" -ge $count ] && processes $pid | grep -q . || ! kill -0 $pid || [ $((tries += 1)) -gt 2000 ]; do sleep 0.01; done
    sleep $moment
    kill -KILL $(processes $pid | tail -n $((1 + count % 2)) | head -n 1) && count=$((count + 1))
done 2>/dev/null
ends
[ $status = 0 ] && [ $count -ge $least ] && [ "$(restarts)" = $count ] && same whole
point "a process is killed $count times, saving in the background"

plan
