/* test_budget.c - memory in use equals the plan, by category and to the byte, and nothing else is allocated: in
 * training and generation, under every schedule, layout and kind of recomputation. */
#include <pthread.h>

#include "tests/rigs/folder.h"
#include "tests/rigs/transformer_job.h"

#include "spmd/base/memory.h"

/* ---- allocated blocks (the linker redirects the library's calls to here) ---- */

enum { MOST_BLOCKS = 4096 };

static struct {
    pthread_mutex_t lock;
    struct {
        void *memory;
        size_t bytes;
    } block[MOST_BLOCKS];
    size_t live; /* bytes */
} blocks = {.lock = PTHREAD_MUTEX_INITIALIZER};

void *__real_sl_memory_take(size_t bytes);
void __real_sl_memory_give(void *memory);
void *__wrap_sl_memory_take(size_t bytes);
void __wrap_sl_memory_give(void *memory);

/* From one place in the list to another: NULL stands for an empty one. */
static void replace(void *before, void *after, size_t bytes) {
    pthread_mutex_lock(&blocks.lock);
    for (int i = 0; i < MOST_BLOCKS; i++) {
        if (blocks.block[i].memory != before) continue;
        blocks.live += bytes - blocks.block[i].bytes;
        blocks.block[i].memory = after;
        blocks.block[i].bytes = bytes;
        break;
    }
    pthread_mutex_unlock(&blocks.lock);
}

void *__wrap_sl_memory_take(size_t bytes) {
    void *memory = __real_sl_memory_take(bytes);
    if (memory) replace(NULL, memory, bytes);
    return memory;
}

void __wrap_sl_memory_give(void *memory) {
    if (memory) replace(memory, NULL, 0);
    __real_sl_memory_give(memory);
}

/* ---- coordinates' reports ---- */

struct record {
    struct sl_budget planned, held;
};

struct records {
    struct record of[MOST_COORDINATES];
    struct sl_generation *generation; /* NULL: none */
    const char *journal;              /* its folder; NULL: none */
    uint64_t live;                    /* bytes of all blocks, when all coordinates have allocated all of theirs */
};

static int generate(struct worker *worker, struct sl_generator **generator, struct sl_budget *planned) {
    const struct records *records = worker->job->user;
    struct sl_parameters *parameters = sl_trainer_parameters(worker->trainer);
    struct sl_generation generation = *records->generation;
    struct sl_generator *sizes = NULL;
    generation.transformer = &worker->job->model;
    generation.schedule = &worker->job->table;
    generation.gemm = sl_gemm_find(NULL, &worker->self->error);
    generation.sizes_only = true;
    int status = sl_generator_open(&sizes, worker->self, &generation, parameters);
    if (status == SL_OK) sl_generator_plan_bytes(sizes, planned);
    sl_generator_close(sizes);
    generation.sizes_only = false;
    return status ? status : sl_generator_open(generator, worker->self, &generation, parameters);
}

static int open_journal(struct worker *worker, const char *folder, struct sl_journal **journal,
                        struct sl_budget *planned) {
    const struct sl_journal_options options = {.directory = folder};
    sl_trainer_plan_journal(worker->trainer, planned);
    return sl_trainer_open_journal(worker->trainer, &worker->model, &options, journal);
}

static int train_and_count(struct worker *worker) {
    struct sl_spmd *self = worker->self;
    struct records *records = worker->job->user;
    struct record *record = &records->of[self->coordinate];
    struct sl_journal *journal = NULL;
    struct sl_generator *generator = NULL;
    int32_t tokens[MOST_TOKENS] = {0};
    struct sl_generated generated = {.tokens = tokens};
    const struct sl_group *world = sl_trainer_world(worker->trainer);
    sl_trainer_plan_bytes(worker->trainer, &record->planned);
    if (records->journal) SL_TRY(open_journal(worker, records->journal, &journal, &record->planned));
    if (worker->job->steps) SL_TRY(train_steps(worker, 0, worker->job->steps));
    if (records->generation) SL_TRY(generate(worker, &generator, &record->planned));
    if (generator) SL_TRY(sl_generator_run(generator, &generated));
    record->held = self->held;
    SL_TRY(sl_barrier(self, world));
    if (self->coordinate == 0) records->live = blocks.live;
    SL_TRY(sl_barrier(self, world));
    sl_generator_close(generator);
    sl_trainer_set_journal(worker->trainer, NULL);
    sl_journal_close(journal);
    return sl_gather_records(self, records->of, sizeof *records->of);
}

/* Devices have memory of their own runtimes'. */
static bool counts_blocks(void) { return !strcmp(test_engine, "local") && !strcmp(sl_device.name, "cpu"); }

static void expect_records_planned(struct job job, struct sl_generation *generation, const char *journal) {
    struct records records = {.generation = generation, .journal = journal};
    uint64_t sum = 0, host = 0;
    job.program = train_and_count;
    job.user = &records;
    if (!make_table(&job)) return;
    run_job(&job);
    for (int c = 0; c < coordinates_of(job.mesh) && has_results(); c++) {
        for (int i = 0; i < SL_MEMORY_CATEGORIES; i++)
            if (records.of[c].planned.bytes[i] != records.of[c].held.bytes[i])
                fail_msg("%s, %s, coordinate %d: %s: %llu bytes planned, %llu held", job.schedule, job.mesh, c,
                         sl_memory_name[i], (unsigned long long)records.of[c].planned.bytes[i],
                         (unsigned long long)records.of[c].held.bytes[i]);
        sum += sl_budget_total(&records.of[c].held);
        /* Of a generation without a training, tokens and logits are the host's, from its heap. */
        if (generation) host += records.of[c].held.bytes[SL_MEMORY_RUNTIME];
    }
    if (has_results() && counts_blocks() && !generation) assert_int_equal(records.live, sum);
    if (has_results() && counts_blocks() && generation) assert_in_range(records.live, sum - host, sum);
    free_job(&job);
}

static void expect_planned(struct job job, struct sl_generation *generation) {
    expect_records_planned(job, generation, NULL);
}

/* ---- tests ---- */

/* NCCL makes communicators for each run: of some rows every second one. */
static bool is_left_out(int i) { return i % 2 && !strcmp(test_engine, "nccl"); }

static void held_is_planned_under_every_schedule(void **state) {
    (void)state;
    static const char *const schedule[] = {"gpipe",      "1f1b", "interleaved-1f1b", "looped-bfs",
                                           "looped-dfs", "zbv",  "interleaved-zb",   "dualpipev"};
    static const char *const mesh[] = {"data=1,pipe=1,tensor=1", "data=2,pipe=2,tensor=1", "data=1,pipe=2,tensor=2",
                                       "data=1,pipe=4,tensor=1"};
    for (int i = 0; i < 8; i++) {
        for (int m = 0; m < 4; m++) {
            if ((test_is_small && m != i % 4) || is_left_out(i + i / 4)) continue;
            struct job job = small_job(mesh[m]);
            job.schedule = schedule[i];
            job.loops = i < 2 ? 1 : 2;
            job.group = (i + m) % 2;
            job.steps = 2;
            job.model.recomputation = (i + m) % 3;
            job.precision = i & 1 ? SL_BF16 : SL_F32;
            job.model.fsdp = m & 1;
            job.shared_out = i % 3;
            job.model.vocabulary_parallel = m == 2;
            expect_planned(job, NULL);
        }
    }
}

static void held_is_planned_with_experts_dropout_and_passes(void **state) {
    (void)state;
    struct job job = small_job("data=2,pipe=1,tensor=2");
    job.steps = 2;
    job.model.experts = 4;
    job.model.choices = 2;
    job.model.shared_experts = 1;
    job.model.expert_dimension = 16;
    job.model.capacity = 1.25;
    job.model.dropout = 0.1;
    job.accumulate = 2;
    job.clip = 0.5f;
    expect_planned(job, NULL);
}

static void held_is_planned_with_a_journal(void **state) {
    (void)state;
    static const char *const mesh[] = {"data=1,pipe=1,tensor=1", "data=2,pipe=2,tensor=2"};
    for (int m = 0; m < 2; m++) {
        char folder[FOLDER], path[SL_MAX_PATH];
        struct job job = small_job(mesh[m]);
        job.schedule = m ? "interleaved-1f1b" : "gpipe";
        job.loops = 1 + m;
        job.steps = 2;
        job.accumulate = 2;
        job.clip = m ? 0.5f : 0;
        assert_true(make_folder(folder, "budget"));
        expect_records_planned(job, NULL, folder);
        for (int c = 0; c < coordinates_of(mesh[m]); c++) {
            assert_int_equal(sl_journal_name(folder, c, path, NULL), SL_OK);
            assert_int_equal(unlink(path), 0);
        }
        rmdir(folder);
    }
}

/* Grouped attention; a head's own table, spread over ranks or not; learned positions. */
static void grouped(struct job *job, int kind) {
    struct sl_transformer *model = &job->model;
    model->attention = SL_ATTENTION_GROUPED;
    model->key_heads = kind ? 2 : 4; /* of 8: over 2 coordinates, or all on each of 4 */
    model->layers_per_block = 1;
    model->mlp = kind ? SL_MLP_GATED_SILU : SL_MLP_ERF_GELU;
    model->biases = kind ? SL_BIASES_NONE : SL_BIASES_ALL;
    model->norm = kind ? SL_NORM_RMS : SL_NORM_LAYER;
    model->learned_positions = kind ? 0 : 16;
    model->untied_head = model->head_norms = kind;
}

static void held_is_planned_of_other_families(void **state) {
    (void)state;
    static const char *const mesh[] = {"data=2,pipe=2,tensor=2", "data=1,pipe=2,tensor=4", "data=1,pipe=2,tensor=1"};
    for (int i = 0; i < 6; i++) {
        if (is_left_out(i + i / 2)) continue;
        struct sl_generation generation = {.sequences = 3, .prompt = 3, .length = 6, .sampling = {1, 0, 1}};
        struct job job = small_job(mesh[i / 2]);
        job.schedule = "interleaved-1f1b";
        job.model.chunk = 5;
        job.model.spread_head = i / 2 == 2 ? 1 + i % 2 : SL_SPREAD_NOTHING;
        job.loops = 1 + sl_spread_loops(job.model.spread_head);
        grouped(&job, i % 2);
        job.model.recomputation = i % 3;
        job.model.keep_logits = i % 2;
        job.storage = i / 2 == 1 ? SL_BF16 : SL_F32;
        expect_planned(job, NULL);
        if (!job.model.spread_head) expect_planned(job, &generation);
    }
}

static void held_is_planned_in_generation(void **state) {
    (void)state;
    static const char *const mesh[] = {"data=1,pipe=1,tensor=1", "data=2,pipe=2,tensor=2"};
    static const int ragged[] = {3, 5, 1, 3, 5, 1};
    for (int m = 0; m < 2; m++)
        for (int i = 0; i < 4; i++) {
            if (is_left_out(i + m)) continue;
            struct sl_generation generation = {.sequences = 3, .prompt = 3, .length = 6, .sampling = {1, 0, 1}};
            struct job job = small_job(mesh[m]);
            job.steps = i % 2;
            generation.groups = 1 + i % 2; /* of different widths */
            generation.in_flight = i > 1 ? 2 : 0;
            generation.prompts = i == 3 ? ragged : NULL;
            expect_planned(job, &generation);
        }
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(held_is_planned_under_every_schedule),
        cmocka_unit_test(held_is_planned_with_experts_dropout_and_passes),
        cmocka_unit_test(held_is_planned_with_a_journal),
        cmocka_unit_test(held_is_planned_of_other_families),
        cmocka_unit_test(held_is_planned_in_generation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
