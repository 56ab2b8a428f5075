# as_threads.sh - sourced by tests of transformers over processes, with $drivers: compares their bits with those of
# threads, and counts what they send.
mpirun=$(cd "$(dirname "$0")/../.." && pwd)/mpirun
if ! command -v mpirun >/dev/null; then
    exec "$mpirun"
fi
. "$(dirname "$0")/../../rigs/points.sh"
model='--blocks 1 --layers-per-block 1 --sequence 64 --batch 1 --vocab-size 128 --no-advice --steps 2 --zero 0 --no-fsdp'

# run N ARGUMENT...: trains on N processes, with ARGUMENT....
run() {
    processes=$1
    shift
    timeout 120 "$mpirun" "$processes" "$drivers/transformer" train $model --json "$@" --engine mpi >out 2>err </dev/null
    status=$?
}

# ---- bits ----

# alike N ARGUMENT...: N processes and N threads have the same losses and gradients.
alike() {
    processes=$1
    shift
    "$drivers/transformer" train $model --json --gradients threads "$@" >out 2>err </dev/null
    sed -n 's/.*"loss":\([^,]*\),.*/\1/p' out >expected
    run "$processes" "$@" --gradients processes
    sed -n 's/.*"loss":\([^,]*\),.*/\1/p' out >found
    [ $status = 0 ] && [ -s found ] && cmp -s found expected && cmp -s threads processes
    point "$processes processes, the bits of threads: $*"
}

# ---- bytes ----

# numbers CALLS N ROWS: prints the numbers that calls named by CALLS (an extended regular expression) on N coordinates
# send for each of a coordinate's ROWS tokens, in a step.
numbers() {
    tr '{' '\n' <out | grep -E "\"call\":\"($1)\"" | sed 's/.*"bytes":\([0-9.e+]*\).*/\1/' |
        awk -v coordinates="$2" -v rows="$3" '{ sum += $1 } END { printf "%.8g\n", sum / coordinates / rows / 4 }'
}
