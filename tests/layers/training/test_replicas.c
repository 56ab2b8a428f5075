/* test_replicas.c - replicas stay equal through training; one changed bit is found, and the line names its place. */
#include "tests/rigs/folder.h"
#include "tests/rigs/transformer_job.h"

#include "layers/training/checkpoint.h"
#include "layers/training/replicas.h"

/* One bit of the parameter called NAME, or of its second moment, is changed at COORDINATE; NULL: nowhere. */
struct fault {
    const char *name;
    int coordinate;
    bool moment;
    int status[MOST_COORDINATES]; /* of the check */
};

static void change_last_bit(float *value) {
    uint32_t word;
    memcpy(&word, value, sizeof word);
    word ^= 1;
    memcpy(value, &word, sizeof word);
}

static int change_moment(struct sl_spmd *self, const struct sl_parameters *parameters, int i) {
    const struct sl_parameter *parameter = &parameters->list[i];
    size_t first, count;
    float moment;
    sl_parameter_share(parameters, i, &first, &count);
    const size_t last = parameter->offset + first + count - 1 - parameters->range[parameter->range].shard;
    SL_TRY(sl_parameters_read_state(parameters, parameter->range, 1, last, 1, &moment, &self->error));
    change_last_bit(&moment);
    return sl_parameters_write_state(parameters, parameter->range, 1, last, 1, &moment, &self->error);
}

static int change_value(const struct sl_parameters *parameters, int i) {
    float *last = sl_parameter_value(parameters, i) + parameters->list[i].count - 1, value;
    sl_device.copy(&value, last, sizeof value);
    change_last_bit(&value);
    sl_device.copy(last, &value, sizeof value);
    return SL_OK;
}

static int change(struct sl_spmd *self, struct sl_trainer *trainer, const char *name, bool moment) {
    const struct sl_parameters *parameters = sl_trainer_parameters(trainer);
    for (int i = 0; i < parameters->count; i++) {
        if (strcmp(parameters->list[i].name, name) != 0) continue;
        if (!moment) return change_value(parameters, i);
        size_t first, count;
        sl_parameter_share(parameters, i, &first, &count);
        if (count) return change_moment(self, parameters, i);
    }
    return sl_fail(self, SL_CHECK_FAILED, "coordinate %d has no %s", self->coordinate, name);
}

static int train_and_check(struct worker *worker) {
    struct sl_spmd *self = worker->self;
    struct fault *fault = worker->job->user;
    SL_TRY(train_steps(worker, 0, worker->job->steps));
    SL_TRY(sl_check_replicas(self, worker->trainer));
    if (fault->name && self->coordinate == fault->coordinate)
        SL_TRY(change(self, worker->trainer, fault->name, fault->moment));
    SL_TRY(sl_barrier(self, sl_trainer_world(worker->trainer))); /* others may hold the same value */
    return fault->status[self->coordinate] = sl_check_replicas(self, worker->trainer);
}

/* A small run, then the check. */
static int check(const char *mesh, int vocabulary, bool shared_out, bool fsdp, bool parallel, struct fault *fault,
                 struct sl_error *error) {
    struct job job = small_job(mesh);
    job.schedule = "gpipe";
    job.model.vocabulary = vocabulary;
    job.model.fsdp = fsdp;
    job.model.vocabulary_parallel = parallel;
    job.shared_out = shared_out;
    job.program = train_and_check;
    job.user = fault;
    const int status = try_job(&job, error);
    free_job(&job);
    return status;
}

static const char *const meshes[] = {"data=1,pipe=1,tensor=1", "data=2,pipe=2,tensor=2", "data=4,pipe=1,tensor=2",
                                     "tensor=2,pipe=4,data=1", "pipe=2,data=4"};
enum { MESHES = sizeof meshes / sizeof *meshes };

static void training_keeps_replicas_equal(void **state) {
    (void)state;
    for (int i = 0; i < 8 * MESHES; i++) {
        struct fault fault = {0};
        struct sl_error error;
        if (check(meshes[i / 8], 40, i & 1, i & 2, i & 4, &fault, &error))
            fail_msg("on %s, %d: %s", meshes[i / 8], i % 8, error.message);
    }
}

static void a_changed_bit_is_found(void **state) {
    (void)state;
    static const struct {
        const char *mesh, *name;
        int coordinate;
        bool fsdp, parallel;
        int vocabulary;
        const char *message, *apart; /* apart: message of processes, if different, because each has a copy */
    } cases[] = {
        /* along data */
        {"data=2,pipe=2,tensor=2", "blocks.0.layers.0.mlp.up.kernel", 5, false, false, 40,
         "parameter blocks.0.layers.0.mlp.up.kernel: coordinates 1 (data=0, pipe=0, tensor=1) and "
         "5 (data=1, pipe=0, tensor=1) have drifted apart",
         NULL},
        {"data=2,pipe=2,tensor=2", "norm.gamma", 2, false, false, 40,
         "parameter norm.gamma: coordinates 2 (data=0, pipe=1, tensor=0) and 6 (data=1, pipe=1, tensor=0)", NULL},
        /* along tensor alone, as data shards other kernels, not biases */
        {"tensor=2,data=1,pipe=2", "blocks.0.layers.1.mlp.down.bias", 2, true, false, 40,
         "coordinates 0 (tensor=0, data=0, pipe=0) and 2 (tensor=1, data=0, pipe=0)", NULL},
        /* along both: the first two different ones */
        {"data=2,pipe=1,tensor=2", "blocks.0.layers.1.mla.out.bias", 0, true, true, 40,
         "coordinates 0 (data=0, pipe=0, tensor=0) and 1 (data=0, pipe=0, tensor=1)",
         "coordinate 0 (data=0, pipe=0, tensor=0) has other bits than the 3 others"},
        /* tied, and longer than one comparison */
        {"data=1,pipe=2", "embedding", 1, false, false, 10000,
         "parameter embedding: coordinates 0 (data=0, pipe=0) and 1 (data=0, pipe=1)", NULL},
        {"pipe=4,data=1,tensor=2", "embedding", 7, false, true, 40,
         "parameter embedding: coordinates 1 (pipe=0, data=0, tensor=1) and 7 (pipe=3, data=0, tensor=1)", NULL},
        /* of more than two: the different one */
        {"data=4,pipe=1,tensor=1", "norm.gamma", 2, false, false, 40,
         "parameter norm.gamma: coordinate 2 (data=2, pipe=0, tensor=0) has other bits than the 3 others", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fault fault = {.name = cases[i].name, .coordinate = cases[i].coordinate};
        struct sl_error error;
        const int status =
            check(cases[i].mesh, cases[i].vocabulary, i > 2 && i % 2, cases[i].fsdp, cases[i].parallel, &fault, &error);
        const char *message = cases[i].apart && !shares_memory() ? cases[i].apart : cases[i].message;
        if (status != SL_CHECK_FAILED || !strstr(error.message, message))
            fail_msg("case %zu: status %d: %s", i, status, error.message);
        for (int c = 0; shares_memory() && c < coordinates_of(cases[i].mesh); c++)
            assert_int_equal(fault.status[c], SL_CHECK_FAILED);
    }
}

/* If data shards the optimizer's state, threads share one copy of the values, which cannot drift. Processes have one
 * copy each. */
static void values_held_together_stay_equal(void **state) {
    (void)state;
    struct fault fault = {.name = "norm.gamma", .coordinate = 2};
    struct sl_error error = {0};
    const int status = check("data=2,pipe=2,tensor=2", 40, true, false, false, &fault, &error);
    const bool together = shares_memory() && sl_device.shares_memory;
    if (together ? status != SL_OK : status != SL_CHECK_FAILED || !strstr(error.message, "parameter norm.gamma: "))
        fail_msg("status %d: %s", status, error.message);
}

static char folder[FOLDER], whole[300], broken[300];

/* Saves after a check, and after a bit has changed behind it. */
static int save_after_check(struct worker *worker) {
    struct sl_spmd *self = worker->self;
    struct fault *fault = worker->job->user;
    const struct sl_checkpoint about = {.compares = true};
    SL_TRY(train_steps(worker, 0, worker->job->steps));
    SL_TRY(sl_check_replicas(self, worker->trainer));
    SL_TRY(sl_checkpoint_save(self, worker->trainer, whole, &about, NULL, NULL));
    if (self->coordinate == fault->coordinate) SL_TRY(change(self, worker->trainer, fault->name, false));
    return fault->status[self->coordinate] = sl_checkpoint_save(self, worker->trainer, broken, &about, NULL, NULL);
}

static void a_bit_that_changes_after_the_check_is_not_saved(void **state) {
    (void)state;
    for (int coordinate = 0; coordinate < 3; coordinate++) {
        struct fault fault = {.name = "norm.gamma", .coordinate = coordinate};
        struct sl_error error = {0};
        struct job job = small_job("data=3,pipe=1,tensor=1");
        char wanted[128];
        assert_true(make_folder(folder, "test_replicas"));
        snprintf(whole, sizeof whole, "%s/whole", folder);
        snprintf(broken, sizeof broken, "%s/broken", folder);
        job.batch = 6;
        job.shared_out = false;
        job.program = save_after_check;
        job.user = &fault;
        assert_int_equal(try_job(&job, &error), SL_CHECK_FAILED);
        free_job(&job);
        snprintf(wanted, sizeof wanted,
                 "parameter norm.gamma: coordinate %d (data=%d, pipe=0, tensor=0) has other bits", coordinate,
                 coordinate);
        if (!strstr(error.message, wanted)) fail_msg("%s", error.message);
        assert_int_equal(unlink(whole), has_results() ? 0 : -1);
        assert_int_equal(rmdir(folder), 0); /* fails if another file remains */
    }
}

/* State with several copies, sharded over data or not. */
static void a_changed_moment_is_found(void **state) {
    (void)state;
    static const struct {
        const char *name, *message;
        int coordinate;
    } cases[] = {
        {"norm.gamma",
         "parameter optimizer.second_moment.norm.gamma: coordinates 0 (data=0, pipe=0, tensor=0) and 2 (data=1, "
         "pipe=0, tensor=0) have drifted apart",
         2},
        {"blocks.0.layers.1.mlp.down.bias",
         "parameter optimizer.second_moment.blocks.0.layers.1.mlp.down.bias: coordinates 0 (data=0, pipe=0, tensor=0) "
         "and 1 (data=0, pipe=0, tensor=1) have drifted apart",
         1},
    };
    for (int i = 0; i < 2; i++) {
        struct fault fault = {.name = cases[i].name, .moment = true, .coordinate = cases[i].coordinate};
        struct sl_error error;
        const int status = check("data=2,pipe=1,tensor=2", 40, i == 1, false, false, &fault, &error);
        if (status != SL_CHECK_FAILED || !strstr(error.message, cases[i].message))
            fail_msg("case %d: status %d: %s", i, status, error.message);
    }
}

/* Shards without a copy. */
static void shared_out_moments_may_differ(void **state) {
    (void)state;
    struct fault fault = {.name = "norm.gamma", .moment = true, .coordinate = 1};
    struct sl_error error;
    if (check("data=2", 40, true, false, false, &fault, &error)) fail_msg("%s", error.message);
}

/* Shards without a copy are not compared. */
static void what_is_sharded_may_differ(void **state) {
    (void)state;
    struct fault fault = {.name = "blocks.0.layers.0.mlp.up.kernel", .coordinate = 1};
    struct sl_error error;
    if (check("data=2,tensor=2", 40, false, true, false, &fault, &error)) fail_msg("%s", error.message);
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_keeps_replicas_equal),
        cmocka_unit_test(a_changed_bit_is_found),
        cmocka_unit_test(values_held_together_stay_equal),
        cmocka_unit_test(a_changed_moment_is_found),
        cmocka_unit_test(shared_out_moments_may_differ),
        cmocka_unit_test(what_is_sharded_may_differ),
        cmocka_unit_test(a_bit_that_changes_after_the_check_is_not_saved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
