#!/bin/sh
# advice.sh DRIVERS - two small models, five under SL_TEST_LONG, run as advised: a layout is advised if it saves 15 % of the time, it
# takes the planned bytes, and the run is no slower for it. Prints TAP.
#
# Times are the least of three runs in turns, each a quarter as long as the one that gave the advice; if other programs
# have had the cores, they say nothing.
drivers=$1
. "$(dirname "$0")/../../../rigs/points.sh"

# run STEPS ARGUMENT...: leaves out, and in the files ms and mb its median and its planned bytes.
run() {
    steps=$1
    shift
    timeout 300 "$drivers"/$* --steps "$steps" >out 2>err </dev/null
    status=$?
    sed -n 's/^predicted .*; planned \([0-9.]*\) MB a coordinate.*/\1/p' out >mb
    sed -n 's/^predicted [0-9.e+]* ms a step, measured \([0-9.e+]*\) (.*/\1/p' out >ms
    ! grep -q '; other programs had the cores' out || : >disturbed
}

# follows ARGUMENT...: a model and its mesh.
follows() {
    rm -f disturbed own followed
    run 24 "$@"
    run $(awk '{ steps = int(3000 / $1); print (steps < 24 ? 24 : steps > 4000 ? 4000 : steps) }' ms) "$@"
    # If the first run was slowed down, so many steps take less than the two seconds that advice needs.
    while [ $status = 0 ] && [ "$steps" -le 8000 ] && grep -q 'other layouts are predicted after' out; do
        run $((2 * steps)) "$@"
    done
    advice=$(sed -n 's/.*; predicted to take \([0-9]* % less time and [0-9.]* MB a coordinate: .*\)/\1/p' out)
    [ $status = 0 ] && { [ "$advice" ] || grep -q '; no layout is predicted to be more than 15 % faster$' out; }
    point "a run that tells what would be faster, or that nothing is: $*"
    [ "$advice" ] || return
    quarter=$((steps / 4)) less=${advice%% *} told=${advice#* and } layout=${advice#*: }
    for turn in 1 2 3; do
        run $quarter "$@" && cat ms >>own
        run $quarter "$@" $layout && cat ms >>followed
        [ ! -e disturbed ] || break
    done
    [ "$less" -ge 15 ] && [ $status = 0 ] && [ "$(cat mb)" = "${told%% *}" ]
    point "from 15 % on, with the bytes that were told: $advice"
    if [ -e disturbed ]; then
        skip "the advice is no slower: $advice" 'other programs had the cores'
        return
    fi
    sort -g own | head -n 1 >one
    sort -g followed | head -n 1 >other
    paste one other >out
    awk '{ exit !($2 <= $1) }' out
    point "the advice is no slower: $advice"
}

for n in $(seq 400); do echo "$n times $n is $((n * n))."; done >text
transformer='transformer train --data text --model-dimension 64 --n-heads 4 --sequence 64 --batch 8'
# On a slow network few steps take two seconds.
slow="--mesh data=2 --delay-ms 400"
run 8 $transformer $slow
[ $status = 0 ] && grep -qE '^after products, .*; (no layout is predicted|predicted to take)' out
point 'steps of two seconds are followed by advice'
run 8 $transformer $slow --no-advice
[ $status = 0 ] && grep -q '^after products, ' out && ! grep -qE 'layout|predicted to take' out
point 'but with --no-advice'
run 8 $transformer $slow --no-advice --machine nowhere
[ $status = 2 ] && grep -q -- '--advice: is read only without --machine' err
point 'which has nothing to leave out where --machine predicts'
follows $transformer --mesh pipe=2
follows looping_pipeline --rng global --layers 8 --hidden 128 --mesh data=1,model=2
if [ "${SL_TEST_LONG:-}" ]; then
    follows $transformer --mesh data=2
    follows $transformer --mesh tensor=2 --attention gqa
    follows looping_pipeline --rng global --layers 4 --hidden 64 --expansion 4 --mesh data=2,model=1
fi
plan
