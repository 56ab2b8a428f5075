#!/bin/sh
# teaching.sh DRIVERS DATA [MPIRUN] - memory and traffic by the formulas of plan, beside reports of runs of the driver
# transformer: every category, byte for byte, over layouts. Prints TAP.
drivers=$1 mpirun=$3
. "$(dirname "$0")/../../../rigs/points.sh"

# A place for each: a search reports the bytes by link of the coordinate that sends most; here one has all links.
sed 's/"places": 2, "shares": true/"places": 8/' "$2/machines/laptop.json" >places.json
laptop=places.json

# number KEY TEXT: of a key in JSON.
number() {
    echo "$2" | sed -n "s/.*\"$1\": *\([0-9.e+]*\).*/\1/p"
}

# Sizes of a model: layers, hidden, expansion, heads, vocabulary, sequence, samples of a microbatch.
use_model() {
    layers=$1 hidden=$2 expansion=$3 heads=$4 vocabulary=$5 sequence=$6 samples=$7
}

# plan_options: of the layout in the variables, for plan.
plan_options() {
    echo "--layers $layers --hidden $hidden --expansion $expansion --heads $heads --vocabulary $vocabulary
        --sequence $sequence --microbatch-size $samples --microbatches $microbatches --data $data --stages $pipe
        --tensor $tensor --pipeline $pipeline --zero $zero --precision $precision $recompute --json"
}

# told_by_plan: parameters, gradients, optimizer, activations and traffic, likewise.
told_by_plan() {
    options=$(plan_options)
    row=$("$drivers/plan" --section memory $options | tail -n 1)
    sent=$("$drivers/plan" --section communication $options | sed 's/.*"bytes": *\([0-9]*\).*/\1/' | awk '{ s += $1 } END { print s }')
    echo "$(number parameters "$row") $(number gradients "$row") $(number optimizer "$row") $(number activations "$row") $sent"
}

# As plan's command for this layout would train it.
driver_options() {
    echo "--attention gqa --rope-dim 0 --norm layer --mlp erf-gelu --learned-positions $sequence --n-heads $heads
        --model-dimension $hidden --mlp-dim $((expansion * hidden)) --blocks 1 --layers-per-block $layers
        --vocab-size $vocabulary --sequence $sequence --batch $((samples * microbatches * data)) --wgrad-group 1
        --microbatches $microbatches --mesh data=$data,pipe=$pipe,tensor=$tensor --schedule $pipeline --loops 1"
    [ "$pipe" = 1 ] || echo --stage-layers "$(yes $((layers / pipe)) | head -n "$pipe" | paste -sd ,)" # or the search balances them
    [ "$tensor" = 1 ] || echo --vocabulary-parallel
    case $zero in 3) echo --fsdp --no-prefetch --zero 2 ;; *) echo "--no-fsdp --zero $zero" ;; esac
    [ $precision = f32 ] || echo --precision bf16 --storage bf16
    [ ! "$recompute" ] || echo --recompute full
}

# categories LINE KEY: parameters, gradients, optimizer, and all the rest of the bytes of KEY, of a line of JSON.
categories() {
    three="$(number parameters "$1") $(number gradients "$1") $(number optimizer "$1")"
    echo "$three $(($(number "$2" "$1") - ${three%% *} - $(echo "$three" | sed 's/[0-9]* //; s/ / - /')))"
}

# of_search ENGINE: the same of a search for this layout alone; if coordinates are processes, none is started.
of_search() {
    found=$("$drivers/transformer" train --engine "$1" $(driver_options) --plan search --devices $((data * pipe * tensor)) \
        --machine "$laptop" --json 2>err | head -n 1 | sed 's/"calls_ms": *{[^}]*}//') # whose keys are those of bytes
    echo "$(categories "$found" bytes) $(($(number package "$found") + $(number node "$found") + $(number network "$found")))"
}

# of_dry_run: of a coordinate alone.
of_dry_run() { categories "$("$drivers/transformer" train $(driver_options) --dry-run --json 2>err)" total; }

compared=0 searched=0
# agrees DATA PIPE TENSOR ZERO PIPELINE MICROBATCHES PRECISION [--recompute]
agrees() {
    data=$1 pipe=$2 tensor=$3 zero=$4 pipeline=$5 microbatches=$6 precision=$7 recompute=$8
    : >err
    told=$(told_by_plan)
    status="plan $told"
    if [ "$data$pipe$tensor" = 111 ]; then
        run=$(of_dry_run)
        [ "${told% *}" = "$run" ] || echo "a dry run has $run" >>err
        compared=$((compared + 1))
    fi
    if [ "$launches" ]; then
        run=$(of_search mpi)
        [ "$told" = "$run" ] || echo "a search has $run" >>err
        searched=$((searched + 1))
    fi
    [ ! -s err ]
    point "$layers layers, data=$data pipe=$pipe tensor=$tensor zero=$zero $pipeline $precision $recompute"
}

# A build without MPI has no engine whose coordinates hold everything by themselves.
launches=yes
"$drivers/transformer" train --engine mpi --plan search --mesh data=1 --batch 8 --machine "$laptop" >out 2>err || launches=

use_model 4 64 4 4 256 32 4
agrees 1 1 1 0 sequential 4 f32
agrees 1 1 1 0 interleaved 4 f32 --recompute
agrees 2 1 1 0 interleaved 4 f32
agrees 4 1 1 0 interleaved 2 f32
agrees 2 1 1 1 interleaved 4 f32
agrees 2 1 1 2 interleaved 4 f32
agrees 4 1 1 2 interleaved 4 f32
agrees 2 1 1 2 interleaved 4 f32 --recompute
agrees 2 2 1 2 grouped 4 f32
agrees 4 1 1 3 interleaved 4 f32
agrees 1 1 2 0 interleaved 4 f32
agrees 1 1 4 0 interleaved 4 f32
agrees 1 1 2 0 interleaved 4 f32 --recompute
agrees 1 2 1 0 sequential 4 f32
agrees 1 2 1 0 interleaved 4 f32 --recompute
agrees 1 4 1 0 grouped 8 f32
agrees 1 4 1 0 interleaved 8 f32
agrees 1 4 1 0 interleaved 8 f32 --recompute
agrees 1 2 2 0 grouped 4 f32
agrees 1 2 2 0 interleaved 4 f32 --recompute
agrees 2 2 2 1 interleaved 4 f32
agrees 2 2 1 3 interleaved 4 f32
agrees 2 1 2 3 interleaved 4 f32
agrees 2 2 2 0 grouped 4 f32
agrees 1 1 1 0 interleaved 4 mixed
agrees 2 1 1 1 interleaved 4 mixed
agrees 4 1 1 2 interleaved 4 mixed
agrees 2 2 1 1 interleaved 4 mixed
agrees 2 1 1 3 interleaved 4 mixed
agrees 1 2 1 0 interleaved 4 mixed
agrees 1 1 2 0 interleaved 4 mixed
agrees 1 2 2 0 interleaved 4 mixed
agrees 1 1 1 0 interleaved 4 mixed --recompute
use_model 6 128 2 8 512 64 2
agrees 1 2 2 0 interleaved 4 f32
agrees 2 2 1 1 grouped 8 f32
agrees 1 1 1 0 interleaved 4 f32
status="$compared dry runs, $searched searches"
[ $compared -ge 4 ] && { [ ! "$launches" ] || [ $searched -ge 35 ]; }
point 'at least 35 layouts'

# holds DATA PIPE TENSOR ZERO PIPELINE: a run over processes holds the bytes that it and plan planned, in total, on its fullest
# coordinate.
holds_what_was_told() {
    data=$1 pipe=$2 tensor=$3 zero=$4 pipeline=$5 microbatches=4 precision=f32 recompute=
    told=$(number total "$("$drivers/plan" --section memory $(plan_options) | tail -n 1)")
    for way in --dry-run '--steps 1'; do
        timeout 100 "$mpirun" $((data * pipe * tensor)) "$drivers/transformer" train --engine mpi $(driver_options) $way --json >out 2>err </dev/null
        grep -o '"total": *[0-9]*' out | sed 's/.*: *//' | sort -n | tail -n 1
    done >totals
    status="plan $told"
    [ "$told" ] && [ "$(cat totals)" = "$told
$told" ]
    point "planned, said before and held: data=$data pipe=$pipe tensor=$tensor zero=$zero $pipeline"
}
if [ "$mpirun" ]; then
    use_model 4 64 4 4 256 32 4
    holds_what_was_told 2 1 1 1 interleaved
    holds_what_was_told 1 2 1 0 grouped
    holds_what_was_told 1 1 2 0 interleaved
    holds_what_was_told 2 1 1 3 interleaved
else
    skip 'planned, said before and held' 'MPI is not in this build'
fi

# The command that a search of plan prints has the memory and the time of its row, for the driver's own search on such devices.
cat >devices.json <<'END'
{"name": "plan's devices", "nodes": [{"count": 2, "places": 8}],
 "products": [["f32", 4096, 4096, 4096, "NN", 100000], ["bf16", 4096, 4096, 4096, "NN", 100000]],
 "kernels": {"moves": 1e9, "norms": 1e9, "gelu": 1e9, "softmax": 1e9, "dropout": 1e9, "optimizer": 1e9},
 "attention_gflops": 100000, "action_us": 0,
 "links": {"package": {"latency_us": 0, "gb_per_s": 300}, "network": {"latency_us": 0, "gb_per_s": 25}}}
END
searches() { # searches ARGUMENT...: of 16 devices
    "$drivers/plan" --section search --layers 24 --hidden 1024 --heads 16 --sequence 1024 --vocabulary 4096 --json "$@" >out 2>err
    set -- $(sed -n '1s/.*"memory":\([0-9]*\),.*"bubble":\([-0-9.e]*\),.*"update_s":\([-0-9.e]*\)}/\1 \2 \3/p' out)
    command=$(sed -n 's/.*"command":"[^ "]*transformer \(.*\)"}$/\1/p' out)
    stages=$(echo "$command" | sed -n 's/.*pipe=\([0-9]*\).*/\1/p')
    found=$("$drivers/transformer" $command --stage-layers "$(yes $((24 / stages)) | head -n "$stages" | paste -sd ,)" --engine mpi \
        --plan search --devices 16 --machine devices.json --json 2>err | head -n 1)
    status="$*, $found"
    awk 'BEGIN { near = ARGV[2] / ARGV[4]; exit !(ARGV[1] == ARGV[3] && near > 0.999 && near < 1.001 && ARGV[5] - ARGV[6] < 0.001 && ARGV[6] - ARGV[5] < 0.001) }' \
        "$1" "$(echo "$3" | awk '{ print 1000 * $1 }')" "$(number bytes "$found")" "$(number predicted_ms "$found")" "$2" "$(number bubble "$found")"
    point "the predictions of both searches: $command"
}
if [ "$launches" ]; then
    searches --data 4 --stages 2 --tensor 2
    searches --data 4 --stages 4 --tensor 1 --precision f32 --pipeline 1f1b --microbatch-size 2
    searches --data 16 --stages 1 --tensor 1 --zero 2 --capacity 3
fi

# The command that plan prints trains that model.
model="--layers 4 --hidden 64 --heads 4 --vocabulary 256 --sequence 32 --data 1 --stages 1 --tensor 1 --precision f32 --json"
"$drivers/plan" --section search --pipeline interleaved $model >out 2>err
command=$(sed -n 's/.*"command":"[^ "]*transformer \(.*\)"}$/\1/p' out)
trained=$("$drivers/transformer" $command --show-shardings --json 2>err | sed -n 's/.*"shape":\[\([0-9,]*\)\].*/\1/p' |
    awk -F, '{ p = 1; for (i = 1; i <= NF; i++) p *= $i; sum += p } END { print sum }')
told=$(number parameters "$("$drivers/plan" --section memory $model | head -n 1)")
status="$trained parameters beside $told"
[ "$command" ] && [ "$trained" = "$told" ]
point 'the command trains the model of the formulas'

plan
