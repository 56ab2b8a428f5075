#!/bin/sh
# little_memory.sh DRIVERS FAULTS - runs with too little memory end with one line, and never by a signal: under several
# limits of the address space, and with failing allocations (FAULTS is faults/fail_nth.c, built); prints TAP. With
# SL_TEST_LONG set, there are many more limits and allocations.
drivers=$1
faults=$2
. "$(dirname "$0")/../rigs/points.sh"

head -c 2000 /usr/share/common-licenses/GPL-2 >text
tiny="--model-dimension 16 --n-heads 2 --latent-dim 8 --rope-dim 4 --sequence 8 --layers-per-block 1 --blocks 2"
small="--hidden 32 --layers 4 --microbatches 2 --batch 64 --mesh data=1,model=2"
"$drivers"/transformer train --mesh data=1 $tiny --batch 8 --data text --steps 1 --gradients params >/dev/null

limits='20 60 70 80 95 104 120 140 170 200 260 400'
tries=24
faulty='train looping'
if [ -n "${SL_TEST_LONG:-}" ]; then
    limits=$(seq 20 2 400)
    tries=600
    faulty='train looping bf16'
fi

# job NAME: prints the tested command.
job() {
    case $1 in
    train) command="transformer train --mesh data=2,tensor=2 $tiny --batch 8 --data text --steps 2" ;;
    generate) command="transformer generate --mesh data=2,tensor=2 $tiny --params params --prompt a --json" ;;
    looping) command="looping_pipeline $small --steps 2" ;;
    bf16) command="looping_pipeline $small --precision bf16 --steps 2" ;;
    equality) command="loss_equality $small --steps 1" ;;
    gpipe) command=gpipe ;;
    esac
}

# ends_well: the last run, which ended with $status, has succeeded, or has printed one line with the reason. (The loader
# of programs has its own status, and libgomp's is 1.)
ends_well() {
    case $status in
    0) [ ! -s err ] ;;
    2 | 3) [ "$(wc -l <err)" = 1 ] && grep -q "^${command%% *}" err ;;
    1) [ "$(wc -l <err)" = 1 ] && grep -q '^libgomp: Out of memory' err ;;
    127) [ "$(wc -l <err)" = 1 ] && grep -q 'error while loading shared libraries' err ;;
    *) false ;;
    esac
}

# try NAME COMMAND...: adds a command that ends badly to bad.
try() {
    what=$1
    shift
    timeout 60 "$@" >out 2>err </dev/null
    status=$?
    ends_well || bad="$bad [$what: status $status, $(wc -l <err) lines on stderr]"
    ended="$ended $status"
}

# result NAME: all runs ended well; some had too little memory, and some had enough.
result() {
    for one in 3 $2; do
        case "$ended " in *" $one "*) ;; *) bad="$bad [none ended with $one]" ;; esac
    done
    echo "$bad" >err
    [ -z "$bad" ]
    point "$1"
}

for name in train generate looping bf16 equality gpipe; do
    job $name
    bad= ended=
    for limit in $limits; do
        try "$limit MB" prlimit --as=$((limit * 1024000)) "$drivers"/$command
    done
    result "$name: limits of the address space"
done

# To let each of the program's own allocations fail would take long, and its libraries make tens of thousands.
for name in $faulty; do
    job $name
    for whose in "" FAIL_LIBRARIES=1; do
        for after in "" FAIL_AFTER=1; do
            bad= ended= number=0
            env LD_PRELOAD="$faults" $whose FAIL_COUNT=count "$drivers"/$command >out 2>err
            count=$(cat count)
            while [ $number -lt $tries ]; do
                nth=$((1 + count * number / tries))
                try "number $nth" env LD_PRELOAD="$faults" FAIL_NTH=$nth $whose $after "$drivers"/$command
                number=$((number + 1))
            done
            result "$name: allocations fail, of $count ${whose:+with those of libraries }${after:+each after one}"
        done
    done
done
plan
