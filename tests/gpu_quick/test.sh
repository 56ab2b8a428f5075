#!/bin/sh
# test.sh BUILD SOURCE - tests/gpu --quick and --pack, with a build that needs no GPU and with programs that only behave
# like tests; prints TAP.
build=$1 source=$2
. "$(dirname "$0")/../rigs/points.sh"
driver=$source/tests/gpu

# refuses TEXT ARGUMENT...: one line, and status 2.
refuses() {
    text=$1
    shift
    call "$@"
    [ $status = 2 ] && [ ! -s out ] && says "tests/gpu: " "$text"
    point "refused: $*"
}

# order: of the table's steps.
order() { sed -n '2,$p' out | cut -d ' ' -f 1 | grep -v '^[0-9]' | tr '\n' ' '; }

# ---- the real programs

call --quick --build "$build" --only '^(gpu|libraries|test_device|test_adamw|loss_transformer|launches|steps)$'
answers_with 0 '^gpu +skipped .*times mean nothing' '^libraries +passed' '^test_device +passed +[0-9]+\.[0-9]$' \
    '^test_adamw +passed +[0-9.]+ +0\.[0-9]+ of what is allowed$' '^loss_transformer +passed +[0-9.]+ +[0-9]\.[0-9]e-[0-9]+ of 1e-3$' \
    '^launches +(skipped|passed .* a region takes [0-9.]+ us)' '^steps +skipped' '^[45] passed, 0 failed, [23] skipped, 0 cut off, 0 not reached; [0-9]+ s of 480'
point "steps are run, and told in one table"
[ "$(order)" = 'gpu libraries test_device test_adamw loss_transformer launches steps ' ]
point "in the order of the list"
[ "$(grep -c ': ' err)" = 7 ]
point "each is told when it ends"

# ---- stubs: a build whose programs are scripts

mkdir -p stub/tests stub/drivers
tab=$(printf '\t')
printf '# device\tfake-cuda\n' >stub/tests/list
# stub NAME: a test of the list with the script on stdin.
stub() {
    printf '%s\tenv\tA=b\t@BUILD@/tests/%s\n' "$1" "$1" >>stub/tests/list
    { echo '#!/bin/sh'; cat; } >"stub/tests/$1"
    chmod +x "stub/tests/$1"
}
stub test_device <<'END'
echo ok 1 - fine
echo '# nearest to its limit: 0.25 of what is allowed, sums, 1 for 2'
END
stub test_adamw <<'END'
echo "not ok 1 - \"$1\" is	wrong \\"
echo '# 3 instead of 4'
exit 1
END
stub test_gemm <<'END'
[ "$1" = few ] || exit 1
END
stub test_kernels <<'END'
echo 'ok 1 - it # SKIP no tensor cores'
exit 77
END
stub test_norms <<'END'
sleep 30
END
stub test_settled <<'END'
exit 0
END
# driver_prints LOSS...: looping_pipeline has these losses.
driver_prints() {
    echo '#!/bin/sh' >stub/drivers/looping_pipeline
    for loss; do echo "echo '{\"step\":0,$([ $loss = none ] || echo "\"loss\":$loss,")\"ms\":1}'" >>stub/drivers/looping_pipeline; done
    chmod +x stub/drivers/looping_pipeline
}
wanted=$(sed -n "s/^loss_classifier$tab[^$tab]*$tab\([^$tab]*\).*/\1/p" "$source/tests/gpu_quick/losses")
set -- $wanted
driver_prints "$@"
call --quick --build "$work/stub" --seconds 10 --only '^(test_(device|adamw|gemm|kernels|mla|norms|settled)|loss_classifier|loss_transformer)$'
answers_with 1 '^test_device +passed +[0-9.]+ +0\.25 of what is allowed$' \
    '^test_adamw +FAILED +[0-9.]+ +status 1: not ok 1 .*wrong.* 3 instead of 4' '^test_gemm +passed' \
    '^test_kernels +skipped +[0-9.]* +no tensor cores' '^test_norms +cut off +[0-9.]+ +the time was spent' \
    '^test_settled +not reached$' '^test_mla +not reached$' '^loss_classifier +passed +[0-9.]+ +0\.0e\+00 of 1e-3$' \
    '^loss_transformer +skipped +there is no ' '^3 passed, 1 failed, 2 skipped, 1 cut off, 2 not reached; [0-9]+ s of 10 '
point "verdicts: passed, failed, skipped, cut off, not reached"
seconds=$(sed -n 's/.* reached; \([0-9]*\) s .*/\1/p' out)
[ "$seconds" -le 14 ]
point "the time is kept: $seconds s"

call --quick --json --build "$work/stub" --only '^(test_(device|adamw|mla)|loss_classifier)$'
python3 - out <<'END'
import json, sys
rows = {row["test"]: row for row in map(json.loads, open(sys.argv[1]))}
assert list(rows) == ["test_device", "test_adamw", "loss_classifier", "test_mla"], rows
assert rows["test_device"]["verdict"] == "passed" and rows["test_device"]["differs"].startswith("0.25"), rows
assert rows["test_adamw"]["verdict"] == "FAILED" and 'not ok 1 - "' in rows["test_adamw"]["note"], rows
assert rows["test_mla"] == {"test": "test_mla", "verdict": "skipped", "seconds": 0.0, "differs": "", "note": "not in this build"}, rows
END
[ $? = 0 ] && [ $status = 1 ]
point "the same as JSON, an object a line"

driver_prints "$1" 0.7 "$3"
call --quick --build "$work/stub" --only '^loss_classifier$'
answers_with 1 '^loss_classifier +FAILED +[0-9.]+ +1\.5e-01 of 1e-3 +step 1: 0\.7 in place of 0\.61' '^0 passed, 1 failed'
point "a loss that is another one"
driver_prints "$1" none "$3"
call --quick --build "$work/stub" --only '^loss_classifier$'
answers_with 1 '^loss_classifier +FAILED .*step 1: none in place of'
point "a loss that is none"
driver_prints "$1" "$2"
call --quick --build "$work/stub" --only '^loss_classifier$'
answers_with 1 '^loss_classifier +FAILED .*2 losses of 3'
point "too few losses"

# The benchmark's lines.
cat >steps <<'END'
measuring article_step_bf16
{"benchmark": "launch", "region_us": 3.0}
{"benchmark": "article_step_tf32", "predicted": {"ms": 10.52}, "predicted_for": "H200", "plain": {"ms": 11.5}, "library_ms": 4.4, "first_loss": 2.3}
{"benchmark": "article_step_bf16", "plain": {"ms": 9.25}, "library_ms": 2.2, "first_loss": NaN}
END
python3 -B "$source/tests/gpu_quick/steps.py" steps >out 2>err
cat >wanted <<'END'
article_step_tf32 passed measured 11.50 ms, cuBLAS alone 4.40, predicted 10.52 by the figures of H200
article_step_bf16 FAILED its loss is no number; measured 9.25 ms, cuBLAS alone 2.20, no prediction
END
cmp out wanted
point "predicted beside measured, a row each"

# A signal: the table of the steps so far.
"$driver" --quick --build "$work/stub" --only '^test_(device|norms|settled)$' >out 2>err </dev/null &
pid=$!
for wait in 1 2 3 4 5 6 7 8 9 10; do grep -q test_device err && break || sleep 0.5; done
sleep 0.5
kill $pid
ends_in_time 1
answers_with 1 '^test_device +passed' '^test_norms +cut off .*a signal came' '^test_settled +not reached'
point "a signal ends the test that runs, and the table is printed"

# Libraries: an ldd that finds one of two only where the build's own are.
mkdir -p bin stub/lib
cat >bin/ldd <<'END'
#!/bin/sh
for library in libone.so libtwo.so; do
    found='not found'
    IFS=:
    for place in $LD_LIBRARY_PATH; do [ ! -e "$place/$library" ] || found=$place/$library; done
    echo "	$library => $found"
done
END
chmod +x bin/ldd
: >stub/lib/libone.so
path=$PATH
PATH=$work/bin:$PATH
call --quick --build "$work/stub" --only '^libraries$'
answers_with 1 '^libraries +FAILED .*not found: libtwo.so *$'
point "libraries that are not here"
: >stub/lib/libtwo.so
call --quick --build "$work/stub" --only '^libraries$'
answers_with 0 "^libraries +passed .*not the system's: libone.so libtwo.so"
point "libraries that came with the build"
PATH=$path

# ---- the pack

here=${build#"$source"/}
if [ "$here" = "$build" ]; then
    skip "a pack" "the build is not in the repository"
else
    for kind in zst xz gz; do
        steps='^gpu$' part=tests/list # no program: to compress takes its time
        [ $kind = gz ] && steps='^(test_device|loss_transformer)$' part=drivers/transformer
        command -v $(case $kind in zst) echo zstd ;; xz) echo xz ;; gz) echo gzip ;; esac) >/dev/null || continue
        call --pack "$work/pack.tar.$kind" --build "$here" --only "$steps"
        [ $status = 0 ] && [ ! -s err ] && grep -q 'MiB of' out && tar -tf "pack.tar.$kind" | grep -qx "./$here/$part"
        point "packed: .tar.$kind"
    done
    mkdir unpacked
    tar -C unpacked -xf "pack.tar.gz"
    driver=unpacked/tests/gpu
    call --quick --build "$here" --only '^(test_device|loss_transformer|test_adamw)$'
    answers_with 0 '^test_device +passed' '^loss_transformer +passed' '^test_adamw +skipped .*there is no '
    point "unpacked somewhere else, it runs"
    driver=$source/tests/gpu
    call --pack /dev/full/x.tar.gz --build "$here"
    [ $status = 2 ] && says "tests/gpu: " "cannot be written"
    point "a pack that cannot be written"
fi

# ---- bad options

refuses "needs a value" --quick --seconds
for bad in 0 -1 1.5 x '' 1000000; do refuses 'give a number' --quick --seconds "$bad"; done
refuses "--seconds goes with --quick" --seconds 5
refuses "--json goes with --quick" --json --build "$build"
refuses "no step's name matches" --quick --build "$build" --only '^nothing$'
refuses "is no regular expression" --quick --build "$build" --only '('
refuses "needs a value" --pack
refuses "ends in .tar.zst" --pack x.zip
refuses "ends in .tar.zst" --pack .tar.gz
refuses "name a folder within the repository" --pack x.tar.gz --build "$work/stub"
refuses "is none of" --fast
plan
