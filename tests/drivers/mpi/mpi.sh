#!/bin/sh
# mpi.sh DRIVERS [core] - drivers as processes: the same results as from threads, told once; how runs end; prints TAP. With
# core, the few of these that sanitizers have the time for.
drivers=$1
mpirun=$(cd "$(dirname "$0")/../.." && pwd)/mpirun
if ! command -v mpirun >/dev/null; then
    exec "$mpirun"
fi
. "$(dirname "$0")/../../rigs/points.sh"
size='--hidden 64' # bits do not depend on it, and sanitizers are slow

# run N DRIVER ARGUMENT...: runs DRIVER on N processes.
run() {
    processes=$1 driver=$2
    shift 2
    timeout 120 "$mpirun" "$processes" "$drivers/$driver" "$@" --engine mpi >out 2>err </dev/null
    status=$?
}

# says TEXT...: one process has printed one line, which contains each TEXT; the launcher's own lines do not count.
says() {
    [ "$(grep -c "^$driver: " err)" = 1 ] || return 1
    for text in "$@"; do
        grep -qF -- "$text" err || return 1
    done
}

# fails NAME STATUS TEXT...: the last run ended with STATUS and a line with each TEXT, and printed no results.
fails() {
    name=$1
    wanted=$2
    shift 2
    [ $status = "$wanted" ] && says "$@" && [ ! -s out ]
    point "$name"
}

# ---- the same results ----

# results FILE: its JSON without measured values and predictions from them.
results() {
    sed -E 's/,"median_ms":[^,]*,"held_bytes":[0-9]*(,"predicted":\{[^}]*\})?(,"measured_bubble":[^,}]*)?//g' "$1"
}

# trains_alike N ARGUMENT...: losses and gradients are the same bits as on the local engine.
small='--hidden 64 --batch 48 --microbatches 4 --steps 3 --json'
trains_alike() {
    processes=$1
    shift
    rm -f gradients.local gradients.mpi
    "$drivers/looping_pipeline" $small --gradients gradients.local "$@" | sed 's/,"ms".*//; s/,"first_step_ms".*//' >expected
    run "$processes" looping_pipeline $small --gradients gradients.mpi "$@"
    sed 's/,"ms".*//; s/,"first_step_ms".*//' out >got
    [ $status = 0 ] && [ ! -s err ] && cmp -s got expected && cmp -s gradients.local gradients.mpi
    point "trains alike: $*"
}
if [ "${2-}" = core ]; then
    trains_alike 4 --schedule 1f1b --mesh data=2,model=2 --fsdp --recompute full --steps 1 --checked
    run 8 gpipe --fail 1@F2 --json
    fails 'a coordinate that fails' 3 'coordinate 1 (pipe=1): fails before 1F2'
    plan
    exit
fi

"$drivers/loss_equality" --json $size | results - >expected
run 8 loss_equality --json $size
[ $status = 0 ] && [ ! -s err ] && [ "$(grep -o '"predicted":{"ms":[0-9]' out | wc -l)" = 3 ] && results out | cmp -s - expected
point 'loss_equality prints the same bits'

"$drivers/loss_equality" --json --hidden 64 --single-mesh data=2,model=1 | results - >expected
run 8 loss_equality --json --hidden 64 --single-mesh data=2,model=1
[ $status = 0 ] && [ ! -s err ] && results out | cmp -s - expected && grep -q '"bit_identical":true' out
point 'processes beyond the mesh look on'

trains_alike 8 --schedule looping
trains_alike 8 --schedule plain --mesh data=2,model=4 --zero 0 --no-overlap
trains_alike 8 --schedule looping --mesh data=4,model=2 --zero 2
trains_alike 8 --schedule single
trains_alike 4 --schedule 1f1b --mesh data=2,model=2 --storage bf16
trains_alike 6 --schedule looping --mesh data=3,model=2 --storage bf16 --zero 2 --check-replicas
trains_alike 4 --schedule 1f1b --mesh data=2,model=2 --storage bf16 --zero 0
trains_alike 6 --schedule 1f1b --mesh data=3,model=2 --wgrad-group 2 --checked
trains_alike 4 --schedule interleaved-zb --mesh model=4 --dropout 0.3
trains_alike 4 --schedule zbv --mesh data=2,model=2 --precision bf16
trains_alike 4 --schedule 1f1b --mesh data=2,model=2 --fsdp --recompute full --accumulate 2 --clip 0.1
trains_alike 6 --schedule 1f1b --mesh data=6,model=1 --exact data=12 --microbatches 2 --zero 2 --clip 0.1
trains_alike 2 --schedule dualpipev --mesh model=2 --microbatches 6 --checked
trains_alike 4 --schedule dualpipe --mesh model=4 --batch 64 --microbatches 8 --checked

# A journal has the same hashes, whoever computes.
"$drivers/looping_pipeline" $small --mesh data=2,model=2 --journal threads >out 2>err
run 4 looping_pipeline $small --mesh data=2,model=2 --journal processes
went=$status
"$drivers/diff" threads processes >out 2>err
status=$?
[ $went = 0 ] && [ $status = 0 ] && [ ! -s err ] && grep -q '^B: .*, engine mpi$' out && grep -q '^steps 0 to 2: equal$' out
point 'journals of threads and of processes are equal'

# Processes that share cores: a step takes at least their products, one process after another on each core.
cores=$(getconf _NPROCESSORS_ONLN)
run 16 looping_pipeline --mesh data=8,model=2 --batch 128 --steps 4 --json --no-advice
sed -n 's/.*"predicted":{"ms":\([-+.e0-9]*\),.*"products_ms":\([-+.e0-9]*\).*/\1 \2/p' out >predicted
[ $status = 0 ] && [ -s predicted ] && awk -v cores="$cores" '{ exit !($1 >= 0.9 * $2 * (cores < 16 ? 16 / cores : 1)) }' predicted
point 'a forecast knows the cores that processes share'

# ---- a machine, measured between processes, and a search under it ----

run 2 plan measure --brief --save measured.json
[ $status = 0 ] && [ ! -s err ] && grep -q '^2 places on 1 node' out && grep -q '"places": 2' measured.json
point 'a machine is measured once'
"$drivers/looping_pipeline" $small --plan search --devices 2 --engine mpi --machine measured.json --save-options best >out 2>err
[ $? = 0 ] && [ ! -s err ] && grep -q '"layout"' out
point 'a search for processes takes what was measured between them'
run 2 looping_pipeline @best --steps 2
[ $status = 0 ] && [ ! -s err ] && [ "$(grep -c '"step"' out)" = 2 ]
point 'and its best layout runs'
run 2 looping_pipeline $small --plan search --machine measured.json
fails 'processes do not search' 2 '--plan: not with engine mpi: search without a launcher'

run 8 looping_pipeline $small --layers 16 --fsdp --metrics metrics --trace trace --profile
[ $status = 0 ] && [ ! -s err ] && [ "$(grep -c '"step"' metrics)" = 3 ] && [ "$(grep -c '"accounted"' out)" = 8 ] &&
    [ "$(grep -c '"sent":\[{"call":"[a-z_]*","by":"memory","messages":[0-9.]*,"bytes":[0-9.]*,"bells":[0-9]' out)" = 8 ]
point 'metrics once, a profile of every coordinate with its messages'
"$drivers/schedule" --compare trace >compared 2>err
[ $? = 0 ] && [ ! -s err ] && [ "$(grep -c 'predicted' compared)" -ge 4 ] && grep -q ' gathering ' compared &&
    "$drivers/schedule" --compare trace --format svg 2>err | grep -q '>measured: stage 9, gathering, '
status=$?
[ $status = 0 ] && [ ! -s err ]
point 'a trace of every coordinate'
python3 "$(dirname "$mpirun")/drivers/trace.py" trace 8 metrics >out 2>err
status=$?
[ $status = 0 ]
point "arrows between processes ($(cat out))"
# Each process has its own slots of a channel and its own values of a replica; threads share them.
alike() {
    sed -E 's/"(state_bytes|activation_bytes|besides|parameters|handover)":[0-9]*,//g; s/,"total":[0-9]*//'
}
all_of() { sed -n 's/.*"'"$1"'":\([0-9]*\).*/\1/p' | awk '{ sum += $1 } END { printf "%.0f\n", sum }'; }
run 8 looping_pipeline --dry-run --json
"$drivers/looping_pipeline" --dry-run --json >expected
[ $status = 0 ] && [ ! -s err ] && [ "$(alike <out)" = "$(alike <expected)" ] &&
    [ "$(all_of handover <out)" -gt "$(all_of handover <expected)" ] &&
    [ "$(all_of parameters <out)" = $((2 * $(all_of parameters <expected))) ]
point "every coordinate's memory"
run 2 transformer train --mesh data=1,pipe=2 --steps 2 --json
grep -o '"processes":.*"options"' out | grep -qE '"coordinates":\[0\].*"coordinates":\[1\]'
point 'what every process consists of'
run 4 transformer train --mesh data=2,pipe=2 --model-dimension 1024 --n-heads 16 --batch 8192 --sequence 1024 --schedule gpipe
driver='transformer train'
fails 'more than the machine has' 2 'the run needs' 'of it at coordinate' 'this machine has' '; it would fit with --'
run 8 sharding --json
"$drivers/sharding" --json >expected
[ $status = 0 ] && [ ! -s err ] && cmp -s out expected
point 'sharding prints the same'
run 8 looping_pipeline --show-placement --json
[ $status = 0 ] && [ ! -s err ] && [ "$(grep -c '"pus":\[[0-9]' out)" = 8 ]
point 'where every process runs'
run 8 gpipe --json
[ $status = 0 ] && [ ! -s err ] && grep -q '"tensor_gradient"' out
point 'gpipe compares in one process'

# ---- bad input ----

driver=looping_pipeline
timeout 60 "$mpirun" 4 "$drivers/$driver" >out 2>err </dev/null
status=$?
fails 'nobody has asked for an engine' 2 '4 processes were started by mpirun, but --engine is local' 'use --engine mpi'
timeout 60 "$mpirun" 2 "$drivers/$driver" --hidden 0 >out 2>err </dev/null
status=$?
fails 'a bad option is told once' 2 '--hidden: "0" is not'
driver=sharding
timeout 60 "$mpirun" 2 "$drivers/$driver" --engine local --json >out 2>err </dev/null
status=$?
# The launcher may pass on a piece of one process's line within the other's.
says '2 processes were started by mpirun, and with --engine local each runs on its own' && [ $status = 0 ] &&
    [ "$(wc -c <out)" = "$(($("$drivers/sharding" --json | wc -c) * 2))" ]
point 'engine local, since somebody asked for it'

# launched VARIABLE=VALUE DRIVER: starts the process that prints, as a launcher that sets VARIABLE starts it.
launched() {
    driver=$2
    env "$1" SLURM_PROCID=0 SLURM_NTASKS=4 "$drivers/"$driver --json >out 2>err </dev/null
    status=$?
}
for program in looping_pipeline loss_equality 'transformer train' 'transformer generate' sharding gpipe; do
    launched OMPI_COMM_WORLD_SIZE=4 "$program"
    fails "$program: nobody has asked for an engine" 2 '4 processes were started by mpirun'
done
launched PMI_SIZE=2 sharding
fails "MPICH's launcher" 2 '2 processes were started by mpirun'
launched SLURM_STEP_NUM_TASKS=3 sharding
fails 'srun' 2 '3 processes were started by srun'
for variable in SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=1 OMPI_COMM_WORLD_SIZE=1; do # an allocation's shell, and one process
    launched $variable sharding
    [ $status = 0 ] && [ ! -s err ]
    point "$variable is a run"
done
launched OMPI_COMM_WORLD_SIZE=4 schedule
[ $status = 0 ] && [ ! -s err ]
point 'a driver without engines'
run 2 looping_pipeline
fails 'too few processes' 2 'the mesh data=2,model=4 needs 8 processes, the launcher has started 2'
run 3 looping_pipeline --mesh data=1,model=2
fails 'too many processes' 2 'the mesh data=1,model=2 needs 2 processes, the launcher has started 3'
driver=looping_pipeline
timeout 60 "$drivers/$driver" --engine mpi >out 2>err </dev/null
status=$?
fails 'without a launcher' 2 'start it by mpirun -n 8'
driver=gpipe
timeout 60 "$drivers/$driver" --engine mpi >out 2>err </dev/null
status=$?
fails 'the largest of several meshes' 2 'the mesh pipe=2,tensor=4 needs 8 processes'
driver=looping_pipeline
run 2 looping_pipeline --hidden 0
fails 'an option before all others' 2 '--hidden: "0" is not'
run 2 looping_pipeline --mesh data=1,model=2 --batch 100
fails 'numbers that do not divide' 2 '--microbatches 8'
run 2 looping_pipeline --mesh data=1,model=2 --delay-ms 1
fails 'delays' 2 '--delay-ms: only engine local has delays, not mpi'
run 2 looping_pipeline --mesh data=1,model=2 --gradients /nowhere/gradients
fails 'a file that only the first process needs' 2 '/nowhere/gradients'

# ---- failures ----

run 8 gpipe --fail 1@F2 --json
fails 'a coordinate that fails' 3 'coordinate 1 (pipe=1): fails before 1F2'
run 4 looping_pipeline --mesh data=2,model=2 --lr 1000000 --steps 100 --json
[ $status = 3 ] && says 'is not finite'
point 'a loss that is not finite'

# on_full RANK ARGUMENT...: four processes; RANK has a disk of 64 KB in place of a folder.
on_full() {
    rank=$1 driver=looping_pipeline
    shift
    rm -rf disk
    mkdir disk
    timeout 120 unshare -rm "$mpirun" 4 sh -c '[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" != "$0" ] || exec unshare -m sh -c "mount -t tmpfs -o size=64k none disk && exec \"\$@\"" sh "$@"; exec "$@"' \
        "$rank" "$drivers/$driver" --engine mpi --mesh data=2,model=2 --layers 4 --hidden 64 --json "$@" >out 2>err </dev/null
    status=$?
}
if unshare -rm sh -c 'mount -t tmpfs none /mnt' 2>/dev/null; then
    on_full 0 --steps 2 --save disk/saved
    [ $status = 3 ] && says 'disk/saved/step-00000002.safetensors' 'No space left on device'
    point 'the disk of the process that saves is full'
    on_full 2 --steps 100 --journal disk/journal --journal-messages 100
    [ $status = 3 ] && says 'disk/journal' 'No space left on device' 'coordinate 2 ('
    point 'the disk of another one is full'
else
    echo '# SKIP mounts are not allowed here'
fi

# begin ARGUMENT...: starts eight processes in the background, which write their ids; returns when they train. $to: the
# file of each one's output, if it is not the launcher.
to=/dev/stdout
begin() {
    driver=looping_pipeline
    rm -f out err process.* metrics
    "$mpirun" 8 sh -c 'to=$1; shift; echo $$ >process.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; exec "$@" >$to' begin "$to" \
        "$drivers/$driver" --engine mpi --steps 1000000 --json $size "$@" >out 2>err </dev/null &
    launcher=$!
    tries=0
    until [ -s out ] || [ -s metrics ] || [ $((tries += 1)) -gt 200 ]; do sleep 0.1; done
}

# ends_in_time: the launcher ends within seconds. Many processes on few cores have more time.
ends_in_time() {
    (sleep 20 && kill -KILL $launcher $(cat process.*)) >/dev/null 2>&1 &
    guard=$!
    wait $launcher
    status=$?
    kill $guard 2>/dev/null
}

# none_left: within seconds no process is left, except zombies.
none_left() {
    tries=0
    for file in process.*; do
        while lives "$(cat "$file")"; do
            [ $((tries += 1)) -le 50 ] || return 1
            sleep 0.1
        done
    done
}

# survivors_say TEXT...: as says, except with MPICH: when a process is killed, its launcher kills the others before they
# can print.
survivors_say() {
    case $(mpirun --version) in
    *HYDRA*) ;;
    *) says "$@" ;;
    esac
}

for rank in 5 0; do
    begin
    kill -KILL "$(cat process.$rank)"
    ends_in_time
    [ $status != 0 ] && none_left && survivors_say "coordinate $rank (" 'is lost: its process has ended' ' waits for coordinate '
    point "process $rank is killed"
done
begin
kill -KILL "$(cat process.3)" "$(cat process.6)"
ends_in_time
[ $status != 0 ] && none_left && survivors_say 'is lost: its process has ended' ' waits for coordinate '
point 'two processes are killed at once'

begin --timeout 2
kill -STOP "$(cat process.3)"
ends_in_time
kill -KILL "$(cat process.3)" 2>/dev/null
[ $status != 0 ] && none_left && says 'coordinate 3 (data=0, model=3) is absent: no sign of it for 2 s' 'waits for coordinate 3 in '
point 'process 3 stands still'
tail -n 1 out >last && grep -q '^{"verdict":"coordinate 3 (data=0, model=3) is absent: .*","coordinates":\[{"coordinate":0,' last &&
    grep -q '"state":"waits","waits_for":3,"call":"[a-z ]*","object":"[^{}]*","site":"[^{}]*\.c:[0-9]*",.*"step":[0-9]' last &&
    grep -q '{"coordinate":3,"state":"unknown"}' last && [ "$(grep -o '"state":' last | wc -l)" = 8 ]
point 'and the last object tells who waits for whom'

begin
kill -TERM "$(cat process.2)"
ends_in_time
[ $status = 0 ] && none_left && [ ! -s err ] && tail -n 1 out | grep -q '"interrupted":true'
point 'SIGTERM ends the run after the step'

export OMPI_MCA_odls_base_sigkill_timeout=8 # mpirun gives a second; a step can take it if others compute, too
# Open MPI's mpirun stops reading the processes' output at once, and a process that writes to it waits. So they write to
# a file.
to=/dev/null begin --metrics metrics
unset OMPI_MCA_odls_base_sigkill_timeout
kill -INT $launcher
ends_in_time
none_left && ! grep -q "^$driver: " err && tail -n 1 metrics | grep -q '"interrupted":true'
point 'so does SIGINT for the launcher'

plan
