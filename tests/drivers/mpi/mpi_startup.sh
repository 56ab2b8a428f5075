#!/bin/sh
# mpi_startup.sh DRIVERS TESTS - a process that is stopped or killed while MPI starts, while the run begins, or when it
# ends, or at random moments while it trains: each time there is a verdict, and nothing is left; prints TAP. Under
# tests/run --long it is done at every 10 ms of the first second and 80 times later, and not a dozen times.
drivers=$1 tests=$2
mpirun=$(cd "$(dirname "$0")/../.." && pwd)/mpirun
case $(mpirun --version 2>/dev/null) in
'') exec "$mpirun" ;;
*'Open MPI'*) ;;
*)
    echo '1..0 # SKIP Open MPI is not installed'
    exit
    ;;
esac
. "$(dirname "$0")/../../rigs/points.sh"
seconds=2      # --timeout
most=$((seconds + 30)) # until all is over, on busy machines, too
victim=2

now_ms() { date +%s%3N; }

# begin: four processes in the background, which leave their ids in files, and the job's; returns when all have.
begin() {
    timeout -s KILL 90 "$mpirun" 4 sh -c 'printf %x $PMIX_NAMESPACE >job; echo $$ >process.$OMPI_COMM_WORLD_RANK; exec "$@"' begin \
        "$drivers/looping_pipeline" --engine mpi --mesh data=2,model=2 --layers 4 --hidden 16 --steps 1000000 \
        --json --timeout $seconds >out 2>err </dev/null &
    launcher=$!
    tries=0
    until [ -s process.0 ] && [ -s process.1 ] && [ -s process.2 ] && [ -s process.3 ]; do
        [ $((tries += 1)) -le 2000 ] || return
        sleep 0.005
    done
}

# is_left: whether a process of the run is left, zombies aside.
is_left() {
    for file in process.*; do
        lives "$(cat "$file")" && return
    done
    return 1
}

# release_launcher: Open MPI 4.1's mpirun may hang itself after it has ended all processes while some were starting (in
# PMIx_server_finalize): it has two seconds. It is the child of timeout.
release_launcher() {
    { sleep 2 && kill -KILL $(cat "/proc/$launcher/task/$launcher/children") && touch hung; } 2>/dev/null &
    wait $launcher 2>/dev/null
    status=$?
}

# only_aborted SIGNAL: Open MPI 4.1's mpirun has printed that it aborts the job, and no process has printed a line. If a
# process is killed before MPI knows its rank, mpirun does so, and may end with status 0.
only_aborted() {
    [ "$1" = KILL ] && grep -q 'Per user-direction, the job has been aborted' err && ! grep -q '^looping_pipeline: ' err
}

# moment SIGNAL MS: in a directory of its own. Leaves there the file problem if something is wrong.
moment() {
    mkdir "$1-$2" && cd "$1-$2" || return
    begin
    sleep "$(echo "$2" | awk '{ print $1 / 1000 }')"
    kill -"$1" "$(cat process.$victim)"
    killed=$(now_ms)
    while is_left && [ $(($(now_ms) - killed)) -lt $((1000 * most)) ]; do sleep 0.05; done
    took=$(($(now_ms) - killed))
    release_launcher
    lines=$(grep -c '^looping_pipeline: ' err)
    {
        [ $status != 0 ] || only_aborted "$1" || echo 'status 0'
        [ $took -lt $((1000 * most)) ] || echo "took $took ms"
        ! is_left || echo "left: $(cat process.*)"
        [ "$1" = KILL ] || [ "$lines" = 1 ] || echo "$lines lines"
        # If the launcher hung and was killed, reports may be missing.
        [ -e hung ] || grep -q "process $victim \|coordinate $victim (\|process rank $victim " err ||
            only_aborted "$1" || echo "process $victim is not named"
    } >problem
    [ -s problem ] || rm problem
    kill -KILL $(cat process.*) 2>/dev/null
    cd ..
}

# moments SIGNAL MS...: all at once, or a few at a time.
moments() {
    signal=$1
    shift
    while [ $# -gt 0 ]; do
        some=
        for ms in "$@"; do
            [ "$(echo "$some" | wc -w)" -lt 8 ] || break
            (moment "$signal" "$ms") &
            some="$some $ms"
        done
        wait
        for ms in $some; do
            cp "$signal-$ms/err" err
            cat "$signal-$ms/problem" >out 2>/dev/null
            [ ! -e "$signal-$ms/problem" ] && [ -e "$signal-$ms/err" ]
            point "$signal after $ms ms"
            shift
        done
    done
}

# later COUNT SECONDS: moments of the seconds in which the run trains, from the second one on; SL_TEST_SEED draws others.
later() {
    awk -v seed="${SL_TEST_SEED:-1}" -v count="$1" -v seconds="$2" \
        'BEGIN { srand(seed); while (count-- > 0) print 1000 + int(1000 * seconds * rand()) }' | sort -nu
}

if [ "$SL_TEST_LONG" ]; then
    moments STOP $(seq 0 10 1000) $(later 40 7)
    moments KILL $(seq 0 10 1000) $(later 40 7)
else
    moments STOP 0 40 80 120 200 300 $(later 2 2)
    moments KILL 0 50 100 200 $(later 2 2)
fi
# One of four processes never starts MPI. The others wait for 30 s and half a second for each process, beyond 1 s.
timeout -s KILL 110 "$mpirun" 4 sh -c '[ "$OMPI_COMM_WORLD_RANK" != 1 ] || exec sleep 100; exec "$0" never' \
    "$tests/stand_still" >missing.out 2>missing.err </dev/null &
missing=$!
# stands_still MOMENT TEXT: the second of three processes stops at that moment.
stands_still() {
    timeout -s KILL 120 "$mpirun" 3 "$tests/stand_still" "$1" >out 2>err </dev/null
    status=$?
    [ $status = 3 ] && [ "$(grep -c '^stand_still: ' err)" = 1 ] && grep -qF -- "$2" err
    point "stopped $1 the run"
}
stands_still before 'has been stopped for 1 s, before the run began'
stands_still late 'coordinate 1 (data=1) is absent: no sign of it for 1 s, since '
stands_still in 'has been stopped for 1 s, while others wait for the end of the run'
stands_still after 'has been stopped for 1 s, before all have left MPI'

# finds_late MOMENT: the second of three processes stops; the third finds it 0.8 s after the first has reported it. The
# launcher, which would have ended it by then, is as slow: it stands still, too, until all is over.
finds_late() {
    mkdir "late-$1" && cd "late-$1" || return
    timeout -s KILL 60 "$mpirun" 3 sh -c '
        exec 2>err.$OMPI_COMM_WORLD_RANK
        echo $$ >process.$OMPI_COMM_WORLD_RANK
        case $OMPI_COMM_WORLD_RANK in 1) [ "$1" = after ] || kill -STOP $$ ;; 2) set -- "$1" 1.8 ;; esac
        exec "$0" "$@"' "$tests/stand_still" "$1" >out 2>err </dev/null &
    launcher=$!
    for try in $(seq 300); do
        grep -q '^State:.*T' "/proc/$(cat process.1 2>/dev/null)/status" 2>/dev/null && [ -s process.2 ] && break
        sleep 0.05
    done
    mpiruns=$(cat "/proc/$launcher/task/$launcher/children")
    kill -STOP $mpiruns
    for try in $(seq 300); do # until the first and the third have ended
        ! lives "$(cat process.0)" && ! lives "$(cat process.2)" && break
        sleep 0.05
    done
    kill -KILL $mpiruns $(cat process.1 process.0 process.2) 2>/dev/null
    wait $launcher 2>/dev/null
    cat err.* >err
    cd ..
    cp "late-$1/err" err
    [ "$(grep -c '^stand_still: ' err)" = 1 ]
    point "one process says so, though another one finds it later: stopped $1"
}
finds_late never # before MPI has started
finds_late after
for when in never unwatched-end; do # who leaves MPI unwatched leaves it, too
    timeout -s KILL 30 "$mpirun" 3 "$tests/stand_still" $when >out 2>err </dev/null
    status=$?
    [ $status = 0 ] && [ ! -s err ]
    point "nobody stands still: $when"
done
"$tests/stand_still" unwatched >out 2>err </dev/null
status=$?
[ $status = 3 ] && [ "$(wc -l <err)" = 1 ] && grep -q '^stand_still: engine mpi: the watchdog cannot start: ' err
point 'no thread can be started'
# The second process is no program of MPI's, and its environment has no rank.
timeout -s KILL 60 "$mpirun" 3 sh -c '[ "$OMPI_COMM_WORLD_RANK" != 1 ] || exec env -i /bin/sh -c "kill -STOP \$\$"; exec "$0" never' \
    "$tests/stand_still" >out 2>err </dev/null
status=$?
[ $status != 0 ] && [ "$(grep -c '^stand_still: ' err)" = 1 ] &&
    grep -q '^stand_still: engine mpi: MPI has not started within 1 s: a process (pid [0-9]*) has been stopped for 1 s$' err
point 'a process of unknown rank is stopped before MPI starts'
timeout -s KILL 30 "$mpirun" 3 "$tests/stand_still" lost >out 2>err </dev/null
status=$?
case $(mpirun --version) in
*HYDRA*) [ $status != 0 ] ;; # this launcher kills the others before they can say a word
*) [ $status != 0 ] && [ "$(grep '^stand_still: ' err)" = 'stand_still: coordinate 0 (data=0) is lost: its process has ended' ] ;;
esac
point 'the only coordinate is lost, and those beyond the mesh say so'

# If the launcher is killed, its processes end by themselves; none is left.
mkdir launcher
cd launcher
begin
tries=0
until [ -s out ] || [ $((tries += 1)) -gt 200 ]; do sleep 0.1; done
kill -KILL $(cat "/proc/$launcher/task/$launcher/children")
wait $launcher 2>/dev/null
tries=0
while is_left && [ $((tries += 1)) -le 100 ]; do sleep 0.1; done
! is_left
point 'the launcher is killed'
cd ..

wait $missing
status=$?
cp missing.err err
[ $status != 0 ] && [ "$(grep -c '^stand_still: ' err)" = 1 ] &&
    grep -q '^stand_still: engine mpi: MPI has not started within 33 s: not all processes have come, and none of this host is stopped$' err
point 'a process never starts MPI'

# Shared memory of these jobs; jobs whose launcher hung are left out, as it could not remove its own.
for job in */job; do
    [ -e "${job%job}hung" ] || ls /dev/shm | grep "segment\..*\.$(cat "$job")\." | sed "s|^|${job%/job}: |"
done >out
[ ! -s out ]
point 'no shared memory is left'

plan
