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

# skip NAME REASON
skip() {
    points=$((points + 1))
    printf 'ok %d - %s # SKIP %s\n' $points "$1" "$2"
}

plan() {
    echo "1..$points"
}
