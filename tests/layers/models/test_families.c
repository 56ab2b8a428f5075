/* test_families.c - models of other families, in all layouts: the numbers of one coordinate, the bits of one stage, the
 * numbers of parameters. */
#include "tests/rigs/transformer_job.h"

static const char alone[] = "data=1,pipe=1,tensor=1";

/* ---- the families ---- */

/* Four layers, six heads. */
static struct job grouped_job(const char *mesh) {
    struct job job = small_job(mesh);
    job.model.dimension = 24;
    job.model.heads = 6;
    job.model.layers_per_block = 1;
    job.model.attention = SL_ATTENTION_GROUPED;
    job.optimizer = sl_sgd_defaults(0.1f); /* AdamW would turn rounding errors into steps */
    return job;
}

static struct job llama_job(const char *mesh) {
    struct job job = grouped_job(mesh);
    job.model.key_heads = 2;
    job.model.mlp = SL_MLP_GATED_SILU;
    job.model.inside = 36;
    job.model.biases = SL_BIASES_NONE;
    job.model.untied_head = true;
    job.model.chunk = 5;
    return job;
}

static struct job mistral_job(const char *mesh) {
    struct job job = llama_job(mesh);
    job.model.window = 3;
    return job;
}

static struct job qwen_job(const char *mesh) {
    struct job job = llama_job(mesh);
    job.model.key_heads = 3;
    job.model.head_width = 6;
    job.model.biases = SL_BIASES_QKV;
    job.model.head_norms = true;
    job.model.untied_head = false;
    return job;
}

static struct job gpt2_job(const char *mesh) {
    struct job job = grouped_job(mesh);
    job.model.rope = 0;
    job.model.learned_positions = 16;
    job.model.norm = SL_NORM_LAYER;
    job.model.mlp = SL_MLP_ERF_GELU;
    return job;
}

static struct job experts_job(const char *mesh) {
    struct job job = grouped_job(mesh);
    job.model.key_heads = 2;
    job.model.experts = 4;
    job.model.choices = 2;
    job.model.expert_dimension = 12;
    job.model.shared_experts = 1;
    job.model.capacity = 1.25;
    job.model.balance = 0.01;
    job.model.untied_head = true;
    return job;
}

static struct job (*const families[])(const char *mesh) = {llama_job, mistral_job, qwen_job, gpt2_job, experts_job};
enum { FAMILIES = sizeof families / sizeof *families };

/* Clears gradients of keys' biases in models without rotations: the biases change nothing, so these are rounding errors
 * of zero. */
static void forget_key_biases(const struct job *job) {
    for (int i = 0; !job->model.rope && i < job->gradients.count; i++) {
        const struct sl_tensor *tensor = &job->gradients.tensor[i];
        if (!strstr(tensor->name, "gqa.k.bias")) continue;
        float *values = tensor->array.data;
        for (size_t e = 0; e < sl_array_elements(&tensor->array); e++) {
            assert_true(fabsf(values[e]) < 1e-7f);
            values[e] = 0;
        }
    }
}

/* ---- layouts ---- */

static void layouts_agree_with_one_coordinate(void **state) {
    (void)state;
    static const char *const meshes[] = {"data=2,pipe=1,tensor=3", "data=1,pipe=2,tensor=2", "data=2,pipe=2,tensor=2",
                                         "data=2,pipe=4,tensor=1", "data=1,pipe=1,tensor=6"};
    for (int f = 0; f < FAMILIES; f++) {
        struct job single = families[f](alone);
        single.clip = 0.5f;
        run_job(&single);
        forget_key_biases(&single);
        for (int m = 0; m < 5; m++) {
            struct job job = families[f](meshes[m]);
            if (test_is_small && (f + m) % 3) continue;
            job.clip = single.clip;
            job.model.recomputation = m % 3;
            job.model.vocabulary_parallel = m == 1;
            job.shared_out = m != 2;
            run_job(&job);
            forget_key_biases(&job);
            if (has_results()) {
                expect_near_numbers(meshes[m], job.steps, job.loss, single.loss, 1e-5);
                expect_near_numbers(meshes[m], job.steps, job.norm, single.norm, 1e-4);
                expect_near_store(meshes[m], &job.gradients, &single.gradients, 2e-5);
            }
            free_job(&job);
        }
        free_job(&single);
    }
}

static void stages_and_schedules_give_the_same_bits(void **state) {
    (void)state;
    static const struct {
        const char *mesh, *schedule;
        int loops;
    } trial[] = {{"data=1,pipe=2,tensor=2", "1f1b", 1},
                 {"data=1,pipe=2,tensor=2", "zbv", 2},
                 {"data=1,pipe=4,tensor=2", "gpipe", 1},
                 {"data=1,pipe=2,tensor=2", "looped-bfs", 2}};
    for (int f = 0; f < FAMILIES; f++) {
        struct job want = families[f]("data=1,pipe=1,tensor=2");
        want.microbatches = 8;
        run_job(&want);
        for (int i = 0; i < 4; i++) {
            struct job job = families[f](trial[i].mesh);
            if (test_is_small && (f + i) % 2) continue;
            job.schedule = trial[i].schedule;
            job.loops = trial[i].loops;
            job.microbatches = 8;
            job.model.recomputation = i % 3;
            run_job(&job);
            if (has_results()) expect_same_bits(trial[i].schedule, &job, &want);
            free_job(&job);
        }
        free_job(&want);
    }
}

/* ---- parameters ---- */

static int count_elements(struct worker *worker) {
    const struct sl_parameters *parameters = sl_trainer_parameters(worker->trainer);
    double *elements = worker->job->user;
    for (int i = 0; i < parameters->count; i++)
        if (!parameters->list[i].second) *elements += (double)parameters->list[i].count;
    return SL_OK;
}

static void parameters_are_counted(void **state) {
    (void)state;
    for (int f = 0; f < FAMILIES; f++) {
        double elements = 0;
        struct job job = families[f](alone);
        job.program = count_elements;
        job.user = &elements;
        run_job(&job);
        assert_true(elements == sl_transformer_parameters(&job.model));
        free_job(&job);
    }
}

/* Counts the elements of adapters, which are recognized by their names. */
static int count_adapters(struct worker *worker) {
    const struct sl_parameters *parameters = sl_trainer_parameters(worker->trainer);
    double *elements = worker->job->user;
    for (int i = 0; i < parameters->count; i++)
        if (strstr(parameters->list[i].name, ".lora_")) *elements += (double)parameters->list[i].count;
    return SL_OK;
}

static void adapters_are_counted(void **state) {
    (void)state;
    static const char *const patterns[] = {NULL, "*.out.lora_?.kernel,blocks.0.*.up.lora_?.kernel"};
    for (int f = 0; f <= FAMILIES; f++) { /* the last: this library's own */
        for (int p = 0; p < 2; p++) {
            double elements = 0;
            struct job job = f < FAMILIES ? families[f](alone) : small_job(alone);
            job.model.lora.rank = 3;
            job.adapters = patterns[p];
            job.program = count_adapters;
            job.user = &elements;
            run_job(&job);
            assert_true(elements > 0 && elements == sl_transformer_adapters(&job.model, patterns[p]));
            free_job(&job);
        }
    }
}

static void what_does_not_fit_is_refused(void **state) {
    (void)state;
    struct sl_error error = {0};
    struct job job = gpt2_job(alone);
    job.model.learned_positions = 15;
    assert_int_equal(try_job(&job, &error), SL_BAD_INPUT);
    if (has_results())
        assert_non_null(strstr(error.message, "sequences of 16 tokens: the table of positions has 15 rows"));
    free_job(&job);
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_agree_with_one_coordinate),
        cmocka_unit_test(stages_and_schedules_give_the_same_bits),
        cmocka_unit_test(parameters_are_counted),
        cmocka_unit_test(adapters_are_counted),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
