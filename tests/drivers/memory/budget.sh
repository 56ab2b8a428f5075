#!/bin/sh
# budget.sh DRIVERS - bytes by category, planned and held; memory of processes; runs that do not fit are refused,
# and the options that the line names make them fit. Prints TAP.
drivers=$1
. "$(dirname "$0")/../../rigs/points.sh"

for i in 1 2 3; do cat /usr/share/common-licenses/GPL-2; done >text
model='--model-dimension 64 --n-heads 4 --blocks 2 --layers-per-block 2 --sequence 64 --latent-dim 32 --rope-dim 8'

# run DRIVER ARGUMENT...: under the command $limited, if it is set.
run() {
    driver=$1
    shift
    timeout 60 $limited "$drivers/"$driver "$@" >out 2>err </dev/null
    status=$?
}

# totals: bytes of the coordinates in a file, one a line.
totals() { grep -o '"total":[0-9]*' "$1" | cut -d: -f2; }
# besides: bytes of the processes, likewise.
besides() { grep -o '"besides":[0-9]*' "$1" | cut -d: -f2; }

# explains NAME: of the last run's processes, all but 16 MB or 5 % is held or has a name.
explains() {
    grep -o '{"coordinates":[^}]*}' out >processes
    [ $status = 0 ] && [ -s processes ] && python3 - <<'END'
import json
for line in open("processes"):
    process = json.loads(line)
    resident, rest = process["resident"], process["unexplained"]
    named = sum(process[part] for part in "libraries files shared stacks code heap freed".split())
    assert process["held"] > 0 and abs(process["held"] + named + rest - resident) < 10, process
    assert abs(rest) <= max(16e6, 0.05 * resident), process
END
    point "$1: all of the process has a name"
}

# agrees NAME ARGUMENT...: --dry-run and the run report the same bytes.
agrees() {
    name=$1
    shift
    run "$@" --dry-run --json
    planned=$([ $status = 0 ] && totals out)
    run "$@" --json
    [ $status = 0 ] && [ "$planned" ] && [ "$(grep '"memory"' out >last; totals last)" = "$planned" ]
    point "$name: planned before, told after"
    explains "$name"
}

for mesh in data=1 data=2,pipe=2,tensor=2; do
    agrees "train on $mesh" 'transformer train' $model --mesh $mesh --data text --batch 16 --steps 2
    agrees "evaluate on $mesh" 'transformer evaluate' $model --mesh $mesh --data text --batch 16 --evaluate-batches 2
    agrees "generate on $mesh" 'transformer generate' $model --mesh $mesh --prompt abc --length 40 --samples 2
done

# replicas CATEGORY OPTION...: bytes that each of four threads needs for it, as planned; these then hold as many.
replicas() {
    category=$1
    shift
    agrees "replicas $*" 'transformer train' $model --mesh data=4 --data text --batch 16 --microbatches 1 --steps 2 "$@"
    bytes=$(sed 's/.*"memory"//' last | grep -o "\"$category\":[0-9]*" | head -n 1 | cut -d: -f2)
}

# The room of one layer of four, and a quarter of all, is less than three quarters.
replicas gradients --no-fsdp --zero 1 && whole=$bytes
replicas gradients --no-fsdp --zero 2
[ $((4 * bytes)) -lt $((3 * whole)) ]
point 'with --zero 2 a layer has the room of the one before'
replicas gradients --no-fsdp --zero 2 --recompute full
[ $((4 * bytes)) -lt $((3 * whole)) ]
point 'and so where it is computed again'
replicas gradients --no-fsdp --zero 2 --recompute block
[ $((4 * bytes)) -lt $((3 * whole)) ]
point 'and so where its block is computed again'
for zero in 1 2; do
    run 'transformer train' $model --mesh data=4 --data text --batch 16 --microbatches 2 --steps 2 --no-fsdp --recompute block \
        --zero $zero --gradients zero$zero.safetensors
done
[ $status = 0 ] && cmp -s zero1.safetensors zero2.safetensors
point 'with the bits of --zero 1'
replicas gradients --no-fsdp --zero 2 --recompute block --wgrad-group 1 --microbatches 4
[ $((4 * bytes)) -lt $((3 * whole)) ]
point 'and so where microbatches go one after another'
# Equal, but for the bytes that each coordinate rounds up.
replicas parameters --no-fsdp && common=$bytes
replicas parameters --fsdp
[ "$bytes" -lt $((common + common / 20)) ]
point 'threads that share kernels out hold each of them once'
run looping_pipeline --dry-run --json --no-fsdp && whole=$(totals out | sort -n | tail -n 1)
run looping_pipeline --dry-run --json --fsdp
[ "$(totals out | sort -n | tail -n 1)" -lt $((whole + whole / 50)) ]
point 'and sums of their gradients take no more room than is saved'

# caches FORM PROMPT: bytes of 3 samples' caches on data=2,tensor=2, by coordinate, in JSON and in MB. Each has 2 samples
# of 520 tokens and 2 heads; of the 4 layers 2 have rotary keys.
caches() {
    form=$1 prompt=$2
    set -- $model --sequence 2048 --mesh data=2,tensor=2 --prompt "$prompt" --length 520 --samples 3
    wanted=$((2 * 520 * (4 * 32 + 2 * 8) * 4))
    [ $form = latent ] || wanted=$((2 * 520 * (4 * 2 * 32 + 2 * 8) * 4))
    length=${#prompt}
    run 'transformer generate' "$@" --cache $form --dry-run --json
    [ $status = 0 ] && [ "$(grep -c "\"caches\":$wanted," out)" = 4 ] && [ "$(wc -l <out)" = 4 ]
    point "caches of --cache $form in JSON, a prompt of $length"
    run 'transformer generate' "$@" --cache $form --dry-run
    [ $status = 0 ] && awk -v bytes=$wanted 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "caches") from_end = NF - i }
        NR > 1 && $(NF - from_end) != sprintf("%.2f", bytes / 1e6) { bad = 1 } END { exit bad || NR != 5 }' out
    point "caches of --cache $form in the table, a prompt of $length"
    agrees "--cache $form, a prompt of $length" 'transformer generate' "$@" --cache $form
}
long=$(head -c 480 text | tr -c 'a-z' ' ')x
for form in latent expanded; do
    caches $form abc
    caches $form "$long"
done
# Samples are decoded by copies of kernels: of the 4 layers, 2 have one more kernel for
# rotary positions, and one of 8 columns, which has no copy. Latent attention's tables count beside them.
for copies in kernel-copies no-kernel-copies; do
    run 'transformer generate' $model --mesh data=1 --prompt abc --length 40 --$copies --dry-run --json
    grep -o '"parameters":[0-9]*' out | cut -d: -f2 >$copies
    agrees "generate one sample, --$copies" 'transformer generate' $model --mesh data=1 --prompt abc --length 40 --$copies
done
kernels=$((4 * (64 * 64 + 32 * 128 + 32 * 64 + 64 * 64 + 2 * 64 * 256) + 2 * 64 * 32))
[ $(($(cat kernel-copies) - $(cat no-kernel-copies))) = $((kernels * 4)) ]
point 'copies of kernels take as much as the kernels'
# Places of samples take memory, not samples.
for more in '--samples 2' '--samples 7 --in-flight 2' '--samples 7 --in-flight 2 --groups 2'; do
    run 'transformer generate' $model --mesh data=1 --prompt abc --length 40 $more --dry-run --json
    [ $status = 0 ] && grep -o '"caches":[0-9]*' out >>places
    agrees "generate $more" 'transformer generate' $model --mesh pipe=2 --prompt abc --length 40 $more
done
[ "$(sort places | uniq -c | awk '{ print $1 }')" = 3 ]
point 'caches for two samples in flight, of two or seven'
printf 'a\n%s\nabc\n' "$long" >prompts
agrees 'generate from a file' 'transformer generate' $model --mesh data=2,pipe=2 --prompts prompts --samples 2 --length 520 \
    --sequence 2048 --in-flight 2
# Many layers, so that bytes held for each layer show.
deep='--model-dimension 64 --n-heads 4 --blocks 30 --layers-per-block 2 --sequence 64 --latent-dim 16 --storage bf16
    --precision bf16'
agrees 'train 60 layers in bf16' 'transformer train' $deep --mesh pipe=2 --schedule interleaved-1f1b --loops 3 --data text \
    --batch 4 --steps 2 --recompute full
agrees 'evaluate 60 layers in bf16' 'transformer evaluate' $deep --mesh data=2 --data text --batch 4 --evaluate-batches 2
agrees 'generate of 60 layers in bf16' 'transformer generate' $deep --mesh tensor=2 --prompt abc --length 40 --samples 2
rm -rf saved
agrees 'train and save' 'transformer train' $model --mesh data=2,pipe=2,tensor=2 --data text --batch 16 --steps 2 --save saved
grep -o '"freed":[0-9]*' processes | awk -F: '{ exit !($2 < 8e6) }'
point 'what a checkpoint takes to be written is given back'
agrees 'train with samples' 'transformer train' $model --mesh pipe=2 --data text --batch 16 --steps 2 --sample-every 1
agrees 'looping_pipeline' looping_pipeline --steps 2
agrees 'a large batch' looping_pipeline --steps 1 --mesh data=1,model=1 --schedule single --batch 8192 --hidden 128
grep -o '"resident":[0-9]*' out | awk -F: '{ exit !($2 > 2e8) }'
point 'which is large'

run 'transformer train' $model --data text --batch 16 --steps 2 --profile
[ $status = 0 ] && grep -q '^MB  *parameters  *gradients  *optimizer  *kept  *workspace' out &&
    grep -qE '^process of coordinate 0: [0-9.]+ MB in RAM: coordinates [0-9.]+, libraries [0-9.]+' out
point 'tables with the profile'
run loss_equality --hidden 16 --dry-run --json
[ $status = 0 ] && [ "$(grep -o '"run":"[a-z]*"' out | uniq -c | tr -s ' \n' ' ')" = \
    ' 8 "run":"train" 8 "run":"single" 8 "run":"pipeline" 8 "run":"looping" ' ]
point 'every run of a comparison'

# ---- runs that do not fit ----

# refused NAME TEXT DRIVER ARGUMENT...: status 2 and one line with TEXT in it. Each option of the line, given to the same
# command, needs as much as the line says, beside $data bytes of examples, all of a batch of 1048576 rows, and the memory that
# processes take besides if the line counts it.
data=0
refused() {
    name=$1 text=$2
    shift 2
    run "$@"
    [ $status = 2 ] && [ ! -s out ] && [ "$(wc -l <err)" = 1 ] && grep -qF -- "$text" err
    point "$name"
    sed 's/; with .*//; s/.*; it would fit with //; s/ or /, /g; s/), /)\n/g' err | grep -o '^--.*([0-9.]* [MG]B)$' >options
    [ -s options ] && [ "$(wc -l <options)" -le 3 ]
    point "$name: with options"
    bad=
    counts=$(grep -c 'for libraries and stacks' err)
    while read -r line; do
        figure=$(echo "$line" | sed 's/.*(\([0-9.]*\) .*/\1/')
        scale=$(case $line in *GB*) echo 1e9 ;; *) echo 1e6 ;; esac)
        limited= run "$@" ${line% (*} --dry-run --json
        rows=$(echo "$line" | sed -n 's/.*--batch \([0-9]*\).*/\1/p')
        examples=$((data / 1048576 * ${rows:-1048576}))
        { totals out; [ "$counts" = 0 ] || besides out; } | awk -v figure="$figure" -v scale=$scale -v sum=$examples \
            '{ sum += $1 } END { off = sum / scale - figure; exit !(off < 0.051 && off > -0.051) }' || bad="$bad [$line]"
    done <options
    echo "$bad" >err
    [ -z "$bad" ]
    point "$name: they need as much as it says"
}

large="$model --sequence 512 --data text --batch 64 --steps 1 --wgrad-group 4"
limited='prlimit --as=300000000'
refused 'little address space' 'address space (ulimit -v) has' 'transformer train' $large --mesh data=2
limited='prlimit --data=90000000'
refused 'little data' "the limit of this process's data (ulimit -d) has" 'transformer train' $large --mesh data=2 \
    --recompute none --no-fsdp
limited='prlimit --data=120000000'
generation='--prompt abc --length 20000'
refused 'little data to generate' 'ulimit -d' 'transformer generate' $model $generation --mesh data=1 --samples 8 \
    --cache expanded
[ "$(sed 's/ (.*//' options | tr '\n' ' ')" = '--cache latent --in-flight 2 --length 5000 ' ]
point 'little data to generate: what helps there, the gentlest first'
refused 'little data for copies' 'ulimit -d' 'transformer generate' --model-dimension 384 --blocks 4 --mesh data=1 \
    --prompt abc --length 40
[ "$(sed 's/ (.*//;q' options)" = --no-kernel-copies ]
point 'little data for copies of kernels: without them'
refused 'little data for replicas' 'ulimit -d' 'transformer generate' $model $generation --mesh data=2 --samples 16
limited='prlimit --data=600000000'
refused 'little data for four gradients' 'ulimit -d' 'transformer train' --model-dimension 512 --blocks 4 --mesh data=4 \
    --data text --batch 16 --sequence 64 --steps 1 --no-fsdp --wgrad-group 1 --offload optimizer --recompute full
grep -q '^--mesh data=[12],pipe=[42],tensor=1 ' options
point 'little data for four gradients: with fewer replicas'
limited='prlimit --as=300000000'
refused 'little address space to evaluate' 'ulimit -v' 'transformer evaluate' $model --sequence 512 --data text \
    --mesh data=2 --batch 4096
grep -q '^--batch' options
point 'little address space to evaluate: with a smaller batch'

# The token table is most of the model: if the head is spread, no two ranks have all of it.
classes="--model-dimension 256 --n-heads 4 --blocks 2 --layers-per-block 2 --sequence 64 --latent-dim 32 --rope-dim 8
    --vocab-size 50304 --data text --mesh pipe=4 --batch 16 --steps 1"
limited='prlimit --data=540000000'
refused 'a large vocabulary' 'ulimit -d' 'transformer train' $classes
option=$(sed -n 's/^\(--spread-head.*\) (.*/\1/p' options)
limited=
[ "$option" ] && run 'transformer train' $classes $option && [ $status = 0 ]
point 'a large vocabulary: the head is spread'
limited='prlimit --data=500000000'
refused 'kept logits' 'ulimit -d' 'transformer train' $model --vocab-size 50304 --data text --mesh data=1 --batch 64 \
    --microbatches 1 --steps 1 --keep-logits
grep -q '^--no-keep-logits ' options
point 'kept logits: without them'
limited=
refused 'little RAM' 'this machine has' 'transformer train' --model-dimension 1024 --n-heads 16 --sequence 1024 \
    --batch 8192 --data text --schedule gpipe --mesh data=2,pipe=2
data=$((1048576 * 785 * 4))
refused 'little RAM for a classifier' 'this machine has' looping_pipeline --batch 1048576 --hidden 1024 --layers 64
data=0
# If no option is enough: first the options that change the run and are enough, then all options together, and the nearest
# ones beside them. Each figure is the memory that the run needs with the option.
# far NAME PATTERN DRIVER ARGUMENT...: the line ends with PATTERN.
far() {
    name=$1 pattern=$2
    shift 2
    run "$@"
    [ $status = 2 ] && [ ! -s out ] && [ "$(wc -l <err)" = 1 ] && grep -qE -- "$pattern\$" err
    point "$name"
    all=$(sed -n 's/.*; with \(--.*\) it would still need .*/\1/p' err)
    sed 's/.*; with \(--.*\) it would still need \([0-9.]* [MG]B\)/\n(\2)\n/; s/\(; beside these it would\|, and\) [a-z ]* with /\n/g; s/ or /\n/g' err |
        sed 1d | grep -o '^.*([0-9.]* [MG]B)$' >options
    bad=
    while read -r line; do
        figure=$(echo "$line" | sed 's/.*(\([0-9.]*\) .*/\1/')
        scale=$(case $line in *GB*) echo 1e9 ;; *) echo 1e6 ;; esac)
        limited= run "$@" $all ${line%(*} --dry-run --json
        totals out | awk -v figure="$figure" -v scale=$scale \
            '{ sum += $1 } END { off = sum / scale - figure; exit !(off < 0.051 && off > -0.051) }' || bad="$bad [$line]"
    done <options
    echo "$bad" >err
    [ "$all" ] && [ "$(wc -l <options)" -ge 2 ] && [ -z "$bad" ]
    point "$name: figures of all options, and of what comes beside them"
}
number='\([0-9.]+ [MG]B\)'
wide='--model-dimension 512 --blocks 4 --mesh data=2,pipe=2 --data text --batch 16 --sequence 64 --steps 1'
limited='prlimit --data=260000000'
far 'options and a smaller model' "; with --.* it would still need [0-9.]+ [MG]B; beside these it would fit with --blocks 2 $number.*" \
    'transformer train' $wide
limited='prlimit --data=90000000'
far 'nothing is enough' "; with --.* it would still need [0-9.]+ [MG]B; beside these it would come nearest with --.* $number or --.* $number" \
    'transformer train' $wide
# Time while a search is stopped does not count: it is stopped three times, as on a busy machine.
run 'transformer train' $wide
mv err wanted
timeout 60 $limited "$drivers/transformer" train $wide >out 2>err </dev/null &
pid=$!
for stop in 1 2 3; do
    sleep 0.03
    kill -STOP $(cat /proc/$pid/task/$pid/children) && sleep 2.1 && kill -CONT $(cat /proc/$pid/task/$pid/children)
done 2>/dev/null
wait $pid
status=$?
[ $status = 2 ] && [ "$(sed 's/.*; with/with/' err)" = "$(sed 's/.*; with/with/' wanted)" ]
point 'nothing is enough: the same on a busy machine'
limited='prlimit --data=150000000'
run looping_pipeline --hidden 1024 --layers 16
grep -qE "; with --.* need [0-9.]+ MB; beside these it would come nearest with --batch 8 $number or --layers 8 $number\$" err
point 'nothing is enough for a classifier'
limited='prlimit --data=800000000'
refused 'a smaller model alone' "; it would fit with --blocks 1 (" 'transformer train' --model-dimension 1024 --blocks 4 --mesh data=1 \
    --data text --batch 8 --sequence 64 --steps 1
limited='prlimit --as=300000000'
run 'transformer train' $large --mesh data=2 --wgrad-group 1 --accumulate 8
[ $status = 0 ]
point 'and with such an option the run does fit'
run 'transformer train' $large --batch 512 --wgrad-group 16 --mesh data=1
grep -qE 'transformer train: coordinate 0 \(data=0, pipe=0, tensor=0\) needs [0-9.]+ MB \(parameters .*\), and' err
point 'a coordinate alone'
plan
