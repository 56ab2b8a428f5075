#!/bin/sh
# sharding.sh DRIVERS - vector addition on a mesh: results, drawings and bad input; prints TAP.
driver=$1/sharding
. "$(dirname "$0")/../rigs/points.sh"

# ---- the article's two examples ----

cat >devices <<'END'
mesh x=2,y=4, coordinates
  0 (x=0, y=0)
  1 (x=0, y=1)
  2 (x=0, y=2)
  3 (x=0, y=3)
  4 (x=1, y=0)
  5 (x=1, y=1)
  6 (x=1, y=2)
  7 (x=1, y=3)

END
cat >sharded <<'END'
c: 2 x 4, spec x,y; blocks of 1 x 1
      0:1   1:2   2:3   3:4
    ┌─────┬─────┬─────┬─────┐
0:1 │  0  │  1  │  2  │  3  │
    ├─────┼─────┼─────┼─────┤
1:2 │  4  │  5  │  6  │  7  │
    └─────┴─────┴─────┴─────┘
c = [[0, 2, 4, 6], [8, 10, 12, 14]]

END
cat >gathered <<'END'
gathered over x: 2 x 4, spec -,y; blocks of 2 x 1
      0:1   1:2   2:3   3:4
    ┌─────┬─────┬─────┬─────┐
0:2 │ 0,4 │ 1,5 │ 2,6 │ 3,7 │
    └─────┴─────┴─────┴─────┘
gathered over x = [[0, 2, 4, 6], [8, 10, 12, 14]]

c: 2 x 4, spec -,-; blocks of 2 x 4
            0:4
    ┌─────────────────┐
0:2 │ 0,1,2,3,4,5,6,7 │
    └─────────────────┘
c = [[0, 2, 4, 6], [8, 10, 12, 14]]

END
call --example addition
holds 'the arguments of the addition' 'a = [[0, 1, 2, 3], [4, 5, 6, 7]]' 'b = [[0, 1, 2, 3], [4, 5, 6, 7]]'
head -n 10 out | cmp -s - devices && tail -n 9 out | cmp -s - sharded
point 'coordinates, and the sum left sharded'
call --example gather
[ $status = 0 ] && tail -n 14 out | cmp -s - gathered
point 'the sum gathered along x, then along y'
call
holds 'both by default' 'c: 2 x 4, spec x,y; blocks of 1 x 1' 'c: 2 x 4, spec -,-; blocks of 2 x 4'
grep -q "$(printf '\033')" out
[ $? = 1 ]
point 'no colours in a file'

call --example gather --json
holds 'as JSON' \
    '{"mesh":{"x":2,"y":4},"coordinates":[{"x":0,"y":0},{"x":0,"y":1},{"x":0,"y":2},{"x":0,"y":3},{"x":1,"y":0},' \
    '"array":"a","shape":[2,4],"spec":"x,y","shards":{"0":[[0,1],[0,1]],"1":[[0,1],[1,2]],' \
    '"array":"gathered over x","shape":[2,4],"spec":"-,y","shards":{"0":[[0,2],[0,1]],"1":[[0,2],[1,2]],' \
    '"array":"c","shape":[2,4],"spec":"-,-","shards":{"0":[[0,2],[0,4]],"1":[[0,2],[0,4]],' \
    '"values":[[0,2,4,6],[8,10,12,14]]}' '{"example":"gather","equal":true}'
[ "$(wc -l <out)" = 7 ] && ! grep -qv '^{.*}$' out
point 'an object a line and nothing else'
mv out first && call --example gather --format json --output second
[ $status = 0 ] && [ ! -s out ] && cmp -s first second
point 'the same in a file'

call --format svg
holds 'as SVG' '<svg xmlns=' '</svg>' '>0,1,2,3,4,5,6,7</text>' '>0,4</text>' '>c: 2 x 4, spec x,y; blocks of 1 x 1</text>'
# 8 boxes each for a, b, c; a, b, a + b; 4 for the columns; 1 for all of c.
[ "$(grep -c '<rect x=' out)" = 53 ]
point 'a box a block'

# ---- other meshes, shapes and specs ----

call --mesh x=1,y=2
holds 'a smaller mesh' 'blocks of 2 x 2' '│  0  │  1  │' 'c = [[0, 2, 4, 6], [8, 10, 12, 14]]'
call --mesh x=1,y=2 --example addition --out-spec -,y
holds 'an out-spec without an axis of one' 'c: 2 x 4, spec -,y' 'c = [[0, 2, 4, 6], [8, 10, 12, 14]]'
call --mesh data=4,model=2 --shape 8x6 --example gather --json
holds 'axes of other names' '"spec":"data,model"' '"array":"gathered over data"' '"values":[[0,2,4,6,8,10],[12,' \
    '"equal":true'
call --mesh a=2,b=2,c=2 --shape 8 --in-spec a+c+b --example gather --json
holds 'a dim over three axes: the fastest is gathered first' '"gathered over b","shape":[8],"spec":"a+c"' \
    '"gathered over c","shape":[8],"spec":"a"' '"array":"c","shape":[8],"spec":"-"' '"equal":true'
call --shape 4,16 --in-spec 'x,y*2' --example gather --json
holds 'segments' '"1":[[0,2],[2,4,10,12]]' '"spec":"-,y*2"' '"spec":"-,-"' '"equal":true'
call --in-spec -,- --example gather --json
holds 'nothing to gather' '"array":"c","shape":[2,4],"spec":"-,-"' '"equal":true'
[ "$(wc -l <out)" = 5 ]
point 'and no step without a gather'
call --mesh x=1 --shape 3
holds 'one coordinate' 'c = [0, 2, 4]'
call --shape 100,100 --mesh x=2,y=2
holds 'values of a large array are left to JSON' 'c = 10000 elements'
call --mesh pp=2,dp=2,tp=2 --shape 8,512,2048 --in-spec pp,tp,dp --example layout
holds 'a layout alone' '4:8, 256:512 │     5     │     7     │' 'blocks of 4 x 256 x 1024'
call --mesh pp=2,dp=2,tp=2 --shape 80000,51200,2048 --in-spec pp,tp,dp --example layout --json
holds 'of an array that nobody has' '"7":[[40000,80000],[25600,51200],[1024,2048]]'
call --checked --timeout 5 --engine local
holds 'checked'  '[[0, 2, 4, 6], [8, 10, 12, 14]]'

# ---- figures ----

# figure NAME BOXES TEXT...: drawn in three formats; BOXES blocks in all.
figure() {
    drawn=$1 boxes=$2
    shift 2
    call --example "$drawn" --format svg
    [ $status = 0 ] && [ ! -s err ] && [ "$(grep -c '<rect x=' out)" = "$boxes" ]
    point "$drawn: a box a block"
    call --example "$drawn" --json
    holds "$drawn: who holds what" '"example":"layout"'
    call --example "$drawn"
    holds "$drawn: as text" "$@"
}
figure data 10 'x, the batch: 8 x 16, spec data,-; blocks of 2 x 16' 'kernel with FSDP: 16 x 8, spec -,data'
figure dense 29 'x: 8 x 16, spec data,tensor; blocks of 4 x 4' 'y, the sums over tensor scattered: 8 x 8, spec data,tensor'
figure norm 22 'gamma: 16, spec tensor; blocks of 4' '│  0,4  │  1,5  │  2,6  │  3,7  │'
figure rotary 20 'spec -,tensor*2; blocks of 8 x 4' '│   0   │   1   │   2   │   3   │   0   │   1   │   2   │   3   │'
figure stacked 9 'kernels of 8 layers: 8 x 4 x 8, spec pipe,-,-; blocks of 2 x 4 x 8'
figure mlp 8 'a, by columns: 8 x 16, spec -,tensor' 'b, by rows: 16 x 8, spec tensor,-'
figure zero 15 'gradients in stages 0 and 1: 8 x 16, spec -,-' 'parameters in stage 3, FSDP: 8 x 16, spec -,data; blocks of 8 x 4'
figure dimensions 10 'kernels of 4 stages: 4 x 8 x 8, spec pipe,-,tensor'
call --example mlp --mesh data=2,tensor=4
holds 'a figure on another mesh' 'a, by columns: 8 x 16, spec -,tensor; blocks of 8 x 4' '│  0,4  │  1,5  │  2,6  │  3,7  │'
# The specs are those of the transformer's parameters on the figure's mesh.
"$1/transformer" train --mesh data=2,tensor=4 --show-shardings --json >specs 2>err
for text in 'dense kernel.with.FSDP mlp.up.kernel' 'dense bias mlp.up.bias' 'norm gamma norm1.gamma'; do
    set -- $text
    spec=$(grep -m 1 "\.$3\"" specs | sed 's/.*"spec":"\([^"]*\)".*/\1/')
    call --example "$1" --json
    grep "\"array\":\"$2\"" out | grep -q "\"spec\":\"${spec:--}\""
    point "$1: the spec of $3 is ${spec:--}"
done
grep -m 1 '\.k_rope\.kernel"' specs | grep -q '"spec":"tensor\*2,data"'
point 'rotary: rows in two halves, over tensor'

# ---- refusals: one line each ----

refuses_with 2 "--example mlp: the mesh has no axis 'tensor'; the figure's is tensor=2" --example mlp --mesh x=2
refuses_with 2 '--shape: is read only with --example all or addition or gather or layout' --example norm --shape 2,3

refuses_with 2 "a: spec 'x,y': dim 0, of size 3, does not divide by 2 shards" --shape 3,4
refuses_with 2 "a: spec 'x,y': dim 0, of size 2, does not divide by 3 shards" --mesh x=3,y=4
refuses_with 2 "a: spec 'x,z': the mesh x=2,y=4 has no axis 'z'" --in-spec x,z
refuses_with 2 "a: spec 'x,x' names the axis 'x' twice" --in-spec x,x
refuses_with 2 "a: spec 'x,y,-' has 3 dims, the array has 2" --in-spec x,y,-
refuses_with 2 "--in-spec: spec: '' in 'x,'" --in-spec x,
refuses_with 2 "c: spec '-,z': the mesh x=2,y=4 has no axis 'z'" --out-spec -,z
refuses_with 2 "c: the returned blocks differ along the axis 'y', which the out-spec 'x,-' leaves out" --out-spec x
refuses_with 2 "differ along the axis 'x', which the out-spec '-,-' leaves out" --out-spec -
refuses_with 2 "c: every coordinate returns 2 x 4, the out-spec 'x,y' needs blocks of 1 x 1" --example gather --out-spec x,y
refuses_with 2 "c: every coordinate returns 1 x 2, the out-spec 'y,x' needs blocks of 2 x 1" --mesh x=4,y=2 --shape 4,4 \
    --out-spec y,x
refuses_with 1 "c: element 2 is 8, but a + b is 4 there: under the out-spec 'y,x' blocks lie elsewhere" --mesh x=2,y=2 \
    --out-spec y,x --example addition
for shape in 2,y 0,4 2,,4 -2,4 2,4, 1,1,1,1,1,1,1 9999999999; do
    refuses_with 2 "--shape: \"$shape\" is not 1 to 6 sizes" --shape "$shape"
done
refuses_with 2 '--shape: 4000,4000 has more than 4194304 elements' --shape 4000,4000
refuses_with 2 '--format: "png" is not one of text|svg|json' --format png
refuses_with 2 '--example: "both" is not one of' --example both
refuses_with 2 '--output: nowhere/out: No such file' --output nowhere/out
refuses_with 2 'mesh: the size in' --mesh x=0
refuses_with 2 '--nonsense: no such option' --nonsense
refuses_with 3 '/dev/full: ' --output /dev/full
for option in '' --json '--format svg'; do
    fills_stdout $option
done
call --help
holds 'help' 'Usage: sharding' '--in-spec SPEC'
call --version
holds 'version' 'sharding (shardloop) '

plan
