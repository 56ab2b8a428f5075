/* test_replay.c - the player gives one coordinate without the others the results that the recorder saved; other calls
 * are refused, and so are damaged blocks of messages. */
#include "tests/rigs/run_on.h"

#include "collectives/collectives.h"
#include "collectives/replay/player.h"
#include "collectives/replay/recorder.h"

enum { COORDINATES = 4, RESULTS = 64 };

/* A coordinate's received messages, before its first step and in it, and its results. */
struct kept {
    struct sl_messages opening, step;
    float result[RESULTS];
};

enum fault { NOTHING, OTHER_CALL, OTHER_SIZE, ONE_MORE, NO_STEP };

struct run {
    struct kept kept[COORDINATES];
    bool plays;
    enum fault fault; /* of the player */
    float again[RESULTS];
};

struct objects {
    struct sl_group data, model, world;
    struct sl_channel channel; /* from the first coordinate to the last */
};

static void copy(const struct sl_messages *from, struct sl_messages *to) {
    *to = (struct sl_messages){.block = aligned_alloc(SL_MESSAGE_ALIGN, from->size + SL_MESSAGE_ALIGN),
                               .size = from->size,
                               .room = from->size + SL_MESSAGE_ALIGN};
    if (!to->block) abort();
    memcpy(to->block, from->block, from->size);
}

static int open_objects(struct sl_spmd *self, struct objects *o) {
    SL_TRY(sl_group_axes(self, "data", &o->data));
    SL_TRY(sl_group_axes(self, "model", &o->model));
    SL_TRY(sl_group_axes(self, "*", &o->world));
    if (self->coordinate != 0 && self->coordinate != COORDINATES - 1) return SL_OK;
    return sl_channel_open(self, &o->channel, 0, COORDINATES - 1, 3 * sizeof(float), 2);
}

/* Two calls that end in the opposite order, and results with gaps between rows. */
static int take_step(struct sl_spmd *self, struct objects *o, enum fault fault, float *to) {
    const size_t shape[] = {2, 4};
    struct sl_request sum, gather;
    float mine[8];
    for (int i = 0; i < 8; i++) mine[i] = (float)(10 * self->coordinate + i);
    if (fault == OTHER_CALL)
        SL_TRY(sl_pmax(self, &o->data, SL_F32, mine, to, 3));
    else
        SL_TRY(sl_psum(self, &o->data, SL_F32, mine, to, fault == OTHER_SIZE ? 4 : 3));
    SL_TRY(sl_psum_start(self, &sum, &o->model, SL_F32, mine + 2, to + 4, 2));
    SL_TRY(sl_all_gather_start(self, &gather, &o->world, SL_F32, mine, to + 8, 2));
    SL_TRY(sl_wait(self, &gather));
    SL_TRY(sl_wait(self, &sum));
    SL_TRY(sl_psum_scatter_dim(self, &o->model, SL_F32, mine, to + 16, 2, shape, 1));
    SL_TRY(sl_all_gather_dim(self, &o->data, SL_F32, mine, to + 24, 2, shape, 1));
    if (fault == ONE_MORE) SL_TRY(sl_psum(self, &o->data, SL_F32, mine, to, 3));
    return SL_OK;
}

static int pass(struct sl_spmd *self, struct objects *o, float *to) {
    const void *message;
    void *slot;
    if (self->coordinate == 0) {
        SL_TRY(sl_channel_acquire(self, &o->channel, &slot));
        memcpy(slot, (float[]){1, 2, 3}, 3 * sizeof(float));
        return sl_channel_post(self, &o->channel);
    }
    if (self->coordinate < COORDINATES - 1) return SL_OK;
    SL_TRY(sl_channel_take(self, &o->channel, &message));
    memcpy(to, message, 3 * sizeof(float));
    return sl_channel_release(self, &o->channel);
}

/* No replay asks for this. */
static int write_files(struct sl_spmd *self, struct sl_recorder *recorder) {
    struct sl_group others;
    float one = 1;
    sl_recorder_pause(recorder, true);
    SL_TRY(sl_group_axes(self, "*", &others));
    SL_TRY(sl_psum(self, &others, SL_F32, &one, &one, 1));
    sl_recorder_pause(recorder, false);
    return sl_psum(self, &others, SL_F32, &one, &one, 1); /* over an unrecorded group */
}

static int record(struct sl_spmd *self, void *arg) {
    struct kept *kept = &((struct run *)arg)->kept[self->coordinate];
    struct sl_recorder *recorder;
    struct objects objects;
    SL_TRY(sl_recorder_open(&recorder, self));
    SL_TRY(open_objects(self, &objects));
    SL_TRY(sl_broadcast(self, &objects.world, SL_F32, kept->result, kept->result + 50, 2, 1));
    copy(sl_recorder_messages(recorder), &kept->opening);
    sl_recorder_begin(recorder);
    SL_TRY(take_step(self, &objects, NOTHING, kept->result));
    SL_TRY(write_files(self, recorder));
    SL_TRY(pass(self, &objects, kept->result + 40));
    copy(sl_recorder_messages(recorder), &kept->step);
    SL_TRY(sl_barrier(self, &objects.world));
    sl_recorder_close(recorder, self);
    return SL_OK;
}

static int play(struct sl_spmd *self, void *arg) {
    struct run *run = arg;
    struct objects objects;
    SL_TRY(open_objects(self, &objects));
    SL_TRY(sl_broadcast(self, &objects.world, SL_F32, run->again, run->again + 50, 2, 1));
    sl_player_use(self, run->fault == NO_STEP ? NULL : &run->kept[self->coordinate].step);
    SL_TRY(take_step(self, &objects, run->fault, run->again));
    return pass(self, &objects, run->again + 40);
}

static int play_at(struct run *run, int coordinate, struct sl_error *error) {
    const struct sl_player_like like = {.name = "local"};
    struct sl_mesh mesh;
    *error = (struct sl_error){0};
    assert_int_equal(sl_mesh_parse(&mesh, "data=2,model=2", error), SL_OK);
    memset(run->again, 0, sizeof run->again);
    return sl_player_run(&mesh, &like, coordinate, &run->kept[coordinate].opening, play, run, error);
}

static void free_run(struct run *run) {
    for (int c = 0; c < COORDINATES; c++) {
        sl_messages_free(&run->kept[c].opening);
        sl_messages_free(&run->kept[c].step);
    }
}

static void each_coordinate_gets_what_it_got(void **state) {
    (void)state;
    for (int checked = 0; checked < 2; checked++) {
        struct run run = {0};
        struct sl_error error;
        const struct test_run how = {.mesh = "data=2,model=2", .checked = checked, .arg = &run};
        if (run_on(how, record, &error)) fail_msg("%s", error.message);
        for (int c = 0; c < COORDINATES; c++) {
            assert_true(sl_messages_are_sound(&run.kept[c].step));
            if (play_at(&run, c, &error)) fail_msg("coordinate %d: %s", c, error.message);
            assert_memory_equal(run.again, run.kept[c].result, sizeof run.again);
        }
        free_run(&run);
    }
}

static void other_calls_are_refused(void **state) {
    (void)state;
    static const char *const line[] = {
        [OTHER_CALL] = "replay: pmax over \"data\" has a result of 12 bytes, and another",
        [OTHER_SIZE] = "replay: psum over \"data\" has a result of 16 bytes, and another",
        [ONE_MORE] = "replay: no result of psum over \"data\" was recorded here",
        [NO_STEP] = "replay: no result of psum over \"data\" was recorded here"};
    struct run run = {0};
    struct sl_error error;
    if (run_on((struct test_run){.mesh = "data=2,model=2", .arg = &run}, record, &error)) fail_msg("%s", error.message);
    for (run.fault = OTHER_CALL; run.fault <= NO_STEP; run.fault++) {
        assert_int_equal(play_at(&run, 2, &error), SL_FAILED);
        if (!strstr(error.message, line[run.fault])) fail_msg("%s", error.message);
    }
    free_run(&run);
}

static void blocks_that_are_cut_off_are_found(void **state) {
    (void)state;
    struct sl_messages messages = {0};
    for (size_t bytes = 0; bytes < 200; bytes += 50) {
        const struct sl_message message = {.kind = SL_MESSAGE_RESULT, .number = (uint32_t)bytes, .bytes = bytes};
        void *to = sl_messages_add(&messages, &message);
        assert_non_null(to);
        assert_int_equal((uintptr_t)to % SL_MESSAGE_ALIGN, 0);
        memset(to, 7, bytes);
    }
    assert_true(sl_messages_are_sound(&messages));
    const size_t size = messages.size;
    size_t whole = 0, at = 0;
    while (sl_messages_next(&messages, &at)) whole++;
    assert_int_equal(whole, 4);
    for (messages.size = 1; messages.size < size; messages.size++) {
        bool ends = false; /* between two messages */
        at = 0;
        while (at < messages.size && sl_messages_next(&messages, &at)) ends = at == messages.size;
        assert_int_equal(sl_messages_are_sound(&messages), ends);
    }
    ((struct sl_message *)messages.block)->kind = 9;
    messages.size = size;
    assert_false(sl_messages_are_sound(&messages));
    sl_messages_free(&messages);
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_coordinate_gets_what_it_got),
        cmocka_unit_test(other_calls_are_refused),
        cmocka_unit_test(blocks_that_are_cut_off_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
