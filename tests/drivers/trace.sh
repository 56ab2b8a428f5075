#!/bin/sh
# trace.sh DRIVERS - what --trace records has what Perfetto needs to show it; prints TAP.
drivers=$1
check=$(cd "$(dirname "$0")" && pwd)/trace.py
. "$(dirname "$0")/../rigs/points.sh"

# records COORDINATES DRIVER ARGUMENT...: the trace has names, steps, and an arrow for each message.
records() {
    coordinates=$1 driver=$2
    shift 2
    "$drivers/"$driver --steps 4 --json --trace trace "$@" >metrics 2>err &&
        python3 "$check" trace metrics "$coordinates" >out 2>>err
    status=$?
    [ $status = 0 ] && [ ! -s err ]
    point "$driver $* ($(cat out))"
}

small='--hidden 16 --batch 32 --rng global'
records 8 looping_pipeline $small
records 4 looping_pipeline $small --mesh data=2,model=2 --schedule zbv --microbatches 4 --accumulate 2
records 4 looping_pipeline $small --mesh model=4 --schedule dualpipev --no-overlap --zero 0
records 2 looping_pipeline $small --mesh data=2,model=1 --schedule single
tiny='--model-dimension 16 --n-heads 4 --sequence 16 --latent-dim 8 --rope-dim 4 --data text --validation 0.2'
for n in 0 1 2 3 4 5 6 7 8 9; do echo "Line $n of a text that is long enough to be divided, not to be read."; done >text
records 8 'transformer train' $tiny
records 4 'transformer train' $tiny --mesh pipe=2,tensor=2 --schedule interleaved-1f1b --loops 3 --evaluate-every 2

# A run that goes on: its first step is not recorded either.
"$drivers/looping_pipeline" $small --steps 3 --save saved >out 2>err
"$drivers/looping_pipeline" $small --steps 6 --resume saved --json --trace trace 2>err >metrics
python3 "$check" trace metrics 8 >out 2>>err && grep -q '"step 5"' trace && ! grep -q '"step 3"' trace
status=$?
[ $status = 0 ] && [ ! -s err ]
point 'a resumed run'

# What is read ignores names, steps and arrows.
python3 -c 'import json, sys
trace = json.load(open("trace"))
trace["traceEvents"] = [e for e in trace["traceEvents"] if e["ph"] == "X" and e["cat"] != "step"]
json.dump(trace, sys.stdout)' >plain
"$drivers/schedule" --compare trace >with 2>err && "$drivers/schedule" --compare plain >out 2>>err && cmp -s with out
point 'schedule --compare reads the same'

# Backwards that recomputation has turned round.
"$drivers/looping_pipeline" $small --mesh data=1,model=2 --schedule plain --wgrad-group 1 --recompute full --steps 3 \
    --trace trace >out 2>err && grep -q '"ascends": *true' trace && "$drivers/schedule" --compare trace --json >out 2>>err &&
    sed 's/"ascends": *true/"ascends":false/' trace >other && "$drivers/schedule" --compare other --json >plain 2>>err &&
    ! cmp -s out plain && [ ! -s err ]
status=$?
[ $status = 0 ]
point 'schedule --compare knows an ascending table'
plan
