/* test_stress.c - sixteen coordinates, thousands of random collectives and hand-overs, at random speeds. */
#include "tests/rigs/run_on.h"

#include <sched.h>
#include <stdlib.h>

enum { GROUPS = 5, MOST = 600, NEIGHBOURS = 3 };

struct world {
    struct sl_group group[GROUPS];
    struct sl_channel out[NEIGHBOURS], in[NEIGHBOURS]; /* to the coordinate 1, 4, 5 further on */
    int32_t a[SL_MAX_IN_FLIGHT][MOST], b[SL_MAX_IN_FLIGHT][16 * MOST];
};

static const int distance[NEIGHBOURS] = {1, 4, 5};

static int open_all(struct sl_spmd *self, struct world *world) {
    static const char *const axes[GROUPS - 1] = {"data", "model", "data,stage", "*"};
    const int odd[] = {13, 2, 7, 4, 0, 9}, size = self->mesh->size, me = self->coordinate;
    for (int i = 0; i < GROUPS - 1; i++) SL_TRY(sl_group_axes(self, axes[i], &world->group[i]));
    SL_TRY(sl_group_list(self, 6, odd, &world->group[GROUPS - 1]));
    for (int i = 0; i < NEIGHBOURS; i++) {
        SL_TRY(sl_channel_open(self, &world->out[i], me, (me + distance[i]) % size, 128, 1 + i));
        SL_TRY(sl_channel_open(self, &world->in[i], (me + size - distance[i]) % size, me, 128, 1 + i));
    }
    return SL_OK;
}

/* Returns coordinate C's element I of round R: small, so sums are easy to check. */
static int32_t value(int r, int c, int i) { return r * 31 + c * c * 7 + i % 91; }

static void dawdle(uint64_t *own) {
    const int kind = pick(own, 40);
    if (kind == 0) sched_yield();
    if (kind == 1) {
        for (volatile int i = pick(own, 20000); i > 0; i--) continue;
    }
}

static struct sl_collective describe(const struct sl_group *group, int operation, int32_t *a, int32_t *b, int count) {
    const int size = group->size;
    static const int ring[4][2] = {{0, 1}, {1, 2}, {2, 3}, {3, 0}}; /* the first four members: the others are holes */
    const size_t n = (size_t)count;
    switch (operation) {
    case 0:
        return sl_describe_psum(group, SL_I32, a, b, n);
    case 1:
        return sl_describe_all_gather(group, SL_I32, a, b, n);
    case 2:
        return sl_describe_broadcast(group, SL_I32, a, b, n, count % size);
    case 3:
        return sl_describe_ppermute(group, SL_I32, a, b, n, size < 4 ? 0 : 4, ring);
    case 4:
        return sl_describe_psum_scatter(group, SL_I32, a, b, n / (size_t)size);
    default:
        return sl_describe_barrier(group);
    }
}

static int check(struct sl_spmd *self, const struct sl_group *group, int operation, int round, const int32_t *b,
                 int count) {
    const int size = group->size, me = group->rank, share = count / size;
    int member[size];
    for (int m = 0; m < size; m++) member[m] = sl_group_member(group, m);
    const int elements[] = {count, count * size, count, count, share, 0};
    for (int i = 0; i < elements[operation]; i++) {
        int32_t want = 0;
        const int at = operation == 4 ? me * share + i : i;
        for (int m = 0; m < size && (operation == 0 || operation == 4); m++) want += value(round, member[m], at);
        if (operation == 1) want = value(round, member[i / count], i % count);
        if (operation == 2) want = value(round, member[count % size], i);
        if (operation == 3 && size >= 4 && me < 4) want = value(round, member[(me + 3) % 4], i);
        if (b[i] != want) {
            return sl_fail(self, SL_CHECK_FAILED, "round %d, operation %d over \"%s\": element %d is %d, not %d", round,
                           operation, group->name, i, b[i], want);
        }
    }
    return SL_OK;
}

/* Some calls of one group, at once or one after another. */
static int collective_round(struct sl_spmd *self, struct world *world, int round, uint64_t *random, uint64_t *own) {
    const struct sl_group *group = &world->group[pick(random, GROUPS)];
    const int calls = 1 + (pick(random, 4) == 0 ? pick(random, SL_MAX_IN_FLIGHT) : 0);
    int operation[SL_MAX_IN_FLIGHT], count[SL_MAX_IN_FLIGHT];
    struct sl_request request[SL_MAX_IN_FLIGHT];
    for (int k = 0; k < calls; k++)
        operation[k] = pick(random, 6), count[k] = pick(random, pick(random, 4) ? 20 : MOST);
    if (group->rank < 0) return SL_OK;
    for (int k = 0; k < calls; k++) {
        dawdle(own);
        for (int i = 0; i < count[k]; i++) world->a[k][i] = value(round + k, self->coordinate, i);
        SL_TRY(sl_start(self, &request[k], SL_HERE, describe(group, operation[k], world->a[k], world->b[k], count[k])));
    }
    for (int k = 0; k < calls; k++) {
        dawdle(own);
        SL_TRY(sl_wait(self, &request[k]));
        memset(world->a[k], 0xff, sizeof world->a[k]); /* the buffers are ours again */
        SL_TRY(check(self, group, operation[k], round + k, world->b[k], count[k]));
    }
    return SL_OK;
}

static int channel_round(struct sl_spmd *self, struct world *world, int round, uint64_t *random, uint64_t *own) {
    const int which = pick(random, NEIGHBOURS), size = self->mesh->size;
    for (int repeat = pick(random, 4); repeat >= 0; repeat--) {
        void *slot;
        const void *message;
        SL_TRY(acquire_slot(self, &world->out[which], &slot));
        dawdle(own);
        for (int i = 0; i < 32; i++) ((int32_t *)slot)[i] = value(round, self->coordinate, i);
        SL_TRY(sl_channel_post(self, &world->out[which]));
        SL_TRY(take_slot(self, &world->in[which], &message));
        dawdle(own);
        const int from = (self->coordinate + size - distance[which]) % size;
        for (int i = 0; i < 32; i++) {
            if (((const int32_t *)message)[i] == value(round, from, i)) continue;
            return sl_fail(self, SL_CHECK_FAILED, "round %d: message from %d differs", round, from);
        }
        SL_TRY(sl_channel_release(self, &world->in[which]));
    }
    return SL_OK;
}

static int program(struct sl_spmd *self, void *arg) {
    struct world *world = malloc(sizeof *world);
    if (!world) return sl_fail(self, SL_FAILED, "no memory");
    uint64_t random = 42, own = (uint64_t)self->coordinate;
    int status = open_all(self, world);
    for (int round = 0; round < *(int *)arg && !status; round++) {
        status = pick(&random, 2) ? collective_round(self, world, round, &random, &own)
                                  : channel_round(self, world, round, &random, &own);
    }
    free(world);
    return status;
}

static void test_stress(void **state) {
    (void)state;
    int rounds = test_runs_few ? 600 : 3000;
    expect_ok("data=2,stage=2,model=4", program, &rounds);
}

/* Groups of all sizes, with cores to spare and without. */
static void test_small_meshes(void **state) {
    (void)state;
    int rounds = test_runs_few ? 200 : 1000;
    expect_ok("data=2,stage=1,model=7", program, &rounds);
    expect_ok("data=7,stage=2,model=1", program, &rounds);
}

/* Runs that end at once: a coordinate that returns first has done its part. */
static int short_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    struct sl_group world;
    SL_TRY(sl_group_axes(self, "*", &world));
    return sl_barrier(self, &world);
}

static void test_short_runs(void **state) {
    (void)state;
    for (int i = 0; i < (test_runs_few ? 60 : 300); i++) expect_ok("x=8", short_program, NULL);
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stress), cmocka_unit_test(test_small_meshes),
                                       cmocka_unit_test(test_short_runs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
