#!/bin/sh
# diff.sh DRIVERS - two checkpoints compared: equal ones, differences and their places, refusals; prints TAP.
drivers=$1
[ ! -w /dev/shm ] || export TMPDIR="${TMPDIR:-/dev/shm}" # in memory, where syncing is short
. "$(dirname "$0")/../../../rigs/points.sh"
driver=$drivers/diff

# ---- checkpoints ----

small='--mesh data=1,model=1 --layers 2 --hidden 8 --batch 8 --microbatches 2 --schedule single'
train() {
    "$drivers/looping_pipeline" $small "$@" >/dev/null 2>err || cat err
}
train --steps 2 --save a --save-every 1
train --steps 2 --save again
train --steps 2 --save other --lr 0.5 --mesh data=2,model=1
train --steps 3 --save later
train --steps 2 --save wide --hidden 16

last=' differ, 0 are only in A, 0 only in B: '
call a again
[ $status = 0 ] && [ ! -s err ] && grep -q "^A: a/step-00000002.safetensors, step 2$" out && grep -q "^[0-9]* tensors are equal, 0$last""equal$" out &&
    ! grep -q ' of ' out
point 'the same run twice'
call a again --all
[ $status = 0 ] && grep -q '^input_dense.bias  *0 of 8$' out
point 'tensors that are equal, too'
call a a/step-00000001.safetensors
[ $status = 1 ] && [ ! -s err ] && grep -q '^step: 2 | 1$' out && grep -q "^0 tensors are equal, [0-9]*$last""different$" out
point 'a directory and a file: two steps'
call a other
[ $status = 1 ] && [ ! -s err ] && grep -q '^--lr: .* | 0.5$' out && grep -q '^--mesh: data=1,model=1 | data=2,model=1$' out && ! grep -q '^step' out
point 'options of the runs'
call a later --json
[ $status = 1 ] && [ ! -s err ] && [ "$(wc -l <out)" = 1 ] && grep -q '"equal":false' out && grep -qF '"step":["2","3"]' out
point 'one object of JSON'
call a wide
[ $status = 1 ] && grep -q '^config.hidden: 8 | 16$' out && grep -q '^input.*  F32 \[[0-9,]*8\] | F32 \[[0-9,]*16\]$' out
point 'other shapes'

# Checkpoints under other names, or resumed and saved again, are equal, and so are the settings.
cp a/step-00000002.safetensors copy
call copy a
[ $status = 0 ]
point 'a copy under another name'

# ---- values that are known ----

# file NAME HEADER DATA: a safetensors file; DATA as printf takes it.
file() {
    text=$2
    while [ $((${#text} % 8)) != 0 ]; do text="$text "; done
    {
        printf "\\$(printf %03o $((${#text} % 256)))\\$(printf %03o $((${#text} / 256)))\0\0\0\0\0\0"
        printf %s "$text"
        printf "$3"
    } >"$1"
}
one='\000\000\200\077' two='\000\000\000\100' half='\000\000\000\077' minus_zero='\000\000\000\200' zero='\0\0\0\0'
header='{"x":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}'
file x "$header" "$one$one$two$two$zero$half"
file y "$header" "$one$one$two$one$minus_zero$one"
call x y
[ $status = 1 ] && [ ! -s err ] &&
    grep -q '^x       3 of 6               1 at \[1,0\]                0.5 at \[1,0\]              0\.349$' out
point 'the largest difference, the largest relative one, and the norm'
call --json x y
grep -qF '{"name":"x","a":{"dtype":"F32","shape":[2,3]},"b":{"dtype":"F32","shape":[2,3]},"equal":false,"values":6,"differ":3,"largest":1.0,"largest_at":[1,0],"relative":0.5,"relative_at":[1,0],"norm":0.34' out
point 'the same as JSON'
f16='{"x":{"dtype":"F16","shape":[3],"data_offsets":[0,6]}}' # values of F32 and BF16 that are not finite are refused
file x16 "$f16" '\000\074\000\074\000\100'
file lost "$f16" '\000\074\000\176\000\100'
call x16 lost
[ $status = 1 ] && grep -q '^x       1 of 3               inf at \[1\]  *inf at \[1\]  *inf$' out && call lost lost && [ $status = 0 ]
point 'what is no number is as far away as can be, but from itself'
file minus "$header" "$one$one$two$two$minus_zero$half"
call x minus
[ $status = 1 ] && grep -q '^x       1 of 6               0 at \[0,0\]                0 at \[0,0\]                0$' out
point 'zeros with two signs are not the same bits'

bf16='{"x":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}'
file x "$bf16" '\200\077\000\100'
file y "$bf16" '\200\077\001\100'
call x y
[ $status = 1 ] && grep -q '^x       1 of 2               0\.0156 at \[1\] ' out
point 'bf16'
file f32 "{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}" "$one$two"
call x f32
[ $status = 1 ] && grep -q '^x       BF16 \[2\] | F32 \[2\]$' out && grep -q '^x       0 of 2$' out
point 'the same numbers in two types'
file scalar '{"x":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}' "$one"
file more '{"x":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"y":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}}' "$two"
call scalar more
[ $status = 1 ] && grep -q '^x       1 of 1               1 at \[\] ' out && [ "$(sed -n '/^only in B$/,/^$/p' out | sed -n 2p)" = 'y  F32 [0]' ]
point 'a number, and a name that only one has'
call more scalar
[ $status = 1 ] && grep -q '^only in A$' out && grep -q ', 1 are only in A, 0 only in B: different$' out
point 'the other way round'
call more more --all
[ $status = 0 ] && grep -q '^y       0 of 0$' out
point 'a tensor of no values'

# ---- refusals ----

refuses '1 arguments: two checkpoints, or two journals, are compared' a
refuses '3 arguments: two checkpoints, or two journals, are compared' a a a
refuses '0 arguments: two checkpoints, or two journals, are compared'
refuses 'nowhere' a nowhere
refuses '--nonsense: no such option' --nonsense a a
mkdir empty
refuses 'empty' a empty
echo text >text
refuses 'text' a text
head -c 1000 copy >cut
refuses 'cut' a cut
cp copy damaged
printf '\377' | dd of=damaged bs=1 seek=$(($(wc -c <damaged) - 5)) conv=notrunc 2>/dev/null
refuses 'damaged: ' a damaged
refuses 'damaged: ' damaged a
file infinite "$header" "$one$one$two$two$zero\000\000\200\177"
refuses 'tensor x: value 5 is not finite' infinite a

# ---- one side alone ----

train --steps 8 --save kept --save-every 1 --keep 3
[ "$(ls kept | tr '\n' ' ')" = 'step-00000006.safetensors step-00000007.safetensors step-00000008.safetensors ' ]
point '--keep 3 keeps three checkpoints'
train --steps 4 --save two --save-every 1
[ "$(ls two | wc -l)" = 2 ]
point 'and two by default'
call --list kept
parameters=$("$drivers/looping_pipeline" $small --steps 1 --json 2>/dev/null | grep -o '^{"parameters":[0-9]*' | sed 's/.*://')
[ $status = 0 ] && awk -v parameters="$parameters" 'NR > 1 { good += $1 == 10 - NR && $3 == parameters && $4 == "classifier" && $5 == "data=1,model=1" && $6 == 8 } END { exit good != 3 || NR != 4 }' out
point 'a directory of checkpoints: steps, parameters, model and run'
call --list kept --json
[ $status = 0 ] && [ "$(wc -l <out)" = 3 ] && head -n 1 out | grep -q "^{\"file\":\"kept/step-00000008.safetensors\",\"step\":8,\"bytes\":[0-9]*,\"parameters\":$parameters,"
point 'in JSON, an object a line'
call --describe kept
[ $status = 0 ] && grep -qx "# classifier, $parameters parameters" out && grep -qx -- '- hidden: 8' out && grep -qx -- '- lr: 0.001' out &&
    grep -qx -- '- steps: 8, of 64 samples in all' out && grep -qx -- '- optimizer: adamw' out
point "a model's card"
call --describe kept/step-00000007.safetensors --json
[ $status = 0 ] && grep -q '"steps":"7",.*"sizes":{.*"hidden":"8".*"options":{.*"mesh":"data=1,model=1"' out
point 'in JSON, of one file'
refuses '--list: 2 arguments: it is told of one' --list kept a
refuses '--describe: 0 arguments: it is told of one' --describe
refuses '--all: is read only without --list' --list --all kept
refuses '--describe: is read only without --list' --list --describe kept
refuses 'cut' --describe cut
refuses 'infinite: no checkpoint, but values from elsewhere' --describe infinite
refuses 'empty' --list empty
"$drivers/looping_pipeline" $small --steps 1 --keep 3 >out 2>err
status=$?
[ $status = 2 ] && grep -q -- '--keep: is read only with --save$' err
point '--keep without --save'
"$drivers/looping_pipeline" $small --steps 1 --save kept --keep 0 >out 2>err
status=$?
[ $status = 2 ] && grep -q -- '--keep: "0" is not an integer from 1' err
point '--keep 0'

for arguments in '--list kept' '--describe kept' '--list kept --json' 'a later' 'a later --json' 'a again'; do fills_stdout $arguments; done
plan
