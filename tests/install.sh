#!/bin/sh
# install.sh BUILD CC - what `cmake --install` leaves can be compiled and linked against; prints TAP.
build=$1 cc=$2
example=$(cd "$(dirname "$0")/../drivers/examples" && pwd)/custom_module.c
if ! command -v cmake >/dev/null || ! command -v "$cc" >/dev/null; then
    echo "1..0 # SKIP there is no cmake or no $cc"
    exit
fi
. "$(dirname "$0")/rigs/points.sh"

# attempt NAME COMMAND...: a point.
attempt() {
    name=$1
    shift
    "$@" >out 2>err
    point "$name"
}

cxx=
for candidate in clang++-19 g++ c++; do
    [ -n "$cxx" ] || cxx=$(command -v $candidate)
done

cat >program.c <<'END'
#include <spmd/spmd.h>
#include <collectives/collectives.h>
#include <collectives/engines.h>
#include <layers/models/classifier.h>

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
    struct sl_classifier classifier = {0};
    classifier.inputs = classifier.hidden = classifier.classes = classifier.layers = 2;
    classifier.expansion = 1;
    return !(sums[0] == 3 && sums[2] == 3 && sl_classifier_parameters(&classifier) > 0);
}
END
cp program.c program.cc
cat >CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES C)
find_package(shardloop 0.1 REQUIRED)
add_executable(user program.c)
target_link_libraries(user PRIVATE shardloop::shardloop)
END

list_headers() {
    find prefix/include/shardloop -name '*.h' | sed 's|^prefix/include/shardloop/||' | LC_ALL=C sort >headers
    [ "$(wc -l <headers)" -ge 20 ]
}
headers_alone() {
    list_headers || return 1
    while read -r header; do
        printf '#include <%s>\n#include <%s>\n' "$header" "$header" >alone.c
        "$@" -Wall -Wextra -Werror -fsyntax-only $(pkg-config --cflags shardloop) alone.c || return 1
    done <headers
}
# headers_together SORT COMMAND...: all in one file, in that order.
headers_together() {
    list_headers || return 1
    LC_ALL=C $1 headers | sed 's/.*/#include <&>/' >together.c
    shift
    "$@" -Wall -Wextra -Werror -fsyntax-only $(pkg-config --cflags shardloop) together.c
}
run_linked() {
    "$@" $(pkg-config --cflags --libs shardloop) -o program && ./program
}
find_package() {
    cmake -B user -G Ninja -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$work/prefix" && cmake --build user &&
        user/user
}

attempt 'cmake --install' cmake --install "$build" --prefix prefix
export PKG_CONFIG_PATH="$work/prefix/lib/pkgconfig"
attempt 'each header by itself in C11' headers_alone "$cc" -std=c11
attempt 'all headers together in C11' headers_together sort "$cc" -std=c11
attempt 'all headers together in C11, the last one first' headers_together 'sort -r' "$cc" -std=c11
attempt 'a program in C by pkg-config' run_linked "$cc" -std=gnu11 program.c
attempt 'the example of a module by pkg-config' run_linked "$cc" -std=gnu11 "$example"
attempt 'a program by find_package' find_package
if [ -n "$cxx" ]; then
    attempt 'each header by itself in C++' headers_alone "$cxx" -std=c++17 -x c++
    attempt 'all headers together in C++' headers_together sort "$cxx" -std=c++17 -x c++
    attempt 'all headers together in C++, the last one first' headers_together 'sort -r' "$cxx" -std=c++17 -x c++
    attempt 'a program in C++ by pkg-config' run_linked "$cxx" -std=c++17 program.cc
else
    skip C++ 'there is no compiler'
fi
plan
