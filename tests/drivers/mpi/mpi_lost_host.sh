#!/bin/sh
# mpi_lost_host.sh DRIVERS - two hosts (tests/drivers/mpi/lost_hosts.sh). If one is cut off for good, the run goes on on the
# other one, from the copies there; prints TAP.
drivers=$(cd "$1" && pwd) hosts=2
. "$(dirname "$0")/lost_hosts.sh"
one=$(host 1) two=$(host 2)
small="--layers 4 --hidden 64 --batch 8 --microbatches 2 --schedule 1f1b --optimizer adamw --exact data=2 --save-every 50"

runs 200 data=2,model=2
[ $status = 0 ]
point 'an undisturbed run'

echo 2 >most
begin data=2,model=2
holds $two >out.files
ends_in_time 0 150 && saves_right
point 'over two hosts: the same bytes'
holds_planned
point 'and the memory that was planned'
[ "$(grep -c '^[012].part-[1234]-of-4.safetensors$' out.files)" = 12 ] && grep -q '^layout.json$' out.files
point 'each host has all parts of three steps'
# sends LEAST MOST: coordinate 0 has sent so much of its part in each step.
sends() {
    sed -n 's/.*"protected":{"count":\([0-9]*\),"bytes":\([0-9]*\),.*"sent":\([0-9]*\).*/\1 \2 \3/p' out |
        awk -v least="$1" -v most="$2" '{ part = $3 / $1 / $2; right = part > least && part < most } END { exit !right }'
}
sends 0.66 0.75
point 'the optimizer is sent, two thirds of the state, but not the values: replicas have them'
is_clean
point 'nothing is left in memory on either'

# planned COMMAND...: how many bytes more all coordinates need with --protect 1.
planned() {
    for number in 0 1; do
        "$@" --dry-run --json --save saved --protect $number 2>err | sed -n 's/.*"runtime":\([0-9]*\).*/\1/p'
        echo next
    done | awk '$1 == "next" { sign = 1; next } { sum += sign ? $1 : -$1 } END { print sum }'
}
here=$(planned "$driver" $small --steps $steps --mesh data=2,model=2)
there=$(planned ./on $one "$work/launch" 4 "$driver" $small --steps $steps --mesh data=2,model=2 --engine mpi)
echo "$here on one host, $there on two" >out
[ "$here" -gt 0 ] && [ "$there" = $((3 * here)) ]
point 'a plan on two hosts has three steps with copies, in place of two without'

echo 4 >most
begin data=2,model=2
cut 2
ends_in_time 0 150 && saves_right && grep -q 'restart 1 of 9 goes on from memory, after [0-9]* steps$' err
point 'one host is cut off: all coordinates on the other one, from memory'
mend 2

# A process on the other host is killed: both hosts go on.
begin data=2,model=2 --zero 0
kill -KILL "$(ip netns pids $two | while read -r process; do
    [ "$(readlink "/proc/$process/exe")" != "$driver" ] || echo "$process"
done | head -n 1)"
ends_in_time 0 150 && saves_right && grep -q 'the run lost the process of coordinate [23]; restart 1 of 9 goes on from memory, after [0-9]* steps$' err
point 'a process on the other host is killed: it goes on on both, from memory'
sends 0 0.05
point 'replicas with whole optimizers send only headers'

# Only two coordinates fit on a host. When the other host is back, the run, which takes some seconds longer, gets its mesh
# back.
runs 2000 data=2,model=2
echo 2 >most
begin data=2,model=2 --restart-mesh fewer
cut 2
tries=0
until grep -q 'goes on from memory, after [0-9]* steps on data=1,model=2: two runs' err || [ $((tries += 1)) -gt 400 ]; do sleep 0.1; done
mend 2
list 1 2
until ./on $one "$drivers/resize" saved --mesh data=2,model=2 >told 2>why || [ $((tries += 10)) -gt 1000 ]; do sleep 0.2; done
ends_in_time 0 150 && saves_right && grep -q '^looping_pipeline: resized to data=2,model=2: goes on from memory' err
point 'and half of the mesh on one host, and then the whole mesh on both'

# A host that is in order is taken from the run.
begin data=2,model=2
leaves_for data=1,model=2 1
[ "$(held_by $one)" = 1 ] && [ "$(held_by $two)" = 0 ]
point 'a resize to one host leaves nothing in the memory of the other one'
ends_in_time 0 150 && saves_right
point 'and the bytes are the same'

# The watcher's host is lost, with all its processes. A new watcher takes over on the other host.
runs 200 data=2,model=2
echo 4 >most
for mesh in model=4 'data=2,model=2 --zero 0'; do
    begin ${mesh%% *} ${mesh#"${mesh%% *}"}
    cut 1
    clear $one
    wait $pid 2>/dev/null
    watch $two --mesh $mesh --resume saved
    ends_in_time 0 150 && saves_right &&
        grep -q '^looping_pipeline: goes on from memory, after [0-9]* steps: an earlier run has left them$' err
    point "the host of the watcher is lost: another watcher on the other host takes over, with $mesh"
    mend 1
done
is_clean
point 'and leaves nothing in its memory'

plan
