/* tensor.c - layers sharded over a tensor group: the members' parts, and an example that verifies that the parts
 * give the result of one device.
 *
 * The perceptron h = W2 f(W1 x + b1) + b2 has W1 and b1 sharded by rows and W2 by columns: each member has its part
 * z of the middle and an h of full size; the result is their sum plus b2, which every member adds. The embedding has
 * its rows sharded: a member returns zeros for tokens of other members, so the sum takes each row from one member. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/collectives.h"
#include "collectives/engines.h"
#include "drivers/tools/plan/plan.h"
#include "spmd/random.h"
#include "collectives/shard_map.h"

/* ---- the layers: on shards, and on whole arrays with one member ---- */

enum { X, W1, B1, W2, B2, IDS, TABLE, INPUTS };
enum { PERCEPTRON, EMBEDDING, OUTPUTS };

static int perceptron(struct sl_spmd *self, const struct sl_group *group, const struct sl_array *in, float *h) {
    const int tokens = (int)in[X].shape[0], d = (int)in[X].shape[1], middle = (int)in[B1].shape[0];
    const float *x = in[X].data, *w1 = in[W1].data, *b1 = in[B1].data, *w2 = in[W2].data, *b2 = in[B2].data;
    for (int t = 0; t < tokens; t++) {
        for (int i = 0; i < d; i++) h[t * d + i] = 0;
        for (int j = 0; j < middle; j++) {
            float z = b1[j];
            for (int i = 0; i < d; i++) z += w1[j * d + i] * x[t * d + i];
            z = tanhf(z);
            for (int i = 0; i < d; i++) h[t * d + i] += w2[i * middle + j] * z;
        }
    }
    SL_TRY(sl_psum(self, group, SL_F32, h, h, (size_t)(tokens * d)));
    for (int i = 0; i < tokens * d; i++) h[i] += b2[i % d];
    return SL_OK;
}

static int embedding(struct sl_spmd *self, const struct sl_group *group, const struct sl_array *in, float *h) {
    const int tokens = (int)in[IDS].shape[0], rows = (int)in[TABLE].shape[0], d = (int)in[TABLE].shape[1];
    const int32_t *id = in[IDS].data;
    const float *table = in[TABLE].data;
    for (int t = 0; t < tokens; t++) {
        const int row = id[t] - group->rank * rows;
        for (int i = 0; i < d; i++) h[t * d + i] = row >= 0 && row < rows ? table[row * d + i] : 0;
    }
    return sl_psum(self, group, SL_F32, h, h, (size_t)(tokens * d));
}

static int both(struct sl_spmd *self, const struct sl_array *in, struct sl_array *out, void *arg) {
    struct sl_group group;
    (void)arg;
    SL_TRY(sl_group_axes(self, "tensor", &group));
    SL_TRY(perceptron(self, &group, in, out[PERCEPTRON].data));
    return embedding(self, &group, in, out[EMBEDDING].data);
}

/* ---- the example: a few tokens, sizes divisible by the group's ---- */

struct example {
    struct sl_array in[INPUTS], out[OUTPUTS];
    struct sl_spec in_spec[INPUTS], out_spec[OUTPUTS];
};

static const char *const spec_text[] = {
    [X] = "-,-", [W1] = "tensor,-", [B1] = "tensor", [W2] = "-,tensor", [B2] = "-", [IDS] = "-", [TABLE] = "tensor,-"};

static int take(struct sl_array *array, enum sl_dtype dtype, int dims, size_t rows, size_t columns) {
    *array = (struct sl_array){.dtype = dtype, .dims = dims, .shape = {rows, columns}};
    array->data = calloc(sl_array_elements(array), sizeof(float));
    return array->data ? SL_OK : SL_FAILED;
}

static int open_example(struct example *example, int members, struct sl_error *error) {
    enum { TOKENS = 5 };
    const size_t d = 8 * (size_t)members, middle = 4 * d, rows = 16 * (size_t)members;
    int status = take(&example->in[X], SL_F32, 2, TOKENS, d) | take(&example->in[W1], SL_F32, 2, middle, d) |
                 take(&example->in[B1], SL_F32, 1, middle, 1) | take(&example->in[W2], SL_F32, 2, d, middle) |
                 take(&example->in[B2], SL_F32, 1, d, 1) | take(&example->in[IDS], SL_I32, 1, TOKENS, 1) |
                 take(&example->in[TABLE], SL_F32, 2, rows, d);
    for (int o = 0; o < OUTPUTS; o++) status |= take(&example->out[o], SL_F32, 2, TOKENS, d);
    if (status) return sl_error_set(error, SL_FAILED, "no memory for the tensor-parallel example");
    for (int i = 0; i < INPUTS; i++) {
        SL_TRY(sl_spec_parse(&example->in_spec[i], spec_text[i], error));
        float *data = example->in[i].data;
        const size_t count = sl_array_elements(&example->in[i]);
        if (i != IDS) sl_random_normal(sl_key_of_seed((uint64_t)i), count, data);
        if (i == W1 || i == W2) {
            for (size_t n = 0; n < count; n++) data[n] /= sqrtf((float)d);
        }
    }
    for (int t = 0; t < TOKENS; t++) /* including the first and the last row */
        ((int32_t *)example->in[IDS].data)[t] = (int32_t)((rows - 1) * (size_t)t / (TOKENS - 1));
    return SL_OK;
}

static void close_example(struct example *example) {
    for (int i = 0; i < INPUTS; i++) free(example->in[i].data);
    for (int o = 0; o < OUTPUTS; o++) free(example->out[o].data);
}

static int run_example(struct example *example, int members, struct sl_error *error) {
    const struct sl_mesh mesh = {1, {{"tensor", members}}, members};
    const struct sl_shard_map map = {INPUTS, OUTPUTS, example->in, example->in_spec, example->out, example->out_spec};
    struct sl_engine engine;
    SL_TRY(sl_engine_open(&engine, "local", error));
    engine.error = error;
    return sl_shard_map_run(&map, &mesh, &engine, both, NULL);
}

/* Computes the largest difference between MEMBERS devices and one, for each layer. */
static int compare(int members, double *difference, struct sl_error *error) {
    struct example split = {0}, alone = {0};
    int status = open_example(&split, members, error);
    if (status == SL_OK) status = open_example(&alone, members, error);
    if (status == SL_OK) status = run_example(&split, members, error);
    if (status == SL_OK) status = run_example(&alone, 1, error);
    for (int o = 0; o < OUTPUTS && status == SL_OK; o++) {
        const float *a = split.out[o].data, *b = alone.out[o].data;
        difference[o] = 0;
        for (size_t i = 0; i < sl_array_elements(&split.out[o]); i++)
            difference[o] = fmax(difference[o], fabs((double)a[i] - (double)b[i]));
    }
    close_example(&split);
    close_example(&alone);
    return status;
}

/* ---- the section ---- */

static const struct plan_field field[] = {{"tensor", "tensor", -20, PLAN_FIELD_TEXT},
                                          {"shape", "shape", -18, PLAN_FIELD_TEXT},
                                          {"split", "split", -20, PLAN_FIELD_TEXT},
                                          {"shard", "of a device", -18, PLAN_FIELD_TEXT},
                                          {"elements", "elements", 12, PLAN_FIELD_COUNT},
                                          {"bytes", "bytes", 12, PLAN_FIELD_BYTES},
                                          {0}};

/* Adds a row for an array of ROWS x COLUMNS; a device has one in BY_ROWS, rounded up, and one in BY_COLUMNS. COLUMNS
 * 0: a vector. */
static int add(struct plan_rows *rows, const struct plan_job *job, const char *name, const char *split,
               double row_count, double columns, int by_rows, int by_columns, struct sl_error *error) {
    char shape[40], shard[40];
    const double local_rows = ceil(row_count / by_rows), local_columns = columns / by_columns;
    const double elements = local_rows * (columns > 0 ? local_columns : 1);
    snprintf(shape, sizeof shape, columns > 0 ? "%.0f x %.0f" : "%.0f", row_count, columns);
    snprintf(shard, sizeof shard, columns > 0 ? "%.0f x %.0f" : "%.0f", local_rows, local_columns);
    const union plan_value value[] = {{.text = name},       {.text = shape},
                                      {.text = split},      {.text = shard},
                                      {.number = elements}, {.number = elements * plan_element_bytes(job->precision)}};
    return plan_rows_add(rows, value, error);
}

static const struct plan_field check_field[] = {
    {"layer", "layer", -20, PLAN_FIELD_TEXT},
    {"members", "members", 8, PLAN_FIELD_COUNT},
    {"difference", "largest difference from one device", 36, PLAN_FIELD_REAL},
    {0}};

static int check(struct plan_rows *rows, int members, struct sl_error *error) {
    static const char *const name[] = {"perceptron", "embedding"};
    static const double allowed[] = {1e-5, 0}; /* sums in another order; all terms but one are zeros */
    double difference[OUTPUTS];
    SL_TRY(compare(members, difference, error));
    plan_rows_note(rows, "\n");
    plan_rows_begin(rows, "tensor_check", "A small one of each, run on that many coordinates and on one:", check_field);
    int wrong = -1;
    for (int o = 0; o < OUTPUTS; o++) {
        const union plan_value value[] = {{.text = name[o]}, {.number = members}, {.number = difference[o]}};
        SL_TRY(plan_rows_add(rows, value, error));
        if (!(difference[o] <= allowed[o])) wrong = o;
    }
    if (wrong < 0) return SL_OK;
    return sl_error_set(error, SL_CHECK_FAILED, "%s: %d devices differ by %g from one, allowed are %g", name[wrong],
                        members, difference[wrong], allowed[wrong]);
}

enum { MOST_CHECKED = 64 }; /* devices: the check has a thread per device */

int plan_print_tensor(struct plan_rows *rows, const struct plan_job *job, struct sl_error *error) {
    const double d = job->hidden, middle = d * job->expansion;
    const int n = job->tensor;
    plan_rows_begin(rows, "tensor", "Tensor: a layer's parts on each of the group's devices, for one token", field);
    SL_TRY(add(rows, job, "W1", "by rows", middle, d, n, 1, error));
    SL_TRY(add(rows, job, "b1", "by rows", middle, 0, n, 1, error));
    SL_TRY(add(rows, job, "z = f(W1 x + b1)", "as W1", middle, 0, n, 1, error));
    SL_TRY(add(rows, job, "W2", "by columns", d, middle, 1, n, error));
    SL_TRY(add(rows, job, "W2 z", "partial, then summed", d, 0, 1, 1, error));
    SL_TRY(add(rows, job, "b2", "added after the sum", d, 0, 1, 1, error));
    SL_TRY(add(rows, job, "Wq, Wk, Wv", "by heads", 3 * d, d, n, 1, error));
    SL_TRY(add(rows, job, "Wo", "by heads, columns", d, d, 1, n, error));
    SL_TRY(add(rows, job, "embedding", "by vocabulary", job->vocabulary, d, n, 1, error));
    return n <= MOST_CHECKED ? check(rows, n, error) : SL_OK;
}
