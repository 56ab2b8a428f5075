#!/bin/sh
# run_options.sh SOURCE - lines of tests/run about options that it does not know or that exclude each other, before it
# installs or builds anything; prints TAP.
driver=$1/tests/run
. "$1/tests/rigs/points.sh"

# line TEXT ARGUMENT...: status 2, and one line with TEXT.
line() {
    text=$1
    shift
    call "$@"
    [ $status = 2 ] && [ ! -s out ] && says 'tests/run: ' "$text"
    point "refused: $*"
}
line '--preset nonsense: choose host, gcc, offload, asan, tsan, fake-cuda, cuda or ptx' --preset nonsense
line '--preset needs a name' --preset
line '"--quik" is none of --quick, --long and --preset NAME' --quik
line '--quick chooses presets and tests itself, without --long and --preset' --quick --long
line '--quick chooses presets and tests itself, without --long and --preset' --preset asan --quick
answers './tests/run [--quick | --long | --preset NAME]' --help
plan
