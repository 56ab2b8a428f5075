#!/bin/sh
# mpi_namespaces.sh DRIVERS TESTS - four network namespaces pass for hosts: the first, and three with a cable to it each;
# prints TAP.
drivers=$1 tests=$2

# leaves REASON: ends the test without points.
leaves() {
    echo "1..0 # SKIP $1"
    exit
}

one=sl1-$$ two=sl2-$$ three=sl3-$$ four=sl4-$$
# on HOST COMMAND...: runs COMMAND on one of the hosts, which have their own names.
on() {
    host=$1
    shift
    ip netns exec "$host" unshare --uts sh -c 'hostname "$0"; exec "$@"' "$host" "$@"
}

case $(mpirun --version 2>/dev/null) in
*'Open MPI'*) ;;
*) leaves 'Open MPI is not installed' ;;
esac
command -v ip >/dev/null || leaves 'iproute2 is not installed'
ip netns add $one 2>/dev/null || leaves 'network namespaces are not allowed here'
. "$(dirname "$0")/../../rigs/points.sh"
# clear_hosts: kills all processes on the hosts.
clear_hosts() {
    for host in $one $two $three $four; do kill -KILL $(ip netns pids $host) 2>/dev/null; done
}
trap 'clear_hosts; for host in $one $two $three $four; do ip netns del $host; done 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
ip netns exec $one true 2>/dev/null || leaves 'programs cannot be run in network namespaces here'
ip -n $one link add sl-bridge type bridge 2>/dev/null || leaves 'this kernel has no network bridges'
ip -n $one addr add 10.213.77.1/24 dev sl-bridge
ip -n $one link set lo up
ip -n $one link set sl-bridge up
for number in 2 3 4; do
    host=sl$number-$$
    ip netns add $host
    ip link add sl-cable$number netns $one type veth peer name sl-cable netns $host
    ip -n $one link set sl-cable$number master sl-bridge up
    ip -n $host link set lo up
    ip -n $host link set sl-cable up
    ip -n $host addr add 10.213.77.$number/24 dev sl-cable
done

# remote: a script in place of ssh.
cat >remote <<END
#!/bin/sh
host=sl\${1##*.}-$$
shift
exec ip netns exec \$host unshare --uts sh -c "hostname \$host; \$*"
END
chmod +x remote
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# launch N COMMAND...: starts N processes, a third of them, rounded up, on each of three hosts until none is left.
launch() {
    third=$((($1 + 2) / 3))
    on $one mpirun --oversubscribe --bind-to none --host 10.213.77.1:$third,10.213.77.2:$third,10.213.77.3:$third -n "$@"
}
export OMPI_MCA_plm_rsh_agent="$work/remote" OMPI_MCA_btl=tcp,vader,self
export OMPI_MCA_btl_tcp_if_include=10.213.77.0/24 OMPI_MCA_oob_tcp_if_include=10.213.77.0/24

launch 8 hostname >out 2>err
status=$?
[ $status = 0 ] && [ "$(sort -u out | wc -l)" = 3 ]
point 'there are three hosts'

for test in channel collectives; do
    launch 16 "$tests/test_$test" mpi >out 2>err
    status=$?
    [ $status = 0 ] && ! grep -q '^not ok' out
    point "test_$test"
done

# Without measured values and predictions from them.
results() {
    sed -E 's/,"median_ms":[^,]*,"held_bytes":[0-9]*(,"predicted":\{[^}]*\})?(,"measured_bubble":[^,}]*)?//g' "$1"
}
"$drivers/loss_equality" --json | results - >expected
launch 8 "$drivers/loss_equality" --engine mpi --json >out 2>err
status=$?
[ $status = 0 ] && results out | cmp -s - expected
point 'loss_equality prints the same bits'

# divides N ARGUMENT...: N processes, between which sequences are divided, have the losses and gradients of N threads.
divides() {
    count=$1
    shift
    set -- train --model-dimension 32 --n-heads 4 --blocks 1 --sequence 48 --batch 4 --vocab-size 128 --steps 2 --json \
        --no-advice "$@"
    "$drivers/transformer" "$@" --gradients threads >threads.out 2>err </dev/null
    launch $count "$drivers/transformer" "$@" --engine mpi --gradients "$work/processes" >out 2>err </dev/null
    status=$?
    [ $status = 0 ] && values loss >found && [ -s found ] && sed -n 's/.*"loss":\([^,]*\),.*/\1/p' threads.out | cmp -s - found &&
        cmp -s threads processes
    point "$count processes on several hosts, the bits of threads: $*"
}
for way in gather heads ring; do
    divides 2 --mesh data=1,context=2 --context-by $way
    divides 4 --mesh data=1,context=4 --context-by $way
done
divides 4 --mesh data=1,context=4 --exact context=4
divides 8 --mesh data=2,context=2,pipe=2 --no-fsdp

# on_four COMMAND...: starts 64 processes, 16 on each of four hosts.
on_four() {
    on $one mpirun --oversubscribe --bind-to none --host 10.213.77.1:16,10.213.77.2:16,10.213.77.3:16,10.213.77.4:16 -n 64 \
        "$@" </dev/null >out 2>err
    status=$?
}
on_four -x SL_TEST_FILTER=test_counts -x SL_TEST_PROCESSES=64 -x SL_TEST_HOSTS=16 -x SL_TEST_REAL_HOSTS=yes "$tests/test_hosts" mpi
[ $status = 0 ] && [ "$(grep -c '^ok' out)" = 1 ]
point '64 processes on four hosts send, by link, as many messages and bytes as computed'
many='train --model-dimension 32 --n-heads 4 --blocks 2 --sequence 16 --batch 64 --vocab-size 128 --steps 3 --json --no-advice
    --mesh data=8,pipe=2,tensor=4'
rm -f threads processes
"$drivers/transformer" $many --gradients threads >threads.out 2>err </dev/null
on_four "$drivers/transformer" $many --engine mpi --gradients "$work/processes"
[ $status = 0 ] && values loss >found && [ -s found ] && sed -n 's/.*"loss":\([^,]*\),.*/\1/p' threads.out | cmp -s - found &&
    cmp -s threads processes
point "64 processes on four hosts, the bits of threads"

# begin ARGUMENT...: a training in the background, whose processes leave their ids; returns when it is under way.
begin() {
    rm -f out err process.*
    cat >member <<END
#!/bin/sh
echo \$\$ >$work/process.\$OMPI_COMM_WORLD_RANK
exec $drivers/looping_pipeline --engine mpi --steps 1000000 --json "\$@"
END
    chmod +x member
    launch 8 "$work/member" "$@" >out 2>err </dev/null &
    launcher=$!
    tries=0
    until [ -s out ] || [ $((tries += 1)) -gt 200 ]; do sleep 0.1; done
}

# hears TEXT: a verdict with TEXT comes within ten seconds.
hears() {
    tries=0
    until grep -qF -- "$1" err || [ $((tries += 1)) -gt 100 ]; do sleep 0.1; done
    [ "$(grep -c '^looping_pipeline: ' err)" = 1 ] && grep -qF -- "$1" err
}

# finish: waits for the launcher.
finish() {
    sleep 1
    clear_hosts
    wait $launcher
    status=$?
}

for rank in 5 1; do
    begin
    kill -KILL "$(cat process.$rank)"
    hears "coordinate $rank ("
    point "process $rank is killed"
    finish
done

begin --timeout 2
kill -STOP "$(cat process.6)"
hears 'coordinate 6 (data=1, model=2) is absent'
point 'process 6 stands still'
finish

begin --timeout 2
ip -n $two link set sl-cable down
hears 'is absent: no sign of it for 2 s'
point 'the second host loses its cable'
finish
ip -n $two link set sl-cable up
sleep 1

begin --timeout 2
ip -n $one link set sl-bridge down
hears 'is absent: no sign of it for 2 s'
point 'the first host loses its network'
finish

plan
