#!/bin/sh
# too_large.sh DRIVERS - runs that this machine's memory cannot hold are refused by their sizes: soon, and in an address
# space that has no room for anything large; --dry-run tells of them all the same. Prints TAP.
drivers=$1
. "$(dirname "$0")/../rigs/points.sh"

# In seconds; the check itself takes a hundredth of one.
limited="timeout 10 prlimit --as=2000000000"
tiny="--model-dimension 16 --n-heads 2 --latent-dim 8 --rope-dim 4 --sequence 8 --layers-per-block 1 --blocks 2"
huge="--model-dimension 65536 --n-heads 64 --blocks 4096"
for i in 1 2 3; do cat /usr/share/common-licenses/GPL-2; done >text

# refuses_size TEXT DRIVER ARGUMENT...: status 2, one line with TEXT in it.
refuses_size() {
    text=$1 driver=$2
    shift 2
    $limited "$drivers/$driver" "$@" >out 2>err </dev/null
    status=$?
    [ $status = 2 ] && [ ! -s out ] && [ "$(wc -l <err)" = 1 ] && grep -qF -- "$text" err
    point "refused: $driver $*"
}

# tells_size DRIVER ARGUMENT...: --dry-run reports the bytes of a coordinate.
tells_size() {
    driver=$1
    shift
    $limited "$drivers/$driver" "$@" --dry-run --json >out 2>err </dev/null
    status=$?
    [ $status = 0 ] && [ ! -s err ] && [ "$(grep -c '"state_bytes":' out)" = 8 ]
    point "told: $driver $* --dry-run"
}

has='this machine has'
refuses_size "$has" transformer train $tiny --data text $huge
refuses_size "$has" transformer train $tiny --data text $huge --layers-per-block 4096 --experts 4096 --expert-dim 262144
refuses_size "$has" transformer train $tiny --data text --vocab-size 16777216 --model-dimension 65536
refuses_size "$has" transformer train $tiny --data text --batch 1048576 --microbatches 8 \
    --vocab-size 1048576
refuses_size "$has" transformer train $tiny --data text --layers-per-block 2 --n-heads 1024 --model-dimension 1024 \
    --rope-dim 65536 --sequence 4096
refuses_size 'the run needs' transformer train $tiny --data text --model-dimension 2048 --lora-rank 65536
refuses_size "$has" transformer evaluate $tiny --data text $huge
refuses_size "$has" transformer generate $huge
refuses_size "$has" transformer generate --samples 4096 --length 1048576
refuses_size 'at most 2147483647' looping_pipeline --batch 1048576 --hidden 65536
refuses_size "$has" looping_pipeline --batch 1048576 --hidden 1024 --layers 4096
refuses_size "$has" looping_pipeline --hidden 16384 --layers 4096
refuses_size 'at most 2147483647' loss_equality --batch 1048576 --hidden 65536
refuses_size "$has" loss_equality --batch 1048576 --hidden 1024 --layers 4096

# Runs too large to be planned: three ways by sizes alone, each with its bytes.
names_three() {
    [ "$(grep -oE '(it would fit|, or) with [^()]* \([0-9.]* [MG]B\)' err | wc -l)" = 3 ]
    point "three ways to make it fit: $*"
}
refuses_size '; by sizes alone it would fit with --engine mpi --fsdp on 64 machines with more (' transformer train $tiny --data text $huge
names_three transformer train
refuses_size "$has" transformer evaluate $tiny --data text $huge
names_three transformer evaluate
refuses_size "$has" transformer generate $huge
names_three transformer generate
refuses_size "$has" looping_pipeline --hidden 16384 --layers 4096
names_three looping_pipeline

# The least bytes of a run, by sizes alone, are no more than its own plan.
far='--attention gqa --mlp silu --biases none --model-dimension 32768 --n-heads 256 --blocks 1 --layers-per-block 250 --batch 8 --microbatches 2'
for how in '' --no-fsdp '--no-fsdp --zero 2' '--no-fsdp --zero 0' '--no-fsdp --precision bf16 --storage bf16' '--optimizer sgd --momentum 0'; do
    set -- transformer train --data text --sequence 64 --mesh data=4 $far $how
    refuses_size 'the run needs at least' "$@"
    least=$(sed 's/.*needs at least \([0-9.]*\) GB.*/\1/' err)
    "$drivers/transformer" train --data text --sequence 64 --mesh data=4 $far $how --dry-run --json >out 2>err
    grep -o '"total":[0-9]*' out | awk -F: -v least="$least" '{ sum += $2 / 1e9 } END { exit !(least <= sum && least > 0.8 * sum) }'
    status="$?, at least $least"
    [ "${status%%,*}" = 0 ]
    point "sizes tell no more than the plan: $how"
done

tells_size transformer train $tiny --data text $huge --blocks 512
tells_size looping_pipeline --batch 1048576 --hidden 1024

# Arrays computed a microbatch at a time are no reason to refuse: here the examples do not fit in the limit.
prlimit --as=800000000 "$drivers/looping_pipeline" --mesh data=1,model=4 --schedule 1f1b --wgrad-group 1 --layers 64 \
    --hidden 1024 --batch 262144 --microbatches 4096 --steps 1 >out 2>err </dev/null
status=$?
[ $status = 2 ] && [ "$(wc -l <err)" = 1 ] && grep -q "the limit of this process's address space" err &&
    sed 's/.*the run needs \([0-9.]*\) GB.*/\1/' err | awk '{ exit !($1 > 1.7 && $1 < 8) }'
point 'kept are the activations of a few microbatches'

# The size of saved activations is known only after planning; no large memory is taken before.
refuses_size "$has" transformer train $tiny --data text --schedule gpipe --batch 1048576 --microbatches 8 --n-heads 64 \
    --model-dimension 4096
plan
