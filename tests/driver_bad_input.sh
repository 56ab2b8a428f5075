#!/bin/sh
# driver_bad_input.sh DRIVERS - bad input ends a driver with status 2 and one line that names it; prints TAP.
drivers=$1
. "$(dirname "$0")/points.sh"

call() {
    "$drivers/$@" >out 2>err </dev/null
    status=$?
}

one_line_from() {
    [ "$(wc -l <err)" = 1 ] && grep -q "^$1: " err
}

# refuses TEXT DRIVER ARGUMENT...: status 2, nothing on stdout, one line on stderr with TEXT in it.
refuses() {
    text=$1
    shift
    call "$@"
    [ $status = 2 ] && [ ! -s out ] && one_line_from "$1" && grep -qF -- "$text" err
    point "refused: $*"
}

# answers TEXT DRIVER ARGUMENT...: status 0, TEXT on stdout, nothing on stderr.
answers() {
    text=$1
    shift
    call "$@"
    [ $status = 0 ] && [ ! -s err ] && grep -qF -- "$text" out
    point "answered: $*"
}

# ---- what all drivers do alike ----

echo --help >help
for driver in looping_pipeline loss_equality schedule; do
    answers "Usage: $driver" $driver --help
    answers "Usage: $driver" $driver @help
    answers "$driver (shardloop) " $driver --version
    refuses '--nonsense: no such option' $driver --nonsense
    refuses '--nonsense=3: no such option' $driver --nonsense=3
    refuses '-x: no such option' $driver -x
    refuses '"stray": no such argument' $driver stray
    refuses '"stray": no such argument' $driver -- stray
    refuses '"": no such argument' $driver ''
    refuses '--help=1: takes no value' $driver --help=1
    refuses '@nothing: No such file' $driver @nothing
    "$drivers/$driver" --help >/dev/full 2>err
    [ $? = 3 ] && one_line_from $driver
    point "$driver --help: a full disk"
done

# The example takes no arguments.
answers 'accuracy 1.0000' custom_module
answers 'takes no arguments' custom_module --help
refuses 'takes no arguments' custom_module --steps 3
refuses 'takes no arguments' custom_module stray

# ---- numbers ----

for driver in looping_pipeline loss_equality schedule; do
    refuses '--microbatches: needs a value: an integer from 1' $driver --microbatches
    refuses '--microbatches: needs a value: an integer from 1' $driver --microbatches --json
    for value in x '' 0 -1 +2 ' 2' 2x 1e1 0x2 1.5 99999999999999999999 nan; do
        refuses "--microbatches: \"$value\" is not an integer from 1" $driver --microbatches "$value"
    done
done
train="looping_pipeline --mesh data=1,model=2 --layers 2 --hidden 8 --batch 8 --microbatches 2"
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

# ---- meshes and data ----

for mesh in '' data data= data=0 data=65 data=2,data=2 2=data data=2x 'data=2,,model=2' data=8,model=16; do
    refuses "" looping_pipeline --dry-run --mesh "$mesh"
done
refuses "--data: \"images\" is not random or fashion-mnist:DIR" $train --dry-run --data images
refuses "nothing/train-images-idx3-ubyte.gz: No such file" $train --dry-run --data fashion-mnist:nothing

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
refuses '@.: Is a directory' $train @.

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

plan
