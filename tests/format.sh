#!/bin/sh
# format.sh - all C files are as clang-format-19 leaves them (.clang-format); prints TAP.
if ! command -v clang-format-19 >/dev/null; then
    echo '1..0 # SKIP clang-format-19 is not installed'
    exit
fi
cd "$(dirname "$0")/.." || exit 1
if found=$(find benchmarks collectives drivers layers spmd tests -name '*.[ch]' | LC_ALL=C sort |
    xargs -P 2 -n 40 clang-format-19 --dry-run -Werror 2>&1); then
    echo 'ok 1 - C files are formatted'
else
    printf '%s\n' "$found" | grep error: | sed 's/^/# /'
    echo 'not ok 1 - C files are formatted: clang-format-19 -i says how'
fi
echo 1..1
