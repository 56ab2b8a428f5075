#!/bin/sh
# readme.sh BUILD CC SOURCE - README.md is short, and its program compiles against an installed library and runs; prints
# TAP.
build=$1 cc=$2 source=$3
if ! command -v cmake >/dev/null || ! command -v "$cc" >/dev/null || ! command -v pkg-config >/dev/null; then
    echo "1..0 # SKIP there is no cmake, no pkg-config or no $cc"
    exit
fi
. "$source/tests/rigs/points.sh"

[ "$(wc -l <"$source/README.md")" -le 110 ]
point 'README.md has at most 110 lines'

awk '/^```c$/ { inside = 1; next } /^```/ { inside = 0 } inside' "$source/README.md" >sum.c
cmake --install "$build" --prefix prefix >out 2>err &&
    PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig pkg-config --cflags --libs shardloop >flags 2>err &&
    "$cc" -std=gnu11 -Wall -Werror sum.c $(cat flags) -o sum >out 2>err
point 'its program compiles'

./sum 2>err | sort >out
status=$?
cat >expected <<'END'
coordinate 0: the sum along model is 3
coordinate 1: the sum along model is 3
coordinate 2: the sum along model is 3
coordinate 3: the sum along model is 12
coordinate 4: the sum along model is 12
coordinate 5: the sum along model is 12
END
[ ! -s err ] && cmp -s out expected
point 'and prints what it says'

# docs/architecture.md shows the verdict.
sed 's/^    int status = .*/&\n    if (self->coordinate == 3) return SL_OK;/' sum.c >hang.c
"$cc" -std=gnu11 -Wall -Werror hang.c $(cat flags) -o hang >out 2>err && {
    ./hang >out 2>err
    status=$?
} && [ $status = 3 ] &&
    [ "$(head -n 1 err)" = 'shardloop: coordinate 3 (data=1, model=0) returned after its start while others wait for it:' ] &&
    grep -q '^  coordinate [45] (data=1, model=[12]) waits for coordinate 3 in psum over "model" at hang.c:10$' err
point 'a coordinate that leaves gets the verdict that the documentation shows'
plan
