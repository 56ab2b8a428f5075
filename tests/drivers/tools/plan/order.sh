#!/bin/sh
# order.sh DRIVERS - runs the best three layouts and the last one of a search for eight coordinates: they hold the
# predicted bytes, and their times have the predicted order. Prints TAP.
#
# Others may use the machine meanwhile, and so only layouts whose predictions are far apart are in order:
# `./benchmarks/run --only predictions` compares the others, and the times themselves, on a quiet machine.
drivers=$1
. "$(dirname "$0")/../../../rigs/points.sh"

call() {
    timeout 300 "$drivers/$@" >out 2>err </dev/null
    status=$?
}

call plan measure --brief --save machine.json
[ $status = 0 ]
point 'the machine is measured'

# searched DRIVER ARGUMENT...: the lines "predicted_ms bytes layout" of the best three and the last, in the file layouts.
searched() {
    call "$@" --plan search --devices 8 --machine machine.json --json
    sed -n 's/.*"layout": *"\([^"]*\)","predicted_ms": *\([0-9.e+]*\).*"bytes": *\([0-9]*\).*/\2 \3 \1/p' out |
        sed -n '1,3p;$p' >layouts
    [ $status = 0 ] && [ "$(wc -l <layouts)" = 4 ]
    point "four layouts of a search: $1"
}

# runs STEPS DRIVER ARGUMENT...: all of them; the lines "predicted_ms measured_ms", medians, in the file times.
runs() {
    steps=$1 wrong=
    shift
    while read -r predicted bytes layout; do
        call "$@" $layout --steps "$steps" --machine machine.json --json
        held=$(tail -n 1 out | grep -o '"total": *[0-9]*' | sed 's/.*: *//' | sort -n | tail -n 1)
        [ $status = 0 ] && [ "$held" = "$bytes" ] || wrong="$wrong, $layout: $bytes planned, $held held"
        echo "$predicted $(sed '$d' out | sed -n 's/.*"ms":\([-+.e0-9]*\).*/\1/p' | sed 1d | sort -g | awk '{ ms[NR] = $1 } END { print ms[int((NR + 1) / 2)] }')"
    done <layouts >times
    [ -z "$wrong" ] || { echo "$wrong" >>err; false; }
    point "held bytes are the predicted ones, four times: $1"
}

transformer='transformer train --model-dimension 32 --n-heads 4 --latent-dim 16 --rope-dim 4 --blocks 2
    --layers-per-block 2 --sequence 16 --batch 16 --vocab-size 256'
searched looping_pipeline
runs 10 looping_pipeline
cp times out
awk '{ predicted[NR] = $1; ms[NR] = $2 }
    END {
        for (i = 1; i <= NR; i++)
            for (j = 1; j <= NR; j++) {
                if (predicted[j] < 2 * predicted[i]) continue
                apart++
                wrong += ms[j] < ms[i]
            }
        exit !(apart > 0 && wrong == 0)
    }' times
point 'what was predicted to take twice as long took longer'

searched $transformer
runs 2 $transformer

plan
