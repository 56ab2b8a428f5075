#!/bin/sh
# parts.sh DRIVERS SOURCE - checkpoints written in parts, one a process: any number of processes resumes the run with
# the same results, and all readers read the same values; refusals; the valid checkpoint after a kill or on a full disk;
# prints TAP.
drivers=$(cd "$1" && pwd) source=$(cd "$2" && pwd)
mpirun=$(cd "$(dirname "$0")/../.." && pwd)/mpirun
if ! command -v mpirun >/dev/null; then
    exec "$mpirun"
fi
[ ! -w /dev/shm ] || export TMPDIR="${TMPDIR:-/dev/shm}" # in memory, where syncing is short
. "$(dirname "$0")/../../rigs/points.sh"

small='--schedule 1f1b --layers 4 --hidden 8 --batch 8 --microbatches 2'
four='--mesh data=2,model=2 --engine mpi'

# run N DRIVER ARGUMENT...: runs DRIVER on N processes.
run() {
    processes=$1 driver=$drivers/$2
    shift 2
    timeout 60 "$mpirun" "$processes" "$driver" "$@" >out 2>err </dev/null
    status=$?
}

# is_same A B: the checkpoints have the same values and settings.
is_same() {
    "$drivers/diff" "$1" "$2" >out 2>err
    status=$?
    [ $status = 0 ] && [ ! -s err ]
}

# files DIRECTORY: lists its files, without "step-" and zeros.
files() {
    ls "$1" | sed 's/step-0*//; s/.safetensors//' | tr '\n' ' '
}

# name STEPS DIRECTORY, index STEPS DIRECTORY
name() {
    printf '%s/step-%08d.safetensors' "$2" "$1"
}
index() {
    printf '%s/step-%08d.index.json' "$2" "$1"
}

# ---- the same run ----

run 4 looping_pipeline $small $four --steps 6 --save-every 3 --save whole
[ $status = 0 ]
point 'a run in one file'
run 4 looping_pipeline $small $four --steps 6 --save-every 3 --save parts --save-parts
all='3.index.json 3.part-1-of-4 3.part-2-of-4 3.part-3-of-4 3.part-4-of-4 6.index.json 6.part-1-of-4 6.part-2-of-4 6.part-3-of-4 6.part-4-of-4 '
[ $status = 0 ] && [ "$(files parts)" = "$all" ] && grep -q 'saved in parts/step-00000006.index.json; go on with: mpirun -n 4 .*/looping_pipeline --engine mpi --resume parts --save parts --save-every 3 --save-parts --steps 12$' err
point 'the same in parts'
is_same parts whole
point 'has the same values and settings'
mkdir behind # a part that a run which was killed has left is not taken for this one's
cp parts/step-00000006.part-2-of-4.safetensors behind/step-00000003.part-2-of-4.safetensors
run 4 looping_pipeline $small $four --steps 6 --save-every 3 --save behind --save-parts --save-async
[ $status = 0 ] && diff -r parts behind >err
point 'written while the run goes on, parts and index are the same bytes'

awk '/^```python/ { on = ++count == 2; next } /^```/ { on = 0 } on' "$source/docs/checkpoints/format.md" >join.py
python3 join.py "$(index 6 parts)" "$(name 6 whole)" >out 2>err && [ "$(cat out)" = equal ]
point 'another program puts the parts together'

# A run that resumes from the parts ends as one that resumes from the file.
run 4 looping_pipeline --resume "$(index 3 parts)" --save four --engine mpi --save-parts
[ "$(files four)" = '6.index.json 6.part-1-of-4 6.part-2-of-4 6.part-3-of-4 6.part-4-of-4 ' ] && is_same four whole
point 'four processes go on, and end as the run that was never interrupted'
for mesh in data=1,model=2 data=1,model=1; do
    for from in "$(index 3 parts)" "$(name 3 whole)"; do
        run 1 looping_pipeline --resume "$from" --save "on.${from%%/*}" --mesh $mesh --engine local --save-parts
    done
    cmp "$(name 6 on.parts)" "$(name 6 on.whole)" >err 2>&1
    point "one process on $mesh goes on, and writes one file with the same bytes"
    rm -r on.*
done

# ---- readers ----

seq 1 400 >text
tiny='--model-dimension 16 --n-heads 2 --kv-heads 2 --layers-per-block 1 --sequence 8 --batch 8 --data text --steps 2 --engine mpi'
llama='--attention gqa --mlp silu --biases none --blocks 2'
for way in '' --save-parts; do
    run 4 transformer train $tiny $llama --mesh data=2,tensor=2 --fsdp --save model$way $way
    run 2 transformer train $tiny $llama --mesh tensor=2 --lora-rank 2 --save adapted$way $way
done
python3 join.py model--save-parts/*.json model/*.safetensors >out 2>err && [ "$(cat out)" = equal ]
point 'another program puts shards together'
[ "$(ls model--save-parts | wc -l)" = 5 ] && is_same model model--save-parts && is_same adapted adapted--save-parts
point 'a transformer in parts, its kernels sharded'

# tells FILE: prints the computed values in FILE's lines of JSON.
tells() {
    grep -o '"\(loss\|final_loss\|perplexity\|tokens\|text\)":[^,}]*' "$1"
}
for command in evaluate 'generate --prompt 1 --length 9' 'train --steps 1 --mesh data=1'; do
    for kind in model adapted; do
        "$drivers/transformer" $command --params $kind --json >whole.out 2>whole.err
        "$drivers/transformer" $command --params $kind--save-parts --json >out 2>err
        status=$?
        tells whole.out >expected
        [ $status = 0 ] && [ -s expected ] && tells out | cmp -s - expected
        point "${command%% *} takes the parts as their file: $kind"
    done
done
for format in hf gguf; do
    for way in '' --save-parts; do "$drivers/transformer" export --params model$way --format $format --to $format$way >out 2>err; done
    [ -e $format ] && diff -r $format $format--save-parts >>err
    point "export writes the same of parts and file: $format"
done

# ---- refusals ----

driver=$drivers/looping_pipeline
refuses '--save-parts: is read only with --save' $small --steps 1 --save-parts
cp -r parts damaged
rm "$(index 3 damaged)" damaged/step-00000003.part-*
mv damaged/step-00000006.part-2-of-4.safetensors kept
refuses 'part 2 of damaged/step-00000006.index.json: damaged/step-00000006.part-2-of-4.safetensors: cannot be opened: No such file' --resume "$(index 6 damaged)" --steps 9
refuses 'no checkpoint is whole: part 2 of damaged/step-00000006.index.json: ' --resume damaged --steps 9
cp parts/step-00000003.part-2-of-4.safetensors damaged/step-00000006.part-2-of-4.safetensors
refuses 'part 2, step-00000006.part-2-of-4.safetensors, is another one than the index means' --resume damaged --steps 9
cp kept damaged/step-00000006.part-2-of-4.safetensors
printf '\377' | dd of=damaged/step-00000006.part-2-of-4.safetensors bs=1 seek=$(($(wc -c <kept) - 9)) conv=notrunc 2>/dev/null
refuses ' is damaged: its checksum is ' --resume damaged --steps 9
cp kept damaged/step-00000006.part-2-of-4.safetensors
refuses 'damaged/step-00000006.part-2-of-4.safetensors: a part of a checkpoint: its index, step-*.index.json, names all' --resume damaged/step-00000006.part-2-of-4.safetensors --steps 9
sed 's/step-00000006/step-00000009/' "$(index 6 damaged)" >"$(index 9 damaged)"
refuses 'step-00000009.index.json: damaged: its checksum is ' --resume damaged --steps 9
rm "$(index 9 damaged)"
head -c 400 "$(index 6 damaged)" >"$(index 7 damaged)"
run 1 looping_pipeline --resume damaged --mesh data=1 --steps 7 --engine local
[ $status = 0 ] && grep -q 'step-00000007.index.json: cut short after 400 bytes; damaged/step-00000006.index.json is taken in its place' err
point 'an index that was cut short is passed over'

# ---- the same step again ----

for turn in 1 2; do
    run 2 looping_pipeline $small --mesh data=2,model=1 --engine mpi --steps 0 --save again --save-parts
    echo "$(files again)" >>seen
done
printf '%s\n' '.index.json .part-1-of-2 .part-2-of-2 ' ' ' | cmp - seen >err 2>&1
point 'a step that is there is saved again in one file'

# ---- a full disk ----

# One of the four processes may write files of at most a kilobyte.
cat >full_disk <<'END'
#!/bin/sh
[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" != 3 ] || { trap '' XFSZ && ulimit -f 2; }
exec "$@"
END
chmod +x full_disk
run 4 looping_pipeline $small $four --steps 2 --save full --save-parts
timeout 60 "$mpirun" 4 ./full_disk "$driver" --resume full --engine mpi --save full --save-every 2 --steps 2000 --save-parts --save-async >out 2>err </dev/null
status=$?
[ $status = 3 ] && [ "$(grep -c '^looping_pipeline: ' err)" = 1 ] && [ "$(ls full/*.json)" = "$(index 2 full)" ] &&
    grep -q 'full/step-00000004.part-4-of-4.safetensors: cannot be written: File too large' err
point 'the disk of one of four is full'
run 4 looping_pipeline --resume full --engine mpi --save full --steps 4 --save-parts
[ $status = 0 ] && [ "$(files full)" = '2.index.json 2.part-1-of-4 2.part-2-of-4 2.part-3-of-4 2.part-4-of-4 4.index.json 4.part-1-of-4 4.part-2-of-4 4.part-3-of-4 4.part-4-of-4 ' ]
point 'and what was saved before goes on'

# ---- kills ----

# processes PARENT: lists the processes started by the launcher, which is a child of the watcher PARENT.
processes() {
    for one in $(cat "/proc/$1/task/$1/children"); do
        tr '\0' '\n' <"/proc/$one/cmdline" | head -n 1 | grep -q 'looping_pipeline$' && echo "$one"
        processes "$one"
    done 2>/dev/null
}

# Steps take hardly any time, so a kill at any moment comes during a save.
run 4 looping_pipeline $small $four --steps 80 --save long
for way in "" --save-async; do
    rm -rf saved
    timeout 100 "$driver" $small $four --steps 80 --save-every 1 --save saved --save-parts $way --protect 0 --restart 20 --launcher "$mpirun 4" >out 2>err </dev/null &
    pid=$!
    tries=0
    until ls saved/*.index.json >/dev/null 2>&1 || [ $((tries += 1)) -gt 500 ]; do sleep 0.01; done
    kill -KILL "$(processes $pid | tail -n 1)"
    wait $pid
    status=$?
    [ $status = 0 ] && [ "$(grep -c '; restart [0-9]* of 20 goes on from saved/step-[0-9]*.index.json$' err)" = 1 ] &&
        [ "$(ls saved | wc -l)" = 10 ] && { "$drivers/diff" saved long >out; }
    point "one process is killed while it saves: what was saved before is in force, and nothing is left behind $way"
done
plan
