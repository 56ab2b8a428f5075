#!/bin/sh
# teaching.sh DRIVERS DATA - what plan's formulas say of memory and of what is sent, beside the planning code of the
# driver transformer: every category, byte for byte, over layouts of the model that the formulas describe. Prints TAP.
drivers=$1
. "$(dirname "$0")/../../rigs/points.sh"

# A place for each: a search tells, link by link, what the coordinate sends that sends most, and here one has all links.
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

# told_by_formulas: parameters, gradients, optimizer, activations, and what is sent, of the layout in the variables.
told_by_formulas() {
    options="--layers $layers --hidden $hidden --expansion $expansion --heads $heads --vocabulary $vocabulary
        --sequence $sequence --microbatch-size $samples --microbatches $microbatches --data $data --stages $pipe
        --tensor $tensor --pipeline $pipeline --zero $zero --precision $precision $recompute --json"
    row=$("$drivers/plan" --section memory $options | tail -n 1)
    sent=$("$drivers/plan" --section communication $options | sed 's/.*"bytes": *\([0-9]*\).*/\1/' | awk '{ s += $1 } END { print s }')
    echo "$(number parameters "$row") $(number gradients "$row") $(number optimizer "$row") $(number activations "$row") $sent"
}

# As plan's command for this layout would train it.
driver_options() {
    echo "--attention gqa --rope-dim 0 --norm layer --mlp erf-gelu --learned-positions $sequence --n-heads $heads
        --model-dimension $hidden --mlp-dim $((expansion * hidden)) --blocks 1 --layers-per-block $layers
        --vocab-size $vocabulary --sequence $sequence --batch $((samples * microbatches * data)) --wgrad-group 1
        --microbatches $microbatches --mesh data=$data,pipe=$pipe,tensor=$tensor --schedule $pipeline --loops 1 --no-fuse"
    [ "$pipe" = 1 ] || echo --stage-layers "$(yes $((layers / pipe)) | head -n "$pipe" | paste -sd ,)" # the formulas' stages are alike
    [ "$tensor" = 1 ] || echo --vocabulary-parallel
    case $zero in 3) echo --fsdp --no-prefetch --zero 2 ;; *) echo "--no-fsdp --zero $zero" ;; esac
    [ $precision = f32 ] || echo --precision bf16 --storage bf16
    [ ! "$recompute" ] || echo --recompute full
}

# activations and the rest, in that order, of a line of JSON.
categories() {
    echo "$(number parameters "$1") $(number gradients "$1") $(number optimizer "$1") $(($(number kept "$1") + $(number recomputed "$1")))"
}

# of_search ENGINE: the same of a search for this layout alone; where coordinates are processes, none is started.
of_search() {
    found=$("$drivers/transformer" train --engine "$1" $(driver_options) --plan search --devices $((data * pipe * tensor)) \
        --machine "$laptop" --json 2>err | head -n 1)
    echo "$(categories "$found") $(($(number package "$found") + $(number node "$found") + $(number network "$found")))"
}

# of_dry_run: the coordinate that takes most, over threads. Without ZeRO they share nothing.
of_dry_run() {
    "$drivers/transformer" train $(driver_options) --dry-run --json 2>err | while read -r line; do categories "$line"; done |
        awk '$1 + $2 + $3 + $4 > most { most = $1 + $2 + $3 + $4; row = $0 } END { print row }'
}

compared=0 searched=0
# agrees DATA PIPE TENSOR ZERO PIPELINE MICROBATCHES PRECISION [--recompute]
agrees() {
    data=$1 pipe=$2 tensor=$3 zero=$4 pipeline=$5 microbatches=$6 precision=$7 recompute=$8
    : >err
    told=$(told_by_formulas)
    status="formulas $told"
    if [ "$zero" = 0 ]; then
        run=$(of_dry_run)
        [ "${told% *}" = "$run" ] || echo "a dry run has $run" >>err
        compared=$((compared + 1))
        # Threads read what others of a tensor group have, and need not gather it once more.
        run=
        [ "$tensor" = 1 ] && run=$(of_search local)
        [ "$tensor" != 1 ] && [ "$launches" ] && run=$(of_search mpi)
        [ ! "$run" ] || [ "${told##* }" = "${run##* }" ] || echo "a search sends ${run##* }" >>err
    elif [ "$launches" ]; then
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
[ $compared -ge 20 ] && { [ ! "$launches" ] || [ $searched -ge 8 ]; }
point 'at least 20 layouts'

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
