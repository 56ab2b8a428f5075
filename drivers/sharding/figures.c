/* figures.c - the figures, as tables. */
#include "drivers/sharding/figures.h"

#include <stdlib.h>
#include <string.h>

struct row {
    const char *name, *spec;
    int dims;
    size_t shape[SL_MAX_DIMS];
};

static const struct {
    const char *name, *mesh;
    struct row row[FIGURE_MOST_ARRAYS];
} figures[] = {
    {"data",
     "data=4",
     {{"x, the batch", "data,-", 2, {8, 16}},
      {"kernel, the same at all", "-,-", 2, {16, 8}},
      {"its gradient, after the mean over data", "-,-", 2, {16, 8}},
      {"kernel with FSDP", "-,data", 2, {16, 8}}}},
    {"dense",
     "data=2,tensor=4",
     {{"x", "data,tensor", 2, {8, 16}},
      {"kernel with FSDP", "tensor,data", 2, {16, 8}},
      {"kernel, gathered over data", "tensor,-", 2, {16, 8}},
      {"bias", "-", 1, {8}},
      {"y, the sums over tensor scattered", "data,tensor", 2, {8, 8}}}},
    {"norm",
     "data=2,tensor=4",
     {{"x", "data,tensor", 2, {8, 16}},
      {"squares, summed over columns and tensor", "data", 1, {8}},
      {"gamma", "tensor", 1, {16}},
      {"y", "data,tensor", 2, {8, 16}}}},
    {"rotary",
     "tensor=4",
     {{"q and k, the halves of a pair of columns", "-,tensor*2", 2, {8, 16}},
      {"cosines and sines of positions", "-,tensor", 2, {8, 8}},
      {"q and k, turned", "-,tensor*2", 2, {8, 16}}}},
    {"stacked",
     "pipe=4",
     {{"kernels of 8 layers", "pipe,-,-", 3, {8, 4, 8}},
      {"gammas of 8 layers", "pipe,-", 2, {8, 4}},
      {"embedding, at all", "-,-", 2, {16, 4}}}},
    {"mlp",
     "tensor=2",
     {{"x", "-,-", 2, {4, 8}},
      {"a, by columns", "-,tensor", 2, {8, 16}},
      {"y = gelu(x a)", "-,tensor", 2, {4, 16}},
      {"b, by rows", "tensor,-", 2, {16, 8}},
      {"z = y b, summed over tensor", "-,-", 2, {4, 8}}}},
    {"dimensions",
     "data=2,pipe=4,tensor=2",
     {{"x of a stage", "data,-", 2, {8, 8}}, {"kernels of 4 stages", "pipe,-,tensor", 3, {4, 8, 8}}}},
    {"zero",
     "data=4",
     {{"parameters in stages 0, 1 and 2", "-,-", 2, {8, 16}},
      {"gradients in stages 0 and 1", "-,-", 2, {8, 16}},
      {"the optimizer's states in stage 0", "-,-", 2, {8, 16}},
      {"the optimizer's states from stage 1 on", "-,data", 2, {8, 16}},
      {"gradients from stage 2 on", "-,data", 2, {8, 16}},
      {"parameters in stage 3, FSDP", "-,data", 2, {8, 16}}}},
};
enum { FIGURES = sizeof figures / sizeof *figures };

const char *figure_mesh(int i) { return i >= 0 && i < FIGURES ? figures[i].mesh : NULL; }

int figure_make(struct figure *figure, int i, const struct sl_mesh *mesh, struct sl_error *error) {
    struct sl_mesh own;
    SL_TRY(sl_mesh_parse(&own, figures[i].mesh, error));
    for (int a = 0; a < own.axes; a++)
        if (sl_mesh_find_axis(mesh, own.axis[a].name) < 0)
            return sl_error_set(error, SL_BAD_INPUT, "--example %s: the mesh has no axis '%s'; the figure's is %s",
                                figures[i].name, own.axis[a].name, figures[i].mesh);
    *figure = (struct figure){0};
    for (const struct row *row = figures[i].row; figure->arrays < FIGURE_MOST_ARRAYS && row->name; row++) {
        const int n = figure->arrays++;
        SL_TRY(sl_spec_parse(&figure->spec[n], row->spec, error));
        memcpy(figure->shape[n], row->shape, sizeof row->shape);
        figure->sharding[n] = (struct sl_sharding){row->name, mesh, &figure->spec[n], row->dims, figure->shape[n]};
    }
    return SL_OK;
}
