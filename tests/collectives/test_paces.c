/* test_paces.c - coordinates of different speed: a host that holds calls back for a graph waits for hosts that are
 * behind, and makes its calls one by one if that takes long (graphs.c); the results stay the same bits. */
#include "tests/rigs/run_on.h"

#include <time.h>

enum { NUMBERS = 40, CALLS = 24, MESSAGES = 4, STEPS = 60, LEARNED = 2, LATE_MS = 500, MOST = 4 };

/* Results of a coordinate: steps that were graphs; steps with a part outside a graph, in all (PARTED), at the late step
 * (LATE), and after it (LATER); whether its calls begin only when its peers have begun their earlier ones. */
enum { GRAPHS, PARTED, LATE, LATER, ASKS, TOLD };

struct pace {
    int steps, late; /* coordinate 1 sleeps before this step; less than 0: never */
    int32_t told[MOST][TOLD];
};

struct own {
    struct sl_spmd *self;
    struct sl_group group; /* the last axis */
    struct sl_channel to, from;
    bool sends, takes;
    int32_t *x, *all, *sum; /* on the device */
};

static int open_own(struct own *own) {
    struct sl_spmd *self = own->self;
    const int me = self->coordinate, size = self->mesh->size;
    SL_TRY(sl_group_axes(self, "x", &own->group));
    own->x = sl_device.take((size_t)(own->group.size + 2) * NUMBERS * sizeof *own->x);
    CHECK(self, own->x);
    own->sum = own->x + NUMBERS, own->all = own->sum + NUMBERS;
    own->sends = me + own->group.size < size, own->takes = me >= own->group.size;
    if (own->sends) SL_TRY(sl_channel_open(self, &own->to, me, me + own->group.size, NUMBERS * sizeof *own->x, 2));
    if (own->takes) SL_TRY(sl_channel_open(self, &own->from, me - own->group.size, me, NUMBERS * sizeof *own->x, 2));
    return SL_OK;
}

/* Passes messages from one stage to the next: the last one receives the first one's values. */
static int pass(struct own *own) {
    for (int m = 0; m < MESSAGES; m++) {
        const void *message;
        void *slot;
        if (own->takes) {
            SL_TRY(sl_channel_take(own->self, &own->from, &message));
            sl_device.copy(own->x, message, NUMBERS * sizeof *own->x);
            SL_TRY(sl_channel_release(own->self, &own->from));
        }
        if (own->sends) {
            SL_TRY(sl_channel_acquire(own->self, &own->to, &slot));
            sl_device.copy(slot, own->x, NUMBERS * sizeof *own->x);
            SL_TRY(sl_channel_post(own->self, &own->to));
        }
    }
    sl_channels_rest(own->self);
    return SL_OK;
}

/* Each member copies the next one's values, CALLS times. */
static int take_step(struct own *own) {
    const struct sl_group *group = &own->group;
    const int next = (group->rank + 1) % group->size;
    SL_TRY(pass(own));
    for (int call = 0; call < CALLS; call++) {
        SL_TRY(sl_all_gather(own->self, group, SL_I32, own->x, own->all, NUMBERS));
        sl_device.copy(own->x, own->all + next * NUMBERS, NUMBERS * sizeof *own->x);
    }
    return sl_psum(own->self, group, SL_I32, own->x, own->sum, NUMBERS);
}

static int32_t number(int step, int rank, int i) { return 1000 * step + 100 * rank + i; }

static int check_step(struct own *own, int step) {
    const int size = own->group.size;
    int32_t host[2 * NUMBERS];
    sl_device.copy(host, own->x, sizeof host);
    for (int i = 0; i < NUMBERS; i++) {
        CHECK(own->self, host[i] == number(step, (own->group.rank + CALLS) % size, i));
        CHECK(own->self, host[NUMBERS + i] == size * number(step, 0, i) + 50 * size * (size - 1));
    }
    return SL_OK;
}

static void sleep_ms(int ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL); }

static struct sl_graph_report report_now(void) {
    struct sl_graph_report report = {0};
    if (sl_device.report_graphs) sl_device.report_graphs(&report);
    return report;
}

static int pace_program(struct sl_spmd *self, void *arg) {
    struct pace *pace = arg;
    struct own own = {.self = self};
    int32_t told[TOLD] = {[ASKS] = self->engine->checked};
    SL_TRY(open_own(&own));
    for (int step = 0; step < pace->steps; step++) {
        int32_t host[NUMBERS];
        const int before = report_now().parted;
        for (int i = 0; i < NUMBERS; i++) host[i] = own.takes ? -1 : number(step, own.group.rank, i);
        sl_device.copy(own.x, host, sizeof host);
        if (step == pace->late && self->coordinate == 1) sleep_ms(LATE_MS);
        sl_device.begin_step(&own, SL_GRAPHS_AUTO);
        SL_TRY(take_step(&own));
        sl_device.end_step();
        SL_TRY(check_step(&own, step));
        if (step == pace->late) told[LATE] = report_now().parted - before;
        if (step > pace->late) told[LATER] += report_now().parted - before;
    }
    told[GRAPHS] = report_now().replayed, told[PARTED] = report_now().parted;
    SL_TRY(sl_device.settle(&self->error));
    struct sl_group world;
    int32_t all[MOST * TOLD];
    SL_TRY(sl_group_axes(self, "*", &world));
    SL_TRY(sl_all_gather(self, &world, SL_I32, told, all, TOLD));
    if (self->coordinate == 0) memcpy(pace->told, all, (size_t)world.size * sizeof told);
    sl_device.give(own.x);
    return SL_OK;
}

/* SL_TEST_STEPS: how many steps, for a look at how many are graphs. */
static void run_pace(const char *mesh, bool checked, struct pace *pace) {
    const char *steps = getenv("SL_TEST_STEPS");
    struct sl_error error;
    pace->steps = steps ? atoi(steps) : STEPS;
    const int status = run_on((struct test_run){.mesh = mesh, .checked = checked, .arg = pace}, pace_program, &error);
    if (status) fail_msg("on %s: status %d: %s", mesh, status, error.message);
    if (!has_results() || !sl_device.report_graphs) return;
    printf("# %s%s, %d steps; graphs, in part, in part in the late step, and after it:", mesh,
           checked ? ", checked" : "", pace->steps);
    for (int c = 0; c < MOST && pace->told[c][GRAPHS]; c++)
        printf(" %d %d %d %d%s", pace->told[c][GRAPHS], pace->told[c][PARTED], pace->told[c][LATE],
               pace->told[c][LATER], c + 1 < MOST && pace->told[c + 1][GRAPHS] ? "," : "\n");
}

static bool has_graphs(void) { return sl_device.report_graphs && !strcmp(test_engine, "nccl") && has_results(); }

static const char *const meshes[] = {"y=1,x=2", "y=1,x=4", "y=2,x=2"};
static const int sizes[] = {2, 4, 4};

/* Whether to run in checked mode, too. Processes then compare calls outside graphs. */
static int modes(void) { return has_graphs() && !sl_engine_find(test_engine)->apart ? 2 : 1; }

/* A machine with other work may keep a process from its core for longer than any host waits: the better run counts. */
enum { TRIES = 2 };

static int fewer(int a, int b) { return a < b ? a : b; }

/* All steps are graphs except for the first ones; in checked mode waits for slower hosts are short: three quarters are
 * graphs, and more if cores are free. */
static void most_steps_are_graphs(void **state) {
    (void)state;
    for (int run = 0; run < 3 * modes(); run++) {
        const int m = run % 3, checked = run / 3;
        int parted[MOST] = {STEPS, STEPS, STEPS, STEPS}, graphs = 0;
        for (int try = 0; try < TRIES; try++) {
            struct pace pace = {.late = -1};
            run_pace(meshes[m], checked, &pace);
            for (int c = 0; c < sizes[m] && has_graphs(); c++) {
                const int32_t *told = pace.told[c];
                assert_int_equal(told[GRAPHS], pace.steps - LEARNED);
                graphs = told[ASKS] ? told[GRAPHS] : 0;
                parted[c] = fewer(parted[c], told[PARTED]);
            }
        }
        for (int c = 0; c < sizes[m] && has_graphs(); c++) assert_true(4 * parted[c] <= graphs);
    }
}

/* Members of the late coordinate's group do not wait for it. In checked mode they part that step's graph. */
static void a_late_host_costs_one_step(void **state) {
    (void)state;
    for (int run = 0; run < 3 * modes(); run++) {
        const int m = run % 3, checked = run / 3;
        int later[MOST] = {STEPS, STEPS, STEPS, STEPS}, steps = 0;
        for (int try = 0; try < TRIES; try++) {
            struct pace pace = {.late = STEPS / 2};
            run_pace(meshes[m], checked, &pace);
            for (int c = 0; c < sizes[m] && has_graphs(); c++) {
                const int32_t *told = pace.told[c];
                const bool waits = c != 1 && (c == 0 || m == 1);
                assert_int_equal(told[GRAPHS], pace.steps - LEARNED);
                if (waits) assert_int_equal(told[LATE], told[ASKS]);
                steps = told[ASKS] ? pace.steps - pace.late : 0;
                later[c] = fewer(later[c], told[LATER]);
            }
        }
        for (int c = 0; c < sizes[m] && has_graphs(); c++) assert_true(4 * later[c] <= steps);
    }
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(most_steps_are_graphs),
                                       cmocka_unit_test(a_late_host_costs_one_step)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
