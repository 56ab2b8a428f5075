#!/bin/sh
# bad_input.sh DRIVERS REACH - bad input ends a driver with status 2 and one line that names it; prints TAP. If REACH is
# small, as sanitizers take long to begin, one driver stands for others that read their options by the same code.
drivers=$1 reach=$2
. "$(dirname "$0")/../rigs/points.sh"

call() {
    "$drivers/$@" >out 2>err </dev/null
    status=$?
}

# The line begins with the program name, perhaps with a subcommand.
one_line_from() {
    says "$1" ': ' || return
    rest=${said#"$1"}
    rest=${rest%%: *}
    case ${rest# } in *[!a-z]*) return 1 ;; esac
}

# refuses TEXT DRIVER ARGUMENT...: status 2, nothing on stdout, one line on stderr with TEXT in it.
refuses() {
    text=$1
    shift
    call "$@"
    [ $status = 2 ] && [ ! -s out ] && one_line_from "$1" && case $said in *"$text"*) ;; *) false ;; esac
    point "refused: $*"
}

# asked DRIVER ONE...: whether DRIVER is to be tested: if REACH is small, only ONE... are, which stand for the others.
asked() {
    [ "$reach" = small ] && [ ! "${SL_TEST_LONG:-}" ] || return 0
    asked=$1
    shift
    for one; do [ "$one" != "$asked" ] || return 0; done
    return 1
}

# ---- options that all drivers share ----

echo --help >help
for driver in looping_pipeline loss_equality schedule 'transformer train' 'transformer evaluate' \
    'transformer generate' 'tokens shards' 'tokens text'; do
    asked "$driver" schedule 'transformer train' 'tokens shards' || continue
    answers "Usage: $driver" $driver --help
    answers "Usage: $driver" $driver -h
    answers "Usage: $driver" $driver --json -h --nonsense
    answers "Usage: $driver" $driver @help
    answers "$driver (shardloop) " $driver --version
    refuses '--nonsense: no such option' $driver --nonsense
    refuses '--nonsense=3: no such option' $driver --nonsense=3
    refuses '-x: no such option' $driver -x
    refuses '"stray": no such argument' $driver stray
    refuses '"stray": no such argument' $driver -- stray
    refuses '"": no such argument' $driver ''
    refuses '--help: there is no section "1": choose one of all, ' $driver --help=1
    refuses '--help: there is no section "layuot": choose one of all, ' $driver --help layuot
    answers "Usage: $driver" $driver --help all
    refuses '@nothing: No such file' $driver @nothing
    "$drivers/"$driver --help >/dev/full 2>err
    [ $? = 3 ] && one_line_from $driver
    point "$driver --help: a full disk"
done

for driver in "$drivers"/*; do
    [ -f "$driver" ] && [ -x "$driver" ] || continue
    for command in '' $([ "${driver##*/}" != transformer ] || echo train evaluate generate export) \
        $([ "${driver##*/}" != tokens ] || echo encode decode shards text); do
        case ${driver##*/} in convolution | custom_* | heads | looping_step | regression) all='' ;; *) all=all ;; esac
        (cd "$drivers" && "./${driver##*/}" $command --help $all) | awk 'length > 80 { print; long = 1 } END { exit long || !NR }' >out
        point "${driver##*/} $command --help: 80 columns"
    done
done

for level in 1 6 33 avx2 ' 3'; do
    export SHARDLOOP_CPU_LEVEL="$level"
    refuses "SHARDLOOP_CPU_LEVEL: \"$level\" is not 2, 3, 4 or 5" looping_pipeline --dry-run
done
for driver in 'transformer train --dry-run' regression custom_module convolution; do
    refuses 'SHARDLOOP_CPU_LEVEL: ' $driver
done
answers "Usage: looping_pipeline" looping_pipeline --help
for level in '' 2 3 4 5; do
    export SHARDLOOP_CPU_LEVEL="$level"
    answers 'a coordinate needs' looping_pipeline --dry-run
done
unset SHARDLOOP_CPU_LEVEL

SHARDLOOP_HELP=man "$drivers/schedule" --help >out 2>err
[ $? = 0 ] && grep -q '^\.TH "SHARDLOOP' out && [ ! -s err ]
point 'schedule --help as a page of the manual'
seq 4100 >many
refuses 'more than 4096 arguments' schedule @many
refuses 'is not none or a list of optimizer|' looping_pipeline --offload "$(printf '%080d' 0),weights"
ln -s "$drivers/schedule" shardloop-schedule
./shardloop-schedule --nonsense >out 2>err </dev/null
status=$?
[ $status = 2 ] && [ ! -s out ] && grep -q '^shardloop-schedule: --nonsense: no such option' err
point 'a driver under the name that it is installed by'

# ---- data of a classifier ----

mkdir -p odd/train-images-idx3-ubyte circle
ln -s train-images-idx3-ubyte.gz circle/train-images-idx3-ubyte.gz
refuses 'odd/train-images-idx3-ubyte: not a regular file' looping_pipeline --data fashion-mnist:odd
refuses 'circle/train-images-idx3-ubyte.gz: Too many levels of symbolic links' looping_pipeline --data fashion-mnist:circle
refuses 'too long a path' looping_pipeline --data "fashion-mnist:odd$(printf '/.%.0s' $(seq 2038))"

# ---- report: its arguments are files ----

echo '{"step":0,"loss":1}' >run
for option in --help @help; do
    answers 'Usage: report [OPTION]... RUN... [@FILE]...' report $option
done
answers 'metrics of a run, or a trace' report --help
answers 'Usage: report' report -h
answers 'report (shardloop) ' report --version
refuses '--nonsense: no such option' report --nonsense run
refuses '"": no such argument' report run ''
refuses 'RUN is missing: a file that --metrics of a training wrote' report
refuses 'RUN is missing' report --json --
refuses 'nothing: No such file' report nothing
refuses 'nothing: No such file' report -- nothing
refuses 'nothing: No such file' report run NAME=nothing
refuses 'RUN /dev/zero: cannot be opened: it is a device' report /dev/zero
refuses '--output: "" is not FILE' report run --output ''
refuses '--output: nowhere/page: No such file' report run --output nowhere/page
for option in svg terminal; do
    refuses "--$option: \"losses\" is not one of loss|evaluation|lr|" report run --$option losses
    refuses "--$option: needs a value: one of loss|" report run --$option
done
refuses '--svg: "all" is not one of' report run --svg all
refuses '--terminal: "memory" is not one of' report run --terminal memory
for value in 39 401 x ''; do
    refuses "--width: \"$value\" is not an integer from 40 to 400" report run --width "$value"
done
refuses '--json=1: takes no value' report run --json=1
refuses '--svg, --terminal, --json and --csv: one of them at most' report run --json --svg loss
refuses '--svg, --terminal, --json and --csv: one of them at most' report run --terminal loss --svg loss
refuses '--output: --json goes to stdout' report run --json --output page
refuses '--output and RUN name the same file, run' report run --output run
answers '</html>' report -- run
answers '"run":"run"' report --json run
answers '"run":"this"' report --json this=run

# ---- suggestions ----

means() {
    refuses "did you mean $1?" $2 $3 $4
}
for driver in looping_pipeline loss_equality; do
    asked $driver looping_pipeline || continue
    means --layers $driver --layr 3
    means --num-layers $driver --num-layer 3
    means --learning-rate $driver --learning-rte=3
    means --learning-rate $driver --learning_rate 3
    means --lr $driver -lr 3
    means --clip $driver --max-grad-norm 1
    means --accumulate $driver --gradient-accumulation-steps 2
    means --loops $driver --stages 8
    means --no-overlap $driver --no-overlop
    means 1f1b $driver --schedule 1f2b
    means looped-bfs $driver --schedule loped-bfs
    means bf16 $driver --precision BF16
    means adamw $driver --optimizer adam
    means nccl $driver --engine nclc
    refuses '--gpus: no such option (--help lists them)' $driver --gpus 4
    refuses "one of flax|global" $driver --rng x
    refuses '--s: short for more than one option: --show-placement, --seed, --steps, --storage, --show-shardings, --s' $driver --s 3

    refuses '--lr: "x" is not a number from 0' $driver --learning-rate x
    refuses '--learning-: no such option' $driver --learning- 0.1 # an alias has no short forms
    refuses '"--learning-rate": no such argument' $driver -- --learning-rate
    answers 'also --learning-rate' $driver --help learning-rate
done
refuses '--no: short for more than one option: --no-fsdp, ' looping_pipeline --no
means --sequence 'transformer train' --seq-len 64
means --model-dimension 'transformer train' --hidden 128
means --window 'transformer train' --sliding-window 8
means --layers-per-block 'transformer train' --num-layers 4
means --sample-top-p 'transformer generate' --top-p 0.5
means looped-bfs 'transformer train' --schedule looping
means train transformer trian
means evaluate transformer eval
means generate transformer Generate
means looped-bfs schedule --name looped-bsf
means svg schedule --format SVG
means gpipe plan --pipeline gpip
call looping_pipeline --dry-run --json --batch 64 --layers 4 --seed 3 && mv out expected
call looping_pipeline --dry-run --json --batch-size=64 --num-layers 4 --seed 3
[ $status = 0 ] && cmp -s out expected
point 'aliases'

# ---- optimizers ----

for driver in looping_pipeline loss_equality 'transformer train'; do
    asked "$driver" 'transformer train' || continue
    answers 'the optimizer: adamw (' $driver --help optimizer
    answers ', sgd (' $driver --help optimizer
    refuses 'there is no optimizer "lion": choose one of adamw, sgd' $driver --optimizer lion
    refuses '--momentum: is read only with --optimizer sgd' $driver --momentum 0.9
    refuses '--beta1: is read only with --optimizer adamw' $driver \
        --optimizer sgd --beta1 0.9
    refuses 'optimizer sgd: nesterov needs a momentum above 0' $driver --optimizer sgd --nesterov
    refuses '--momentum: "1" is not a number from 0 to below 1' $driver --optimizer sgd --momentum 1
done

# The examples take no arguments, but a trace's name.
answers 'accuracy 1.0000' custom_module
answers 'step 500  loss 0.00' regression
for example in custom_module regression; do
    answers 'takes no arguments' $example --help
    answers 'takes no arguments' $example -h
    refuses 'takes no arguments' $example --steps 3
    refuses 'takes no arguments' $example stray
    refuses 'or --trace FILE' $example --trace
    refuses 'or --trace FILE' $example --trace trace stray
done
answers 'step 4  loss 0.00' looping_step
answers 'outputs: the same bits' heads
for example in looping_step heads; do
    answers 'takes no arguments' $example --help
    refuses 'takes no arguments' $example --steps 3
    refuses 'takes no arguments' $example stray
done
for example in custom_module regression convolution gpipe 'loss_equality --steps 1 --hidden 16 --batch 32'; do
    refuses '--trace: /nowhere/trace: No such file' $example --trace /nowhere/trace
done
refuses '--trace: needs a value: FILE' gpipe --trace
answers ': equal' convolution
answers 'convolution: [MESH EPOCHS [ENGINE]]' convolution --help
for arguments in stray 'data=1 0' 'data=1 x' 'data=1 1001' 'data=1 1 local 1' --trace '--network' '--steps 3'; do
    refuses 'convolution: [MESH EPOCHS [ENGINE]]' convolution $arguments
done
refuses '--network: "vgg" is not plain, residual or u-shaped' convolution --network vgg
refuses 'there is no schedule "zebra"' convolution --schedule zebra
refuses 'schedule zbv over 3 ranks: it has 6 stages, but plain has 3 blocks' convolution --schedule zbv
answers ': equal' convolution --network residual --schedule looped-bfs

# ---- numbers ----

for driver in looping_pipeline loss_equality schedule; do
    asked $driver schedule || continue
    refuses '--microbatches: needs a value: an integer from 1' $driver --microbatches
    refuses '--microbatches: needs a value: an integer from 1' $driver --microbatches --json
    for value in x '' 0 -1 +2 ' 2' 2x 1e1 0x2 1.5 99999999999999999999 nan; do
        refuses "--microbatches: \"$value\" is not an integer from 1" $driver --microbatches "$value"
    done
done
for value in x '' -1 +2 2x 1.5 99999999999999999999 nan; do
    refuses "--width: \"$value\" is not an integer from 0 to 1048576" schedule --width "$value"
done
refuses '--width: needs a value' schedule --width
for value in x '' -1 nan inf 1e16 1GB; do
    refuses "--memory: \"$value\" is not a number from 0 to 1e+15" schedule --synthesize --memory "$value"
    refuses "--seconds: \"$value\" is not a number from 0 to 86400" schedule --synthesize --seconds "$value"
done
for value in x '' 0 -1 1.5 99999999999; do
    refuses "--iterations: \"$value\" is not an integer from 1" schedule --synthesize --iterations "$value"
done
for value in x '' -1 1.5 18446744073709551616; do
    refuses "--search-seed: \"$value\" is not an integer from 0" schedule --synthesize --search-seed "$value"
done
refuses '--synthesize=1: takes no value' schedule --synthesize=1
refuses '--output: needs a value' schedule --output
refuses '--output: "" is not FILE' schedule --output ''
refuses '--output: missing/file: ' schedule --output missing/file
refuses '--all=1: takes no value' schedule --all=1
train="looping_pipeline --mesh data=1,model=2 --layers 2 --hidden 8 --batch 8 --microbatches 2"
refuses '--stage-layers: "2,1" is not 2 numbers from 1 on, one a stage (model=2, loops 1), which add up to 2 layers' $train --stage-layers 2,1
refuses '--stage-layers: "1.5,0.5" is not 2 numbers from 1 on' $train --stage-layers 1.5,0.5
refuses "--rng flax: the notebook's stages have equally many layers" $train --schedule plain --rng flax --stage-layers 1,1
for value in x '' nan inf -0.1 1 1.5 1e3x 0x1p-2 ' 0.1' . 1e999; do
    refuses "--dropout: \"$value\" is not a number from 0 to below 1" $train --dry-run --dropout "$value"
done
for value in -1 18446744073709551616 1x ''; do
    refuses "--seed: \"$value\" is not an integer from 0 to 18446744073709551615" $train --dry-run --seed "$value"
done
answers coordinate $train --dry-run --seed 4294967295
answers coordinate $train --dry-run --seed 18446744073709551615
answers coordinate $train --dry-run --dropout 0.999
refuses '--rng: "flux" is not one of flax|global' $train --dry-run --rng flux
for value in bf17 fp32 '' BF16; do
    refuses "--precision: \"$value\" is not one of f32|bf16" $train --dry-run --precision "$value"
    refuses "--precision: \"$value\" is not one of f32|bf16" loss_equality --precision "$value"
done
answers coordinate $train --dry-run --precision bf16
refuses '--timeout: "0" is not a number' $train --dry-run --timeout 0
refuses '--m: short for more than one option' $train --m 3
refuses 'no-such-engine' $train --dry-run --engine no-such-engine

# ---- options of all training drivers: bad words, numbers out of range, empty values ----

for driver in looping_pipeline 'transformer train' loss_equality; do
    asked "$driver" 'transformer train' || continue
    for name in accumulate zero wgrad-group warmup loops log-every; do
        for value in x '' -1 1.5 1e1 99999999999999999999; do
            refuses "--$name: \"$value\" is not an integer from " $driver --$name "$value"
        done
        refuses "--$name: needs a value: an integer from " $driver --$name
    done
    refuses '--accumulate: "0" is not an integer from 1 to 4096' $driver --accumulate 0
    refuses '--zero: "3" is not an integer from 0 to 2' $driver --zero 3
    for name in lr min-lr weight-decay clip delay-ms; do
        for value in x '' -1 nan 1e31; do
            refuses "--$name: \"$value\" is not a number from 0 to " $driver --$name "$value"
        done
    done
    refuses '--recompute: "some" is not one of none|selective|full|block' $driver --recompute some
    refuses '--storage: "f16" is not one of f32|bf16' $driver --storage f16
    for list in some optimizer,some activations,activations optimizer, none,weights; do
        refuses "--offload: \"$list\" is not none or a list of optimizer|activations|weights" $driver --offload $list
    done
    refuses 'nowhere: no file can be made there: No such file or directory' $driver --offload optimizer --offload-dir nowhere
    refuses '--lr-schedule: "step" is not one of constant|cosine' $driver --lr-schedule step
    refuses '--precision: "f16" is not one of f32|bf16|tf32' $driver --precision f16
    for name in schedule schedule-file; do
        refuses "--$name: \"\" is not " $driver --$name ''
    done
    refuses '--graph: "yes" is not one of off|auto|on' $driver --graph yes
    for name in fsdp no-fsdp prefetch no-prefetch overlap no-overlap; do
        refuses "--$name=1: takes no value" $driver --$name=1
    done
    refuses '--show-shardings: "1" is not one of no|each|stacked' $driver --show-shardings=1
    refuses 'there is no' $driver --schedule nope
    "$drivers/schedule" --name 1f1b --stages 4 --microbatches 8 --format csv >table
    refuses '--schedule: is read only without --schedule-file' $driver --schedule nope --schedule-file table
    refuses 'nothing: ' $driver --schedule-file nothing
done
for driver in looping_pipeline 'transformer train'; do
    asked "$driver" 'transformer train' || continue
    for name in metrics gradients trace journal save resume; do
        refuses "--$name: \"\" is not " $driver --$name ''
    done
    for value in x '' -1 1.5; do
        refuses "--save-every: \"$value\" is not an integer from 0" $driver --save-every "$value"
    done
    for value in x '' -1 1.5; do
        refuses "--restart: \"$value\" is not an integer from 0" $driver --restart "$value"
    done
    refuses '--save-async: is read only with --save and with --save-every' $driver --save-async
    refuses '--save-parts: is read only with --save' $driver --save-parts
    refuses '--save: is read only without --show-shardings' $driver --show-shardings --save saved --protect 1
    for name in metrics tensorboard gradients trace journal; do
        refuses "--$name: is read only without --show-shardings" $driver --show-shardings --$name record
    done
    refuses '--restart: is read only without --show-shardings' $driver --show-shardings --restart 1 --save saved --save-every 1
    refuses '--save-parts=2: takes no value' $driver --save-parts=2
    refuses '--restart-mesh: "less" ' $driver --restart-mesh less
    refuses '--restart-mesh fewer: --launcher "srun -n 2" starts the same number of processes each time: write %n' $driver --restart 2 --save nowhere \
        --save-every 1 --engine mpi --restart-mesh fewer --launcher 'srun -n 2'
    refuses '--launcher: "" is not ' $driver --launcher ''
    refuses '--launcher: is read only with --restart' \
        $driver --launcher 'srun -n 8'
    refuses '--restart 2: needs checkpoints to go on from: --save DIR and --save-every N' $driver --restart 2
    for value in x '' -1 1.5; do
        refuses "--journal-every: \"$value\" is not an integer from 0" $driver --journal j --journal-every "$value"
    done
    refuses '--journal-every: is read only with --journal' $driver --journal-every 2
    for value in x '' -1 1.5; do
        refuses "--journal-messages: \"$value\" is not an integer from 0" $driver --journal j --journal-messages "$value"
    done
    refuses '--journal-messages: is read only with --journal' $driver --journal-messages 4
    refuses '--journal-messages and --journal-every 2: a replay compares' $driver --journal j --journal-messages 4 --journal-every 2
    for value in x 5 5@ 5@x -1@3 5@-1; do
        refuses "--replay \"$value\": it is COORDINATE@STEP" $driver --journal j --replay "$value"
    done
    refuses '--replay: "" is not ' $driver --replay ''
    refuses '--replay 5@3: needs the journal to read, --journal DIR' $driver --replay 5@3
    refuses '--journal nowhere/j: cannot be made: No such file' $driver --journal nowhere/j
    for name in profile check-replicas dry-run; do
        refuses "--$name=1: takes no value" $driver --$name=1
    done
done
for command in evaluate generate; do
    refuses '--accumulate: no such option' transformer $command --accumulate 2
    refuses '--precision: "f16" is not one of f32|bf16|tf32' transformer $command --precision f16
    refuses '--no-fsdp=1: takes no value' transformer $command --no-fsdp=1
    refuses '--dry-run=1: takes no value' transformer $command --dry-run=1
done
refuses '8 heads of queries do not divide by the 3 heads of keys and values' transformer train --attention gqa --kv-heads 3
refuses '--attention: "x" is not one of mla|gqa' transformer train --attention x
refuses '--mlp: "relu" is not one of gelu|silu|erf-gelu' transformer train --mlp relu
refuses '--norm: "batch" is not one of rms|layer' transformer train --norm batch
refuses '--norm-epsilon: "-1" is not a number from 1e-12 to 1' transformer train --norm-epsilon -1
refuses '--biases: "q" is not one of all|qkv|none' transformer train --biases q
refuses '--rope-base: "0" is not a number from 1 to' transformer train --rope-base 0
refuses '--rope-pairs: "odd" is not one of halves|adjacent' transformer train --rope-pairs odd
refuses '--rope-scaling: "1,2" is no FACTOR,LOW,HIGH,LENGTH' transformer train --attention gqa --rope-scaling 1,2
refuses '--rope-amplitude: "0"' transformer train --attention gqa --rope-amplitude 0
refuses '--rope-divisors: "1,0" is no list of 16 numbers above 0' transformer train --attention gqa --rope-divisors 1,0
refuses '--learned-positions: "-1" is not an integer from 0' transformer train --learned-positions -1
refuses 'sequences of 256 tokens: the table of positions has 8 rows' transformer train --attention gqa --learned-positions 8
refuses '--untied-head=1: takes no value' transformer train --untied-head=1
refuses '--dry-run=1: takes no value' loss_equality --dry-run=1

# ---- the transformer's subcommands, shapes, files and prompts ----

choose='choose one of train, evaluate, generate, export'
refuses "no command: $choose" transformer
for command in sing '' TRAIN train=1 --nonsense --json -- trainer tra; do
    refuses "there is no \"$command\": $choose" transformer "$command"
done
answers 'Usage: transformer train|evaluate|generate|export' transformer --help
answers 'Usage: transformer train|evaluate|generate|export' transformer -h
answers 'transformer' transformer --version

model='--model-dimension 16 --n-heads 4 --blocks 2 --layers-per-block 2 --sequence 16 --latent-dim 8 --rope-dim 4'
for n in 0 1 2 3 4 5 6 7 8 9; do echo "Line $n of a text that is long enough to be divided, not to be read."; done >text
train="transformer train $model --batch 8 --data text"
evaluate="transformer evaluate $model --batch 8 --data text"
generate="transformer generate $model"
answers coordinate $train --dry-run
refuses 'model dimension 16 does not divide into 3 heads' $train --n-heads 3
refuses 'number of heads 2 does not divide over the 4 coordinates along "tensor"' $train --n-heads 2 --mesh tensor=4
refuses 'number of heads 9 does not divide over the 2' $train --n-heads 9 --model-dimension 18
refuses 'latent dimension 5 does not divide over the 2' $train --latent-dim 5
refuses 'of a vocabulary of 5 tokens, in shares of 2, the last of the 4 coordinates along "tensor" has none' \
    $train --vocab-size 5 --vocabulary-parallel --mesh tensor=4

refuses '--tensor-pieces: "0" is not an integer from 1 to 64' $train --tensor-pieces 0
refuses '--tensor-pieces: is read only with --mesh tensor=2 or more, or with --plan' $train --mesh data=2 --tensor-pieces 2
refuses '--tensor-pieces: is read only with --mesh tensor=2 or more' $evaluate --mesh data=2,tensor=1 --tensor-pieces 2
refuses 'rows of a microbatch do not divide into 7 pieces' $train --mesh tensor=2 --tensor-pieces 7
refuses 'its rows cannot move over "tensor" in 2 pieces, as sums over it are those of leaves' \
    $train --mesh tensor=2 --exact tensor=2 --tensor-pieces 2

spread="$train --mesh pipe=2 --schedule looped-bfs --vocab-size 8192 --spread-head"
answers coordinate $spread --dry-run
refuses '--spread-head: schedule 1f1b has at most 1 loop, and the head takes two more: choose' $spread --schedule 1f1b
refuses '--spread-head: schedule zbv has at most 2 loops' $spread --schedule zbv
refuses '--spread-head: "row" is not one of no|vocabulary|rows|batch; did you mean rows?' $spread row
refuses '--spread-head: "" is not one of no|vocabulary|rows|batch' $spread=
refuses '--no-spread-head=rows: takes no value' $spread --no-spread-head=rows
refuses '--spread-head: schedule 1f1b has at most 1 loop, and the head takes one more: choose' $spread rows --schedule 1f1b
refuses '10 tokens of a microbatch do not divide over the 4 ranks that share the head' $spread rows --mesh pipe=4 --sequence 10 --blocks 4
refuses '--spread-head and --vocabulary-parallel' $spread --vocabulary-parallel
refuses '--spread-head and --sample-every' $spread --sample-every 1
refuses '--fuse 2: a spread head takes one microbatch at a time' $spread --fuse 2
refuses 'a vocabulary of 256 tokens in chunks of 256 does not divide over 2 stages' $spread --vocab-size 256
refuses '2 layers: each of the 4 stages (pipe=2, loops 2) needs at least one' $spread --blocks 1 --loops 2
answers coordinate $train --mesh data=4,pipe=2 --rope-dim 2 --dry-run # an axis data that does not divide leaves arrays whole
refuses 'rope dimension 3' $train --rope-dim 3
refuses 'mesh axis "model": the transformer' $train --mesh data=2,model=2
refuses 'mesh axis "model": the transformer' $generate --mesh model=2 --prompt a
refuses '--batch 8: sequences do not divide over data=3' $train --mesh data=3 --no-fsdp
refuses '--batch 9: sequences do not divide over data=2' $train --batch 9
refuses '--batch 8: sequences do not divide over data=2 and 3 passes' $train --accumulate 3
refuses '--microbatches 3: ' $train --microbatches 3
refuses '--microbatches 4: ' $train --microbatches 4 --accumulate 2
refuses '--wgrad-group 3: 4 microbatches' $train --microbatches 4 --wgrad-group 3
refuses 'there is no schedule "nope"' $train --schedule nope
refuses 'schedule zbv: 3 loops: must be 2' $train --schedule zbv --loops 3
copies='--mesh data=2,pipe=2 --schedule dualpipe --microbatches 4'
refuses 'schedule dualpipe holds the model twice, on ranks in pairs: without --fsdp' $train $copies
refuses 'twice, on ranks in pairs: without --exact' $train $copies --no-fsdp --exact data=4
refuses 'twice, on ranks in pairs: without --offload weights' $train $copies --no-fsdp --offload weights
refuses '--pipeline: dualpipe holds the model twice' plan --pipeline dualpipe
refuses '4 layers: each of the 8 stages' $train --mesh pipe=2 --schedule looped-bfs --loops 4
refuses '2 layers: each of the 4 stages' $train --mesh pipe=4 --blocks 1
for value in 4 1,3,0 2,2, ,4 2,3 1,1,2 x,4 2,+2 2,2x '2 2' -1,5 99999999999999999999,1 1.5,2 .5,3.5 0,4 1.25,2.75 2.0,2 2.5,1. 1.55,2.5; do
    refuses "--stage-layers: \"$value\" is not 2 numbers from 0.5 on, one a stage (pipe=2, loops 1), which add up to 4 layers" \
        $train --mesh pipe=2 --stage-layers "$value"
done
refuses '--stage-layers: "" is not N,N,...' $train --mesh pipe=2 --stage-layers ''
refuses '--stage-layers 1.5,2.5: with --storage bf16 stages have whole layers' $train --mesh pipe=2 --stage-layers 1.5,2.5 --storage bf16
answers coordinate $train --mesh pipe=2 --stage-layers 3.5,0.5 --dry-run
refuses 'is not 4 numbers from 0.5 on, one a stage (pipe=2, loops 2)' $train --mesh pipe=2 --schedule looped-bfs --loops 2 --stage-layers 2,2
for value in x '' 0 -1 ' 2' 1.5 99999999999999999999; do
    refuses "--batch: \"$value\" is not an integer from 1" $train --batch "$value"
    refuses "--accumulate: \"$value\" is not an integer from 1" $train --accumulate "$value"
done
for value in -1 x nan 1e31; do
    refuses "--clip: \"$value\" is not a number from 0" $train --clip "$value"
done
refuses '--recompute: "some" is not one of none|selective|full|block' $train --recompute some
refuses 'freeze: no parameter matches "nope": names are those in checkpoints' $train --freeze nope
refuses 'freeze: no parameter matches "*.kernels"' $train --freeze '*.bias,*.kernels'
refuses 'freeze: "*" matches all parameters: none is left to train' $train --freeze '*'
refuses '--freeze: "" is not PATTERN,...' $train --freeze ''
refuses '--lora-rank: "-1" is not an integer from 0 to 65536' $train --lora-rank -1
refuses '--lora-rank: "x" is not an integer' $train --lora-rank x
refuses '--lora-alpha: "-1" is not a number' $train --lora-rank 2 --lora-alpha -1
refuses '--lora-modules: "" is not PATTERN,...' $train --lora-rank 2 --lora-modules ''
refuses 'adapters: no parameter matches "*.nope.lora_?.kernel"' $train --lora-rank 2 --lora-modules '*.nope'
refuses '--lora-modules: "*.experts.up" names experts, which have no adapters' $train --experts 4 --lora-rank 2 --lora-modules '*.mla.*,*.experts.up'
refuses '--lora-alpha: is read only with --lora-rank' $train --lora-alpha 2
refuses '--storage: "f16" is not one of f32|bf16' $train --storage f16
refuses '--offload: "some" is not none or a list of optimizer|activations|weights' $train --offload some
refuses 'nowhere: no file can be made there: No such file or directory' $train --offload optimizer --offload-dir nowhere
refuses 'nowhere: no file can be made there: No such file or directory' $train --offload weights --offload-dir nowhere --schedule looped-bfs --loops 2
refuses '--lr-schedule: "step" is not one of constant|cosine' $train --lr-schedule step
refuses '--zero: "3" is not an integer from 0 to 2' $train --zero 3

printf 'too short' >short
refuses 'short: too short: 9 bytes' $train --data short
refuses 'short: too short: 9 bytes' $evaluate --data short
refuses 'nothing: cannot be opened: No such file' $train --data nothing
refuses '--validation 0 keeps nothing of the data to evaluate on: ' $evaluate --validation 0
refuses '--validation 0 keeps nothing of the data to evaluate on: ' $train --validation 0 --evaluate-every 2
refuses '--eval-data: is read only with --evaluate-every, or by evaluate' $train --eval-data text
refuses 'nothing: cannot be opened: No such file' $evaluate --eval-data nothing
refuses "--eval-data: \"\" is not " $evaluate --eval-data ''
refuses '--stride: "-1" is not an integer from 0 to' $evaluate --stride -1
refuses "--choices: \"\" is not FILE" $evaluate --choices ''
refuses '--target-delimiter: "" is not TEXT' $evaluate --target-delimiter ''
refuses '--bare-choices=1: takes no value' $evaluate --bare-choices=1
refuses '--choices: no such option' $train --choices text
for command in "$train" "$evaluate"; do
    refuses "--chat: \"\" is not FILE" $command --chat ''
    refuses '--chat-template: "alpaca" is not one of auto|chatml|llama3' $command --chat-template alpaca
    refuses '--data: is read only without --chat' $command --chat text
done
refuses '--document-mask: no tokenizer says which token ends a text: give --document-token' $train --document-mask
refuses '--document-token: is read only with --document-mask' $evaluate --document-token 10
refuses '--document-token: "-2" is not an integer from -1 to' $train --document-token -2
refuses '--document-mask=1: takes no value' $train --document-mask=1
refuses '--data-format: "u8" is not one of auto|uint16|uint32' $train --data-format u8
refuses '--adapters: "" is not DIR' $generate --adapters ''
refuses '--save-adapters: "" is not DIR' $train --save-adapters ''
refuses 'is read only without --choices' $evaluate --choices text
refuses '--context: "-1" is not an integer from 0 to' $train --context -1
refuses '--stop: "" is not ' $generate --stop ''
refuses '--interactive=1: takes no value' $generate --interactive=1
refuses '--prompt: is read only without --interactive' $generate --interactive --prompt a
refuses '--answer: is read only with --interactive' $generate --answer 5
refuses '--answer: "0" is not an integer from 1' $generate --interactive --answer 0
refuses '--system: "" is not TEXT' $generate --interactive --system ''
refuses '--chat-template: "alpaca" is not one of auto|chatml|llama3|none' $generate --interactive --chat-template alpaca
refuses "--text-key: \"\" is not " $evaluate --text-key ''
refuses "--tokenizer: \"\" is not " $train --tokenizer ''
refuses '--tokenizer nothing: there is no such file or folder, and names of models are not looked up' $train --tokenizer nothing
refuses '--model gpt2: there is no such file or folder' $train --model gpt2
refuses '--adapters gpt2: there is no such file or folder' $train --model . --adapters gpt2
refuses '--tokenizer nothing: there is no such file or folder' $generate --tokenizer nothing
printf x >letter
refuses 'letter: too short: 1 bytes, and the first of them is not scored' $evaluate --eval-data letter
refuses 'the vocabulary has 0 to 63' $train --vocab-size 64 --steps 3
printf 'no safetensors file, but longer than its header would be' >plain
refuses 'plain: ' $train --params plain
refuses 'not a safetensors file' $generate --params plain --prompt a
refuses 'nothing: cannot be opened: No such file' $evaluate --params nothing
if call $train --steps 1 --gradients file; then # a file that has all names and shapes
    answers step $train --steps 1 --params file
    refuses 'parameter blocks.2.layers.0.' $train --params file --blocks 3 --steps 1
    refuses 'another shape or type' $train --params file --latent-dim 4 --steps 1
    refuses 'another shape or type' $generate --params file --vocab-size 128 --prompt a
    head -c 20000 file >part
    refuses 'part: tensor ' $train --params part --steps 1
    refuses 'truncated' $evaluate --params part
fi
refuses 'nowhere/file: cannot be written' $train --gradients nowhere/file --steps 1
refuses '--gradients: no steps' $train --gradients file --steps 0

for tokens in 256 -1 1,256 1,,2 x ,1 1, '1 2' 1.5 99999999999999999999; do
    refuses '--prompt-tokens: at "' $generate --prompt-tokens "$tokens"
done
refuses '--prompt: byte 97 at place 1, the vocabulary has 64 tokens' $generate --vocab-size 64 --prompt '!a'
refuses '--prompt, --prompt-tokens and --prompts: one of them is allowed' $generate --prompt a --prompt-tokens 1
printf 'ab\nc\n' >prompts
printf 'ab\n\nc\n' >gap
: >nothing
refuses '--prompt, --prompt-tokens and --prompts: one of them is allowed' $generate --prompt a --prompts prompts
refuses 'gap, line 2 is empty: a prompt has a byte at least' $generate --prompts gap
refuses 'nothing: no prompts: each line is one' $generate --prompts nothing
refuses 'missing: ' $generate --prompts missing
refuses 'prompts, line 1: byte 97 at place 0, the vocabulary has 64 tokens' $generate --vocab-size 64 --prompts prompts
refuses '--length 1: the prompt in line 1 has 2 tokens already' $generate --prompts prompts --length 1
refuses '--groups: "-1" is not an integer from 0' $generate --prompt a --groups -1
refuses '--in-flight: "x" is not an integer from 0' $generate --prompt a --in-flight x
refuses '--groups 4: a replica has 3 samples to make, and at most as many groups' $generate --mesh data=2 --samples 5 --groups 4
refuses '--groups 3: a replica has 2 samples in flight, and' $generate --mesh pipe=2 --samples 5 --groups 3 --in-flight 2
refuses '--length 2: the prompt has 3 tokens already' $generate --prompt abc --length 2
for option in --prompt --prompt-tokens; do
    refuses "$option: \"\" is not " $generate $option ''
done
for value in 0 1.5 -1; do
    refuses top-p $generate --prompt a --sample-top-p $value
done
refuses '--temperature: "-1" is not a number from 0' $generate --prompt a --temperature -1
refuses '--samples: "0" is not an integer from 1' $generate --prompt a --samples 0
refuses '--cache: "both" is not one of latent|expanded' $generate --prompt a --cache both
refuses '--threads: "-1" is not an integer from 0' $generate --prompt a --threads -1
refuses '--storage: "f16" is not one of f32|bf16' $generate --prompt a --storage f16
refuses '--storage: "f16" is not one of f32|bf16' $evaluate --storage f16
train="looping_pipeline --mesh data=1,model=2 --layers 2 --hidden 8 --batch 8 --microbatches 2"

# ---- meshes and data ----

for mesh in '' data data= data=0 data=1048577 data=2,data=2 2=data data=2x 'data=2,,model=2' data=8,model=16; do
    refuses "" looping_pipeline --dry-run --mesh "$mesh"
done
if [ "$(cat /proc/sys/vm/max_map_count)" -lt 2000000 ]; then
    for what in --show-placement '--batch 1048576 --microbatches 1 --dry-run'; do
        refuses 'engine local: 1048576 coordinates are as many threads, and this system has room for ' looping_pipeline --mesh data=1048576 $what
    done
fi
refuses "--data: \"images\" is not random, fashion-mnist or fashion-mnist:DIR" $train --dry-run --data images
refuses "--data: \"fashion-mnist:\" is not random, fashion-mnist or fashion-mnist:DIR" $train --data fashion-mnist: --metrics metrics
refuses '--data: "fashion-mnist2" is not random, ' $train --data fashion-mnist2
refuses '--data fashion-mnist:nothing: there is no such directory; ' $train --dry-run --data fashion-mnist:nothing
mkdir without
refuses 'without/train-images-idx3-ubyte: neither this file nor train-images-idx3-ubyte.gz is there' $train --dry-run --data fashion-mnist:without

# ---- files of options: a later option overrides an earlier one ----

# same NAME: the last call succeeded and printed what the file `expected` holds.
same() {
    [ $status = 0 ] && cmp -s out expected
    point "$*"
}
call $train --dry-run --json --layers 6 && mv out expected
call $train --dry-run --json --layers 4
[ $status = 0 ] && ! cmp -s out expected
point 'layers make a difference'
call $train --dry-run --json --layers 4 --layers=6 && same 'the last of two values'
printf '# six\n--json --lay"ers" \0476\047 # not 7\n@inner' >outer
echo '--dry-run' >inner
call $train @outer && same 'options from files'
call $train @outer --layers 4 --layers 6 && same 'options after a file'
echo '@loop' >loop
refuses '@loop: files name files more than' $train @loop
echo '--rng "flax' >unclosed
refuses '@unclosed: a quote is not closed' $train @unclosed
printf -- '--json\0' >zero
refuses '@zero: is no text' $train @zero
refuses '@/dev/zero: longer than' $train @/dev/zero
for _ in $(seq 70); do echo '@branch'; done >tree
for _ in $(seq 70); do echo '@leaf'; done >branch
echo '# no word comes of it' >leaf
refuses 'more than 4096 arguments' $train @tree
seq 60000 | sed 's/^/# /' >long
refuses '@long: with the files before it longer than 1048576 bytes' $train @long @long @long
refuses '@.: Is a directory' $train @.

refuses '--fail: "1x" is no list of COORDINATE@STEP' $train --fail 1x
refuses '--fail: "0@0:" is no list of COORDINATE@STEP' $train --fail 0@0:
refuses '--fail: "4294967296@1" is no list of COORDINATE@STEP' $train --fail 4294967296@1
refuses '--fail: 99@0: the run has coordinates 0 to' $train --steps 1 --fail 99@0
refuses '--fail: 0@1: the run has coordinates 0 to' $train --steps 1 --fail 0@0,0@1

# ---- output that cannot be written ----

refuses '--metrics: nowhere/metrics: No such file' $train --metrics nowhere/metrics
call $train --steps 1 --metrics /dev/full
[ $status = 3 ] && one_line_from looping_pipeline
point 'metrics on a full disk'

# ---- data files ----

# images FILE COUNT / labels FILE COUNT: 2 x 2 images whose pixels are 7; labels 1. COUNT below 8, in octal.
images() {
    printf "\0\0\10\3\0\0\0\\$2\0\0\0\2\0\0\0\2" >"$1"
    for _ in $(seq "$2"); do printf '\7\7\7\7'; done >>"$1"
}
labels() {
    printf "\0\0\10\1\0\0\0\\$2" >"$1"
    for _ in $(seq "$2"); do printf '\1'; done >>"$1"
}
fresh() {
    rm -rf set
    mkdir set
    images set/train-images-idx3-ubyte 6
    labels set/train-labels-idx1-ubyte 6
    images set/t10k-images-idx3-ubyte 3
    labels set/t10k-labels-idx1-ubyte 3
}
read_set="$train --batch 4 --dry-run --data fashion-mnist:set"

fresh
answers coordinate $read_set
gzip set/*
answers coordinate $read_set
truncate -s -1 set/train-labels-idx1-ubyte.gz
refuses 'train-labels-idx1-ubyte.gz: unexpected end of file' $read_set
for file in train-images-idx3-ubyte train-labels-idx1-ubyte t10k-images-idx3-ubyte t10k-labels-idx1-ubyte; do
    fresh && truncate -s -1 set/$file
    refuses "$file: ends within its data" $read_set
    fresh && truncate -s 5 set/$file
    refuses "$file: ends within its header (5 of" $read_set
    fresh && printf '\177' | dd of=set/$file bs=1 seek=4 conv=notrunc 2>dd
    refuses "$file: " $read_set
    fresh && printf x >>set/$file
    refuses "$file: goes on after" $read_set
    # Any byte of the header, damaged: read as something else or refused.
    for place in 0 1 2 3 4 5 6 7 8 11 12 15; do
        fresh && printf '\377' | dd of=set/$file bs=1 seek=$place conv=notrunc 2>dd
        refuses "$file: " $read_set
    done
done
fresh && images set/t10k-images-idx3-ubyte 4
refuses 't10k-labels-idx1-ubyte: 3 labels for 4 images' $read_set
fresh && printf '\0\0\10\1\0\0\0\6\1\1\12\1\1\1' >set/train-labels-idx1-ubyte
refuses 'train-labels-idx1-ubyte: label 10 of image 2 is not one from 0 to 9' $read_set
fresh && printf '\0\0\10\3\0\0\0\3\0\0\0\1\0\0\0\1abc' >set/t10k-images-idx3-ubyte
refuses 't10k-images-idx3-ubyte: images have 1 pixels, but 4 in the training part' $read_set

refuses '--cores: "-1" is not an integer from 0 to 4096' schedule --cores -1
call schedule --name 1f1b --stages 4 --microbatches 8 --simulate --cores 1
[ $status = 0 ] && grep -q '^step 96 ms' out
point 'schedule --cores 1: all work, one after another'

plan
