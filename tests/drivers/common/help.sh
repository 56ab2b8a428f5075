#!/bin/sh
# help.sh DRIVERS REACH - --help of each program: a screen with the most used options, sections, and all. Runs the examples
# that it prints, unless REACH is small: 20 steps take minutes if products are slow. Prints TAP.
drivers=$1 reach=$2
driver=$drivers/transformer
. "$(dirname "$0")/../../rigs/points.sh"

programs='transformer train|transformer evaluate|transformer generate|transformer export|looping_pipeline|loss_equality|schedule|plan
gpipe|sharding|diff|report|replay|plan measure|tokens encode|tokens decode|tokens shards|tokens text'

# tell PROGRAM WORD...: prints its help, called in its folder.
tell() {
    program=$1
    shift
    # shellcheck disable=SC2086
    (cd "$drivers" && ./$program --help "$@" 2>&1)
}

# options FILE: prints the names of the options in FILE, a line each.
options() { sed -n 's/^  --\(\[no-\]\)\{0,1\}\([a-z0-9-]*\).*/\2/p' "$1" | grep -v '^version$'; }

# Names of drivers in the help of other drivers: programs of these names must exist beside them.
others='looping_pipeline|loss_equality|transformer (train|evaluate|generate|export)|plan (measure|memory|search)|schedule --|diff|drivers?'

echo "$programs" | tr '|' '\n' >list
while read -r program; do
    tell "$program" >out 2>err
    tell "$program" all >all
    [ "$(wc -l <out)" -ge 10 ] && [ "$(wc -l <out)" -le 60 ]
    point "$program --help: 60 lines"

    # --help all and the sections have each option of --help, one line each.
    options out >few && options all >many && [ -s many ] && ! grep -vxFf many few >err
    point "$program --help all: all options"
    sed -n '/^--help all tells all/,/^$/p' out | tr '\n' ' ' >told
    case $program in replay | plan*) ;; *)
        tell "$program" all | sed 1,8d | grep -nwE "$others" | grep -vE -- '--(diff|replay)' >err
        [ ! -s err ]
        point "$program --help all: speaks of no other program"
        ;;
    esac
    [ -s told ] || continue
    [ "$(sed 's/.* tells all \([0-9]*\) options.*/\1/' told)" = "$(wc -l <many)" ] && [ "$(wc -l <few)" -le 25 ]
    point "$program --help: of $(wc -l <many) options $(wc -l <few)"
    for section in $(sed 's/.*those of//; s/[,.]//g' told); do
        tell "$program" "$section" || echo "no $section"
    done >sections
    grep '^  ' all | sed '/^  @FILE/,$d' >expected
    grep '^  ' sections | diff expected - >err
    point "$program --help SECTION: all sections together are all"
done <list

call train --help
[ "$(options out | wc -l)" = 25 ] && [ "$(grep -c 'transformer train --' out)" = 3 ]
point 'transformer train --help: 25 options, three examples'
call train --help 'Latents, EXPERTS'
[ $status = 0 ] && [ "$(head -n 1 out)" = 'Latents, experts:' ] && grep -q '^  --top-k N ' out
point 'a section by its title'
call train --help schedules
[ $status = 0 ] && [ "$(head -n 1 out)" = 'Schedules:' ] && grep -q '^  zbv ' out
point 'words that are explained are a section, too'
call train --help --nonsense
[ $status = 0 ] && grep -q '^Examples:' out
point 'an option behind it is no section'
refused '--help: there is no section "shedule": choose one of all, mesh, run, ' train --help shedule
says 'transformer train: ' '; did you mean schedule?'
point 'the nearest section'
call train -h all
[ $status = 0 ] && grep -q '^  --rope-divisors ' out
point '-h all'
SHARDLOOP_HELP=bash "$driver" export --help >out 2>err
grep -q -- '--format=' out && ! grep -q -- '--experts=' out
point 'shells complete no options that are refused'
"$driver" train --help model >/dev/full 2>err
[ $? = 3 ]
point 'a full disk'

# The first example saves a model that the next ones read. A tenth of the steps reads the same options.
for program in 'transformer train' 'transformer evaluate' 'transformer generate' 'transformer export' looping_pipeline loss_equality schedule plan; do
    # shellcheck disable=SC2086
    "$drivers/"$program --help | sed -n '/^Examples:/,/^$/{/^  /p}' | sed ':more; /\\$/{N; s/ *\\\n */ /; b more}' >examples
    [ "$(wc -l <examples)" = 3 ]
    point "$program: three examples"
    [ "$reach" != small ] || continue
    while read -r line; do
        sh -c "$(echo "$line" | sed 's/\(--steps [0-9]*\)0 /\1 /')" >out 2>err </dev/null
        status=$?
        [ $status = 0 ]
        point "an example: ${line#"$drivers/"}"
    done <examples
done
plan
