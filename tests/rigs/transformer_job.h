/* transformer_job.h - a transformer's training run on a mesh, in any layout, and a reference's numbers to compare it
 * with. Includes cmocka. */
#ifndef SL_TESTS_RIGS_TRANSFORMER_JOB_H
#define SL_TESTS_RIGS_TRANSFORMER_JOB_H

#include <math.h>

#include <jansson.h>

#include "tests/rigs/run_on.h"

#include "layers/training/exchange.h"
#include "spmd/schedule/fuse.h"
#include "layers/models/generate.h"
#include "layers/modules/transformer_modules.h"
#include "layers/training/trainer.h"

enum { MAX_STEPS = 10, MAX_LAYOUTS = 20, LAYOUT = 64, MOST_TOKENS = 1104, MOST_COORDINATES = 8 };

struct worker;

struct job {
    const char *mesh, *schedule;
    struct sl_transformer model;
    int loops, microbatches; /* of a pass; 0: one a sequence in a pipeline, else one */
    int group, accumulate;   /* 0: all microbatches, one pass */
    int run;                 /* microbatches of a forward; 0: one */
    int batch, sequence, steps;
    int shared_out; /* --zero */
    enum sl_context_way context_by;
    int leaves, context_leaves;                   /* --exact, over data and over context; 0: none */
    const struct sl_key *(*step_keys)(void *arg); /* as in struct sl_trainer_options */
    bool overlap;                                 /* reductions while other loops compute */
    bool late;                                    /* --no-prefetch */
    float clip;
    struct sl_optimizer_options optimizer;
    enum sl_dtype precision, storage;
    const struct sl_store *from;           /* initial values; NULL: made from the seed */
    const int32_t *tokens;                 /* [batch, sequence + 1]; NULL: random ones */
    int document;                          /* each such token begins a document; 0: sequences are one */
    const char *adapters;                  /* name patterns of adapters, the only parameters that train; NULL: no
                                            * adapters, or all parameters train */
    bool forward_only;                     /* no training */
    const struct sl_gemm_backend *gemm;    /* NULL: the build's */
    bool sizes_only;                       /* the trainer is only planned */
    int (*program)(struct worker *worker); /* NULL: all steps, then export */
    void *user;                            /* a test's own */
    /* Filled in. */
    struct sl_schedule table;
    int32_t made[MOST_TOKENS];
    double loss[MAX_STEPS], norm[MAX_STEPS], evaluated; /* means over all tokens; of the last values */
    struct sl_store values, gradients;                  /* after the last step */
};

/* A coordinate's part. */
struct worker {
    struct job *job;
    struct sl_spmd *self;
    struct sl_model model;
    struct sl_trainer *trainer;
    int local;                                        /* sequences of a replica */
    int32_t inputs[MOST_TOKENS], labels[MOST_TOKENS]; /* [local, sequence on this coordinate] */
    int32_t places[MOST_TOKENS]; /* the same; not used unless sequences are divided, or documents */
};

/* Eight layers, every other one with rotary positions; it can be sharded over eight coordinates along any axis. */
static inline struct job small_job(const char *mesh) {
    return (struct job){.mesh = mesh,
                        .schedule = "1f1b",
                        .model = {.vocabulary = 40,
                                  .dimension = 32,
                                  .heads = 8,
                                  .blocks = 4,
                                  .layers_per_block = 2,
                                  .latent = 16,
                                  .rope = 8,
                                  .positions = 16,
                                  .fsdp = true},
                        .loops = 1,
                        .batch = 8,
                        .sequence = 8,
                        .steps = 2,
                        .shared_out = true,
                        .overlap = true,
                        .optimizer = sl_adamw_defaults(1e-2f)};
}

/* ---- every coordinate ---- */

/* Tokens before token T in its document. */
static inline int place_in(const struct job *job, const int32_t *row, int t) {
    int place = 0;
    while (place < t && (!job->document || row[t - place] != job->document)) place++;
    return place;
}

/* This replica's part of the tokens, and of each sequence. */
static inline struct sl_batch batch_of(struct worker *worker) {
    const struct job *job = worker->job;
    const int first = sl_axis_index(worker->self, "data") * worker->local;
    const struct sl_cut cut = {.parts = sl_axis_size(worker->self, "context"),
                               .part = sl_axis_index(worker->self, "context")};
    const int sequence = job->sequence / cut.parts;
    for (int i = 0; i < worker->local * sequence; i++) {
        const int32_t *row = job->tokens + (first + i / sequence) * (job->sequence + 1);
        const int t = sl_cut_position(cut, sequence, i % sequence);
        worker->inputs[i] = row[t];
        worker->labels[i] = row[t + 1];
        worker->places[i] = place_in(job, row, t);
    }
    return (struct sl_batch){.rows = worker->local * sequence,
                             .tokens = worker->inputs,
                             .labels = worker->labels,
                             .places = cut.parts > 1 || job->context_leaves || job->document ? worker->places : NULL};
}

/* Steps [FIRST, END). */
static inline int train_steps(struct worker *worker, int first, int end) {
    struct job *job = worker->job;
    const struct sl_batch batch = batch_of(worker);
    for (int step = first; step < end; step++) {
        struct sl_metrics metrics;
        bool stop = false;
        SL_TRY(sl_trainer_step(worker->trainer, &batch, &metrics, &stop));
        if (metrics.rows != job->batch * job->sequence)
            return sl_fail(worker->self, SL_CHECK_FAILED, "%g tokens were counted", metrics.rows);
        if (worker->self->coordinate > 0) continue;
        job->loss[step] = metrics.loss / metrics.rows;
        job->norm[step] = sl_trainer_norm(worker->trainer);
    }
    return SL_OK;
}

static inline int train_and_export(struct worker *worker) {
    struct job *job = worker->job;
    const struct sl_batch batch = batch_of(worker);
    struct sl_metrics metrics;
    SL_TRY(train_steps(worker, 0, job->steps));
    if (job->accumulate < 2) {
        SL_TRY(sl_trainer_evaluate(worker->trainer, &batch, &metrics));
        if (worker->self->coordinate == 0) job->evaluated = metrics.loss / metrics.rows;
    }
    SL_TRY(sl_trainer_export(worker->trainer, false, &job->values));
    return sl_trainer_export(worker->trainer, true, &job->gradients);
}

static inline int open_worker(struct worker *worker) {
    struct job *job = worker->job;
    struct sl_spmd *self = worker->self;
    const int microbatches = job->table.microbatches, passes = job->accumulate ? job->accumulate : 1;
    const int sequence = job->sequence / sl_axis_size(self, "context");
    worker->local = job->batch / sl_axis_size(self, "data");
    const struct sl_trainer_options options = {
        .pipeline = {.rules = sl_transformer_rules(&job->model, self->mesh),
                     .axis = "pipe",
                     .group_axes = sl_transformer_axes(self->mesh),
                     .schedule = &job->table,
                     .gemm = job->gemm ? job->gemm : sl_gemm_find(NULL, &self->error),
                     .precision = job->precision,
                     .storage = job->storage,
                     .rows = worker->local / microbatches / passes * sequence,
                     .sequence = sequence,
                     .context_axis = "context",
                     .context_leaves = job->context_leaves,
                     .context_by = job->context_by,
                     .forward_only = job->forward_only,
                     .sizes_only = job->sizes_only,
                     .wgrad_group = job->group ? job->group : microbatches},
        .data_axis = sl_transformer_replicas(self->mesh),
        .adapters = job->adapters,
        .optimizer = job->optimizer,
        .clip = job->clip,
        .accumulate = job->accumulate,
        .exact = job->leaves,
        .zero = job->shared_out,
        .overlap = job->overlap,
        .seed = 3,
        .step_keys = job->step_keys,
    };
    struct sl_transformer model = job->model;
    model.halves = job->storage == SL_BF16;
    SL_TRY(sl_transformer_check(&model, self->mesh, &self->error));
    SL_TRY(sl_transformer_build(&model, self->mesh, &job->table, sl_axis_index(self, "pipe"), &worker->model,
                                &self->error));
    SL_TRY(sl_trainer_plan(&worker->trainer, self, &options, &worker->model));
    return job->sizes_only ? SL_OK : sl_trainer_open(worker->trainer, job->from);
}

static inline int job_program(struct sl_spmd *self, void *arg) {
    struct job *job = arg;
    struct worker worker = {.job = job, .self = self};
    int status = open_worker(&worker);
    if (status == SL_OK) status = job->program ? job->program(&worker) : train_and_export(&worker);
    sl_trainer_close(worker.trainer);
    sl_model_free(&worker.model);
    return status;
}

/* ---- generation, by every coordinate ---- */

struct continuation {
    int sequences; /* of all replicas together */
    int prompt, length;
    enum sl_cache_form cache;
    struct sl_sampling sampling;
    const int32_t *prompts; /* [sequences, prompt] */
    const int *lengths;     /* [sequences]: prompt tokens given of each; NULL: all */
    int in_flight, groups;  /* of a replica's sequences; 0: the generator chooses */
    /* [coordinate] its replica's generated tokens: [sequences of a replica, length]. */
    int32_t tokens[MOST_COORDINATES][MOST_TOKENS];
    /* As in struct sl_generation; TOLD is called at coordinate 0 only. */
    bool (*ends)(void *arg, const int32_t *tokens, int prompt, int count);
    void (*told)(void *arg, int sequence, const int32_t *tokens, int position);
    void *arg;
    int ended[MOST_COORDINATES][MOST_TOKENS / 8]; /* [sequences of a replica] */
    float *logits; /* [length - 1, vocabulary] of the first sequence, at coordinate 0; NULL: logits are not wanted */
};

static inline int continue_prompts(struct worker *worker, struct continuation *c) {
    struct sl_spmd *self = worker->self;
    const struct job *job = worker->job;
    const int own = c->sequences / sl_axis_size(self, "data"), first = own * sl_axis_index(self, "data");
    const struct sl_generation generation = {.transformer = &job->model,
                                             .schedule = &job->table,
                                             .gemm = job->gemm ? job->gemm : sl_gemm_find(NULL, &self->error),
                                             .precision = job->precision,
                                             .storage = job->storage,
                                             .sequences = own,
                                             .in_flight = c->in_flight,
                                             .groups = c->groups,
                                             .prompt = c->prompt,
                                             .prompts = c->lengths,
                                             .length = c->length,
                                             .cache = c->cache,
                                             .logits = c->logits != NULL,
                                             .sampling = c->sampling,
                                             .ends = c->ends,
                                             .told = self->coordinate == 0 ? c->told : NULL,
                                             .arg = c->arg,
                                             .seed = 21};
    int32_t *tokens = c->tokens[self->coordinate];
    const size_t logits = c->logits ? (size_t)(c->length - 1) * (size_t)job->model.vocabulary : 0;
    struct sl_generated generated = {
        .tokens = tokens, .lengths = c->ended[self->coordinate], .logits = calloc(logits + 1, sizeof *c->logits)};
    struct sl_generator *generator = NULL;
    memset(tokens, 0xff, sizeof c->tokens[0]);
    for (int s = 0; s < own; s++) {
        const int given = c->lengths ? c->lengths[first + s] : c->prompt;
        memcpy(tokens + s * c->length, c->prompts + (first + s) * c->prompt, (size_t)given * sizeof *tokens);
    }
    int status = sl_generator_open(&generator, self, &generation, sl_trainer_parameters(worker->trainer));
    if (status == SL_OK) status = sl_generator_run(generator, &generated);
    sl_generator_close(generator);
    if (c->logits && self->coordinate == 0) memcpy(c->logits, generated.logits, logits * sizeof *c->logits);
    free(generated.logits);
    return status ? status : sl_gather_records(self, c->tokens, sizeof *c->tokens);
}

/* ---- the main thread ---- */

static inline int size_along(const char *mesh, const char *axis) {
    struct sl_mesh parsed;
    assert_int_equal(sl_mesh_parse(&parsed, mesh, NULL), SL_OK);
    return sl_mesh_axis_size(&parsed, axis);
}

static inline int coordinates_of(const char *mesh) {
    return size_along(mesh, "data") * size_along(mesh, "pipe") * size_along(mesh, "tensor");
}

/* Makes the job's schedule. Returns false if the schedule does not allow these numbers. If layers are recomputed, the
 * table is changed as the drivers change it. */
static inline bool make_table(struct job *job) {
    const int ranks = size_along(job->mesh, "pipe");
    const int sequences = job->batch / size_along(job->mesh, "data") / (job->accumulate ? job->accumulate : 1);
    const int microbatches = job->microbatches ? job->microbatches : ranks > 1 ? sequences : 1;
    bool fused = true;
    struct sl_error error;
    if (sl_schedule_make(&job->table, job->schedule, ranks, job->loops, microbatches, &error)) return false;
    if (job->model.recomputation) sl_schedule_ascend(&job->table);
    if (job->run > 1) assert_int_equal(sl_schedule_fuse(&job->table, job->run, &fused, &error), SL_OK);
    job->table.sharded = job->model.fsdp && !job->late && size_along(job->mesh, "data,context") > 1;
    assert_int_equal(sl_schedule_lower(&job->table, &error), SL_OK);
    if (!fused) sl_schedule_free(&job->table);
    return fused;
}

static inline void make_tokens(struct job *job) {
    uint64_t state = 11;
    const int count = job->batch * (job->sequence + 1);
    if (job->tokens) return;
    assert_true(count <= MOST_TOKENS);
    for (int i = 0; i < count; i++) job->made[i] = pick(&state, job->model.vocabulary);
    job->tokens = job->made;
}

/* Returns the run's status; *ERROR is its verdict. */
static inline int try_job(struct job *job, struct sl_error *error) {
    if (!job->table.ranks && !make_table(job)) fail_msg("%s does not fit %s", job->schedule, job->mesh);
    make_tokens(job);
    return run_on((struct test_run){.mesh = job->mesh, .arg = job}, job_program, error);
}

static inline void run_job(struct job *job) {
    struct sl_error error = {0};
    if (try_job(job, &error)) fail_msg("%s on %s: %s", job->schedule, job->mesh, error.message);
}

static inline void free_job(struct job *job) {
    sl_schedule_free(&job->table);
    sl_store_free(&job->values);
    sl_store_free(&job->gradients);
}

/* Lists all meshes of SIZE coordinates with axes that are powers of two. Returns how many. */
static inline int list_layouts(int size, char mesh[static MAX_LAYOUTS][LAYOUT]) {
    int count = 0;
    for (int data = 1; data <= size; data *= 2)
        for (int pipe = 1; data * pipe <= size; pipe *= 2)
            snprintf(mesh[count++], LAYOUT, "data=%d,pipe=%d,tensor=%d", data, pipe, size / data / pipe);
    return count;
}

/* ---- comparison ---- */

static inline const struct sl_tensor *same_tensor(const struct sl_store *store, const struct sl_tensor *tensor) {
    const struct sl_tensor *other = sl_store_find(store, tensor->name);
    if (!other) fail_msg("there is no %s", tensor->name);
    assert_int_equal(other->array.dims, tensor->array.dims);
    for (int d = 0; d < tensor->array.dims; d++) assert_int_equal(other->array.shape[d], tensor->array.shape[d]);
    return other;
}

static inline void expect_same_store(const char *what, const struct sl_store *got, const struct sl_store *want) {
    assert_int_equal(got->count, want->count);
    for (int i = 0; i < want->count; i++) {
        const struct sl_tensor *tensor = &want->tensor[i];
        if (memcmp(tensor->array.data, same_tensor(got, tensor)->array.data, sl_tensor_bytes(tensor)) != 0)
            fail_msg("%s: %s has other bits", what, tensor->name);
    }
}

/* Losses, values and gradients. */
static inline void expect_same_bits(const char *what, const struct job *got, const struct job *want) {
    if (memcmp(got->loss, want->loss, sizeof got->loss) != 0 || got->evaluated != want->evaluated)
        fail_msg("%s: loss %.9g, then %.9g, instead of %.9g, then %.9g", what, got->loss[0], got->evaluated,
                 want->loss[0], want->evaluated);
    expect_same_store(what, &got->gradients, &want->gradients);
    expect_same_store(what, &got->values, &want->values);
}

/* Returns the norm of X, or of X - MINUS. */
static inline double norm_of(size_t count, const float *x, const float *minus) {
    double squares = 0;
    for (size_t i = 0; i < count; i++) {
        const double difference = (double)x[i] - (minus ? (double)minus[i] : 0.0);
        squares += difference * difference;
    }
    return sqrt(squares);
}

/* Expects the norm of each tensor's difference to be at most TOLERANCE times WANT's norm, plus NOISE times the largest
 * tensor's norm, for tensors that should be zero. Tensors of WANT that are not in GOT are left out. */
static inline void expect_near_noisy_store(const char *what, const struct sl_store *got, const struct sl_store *want,
                                           double tolerance, double noise) {
    double largest = 0;
    for (int i = 0; i < want->count; i++)
        largest = fmax(largest, norm_of(sl_array_elements(&want->tensor[i].array), want->tensor[i].array.data, NULL));
    for (int i = 0; i < got->count; i++) {
        const struct sl_tensor *tensor = &got->tensor[i], *wanted = same_tensor(want, tensor);
        const size_t count = sl_array_elements(&tensor->array);
        const double norm = norm_of(count, wanted->array.data, NULL);
        const double difference = norm_of(count, tensor->array.data, wanted->array.data);
        if (!(difference <= tolerance * norm + noise * largest))
            fail_msg("%s: %s differs by %.3g of its norm %.3g", what, tensor->name, difference / norm, norm);
    }
}

static inline void expect_near_store(const char *what, const struct sl_store *got, const struct sl_store *want,
                                     double tolerance) {
    expect_near_noisy_store(what, got, want, tolerance, 0);
}

static inline void expect_near_numbers(const char *what, int count, const double *got, const double *want,
                                       double tolerance) {
    for (int i = 0; i < count; i++)
        if (!(fabs(got[i] - want[i]) <= tolerance * fabs(want[i])))
            fail_msg("%s: number %d is %.9g instead of %.9g, %.2g more", what, i, got[i], want[i],
                     got[i] / want[i] - 1);
}

/* ---- the reference: a model on one device, in double ---- */

struct reference {
    struct sl_store params, gradients; /* with "tokens"; with "logits" */
    json_t *json;
};

static inline void open_reference(struct reference *reference) {
    struct sl_error error = {0};
    *reference = (struct reference){0};
    if (sl_safetensors_read(&reference->params, SL_TEST_DATA "/mla_small.params.safetensors", &error) ||
        sl_safetensors_read(&reference->gradients, SL_TEST_DATA "/mla_small.grads.safetensors", &error))
        fail_msg("%s", error.message);
    reference->json = json_load_file(SL_TEST_DATA "/mla_small.json", 0, NULL);
    assert_non_null(reference->json);
}

static inline void close_reference(struct reference *reference) {
    sl_store_free(&reference->params);
    sl_store_free(&reference->gradients);
    json_decref(reference->json);
}

static inline int configured(const struct reference *reference, const char *name) {
    const json_t *number = json_object_get(json_object_get(reference->json, "config"), name);
    if (!json_is_integer(number)) fail_msg("the reference has no %s", name);
    return (int)json_integer_value(number);
}

/* NAME's numbers, MOST at most; returns how many there are. */
static inline int numbers_of(const struct reference *reference, const char *name, int most, double *numbers) {
    const json_t *list = json_object_get(reference->json, name);
    const int count = (int)json_array_size(list);
    assert_in_range(count, 1, most);
    for (int i = 0; i < count; i++) numbers[i] = json_number_value(json_array_get(list, (size_t)i));
    return count;
}

/* The reference's losses of MAX_STEPS steps with optax.adamw(1e-3, weight_decay=1e-4). */
static inline void losses_of(const struct reference *reference, double losses[static MAX_STEPS]) {
    assert_int_equal(numbers_of(reference, "train_loss_adamw_lr1e-3_wd1e-4", MAX_STEPS, losses), MAX_STEPS);
}

static inline struct job reference_job(const struct reference *reference, const char *mesh) {
    struct job job = small_job(mesh);
    job.model.vocabulary = configured(reference, "vocab_size");
    job.model.dimension = configured(reference, "model_dimension");
    job.model.heads = configured(reference, "n_heads");
    job.model.blocks = configured(reference, "blocks");
    job.model.layers_per_block = configured(reference, "layers_per_block");
    job.model.latent = configured(reference, "latent_dim");
    job.model.rope = configured(reference, "dhR");
    job.model.positions = job.sequence = configured(reference, "T");
    job.batch = configured(reference, "batch");
    job.optimizer = sl_adamw_defaults(1e-3f);
    job.optimizer.exact = true; /* as in the reference, which was computed in double */
    job.from = &reference->params;
    job.tokens = sl_store_find(&reference->params, "tokens")->array.data;
    return job;
}

/* Mixes the bits of COUNT numbers in device memory into SUM. */
static inline uint32_t mix_in(uint32_t sum, size_t count, const float *number) {
    uint32_t *word = malloc((count + 1) * sizeof *word);
    if (!word || !count || !number) return free(word), sum;
    sl_device.copy(word, number, count * sizeof *word);
    for (size_t i = 0; i < count; i++) sum = mix((uint64_t)sum << 32 | word[i]);
    free(word);
    return sum;
}

/* Returns a hash of all bits that loading may change. */
static inline uint32_t fingerprint(struct sl_trainer *trainer) {
    const struct sl_parameters *parameters = sl_trainer_parameters(trainer);
    uint32_t sum = mix((uint64_t)sl_trainer_steps(trainer));
    for (int r = 0; r < parameters->ranges; r++) {
        const struct sl_range *range = &parameters->range[r];
        sum = mix_in(sum, range->own_floats ? range->shard_count : range->count, range->value);
        sum = mix_in(sum, range->count, range->gradient);
        sum = mix_in(sum, range->count, range->second);
        sum = mix_in(sum, range->rounded_count / 2, (const float *)(const void *)range->rounded);
        for (int s = 0; s < parameters->states; s++) sum = mix_in(sum, range->shard_count, range->state[s]);
    }
    return sum;
}

#endif
