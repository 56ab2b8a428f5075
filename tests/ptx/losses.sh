#!/bin/sh
# losses.sh DRIVERS SOURCE NAME - that the device code finds the losses of the line NAME in tests/gpu_quick/losses or
# tests/ptx/losses, within the line's tolerance; prints TAP.
drivers=$1 source=$2
. "$source/tests/rigs/points.sh"
tab=$(printf '\t')
grep -h "^$3$tab" "$source/tests/gpu_quick/losses" "$source/tests/ptx/losses" >list
IFS=$tab read -r name tolerance wanted words <list
driver=$drivers/${words%% *}
export FAKE_CUDA_DEVICES=1
case $words in *nccl*) FAKE_CUDA_DEVICES=8 ;; esac
call $(echo "${words#* }" | sed "s| LICENSE | $source/LICENSE |") --json
sed -n 's/^{"step":.*"loss":\([-+.0-9a-zA-Z]*\).*/\1/p' out >found
printf '%s\n' $wanted >losses
[ $status = 0 ] && near "$tolerance" found losses
point "$name is what a CPU finds, within $tolerance"
paste found losses | awk '{ d = ($1 - $2) / $2; if (d < 0) d = -d; if (d > most) most = d } END { print "# off by " most }'
plan
