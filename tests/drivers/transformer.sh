#!/bin/sh
# transformer.sh DRIVERS all|small DATA - the driver `transformer`: its output, agreement of its subcommands, and
# learning of a text; prints TAP.
driver=$1/transformer
reach=$2
data=$(cd "$3" && pwd)
. "$(dirname "$0")/../rigs/points.sh"

model='--model-dimension 16 --n-heads 4 --blocks 2 --layers-per-block 2 --sequence 16 --latent-dim 8 --rope-dim 4'
for n in 0 1 2 3 4 5 6 7 8 9; do echo "Line $n of a text that is long enough to be divided, not to be read."; done >text
train="train $model --batch 8 --data text"

# ---- output ----

number='(null|-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?)'
rates="\"tokens_per_second\":$number,\"mfu\":$number"
step="\\{\"step\":[0-9]+,\"loss\":$number,\"lr\":$number,$rates,\"ms\":$number"
last="\\{\"parameters\":[0-9]+,\"final_loss\":$number,\"median_ms\":$number,$rates,"
last="$last\"products_flops_per_second\":$number,\"coordinate_bytes\":$number,\"peak_bytes\":[0-9]+,"
last="$last\"products_measured\":\"[0-9]{4}-[0-9]{2}-[0-9]{2}\""
last="$last,\"memory\":\\[\\{\"coordinate\":0,[^]]*\\],\"processes\":\\[\\{[^}]*\\}\\],\"options\":\\{\"--[^}]*\\},\"coordinates\":[0-9]+,\"cores\":[0-9]+,\"fused\":[0-9]+,\"predicted\":\\{[^}]*\\}(,\"measured_bubble\":$number)?"

call $train --steps 3 --json --metrics metrics
[ $status = 0 ] && [ ! -s err ] && [ "$(grep -cxE "$step\\}" out)" = 3 ] && [ "$(grep -cxE "$last\\}" out)" = 1 ] &&
    [ "$(wc -l <out)" = 4 ]
point 'a line of JSON a step, one at the end, and nothing else'
cmp -s out metrics
point 'the same lines in the metrics file'
[ "$(values step | tr '\n' ' ')" = '0 1 2 ' ] && [ "$(values loss | tail -n 1)" = "$(values final_loss)" ]
point 'steps are counted, the last loss is the final one'
grep -qE '"loss":[0-9]\.[0-9]{8}[,}]' out && ! grep -qE '[1-9]\.[0-9]{9}' out
point 'nine significant digits'
values loss >losses
call $train --steps 3 --json --clip 0.5
[ $status = 0 ] && [ "$(grep -cxE "$step,\"norm\":$number\\}" out)" = 3 ]
point 'the norm of the gradients where it is clipped'
call $train --steps 3 --metrics metrics
[ $status = 0 ] && [ ! -s err ] && [ "$(grep -cE '^ +[0-9]' out)" = 3 ] && ! grep -q '{' out &&
    grep -q '^parameters [0-9]*, median ' out
point 'a table for people'
[ "$(grep -cxE "$step\\}" metrics)" = 3 ] && [ "$(grep -cxE "$last\\}" metrics)" = 1 ]
point 'and the metrics file beside it'
call $train --steps 0 --json
[ $status = 0 ] && [ "$(grep -cxE "$last\\}" out)" = 1 ] && [ "$(wc -l <out)" = 1 ]
point 'no steps'
call $train --steps 4 --json --lr 0.01 --warmup 2 --lr-schedule cosine --min-lr 0.002
[ "$(values lr | tr '\n' ' ')" = '0.005 0.01 0.01 0.006 ' ]
point 'the learning rate rises, then falls along half a cosine'
call $train --steps 4 --json --evaluate-every 2 --evaluate-batches 3 --sample-every 4 --length 20 --samples 2
[ $status = 0 ] && [ "$(values evaluation_loss | wc -l)" = 2 ] && [ "$(grep -c '"sample":[01],"tokens":' out)" = 2 ] &&
    sed -n 3p out | grep -qxE "\\{\"step\":1,\"evaluation_loss\":$number\\}"
point 'evaluations and samples while it trains'

for signal in TERM INT; do
    rm -f out
    # A shell's background processes ignore SIGINT until they ask for it.
    "$driver" $train --steps 1000000 --json >out 2>err &
    pid=$!
    tries=0
    until [ -s out ] || [ $((tries += 1)) -gt 300 ]; do sleep 0.1; done
    kill -$signal $pid
    ends_in_time 0 30 && [ ! -s err ] && tail -n 1 out | grep -qxE "$last,\"interrupted\":true\\}"
    point "SIG$signal ends the run after the step, which the last line says"
done
rm -f out metrics
"$driver" $train --steps 1000000 --log-every 100000 --metrics metrics >out 2>err &
pid=$!
tries=0
until [ -s metrics ] || [ $((tries += 1)) -gt 300 ]; do sleep 0.1; done
kill -TERM $pid
ends_in_time 0 30 && [ "$(sed -n 's/^{"step":\([0-9]*\),.*/\1/p' metrics | tail -n 1)" = "$(awk 'NF == 7 && $1 ~ /^[0-9]+$/ { print $1 }' out)" ]
point 'and the last step is shown to people'
"$driver" $train --steps 1000000 --json >/dev/full 2>err &
pid=$!
ends_in_time 3 30 && [ "$(wc -l <err)" = 1 ] && grep -q '^transformer train: ' err
point 'a full disk under the JSON ends the run'
call $train --steps 200 --lr 1000000 --json
[ $status = 3 ] && [ "$(wc -l <err)" = 1 ] && grep -q 'finite' err && ! grep -qE 'nan|inf[^a-z]' out
point 'a loss that is not finite ends the run'
for option in --dry-run --show-shardings; do
    "$driver" $train $option >/dev/full 2>err
    status=$?
    [ $status = 3 ] && [ "$(wc -l <err)" = 1 ] && grep -q '^transformer train: ' err
    point "a full disk under $option"
done

# ---- reports without a run ----

call $train --dry-run
holds 'memory of each coordinate' coordinate '0 (data=0, pipe=0, tensor=0)' '7 (data=1, pipe=1, tensor=1)'
call $train --dry-run --json
[ $status = 0 ] && [ "$(grep -cxE '\{"coordinate":[0-7],"state_bytes":[0-9]+,"activation_bytes":[0-9]+(,"[a-z]+":[0-9]+)*,"total":[0-9]+\}' out)" = 8 ]
point 'the same as JSON'
values state_bytes >parts
call $train --dry-run --json --mesh data=1
values state_bytes >>parts
awk 'NR < 9 { sum += $1; most = $1 > most ? $1 : most } END { exit !(most < $1 / 2 && sum < 3 * $1) }' parts
point 'no coordinate has half of what one alone has'
call $train --show-shardings
holds 'how parameters are sharded' 'sharded over' embedding 'blocks.1.layers.1.mlp.down.kernel' norm.gamma
call $train --show-shardings --json
[ $status = 0 ] && [ "$(wc -l <out)" = 76 ] && [ "$(cut -d, -f1 out | sort -u | wc -l)" = 75 ] &&
    [ "$(grep -c '"parameter":"embedding",.*"pipe":[01]}' out)" = 2 ] &&
    grep -qxF '{"parameter":"blocks.0.layers.0.mla.k_rope.kernel","shape":[16,4],"shard":[8,2],"spec":"tensor*2,data","pipe":0}' out &&
    grep -qxF '{"parameter":"blocks.1.layers.0.mlp.up.kernel","shape":[16,64],"shard":[8,32],"spec":"tensor,data","pipe":1}' out
point 'the same as JSON, every parameter once, the table at both ends'
call $train --show-shardings --json --vocabulary-parallel --no-fsdp
grep -qxF '{"parameter":"embedding","shape":[256,16],"shard":[128,16],"spec":"tensor","pipe":0}' out &&
    grep -qxF '{"parameter":"blocks.1.layers.0.mlp.up.kernel","shape":[16,64],"shard":[8,64],"spec":"tensor","pipe":1}' out
point 'the table by tokens, kernels not over data'
for command in train evaluate generate; do
    call $command --help all
    holds "$command --help all" "Usage: transformer $command [OPTION]" '--mesh' '--model-dimension' '--params FILE'
done
call train --help all
holds 'what only training has' '--accumulate' '--recompute' '--clip' '--prompt-tokens' '--evaluate-batches'
call generate --help all
grep -q -- --temperature out && ! grep -q -- --accumulate out && ! grep -q -- --evaluate-batches out
point 'what only generation has'

# ---- the same numbers, however it is run ----

# same ARGUMENT...: losses within 1e-5 of the first run's.
same() {
    call $train --steps 3 --json "$@"
    values loss >others
    [ $status = 0 ] && near 1e-5 others losses
    point "the same losses: $*"
}
same --mesh data=1
same --mesh tensor=4 --checked
same --mesh pipe=2,tensor=2 --accumulate 2
same --mesh data=2,pipe=4 --recompute full
same --mesh tensor=2,data=4 --recompute selective --no-fsdp --zero 0
same --mesh pipe=2,tensor=2 --recompute block
for kind in full block; do
    call $train --mesh pipe=2 --microbatches 4 --schedule gpipe --dry-run --json --recompute $kind
    values kept | head -n 1
done >kept
[ "$(sed -n 1p kept)" -gt "$(sed -n 2p kept)" ]
point 'a block of two layers keeps less than two layers'
same --schedule zbv --vocabulary-parallel --no-overlap
same --schedule interleaved-1f1b --loops 2 --wgrad-group 1
same --mesh pipe=4 --schedule dualpipe --microbatches 8 --check-replicas
# Two copies of the model: sums of whole gradients at the end, whatever is sharded.
call $train --steps 3 --json --no-fsdp --mesh data=2,pipe=2 --schedule dualpipe --microbatches 4 --gradients copies
for options in '--zero 0' '--zero 2' '--zero 2 --no-overlap' '--no-overlap'; do
    # The words of OPTIONS need no quotes.
    # shellcheck disable=SC2086
    call $train --steps 3 --json --no-fsdp --mesh data=2,pipe=2 --schedule dualpipe --microbatches 4 --gradients other --check-replicas $options
    [ $status = 0 ] && cmp -s copies other
    point "two copies of the model, the same gradients: $options"
done
same --schedule looped-bfs --loops 2 --microbatches 4
# A spread head has the same bits, evaluated and in the gradients, and a run without one resumes its checkpoint.
plain="$train --steps 3 --json --vocab-size 8192 --mesh pipe=2 --microbatches 4 --evaluate-every 2"
call $plain --gradients plain.grads --save plain
values loss >losses_plain
call $plain --schedule interleaved-1f1b --spread-head --gradients spread.grads --save spread
values loss | cmp -s - losses_plain && cmp -s plain.grads spread.grads
point 'a spread head: the same losses and gradients'
call $plain --steps 4 --resume spread && values loss >resumed && call $plain --steps 4 --resume plain &&
    values loss | cmp -s - resumed && [ -s resumed ]
point 'a checkpoint of a spread head goes on without one'
# Ranks that share rows add losses and the table's gradient up in another order.
call $plain --schedule looped-bfs --spread-head rows --save rows
values loss | paste losses_plain - | awk '{ far += ($1 - $2) ^ 2 > (1e-5 * $1) ^ 2 } END { exit NR != 3 || far }'
point 'rows of a spread head: the same losses but for rounding'
call $plain --schedule looped-bfs --loops 1 --spread-head rows --gradients looped.grads && values loss >losses_rows &&
    call $plain --schedule gpipe --spread-head rows --gradients rows.grads && values loss | cmp -s - losses_rows &&
    cmp -s looped.grads rows.grads
point 'gpipe has a loop for rows of a spread head'
call $plain --schedule rotating-inputs --loops 2 --spread-head batch --save batch
values loss | paste losses_plain - | awk '{ far += ($1 - $2) ^ 2 > (1e-5 * $1) ^ 2 } END { exit NR != 3 || far }'
point 'ranks that share the batch: the same losses but for rounding'
refused 'a spread head needs stage 2 on rank 0' $plain --schedule rotating --spread-head rows
refused '4 microbatches in groups of 4 do not divide over 2 ranks' $plain --schedule rotating-inputs --spread-head batch --wgrad-group 4
call $plain --steps 4 --resume rows && values loss | paste resumed - |
    awk '{ far += ($1 - $2) ^ 2 > (1e-5 * $1) ^ 2 } END { exit !NR || far }'
point 'a checkpoint of it goes on without one'
printf -- '--steps 3 --json # as before\n' >options
call $train @options
values loss | cmp -s - losses
point 'options from a file'
call $train --steps 3 --json --seed 7
values loss | cmp -s - losses
[ $? = 1 ]
point 'another seed'
call $train --steps 3 --json --data text --validation 0.5
values loss | cmp -s - losses
[ $? = 1 ]
point 'another part of the text'

call $train --steps 2 --gradients one --schedule gpipe --microbatches 4
call $train --steps 2 --gradients other --schedule zbv --microbatches 4
[ $status = 0 ] && cmp -s one other
point 'two schedules leave the same bits'

# kept SCHEDULE: activations' bytes of the first rank, whose microbatches have 256 tokens.
kept() {
    call $train --mesh pipe=4 --batch 256 --microbatches 16 --schedule "$1" --dry-run --json
    values activation_bytes | head -n 1
}
[ "$(kept gpipe)" -gt $((2 * $(kept 1f1b))) ]
point 'a schedule that needs less keeps less'

# ---- the reference ----

reference="--model-dimension 64 --vocab-size 128 --n-heads 8 --blocks 4 --layers-per-block 2 --sequence 16 --latent-dim 32 \
--rope-dim 8 --params $data/mla_small.params.safetensors"
# listed NAME: the numbers of a list in the reference's JSON, a line each.
listed() {
    tr -d ' \n' <"$data/mla_small.json" | sed "s/.*\"$1\":\\[\\([^]]*\\)\\].*/\\1/" | tr ',' '\n'
}
listed train_loss_adamw_lr1e-3_wd1e-4 >wanted
meshes='data=2,pipe=2,tensor=2'
[ "$reach" = small ] || meshes="$meshes data=1 data=8 tensor=8 pipe=8 pipe=4,data=2"
for mesh in $meshes; do
    call train $reference --mesh $mesh --steps 10 --json
    values loss >losses
    near 2e-6 losses wanted && [ "$(wc -l <losses)" = 10 ]
    point "ten steps on $mesh"
    call evaluate $reference --mesh $mesh --evaluate-batches 1 --json
    values evaluation_loss >evaluated
    head -n 1 losses | near 1e-6 evaluated - && head -n 1 wanted | near 2e-6 evaluated -
    point "evaluate on $mesh: the loss of the first step"
    for cache in expanded latent; do
        call generate $reference --mesh $mesh --prompt-tokens "$(listed prompt | paste -sd, -)" --temperature 0 \
            --cache $cache --json
        [ "$(sed -n 's/.*"tokens":\[\([^]]*\)\].*/\1/p' out)" = "$(listed greedy | paste -sd, -)" ] && [ ! -s err ]
        point "the continuation on $mesh, $cache caches"
    done
done
[ "$(wc -l <out)" = 2 ] && tail -n 1 out |
    grep -qxE "\\{\"prefill_tokens_per_second\":$number,\"decode_tokens_per_second\":$number,\"prefill_ms\":$number,\"decode_ms\":$number,\"tokens_per_second\":$number,\"token_ms_p50\":$number,\"token_ms_p99\":$number,\"groups\":[0-9]+,\"in_flight\":1,\"memory\":\\[.*\\],\"processes\":\\[.*\\]\\}"
point 'the speed of both phases'
call evaluate $reference
[ $status = 0 ] && [ ! -s err ] && [ "$(wc -l <out)" = 5 ] && sed -n 3p out | grep -q '^memory of .* MB (parameters ' &&
    head -n 1 out | grep -q '^parameters .*mla_small.params.safetensors; data .*, 8 batches of 8 sequences$' &&
    tail -n 1 out | grep -qE '^ +5\.3901[0-9]*  +219\.2[0-9]*  +-  +1024$'
point 'the evaluation for people; bytes of numbered tokens are not known'

# ---- generation ----

sampled="generate $reference --prompt-tokens 5 --samples 5 --temperature 1.3 --sample-top-k 20 --json"
call $sampled --mesh data=1
grep '"sample"' out >one
[ "$(wc -l <one)" = 5 ] && [ "$(sed 's/.*tokens//' one | sort -u | wc -l)" -gt 1 ]
point 'five samples that differ'
for mesh in data=2,pipe=2,tensor=2 tensor=4 pipe=4,data=2; do
    call $sampled --mesh $mesh
    grep '"sample"' out | cmp -s - one
    point "the same samples on $mesh"
done
for groups in 'pipe=2 --groups 1' 'pipe=2 --groups 5' 'pipe=4 --groups 3 --cache expanded' 'pipe=2 --in-flight 3' \
    'data=2,pipe=2 --groups 3' 'data=1 --groups 2 --in-flight 2' 'pipe=2,tensor=2 --in-flight 1'; do
    call $sampled --mesh $groups
    grep '"sample"' out | cmp -s - one
    point "the same samples on $groups"
done
call $sampled --mesh pipe=2 --storage bf16 --precision bf16 --groups 1
grep '"sample"' out >bf16
call $sampled --mesh pipe=2 --storage bf16 --precision bf16 --groups 3
[ -s bf16 ] && grep '"sample"' out | cmp -s - bf16
point 'the same samples in bf16 with three groups'
call $sampled --mesh pipe=2
[ "$(values groups) $(values in_flight)" = '2 5' ] && values token_ms_p50 >p50 && values token_ms_p99 >p99 &&
    paste p50 p99 | awk '{ exit !($1 > 0 && $1 <= $2) }'
point 'as many groups as pipe has coordinates; half of the tokens take at most p50'
call $sampled --mesh data=1 --seed 43
grep '"sample"' out | cmp -s - one
[ $? = 1 ]
point 'another seed, other samples'
wide="generate --model-dimension 256 --n-heads 4 --blocks 1 --temperature 1 --mesh data=1 --json --sequence 512"
for kind in '--prompt abc --length 40' '--precision bf16 --prompt abc --length 40' "--prompt $(printf %0400d 7) --length 410" \
    "--attention gqa --kv-heads 2 --mlp silu --biases none --precision bf16 --storage bf16 --prompt $(printf %0400d 7) --length 410"; do
    rm -f threads_*
    for threads in 1 2 3 5; do
        call $wide $kind --threads $threads
        [ $status = 0 ] && grep '"sample"' out >threads_$threads
    done
    [ -s threads_1 ] && cmp -s threads_1 threads_2 && cmp -s threads_1 threads_3 && cmp -s threads_1 threads_5
    point "threads change no token: $(echo $kind | tr -s 0)"
done
call evaluate --model-dimension 256 --n-heads 4 --blocks 1 --data text --evaluate-batches 2 --sequence 64 --batch 2 --json --mesh data=1
values loss >shared
call evaluate --model-dimension 256 --n-heads 4 --blocks 1 --data text --evaluate-batches 2 --sequence 64 --batch 2 --json --mesh data=1,pipe=2
[ $status = 0 ] && [ -s shared ] && values loss | cmp -s - shared
point 'an evaluation by the threads of a coordinate has the bits of one by stages'
for cache in expanded latent; do
    call generate $reference --prompt-tokens 5 --samples 3 --temperature 0 --precision bf16 --cache $cache --mesh tensor=2 --json
    grep '"sample"' out >$cache
done
[ -s latent ] && cmp -s latent expanded
point 'both caches in bf16'
call generate $model --prompt 'ab"' --length 5 --json --mesh tensor=2
[ $status = 0 ] && grep -q '"tokens":\[97,98,34,[0-9]*,[0-9]*\],"text":"ab\\"' out
point 'bytes of a prompt'
# Prompts of several lengths; each alone, then all of a file, of which at most some are under way.
printf 'a\nThe second one is longer than the others, and goes in parts.\nabc\n"x\n' >prompts
several="generate $model --length 70 --temperature 0 --json"
: >alone
while read -r prompt; do
    call $several --mesh data=1 --prompt "$prompt"
    grep -o '"tokens.*' out | head -n 1 >>alone
done <prompts
[ "$(wc -l <alone)" = 4 ]
point 'prompts one by one'
for mesh in data=1 'pipe=2 --groups 3' 'pipe=4 --in-flight 2' 'data=2,pipe=2 --in-flight 1' \
    'pipe=2 --in-flight 3 --groups 2 --cache expanded' 'data=2,tensor=2 --fsdp'; do
    call $several --prompts prompts --mesh $mesh
    [ $status = 0 ] && grep -o '"tokens":.*' out | head -n 4 | cmp -s - alone &&
        [ "$(values prompt | tr '\n' ' ')$(values sample | tr '\n' ' ')" = '0 1 2 3 0 1 2 3 ' ]
    point "the same from a file on $mesh"
done
call $several --prompts prompts --samples 2 --temperature 1 --mesh pipe=2
[ "$(values prompt | tr '\n' ' ')$(values sample | tr '\n' ' ')" = '0 0 1 1 2 2 3 3 0 1 2 3 4 5 6 7 ' ]
point 'two samples of each'
call generate $model --length 70 --prompts prompts --mesh pipe=2
[ $status = 0 ] && grep -qxF -- '---- sample 2 of prompt 2' out && grep -q '^The second one' out &&
    grep -qE 'prompts included$' err && grep -qE '\(p50\), [0-9.e+-]+ ms \(p99\); 4 in flight in 2 groups$' err
point 'prompts and samples for people'
call train $model --batch 8 --data text --steps 2 --sample-every 2 --length 70 --prompts prompts --samples 2 --groups 3 \
    --in-flight 3 --mesh pipe=2 --json
[ $status = 0 ] && [ "$(grep -c '"step":1,"prompt":[0-3],"sample":[0-7],"tokens"' out)" = 8 ]
point 'samples of prompts while it trains'
call generate $model --prompt abc --length 3
[ $status = 0 ] && [ "$(cat out)" = abc ]
point 'a prompt that is as long as asked for'
call generate $model --prompt abc --samples 2 --length 8
[ $status = 0 ] && [ "$(grep -c '^---- sample [01]' out)" = 2 ] && [ "$(grep -c '^abc' out)" = 2 ] && grep -q tokens/s err
point 'samples for people'

# ---- a text is learned ----

if [ -d /usr/share/common-licenses ]; then
    call train --model-dimension 32 --n-heads 4 --blocks 1 --layers-per-block 2 --sequence 32 --latent-dim 16 --rope-dim 8 \
        --batch 16 --steps 20 --lr 0.01 --json
    values loss | awk 'NR == 1 { first = $1 } { last = $1 } END { exit !(first > 5.3 && first < 7 && last < 3.5) }'
    point 'twenty steps on the licenses'
else
    skip 'twenty steps on the licenses' 'there are none in /usr/share/common-licenses'
fi

plan
