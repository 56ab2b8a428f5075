#!/bin/sh
# gpu_script.sh BUILD SOURCE - the options and tables of tests/gpu, with a build that needs no GPU; prints TAP.
build=$1 source=$2
. "$(dirname "$0")/rigs/points.sh"
driver=$source/tests/gpu

# refuses TEXT ARGUMENT...: one line, and status 2.
refuses() {
    text=$1
    shift
    call "$@"
    answers_with 2 "^tests/gpu: .*$text" && [ "$(cat out err | wc -l)" = 1 ]
    point "refused: $*"
}

call --build "$build" --only '^(test_adamw|test_random|test_mesh)$'
answers_with 0 '^test_adamw +passed' '^test_random +passed' '^3 passed, 0 skipped, failed: none'
point "tests are run by name, from wherever"

# A copy of the list, in a build that was moved.
mkdir -p moved/tests
cp "$build/tests/test_mesh" "$build/tests/test_random" moved/tests
grep -E '^#|^test_(mesh|random|spec)'"$(printf '\t')" "$build/tests/list" >moved/tests/list
rm -f moved/tests/test_spec
call --build "$work/moved"
answers_with 1 '^test_random +passed' '^test_spec +FAILED' '^2 passed, 0 skipped, failed: test_spec'
point "a build that was moved runs, and what is missing fails"

refuses "no test's name matches" --build "$build" --only '^nothing$'
refuses "needs a value" --build
refuses "is none of --build DIR, --only REGEX" --all
refuses "there is no .*nowhere/tests/list" --build nowhere
mkdir -p plain/tests
echo test_mesh >plain/tests/list
refuses "not one of a build for GPUs" --build "$work/plain"
if ls /dev/nvidia[0-9]* >/dev/null 2>&1; then
    skip "without a GPU" "there is one"
else
    refuses "there is no NVIDIA GPU here"
fi
plan
