#!/bin/sh
# offload.sh DRIVERS - a model whose state is four times the memory that its process may have trains, with the same bits;
# prints its price. If an offload file fails, the run ends with one line, and saved checkpoints stay. Prints TAP.
drivers=$1
. "$(dirname "$0")/../../rigs/points.sh"
driver=$drivers/looping_pipeline
all='--offload optimizer,activations,weights'

# value KEY FILE: of the last line of JSON.
value() { grep -o "\"$1\":[0-9.]*" "$2" | tail -n 1 | cut -d: -f2; }
losses() { grep -o '"loss":[^,]*' "$1"; }

# ---- four times the memory ----

set -- --mesh data=1,model=1 --schedule looping --layers 32 --hidden 256 --expansion 4 --batch 64 --microbatches 8 \
    --dropout 0 --steps 4 --json
call "$@" --dry-run
state=$(($(value parameters out) + $(value gradients out) + $(value optimizer out))) kept=$(value kept out)
limit=$((state / 4))
call "$@" --save near_saved
mv out near
[ $status = 0 ] && [ "$(value peak_bytes near)" -gt "$state" ]
point "a state of $((state / 1000000)) MB: $(value peak_bytes near) bytes at most"
driver=prlimit
call --data=$limit "$drivers/looping_pipeline" "$@"
[ $status = 2 ] && [ "$(wc -l <err)" = 1 ] && grep -q -- "--offload optimizer,activations,weights ([0-9.]* MB)" err
point "in $((limit / 1000000)) MB it is refused, and what would help is named"
call --data=$limit "$drivers/looping_pipeline" "$@" $all --save far_saved
mv out far
[ $status = 0 ] && [ "$(losses near)" ] && [ "$(losses near)" = "$(losses far)" ] &&
    cmp -s near_saved/step-00000004.safetensors far_saved/step-00000004.safetensors
point 'offloaded it trains there, with the same bits'
[ "$(value peak_bytes far)" -le $limit ]
point "at most $(value peak_bytes far) bytes, in memory or of mapped files"

# What a step moves: the optimizer's state, half of the whole, both ways; values for forward and for backward, and back
# when they have changed; gradients away; and saved activations, both ways.
read_bytes=$((state + kept)) written_bytes=$((state + kept))
rate() { LC_ALL=C dd "$@" bs=1M count=64 2>&1 | awk 'END { sub(/.*copied, /, ""); print 67108864 / $1 }'; }
rate if=/dev/zero of=disk >written # the second time its blocks are there, as those of the offload files are
writes=$(rate if=/dev/zero of=disk conv=notrunc) reads=$(rate if=disk of=/dev/null)
rm -f disk written
echo "$(value median_ms near) $(value median_ms far) $read_bytes $written_bytes $reads $writes" | awk '{
    moving = 1e3 * ($3 / $5 + $4 / $6)
    printf "# a step: %.0f ms, offloaded %.0f ms; %.0f MB read at %.1f GB/s and %.0f MB written at %.1f GB/s take %.0f ms\n",
        $1, $2, $3 / 1e6, $5 / 1e9, $4 / 1e6, $6 / 1e9, moving }'

# ---- files that fail ----

driver=$drivers/looping_pipeline
set -- --mesh data=1,model=2 --layers 8 --hidden 64 --batch 16 --microbatches 4 --loops 4
(trap '' XFSZ && ulimit -f 1 && exec timeout 60 "$driver" "$@" $all --steps 1 >out 2>err)
status=$?
[ $status = 3 ] && [ "$(wc -l <err)" = 1 ] && grep -q 'no room for a file of [0-9]* bytes' err
point 'a full disk'

# begin ARGUMENT...: a run that goes on in the background until it is ended, and has saved something.
begin() {
    "$driver" "$@" --steps 100000000 --log-every 100000 --save saved --save-every 5 >out 2>err </dev/null &
    run=$!
    for wait in $(seq 1000); do
        [ -e saved/step-00000005.safetensors ] && break
        sleep 0.02
    done
}

# ends STATUS
ends() {
    wait $run
    status=$?
    [ $status = "$1" ]
}

mkdir there
begin "$@" $all --offload-dir there
rmdir there
[ -e saved/step-00000005.safetensors ] && kill -TERM $run && ends 0 && [ "$(ls saved)" ]
point "a directory that vanishes: the files stay until the run ends"
rm -rf saved

begin "$@" --offload optimizer
for wait in $(seq 1000); do
    [ -d "/proc/$run/fd" ] || break
    for file in /proc/$run/fd/*; do
        case $(readlink "$file") in *'(deleted)') true >"$file" ;; esac # the run may have ended: ":" would end the shell
    done 2>/dev/null
    sleep 0.02
done
ends 3 && [ "$(tail -n 1 err | grep -c 'the offload file \(cannot be read at byte [0-9]*: it ends there\|has 0 bytes, not the [0-9]* that it was made with\)')" = 1 ]
point 'a file that becomes short ends the run'
step=$(ls saved | sed -n 's/^step-0*\([0-9]*\)\..*/\1/p' | sort -n | tail -n 1)
call "$@" $all --resume saved --steps $((step + 1)) --json
[ $status = 0 ] && [ "$(grep -c '"loss"' out)" = 1 ]
point 'and what was saved is there'
plan
