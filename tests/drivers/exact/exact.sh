#!/bin/sh
# exact.sh DRIVERS - --exact: losses, norms' effect and gradients have the same bits whatever the sizes of the data and tensor
# axes are, over stages, schedules and saved activations; prints TAP. With SL_TEST_LONG set, many more layouts.
drivers=$1
. "$(dirname "$0")/../../rigs/points.sh"
. "$(dirname "$0")/layouts.sh"

# over_tensor: layouts of two replicas, and of two stages.
over_tensor() {
    for tensor in 1 2 4; do
        same --mesh data=2,tensor=$tensor
        same --mesh data=2,tensor=$tensor --fsdp
        same --mesh tensor=$tensor,pipe=2 --schedule 1f1b --recompute full
    done
}

small='--model-dimension 32 --n-heads 4 --blocks 2 --layers-per-block 3 --sequence 16 --latent-dim 8 --rope-dim 4 --batch 32'
steps=3
[ -z "${SL_TEST_LONG:-}" ] || steps=10
small="transformer train $small --microbatches 2 --wgrad-group 2 --dropout 0.1 --clip 0.5 --warmup 2 --steps $steps"
llama='--model-dimension 48 --attention gqa --n-heads 6 --kv-heads 2 --mlp silu --biases none --untied-head --blocks 4'
llama="transformer train $llama --layers-per-block 1 --sequence 16 --batch 32 --microbatches 2 --wgrad-group 2 --steps $steps"
grouped='--model-dimension 64 --attention gqa --n-heads 8 --kv-heads 4 --mlp silu --blocks 2 --layers-per-block 1'
grouped="transformer train $grouped --sequence 16 --batch 16 --microbatches 2 --wgrad-group 2 --steps $steps"
experts="$small --experts 4 --top-k 2 --capacity 1.1 --balance 0.1 --shared-experts 1"
wide_experts='--model-dimension 64 --attention gqa --n-heads 8 --kv-heads 4 --blocks 2 --layers-per-block 1 --sequence 16'
wide_experts="transformer train $wide_experts --batch 16 --microbatches 2 --wgrad-group 2 --steps $steps --experts 4 --top-k 2"
classifier="looping_pipeline --hidden 48 --layers 8 --batch 64 --microbatches 4 --wgrad-group 4 --steps $steps --clip 1"

begins 'latent attention' "$small --exact data=8 --evaluate-every 2" --mesh data=1
same --mesh data=2 --zero 0
same --mesh data=2,pipe=3 --schedule gpipe --no-overlap
same --mesh data=4,pipe=2 --schedule looped-bfs --loops 3 --zero 2
same --mesh data=4 --recompute full --offload optimizer,activations --no-fuse
same --mesh data=8 --check-replicas --checked
same --mesh data=8,pipe=2 --schedule interleaved-zb --loops 1 --zero 2
same --mesh data=8 --fsdp
same --mesh data=8,pipe=2 --fsdp --no-prefetch --recompute selective
same --mesh data=1,pipe=2 --fsdp

begins 'products of bf16' "$llama --exact data=8 --storage bf16 --precision bf16 --accumulate 2 --microbatches 1" --mesh data=1
same --mesh data=2,pipe=2
same --mesh data=4 --zero 0
same --mesh data=8 --recompute selective
same --mesh data=4 --fsdp
same --mesh data=8,pipe=2 --fsdp --no-prefetch

begins 'two tensor coordinates' "$llama --exact data=4 --vocabulary-parallel" --mesh data=1,tensor=2
same --mesh data=2,tensor=2,pipe=2
same --mesh data=4,tensor=2
same --mesh data=4,tensor=2 --fsdp --zero 2

begins 'four leaves of channels' "$small --exact data=4,tensor=4 --evaluate-every 2" --mesh tensor=1
same --mesh tensor=2 --checked
same --mesh tensor=4,pipe=2 --schedule interleaved-zb --recompute selective
same --mesh data=2,tensor=2,pipe=2 --zero 2 --recompute full
same --mesh data=4,tensor=2 --fsdp

begins 'untied, without biases' "$grouped --exact tensor=4 --biases none --untied-head --qk-norm --accumulate 2 --wgrad-group 1" \
    --mesh tensor=1
same --mesh tensor=2,pipe=2
same --mesh tensor=4

begins 'layer norms in bf16' "$grouped --exact data=2,tensor=4 --norm layer --storage bf16 --precision bf16 --vocab-size 5000" \
    --mesh tensor=2
same --mesh tensor=1 --fsdp --keep-logits
same --mesh data=2,tensor=4

begins 'classes in parallel' "$grouped --exact data=2,tensor=4 --vocabulary-parallel --evaluate-every 2" --mesh tensor=4
same --mesh tensor=1
same --mesh data=2,tensor=2,pipe=2 --schedule 1f1b
same --mesh data=2,tensor=1 --fsdp

begins 'classes that do not divide' "$grouped --exact data=2,tensor=4 --vocabulary-parallel --vocab-size 257 --clip 0.1" --mesh tensor=4
same --mesh tensor=1
same --mesh data=2,tensor=2,pipe=2 --schedule 1f1b --recompute full

begins 'adapters' "$small --exact data=4,tensor=4 --lora-rank 3 --lr 0.01" --mesh tensor=1
same --mesh data=2,tensor=2,pipe=2 --zero 2 --recompute full
same --mesh data=4,tensor=4
begins 'adapters in bf16' "$grouped --exact tensor=4 --lora-rank 2 --lr 0.01 --storage bf16 --precision bf16 --accumulate 2 --wgrad-group 1" \
    --mesh tensor=1
same --mesh tensor=2,pipe=2
same --mesh tensor=4

begins 'experts' "$experts --exact data=4 --evaluate-every 2" --mesh data=1
same --mesh data=2,pipe=2 --schedule interleaved-zb --zero 2
same --mesh data=4 --recompute full --check-replicas
same --mesh data=4,pipe=3 --fsdp
begins 'experts in bf16' "$experts --exact data=6 --experts 6 --batch 24 --storage bf16 --precision bf16 --accumulate 2 --top-k 1" --mesh data=1
same --mesh data=3,pipe=2 --fsdp

begins 'experts over channels' "$wide_experts --exact data=2,tensor=4 --storage bf16 --shared-experts 1" --mesh tensor=1
same --mesh data=2,tensor=2,pipe=2 --recompute full
same --mesh data=2,tensor=4 --fsdp

begins 'the classifier' "$classifier --exact data=8" --mesh data=1,model=1
same --mesh data=8,model=1 --schedule single --zero 2
same --mesh data=4,model=2 --zero 0
same --mesh data=2,model=4 --schedule 1f1b
same --mesh data=8,model=1 --fsdp
same --mesh data=2,model=2 --fsdp --wgrad-group 4

begins 'by default' "transformer train --exact data=4,tensor=4 --batch 16 --sequence 32 --model-dimension 64 --steps $steps" --mesh data=1
same --mesh data=2
same --mesh tensor=2
same --mesh pipe=2
same --mesh data=2,pipe=3 --accumulate 2
same --mesh data=1 --accumulate 4
begins 'the classifier by default' "looping_pipeline --hidden 48 --layers 8 --batch 64 --steps $steps --clip 1 --exact data=4" --mesh data=1,model=1
same --mesh data=2,model=2
same --mesh data=1,model=4 --accumulate 2
same --mesh data=4,model=1 --schedule single --accumulate 8

begins 'six leaves' "$classifier --exact data=6 --batch 72" --mesh data=1,model=2
same --mesh data=3,model=2
same --mesh data=6,model=1
same --mesh data=6,model=1 --fsdp --no-prefetch
same --mesh data=3,model=1 --fsdp

if [ -n "${SL_TEST_LONG:-}" ]; then
    begins 'latent attention' "$small --exact data=8" --mesh data=1
    for data in 1 2 4 8; do
        for pipe in 2 3 6; do
            for schedule in gpipe 1f1b interleaved-zb; do
                same --mesh data=$data,pipe=$pipe --schedule $schedule --zero $((data % 3))
            done
        done
        same --mesh data=$data,pipe=2 --schedule looped-dfs --loops 3 --recompute selective
        same --mesh data=$data,pipe=3 --schedule zbv --recompute full
        same --mesh data=$data --offload optimizer --wgrad-group 2
    done
    for layout in 'pipe=2' 'pipe=3 --schedule 1f1b' 'pipe=2 --schedule looped-bfs --loops 3' 'pipe=2 --recompute full'; do
        same --mesh data=8,$layout --fsdp
        same --mesh data=8,$layout --fsdp --no-prefetch --zero 2 --wgrad-group 2
    done
    begins 'a Llama in bf16' "$llama --exact data=4 --storage bf16 --precision bf16" --mesh data=1
    for options in '--fsdp' '--fsdp --no-prefetch' '--fsdp --offload optimizer'; do
        same --mesh data=4 $options
        same --mesh data=4,pipe=2 $options
    done
    for storage in '--storage f32' '--storage bf16' '--storage bf16 --precision bf16' '--precision bf16'; do
        begins "grouped attention, $storage" "$grouped --qk-norm --exact data=4,tensor=4 --clip 0.1 $storage" --mesh tensor=1
        for data in 1 2 4; do
            for tensor in 1 2 4; do
                same --mesh data=$data,tensor=$tensor
                same --mesh data=$data,tensor=$tensor,pipe=2 --schedule 1f1b --recompute full
            done
        done
        for tensor in 1 2 4; do same --mesh data=4,tensor=$tensor --fsdp; done
    done
    for storage in '--storage f32' '--storage bf16 --precision bf16 --untied-head' '--storage bf16 --vocab-size 9000' \
        '--storage bf16 --precision bf16 --untied-head --vocab-size 9001'; do
        begins "classes in parallel, $storage" "$grouped --vocabulary-parallel --exact data=2,tensor=4 --clip 0.1 $storage" \
            --mesh tensor=1
        over_tensor
    done
    begins 'latent attention, eight leaves' "$small --n-heads 8 --model-dimension 64 --latent-dim 16 --exact data=2,tensor=8" \
        --mesh tensor=1
    for tensor in 1 2 4 8; do
        for layout in 'pipe=1' 'pipe=3 --schedule gpipe' 'pipe=2 --schedule looped-bfs --loops 3 --recompute selective'; do
            same --mesh tensor=$tensor,$layout
        done
        same --mesh data=2,tensor=$tensor --fsdp --offload optimizer
    done
    for storage in '--storage f32' '--storage bf16' '--storage bf16 --precision bf16' '--precision bf16'; do
        begins "adapters, $storage" "$grouped --exact data=2,tensor=4 --lora-rank 4 --lr 0.01 --clip 0.1 $storage" --mesh tensor=1
        over_tensor
    done
    for storage in '--storage f32' '--storage bf16' '--storage bf16 --precision bf16' '--precision bf16'; do
        begins "experts, $storage" "$experts --exact data=4 $storage" --mesh data=1
        for data in 1 2 4; do
            for layout in pipe=1 'pipe=2 --schedule 1f1b' 'pipe=3 --schedule looped-bfs --loops 2 --recompute full'; do
                same --mesh data=$data,$layout
                same --mesh data=$data,$layout --fsdp --zero 2
            done
        done
    done
    begins 'experts, accumulated' "$experts --exact data=8 --experts 8 --accumulate 2 --wgrad-group 1 --batch 64" --mesh data=1
    for data in 2 4 8; do
        same --mesh data=$data --offload optimizer,activations
        same --mesh data=$data,pipe=2 --schedule interleaved-zb
        same --mesh data=$data --fsdp --no-prefetch
    done
    begins 'experts beside tensor' "$wide_experts --exact data=4" --mesh tensor=2
    for data in 1 2 4; do
        same --mesh data=$data,tensor=2,pipe=2
        same --mesh data=$data,tensor=2 --fsdp
    done
    for storage in '--storage f32' '--storage bf16' '--storage bf16 --precision bf16' '--precision bf16'; do
        begins "experts over channels, $storage" "$wide_experts --shared-experts 1 --exact data=2,tensor=4 --clip 0.1 $storage" \
            --mesh tensor=1
        over_tensor
    done
    begins 'FSDP, accumulated' "$small --exact data=8 --accumulate 2 --microbatches 2 --batch 64 --wgrad-group 1" --mesh data=1
    for data in 2 4 8; do
        for layout in pipe=1 'pipe=2 --schedule looped-bfs --loops 3' 'pipe=3 --schedule interleaved-zb'; do
            same --mesh data=$data,$layout
            same --mesh data=$data,$layout --fsdp
            same --mesh data=$data,$layout --fsdp --no-prefetch --recompute full
        done
    done
    wide="--model-dimension 512 --n-heads 8 --blocks 1 --latent-dim 128 --rope-dim 16 --sequence 256 --batch 4 --microbatches 2"
    begins 'wide layers' "transformer train $wide --steps 2 --vocab-size 9000 --exact tensor=4" --mesh tensor=1
    same --mesh tensor=2
    same --mesh tensor=4
    begins 'a Llama' "$llama --exact data=16 --batch 64 --clip 0.1" --mesh data=1
    for data in 1 2 4 8 16; do
        for layout in pipe=2 'pipe=4 --schedule 1f1b' 'pipe=2 --schedule looped-bfs --loops 2'; do
            same --mesh data=$data,$layout
        done
    done
    begins 'the classifier' "$classifier --exact data=12 --batch 96 --storage bf16" --mesh data=1,model=1
    for data in 3 6 12; do
        for layout in 'model=1 --schedule single' 'model=2 --schedule 1f1b' 'model=4' 'model=4 --schedule plain'; do
            same --mesh data=$data,$layout
        done
    done
fi

# ---- without --exact losses differ, so that the comparison has a meaning ----

begins 'the order of coordinates' "$classifier --rng global" --mesh data=1,model=1 --microbatches 8 --wgrad-group 1
train --mesh data=8,model=1 --microbatches 1
[ $status = 0 ] && [ -s gradients ] && ! cmp -s gradients gradients.expected
point 'without --exact the last digits follow the replicas'

begins 'the order of coordinates along tensor' "$grouped" --mesh tensor=1
train --mesh tensor=4
[ $status = 0 ] && [ -s gradients ] && ! cmp -s gradients gradients.expected
point 'nor do they follow the channels'

# ---- a run goes on with fewer replicas ----

begins 'an unbroken run' "$small --exact data=8 --steps 4" --mesh data=8 --save whole
model="$small --steps 4"
train --exact data=8 --mesh data=8 --steps 2 --save broken
train --resume broken --mesh data=2 --steps 4 --save broken
sed -n 3,4p digits.expected >rest
[ $status = 0 ] && cmp -s digits rest && cmp -s gradients gradients.expected
point 'one that was broken has the same digits on a quarter of the coordinates'
"$drivers/diff" whole broken >out 2>err
[ $? = 0 ]
point 'and the same parameters and moments'

# ---- memory ----

# gradients MESH: bytes of coordinate 0.
gradients() {
    "$drivers"/$classifier --exact data=8 --mesh "$1" --dry-run --json | sed -n '1s/.*"gradients":\([0-9]*\).*/\1/p'
}
{ gradients data=8,model=1; gradients data=2,model=1; gradients data=1,model=1; } | tr '\n' ' ' |
    awk '{ own = NF == 3 ? $1 : 0; exit !(own && $2 > 2.9 * own && $2 < 3.1 * own && $3 > 3.9 * own && $3 < 4.1 * own) }'
point 'sums that wait for other leaves are planned: one for each doubling'

# ---- refusals ----

refuses_all() {
    refuses '--exact: ' $1 --exact nothing
    refuses '--exact: ' $1 --exact data=0
    refuses "--exact other=2: only the ax" $1 --exact other=2
    refuses "--exact data=4,other=2: only the ax" $1 --exact data=4,other=2
    refuses '--exact data=3: data=2 coordinates must have 1, 2, 4, ... leaves each, or one all of them' $1 --exact data=3
    refuses '--exact data=6: data=2 coordinates must have 1, 2, 4, ... leaves each, or one all of them' $1 --exact data=6
    refuses '--exact data=1: data=2 coordinates must have 1, 2, 4, ... leaves each, or one all of them' $1 --exact data=1
    refuses '--exact and --offload weights: sums of leaves wait in memory' $1 --exact data=4 --offload weights
    refuses 'do not divide into 16 leaves (--exact) of 1 pass (--accumulate)' $1 --exact data=16 --batch 24
    refuses "--microbatches 8: a leaf's 4 " $1 --exact data=4 --microbatches 8 --batch 16
}
driver=$drivers/looping_pipeline
refuses_all "--mesh data=2,model=2"
refuses '--exact tensor=2: only the axis data has leaves, data=N' --exact tensor=2
refuses '--rng flax: flax draws for each replica, and --exact for rows of the batch' --exact data=4 --rng flax
driver=$drivers/loss_equality
refuses '--exact data=3: data=2 coordinates must have 1, 2, 4' --exact data=3
driver=$drivers/transformer
refuses_train() { text=$1; shift; refused "$text" train "$@"; }
refuses() { refuses_train "$@"; }
refuses_all "--mesh data=2"
channels="--model-dimension 32 --n-heads 4 --latent-dim 8 --rope-dim 4 --sequence 16 --mesh tensor=2"
refuses '--exact other=4: only the axes data, tensor and context have leaves, data=N,tensor=W,context=C' --exact other=4
refuses '--exact tensor=3: it must be 1, 2, 4, ..., and tensor=2 coordinates have equally many leaves' $channels --exact tensor=3
refuses '--exact tensor=1: it must be 1, 2, 4, ..., and tensor=2 coordinates' $channels --exact tensor=1
refuses 'heads: 4 heads do not divide by the 8 leaves along "tensor"' $channels --exact tensor=8
refuses '8 columns in 2 segments do not divide by the 8 leaves' $channels --n-heads 8 --latent-dim 4 --exact tensor=8
refuses 'sequences of 18 tokens do not divide by the 4 leaves along "tensor"' $channels --sequence 18 --exact tensor=4
refuses '2 heads of keys and values do not divide by the 4 leaves' ${channels%% --latent-dim*} --sequence 16 --mesh tensor=2 --attention gqa --kv-heads 2 --exact tensor=4
refuses 'no sums of bf16 over leaves along "tensor": choose --storage f32, or --rope-dim 0' $channels --storage bf16 --exact tensor=4
refuses '6 columns do not divide by the 4 leaves along "tensor"' $channels --experts 4 --expert-dim 6 --exact tensor=4
refuses 'of a vocabulary of 5 tokens, in shares of 2, the last of the 4 leaves along "tensor" has none' $channels --vocabulary-parallel --vocab-size 5 --exact tensor=4
refuses 'it has no sums over leaves along "tensor" (--exact tensor=4)' $channels,pipe=2 --schedule looped-bfs --loops 3 --spread-head --exact tensor=4
refuses 'it has no sums over leaves along "tensor" (--exact tensor=4)' $channels,pipe=2 --schedule looped-bfs --loops 3 --spread-head rows --exact tensor=4

# ---- the three layouts of loss_equality ----

"$drivers/loss_equality" --hidden 48 --layers 4 --batch 64 --microbatches 4 --exact data=4 --mesh data=2,model=2 --steps 3 \
    --json >out 2>err
status=$?
[ $status = 0 ] && grep -q '"bit_identical":true' out
point 'loss_equality: the layouts have the same bits'
plan
