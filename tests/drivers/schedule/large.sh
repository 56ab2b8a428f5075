#!/bin/sh
# large.sh DRIVERS - the driver `schedule` and tables of 16,384 ranks; prints TAP. With SL_TEST_LONG set they have ten
# million compute actions, and a limit of the address space says how few bytes each may take.
drivers=$1
driver=$drivers/schedule
. "$(dirname "$0")/../../rigs/points.sh"

# of NAME MICROBATCHES ACTIONS: proves and simulates it.
ranks=16384 most_bytes=64
of() {
    (
        [ -z "$limited" ] || ulimit -v $(($3 * most_bytes / 1024))
        exec timeout 100 "$driver" --name "$1" --stages $ranks --microbatches "$2" --check --simulate --json
    ) >out 2>err </dev/null
    status=$?
}
# stretches SPAN: the compute takes so long, if each action takes a millisecond.
stretches() {
    [ $status = 0 ] && [ ! -s err ] && grep -q "\"compute_ms\":$1[.,]" out && grep -q '"valid":true' out
}

# all_of A B C: A microbatches if a rank has one stage, B if it has two, C if each has three actions. A backward
# takes two milliseconds, two actions of one each.
all_of() {
    for name in gpipe 1f1b; do
        of $name $1 $(($1 * ranks * 2))
        stretches $((3 * ($1 + ranks - 1)))
        point "$name of $ranks ranks and $1 microbatches takes as long as the literature says"
    done
    for name in interleaved-1f1b looped-bfs; do
        of $name $2 $(($2 * ranks * 4))
        stretches $((3 * ($2 + 2 * ranks - 1)))
        point "$name of $ranks ranks, 2 loops and $2 microbatches: one round through all stages and back"
    done
    of zbv $3 $(($3 * ranks * 6))
    stretches $((4 * ranks + 4 * $3 - 2))
    point "zbv of $ranks ranks and $3 microbatches: there and back on the V, and 4 ms more for each other microbatch"
}

# Sanitizers need more addresses than that.
{ limited=$( (ulimit -v 600000 && "$driver" --version) >/dev/null && echo yes); } 2>/dev/null
if [ -n "${SL_TEST_LONG:-}" ]; then
    all_of 305 152 102
else
    most_bytes=2048 # of few actions, most of which are the program's own
    all_of 4 2 2
fi

call --name 1f1b --stages $ranks --microbatches 4 --check --simulate
[ $status = 0 ] && [ ! -s err ] && [ "$(wc -l <out)" -lt $((ranks + 20)) ] &&
    grep -q "^$ranks ranks and 32[0-9]* time steps: too long a table to print" out && grep -q 'no deadlock' out &&
    grep -q "^$((ranks - 1)) " out
point 'a table that nobody reads is not printed, what was found out about it is'

# Before any memory is taken.
[ -z "$limited" ] || ulimit -v 200000
refuses 'schedule 1f1b: 16384 stages x 1 loops x 65536 microbatches: their product must be at most 8388608' \
    --name 1f1b --stages $ranks --microbatches 65536
refuses 'schedule looped-bfs: 16384 stages x 5 loops: both must be at least 1, their product at most 65536' \
    --name looped-bfs --stages $ranks --loops 5
refuses '--stages: "65537" is not an integer from 1 to 65536' --stages 65537

plan
