#!/bin/sh
# planning.sh DRIVERS DATA - layouts that are predicted, searched, saved and run; machines, measured and by hand; prints
# TAP.
drivers=$1
laptop=$2/machines/laptop.json
cluster=$2/machines/cluster.json
. "$(dirname "$0")/../../../rigs/points.sh"

call() {
    timeout 300 "$drivers/$@" >out 2>err </dev/null
    status=$?
}

# refuses_with STATUS TEXT DRIVER ARGUMENT...
refuses_with() {
    wanted=$1 text=$2
    shift 2
    call "$@"
    [ $status = "$wanted" ] && [ "$(wc -l <err)" = 1 ] && grep -q "^$1\( [a-z]*\)\{0,1\}: " err && grep -qF -- "$text" err
    point "refused: $*"
}
refuses() {
    refuses_with 2 "$@"
}

classifier='looping_pipeline --layers 8 --hidden 32 --batch 64'
transformer='transformer train --model-dimension 32 --n-heads 4 --latent-dim 16 --rope-dim 4 --blocks 2
    --layers-per-block 2 --sequence 16 --batch 16 --vocab-size 256'

# ---- bytes: a dry run's ----

# largest: of the coordinates' totals in the JSON of a dry run.
largest() {
    values total | sort -n | tail -n 1
}

# is_exact DEVICES DRIVER ARGUMENT...: of every seventh layout that a search predicts.
is_exact() {
    devices=$1
    shift
    call "$@" --plan search --devices "$devices" --machine "$laptop" --json
    cp out found
    sed -n 's/.*"layout": *"\([^"]*\)".*"bytes": *\([0-9]*\).*/\2 \1/p' found | sed -n '1p;1~7p' | head -n 12 >layouts
    count=0 wrong=
    while read -r bytes layout; do
        call "$@" $layout --dry-run --json
        [ $status = 0 ] && [ "$(largest)" = "$bytes" ] || wrong="$wrong $layout"
        count=$((count + 1))
    done <layouts
    [ $count -ge 6 ] && [ -z "$wrong" ] || { echo "of $count:$wrong" >>err; false; }
    point "predicted bytes are a dry run's, of $count layouts on $devices devices: $1"
}
is_exact 2 $classifier
is_exact 8 $classifier
is_exact 2 $transformer
is_exact 8 $transformer
is_exact 4 $transformer --precision bf16 --storage bf16 --fsdp
is_exact 4 $transformer --experts 4 --top-k 2

# Experts are sharded over data: replicas that have no whole number of them are no layout.
call $transformer --experts 2 --plan search --devices 4 --machine "$laptop" --json
[ $status = 0 ] && grep -q '"layout".*mesh data=2' out && ! grep -q '"layout".*mesh data=4' out
point 'the axis of the experts is searched'

call $transformer --mesh data=2,pipe=2 --steps 3 --machine "$laptop" --json
held=$(tail -n 1 out | grep -o '"total": *[0-9]*' | sed 's/.*: *//' | sort -n | tail -n 1)
planned=$(sed -n 's/.*"predicted": *{[^}]*"bytes": *\([0-9]*\).*/\1/p' out)
[ $status = 0 ] && [ -n "$held" ] && [ "$held" = "$planned" ]
point 'what a run holds is what was predicted'
call $transformer --mesh data=2,pipe=2 --steps 3 --machine "$laptop"
[ $status = 0 ] && grep -q '^predicted [0-9.e+]* ms a step, measured [0-9.e+]* (' out && grep -q '^after products, most time goes to ' out
point 'a run ends with both, and with what holds it back'
# Without a machine: by the times of the first steps.
call $transformer --mesh data=2,pipe=2 --steps 4 --json
held=$(tail -n 1 out | grep -o '"total": *[0-9]*' | sed 's/.*: *//' | sort -n | tail -n 1)
planned=$(sed -n 's/.*"predicted": *{[^}]*"bytes": *\([0-9]*\).*/\1/p' out)
[ $status = 0 ] && [ -n "$held" ] && [ "$held" = "$planned" ] && tail -n 1 out | grep -q '"predicted":{"ms":[0-9.e+-]*,"bubble":[0-9.e+-]*,'
point 'also without a machine'
call $classifier --mesh data=1,model=2 --steps 5
[ $status = 0 ] && grep -q '^predicted [0-9.e+]* ms a step, measured [0-9.e+]* (.*; planned .* held ' out && grep -q '^after products, most time goes to ' out
point 'for people, too'
call $classifier --mesh data=1,model=2 --steps 1
[ $status = 0 ] && grep -q '^predicted no time, .* measured the first step alone, [0-9.e+]* ms, .*; planned \([0-9.]*\) MB a coordinate, held \1$' out &&
    grep -q '^after products, most time would go to .* on a typical core; other layouts ' out
point 'one step shows no rates, but bytes'
call $classifier --mesh data=1,model=2 --steps 1 --json
[ $status = 0 ] && tail -n 1 out | grep -q '"predicted":{"ms":null,"bubble":null,"bytes":[0-9]*}' && ! grep -q measured_bubble out
point 'and says so in JSON'
call $classifier --mesh data=1,model=2 --steps 0
[ $status = 0 ] && grep -q '^predicted no time, .*; measured no step; planned ' out
point 'no step shows less'
call $classifier --mesh data=1,model=2 --steps 1 --machine "$laptop"
[ $status = 0 ] && grep -q '^predicted [0-9.e+]* ms a step, measured the first step alone' out
point 'a machine predicts all the same'
"$drivers/loss_equality" --mesh data=1,model=2 --layers 4 --hidden 32 --batch 64 --steps 1 >out 2>err
status=$?
[ $status = 0 ] && [ "$(grep -cE '^(single|pipeline|looping): predicted [0-9.e+]* ms a step, measured [0-9.e+]* \(.*; planned ([0-9.]*) MB a coordinate, held \2(;|$)' out)" = 3 ] &&
    [ "$(grep -c '^after products, most time goes to ' out)" = 3 ]
point 'each of the compared runs tells both'
"$drivers/loss_equality" --mesh data=1,model=2 --layers 4 --hidden 32 --batch 64 --steps 1 --json >out 2>err
status=$?
[ $status = 0 ] && [ "$(grep -o '"held_bytes": *\([0-9]*\),"predicted":{"ms":[0-9.e+-]*,"bubble":[0-9.e+-]*,"bytes":\1[,}]' out | wc -l)" = 3 ]
point 'in JSON, too: held is what was planned'

# ---- the search ----

call $transformer --plan search --devices 8 --machine "$laptop" --json
sed -n 's/.*"predicted_ms": *\([0-9.e+]*\).*/\1/p' out >order
[ $status = 0 ] && [ "$(wc -l <order)" -gt 40 ] && sort -g order | cmp -s - order
point 'the fastest come first'
call $transformer --plan search --devices 8 --machine "$laptop"
[ $status = 0 ] && [ "$(grep -c -- '--mesh' out)" = 10 ] && grep -q 'the best of [0-9]* layouts on 8 devices of "two cores by hand"' out &&
    grep -q '^[0-9]* layouts planned in ' out
point 'people see ten'
call $transformer --plan search --devices 4 --schedule 1f1b --microbatches 4 --machine "$laptop" --json
[ $status = 0 ] && ! grep '"layout"' out | grep -v 'schedule 1f1b .*--microbatches 4'
point 'what is given stays as it is'
call $transformer --plan search --mesh data=2,pipe=2 --machine "$laptop" --json
[ $status = 0 ] && ! grep '"layout"' out | grep -v 'mesh data=2,pipe=2'
point 'also the mesh'
call $transformer --plan search --mesh data=2,pipe=2 --schedule 1f1b --microbatches 4 --machine "$laptop"
[ $status = 0 ] && grep -q 'as given .*; --mesh data=2,pipe=2 --schedule 1f1b --microbatches 4$' out && grep -q '^what is given stays: ' out
point 'the own layout stays where nothing is 5 % faster'

# Six layers do not divide by four stages, but their halves do.
for storage in f32 bf16; do
    call transformer train --model-dimension 64 --n-heads 4 --blocks 2 --layers-per-block 3 --sequence 64 --batch 16 --vocab-size 256 \
        --plan search --mesh data=1,pipe=4 --schedule 1f1b --microbatches 16 --machine "$cluster" --storage $storage --json
    [ $status = 0 ] && grep -c -- '--stage-layers 1.5,1.5,1.5,1.5"' out
done >halved
[ "$(cat halved)" = "1
0" ]
point 'halves of layers, unless rows are rounded behind whole ones'

# The head costs as much as several layers, also if ranks hold two copies of the model.
for given in '' '--stage-layers 4,4,4,4'; do
    call transformer train --model-dimension 64 --n-heads 4 --blocks 2 --layers-per-block 8 --sequence 64 --batch 16 --vocab-size 8192 \
        --plan search --mesh data=1,pipe=4 --schedule dualpipe --microbatches 16 --no-fsdp $given --machine "$cluster" --json
    [ "$given" ] || grep -q -- '--schedule dualpipe .*--stage-layers [0-9.]*,[0-9.]*,[0-9.]*,[0-9.]*"' out || status=none
    values predicted_ms | head -n 1
done >times
[ $status = 0 ] && awk '{ ms[NR] = $1 } END { exit !(NR == 2 && ms[1] < 0.95 * ms[2]) }' times
point 'stages of dualpipe are balanced'

# Beyond 64 coordinates, too, bytes are those of a dry run.
sed 's/"count": *[0-9]*/"count": 1/; s/"places": *[0-9]*/"places": 128/; s/"memory_gb": *[0-9.]*/"memory_gb": 0/' "$cluster" >wide.json
for how in '--mesh data=128' '--mesh data=32,pipe=2,tensor=2 --schedule 1f1b --microbatches 2 --stage-layers 2,2' '--mesh data=16,pipe=4,tensor=2 --schedule gpipe --microbatches 4 --stage-layers 1,1,1,1 --no-fsdp --zero 2'; do
    set -- $transformer --batch 128 $how --engine local
    call "$@" --dry-run --json
    told=$(values total | sort -n | tail -n 1)
    call "$@" --plan search --devices 128 --machine wide.json --json
    status="$status, $told bytes"
    grep -q "\"layout\":\"--mesh data=.*\"bytes\": *$told," out
    point "128 coordinates: $how"
done

# Of more than 2000 layouts only the best meshes are tried with all schedules, and the best layout is that of its mesh.
many='transformer train --model-dimension 32 --n-heads 8 --blocks 4 --layers-per-block 1 --sequence 8 --batch 128 --vocab-size 64'
many="$many --machine wide.json --json --plan search --devices 32"
call $many
mesh=$(sed -n 's/.*"layout": *"\(--mesh [^ ]*\) .*/\1/p' out | head -n 1)
values predicted_ms | sort -g | head -n 1 >pruned
[ $status = 0 ] && [ -s pruned ] && grep -q '"pruned":[1-9]' out && call $many $mesh
[ $status = 0 ] && grep -q '"pruned":0,' out && values predicted_ms | sort -g | head -n 1 | cmp -s - pruned
point "the best of thousands of layouts: $mesh"

# Weight gradients of frozen parameters are neither computed nor predicted.
for freeze in '' '--freeze blocks.*'; do
    call $transformer --model-dimension 128 --plan search --mesh data=1,pipe=1,tensor=1 --schedule 1f1b --microbatches 1 $freeze --machine "$laptop" --json
    values predicted_ms | head -n 1
done >times
awk '{ ms[NR] = $1 } END { exit !(NR == 2 && ms[2] < 0.85 * ms[1]) }' times
point 'frozen parameters take less'
for machine in '' "--machine $laptop"; do
    call $transformer --mesh data=1,pipe=2 --steps 3 --freeze 'blocks.0.*' $machine
    [ $status = 0 ] && grep -q '^predicted [0-9.e+]* ms a step, measured ' out
    point "a stage that has none of them is predicted, too: $machine"
done

# A table larger than the layers.
large="$transformer --vocab-size 8192"
call $large --plan search --mesh data=1,pipe=2 --machine "$laptop" --json
sed -n 's/.*"layout": *"\([^"]*\)".*"bytes": *\([0-9]*\).*/\2 \1/p' out >layouts
{
    grep -m 1 -- '--spread-head$' layouts
    grep -m 1 -- '--spread-head rows$' layouts
    grep -m 1 -v -- '--spread-head' layouts
} >ways
wrong=
while read -r bytes layout; do
    call $large $layout --dry-run --json
    [ $status = 0 ] && [ "$(largest)" = "$bytes" ] || wrong="$wrong $layout"
done <ways
[ "$(wc -l <ways)" = 3 ] && [ -z "$wrong" ] || { echo "$wrong" >>err; false; }
point 'heads are spread in both ways, and bytes are those of dry runs'
call $large --plan search --mesh data=1,pipe=2 --schedule looped-bfs --spread-head rows --machine "$laptop" --json
[ $status = 0 ] && grep -q '"layout"' out && ! grep -q -- '--spread-head' out
point 'the way that is given is not written again'

# Replicas of six samples have no power of two that is enough for four ranks.
call $transformer --plan search --devices 8 --batch 12 --machine "$laptop" --json
for layout in 'data=2,pipe=4,.*--microbatches 6' 'data=2,pipe=4,.*--microbatches 2' 'data=1,pipe=4,.*--microbatches 4' \
    'data=1,pipe=4,.*--microbatches 12'; do
    grep -qE -- "--mesh $layout" out || status="$status, no $layout"
done
[ "$status" = 0 ] && ! grep -q 'data=2,.*--microbatches \(1\|4\|5\|8\) ' out
point 'microbatches are powers of two, or one a sample'

# Four places are two cores of two hyperthreads; two GPUs are joined. Bytes by link, along the last axis.
link() { # link NODES CLASS: all bytes go over links of that class
    sed "s/\"count\": 1, \"places\": 2, \"shares\": true/$1/" "$laptop" >linked.json
    call $transformer --mesh data=1,pipe=1,tensor=2 --plan search --machine linked.json --json
    [ $status = 0 ] && [ "$(sed -n "1s/.*\"traffic\"[^}]*\"$2\": *\([0-9]*\).*/\1/p" out)" -gt 0 ] &&
        [ "$(sed -n '1s/.*"calls_ms": *{\([^}]*\)}.*/\1/p' out | grep -cE "\"$2\": *[0-9.]*[1-9]")" = 1 ] &&
        [ "$(sed -n '1s/.*"traffic": *{\([^}]*\)}.*/\1/p' out | grep -o ':[0-9]*' | grep -vc '^:0$')" = 1 ]
    point "the link is $2 where nodes have $1"
}
link '"places": 4, "core": 2' core
link '"places": 4, "gpus": 2' gpu
link '"places": 4, "package": 2' package
link '"places": 4, "package": 1' node
link '"count": 4' network
link '"places": 1, "shares": true' core

# Each link of a machine file counts, also for sums over data alone: coordinates of several nodes, or GPUs, are processes.
nodes='"count": 2, "places": 8, "core": 2, "package": 4'
links='"core": {"latency_us": 1, "gb_per_s": 50}, "gpu": {"latency_us": 1, "gb_per_s": 40}, "package": {"latency_us": 2, "gb_per_s": 20}, "node": {"latency_us": 3, "gb_per_s": 10}, "network": {"latency_us": 10, "gb_per_s": 1}'
predicted() { # predicted NODES LINKS: predicted times of layouts
    sed "s/\"count\": 1, \"places\": 2, \"shares\": true/$1/; s/^\"links\": {.*}/\"links\": {$2}/" "$laptop" >linked.json
    for mesh in data=2,pipe=1,tensor=1 data=4,pipe=1,tensor=1 data=8,pipe=1,tensor=1 data=16,pipe=1,tensor=1; do
        call $transformer --no-fsdp --mesh $mesh --plan search --machine linked.json --json
        [ $status = 0 ] || echo "$mesh: status $status"
        values predicted_ms
    done
}
for class in core gpu package node network; do
    [ $class = gpu ] && places=$(echo "$nodes" | sed 's/"core": 2/"gpus": 2/') || places=$nodes
    predicted "$places" "$links" >before
    predicted "$places" "$(echo "$links" | sed "s/\(\"$class\": {\"latency_us\": [0-9]*, \"gb_per_s\": \)[0-9]*/\10.01/")" >after
    [ -s before ] && ! grep -q status before after && ! cmp -s before after
    point "the link $class moves the prediction of a layout"
done
many="$transformer --no-fsdp --mesh data=16,pipe=1,tensor=1 --plan search --machine linked.json"
sed "s/\"count\": 1, \"places\": 2, \"shares\": true/$nodes/" "$laptop" >linked.json
call $many --save-options nodes.options
[ $status = 0 ] && sed -n 2p out | grep -qx 'with --engine mpi, as the machine has 2 nodes' && grep -q -- '--engine mpi$' nodes.options
point 'it says for which engine it has searched, and saves it'
call $many --json
tail -n 1 out | grep -q '"engine": *"mpi"' && values predicted_ms >meant
call $many --json --engine mpi
values predicted_ms | cmp -s - meant
point 'as if that had been asked for'
refuses '--engine local: the machine "two cores by hand" has 2 nodes, and threads are of one: choose mpi or nccl' $many --engine local
refuses '--plan auto: "two cores by hand" is a machine for --engine mpi: search with --save-options FILE' $(echo "$many" | sed 's/plan search/plan auto/')

# Half of the bytes of the smallest layout without any option that saves memory.
call $transformer --plan search --devices 4 --machine "$laptop" --json
least=$(sed -n 's/.*"bytes": *\([0-9]*\).*/\1/p' out | sort -n | head -n 1)
call $transformer --plan search --devices 4 --memory $((least * 9 / 10))B --machine "$laptop" --json
[ $status = 0 ] && grep -q '"layout"' out && ! grep '"layout"' out | grep -vE -- '--zero 2|--recompute|--fsdp|--wgrad-group 1|--offload' &&
    [ "$(sed -n 's/.*"bytes": *\([0-9]*\).*/\1/p' out | sort -n | tail -n 1)" -le $((least * 9 / 10)) ]
point 'where memory is short layouts save some'
# Many layers of many tokens: their inputs alone take more than all that rounding adds.
long="$transformer --layers-per-block 12 --sequence 128 --mesh data=1,pipe=1,tensor=1 --schedule 1f1b --microbatches 1"
call $long --dry-run --recompute full --offload optimizer --json
without=$(largest)
call $long --dry-run --recompute full --offload optimizer --storage bf16 --json
with=$(largest)
[ "$with" -lt "$without" ]
point "rounded activations take less: $with beside $without"
call $long --plan search --memory "$with"B --machine "$laptop" --json
[ $status = 0 ] && grep -q '"layout".*--storage bf16' out && [ "$(sed -n '1s/.*"bytes": *\([0-9]*\).*/\1/p' out)" -le "$with" ]
point 'storage is tried where nothing else helps'
refuses 'no layout on 1 devices fits into ' $long --plan search --storage f32 --memory "$with"B --machine "$laptop"
call $long --plan search --memory "$without"B --machine "$laptop" --json
[ $status = 0 ] && grep -q '"layout"' out && ! grep -q -- '--storage' out
point 'and not where something else does'
refuses 'no layout on 4 devices fits into 0.0 MB a coordinate: the smallest of ' $transformer --plan search --devices 4 \
    --memory 1kB --machine "$laptop"

# A slow network between two nodes: the best layout sends little over it.
call $transformer --plan search --devices 8 --machine "$cluster" --json
first=$(sed -n '1s/.*"traffic"[^}]*"network": *\([0-9]*\).*/\1/p' out)
most=$(sed -n 's/.*"traffic"[^}]*"network": *\([0-9]*\).*/\1/p' out | sort -n | tail -n 1)
[ $status = 0 ] && [ "$first" -gt 0 ] && [ $((first * 5)) -lt "$most" ]
point 'a slow network is used little'
refuses '--devices 9: the machine "two nodes of four devices and a slow network" has 8' $transformer --plan search \
    --devices 9 --machine "$cluster"

sed 's/"shares": true/"shares": true, "speed": 0.5/' "$laptop" >slow.json
for machine in "$laptop" slow.json; do
    call $classifier --plan search --mesh data=1,model=2 --schedule 1f1b --microbatches 8 --machine $machine --json
    values predicted_ms | head -n 1
done >times
awk '{ ms[NR] = $1 } END { exit !(NR == 2 && ms[2] > 1.8 * ms[1] && ms[2] < 2.1 * ms[1]) }' times
point 'places of half the speed take twice the time'

# A core of its own for each, and the slower one counts; if coordinates roam, half of the cores are slower.
sed 's/"shares": true/"shares": true, "speeds": [1, 0.5]/' "$laptop" >differ.json
for devices in 1 2 4; do
    for machine in "$laptop" differ.json; do
        call $classifier --plan search --mesh data=1,model=$devices --schedule 1f1b --microbatches 8 --machine $machine --json
        values predicted_ms | head -n 1
    done
done >times
awk '{ ms[NR] = $1 } END { exit !(NR == 6 && ms[2] == ms[1] && ms[4] > 1.8 * ms[3] && ms[6] > 1.2 * ms[5] && ms[6] < 1.5 * ms[5]) }' times
point 'the slower core of two counts'

# ---- saved, and run ----

call $transformer --plan search --devices 2 --machine "$laptop" --save-options best
[ $status = 0 ] && grep -q -- '--mesh ' best && ! grep -q -- '--plan\|--devices\|--machine' best
point 'options of the best are saved'
call transformer train @best --steps 2
[ $status = 0 ] && grep -q '^parameters ' out
point 'and start a run'
call plan search --driver transformer ${transformer#transformer train} --devices=2 --machine "$laptop" --save best2
[ $status = 0 ] && for file in best best2; do head -n 1 $file | grep -qx "# .*/transformer train @$file" && sed 1d $file >$file.options || break; done
cmp -s best.options best2.options
point 'plan search --driver does the same'
call plan memory --driver looping_pipeline --mesh data=2 --layers 2 --hidden 16 --json
cp out memory
call looping_pipeline --mesh data=2 --layers 2 --hidden 16 --dry-run --json
[ $status = 0 ] && cmp -s out memory
point 'plan memory --driver is a dry run'
call $classifier --plan auto --devices 2 --steps 2 --machine "$laptop"
[ $status = 0 ] && grep -q '^the best of ' err && grep -q '^parameters ' out
point '--plan auto runs the best'
call $transformer --plan auto --devices 2 --memory 1GB --steps 2
[ $status = 0 ] && grep -q '"this machine"' err && grep -q '^parameters ' out
point 'also on this machine, which is measured'

sed 's/"count": *[0-9]*/"count": 40, "gpus": 4/' "$cluster" >many.json
call $transformer --plan search --devices 128 --machine many.json --save-options many
[ $status = 0 ] && grep -q -- '^--mesh .* --engine nccl' many
point 'options of a run on 128 GPUs'

# ---- refusals ----

refuses '--plan: "maybe" is not one of no|search|auto' $transformer --plan maybe
refuses '--devices: "65537" is not an integer from 0 to 65536' $transformer --plan search --devices 65537
refuses '--devices: is read only with --plan' $transformer --devices 4
refuses '--memory: is read only with --plan' $transformer --memory 1GB
for size in 0 1XB B 1GBB -1GB nan 1e99 inf; do
    refuses "--memory: \"$size\" is no size of at least a byte" $transformer --plan search --memory=$size
done
refuses '--devices 4: the mesh that is given has 2 coordinates' $transformer --plan search --devices 4 --mesh data=2
refuses '--driver missing: choose transformer or looping_pipeline' plan search --driver missing
refuses '--driver is missing: choose' plan memory
refuses '--nonsense: no such option' plan measure --nonsense
refuses 'no layout on 7 devices is possible: ' $transformer --plan search --devices 7 --machine "$laptop"

# ---- files ----

refuses_with 3 '/dev/full: ' $transformer --plan search --devices 2 --machine "$laptop" --save-options /dev/full
refuses 'nowhere/best: No such file' $transformer --plan search --devices 2 --machine "$laptop" --save-options nowhere/best
refuses 'missing.json: No such file' $transformer --plan search --devices 2 --machine missing.json

# edits TEXT SED: the laptop's file, edited, is refused with TEXT.
edits() {
    sed "$2" "$laptop" >edited.json
    refuses "edited.json: $1" $transformer --plan search --devices 2 --machine edited.json
}
edits 'a machine has a key "nmae", but there are only name, ' 's/"name"/"nmae"/'
edits '"name" must be a text' 's/"name": "[^"]*"/"name": 3/'
edits '"nodes" must be a list of 1 to 64 objects' 's/"nodes": .*/"nodes": [],/'
edits 'nodes: "places" must be a whole number from 1 to 1048576' 's/"places": 2/"places": 0/'
edits 'nodes: "places" must be a whole number from 1 to 1048576' 's/"places": 2/"places": 2.5/'
edits 'nodes: "shares" must be true or false' 's/"shares": true/"shares": 1/'
edits 'an object of "nodes" has a key "cores"' 's/"places"/"cores"/'
edits 'nodes: "speeds" must be a list of at most 2 numbers, one a place' 's/"places": 2/"places": 2, "speeds": [1, 1, 1]/'
edits 'nodes: "speeds" must be a list of at most 2 numbers, one a place' 's/"places": 2/"places": 2, "speeds": 1/'
edits 'nodes: each of "speeds" must be a number from 1e-06 to 1e+06' 's/"places": 2/"places": 2, "speeds": [1, 0]/'
edits 'nodes: each of "speeds" must be a number from 1e-06 to 1e+06' 's/"places": 2/"places": 2, "speeds": ["fast"]/'
edits '"products" must be a list of 1 to 1024 rows' 's/"products": .*/"products": 7,/'
edits 'a row of "products" must be ["f32" or "bf16", m, n, k' 's/"NN", 100/"NX", 100/'
edits 'a row of "products" must be ["f32" or "bf16", m, n, k' 's/"NN", 100/"NN", -1/'
edits 'a row of "products" must be ["f32" or "bf16", m, n, k' 's/1024, 1024, 1024, "NN", 200/0, 1024, 1024, "NN", 200/'
edits '"kernels" lacks "gelu"' 's/"gelu": 2.5, //'
edits 'kernels: "gelu" must be a number from' 's/"gelu": 2.5/"gelu": "fast"/'
edits 'a machine must have "attention_gflops"' '/attention/d'
edits '"links" lacks "gb_per_s" of "package"' 's/, "gb_per_s": 10//'
edits '"links" must have one of the links, with "gb_per_s"' 's/"links": .*/"links": {}/'
edits 'nodes: "core" must be a whole number from 0 to 1048576' 's/"places": 2/"places": 2, "core": -1/'
edits 'nodes: "gpus" must be a whole number from 0 to 1048576' 's/"places": 2/"places": 2, "gpus": "two"/'
edits 'package: "gb_per_s" must be a number from' 's/"gb_per_s": 10/"gb_per_s": 0/'
edits '"links" has a key "moon"' 's/"package"/"moon"/'
adds() {
    edits "$1" "s/^\"action_us\"/$2,\n&/"
}
adds '"memory" must be a list of at most 16 rows' '"memory": 7'
adds 'a row of "memory" must be [MB, GB/s], with more MB than the one before' '"memory": [[1, 100], [1, 50]]'
adds 'a row of "memory" must be [MB, GB/s], with more MB than the one before' '"memory": [[1, 0]]'
adds 'a row of "memory" must be [MB, GB/s], with more MB than the one before' '"memory": [["1", 5]]'
adds 'waiting must be an object with wake_us, notify_us, awake_us' '"waiting": []'
adds 'waiting has a key "sleep_us", but there are only wake_us' '"waiting": {"sleep_us": 1}'
adds 'waiting: "spread" must be a number from 0 to 1' '"waiting": {"spread": 1.5}'
adds 'tied: "call_us" must be a number from 0 to 1e+09' '"tied": {"call_us": -1}'
adds 'tied has a key "groups", but there are only message_us, call_us, calls, idle' '"tied": {"groups": []}'
adds 'tied: "calls" must be a list of at most 16 rows' '"tied": {"calls": 20}'
adds 'roaming: a row of "calls" must be [members, us, gb_per_s], with 2 members or more' '"roaming": {"calls": [[1, 20]]}'
adds 'roaming: "idle" must be a number from 0 to 0.9' '"roaming": {"idle": 1}'
adds 'roaming: "message_us" must be a number from 0 to 1e+09' '"roaming": {"message_us": "long"}'

# The costs of shared cores and of sleep are added.
sed 's/^"action_us"/"waiting": {"wake_us": 1e5, "awake_us": 1},\n"roaming": {"message_us": 1e5},\n&/' "$laptop" >costly.json
sed 's/^"action_us"/"roaming": {"idle": 0.5},\n&/' "$laptop" >idle.json
for machine in "$laptop" costly.json idle.json; do
    for devices in 2 4; do
        call $classifier --plan search --mesh data=1,model=$devices --schedule 1f1b --microbatches 4 --machine $machine --json
        values predicted_ms | head -n 1
    done
done >times
awk '{ ms[NR] = $1 } END { exit !(NR == 6 && ms[3] > ms[1] + 100 && ms[4] > ms[2] + 100) }' times
point 'sleep and turns cost what the file says'
awk '{ ms[NR] = $1 } END { exit !(ms[5] == ms[1] && ms[6] > 1.8 * ms[2] && ms[6] < 2.1 * ms[2]) }' times
point 'cores that are idle half of the time take twice as long where coordinates share them'
sed '1s/.*/[/' "$laptop" >edited.json
refuses 'edited.json:2:7: ' $transformer --plan search --devices 2 --machine edited.json

# ---- measured ----

call plan measure --brief --save measured.json
[ $status = 0 ] && grep -q '^products of float32 ' out && [ -s measured.json ]
point 'a machine is measured'
call $classifier --plan search --devices 2 --machine measured.json
[ $status = 0 ] && grep -q 'of "this machine"' out
point 'and read again'
for key in memory waiting tied roaming; do
    grep -q "^\"$key\": " measured.json || echo "$key" >>err
done
[ ! -s err ]
point 'with memory, sleep, and what sharing cores costs'
refuses 'there is no engine "missing"' plan measure --engine missing

plan
