#!/bin/sh
# mpi_signature.sh DRIVERS - processes whose command lines differ: each run ends with status 2 and one line with the
# option, the values and the coordinates; prints TAP.
drivers=$1
mpirun=$(cd "$(dirname "$0")/../.." && pwd)/mpirun
if ! command -v mpirun >/dev/null; then
    exec "$mpirun"
fi
. "$(dirname "$0")/../../rigs/points.sh"

tiny='train --model-dimension 16 --n-heads 2 --latent-dim 8 --rope-dim 4 --sequence 8 --layers-per-block 1 --blocks 2
    --batch 8 --engine mpi --mesh data=2,pipe=2 --steps 2'
awk 'BEGIN { for (i = 0; i < 400; i++) printf "the quick brown fox jumps over the lazy dog %d. ", i }' >text
mkdir first other

# A refused run mostly waits for the launcher. So several run at the same time, each in its own folder, and their output
# is checked at the end.
runs=0
at_a_time=4

# start FILE... -- COMMAND...: starts COMMAND in a new folder, with copies of the FILEs.
start() {
    runs=$((runs + 1))
    mkdir run.$runs
    while [ "$1" != -- ]; do
        cp -R "$1" run.$runs
        shift
    done
    shift
    (
        cd run.$runs || exit
        timeout 60 "$mpirun" "$@" >out 2>err </dev/null
        echo $? >status
    ) &
    [ $((runs % at_a_time)) != 0 ] || wait
}

# pair PROGRAM ARGUMENT...: starts four processes; the last two are PROGRAM with these ARGUMENTs in addition. Each pair
# has its own directory, the place of --data data.
pair() {
    program=$1
    shift
    start first other -- 2 sh -c 'cd "$0" && exec "$@"' first "$drivers/transformer" $tiny --data data $common : \
        -n 2 sh -c 'cd "$0" && exec "$@"' other "$program" $tiny --data data $common "$@"
}

# wants CHECK ARGUMENT...: the expected end of the last run.
wants() {
    for word in "$@"; do printf '%s\n' "$word"; done >run.$runs/wants
}

# same NAME: a run like any other.
same() {
    [ $status = 0 ] && [ ! -s err ] && [ "$(wc -l <out)" = 10 ]
    point "$1"
}

# differ NAME TEXT: the pair was refused, with one line of ours that has TEXT in it.
differ() {
    [ $status = 2 ] && [ ! -s out ] && [ "$(grep -c '^transformer train: ' err)" = 1 ] &&
        grep '^transformer train: engine mpi: ' err | grep -q -- "$2"
    point "$1"
}

# refused DRIVER TEXT: as differ, for another driver.
refused() {
    [ $status = 2 ] && [ ! -s out ] && [ "$(grep -c "^$1: " err)" = 1 ] && grep -q -- "^$1: engine mpi: $2" err
    point "$1"
}

# says_once TEXT
says_once() {
    [ $status = 2 ] && [ ! -s out ] && [ "$(grep -c '^looping_pipeline: ' err)" = 1 ] &&
        grep -q -- "^looping_pipeline: $1" err
    point "said once: $1"
}

common=
cp text first/data
cp text other/data
pair "$drivers/transformer"
wants same 'the same'

pair "$drivers/transformer" --lr 0.5
wants differ 'a learning rate' '--lr is 0.001 at coordinates 0, 1 and 0.5 at coordinates 2, 3$'
pair "$drivers/transformer" --seed 7
wants differ 'a seed' '--seed is 42 at coordinates 0, 1 and 7 at coordinates 2, 3$'
pair "$drivers/transformer" --steps 3
wants differ 'steps' '--steps is 2 at coordinates 0, 1 and 3 at coordinates 2, 3$'
pair "$drivers/transformer" --checked
wants differ 'checked mode' '--checked is no at coordinates 0, 1 and yes at coordinates 2, 3'
pair "$drivers/transformer" --no-overlap --clip 0.1 --dropout 0.25
wants differ 'several' '--clip is 0 at .*; --dropout is 0 at .*; --overlap is yes at coordinates 0, 1 and no at coordinates 2, 3$'
pair "$drivers/transformer" --mesh data=4
wants differ 'the mesh' 'mesh is data=2,pipe=2,tensor=1 at coordinates 0, 1 and data=4,pipe=1,tensor=1 at coordinates 2, 3$'
common='--sample-every 9' # by which --prompt is read
pair "$drivers/transformer" --prompt "$(printf '%01000d' 0)$(printf '\n1')"
wants differ 'a long text of several lines' '--prompt is none at coordinates 0, 1 and 000000*\.\.\. at coordinates 2, 3$'
common=
echo '--lr 0.25' >other/options
pair "$drivers/transformer" @options
wants differ 'what a file of options says' '--lr is 0.001 at coordinates 0, 1 and 0.25 at coordinates 2, 3$'

printf 'T' | dd of=other/data bs=1 seek=9000 conv=notrunc 2>/dev/null
pair "$drivers/transformer"
wants differ 'a byte of the data' 'data is text, .* bytes, XXH3 .* at coordinates 0, 1 and text, .*, XXH3 .* at coordinates 2, 3$'
cp text other/data
printf 'T' >>other/data
pair "$drivers/transformer"
wants differ 'a byte more of data' 'data is text, .* at coordinates 0, 1 and text, .* at coordinates 2, 3$'
cp text other/data

"$drivers/transformer" $tiny --data text --engine local --save saved >out 2>err
"$drivers/transformer" $tiny --data text --engine local --save saved.other --seed 8 >out 2>err
cp saved/*.safetensors first/values
cp saved.other/*.safetensors other/values
common='--params values'
pair "$drivers/transformer"
wants differ 'given values' 'contents of --params is .* bytes, XXH3 .* at coordinates 0, 1 and .* at coordinates 2, 3$'
common=

"$drivers/schedule" --name gpipe --stages 2 --microbatches 2 --format csv >first/table
"$drivers/schedule" --name 1f1b --stages 2 --microbatches 2 --format csv >other/table
common='--schedule-file table'
pair "$drivers/transformer"
wants differ 'a schedule file' 'contents of --schedule-file is .* at coordinates 0, 1 and .* at coordinates 2, 3$'
common=

# The same program, whose build id differs in a byte.
python3 - "$drivers/transformer" another <<'END'
import os, sys
program = bytearray(open(sys.argv[1], "rb").read())
at = program.index(b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0") + 16
program[at] ^= 1
open(sys.argv[2], "wb").write(program)
os.chmod(sys.argv[2], 0o755)
END
pair "$work/another"
wants differ 'another build' 'build is [0-9a-f]\{40\} at coordinates 0, 1 and [0-9a-f]\{40\} at coordinates 2, 3$'

# Other drivers. One of four differs.

one() {
    program=$1
    shift
    start -- 3 "$drivers/$program" --engine mpi $common : -n 1 "$drivers/$program" --engine mpi $common "$@"
}
common='--mesh data=2,model=2 --layers 4 --hidden 16'
one looping_pipeline --delay-ms 0 --lr 0.01
wants refused looping_pipeline '--lr is 0.001 at coordinates 0-2 and 0.01 at coordinate 3 (data=1, model=1)$'
one loss_equality --seed 9
wants refused loss_equality '--seed is 42 at coordinates 0-2 and 9 at coordinate 3 (data=1, model=1)$'
common='--mesh pipe=2,tensor=2'
one gpipe --microbatches 8
wants refused gpipe '--microbatches is [0-9]* at coordinates 0-2 and 8 at coordinate 3 (pipe=1, tensor=1)'
common='--mesh x=2,y=2'
one sharding --shape 4,4
wants refused sharding '--shape is 2,4 at coordinates 0-2 and 4,4 at coordinate 3 (x=1, y=1)$'

# ---- faults of one process, or of all: reported once ----

common='--mesh data=2,model=2 --layers 4 --hidden 16'
one looping_pipeline --lr x
wants says_once '--lr: "x" is not a number'
one looping_pipeline --data fashion-mnist:nowhere
wants says_once '.*nowhere'
common="$common --lr x"
one looping_pipeline
wants says_once '--lr: "x" is not a number'
common='--mesh data=2,model=2 --layers 4 --hidden 16 --data fashion-mnist:nowhere'
one looping_pipeline
wants says_once '.*nowhere'

# ---- results ----

wait
run=0
while [ $((run += 1)) -le $runs ]; do
    cd "$work/run.$run" || exit
    status=$(cat status)
    {
        read -r check
        read -r name
        read -r text
    } <wants
    $check "$name" "$text"
done

plan
