#!/bin/sh
# covered.sh - tests/ptx/covered leaves a whole file, or none: coverage and mutants read its lines. Prints TAP.
. "$(dirname "$0")/../rigs/points.sh"
covered=$(dirname "$0")/covered
"$covered" file sh -c 'echo "ok 1 - a"; echo "not ok 2 - b"; echo "1..2"' >out 2>err
[ "$(wc -l <file)" = 3 ] && grep -q '"point":"b","ok":false' file
point 'a line for each point, and one for the end'
"$covered" file sh -c 'echo "ok 1 - a"; kill -KILL $PPID' >out 2>err
status=$?
[ $status = 137 ] && [ ! -e file ]
point 'an interrupted test leaves no file, not even the former one'
plan
