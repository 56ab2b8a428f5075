#!/bin/sh
# device.sh BUILD DEVICE SOURCE - layers compute on the devices that the build is for; messages if there are none;
# prints TAP.
build=$1 device=$2 layers=$3/layers
. "$(dirname "$0")/../rigs/points.sh"
driver=$build/drivers/looping_pipeline

# regions FILE: the lines of its target regions' directives, except regions marked "only on GPUs". If a macro has the
# directive, the lines that use the macro.
regions() {
    awk '/^#define [A-Z_]+\(/ { split($2, name, "("); macro = name[1]; within = 1 }
        within && /(SL_ELEMENTWISE|SL_ROWS|SL_BLOCKS)\(/ { has[macro] = 1 }
        within { within = /\\$/; next }
        /^ *(SL_ELEMENTWISE|SL_ROWS|SL_BLOCKS)\(/ && !/only on GPUs/ { print NR }
        { split($0, name, "("); if (name[1] in has) print NR }' "$1"
}

# entered FILE [ACCOUNT]...: the lines of FILE's target regions that ran, according to the runtime's account: the one in
# err, or the programs' ACCOUNTs. Lines of several threads are mixed.
entered() {
    file=$1
    shift
    cat "${@:-err}" | grep -ao "kernel at $file:[0-9]*" | sed 's/.*://' | sort -un
}

# runs_once PROGRAM: the status of its one run; the regions that it entered, each once, stay in its account.
runs_once() {
    account=${1##*/}.entered
    if [ ! -f "$account" ]; then
        LIBOMPTARGET_INFO=1 "$1" >out 2>err </dev/null
        echo $? >"$account.status"
        grep -ao 'kernel at [a-z_0-9]*\.[ch]:[0-9]*' err | sort -u >"$account"
    fi
    return "$(cat "$account.status")"
}

# all_ran NAME SOURCE PROGRAM...: the programs run every target region of SOURCE on a device.
all_ran() {
    name=$1 source=$2 accounts=
    shift 2
    : >out
    : >err
    for program; do
        runs_once "$program"
        status=$?
        [ $status = 0 ] || break
        accounts="$accounts ${program##*/}.entered"
    done
    regions "$source" >wanted
    entered "${source##*/}" $accounts >ran
    [ $status = 0 ] && [ -s wanted ] && [ "$(sort -n wanted)" = "$(sort -n ran)" ]
    point "$name"
}

# leaves_nothing NAME PROGRAM [ARGUMENT]...: PROGRAM leaves no files in /tmp, where the runtime puts devices' code. It
# runs with its own /tmp, because other tests use the machine's. A build below /tmp is visible there, too.
leaves_nothing() {
    name=$1
    shift
    if unshare -rm sh -c 'mount -t tmpfs none /tmp' 2>/dev/null; then
        unshare -rm sh -c 'exec 3>err && cd "$0" && mount -t tmpfs none /tmp && mkdir -p "$0" && mount -c --bind . "$0" &&
            "$@" 2>&3 && ls -A /tmp' "$build" "$@" >out </dev/null
        status=$?
        [ $status = 0 ] && ! grep tmpfile_ out
        point "$name"
    else
        skip "$name" 'no namespace for a /tmp of its own'
    fi
}

case $device in
cpu)
    export OMP_TARGET_OFFLOAD=MANDATORY
    refuses "this build has no code for devices" --steps 1
    export OMP_TARGET_OFFLOAD=DISABLED
    answers final_loss --steps 1 --json
    ;;
offload)
    all_ran "every kernel runs on a device" "$layers/kernels/kernels.c" "$build/tests/test_kernels" "$build/tests/test_parts" "$build/tests/test_adamw" "$build/tests/test_leaves"
    all_ran "every kernel over elements runs on a device" "$layers/kernels/elements_internal.h" "$build/tests/test_kernels" "$build/tests/test_leaves"
    all_ran "operands are made on a device" "$layers/kernels/operands/operands.c" "$build/tests/test_operands" "$build/tests/test_kept" "$build/tests/test_settled" "$build/tests/test_dropout_kernels"
    all_ran "hashes are made on a device" "$layers/kernels/hashes_internal.h" "$build/tests/test_hashes"
    all_ran "the optimizer adamw runs on a device" "$layers/kernels/adamw_internal.h" "$build/tests/test_adamw"
    all_ran "random numbers are drawn on a device" "$layers/kernels/draws.c" "$build/tests/test_kernels" "$build/tests/test_parts"
    all_ran "every kernel for sequences runs on a device" "$layers/kernels/sequence.c" "$build/tests/test_sequence_kernels" "$build/tests/test_loss_kernels" "$build/tests/test_settled"
    all_ran "attention runs on a device" "$layers/kernels/attention/attention.c" "$build/tests/test_attention_kernels" "$build/tests/test_settled"
    all_ran "norms of whole rows run on a device" "$layers/kernels/norms/norms.c" "$build/tests/test_norms" "$build/tests/test_kept"
    all_ran "a layer norm's gradients are made on a device" "$layers/kernels/norms/layer_norm_internal.h" "$build/tests/test_kernels" "$build/tests/test_operands" "$build/tests/test_kept"
    all_ran "attention over latents runs on a device" "$layers/kernels/attention/attention_latent.c" "$build/tests/test_attention_latent"
    all_ran "the routing of experts runs on a device" "$layers/kernels/expert.c" "$build/tests/test_experts" "$build/tests/test_expert_kernels"
    export SL_TEST_FILTER=meshes_equal_one_coordinate # the runtime writes a gigabyte about the others
    all_ran "what published models need runs on a device" "$layers/kernels/published.c" "$build/tests/test_gqa"
    unset SL_TEST_FILTER
    all_ran "the optimizer sgd runs on a device" "$layers/training/optimizers/optimizer_sgd.c" "$build/tests/test_sgd"
    all_ran "plain products run on a device" "$layers/kernels/gemm/gemm_reference.c" "$build/tests/test_gemm"
    all_ran "sums of collectives run on a device" "$layers/../collectives/sums/reduce.c" "$build/tests/test_collectives"
    all_ran "an optimizer of one's own runs on a device" "$layers/../drivers/examples/regression.c" "$build/drivers/regression"
    all_ran "a module of one's own runs on a device" "$layers/../drivers/examples/custom_module.c" "$build/drivers/custom_module"
    all_ran "a convolution's layers run on a device" "$layers/../drivers/examples/convolution_layers.h" "$build/tests/test_convolution"
    all_ran "what skips them, too" "$layers/../drivers/examples/convolution_skips.h" "$build/tests/test_convolution"

    LIBOMPTARGET_INFO=1 "$driver" --steps 2 --json >out 2>err </dev/null
    status=$?
    [ $status = 0 ] && [ "$(grep -ao 'target device [0-9]*' err | sort -u | wc -l)" -gt 1 ] && [ "$(entered "\(kernels.c\|operands.c\|elements_internal.h\|layer_norm_internal.h\)" | wc -l)" -ge 8 ] &&
        [ "$(entered gemm_reference.c | wc -l)" = "$(regions "$layers/kernels/gemm/gemm_reference.c" | wc -l)" ]
    point "training runs on several devices, its products, too"

    leaves_nothing 'a run leaves no files of its devices' "$driver" --steps 1
    leaves_nothing 'nor does a program that opens no device' "$build/tests/test_kernels"

    driver=$build/drivers/loss_equality
    answers '"equal":true' --hidden 64 --steps 4 --json
    driver=$build/drivers/looping_pipeline
    export OMP_TARGET_OFFLOAD=DISABLED
    refuses "finds no x86_64 device" --steps 1
    ;;
cuda)
    call --steps 1 --json
    if [ $status = 0 ]; then
        holds "training runs on a GPU" final_loss
    else
        refuses "GPU" --steps 1
    fi
    ;;
esac
plan
