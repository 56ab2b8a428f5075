#!/bin/sh
# extending.sh BUILD SOURCE OPTION... - the pages of docs/extending: all diffs apply to a copy of the sources, which
# then compiles without warnings; prints TAP. OPTIONs: cmake's options for the copy.
#
# Each page is tried then: by its blocks ```sh extended, which run in a folder where build/host/drivers are the copy's,
# and, if it adds a function of the library, by a program that calls it.
build=$1 source=$2
shift 2
apply='patch -p1 -F0 --no-backup-if-mismatch'
command -v patch >/dev/null || apply='git apply'
for tool in cmake ${apply%% *}; do
    if ! command -v $tool >/dev/null; then
        echo "1..0 # SKIP there is no $tool"
        exit
    fi
done
. "$source/tests/rigs/points.sh"
pages=$source/docs/extending

for page in "$pages"/*.md; do
    awk 'END { exit NR > 70 }' "$page" || long="$long ${page##*/}"
done
echo "longer: $long" >out
: >err
[ -z "$long" ]
point 'pages have at most 70 lines'

# ---- the diffs ----

mkdir copy
(cd "$source" && cp -R CMakeLists.txt spmd collectives layers shardloop drivers benchmarks "$work/copy") 2>err
for page in "$pages"/*.md; do
    name=${page##*/}
    awk '/^```diff$/ { inside = 1; next } /^```/ { inside = 0 } inside' "$page" >diff
    [ -s diff ] || continue
    (cd copy && GIT_CEILING_DIRECTORIES=$work $apply <../diff) >out 2>err
    status=$?
    [ $status = 0 ]
    point "$name: its diff applies"
done

# ---- the build ----

cat >copy/drivers/try.c <<'END'
/* try.c NAME - tries what the page NAME.md adds to the library. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "collectives/collectives.h"
#include "collectives/engines.h"
#include "layers/modules/gradient_check.h"
#include "layers/modules/modules.h"

static int check_by(struct sl_module *module, const struct sl_gemm_backend *gemm, enum sl_dtype dtype, double bound) {
    const struct sl_gradient_check check = {
        .rows = 3, .microbatches = 4, .wgrad_group = 2, .seed = 2, .storage = dtype, .precision = dtype};
    struct sl_error error = {0};
    double difference = INFINITY;
    char worst[96] = "";
    const int status = sl_gradient_check(module, &check, gemm, &difference, worst, &error);
    if (status) fprintf(stderr, "%s\n", error.message);
    if (!(difference < bound)) fprintf(stderr, "%s differs by %g\n", worst, difference);
    sl_module_free(module);
    return status || !(difference < bound);
}

static int check(struct sl_module *module) { return check_by(module, sl_gemm_find(NULL, NULL), SL_F32, 1e-3); }

/* Products that leave bf16 alone, as those of GPUs do: the floats are another array's. */
static bool has_left;
static int leave_bf16(const struct sl_gemm *gemm, const struct sl_gemm_arrays *arrays, void *queue) {
    enum { MOST = 64 };
    static float c[MOST], bias[MOST];
    struct sl_gemm_arrays floats = *arrays;
    const size_t n = (size_t)gemm->n, count = (size_t)arrays->count * (size_t)gemm->m * n;
    if (arrays->c.rows.type != SL_BF16) return sl_gemm_reference.execute(gemm, arrays, queue);
    if (count > MOST || arrays->x.at) return SL_FAILED;
    for (size_t i = 0; arrays->bias.at && i < n; i++)
        bias[i] = sl_load_float(arrays->bias.type, arrays->bias.at, i);
    if (arrays->bias.at) floats.bias = sl_rows_f32(bias);
    floats.c = sl_out_f32(c);
    SL_TRY(sl_gemm_reference.execute(gemm, &floats, queue));
    for (size_t i = 0; i < count; i++) sl_store_float(SL_BF16, arrays->c.rows.at, i, c[i]);
    has_left = true;
    return SL_OK;
}

/* MODULE, between two layers by such products. */
static int check_between(struct sl_module *module) {
    struct sl_gemm_backend gemm = sl_gemm_reference;
    struct sl_module *const child[] = {sl_dense("a", 4, module->in), module, sl_dense("b", module->out, 3)};
    gemm.leaves_bf16 = true;
    gemm.execute = leave_bf16;
    return check_by(sl_sequential("", 3, child), &gemm, SL_BF16, 0.05);
}

static int activate(void) {
    float x[] = {-INFINITY, -2, 0, 3}, slope[4];
    sl_kernels_select()->sequence->relu2_forward(4, x, x, slope);
    if (x[0] == 0 && x[1] == 0 && x[2] == 0 && x[3] == 9 && slope[1] == 0 && slope[3] == 6) return 0;
    fprintf(stderr, "values or slopes are wrong\n");
    return 1;
}

static int scatter(struct sl_spmd *self, void *arg) {
    struct sl_group group;
    struct sl_request request;
    int32_t blocks[3][2] = {{1, 2}, {3, 4}, {5, 6}}, mine[2], *own = blocks[self->coordinate];
    const bool root = self->coordinate == 1;
    (void)arg;
    SL_TRY(sl_group_axes(self, "x", &group));
    SL_TRY(sl_scatter(self, &group, SL_I32, root ? blocks : NULL, mine, 2, 1));
    if (memcmp(mine, own, sizeof mine) != 0) return sl_fail(self, SL_FAILED, "a wrong block has come");
    SL_TRY(sl_scatter_start(self, &request, &group, SL_I32, root ? blocks : NULL, root ? own : mine, 2, 1));
    SL_TRY(sl_wait(self, &request));
    return memcmp(mine, own, sizeof mine) ? sl_fail(self, SL_FAILED, "a wrong block has come in place") : SL_OK;
}

static int communicate(void) {
    struct sl_mesh mesh;
    struct sl_engine engine;
    if (sl_mesh_parse(&mesh, "x=3", NULL) || sl_engine_open(&engine, "local", NULL)) return 1;
    engine.checked = true;
    return sl_run(&mesh, &engine, scatter, NULL);
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    if (!strcmp(name, "layer")) return check(sl_bias("bias", 5));
    if (!strcmp(name, "activation")) {
        if (activate() || check(sl_relu2(5)) || check_between(sl_relu2(5)) || check_between(sl_silu(5))) return 1;
        return !has_left;
    }
    if (!strcmp(name, "norm")) return check(sl_unit_norm(5)) || check_between(sl_unit_norm(5));
    if (!strcmp(name, "collective")) return communicate();
    fprintf(stderr, "nothing tries \"%s\"\n", name);
    return 2;
}
END
echo 'sl_add_driver(try try.c)' >>copy/drivers/CMakeLists.txt
# Objects of files that the diffs do not change, nor their includes, are not compiled again, which halves the time: the
# compiler's launcher takes them from BUILD, whose options are the same but for optimization.
ninja -C "$build" -t deps 2>err | awk -v source="$source/" '
    /^[^ ]/ { object = /: #deps .*\(VALID\)$/ ? substr($0, 1, index($0, ": #deps") - 1) : ""; next }
    /^ / && object {
        file = substr($0, 5)
        if (index(file, source) == 1) file = substr(file, length(source) + 1)
        else if (file ~ /^\//) next # of the system
        else sub(/^(\.\.\/)+/, "", file)
        print object, file
    }' >includes
cut -d' ' -f2 includes | sort -u | while read -r file; do cmp -s "$source/$file" "copy/$file" || echo "$file"; done >changed
awk 'NR == FNR { changed[$0]; next } { all[$1]; if ($2 in changed) other[$1] }
    END { for (object in all) if (!(object in other)) print object }' changed includes >same
cat >take <<END
#!/bin/sh
for word; do
    case \$before in -o) object=\$word ;; -MF) rule=\$word ;; esac
    before=\$word
done
if grep -qxF "\$object" "$work/same" && cp "$build/\$object" "\$object"; then
    echo "\$object:" >"\$rule"
else
    exec "\$@"
fi
END
chmod +x take
launcher=$work/take${CMAKE_C_COMPILER_LAUNCHER:+;$CMAKE_C_COMPILER_LAUNCHER}
# Without optimization, which takes half the time; without MPI, for no page needs it.
cmake -S copy -B build -DCMAKE_BUILD_TYPE=Plain -DCMAKE_C_FLAGS=-Werror -DBUILD_TESTING=OFF -DSL_MPI=OFF \
    -DCMAKE_C_COMPILER_LAUNCHER="$launcher" "$@" >out 2>err &&
    cmake --build build --parallel 2 --target try ring schedule looping_pipeline transformer >out 2>err
status=$?
[ $status = 0 ] || grep -A 3 -E 'error:|undefined' out >err
[ $status = 0 ]
point 'the sources with all diffs compile without warnings'
[ $status = 0 ] || {
    plan
    exit
}

# ---- the trials ----

mkdir -p run/build/host
ln -s "$work/build/drivers" run/build/host/drivers
for page in "$pages"/*.md; do
    name=${page##*/}
    grep -q '^```diff$' "$page" || continue
    case $name in engine_solo.md | norm_kernels.md) continue ;; esac # engine.md and norm.md, their first halves, try them
    echo 'set -eu' >trial.sh
    case $name in
    layer.md | activation.md | norm.md | collective.md) echo "build/host/drivers/try ${name%.md}" >>trial.sh ;;
    *) grep -q '^```sh extended$' "$page" || echo "build/host/drivers/try ${name%.md}" >>trial.sh ;; # which refuses it
    esac
    awk '/^```sh extended$/ { inside = 1; next } /^```/ { inside = 0 } inside' "$page" >>trial.sh
    (cd run && timeout 100 sh ../trial.sh) >out 2>err </dev/null
    status=$?
    [ $status = 0 ]
    point "$name: what it adds works"
done
plan
