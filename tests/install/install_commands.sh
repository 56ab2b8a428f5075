#!/bin/sh
# install_commands.sh BUILD SOURCE DEVICE - the installed drivers, and the command shardloop before them; prints TAP.
build=$1 source=$2 device=$3
for tool in cmake strip; do
    if ! command -v $tool >/dev/null; then
        echo "1..0 # SKIP there is no $tool"
        exit
    fi
done
. "$source/tests/rigs/points.sh"

# Installed for one place, moved to another, and called by a link to the command.
DESTDIR="$work/stage" cmake --install "$build" --prefix /opt/shardloop >out 2>err && mv stage/opt/shardloop 'my programs' &&
    mkdir links && ln -s '../my programs/bin/shardloop' links/shardloop
status=$?
[ $status = 0 ]
point 'cmake --install'
bin="$work/my programs/bin"
PATH="$work/links:$bin:$PATH"

# says STATUS TEXT COMMAND...: that status, and TEXT in the first line that it prints.
says() {
    wanted=$1 text=$2
    shift 2
    timeout 60 "$@" >out 2>&1 </dev/null
    status=$?
    [ $status = "$wanted" ] && head -n 1 out | grep -qF -- "$text"
    point "$text"
}

# ---- the list ----

sed -n 's/^| `\([a-z_]*\)` | \(.*\) | [^|]* |$/\1 \2/p' "$source/README.md" | while read -r name words; do
    [ -e "$source/drivers/examples/$name.c" ] || echo "$name $words"
done >expected
shardloop >list 2>err
status=$?
sed -n ':more;N;s/\n \{20\}/ /;tmore;P;D' list | sed -n 's/^  \([a-z_]*\)  */\1 /p' >commands
[ $status = 0 ] && [ -s commands ] && diff expected commands >out
point 'shardloop lists the drivers of README.md, but for the examples, in the same words'
shardloop --help | cmp list - >out 2>err
point 'so does shardloop --help'
ls "$bin" | sort >there
{ echo shardloop && sed 's/^\([a-z_]*\) .*/shardloop-\1/' commands; } | sort | diff - there >out
point 'each is installed as shardloop-NAME'
says 0 'shardloop 0.' shardloop --version
says 2 'shardloop: "looping-pipelin": no such command (--help lists them); did you mean looping_pipeline?' \
    shardloop looping-pipelin
says 2 'shardloop: "xyzzy": no such command (--help lists them)' shardloop xyzzy

# ---- programs that it starts ----

: >err
while read -r name words; do
    for call in "shardloop $name" "shardloop-$name"; do
        $call --help 2>&1 </dev/null | head -n 1 | grep -q "^Usage: $call " || echo "$call" >>err
    done
done <commands
[ ! -s err ]
point 'usage is as each was called'
says 2 'shardloop plan: --nonsense: no such option' shardloop plan --nonsense
says 2 'shardloop-plan: --nonsense: no such option' "$bin/shardloop-plan" --nonsense
says 2 'shardloop transformer: there is no "fly"' shardloop transformer fly
says 2 'shardloop transformer train: --nonsense: no such option' shardloop transformer train --nonsense
says 0 'Usage: shardloop-transformer ' "$bin/shardloop-transformer" --help
shardloop schedule --name 1f1b --stages 3 --microbatches 4 >out 2>err
status=$?
"$build/drivers/schedule" --name 1f1b --stages 3 --microbatches 4 | cmp -s - out
point 'arguments and output go through'
cp "$bin/shardloop" lone
says 3 "shardloop: $work/plan: No such file or directory" ./lone plan
says 0 'plan (shardloop) 0.' "$build/drivers/shardloop" plan --version

mkfifo words
exec 3<>words # a program that reads them waits
shardloop plan @words >out 2>err &
child=$! tries=0
while [ "$(readlink "/proc/$child/exe")" != "$bin/shardloop-plan" ] && kill -0 $child && [ $((tries += 1)) -lt 100 ]; do
    sleep 0.1
done 2>/dev/null
kill $child
wait $child 2>/dev/null
status=$?
[ "$tries" -lt 100 ] && [ $status = 143 ]
point 'the program is in the place of the command, and gets its signals'

if "$build/drivers/looping_pipeline" --engine mpi 2>&1 </dev/null | grep -q 'needs 8 processes' && command -v mpirun >/dev/null; then
    timeout 60 "$source/tests/mpirun" 2 shardloop looping_pipeline --engine mpi --mesh data=2,model=1 --schedule single \
        --steps 1 --json >out 2>err </dev/null
    status=$?
    [ $status = 0 ] && [ ! -s err ] && grep -q '^{"step":0,' out
    point 'mpirun shardloop looping_pipeline --engine mpi'
else
    skip 'mpirun shardloop' 'there is no engine mpi'
fi

# ---- contents of the programs ----

for program in "$bin"/*; do
    strip --strip-debug -o bare "$program" && ! grep -qF -e "$build" -e "$source" bare || echo "$program"
done >out 2>err
if [ "$device" = cpu ]; then # regions for devices name their sources
    [ ! -s out ] && [ ! -s err ]
    point 'no program knows the folders of the sources and of the build'
fi
plan
