# lost_hosts.sh - sourced by the tests of lost hosts, with $drivers and $hosts: so many network namespaces, each with a
# /dev/shm of its own, pass for hosts, joined by a switch; watched runs over them, whose hosts are cut off and return.
driver=$drivers/looping_pipeline

leaves() {
    echo "1..0 # SKIP $1"
    exit
}

case $(mpirun --version 2>/dev/null) in
*'Open MPI'*) ;;
*) leaves 'Open MPI is not installed' ;;
esac
command -v ip >/dev/null || leaves 'iproute2 is not installed'
unshare -m mount -t tmpfs tmpfs /dev/shm 2>/dev/null || leaves 'mounts are not allowed here'
switch=sll0-$$
ip netns add $switch 2>/dev/null || leaves 'network namespaces are not allowed here'
. "$(dirname "$0")/../../rigs/points.sh"

# host NUMBER: its name. numbers: of all hosts.
host() {
    echo "sll$1-$$"
}
numbers=$(seq "$hosts")
# clear HOST: kills all processes on the host.
clear() {
    for process in $(ip netns pids "$1" 2>/dev/null); do kill -KILL "$process" 2>/dev/null; done
}
# leave: removes the hosts.
leave() {
    for number in $numbers; do clear "$(host "$number")"; done
    for number in 0 $numbers; do ip netns del "$(host "$number")"; done
    umount "$work"/shm.*
    rm -rf "$work"
}
trap 'leave 2>/dev/null' EXIT
trap 'exit 1' HUP INT TERM
ip netns exec $switch true 2>/dev/null || leaves 'programs cannot be run in network namespaces here'
ip -n $switch link add sl-bridge type bridge 2>/dev/null || leaves 'this kernel has no network bridges'
ip -n $switch link set sl-bridge up
for number in $numbers; do
    host=$(host "$number")
    ip netns add "$host"
    ip link add "sl-cable$number" netns $switch type veth peer name sl-cable netns "$host" 2>/dev/null || leaves 'this kernel has no cables between namespaces'
    ip -n $switch link set "sl-cable$number" master sl-bridge up
    ip -n "$host" link set lo up
    ip -n "$host" link set sl-cable up
    ip -n "$host" addr add "10.215.77.$number/24" dev sl-cable
    mkdir "shm.$host"
    mount -t tmpfs -o size=200m tmpfs "shm.$host"
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

# list NUMBER...: the file hosts names these hosts.
list() {
    for number in "$@"; do echo "10.215.77.$number"; done >hosts
}

name() {
    printf '%s/step-%08d.safetensors' "$1" "$2"
}

# runs STEPS MESH: runs have so many steps and the options $small from now on; one of them is not disturbed.
runs() {
    steps=$1
    rm -rf whole
    call $small --steps $steps --mesh "$2" --save whole
}

# saves_right: the run's last checkpoint has the values of the undisturbed run's.
saves_right() {
    "$drivers/diff" "$(name saved $steps)" "$(name whole $steps)" | grep -q ' 0 differ, 0 are only in A, 0 only in B: equal'
}

# watch HOST ARGUMENT...: a watched run in the background, its watcher on the host.
watch() {
    host=$1
    shift
    ./on "$host" "$driver" $small --steps $steps --engine mpi --save saved --restart 9 --timeout 2 \
        --launcher "$work/launch %n" "$@" >out 2>err </dev/null &
    pid=$!
}

# begin MESH ARGUMENT...: a watched run on all hosts, its watcher on the first; returns when it has taken some steps
# after a checkpoint, those of steps 50, 100, ..., and takes some before the next one.
begin() {
    mesh=$1
    shift
    rm -rf saved
    : >out
    list $numbers
    watch "$(host 1)" --mesh "$mesh" --json "$@"
    tries=0
    until taken=$(grep -c '"step"' out) && [ $taken -gt 50 ] && [ $((taken % 50)) -gt 4 ] && [ $((taken % 50)) -lt 25 ] ||
        [ $((tries += 1)) -gt 2000 ]; do sleep 0.05; done
}

# cut NUMBER...: no packet reaches these hosts or leaves them any more, and the file hosts names the others.
cut() {
    for number in "$@"; do ip -n "$(host "$number")" link set sl-cable down; done
    for number in $numbers; do
        case " $* " in *" $number "*) ;; *) echo "10.215.77.$number" ;; esac
    done >hosts
}
# mend NUMBER...: these hosts have been started again: they have a cable, but no process, and nothing in their memory.
mend() {
    for number in "$@"; do
        ip -n "$(host "$number")" link set sl-cable up
        clear "$(host "$number")"
        rm -rf "shm.$(host "$number")"/*
    done
}
# holds HOST: the names of all files in its memory.
holds() {
    ls "shm.$1"/shardloop-*/*/
}
# held_by HOST: the number of runs that have steps in its memory.
held_by() {
    ls "shm.$1" | grep -c '^shardloop-[0-9]*-[0-9a-f]*$'
}
# leaves_for MESH NUMBER...: the run is resized to MESH on these hosts, and has steps there.
leaves_for() {
    mesh=$1 tries=0
    shift
    list "$@"
    until ./on "$(host 1)" "$drivers/resize" saved --mesh $mesh >told 2>why || [ $((tries += 10)) -gt 1000 ]; do sleep 0.2; done
}
# holds_planned: each coordinate of the run held as many bytes as planned.
holds_planned() {
    grep -o '"total":[0-9]*' out | sed 's/.*://' >planned
    grep -o '"held":[0-9]*' out | sed 's/.*://' >held
    [ -s held ] && cmp planned held >>err
}
# is_clean: nothing is left in the memory of any host.
is_clean() {
    [ -z "$(ls shm.* | grep shardloop)" ]
}
