#!/bin/sh
# articles.sh DRIVERS PAGE - the commands in the tables of docs/articles.md end as their rows say, and print something;
# every third one, or, if SL_TEST_LONG is set, all; prints TAP.
drivers=$1 page=$2
. "$(dirname "$0")/../rigs/points.sh"

# Rows whose second cell begins with a command: its status, and the command.
sed -n 's/^| [^|]* | `\([a-z_]* [^`]*\)`\( (status \([0-9]\))\)\{0,1\} |.*/\3 \1/p
        s/^| [^|]* | `\([a-z_]*\)` |.*/ \1/p' "$page" >commands
[ "$(wc -l <commands)" -gt 60 ]
point 'the tables have commands'

number=0
while read -r line; do
    number=$((number + 1))
    case $line in [0-9]\ *) wanted=${line%% *} line=${line#* } ;; *) wanted=0 ;; esac
    [ "${SL_TEST_LONG:-}" ] || [ $((number % 3)) = 0 ] || continue
    # The words of a command need no quotes.
    # shellcheck disable=SC2086
    timeout 300 "$drivers"/$line >out 2>err </dev/null
    status=$?
    [ $status = "$wanted" ] && { [ -s out ] || [ $status != 0 ]; }
    point "$line"
done <commands

plan
