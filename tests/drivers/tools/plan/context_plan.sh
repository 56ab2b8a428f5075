#!/bin/sh
# context_plan.sh DRIVERS DATA - layouts that divide sequences: predicted, searched, saved and run; prints TAP.
driver=$1/transformer
laptop=$2/machines/laptop.json
. "$(dirname "$0")/../../../rigs/points.sh"
own='train --model-dimension 32 --n-heads 4 --blocks 1 --layers-per-block 2 --sequence 1024 --batch 4 --vocab-size 128'

# ---- bytes: a dry run's ----

# is_exact DEVICES ARGUMENT...: so are those of three layouts of each way that a search predicts.
is_exact() {
    devices=$1
    shift
    call $own "$@" --plan search --devices "$devices" --machine "$laptop" --json
    for way in $ways; do
        sed -n 's/.*"layout": *"\([^"]*--context-by '$way' [^"]*\)".*"bytes": *\([0-9]*\).*/\2 \1/p' out | sed -n '1p;5p;17p'
    done >layouts
    count=0 wrong=
    while read -r bytes layout; do
        call $own "$@" $layout --dry-run --json
        [ $status = 0 ] && [ "$(values total | sort -n | tail -n 1)" = "$bytes" ] || wrong="$wrong $layout"
        count=$((count + 1))
    done <layouts
    [ $count = $((3 * $(echo "$ways" | wc -w))) ] && [ -z "$wrong" ] || { echo "of $count:$wrong" >>err; false; }
    point "predicted bytes are a dry run's, of $count layouts on $devices devices: $*"
}
ways='gather ring heads latents'
is_exact 4 --fsdp
ways='gather ring heads'
is_exact 8 --attention gqa --no-fsdp

call $own --mesh data=1,context=2 --steps 3 --machine "$laptop" --json
held=$(tail -n 1 out | grep -o '"total": *[0-9]*' | sed 's/.*: *//' | sort -n | tail -n 1)
planned=$(sed -n 's/.*"predicted": *{[^}]*"bytes": *\([0-9]*\).*/\1/p' out)
[ $status = 0 ] && [ -n "$held" ] && [ "$held" = "$planned" ]
point 'a run holds what was predicted'
call $own --mesh data=1,context=2 --steps 3 --advice
[ $status = 0 ] && grep -q '^predicted [0-9.e+]* ms a step, measured [0-9.e+]* (' out
point 'a run ends with its prediction'

# ---- the list ----

call $own --plan search --devices 4 --machine "$laptop" --json
sed -n 's/.*"layout":"--mesh [a-z=0-9,]*context=\([0-9]*\)[^"]*--context-by \([a-z]*\) .*/\1 \2/p' out | sort -u >ways
[ $status = 0 ] && printf '%s\n' '2 gather' '2 heads' '2 latents' '2 ring' '4 gather' '4 heads' '4 latents' '4 ring' | cmp -s - ways
point 'sizes and ways'
grep '"layout"' out | grep -v -- '--context-by' | grep -q context= && status=1
[ $status = 0 ] && ! grep -q context=1 out
point 'the axis has more than one coordinate'
call $own --plan search --devices 4 --sequence 256 --machine "$laptop" --json
[ $status = 0 ] && grep -q '"layout"' out && ! grep -q context= out
point 'short sequences are not divided'
call $own --plan search --devices 4 --exact data=4 --machine "$laptop" --json
[ $status = 0 ] && grep -q '"layout"' out && ! grep -q context= out
point 'with --exact, nor are sequences without leaves'
call $own --plan search --devices 4 --exact data=2,context=2 --machine "$laptop" --json
[ $status = 0 ] && grep -q 'context=2,' out && ! grep -q 'context=4\|by heads\|by latents\|by ring' out
point 'leaves bound the axis, and are gathered'
call $own --plan search --mesh data=2,context=2 --context-by heads --machine "$laptop" --json
[ $status = 0 ] && grep -q 'context=2' out && ! grep -q -- '--context-by' out
point 'the way that is given is not written again'
call $own --plan search --devices 4 --context-by heads
[ $status = 2 ] && says 'transformer train: --context-by: is read only with --mesh context=2 or more'
point 'a way needs a mesh'

# One sequence, too long for a place's memory: only coordinates that share it have room.
one="$own --batch 1 --sequence 4096 --schedule 1f1b --no-fsdp"
call $one --mesh data=1,pipe=1,context=4,tensor=1 --dry-run --json
largest=$(values total | sort -n | tail -n 1)
call $one --plan search --devices 4 --recompute none --storage f32 --memory "$largest"B --machine "$laptop" --save-options best
[ $status = 0 ] && grep -q 'context=4' best
point 'a long sequence is divided where memory is short'
call train @best --steps 1
[ $status = 0 ] && grep -q '^parameters ' out
point 'and the saved options run'

# ---- links: keys and values go over the axis, gradients over it and data ----

# slow LINK NODES MESH: the prediction of MESH on NODES depends on LINK.
slow() {
    for rate in 10 0.01; do
        sed "s/\"count\": 1, \"places\": 2, \"shares\": true/$2/
s/^\"links\": {.*}/\"links\": {\"package\": {\"latency_us\": 2, \"gb_per_s\": 10}, \"network\": {\"latency_us\": 2, \"gb_per_s\": 10}}/
s/\"$1\": {\"latency_us\": 2, \"gb_per_s\": 10/\"$1\": {\"latency_us\": 2, \"gb_per_s\": $rate/" "$laptop" >linked.json
        call $own --no-fsdp --plan search --mesh "$3" --schedule 1f1b --microbatches 1 --context-by gather --engine mpi \
            --machine linked.json --json
        echo "$status $(values predicted_ms | head -n 1)"
    done >times
    if grep -q 'engine "mpi" is not in this build' err; then
        skip "calls of $3 go over the $1 if nodes have $2" 'MPI is not in this build'
        return
    fi
    awk '{ ms[NR] = $2; bad = bad || $1 } END { exit bad || NR != 2 || !(ms[2] > 2 * ms[1]) }' times
    point "calls of $3 go over the $1 if nodes have $2"
}
slow network '"count": 2, "places": 1' data=1,context=2
slow package '"count": 1, "places": 2' data=1,context=2
slow network '"count": 2, "places": 2' data=2,context=2
slow package '"count": 2, "places": 2' data=2,context=2
plan
