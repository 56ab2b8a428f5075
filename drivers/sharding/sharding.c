/* sharding.c - vector addition on a mesh, mapped over shards, and the owners of the arrays' blocks.
 *
 * Each coordinate adds its blocks of a and b. In the first example c stays sharded; in the second all_gather joins
 * the blocks over one axis after the other until every coordinate has all of c. Figures (figures.h) are only drawn. */
#include <stdlib.h>
#include <string.h>

#include "collectives/collectives.h"
#include "drivers/common/metrics.h"
#include "drivers/common/options.h"
#include "drivers/common/output.h"
#include "drivers/speed/placement_report.h"
#include "drivers/command_line/streams.h"
#include "drivers/sharding/figures.h"
#include "spmd/shard_draw.h"
#include "collectives/shard_map.h"

/* ---- options ---- */

enum choice { ALL, ADDITION, GATHER, LAYOUT, FIGURES };
enum format { TEXT, SVG, JSON };

struct config {
    struct sl_common_options common;
    const char *shape, *in_spec, *out_spec, *output;
    int example, format;
};

#define FIELD(name) offsetof(struct config, name)

static const struct sl_option array_table[] = {
    {"example", SL_OPTION_CHOICE, FIELD(example),
     .value = "all|addition|gather|layout|data|dense|norm|rotary|stacked|mlp|dimensions|zero",
     .help =
         "addition: c = a + b, left sharded; gather: the same, with c gathered everywhere; all: both; layout: only "
         "draw how --in-spec shards an array of that shape; data to zero: only draw a figure, of data "
         "parallelism, of a dense layer, RMS norm or rotary positions whose columns are sharded, of stacked layers, "
         "of an MLP without FSDP, of three dimensions, of the stages of ZeRO; each has a mesh of its own where none is "
         "given"},
    {"shape", SL_OPTION_TEXT, FIELD(shape), .value = "SIZE,...", .read = "example=all/addition/gather/layout",
     .help = "shape of a, b and c"},
    {"in-spec", SL_OPTION_TEXT, FIELD(in_spec), .value = "SPEC", .read = "example=all/addition/gather/layout",
     .help =
         "how a and b are sharded; each dim has an entry: axis names joined by +, or - for none (default: dim 0 over "
         "the mesh's first axis, and so on)"},
    {"out-spec", SL_OPTION_TEXT, FIELD(out_spec), .value = "SPEC", .read = "example=all/addition/gather",
     .help = "how c is sharded (default: as the coordinates of the example return it)"},
    {0},
};

static const struct sl_option output_table[] = {
    {"format", SL_OPTION_CHOICE, FIELD(format), .value = "text|svg|json", .help = "format of the output"},
    {"json", SL_OPTION_FLAG, FIELD(common.json), .help = "short for --format json: one object a line"},
    {"output", SL_OPTION_TEXT, FIELD(output), .value = "FILE", .path = SL_PATH_STREAM,
     .help = "print to FILE instead of stdout, without --format as its ending says: .svg, .json"},
    {0},
};

/* ---- examples ---- */

enum { A, B, SUM, MOST_ARRAYS = SUM + 1 + SL_MAX_AXES, MOST_ELEMENTS = 1 << 22 };

/* One all_gather: joins the blocks along DIM of the coordinates along AXIS. */
struct gather {
    int dim;
    const char *axis;
};

struct example {
    const char *name, *title;
    int arrays; /* a, b, the sum, then the results of gathers; the last one is c */
    struct sl_array array[MOST_ARRAYS];
    struct sl_spec spec[MOST_ARRAYS];
    char label[MOST_ARRAYS][64];
    int gathers;
    struct gather gather[SL_MAX_AXES];
};

struct task {
    const struct config *config;
    struct sl_mesh mesh;
    struct sl_engine engine;
    int dims;
    size_t shape[SL_MAX_DIMS];
    struct sl_spec in_spec, out_spec;
    int examples;
    struct example example[2];
    struct figure figure; /* drawn if there are no examples */
};

/* Reads "2,4" (or "2x4"). */
static int read_shape(struct task *task, const char *text, struct sl_error *error) {
    for (const char *c = text;; c++) {
        char *end;
        const unsigned long size = strtoul(c, &end, 10);
        const bool digits = end > c && *c >= '0' && *c <= '9' && end - c < 10;
        if (task->dims == SL_MAX_DIMS || !digits || size < 1 || (*end && *end != ',' && *end != 'x'))
            return sl_error_set(error, SL_BAD_INPUT,
                                "--shape: \"%.80s\" is not 1 to %d sizes from 1 to 999999999, as in 2,4", text,
                                SL_MAX_DIMS);
        task->shape[task->dims++] = size;
        c = end;
        if (!*c) return SL_OK;
    }
}

/* Shards dim 0 over the mesh's first axis, and so on; without AXES no dim is sharded. */
static struct sl_spec spec_of_mesh(const struct task *task, bool axes) {
    struct sl_spec spec = {.dims = task->dims};
    for (int d = 0; d < spec.dims; d++) {
        spec.dim[d].segments = 1;
        if (!axes || d >= task->mesh.axes) continue;
        spec.dim[d].axes = 1;
        memcpy(spec.dim[d].axis[0], task->mesh.axis[d].name, SL_AXIS_NAME);
    }
    return spec;
}

/* Reads SPEC's entries; dims without an entry are not sharded. */
static int read_spec(const struct task *task, const char *option, const char *text, struct sl_spec *spec,
                     struct sl_error *error) {
    struct sl_error reason;
    if (sl_spec_parse(spec, text, &reason))
        return sl_error_set(error, SL_BAD_INPUT, "--%s: %s", option, reason.message);
    while (spec->dims < task->dims) spec->dim[spec->dims++] = (struct sl_spec_dim){.segments = 1};
    return SL_OK;
}

/* Computes the shape of one block of an array called NAME. */
static int local_shape(const struct task *task, const char *name, const struct sl_spec *spec, size_t *local,
                       struct sl_error *error) {
    struct sl_error reason;
    if (sl_spec_local_shape(spec, &task->mesh, task->dims, task->shape, local, &reason))
        return sl_error_set(error, SL_BAD_INPUT, "%s: %s", name, reason.message);
    return SL_OK;
}

static int read_arrays(struct task *task, struct sl_error *error) {
    const struct config *config = task->config;
    size_t local[SL_MAX_DIMS];
    SL_TRY(read_shape(task, config->shape, error));
    task->in_spec = spec_of_mesh(task, true);
    if (config->in_spec) SL_TRY(read_spec(task, "in-spec", config->in_spec, &task->in_spec, error));
    if (config->out_spec) SL_TRY(read_spec(task, "out-spec", config->out_spec, &task->out_spec, error));
    SL_TRY(local_shape(task, "a", &task->in_spec, local, error));
    if (config->out_spec) SL_TRY(local_shape(task, "c", &task->out_spec, local, error));
    const struct sl_array array = {.dims = task->dims};
    size_t elements = 1;
    for (int d = 0; d < array.dims && elements <= MOST_ELEMENTS; d++) elements *= task->shape[d];
    if (config->example != LAYOUT && elements > MOST_ELEMENTS)
        return sl_error_set(error, SL_BAD_INPUT, "--shape: %.80s has more than %d elements; --example layout draws it",
                            config->shape, MOST_ELEMENTS);
    return SL_OK;
}

/* Adds an array with its elements' indices times FACTOR as values. */
static int add_array(struct task *task, struct example *example, const struct sl_spec *spec, int factor,
                     struct sl_error *error) {
    struct sl_array *array = &example->array[example->arrays];
    *array = (struct sl_array){.dtype = SL_I32, .dims = task->dims};
    memcpy(array->shape, task->shape, sizeof array->shape);
    const size_t elements = sl_array_elements(array);
    int32_t *data = array->data = malloc(elements * sizeof *data);
    if (!data) return sl_error_set(error, SL_FAILED, "no memory for %zu elements", elements);
    for (size_t i = 0; i < elements; i++) data[i] = (int32_t)i * factor;
    example->spec[example->arrays++] = *spec;
    return SL_OK;
}

/* Whether SPEC shards a dim over AXIS. */
static bool names_axis(const struct sl_spec *spec, const char *axis) {
    for (int d = 0; d < spec->dims; d++) {
        for (int a = 0; a < spec->dim[d].axes; a++) {
            if (!strcmp(spec->dim[d].axis[a], axis)) return true;
        }
    }
    return false;
}

/* Checks the out-spec: c must be equal along axes that the out-spec omits, and have the shape of its blocks.
 * (shard_map also compares the blocks after the run.) */
static int check_out_spec(const struct task *task, const struct sl_spec *returned, struct sl_error *error) {
    size_t block[SL_MAX_DIMS], local[SL_MAX_DIMS];
    char is[160], needed[160], spec[200];
    sl_spec_print(&task->out_spec, spec, sizeof spec);
    for (int i = 0; i < task->mesh.axes; i++) {
        const struct sl_axis *axis = &task->mesh.axis[i];
        if (axis->size == 1 || !names_axis(returned, axis->name) || names_axis(&task->out_spec, axis->name)) continue;
        return sl_error_set(error, SL_BAD_INPUT,
                            "c: the returned blocks differ along the axis '%s', which the out-spec '%s' "
                            "leaves out",
                            axis->name, spec);
    }
    SL_TRY(local_shape(task, "c", returned, local, error));
    SL_TRY(local_shape(task, "c", &task->out_spec, block, error));
    if (!memcmp(block, local, (size_t)task->dims * sizeof *block)) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "c: every coordinate returns %s, the out-spec '%s' needs blocks of %s",
                        sl_shape_print(task->dims, local, is, sizeof is), spec,
                        sl_shape_print(task->dims, block, needed, sizeof needed));
}

/* Plans one gather per axis of SPEC; if a dim is sharded over several axes, the fastest one comes first. */
static int plan_gathers(struct task *task, struct example *example, struct sl_spec spec, struct sl_error *error) {
    for (int d = 0; d < spec.dims; d++) {
        while (spec.dim[d].axes > 0) {
            const int a = --spec.dim[d].axes;
            snprintf(example->label[example->arrays], sizeof *example->label, "gathered over %s", spec.dim[d].axis[a]);
            example->gather[example->gathers++] = (struct gather){d, task->in_spec.dim[d].axis[a]};
            if (spec.dim[d].axes == 0) spec.dim[d].segments = 1;
            SL_TRY(add_array(task, example, &spec, 0, error));
        }
    }
    return SL_OK;
}

static int plan_example(struct task *task, bool gather, struct sl_error *error) {
    struct example *example = &task->example[task->examples++];
    example->name = gather ? "gather" : "addition";
    example->title = gather ? "c = a + b at every coordinate, then all_gather: every coordinate has all of c"
                            : "c = a + b at every coordinate";
    strcpy(example->label[A], "a");
    strcpy(example->label[B], "b");
    strcpy(example->label[SUM], "a + b");
    for (int i = A; i <= SUM; i++) SL_TRY(add_array(task, example, &task->in_spec, i < SUM, error));
    if (gather) SL_TRY(plan_gathers(task, example, task->in_spec, error));
    const int last = example->arrays - 1;
    strcpy(example->label[last], "c");
    if (!task->config->out_spec) return SL_OK;
    SL_TRY(check_out_spec(task, &example->spec[last], error));
    example->spec[last] = task->out_spec;
    return SL_OK;
}

/* ---- the program of every coordinate ---- */

static int add_and_gather(struct sl_spmd *self, const struct sl_array *in, struct sl_array *out, void *arg) {
    const struct example *example = arg;
    const int32_t *a = in[A].data, *b = in[B].data;
    int32_t *sum = out[0].data;
    for (size_t i = 0; i < sl_array_elements(&in[A]); i++) sum[i] = a[i] + b[i];
    for (int g = 0; g < example->gathers; g++) {
        const struct gather *gather = &example->gather[g];
        const size_t segments = (size_t)example->spec[SUM + g].dim[gather->dim].segments;
        const size_t extent = out[g].shape[gather->dim];
        size_t shape[3] = {segments, extent / segments, 1};
        struct sl_group group;
        for (int d = 0; d < gather->dim; d++) shape[0] *= out[g].shape[d];
        for (int d = gather->dim + 1; d < out[g].dims; d++) shape[2] *= out[g].shape[d];
        SL_TRY(sl_group_axes(self, gather->axis, &group));
        SL_TRY(sl_all_gather_dim(self, &group, SL_I32, out[g].data, out[g + 1].data, 3, shape, 1));
        SL_TRY(sl_group_close(self, &group));
    }
    return SL_OK;
}

static int run_example(struct task *task, struct example *example) {
    const struct sl_shard_map map = {.inputs = SUM,
                                     .outputs = example->arrays - SUM,
                                     .input = example->array,
                                     .in_spec = example->spec,
                                     .output = example->array + SUM,
                                     .out_spec = example->spec + SUM};
    return sl_shard_map_run(&map, &task->mesh, &task->engine, add_and_gather, example);
}

/* Whether the sum, and all gathered arrays, equal a + b. */
static int check_example(const struct task *task, const struct example *example, struct sl_error *error) {
    for (int n = SUM; n < example->arrays; n++) {
        const int32_t *sum = example->array[n].data;
        for (size_t i = 0; i < sl_array_elements(&example->array[n]); i++) {
            if (sum[i] == 2 * (int32_t)i) continue;
            char spec[200];
            return sl_error_set(error, SL_CHECK_FAILED,
                                "%s: element %zu is %d, but a + b is %d there: under the out-spec '%s' blocks lie "
                                "elsewhere than under the in-spec",
                                example->label[n], i, (int)sum[i], 2 * (int)i,
                                sl_spec_print(&task->out_spec, spec, sizeof spec));
        }
    }
    return SL_OK;
}

/* ---- results ---- */

static struct sl_sharding sharding_of(const struct task *task, const struct example *example, int n) {
    return (struct sl_sharding){.name = example->label[n],
                                .mesh = &task->mesh,
                                .spec = &example->spec[n],
                                .dims = task->dims,
                                .shape = task->shape};
}

/* Returns the elements from *NEXT on as nested lists, a level per dim. */
static json_t *json_values(const struct sl_array *array, int dim, size_t *next) {
    if (dim == array->dims) return json_integer(((const int32_t *)array->data)[(*next)++]);
    json_t *list = json_array();
    for (size_t i = 0; i < array->shape[dim]; i++) json_array_append_new(list, json_values(array, dim + 1, next));
    return list;
}

/* Returns {"0":[[0,1],[2,4]],..}: begin and end of each coordinate's piece in each dim. */
static json_t *json_shards(const struct sl_sharding *sharding) {
    json_t *shards = json_object();
    for (int coordinate = 0; coordinate < sharding->mesh->size; coordinate++) {
        json_t *slices = json_array();
        for (int d = 0; d < sharding->dims; d++) {
            json_t *slice = json_array();
            for (int segment = 0; segment < sl_sharding_segments(sharding, d); segment++) {
                size_t begin, end;
                sl_sharding_slice(sharding, coordinate, d, segment, &begin, &end);
                json_array_append_new(slice, json_integer((json_int_t)begin));
                json_array_append_new(slice, json_integer((json_int_t)end));
            }
            json_array_append_new(slices, slice);
        }
        char key[16];
        snprintf(key, sizeof key, "%d", coordinate);
        json_object_set_new(shards, key, slices);
    }
    return shards;
}

static int print_json(const struct sl_output *output, json_t *object, struct sl_error *error) {
    return sl_json_print(output->stream, output->name, object, error);
}

/* Prints the owners of blocks, and VALUES if given. */
static int print_json_array(const struct sl_output *output, const char *example, const struct sl_sharding *sharding,
                            const struct sl_array *values, struct sl_error *error) {
    char spec[200];
    size_t next = 0;
    json_t *shape = json_array();
    for (int d = 0; d < sharding->dims; d++) json_array_append_new(shape, json_integer((json_int_t)sharding->shape[d]));
    json_t *object =
        json_pack("{s:s, s:s, s:o, s:s, s:o}", "example", example, "array", sharding->name, "shape", shape, "spec",
                  sl_spec_print(sharding->spec, spec, sizeof spec), "shards", json_shards(sharding));
    if (values) json_object_set_new(object, "values", json_values(values, 0, &next));
    return print_json(output, object, error);
}

static int print_json_mesh(const struct sl_output *output, const struct sl_mesh *mesh, struct sl_error *error) {
    json_t *axes = json_object(), *coordinates = json_array();
    for (int axis = 0; axis < mesh->axes; axis++)
        json_object_set_new(axes, mesh->axis[axis].name, json_integer(mesh->axis[axis].size));
    for (int coordinate = 0; coordinate < mesh->size; coordinate++) {
        json_t *indices = json_object();
        for (int axis = 0; axis < mesh->axes; axis++)
            json_object_set_new(indices, mesh->axis[axis].name, json_integer(sl_mesh_index(mesh, coordinate, axis)));
        json_array_append_new(coordinates, indices);
    }
    return print_json(output, json_pack("{s:o, s:o}", "mesh", axes, "coordinates", coordinates), error);
}

static int print_as_json(const struct sl_output *output, const struct task *task, struct sl_error *error) {
    SL_TRY(print_json_mesh(output, &task->mesh, error));
    for (int e = 0; e < task->examples; e++) {
        const struct example *example = &task->example[e];
        for (int n = 0; n < example->arrays; n++) {
            const struct sl_sharding sharding = sharding_of(task, example, n);
            SL_TRY(print_json_array(output, example->name, &sharding, &example->array[n], error));
        }
        const bool equal = check_example(task, example, NULL) == SL_OK;
        SL_TRY(print_json(output, json_pack("{s:s, s:b}", "example", example->name, "equal", equal), error));
    }
    for (int n = 0; n < task->figure.arrays; n++)
        SL_TRY(print_json_array(output, "layout", &task->figure.sharding[n], NULL, error));
    return SL_OK;
}

static void print_dim(FILE *file, const struct sl_array *array, int dim, size_t *next) {
    if (dim == array->dims) {
        fprintf(file, "%d", (int)((const int32_t *)array->data)[(*next)++]);
        return;
    }
    for (size_t i = 0; i < array->shape[dim]; i++) {
        fputs(i ? ", " : "[", file);
        print_dim(file, array, dim + 1, next);
    }
    fputc(']', file);
}

static void print_values(FILE *file, const char *name, const struct sl_array *array) {
    enum { MOST_PRINTED = 256 };
    size_t next = 0;
    fprintf(file, "%s = ", name);
    if (sl_array_elements(array) > MOST_PRINTED) {
        fprintf(file, "%zu elements (--json prints them)\n\n", sl_array_elements(array));
        return;
    }
    print_dim(file, array, 0, &next);
    fputs("\n\n", file);
}

static int print_as_text(const struct sl_output *output, const struct task *task, struct sl_error *error) {
    const enum sl_drawing drawing = output->columns ? SL_DRAW_COLOURS : SL_DRAW_TEXT;
    FILE *file = output->stream;
    char text[SL_MAX_AXES * (SL_AXIS_NAME + 12)];
    fprintf(file, "mesh %s, coordinates\n", sl_mesh_print(&task->mesh, text, sizeof text));
    for (int coordinate = 0; coordinate < task->mesh.size; coordinate++)
        fprintf(file, "  %s\n", sl_mesh_describe(&task->mesh, coordinate, text, sizeof text));
    fputc('\n', file);
    for (int e = 0; e < task->examples; e++) {
        const struct example *example = &task->example[e];
        fprintf(file, "%s\n\n", example->title);
        for (int n = 0; n < example->arrays; n++) {
            const struct sl_sharding sharding = sharding_of(task, example, n);
            SL_TRY(sl_sharding_draw(file, &sharding, 1, drawing, error));
            print_values(file, example->label[n], &example->array[n]);
        }
    }
    return sl_sharding_draw(file, task->figure.sharding, task->figure.arrays, drawing, error);
}

static int print_as_svg(const struct sl_output *output, const struct task *task, struct sl_error *error) {
    struct sl_sharding list[2 * MOST_ARRAYS];
    int count = 0;
    for (int e = 0; e < task->examples; e++) {
        for (int n = 0; n < task->example[e].arrays; n++) list[count++] = sharding_of(task, &task->example[e], n);
    }
    for (int n = 0; n < task->figure.arrays; n++) list[count++] = task->figure.sharding[n];
    return sl_sharding_draw(output->stream, list, count, SL_DRAW_SVG, error);
}

/* ---- the run ---- */

static int run_examples(struct task *task, struct sl_error *error) {
    const int choice = task->config->example;
    task->engine.error = error;
    if (choice >= FIGURES) return figure_make(&task->figure, choice - FIGURES, &task->mesh, error);
    SL_TRY(read_arrays(task, error));
    if (choice == LAYOUT) {
        task->figure.arrays = 1;
        task->figure.sharding[0] = (struct sl_sharding){"array", &task->mesh, &task->in_spec, task->dims, task->shape};
    }
    if (choice == ALL || choice == ADDITION) SL_TRY(plan_example(task, false, error));
    if (choice == ALL || choice == GATHER) SL_TRY(plan_example(task, true, error));
    for (int e = 0; e < task->examples; e++) SL_TRY(run_example(task, &task->example[e]));
    return SL_OK;
}

static int print_results(const struct task *task, struct sl_error *error) {
    const struct config *config = task->config;
    const int format = config->common.json ? JSON : config->format;
    struct sl_output output;
    SL_TRY(sl_output_open(&output, config->output, error));
    int status = format == JSON  ? print_as_json(&output, task, error)
                 : format == SVG ? print_as_svg(&output, task, error)
                                 : print_as_text(&output, task, error);
    status = sl_output_close(&output, status, error);
    for (int e = 0; e < task->examples && status == SL_OK; e++) status = check_example(task, &task->example[e], error);
    return status;
}

static int run(struct task *task, struct sl_error *error) {
    const struct config *config = task->config;
    SL_TRY(sl_common_open(&config->common, &task->mesh, &task->engine, error));
    if (config->common.show_placement) {
        const bool json = config->common.json || config->format == JSON;
        SL_TRY(sl_placement_report(&task->mesh, &task->engine, json, error));
        return sl_stdout_finish(error);
    }
    SL_TRY(run_examples(task, error));
    return sl_speaks(&task->engine) ? print_results(task, error) : SL_OK;
}

int main(int argc, char **argv) {
    struct config config = {.common = sl_common_defaults(0), .shape = "2,4"};
    config.common.mesh = "x=2,y=4";
    struct sl_options options = {
        .program = "sharding",
        .summary = "Adds two arrays whose blocks lie on a mesh of coordinates, and draws which coordinates hold which "
                   "blocks.",
        .engine = &config.common.engine,
        .section = SL_SECTIONS({"Mesh", sl_mesh_table, &config.common}, {"Arrays", array_table, &config},
                               {"Output", output_table, &config}),
    };
    struct sl_error error = {0};
    struct task task = {.config = &config};
    config.common.command = &options;
    int status = sl_options_parse(&options, argc, argv);
    const char *own = figure_mesh(config.example - FIGURES);
    if (own && !sl_option_given(&options, "mesh")) config.common.mesh = own;
    if (status == SL_OK && !options.answered) {
        status = sl_options_finish(&options, run(&task, &error), &error);
    }
    for (int e = 0; e < task.examples; e++) {
        for (int n = 0; n < task.example[e].arrays; n++) free(task.example[e].array[n].data);
    }
    sl_options_free(&options);
    return status;
}
