#!/bin/sh
# peak.sh DRIVERS - the peak of products is measured once and saved; a bad file of it ends no run; prints TAP.
driver=$1/transformer
. "$(dirname "$0")/../rigs/points.sh"

model='--model-dimension 16 --n-heads 4 --blocks 1 --layers-per-block 1 --sequence 16 --latent-dim 8 --rope-dim 4'
for n in 0 1 2 3 4 5 6 7 8 9; do echo "Line $n of a text that is long enough to be divided, not to be read."; done >text
train="train --mesh data=2 $model --batch 8 --data text --steps 2"
export XDG_CACHE_HOME="$work/cache"
kept=$XDG_CACHE_HOME/shardloop/peaks.json

# reached: the peak that the last call has told, and when it was measured.
reached() { sed -n 's/^parameters .* mfu [0-9.]* of \([0-9.]*\) GFLOP\/s, measured \([0-9-]*\)[, ].*/\1 \2/p' out; }

# goes_on NAME TEXT: the last call ended well, tells a peak, and has one line on stderr with TEXT; none where TEXT is "".
goes_on() {
    [ $status = 0 ] && reached | grep -qx '[0-9.]* [0-9]*-[0-9]*-[0-9]*' &&
        if [ "$2" ]; then [ "$(wc -l <err)" = 1 ] && grep -q '^transformer: ' err && grep -qF -- "$2" err; else [ ! -s err ]; fi
    point "$1"
}

call $train
goes_on 'a machine is measured' ''
[ -f "$kept" ] && [ "$(ls "$XDG_CACHE_HOME/shardloop")" = peaks.json ] && grep -q '"precision": "f32"' "$kept"
point 'and what it reaches is kept'

cp "$kept" measured
sed 's/"flops_per_second": .*/"flops_per_second": 1234e9,/; s/"date": .*/"date": "2001-02-03"/' measured >"$kept"
cp "$kept" planted
call $train
[ "$(reached)" = '1234.0 2001-02-03' ] && [ ! -s err ] && cmp -s planted "$kept"
point 'the next run takes what was kept'
call $train --json
[ $status = 0 ] && grep -q '"products_flops_per_second":1.234e12,.*"products_measured":"2001-02-03"' out
point 'and tells it in JSON'
sed 's/"usable": .*/"usable": 4097,/' planted >"$kept"
call $train
[ $status = 0 ] && [ ! -s err ] && ! reached | grep -q 2001 && [ "$(grep -c '"host"' "$kept")" = 2 ]
point 'where a run may use other cores, it is measured for these'
sed '/"usable":/d' planted >"$kept"
call $train
[ $status = 0 ] && [ ! -s err ] && ! reached | grep -q 2001
point 'and where the file does not tell'
cp planted "$kept"
call train --mesh data=2,pipe=2,tensor=2 $model --layers-per-block 2 --batch 8 --data text --steps 2 --precision bf16
[ $status != 0 ] || { [ ! -s err ] && ! reached | grep -q 2001 && [ "$(grep -c '"host"' "$kept")" = 2 ]; }
point 'another precision has its own'
cp planted "$kept"
call $train --measure-peak
[ $status = 0 ] && ! reached | grep -q 2001 && [ "$(grep -c '"host"' "$kept")" = 1 ] && ! grep -q 2001 "$kept"
point 'it is measured anew for whoever asks'

sed 's/"flops_per_second": .*/"flops_per_second": 1000,/; s/"date": .*/"date": "2001-02-03"/' measured >"$kept"
call $train --json
[ $status = 0 ] && [ ! -s err ] && ! grep -q 2001-02-03 "$kept" && tail -n 1 out | grep -q '"mfu":0\.[0-9]*,' && ! grep -q 2001-02-03 out
point 'a run that is faster than what was kept measures it again'
sed 's/"flops_per_second": .*/"flops_per_second": 1000,/; s/"date": .*/"date": "2001-02-03"/' measured >"$kept"
call $train --profile
[ $status = 0 ] && [ ! -s err ] && grep -q '"date": "2001-02-03"' "$kept" &&
    grep -q 'of 0.0 GFLOP/s, measured 2001-02-03 with slower cores than the run had, ' out
point 'not beside a profile, where a line says what is wrong'
cp measured "$kept"

# A token's operations: of the one layer's 12 x 16 x 16 weights two are left out, those of the gradients.
operations() {
    call train --mesh "$1" $model --attention gqa --batch 8 --data text --steps 2 --json $2
    tail -n 1 out | sed 's/.*"tokens_per_second":\([^,]*\),"mfu":\([^,]*\),"products_flops_per_second":\([^,]*\),.*/\1 \2 \3/' |
        awk '{ printf "%.0f\n", $2 * $3 / $1 }'
}
model=${model% --latent-dim*}
whole=$(operations data=1)
for mesh in data=1 data=2,tensor=2; do
    [ $((whole - $(operations $mesh '--freeze blocks.*'))) = $((2 * 12 * 16 * 16)) ]
    point "what is frozen is not counted, on $mesh"
done

for damage in '{' '{"peaks":[{"host":"a"}]}'; do
    printf '%s' "$damage" >"$kept"
    call $train
    goes_on "a damaged file is no reason to end: $damage" "$kept"
done
sed 's/"flops_per_second": .*/"flops_per_second": -1,/' measured >"$kept"
call $train
goes_on 'nor is a peak below nothing' 'peak 0 is damaged: what products reach is measured for this run'
call $train
goes_on 'afterwards it is whole' ''

rm -r "$XDG_CACHE_HOME" && echo >"$XDG_CACHE_HOME"
call $train
goes_on 'where nothing can be kept, a line says so' 'what products reach is not kept for other runs'
rm "$XDG_CACHE_HOME" && mkdir -p "$kept"
timeout 60 "$driver" $train >out 2>err
status=$?
[ $status = 0 ] && [ "$(wc -l <err)" = 2 ]
point 'a directory in place of the file'
rm -r "$XDG_CACHE_HOME"

echo '{"peaks":[]}' >elsewhere.json
mkdir -p "$XDG_CACHE_HOME/shardloop" && ln -s "$work/elsewhere.json" "$kept"
call $train
[ -L "$kept" ] && grep -q '"precision": "f32"' elsewhere.json
point 'a link stays one'
rm -r "$XDG_CACHE_HOME"

# No byte can be written to a regular file; bytes can be written to the pipe.
{ (trap '' XFSZ && ulimit -f 0 && "$driver" $train 2>&1; echo "status $?") | cat; } >out
[ "$(tail -n 1 out)" = 'status 0' ] && [ "$(grep -c 'not kept for other runs' out)" = 1 ]
point 'a full disk'
[ -z "$(ls "$XDG_CACHE_HOME/shardloop")" ]
point 'and nothing of a file stays behind'

call_without() {
    timeout 60 env "$@" "$driver" $train >out 2>err </dev/null
    status=$?
}
mkdir home
call_without -u XDG_CACHE_HOME HOME="$work/home"
goes_on 'in the home directory' ''
[ -f home/.cache/shardloop/peaks.json ]
point 'there is its place'
call_without -u HOME XDG_CACHE_HOME=relative
goes_on 'without a home nothing is kept, and a path that is not absolute is none' ''
[ ! -e relative ]
point 'and nothing is made there'

plan
