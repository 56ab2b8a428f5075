#!/bin/sh
# plan.sh DRIVERS - pipelines, memory, communication and layouts that plan prints, and bad input; prints TAP.
driver=$1/plan
. "$(dirname "$0")/../../../rigs/points.sh"

# ---- pipelines: the tutorial's figures ----

# draws NAME ARGUMENT...: the ranks' lines are those of the file `expected`.
draws() {
    name=$1
    shift
    call --section pipeline "$@"
    [ $status = 0 ] && [ ! -s err ] && grep '^rank' out | cmp -s - expected
    point "$name"
}

cat >expected <<'END'
rank 0: 0F0   .   . 0B0 0F1   .   . 0B1
rank 1:   . 1F0 1B0   .   . 1F1 1B1
END
draws sequential --pipeline sequential --stages 2 --microbatches 2
cat >expected <<'END'
rank 0: 0F0 0F1 0F2 0F3   . 0F4   . 0F5   . 0F6 0B0 0F7 0B1   . 0B2   . 0B3   . 0B4 0B5 0B6 0B7
rank 1:   . 1F0 1F1 1F2   . 1F3   . 1F4 1B0 1F5 1B1 1F6 1B2 1F7 1B3   . 1B4   . 1B5 1B6 1B7
rank 2:   .   . 2F0 2F1   . 2F2 2B0 2F3 2B1 2F4 2B2 2F5 2B3 2F6 2B4 2F7 2B5   . 2B6 2B7
rank 3:   .   .   . 3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4 3F5 3B5 3F6 3B6 3F7 3B7
END
draws grouped --pipeline grouped
cat >expected <<'END'
rank 0: 0F0   . 0F1   . 0F2   . 0F3 0B0 0F4 0B1 0F5 0B2 0F6 0B3 0F7 0B4   . 0B5   . 0B6   . 0B7
rank 1:   . 1F0   . 1F1   . 1F2 1B0 1F3 1B1 1F4 1B2 1F5 1B3 1F6 1B4 1F7 1B5   . 1B6   . 1B7
rank 2:   .   . 2F0   . 2F1 2B0 2F2 2B1 2F3 2B2 2F4 2B3 2F5 2B4 2F6 2B5 2F7 2B6   . 2B7
rank 3:   .   .   . 3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4 3F5 3B5 3F6 3B6 3F7 3B7
END
draws interleaved --pipeline interleaved
cat >expected <<'END'
rank 0: 0F0 0F1 0F2 0F3
rank 1:   . 1F0 1F1 1F2 1F3
rank 2:   .   . 2F0 2F1 2F2 2F3
END
draws inference --pipeline inference --stages 3 --microbatches 4
holds 'its phases' 'ramp-up: 2 iterations, main phase: 2 (from iteration 2), ramp-down: 2'
cat >expected <<'END'
rank 0: 0F0 0F1 2F0 2F1
rank 1:   . 1F0 1F1 3F0 3F1
END
draws 'inference with two loops' --pipeline inference --stages 2 --microbatches 2 --loops 2
call --section pipeline --pipeline grouped --microbatches 16
holds 'phases of the figure with sixteen microbatches' \
    'ramp-up: 9 iterations, main phase: 20 (from iteration 9), ramp-down: 9'

# Costs: grouped saves about twice as many activations and exchanges less often, interleaved is filled sooner and slower.
costs='"section":"pipeline","pipeline":'
call --section pipeline --json
holds 'costs of the four' \
    "$costs\"sequential\",\"loops\":1,\"iterations\":64,\"ramp_up\":null,\"main\":null,\"ramp_down\":null,\"time\":96.0,\"ramp_up_time\":null,\"bubble\":0.75,\"kept\":1,\"exchanges\":48,\"messages\":48,\"bytes\":2415919104,\"latency\":12.0" \
    "$costs\"grouped\",\"loops\":1,\"iterations\":22,\"ramp_up\":9,\"main\":4,\"ramp_down\":9,\"time\":33.0,\"ramp_up_time\":12.0,\"bubble\":0.272727273,\"kept\":7,\"exchanges\":13,\"messages\":48,\"bytes\":2415919104,\"latency\":15.0" \
    "$costs\"interleaved\",\"loops\":1,\"iterations\":22,\"ramp_up\":6,\"main\":10,\"ramp_down\":6,\"time\":40.0,\"ramp_up_time\":8.0,\"bubble\":0.4,\"kept\":4,\"exchanges\":21,\"messages\":48,\"bytes\":2415919104,\"latency\":12.0" \
    "$costs\"inference\",\"loops\":1,\"iterations\":11,\"ramp_up\":3,\"main\":5,\"ramp_down\":3,\"time\":11.0,\"ramp_up_time\":3.0,\"bubble\":0.272727273,\"kept\":0,\"exchanges\":10,\"messages\":24,\"bytes\":1207959552,\"latency\":4.0"
[ "$(wc -l <out)" = 20 ] && ! grep -qv '^{.*}$' out
point 'an object a line and nothing else'
call --section pipeline --json --pipeline inference --exchange 0.5 --stage-times 1,1,1.5,1
# 3 iterations without the slow rank, 8 with it, 10 exchanges.
holds 'a slow stage holds up the others' '"time":20.0,'
call --section pipeline --json --pipeline grouped --exchange 0.5
holds 'exchanges take time' '"time":39.5,'
call --section pipeline --json --pipeline gpipe --recompute
holds 'recomputation does the forward again' '"time":44.0,'
call --section pipeline --json --pipeline interleaved --loops 2
holds 'a schedule with loops' '"pipeline":"interleaved-1f1b","loops":2,' '"action":"7F0"'
call --help schedules
schedules=$(sed -n '/^Schedules:/,/^$/s/^  \([^ ][^ ]*\).*/\1/p' out)
for name in sequential $schedules; do
    [ $name = dualpipe ] && continue # bad_input.sh
    call --section pipeline --pipeline $name --stages 3 --microbatches 6
    holds "drawn and proven: $name" 'rank 2: ' 'iterations'
done

# For all sizes: in grouped, all ranks do the same kind at once; in interleaved, neighbours do different kinds while all
# ranks work.
same=yes kinds=yes counts=yes
for stages in 1 2 3 5; do
    for microbatches in 1 2 3 8 13; do
        size="--stages $stages --microbatches $microbatches"
        call --section pipeline --pipeline grouped $size
        sed -n 's/^rank [0-9]*://p' out | awk '
            { for (t = 1; t <= NF; t++) if ($t != ".") seen[t] = seen[t] substr($t, match($t, /[FB]/), 1) }
            END { for (t in seen) if (seen[t] ~ /F/ && seen[t] ~ /B/) exit 1 }' || same=
        call --section pipeline --pipeline interleaved $size
        sed -n 's/^rank [0-9]*://p' out | awk -v ranks=$stages '
            { for (t = 1; t <= NF; t++) if ($t != ".") seen[t] = seen[t] substr($t, match($t, /[FB]/), 1) }
            END { for (t in seen) if (length(seen[t]) == ranks && seen[t] ~ /FF|BB/) exit 1 }' || kinds=
        call --section pipeline --json $size
        iterations=$((2 * (stages + microbatches - 1)))
        for line in "\"sequential\",\"loops\":1,\"iterations\":$((2 * stages * microbatches))," \
            "\"grouped\",\"loops\":1,\"iterations\":$iterations," \
            "\"interleaved\",\"loops\":1,\"iterations\":$iterations," \
            "\"inference\",\"loops\":1,\"iterations\":$((stages + microbatches - 1)),"; do
            grep -qF "$line" out || counts=
        done
        for kept in "grouped $((2 * stages - 1))" "interleaved $stages" 'sequential 1'; do
            most=${kept#* }
            [ "$most" -gt "$microbatches" ] && most=$microbatches
            grep -qE "\"pipeline\":\"${kept% *}\",.*\"kept\":$most," out || counts=
        done
    done
done
[ "$same" ]
point 'grouped: all do forwards, or all backwards'
[ "$kinds" ]
point 'interleaved: neighbours do different ones'
[ "$counts" ]
point 'iterations and kept microbatches by formula'

call --format svg --pipeline grouped
holds 'as SVG' '<svg ' '</svg>' 'grouped' 'bubble 27.3 %'
# 64 actions, 4 ranks, the paper, and 3 in the legend.
[ "$(grep -c '<rect ' out)" = 72 ]
point 'a box an action'
mv out first && call --format svg --pipeline grouped --output second
[ $status = 0 ] && [ ! -s out ] && cmp -s first second
point 'the same in a file'

# As files they are schedules that the driver schedule has by name, and in the transformer grouped saves 2 S - 1
# microbatches, interleaved S.
for name in sequential grouped interleaved; do
    call --format csv --pipeline $name --stages 4 --microbatches 6
    mv out $name.csv && "${driver%/*}/schedule" --file $name.csv --check >read 2>err &&
        "${driver%/*}/schedule" --name $name --stages 4 --microbatches 6 --check >named 2>>err
    [ $? = 0 ] && [ ! -s err ] && cmp -s read named
    point "as CSV: $name"
done
kept() { # kept SCHEDULE: bytes that the first coordinate keeps
    "${driver%/*}/transformer" train --dry-run --json --mesh pipe=8 --blocks 4 --layers-per-block 2 --microbatches 16 \
        --batch 16 --sequence 32 --wgrad-group 1 --model-dimension 64 --n-heads 4 --latent-dim 16 --schedule "$1" |
        sed -n '1s/.*"kept":\([0-9]*\),.*/\1/p'
}
[ $((8 * $(kept grouped))) = $((15 * $(kept interleaved))) ]
point 'grouped keeps about twice what interleaved keeps'

# ---- memory ----

call --section memory --parameters 1e12
holds 'the article is out of memory' '3725.29 GiB'
tiny='--layers 2 --hidden 8 --heads 4 --vocabulary 16 --sequence 4 --microbatches 2 --data 2 --stages 2 --tensor 2'
row='"section":"memory","setup":'
# 12 h h + 13 h a layer, 22 h of embeddings; the table has two gradients. No array of so many columns is padded.
call --section memory --json ${tiny%--hidden 8*} --hidden 16 ${tiny#*--hidden 8}
holds 'parameters by hand' '{"section":"model","parameters":6912,"layer":3280,"embedding":352,"tokens":16}' \
    "$row\"one device, the whole batch, f32\",\"devices\":1,\"parameters\":27648,\"gradients\":28672,\"optimizer\":55296," \
    "$row\"lower precision: bf16\",\"devices\":1,\"parameters\":13824,\"gradients\":14336,\"optimizer\":27648," \
    "$row\"bf16, with f32 values and states\",\"devices\":1,\"parameters\":41472,\"gradients\":28672,\"optimizer\":55296," \
    "$row\"gradient accumulation\",\"devices\":1,\"parameters\":27648,\"gradients\":28672,\"optimizer\":55296," \
    "$row\"no gradients: inference\",\"devices\":1,\"parameters\":27648,\"gradients\":0,\"optimizer\":0," \
    "$row\"recomputation\",\"devices\":1,\"parameters\":27648,\"gradients\":28672,\"optimizer\":55296," \
    "$row\"optimizer states on the host\",\"devices\":1,\"parameters\":27648,\"gradients\":28672,"
# states: the rows without their gradients, of which tables have two.
states() { sed -i 's/"gradients":[0-9]*,//' out; }
call --section memory --json --parameters 1e9 --data 4 --stages 2 --tensor 2 --zero 3
cp out rows
states
holds 'what ZeRO shares' "$row\"data\",\"devices\":4,\"parameters\":6000000000,\"optimizer\":8000000000," \
    "$row\"data, ZeRO 1: optimizer states\",\"devices\":4,\"parameters\":30" '"optimizer":2000000000,'
sed -n 's/.*"setup":"data.*"parameters":\([0-9]*\),"gradients":\([0-9]*\),"optimizer":\([0-9]*\),.*/\1 \2 \3/p' rows >out
awk '{ p[NR] = $1; g[NR] = $2; o[NR] = $3 }
    END { exit !(NR == 4 && p[2] < 0.51 * p[1] && p[4] < 0.6 * p[2] && g[2] == g[1] && g[3] < 0.5 * g[2] && o[2] == o[1] / 4 && o[4] == o[2]) }' out
point 'each stage one thing more'
for pair in sgd,0 momentum,4000000000 adam,8000000000; do
    call --section memory --json --parameters 1e9 --optimizer ${pair%,*}
    states
    holds "states of ${pair%,*}" "$row\"data\",\"devices\":2,\"parameters\":6000000000,\"optimizer\":${pair#*,},"
done
call --section memory --json --capacity 10 --parameters 1e9 --code 1 --layers 1 --hidden 8 --heads 8 --stages 1
holds 'what fits' '"code":1073741824,"total":17' '"fits":"no"' '"fits":"yes"'

# Activations are those of a model with so many parameters.
call --section memory --json --parameters 175e9
sed 1d out >shaped
call --section memory --json --parameters 175e9 --layers 96 --model-dimension 12288 --n-heads 96 --vocab-size 51200
[ $status = 0 ] && [ -s shaped ] && sed 1d out | cmp -s - shaped
point 'the shape of 175e9 parameters, by the names that transformer has'
activations() { sed -n 's/.*"setup":"data",.*"activations":\([0-9]*\),.*/\1/p' out; }
large=$(activations)
call --section memory --json --parameters 7e9 --layers 32 --hidden 4096 --heads 32
known=$(activations)
for tensor in 1 2 8; do
    call --section memory --json --parameters 7e9 --tensor $tensor
    [ $status = 0 ] && awk -v made="$(activations)" -v known="$known" -v large="$large" \
        'BEGIN { exit !(made > 0.8 * known && made < 1.25 * known && made < large / 4) }'
    point "7e9 parameters keep what a published model of that size keeps: tensor $tensor"
done
call --section memory --parameters 7e9 --hidden 4096
holds 'what is given stays' 'of 34 layers of 4096 columns with 32 heads'

# ---- batches, tensors, communication, nodes ----

call --section data --json --microbatch-size 1 --microbatches 4 --data 4
holds 'the article'\''s batch of 16' '"replicas":4,"microbatch":1,"accumulated":4,"batch":16,'
call --section data --json --data 3 --parameters 1000 --precision f32 --microbatches 2
holds 'what replicas send' '"replicas":1,"microbatch":1,"accumulated":2,"batch":2,"all_reduce":0,"sent":0,' \
    '"replicas":3,"microbatch":1,"accumulated":2,"batch":6,"all_reduce":4000,"sent":5333,"sent_per_sample":2667}'
call --section tensor --json --hidden 64 --tensor 4 --heads 8 --vocabulary 1000 --precision f32
holds 'a layer'\''s parts' '"tensor":"W1","shape":"256 x 64","split":"by rows","shard":"64 x 64","elements":4096,' \
    '"tensor":"b1","shape":"256","split":"by rows","shard":"64",' '"shard":"64","elements":64,"bytes":256}' \
    '"tensor":"W2","shape":"64 x 256","split":"by columns","shard":"64 x 64"' \
    '"tensor":"embedding","shape":"1000 x 64","split":"by vocabulary","shard":"250 x 64"'
call --section tensor --json --hidden 64 --tensor 8 --heads 8 --vocabulary 50257 --precision f32
holds 'a vocabulary that does not divide' '"tensor":"embedding","shape":"50257 x 64","split":"by vocabulary","shard":"6283 x 64"'
call --section search --json --data 1 --stages 1 --tensor 8 --heads 8 --hidden 64 --layers 2 --vocabulary 50257 --sequence 64
holds 'which the search divides, too' '"tensor":8,'
for members in 1 2 3 8; do
    call --section tensor --json --tensor $members --heads 24 --hidden 24 --vocabulary 240
    holds "$members devices give what one gives" "\"layer\":\"embedding\",\"members\":$members,\"difference\":0.0}"
done
call --section communication --json $tiny --precision f32 --zero 0
traffic='{"section":"communication","axis":'
# Of a layer 384 parameters in kernels and 88 others, half of the table, a half norm. Of four tokens two passes scatter and
# three gather 9 h columns, beside the sums of norms and the traffic of the head.
holds 'communication by hand' \
    "$traffic\"data\",\"size\":2,\"operation\":\"all-reduce\",\"times\":1,\"bytes_each\":2176,\"bytes\":2176," \
    "$traffic\"pipeline\",\"size\":2,\"operation\":\"send and receive\",\"times\":2,\"bytes_each\":64,\"bytes\":128," \
    "$traffic\"tensor\",\"size\":2,\"operation\":\"scatter, gather\",\"times\":6,\"bytes_each\":683,\"bytes\":4096,"
call --section communication --json $tiny --precision f32 --zero 3 --recompute
holds 'and with what FSDP and recomputation add' '"operation":"gather twice, scatter","times":6,"bytes_each":875,"bytes":5248' \
    "$traffic\"tensor\",\"size\":2,\"operation\":\"scatter, gather\",\"times\":8,"
call --section communication --json $tiny --precision f32 --pipeline inference
holds 'inference sends states alone' "$traffic\"data\",\"size\":2,\"operation\":\"none\",\"times\":0," \
    '"operation":"send and receive","times":2,' "$traffic\"tensor\",\"size\":2,\"operation\":\"scatter, gather\",\"times\":2,"
call --section replicas --data 2 --stages 2 --tensor 4 --node 4
holds 'who is where' '2 data x 2 pipeline x 4 tensor = 16 devices' 'data 1, stage 0: devices 8 to 11, node 2'
call --section replicas --json --data 2 --stages 2 --tensor 4 --node 4
holds 'tensor groups within a node' '"order":"data, pipeline, tensor","replicas":16,"slow":"data, pipeline",' \
    '"order":"tensor, data, pipeline","replicas":16,"slow":"tensor",'
call --section replicas --json --data 1 --stages 1 --tensor 3 --node 2 --heads 3 --hidden 24 --vocabulary 24 --layers 1
holds 'a group that nodes do not hold evenly' '"slow":"tensor"'
call --section calls --json --node 16
holds 'counts of calls' \
    '"call":"barrier","bytes":0,"coordinates":1024,"messages":12,"pieces":2,"bells":15,"node_bytes":864}' \
    '"call":"psum","bytes":16777216,"coordinates":64,"messages":514,"pieces":512,"bells":7680,"node_bytes":33559040}' \
    '"call":"broadcast","bytes":1024,"coordinates":256,"messages":8,"pieces":2,"bells":15,"node_bytes":4672}'
call --section calls --json --node 7
holds 'on nodes that differ' '"call":"barrier","bytes":0,"coordinates":8,"messages":2,"pieces":2,"bells":6,"node_bytes":144}'

call --section search --json --data 8 --stages 2 --tensor 4
[ $status = 0 ] && sed -n 's/.*"data":\([0-9]*\),"stages":\([0-9]*\),"tensor":\([0-9]*\),"context":\([0-9]*\),.*"microbatches":\([0-9]*\),.*"fits":"\([a-z]*\)",.*"update_s":\([0-9.e+-]*\)}/\1 \2 \3 \4 \5 \6 \7/p' out | awk '
    $1 * $2 * $3 * $4 != 64 || $1 * $5 != 64 || 96 % $3 || 2048 / (2 * $4) < 128 { exit bad = 1 }
    $6 == last && $7 < seconds || $6 == "yes" && last == "no" { exit bad = 1 }
    { last = $6; seconds = $7; divides = divides || $4 > 1 }
    NR == 1 { first = $6 }
    END { exit bad || NR < 10 || first != "yes" || !divides }'
point 'layouts of as many devices and samples, those that fit and the fastest first'

# If the vocabulary is large, a head spread over the stages is smaller and faster than the same layout without it.
large='--section search --data 1 --stages 4 --tensor 1 --layers 8 --hidden 64 --heads 4 --vocabulary 32768 --sequence 16'
column() { # column KEY SPREAD: of the pipeline of four stages
    sed -n "/\"stages\":4,.*\"spread_head\":\"$2\"/s/.*\"$1\":\([0-9.e+-]*\).*/\1/p" out | head -n 1
}
call --json $large
[ $status = 0 ] && awk 'BEGIN { exit !(ARGV[1] < 0.5 * ARGV[2] && ARGV[3] < ARGV[4]) }' "$(column memory yes)" \
    "$(column memory no)" "$(column update_s yes)" "$(column update_s no)"
point 'a spread head is smaller and faster'
call --json $large --microbatches 1
[ $status = 0 ] && awk 'BEGIN { exit !(ARGV[1] > 0.6 && ARGV[1] < 0.75 && ARGV[2] > 0.6 && ARGV[2] < 0.75) }' "$(column bubble yes)" "$(column bubble no)"
point 'one microbatch waits for each of the stages in turn, but for weight gradients'
call --json $large --layers 4096 --vocabulary 512 --stages 2
[ $status = 0 ] && grep -q '"stages":2,"tensor":1,.*"spread_head":"no"' out && ! grep -q '"spread_head":"yes"' out
point 'a small vocabulary is one chunk, which is not spread'
for other in '--vocabulary 50257' '--pipeline zbv' '--pipeline grouped' '--parameters 1e9' '--pipeline inference'; do
    call --json $large $other
    [ $status = 0 ] && grep -q '"section":"search"' out && ! grep -q '"spread_head":"yes"' out
    point "not spread: $other"
done
call --json $large --sequence 18 --stages 2 --tensor 4 --fast 1e6 --slow 1e6
[ $status = 0 ] && grep -q '"stages":2,"tensor":2,.*"spread_head":"yes"' out &&
    ! grep -q '"stages":2,"tensor":4,.*"spread_head":"yes"' out
point 'tensor coordinates share the rows of a sequence'

# Sequences of 1,024 tokens are divided by two devices that have nothing else to share: the command says so.
long='--layers 2 --hidden 64 --heads 1 --vocabulary 256 --sequence 1024 --data 1 --stages 1 --tensor 1 --context 2'
call --json --section memory $long --microbatches 1
planned=$(sed -n 's/.*"setup":"all: ZeRO 1, interleaved","devices":2,.*"total":\([0-9]*\),.*/\1/p' out)
call --json --section search $long --microbatches 1 --code 0
said=$(sed -n 's/.*"data":1,"stages":1,"tensor":1,"context":2,"pipeline":"grouped",.*"memory":\([0-9]*\),.*/\1/p' out)
[ "$planned" ] && [ "$planned" = "$said" ] && grep -q 'train --mesh data=1,pipe=1,context=2,tensor=1 ' out
point 'the memory and the command of divided sequences'
refuses '--context: is read only with --section memory or search' --context 2
refuses '--context: 30 tokens (--sequence) do not divide into 2 blocks for each of 4 devices' --section memory --context 4 --sequence 30

# The command of the first layout runs. One attention head leaves no tensor coordinates, which would be faster.
runs() {
    name=$1
    shift
    call --json --section search "$@"
    command=$(sed -n 's/.*"command":"\(.*\)"}$/\1/p' out)
    [ "$command" ] && timeout 120 sh -c "$command --steps 1" >out 2>err </dev/null
    status=$?
    [ $status = 0 ] && [ ! -s err ] && case $name in spread*) [ "${command#*--spread-head}" != "$command" ] ;; esac
    point "the command runs: $name"
}
chosen="$large --heads 1"
runs 'spread, the fastest' $chosen
runs 'spread, nothing else fits' $chosen --capacity 0.015
[ "$(call $chosen --json --capacity 0.015; grep -c '"fits":"yes"' out)" = 1 ]
point 'nothing else fits'
call $chosen
holds 'it is printed whole' 'The first of them that transformer can train:' \
    "${driver%/*}/transformer train --mesh data=1,pipe=4,tensor=1 --model-dimension 64 " ' --schedule interleaved-1f1b --loops 1 --spread-head '
runs 'spread, two loops' $chosen --pipeline looped-bfs --loops 2 --precision f32 --optimizer sgd
runs 'over tensor' $large --tensor 2 --stages 1 --recompute --offload --zero 3 --optimizer momentum
runs 'grouped' $large --pipeline grouped
runs 'over data' $large --data 2 --stages 1 --zero 2 --pipeline 1f1b
for other in '--precision bf16' '--parameters 1e9' '--pipeline inference'; do
    call --json $large $other
    [ $status = 0 ] && grep -q '"section":"search"' out && ! grep -q '"section":"command"' out
    point "no command: $other"
done

call --data 2 --stages 2 --tensor 2 --layers 4 --hidden 64 --heads 4 --vocabulary 256 --sequence 32
holds 'all sections' Model Memory Data: Pipelines: Tensor: Communication: Replicas: Search:

for extreme in '--forward 1e-320 --backward 0 --exchange 1e-320' '--forward 1e9 --backward 1e-9' \
    '--forward 1e9 --backward 1e9 --exchange 1e9 --stages 2 --stage-times 1000000,1'; do
    call --format svg --pipeline 1f1b $extreme
    [ $status = 0 ] && [ ! -s err ] && ! grep -qE 'nan|inf' out
    point "as SVG: $extreme"
done

# ---- refusals: one line each ----

refuses_with 2 '--pipeline: "zigzag" is not one of all, sequential, grouped, interleaved, inference, gpipe' --pipeline zigzag
refuses_with 2 "--pipeline: is read only with --section all" --pipeline zigzag --section data
refuses_with 2 '--loops: 2, but the grouped pipeline has one stage a rank' --loops 2
refuses_with 2 'schedule zbv: 3 loops' --pipeline zbv --loops 3
for times in 1,2 1,1,1,1,1 1,1,x,1 1,1,0,1 1,1,-1,1 1,,1,1 nan,1,1,1; do
    refuses_with 2 "--stage-times: \"$times\" is not 4 numbers" --stage-times $times
done
refuses_with 2 '--tensor: 96 attention heads do not divide by 5 devices' --tensor 5
refuses_with 2 "--tensor: 40 rows of the perceptron's middle do not divide by 16 devices" --tensor 16 --hidden 10
refuses_with 2 '--stages: 97 stages, but only 96 layers' --stages 97
refuses_with 2 'devices; allowed are 1048576' --data 65536
for section in memory search all; do
    refuses_with 2 '--heads: 100 columns (--hidden) do not divide into 3 heads' --section $section --hidden 100 --heads 3 --tensor 1
done
refuses_with 2 "a replica's batch of 4294967296 tokens" --section memory --sequence 65536 --microbatches 65536
refuses_with 2 'a batch of 4294967296 samples' --section search --sequence 1 --data 65536 --microbatches 65536 --stages 1 --tensor 1
refuses_with 2 'schedule sequential: 4096 stages x 1 loops x 65536 microbatches' --stages 4096 --layers 4096 \
    --microbatches 65536 --pipeline sequential
refuses_with 2 '--format: svg is for pipelines, and no other section' --format svg --section memory
refuses_with 2 '--format: csv is for pipelines, and no other section' --format csv --section memory
call --format svg --microbatches 4
holds 'all pipelines in one drawing' '>sequential: ' '>grouped: ' '>interleaved: ' '>inference: '
refuses_with 2 '--format csv is for one pipeline: --pipeline says which' --format csv
refuses_with 3 '/dev/full: ' --format csv --pipeline grouped --output /dev/full
refuses_with 2 '--section: "money" is not one of all|memory' --section money
refuses_with 2 '--zero: "4" is not an integer from 0 to 3' --zero 4
refuses_with 2 '--forward: "-1" is not a number' --forward -1
refuses_with 2 '--output: nowhere/out: No such file' --output nowhere/out
refuses_with 2 '--nonsense: no such option' --nonsense
refuses_with 3 '/dev/full: ' --output /dev/full
"$driver" >/dev/full 2>err
status=$?
[ $status = 3 ] && [ "$(wc -l <err)" = 1 ] && grep -q '^plan: stdout: ' err
point 'a full disk'
call --help
holds 'help' 'Usage: plan' '--pipeline NAME'
call --version
holds 'version' 'plan (shardloop) '

plan
