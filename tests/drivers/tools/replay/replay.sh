#!/bin/sh
# replay.sh DRIVERS DEVICE REACH [MPIRUN] - one coordinate of a recorded run again, alone; prints TAP. If REACH is
# small, as sanitizers and devices take long to begin, of each run the first and the last coordinate.
drivers=$1 device=$2 reach=$3 mpirun=$4
[ ! -w /dev/shm ] || export TMPDIR="${TMPDIR:-/dev/shm}" # in memory, where syncing is short
. "$(dirname "$0")/../../../rigs/points.sh"
driver=$drivers/replay

for n in 0 1 2 3 4 5 6 7 8 9; do echo "Line $n of a text that is long enough to be divided, not to be read."; done >text
classifier='looping_pipeline --layers 4 --hidden 16 --batch 16 --microbatches 4'
transformer='transformer train --model-dimension 16 --n-heads 4 --blocks 2 --layers-per-block 2 --sequence 16
    --latent-dim 8 --rope-dim 4 --batch 16 --microbatches 4 --data text'
cube='--mesh data=2,pipe=2,tensor=2'

# train JOURNAL DRIVER ARGUMENT...: keeps the messages of 4 steps.
train() {
    journal=$1
    shift
    "$drivers/"$* --journal "$journal" --journal-messages 4 >/dev/null 2>train_err || cat train_err
}

# replays NAME JOURNAL STEP: each coordinate has the hashes of the recorded run.
replays() {
    found=yes
    files=$(ls "$2"/*.journal)
    [ "$reach" != small ] || [ "${SL_TEST_LONG:-}" ] || files=$(echo "$files" | sed -n '1p;$p')
    for file in $files; do
        coordinate=${file##*coordinate-}
        coordinate=${coordinate%.journal}
        call --journal "$2" --coordinate "${coordinate#0}" --step "$3"
        [ $status = 0 ] && [ ! -s err ] &&
            grep -q "^coordinate ${coordinate#0}, steps [0-9]* to $3: [1-9][0-9]* hashes, all what they were\$" out || { found=; break; }
    done
    [ "$found" ]
    point "$1"
}

# ---- the same again ----

train two $classifier --mesh data=1,model=2 --schedule looping --steps 6
replays 'two coordinates of a looping pipeline' two 5
train flax $classifier --mesh data=2,model=2 --schedule looping --dropout 0.2 --steps 4
replays 'keys of dropout that follow each other' flax 3
rm -rf flax
"$drivers/"$classifier --hidden 128 --mesh data=2,model=2 --steps 2 --journal flax --journal-messages 4 >out 2>err
grep -Eq 'planned ([0-9.]+) [KM]B a coordinate, held \1' out
point 'held is what was planned'
train cube $transformer $cube --steps 7 --dropout 0.1 --clip 1
found=
for step in 3 4 5 6; do
    call --journal cube --coordinate 5 --step $step
    [ $status = 0 ] && [ ! -s err ] && grep -q "^coordinate 5, steps $((step / 2 * 2)) to $step: " out && found=$found$step
done
[ "$found" = 3456 ]
point 'each step of a ring, from the state before its segment'
replays 'eight coordinates' cube 6
call --journal cube --coordinate 5 --json
[ $status = 0 ] && [ ! -s err ] && [ "$(wc -l <out)" = 1 ] &&
    grep -q '"equal": *true.*"coordinate": *5.*"first": *6.*"step": *6.*"hashes": *[1-9]' out
point 'the last step, as JSON'
for how in '--fsdp --storage bf16' '--accumulate 2 --zero 2 --precision bf16 --recompute full' \
    '--evaluate-every 2 --eval-data text --sample-every 2 --check-replicas --save saved --save-every 2' \
    '--mesh data=2,pipe=2 --offload optimizer,activations,weights --schedule looped-bfs --loops 2'; do
    rm -rf other
    train other $transformer $cube --steps 4 $how
    replays "the same with $how" other 3
done
train resumed transformer train --resume saved --steps 8
rm -r saved
replays 'a run that was resumed, without its checkpoint' resumed 7
if [ "$mpirun" ]; then
    "$mpirun" 4 "$drivers"/$classifier --engine mpi --mesh data=2,model=2 --steps 5 --journal processes --journal-messages 2 >out 2>err
    replays 'processes' processes 4
else
    skip 'processes' 'MPI is not in this build'
fi

# ---- changed journals ----

cp -r cube changed
train seed $transformer $cube --steps 7 --dropout 0.1 --clip 1 --seed 7
cp seed/coordinate-05.journal changed
call --journal changed --coordinate 5 --step 6
[ $status = 1 ] && [ ! -s out ] && [ "$(wc -l <err)" = 1 ] &&
    grep -q ': coordinate 5, step 6: the rows that stage . gives of microbatch 0: not what they were in the journal$' err
point 'another hash is named'
call --journal changed --coordinate 5 --step 6 --json
[ $status = 1 ] && grep -q '"equal": *false.*"step": *6.*"differs": *"the rows' out
point 'the same as JSON'
cp -r cube lost && cp cube/coordinate-01.opening lost/coordinate-05.opening
refuses 'another coordinate' --journal lost --coordinate 5
cp -r cube altered
segment=$(ls altered/coordinate-05-*6.segment)
printf '\377' | dd of="$segment" bs=1 seek=$(($(wc -c <"$segment") - 40)) conv=notrunc 2>/dev/null
call --journal altered --coordinate 5
[ $status = 2 ] && [ "$(wc -l <err)" = 1 ] && grep -q 'segment: damaged: the checksum of a frame' err
point 'a byte that was changed'
head -c -50 cube/coordinate-03-000000000006.segment >altered/coordinate-03-000000000006.segment
call --journal altered --coordinate 3
[ $status = 0 ] && grep -q '^coordinate 3, steps 4 to 5: ' out
point 'a run that was killed is replayed up to there'

# ---- refusals ----

refuses 'no journal: give --journal DIR'
refuses 'nowhere' --journal nowhere
refuses '--coordinate 8: cube has coordinates 0 to 7' --journal cube --coordinate 8
refuses 'step 1 of coordinate 5 is not there: cube has the messages of steps 2 to 6' --journal cube --coordinate 5 --step 1
refuses 'step 7 of coordinate 5 is not there: cube has the messages of steps 2 to 6' --journal cube --coordinate 5 --step 7
for value in x '' -1 1.5; do refuses "--coordinate: \"$value\" is not an integer from 0" --journal cube --coordinate "$value"; done
for value in x '' -2 1.5; do refuses "--step: \"$value\" is not an integer from -1" --journal cube --step "$value"; done
"$drivers"/$classifier --mesh data=1,model=1 --steps 1 --journal hashes >/dev/null 2>&1
refuses 'hashes: there are no messages: record them with --journal-messages N' --journal hashes

# ---- a full disk ----

mkdir full && ln -s /dev/full full/coordinate-02.opening
"$drivers"/$classifier --mesh data=2,model=2 --steps 4 --journal full --journal-messages 4 >out 2>err
status=$?
[ $status = 3 ] && [ "$(wc -l <err)" = 1 ] && grep -q 'full/coordinate-02.opening: No space' err
point 'a full disk under the opening'
# As a segment is a new file, a limit stands for the disk.
if [ "$device" = offload ]; then
    skip 'a full disk under a segment' "the device's runtime needs files, too"
else
    (trap '' XFSZ && ulimit -f 16 && "$drivers"/$classifier --mesh data=1,model=2 --steps 4 --journal limited --journal-messages 4 >out 2>err)
    status=$?
    [ $status = 3 ] && [ "$(wc -l <err)" = 1 ] && grep -q 'limited/coordinate-0.-000000000000.segment: File too large' err
    point 'a full disk under a segment'
fi
for how in '' --json; do fills_stdout --journal cube --coordinate 5 $how; done
plan
