/* test_token_modules.c - the two ends of a language model, against plain sums in double, however the work is divided
 * over an axis and into chunks of classes. */
#include "tests/rigs/run_on.h"

#include "layers/modules/transformer_modules.h"
#include "tests/rigs/token_problem.h"

/* ---- the modules on a mesh ---- */

enum mode { TRAIN, EVALUATE, GENERATE, INITIALIZE };

enum {
    Y,
    HEAD,
    DTOKENS,
    EMBEDDING_GRADIENT,
    HEAD_GRADIENT,
    VALUE,
    METRICS,
    RESULTS
}; /* HEAD: dx, or the last logits */

struct trial {
    const struct problem *problem;
    bool parallel;
    int group;
    enum mode mode;
    const char *gemm;
    const struct sl_rule *rules; /* NULL: as parallel says */
    int chunk;                   /* classes; 0: the head's own choice */
    bool backward;               /* is planned though caches are */
    bool working_bf16;           /* the storage is bf16 */
    const char *const *axes;     /* opened for modules */
    /* Set by the run: one block per coordinate, with its results one after another. */
    size_t offset[RESULTS + 1];
    float *blocks;
};

struct worker {
    struct trial *trial;
    const struct problem *problem;
    struct layout layout;
    struct sl_module *embedding, *head;
    struct sl_parameters parameters;
    struct sl_groups peers;
    struct sl_stash stash;
    struct sl_caches caches;
    struct sl_context context;
    struct sl_metrics metrics;
    size_t workspace, offset[RESULTS + 1];
    int32_t *tokens, *labels;
    float *x, *dy; /* [all, own columns] */
    float *results, *all;
};

static int build(struct sl_spmd *self, struct worker *worker) {
    const struct trial *trial = worker->trial;
    const struct sl_vocabulary vocabulary = {
        .size = worker->problem->size, .dimension = COLUMNS, .parallel = trial->parallel, .chunk = trial->chunk};
    const struct sl_channels channels = {.mesh = self->mesh, .axis = "tensor", .pieces = 1};
    worker->embedding = sl_token_embedding(&vocabulary, &channels);
    worker->head = sl_token_head(&vocabulary, &channels);
    return worker->embedding && worker->head ? SL_OK : sl_fail(self, SL_FAILED, "no memory");
}

static int plan(struct sl_spmd *self, struct worker *worker) {
    static const struct sl_rule rows[] = {{"embedding", "tensor"}, {NULL, NULL}};
    const struct trial *trial = worker->trial;
    SL_TRY(build(self, worker));
    if (sl_parameters_open(&worker->parameters, 1)) return sl_fail(self, SL_FAILED, "no memory");
    worker->parameters.working_bf16 = worker->problem->working_bf16;
    worker->parameters.coordinate = self->coordinate;
    SL_TRY(sl_groups_open(&worker->peers, self, trial->axes));
    struct sl_plan plan = {.mesh = self->mesh,
                           .rules = trial->rules      ? trial->rules
                                    : trial->parallel ? rows
                                                      : NULL,
                           .gemm = sl_gemm_find(trial->gemm, &self->error),
                           .precision = worker->problem->precision,
                           .rows = worker->problem->rows,
                           .sequence = worker->problem->sequence,
                           .wgrad_group = trial->group,
                           .parameters = &worker->parameters,
                           .stash = &worker->stash,
                           .caches = trial->mode == GENERATE ? &worker->caches : NULL,
                           .forward_only = (trial->mode == EVALUATE || trial->mode == GENERATE) && !trial->backward,
                           .groups = &worker->peers,
                           .error = &self->error};
    SL_TRY(sl_module_plan(worker->embedding, &plan));
    plan.workspace = 0;
    SL_TRY(sl_module_plan(worker->head, &plan));
    worker->workspace = plan.workspace_peak;
    sl_parameters_layout(&worker->parameters, 1, 0, false);
    return sl_parameters_take(&worker->parameters, &self->error);
}

static void spread(struct worker *worker) {
    const struct problem *p = worker->problem;
    const int own = p->all * COLUMNS / worker->layout.parts, entries = (int)worker->parameters.list[0].count;
    float *host = malloc((size_t)(own + entries) * sizeof *host); /* more than any of them */
    for (int i = 0; i < own; i++) host[i] = p->x[column_at(&worker->layout, i)];
    sl_device.copy(worker->x, host, (size_t)own * sizeof *host);
    for (int i = 0; i < own; i++) host[i] = p->dy[column_at(&worker->layout, i)];
    sl_device.copy(worker->dy, host, (size_t)own * sizeof *host);
    for (int i = 0; i < entries; i++) host[i] = p->table[entry_at(p, &worker->layout, i)];
    sl_device.copy(sl_parameter_value(&worker->parameters, 0), host, (size_t)entries * sizeof *host);
    sl_device.copy(worker->tokens, p->tokens, (size_t)p->all * sizeof *p->tokens);
    sl_device.copy(worker->labels, p->labels, (size_t)p->all * sizeof *p->labels);
    sl_device.settle(NULL);
    free(host);
}

static int open_worker(struct sl_spmd *self, struct worker *worker) {
    SL_TRY(plan(self, worker));
    const struct problem *p = worker->problem;
    worker->layout =
        layout_of(worker->trial->parallel, sl_mesh_axis_size(self->mesh, "tensor"), sl_axis_index(self, "tensor"));
    const size_t own = (size_t)(p->all * COLUMNS / worker->layout.parts);
    const size_t head = (size_t)(p->all * worker->head->out), entries = worker->parameters.list[0].room;
    const size_t count[RESULTS] = {own, head, (size_t)p->all, entries, entries, entries, 3};
    for (int i = 0; i < RESULTS; i++) worker->offset[i + 1] = worker->offset[i] + count[i];
    worker->tokens = sl_device.take((size_t)p->all * sizeof *p->tokens);
    worker->labels = sl_device.take((size_t)p->all * sizeof *p->labels);
    worker->x = sl_device.take(own * sizeof(float));
    worker->dy = sl_device.take(own * sizeof(float));
    worker->results = sl_device.take(worker->offset[RESULTS] * sizeof(float));
    worker->all = sl_device.take((size_t)self->mesh->size * worker->offset[RESULTS] * sizeof(float));
    worker->stash.slots = MICROBATCHES;
    worker->stash.data = sl_device.take(worker->stash.elements * MICROBATCHES * sizeof(float));
    static const enum sl_phase phase[] = {SL_TRAIN, SL_EVALUATE, SL_PREFILL, SL_TRAIN};
    worker->context = (struct sl_context){
        .self = self,
        .kernels = sl_kernels_select(),
        .queue = self->queue,
        .phase = worker->trial->mode == GENERATE && p->sequence == 1 ? SL_DECODE : phase[worker->trial->mode],
        .rows = p->rows,
        .sequence = p->sequence,
        .wgrad_group = worker->trial->group,
        .weight = weight,
        .metrics = &worker->metrics,
        .parameters = &worker->parameters,
        .stash = &worker->stash,
        .groups = &worker->peers,
        .sums = sl_device.take(sl_sums_bytes()),
        .workspace = sl_device.take(worker->workspace)};
    spread(worker);
    return SL_OK;
}

static void close_worker(struct worker *worker) {
    void *const taken[] = {worker->tokens,      worker->labels, worker->x,          worker->dy,
                           worker->results,     worker->all,    worker->stash.data, worker->context.workspace,
                           worker->context.sums};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) sl_device.give(taken[i]);
    free(worker->stash.tensor);
    free(worker->caches.cache);
    sl_parameters_close(&worker->parameters);
    sl_module_free(worker->embedding);
    sl_module_free(worker->head);
}

/* Prepares a microbatch, and clears the results of earlier calls. */
static void set_microbatch(struct worker *worker, int microbatch) {
    const int first = microbatch * worker->problem->rows;
    struct sl_context *context = &worker->context;
    context->microbatch = microbatch;
    context->batch = (struct sl_batch){.tokens = worker->tokens + first,
                                       .labels = worker->trial->mode == GENERATE ? NULL : worker->labels + first};
    context->kernels->fill(worker->workspace / sizeof(float), NAN, (float *)(void *)context->workspace);
}

static int forward(struct worker *worker) {
    struct sl_context *context = &worker->context;
    const struct sl_module *embedding = worker->embedding, *head = worker->head;
    const size_t rows = (size_t)context->rows, own = rows * (size_t)head->in, given = rows * (size_t)head->out;
    float *y = worker->results + worker->offset[Y], *made = worker->results + worker->offset[HEAD];
    for (int m = 0; m < MICROBATCHES; m++) {
        const size_t at = (size_t)m;
        set_microbatch(worker, m);
        SL_TRY(embedding->type->forward(embedding, context, sl_given_f32(NULL), SL_INTO(y + at * own)));
        set_microbatch(worker, m);
        SL_TRY(head->type->forward(head, context, sl_given_f32(worker->x + at * own), SL_INTO(made + at * given)));
    }
    struct sl_metrics *sums = &worker->metrics;
    sl_sums_read(context->sums, sums);
    const float metrics[] = {(float)sums->loss, (float)sums->correct, (float)sums->rows};
    sl_device.copy(worker->results + worker->offset[METRICS], metrics, sizeof metrics);
    return SL_OK;
}

static int backward_input(struct worker *worker) {
    struct sl_context *context = &worker->context;
    const struct sl_module *embedding = worker->embedding;
    const size_t own = (size_t)(context->rows * embedding->out);
    for (int m = MICROBATCHES - 1; m >= 0; m--) {
        const size_t at = (size_t)m;
        set_microbatch(worker, m);
        SL_TRY(embedding->type->backward_input(embedding, context, sl_given_f32(NULL),
                                               sl_given_f32(worker->dy + at * own), NULL));
        SL_TRY(embedding->type->backward_input(
            embedding, context, sl_given_f32(NULL), sl_given_f32(worker->dy + at * own),
            SL_INTO(worker->results + worker->offset[DTOKENS] + at * (size_t)context->rows)));
    }
    return SL_OK;
}

/* Gradients are of all microbatches, and for the embedding twice. The head's W may overwrite forward's saved arrays. */
static int backward_weight(struct worker *worker) {
    struct sl_context *context = &worker->context;
    const struct sl_module *embedding = worker->embedding, *head = worker->head;
    const size_t own = (size_t)(context->rows * head->in);
    for (int i = 0; i < 2; i++) {
        for (int m = 0; m < MICROBATCHES; m += context->wgrad_group) {
            const size_t at = (size_t)m;
            context->accumulate = i > 0 || m > 0;
            set_microbatch(worker, m);
            SL_TRY(embedding->type->backward_weight(embedding, context, sl_given_f32(NULL),
                                                    sl_given_f32(worker->dy + at * own)));
            set_microbatch(worker, m);
            if (i == 0)
                SL_TRY(head->type->backward_weight(head, context,
                                                   sl_given_f32(sl_is_kept(&head->x) ? worker->x + at * own : NULL),
                                                   sl_given_f32(NULL)));
        }
    }
    return SL_OK;
}

static int compute(struct worker *worker) {
    const struct sl_parameters *parameters = &worker->parameters;
    const size_t entries = parameters->list[0].room;
    const struct sl_kernels *kernels = worker->context.kernels;
    kernels->fill(worker->offset[RESULTS], NAN, worker->results);
    for (int i = 0; i < 2; i++) kernels->fill(entries, NAN, sl_parameter_gradient(parameters, i));
    sl_parameters_round(parameters, kernels, parameters->list[0].range);
    SL_TRY(forward(worker));
    if (worker->trial->mode != TRAIN) return SL_OK;
    SL_TRY(backward_input(worker));
    SL_TRY(backward_weight(worker));
    for (int i = 0; i < 2; i++)
        sl_device.copy(worker->results + worker->offset[EMBEDDING_GRADIENT + i], sl_parameter_gradient(parameters, i),
                       entries * sizeof(float));
    return SL_OK;
}

/* Collects all coordinates' results at coordinate 0. */
static int collect(struct sl_spmd *self, const struct sl_group *world, struct worker *worker) {
    const size_t block = worker->offset[RESULTS];
    sl_device.copy(worker->results + worker->offset[VALUE], sl_parameter_value(&worker->parameters, 0),
                   worker->parameters.list[0].count * sizeof(float));
    SL_TRY(sl_all_gather(self, world, SL_F32, worker->results, worker->all, block));
    SL_TRY(sl_device.settle(&self->error));
    if (self->coordinate != 0) return SL_OK;
    struct trial *trial = worker->trial;
    memcpy(trial->offset, worker->offset, sizeof trial->offset);
    trial->blocks = malloc((size_t)self->mesh->size * block * sizeof(float));
    if (!trial->blocks) return sl_fail(self, SL_FAILED, "no memory");
    sl_device.copy(trial->blocks, worker->all, (size_t)self->mesh->size * block * sizeof(float));
    return SL_OK;
}

static int run_worker(struct sl_spmd *self, struct worker *worker) {
    struct sl_group world, alone;
    SL_TRY(sl_group_axes(self, "*", &world));
    SL_TRY(sl_group_axes(self, "", &alone));
    SL_TRY(open_worker(self, worker));
    if (worker->trial->mode == INITIALIZE) {
        sl_parameters_seed(&worker->parameters, 3);
        SL_TRY(sl_parameters_initialize(&worker->parameters, self, &alone));
    } else {
        SL_TRY(compute(worker));
    }
    return collect(self, &world, worker);
}

static int trial_program(struct sl_spmd *self, void *arg) {
    struct trial *trial = arg;
    struct worker worker = {.trial = trial, .problem = trial->problem};
    worker.caches = (struct sl_caches){.sequences = SEQUENCES, .positions = trial->problem->sequence};
    const int status = run_worker(self, &worker);
    close_worker(&worker);
    return status;
}

/* ---- comparison ---- */

static const char *const axes[] = {"data", "tensor", NULL};

/* Expects equal gradients at all coordinates, so their parameters cannot drift apart. */
static void expect_same_bits(const struct trial *trial, const struct sl_mesh *mesh, int result) {
    const size_t block = trial->offset[RESULTS], at = trial->offset[result], next = trial->offset[result + 1];
    for (int i = 1; i < mesh->size && !trial->parallel; i++)
        if (memcmp(trial->blocks + (size_t)i * block + at, trial->blocks + at, (next - at) * sizeof(float)))
            fail_msg("result %d of coordinate %d has other bits", result, i);
}

/* Half of bf16's largest relative rounding error, 2^-8: the average error of a product's operands stays below it. */
#define ROUNDING 0x1p-9

/* Rounding of p changes dx by at most that part of the sum of |weight p / sums * entry|; all entries are below 1.
 * Rounding of dlogits changes the table's gradient; their sum over classes is below 2 weight in each row. */
static void compare_trained(const struct trial *trial, const struct layout *layout, const float *block) {
    const struct problem *p = trial->problem;
    const double off = p->precision == SL_BF16 ? ROUNDING * (double)weight : 0;
    const size_t own = trial->offset[HEAD + 1] - trial->offset[HEAD];
    for (size_t i = 0; i < own; i++)
        expect_close("dx", i, block[trial->offset[HEAD] + i], p->dx[column_at(layout, (int)i)], 1e-5, 1e-5 + off);
    for (int i = 0; i < p->all; i++)
        expect_close("dx of tokens", (size_t)i, block[trial->offset[DTOKENS] + (size_t)i], 0, 0, 0);
    const size_t entries = trial->offset[VALUE + 1] - trial->offset[VALUE];
    for (size_t i = 0; i < entries; i++) {
        const int entry = entry_at(p, layout, (int)i);
        if (entry >= p->size * COLUMNS) {
            expect_close("padding's gradient", i, block[trial->offset[HEAD_GRADIENT] + i], 0, 0, 0);
            continue;
        }
        expect_close("the lookups' gradient", i, block[trial->offset[EMBEDDING_GRADIENT] + i],
                     2 * p->embedding_gradient[entry], 1e-5, 1e-5);
        expect_close("the head's gradient", i, block[trial->offset[HEAD_GRADIENT] + i], p->head_gradient[entry], 1e-5,
                     1e-5 + p->counted * off);
    }
}

/* The last tokens' logits are whole. */
static void compare_generated(const struct trial *trial, size_t stride, const float *z) {
    const struct problem *p = trial->problem;
    for (int m = 0; m < MICROBATCHES; m++) {
        for (int i = 0; i < SEQUENCES * p->size; i++) {
            const int row = m * p->rows + (i / p->size + 1) * p->sequence - 1;
            expect_close("last logits", (size_t)i, z[(size_t)m * stride + (size_t)i], p->z[row * p->size + i % p->size],
                         1e-5, 1e-5);
        }
    }
}

static void compare_block(const struct trial *trial, const struct layout *layout, const float *block) {
    const struct problem *p = trial->problem;
    const size_t *offset = trial->offset, stride = (offset[HEAD + 1] - offset[HEAD]) / MICROBATCHES;
    for (size_t i = 0; i < offset[Y + 1] - offset[Y]; i++)
        expect_close("y", i, block[offset[Y] + i], p->y[column_at(layout, (int)i)], 0, 0);
    if (trial->mode == GENERATE) compare_generated(trial, stride, block + offset[HEAD]);
    if (trial->mode == TRAIN) compare_trained(trial, layout, block);
}

static void compare(const char *on, const struct trial *trial) {
    const struct problem *p = trial->problem;
    struct sl_mesh mesh;
    double metrics[3] = {0};
    assert_int_equal(sl_mesh_parse(&mesh, on, NULL), SL_OK);
    const int axis = sl_mesh_find_axis(&mesh, "tensor"), parts = sl_mesh_axis_size(&mesh, "tensor");
    for (int i = 0; i < mesh.size; i++) {
        const struct layout layout = layout_of(trial->parallel, parts, axis < 0 ? 0 : sl_mesh_index(&mesh, i, axis));
        const float *block = trial->blocks + (size_t)i * trial->offset[RESULTS];
        compare_block(trial, &layout, block);
        for (int k = 0; k < 3; k++) metrics[k] += block[trial->offset[METRICS] + (size_t)k] / (double)mesh.size;
    }
    if (trial->mode == TRAIN) {
        expect_same_bits(trial, &mesh, EMBEDDING_GRADIENT);
        expect_same_bits(trial, &mesh, HEAD_GRADIENT);
    }
    const bool counted = trial->mode != GENERATE;
    expect_close("loss", 0, metrics[0], counted ? p->loss : 0, 1e-6, 1e-6);
    expect_close("correct rows", 0, metrics[1], counted ? p->correct : 0, 1e-9, 0);
    expect_close("rows", 0, metrics[2], counted ? p->counted : 0, 1e-9, 0);
}

static void run_trial(const char *on, bool checked, struct trial *trial) {
    struct sl_error error;
    if (!trial->axes) trial->axes = axes;
    if (run_on((struct test_run){.mesh = on, .checked = checked, .arg = trial}, trial_program, &error))
        fail_msg("%s, vocabulary of %d%s, sequences of %d: %s", on, trial->problem->size,
                 trial->parallel ? ", parallel" : "", trial->problem->sequence, error.message);
}

static void run_and_compare(const char *on, struct trial trial) {
    run_trial(on, trial.group == 2, &trial);
    if (has_results()) compare(on, &trial);
    free(trial.blocks);
}

/* ---- tests ---- */

static const char *const meshes[] = {"data=2,tensor=2", "tensor=4,pipe=2", "data=1",  "tensor=1",
                                     "tensor=2",        "tensor=4",        "tensor=8"};
enum { MESHES = sizeof meshes / sizeof *meshes };

/* Sequences that the axis divides, others, and one shorter than the axis. */
static const int sequences[] = {8, 6, 5, 1};
enum { LENGTHS = sizeof sequences / sizeof *sequences };

/* Trains in floats on all meshes, and with all groups; other modes run on meshes of one axis. With "few", on two meshes
 * and one. */
static void everywhere(uint64_t seed, int size, struct trial trial, enum sl_dtype precision) {
    const bool thorough = trial.mode == TRAIN && precision == SL_F32;
    struct numbers numbers = {seed};
    for (int s = 0; s < LENGTHS; s++) {
        struct problem problem = new_problem(&numbers, size, sequences[s], precision, trial.working_bf16);
        trial.problem = &problem;
        for (int i = thorough ? 0 : 3; i < MESHES; i++) {
            if (test_runs_few && (s % 2 || (i != 0 && i != 5))) continue;
            for (int group = 1; group <= MICROBATCHES; group *= 2) {
                trial.group = group;
                if (group == 2 || (thorough && i > 1 && s < 2 && !test_runs_few)) run_and_compare(meshes[i], trial);
            }
        }
        free_problem(&problem);
    }
}

static void modules_are_their_definitions(void **state) {
    (void)state;
    everywhere(1, 24, (struct trial){.mode = TRAIN, .gemm = "reference"}, SL_F32);
    everywhere(2, 24, (struct trial){.mode = TRAIN, .parallel = true, .gemm = "reference"}, SL_F32);
}

static void a_vocabulary_need_not_divide(void **state) {
    (void)state;
    everywhere(3, 21, (struct trial){.mode = TRAIN}, SL_F32);
    everywhere(4, 21, (struct trial){.mode = EVALUATE, .gemm = "reference"}, SL_F32);
    everywhere(5, 21, (struct trial){.mode = GENERATE, .gemm = "reference"}, SL_F32);
    everywhere(25, 23, (struct trial){.mode = TRAIN, .parallel = true}, SL_F32);
    everywhere(26, 23, (struct trial){.mode = TRAIN, .parallel = true, .chunk = 5}, SL_F32);
    everywhere(27, 23, (struct trial){.mode = TRAIN, .parallel = true, .chunk = 5, .gemm = "reference"}, SL_BF16);
    everywhere(28, 23, (struct trial){.mode = EVALUATE, .parallel = true}, SL_F32);
    everywhere(29, 23, (struct trial){.mode = GENERATE, .parallel = true}, SL_F32);
}

/* Several chunks, the last one smaller. */
static void logits_come_in_chunks_of_classes(void **state) {
    (void)state;
    static const int chunk[] = {1, 5, 8, 24};
    for (size_t i = 0; i < sizeof chunk / sizeof *chunk; i++) {
        if (test_runs_few && i != 1) continue;
        everywhere(15, 24, (struct trial){.mode = TRAIN, .chunk = chunk[i]}, SL_F32);
        everywhere(16, 24, (struct trial){.mode = TRAIN, .parallel = true, .chunk = chunk[i]}, SL_F32);
    }
    everywhere(17, 21, (struct trial){.mode = EVALUATE, .chunk = 5}, SL_F32);
    everywhere(18, 24, (struct trial){.mode = TRAIN, .chunk = 5, .gemm = "reference"}, SL_BF16);
    everywhere(19, 24, (struct trial){.mode = GENERATE, .chunk = 5}, SL_F32);
}

static void operands_may_be_rounded(void **state) {
    (void)state;
    everywhere(6, 24, (struct trial){.mode = TRAIN, .gemm = "reference"}, SL_BF16);
    everywhere(7, 24, (struct trial){.mode = TRAIN, .parallel = true, .gemm = "reference"}, SL_BF16);
    everywhere(8, 21, (struct trial){.mode = TRAIN, .gemm = "reference"}, SL_BF16);
    everywhere(9, 24, (struct trial){.mode = GENERATE, .parallel = true, .gemm = "reference"}, SL_BF16);
}

static void the_table_may_be_rounded(void **state) {
    (void)state;
    for (int precision = SL_F32; precision <= SL_BF16; precision++) {
        const enum sl_dtype operands = (enum sl_dtype)precision;
        struct trial trial = {.mode = TRAIN, .working_bf16 = true, .gemm = "reference"};
        everywhere(20, 24, trial, operands);
        trial.chunk = 5;
        everywhere(21, 21, trial, operands);
        trial.parallel = true;
        everywhere(22, 24, trial, operands);
        trial.mode = GENERATE;
        everywhere(23, 24, trial, operands);
    }
}

static void forward_needs_no_backward(void **state) {
    (void)state;
    everywhere(10, 24, (struct trial){.mode = EVALUATE, .gemm = "reference"}, SL_F32);
    everywhere(11, 24, (struct trial){.mode = EVALUATE, .parallel = true, .gemm = "reference"}, SL_BF16);
}

static void generation_wants_the_last_logits(void **state) {
    (void)state;
    everywhere(12, 24, (struct trial){.mode = GENERATE, .gemm = "reference"}, SL_F32);
    everywhere(13, 24, (struct trial){.mode = GENERATE, .parallel = true}, SL_F32);
}

static void initial_values_are_the_same_in_every_layout(void **state) {
    (void)state;
    struct numbers numbers = {14};
    struct problem problem = new_problem(&numbers, 104, 1, SL_F32, false);
    struct trial single = {.problem = &problem, .group = 1, .mode = INITIALIZE};
    run_trial("data=1", false, &single);
    for (int parallel = 0; parallel < 2; parallel++) {
        struct trial trial = {.problem = &problem, .group = 1, .mode = INITIALIZE, .parallel = parallel};
        run_trial("tensor=4", false, &trial);
        for (size_t i = 0; has_results() && i < 4; i++) {
            const struct layout layout = layout_of(parallel, 4, (int)i);
            const float *value = trial.blocks + i * trial.offset[RESULTS] + trial.offset[VALUE];
            assert_memory_equal(value, single.blocks + single.offset[VALUE] + entry_at(&problem, &layout, 0),
                                (trial.offset[VALUE + 1] - trial.offset[VALUE]) * sizeof *value);
        }
        free(trial.blocks);
    }
    double squares = 0;
    const size_t entries = (size_t)(problem.size * COLUMNS);
    for (size_t i = 0; has_results() && i < entries; i++)
        squares += (double)single.blocks[single.offset[VALUE] + i] * single.blocks[single.offset[VALUE] + i];
    if (has_results()) expect_close("deviation", 0, sqrt(squares / (double)entries), 1 / sqrt(COLUMNS), 0.05, 0);
    free(single.blocks);
    free_problem(&problem);
}

/* ROWS 0: whole sequences. */
static void refuse(const char *on, int size, int sequence, int rows, struct trial trial, const char *text) {
    const struct problem problem = {.size = size, .sequence = sequence, .rows = rows ? rows : SEQUENCES * sequence};
    trial.problem = &problem;
    trial.group = 1;
    trial.gemm = "reference";
    if (!trial.axes) trial.axes = axes;
    EXPECT_VERDICT(((struct test_run){.mesh = on, .arg = &trial}), trial_program, SL_BAD_INPUT, text);
}

static void bad_input_is_refused(void **state) {
    (void)state;
    const struct trial plain = {0}, parallel = {.parallel = true};
    const struct sl_rule rows[] = {{"embedding", "tensor"}, {0}}, columns[] = {{"embedding", "-,tensor"}, {0}},
                         none[] = {{0}};
    refuse("tensor=3", 24, 8, 0, plain,
           "token_embedding: 16 columns do not divide by the 3 coordinates along \"tensor\"");
    refuse("tensor=4", 9, 8, 0, parallel,
           "token_embedding: of a vocabulary of 9 tokens, in shares of 3, the last of the 4 coordinates along "
           "\"tensor\" has none");
    refuse("tensor=2", 0, 8, 0, plain, "token_embedding: a vocabulary of 0 tokens: there must be at least 1");
    refuse("tensor=2", 24, 8, 15, plain, "token_embedding: 15 rows a microbatch are no whole number of sequences of 8");
    refuse("tensor=2", 24, 8, 0, (struct trial){.rules = rows},
           "embedding is sharded as 'tensor', but its module needs '-' for dim 0");
    refuse("tensor=2", 24, 8, 0, (struct trial){.rules = columns}, "but its module needs '-' for dim 1");
    refuse("tensor=2", 24, 8, 0, (struct trial){.rules = none, .parallel = true},
           "but its module needs 'tensor' for dim 0");
    refuse("tensor=2", 24, 8, 0, (struct trial){.mode = GENERATE, .backward = true},
           "token_head: what generates has no backward");
    refuse("tensor=2", 24, 8, 0, (struct trial){.axes = (const char *const[]){"data", NULL}},
           "no group over \"tensor\" has been opened for modules");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modules_are_their_definitions),
        cmocka_unit_test(a_vocabulary_need_not_divide),
        cmocka_unit_test(logits_come_in_chunks_of_classes),
        cmocka_unit_test(operands_may_be_rounded),
        cmocka_unit_test(the_table_may_be_rounded),
        cmocka_unit_test(forward_needs_no_backward),
        cmocka_unit_test(generation_wants_the_last_logits),
        cmocka_unit_test(initial_values_are_the_same_in_every_layout),
        cmocka_unit_test(bad_input_is_refused),
    };
    begin_tests(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
