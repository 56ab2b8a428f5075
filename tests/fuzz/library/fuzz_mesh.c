/* fuzz_mesh.c - meshes and specs: parsed, printed, and an array cut into shards and put together again.
 *
 * The first byte chooses the array's shape; then come a line with a mesh and one with a spec. */
#include "spmd/spec.h"
#include "tests/fuzz/fuzz.h"

enum { TEXT = 4096 };

static bool read_mesh(struct sl_mesh *mesh, const char *text) {
    struct sl_error error = {0};
    struct sl_mesh again;
    char printed[TEXT];
    const int status = sl_mesh_parse(mesh, text, &error);
    if (status) return fuzz_refused(status, &error), false;
    FUZZ_PROMISE(!sl_mesh_check(mesh, &error), "%s", error.message);
    sl_mesh_print(mesh, printed, sizeof printed);
    FUZZ_PROMISE(!sl_mesh_parse(&again, printed, &error), "%s: %s", printed, error.message);
    FUZZ_PROMISE(again.axes == mesh->axes && again.size == mesh->size, "%s", printed);
    for (int a = 0; a < mesh->axes; a++)
        FUZZ_PROMISE(!strcmp(again.axis[a].name, mesh->axis[a].name) && again.axis[a].size == mesh->axis[a].size, "%s",
                     printed);
    return true;
}

static bool read_spec(struct sl_spec *spec, const char *text) {
    struct sl_error error = {0};
    struct sl_spec again;
    char printed[TEXT], twice[TEXT];
    const int status = sl_spec_parse(spec, text, &error);
    if (status) return fuzz_refused(status, &error), false;
    sl_spec_print(spec, printed, sizeof printed);
    FUZZ_PROMISE(!sl_spec_parse(&again, printed, &error), "%s: %s", printed, error.message);
    FUZZ_PROMISE(!strcmp(printed, sl_spec_print(&again, twice, sizeof twice)), "%s, then %s", printed, twice);
    return true;
}

/* Checks that every element is in a shard, at the place that the shard reports. */
static void shard(const struct sl_spec *spec, const struct sl_mesh *mesh, int dims, const size_t *shape) {
    uint32_t whole[1024], again[1024] = {0}, local[1024];
    size_t elements = 1, part[SL_MAX_DIMS];
    struct sl_error error = {0};
    const int status = sl_spec_local_shape(spec, mesh, dims, shape, part, &error);
    if (status) return fuzz_refused(status, &error);
    for (int d = 0; d < dims; d++) elements *= shape[d];
    for (size_t i = 0; i < elements; i++) whole[i] = (uint32_t)i + 1;
    struct sl_array from = {.dtype = SL_F32, .dims = dims, .data = whole},
                    to = {.dtype = SL_F32, .dims = dims, .data = again};
    memcpy(from.shape, shape, (size_t)dims * sizeof *shape);
    memcpy(to.shape, shape, (size_t)dims * sizeof *shape);
    for (int c = 0; c < mesh->size; c++) {
        const struct sl_shard held = sl_spec_shard(spec, mesh, c, dims, shape);
        sl_spec_slice(spec, mesh, c, &from, local);
        for (size_t i = 0; i < sl_shard_elements(&held); i++)
            FUZZ_PROMISE(local[i] == whole[sl_shard_global_index(&held, i)], "coordinate %d, element %zu", c, i);
        sl_spec_assemble(spec, mesh, c, &to, local);
    }
    FUZZ_PROMISE(!memcmp(whole, again, elements * sizeof *whole), "not put together again");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const size_t shape[][3] = {{8, 12, 4}, {1, 1, 1},   {2, 6, 5},  {64, 4, 4},
                                      {3, 7, 11}, {16, 16, 4}, {512, 2, 1}};
    struct sl_mesh mesh;
    struct sl_spec spec;
    if (size < 1) return 0;
    char *text = fuzz_text(data + 1, size - 1), *second = strchr(text, '\n');
    if (second) *second++ = 0;
    const bool good = read_mesh(&mesh, text);
    if (second && read_spec(&spec, second) && good && mesh.size <= 256)
        shard(&spec, &mesh, 1 + data[0] / 16 % 3, shape[data[0] % 16 % (sizeof shape / sizeof *shape)]);
    free(text);
    return 0;
}
