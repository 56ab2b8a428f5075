#!/bin/sh
# mpi_context.sh DRIVERS - sequences divided over processes: the bits of threads, and as many bytes as
# docs/transformer/long.md says; prints TAP.
drivers=$1
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

# numbers CALLS N: prints the numbers that calls named by CALLS (an extended regular expression) on N coordinates send
# for each token and step.
numbers() {
    tr '{' '\n' <out | grep -E "\"call\":\"($1)\"" | sed 's/.*"bytes":\([0-9.e+]*\).*/\1/' |
        awk -v coordinates="$2" -v rows=$((64 / $2)) '{ sum += $1 } END { printf "%.8g\n", sum / coordinates / rows / 4 }'
}

# sends N NUMBERS ARGUMENT...: on a mesh context=N a coordinate sends NUMBERS numbers for each of its tokens.
sends() {
    n=$1 wanted=$2
    shift 2
    run "$n" --mesh data=1,context="$n" --profile "$@"
    found=$(numbers 'all_gather|psum_scatter|all_to_all|ppermute' "$n")
    [ $status = 0 ] && [ "$found" = "$wanted" ]
    point "numbers of a token over context=$n: $found of $wanted: $*"
}

alike 2 --mesh data=1,context=2
alike 2 --mesh data=1,context=2 --context-by heads
alike 2 --mesh data=1,context=2 --context-by ring
alike 4 --mesh data=1,context=4 --context-by ring --attention gqa --kv-heads 2 --document-mask --document-token 32
alike 4 --mesh data=1,context=2,tensor=2 --context-by latents
alike 2 --mesh data=1,context=2 --exact context=4
mv processes two
alike 4 --mesh data=1,context=4 --exact context=4
cmp -s processes two
point 'and with --exact, those of another size'

# Latent attention without rotary positions: keys and values of 512 columns, queries and the output of 256. By heads, the
# tokens' places are gathered, too: 2. In a ring each coordinate tells the others what its two blocks see, 4 numbers for
# its 32 or 16 tokens. Processes of one machine write a gathered block once. Checked calls, as in debug builds, send
# signatures, too.
export SHARDLOOP_CHECKED=0
sends 2 1536 --rope-dim 0
sends 4 2560 --rope-dim 0
sends 2 1538 --rope-dim 0 --context-by heads
sends 4 2306 --rope-dim 0 --context-by heads
sends 2 1152.125 --rope-dim 0 --context-by ring
sends 4 3456.25 --rope-dim 0 --context-by ring
sends 2 192 --rope-dim 0 --context-by latents
sends 4 320 --rope-dim 0 --context-by latents
sends 2 384 --attention gqa --kv-heads 2
sends 2 288.125 --attention gqa --kv-heads 2 --context-by ring
sends 4 864.25 --attention gqa --kv-heads 2 --context-by ring
# With a window of 4, a block of 8 sees one other: 6 of the 8 blocks are sent, once each.
sends 4 288.25 --attention gqa --kv-heads 2 --context-by ring --window 4
run 4 --mesh data=1,context=4 --profile --attention gqa --kv-heads 2 --context-by ring --document-mask --document-token 32
found=$(numbers ppermute 4) # blanks end documents
[ $status = 0 ] && awk -v found="$found" 'BEGIN { exit !(found > 0 && found < 864) }'
point "blocks before documents are not sent: $found numbers instead of 864"
sends 2 962 --attention gqa --kv-heads 2 --context-by heads
plan
