#!/bin/sh
# install.sh BUILD CC SOURCE DEVICE - programs compile and link against an installation by `cmake --install`, also after
# it is moved; and against the source tree as a part of another project; prints TAP.
build=$1 cc=$2 source=$3 device=$4
if ! command -v cmake >/dev/null || ! command -v "$cc" >/dev/null; then
    echo "1..0 # SKIP there is no cmake or no $cc"
    exit
fi
. "$(dirname "$0")/../rigs/points.sh"

# attempt NAME COMMAND...: a point.
attempt() {
    name=$1
    shift
    "$@" >out 2>err
    point "$name"
}

# The preset's compiler, and others that users may have.
ccs=$cc cxxs=
for candidate in clang-19 gcc; do
    [ "$candidate" = "${cc##*/}" ] || ccs="$ccs $(command -v $candidate)"
done
for candidate in clang++-19 g++; do
    cxxs="$cxxs $(command -v $candidate)"
done
set -- $cxxs $(command -v c++)
cxx=${1:-}

cat >parts.c <<'END'
#include <shardloop/collectives.h>
#include <shardloop/engines.h>
#include <shardloop/layers.h>
#include <shardloop/mesh.h>

static int program(struct sl_spmd *self, void *arg) {
    struct sl_group group;
    float one = 1, sum = 0;
    int status = sl_group_axes(self, "data", &group);
    if (!status) status = sl_psum(self, &group, SL_F32, &one, &sum, 1);
    ((float *)arg)[self->coordinate] = sum;
    return status;
}

int main(void) {
    struct sl_mesh mesh;
    struct sl_engine engine;
    float sums[3] = {0, 0, 0};
    if (sl_mesh_parse(&mesh, "data=3", NULL) || sl_engine_open(&engine, "local", NULL)) return 1;
    if (sl_run(&mesh, &engine, program, sums)) return 1;
    struct sl_module *layer = sl_dense("layer", 2, 3);
    if (!layer) return 1;
    sl_module_free(layer);
    return !(sums[0] == 3 && sums[2] == 3);
}
END
# The same by the one header, after another one.
{ printf '#include <shardloop/%s>\n' trainer.h shardloop.h && grep -v '^#include' parts.c; } >program.c
cp program.c program.cc
mkdir user within
cat >user/CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES C CXX)
find_package(shardloop 0.3 REQUIRED)
add_executable(in_c ../program.c)
add_executable(in_cxx ../program.cc)
target_link_libraries(in_c PRIVATE shardloop::shardloop)
target_link_libraries(in_cxx PRIVATE shardloop::shardloop)
END
cat >within/CMakeLists.txt <<END
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES C)
add_subdirectory("$source" shardloop)
add_library(user OBJECT ../program.c)
target_link_libraries(user PRIVATE shardloop::shardloop)
END

# with_flags FLAGS COMMAND...: the command with the flags of pkg-config, which has a backslash before a space in a path.
with_flags() {
    flags=$(pkg-config $1 shardloop) || return
    shift
    eval "\"\$@\" $flags"
}
check() {
    with_flags --cflags "$@" -Wall -Wextra -Werror -fsyntax-only
}
headers_alone() {
    while read -r header; do
        printf '#include <shardloop/%s>\n#include <shardloop/%s>\n' "$header" "$header" >alone.c
        check "$@" alone.c || return 1
    done <headers
}
# headers_together SORT COMMAND...: all in one file, in that order.
headers_together() {
    LC_ALL=C $1 headers | sed 's|.*|#include <shardloop/&>|' >together.c
    shift
    check "$@" together.c
}
one_header() {
    sed -n 's|^#include <shardloop/\(.*\)>.*|\1|p' "$prefix/include/shardloop/shardloop.h" | LC_ALL=C sort >included
    grep -vx -e shardloop.h -e 'internal/.*' headers | cmp - included || return
    for compiler in $ccs; do
        check "$compiler" -std=c11 program.c || return
    done
    for compiler in $cxxs; do
        check "$compiler" -std=c++17 program.cc || return
    done
}
run_linked() {
    with_flags '--cflags --libs' "$@" -o program && ./program
}
# configure SOURCE OPTION...: a project, to be built in a fresh folder build.
configure() {
    rm -rf build
    cmake -S "$@" -B build -G Ninja -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$prefix"
}
find_package() {
    configure user -DCMAKE_CXX_COMPILER="$cxx" && cmake --build build && build/in_c && build/in_cxx
}
# A run that was saved, and goes on, prints the last lines of one that has never ended.
goes_on() {
    build/custom_optimizer saved 150 >/dev/null && build/custom_optimizer saved >resumed.out &&
        sed '1,/^step 100/d' custom_optimizer.out | cmp - resumed.out
}
examples() {
    configure "$prefix/share/doc/shardloop/examples" -DCMAKE_C_FLAGS=-Werror || return
    if [ "$device" != cpu ]; then # one with regions of its own: each takes seconds to compile for devices
        cmake --build build --target custom_optimizer && build/custom_optimizer >custom_optimizer.out && goes_on
        return
    fi
    cmake --build build || return
    for example in "$source"/drivers/examples/*.c; do
        example=${example##*/}
        "build/${example%.c}" >"${example%.c}.out" || return
    done
    [ "$(grep -c 'model is 3$' hello_psum.out)" = 3 ] && [ "$(grep -c 'model is 12$' hello_psum.out)" = 3 ] &&
        grep -qx equal custom_schedule.out && grep -q '^accuracy 0\.9\|^accuracy 1' custom_optimizer.out && goes_on
}
examples_alone() {
    for example in "$prefix/share/doc/shardloop/examples"/*.c; do
        with_flags '--cflags --libs' "$cc" -std=gnu11 -O2 -fopenmp-simd "$example" -o example -lm && ./example || return
    done
}
# The library is not built again; that it can be linked is known once it is configured.
subdirectory() {
    configure within -DSL_MPI=OFF && cmake --build build --target user && [ ! -e build/shardloop/drivers ]
}

# Installed for one place and used in another, which has a space in its name; builds for devices link object
# files, whose names pkg-config does not quote.
programs="$work/my programs"
[ "$device" = cpu ] || programs=$work/programs
prefix=$programs/shardloop
install_and_move() {
    DESTDIR="$work/stage" cmake --install "$build" --prefix /opt/shardloop && mkdir "$programs" &&
        mv "$work/stage/opt/shardloop" "$prefix" && cd "$prefix/include/shardloop" &&
        find . -name '*.h' | sed 's|^\./||' | LC_ALL=C sort >"$work/headers" && cd "$work" && [ "$(wc -l <headers)" -ge 20 ]
}
attempt 'cmake --install' install_and_move
find "$prefix" -type d -empty >out
[ ! -s out ]
point 'no folder is empty'
grep -rIlF -e "$build" -e "$source" "$prefix" >out
[ ! -s out ]
point 'no text names the folders of the sources and of the build'
export PKG_CONFIG_PATH="$prefix/lib/pkgconfig"
if [ "$device" = cpu ]; then # headers are the same for all devices
    # Any compiler reports a missing include. gcc starts in half of clang's time, which saves seconds for 50 headers.
    attempt 'each header by itself in C11' headers_alone "$(command -v gcc || echo "$cc")" -std=c11
    attempt 'all headers together in C11' headers_together sort "$cc" -std=c11
    attempt 'all headers together in C11, the last one first' headers_together 'sort -r' "$cc" -std=c11
    attempt "one header includes all others that are promised, by $(echo $ccs $cxxs)" one_header
fi
attempt 'a program in C by pkg-config' run_linked "$cc" -std=gnu11 program.c
attempt 'a program that names single headers' run_linked "$cc" -std=gnu11 parts.c
attempt 'the installed examples by find_package' examples
[ "$device" != cpu ] || attempt 'each installed example by pkg-config' examples_alone
attempt 'the sources within another project' subdirectory
if [ -n "$cxx" ]; then
    attempt 'programs in C and C++ by find_package' find_package
    if [ "$device" = cpu ]; then
        attempt 'all headers together in C++' headers_together sort "$cxx" -std=c++17 -x c++
        attempt 'all headers together in C++, the last one first' headers_together 'sort -r' "$cxx" -std=c++17 -x c++
    fi
    attempt 'a program in C++ by pkg-config' run_linked "$cxx" -std=c++17 program.cc
else
    skip C++ 'there is no compiler'
fi
plan
