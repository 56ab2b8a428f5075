#!/bin/sh
# limits.sh DRIVERS - runs that may open few files, start few threads, or whose control group has little memory: done, or one line about the lack, never a
# signal, a hang or a file half written; prints TAP. With SL_TEST_LONG set, every limit up to one that is enough.
drivers=$(cd "$1" && pwd)
. "$(dirname "$0")/../rigs/points.sh"

seq 1 500 >text
tiny='--model-dimension 16 --n-heads 2 --latent-dim 8 --rope-dim 4 --sequence 8 --layers-per-block 1 --blocks 2 --batch 8 --data text'
small='--hidden 16 --layers 4 --microbatches 2 --batch 16 --mesh data=2,model=2'
"$drivers/transformer" train --mesh data=1 $tiny --steps 1 --save before >/dev/null 2>&1

# job NAME: the command that is tried.
job() {
    case $1 in
    train) command="transformer train --mesh data=2,tensor=2 $tiny --steps 2 --save saved --save-every 1 --metrics metrics --tensorboard events --trace trace" ;;
    resume) command="transformer train --resume before --steps 2 --save saved" ;;
    generate) command='transformer generate --params before --prompt a --length 4 --json' ;;
    looping) command="looping_pipeline $small --steps 2 --save saved --gradients gradients" ;;
    equality) command="loss_equality $small --steps 1" ;;
    gpipe) command=gpipe ;;
    schedule) command='schedule --stages 3 --microbatches 4 --format csv' ;;
    plan) command=plan ;;
    esac
}

# ends_well: the last run, of $status, is done, or said in one line why not. (The loader of programs has its own.)
ends_well() {
    case $status in
    0) [ ! -s wrong ] ;;
    2 | 3) [ "$(wc -l <wrong)" = 1 ] && grep -q "^${command%% *}.*: " wrong ;;
    127) [ "$(wc -l <wrong)" = 1 ] && grep -q 'error while loading shared libraries' wrong ;;
    *) false ;;
    esac
}

# try NAME COMMAND...: adds a command that ends badly to bad. Lines about going on, or about a peak that is measured
# again as it cannot be saved, are no errors.
try() {
    what=$1
    shift
    rm -rf saved metrics events trace gradients
    timeout 60 "$@" >out 2>err </dev/null
    status=$?
    grep -vE ': saved in |peaks\.json[.a-z0-9]*: ' err >wrong
    ends_well || bad="$bad [$what: status $status: $(head -c 300 wrong)]"
    [ -z "$(find . -name '*.safetensors*' -o -name 'gradients?*' | grep -vE '/step-[0-9]{8}\.safetensors$')" ] || bad="$bad [$what: a temporary file is left]"
    ended="$ended $status"
}

# result NAME: all ended well, some with too little and some with enough.
result() {
    case "$ended " in *' 0 '*) ;; *) bad="$bad [none was done]" ;; esac
    case "$ended " in *' 3 '* | *' 2 '* | *' 127 '*) ;; *) bad="$bad [none had too little]" ;; esac
    echo "$bad" >err
    status="of the last run $status; all:$ended"
    : >out
    [ -z "$bad" ]
    point "$1"
}

files='3 5 6 8 11 16 256' threads='1 2 3 4 16' megabytes='8 24 48 64 96 512'
if [ -n "${SL_TEST_LONG:-}" ]; then
    files="$(seq 3 40) 256"
    threads=$(seq 1 24)
    megabytes="$(seq 8 4 128) 512"
fi
for name in train resume generate looping equality gpipe schedule plan; do
    job $name
    bad= ended=
    for limit in $files; do
        try "$limit files" prlimit --nofile="$limit" "$drivers"/$command
    done
    result "$name: limits of open files"
done

# The system's administrator has no limit of threads: somebody else, who has no other threads, does. The build may be where
# only the administrator comes.
nobody=$((100000 + $$ % 50000))
mkdir here
for name in transformer looping_pipeline loss_equality gpipe; do cp "$drivers/$name" here/; done
chmod 777 .
chmod -R a+rX .
somebody="setpriv --reuid $nobody --clear-groups prlimit"
if [ "$(id -u)" = 0 ] && $somebody --nproc=1000 here/gpipe --version >/dev/null 2>&1; then
    for name in train looping equality gpipe; do
        job $name
        bad= ended=
        for limit in $threads; do
            try "$limit threads" $somebody --nproc="$limit" here/$command
        done
        result "$name: limits of threads"
    done
else
    skip 'limits of threads' 'needs root, and a folder that others reach'
fi

# group_of LIMIT DIRECTORY: a new control group with the file LIMIT, below DIRECTORY.
group_of() {
    group=$2/shardloop-$$ limit_file=$2/shardloop-$$/$1
    mkdir "$group" 2>/dev/null || return
    [ -w "$limit_file" ] && return
    rmdir "$group"
    false
}
if group_of memory.limit_in_bytes /sys/fs/cgroup/memory || group_of memory.max /sys/fs/cgroup; then
    trap 'rmdir "$group"; rm -rf "$work"' EXIT
    command='looping_pipeline --hidden 512 --layers 4 --batch 64 --microbatches 2 --mesh data=1,model=2 --steps 2 --save saved --save-every 1'
    bad= ended=
    for limit in $megabytes; do
        echo "${limit}M" >"$limit_file"
        try "a group of $limit MB" sh -c "echo \$\$ >$group/cgroup.procs && exec $drivers/$command"
    done
    result 'looping_pipeline: limits of its control group, which the kernel would enforce by SIGKILL'
else
    skip 'limits of control groups' '/sys/fs/cgroup has no controller of memory here that may be used'
fi
plan
