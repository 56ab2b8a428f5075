#!/bin/sh
# protect.sh DRIVERS - --protect: a run that dies continues from its last step, which is in memory; resize changes its
# mesh; clean removes steps of dead runs; prints TAP.
drivers=$(cd "$1" && pwd)
page=$(cd "$(dirname "$0")/../../.." && pwd)/docs/reliability/memory.md
[ ! -w /dev/shm ] || export TMPDIR="${TMPDIR:-/dev/shm}"
. "$(dirname "$0")/../../rigs/points.sh"
if [ ! -w /dev/shm ]; then
    echo '1..0 # SKIP there is no /dev/shm'
    exit
fi

driver=$drivers/looping_pipeline
small='--layers 4 --hidden 8 --batch 8 --microbatches 2 --mesh data=1,model=2 --schedule 1f1b --delay-ms 3'
steps=120

name() {
    printf '%s/step-%08d.safetensors' "${2:-saved}" "$1"
}

# folder DIRECTORY: prints the folder of the steps in memory of the run in DIRECTORY; nothing if there is none.
folder() {
    for one in /dev/shm/shardloop-*; do
        [ "$(cat "$one/save" 2>/dev/null)" != "$(realpath "$1")" ] || echo "$one"
    done
}

child() {
    cat "/proc/$pid/task/$pid/children" 2>/dev/null
}

# steps_are_there: whether parts of two steps are sealed; their first bytes are not zeros.
steps_are_there() {
    for number in 0 1; do
        for part in "$(folder saved)"/*/$number.part-*; do
            [ "$(od -An -tu8 -N8 "$part" 2>/dev/null | tr -d ' 0')" ] || return 1
        done
    done
}

# begin ARGUMENT...: starts a watched run in the background, which saves only at its end; returns when it has steps in
# memory.
begin() {
    "$driver" $small --json --steps $steps --save saved --save-every 1000 --restart 9 --protect 1 "$@" >out 2>err </dev/null &
    pid=$!
    tries=0
    until steps_are_there || ! lives $pid || [ $((tries += 1)) -gt 2000 ]; do sleep 0.01; done
    sleep 0.1
}

ends() {
    (sleep 100 && kill -KILL $pid) >/dev/null 2>&1 &
    guard=$!
    wait $pid 2>/dev/null
    status=$?
    kill $guard 2>/dev/null
}

call $small --steps $steps --save whole --save-every 1000
[ $status = 0 ] && [ -z "$(folder whole)" ]
point 'a run without --protect keeps no steps in memory'

begin --metrics metrics
kill -KILL "$(child)"
ends
[ $status = 0 ] && cmp -s "$(name $steps)" "$(name $steps whole)" &&
    grep -q '^looping_pipeline: the run was killed by signal 9 (Killed); restart 1 of 9 goes on from memory, after [1-9][0-9]* steps$' err
point 'killed before any checkpoint: it goes on from memory, to the same bytes'
[ "$(sed -n 's/.*"step":\([0-9]*\),.*/\1/p' metrics | tr '\n' ' ')" = "$(seq 0 $((steps - 1)) | tr '\n' ' ')" ]
point 'and its metrics have each step once'
tail -n 1 out | grep -q '^{"restarts":{"count":1,"seconds":[0-9.]*},"resizes":{"count":0,.*"steps_again":0,.*"goodput":0\.[0-9]*}$'
point 'the losses are counted'
tail -n 1 out | grep -q '"moved_bytes":[1-9]' && [ "$(tail -n 1 out)" = "$(tail -n 1 metrics)" ] && "$drivers/report" --json metrics >told 2>err &&
    grep -q '"goodput":0\.[0-9]*,"restarts":1,"restart_seconds":[0-9.]*,"resizes":0,.*"moved_bytes":[1-9]' told
point 'also in the metrics, of which the report tells'
"$drivers/report" metrics --terminal loss >told 2>err && grep -q '^s lost by restarts  *[0-9.]*$' told && "$drivers/report" metrics --output page 2>err &&
    grep -q 's lost by restarts' page
point 'and shows them'
grep -q '"protected":{"count":[1-9][0-9]*,"bytes":[1-9]' out
point 'and the time of the copies'
cp metrics more
call --resume saved --save saved --steps $((steps + 1)) --metrics more
[ $status = 0 ] && ! grep -q goodput more && [ "$(grep -c '"step"' more)" = $((steps + 1)) ]
point 'until the run goes on'
[ -z "$(folder saved)" ] && [ ! -e "$(folder saved).control" ]
point 'nothing is left in memory'

# The second run sets a limit to its watcher: the metrics may not grow any more.
cat >limits <<'END'
#!/bin/sh
[ -e limited ] || { : >limited && kill -KILL $$; }
"$@"
status=$?
prlimit --pid $PPID --fsize="$(stat -c %s metrics)"
exit $status
END
chmod +x limits
rm -rf saved
if command -v prlimit >/dev/null; then
    call $small --steps 9 --save saved --save-every 1000 --restart 1 --protect 1 --metrics metrics --launcher ./limits
    [ $status = 3 ] && grep -q '^looping_pipeline: metrics: File too large$' err && [ "$(tail -c 2 metrics)" = '}' ] && ! grep -q goodput metrics
    point 'if there is no room for the losses in the metrics, the status is 3'
else
    skip 'no room for the losses' 'prlimit is not installed'
fi

# If the steps in memory are damaged, those since the checkpoint are computed again. The launcher takes a second.
cat >late <<'END'
#!/bin/sh
[ ! -e saved/step-00000040.safetensors ] || sleep 1
exec "$@"
END
chmod +x late
rm -rf saved
begin --save-every 40 --launcher ./late
tries=0
until [ -e "$(name 40)" ] || ! lives $pid || [ $((tries += 1)) -gt 2000 ]; do sleep 0.01; done
sleep 0.1
run=$(child)
kill -STOP $run
for part in "$(folder saved)"/*/*.part-1-*; do printf '\377' | dd of="$part" bs=1 seek=$(($(stat -c %s "$part") - 9)) conv=notrunc 2>/dev/null; done
kill -KILL $run
ends
[ $status = 0 ] && grep -q 'goes on from saved/step-' err && cmp -s "$(name $steps)" "$(name $steps whole)" &&
    tail -n 1 out | grep -q '"restarts":{"count":1,"seconds":[1-9].*"steps_again":[1-9][0-9]*,"again_seconds":[0-9.]*[1-9]'
point 'damaged steps in memory are computed again, and counted'

# Watcher and run are killed at once: the next watcher continues from their last step in memory.
rm -rf saved
begin
run=$(child)
kill -STOP $pid # it starts no other run
kill -KILL $run
tries=0
until ! lives $run || [ $((tries += 1)) -gt 500 ]; do sleep 0.01; done
kill -KILL $pid
wait $pid 2>/dev/null
left=$(folder saved)
[ -n "$left" ]
point 'a dead watcher and its run leave steps in memory'
# All threads of the killed run must have ended before its lock is free.
until "$drivers/shardloop" clean --dry-run >out 2>err && ! grep -q "^$left: .*in use$" out || [ $((tries += 1)) -gt 1000 ]; do sleep 0.01; done
status=$?
grep -q "^$left: [0-9.]* MB of $(realpath saved): would be removed$" out && [ -d "$left" ]
point 'clean --dry-run names them'
"$drivers/shardloop-clean" --dry-run >/dev/full 2>err
status=$?
[ $status = 3 ] && grep -q '^shardloop-clean: stdout: No space' err
point 'and a full disk under them is a failure'
cp -r "$left" kept
call $small --steps 1 --save elsewhere
watched="$small --json --steps $steps --save saved --save-every 1000 --restart 9 --protect 1"
call $watched --microbatches 3
[ $status = 2 ] && [ -f "$left/command" ]
point 'another command line that is refused leaves them'
call $small --steps 9 --save saved --protect 1 --metrics nowhere/metrics
refused=$status
call $small --steps 9 --save saved --protect 1 --tensorboard nowhere/events/here
[ $refused = 2 ] && [ $status = 2 ] && [ -f "$left/command" ]
point 'or one whose records cannot be made'
call $watched --metrics /dev/full
[ $status = 3 ] && [ "$(wc -l <err)" = 1 ] && grep -q '^looping_pipeline: /dev/full: No space left' err && [ -f "$left/command" ] &&
    [ "$(find "$left" -name '*.part-*' | wc -l)" = 4 ]
point 'or whose metrics have no room'
mkdir -p blocked/coordinate-01.journal
for option in '--metrics blocked' '--tensorboard err' '--trace blocked' '--journal blocked'; do
    call $small --steps 9 --save saved --protect 1 $option
    [ $status != 0 ] && [ -f "$left/command" ] && [ "$(find "$left" -name '*.part-*' | wc -l)" = 4 ]
    point "or opened: $option"
done
call $watched
[ $status = 0 ] && grep -q '^looping_pipeline: goes on from memory, after [1-9][0-9]* steps: an earlier run has left them$' err &&
    cmp -s "$(name $steps)" "$(name $steps whole)" && [ ! -e "$left" ]
point 'the same command line takes them over, before there is a checkpoint'
# begins_anew DRIVER ARGUMENT...: although kept is in memory, this watcher does not continue from it.
begins_anew() {
    rm -f saved/*
    cp -r kept "$left"
    timeout 120 "$@" >out 2>err </dev/null
    status=$?
    [ $status = 0 ] && [ -s "$(name $steps)" ] && [ ! -e "$left" ] && ! grep -q 'goes on from memory' err
}
begins_anew "$driver" $watched --lr 0.5
point 'another command line begins anew'
cat >second <<'END'
#!/bin/sh
[ -e starts ] || { : >starts && kill -KILL $$; }
exec "$@"
END
chmod +x second
begins_anew "$driver" $watched --lr 0.5 --launcher ./second && [ -e starts ] && grep -q 'restart 1 of 9 goes on from the beginning$' err
point 'also if its first run dies before it begins'
cp "$driver" copy
begins_anew ./copy $watched
point 'another program begins anew'
mkdir there
ln -s ../saved there/saved
rm saved/*
cp -r kept "$left"
(cd there && exec timeout 120 "$driver" $watched) >out 2>err </dev/null
status=$?
[ $status = 0 ] && [ -s "$(name $steps)" ] && [ ! -e "$left" ] && ! grep -q 'goes on from memory' err
point 'the same command line in another directory begins anew'
rm saved/*
cp "$(name 1 elsewhere)" saved/
cp -r kept "$left"
call $small --steps $steps --resume saved --save saved --save-every 1000 --restart 1 --protect 1
[ $status = 0 ] && grep -q '^looping_pipeline: goes on from memory, after [1-9][0-9]* steps: an earlier run has left them$' err &&
    cmp -s "$(name $steps)" "$(name $steps whole)"
point 'another watcher takes them over, if there is a checkpoint'

# If a byte of each step in memory is changed, the run continues from its checkpoint.
rm "$(name $steps)"
cp -r kept "$left"
for part in "$left"/*/*.part-1-*; do printf '\377' | dd of="$part" bs=1 seek=$(($(stat -c %s "$part") - 9)) conv=notrunc 2>/dev/null; done
call $small --steps $steps --resume saved --save saved --save-every 1000 --restart 1 --protect 1
[ $status = 0 ] && ! grep -q 'goes on from memory' err && cmp -s "$(name $steps)" "$(name $steps whole)"
point 'damaged steps in memory are not used'

cp -r kept "$left"
"$drivers/shardloop" clean >out 2>err
status=$?
[ $status = 0 ] && grep -q "^$left: .*: removed$" out && [ ! -e "$left" ]
point 'clean removes them'

# Segments of Open MPI: one that no process uses, a new one, and one that a process has mapped.
segment=/dev/shm/vader_segment.test.$(id -u).$$
for number in 0 1 2; do head -c 5000 /dev/zero >$segment.$number; done
python3 - $segment.2 <<'END' &
import mmap, sys, time
with open(sys.argv[1], "r+b") as file:
    held = mmap.mmap(file.fileno(), 0)
open("mapped", "w")
time.sleep(100)
END
holder=$!
tries=0
until [ -e mapped ] || [ $((tries += 1)) -gt 500 ]; do sleep 0.02; done
touch -d '1 hour ago' $segment.0 $segment.2
"$drivers/shardloop" clean --dry-run >out 2>err
grep -q "^$segment.0: 0.0 MB of Open MPI: would be removed$" out && [ -e $segment.0 ] && "$drivers/shardloop" clean >out 2>err
status=$?
kill $holder
[ $status = 0 ] && grep -q "^$segment.0: 0.0 MB of Open MPI: removed$" out && ! grep -q "$segment.[12]" out &&
    [ ! -e $segment.0 ] && [ -e $segment.1 ] && [ -e $segment.2 ]
point 'clean removes segments of Open MPI that no process uses'
rm -f $segment.*

mkdir -m 700 "$left"
printf 'first\nsecond' >"$left/save"
"$drivers/shardloop-clean" --dry-run >out 2>err
status=$?
grep -q "^$left: 0.0 MB of first.second: would be removed$" out
point 'clean prints a line, whatever the name'
rm -r "$left"

# A link, another user's folder or one open to others has the name: it is refused, and nothing below it is touched.
plant() {
    mkdir -p kept/below
    echo 1 >kept/below/file
    rm -rf saved
    refuses "--protect: $left is no folder of this user alone" $small --steps $steps --save saved --save-every 1000 --restart 1 --protect 1
    "$drivers/shardloop" clean >out 2>err
    status=$?
    [ $status = 0 ] && grep -q "^$left: is no folder of this user alone: stays$" out && [ -e "$left" ] && [ -e kept/below/file ] &&
        [ -e kept/save ]
    point "clean leaves $1"
}
ln -s "$work/kept" "$left"
plant 'a link'
rm "$left"
mkdir -m 755 "$left"
plant "a folder that is open to others"
chmod 700 "$left"
if chown 12345 "$left" 2>/dev/null; then
    plant "another user's folder"
else
    skip "another user's folder" 'it takes root to make one'
fi
rmdir "$left"

# If values are not finite, the restart begins at the checkpoint, never in memory.
rm -rf saved
rm -rf saved
call $small --steps 40 --save saved --save-every 1000 --restart 1 --protect 1 --optimizer sgd --lr 1e6
[ $status = 3 ] && ! grep -q 'goes on from memory' err && grep -q 'not finite' err && [ -z "$(folder saved)" ]
point 'after values that are not finite it does not go on from memory'

# ---- resize ----

rm -rf saved
driver=$drivers/transformer
small='--model-dimension 16 --n-heads 2 --latent-dim 8 --rope-dim 4 --sequence 8 --layers-per-block 1 --blocks 3 --batch 8 --microbatches 2
    --exact data=4'
steps=150
call train $small --mesh data=1 --steps $steps --save exact
"$driver" train $small --mesh pipe=2 --steps $steps --save saved --save-every 1000 --restart 1 --protect 1 --delay-ms 1 >out 2>err </dev/null &
pid=$!
for mesh in data=4,pipe=2 pipe=3 data=2,pipe=3; do
    tries=0
    until "$drivers/resize" saved --mesh $mesh >told 2>why || ! lives $pid || [ $((tries += 1)) -gt 100 ]; do sleep 0.02; done
    cat told why
done >resized
"$drivers/resize" saved --mesh pipe=7 >told 2>why
refused=$?
ends
[ $status = 0 ] && [ "$(grep -c '^resized to .* after [0-9]* steps; [0-9.]* MB moved, paused [0-9]* ms$' resized)" = 3 ] || { cat resized >>err; false; }
point 'a run that trains goes on with other meshes'
"$drivers/diff" saved exact >out 2>err
grep -q ' 0 differ, 0 are only in A, 0 only in B: equal' out
point 'to the digits of an undisturbed run'
[ $refused = 2 ] && grep -q '^resize: the run cannot be planned on pipe=7' why
point 'a mesh that does not fit is refused'
driver=$drivers/shardloop-clean
refuses 'stray' stray
driver=$drivers/resize
refuses 'nowhere/saved: No such file or directory' nowhere/saved --mesh data=2
refuses 'saved: no watcher of a run listens' saved --mesh data=2
refuses '0 arguments: give one, the directory' --mesh data=2
refuses 'no mesh: give --mesh' saved
refuses "'data' is not NAME=SIZE" saved --mesh data

# A cluster whose file of hosts loses a host, and gets it back; then it loses a host with the run.
cat >cluster <<'END'
#!/bin/sh
[ "$2" -le "$(sed -n 's/#.*//; s/.* slots=//p' "$4" | awk '{ all += $1 } END { print all }')" ] || exit 1
echo "$2" >>asked
shift 4
exec "$@"
END
chmod +x cluster
hosts() {
    printf '%s max_slots=9 slots=2 # not slots=9\n' "$@" >hosts
}
# trains NUMBER...: the launcher has started these numbers of processes, and the last ones have taken two steps.
trains() {
    tries=0
    until [ "$(tr '\n' ' ' <asked)" = "$* " ] || ! lives $pid || [ $((tries += 1)) -gt 5000 ]; do sleep 0.01; done
    line=$(wc -l <metrics)
    until [ "$(wc -l <metrics)" -gt $((line + 1)) ] || ! lives $pid || [ $((tries += 1)) -gt 10000 ]; do sleep 0.01; done
}
rm -rf saved
: >metrics
: >asked
driver=$drivers/transformer
steps=600
call train $small --mesh data=1 --steps $steps --save undisturbed
hosts one two
"$driver" train $small --mesh data=4 --steps $steps --save saved --save-every 1000 --restart 9 --protect 1 --delay-ms 3 --restart-mesh fewer \
    --metrics metrics --launcher './cluster -n %n --hostfile hosts' >out 2>err </dev/null &
pid=$!
trains 4
hosts one
trains 4 2
hosts one two
trains 4 2 4
kill -STOP $pid
hosts two
kill -KILL $(child)
kill -CONT $pid
ends
[ $status = 0 ] && [ "$(tr '\n' ' ' <asked)" = '4 2 4 2 ' ]
point 'replicas follow the hosts of the launcher'
"$drivers/diff" saved undisturbed >out 2>err
grep -q ' 0 differ, 0 are only in A, 0 only in B: equal' out
point 'to the digits of an undisturbed run'

# Other users are not heard, even if the socket is open to them; nor do they answer.
if chown 12345 told 2>/dev/null; then
    driver=$drivers/transformer control=$left.control
    umask 0
    "$driver" train $small --mesh data=1 --steps 2000 --save saved --resume saved --save-every 10000 --restart 1 --protect 1 --delay-ms 1 >out 2>err </dev/null &
    pid=$!
    umask 022
    tries=0
    until [ -S "$control" ] || ! lives $pid || [ $((tries += 1)) -gt 2000 ]; do sleep 0.01; done
    python3 - "$control" <<'END' >told 2>why
import os, socket, sys
os.setuid(12345)
one = socket.socket(socket.AF_UNIX)
one.connect(sys.argv[1])
try:
    one.sendall(b"data=2\n")
    print("answered", one.recv(100))
except (BrokenPipeError, ConnectionResetError):
    print("closed")
END
    grep -q "^closed$\|^answered b''$" told && ! grep -q resized err || { cat told why >>err; false; }
    point "another user's request is not heard"
    kill -TERM $pid
    ends
    python3 - "$control" <<'END' &
import os, socket, sys, time
one = socket.socket(socket.AF_UNIX)
os.umask(0)
os.setuid(12345)
one.bind(sys.argv[1])
one.listen(1)
time.sleep(100)
END
    pid=$!
    tries=0
    until [ -S "$control" ] || ! lives $pid || [ $((tries += 1)) -gt 2000 ]; do sleep 0.01; done
    driver=$drivers/resize
    refuses 'saved: no watcher of a run listens' saved --mesh data=2 # nor does another user's socket answer
    kill $pid
    rm "$control"
else
    skip "another user's request" 'it takes root to be one'
fi

# A mesh on which the launcher starts nothing: the run goes on on the mesh before.
driver=$drivers/looping_pipeline
small='--layers 4 --hidden 8 --batch 8 --microbatches 2 --mesh data=1,model=2 --schedule 1f1b --delay-ms 1'
rm -rf saved
cat >launch <<'END'
#!/bin/sh
[ "$1" -le 2 ] || exit 1
shift
exec "$@"
END
chmod +x launch
steps=600
call $small --steps $steps --save longer --save-every 1000
begin --launcher './launch %n' --save saved/
"$drivers/resize" saved --mesh data=2,model=2 >told 2>why
refused=$?
ends
cat told why >>err
[ $status = 0 ] && [ $refused = 2 ] && cmp -s "$(name $steps)" "$(name $steps longer)" &&
    grep -q '^resize: on data=2,model=2 the run ended with status 1 before its first step: it goes on on data=1,model=2$' why
point 'a mesh that cannot be started: the run goes on on the mesh before'

# ---- bad values, little room ----

driver=$drivers/looping_pipeline
refuses '--protect: "2"' --save saved --protect 2
refuses '--protect: ' --protect 1
if unshare -m true 2>/dev/null; then
    here=$(TMPDIR=/tmp mktemp -d) # not in /dev/shm, which is another one there
    unshare -m sh -c 'mount -t tmpfs -o size=40k tmpfs /dev/shm && cd "$0" && exec "$@"' "$here" "$driver" --layers 4 --hidden 64 \
        --batch 8 --microbatches 2 --steps 3 --mesh data=1,model=2 --schedule 1f1b --save saved --save-every 1 --restart 1 --protect 1 \
        >out 2>err </dev/null
    status=$?
    [ $status = 2 ] && grep -q 'protect: /dev/shm has no room for coordinate [01].s [0-9.]* MB of steps in memory: enlarge it' err && [ "$(wc -l <err)" = 1 ]
    point 'a small /dev/shm is refused in a line'
    # Room for two steps, of 1.0 MB, is not enough for a restart; room for three is.
    for kilobytes in 2600 3600; do
        unshare -m sh -c 'mount -t tmpfs -o size=${1}k tmpfs /dev/shm && cd "$0" && shift && exec "$@"' "$here" $kilobytes \
            "$driver" --layers 4 --hidden 64 --batch 8 --microbatches 2 --steps 300 --mesh data=1,model=2 --schedule 1f1b --delay-ms 1 \
            --save saved --save-every 1000 --restart 1 --protect 1 --metrics metrics --optimizer adamw >out 2>err </dev/null &
        pid=$!
        tries=0
        until [ "$(cat "$here/metrics" 2>/dev/null | wc -l)" -gt 20 ] || ! lives $pid || [ $((tries += 1)) -gt 2000 ]; do sleep 0.01; done
        kill -KILL "$(child)" 2>/dev/null
        ends
        if [ $kilobytes = 2600 ]; then
            [ $status = 2 ] && grep -q 'protect: /dev/shm has room for two steps, and a restart needs three, of 1.[0-9] MB' err
            point 'room for two steps is refused in a line'
        else
            [ $status = 0 ] && grep -q 'restart 1 of 1 goes on from memory' err
            point 'room for three steps lets it go on from memory'
        fi
    done
    cat >"$here/large" <<'END'
mount -t tmpfs -o size=3600k tmpfs /dev/shm && cd "$(dirname "$0")" && rm -rf saved metrics
run="$* --steps 9000 --mesh data=1,model=2 --schedule 1f1b --save saved --protect 1 --optimizer adamw --metrics metrics"
$run --hidden 64 >/dev/null &
until [ "$(cat metrics 2>/dev/null | wc -l)" -gt 20 ] || ! kill -0 $!; do sleep 0.01; done
kill -KILL $! && wait $!
cp metrics before
ls /dev/shm/*/* >left
$run --hidden 128
[ $? = 2 ] && ls /dev/shm/*/* | cmp - left && cmp metrics before
END
    unshare -m sh "$here/large" "$driver" --layers 4 --batch 8 --microbatches 2 >out 2>err </dev/null
    status=$?
    [ $status = 0 ] && grep -q 'protect: /dev/shm has no room' err
    point 'a larger run is refused, and leaves the steps and metrics of a dead run'
    rm -rf "$here"
else
    skip 'a small /dev/shm' 'mounts are not allowed'
fi

# The unit in the page about steps in memory.
sed -n '/^ *\[Service\]$/,/^$/s/^ *//p' "$page" | sed 's|=/home/me/train.sh$|=/bin/true|' >train.service
if command -v systemd-analyze >/dev/null; then
    systemd-analyze verify ./train.service >out 2>err
    status=$?
    [ $status = 0 ] && [ ! -s out ] && [ ! -s err ] && grep -q '^Restart=on-failure$' train.service
    point 'the unit for systemd is valid'
else
    skip 'the unit for systemd' 'systemd-analyze is not installed'
fi

plan
