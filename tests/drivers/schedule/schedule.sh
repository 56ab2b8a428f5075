#!/bin/sh
# schedule.sh DRIVERS - the driver `schedule`: tables, JSON, drawings, costs, refusals; prints TAP.
drivers=$1
driver=$drivers/schedule
. "$(dirname "$0")/../../rigs/points.sh"

known='gpipe 1f1b pipedream-flush interleaved-1f1b looped-bfs looped-dfs interleaved-zb zbv dualpipev dualpipe sequential grouped interleaved rotating rotating-inputs'

call --help all
names=$(sed -n '/^Schedules:/,/^$/s/^  \([^ ][^ ]*\).*/\1/p' out)
for name in $known; do
    grep -qw -- "$name" out
    point "--help names $name"
done

# ---- tables ----

cat >expected <<'END'
rank 0: 0F0 0F1 0F2 0F3 3F0 3F1 3F2 3F3   .   .   .   . 3B3 3B2 3B1 3B0 0B3 0B2 0B1 0B0
rank 1:   . 1F0 1F1 1F2 1F3 4F0 4F1 4F2 4F3   .   . 4B3 4B2 4B1 4B0 1B3 1B2 1B1 1B0
rank 2:   .   . 2F0 2F1 2F2 2F3 5F0 5F1 5F2 5F3 5B3 5B2 5B1 5B0 2B3 2B2 2B1 2B0

0F0: stage 0, forward (F), microbatch 0
B: backward: input gradient and weight gradient
.: idle
END
call --name looped-bfs --stages 3 --loops 2 --microbatches 4
[ $status = 0 ] && [ ! -s err ] && cmp -s out expected
point 'one line a rank, one cell an iteration, and what they mean'
call --stages 3 --loops 2 --microbatches 4
[ $status = 0 ] && cmp -s out expected
point 'breadth first is what is generated unless told otherwise'
answers 'rank  9:' --name gpipe --stages 11 --microbatches 2
answers '0F3+3B1' --name dualpipev --stages 2 --microbatches 4
answers '7F6+0B0' --name dualpipe --stages 4 --microbatches 8
"$driver" --name dualpipe --stages 4 --microbatches 10 --format csv >both.csv
answers 'no deadlock with 2 buffers; at most 5 microbatches kept' --file both.csv --check
answers 'update: -1 -1 -1  0  1  2  3 -1 -1 -1' --format indices --stages 3 --loops 2 --microbatches 4
answers 'no deadlock with 2 buffers; at most 4 microbatches kept' --check --name pipedream-flush
answers 'no deadlock with 1 buffers; at most 8 microbatches kept' --check --name pipedream-flush --buffers 1 \
    --wgrad-group 8

refuses 'waits for a free buffer of rank 4, and so on: a circle of 8 ranks' --check --name interleaved-zb --stages 8 \
    --microbatches 16 --buffers 1

# ---- meaning of the cells ----

for text in '4F0  ' '4B0  ' '4I0,' '4W0,' '2F5+5B1  ' 'bubble  ' 'kept  '; do
    "$driver" --help notation | sed -n '/^Notation:/,/^$/p' | grep -qF -- "$text"
    point "--help explains $text"
done
legend() {
    call "$@"
    sed '1,/^$/d' out >legend
    [ $status = 0 ] && [ ! -s err ]
}
legend --name dualpipev --stages 2 --microbatches 4
printf '%s\n' '0F0: stage 0, forward (F), microbatch 0' 'B: backward: input gradient and weight gradient' \
    'I: input gradient, the first half of a backward' 'W: weight gradient, the second half of a backward' \
    '0F3+3B1: two actions in one time step' '.: idle' >expected
cmp -s legend expected
point 'all notation that there is'
legend --name zbv --stages 1 --microbatches 1
printf '%s\n' '0F0: stage 0, forward (F), microbatch 0' 'I: input gradient, the first half of a backward' \
    'W: weight gradient, the second half of a backward' >expected
cmp -s legend expected
point 'no notation that does not occur'
answers 'kept: the most microbatches that a rank holds at once' --simulate

# ---- folded ----

# folds WIDTH ARGUMENT...: no line of the table is wider, and its blocks side by side are the whole table.
folds() {
    width=$1
    shift
    call --name "$@"
    grep '^rank' out | tr -s ' ' >whole
    call --name "$@" --width "$width"
    sed '/^time/,$!d' out | awk -v width="$width" '
        /^$/ { next }
        !/^(time|rank)/ { exit }
        length($0) > width { wide = 1 }
        { text = $0; name = text; sub(/:.*/, ":", name); sub(/^(time|rank +[0-9]+:)/, "", text) }
        /^time/ { n = split(text, time, " "); for (i = 1; i <= n; i++) if (time[i] != steps++) wide = 1; next }
        { if (!(name in row)) order[++rows] = name; row[name] = row[name] text }
        END { for (i = 1; i <= rows; i++) print order[i] row[order[i]]; if (wide) print "too wide" }' | tr -s ' ' >joined
    [ $status = 0 ] && [ ! -s err ] && grep -c '^time' out >blocks && cmp -s whole joined
    point "folded to $width: $*"
}
for width in 30 44 79 100; do
    folds $width zbv --stages 4 --microbatches 20
    folds $width dualpipev --stages 2 --microbatches 40
    folds $width gpipe --stages 11 --microbatches 30
done
[ "$(cat blocks)" -gt 1 ]
point 'into more than one block'
call --name 1f1b --width 1
[ $status = 0 ] && [ "$(grep -c '^time' out)" = 22 ]
point 'a block has at least one time step'
call --name 1f1b --width 0
mv out expected
call --name 1f1b
[ $status = 0 ] && cmp -s out expected
point 'by itself it does not fold where there is no terminal'

# ---- a terminal ----

# On a terminal the same cells are coloured, and a wide table goes on below.
if command -v script >where; then
    cells() {
        grep -oE '[0-9]+[FBIW][0-9]+' "$1" | sort
    }
    call --name zbv --stages 4 --microbatches 20
    mv out expected
    TERM=xterm script -qec \
        "stty cols 100; '$driver' --name zbv --stages 4 --microbatches 20" script >out 2>err </dev/null
    status=$?
    escape=$(printf '\033')
    [ $status = 0 ] && grep -q "${escape}\[48;5;" out && [ "$(grep -c '^time' out)" -gt 1 ]
    point 'colours and several blocks on a terminal'
    grep -q '^colours: microbatches' out && ! grep -q "$escape" expected
    point 'colours are explained there, and there are none elsewhere'
    sed "s/$escape\[[0-9;]*m//g" out >plain
    [ "$(awk '{ sub("\r", ""); if (length($0) > widest) widest = length($0) } END { print widest }' plain)" -le 100 ]
    point 'no line is wider than the terminal'
    cells plain >got
    cells expected | cmp -s - got
    point 'all cells are there'
    NO_COLOR=1 TERM=xterm script -qec \
        "stty cols 100; '$driver' --name zbv --stages 4 --microbatches 20" script >out 2>err </dev/null
    tr -d '\r' <out >plain
    "$driver" --name zbv --stages 4 --microbatches 20 --width 100 | cmp -s - plain
    point 'no colours where none are wanted, but blocks'
else
    skip 'terminal' 'there is no command script'
fi

# ---- PyTorch's format ----

for name in $names; do
    call --name "$name" --stages 4 --microbatches 8 --format csv && mv out table.csv
    call --name "$name" --stages 4 --microbatches 8 --format table && mv out expected
    call --file table.csv
    [ $status = 0 ] && [ ! -s err ] && cmp -s out expected
    point "$name comes back from its file"
done
call --file table.csv --format csv
[ $status = 0 ] && cmp -s out table.csv
point 'a file comes back as it is'

# ---- simulation ----

number='[0-9.e+-]+'
keys='"name":"[a-z0-9-]+","ranks":[0-9]+,"loops":[0-9]+,"microbatches":[0-9]+,"bubble":'$number',"step_ms":'$number
keys="$keys,\"compute_ms\":$number,\"peak_stash\":\\[[0-9,]+\\]"
keys="$keys,\"rank_busy_ms\":\\[[0-9.,]+\\],\"rank_bubble\":\\[[0-9.,]+\\]"
for name in $names; do
    call --name "$name" --json
    [ $status = 0 ] && [ ! -s err ] && [ "$(wc -l <out)" = 1 ] &&
        grep -qxE "\\{$keys,\"buffers\":[0-9]+,\"valid\":true\\}" out
    point "one object: $name"
done
answers '"bubble":0.272727273,"step_ms":33.0,' --name 1f1b --json
answers '"peak_stash":[4,3,2,1]' --name pipedream-flush --format json
answers '"bubble":0.75,"step_ms":32.0,' --name gpipe --microbatches 1 --forward 3 --input-gradient 4 --json
answers '"bubble":0.157894737,"step_ms":57.0,' --name looped-bfs --json --simulate
answers '"step_ms":45.0,"compute_ms":39.0,' --name gpipe --json --communication 1 --reduce 6
answers '"step_ms":63.0,"compute_ms":57.0,' --name looped-bfs --json --reduce 6
answers '"step_ms":69.0,"compute_ms":57.0,' --name looped-bfs --json --reduce 6 --no-overlap
answers '"step_ms":25.0,' --name gpipe --stages 3 --microbatches 7 --json --wgrad-group 7
answers 'step 33 ms: compute until 33 ms, then reductions for 0 ms; bubble 27.3 % of the compute' \
    --name pipedream-flush --simulate
grep -qE '^1 +24 +9 +27\.3 % +3$' out
point 'a line a rank'

# ---- costs from a file ----

costs='--name gpipe --stages 2 --microbatches 1 --json --costs costs'
echo '{"forward": [1, 20], "input_gradient": 300, "weight_gradient": [4000.5, 0], "communication": 50000}' >costs
answers '"step_ms":104621.5,' $costs
echo '{"reduce": [7, 5], "overlap": false}' >costs
answers '"step_ms":13.0,' $costs
echo '{"reduce": [7, 5], "optimizer": [2, 30]}' >costs
answers '"step_ms":39.0,"compute_ms":6.0' $costs
answers '"step_ms":43.0,"compute_ms":33.0,' --name gpipe --json --optimizer 10
answers 'until 33 ms, then reductions and optimizer for 10 ms' --name gpipe --simulate --optimizer 10
echo '{}' >costs
answers '"step_ms":16.0,' $costs --forward 6 --communication 0
refuses '--costs: nothing: No such file' --json --costs nothing
printf '{"forward": 1,\n "reduce" 3}' >costs
refuses "--costs: costs:2:" $costs
echo '{"forward": 1, "forward": 2}' >costs
refuses '--costs: costs:1:' $costs
echo '[1]' >costs
refuses '--costs: costs: is not an object' $costs
echo '{"backward": 1}' >costs
refuses '"backward": no such cost; there are forward, input_gradient, weight_gradient, reduce, unshard, optimizer, kept, com' $costs
echo '{"forward": [1, 2, 3]}' >costs
refuses '"forward" has 3 numbers: must have one a stage, 2' $costs
echo '{"forward": [1, -2]}' >costs
refuses '"forward"[1] is not a number of ms from 0 to 1e+09' $costs
for value in '"1"' null -1 '{}' true 1e308 1000000001 -1e-320; do
    echo "{\"weight_gradient\": $value}" >costs
    refuses '"weight_gradient" is not a number of ms from 0 to 1e+09 or a list of them' $costs
done
echo '{"communication": [1, 2]}' >costs
refuses '"communication" is not a number of ms from 0 to 1e+09' $costs
echo '{"communication": 1e308}' >costs
refuses '"communication" is not a number of ms from 0 to 1e+09' $costs
echo '{"overlap": 1}' >costs
refuses '"overlap" is not true or false' $costs
echo '{"forward": 1e999}' >costs
refuses '--costs: costs:1:' $costs

# ---- drawing ----

valid_xml() {
    if command -v xmllint >where; then
        xmllint --noout "$1" 2>&1
    else
        python3 -c 'import sys, xml.dom.minidom as dom; dom.parse(sys.argv[1])' "$1"
    fi
}
if command -v xmllint >where || command -v python3 >where; then
    for name in $names; do
        call --name "$name" --format svg --reduce 3
        [ $status = 0 ] && [ ! -s err ] && valid_xml out >where
        point "a valid drawing: $name"
    done
    for extreme in '--forward 0 --input-gradient 0 --weight-gradient 0' '--forward 1e9' '--forward 1e-9' \
        '--forward 1e-320 --input-gradient 0 --weight-gradient 1e-300' '--stages 1 --loops 1 --microbatches 1' '--stages 64 --microbatches 64 --loops 7' '--wgrad-group 8'; do
        call --format svg $extreme
        [ $status = 0 ] && valid_xml out >where && ! grep -qE 'nan|inf' out
        point "a valid drawing: $extreme"
    done
    echo '0F0,0B0' >'a<b>&"c.csv'
    call --format svg --file 'a<b>&"c.csv'
    [ $status = 0 ] && valid_xml out >where
    point 'a valid drawing of a file with any name'
else
    skip drawings 'there is neither xmllint nor python3'
fi

# width: of the drawing in out; boxes: how many events it shows, each once or in pieces.
width() {
    sed -n 's/^<svg [^>]* width="\([0-9.]*\)".*/\1/p' out
}
boxes() {
    grep -o '<title>stage[^<]*' out | sort -u | wc -l
}
# inside: no box lies outside the picture.
inside() {
    sed -n 's/^<rect x="\([0-9.]*\)" y="[0-9.]*" width="\([0-9.e-]*\)".*/\1 \2/p' out |
        awk -v width="$(width)" '$1 + $2 > width { bad = 1 } END { exit bad }'
}
for size in '2 8' '8 32' '8 64' '16 256' '64 64'; do
    call --format svg --name looped-bfs --stages "${size% *}" --microbatches "${size#* }"
    [ $status = 0 ] && [ "$(width)" -ge 800 ] && [ "$(width)" -le 1400 ] && inside &&
        [ "$(boxes)" = $((4 * ${size% *} * ${size#* })) ]
    point "a drawing as wide as a page: $size"
done
call --format svg --name looped-bfs --stages 8 --microbatches 32
[ "$(grep -c '>rank 0</text>' out)" = 3 ] && [ "$(grep -c 'time (ms)' out)" = 1 ]
point 'a long one goes on below'
grep -q 'prefers-color-scheme:dark' out
point 'for dark pages, too'
call --format svg --name 1f1b --stages 2 --microbatches 2 --optimizer 4
[ $status = 0 ] && [ "$(grep -c '<title>.*optimizer' out)" = 2 ] && grep -q 'step 13 ms' out
point "the optimizer's turns are drawn"
call --format svg --name 1f1b --stages 2 --microbatches 2
[ "$(grep -c '</title></rect>' out)" = 8 ] && grep -q '<title>stage 1, forward of microbatch 1, 4 to 5 ms</title>' out
point 'a box an action, where the simulation has it'
! grep -qiE 'script|href|import|url\(' out
point 'a drawing stands alone'

# ---- a run's trace ----

# event NAME CATEGORY BEGIN END RANK [STAGE]: of step 1, in tenths of milliseconds.
event() {
    printf '{"name":"%s","cat":"%s","ph":"X","ts":%s,"dur":%s,"pid":0,"tid":%s,"args":' "$1" "$2" $((100 * $3)) \
        $((100 * ($4 - $3))) "$5"
    printf '{"step":%s,"rank":%s,"loop":0,"data":0%s}},\n' ${step:-1} "$5" \
        "${6:+,\"stage\":$6,\"microbatch\":0,\"count\":1}"
}
first_rank() {
    event 0F0 compute 0 20 0 0
    event 'send activation' communication 20 25 0 0
    event waiting waiting 25 90 0 0
    event 'take gradient' communication 90 95 0 0
    event 0I0 compute 95 120 0 0
    event 0W0 compute 120 130 0 0
    event optimizer optimizer 140 150 0
    event reduce reduce 130 160 0
}
second_rank() {
    event waiting waiting 0 25 1 1
    event 'take activation' communication 25 30 1 1
    event 1F0 compute 30 60 1 1
    event 1I0 compute 60 80 1 1
    event 'send gradient' communication 80 85 1 1
    event 1W0 compute 85 100 1 1
    event optimizer optimizer 120 130 1
    event reduce reduce 100 120 1
}
trace() {
    echo '{"traceEvents":['
    cat
    echo '{"ph":"M"}],"shardloop":{"schedule":"gpipe","ranks":2,"loops":1,"microbatches":1,"overlap":true}}'
}
means='"measured":{"step_ms":16.0,"bubble":0.538461538,"idle":0.538461538,"compute_ms":6.0,"not_ready_ms":4.5,"transfer_ms":0.0,'
means=$means'"no_core_ms":0.0,"communication_ms":1.0,"reduction_ms":2.0,"optimizer_ms":1.0,"gathering_ms":0.0,"rest_ms":1.5,'
means=$means'"waiting_ms":4.5},'
# The optimizer's ms of the first rank are within its reduction.
predicted='"predicted":{"step_ms":15.5,"bubble":0.52,"idle":0.52,"compute_ms":6.0,"not_ready_ms":5.5,"transfer_ms":1.0,'
predicted=$predicted'"no_core_ms":0.0,"communication_ms":0.0,"reduction_ms":2.0,"optimizer_ms":1.0,"gathering_ms":0.0,"rest_ms":0.0,'
predicted=$predicted'"waiting_ms":6.5}'
{ first_rank && second_rank; } | trace >run
answers "$means$predicted" --compare run --json
answers 'step measured 16.00 ms, predicted 15.50 ms (-3.1 %): compute +0.00, not ready -1.00, transfer -1.00, no core +0.00' \
    --compare run
! grep -q -e '-0\.00' -e '-0\.0 %' out
point 'no difference has no minus'
grep -qE '^1 +measured +6\.50 +2\.50 +0\.00 +0\.00 +1\.00 +2\.00 +1\.00 +3\.00 +16\.00 +50\.0 %$' out
point 'every moment of a step has a name'
call --compare run --schedule gpipe --loops 1
[ $status = 0 ] && grep -q '^schedule gpipe, ' out
point '--schedule is --name'
refuses '--width: is read only without --compare' --compare run --width 60
{ first_rank && second_rank && step=2 first_rank; } | trace >cut
answers "$means$predicted" --compare cut --json
echo '{"forward": 4}' >costs
answers '"predicted":{"step_ms":18.5,' --compare run --costs costs --json
answers '"step_ms":15.5,' --name 1f1b --stages 2 --microbatches 1 --wgrad-group 1 --costs run --json
refuses 'the trace run is of 2 stages, the schedule has 4' --name gpipe --stages 4 --simulate --costs run

# conditions FIELDS: the trace with these FIELDS about waiting, the engine's delay and cores.
conditions() { sed "s/\"overlap\":true/&,$1/" run; }
conditions '"delay_ms":30.0,"coordinates":2,"cores":1,"divided":false' >shared
answers '2 coordinates share 1 core: times are not those of 2 devices; predicted is for a core each, with reductions as measured' \
    --compare shared
grep -qx 'measured not ready: all waiting; the engine did not tell transfer from it' out
point 'and that waiting was not divided'
answers '"coordinates":2,"cores":1,' --compare shared --json
grep -q '"predicted":{"step_ms":75.5,' out # two messages, one after the other
point 'the delay of messages is predicted'
conditions '"coordinates":2,"cores":2' >own
call --compare own
[ $status = 0 ] && ! grep -q share out
point 'a core for each coordinate is nothing to tell'
for delay in -1 1e300; do
    conditions "\"delay_ms\":$delay" >broken
    refuses 'the trace broken: its delay_ms is' --compare broken
done
# Of the first rank's forward 0.5 ms passed without a core; of its 6.5 ms of waiting 2, and 3 on the way.
sed -e '/0F0/s/"loop"/"no_core":500,&/' -e '/waiting.*"rank":0/s/"loop"/"no_core":2000,"transfer":3000,&/' run >divided
answers '"measured":{"step_ms":16.0,"bubble":0.5' --compare divided --json
measured='{"measured":{"step_ms":16.0,"bubble":0.576923077,"idle":0.576923077,"compute_ms":5.0,"not_ready_ms":1.5,"transfer_ms":3.0,"no_core_ms":2.5,'
measured=$measured'"communication_ms":1.0,"reduction_ms":2.0,"optimizer_ms":1.0,"gathering_ms":0.0,"rest_ms":0.0,"waiting_ms":7.0}'
grep -qF "$measured" out
point 'waiting is divided, and the parts add up to the step'
# More than the event itself.
sed '/0F0/s/"loop"/"no_core":1e9,"transfer":-1e9,&/' run >divided
answers '"no_core_ms":1.0,' --compare divided --json

# Sharded parameters: all ranks gather for a millisecond before the first action, and the second one for one more, in
# which nothing else goes on.
{
    first_rank && second_rank
    for rank in 0 1; do event gather gather -10 0 $rank; done
    event unshard gather 135 145 1
    event reshard gather 145 145 1
} | trace | sed 's/"overlap"/"sharded":true,&/' >sharded
call --compare sharded
[ $status = 0 ] && [ ! -s err ] &&
    grep -qE '^1 +measured +6\.50 +2\.50 +0\.00 +0\.00 +1\.00 +2\.00 +1\.00 +2\.00 +2\.00 +17\.00 +50\.0 %$' out &&
    grep -q 'step measured 17.00 ms, predicted 16.50 ms (-2.9 %): .* gathering +0.50, rest ' out
point 'gathers are compared'
call --name gpipe --stages 2 --microbatches 1 --fsdp --costs sharded --format svg
[ $status = 0 ] && grep -q '>stage 1, gathering, 0 to 1 ms<' out && grep -q '>stage 1, gathered are dropped, ' out &&
    ! grep -q '>stage 0, gathering' out
point 'gathers are costs, and drawn'
call --name looped-bfs --stages 2 --loops 3 --microbatches 2 --fsdp --unshard 3 --simulate
[ $status = 0 ] && grep -qE '^0 .* 6 +5$' out && grep -qx 'gathering: it waits for parameters that are sharded over data' out
point 'gathers are simulated'

sed 's/,"shardloop".*/}/' run >plain
answers "$means$predicted" --compare plain --json --name gpipe --stages 2 --microbatches 1
refuses 'has no step with all forwards and backwards of schedule looped-bfs (4 ranks' --compare plain
first_rank | trace >half
refuses 'has no step with all forwards and backwards of schedule gpipe (2 ranks' --compare half
refuses 'has no step' --compare run --microbatches 2
refuses 'loop 0 of rank 1 is none of schedule' --compare run --stages 1
refuses 'the trace run: its ranks have 1 stage, those of schedule zbv 2: compare it with a schedule of as many; --all --stages 2 --loops 1 --microbatches 1 --costs run' \
    --compare run --name zbv
printf '1F0,1B0\n0F0,0B0\n' >turned.csv
refuses 'has stage' --compare run --file turned.csv
refuses 'the trace nothing: No such file' --compare nothing
echo '{"traceEvents":[}' >broken
refuses 'the trace broken:1:' --compare broken
echo '{}' >broken
refuses 'the trace broken: is no trace' --compare broken
first_rank | sed 's/"dur"/"length"/' | trace >broken
refuses 'the trace broken: event 0: has not all of name, cat, ts, dur, args' --compare broken
{ first_rank && second_rank; } | sed '2s/"loop"/"leap"/' | trace >broken
refuses 'the trace broken: event 1: its args have not all of step, rank, loop, data' --compare broken
{ first_rank && second_rank; } | sed '3s/"dur":/"dur":-/' | trace >broken
refuses 'the trace broken: event 2: its time is none' --compare broken
{ first_rank && second_rank; } | sed '3s/"dur":[0-9]*/"dur":1e30/' | trace >broken
refuses 'the trace broken: event 2: its time is too large: ts is at most 1e18, dur at most 1e11' --compare broken
refuses 'the trace broken: event 2: its time is too large' --stages 2 --json --costs broken
{ first_rank && second_rank; } | sed '3s/"ts":[0-9]*/"ts":-1e30/' | trace >broken
refuses 'the trace broken: event 2: its time is too large' --compare broken
{ first_rank && second_rank; } | sed 's/"ts":[0-9]*,"dur":[0-9]*/"ts":0,"dur":1e-320/' | trace >none
answers 'step measured 0.00 ms, predicted 0.00 ms' --compare none
! grep -qE 'nan|inf' out
point 'a trace of no time'
{ first_rank && second_rank; } | sed 's/"microbatch":0/"microbatch":1/' | trace >broken
refuses 'schedule gpipe does not have 1 microbatches from number 1 on' --compare broken
sed 's/"gpipe"/"mine"/' run >broken
refuses 'its schedule "mine" was read from a file: --file names it' --compare broken

# drawn ARGUMENT...: the run under the prediction, two rows a rank on one axis.
drawn() {
    call --compare "$@" --format svg
    [ $status = 0 ] && [ ! -s err ] && ! grep -qE 'nan|inf[^o]' out && [ "$(grep -c 'time (ms)' out)" = 1 ] &&
        [ "$(grep -c '>rank [01] predicted</text>' out)" = "$(grep -c '>measured</text>' out)" ] &&
        grep -q '>rank 1 predicted</text>' out
    point "drawn: --compare $*"
}
# box TEXT: its place and its colour in the drawing.
box() {
    sed -n "s/<rect \(x=.*\)><title>$1<.*/\1/p" out
}
drawn run
[ "$(box 'predicted: stage 0, forward of microbatch 0, 0 to 2 ms')" = \
    "$(box 'measured: stage 0, forward of microbatch 0, 0 to 2 ms' | sed 's/y="[0-9]*"/y="62"/')" ]
point 'on one scale'
for text in 'measured: stage 1, input gradient of microbatch 0, 6 to 8 ms' 'measured: optimizer, 14 to 15 ms' \
    'measured: stage 0, reduction, 13 to 16 ms' 'measured: stage 0, message of microbatch 0, 2 to 2.5 ms' \
    'predicted: stage 1, weight gradient of microbatch 0, '; do
    grep -qF -- "<title>$text" out
    point "drawn: $text"
done
grep -q 'step predicted 15.50 ms, measured 16.00 ms (mean of 1); drawn is step 1, 16.00 ms' out
point 'what is drawn'
{ first_rank && second_rank && step=2 first_rank && step=2 second_rank | sed 's/"dur":3000/"dur":5000/'; } | trace >two
drawn two
grep -q 'drawn is step 1, 16.00 ms' out
point 'the step of median length'
drawn plain --name gpipe --stages 2 --microbatches 1
{
    first_rank && second_rank
    { first_rank && second_rank; } | sed 's/"ts":\([0-9]*\)/"ts":1\1/'
} | trace | sed 's/"overlap"/"passes":2,"overlap"/' >passes
drawn passes
[ "$(grep -c 'measured: stage 0, forward' out)" = 1 ]
point 'the first pass of a step'

# Trace of a real run.
"$drivers/looping_pipeline" --no-fuse --mesh data=2,model=2 --layers 4 --hidden 16 --batch 32 --microbatches 4 --steps 4 \
    --trace trained >where 2>err
call --compare trained --json
[ $status = 0 ] && [ ! -s err ] && grep -q '"name":"looped-bfs","ranks":2,"loops":2,"microbatches":4,' out &&
    grep -q '"steps":3,' out
point 'a trace of the trainer'
drawn trained
[ "$(grep -o '<title>measured: stage [0-9], forward of microbatch [0-9]' out | sort -u | wc -l)" = 16 ]
point 'all its forwards are drawn'

# ---- all schedules ----

refuses '--width: is read only without --all' --all --width 60
call --all --stages 4 --microbatches 6
[ $status = 0 ] && [ ! -s err ] &&
    grep -qE '^zbv +2 +39 +7\.7 % +8 +4 +72$' out && grep -qE '^pipedream-flush +1 +54 +33\.3 % +4 +4 +36$' out &&
    grep -qx 'does not fit: schedule dualpipev: 6 microbatches on 4 stages: must be at least 8, two a stage' out
point 'a line a schedule, and why one does not fit'
for name in $names; do
    [ "$(grep -cE "^$name |^does not fit: schedule $name:" out)" = 1 ]
    point "--all has $name"
done
grep -E ' %' out | awk '$3 < last { bad = 1 } { last = $3 } END { exit bad }'
point 'the fastest first'
call --all --stages 4 --microbatches 6 --json
[ $status = 0 ] && [ ! -s err ] && [ "$(wc -l <out)" = "$(echo $names | wc -w)" ] &&
    [ "$(grep -cxE '\{"name":"[a-z0-9-]+","ranks":4,"loops":[12],"microbatches":6,"bubble":[0-9.]+,"step_ms":[0-9.]+,"compute_ms":[0-9.]+,"kept":[0-9]+,"messages":[0-9]+,"buffers":2,"valid":true\}' out)" = $(($(echo $names | wc -w) - 2)) ] &&
    grep -qE '^\{"name":"dualpipev","valid":false,"reason":"schedule dualpipev: 6 microbatches.*","ranks":4\}$' out
point 'an object a line'
mv out all
# The time of a schedule with one loop, whose stages are two of the model's.
call --name 1f1b --stages 4 --microbatches 6 --forward 2 --input-gradient 2 --weight-gradient 2 --json
time=$(sed 's/.*"step_ms":\([0-9.]*\).*/\1/' out)
grep '"1f1b"' all | grep -q "\"step_ms\":$time,"
point 'one model for all'
call --all --stages 2 --loops 3 --microbatches 4 --json
for text in '"gpipe","ranks":2,"loops":1,' '"zbv","ranks":2,"loops":2,' '"looped-bfs","ranks":2,"loops":3,'; do
    grep -q "$text" out
    point "--loops 3: $text"
done
[ "$(grep -o '"compute_ms":[0-9.]*' out | sort -u | wc -l)" -gt 1 ] &&
    awk -F'[:,]' '{ for (i = 1; i <= NF; i++) { if ($i == "\"bubble\"") b = $(i + 1); if ($i == "\"compute_ms\"") c = $(i + 1) }
        busy = c * (1 - b); if (busy < 35.999 || busy > 36.001) bad = 1 } END { exit bad }' out
point 'all compute equally long'
echo '{"forward": [1, 2, 3, 4], "input_gradient": 0, "weight_gradient": 0}' >costs
call --all --stages 2 --microbatches 4 --costs costs --json
grep '"gpipe"' out | grep -q '"step_ms":31.0,' # two stages of 3 and 7
point 'stages of different costs are joined'
answers '"name":"gpipe","ranks":2,' --all --stages 2 --microbatches 4 --costs trained --json
refuses 'the trace trained is of 4 stages, the schedule has 8' --all --costs trained
call --all --microbatches 6 --format svg --reduce 2
[ $status = 0 ] && [ ! -s err ] && [ "$(width)" -le 1400 ] && inside && [ "$(grep -c 'time (ms)' out)" = 1 ] &&
    [ "$(grep -c 'font-weight="bold">[a-z0-9-]*, [12] loops*: ' out)" = $(($(echo $names | wc -w) - 2)) ] &&
    grep -q 'does not fit: schedule dualpipev: ' out
point 'all of them in one drawing'
if command -v xmllint >where || command -v python3 >where; then
    valid_xml out >where
    point 'a valid drawing of all'
fi
for other in '--name gpipe' '--file table.csv' '--compare run' --check --simulate; do
    refuses "${other%% *}: is read only without --all" --all $other
done
for format in csv indices; do
    refuses "--all: there is no format $format of it: it is table, svg, html or json" --all --format $format
done
refuses '--all: no schedule fits: 8 microbatches do not divide into weight-gradient groups of 3' --all --wgrad-group 3
refuses '--all: 65536 stages, 2 loops: must be at most 65536 stages together' --all --stages 65536

# ---- made to measure ----

echo '{"forward": [1, 3, 2, 3, 2, 1], "input_gradient": 2, "kept": [30, 20, 10, 10, 20, 30], "communication": 0.1}' >costs
search='--synthesize --stages 3 --microbatches 6 --costs costs --iterations 500'
answers 'no deadlock' $search --check
grep -qE '^[12] stages? a rank, (in line|on a ring|on a V|balanced): compute takes [0-9.]+ ms; no schedule takes less than [0-9.]+ ms \([0-9.]+ % less\); a rank keeps at most [0-9]+ bytes$' out
point 'how near it is to what is possible'
answers '"bound_ms":' $search --memory 120 --json
sed 's/.*"kept_bytes":\[\(.*\)\].*/\1/' out | tr , '\n' | awk '$1 > 120 { bad = 1 } END { exit bad || NR != 3 }'
point 'no rank keeps more than --memory'
call $search --memory 120 --format csv
mv out made.csv
call $search --memory 120 --format csv
[ $status = 0 ] && cmp -s out made.csv
point 'the same search finds the same'
call $search --memory 120 --json
printf "$(sed -n 's/.*"csv":"\([^"]*\)".*/\1/p' out)\n" >told.csv
[ $status = 0 ] && tr -d '\n' <made.csv >made && tr -d '\n' <told.csv | cmp -s - made
point 'JSON tells the table, too'
answers 'no deadlock' --file made.csv --check
for schedule in '--schedule looped-bfs --microbatches 6' '--schedule-file made.csv'; do
    "$drivers/looping_pipeline" --mesh data=1,model=3 --layers 6 --hidden 8 --batch 48 --rng global \
        --steps 2 $schedule 2>err | grep -E '^ +[01] ' | awk '{ print $1, $2 }' >"losses ${schedule##* }"
done
[ "$(wc -l <'losses made.csv')" = 2 ] && cmp -s 'losses 6' 'losses made.csv'
point 'the executor runs it, with the losses of another schedule'
answers 'microbatches of a part of the model' --synthesize --iterations 10 --no-named --search-seed 3 --seconds 1
refuses '--synthesize: rank 0 keeps 60 bytes of one microbatch: there is no schedule that keeps at most 39' $search --memory 39
refuses '--synthesize: 3 ranks, 17 loops: a schedule that is looked for has 1 to 128 ranks and 1 to 16 loops' \
    --synthesize --stages 3 --loops 17
refuses '--synthesize: 4 ranks x 2 loops x 65536 microbatches: their product must be at most 65536' \
    --synthesize --microbatches 65536
for other in '--name gpipe' '--file table.csv' '--compare run' --fsdp '--wgrad-group 2'; do
    case $other in --fsdp | --wgrad*) said="--synthesize and ${other%% *}: a schedule is looked for without it" ;; *) said="${other%% *}: is read only without --synthesize" ;; esac
    refuses "$said" --synthesize --simulate $other
done
refuses '--synthesize: is read only without --all' --all --synthesize
echo '{"kept": [1, -2]}' >costs
refuses '"kept"[1] is not a number of bytes from 0 to 1e+15' --name gpipe --stages 2 --json --costs costs
echo '{"kept": "1"}' >costs
refuses '"kept" is not a number of bytes from 0 to 1e+15 or a list of them' --synthesize --costs costs
echo '{"kept": [1, 2, 3]}' >costs
refuses '"kept" has 3 numbers: must have one a stage, 8' --synthesize --costs costs

# ---- refusals ----

refuses 'there is no schedule "nonsense"' --name nonsense
refuses '--format: "png" is not one of table|indices|csv|svg|html|json' --format png
refuses '--name: is read only without --file' --file table.csv --name gpipe
refuses 'nothing.csv: cannot be opened: No such file' --file nothing.csv
refuses 'schedule gpipe: 2 loops: must be 1' --name gpipe --loops 2
refuses '--forward: "-1" is not a number from 0' --forward -1
refuses '--optimizer: "-1" is not a number from 0' --optimizer -1
refuses '8 microbatches do not divide into weight-gradient groups of 3' --check --wgrad-group 3
refuses 'deadlock' --name interleaved-zb --stages 8 --microbatches 16 --buffers 1
printf '0F0,0F1,0B0,0B0\n' >twice.csv
refuses 'twice' --file twice.csv
sharded='--name looped-bfs --stages 2 --loops 4 --microbatches 4'
call $sharded --fsdp --format csv
cp out made.csv
[ $status = 0 ] && [ "$(tr ',' '\n' <made.csv | grep -c '^[0-7]UNSHARD$')" -ge 8 ] && grep -q RESHARD made.csv && grep -q REDUCE_GRAD made.csv
point 'what is gathered and reduced is in the table'
call $sharded --check --buffers 3
sed 1d out >expected
call --file made.csv --check --buffers 3
sed 1d out | cmp -s - expected
point 'and such a table is read: the same schedule'
# is_told PATTERN ARGUMENT...: JSON reports a schedule that does not run: status 1, and no line on stderr.
is_told() {
    pattern=$1
    shift
    call "$@" --json
    [ $status = 1 ] && [ ! -s err ] && [ "$(wc -l <out)" = 1 ] && grep -qE "^\\{$pattern\\}\$" out
    point "why it does not run, in JSON: $*"
}
is_told '"name":"twice.csv","valid":false,"reason":".*it was done before","ranks":1' --file twice.csv
is_told '"name":"interleaved-zb","valid":false,"reason":".*a circle of 8 ranks","ranks":8' --name interleaved-zb --stages 8 \
    --microbatches 16 --buffers 1
refuses 'there is no schedule "nonsense"' --name nonsense --json

for format in table indices csv svg html json; do
    "$driver" --format $format >/dev/full 2>err
    status=$?
    [ $status = 3 ] && [ "$(wc -l <err)" = 1 ] && grep -q '^schedule: stdout: ' err
    point "$format on a full disk"
done

plan
