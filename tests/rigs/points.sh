# points.sh - sourced by the shell tests: moves to a directory that goes away with the test, and prints points in TAP.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
points=0
status=0

# point NAME: passed if the command before it succeeded; otherwise shows $status and the files out and err.
point() {
    passed=$?
    points=$((points + 1))
    [ $passed = 0 ] || printf 'not '
    printf 'ok %d - %s\n' $points "$*"
    [ $passed = 0 ] || { echo "status $status"; head -n 20 out err; } 2>&1 | sed 's/^/# /'
}

# For tests of one driver, whose path is $driver.

call() {
    timeout 120 "$driver" "$@" >out 2>err </dev/null
    status=$?
}

# says BEGINNING TEXT: err is one line, which begins so, with TEXT in it. It starts no process: drivers refuse a
# thousand times.
says() {
    { IFS= read -r said && ! IFS= read -r more && [ ! "$more" ]; } <err || return
    case $said in
    "$1"*) case $said in *"$2"*) return ;; esac ;;
    esac
    return 1
}

# refuses_with STATUS TEXT ARGUMENT...: that status (2: and nothing on stdout), one line on stderr with TEXT in it.
refuses_with() {
    wanted=$1 text=$2
    shift 2
    call "$@"
    [ $status = "$wanted" ] && { [ "$wanted" != 2 ] || [ ! -s out ]; } && says "${driver##*/}: " "$text"
    point "refused: $*"
}

# refuses TEXT ARGUMENT...: the same with status 2, bad input.
refuses() {
    refuses_with 2 "$@"
}

# refused TEXT COMMAND ARGUMENT...: the same of a driver with commands, whose names stand in the line.
refused() {
    text=$1
    shift
    call "$@"
    [ $status = 2 ] && [ ! -s out ] && says "${driver##*/} $1: " "$text"
    point "refused: $text"
}

# fills_stdout ARGUMENT...: stdout is a full disk: status 3, and one line that says so.
fills_stdout() {
    "$driver" "$@" >/dev/full 2>err
    status=$?
    : >out
    [ $status = 3 ] && [ "$(wc -l <err)" = 1 ] && grep -q '^[a-z_ ]*: stdout: No space' err
    point "a full disk: $*"
}

# answers TEXT ARGUMENT...: status 0, TEXT on stdout, nothing on stderr.
answers() {
    text=$1
    shift
    call "$@"
    [ $status = 0 ] && [ ! -s err ] && grep -qF -- "$text" out
    point "answered: $*"
}

# holds NAME TEXT...: the last call succeeded without a word on stderr, and each TEXT is in a line of its output.
holds() {
    name=$1
    shift
    found=$([ $status = 0 ] && [ ! -s err ] && echo yes)
    for text in "$@"; do
        grep -qF -- "$text" out || found=
    done
    [ "$found" ]
    point "$name"
}

# skip NAME REASON
skip() {
    points=$((points + 1))
    printf 'ok %d - %s # SKIP %s\n' $points "$1" "$2"
}

# ends_in_time STATUS [SECONDS]: the process $pid of the background ends with it within ten seconds, or that many.
ends_in_time() {
    (sleep "${2:-10}" && kill -KILL $pid) >/dev/null 2>&1 &
    guard=$!
    wait $pid
    status=$?
    kill $guard 2>/dev/null
    [ $status = "$1" ]
}

# lives PID: whether that process does. One that has ended may be there until its parent asks for its status.
lives() {
    grep -q '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$1/status" 2>/dev/null
}

# values KEY: its numbers in the lines of JSON that the last call has printed.
values() {
    sed -n "s/.*\"$1\":\\([-+.e0-9]*\\).*/\\1/p" out
}

# near TOLERANCE FILE FILE: as many numbers, each at most so far apart, relatively.
near() {
    [ -s "$2" ] && paste "$2" "$3" | awk -v tolerance="$1" '
        { d = $1 - $2; if (d < 0) d = -d; if (NF != 2 || d > tolerance * ($2 < 0 ? -$2 : $2)) bad = 1 }
        END { exit bad }'
}

plan() {
    echo "1..$points"
}

# answers_with STATUS TEXT...: of the last call, which printed a line with each TEXT.
answers_with() {
    wanted=$1
    shift
    found=$([ $status = "$wanted" ] && echo yes)
    for text in "$@"; do
        cat out err | grep -qE -- "$text" || found=
    done
    [ "$found" ]
}

# jackdaws: a text of 4000 words, the same each time.
jackdaws() {
    awk 'BEGIN {
        for (i = 0; i < 4000; i++) {
            x = (x * 75 + 74) % 65537
            printf "%s ", substr("jackdaws love my big sphinx", 1 + x % 22, 5)
        }
    }'
}
