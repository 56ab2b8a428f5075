#!/bin/sh
# heading.sh DRIVERS - heading of a run and lines beside its steps: mesh, cores, schedule, random numbers, rates;
# and the same in a trace, for comparisons; prints TAP.
drivers=$1
. "$(dirname "$0")/../rigs/points.sh"

# On one core, whatever the machine has: coordinates share it.
first=$(sed -n 's/^Cpus_allowed_list:[^0-9]*\([0-9]*\).*/\1/p' /proc/self/status)
on_one_core() { timeout 120 taskset -c "$first" "$@" >out 2>err </dev/null; status=$?; }

# counted: the line of the parameters that the last call tells at its end.
counted() { sed -n 's/^parameters \([0-9]*\)[, ].*/model of \1 parameters/p' out; }

small='--layers 4 --hidden 8 --batch 16 --microbatches 2'
shared='4 coordinates share 1 core: times are not those of 4 devices'

# heads NAME LINE...: the last call's lines up to the table, each as it is.
heads() {
    name=$1
    shift
    printf '%s\n' "$@" >expected
    sed '/^ *step /,$d' out >got
    [ $status = 0 ] && [ ! -s err ] && cmp -s expected got
    point "$name"
}

on_one_core "$drivers/looping_pipeline" $small --mesh data=2,model=2 --steps 1
heads 'a pipeline' 'mesh data=2,model=2 on 1 core: 2 replicas of the whole model, each a pipeline of 2 ranks' \
    'schedule looping (looped-bfs), 2 loops, 2 microbatches of 4 rows; data: random, 16 examples; random numbers: flax, another model on each mesh (--rng global: one on all)' \
    "$(counted)" "$shared"
on_one_core "$drivers/looping_pipeline" $small --schedule single --steps 1
heads 'no pipeline, on the default mesh' \
    'mesh data=8,model=1 on 1 core: 8 replicas of the whole model, each without a pipeline on 1 coordinate' \
    'schedule single (gpipe), 2 microbatches of 1 row; data: random, 16 examples; random numbers: flax, another model on each mesh (--rng global: one on all)' "$(counted)" \
    'ms are those of 8 replicas together, not of one device; 8 coordinates share 1 core: times are not those of 8 devices'
on_one_core "$drivers/looping_pipeline" $small --mesh data=1,model=1 --schedule 1f1b --steps 1
heads 'one device, and numbers of another generator' \
    'mesh data=1,model=1 on 1 core: the whole model without a pipeline on 1 coordinate' \
    'schedule 1f1b, 2 microbatches of 8 rows; data: random, 16 examples; random numbers: global (flax has no order for schedule 1f1b)' \
    "$(counted)"

# numbers WHY ARGUMENT...: which generator draws.
numbers() {
    why=$1
    shift
    timeout 60 "$drivers/looping_pipeline" $small --mesh data=1,model=2 --steps 1 "$@" >out 2>err
    status=$?
    [ $status = 0 ] && sed -n 2p out | grep -q "; random numbers: $why\$"
    point "random numbers: $*"
}
numbers 'global (flax has no order for 4 layers on 2 stages)' --loops 1
numbers 'global (flax has no dropout in several passes a step)' --accumulate 2
own='flax, another model on each mesh (--rng global: one on all)'
numbers "$own" --accumulate 2 --dropout 0
numbers global --rng global
numbers "$own" --rng flax

echo 'A text that is long enough to be divided, and not to be read by anybody at all.' >line
for n in 1 2 3 4 5 6 7 8; do cat line; done >text
model='--model-dimension 16 --n-heads 4 --blocks 1 --layers-per-block 2 --sequence 16 --latent-dim 8 --rope-dim 4'
train="$drivers/transformer train $model --batch 4 --data text"
on_one_core $train --mesh pipe=2,tensor=2 --microbatches 4 --steps 1
heads 'three dimensions' 'mesh pipe=2,tensor=2,data=1 on 1 core: a pipeline of 2 ranks, each rank 2 coordinates' \
    'schedule 1f1b, 4 microbatches of 1 sequence; data: text, 576 tokens for training' \
    "$(counted); latent attention, which no published family has: --attention gqa has theirs" "$shared"
grouped=${model%% --latent-dim*}
on_one_core $train --mesh data=2,context=2 --steps 1
holds 'divided sequences' 'mesh data=2,context=2,pipe=1,tensor=1 on 1 core: 2 replicas of the whole model, each without a pipeline on 2 coordinates, each with 2 of a sequence'"'s 4 blocks"
on_one_core $train --mesh context=2 --exact context=4 --steps 1
holds 'their leaves' ', 4 along context; data: '
on_one_core $drivers/transformer train $grouped --attention gqa --batch 4 --data text --mesh data=1 --steps 1 --lora-rank 2
heads 'adapters' 'mesh data=1,pipe=1,tensor=1 on 1 core: the whole model without a pipeline on 1 coordinate' \
    'schedule 1f1b, 1 microbatch of 4 sequences; data: text, 576 tokens for training' \
    "$(counted), and adapters of $(sed -n 's/.*and adapters of \([0-9]*\),.*/\1/p' out), which train in their place"
[ "$(sed -n 's/.*and adapters of \([0-9]*\),.*/\1/p' out)" = $((2 * (4 * 32 + 2 * 80) * 2)) ]
point 'so many parameters of adapters: of rank 2, four kernels 16 x 16 and two 16 x 64 a layer'
on_one_core $drivers/transformer train $grouped --attention gqa --batch 4 --data text --mesh data=1 --steps 1
counted >parameters
$drivers/transformer train $grouped --attention gqa --batch 4 --data text --mesh data=1 --dry-run >out 2>err
[ -s parameters ] && head -n 1 out | cmp -s - parameters
point 'a dry run tells the parameters, too'

# trained PATTERN: parameters in the output of the last call whose names do not begin so, each once.
trained() {
    python3 -c '
import json, math, sys
told = {one["parameter"]: one for one in map(json.loads, open("out"))}.values()
print(*(sum(math.prod(one["shape"]) for one in told if not one["parameter"].startswith(name)) for name in ("-", sys.argv[1])))' "$1"
}
small_one="$drivers/looping_pipeline $small --rng global"
for call in "$train --mesh pipe=2,tensor=2,data=1 --freeze blocks.0.layers.0.* blocks.0.layers.0." "$train --mesh data=2 --freeze embedding embedding" \
    "$small_one --mesh data=2,model=2 --freeze blocks.1.* blocks.1."; do
    $(echo "${call% *}" | sed 's/ --freeze.*//') --show-shardings --json >out 2>err
    numbers=$(trained "${call##* }")
    set -f
    ${call% *} --dry-run >out 2>err
    status=$?
    head -n 1 out >dry
    on_one_core ${call% *} --steps 1
    set +f
    [ "${numbers% *}" != "${numbers#* }" ] && grep -q "^model of ${numbers% *} parameters, of which ${numbers#* } train" dry &&
        grep -qxF "$(cat dry)" out
    point "how many parameters train: ${call##* }* frozen"
done
$train --mesh data=1 --steps 1 --json >out 2>err
status=$?
[ $status = 0 ] && [ ! -s err ] && ! grep -qv '^{' out
point 'nothing in JSON'

# ---- shared cores in profiles and traces ----

on_one_core "$drivers/looping_pipeline" $small --mesh data=2,model=2 --steps 4 --profile --trace trace --delay-ms 5
[ $status = 0 ] && [ "$(grep -cx "$shared" out)" = 2 ] && grep -q '^ms a step .* not ready  transfer  no core ' out
point 'a profile says it, too'
# Two columns from the right are other and total: all kinds of work add up to it.
awk '/^[0-9]+ \(/ { n = NF - 2; sum = 0; for (i = n - 8; i < n; i++) sum += $i
         d = sum - $n; if (d < -0.1 || d > 0.1) bad = 1; rows++ } END { exit bad || rows != 4 }' out
point 'and its kinds of work add up'
tail -n 1 trace | grep -q '"delay_ms":5.0,"coordinates":4,"cores":1,"divided":true'
point 'the trace keeps it'
grep -q '"no_core":' trace && grep -q '"transfer":' trace
point 'and how events passed'
"$drivers/schedule" --compare trace >out 2>err
status=$?
[ $status = 0 ] && grep -qxF "$shared; predicted is for a core each, with reductions as measured" out
point 'a comparison says it'
"$drivers/schedule" --compare trace --json >out 2>err
[ "$(sed -n 's/.*"predicted":{"step_ms":\([0-9]*\)\..*/\1/p' out)" -ge 15 ]
point 'and predicts the delay of messages'

# ---- rates ----

# bar COMMAND: its last state on a terminal.
bar() {
    TERM=xterm script -qec "$*" script >out 2>err </dev/null
    status=$?
    tr '\r' '\n' <script | grep ' ETA ' | tail -n 1 >line
}
if command -v script >where; then
    bar $train --mesh data=1 --steps 4 --metrics metrics --evaluate-every 1 --evaluate-batches 200
    awk '/"tokens_per_second"/ && /"step"/ { split($0, part, "\"ms\":"); ms += part[2]; steps++ }
         END { print 1000 * 64 * steps / ms }' metrics >wanted
    sed 's/.*  \([0-9]*\) tokens\/s.*/\1/' line | paste - wanted |
        awk '{ d = $1 / $2; exit !(NF == 2 && d > 0.98 && d < 1.02) }'
    point "a transformer's tokens a second of its steps, without evaluations"
    bar "$drivers/looping_pipeline" $small --mesh data=1,model=1 --steps 4
    grep -q ' [0-9]* samples/s' line
    point "a classifier's samples"
else
    skip 'rates' 'there is no command script'
fi

plan
