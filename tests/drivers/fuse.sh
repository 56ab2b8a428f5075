#!/bin/sh
# fuse.sh DRIVERS - runs of microbatches: the same bits as one microbatch after the other, in every layout; prints TAP.
drivers=$1
. "$(dirname "$0")/../rigs/points.sh"

# fuses RUN DRIVER ARGUMENT...: gradients and output are the same as without fusion.
fuses() {
    run=$1
    driver=$drivers/$2
    name=$2
    shift 2
    command=
    [ "$name" = transformer ] && command=train
    call $command "$@" --steps 3 --json --gradients apart --no-fuse
    grep '"step"' out | sed 's/,"ms".*//;s/"tokens_per_second.*//' >alone
    grep -q '"fused":1[,}]' out || status=9
    [ $status = 0 ] && call $command "$@" --steps 3 --json --gradients together --fuse "$run"
    grep '"step"' out | sed 's/,"ms".*//;s/"tokens_per_second.*//' >joined
    [ $status = 0 ] && grep -q "\"fused\":$run[,}]" out && [ -s alone ] && cmp -s alone joined && cmp -s apart together
    point "runs of $run: $name $*"
}

small='--hidden 48 --layers 8 --batch 64'
fuses 8 looping_pipeline $small
fuses 4 looping_pipeline $small
fuses 2 looping_pipeline $small --schedule plain --expansion 3 --wgrad-group 1
fuses 4 looping_pipeline $small --schedule plain --mesh data=2,model=2 --recompute full --wgrad-group 1
fuses 2 looping_pipeline $small --schedule looped-dfs --mesh data=1,model=2 --loops 2
fuses 8 looping_pipeline $small --schedule single --mesh data=2,model=1 --rng global --accumulate 2
fuses 8 looping_pipeline $small --schedule plain --precision bf16 --rng global --recompute selective
fuses 4 looping_pipeline --hidden 832 --layers 2 --batch 160 --microbatches 4 --schedule plain --mesh data=1,model=2
fuses 2 looping_pipeline --hidden 96 --layers 2 --batch 160 --microbatches 4 --schedule plain --mesh data=1,model=1 --precision bf16

model='--model-dimension 32 --n-heads 4 --blocks 2 --layers-per-block 2 --sequence 16 --latent-dim 8 --rope-dim 4'
model="$model --batch 16 --microbatches 4 --schedule gpipe --dropout 0.1"
fuses 4 transformer $model --mesh data=1
fuses 4 transformer $model
fuses 2 transformer $model --mesh data=2,pipe=2 --recompute full
fuses 4 transformer $model --mesh pipe=2,tensor=2 --storage bf16
fuses 4 transformer $model --mesh pipe=2,tensor=2 --recompute selective --vocabulary-parallel
fuses 4 transformer $model --mesh tensor=4 --sequence 12 --no-fsdp
fuses 4 transformer $model --mesh data=2,tensor=2 --experts 4 --top-k 2 --shared-experts 1
fuses 4 transformer $model --mesh data=2,tensor=2 --precision bf16 --loops 2 --schedule looped-bfs --blocks 4 --mesh pipe=2,tensor=2

# ---- length of a run, and reports of it ----

driver=$drivers/looping_pipeline
call $small --steps 2 --profile
grep -qE '^a forward and an input gradient take [0-9]+ of 8 microbatches at once$' out
point 'the profile says how many are fused'
call $small --steps 2 --json --schedule 1f1b
[ $status = 0 ] && grep -q '"fused":1[,}]' out
point 'nothing is fused where forwards and backwards take turns'
call $small --schedule plain --mesh data=1,model=1 --steps 2 --json
[ $status = 0 ] && grep -q '"fused":8[,}]' out
point 'without a pipeline all microbatches are'

refuses '--fuse 3: 8 microbatches do not divide into runs of so many' $small --fuse 3
refuses '--fuse: is read only without --no-fuse' $small --fuse 4 --no-fuse
refuses '--fuse 2: schedule 1f1b does not have 2 microbatches next to each other everywhere' \
    $small --schedule 1f1b --fuse 2

driver=$drivers/looping_pipeline
call $small --steps 3 --trace trace --fuse 4
driver=$drivers/schedule
call --name looped-bfs --stages 4 --loops 2 --microbatches 8 --compare trace --json
[ $status = 0 ] && grep -q '"measured' out
point 'a trace of fused microbatches is compared with the fused schedule'
sed 's/"run": *4/"run":3/' trace >other
call --name looped-bfs --stages 4 --loops 2 --microbatches 8 --compare other
[ $status = 2 ] && [ "$(wc -l <err)" = 1 ] && grep -q 'has no runs of 3 microbatches' err
point 'and with no other runs'

# ---- layers ----

# rewrites DRIVER ARGUMENT...: without fused layers the losses are the same to three digits; products round at other places.
rewrites() {
    driver=$drivers/$1
    name=$1
    shift
    command=
    [ "$name" = transformer ] && command=train
    for how in '' --no-rewrite; do
        call $command "$@" --steps 2 --json $how
        [ $status = 0 ] && sed -n 's/.*"loss":\([0-9.]\{5\}\).*/\1/p' out >losses$how || status=9
    done
    [ $status = 0 ] && [ "$(wc -l <losses)" -ge 2 ] && cmp -s losses losses--no-rewrite
    point "no layers are fused: $name $*"
}

rewrites looping_pipeline $small --mesh data=1,model=1
rewrites transformer $model --mesh data=1 --precision bf16
driver=$drivers/looping_pipeline
refuses '--no-rewrite=1: takes no value' --no-rewrite=1

plan
