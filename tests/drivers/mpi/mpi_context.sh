#!/bin/sh
# mpi_context.sh DRIVERS - sequences divided over processes: the bits of threads, and as many bytes as
# docs/transformer/long.md says; prints TAP.
drivers=$1
. "$(dirname "$0")/as_threads.sh"

# sends N NUMBERS ARGUMENT...: on a mesh context=N a coordinate sends NUMBERS numbers for each of its tokens.
sends() {
    n=$1 wanted=$2
    shift 2
    run "$n" --mesh data=1,context="$n" --profile "$@"
    found=$(numbers 'all_gather|psum_scatter|all_to_all|ppermute' "$n" $((64 / n)))
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
found=$(numbers ppermute 4 16) # blanks end documents
[ $status = 0 ] && awk -v found="$found" 'BEGIN { exit !(found > 0 && found < 864) }'
point "blocks before documents are not sent: $found numbers instead of 864"
sends 2 962 --attention gqa --kv-heads 2 --context-by heads
plan
