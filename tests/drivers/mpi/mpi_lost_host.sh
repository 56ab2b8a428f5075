#!/bin/sh
# mpi_lost_host.sh DRIVERS - two network namespaces, each with a /dev/shm of its own, pass for hosts. If one is cut off
# for good, the run goes on on the other one, from the copies there; prints TAP.
drivers=$(cd "$1" && pwd)
driver=$drivers/looping_pipeline

leaves() {
    echo "1..0 # SKIP $1"
    exit
}

one=sll1-$$ two=sll2-$$
case $(mpirun --version 2>/dev/null) in
*'Open MPI'*) ;;
*) leaves 'Open MPI is not installed' ;;
esac
command -v ip >/dev/null || leaves 'iproute2 is not installed'
unshare -m mount -t tmpfs tmpfs /dev/shm 2>/dev/null || leaves 'mounts are not allowed here'
ip netns add $one 2>/dev/null || leaves 'network namespaces are not allowed here'
. "$(dirname "$0")/../../rigs/points.sh"
# clear HOST: kills all processes on the host.
clear() {
    for process in $(ip netns pids "$1" 2>/dev/null); do kill -KILL "$process" 2>/dev/null; done
}
trap 'clear $one; clear $two; ip netns del $one; ip netns del $two; umount "$work"/shm.*; rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
ip netns exec $one true 2>/dev/null || leaves 'programs cannot be run in network namespaces here'
ip netns add $two
ip link add sl-cable netns $one type veth peer name sl-cable netns $two 2>/dev/null || leaves 'this kernel has no cables between namespaces'
for number in 1 2; do
    host=sll$number-$$
    ip -n $host link set lo up
    ip -n $host link set sl-cable up
    ip -n $host addr add 10.215.77.$number/24 dev sl-cable
    mkdir shm.$host
    mount -t tmpfs -o size=200m tmpfs shm.$host
done

# on HOST COMMAND...: runs COMMAND on one of the hosts, which have their own names and memory.
cat >on <<END
#!/bin/sh
host=\$1
shift
exec ip netns exec \$host unshare --uts -m sh -c 'mount --bind "\$0" /dev/shm && hostname "\$1" && shift && exec "\$@"' $work/shm.\$host \$host "\$@"
END
# remote: in place of ssh.
cat >remote <<END
#!/bin/sh
host=sll\${1##*.}-$$
shift
exec $work/on \$host sh -c "\$*"
END
# launch N COMMAND...: starts N processes, as many on each of the hosts that the file hosts names, at most \$most on one.
cat >launch <<END
#!/bin/sh
set -f
count=\$(wc -l <$work/hosts)
each=\$(((\$1 + count - 1) / count))
[ \$each -le \$(cat $work/most) ] || exit 1
exec mpirun --oversubscribe --bind-to none --host \$(sed "s/\$/:\$each/" $work/hosts | paste -sd ,) -n "\$@"
END
chmod +x on remote launch
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_plm_rsh_agent="$work/remote" OMPI_MCA_btl=tcp,vader,self
export OMPI_MCA_btl_tcp_if_include=10.215.77.0/24 OMPI_MCA_oob_tcp_if_include=10.215.77.0/24

small="--layers 4 --hidden 64 --batch 8 --microbatches 2 --schedule 1f1b --optimizer adamw --exact data=2 --save-every 50"
name() {
    printf '%s/step-%08d.safetensors' "$1" "$2"
}

# runs STEPS: runs have so many steps from now on; one of them is not disturbed.
runs() {
    steps=$1
    rm -rf whole
    call $small --steps $steps --mesh data=2,model=2 --save whole
}

# saves_right: the run's last checkpoint has the values of the undisturbed run's.
saves_right() {
    "$drivers/diff" "$(name saved $steps)" "$(name whole $steps)" | grep -q ' 0 differ, 0 are only in A, 0 only in B: equal'
}

# begin MESH ARGUMENT...: a watched run on both hosts in the background, its watcher on the first; returns when it has
# taken some steps after its first checkpoint, that of step 50.
begin() {
    mesh=$1
    shift
    rm -rf saved
    : >out
    printf '10.215.77.1\n10.215.77.2\n' >hosts
    ./on $one "$driver" $small --steps $steps --mesh "$mesh" --engine mpi --json --save saved --restart 9 --timeout 2 \
        --launcher "$work/launch %n" "$@" >out 2>err </dev/null &
    pid=$!
    tries=0
    until [ "$(grep -c '"step"' out)" -gt 60 ] || [ $((tries += 1)) -gt 2000 ]; do sleep 0.05; done
}

# cut HOST: no packet reaches it or leaves it any more, and the file hosts names the other one.
cut() {
    ip -n "$1" link set sl-cable down
    printf '10.215.77.%s\n' $((3 - $(echo "$1" | sed 's/^sll//; s/-.*//'))) >hosts
}
# mend HOST: it has been started again: it has a cable, but no process, and nothing in its memory.
mend() {
    ip -n "$1" link set sl-cable up
    clear "$1"
    rm -rf "shm.$1"/*
}

runs 200
[ $status = 0 ]
point 'an undisturbed run'

echo 2 >most
begin data=2,model=2
ls shm.$two/shardloop-*/*/ >out.files
ends_in_time 0 150 && saves_right
point 'over two hosts: the same bytes'
[ "$(grep -c '^[012].part-[1234]-of-4.safetensors$' out.files)" = 12 ] && grep -q '^layout.json$' out.files
point 'each host has all parts of three steps'
# sends LEAST MOST: coordinate 0 has sent so much of its part in each step.
sends() {
    sed -n 's/.*"protected":{"count":\([0-9]*\),"bytes":\([0-9]*\),.*"sent":\([0-9]*\).*/\1 \2 \3/p' out |
        awk -v least="$1" -v most="$2" '{ part = $3 / $1 / $2; right = part > least && part < most } END { exit !right }'
}
sends 0.66 0.75
point 'the optimizer is sent, two thirds of the state, but not the values: replicas have them'
[ -z "$(ls shm.$one shm.$two | grep shardloop)" ]
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
cut $two
ends_in_time 0 150 && saves_right && grep -q 'restart 1 of 9 goes on from memory, after [0-9]* steps$' err
point 'one host is cut off: all coordinates on the other one, from memory'
mend $two

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
runs 2000
echo 2 >most
begin data=2,model=2 --restart-mesh fewer
cut $two
tries=0
until grep -q 'goes on from memory, after [0-9]* steps on data=1,model=2: two runs' err || [ $((tries += 1)) -gt 400 ]; do sleep 0.1; done
mend $two
printf '10.215.77.1\n10.215.77.2\n' >hosts
until ./on $one "$drivers/resize" saved --mesh data=2,model=2 >told 2>why || [ $((tries += 10)) -gt 1000 ]; do sleep 0.2; done
ends_in_time 0 150 && saves_right && grep -q '^looping_pipeline: resized to data=2,model=2: goes on from memory' err
point 'and half of the mesh on one host, and then the whole mesh on both'

# The watcher's host is lost, with all its processes. A new watcher takes over on the other host.
runs 200
echo 4 >most
for mesh in model=4 'data=2,model=2 --zero 0'; do
    begin ${mesh%% *} ${mesh#"${mesh%% *}"}
    cut $one
    clear $one
    wait $pid 2>/dev/null
    ./on $two "$driver" $small --steps $steps --mesh $mesh --engine mpi --resume saved --save saved --restart 9 --timeout 2 \
        --launcher "$work/launch %n" >out 2>err </dev/null &
    pid=$!
    ends_in_time 0 150 && saves_right &&
        grep -q '^looping_pipeline: goes on from memory, after [0-9]* steps: an earlier run has left them$' err
    point "the host of the watcher is lost: another watcher on the other host takes over, with $mesh"
    mend $one
done
[ -z "$(ls shm.$two | grep shardloop)" ]
point 'and leaves nothing in its memory'

plan
