#!/bin/sh
# context.sh DRIVERS - --exact context=N: losses and gradients have the same bits whatever the size of the context axis,
# beside leaves of data and tensor; their journals, memory, and refusals; prints TAP.
drivers=$1
. "$(dirname "$0")/../../rigs/points.sh"
. "$(dirname "$0")/layouts.sh"
driver=$drivers/transformer

small='--model-dimension 32 --n-heads 4 --blocks 1 --layers-per-block 2 --sequence 64 --vocab-size 128 --batch 8 --steps 3'
small="transformer train $small --no-advice"

begins 'latent attention' "$small --exact context=8 --dropout 0.1 --clip 0.5 --evaluate-every 2" --mesh data=1
same --mesh context=2
same --mesh context=8 --check-replicas --checked
same --mesh context=4,pipe=2 --schedule interleaved-zb --recompute full
same --mesh context=2,pipe=2 --schedule gpipe --no-fuse --no-overlap
same --mesh pipe=2 --recompute selective

begins 'beside leaves of data' "$small --exact context=4,data=4" --mesh data=1
same --mesh data=4,context=2
same --mesh data=2,context=2 --zero 0
same --mesh data=1,context=4
same --mesh data=2,context=2,pipe=2 --accumulate 2

begins 'grouped attention, windows' "$small --attention gqa --kv-heads 2 --window 20 --exact context=4 --storage bf16" --mesh data=1
same --mesh context=2,pipe=2
same --mesh context=4 --recompute full

begins 'beside leaves of channels' "$small --attention gqa --exact context=4,tensor=2 --precision bf16" --mesh data=1
same --mesh tensor=2
same --mesh context=2,tensor=2
same --mesh tensor=2,data=1,context=4

begins 'documents' "$small --document-mask --document-token 98 --exact context=4 --accumulate 2 --wgrad-group 2" --mesh data=1
same --mesh context=4
same --mesh context=2,pipe=2

begins 'adapters' "$small --attention gqa --lora-rank 4 --exact context=2" --mesh data=1
same --mesh context=2

begins 'dropout beside leaves of data' "$small --exact context=2,data=2 --dropout 0.3" --mesh data=1,context=1
same --mesh context=2
same --mesh data=2,context=2 --microbatches 2
same --mesh data=1,context=2,pipe=2 --offload optimizer

begins 'by default' "$small --exact data=2" --mesh data=1,context=2
same --mesh data=2,context=2

# ---- journals ----

call train ${small#transformer train} --exact context=4 --mesh data=1 --journal one
call train ${small#transformer train} --exact context=4 --mesh context=4 --journal four
"$drivers/diff" one four --json >out 2>err
status=$?
[ $status = 0 ] && grep -q '"equal":true' out
point 'journals are equal'
call train ${small#transformer train} --exact context=2 --mesh context=2 --journal two
"$drivers/diff" one two --json >out 2>err
grep -q '"equal":false' out
point 'with other leaves they are not'

# ---- results that are not finite ----

for name in 'microbatch --mesh data=1' 'block --exact context=2 --mesh data=1'; do
    call train ${small#transformer train} --steps 30 --lr 1e6 --optimizer sgd ${name#* }
    [ $status != 0 ] && [ "$(wc -l <err)" = 1 ] && grep -qE "stage 0, ${name%% *} [0-9]+, at coordinate 0" err
    point "found in a ${name%% *}"
done

# ---- memory ----

call train ${small#transformer train} --exact context=4 --mesh data=1,context=2 --dry-run --json
values total >planned
call train ${small#transformer train} --exact context=4 --mesh data=1,context=2 --profile --json
sed -n 's/.*"memory":\[\(.*\)\],"processes.*/\1/p' out | tr '{' '\n' | sed -n 's/.*"total":\([0-9]*\).*/\1/p' >held
[ $status = 0 ] && [ -s held ] && cmp -s planned held
point 'planned bytes are held'

# ---- refusals: one line each ----

# wrong TEXT ARGUMENT...: status 2, nothing on stdout, one line with TEXT on stderr.
wrong() {
    text=$1
    shift
    call train ${small#transformer train} "$@"
    [ $status = 2 ] && [ ! -s out ] && [ "$(wc -l <err)" = 1 ] && grep -qF -- "$text" err
    point "refused: $*"
}
wrong '--exact context=64: a leaf has 2 blocks of each sequence, and 64 tokens (--sequence) do not divide into 128' --exact context=64
wrong '--exact context=3: it must be 1, 2, 4, ..., and context=1 coordinates have equally many leaves' --exact context=3
wrong '--exact context=2: it must be 1, 2, 4, ..., and context=4 coordinates have equally many leaves' --mesh context=4 --exact context=2
wrong '--exact pipe=2: only the axes data, tensor and context have leaves' --exact pipe=2
wrong 'mla.rope: the gradient of a key' --rope-dim 4 --exact context=2,tensor=2
for option in '--experts 4' --fsdp '--spread-head rows'; do
    wrong "--exact context=N: ${option% *} does not go" --exact context=2 $option
done
wrong '--exact context=N: --offload activations does not go' --exact context=2 --offload activations
wrong '--exact context=N: --zero 2 does not go' --exact context=2 --zero 2
wrong 'mesh axis "context": --zero 2 does not take sequences' --mesh context=2 --exact data=1 --zero 2
plan
