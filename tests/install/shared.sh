#!/bin/sh
# shared.sh BUILD CC SOURCE - a shared library exports the names that the installed headers promise (shardloop/front), and
# a program that is linked with it runs; prints TAP.
build=$1 cc=$2 source=$3
. "$source/tests/rigs/points.sh"
front=$build/front
library=$build/shardloop/libshardloop.so

cmake --build "$build" --target sl_headers sl_shared >out 2>err
status=$?
[ $status = 0 ]
point 'the shared library is built'
version=$(sed -n 's/^SHARDLOOP_\([0-9.]*\) {$/\1/p' "$front/shardloop.map")

# ---- the list ----

awk '!/^[#=]/ { for (i = 1; i <= NF; i++) if ($i ~ /^sl_[a-z0-9_]*$/ && !($i ~ /\.h$/)) print $i } /^= exported/ { exit }' \
    "$source/shardloop/front" | sort >promised
sort "$source/tests/data/front" >expected
diff expected promised >out
point 'tests/data/front has the names that are promised: who changes the list changes CHANGELOG.md, too'
headers=$(ls "$front/shardloop" | grep -c '\.h$')
echo "$headers headers, $(wc -l <promised) names" >out
[ "$headers" -le 25 ] && [ "$(wc -l <promised)" -le 210 ]
point 'the front is one that can be read'

# A name is documented by a comment before it, or before others that follow each other without a blank line.
for header in "$front"/shardloop/*.h; do
    awk -v header="${header##*/}" '
        /^\/\*/ { comment = 1 }
        /^$/ { comment = 0 }
        /^[a-z].*[ *]sl_[a-z0-9_]+\(/ && !comment { print header ": " $0 }' "$header"
done >out
[ ! -s out ]
point 'a comment documents each function'

# ---- symbols ----

nm -D --defined-only "$library" | awk '$2 != "A" { print $3 }' | sed 's/@.*//' | sort >exported
sed -n '/^SHARDLOOP_0/,/^local:/s/^ *\(sl_.*\);$/\1/p' "$front/shardloop.map" | sort >public
sed -n '/^SHARDLOOP_PRIVATE/,$s/^ *\(sl_.*\);$/\1/p' "$front/shardloop.map" | sort >private
sort -u public private | diff - exported >out
point "$(wc -l <public) symbols are exported, $(wc -l <private) more for inline functions, and no others"
comm -23 public promised >out
[ -s public ] && [ ! -s out ]
point 'the symbols that are exported are promised'
readelf -d "$library" >out && grep -qF "soname: [libshardloop.so.$version]" out && ! grep -q TEXTREL out
point 'its name has the version'

# All inline functions as functions: they call exported ones.
echo '#include <shardloop/shardloop.h>' >all.c
if command -v gcc >/dev/null; then
    gcc -std=gnu11 -I"$front" -fkeep-inline-functions -c all.c -o all.o >out 2>err && nm -u all.o | awk '/ sl_/ { print $2 }' |
        sort | comm -23 - exported >out
    status=$?
    [ $status = 0 ] && [ ! -s out ]
    point 'what inline functions call is exported'
else
    skip 'what inline functions call is exported' 'there is no gcc'
fi

# ---- programs ----

for example in hello_psum custom_schedule; do
    "$cc" -std=gnu11 -O1 -fopenmp-simd -I"$front" "$source/drivers/examples/$example.c" "$library" -Wl,-rpath,"${library%/*}" -lm \
        -o $example && timeout 60 ./$example >$example.out
done >out 2>err
status=$?
[ $status = 0 ] && [ "$(grep -c 'model is 3$' hello_psum.out)" = 3 ] && grep -qx equal custom_schedule.out && ldd hello_psum | grep -qF libshardloop
point 'examples run with it'

# ---- as it is installed ----

cmake -S "$source" -B on -G Ninja -DCMAKE_C_COMPILER="$cc" -DBUILD_SHARED_LIBS=ON -DBUILD_TESTING=OFF -DSL_MPI=OFF >out 2>err &&
    grep -q 'libshardloop.so' on/shardloop/cmake_install.cmake && grep -q -- -fPIC on/build.ninja &&
    grep -q '^build shardloop/all: phony .*shardloop/libshardloop.so' on/build.ninja && ! grep -q 'libshardloop.so' "$build/shardloop/cmake_install.cmake"
status=$?
[ $status = 0 ]
point 'BUILD_SHARED_LIBS builds and installs it'
if command -v pkg-config >/dev/null; then
    mkdir -p prefix/lib/pkgconfig
    cp -R "$front" prefix/include
    cp "$build"/shardloop/libshardloop.so* prefix/lib
    cp on/shardloop/shardloop.pc prefix/lib/pkgconfig
    PKG_CONFIG_PATH=prefix/lib/pkgconfig pkg-config --cflags --libs shardloop >flags 2>err && ! grep -q dnnl flags &&
        "$cc" -std=gnu11 -fopenmp-simd "$source/drivers/examples/hello_psum.c" $(cat flags) -o installed >out 2>err &&
        LD_LIBRARY_PATH=prefix/lib timeout 60 ./installed >installed.out 2>err
    status=$?
    [ $status = 0 ] && sort installed.out >out && sort hello_psum.out | cmp - out
    point 'pkg-config names it alone'
else
    skip 'pkg-config names it alone' 'there is no pkg-config'
fi
plan
