#!/bin/sh
# mpi_tensor_layout.sh DRIVERS - --tensor-layout over processes: the bits of threads, and as many bytes as
# docs/transformer/rows.md says; prints TAP.
drivers=$1
. "$(dirname "$0")/as_threads.sh"

alike 2 --mesh data=1,tensor=2 --tensor-layout rows
alike 4 --mesh data=1,pipe=2,tensor=2 --tensor-layout rows --attention gqa --kv-heads 2 --batch 2 --blocks 2
alike 4 --mesh data=2,tensor=2 --tensor-layout rows --attention gqa --batch 2 --fsdp

# sends N LAYOUT NUMBERS ARGUMENT...: on a mesh tensor=N a coordinate sends NUMBERS numbers for each token in a layer,
# without sums of gradients, whose size does not depend on the tokens.
sends() {
    n=$1 layout=$2 wanted=$3
    shift 3
    for blocks in 1 2; do
        run "$n" --blocks $blocks --mesh data=1,tensor="$n" --tensor-layout "$layout" --profile --microbatches 1 "$@"
        numbers 'all_gather|psum_scatter|all_to_all' "$n" 64 >>counted
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
