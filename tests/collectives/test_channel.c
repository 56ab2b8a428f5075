/* test_channel.c - messages between two coordinates: order, contents, room, matching ends, misuse. */
#include "tests/rigs/run_on.h"

#include <stdlib.h>

/* ---- order and contents ---- */

struct stream {
    size_t bytes;
    int slots, messages;
};

static int send_one(struct sl_spmd *self, struct sl_channel *channel, uint32_t number) {
    void *slot;
    SL_TRY(acquire_slot(self, channel, &slot));
    CHECK(self, (uintptr_t)slot % SL_CACHE_LINE == 0);
    uint8_t *byte = slot;
    for (size_t i = 0; i < channel->bytes; i++) byte[i] = (uint8_t)mix(number * 4096u + i);
    return sl_channel_post(self, channel);
}

static int take_one(struct sl_spmd *self, struct sl_channel *channel, uint32_t number) {
    const void *slot;
    SL_TRY(take_slot(self, channel, &slot));
    const uint8_t *byte = slot;
    for (size_t i = 0; i < channel->bytes; i++) CHECK(self, byte[i] == (uint8_t)mix(number * 4096u + i));
    return sl_channel_release(self, channel);
}

static int stream_program(struct sl_spmd *self, void *arg) {
    const struct stream *stream = arg;
    struct sl_channel channel;
    SL_TRY(sl_channel_open(self, &channel, 0, 1, stream->bytes, stream->slots));
    for (int i = 0; i < stream->messages; i++) {
        SL_TRY(self->coordinate == 0 ? send_one(self, &channel, (uint32_t)i) : take_one(self, &channel, (uint32_t)i));
    }
    return SL_OK;
}

static void test_stream(void **state) {
    (void)state;
    struct stream stream[] = {{1, 1, 300}, {64, 2, 300}, {65, 3, 300}, {4000, 7, 200}, {3, 100, 250}};
    for (size_t i = 0; i < sizeof stream / sizeof *stream; i++) expect_ok("x=2", stream_program, &stream[i]);
}

/* ---- room ---- */

/* The sender fills all slots without waiting; a slot's contents stay until it is released; with shared memory both ends
 * see the same slot. */
static int room_program(struct sl_spmd *self, void *arg) {
    void *const *sent = arg;
    struct sl_group pair;
    struct sl_channel channel;
    SL_TRY(sl_group_axes(self, "*", &pair));
    SL_TRY(sl_channel_open(self, &channel, 1, 0, 40, 3));
    if (self->coordinate == 1) {
        for (int i = 0; i < 3; i++) {
            void *slot, *again;
            SL_TRY(acquire_slot(self, &channel, &slot));
            SL_TRY(acquire_slot(self, &channel, &again));
            CHECK(self, slot == again);
            *(int *)slot = i;
            if (arg) ((void **)arg)[i] = slot;
            SL_TRY(sl_channel_post(self, &channel));
        }
    }
    SL_TRY(sl_barrier(self, &pair));
    for (int i = 0; i < 3 && self->coordinate == 0; i++) {
        const void *slot;
        SL_TRY(take_slot(self, &channel, &slot));
        CHECK(self, !sent || slot == sent[i]);
        CHECK(self, *(const int *)slot == i);
        SL_TRY(sl_channel_release(self, &channel));
    }
    return sl_barrier(self, &pair);
}

static void test_room(void **state) {
    (void)state;
    void *sent[3];
    expect_ok("x=2", room_program, shares_memory() ? sent : NULL);
}

/* A slot is not acquired again before it is released. */
static int no_overtaking_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    struct sl_channel channel;
    SL_TRY(sl_channel_open(self, &channel, 0, 1, sizeof(int), 2));
    for (int i = 0; i < 50; i++) {
        if (self->coordinate == 0) {
            void *slot;
            SL_TRY(acquire_slot(self, &channel, &slot));
            *(int *)slot = i;
            SL_TRY(sl_channel_post(self, &channel));
        } else {
            const void *slot;
            SL_TRY(take_slot(self, &channel, &slot));
            for (volatile int wait = 0; wait < 20000; wait++) CHECK(self, *(const volatile int *)slot == i);
            SL_TRY(sl_channel_release(self, &channel));
        }
    }
    return SL_OK;
}

static void test_no_overtaking(void **state) {
    (void)state;
    expect_ok("x=2", no_overtaking_program, NULL);
}

/* ---- many channels ---- */

static int open_ring(struct sl_spmd *self, struct sl_channel *out, int to, struct sl_channel *in, int from,
                     size_t bytes, int slots) {
    const int me = self->coordinate;
    SL_TRY(sl_channel_open(self, out, me, to, bytes, slots));
    *in = *out; /* to oneself */
    return from == me ? SL_OK : sl_channel_open(self, in, from, me, bytes, slots);
}

/* A ring each way, as a pipeline has it, of any length: also of one and of two. */
static int ring_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    const int size = self->mesh->size, me = self->coordinate, next = (me + 1) % size, previous = (me + size - 1) % size;
    struct sl_channel there[2], back[2]; /* sending end, receiving end */
    SL_TRY(open_ring(self, &there[0], next, &there[1], previous, 256, 2));
    SL_TRY(open_ring(self, &back[0], previous, &back[1], next, 512, 1));
    for (uint32_t i = 0; i < 100; i++) {
        SL_TRY(send_one(self, &there[0], i));
        SL_TRY(send_one(self, &back[0], i + 1000));
        SL_TRY(take_one(self, &there[1], i));
        SL_TRY(take_one(self, &back[1], i + 1000));
    }
    return SL_OK;
}

static void test_ring(void **state) {
    (void)state;
    const char *const meshes[] = {"x=1", "x=2", "x=3", "x=8"};
    for (int i = 0; i < 4; i++) expect_ok(meshes[i], ring_program, NULL);
}

/* The n-th openings of both ends match, in either order. */
static int openings_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    struct sl_channel channel[5];
    for (int i = 0; i < 5; i++) SL_TRY(sl_channel_open(self, &channel[i], 1, 0, (size_t)(8 * (i + 1)), i + 1));
    for (int i = 4; i >= 0; i--) {
        SL_TRY(self->coordinate == 1 ? send_one(self, &channel[i], (uint32_t)i)
                                     : take_one(self, &channel[i], (uint32_t)i));
    }
    return SL_OK;
}

static void test_openings(void **state) {
    (void)state;
    expect_ok("x=2", openings_program, NULL);
}

/* ---- misuse ---- */

enum misuse { FROM, STRANGER, NO_BYTES, NO_SLOTS, WRONG_END, NO_ACQUIRE, NO_TAKE };

static int misuse_program(struct sl_spmd *self, void *arg) {
    struct sl_channel channel;
    const void *slot;
    if (self->coordinate != 1) return SL_OK;
    switch (*(enum misuse *)arg) {
    case FROM:
        return sl_channel_open(self, &channel, 3, 1, 8, 1);
    case STRANGER:
        return sl_channel_open(self, &channel, 0, 2, 8, 1);
    case NO_BYTES:
        return sl_channel_open(self, &channel, 0, 1, 0, 1);
    case NO_SLOTS:
        return sl_channel_open(self, &channel, 0, 1, 8, 0);
    case WRONG_END:
        SL_TRY(sl_channel_open(self, &channel, 1, 2, 8, 1));
        return take_slot(self, &channel, &slot);
    case NO_ACQUIRE:
        SL_TRY(sl_channel_open(self, &channel, 1, 2, 8, 1));
        return sl_channel_post(self, &channel);
    case NO_TAKE:
        SL_TRY(sl_channel_open(self, &channel, 2, 1, 8, 1));
        return sl_channel_release(self, &channel);
    }
    return SL_OK;
}

static void test_misuse(void **state) {
    (void)state;
    static const char *const text[] = {
        [FROM] = "channel 3 -> 1: the mesh has coordinates 0 to 2",
        [STRANGER] = "channel 0 -> 2: opened by coordinate 1",
        [NO_BYTES] = "0 bytes and 1 slots",
        [NO_SLOTS] = "8 bytes and 0 slots",
        [WRONG_END] = "channel 1 -> 2: take at coordinate 1",
        [NO_ACQUIRE] = "post without acquire",
        [NO_TAKE] = "release without take",
    };
    for (enum misuse misuse = FROM; misuse <= NO_TAKE; misuse++) {
        EXPECT_VERDICT(((struct test_run){.mesh = "x=3", .arg = &misuse}), misuse_program, SL_BAD_INPUT,
                       "coordinate 1 (x=1): ", text[misuse]);
    }
}

static int differing_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    struct sl_channel channel;
    struct sl_group world;
    SL_TRY(sl_group_axes(self, "*", &world));
    if (self->coordinate == 0) {
        SL_TRY(sl_channel_open_at(self, "sender.c:1", &channel, 0, 1, 8, 2));
    } else {
        SL_TRY(sl_channel_open_at(self, "receiver.c:2", &channel, 0, 1, 16, 2));
    }
    return sl_barrier(self, &world);
}

static void test_differing_ends(void **state) {
    (void)state;
    EXPECT_VERDICT(((struct test_run){.mesh = "x=2"}), differing_program, SL_FAILED, "channel 0 -> 1 differ",
                   "2 slots of 8 bytes at sender.c:1", "2 slots of 16 bytes at receiver.c:2");
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stream),         cmocka_unit_test(test_room),     cmocka_unit_test(test_no_overtaking),
        cmocka_unit_test(test_ring),           cmocka_unit_test(test_openings), cmocka_unit_test(test_misuse),
        cmocka_unit_test(test_differing_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
