#!/bin/sh
# slurm_hosts.sh DRIVERS SOURCE - a Slurm of two nodes, started for this test alone, whose hosts are network namespaces with
# a cable between them: a run's processes are on both, and end with the bytes of threads; one is killed; prints TAP.
drivers=$(cd "$1" && pwd) source=$2
. "$source/tests/rigs/slurm.sh"
one=sln1-$$ two=sln2-$$
for tool in ip nsenter unshare; do
    command -v $tool >/dev/null || skip_all "$tool is not installed (Debian: iproute2, util-linux)"
done
ip netns add $one 2>/dev/null || skip_all 'network namespaces are not allowed here'
clear_hosts() {
    for host in $one $two; do kill -KILL $(ip netns pids $host) 2>/dev/null; done
}
trap 'clear_hosts; wait; for host in $one $two; do ip netns del $host; done 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
ip netns add $two
ip link add sl-slurm netns $one type veth peer name sl-slurm netns $two || skip_all 'this kernel has no virtual cables'
for number in 1 2; do
    host=sln$number-$$
    ip -n $host link set lo up
    ip -n $host link set sl-slurm up
    ip -n $host addr add 10.213.78.$number/24 dev sl-slurm
done
mkdir state spool.n1 spool.n2 own own.n1 own.n2
printf '127.0.0.1 localhost\n10.213.78.1 n1\n10.213.78.2 n2\n' >hosts
write_conf 'n1(10.213.78.1)' 21817 >slurm.conf <<END
SlurmdLogFile=$work/slurmd.%n.log
NodeName=n1 NodeHostname=n1 NodeAddr=10.213.78.1 Port=21818 CPUs=16 State=UNKNOWN
NodeName=n2 NodeHostname=n2 NodeAddr=10.213.78.2 Port=21818 CPUs=16 State=UNKNOWN
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
END
needs_pmix
export SLURM_PMIX_TMPDIR="$work/own" # a folder that each host has for itself, as PMIx expects

# on N COMMAND...: on host N, which has a name, a table of names, and a folder of its own. Not by ip netns exec: it hides
# the cgroups, which slurmd wants to see.
on() {
    number=$1
    shift
    nsenter --net="/run/netns/sln$number-$$" unshare --uts --mount sh -c '
        hostname "n$0" && mount --bind "$1/hosts" /etc/hosts && mount --bind "$1/own.n$0" "$1/own" && shift && exec "$@"' \
        "$number" "$work" "$@"
}
on 1 true 2>err || skip_all "a host cannot be made here: $(head -n 1 err)"
on 1 slurmctld -D >slurmctld.log 2>&1 &
on 1 slurmd -N n1 -D >slurmd1.log 2>&1 &
on 2 slurmd -N n2 -D >slurmd2.log 2>&1 &
are_idle() { [ "$(on 1 sinfo -h -N -o %T 2>/dev/null | grep -cx idle)" = 2 ]; }
until_true 30 are_idle
status=$?
grep -h error slurmctld.log slurmd.n?.log >out 2>/dev/null
: >err
[ $status = 0 ]
point 'two nodes come up'
[ $status = 0 ] || {
    plan
    exit
}

on 1 timeout -k 5 30 srun -N2 -n4 sh -c 'echo "$SLURMD_NODENAME $(hostname)"' 2>err | sort -u >out
printf 'n1 n1\nn2 n2\n' | cmp -s - out
point 'tasks run on two hosts'

small='--mesh data=2,model=2 --layers 4 --hidden 16 --batch 32 --microbatches 4 --schedule 1f1b'
run() { # ARGUMENT...: four processes on two nodes
    on 1 timeout -k 5 120 srun --mpi=pmix -N2 -n4 --ntasks-per-node=2 --kill-on-bad-exit=1 "$drivers/looping_pipeline" --engine mpi \
        "$@" >out 2>err </dev/null
    status=$?
}
"$drivers/looping_pipeline" $small --steps 10 --save threads >expected 2>err
run $small --steps 10 --save two
[ $status = 0 ] && cmp -s threads/step-00000010.safetensors two/step-00000010.safetensors
point 'a run on two hosts has the bytes of threads'
"$drivers/looping_pipeline" --resume threads --save threads --steps 14 >expected 2>err
run --resume two --save two --steps 14
[ $status = 0 ] && cmp -s threads/step-00000014.safetensors two/step-00000014.safetensors
point 'and goes on there'

# Processes of the run on a host.
tasks_of() {
    for process in $(ip netns pids "$1"); do
        tr '\0' '\n' <"/proc/$process/cmdline" 2>/dev/null | head -n 1 | grep -q 'looping_pipeline$' && echo "$process"
    done
}
: >metrics
run $small --steps 100000000 --metrics metrics --timeout 5 &
pid=$!
until_true 60 grep -q '"step":3,' metrics
killed=$(tasks_of $two | tail -n 1)
[ -n "$killed" ] && kill -KILL "$killed"
wait $pid
grep -q 'srun: error: n2: task [23]: Killed' err
point 'a task on the second host is killed: the step ends, and srun says which'
is_over() { [ -z "$(tasks_of $one)$(tasks_of $two)" ]; }
until_true 30 is_over
point 'and nothing is left on either'
plan
