#!/bin/sh
# paths.sh DRIVERS - over the options of all drivers: no file is written that another option names, and no driver
# waits for a path that is no file; prints TAP.
#
# Which options take files is read from --help. One that this script does not know is a failure: it belongs in use_of.
drivers=$1
laptop=$(cd "$(dirname "$0")/../data/machines" && pwd)/laptop.json
. "$(dirname "$0")/../rigs/points.sh"

small='--layers 2 --hidden 8 --batch 8 --microbatches 2'
model='--model-dimension 16 --n-heads 2 --latent-dim 8 --rope-dim 4 --sequence 8 --layers-per-block 1 --blocks 2'

echo '{"step":0,"loss":1}' >run.jsonl
cp "$laptop" machine # a search without it takes seconds to measure

# short_run DRIVER: with options that make a short run.
short_run() {
    case $1 in
    looping_pipeline) echo "looping_pipeline --mesh data=1,model=2 $small --steps 2" ;;
    loss_equality) echo "loss_equality --mesh data=1,model=2 $small --steps 1" ;;
    'transformer train') echo "$1 --mesh data=1 $model --batch 2 --steps 2" ;;
    'transformer evaluate') echo "$1 --mesh data=1 $model --batch 2" ;;
    'transformer generate') echo "$1 --mesh data=1 $model" ;;
    report) echo "$1 $PWD/run.jsonl" ;;
    *) echo "$1" ;;
    esac
}

# use_of OPTION: the use of its file. Streams and replaced files are written, and files in the directories of
# checkpoints, of journals and of events.
use_of() {
    case $1 in
    metrics | trace | output | csv | save-options) echo stream ;;
    gradients | logits) echo replaced ;;
    save) echo saved ;;
    journal) echo journal ;;
    tensorboard) echo events ;;
    schedule-file | file | costs | compare | machine | prompts | choices | chat | @) echo text ;;
    params | resume) echo checkpoint ;;
    data | eval-data | tokenizer | model) echo data ;;
    RUN) echo run ;;
    CHECKPOINT) echo checkpoint ;;
    *) echo unknown ;;
    esac
}

# names_file VALUE: whether an option that --help shows with it takes a file.
names_file() {
    case $1 in
    FILE | DIR | PATH | DATA | TRACE) echo yes ;;
    FOLDER) echo no ;; # no file in it has a name
    N | X | TEXT | NAME | COMMAND | KEY | MESH | SPEC | BYTES | COORDINATE@ACTION | COORDINATE@STEP | *=* | *,* | *'|'* | gather) echo no ;;
    *) echo unknown ;;
    esac
}

# options DRIVER: its options that take files, a line each; arguments that are no options; and @.
options() {
    "$drivers/"$1 --help all | sed -n '/^Arguments:/,/^$/s/^  \([A-Z][A-Z]*\)  .*/\1/p'
    "$drivers/"$1 --help all | sed -n 's/^  --\([a-z0-9-]*\) \([^ ][^ ]*\).*/\1 \2/p' | while read -r option value; do
        case "$option $(names_file "$value")" in
        adapters\ * | save-adapters\ *) ;; # directories of files with PEFT's names: driver_foreign
        *\ yes) echo "$option" ;;
        *\ no) ;;
        *) echo "unknown-value-$value" ;;
        esac
    done
    echo @
}

# argument DRIVER OPTION PATH
argument() {
    case "$1 $2" in
    *' @') echo "@$3" ;;
    *' RUN' | *' CHECKPOINT') echo "$3" ;;
    'looping_pipeline data') echo "--data fashion-mnist:$3" ;;
    *' save-options') echo "--plan search --machine $work/machine --save-options $3" ;;
    *) echo "--$2 $3" ;;
    esac
}

# run DRIVER ARGUMENT...: leaves status, out and err.
run() {
    line=$(short_run "$1")
    shift
    timeout -s KILL 20 "$drivers/"$line "$@" >out 2>err </dev/null
    status=$?
}

one_line() {
    [ "$(wc -l <err)" = 1 ] && grep -q "^$driver: " err
}

# refused TEXT: the last run was refused by one line with TEXT in it.
refused() {
    [ $status = 2 ] && [ ! -s out ] && one_line && grep -qF -- "$1" err
}

# fresh: the file t, by four names, and a directory with it.
fresh() {
    rm -rf t link hard new dangling dir elsewhere
    mkdir dir elsewhere
    for _ in 1 2 3 4 5 6 7 8; do echo '# a comment among options, a text to train on, no schedule'; done >t
    cp t kept
    ln -s t link
    ln t hard
    ln -s new dangling
}

is_written() {
    case $(use_of "$1") in stream | replaced | saved | journal | events) true ;; *) false ;; esac
}

# ---- one file for two options ----

# some_of WORD...: all WORDs for a driver's first pair of options; for each later pair a single one, the next each time,
# because one function compares the names of all pairs. With SL_TEST_LONG all WORDs.
turn=0
some_of() {
    if [ "$first${SL_TEST_LONG:-}" ]; then
        printf '%s\n' "$@"
    else
        shift $((turn % $#))
        printf '%s\n' "$1"
    fi
}

# same_file DRIVER WRITTEN OTHER: t by its names.
same_file() {
    fresh
    some_of 't t' 'elsewhere/../t ./t' 'link t' 't link' 'hard t' >names
    while read -r names; do
        run "$1" $(argument "$1" "$2" ${names% *}) $(argument "$1" "$3" ${names#* })
        refused "name the same file, " && cmp -s t kept || return 1
    done <names
}

# same_new_file DRIVER WRITTEN OTHER: one that is not there yet.
same_new_file() {
    fresh
    for name in $(some_of ./new elsewhere/../new dangling); do
        run "$1" $(argument "$1" "$2" "$name") $(argument "$1" "$3" new)
        refused "name the same file, " && [ ! -e new ] || return 1
    done
}

# file_of DIRECTORY PATH: both options' arguments are refused, and the file stays.
file_of() {
    run "$driver" $1 $2
    refused 'one of the files of ' && cmp -s t kept
}

# in_directory DRIVER WRITTEN OTHER FILE NEW: FILE, which is there, or NEW of the directory that OTHER reads.
in_directory() {
    fresh
    ln t "dir/$4"
    ln -s "dir/$4" inner
    for name in $(some_of "dir/$4" t inner "dir/$5"); do
        file_of "$(argument "$1" "$3" dir)" "$(argument "$1" "$2" "$name")" || return 1
    done
    rm inner
}

for driver in looping_pipeline loss_equality schedule plan report diff sharding gpipe 'transformer train' 'transformer evaluate' \
    'transformer generate' 'tokens shards'; do
    list=$(options "$driver")
    strange=
    for option in $list; do
        echo "$option $driver" >>all
        [ "$(use_of "$option")" != unknown ] || strange="$strange $option"
    done
    status=0
    [ -z "$strange" ]
    point "$driver: what takes a file is known here$strange"
    tested= first=yes
    for written in $list; do
        is_written "$written" || continue
        tested="$tested $written "
        for other in $list; do
            case $tested in *" $other "*) continue ;; esac # the pair has come the other way round
            uses="$(use_of "$written") $(use_of "$other")"
            case "$driver $other $uses" in
            *' saved checkpoint') ;; # a run goes on from its own checkpoints
            *' saved journal' | *' journal saved' | *' events saved' | *' events journal' | *' saved events' | *' journal events')
                fresh
                run "$driver" --$written dir/ --$other dir
                refused 'name the same directory, '
                point "$driver: --$written and --$other are one directory"
                ;;
            *' saved '* | *' saved' | *' journal '* | *' journal' | *' events '* | *' events') # a file of the directory
                case $uses in
                *saved*) folder=save name=step-00000003.safetensors ;;
                *journal*) folder=journal name=coordinate-00.journal ;;
                *) folder=tensorboard name=events.out.tfevents.1 ;;
                esac
                [ "$written" = $folder ] && file=$other || file=$written
                if [ "$driver $file" != 'looping_pipeline data' ]; then
                    fresh
                    ln t dir/$name
                    file_of "--$folder dir" "$(argument "$driver" "$file" dir/$name)" &&
                        file_of "--$folder dir" "$(argument "$driver" "$file" t)"
                    point "$driver: --$folder is the directory of --$file"
                fi
                if [ "$(use_of "$file")" = data ]; then
                    fresh
                    run "$driver" --$folder dir/ $(argument "$driver" "$file" dir)
                    refused 'name the same directory, '
                    point "$driver: --$folder and --$file are one directory"
                fi
                ;;
            *)
                if [ "$driver $other" != 'looping_pipeline data' ]; then
                    same_file "$driver" "$written" "$other"
                    point "$driver: --$written and --$other are one file"
                fi
                if is_written "$other"; then
                    same_new_file "$driver" "$written" "$other"
                    point "$driver: --$written and --$other are one new file"
                fi
                case $uses in
                *' data' | *' checkpoint' | *' run')
                    case $uses in
                    *' run') in_directory "$driver" "$written" "$other" metrics.jsonl trace.json ;;
                    *) in_directory "$driver" "$written" "$other" step-00000003.safetensors step-00000004.safetensors ;;
                    esac
                    point "$driver: --$written is one of --$other's files"
                    ;;
                esac
                first= turn=$((turn + 1))
                ;;
            esac
        done
    done
    # Output goes to a file, too. The shell has opened it.
    for other in $list; do
        fresh
        path=t
        [ "$driver $other" != 'looping_pipeline data' ] || { ln t dir/t && path=dir; }
        [ "$(use_of "$other")" != saved ] || { ln t dir/step-00000001.safetensors && path=dir; }
        [ "$(use_of "$other")" != events ] || { ln t dir/events.out.tfevents.2 && path=dir; }
        [ "$(use_of "$other")" != journal ] || { ln t dir/coordinate-01.journal && path=dir; }
        timeout -s KILL 20 "$drivers/"$(short_run "$driver") $(argument "$driver" "$other" $path) >>t 2>err </dev/null
        status=$?
        : >out
        [ $status = 2 ] && one_line && grep -q stdout err && cmp -s t kept
        point "$driver: stdout and --$other are one file"
    done
done

# Different files with like names.
driver=looping_pipeline
fresh
run "$driver" --save dir --metrics dir/metrics --trace dir/trace --gradients dir/step-1 &&
    [ $status = 0 ] && run "$driver" --steps 3 --resume dir --save dir --metrics dir/metrics && [ $status = 0 ]
point 'records lie beside the checkpoints'
run "$driver" --metrics /dev/null --trace /dev/null
[ $status = 0 ] && [ ! -s err ]
point 'devices may be named twice'
driver='transformer train'
fresh
run "$driver" --data t --metrics elsewhere/t --save elsewhere
[ $status = 0 ] && cmp -s t kept
point 'another file of the same name'
run "$driver" --metrics /usr/share/common-licenses/metrics
refused 'one of the files of --data /usr/share/common-licenses'
point 'the data that are read without an option'

# ---- paths that are no files ----

mkfifo fifo
mkdir empty
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")' 2>/dev/null

# tried KIND DRIVER OPTION PATH: starts it in the background; nothing of the kind may take 10 seconds.
tried() {
    cases=$((cases + 1))
    {
        timeout -s KILL 10 "$drivers/"$(short_run "$2") $(argument "$2" "$3" "$4") >"out.$cases" 2>"err.$cases" </dev/null
        echo "$? $1 $3 $2" >"case.$cases"
    } &
    [ $((cases % 20)) != 0 ] || wait
}

# judge: reads these cases; a stream may go to a device.
judge() {
    wait
    for i in $(seq "$cases"); do
        read -r status kind option driver <"case.$i"
        mv "out.$i" out
        mv "err.$i" err
        wanted=2
        [ "$kind $(use_of "$option")" != 'device stream' ] || wanted=0
        [ "$status" = $wanted ] && { [ $wanted = 0 ] || one_line; }
        point "$driver: --$option is a $kind"
    done
}

cases=0
for kind in fifo device socket directory; do
    [ "$kind" != socket ] || [ -e socket ] || continue
    while read -r option driver; do
        case "$kind $option" in
        fifo\ *) mkfifo "path.$cases" ;; # one of its own: a case must not be the other end of another one
        device\ *) ln -s /dev/zero "path.$cases" ;;
        socket\ *) ln socket "path.$cases" ;;
        'directory save' | 'directory journal' | 'directory tensorboard') continue ;; # these options take a directory
        directory\ *) ln -s empty "path.$cases" ;;
        esac
        tried "$kind" "$driver" "$option" "path.$cases"
    done <all
done
judge
driver=looping_pipeline
for path in fifo /dev/zero empty; do
    rm -rf dir
    mkdir dir
    ln -s "../$path" dir/step-00000001.safetensors
    [ "$path" != /dev/zero ] || ln -sf /dev/zero dir/step-00000001.safetensors
    run "$driver" --resume dir
    refused 'dir/step-00000001.safetensors: '
    point "a checkpoint that is $path"
done

# ---- pipes that have another end ----

"$drivers/schedule" --format csv --name 1f1b >csv
cat csv >fifo &
"$drivers/schedule" --file fifo --format csv >out 2>err
status=$?
[ $status = 0 ] && [ ! -s err ] && cmp -s out csv
point 'a schedule comes from a FIFO'
cat csv | "$drivers/schedule" --file /dev/stdin --format csv >out 2>err
status=$?
[ $status = 0 ] && [ ! -s err ] && cmp -s out csv
point 'a schedule comes from stdin'
echo '--name 1f1b --format csv' >fifo &
"$drivers/schedule" @fifo >out 2>err
status=$?
[ $status = 0 ] && [ ! -s err ] && cmp -s out csv
point 'options come from a FIFO'
cat fifo >got &
run looping_pipeline --metrics fifo
wait
[ $status = 0 ] && [ ! -s err ] && [ "$(grep -c '^{"step":[01],' got)" = 2 ]
point 'metrics go to a FIFO'
run looping_pipeline --json --metrics /dev/stderr
[ $status = 0 ] && cmp -s out err
point 'metrics go to stderr'

plan
