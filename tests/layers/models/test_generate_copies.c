/* test_generate_copies.c - a generator reads copies of kernels if no parameter trains; its logits have the bits of the
 * kernels' logits, also after the kernels have changed. */
#include "tests/rigs/transformer_job.h"

enum { LENGTH = 11, VOCABULARY = 40, LOGITS = (LENGTH - 1) * VOCABULARY, PROMPT = 3 };

struct trial {
    int sequences, threads;
    bool shared;              /* replicas hold values together: they stay */
    float *logits[2][2];      /* before and after the parameters have changed; by kernels, by copies */
    int32_t *tokens[2][2];    /* likewise, [sequences, LENGTH] */
    size_t bytes[2], kernels; /* the generator's, at coordinate 0, by kernels and by copies; of all parameters */
};

/* Exact in both types. */
static void halve_parameters(struct sl_parameters *parameters) {
    for (int r = 0; r < parameters->ranges; r++) {
        struct sl_range *range = &parameters->range[r];
        for (size_t i = 0; range->value && i < range->count; i++) range->value[i] *= 0.5f;
        for (size_t i = 0; range->rounded && i < range->rounded_count; i++)
            range->rounded[i] = sl_bf16_of_float(0.5f * sl_float_of_bf16(range->rounded[i]));
    }
}

static int run(struct worker *worker, struct sl_generator *generator, float *logits, int32_t *tokens) {
    const struct trial *trial = worker->job->user;
    struct sl_generated generated = {.tokens = tokens, .logits = logits};
    for (int i = 0; i < trial->sequences * LENGTH; i++) tokens[i] = i % LENGTH < PROMPT ? (7 * i + 3) % VOCABULARY : -1;
    return sl_generator_run(generator, &generated);
}

static int generate_both(struct worker *worker) {
    struct trial *trial = worker->job->user;
    struct sl_spmd *self = worker->self;
    struct sl_parameters *parameters = sl_trainer_parameters(worker->trainer);
    struct sl_generator *generator[2] = {NULL, NULL};
    float *logits = calloc(LOGITS, sizeof *logits);
    int32_t *tokens = calloc((size_t)trial->sequences * LENGTH, sizeof *tokens);
    int status = logits && tokens ? SL_OK : sl_fail(self, SL_FAILED, "no memory");
    for (int copies = 0; copies < 2 && status == SL_OK; copies++) {
        const struct sl_generation generation = {.transformer = &worker->job->model,
                                                 .schedule = &worker->job->table,
                                                 .gemm = sl_gemm_find(NULL, &self->error),
                                                 .precision = worker->job->precision,
                                                 .storage = worker->job->storage,
                                                 .sequences = trial->sequences,
                                                 .prompt = PROMPT,
                                                 .length = LENGTH,
                                                 .unpacked = !copies,
                                                 .threads = trial->threads,
                                                 .sampling = {0, 0, 1},
                                                 .logits = true,
                                                 .seed = 4};
        status = sl_generator_open(&generator[copies], self, &generation, parameters);
        if (self->coordinate == 0) trial->bytes[copies] = sl_generator_bytes(generator[copies]);
    }
    if (self->coordinate == 0) trial->kernels = sl_parameters_bytes(parameters);
    for (int changed = 0; changed < 2 && status == SL_OK; changed++) {
        if (changed && !trial->shared) halve_parameters(parameters);
        for (int copies = 0; copies < 2 && status == SL_OK; copies++) {
            status = run(worker, generator[copies], logits, tokens);
            if (self->coordinate > 0) continue;
            memcpy(trial->logits[changed][copies], logits, LOGITS * sizeof *logits);
            memcpy(trial->tokens[changed][copies], tokens, (size_t)trial->sequences * LENGTH * sizeof *tokens);
        }
    }
    for (int copies = 0; copies < 2; copies++) sl_generator_close(generator[copies]);
    free(logits);
    free(tokens);
    return status;
}

static void run_trial(struct job job, struct trial *trial) {
    for (int i = 0; i < 4; i++) {
        trial->logits[i / 2][i % 2] = calloc(LOGITS, sizeof(float));
        trial->tokens[i / 2][i % 2] = calloc((size_t)trial->sequences * LENGTH, sizeof(int32_t));
        assert_non_null(trial->logits[i / 2][i % 2]);
        assert_non_null(trial->tokens[i / 2][i % 2]);
    }
    job.user = trial;
    job.program = generate_both;
    run_job(&job);
    free_job(&job);
}

static void release(struct trial *trial) {
    for (int i = 0; i < 4; i++) {
        free(trial->logits[i / 2][i % 2]);
        free(trial->tokens[i / 2][i % 2]);
    }
}

static void expect_equal(const struct trial *trial) {
    for (int changed = 0; changed < 2; changed++) {
        assert_memory_equal(trial->logits[changed][1], trial->logits[changed][0], LOGITS * sizeof(float));
        assert_memory_equal(trial->tokens[changed][1], trial->tokens[changed][0],
                            (size_t)trial->sequences * LENGTH * sizeof(int32_t));
    }
    if (!trial->shared) assert_memory_not_equal(trial->logits[1][0], trial->logits[0][0], LOGITS * sizeof(float));
}

/* Returns whether the build's products of so few rows read copies of kernels of TYPE. */
static bool packs(const struct trial *trial, enum sl_dtype precision, enum sl_dtype type) {
    return sl_gemm_packs(sl_gemm_find(NULL, NULL), precision, type, trial->sequences, 32, 32);
}

static void copies_give_the_logits_of_kernels(void **state) {
    (void)state;
    static const char *const mesh[] = {"data=1,pipe=1,tensor=1", "data=1,pipe=2,tensor=1", "data=1,pipe=1,tensor=2"};
    static const enum sl_dtype types[][2] = {
        {SL_F32, SL_F32}, {SL_F32, SL_BF16}, {SL_BF16, SL_F32}, {SL_BF16, SL_BF16}};
    for (int i = 0; i < 24; i++) {
        struct job job = small_job(mesh[i % 3]);
        struct trial trial = {.sequences = i < 12 ? 1 : 5, .threads = 1 + i % 2};
        job.precision = types[i / 3 % 4][0], job.storage = types[i / 3 % 4][1];
        job.model.fsdp = false;
        job.forward_only = true;
        job.batch = 2; /* of the trainer, which only holds the parameters */
        run_trial(job, &trial);
        if (has_results()) {
            const enum sl_dtype kernels = job.precision == SL_BF16 ? SL_BF16 : job.storage;
            expect_equal(&trial);
            if (!packs(&trial, job.precision, kernels))
                assert_int_equal(trial.bytes[1], trial.bytes[0]);
            else
                assert_in_range(trial.bytes[1], trial.bytes[0] + trial.kernels / 4, trial.bytes[0] + trial.kernels);
        }
        release(&trial);
    }
}

/* No copies: many sequences at once have products of many rows; training needs gradients; kernels sharded over data are
 * gathered each time. */
static void others_have_no_copies(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct job job = small_job(i == 2 ? "data=2,pipe=1,tensor=1" : "data=1,pipe=1,tensor=1");
        struct trial trial = {.sequences = i == 0 ? 33 : 1, .threads = 1, .shared = i == 2};
        job.forward_only = i != 1;
        job.model.fsdp = i == 2;
        run_trial(job, &trial);
        if (has_results()) {
            expect_equal(&trial);
            assert_int_equal(trial.bytes[1], trial.bytes[0]);
        }
        release(&trial);
    }
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_give_the_logits_of_kernels),
        cmocka_unit_test(others_have_no_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
