#!/bin/sh
# mpi_tensor_layout.sh DRIVERS - --tensor-layout over processes: the bits of threads, and as many bytes as
# docs/transformer/rows.md says; prints TAP.
drivers=$1
mpirun=$(cd "$(dirname "$0")/../.." && pwd)/mpirun
if ! command -v mpirun >/dev/null; then
    exec "$mpirun"
fi
. "$(dirname "$0")/../../rigs/points.sh"
model='--layers-per-block 1 --sequence 64 --batch 1 --vocab-size 128 --no-advice --steps 2 --zero 0 --no-fsdp'

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
    "$drivers/transformer" train $model --blocks 1 --json --gradients threads "$@" >out 2>err </dev/null
    sed -n 's/.*"loss":\([^,]*\),.*/\1/p' out >expected
    run "$processes" --blocks 1 "$@" --gradients processes
    sed -n 's/.*"loss":\([^,]*\),.*/\1/p' out >found
    [ $status = 0 ] && [ -s found ] && cmp -s found expected && cmp -s threads processes
    point "$processes processes, the bits of threads: $*"
}
alike 2 --mesh data=1,tensor=2 --tensor-layout rows
alike 4 --mesh data=1,pipe=2,tensor=2 --tensor-layout rows --attention gqa --kv-heads 2 --batch 2 --blocks 2
alike 4 --mesh data=2,tensor=2 --tensor-layout rows --attention gqa --batch 2 --fsdp

# ---- bytes ----

# numbers N: prints the numbers that a coordinate of N sends for each token and step, without sums of gradients, whose
# size does not depend on the tokens.
numbers() {
    tr '{' '\n' <out | grep -E '"call":"(all_gather|psum_scatter|all_to_all)"' | sed 's/.*"bytes":\([0-9.e+]*\).*/\1/' |
        awk -v coordinates="$1" '{ sum += $1 } END { printf "%.8g\n", sum / coordinates / 64 / 4 }'
}

# sends N LAYOUT NUMBERS ARGUMENT...: on a mesh tensor=N a coordinate sends NUMBERS numbers for each token in a layer.
sends() {
    n=$1 layout=$2 wanted=$3
    shift 3
    for blocks in 1 2; do
        run "$n" --blocks $blocks --mesh data=1,tensor="$n" --tensor-layout "$layout" --profile --microbatches 1 "$@"
        numbers "$n" >>counted
    done
    found=$(awk '{ layer = $1 - layer } END { printf "%.8g\n", layer }' counted)
    rm counted
    [ $status = 0 ] && [ "$found" = "$wanted" ]
    point "numbers of a token and layer over tensor=$n: $found of $wanted by $layout: $*"
}
export SHARDLOOP_CHECKED=0
gated='--attention gqa --kv-heads 4 --mlp silu --biases none'
# Between processes of one machine, a member of a gather writes its block once.
sends 2 columns 2304 --attention gqa
sends 2 rows 1280 --attention gqa
sends 4 columns 2304 --attention gqa
sends 4 rows 1152 --attention gqa
sends 2 columns 3072 $gated
sends 2 rows 1280 $gated
sends 2 rows 896 --attention gqa --precision bf16 --storage bf16 # gathers of bf16
sends 2 columns 2432
sends 2 rows 1024
sends 4 columns 2432
sends 4 rows 960
plan
