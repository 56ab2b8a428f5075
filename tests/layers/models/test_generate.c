/* test_generate.c - continued sequences: caches give the whole model's results, and all layouts the same tokens. */
#include "tests/rigs/transformer_job.h"

enum { SEQUENCES = 8, LENGTH = 13 };

/* A continuation of LENGTH tokens, compared with the model. */
struct trial {
    struct continuation made;
    int32_t prompts[MOST_TOKENS];
    int steps;    /* of training before */
    bool twice;   /* a second time with the same trainer must give the same */
    double hits;  /* generated tokens that the whole model finds likeliest */
    size_t bytes; /* of parameters */
};

/* Counts labels that the whole model finds likeliest: this replica's generated tokens, with WRONG other tokens; labels
 * within the prompt are 0. */
static int count_hits(struct worker *worker, const int32_t *tokens, bool wrong, double *hits) {
    const struct job *job = worker->job;
    const struct trial *trial = job->user;
    const int length = trial->made.length;
    struct sl_metrics metrics;
    for (int s = 0; s < worker->local; s++) {
        for (int t = 0; t < job->sequence; t++) {
            const int32_t next = tokens[s * length + t + 1];
            const bool made = t + 1 >= trial->made.prompt;
            worker->inputs[s * job->sequence + t] = tokens[s * length + t];
            worker->labels[s * job->sequence + t] = !made ? 0 : wrong ? (next + 1) % job->model.vocabulary : next;
        }
    }
    const struct sl_batch batch = {
        .rows = worker->local * job->sequence, .tokens = worker->inputs, .labels = worker->labels};
    SL_TRY(sl_trainer_evaluate(worker->trainer, &batch, &metrics));
    *hits = metrics.correct;
    return SL_OK;
}

/* Hits within the prompt are the same in both counts. */
static int continue_and_evaluate(struct worker *worker) {
    struct trial *trial = worker->job->user;
    const struct sl_spmd *self = worker->self;
    const int32_t *tokens = trial->made.tokens[self->coordinate];
    double right, wrong;
    SL_TRY(train_steps(worker, 0, trial->steps));
    for (int i = 0; i <= trial->twice; i++) SL_TRY(continue_prompts(worker, &trial->made));
    SL_TRY(count_hits(worker, tokens, false, &right));
    SL_TRY(count_hits(worker, tokens, true, &wrong));
    if (self->coordinate == 0) trial->hits = right - wrong;
    return SL_OK;
}

static struct trial *new_trial(const struct job *job, int prompt) {
    struct trial *trial = calloc(1, sizeof *trial);
    uint64_t state = 5;
    assert_non_null(trial);
    for (int i = 0; i < SEQUENCES * prompt; i++) trial->prompts[i] = pick(&state, job->model.vocabulary);
    trial->made = (struct continuation){
        .sequences = SEQUENCES, .prompt = prompt, .length = LENGTH, .sampling = {0, 0, 1}, .prompts = trial->prompts};
    return trial;
}

static struct job new_job(const char *mesh) {
    struct job job = small_job(mesh);
    job.sequence = LENGTH - 1;
    job.program = continue_and_evaluate;
    return job;
}

static void run_trial(struct job *job, struct trial *trial) {
    job->user = trial;
    trial->made.prompts = trial->prompts;
    run_job(job);
    free_job(job);
}

/* All coordinates of replica r have sequences [r, r + 1) * sequences of a replica. */
static void expect_sequences(const char *what, const struct trial *got, const int32_t *want) {
    struct sl_mesh mesh;
    assert_int_equal(sl_mesh_parse(&mesh, what, NULL), SL_OK);
    const int own = SEQUENCES / sl_mesh_axis_size(&mesh, "data"), length = got->made.length;
    for (int c = 0; c < mesh.size; c++) {
        const int first = own * sl_mesh_index(&mesh, c, sl_mesh_find_axis(&mesh, "data"));
        for (int i = 0; i < own * length; i++)
            if (got->made.tokens[c][i] != want[first * length + i])
                fail_msg("%s: coordinate %d: token %d of sequence %d is %d instead of %d", what, c, i % length,
                         first + i / length, got->made.tokens[c][i], want[first * length + i]);
    }
}

static const char alone[] = "data=1,pipe=1,tensor=1";

static enum sl_cache_form other_form(enum sl_cache_form form) {
    return form == SL_CACHE_LATENT ? SL_CACHE_EXPANDED : SL_CACHE_LATENT;
}

/* Runs one in so many of the layouts: all of them with SL_TEST_LONG. */
static int one_in(void) { return test_runs_few ? 9 : test_is_small ? 5 : getenv("SL_TEST_LONG") ? 1 : 2; }

/* Runs JOB and TRIAL on one coordinate and in layouts of up to eight, with any form of caches: the same sequences.
 * Different layouts take different lengths of the prompt. */
static void continue_everywhere(struct job job, const struct trial *trial, struct trial *single) {
    struct trial *other = calloc(1, sizeof *other);
    assert_non_null(other);
    *single = *trial;
    job.mesh = alone;
    run_trial(&job, single);
    for (int size = test_runs_few ? 4 : 2; size <= 8; size *= 2) {
        char mesh[MAX_LAYOUTS][LAYOUT];
        const int layouts = list_layouts(size, mesh);
        for (int i = trial->made.prompt / 2 % one_in(); i < layouts; i += one_in()) {
            job.mesh = mesh[i];
            *other = *trial;
            if (i % 2) other->made.cache = other_form(trial->made.cache);
            run_trial(&job, other);
            if (has_results()) expect_sequences(mesh[i], other, single->made.tokens[0]);
            if (has_results()) assert_true(other->hits == single->hits);
        }
    }
    free(other);
}

/* Prompts of one token, of some, and of all but one. */
static void greedy_tokens_are_those_of_the_whole_model(void **state) {
    (void)state;
    static const int prompts[] = {1, 4, LENGTH - 1};
    for (int i = test_runs_few; i < (test_runs_few ? 2 : 3); i++) {
        const struct job job = new_job(alone);
        struct trial *trial = new_trial(&job, prompts[i]), *single = new_trial(&job, prompts[i]);
        trial->steps = i; /* of initial values, too */
        trial->made.cache = i == 1 ? SL_CACHE_EXPANDED : SL_CACHE_LATENT;
        continue_everywhere(job, trial, single);
        if (has_results()) {
            assert_true(single->hits == SEQUENCES * (LENGTH - prompts[i]));
            for (int s = 0; s < SEQUENCES; s++)
                assert_memory_equal(single->made.tokens[0] + s * LENGTH, single->prompts + s * prompts[i],
                                    (size_t)prompts[i] * sizeof(int32_t));
        }
        free(trial);
        free(single);
    }
}

/* With --storage bf16, cached values were rounded before, as the whole model's rows are: stages and replicas change no
 * bit. If sums are divided differently, a row may round to a neighbour, and a tie fall differently: one in twenty at
 * most. */
static void bf16_caches_give_the_tokens_of_the_whole_model(void **state) {
    (void)state;
    enum { MADE = SEQUENCES * (LENGTH - 4) };
    struct job job = new_job(alone);
    job.storage = SL_BF16;
    struct trial *trial = new_trial(&job, 4), *single = new_trial(&job, 4), *other = new_trial(&job, 4);
    for (int form = SL_CACHE_LATENT; form <= SL_CACHE_EXPANDED; form++) {
        single->made.cache = form;
        job.mesh = alone;
        run_trial(&job, single);
        if (has_results()) assert_true(single->hits >= 0.95 * MADE);
        for (int size = 2; size <= 8; size *= 2) {
            char mesh[MAX_LAYOUTS][LAYOUT];
            const int layouts = list_layouts(size, mesh);
            for (int i = 0; i < layouts; i++) {
                if ((i + size / 2) % one_in() != (int)form % one_in()) continue;
                job.mesh = mesh[i];
                *other = *trial;
                other->made.cache = form;
                other->made.groups = 1 + (form + i) % (SEQUENCES / size_along(mesh[i], "data"));
                run_trial(&job, other);
                if (!has_results()) continue;
                if (size_along(mesh[i], "tensor") == 1) expect_sequences(mesh[i], other, single->made.tokens[0]);
                assert_true(other->hits >= 0.95 * MADE);
            }
        }
    }
    free(trial);
    free(single);
    free(other);
}

/* ---- bf16 weights ---- */

static int continue_alone(struct worker *worker) {
    struct trial *trial = worker->job->user;
    if (worker->self->coordinate == 0) trial->bytes = sl_parameters_bytes(sl_trainer_parameters(worker->trainer));
    return continue_prompts(worker, &trial->made);
}

/* Products that read bf16 weights give the logits of rounded floats, bit by bit, in half the memory: for few sequences,
 * for one, and with a backend that cannot read bf16 and stores rounded floats. */
static void weights_in_bf16_give_the_logits_of_rounded_floats(void **state) {
    (void)state;
    static const char *const mesh[] = {alone, "data=1,pipe=1,tensor=2", "data=1,pipe=2,tensor=1",
                                       "data=2,pipe=1,tensor=1"};
    const struct sl_gemm_backend *const build = sl_gemm_find(NULL, NULL);
    struct sl_gemm_backend floats = *build;
    enum { LOGITS = (LENGTH - 1) * 40 };
    assert_non_null(build);
    floats.widens = NULL;
    for (size_t i = 0; build->widens && i < 2 * sizeof mesh / sizeof *mesh; i++) {
        float logits[2][LOGITS];
        struct job job = new_job(mesh[i / 2]);
        struct trial *trial[2];
        job.storage = SL_BF16;
        job.forward_only = true;
        job.program = continue_alone;
        for (int rounded = 0; rounded < 2; rounded++) {
            trial[rounded] = new_trial(&job, 5);
            trial[rounded]->made.sequences = i % 2 ? 6 : 2;
            trial[rounded]->made.cache = i % 3 ? SL_CACHE_LATENT : SL_CACHE_EXPANDED;
            trial[rounded]->made.logits = logits[rounded];
            job.gemm = rounded ? &floats : build;
            run_trial(&job, trial[rounded]);
        }
        if (has_results()) {
            assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
            assert_memory_equal(trial[0]->made.tokens, trial[1]->made.tokens, sizeof trial[0]->made.tokens);
            assert_true(trial[0]->bytes < 0.6 * (double)trial[1]->bytes);
        }
        free(trial[0]);
        free(trial[1]);
    }
}

/* Also with stages on a V, a table sharded by tokens, and without sharding over data. */
static void placement_and_shardings_give_the_same_tokens(void **state) {
    (void)state;
    static const struct {
        const char *mesh, *schedule;
        int loops;
        bool parallel, fsdp;
    } variant[] = {
        {"data=2,pipe=2,tensor=2", "zbv", 2, false, true},
        {"data=2,pipe=2,tensor=2", "looped-bfs", 2, true, true},
        {"tensor=2,pipe=4,data=1", "interleaved-zb", 2, true, false},
        {"data=4,pipe=1,tensor=2", "gpipe", 1, true, false},
        {"pipe=2,data=2,tensor=1", "dualpipev", 2, false, false},
        {"tensor=8,data=1,pipe=1", "gpipe", 1, true, true},
        {"data=1,pipe=4,tensor=1", "zbv", 2, false, true},
    };
    struct job job = new_job(alone);
    job.model.vocabulary--; /* 39 divide over no tensor axis */
    struct trial *trial = new_trial(&job, 3), *single = new_trial(&job, 3);
    single->twice = true;
    run_trial(&job, single);
    for (size_t i = 0; i < sizeof variant / sizeof *variant; i++) {
        struct trial other = *trial;
        job.mesh = variant[i].mesh;
        job.schedule = variant[i].schedule;
        job.loops = variant[i].loops;
        job.model.vocabulary_parallel = variant[i].parallel;
        job.model.fsdp = variant[i].fsdp;
        job.model.recomputation = (int)i % 3;
        other.made.cache = i % 2 ? SL_CACHE_EXPANDED : SL_CACHE_LATENT;
        run_trial(&job, &other);
        if (has_results()) expect_sequences(variant[i].mesh, &other, single->made.tokens[0]);
    }
    free(trial);
    free(single);
}

/* A prompt of several passes, in both forms of caches, against one pass of the whole model. */
static void prompts_of_several_parts_are_those_of_the_whole_model(void **state) {
    (void)state;
    static const struct {
        const char *mesh;
        enum sl_cache_form cache;
        int prompt; /* parts are of 1024 tokens; a last part of 64 or more expands the cached values */
    } variant[] = {{"data=1,pipe=1,tensor=1", SL_CACHE_LATENT, 1030},
                   {"data=1,pipe=1,tensor=1", SL_CACHE_EXPANDED, 1030},
                   {"data=1,pipe=2,tensor=2", SL_CACHE_LATENT, 1025},
                   {"data=1,pipe=1,tensor=1", SL_CACHE_LATENT, 1096},
                   {"data=1,pipe=1,tensor=2", SL_CACHE_LATENT, 1096}};
    enum { MORE = 6 };
    for (size_t i = 0; i < sizeof variant / sizeof *variant; i++) {
        if (TEST_WATCHES_THREADS ? i != 2 : test_is_small && i % 3 == 0) continue; /* others have their lengths */
        struct job job = new_job(variant[i].mesh);
        struct trial *trial = new_trial(&job, 1);
        uint64_t numbers = 7;
        const int length = variant[i].prompt + MORE;
        for (int t = 0; t < length; t++) trial->prompts[t] = pick(&numbers, job.model.vocabulary);
        trial->made.sequences = job.batch = 1;
        trial->made.prompt = variant[i].prompt;
        trial->made.length = length;
        trial->made.cache = variant[i].cache;
        job.model.positions = length;
        job.sequence = length - 1;
        run_trial(&job, trial);
        if (has_results()) assert_true(trial->hits == MORE);
        free(trial);
    }
}

static bool differ(const struct trial *a, const struct trial *b) {
    return memcmp(a->made.tokens[0], b->made.tokens[0], sizeof a->made.tokens[0]) != 0;
}

/* Draws go by the sequence's number and the position. */
static void sampled_tokens_are_the_same_in_every_layout(void **state) {
    (void)state;
    const struct job job = new_job(alone);
    struct trial *trial = new_trial(&job, 2), *sampled = new_trial(&job, 2), *largest = new_trial(&job, 2);
    trial->steps = 1;
    trial->made.sampling = (struct sl_sampling){1.5, 9, 1};
    for (int s = 1; s < SEQUENCES; s++) /* all begin alike */
        memcpy(trial->prompts + 2 * s, trial->prompts, 2 * sizeof *trial->prompts);
    continue_everywhere(job, trial, sampled);
    trial->made.sampling.top_k = 1;
    struct job greedy = job;
    run_trial(&greedy, trial);
    *largest = *trial;
    largest->made.sampling = (struct sl_sampling){0, 0, 1};
    run_trial(&greedy, largest);
    if (has_results()) {
        int others = 0;
        for (int s = 1; s < SEQUENCES; s++)
            others += memcmp(sampled->made.tokens[0] + s * LENGTH, sampled->made.tokens[0], LENGTH * 4) != 0;
        assert_true(others > SEQUENCES / 2);
        assert_true(differ(sampled, largest));
        assert_false(differ(trial, largest)); /* the largest of one */
    }
    free(trial);
    free(sampled);
    free(largest);
}

/* Each draw is independent, also within a sequence. Almost all tokens are equally likely here, so they differ. */
static void draws_differ_between_positions(void **state) {
    (void)state;
    struct job job = new_job("data=2,pipe=2,tensor=2");
    struct trial *trial = new_trial(&job, 1);
    trial->made.sampling = (struct sl_sampling){1e5, 0, 1};
    run_trial(&job, trial);
    for (int s = 0; s < SEQUENCES / 2 && has_results(); s++) {
        const int32_t *tokens = trial->made.tokens[0] + s * LENGTH;
        int repeated = 0;
        for (int i = 2; i < LENGTH; i++) repeated += tokens[i] == tokens[i - 1];
        if (repeated > 3) fail_msg("sequence %d repeats a token %d times", s, repeated);
    }
    free(trial);
}

static int continue_only(struct worker *worker) {
    struct trial *trial = worker->job->user;
    return continue_prompts(worker, &trial->made);
}

/* Sequences go through the pipeline in 1 to 4 groups, all at once or one after another in fewer places: the tokens are
 * the same as on one device with all at once. */
static void groups_and_places_give_the_same_tokens(void **state) {
    (void)state;
    const struct job job = new_job(alone);
    struct trial *trial = new_trial(&job, 3), *single = new_trial(&job, 3), *other = new_trial(&job, 3);
    trial->steps = 1;
    trial->made.sampling = (struct sl_sampling){1.2, 0, 1};
    *single = *trial;
    struct job one = job;
    run_trial(&one, single);
    int number = 0;
    for (int size = test_runs_few ? 8 : 1; size <= 8; size *= 2) {
        char mesh[MAX_LAYOUTS][LAYOUT];
        const int layouts = list_layouts(size, mesh);
        for (int i = size == 8 && test_is_small ? layouts / 2 : 0; i < layouts; i++) {
            const int own = SEQUENCES / size_along(mesh[i], "data");
            for (int groups = 1; groups <= 4 && groups <= own; groups++, number++) {
                if (test_is_small ? groups != 1 + (i + size) % 4 : (i + groups) % one_in()) continue;
                struct job some = job;
                some.mesh = mesh[i];
                *other = *trial;
                other->made.cache = number / 2 % 2;
                other->made.groups = groups;
                other->made.in_flight = number / 2 % 3 ? 0 : groups + (own - groups) / 2;
                run_trial(&some, other);
                if (has_results()) expect_sequences(mesh[i], other, single->made.tokens[0]);
            }
        }
    }
    free(trial);
    free(single);
    free(other);
}

enum { POSITIONS = 42 };
/* Lengths of prompts. The first ones fill the caches in parts; the last two have all tokens but one, and all. */
static const int lengths[SEQUENCES] = {36, 1, 34, 33, 2, 32, POSITIONS - 1, POSITIONS};

static struct trial *new_ragged_trial(enum sl_cache_form form) {
    struct trial *trial = calloc(1, sizeof *trial);
    uint64_t state = 9;
    assert_non_null(trial);
    for (int i = 0; i < SEQUENCES * POSITIONS; i++) trial->prompts[i] = pick(&state, small_job(alone).model.vocabulary);
    trial->made = (struct continuation){.sequences = SEQUENCES,
                                        .prompt = POSITIONS,
                                        .length = POSITIONS,
                                        .cache = form,
                                        .sampling = {0, 0, 1},
                                        .prompts = trial->prompts,
                                        .lengths = lengths};
    return trial;
}

/* Continues each prompt alone on one device. */
static void continue_one_by_one(struct job job, const struct trial *trial, int32_t *wanted) {
    for (int s = 0; s < SEQUENCES; s++) {
        struct trial *one = calloc(1, sizeof *one);
        assert_non_null(one);
        *one = *trial;
        memcpy(one->prompts, trial->prompts + s * POSITIONS, POSITIONS * sizeof *one->prompts);
        one->made.sequences = 1;
        one->made.prompt = lengths[s];
        one->made.lengths = NULL;
        run_trial(&job, one);
        memcpy(wanted + s * POSITIONS, one->made.tokens[0], POSITIONS * sizeof *wanted);
        free(one);
    }
}

/* A finished sequence makes room for the next one, whose prompt fills the caches while other groups continue. The next
 * sequence then continues with its own tokens. */
static void waiting_prompts_are_admitted(void **state) {
    (void)state;
    int32_t wanted[SEQUENCES * POSITIONS];
    for (int form = SL_CACHE_LATENT, number = 0; form <= SL_CACHE_EXPANDED; form++) {
        struct trial *trial = new_ragged_trial(form), *other = new_ragged_trial(form);
        struct job job = new_job(alone);
        job.model.positions = POSITIONS;
        job.program = continue_only;
        continue_one_by_one(job, trial, wanted);
        for (int size = 1; size <= 8; size *= 2) {
            char mesh[MAX_LAYOUTS][LAYOUT];
            const int layouts = list_layouts(size, mesh);
            for (int i = size == 8 && test_is_small ? layouts / 2 : 0; i < layouts; i++, number++) {
                if ((number + form) % one_in()) continue;
                const int own = SEQUENCES / size_along(mesh[i], "data"), groups = 1 + number % 4;
                job.mesh = mesh[i];
                *other = *trial;
                other->made.groups = groups < own ? groups : own;
                other->made.in_flight = number / 2 % 2 ? other->made.groups : (other->made.groups + own) / 2;
                run_trial(&job, other);
                if (has_results()) expect_sequences(mesh[i], other, wanted);
            }
        }
        free(trial);
        free(other);
    }
}

static void numbers_of_groups_are_checked(void **state) {
    (void)state;
    static const int numbers[][2] = {{0, 5}, {2, 3}, {5, 1}}; /* in flight, groups; a replica has 4 */
    for (int i = 0; i < 3; i++) {
        struct job job = new_job("data=2,pipe=2,tensor=1");
        struct trial *trial = new_trial(&job, 1);
        trial->made.in_flight = numbers[i][0];
        trial->made.groups = numbers[i][1];
        job.user = trial;
        job.program = continue_only;
        assert_true(make_table(&job));
        make_tokens(&job);
        EXPECT_VERDICT(((struct test_run){.mesh = job.mesh, .arg = &job}), job_program, SL_BAD_INPUT,
                       "at most as many groups");
        free_job(&job);
        free(trial);
    }
}

static void numbers_that_do_not_fit_are_refused(void **state) {
    (void)state;
    static const int numbers[][2] = {{0, LENGTH}, {1, 17}}; /* prompt, length; there are 16 positions */
    for (int i = 0; i < 2; i++) {
        struct job job = new_job("data=2,pipe=2,tensor=1");
        struct trial *trial = new_trial(&job, 1);
        trial->made.prompt = numbers[i][0];
        trial->made.length = numbers[i][1];
        job.user = trial;
        job.program = continue_only;
        assert_true(make_table(&job));
        make_tokens(&job);
        EXPECT_VERDICT(((struct test_run){.mesh = job.mesh, .arg = &job}), job_program, SL_BAD_INPUT,
                       "at least 1, at most 16");
        free_job(&job);
        free(trial);
    }
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    if (test_runs_few) cmocka_set_test_filter("gr*"); /* greedy tokens; groups and places */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_tokens_are_those_of_the_whole_model),
        cmocka_unit_test(bf16_caches_give_the_tokens_of_the_whole_model),
        cmocka_unit_test(weights_in_bf16_give_the_logits_of_rounded_floats),
        cmocka_unit_test(placement_and_shardings_give_the_same_tokens),
        cmocka_unit_test(prompts_of_several_parts_are_those_of_the_whole_model),
        cmocka_unit_test(sampled_tokens_are_the_same_in_every_layout),
        cmocka_unit_test(draws_differ_between_positions),
        cmocka_unit_test(groups_and_places_give_the_same_tokens),
        cmocka_unit_test(waiting_prompts_are_admitted),
        cmocka_unit_test(numbers_of_groups_are_checked),
        cmocka_unit_test(numbers_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
