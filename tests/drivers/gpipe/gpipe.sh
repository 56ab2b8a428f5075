#!/bin/sh
# gpipe.sh DRIVERS REACH - the driver `gpipe`: clock cycles, timelines, differences, failures; prints TAP. Where REACH is
# small, each action fails before one microbatch, not before three, and the convolution is test_convolution's.
driver=$1/gpipe reach=$2
. "$(dirname "$0")/../../rigs/points.sh"

# ---- the article's clock cycles, and the timeline ----

cat >expected <<'END_OF_TEXT'
clock cycles of 5 microbatches on 3 partitions: tasks (microbatch, partition)

[[(0, 0)],
 [(1, 0), (0, 1)],
 [(2, 0), (1, 1), (0, 2)],
 [(3, 0), (2, 1), (1, 2)],
 [(4, 0), (3, 1), (2, 2)],
 [(4, 1), (3, 2)],
 [(4, 2)]]

timeline, a column a cycle: partition, F forward or B backward, microbatch

rank 0: 0F0 0F1 0F2 0F3 0F4   .   .   .   . 0B4 0B3 0B2 0B1 0B0
rank 1:   . 1F0 1F1 1F2 1F3 1F4   .   . 1B4 1B3 1B2 1B1 1B0
rank 2:   .   . 2F0 2F1 2F2 2F3 2F4 2B4 2B3 2B2 2B1 2B0

END_OF_TEXT
call
[ $status = 0 ] && [ ! -s err ] && head -n "$(wc -l <expected)" out | cmp -s - expected
point 'the article: 5 microbatches on 3 partitions'
[ "$(grep -c '^the pipeline .* pipe=2' out)" = 2 ]
point 'the differences of two runs'

# ends TEXT FILE: FILE has predicted and measured times of a step.
ends() {
    grep -qE "^$1predicted [0-9.e+-]+ ms a step, measured [0-9.e+-]+; planned ([0-9.]+) KB a coordinate, held \\1; bubble predicted [0-9.]+ %" "$2"
}
ends 'pipe=2: ' out && ends 'pipe=2,tensor=4: ' out && [ "$(grep -c '^after products, most time goes to ' out)" = 2 ]
point 'predicted beside measured'
for example in custom_module regression $([ "$reach" = small ] || echo convolution); do
    "${driver%/*}/$example" >told 2>err
    status=$?
    [ $status = 0 ] && ends '' told && grep -q '^after products, most time goes to ' told
    point "also of $example"
done

# cycles MICROBATCHES PARTITIONS: the results of the article's function.
cycles() {
    awk -v m="$1" -v n="$2" 'BEGIN {
        for (t = 0; t < n + m - 1; t++) {
            line = t ? " [" : "[["
            begin = t + 1 - m > 0 ? t + 1 - m : 0
            end = t + 1 < n ? t + 1 : n
            for (p = begin; p < end; p++) line = line (p > begin ? ", " : "") "(" t - p ", " p ")"
            print line (t < n + m - 2 ? "]," : "]]")
        }
    }'
}
for numbers in '1 1' '1 4' '4 1' '2 5' '9 4' '3 3'; do
    cycles ${numbers% *} ${numbers#* } >expected
    call --microbatches ${numbers% *} --partitions ${numbers#* }
    [ $status = 0 ] && [ ! -s err ] && grep '^[[ ][[(]' out | cmp -s - expected
    point "$numbers: the cycles are those of the article's function"
done

# finished MICROBATCHES PARTITIONS: the workers' timelines have every task once. In forward, the microbatches of a
# partition ascend, and so do the partitions of a microbatch; in backward both descend.
finished() {
    sed -n 's/^\(forward\|backward\): *\[(\(.*\))\]$/\1 \2/p' out | sed 's/), (/;/g; s/, /,/g' |
        awk -v m="$1" -v n="$2" '{
            tasks = split($2, task, ";")
            bad += tasks != m * n
            for (i = 1; i <= tasks; i++) {
                split(task[i], part, ",")
                at[$1, part[1], part[2]] = i
            }
        }
        END {
            for (i = 0; i < m; i++) {
                for (p = 0; p < n; p++) {
                    f = at["forward", i, p]
                    b = at["backward", i, p]
                    bad += !f || !b
                    if (i) bad += f < at["forward", i - 1, p] || b > at["backward", i - 1, p]
                    if (p) bad += f < at["forward", i, p - 1] || b > at["backward", i, p - 1]
                }
            }
            exit NR != 2 || bad
        }'
}
call
finished 3 2
point 'the timeline that the workers leave: 3 microbatches on 2 partitions'
call --microbatches 7 --partitions 4
finished 7 4
point 'and 7 on 4'

# ---- differences ----

number='[0-9]+\.[0-9]+(e-[0-9]+)?'
object="\\{\"pipeline_output\":$number,\"pipeline_gradient\":$number,\"pipeline_batch_gradient\":$number,"
object="$object\"tensor_output\":$number,\"tensor_gradient\":$number,\"tensor_batch_gradient\":$number\\}"

# equal ARGUMENT...: one object on stdout, no difference of the pipeline and some of rounding with tensor parallelism.
equal() {
    call --json "$@"
    [ $status = 0 ] && [ ! -s err ] && [ "$(wc -l <out)" = 1 ] && grep -qxE "$object" out &&
        tr -d '{}"' <out | tr ',:' '\n\n' | paste - - |
        awk '$2 > ($1 ~ /^pipeline/ ? 0 : 1e-5) { bad = 1 } END { exit bad || NR != 6 }'
    point "equal to one device: $*"
}
equal
equal --checked
equal --seed 1 --timeout 5 --engine local
equal --microbatches 1 --partitions 1
equal --microbatches 40 --partitions 20
for mesh in pipe=2 pipe=1 tensor=4 pipe=1,tensor=4 pipe=2,tensor=1 pipe=2,tensor=2 tensor=8,pipe=2 pipe=2,tensor=16; do
    equal --mesh $mesh
done
"$driver" --json --seed 8 >first && "$driver" --json --seed 8 | cmp -s - first
point 'the same every time'
printf -- '--json\n--seed 8 # as before\n' >options
"$driver" @options | cmp -s - first
point 'options from a file'

# ---- a coordinate fails ----

# fails TEXT ARGUMENT...: within twenty seconds, with status 3 and TEXT as the one line on stderr.
fails() {
    text=$1
    shift
    timeout -s KILL 20 "$driver" "$@" >out 2>err
    status=$?
    echo "gpipe: $text" | cmp -s - err && [ $status = 3 ]
    point "failed: $*"
}
tensor='the pipeline with tensor parallelism'
fails "$tensor: coordinate 2 (pipe=0, tensor=2): fails before 0B3 (stage 0, backward of microbatch 3), as --fail 2@B3 says" \
    --fail 2@B3
grep -q '^ \[(4, 1), (3, 2)\],$' out
point 'after the clock cycles had been printed'
fails "the pipeline: coordinate 1 (pipe=1): fails before 1F2 (stage 1, forward of microbatch 2), as --fail 1@1F2 says" \
    --fail 1@1F2 --json
[ ! -s out ]
point 'and nothing with --json'
for action in F I B W; do
    case $action in
    F) what=forward ;;
    B) what=backward ;;
    I) what='input gradient' ;;
    W) what='weight gradient' ;;
    esac
    case $reach${SL_TEST_LONG:-}$action in
    smallF) microbatches=0 ;;
    smallB) microbatches=4 ;;
    small?) microbatches=2 ;;
    *) microbatches='0 2 4' ;;
    esac
    for microbatch in $microbatches; do
        for coordinate in 0 1 3; do
            place="before $coordinate$action$microbatch (stage $coordinate, $what of microbatch $microbatch)"
            fails "the pipeline: coordinate $coordinate (pipe=$coordinate): fails $place, as --fail \
$coordinate@$action$microbatch says" --microbatches 5 --partitions 4 --fail $coordinate@$action$microbatch
        done
    done
    for coordinate in 3 7; do
        stage=$((coordinate / 4))
        place="(pipe=$stage, tensor=3): fails before $stage${action}9 (stage $stage, $what of microbatch 9)"
        fails "$tensor: coordinate $coordinate $place, as --fail $coordinate@$stage${action}9 says" \
            --fail $coordinate@$stage${action}9 --checked
    done
done
fails "$tensor: coordinate 0 (tensor=0): fails before 0W9 (stage 0, weight gradient of microbatch 9), as --fail 0@W9 says" \
    --fail 0@W9 --mesh tensor=2

for failure in x 2 2@ 2@B 2@3 2@b3 2B3 2@@B3 -1@B3 2@B-1 2@B3x 2@B3.0 '2@ B3' 9999999999@B3 2@R3 2@BB3 2@1 '2@B3,1@B3'; do
    refuses "--fail: \"$failure\" is not COORDINATE@ACTION" --fail "$failure"
done
for failure in 8@F0 2@B10 2@1B3 1@B10 0@1F0 100@W0; do
    refuses "--fail: \"$failure\" happens in neither run: coordinates 0 to 1 and microbatches 0 to 2, or 0 to 7 and 0 to 9" \
        --fail $failure
done

# ---- other refusals: one line each ----

refuses '--mesh: axis "data" is not one of pipe, tensor' --mesh data=2,tensor=2
refuses '--mesh: pipe=3 is more than the 2 linear layers' --mesh pipe=3
refuses '--mesh: tensor=5 does not divide the 48 columns that are sharded' --mesh pipe=2,tensor=5
refuses 'has more than 1048576 coordinates' --mesh pipe=1024,tensor=1025
for value in 0 -1 x '' 1.5 1025; do
    refuses "--microbatches: \"$value\" is not an integer from 1 to 1024" --microbatches "$value"
done
refuses '--partitions: "1025" is not an integer from 1 to 1024' --partitions 1025
refuses '--nonsense: no such option' --nonsense
refuses 'there is no engine' --engine nothing
refuses '--fail: needs a value' --fail
for option in '' --json; do
    fills_stdout $option
done
call --help
[ $status = 0 ] && [ ! -s err ] && grep -q '^Usage: gpipe' out && grep -q -- '--fail COORDINATE@ACTION' out
point help
call --version
[ $status = 0 ] && grep -q '^gpipe (shardloop) ' out
point version

plan
