/* test_transformer_memory.c - memory of a transformer's coordinates: the same initial values in every layout, equal
 * replicas, a part of the model and never all of it, and no allocation after the first step. */
#include <stdatomic.h>

#include "tests/rigs/allocations.h"
#include "tests/rigs/transformer_job.h"

#include "spmd/base/memory.h"

static const char alone[] = "data=1,pipe=1,tensor=1";

/* ---- initial values ---- */

static void initial_values_go_by_name_in_every_layout(void **state) {
    (void)state;
    struct job single = small_job(alone);
    single.steps = 0;
    run_job(&single);
    if (has_results()) {
        const struct sl_tensor *embedding = sl_store_find(&single.values, "embedding");
        const struct sl_tensor *kernel = sl_store_find(&single.values, "blocks.3.layers.1.mlp.up.kernel");
        assert_true(embedding && norm_of(sl_array_elements(&embedding->array), embedding->array.data, NULL) > 1);
        assert_true(kernel && norm_of(sl_array_elements(&kernel->array), kernel->array.data, NULL) > 1);
    }
    for (int size = 1; size <= 8; size *= 2) {
        char mesh[MAX_LAYOUTS][LAYOUT];
        const int layouts = list_layouts(size, mesh);
        for (int i = 0; i < 4 * layouts; i++) {
            struct job job = small_job(mesh[i / 4]);
            job.steps = 0;
            job.model.fsdp = i & 1;
            job.model.vocabulary_parallel = i & 2;
            job.shared_out = i / 4 & 1;
            job.schedule = size_along(job.mesh, "pipe") == 2 ? "zbv" : "gpipe";
            job.loops = size_along(job.mesh, "pipe") == 2 ? 2 : 1;
            run_job(&job);
            if (has_results()) expect_same_store(job.mesh, &job.values, &single.values);
            free_job(&job);
        }
    }
    free_job(&single);
}

/* ---- replicas ---- */

enum { MOST_PARAMETERS = 160 };

/* A coordinate's part of a parameter. */
struct held {
    uint64_t hash; /* of its bits */
    char name[96];
    struct sl_spec spec;
};

struct holdings {
    bool spoiled; /* coordinate 3 changes the last bit of something before */
    struct held held[MOST_COORDINATES][MOST_PARAMETERS];
};

static uint64_t hash_of(size_t count, const float *x) {
    uint64_t hash = count;
    for (size_t i = 0; i < count; i++) {
        uint32_t word;
        memcpy(&word, x + i, sizeof word);
        hash = (hash ^ word) * UINT64_C(0x100000001b3);
        hash ^= hash >> 29;
    }
    return hash;
}

static int train_and_tell(struct worker *worker) {
    struct sl_spmd *self = worker->self;
    struct holdings *holdings = worker->job->user;
    const struct sl_parameters *parameters = sl_trainer_parameters(worker->trainer);
    struct held *held = holdings->held[self->coordinate];
    SL_TRY(train_steps(worker, 0, worker->job->steps));
    if (parameters->count > MOST_PARAMETERS) return sl_fail(self, SL_FAILED, "%d parameters", parameters->count);
    for (int i = 0; i < parameters->count; i++) {
        const struct sl_parameter *parameter = &parameters->list[i];
        float *value = malloc(parameter->count * sizeof *value);
        if (!value) return sl_fail(self, SL_FAILED, "no memory");
        sl_device.copy(value, sl_parameter_value(parameters, i), parameter->count * sizeof *value);
        if (holdings->spoiled && self->coordinate == 3 && i == 2) value[1] = nextafterf(value[1], 8);
        held[i] = (struct held){.hash = hash_of(parameter->count, value), .spec = parameter->spec};
        strcpy(held[i].name, parameter->name);
        free(value);
    }
    return sl_gather_records(self, holdings->held, sizeof *holdings->held);
}

/* Compares the equal parts of A and B. Returns how many parameters differ; *ALIKE counts the others. */
static int compare_coordinates(const struct sl_mesh *mesh, const struct holdings *holdings, int a, int b, int *alike) {
    int differences = 0;
    for (int i = 0; i < MOST_PARAMETERS && *holdings->held[a][i].name; i++) {
        for (int j = 0; j < MOST_PARAMETERS && *holdings->held[b][j].name; j++) {
            const struct held *one = &holdings->held[a][i], *other = &holdings->held[b][j];
            bool same_part = !strcmp(one->name, other->name);
            for (int axis = 0; axis < mesh->axes && same_part; axis++) {
                const bool apart = sl_mesh_index(mesh, a, axis) != sl_mesh_index(mesh, b, axis);
                for (int d = 0; d < one->spec.dims; d++)
                    for (int n = 0; n < one->spec.dim[d].axes; n++)
                        if (apart && !strcmp(one->spec.dim[d].axis[n], mesh->axis[axis].name)) same_part = false;
            }
            if (!same_part) continue;
            differences += one->hash != other->hash;
            *alike += one->hash == other->hash;
        }
    }
    return differences;
}

/* Returns how many parameters differ between replicas; ALIKE[axis]: how many agree between neighbours along it. */
static int compare_replicas(const char *text, const struct holdings *holdings, int alike[static 3]) {
    struct sl_mesh mesh;
    int differences = 0, others = 0;
    assert_int_equal(sl_mesh_parse(&mesh, text, NULL), SL_OK);
    for (int a = 0; a < mesh.size; a++) {
        for (int b = a + 1; b < mesh.size; b++) {
            int apart = 0, last = 0;
            for (int axis = 0; axis < 3; axis++) {
                if (sl_mesh_index(&mesh, a, axis) == sl_mesh_index(&mesh, b, axis)) continue;
                apart++;
                last = axis;
            }
            differences += compare_coordinates(&mesh, holdings, a, b, apart == 1 ? &alike[last] : &others);
        }
    }
    return differences;
}

/* The axes are in the order data, pipe, tensor. */
static void expect_replicas(struct job job) {
    struct holdings *holdings = calloc(1, sizeof *holdings);
    int alike[3] = {0};
    assert_non_null(holdings);
    job.program = train_and_tell;
    job.user = holdings;
    job.steps = 4;
    run_job(&job);
    if (has_results()) {
        assert_int_equal(compare_replicas(job.mesh, holdings, alike), 0);
        if (size_along(job.mesh, "data") > 1) assert_true(alike[0] > 0);
        if (size_along(job.mesh, "pipe") > 1 && job.schedule[0] == '1') assert_true(alike[1] > 0); /* the table */
        if (size_along(job.mesh, "tensor") > 1) assert_true(alike[2] > 0);
    }
    free_job(&job);
    free(holdings);
}

static void replicas_do_not_drift(void **state) {
    (void)state;
    char mesh[MAX_LAYOUTS][LAYOUT];
    const int layouts = list_layouts(8, mesh);
    for (int i = 0; i < layouts; i++) {
        struct job job = small_job(mesh[i]);
        job.model.dropout = 0.1;
        if (!test_is_small || i % 4 == 0) expect_replicas(job);
    }
    for (int i = 0; i < 32; i += test_is_small ? 5 : 1) {
        struct job job = small_job("data=2,pipe=2,tensor=2");
        job.model.fsdp = i & 1;
        job.model.vocabulary_parallel = i & 2;
        job.shared_out = i >> 2 & 1;
        job.clip = i & 8 ? 0.3f : 0;
        job.overlap = i & 16;
        expect_replicas(job);
    }
}

/* The comparison sees a bit. */
static void a_replica_that_has_drifted_is_seen(void **state) {
    (void)state;
    struct holdings *holdings = calloc(1, sizeof *holdings);
    struct job job = small_job("data=2,pipe=2,tensor=2");
    int alike[3] = {0};
    assert_non_null(holdings);
    holdings->spoiled = true;
    job.model.fsdp = false;
    job.program = train_and_tell;
    job.user = holdings;
    run_job(&job);
    if (has_results()) assert_true(compare_replicas(job.mesh, holdings, alike) > 0);
    free_job(&job);
    free(holdings);
}

/* ---- memory: actual allocations (the linker redirects this program's calls to here) ---- */

void *__real_omp_target_alloc(size_t size, int device) __attribute__((weak)); /* defined only on OpenMP's devices */
void *__wrap_omp_target_alloc(size_t size, int device);
void *__real_mmap(void *address, size_t size, int protection, int flags, int file, off_t offset);
void *__wrap_mmap(void *address, size_t size, int protection, int flags, int file, off_t offset);
void *__wrap_omp_target_alloc(size_t size, int device) {
    count_allocation(size);
    return __real_omp_target_alloc(size, device);
}
void *__wrap_mmap(void *address, size_t size, int protection, int flags, int file, off_t offset) {
    count_allocation(size);
    return __real_mmap(address, size, protection, flags, file, offset);
}

struct bytes {
    uint64_t state, activations, taken, largest; /* as the trainer says; and all calls together */
};

/* A model that is mostly kernels. */
static struct job large_job(const char *mesh) {
    struct job job = small_job(mesh);
    job.model.dimension = 64;
    job.model.latent = 32;
    job.model.vocabulary = 32;
    job.sequence = 4;
    return job;
}

/* Values, gradients and two moments of all parameters. */
static double whole_bytes(const struct job *job) { return 16.0 * (double)sl_transformer_parameters(&job->model); }

static int train_and_weigh(struct worker *worker) {
    struct bytes *bytes = (struct bytes *)worker->job->user + worker->self->coordinate;
    size_t state, activations;
    SL_TRY(train_steps(worker, 0, worker->job->steps));
    sl_trainer_bytes(worker->trainer, &state, &activations);
    *bytes = (struct bytes){state, activations, taken, largest};
    return sl_gather_records(worker->self, worker->job->user, sizeof *bytes);
}

static int weighing_program(struct sl_spmd *self, void *arg) {
    taken = largest = 0; /* counts all allocations of a coordinate from here on, also released ones */
    return job_program(self, arg);
}

static void weigh(struct job *job, struct bytes bytes[static MOST_COORDINATES]) {
    struct sl_error error = {0};
    job->program = train_and_weigh;
    job->user = bytes;
    assert_true(make_table(job));
    make_tokens(job);
    if (run_on((struct test_run){.mesh = job->mesh, .arg = job}, weighing_program, &error))
        fail_msg("%s", error.message);
    free_job(job);
}

/* An eighth of the whole model's state, and the additions of the ends and of replicas of small parameters. */
static void no_coordinate_ever_holds_the_whole_model(void **state) {
    (void)state;
    char mesh[MAX_LAYOUTS][LAYOUT];
    const int layouts = list_layouts(8, mesh);
    for (int i = 0; i < 2 * layouts; i++) {
        struct bytes bytes[MOST_COORDINATES] = {{0}};
        struct job job = large_job(mesh[i / 2]);
        const double whole = whole_bytes(&job);
        double sum = 0;
        job.late = i % 2;
        weigh(&job, bytes);
        if (!has_results()) continue;
        for (int c = 0; c < 8; c++) {
            sum += (double)bytes[c].state;
            assert_true((double)bytes[c].state < 0.2 * whole);
            /* One member allocates the members' common memory. */
            if (job.late) assert_true((double)bytes[c].largest < 0.2 * whole);
            assert_true((double)bytes[c].taken < 0.75 * whole);
        }
        assert_true(sum > 0.9 * whole && sum < 1.2 * whole);
    }
}

/* Without FSDP and ZeRO, coordinates along data hold the whole model. */
static void replicas_that_share_nothing_hold_the_whole_model(void **state) {
    (void)state;
    struct bytes bytes[MOST_COORDINATES] = {{0}};
    struct job job = large_job("data=4,pipe=1,tensor=1");
    const double whole = whole_bytes(&job);
    job.model.fsdp = false;
    job.shared_out = false;
    weigh(&job, bytes);
    for (int c = 0; c < 4 && has_results(); c++) {
        assert_true((double)bytes[c].state >= whole);
        assert_true((double)bytes[c].largest >= whole);
    }
}

/* One coordinate holds the whole model: the counted bytes are the held bytes. */
static void one_coordinate_holds_the_whole_model(void **state) {
    (void)state;
    struct bytes bytes[MOST_COORDINATES] = {{0}};
    struct job job = large_job(alone);
    const double whole = whole_bytes(&job);
    weigh(&job, bytes);
    if (!has_results()) return;
    assert_true((double)bytes[0].state >= whole && (double)bytes[0].state < 1.05 * whole);
    assert_true((double)bytes[0].largest >= whole);
    assert_true((double)bytes[0].taken >= (double)(bytes[0].state + bytes[0].activations));
}

/* ---- allocations ---- */

struct counts {
    long allocations, taken; /* after the first step */
};

static int count_after_the_first_step(struct worker *worker) {
    struct sl_spmd *self = worker->self;
    struct counts *counts = worker->job->user;
    const struct sl_group *world = sl_trainer_world(worker->trainer);
    SL_TRY(train_steps(worker, 0, 1));
    SL_TRY(sl_barrier(self, world)); /* everyone's first step is done before the count begins */
    const struct counts before = {allocations, (long)sl_memory_count()};
    SL_TRY(sl_barrier(self, world));
    SL_TRY(train_steps(worker, 1, worker->job->steps));
    SL_TRY(sl_barrier(self, world));
    if (self->coordinate == 0)
        *counts = (struct counts){allocations - before.allocations, (long)sl_memory_count() - before.taken};
    return sl_barrier(self, world);
}

static void nothing_is_allocated_after_the_first_step(void **state) {
    (void)state;
    static const char *const schedule[] = {"1f1b", "interleaved-1f1b", "zbv", "looped-bfs"};
    struct sl_error error;
    for (int i = 0; i < 8; i++) {
        struct counts counts = {-1, -1};
        struct job job = small_job("data=2,pipe=2,tensor=2");
        job.schedule = schedule[i % 4];
        job.loops = i % 4 ? 2 : 1;
        job.precision = i & 4 ? SL_BF16 : SL_F32;
        job.clip = i & 1 ? 0.3f : 0;
        job.accumulate = i & 2 ? 2 : 0;
        job.microbatches = 2;
        job.group = i & 1 ? 1 : 2;
        job.model.recomputation = i % 3;
        job.model.vocabulary_parallel = i & 1;
        job.model.fsdp = i != 3;
        job.model.dropout = 0.1;
        job.steps = 4;
        job.program = count_after_the_first_step;
        job.user = &counts;
        if (!sl_gemm_supports(sl_gemm_find(NULL, &error), job.precision)) continue;
        const long before = allocations;
        run_job(&job);
        if (has_results()) {
            assert_true(allocations > before); /* the count does count */
            assert_int_equal(counts.allocations, 0);
            assert_int_equal(counts.taken, 0);
        }
        free_job(&job);
    }
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(initial_values_go_by_name_in_every_layout),
        cmocka_unit_test(replicas_do_not_drift),
        cmocka_unit_test(a_replica_that_has_drifted_is_seen),
        cmocka_unit_test(no_coordinate_ever_holds_the_whole_model),
        cmocka_unit_test(replicas_that_share_nothing_hold_the_whole_model),
        cmocka_unit_test(one_coordinate_holds_the_whole_model),
        cmocka_unit_test(nothing_is_allocated_after_the_first_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
