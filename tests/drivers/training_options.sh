#!/bin/sh
# training_options.sh DRIVERS DEVICE - effects of the options that all training drivers share, in each; prints TAP.
drivers=$1 device=$2
. "$(dirname "$0")/../rigs/points.sh"

for n in 0 1 2 3 4 5 6 7 8 9; do echo "Line $n of a text that is long enough to be divided, not to be read."; done >text

# run ARGUMENT...: trains the driver's small model; leaves the losses, a line each, in the file losses.
run() {
    call $small --json "$@"
    values loss >losses
}

# same FILE FILE: both files have the same bytes, and are not empty.
same() {
    [ -s "$1" ] && cmp -s "$1" "$2"
}

# norm_of FILE: the norm of all numbers in a safetensors file.
norm_of() {
    header=$(od -A n -t u8 -N 8 "$1" | tr -d ' ')
    od -A n -v -w4 -t f4 -j $((header + 8)) "$1" | awk '{ sum += $1 * $1 } END { printf "%.9g\n", sqrt(sum) }'
}

# keeps NAME ARGUMENT...: losses and the last gradients have the same bits as the files expected and gradients.
keeps() {
    name=$1
    shift
    run --steps 3 --gradients others "$@"
    [ $status = 0 ] && [ ! -s err ] && same losses expected && same others gradients
    point "$driver_name: $name: $*"
}

# agrees NAME ARGUMENT...: losses equal those in the file expected, except for their last digits.
agrees() {
    name=$1
    shift
    run --steps 3 "$@"
    [ $status = 0 ] && [ ! -s err ] && near 1e-5 losses expected
    point "$driver_name: $name: $*"
}

# sum KEY: prints the sum of KEY's values.
sum() {
    values "$1" | awk '{ sum += $1 } END { printf "%.0f\n", sum }'
}

# wrong TEXT ARGUMENT...: status 2, nothing on stdout, one line on stderr with TEXT in it, also from a subcommand.
wrong() {
    text=$1
    shift
    call "$@"
    [ $status = 2 ] && [ ! -s out ] && [ "$(wc -l <err)" = 1 ] && grep -q "^$driver_name\( train\)\{0,1\}: " err &&
        grep -qF -- "$text" err
    point "refused: $driver_name $text"
}

# ---- one step, in other ways ----

try_steps() {
    run --steps 3 --gradients gradients
    mv losses expected
    [ $status = 0 ] && [ ! -s err ] && [ "$(wc -l <expected)" = 3 ]
    point "$driver_name: three steps"
    for kind in full selective; do
        keeps 'recomputed, the same bits' --recompute $kind
    done
    keeps 'replicas are compared' --check-replicas
    keeps 'nothing overlaps' --no-overlap
    for how in '' '--zero 0' '--zero 2' '--offload optimizer,activations,weights'; do
        rm -rf journal
        keeps 'a journal is written' --journal journal $how
    done
    keeps 'a slow network' --delay-ms 1
    agrees 'whole optimizer states' --zero 0
    keeps 'shares of gradients' --zero 2 --check-replicas
    keeps 'the optimizer is offloaded' --offload optimizer --check-replicas
    rm -rf far
    call $small --steps 2 --save far --offload optimizer && call $small --steps 3 --resume far --json &&
        values loss | tail -n 1 >far_loss && tail -n 1 expected | cmp -s - far_loss
    point "$driver_name: what was offloaded is saved"
    for parts in activations weights activations,optimizer,weights; do
        keeps 'a part of the memory is offloaded' --offload $parts
    done
    call $small --dry-run --json --offload optimizer
    [ "$(sum offloaded)" -gt 0 ] && far=$(sum offloaded) && call $small --dry-run --json &&
        [ "$(sum offloaded)" = 0 ] && [ "$far" = "$(sum optimizer)" ]
    point "$driver_name: what is offloaded is the optimizer's"
    if [ "$device" = cpu ]; then
        (trap '' XFSZ && ulimit -f 1 && exec timeout 120 "$driver" $small --steps 1 --offload optimizer >/dev/null 2>err)
        [ $? = 3 ] && [ "$(wc -l <err)" = 1 ] && grep -q 'no room for a file of' err
        point "$driver_name: a disk without room for what is offloaded"
    else
        skip "$driver_name: a disk without room for what is offloaded" "the device's runtime needs files, too"
    fi
    rm -rf near far
    run --steps 3 --gradients others --schedule looped-bfs --loops 2 --wgrad-group 1 --save near
    mv losses near_losses
    call $small --steps 3 --gradients far_gradients --schedule looped-bfs --loops 2 --wgrad-group 1 --json \
        --offload optimizer,activations,weights --save far
    values loss >losses
    [ $status = 0 ] && same losses near_losses && same others far_gradients &&
        same near/step-00000003.safetensors far/step-00000003.safetensors
    point "$driver_name: checkpoints are the same whatever is offloaded"
    agrees 'a product a microbatch' --wgrad-group 1
    agrees 'half the rows a pass, and two passes' --accumulate 2 --microbatches 2
    agrees 'four passes' --accumulate 4 --microbatches 1

    call $small --dry-run --json
    [ $status = 0 ] && [ "$(wc -l <out)" = 4 ]
    point "$driver_name: a line of memory a coordinate"
    # Backward follows soon on the first rank.
    for kind in none selective full; do
        call $small --batch 256 --microbatches 32 --wgrad-group 1 --schedule 1f1b --dry-run --json --recompute $kind
        values activation_bytes | head -n 1
    done >kept
    [ $status = 0 ] && [ "$(wc -l <kept)" = 3 ] && sort -rnu kept | cmp -s - kept
    point "$driver_name: what is recomputed is not kept"
    call $small --dry-run --json
    state=$(sum state_bytes)
    call $small --dry-run --json --zero 0
    [ $status = 0 ] && [ "$(sum state_bytes)" -gt "$state" ]
    point "$driver_name: --zero 0 takes more"
    # A loop's whole gradient and half of all four are less than all four.
    for zero in 1 2; do
        call $small $deeper --loops 4 --schedule looped-bfs --wgrad-group 4 --no-fsdp --dry-run --json --zero $zero
        sum gradients >gradients_$zero
    done
    [ $status = 0 ] && [ "$(cat gradients_2)" -lt "$(cat gradients_1)" ]
    point "$driver_name: --zero 2 takes less"

    run --steps 4 --delay-ms 20
    [ $status = 0 ] && values median_ms | awk '{ exit !($1 > 20) }'
    point "$driver_name: --delay-ms delays"
}

# ---- schedules ----

try_schedules() {
    for name in gpipe 1f1b; do
        "$drivers/schedule" --name $name --stages 2 --microbatches 4 --format csv >table.csv
        run --steps 3 --schedule $name --gradients gradients
        mv losses expected
        others=$small small=$(echo "$small" | sed 's/--microbatches [0-9]*//; s/--schedule [^ ]*//')
        keeps 'a file is the schedule of that name' --schedule-file table.csv
        small=$others
    done
    small=$(echo "$small" | sed 's/--microbatches [0-9]*//; s/--schedule [^ ]*//')
    "$drivers/schedule" --name gpipe --stages 3 --microbatches 4 --format csv >table.csv
    wrong "has 3 ranks, the $ranks axis 2" $small --schedule-file table.csv
    "$drivers/schedule" --name gpipe --stages 2 --microbatches 3 --format csv >table.csv
    wrong '--microbatches 3: a replica' $small --schedule-file table.csv
    small=$others
}

# ---- the optimizer ----

try_optimizer() {
    run --steps 3
    mv losses expected
    run --steps 3 --clip 1e9 --gradients gradients
    [ $status = 0 ] && same losses expected && values norm >norms && [ "$(wc -l <norms)" = 3 ]
    point "$driver_name: a norm is told where gradients are clipped, and none is cut above it"
    run --steps 1 --clip 1e9 --gradients gradients
    values norm >norm
    norm_of gradients >wanted
    near 1e-5 norm wanted
    point "$driver_name: it is the norm of all gradients"
    run --steps 3 --clip 1e-7
    values norm | head -n 1 >norm
    [ $status = 0 ] && near 1e-5 norm wanted && [ "$(head -n 1 losses)" = "$(head -n 1 expected)" ] && ! near 1e-5 losses expected
    point "$driver_name: what is above it is cut"
    run --steps 3
    ! grep -q '"norm"' out
    point "$driver_name: no norm where nothing is clipped"

    run --steps 2 --lr 0.005
    mv losses wanted
    run --steps 2 --lr 0.01 --warmup 8
    [ $status = 0 ] && grep -q -- "--warmup 8 is longer than the run's 2 steps: the learning rate rises to 0.0025, and to --lr 0.01 only if" err
    point "$driver_name: a warm-up that is longer than the run is told"
    run --steps 2 --lr 0.01 --warmup 2
    [ $status = 0 ] && [ ! -s err ] && same losses wanted
    point "$driver_name: the first of two steps of warm-up has half the rate"
    run --steps 3 --lr-schedule cosine
    [ $status = 0 ] && [ "$(head -n 2 losses)" = "$(head -n 2 expected)" ] && ! near 1e-5 losses expected
    point "$driver_name: --lr-schedule cosine begins at the highest rate and falls"
    run --steps 3 --lr-schedule cosine --min-lr 0.001
    [ $status = 0 ] && same losses expected
    point "$driver_name: it falls to --min-lr"
    run --steps 3 --weight-decay 0.5
    [ $status = 0 ] && [ "$(head -n 1 losses)" = "$(head -n 1 expected)" ] && ! near 1e-5 losses expected
    point "$driver_name: --weight-decay decays"
}

# ---- kernels over data ----

try_fsdp() {
    run --steps 3 --no-fsdp
    mv losses expected
    agrees 'kernels over data, the same losses' --fsdp
    agrees 'and more of it' --fsdp --zero 0 --recompute full --accumulate 2 --microbatches 2 --check-replicas
    run --steps 3 --fsdp --schedule gpipe --gradients gradients
    mv losses expected
    for schedule in 1f1b zbv 'looped-bfs --loops 2' 'interleaved-zb --loops 2'; do
        keeps 'the same bits under all schedules' --fsdp --schedule $schedule
        keeps 'and without room for two stages' --fsdp --no-prefetch --schedule $schedule
    done

    call $small --show-shardings --json --fsdp
    cut -d, -f1 out | sort >sharded
    [ $status = 0 ] && [ ! -s err ] && grep '\.kernel"' out | grep -q '"spec":"[^"]*data"' &&
        grep -q "\"$ranks\":1}" out && ! grep '"shape":\[[0-9]*\]' out | grep -q '"spec":"[^"]*data"'
    point "$driver_name: shardings of kernels, and of nothing else"
    call $small --show-shardings --json --no-fsdp
    cut -d, -f1 out | sort | cmp -s - sharded && ! grep -q '"spec":"[^"]*data"' out
    point "$driver_name: the same names without"
    call $small --show-shardings --fsdp
    holds "$driver_name: shardings for people" 'sharded over' 'a coordinate has' "$ranks"
    call $small --dry-run --json --no-fsdp --zero 0
    state=$(sum state_bytes)
    call $small --dry-run --json --fsdp --zero 0
    [ $status = 0 ] && [ "$(sum state_bytes)" -lt "$state" ]
    point "$driver_name: less memory"
}

# ---- checkpoints ----

try_checkpoints() {
    rm -rf saved
    run --steps 4 --no-fsdp
    mv losses expected
    run --steps 3 --save saved --save-every 2 --no-fsdp
    [ $status = 0 ] && [ "$(ls saved | wc -l)" = 2 ]
    point "$driver_name: saved at intervals and at the end"
    tail -n 2 expected >last
    file=$(ls saved | head -n 1)
    run --steps 4 --resume "saved/$file" --no-fsdp
    [ $status = 0 ] && [ ! -s err ] && same losses last
    point "$driver_name: it goes on"
    for how in '--fsdp' '--fsdp --accumulate 2 --microbatches 2' '--recompute full'; do
        run --steps 4 --resume "saved/$file" $how
        [ $status = 0 ] && [ ! -s err ] && near 1e-5 losses last
        point "$driver_name: it goes on with $how"
    done
    rm -rf saved
    run --steps 2 --save saved --fsdp
    run --steps 4 --resume saved --no-fsdp
    [ $status = 0 ] && [ ! -s err ] && near 1e-5 losses last
    point "$driver_name: and from it without"
}

# ---- records ----

try_records() {
    run --steps 3 --metrics metrics
    [ $status = 0 ] && same metrics out
    point "$driver_name: metrics"
    run --steps 3 --profile
    [ $status = 0 ] && [ "$(grep -c '"products_ms":.*"accounted":' out)" = 4 ]
    point "$driver_name: a profile of every coordinate"
    for passes in 1 2; do
        call $small --steps 4 --trace trace --accumulate $passes --microbatches 2 --schedule 1f1b
        trained=$status
        timeout 120 "$drivers/schedule" --compare trace --json >out 2>err
        status=$?
        [ $trained = 0 ] && [ $status = 0 ] && [ ! -s err ] && grep -q '"name":"1f1b","ranks":2,' out
        point "$driver_name: a trace of $passes passes is one of its schedule"
    done
    rm -rf journal saved whole
    call $small --steps 4 --journal whole
    call $small --steps 4 --journal journal --save saved --save-every 2 && [ "$(ls journal | wc -l)" = 4 ] &&
        call $small --steps 4 --journal journal --resume "saved/$(ls saved | head -n 1)"
    went=$status
    "$drivers/diff" whole journal >out 2>err
    status=$?
    [ $went = 0 ] && [ $status = 0 ] && [ ! -s err ] && grep -q '^steps 0 to 3: equal$' out
    point "$driver_name: a journal that goes on is that of a run without a break"
    wrong 'the journal is that of another layout or model' $small --steps 5 --microbatches 2 --resume saved --journal whole
    rm -rf journal && mkdir journal && ln -s /dev/full journal/coordinate-02.journal
    call $small --steps 2 --journal journal
    [ $status = 3 ] && [ "$(wc -l <err)" = 1 ] && grep -q 'journal/coordinate-02.journal: No space' err
    point "$driver_name: a full disk under a journal"
    wrong '--trace records from the second step on' $small --steps 1 --trace trace
    wrong 'nowhere/trace' $small --steps 3 --trace nowhere/trace
    wrong '--gradients and --metrics name the same file, both' $small --gradients both --metrics both
    wrong '--trace and --metrics name the same file, both' $small --steps 3 --trace both --metrics both
    wrong '--gradients: no steps' $small --steps 0 --gradients gradients
    wrong '--save-every: is read only with --save' $small --save-every 3
}

try_all() {
    driver_name=${driver##*/}
    try_steps
    try_schedules
    try_optimizer
    try_fsdp
    try_checkpoints
    try_records
}

driver=$drivers/looping_pipeline ranks=model deeper="--layers 8"
small='--mesh data=2,model=2 --layers 4 --hidden 16 --batch 32 --microbatches 4 --dropout 0 --rng global'
try_all
driver=$drivers/transformer ranks=pipe deeper="--blocks 4"
small='train --mesh data=2,pipe=2 --model-dimension 16 --n-heads 4 --blocks 2 --layers-per-block 2 --sequence 16
    --latent-dim 8 --rope-dim 4 --batch 16 --microbatches 4 --data text --no-fsdp --schedule gpipe'
try_all

# More axes than data and pipe: pipelines are told apart in a trace.
call train --model-dimension 16 --n-heads 4 --sequence 16 --latent-dim 8 --rope-dim 4 --data text --steps 3 --trace trace
"$drivers/schedule" --compare trace --json >out 2>err && grep -q '"name":"1f1b","ranks":2,' out
point 'a trace of three axes'

# ---- the notebook's random numbers ----

driver=$drivers/looping_pipeline driver_name=looping_pipeline
for schedule in looping plain; do
    small="--mesh data=2,model=4 --layers 4 --hidden 16 --batch 32 --microbatches 4 --rng flax --schedule $schedule"
    run --steps 3 --gradients gradients
    mv losses expected
    for kind in full selective; do
        keeps 'dropout drawn again is the same' --recompute $kind
    done
    agrees "the notebook's initial values and dropout with kernels over data" --fsdp
    wrong '--rng flax: the notebook has no dropout in 2 passes a step' $small --accumulate 2
    run --steps 3 --dropout 0
    mv losses expected
    agrees 'without dropout passes are defined' --dropout 0 --accumulate 2 --microbatches 2
done
small='--mesh data=2,model=4 --layers 4 --hidden 16 --batch 32 --microbatches 4'
run --steps 3 --rng global
mv losses expected
agrees 'in several passes dropout goes by global position' --accumulate 2 --microbatches 2

# ---- loss_equality has them, too ----

driver=$drivers/loss_equality
for how in '--fsdp' '--recompute full' '--recompute selective --fsdp --zero 0' '--accumulate 2' '--clip 0.5 --warmup 2' \
    '--lr-schedule cosine --weight-decay 0.1 --no-overlap'; do
    call --mesh data=2,model=2 --layers 4 --hidden 16 --batch 32 --microbatches 4 --steps 3 --json $how
    [ $status = 0 ] && [ ! -s err ] && grep -q '"equal":true}' out
    point "the same losses: $how"
done
call --hidden 16 --show-shardings --json --fsdp
[ $status = 0 ] && grep -q '"parameter":"blocks.0.input_dense.kernel","shape":\[16,16\],"shard":\[16,8\],"spec":"-,data","model":0}' out
point 'shardings of the third run'
driver=$drivers/looping_pipeline
call --show-shardings stacked
[ $status = 0 ] && grep -qE '^blocks\.\*\.input_dense\.kernel +\[4, 2, 1, 512, 512\] +model,-,-,-,- +8$' out &&
    grep -qE '^input_dense\.kernel +\[4, 784, 512\] +model,-,- +1$' out && [ "$(wc -l <out)" = 13 ]
point "the notebook's stacked shapes and specs"
call --show-shardings stacked --layers 9 --rng global --schedule gpipe
[ $status = 0 ] && grep -qE '^blocks\.\*\.input_dense\.kernel +\[9, 512, 512\] +model,-,- +9$' out
point 'stages of different sizes have one axis of layers'
driver=$drivers/transformer
call train --mesh data=2,pipe=2,tensor=2 --show-shardings stacked --json
[ $status = 0 ] && [ "$(wc -l <out)" = 23 ] &&
    grep -q '^{"parameter":"blocks.\*.layers.\*.mlp.up.kernel","stacked":\[2,1,3,256,1024\],"spec":"pipe,-,-,tensor,data","arrays":6}$' out
point 'stacked, with tensor and data in the specs'
refused '--show-shardings: "all" is not one of no|each|stacked' train --show-shardings=all

# ---- real data ----

driver=$drivers/looping_pipeline
images=/usr/share/datasets/fashion-mnist
if [ -d $images ]; then
    small="--mesh data=2,model=2 --layers 2 --hidden 8 --dropout 0 --rng global --data fashion-mnist:$images --batch 96 --lr 0 --steps 1"
    call $small --microbatches 2 --json
    values test_loss >expected
    call $small --microbatches 1 --accumulate 2 --json
    values test_loss >losses
    near 1e-5 losses expected
    point 'an evaluation in two passes takes all test examples'
else
    skip images "there is no $images"
fi

plan
