#!/bin/sh
# log.sh DRIVERS - the lines that a run prints for people: which steps, and when; prints TAP.
drivers=$1
. "$(dirname "$0")/../rigs/points.sh"

# shows LINES DRIVER ARGUMENT...: the table has these steps.
shows() {
    lines=$1 driver=$2
    shift 2
    "$drivers/"$driver "$@" >out 2>err
    status=$?
    [ $status = 0 ] && [ ! -s err ] && [ "$(sed -n 's/^ *\([0-9][0-9]*\) .*/\1/p' out | tr '\n' ' ')" = "$lines " ]
    point "$driver $* shows $lines"
}
small='--mesh data=1,model=2 --layers 2 --hidden 8 --batch 8 --microbatches 2'
tiny='--mesh pipe=2 --model-dimension 16 --n-heads 4 --blocks 1 --layers-per-block 2 --sequence 16 --latent-dim 8
    --rope-dim 4 --batch 4 --microbatches 2 --data text'
for n in 0 1 2 3 4 5 6 7 8 9; do echo "Line $n of a text that is long enough to be divided, not to be read."; done >text

logs() {
    shows '0 1 2 3 4 5 6' "$@" --steps 7
    shows '2 5 6' "$@" --steps 7 --log-every 3
    shows '6' "$@" --steps 7 --log-every 100
    driver=$1
    shift
    "$drivers/"$driver "$@" --steps 7 --log-every 3 --metrics metrics >out 2>err
    status=$?
    [ $status = 0 ] && [ "$(grep -c '^{"step"' metrics)" = 7 ]
    point "$driver: --metrics has all steps"
    "$drivers/"$driver "$@" --steps 7 --json >out 2>err
    status=$?
    [ $status = 0 ] && [ "$(grep -c '^{"step"' out)" = 7 ]
    point "$driver: --json has all steps"
    "$drivers/"$driver "$@" --log-every 3 --json >out 2>err
    status=$?
    [ $status = 2 ] && grep -q ': --log-every: is read only without --json$' err
    point "$driver: and so does not read --log-every"
}
logs looping_pipeline $small
logs 'transformer train' $tiny
"$drivers/loss_equality" --hidden 8 --steps 7 --log-every 3 >out 2>err
[ $? = 0 ] && [ "$(grep -c '^step [256]: loss ' out)" = 3 ] && [ "$(grep -c '^step ' out)" = 3 ]
point 'loss_equality shows the training'
"$drivers/loss_equality" --hidden 8 --steps 7 --json | python3 -m json.tool >out
point 'loss_equality --json is an object'
for schedule in zbv interleaved-zb looping; do
    "$drivers/loss_equality" --hidden 8 --steps 1 --schedule $schedule >out 2>err
    [ $? = 0 ] && [ "$(sed -n 's/ .*data=2,model=4 .*//p' out | tr '\n' ' ')" = "pipeline $schedule " ]
    point "a row is called $schedule"
done
"$drivers/schedule" --name 1f1b --stages 4 --microbatches 8 --format csv >mine.csv
"$drivers/loss_equality" --hidden 8 --steps 1 --schedule-file mine.csv --json >out 2>err
[ $? = 0 ] && grep -q '"looping":{.*"schedule":"mine"' out
point "JSON has the schedule's name"

# If stderr is no terminal, progress is reported at steady times.
"$drivers/transformer" train $tiny --steps 12 --delay-ms 20 --progress-every 0.2 >out 2>err
status=$?
said='^transformer: step [0-9]* of 12, [0-9]* tokens/s, [0-9]*s left$'
[ $status = 0 ] && [ "$(wc -l <err)" -ge 2 ] && ! grep -qv "$said" err
point 'a log tells step, tokens a second and the time that is left'
"$drivers/looping_pipeline" $small --steps 8 --delay-ms 20 --progress-every 0.1 --save kept >out 2>err
"$drivers/looping_pipeline" $small --steps 16 --delay-ms 20 --progress-every 0.1 --resume kept >out 2>err
status=$?
[ $status = 0 ] && grep -q '^looping_pipeline: step [0-9]* of 16, [0-9]* samples/s, ' err && ! grep -q ': step [1-8] of ' err
point 'also of a run that goes on'
for quiet in '--progress-every 0' '--json'; do
    "$drivers/looping_pipeline" $small --steps 8 --delay-ms 20 $quiet >out 2>err
    status=$?
    [ $status = 0 ] && [ ! -s err ]
    point "and nothing: $quiet"
done

# A line is there before the next step, which messages that take long put off.
"$drivers/transformer" train $tiny --evaluate-every 1 --evaluate-batches 1 --delay-ms 100 --steps 2 >out 2>err &
tries=0
until grep -q 'after step 0: evaluation' out || [ $((tries += 1)) -gt 400 ]; do sleep 0.05; done
cp out seen
kill -KILL $!
grep -q 'after step 0: evaluation' seen && ! grep -q '^ *1 ' seen
point 'a log can be followed'
plan
