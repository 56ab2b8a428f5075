#!/bin/sh
# queues.sh DRIVERS - gpipe --queues: the orders of tasks, trouble with tasks and workers, the number of workers,
# differences; prints TAP. With SL_TEST_LONG there are more runs with trouble.
driver=$1/gpipe
. "$(dirname "$0")/../../rigs/points.sh"

# ---- orders ----

# One worker does the tasks of a cycle in their order: the article's first lists.
cat >expected <<'END_OF_TEXT'
forward:  [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (2, 1)]
backward: [(2, 1), (2, 0), (1, 1), (1, 0), (0, 1), (0, 0)]
END_OF_TEXT
call --queues
[ $status = 0 ] && [ ! -s err ] && grep -E '^(forward|backward):' out | cmp -s - expected
point "the article's first lists"
grep -q '^12 tasks in 12 attempts; workers: 1 started, 0 died, ' out && ! grep -q predicted out
point 'one worker, each task once, no forecast'

# ordered MICROBATCHES PARTITIONS: forward has each task once, in the order of cycles (a task's cycle is the sum of its
# numbers); backward has them in reverse.
ordered() {
    sed -n 's/^\(forward\|backward\): *\[(\(.*\))\]$/\1 \2/p' out | sed 's/), (/;/g; s/, /,/g' |
        awk -v m="$1" -v n="$2" '{
            tasks = split($2, task, ";")
            bad += tasks != m * n
            last = $1 == "forward" ? 0 : m + n
            for (i = 1; i <= tasks; i++) {
                split(task[i], part, ",")
                bad += seen[$1, task[i]]++ || part[1] >= m || part[2] >= n
                cycle = part[1] + part[2]
                bad += $1 == "forward" ? cycle < last : cycle > last
                last = cycle
            }
        }
        END { exit NR != 2 || bad }'
}
for workers in 1 2 4 active; do
    call --queues --workers $workers --microbatches 7 --partitions 4 --task-ms 0.2
    [ $status = 0 ] && ordered 7 4
    point "$workers: any order within a cycle"
done

# ---- workers ----

# used WORKERS: the line of the table.
used() {
    grep -qE "^ *$1 +64 +$2 +$3 %\$" out
}
call --queues --workers active --microbatches 8 --partitions 4
used 1 64 100.0 && used 4 22 72.7 && used active 22 100.0 && grep -q 'workers: 7 started, 0 died' out
point 'a worker starts for each partition that becomes active'
call --queues --workers 3 --microbatches 8 --partitions 4
used 3 32 66.7 && grep -q 'workers: 3 started, 0 died' out
point 'three workers take two rounds for four partitions'

# A task that waits to be taken out of the queue keeps no worker busy.
bad=0
for run in 1 2 3 4 5 6 7 8 9 10; do
    call --queues --workers 1 --microbatches 32 --partitions 8 --json
    sed 's/.*"utilization"://; s/}//' out | awk '{ exit !($1 > 0 && $1 <= 1) }' || bad=1
done
[ $bad = 0 ]
point 'a worker is busy for at most all of its time'

# ---- trouble ----

call --queues --fail 1@F2 --kill 0@1B1
[ $status = 2 ] && says 'gpipe: ' '--kill: "0@1B1" is no task'
point 'partition 0 has no stage 1'
call --queues --fail 1@F2 --kill 0@B1
[ $status = 0 ] && ordered 3 2 && grep -q '^12 tasks in 14 attempts; workers: 2 started, 1 died' out
point 'a task that fails is tried again, and a worker that dies is started again'
refuses_with 3 'task (2, 1), forward, has failed in 1 attempts' --queues --fail 1@F2 --attempts 1
refuses_with 3 'task (1, 0), backward, has failed in 1 attempts' --queues --kill 0@B1 --attempts 1
refuses_with 3 'has failed in 4 attempts' --queues --trouble 1 --attempts 4 --workers 2

number='[0-9]+\.[0-9]+(e-[0-9]+)?'
object="\\{\"pipeline_output\":$number,\"pipeline_gradient\":$number,\"pipeline_batch_gradient\":$number,"
object="$object\"tensor_output\":$number,\"tensor_gradient\":$number,\"tensor_batch_gradient\":$number,"
object="$object\"tasks\":[0-9]+,\"attempts\":[0-9]+,\"workers_started\":[0-9]+,\"workers_died\":[0-9]+,\"utilization\":$number\\}"

# survives ARGUMENT...: the results equal those of one device; the differences, without the counts, are in told.
survives() {
    call --queues --json "$@"
    grep -qxE "$object" out || status=bad
    sed 's/,"tasks.*//' out >told
    [ "$status" = 0 ]
}
survives && cp told expected
point 'differences and counts as one object'
bad=0
for seed in $(seq $([ "${SL_TEST_LONG:-}" ] && echo 60 || echo 10)); do
    shape="--microbatches $((seed % 7 + 1)) --partitions $((seed % 5 + 1)) --seed $seed"
    survives $shape && cp told quiet || bad=1
    for workers in 1 3 active; do
        survives $shape --workers $workers --trouble 0.3 --attempts 60 && cmp -s told quiet || bad=1
    done
done
[ $bad = 0 ]
point 'trouble, and more workers, change no digit'
for mesh in pipe=1 pipe=2,tensor=1 tensor=4 pipe=2,tensor=2; do
    survives --mesh $mesh
    point "equal to one device: $mesh"
done

# ---- refusals: one line each ----

refuses '--kill: "x" is not COORDINATE@ACTION' --queues --kill x
refuses '--kill: "1@W2" is no task: partitions 0 to 1, actions F and B, microbatches 0 to 2' --queues --kill 1@W2
refuses '--fail: "2@F0" is no task' --queues --fail 2@F0
refuses '--fail: "0@F3" is no task' --queues --fail 0@F3
refuses '--trace: is read only without --queues' --queues --trace trace.json
for option in '--workers 2' '--attempts 2' '--kill 0@F0' '--trouble 0.5' '--task-ms 1'; do
    refuses "${option% *}: is read only with --queues" $option
done
for value in 0 65 x; do refuses "--workers: \"$value\" is not an integer from 1 to 64, or active" --queues --workers $value; done
refuses '--attempts: "0" is not an integer from 1 to 1000' --queues --attempts 0
refuses '--trouble: "1.5" is not a number' --queues --trouble 1.5
refuses '--task-ms: "-1" is not a number' --queues --task-ms -1
fills_stdout --queues
fills_stdout --queues --json

plan
