#!/bin/sh
# many.sh DRIVERS [MPIRUN] - more than 64 coordinates: losses, bits with --exact, tables, an option file of a search, and
# engines that have a limit; prints TAP. With SL_TEST_LONG set, 1,024 threads, too.
drivers=$1
. "$(dirname "$0")/../../rigs/points.sh"

model='--model-dimension 64 --attention gqa --n-heads 8 --kv-heads 8 --mlp silu --blocks 2 --layers-per-block 1 --sequence 8
    --batch 64 --microbatches 1 --vocab-size 256'

train() {
    timeout 300 "$drivers/transformer" train $model --steps 2 --timeout 120 --json "$@" >out 2>err </dev/null
    status=$?
}

train --mesh data=1
values loss >alone
[ $status = 0 ] && [ "$(wc -l <alone)" = 2 ]
point 'one coordinate trains'
meshes='data=32,tensor=4'
[ -z "${SL_TEST_LONG:-}" ] || meshes="$meshes data=32,tensor=8 data=32,pipe=4,tensor=8"
for mesh in $meshes; do
    train --mesh $mesh --layers-per-block 2 --blocks 2
    cp out many
    train --mesh data=1 --layers-per-block 2 --blocks 2
    values loss >deep
    cp many out
    [ $status = 0 ] && values loss >wide && [ "$(wc -l <wide)" = 2 ] && near 1e-6 wide deep
    point "$mesh has the losses of one coordinate"
done

train --mesh data=1 --exact data=64,tensor=2 --gradients one.safetensors
values loss >exact
train --mesh data=64,tensor=2 --exact data=64,tensor=2 --gradients all.safetensors
values loss >other
[ $status = 0 ] && [ -s exact ] && cmp -s exact other && cmp -s one.safetensors all.safetensors
point 'with --exact 128 coordinates have the bits of one'

# ---- tables ----

train --mesh data=16,tensor=8 --dry-run
[ $status = 0 ] && [ "$(grep -c '^{"coordinate":' out)" = 128 ]
point 'JSON has a line a coordinate'
timeout 300 "$drivers/transformer" train $model --mesh data=16,tensor=8 --dry-run >out 2>err
grep -q '^128: data=0-15, tensor=0-7, pipe=0 ' out && [ "$(wc -l <out)" -lt 10 ]
point 'coordinates that need as much have one row'
timeout 300 "$drivers/transformer" train $model --mesh data=16,tensor=8 --show-placement >out 2>err
grep -qE '^(128: data=0-15|[0-9]+: data=0-[0-9]+), tensor=0-7 ' out && [ "$(wc -l <out)" -lt 100 ]
point 'coordinates that see the same have one row'

# ---- a search's layout runs ----

timeout 300 "$drivers/plan" measure --brief --save machine.json >out 2>err
train --plan search --devices 128 --machine machine.json --save-options best.opt
[ $status = 0 ] && train @best.opt && grep -q '"final_loss"' out
point 'what a search of 128 devices saves runs'

# ---- processes ----

if [ "${2:-}" ]; then
    "$drivers/transformer" train $model --engine mpi --mesh data=32,tensor=4 >out 2>err </dev/null
    status=$?
    [ $status = 2 ] && grep -qF 'the mesh data=32,tensor=4,pipe=1 needs 128 processes, this is a single one' err && [ "$(wc -l <err)" = 1 ]
    point 'engine mpi says how many processes 128 coordinates need'
fi
plan
