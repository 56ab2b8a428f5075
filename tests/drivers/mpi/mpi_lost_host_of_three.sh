#!/bin/sh
# mpi_lost_host_of_three.sh DRIVERS - three hosts (tests/drivers/mpi/lost_hosts.sh). If one is cut off for good, the run
# goes on on the others, from the copies of its neighbour; if two neighbours are, from the checkpoint; prints TAP.
drivers=$(cd "$1" && pwd) hosts=3
. "$(dirname "$0")/lost_hosts.sh"
one=$(host 1) two=$(host 2)
small="--layers 3 --hidden 64 --batch 8 --microbatches 2 --schedule 1f1b --optimizer adamw --exact data=2 --save-every 50"
from_several='goes on from several hosts. memory, after about [0-9]* steps'

runs 200 model=3
[ $status = 0 ]
point 'an undisturbed run'

echo 3 >most
begin model=3
holds $two >out.files
ends_in_time 0 150 && saves_right
point 'over three hosts: the same bytes'
holds_planned
point 'and the memory that was planned'
[ "$(grep -c '^[012].part-[12]-of-3.safetensors$' out.files)" = 6 ] && ! grep -q part-3 out.files && grep -q '^layout.json$' out.files
point 'each host has its own part of three steps, and that of the host before it'
is_clean
point 'nothing is left in memory'

mount -o remount,size=100k "shm.$two"
./on $one ./launch 3 "$driver" $small --steps 9 --mesh model=3 --engine mpi --save full --protect 1 >out 2>err
[ $? = 2 ] && [ "$(grep -c 'protect: /dev/shm has no room for coordinate 1.s [0-9.]* MB of steps in memory: enlarge it' err)" = 1 ] && is_clean
point "another host's memory is full: a run is refused, and nothing is left"
mount -o remount,size=200m "shm.$two"

begin model=3
cut 2
ends_in_time 0 150 && saves_right && grep -q "restart 1 of 9 $from_several$" err &&
    grep -q 'has all parts now: other hosts have sent [0-9.]* MB$' err
point 'one host is cut off: the run goes on on the other two, from their memory'
mend 2

begin model=3
cut 2 3
ends_in_time 0 150 && saves_right &&
    grep -q 'no step in memory is whole: no host of this run has the part of the former coordinate [12]' err &&
    grep -q 'goes on from saved/step-00000[0-9]*.safetensors' err
point 'two neighbours are cut off: a line says so, and it goes on from the checkpoint'
mend 2 3

# A process on another host is killed: the three go on, with no part from elsewhere but all hosts.
begin model=3
kill -KILL "$(ip netns pids $two | while read -r process; do
    [ "$(readlink "/proc/$process/exe")" != "$driver" ] || echo "$process"
done | head -n 1)"
ends_in_time 0 150 && saves_right && grep -q "restart 1 of 9 $from_several$" err
point 'a process on another host is killed: it goes on on all three'

# Two neighbours that are in order are taken from the run: their part of the state is sent first.
runs 1200 model=3
begin model=3
leaves_for model=3 1
[ "$(held_by $one)$(held_by $two)$(held_by "$(host 3)")" = 100 ] && grep -q '^looping_pipeline: resized to model=3: goes on from memory' err
point 'a resize from three hosts to one goes on from memory, and leaves nothing on two'
ends_in_time 0 150 && saves_right
point 'and the bytes are the same'
runs 200 model=3

# The watcher's host is lost. A new watcher takes over on the next one, which has its part.
begin model=3
cut 1
clear $one
wait $pid 2>/dev/null
watch $two --mesh model=3 --resume saved
ends_in_time 0 150 && saves_right && grep -q "$from_several: an earlier run has left them$" err
point "the watcher's host is lost: another watcher takes over"
mend 1

# Two coordinates fit on a host: half of the mesh on two hosts, and then the whole mesh on three.
runs 1200 data=2,model=3
echo 2 >most
begin data=2,model=3 --restart-mesh fewer
cut 2
tries=0
until grep -q "$from_several on data=1,model=3: two runs" err || [ $((tries += 1)) -gt 400 ]; do sleep 0.1; done
mend 2
list 1 2 3
until ./on $one "$drivers/resize" saved --mesh data=2,model=3 >told 2>why || [ $((tries += 10)) -gt 1000 ]; do sleep 0.2; done
ends_in_time 0 150 && saves_right && grep -q '^looping_pipeline: resized to data=2,model=3: goes on from memory' err
point 'half of the mesh on two hosts, and then the whole mesh on three'
is_clean
point 'and nothing is left in memory'

plan
