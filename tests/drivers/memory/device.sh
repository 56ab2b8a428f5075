#!/bin/sh
# device.sh DRIVERS - a device whose memory is used up: one line with the bytes of each category, those of the device,
# and the option that saves most; other failures have their own lines; journals on the device are planned. Prints TAP.
drivers=$1
. "$(dirname "$0")/../../rigs/points.sh"
driver=$drivers/looping_pipeline
export FAKE_CUDA_DEVICES=1
alone='--mesh data=1,model=1 --schedule plain --batch 16 --steps 1'
parts='\(parameters [0-9.]+, gradients [0-9.]+, optimizer [0-9.]+, kept [0-9.]+, workspace [0-9.]+(, hand-over [0-9.]+)?, batch [0-9.]+\)'
recorded=${parts%??} # in a run with a journal, runtime follows
bytes='[0-9.]+ MB'

# tells STATUS NAME PATTERN: of the last call, one line on stderr, which PATTERN matches from the driver's name on.
tells() {
    [ $status = "$1" ] && [ "$(wc -l <err)" = 1 ] && grep -qE -- "^${driver##*/}[a-z ]*: $3\$" err
    point "$2"
}

# runtime ARGUMENT...: its bytes in the last line of the run.
runtime() {
    call $alone "$@" --json
    [ $status = 0 ] && tail -n 1 out | grep -o '"runtime":[0-9]*,' | tr -dc '0-9'
}
# A hash of each of 61 parameters and of its gradient, and two of rows: 1040 bytes each, beside 1024.
[ "$(runtime --dry-run)" = 0 ] && [ "$(runtime)" = 0 ]
point 'without a journal nothing is planned for it, or held'
[ "$(runtime --journal kept --dry-run)" = 129984 ] && [ "$(runtime --journal kept)" = 129984 ]
point 'what a journal keeps is planned, and held'

export FAKE_CUDA_MEMORY_MB=85
call $alone
tells 2 'too little before the run' "coordinate 0 \\(data=0, model=0\\) needs $bytes $parts, and its device has $bytes free of 89\\.1 MB; it would fit with --offload optimizer \\($bytes\\) or .*"
call $alone --offload optimizer
[ $status = 0 ]
point 'with the option that it names it runs'
call $alone --journal kept
tells 2 'too little with a journal' "coordinate 0 \\(data=0, model=0\\) needs $bytes $recorded, runtime 0\\.1\\), and its device has .*"
export FAKE_CUDA_MEMORY_MB=130
call --mesh data=1,model=2 --batch 16 --steps 1
tells 2 'too little for two on a device' "the run needs $bytes, $bytes of it at coordinate [01] \\(data=0, model=[01]\\) $parts, and its device has $bytes free of 136\\.3 MB; it would fit with .*"

# Other programs take the rest after the first megabytes.
export FAKE_CUDA_MEMORY_MB=120 FAKE_CUDA_OTHERS_MB=60@40
call $alone
tells 3 'too little while it opens' "coordinate 0 \\(data=0, model=0\\): no memory for [0-9]+ bytes of activations; device 0 had $bytes free of 125\\.8 MB when it was asked for $bytes; coordinate 0 \\(data=0, model=0\\) needs $bytes $parts, and least with --offload optimizer \\($bytes\\)"
export FAKE_CUDA_MEMORY_MB=140 FAKE_CUDA_OTHERS_MB=60@107
call $alone --microbatches 16 --journal kept
tells 3 'too little for a journal' "coordinate 0 .*: no memory for the hashes of a step; device 0 had .*; coordinate 0 .* needs $bytes $recorded, runtime 0\\.1\\), and least with --offload optimizer \\($bytes\\)"
export FAKE_CUDA_MEMORY_MB=150 FAKE_CUDA_OTHERS_MB=120@80
call --mesh data=1,model=2 --batch 16 --steps 1
tells 3 'too little for two while they open' "coordinate [01] \\(data=0, model=[01]\\): .*no memory.*; device 0 had $bytes free of 157\\.3 MB when it was asked for $bytes; its 2 coordinates need $bytes, $bytes of it coordinate [01] \\(data=0, model=[01]\\) $parts, and least with --.* \\($bytes\\)"
driver="$drivers/transformer"
text='--mesh data=1,pipe=1,tensor=1 --sequence 64 --model-dimension 512 --n-heads 2 --blocks 1 --layers-per-block 2'
for i in 1 2 3; do cat /usr/share/common-licenses/GPL-2; done >text
export FAKE_CUDA_MEMORY_MB=150 FAKE_CUDA_OTHERS_MB=110@40
call train $text --data text --batch 4 --steps 1
tells 3 'too little to train a transformer' "coordinate 0 .*: no memory for .*; device 0 had .*; coordinate 0 .* needs $bytes \\(parameters .*\\), and least with --offload optimizer \\($bytes\\)"
call generate $text --prompt abc --length 20
tells 3 'too little to generate' "coordinate 0 .*: no memory for .*; device 0 had .*; coordinate 0 .* needs $bytes \\(parameters .*\\), and least with --.* \\($bytes\\)"
driver=$drivers/looping_pipeline
unset FAKE_CUDA_OTHERS_MB
export FAKE_CUDA_MEMORY_MB=20
call $alone
tells 3 'too little for any product' "coordinate 0 .*: device 0: cuBLAS: no memory on the device for its workspace; device 0 had $bytes free of 21\\.0 MB when it was asked for 33\\.6 MB"
unset FAKE_CUDA_MEMORY_MB

# Other allocation failures, here while products are planned, have CUDA messages and name no option.
export FAKE_CUDA_FAIL=cudaMalloc@60
call $alone
tells 3 'an allocation that fails otherwise' "coordinate 0 \\(data=0, model=0\\): no memory for [0-9]+ bytes of [a-z ]*; device 0: cudaMalloc: unknown error"
export FAKE_CUDA_FAIL=cudaStreamCreateWithFlags@1
call $alone
tells 3 'another failure' 'coordinate 0 \(data=0, model=0\): device 0: cudaStreamCreateWithFlags: unknown error'
plan
