#!/bin/sh
# journal.sh DRIVERS - two journals compared: equal runs in several layouts, and first differences of others; prints TAP.
drivers=$1
[ ! -w /dev/shm ] || export TMPDIR="${TMPDIR:-/dev/shm}" # in memory, where syncing is short
. "$(dirname "$0")/../../../rigs/points.sh"
driver=$drivers/diff

for n in 0 1 2 3 4 5 6 7 8 9; do echo "Line $n of a text that is long enough to be divided, not to be read."; done >text
small='--model-dimension 16 --n-heads 4 --blocks 2 --layers-per-block 2 --sequence 16 --latent-dim 8 --rope-dim 4
    --batch 16 --microbatches 4 --data text'
cube='--mesh data=2,pipe=2,tensor=2'

# train JOURNAL ARGUMENT...
train() {
    journal=$1
    shift
    "$drivers/transformer" train --journal "$journal" "$@" >/dev/null 2>train_err || cat train_err
}

# differs NAME PATTERN...: status 1, and each line is there.
differs() {
    name=$1
    shift
    found=$([ $status = 1 ] && [ ! -s err ] && echo yes)
    for text in "$@"; do
        grep -q -- "$text" out || found=
    done
    [ "$found" ]
    point "$name"
}

# ---- equal runs ----

train a $small $cube --steps 3
train again $small $cube --steps 3
call a again
[ $status = 0 ] && [ ! -s err ] && [ "$(cat out)" = "A: a, data=2,pipe=2,tensor=2, 2 stages, engine local
B: again, data=2,pipe=2,tensor=2, 2 stages, engine local

steps 0 to 2: equal" ]
point 'the same run twice'
call --json a again
[ $status = 0 ] && [ "$(wc -l <out)" = 1 ] && grep -qF '"equal":true,"agree":true,"comparable":true,"reasons":[],"steps":4,"first":-1,"last":2,"step":null,' out
point 'the same as JSON'
# Other stages, schedules and shares of the optimizer's state: sums over all coordinates are the same.
train four $small --mesh data=2,pipe=4 --steps 3 --zero 0 --wgrad-group 4 --clip 1
for how in '--schedule gpipe' '--mesh data=2,pipe=2 --schedule looped-bfs --loops 2 --zero 2' '--mesh data=2,pipe=1' '--mesh data=2,pipe=4 --stage-layers 1.5,0.5,1.5,0.5'; do
    train other $small --mesh data=2,pipe=2 --steps 3 --wgrad-group 4 --clip 1 $how
    call four other
    [ $status = 0 ] && [ ! -s err ] && grep -q '^steps 0 to 2: equal$' out
    point "the same bits: $how"
done
call other a
[ $status = 0 ] && [ ! -s err ] && grep -q '^  tensor: 1 | 2$' out && grep -q 'not comparable bit for bit, and the losses agree$' out
point 'another tensor size need not have the same bits'
for zero in 1 2; do train sums$zero $small --mesh data=4 --no-fsdp --steps 2 --wgrad-group 1 --no-fuse --zero $zero; done
call sums1 sums2
[ $status = 0 ] && grep -q "^  sums of a layer's gradient over data: 1 | 4$" out && grep -q 'not comparable bit for bit, and the losses agree$' out
point 'so with a layer that is summed group by group'
# stages JOURNAL: the stage of each parameter, by coordinate.
stages() { for file in "$1"/*.journal; do sed 1q "$file"; done | grep -ao '"name":"[^"]*","shape":[^"]*"stage":[0-9]*'; }
for zero in 1 2; do
    train parts$zero $small --layers-per-block 4 --mesh data=2,pipe=2 --no-fsdp --schedule looped-bfs --loops 2 --steps 1 --wgrad-group 4 --zero $zero
    stages parts$zero >stages$zero
done
[ -s stages1 ] && cmp -s stages1 stages2
point 'layers that are summed one by one are of their own stages'
# Both copies of a model have its parameters in the same stages: of four stages, two and two are one copy's.
for schedule in 1f1b dualpipe; do
    train $schedule $small --mesh data=1,pipe=2 --schedule $schedule --microbatches 4 --steps 1
    stages $schedule | grep -v '"embedding"' | sed 's/"shape":[^"]*//; s/"stage":2/"stage":0/; s/"stage":3/"stage":1/' | sort -u >stages_$schedule
done
[ -s stages_1f1b ] && cmp -s stages_1f1b stages_dualpipe && stages dualpipe | grep -q '"stage":2' && stages dualpipe | grep -q '"stage":3'
point 'parameters of two copies are of their own stages'
train data $small --mesh data=1,pipe=2,tensor=2 --steps 3
call a data --json
[ $status = 0 ] && grep -qF '"agree":true,"comparable":false,"reasons":["data: 2 | 1","rows of a microbatch: 32 | 64"]' out && ! grep -q 'gradient":\[' out
point 'gradients of other numbers of replicas are not compared'
train some $small $cube --steps 3 --journal-every 2
call a some
[ $status = 0 ] && grep -q '^steps 0 to 2: equal$' out && call --json some a && grep -qF '"steps":3,' out
point 'steps that both have'

# ---- first differences ----

train rate $small $cube --steps 3 --lr 0.002
call a rate
differs 'another learning rate' '^--lr: 0.001 | 0.002$' '^first difference: after step 0: the values of embedding$' \
    '^at coordinate 0 (data=0, pipe=0, tensor=0), stage 0$' ' 0 of 32 arrays of rows, 0 of 16 gradients of rows, 0 of 212 gradients, 212 of 212 values$' \
    '^steps 0 to 2: different$'
call a rate --json
[ $status = 1 ] && grep -qF '"step":0,"what":"value","microbatch":null,"stage":0,"module":null,"tensor":"embedding","coordinate":0,' out
point 'the same as JSON'

"$drivers/transformer" train $small $cube --steps 2 --save saved >/dev/null 2>&1
for seed in 42 43; do train seed$seed $small $cube --params saved --dropout 0.1 --seed $seed --steps 2; done
call seed42 seed43
differs 'another seed of dropout, from the same values' '^--seed: 42 | 43$' \
    '^first difference: in step 0, microbatch 0: the rows that stage 0 gives to stage 1$' '^at coordinate 0 (' \
    '^made by embedding to blocks.0.layers.1.mlp.down$' '^its loss: '

# One bit of one weight of a checkpoint, which has no checksums then.
LC_ALL=C sed -e 's/"shardloop.checkpoint":"2"/"shardloop.checkpoint":"1"/' -e 's/"shardloop.xxh3"/"shardloop.old3"/' \
    saved/step-00000002.safetensors >plain
head=$(($(od -A n -t u8 -N 8 plain | tr -d ' ') + 8))
weights=$(head -c $head plain | grep -ao '"blocks.1.layers.0.mlp.up.kernel":{[^}]*' | sed 's/.*data_offsets":\[\([0-9]*\),.*/\1/')
byte=$(od -A n -t u1 -j $((head + weights + 400)) -N 1 plain)
cp plain altered
printf "\\$(printf %03o $((byte ^ 1)))" | dd of=altered bs=1 seek=$((head + weights + 400)) conv=notrunc 2>/dev/null
for file in plain altered; do train from_$file --resume $file --steps 4; done
call from_plain from_altered
differs 'a bit of a layer' '^first difference: after step 1: the values of blocks.1.layers.0.mlp.up.kernel$' \
    '^at coordinate 6 (data=1, pipe=1, tensor=0), stage 1$' '^of blocks.1.layers.0.mlp.up$' ' 1 of 212 values$'
# And in another layout, without the coordinate.
train other_plain --resume plain --steps 4 --mesh data=2,pipe=1,tensor=2 --microbatches 4
call other_plain from_altered --json
[ $status = 1 ] && grep -qF '"comparable":true' out && grep -qF '"step":1,"what":"value","microbatch":null,"stage":null,"module":"blocks.1.layers.0.mlp.up","tensor":"blocks.1.layers.0.mlp.up.kernel","coordinate":null,' out
point 'the same between two layouts'

# ---- refusals ----

refuses 'seed42 is a journal, and saved is none: two of a kind' seed42 saved
refuses 'seed42 is a journal, and saved is none: two of a kind' saved seed42
train first $small $cube --steps 1
refuses 'have no step in common' from_plain first
"$drivers/looping_pipeline" --mesh data=1,model=1 --layers 1 --hidden 4 --batch 4 --microbatches 1 --steps 1 --journal classifier >/dev/null
refuses 'have no tensor in common' classifier a
cp -r a lacks && rm lacks/coordinate-05.journal
refuses 'lacks/coordinate-05.journal: No such file' a lacks
cp -r a swapped && cp a/coordinate-01.journal swapped/coordinate-02.journal
refuses 'swapped/coordinate-02.journal: coordinate 1 of the mesh' swapped a
cp -r a damaged
printf '\377' | dd of=damaged/coordinate-03.journal bs=1 seek=$(($(wc -c <damaged/coordinate-03.journal) - 40)) conv=notrunc 2>/dev/null
refuses 'damaged/coordinate-03.journal: damaged: ' a damaged
cp -r a later && sed -i '1s/"shardloop.journal":1/"shardloop.journal":2/' later/coordinate-00.journal
refuses 'later/coordinate-00.journal: a journal of version 2: this program reads version 1' a later
mkdir text_dir && cp text text_dir/coordinate-00.journal
refuses 'text_dir/coordinate-00.journal: not a journal' a text_dir
for file in 0 1 2 3 4 5 6 7; do head -c -$((100 + 37 * file)) a/coordinate-0$file.journal >again/coordinate-0$file.journal; done
call a again
[ $status = 0 ] && grep -q '^steps 0 to 1: equal$' out
point 'runs that were killed are compared up to there'

for arguments in 'a rate' 'a rate --json' 'a some'; do fills_stdout $arguments; done
plan
