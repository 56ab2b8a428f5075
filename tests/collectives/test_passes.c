/* test_passes.c - passes over a pipeline of channels, step after step, which engine nccl turns into graphs: the results
 * are the same, even if steps differ from earlier ones. */
#include "tests/rigs/run_on.h"

enum { NUMBERS = 50, ROOM = 2, MOST_MICROBATCHES = 8 };

struct passes {
    int microbatches;
    bool interleaves; /* a stage goes back with a microbatch as soon as it can */
    bool rests;       /* it reports the end of a pass */
    int graphs;       /* coordinates whose last steps were graphs */
};

struct stage {
    struct sl_spmd *self;
    struct sl_channel take, send, take_back, send_back;
    bool first, last;
    int32_t *memory; /* on the device: */
    int32_t *input, *top, *result;
};

static int32_t *at(int32_t *memory, int microbatch) { return memory + microbatch * NUMBERS; }

/* TO becomes FROM, turned by one number. */
static void turn(int32_t *to, const int32_t *from) {
    sl_device.copy(to, from + 1, (NUMBERS - 1) * sizeof *to);
    sl_device.copy(to + NUMBERS - 1, from, sizeof *to);
}

/* From the stage before, or FROM, to the stage behind, or TO. */
static int pass_on(struct stage *s, struct sl_channel *take, const int32_t *from, struct sl_channel *send,
                   int32_t *to) {
    const void *taken = from;
    void *given = to;
    if (!from) SL_TRY(sl_channel_take(s->self, take, &taken));
    if (!to) SL_TRY(sl_channel_acquire(s->self, send, &given));
    turn(given, taken);
    if (!from) SL_TRY(sl_channel_release(s->self, take));
    return to ? SL_OK : sl_channel_post(s->self, send);
}

static int go_forward(struct stage *s, int m) {
    return pass_on(s, &s->take, s->first ? at(s->input, m) : NULL, &s->send, s->last ? at(s->top, m) : NULL);
}
static int go_back(struct stage *s, int m) {
    return pass_on(s, &s->take_back, s->last ? at(s->top, m) : NULL, &s->send_back, s->first ? at(s->result, m) : NULL);
}

static int take_pass(struct stage *s, const struct passes *passes, int step) {
    const int ahead = passes->interleaves ? s->self->mesh->size - s->self->coordinate : passes->microbatches;
    const bool astray = step % 11 == 8 && s->self->coordinate != 1; /* another call than in steps before */
    int forward = 0;
    for (int back = 0; back < passes->microbatches; back++) {
        for (; forward < passes->microbatches && forward < back + ahead; forward++) SL_TRY(go_forward(s, forward));
        if (astray && back == 1) turn(at(s->result, passes->microbatches), at(s->input, 0));
        SL_TRY(go_back(s, back));
    }
    if (passes->rests) sl_channels_rest(s->self);
    return SL_OK;
}

static int check_step(struct stage *s, const struct passes *passes, int step) {
    int32_t host[MOST_MICROBATCHES * NUMBERS];
    const int turns = 2 * s->self->mesh->size;
    sl_device.copy(host, s->result, sizeof host);
    for (int i = 0; i < passes->microbatches * NUMBERS && s->first; i++) {
        const int number = (i % NUMBERS + turns) % NUMBERS;
        CHECK(s->self, host[i] == 10000 * step + i / NUMBERS * NUMBERS + number);
    }
    return SL_OK;
}

static int open_stage(struct stage *s) {
    struct sl_spmd *self = s->self;
    const int me = self->coordinate;
    const size_t bytes = NUMBERS * sizeof *s->memory, all = MOST_MICROBATCHES * bytes;
    s->first = me == 0, s->last = me == self->mesh->size - 1;
    s->memory = sl_device.take(3 * all + bytes);
    CHECK(self, s->memory);
    s->input = s->memory, s->top = at(s->input, MOST_MICROBATCHES), s->result = at(s->top, MOST_MICROBATCHES);
    if (!s->first) SL_TRY(sl_channel_open(self, &s->take, me - 1, me, bytes, ROOM));
    if (!s->last) SL_TRY(sl_channel_open(self, &s->send, me, me + 1, bytes, ROOM));
    if (!s->last) SL_TRY(sl_channel_open(self, &s->take_back, me + 1, me, bytes, ROOM));
    if (!s->first) SL_TRY(sl_channel_open(self, &s->send_back, me, me - 1, bytes, ROOM));
    return SL_OK;
}

static int passes_program(struct sl_spmd *self, void *arg) {
    struct passes *passes = arg;
    struct stage s = {.self = self};
    int32_t host[MOST_MICROBATCHES * NUMBERS];
    SL_TRY(open_stage(&s));
    for (int step = 0; step < 44; step++) {
        for (int i = 0; i < MOST_MICROBATCHES * NUMBERS; i++) host[i] = 10000 * step + i;
        sl_device.copy(s.input, host, sizeof host);
        /* Two steps in turn, as there may be two kinds. */
        sl_device.begin_step(&s, step % 17 / 2 == 6 ? SL_GRAPHS_OFF : SL_GRAPHS_AUTO);
        SL_TRY(take_pass(&s, passes, step));
        sl_device.end_step();
        SL_TRY(check_step(&s, passes, step));
    }
    struct sl_graph_report report = {0};
    if (sl_device.report_graphs) sl_device.report_graphs(&report);
    __atomic_fetch_add(&passes->graphs, report.replayed > 10, __ATOMIC_RELAXED);
    SL_TRY(sl_device.settle(&self->error));
    sl_device.give(s.memory);
    return SL_OK;
}

/* A number of microbatches that is no multiple of the slots gives two kinds of steps. */
static void test_passes(void **state) {
    (void)state;
    for (int i = test_runs_few ? 3 : 0; i < (test_runs_few ? 4 : 8); i++) {
        struct passes passes = {i & 1 ? 5 : 6, i & 2, !(i & 4), 0};
        expect_ok("x=4", passes_program, &passes);
        if (sl_device.report_graphs && !strcmp(test_engine, "nccl") && has_results())
            assert_int_equal(passes.graphs > 0, passes.rests);
    }
}

/* Steps that do not receive all of their messages: after X and then Y are sent, the other end receives Y, and X of the
 * step before. The program does not report rests, so no step becomes a graph; a graph would wait for both. */
static int crossing_program(struct sl_spmd *self, void *arg) {
    enum { STEPS = 24 }; /* of two kinds, by the slots */
    struct sl_channel x, y;
    (void)arg;
    SL_TRY(sl_channel_open(self, &x, 0, 1, sizeof(int32_t), ROOM));
    SL_TRY(sl_channel_open(self, &y, 0, 1, sizeof(int32_t), ROOM));
    int32_t *number = sl_device.take(sizeof *number), here = 0;
    CHECK(self, number);
    for (int32_t step = 0; step < STEPS; step++) {
        sl_device.copy(number, &step, sizeof step);
        sl_device.begin_step(&x, SL_GRAPHS_AUTO);
        struct sl_channel *const channel[] = {self->coordinate == 0 ? &x : &y, self->coordinate == 0 ? &y : &x};
        for (int i = 0; i < 2; i++) {
            void *slot;
            const void *message;
            if (self->coordinate == 0) {
                SL_TRY(sl_channel_acquire(self, channel[i], &slot));
                sl_device.copy(slot, number, sizeof step);
                SL_TRY(sl_channel_post(self, channel[i]));
            } else if (i == 0 || step) {
                SL_TRY(sl_channel_take(self, channel[i], &message));
                sl_device.copy(number, message, sizeof step);
                SL_TRY(sl_channel_release(self, channel[i]));
            }
        }
        sl_device.end_step();
        sl_device.copy(&here, number, sizeof here);
        CHECK(self, here == step - (self->coordinate && step));
    }
    struct sl_graph_report report = {0};
    if (sl_device.report_graphs && !strcmp(test_engine, "nccl")) sl_device.report_graphs(&report);
    CHECK(self, !report.graphs && !(self->coordinate == 0 && report.replayed));
    if (self->coordinate == 1) { /* memory is freed when nothing is on its way */
        const void *message;
        SL_TRY(sl_channel_take(self, &x, &message));
        SL_TRY(sl_channel_release(self, &x));
    }
    sl_device.give(number);
    return SL_OK;
}

static void test_crossing(void **state) {
    (void)state;
    expect_ok("x=2", crossing_program, NULL);
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_passes), cmocka_unit_test(test_crossing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
