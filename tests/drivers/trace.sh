#!/bin/sh
# trace.sh DRIVERS - traces of --trace have the entries that Perfetto needs; prints TAP.
drivers=$1
check=$(cd "$(dirname "$0")" && pwd)/trace.py
. "$(dirname "$0")/../rigs/points.sh"

# records COORDINATES DRIVER ARGUMENT...: the trace has names, steps, and an arrow for each message.
records() {
    coordinates=$1 driver=$2
    shift 2
    "$drivers/"$driver --steps 4 --json --trace trace "$@" >metrics 2>err &&
        python3 "$check" trace "$coordinates" metrics >out 2>>err
    status=$?
    [ $status = 0 ] && [ ! -s err ]
    point "$driver $* ($(cat out))"
}

small='--hidden 16 --batch 32 --rng global'
records 8 looping_pipeline $small
records 4 looping_pipeline $small --mesh data=2,model=2 --schedule zbv --microbatches 4 --accumulate 2
records 4 looping_pipeline $small --mesh model=4 --schedule dualpipev --no-overlap --zero 0
records 2 looping_pipeline $small --mesh data=2,model=1 --schedule single
records 4 looping_pipeline $small --mesh data=2,model=2 --fsdp
"$drivers/schedule" --compare trace >out 2>err && grep -q ' gathering ' out && grep -q '"cat":"gather"' trace
status=$?
[ $status = 0 ] && [ ! -s err ]
point 'gathers are recorded and compared'
tiny='--model-dimension 16 --n-heads 4 --sequence 16 --latent-dim 8 --rope-dim 4 --data text --validation 0.2'
for n in 0 1 2 3 4 5 6 7 8 9; do echo "Line $n of a text that is long enough to be divided, not to be read."; done >text
records 8 'transformer train' $tiny
records 4 'transformer train' $tiny --mesh pipe=2,tensor=2 --schedule interleaved-1f1b --loops 3 --evaluate-every 2
records 2 'transformer train' $tiny --mesh tensor=2 --tensor-pieces 4 --microbatches 2
# Of 3 steps, 2 coordinates and 2 microbatches: 4 pieces of each kernel, in forward and in backward, except for the kernel
# of the rotary key, whose columns every coordinate has.
kernels=$("$drivers/transformer" train $tiny --mesh tensor=2 --show-shardings | grep '^blocks.*kernel .* tensor' | grep -vc k_rope)
pieces=$(sed -n 's/.* \([0-9]*\) pieces$/\1/p' out)
[ "$pieces" = $((3 * 2 * 2 * 4 * 2 * kernels)) ] && grep -q '"dropped_events": *0' trace
point "$kernels kernels are moved in pieces: $pieces"
"$drivers/schedule" --compare trace >out 2>err && [ ! -s err ] && grep -q 'means of 3 steps' out
point 'schedule --compare reads past pieces'

# compares COORDINATES STEPS DRIVER ARGUMENT...: so has any other driver's, and schedule reads it.
compares() {
    coordinates=$1 steps=$2 driver=$3
    shift 3
    "$drivers/"$driver --trace trace "$@" >out 2>err && python3 "$check" trace "$coordinates" >out 2>>err &&
        "$drivers/schedule" --compare trace >out 2>>err && grep -q "means of $steps steps" out
    status=$?
    [ $status = 0 ] && [ ! -s err ]
    point "$driver $*: is compared"
    set -- $(python3 -c 'import json
of = json.load(open("trace"))["shardloop"]
print(of["schedule"], of["ranks"], of["loops"], of["microbatches"])')
    "$drivers/schedule" --name "$1" --stages "$2" --loops "$3" --microbatches "$4" --costs trace --json >out 2>err
    status=$?
    [ $status = 0 ] && [ ! -s err ] && grep -q '"valid":true' out && ! grep -q '"step_ms":0.0,' out
    point "$driver: $1 has costs"
}
compares 8 2 loss_equality --steps 2 --hidden 16 --batch 32
compares 2 2 loss_equality --steps 2 --hidden 16 --batch 32 --mesh data=1,model=2 --schedule zbv
compares 2 2 loss_equality --steps 2 --hidden 16 --batch 32 --mesh data=1,model=2 --schedule dualpipe
compares 2 1 gpipe
compares 3 1 gpipe --partitions 3 --microbatches 5 --json
compares 4 20 custom_module
compares 4 20 regression
compares 8 2 convolution
"$drivers/schedule" --name zbv --stages 2 --microbatches 8 --format csv >table
"$drivers/looping_pipeline" $small --mesh data=1,model=2 --schedule-file table --steps 3 --trace trace >out 2>err &&
    "$drivers/schedule" --compare trace --file table >out 2>>err && [ ! -s err ]
status=$?
[ $status = 0 ]
point 'a run of a table from a file'

# A run that goes on: its first step is not recorded either.
"$drivers/looping_pipeline" $small --steps 3 --save saved >out 2>err
"$drivers/looping_pipeline" $small --steps 6 --resume saved --json --trace trace 2>err >metrics
python3 "$check" trace 8 metrics >out 2>>err && grep -q '"step 5"' trace && ! grep -q '"step 3"' trace
status=$?
[ $status = 0 ] && [ ! -s err ]
point 'a resumed run'

# Readers ignore names, steps and arrows.
python3 -c 'import json, sys
trace = json.load(open("trace"))
trace["traceEvents"] = [e for e in trace["traceEvents"] if e["ph"] == "X" and e["cat"] != "step"]
json.dump(trace, sys.stdout)' >plain
"$drivers/schedule" --compare trace >with 2>err && "$drivers/schedule" --compare plain >out 2>>err && cmp -s with out
point 'schedule --compare reads the same'

# Backwards that recomputation has turned round.
"$drivers/looping_pipeline" $small --mesh data=1,model=2 --schedule plain --wgrad-group 1 --recompute full --steps 3 \
    --trace trace >out 2>err && grep -q '"ascends": *true' trace && "$drivers/schedule" --compare trace --json >out 2>>err &&
    grep -q '"valid":true' out && [ ! -s err ]
status=$?
[ $status = 0 ]
point 'schedule --compare takes an ascending table'
plan
