#!/bin/sh
# losses.sh DRIVERS SOURCE - losses expected by tests/gpu --quick on a GPU, and by the preset ptx from executed device
# code, equal this CPU's losses, each within a tenth of the tolerance for a GPU; prints TAP.
drivers=$1 source=$2
# Products of bf16 differ from level to level by more than that, ours and the library's.
export SHARDLOOP_CPU_LEVEL=3 ONEDNN_MAX_CPU_ISA=AVX2 DNNL_MAX_CPU_ISA=AVX2
. "$(dirname "$0")/../rigs/points.sh"
tab=$(printf '\t')
grep -v '^#' "$source/tests/gpu_quick/losses" >quick
grep -v '^#' "$source/tests/ptx/losses" | cat quick - >list
while IFS=$tab read -r name tolerance wanted words; do
    driver=$drivers/${words%% *}
    call $(cd "$source" && echo "${words#* }" | sed "s| LICENSE | $source/LICENSE |; s/--precision tf32//; s/--graph on//; s/--engine nccl//") --json
    sed -n 's/^{"step":.*"loss":\([-+.0-9a-zA-Z]*\).*/\1/p' out >found
    printf '%s\n' $wanted >losses
    [ $status = 0 ] && near "$(echo "$tolerance" | awk '{ print $1 / 10 }')" found losses
    point "$name is what a CPU finds"
done <list
awk '$1 ~ /^loss_/ { print $1 }' "$source/tests/gpu_quick/list" | sort >steps
cut -f 1 quick | sort | cmp -s - steps
point "each has its step"
plan
