#!/bin/sh
# python.sh BUILD CC SOURCE - the package for Python: its structs are those of the headers, a wheel is made of it and of
# the library, and the installed wheel works; prints TAP.
build=$1 cc=$2 source=$3
. "$source/tests/rigs/points.sh"
python= packer=
for candidate in python3 /usr/bin/python3; do
    [ "$python" ] || ! "$candidate" -c 'import numpy' 2>err || python=$candidate
    [ "$packer" ] || ! "$candidate" -c 'import setuptools, wheel, pip' 2>err || packer=$candidate
done
if [ -z "$python" ]; then
    echo '1..0 # SKIP there is no Python with numpy'
    exit
fi
export PYTHONDONTWRITEBYTECODE=1

cmake --build "$build" --target python sl_shared >out 2>err
status=$?
[ $status = 0 ]
point 'the package is built'

# ---- a wheel ----

# As from an installed library, without the time that installing takes.
mkdir -p prefix/lib/pkgconfig
cp -L "$build/shardloop/libshardloop.so" prefix/lib
cp "$build/shardloop/shardloop.pc" prefix/lib/pkgconfig
cp -R "$source/shardloop/python" wheel
if [ "$packer" ]; then
    PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig "$packer" -m pip --disable-pip-version-check wheel -q --no-deps --no-index --no-build-isolation \
        -w wheels ./wheel >out 2>err && "$python" -m zipfile -e wheels/shardloop-*.whl site >out 2>err
    status=$?
    [ $status = 0 ] && [ -s site/shardloop/libshardloop.so ]
    point 'pip makes a wheel of the installed library'
    rm prefix/lib/libshardloop.so
    PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig "$packer" -m pip --disable-pip-version-check wheel -q --no-deps --no-index --no-build-isolation \
        -w none ./wheel >out 2>err
    grep -q 'there is no .*libshardloop.so: build shardloop with -DBUILD_SHARED_LIBS=ON' out err
    point 'no wheel is made without the library'
    export PYTHONPATH="$work/site"
else
    skip 'pip makes a wheel of the installed library' 'there is no pip, setuptools or wheel'
    export PYTHONPATH="$build/python"
fi

# ---- parts of the package ----

{
    printf '#include <shardloop/shardloop.h>\n#include <stdio.h>\nint main(void) {\n'
    for struct in $(sed -n 's/^class \(sl_[a-z_]*\)(Structure):$/\1/p' "$source/shardloop/python/shardloop/library.py"); do
        [ $struct = sl_spmd ] || printf 'printf("%s %%zu\\n", sizeof(struct %s));\n' $struct $struct
    done
    for field in sl_spmd.coordinate sl_spmd.error sl_engine.error sl_schedule.rank sl_store.checksums sl_collective.site; do
        printf 'printf("%s %%zu\\n", offsetof(struct %s, %s));\n' $field "${field%.*}" "${field#*.}"
    done
    echo 'return 0; }'
} >sizes.c
"$cc" -std=gnu11 -I"$build/front" sizes.c -o sizes >out 2>err && ./sizes >sizes.txt
status=$?
[ $status = 0 ]
point 'sizes of the structs in C'
mkdir data
"$build/drivers/looping_pipeline" --mesh data=1,model=2 --layers 2 --hidden 8 --loops 1 --steps 2 --metrics data/metrics --save data/run >out 2>err
timeout 100 "$python" "$source/tests/python/checks.py" sizes.txt data "$build/drivers/shardloop" >checks 2>err
status=$?
cp checks out
[ $status = 0 ] && [ "$(wc -l <checks)" -ge 12 ]
point 'all checks run'
: >err
while read -r line; do
    echo "$line" >out
    [ "${line#ok }" != "$line" ]
    name=${line#not }
    name=${name#ok }
    point "${name%%:*}"
done <checks
plan
