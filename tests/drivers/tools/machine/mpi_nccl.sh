#!/bin/sh
# mpi_nccl.sh DRIVERS - drivers as processes that drive GPUs: the same results as from threads, told once; how runs end; prints
# TAP.
drivers=$1
mpirun=$(cd "$(dirname "$0")/../../.." && pwd)/mpirun
if ! command -v mpirun >/dev/null; then
    exec "$mpirun"
fi
. "$(dirname "$0")/../../../rigs/points.sh"

# run N ARGUMENT...: on N processes.
run() {
    processes=$1
    shift
    timeout 120 "$mpirun" "$processes" "$drivers/transformer" "$@" --engine nccl >out 2>err </dev/null
    status=$?
}

# digits FILE: its JSON without measured values.
digits() {
    grep '"step"' "$1" | sed 's/,"ms".*//;s/,"tokens_per_second.*//'
}

# trains_alike N ARGUMENT...: losses and gradients are the same bits as on the local engine.
model='--model-dimension 32 --n-heads 4 --blocks 2 --layers-per-block 1 --sequence 16 --latent-dim 8 --rope-dim 4'
small="train $model --batch 8 --microbatches 4 --json --clip 0.5"
trains_alike() {
    processes=$1
    shift
    rm -f gradients.local gradients.nccl
    "$drivers/transformer" $small --gradients gradients.local "$@" >local 2>err && digits local >expected
    run "$processes" $small --gradients gradients.nccl "$@"
    [ $status = 0 ] && [ ! -s err ] && [ -s expected ] && digits out | cmp -s - expected && cmp -s gradients.local gradients.nccl
    point "trains alike: $*"
}
trains_alike 2 --steps 2 --mesh pipe=2 --schedule 1f1b
trains_alike 2 --steps 2 --mesh data=2 --zero 1
trains_alike 4 --steps 1 --mesh data=2,pipe=2 --schedule interleaved-zb --checked
trains_alike 4 --steps 1 --mesh data=2,tensor=2 --fsdp --exact data=2,tensor=2
trains_alike 4 --steps 1 --microbatches 2 --mesh data=2,pipe=2 --exact data=4 --experts 4 --top-k 2

# ---- tokens ----

tokens="generate $model --prompt ab --length 12 --samples 4 --temperature 1 --json"
"$drivers/transformer" $tokens --mesh data=1 >local 2>err && grep '"sample"' local >expected
run 4 $tokens --mesh data=1,pipe=2,tensor=2
[ $status = 0 ] && [ "$(wc -l <err)" = 1 ] && [ "$(wc -l <expected)" = 4 ] && grep '"sample"' out | cmp -s - expected
point 'the same tokens'

# ---- how runs end ----

run 2 $small --mesh data=2,pipe=2
[ $status = 2 ] && [ ! -s out ] && [ "$(grep -c '^transformer train: ' err)" = 1 ] && grep -q 'needs 4 processes, the launcher has started 2' err
point 'too few processes'

# Once mpirun has seen that a process has died, it kills the others after so many seconds.
export OMPI_MCA_odls_base_sigkill_timeout=5
"$mpirun" 2 sh -c 'echo $$ >process.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; exec "$@"' begin "$drivers/transformer" $small \
    --mesh data=2 --steps 1000000 --metrics metrics --engine nccl >out 2>err </dev/null &
pid=$!
tries=0
until [ -s metrics ] || [ $((tries += 1)) -gt 300 ]; do sleep 0.1; done
kill -KILL "$(cat process.1)"
ends_in_time 1 30
ended=$status
tries=0
while lives "$(cat process.0)" && [ $((tries += 1)) -le 100 ]; do sleep 0.1; done
[ $ended != 0 ] && ! lives "$(cat process.0)" && case $(mpirun --version) in
*HYDRA*) ;; # it kills the others, too
*) [ "$(grep -c '^transformer train: ' err)" = 1 ] && grep -q 'coordinate 1 (.* is lost: its process has ended' err ;;
esac
point 'a process is killed'
plan
