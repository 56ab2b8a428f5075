#!/bin/sh
# output.sh DRIVERS - output of a driver, its streams, and the end of a run that is cut short; prints TAP.
drivers=$1
. "$(dirname "$0")/../rigs/points.sh"

train="$drivers/looping_pipeline --mesh data=1,model=2 --layers 2 --hidden 8 --batch 8 --microbatches 2"
number='(null|-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?)'
step="\\{\"step\":[0-9]+,\"loss\":$number,\"accuracy\":$number,\"ms\":$number,\"lr\":$number\\}"
bytes='\{"coordinate":[0-9]+,"parameters":[0-9]+,"gradients":[0-9]+,"optimizer":[0-9]+,"activations":[0-9]+(,"[a-z]+":[0-9]+)*,"total":[0-9]+\}'
last="\\{\"parameters\":[0-9]+,\"parameters_stacked\":[0-9]+,\"final_loss\":$number,\"first_step_ms\":$number,"
last="$last\"median_ms\":$number,\"peak_bytes\":[0-9]+,\"memory\":\\[($bytes(,$bytes)*)\\],\"processes\":\\[[^{]*\\{[^}]*\\}\\],\"options\":\\{\"--[^}]*\\},\"coordinates\":[0-9]+,\"cores\":[0-9]+,\"fused\":[0-9]+,\"predicted\":\\{[^}]*\\}(,\"measured_bubble\":$number)?"
cut="$last,\"interrupted\":true\\}"
last="$last\\}"

$train --steps 3 --json --metrics metrics >out 2>err
status=$?
[ $status = 0 ] && [ ! -s err ] && [ "$(grep -cxE "$step" out)" = 3 ] && [ "$(grep -cxE "$last" out)" = 1 ] &&
    [ "$(wc -l <out)" = 4 ]
point 'a line of JSON a step, one at the end, and nothing else'
cmp -s out metrics
point 'the same lines in the metrics file'
grep -qE '"loss":[0-9]\.[0-9]{8}[,}]' out && ! grep -qE '[1-9]\.[0-9]{9}' out
point 'nine significant digits'

$train --steps 3 >out 2>err
status=$?
[ $status = 0 ] && [ ! -s err ] && [ "$(grep -cE '^ +[0-9]' out)" = 3 ] && ! grep -q '{' out
point 'a table for people'

$train --steps 5 --profile --json >out 2>err
status=$?
row="\\{\"coordinate\":[01],\"other_ms\":$number,\"products_ms\":$number,\"kernels_ms\":$number,\"optimizer_ms\":$number,"
row="$row\"communication_ms\":$number,\"waiting_ms\":$number,\"not_ready_ms\":$number,\"transfer_ms\":$number,"
row="$row\"no_core_ms\":$number,\"accounted\":$number,\"sent\":\\[.*\\]\\}"
[ $status = 0 ] && [ ! -s err ] && [ "$(grep -cxE "$row" out)" = 2 ]
point 'a profile of every coordinate'

$train --steps 0 --json >out 2>err
status=$?
[ $status = 0 ] && [ "$(grep -cxE "$last" out)" = 1 ] && [ "$(wc -l <out)" = 1 ]
point 'no steps'

for signal in TERM INT; do
    rm -f out
    # A shell's background processes ignore SIGINT until they ask for it.
    $train --steps 1000000 --json >out 2>err &
    pid=$!
    tries=0
    until [ -s out ] || [ $((tries += 1)) -gt 100 ]; do sleep 0.1; done
    kill -$signal $pid
    ends_in_time 0 && [ ! -s err ] && tail -n 1 out | grep -qxE "$cut"
    point "SIG$signal ends the run after the step, which the last line says"
done

for save in '' '--save saved'; do
    : >out
    $train --steps 1000000 $save >out 2>err &
    pid=$!
    tries=0
    until [ -s out ] || [ $((tries += 1)) -gt 100 ]; do sleep 0.1; done
    kill -INT $pid
    ends_in_time 0 && [ "$(grep -v 'go on with' err | head -n 1)" = "looping_pipeline: ends after this step${save:+ and saves}; again: ends now" ] &&
        tail -n 1 err | grep -q "interrupted after step .*${save:+saved in saved}"
    point "a log tells what SIGINT will do: $save"
done

$train --steps 1000000 --json >/dev/full 2>err &
pid=$!
ends_in_time 3 && [ "$(wc -l <err)" = 1 ] && grep -q '^looping_pipeline: ' err
point 'a full disk under the JSON ends the run'

$train --steps 3 >/dev/full 2>err
status=$?
[ $status = 3 ] && [ "$(wc -l <err)" = 1 ] && grep -q '^looping_pipeline: ' err
point 'a full disk under the table'

$train --steps 1000 --lr 1000000 --json >out 2>err
status=$?
[ $status = 3 ] && [ "$(wc -l <err)" = 1 ] && grep -q 'finite' err && ! grep -qE 'nan|inf[^a-z]' out
point 'a loss that is not finite ends the run'

# ---- a file instead of stdout ----

for arguments in '' --simulate --check '--format svg' '--format csv' '--format indices' --json '--all' '--all --json' \
    '--all --format svg'; do
    "$drivers/schedule" $arguments >expected 2>err && "$drivers/schedule" $arguments --output got >out 2>>err
    status=$?
    [ $status = 0 ] && [ ! -s out ] && [ ! -s err ] && [ -s got ] && cmp -s got expected
    point "schedule $arguments: the same in a file"
    "$drivers/schedule" $arguments --output /dev/full >out 2>err
    status=$?
    [ $status = 3 ] && [ ! -s out ] && [ "$(wc -l <err)" = 1 ] && grep -q '^schedule: /dev/full: No space' err
    point "schedule $arguments: a full disk under the file"
    "$drivers/schedule" $arguments >/dev/full 2>err
    status=$?
    [ $status = 3 ] && [ "$(wc -l <err)" = 1 ] && grep -q '^schedule: stdout: No space' err
    point "schedule $arguments: a full disk"
done
for driver in schedule plan sharding; do
    for format in svg html csv json; do
        [ $driver = sharding ] && { [ $format = html ] || [ $format = csv ]; } && continue
        case $driver$format in
        plancsv) pipeline='--pipeline 1f1b' ;;
        *) pipeline= ;;
        esac
        "$drivers/$driver" $pipeline --format $format >expected 2>err &&
            "$drivers/$driver" $pipeline --output got.$format >out 2>>err
        status=$?
        [ $status = 0 ] && [ ! -s out ] && [ ! -s err ] && [ -s expected ] && cmp -s got.$format expected
        point "$driver --output got.$format: the ending says the format"
    done
done
"$drivers/schedule" >expected && "$drivers/schedule" --format table --output got.svg && cmp -s got.svg expected
point 'what --format says counts more'
"$drivers/schedule" --json >expected && "$drivers/schedule" --json --output got.svg && cmp -s got.svg expected
point 'and --json'
"$drivers/schedule" >expected && mkdir -p folder.svg && "$drivers/schedule" --output folder.svg/got && cmp -s folder.svg/got expected
point 'a folder has no format'
echo kept >got.html
"$drivers/sharding" --output got.html >out 2>err
status=$?
[ $status = 2 ] && [ ! -s out ] && [ "$(wc -l <err)" = 1 ] && [ "$(cat got.html)" = kept ] &&
    grep -qF 'sharding: --output: got.html: there is no format html: --format says which of text|svg|json' err
point 'a format that there is not'
"$drivers/schedule" --all --output got.csv >out 2>err
status=$?
[ $status = 2 ] && [ ! -s out ] && grep -qF -- '--all: there is no format csv of it' err
point 'nor of all schedules'
echo kept >got
"$drivers/schedule" --name zbv --loops 3 --output got >out 2>err
status=$?
[ $status = 2 ] && [ ! -s out ] && [ "$(cat got)" = kept ]
point 'bad input leaves the file as it was'

echo '{"step":0,"loss":1}' >run
for arguments in '' '--svg loss' '--terminal all' --json; do
    "$drivers/report" run $arguments >expected 2>err
    status=$?
    [ $status = 0 ] && [ -s expected ] && [ ! -s err ]
    point "report $arguments"
    "$drivers/report" run $arguments >/dev/full 2>err
    status=$?
    [ $status = 3 ] && [ "$(wc -l <err)" = 1 ] && grep -q '^report: stdout: No space' err
    point "report $arguments: a full disk"
    [ "$arguments" != --json ] || continue
    "$drivers/report" run $arguments --output got >out 2>err
    status=$?
    [ $status = 0 ] && [ ! -s out ] && [ ! -s err ] && cmp -s got expected
    point "report $arguments: the same in a file"
    "$drivers/report" run $arguments --output /dev/full >out 2>err
    status=$?
    [ $status = 3 ] && [ ! -s out ] && [ "$(wc -l <err)" = 1 ] && grep -q '^report: /dev/full: No space' err
    point "report $arguments: a full disk under the file"
done

# ---- placement of coordinates ----

cores=$(env -u OMP_NUM_THREADS nproc)
row='\{"coordinate":[0-9]+,"axes":\{[^}]*\},"host":"[^"]+","pus":\[[0-9,]+\],"bound":(true|false),"sharers":[0-9]+,'
row="$row\"packages\":\[[0-9,]*\],\"nodes\":\[[0-9,]*\],\"device\":(null|[0-9]+)\}"

# shows DRIVER COUNT ARGUMENT...: as many rows in JSON and in a table, and nothing else.
shows() {
    driver=$1 count=$2
    shift 2
    "$drivers/$driver" --show-placement --json "$@" >out 2>err &&
        [ ! -s err ] && [ "$(grep -cxE "$row" out)" = "$count" ] && [ "$(wc -l <out)" = "$count" ] &&
        "$drivers/$driver" --show-placement "$@" >table 2>err && [ ! -s err ] && [ "$(wc -l <table)" = $((count + 1)) ]
    status=$?
    return $status
}

for driver in looping_pipeline loss_equality gpipe sharding; do
    shows $driver 8
    point "$driver shows where eight coordinates run"
done
if [ "$cores" -ge 2 ]; then
    shows looping_pipeline 2 --mesh data=1,model=2 && [ "$(grep -cE '"pus":\[[0-9]+\],"bound":true,"sharers":1,' out)" = 2 ] &&
        [ "$(sed 's/.*"pus":\[\([0-9]*\).*/\1/' out | sort -u | wc -l)" = 2 ] && [ "$(grep -c ' bound$' table)" = 2 ]
    point 'each thread is bound to a core of its own'
else
    skip 'bound threads' 'there is one core'
fi
if [ "$cores" -lt 64 ]; then
    shows looping_pipeline $((cores + 1)) --mesh model=$((cores + 1)) &&
        [ "$(grep -c "\"bound\":false,\"sharers\":$((cores + 1))," out)" = $((cores + 1)) ] &&
        grep -qE "  not bound: $((cores + 1)) coordinates share [0-9]+ cores?\$" table
    point 'threads that share cores are not bound'
else
    skip 'threads that share cores' 'there are more cores than coordinates'
fi

# ---- Fashion-MNIST ----

# losses NAME MESH BATCH ARGUMENT...: trains on images and writes the values of NAME, one a line.
losses() {
    name=$1 mesh=$2 batch=$3
    shift 3
    "$drivers/looping_pipeline" --mesh "$mesh" --batch "$batch" --layers 2 --hidden 8 --microbatches 2 --dropout 0 \
        --rng global --json --data "fashion-mnist:$images" "$@" 2>err | sed -n "s/.*\"$name\":\([0-9.e-]*\).*/\1/p"
}

# agree FIRST SECOND LINES: the files have LINES numbers, which are equal within 1e-5 of their size.
agree() {
    [ "$(wc -l <"$1")" = "$3" ] && paste "$1" "$2" | awk '{ d = $1 - $2 } d * d > 1e-10 * $1 * $1 { exit 1 }'
}

images=/usr/share/datasets/fashion-mnist
if [ -d $images ]; then
    losses loss data=1,model=1 96 --steps 10 >out
    losses loss data=2,model=2 96 --steps 10 >other
    agree out other 10
    point 'images come in the same order on every mesh'
    losses loss data=1,model=1 96 --steps 10 --seed 43 >other
    [ "$(wc -l <other)" = 10 ] && ! agree out other 10
    point 'and in another order from another seed'
    losses test_loss data=1,model=2 100 --steps 1 --lr 0 >out
    losses test_loss data=2,model=1 96 --steps 1 --lr 0 >other
    agree out other 1
    point 'a last batch that is not full counts its own rows'
else
    skip images "there is no $images"
fi

plan
