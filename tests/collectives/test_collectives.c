/* test_collectives.c - every operation against a naive oracle, on random meshes, groups, sizes, types and forms. */
#include "tests/rigs/run_on.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_COORDINATES = 64 }; /* of its meshes */

/* The second argument is "many", in the long form: a million random calls, of shorter arrays. */
static bool makes_many;

/* The computation of expected values need not be watched: races could only be between the calls, and in their arrays,
 * which memset, malloc and memcmp touch as a whole. */
#if defined(__clang__)
#define UNWATCHED __attribute__((no_sanitize("thread")))
#else
#define UNWATCHED
#endif

/* ---- values ---- */

UNWATCHED static float bits_to_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Returns element I of coordinate C's input in trial T, as 32 bits of type DTYPE (16 for bf16): spread over many
 * magnitudes, so the order of additions shows in the last bits. */
UNWATCHED static uint32_t element(enum sl_dtype dtype, uint64_t t, int c, size_t i) {
    const uint32_t random = mix(t * 1000003 + (uint64_t)c * 7919 + i * 64 + 1);
    if (dtype == SL_I32) return random;
    const uint32_t real = (random & 0x807fffffu) | (118 + (random >> 23) % 16) << 23;
    return dtype == SL_F32 ? real : real >> 16;
}

UNWATCHED static float as_float(enum sl_dtype dtype, uint32_t bits) {
    return bits_to_float(dtype == SL_BF16 ? bits << 16 : bits);
}

/* The nearest bf16, found by trying: the one below in magnitude and its neighbour; a tie goes to the even one. */
UNWATCHED static uint32_t nearest_bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t low = bits >> 16, high = low + 1;
    const double down = fabs((double)x - (double)bits_to_float(low << 16)),
                 up = fabs((double)x - (double)bits_to_float(high << 16));
    if (down != up) return down < up ? low : high;
    return low % 2 ? high : low;
}

UNWATCHED static void put(void *array, enum sl_dtype dtype, size_t i, uint32_t bits) {
    const uint16_t half = (uint16_t)bits;
    if (dtype == SL_BF16) {
        memcpy((char *)array + 2 * i, &half, 2);
    } else {
        memcpy((char *)array + 4 * i, &bits, 4);
    }
}

/* The sum of two sums: of the first members, the largest power of two of MEMBERS below all, and of the others. */
UNWATCHED static float tree(enum sl_dtype dtype, int members, const uint32_t *value) {
    int left = 1;
    if (members == 1) return as_float(dtype, value[0]);
    while (2 * left < members) left *= 2;
    return tree(dtype, left, value) + tree(dtype, members - left, value + left);
}

/* The members' sum in member order or in a tree's order, times SCALE, or their maximum. VALUE: the members' values. */
UNWATCHED static uint32_t combined(enum sl_reduction reduction, enum sl_dtype dtype, float scale, int members,
                                   const uint32_t *value) {
    if (dtype == SL_I32) {
        uint32_t sum = value[0];
        for (int m = 1; m < members; m++) {
            if (reduction != SL_MAXIMUM) sum += value[m];
            if (reduction == SL_MAXIMUM && (int32_t)value[m] > (int32_t)sum) sum = value[m];
        }
        return sum;
    }
    float sum = as_float(dtype, value[0]);
    for (int m = 1; m < members; m++) {
        const float next = as_float(dtype, value[m]);
        sum = reduction == SL_SUM ? sum + next : next > sum ? next : sum;
    }
    if (reduction == SL_TREE) sum = tree(dtype, members, value);
    sum *= scale;
    uint32_t bits;
    memcpy(&bits, &sum, sizeof bits);
    return dtype == SL_BF16 ? nearest_bf16(sum) : bits;
}

/* ---- trials ---- */

enum operation {
    BARRIER,
    PPERMUTE,
    PSUM,
    PMEAN,
    PMAX,
    PSUM_SCATTER,
    ALL_GATHER,
    ALL_TO_ALL,
    BROADCAST,
    GATHER,
    OPERATIONS
};

/* One call of one trial, the same on every member but for the memory. */
struct trial {
    uint64_t seed;
    enum operation operation;
    enum sl_dtype dtype;
    size_t outer, block, count;
    int pairs, permutation[MOST_COORDINATES][2];
    int dims, split, concat;
    size_t shape[SL_MAX_DIMS], input, output; /* elements */
    int root;
    bool in_place, tree;
    char *memory, *in, *out; /* with guards around the arrays */
    size_t bytes;
};

enum { GUARD = 96 };

static void shuffle(uint64_t *random, int *list, int n) {
    for (int i = n - 1; i > 0; i--) {
        const int j = pick(random, i + 1), swapped = list[i];
        list[i] = list[j];
        list[j] = swapped;
    }
}

/* Now and then more than processes of one host move in a round. */
static size_t pick_count(uint64_t *random) {
    static const int most[] = {4, 70, 3000, 90000};
    const int longest = makes_many ? 2 : 3, length = pick(random, 32) ? pick(random, longest) : longest;
    return (size_t)pick(random, most[length]);
}

static void choose_permutation(struct trial *trial, uint64_t *random, int size) {
    int source[MOST_COORDINATES], destination[MOST_COORDINATES];
    for (int i = 0; i < size; i++) source[i] = destination[i] = i;
    shuffle(random, source, size);
    shuffle(random, destination, size);
    trial->pairs = pick(random, 3) ? size : pick(random, size + 1); /* holes at times */
    for (int i = 0; i < trial->pairs; i++) {
        trial->permutation[i][0] = source[i];
        trial->permutation[i][1] = destination[i];
    }
}

static void choose_shape(struct trial *trial, uint64_t *random, int size) {
    trial->dims = 2 + pick(random, 4);
    trial->split = pick(random, trial->dims);
    trial->concat = (trial->split + 1 + pick(random, trial->dims - 1)) % trial->dims;
    trial->input = 1;
    for (int d = 0; d < trial->dims; d++) {
        trial->shape[d] = (size_t)(1 + pick(random, 4)) * (d == trial->split ? (size_t)size : 1);
        trial->input *= trial->shape[d];
    }
    trial->output = trial->input;
}

static void choose(struct trial *trial, uint64_t *random, int size) {
    *trial = (struct trial){.seed = (uint64_t)pick(random, 1 << 30)};
    trial->operation = (enum operation)pick(random, OPERATIONS);
    trial->dtype = (enum sl_dtype)pick(random, trial->operation == PMEAN ? 2 : 3);
    trial->count = pick_count(random);
    trial->outer = (size_t)(1 + pick(random, 5)), trial->block = trial->count / trial->outer;
    trial->root = pick(random, size);
    trial->in_place = pick(random, 3) == 0;
    const size_t all = trial->outer * trial->block * (size_t)size;
    switch (trial->operation) {
    case PPERMUTE:
        choose_permutation(trial, random, size), trial->in_place = false; /* fall through */
    case PSUM:
    case PMEAN:
    case PMAX:
    case BROADCAST:
        trial->input = trial->output = trial->count;
        break;
    case PSUM_SCATTER:
        trial->input = all, trial->output = trial->outer * trial->block;
        break;
    case ALL_GATHER:
        trial->input = trial->outer * trial->block, trial->output = all;
        break;
    case ALL_TO_ALL:
        choose_shape(trial, random, size), trial->in_place = false;
        break;
    case GATHER:
        trial->outer = 1, trial->block = trial->input = trial->count;
        trial->output = trial->count * (size_t)size;
        break;
    case BARRIER:
    case OPERATIONS:
        break;
    }
    if (trial->outer > 1 && (trial->operation == PSUM_SCATTER || trial->operation == ALL_GATHER)) {
        trial->in_place = false;
    }
    trial->tree =
        pick(random, 2) && (trial->operation == PSUM || (trial->operation == PSUM_SCATTER && trial->outer == 1));
}

UNWATCHED static void fill_in(const struct trial *t, void *in, int c) {
    for (size_t i = 0; i < t->input; i++) put(in, t->dtype, i, element(t->dtype, t->seed, c, i));
}

/* Allocates memory, in place or not, not always aligned. Fills in the input of position RANK, coordinate C. */
static int prepare(struct trial *trial, int rank, int c) {
    const size_t size = sl_dtype_size(trial->dtype), shift = trial->seed % 2 ? size : 0;
    const bool joins = trial->operation == ALL_GATHER || (trial->operation == GATHER && trial->root == rank);
    if (trial->operation == GATHER && trial->root != rank) trial->output = 0; /* it stays unchanged */
    const size_t in = trial->input * size, out = trial->output * size;
    trial->bytes = in + out + 3 * GUARD;
    trial->memory = malloc(trial->bytes);
    if (!trial->memory) return SL_FAILED;
    memset(trial->memory, 0xa5, trial->bytes);
    trial->in = trial->memory + GUARD / 2 + shift;
    trial->out = trial->in + in + GUARD;
    if (trial->in_place) trial->out = trial->in;
    if (trial->in_place && trial->operation == PSUM_SCATTER) trial->out = trial->in + out * (size_t)rank;
    if (trial->in_place && joins) trial->in = trial->out + in * (size_t)rank;
    fill_in(trial, trial->in, c);
    return SL_OK;
}

static struct sl_collective describe(const struct trial *t, const struct sl_group *group) {
    const void *in = t->in;
    const size_t scattered[2] = {t->outer, t->block * (size_t)group->size}, gathered[2] = {t->outer, t->block};
    switch (t->operation) {
    case PPERMUTE:
        return sl_describe_ppermute(group, t->dtype, in, t->out, t->count, t->pairs, (const int(*)[2])t->permutation);
    case PSUM:
        if (t->tree) return sl_describe_psum_tree(group, t->dtype, in, t->out, t->count);
        return sl_describe_psum(group, t->dtype, in, t->out, t->count);
    case PMEAN:
        return sl_describe_pmean(group, t->dtype, in, t->out, t->count);
    case PMAX:
        return sl_describe_pmax(group, t->dtype, in, t->out, t->count);
    case PSUM_SCATTER:
        if (t->tree) return sl_describe_psum_scatter_tree(group, t->dtype, in, t->out, t->block);
        return sl_describe_psum_scatter_dim(group, t->dtype, in, t->out, 2, scattered, 1);
    case ALL_GATHER:
        return sl_describe_all_gather_dim(group, t->dtype, in, t->out, 2, gathered, 1);
    case ALL_TO_ALL:
        return sl_describe_all_to_all(group, t->dtype, in, t->out, t->dims, t->shape, t->split, t->concat);
    case BROADCAST:
        return sl_describe_broadcast(group, t->dtype, in, t->out, t->count, t->root);
    case GATHER:
        return sl_describe_gather(group, t->dtype, in, t->output ? t->out : NULL, t->count, t->root);
    case BARRIER:
    case OPERATIONS:
        break;
    }
    return sl_describe_barrier(group);
}

/* ---- oracles ---- */

UNWATCHED static uint32_t from(const struct trial *t, const struct sl_group *group, int position, size_t i) {
    return element(t->dtype, t->seed, sl_group_member(group, position), i);
}

/* Output element I of all_to_all at position RANK, by indices of the arrays. */
UNWATCHED static uint32_t exchanged(const struct trial *t, const struct sl_group *group, size_t i) {
    const size_t size = (size_t)group->size;
    size_t index[SL_MAX_DIMS];
    for (int d = t->dims - 1; d >= 0; d--) {
        size_t extent = t->shape[d];
        if (d == t->split) extent /= size;
        if (d == t->concat) extent *= size;
        index[d] = i % extent;
        i /= extent;
    }
    const int sender = (int)(index[t->concat] / t->shape[t->concat]);
    index[t->concat] %= t->shape[t->concat];
    index[t->split] += (size_t)group->rank * (t->shape[t->split] / size);
    size_t at = 0;
    for (int d = 0; d < t->dims; d++) at = at * t->shape[d] + index[d];
    return from(t, group, sender, at);
}

UNWATCHED static uint32_t permuted(const struct trial *t, const struct sl_group *group, size_t i) {
    for (int p = 0; p < t->pairs; p++) {
        if (t->permutation[p][1] == group->rank) return from(t, group, t->permutation[p][0], i);
    }
    return 0;
}

UNWATCHED static uint32_t reduced(const struct trial *t, const struct sl_group *group, size_t i) {
    uint32_t value[MOST_COORDINATES];
    const float scale = t->operation == PMEAN ? 1.0f / (float)group->size : 1;
    const size_t row = t->block ? i / t->block : 0, column = t->block ? i % t->block : 0;
    const size_t mine = (row * (size_t)group->size + (size_t)group->rank) * t->block + column;
    for (int m = 0; m < group->size; m++) value[m] = from(t, group, m, t->operation == PSUM_SCATTER ? mine : i);
    return combined(t->operation == PMAX ? SL_MAXIMUM
                    : t->tree            ? SL_TREE
                                         : SL_SUM,
                    t->dtype, scale, group->size, value);
}

UNWATCHED static uint32_t gathered(const struct trial *t, const struct sl_group *group, size_t i) {
    const size_t line = t->block * (size_t)group->size, column = i % line;
    return from(t, group, (int)(column / t->block), i / line * t->block + column % t->block);
}

UNWATCHED static uint32_t expected(const struct trial *t, const struct sl_group *group, size_t i) {
    switch (t->operation) {
    case PPERMUTE:
        return permuted(t, group, i);
    case ALL_GATHER:
    case GATHER:
        return gathered(t, group, i);
    case ALL_TO_ALL:
        return exchanged(t, group, i);
    case BROADCAST:
        return from(t, group, t->root, i);
    case PSUM:
    case PMEAN:
    case PMAX:
    case PSUM_SCATTER:
        return reduced(t, group, i);
    case BARRIER:
    case OPERATIONS:
        break;
    }
    return 0;
}

UNWATCHED static void fill_expected(const struct trial *t, const struct sl_group *group, void *out) {
    for (size_t i = 0; i < t->output; i++) put(out, t->dtype, i, expected(t, group, i));
}

/* Compares all memory with its expected contents: guards, input unless overwritten, output. Returns the offset of the
 * first differing byte, or -1. */
static long compare(const struct trial *t, const struct sl_group *group) {
    char *want = malloc(t->bytes);
    if (!want) return 0;
    memset(want, 0xa5, t->bytes);
    fill_in(t, want + (t->in - t->memory), sl_group_member(group, group->rank));
    fill_expected(t, group, want + (t->out - t->memory));
    long differs = memcmp(want, t->memory, t->bytes) ? 0 : -1;
    while (differs >= 0 && want[differs] == t->memory[differs]) differs++;
    free(want);
    return differs;
}

/* ---- the program ---- */

/* Opens a group of random axes, or of a random list of coordinates. Coordinates outside have rank -1. */
static int open_random_group(struct sl_spmd *self, uint64_t *random, struct sl_group *group) {
    const struct sl_mesh *mesh = self->mesh;
    if (pick(random, 3) == 0) {
        int list[MOST_COORDINATES];
        for (int i = 0; i < mesh->size; i++) list[i] = i;
        shuffle(random, list, mesh->size);
        return sl_group_list(self, 1 + pick(random, mesh->size), list, group);
    }
    const int subset = pick(random, 1 << mesh->axes);
    char axes[200] = "";
    for (int axis = 0; axis < mesh->axes; axis++) {
        if (!(subset >> axis & 1)) continue;
        if (axes[0]) strcat(axes, ",");
        strcat(axes, mesh->axis[axis].name);
    }
    return sl_group_axes(self, pick(random, 8) ? axes : "*", group);
}

/* Up to SL_MAX_IN_FLIGHT calls at once, waited for in an order of its own. */
static int call_all(struct sl_spmd *self, struct trial *trial, int calls, const int *order,
                    const struct sl_group *group) {
    struct sl_request request[SL_MAX_IN_FLIGHT];
    if (calls == 1) return sl_call(self, SL_HERE, describe(trial, group));
    for (int i = 0; i < calls; i++) SL_TRY(sl_start(self, &request[i], SL_HERE, describe(&trial[i], group)));
    for (int i = 0; i < calls; i++) SL_TRY(end_call(self, &request[order[i]], order[i] % 4 - 1));
    return SL_OK;
}

static int check_all(struct sl_spmd *self, const struct trial *trial, int calls, const struct sl_group *group) {
    for (int i = 0; i < calls; i++) {
        const long differs = compare(&trial[i], group);
        if (differs < 0) continue;
        return sl_fail(self, SL_CHECK_FAILED,
                       "operation %d, type %d, %zu elements, group \"%s\" of %d: byte %ld differs", trial[i].operation,
                       trial[i].dtype, trial[i].output, group->name, group->size, differs);
    }
    return SL_OK;
}

/* The calls of a round are the same on all coordinates, and count once in *CALLED. */
static int random_round(struct sl_spmd *self, uint64_t *random, long *called) {
    struct sl_group group;
    SL_TRY(open_random_group(self, random, &group));
    struct trial trial[SL_MAX_IN_FLIGHT];
    int order[SL_MAX_IN_FLIGHT] = {0, 1, 2, 3, 4, 5, 6, 7}, status = SL_OK;
    const int calls = pick(random, 2) ? 1 : 1 + pick(random, SL_MAX_IN_FLIGHT);
    for (int i = 0; i < calls; i++) choose(&trial[i], random, group.size);
    shuffle(random, order, calls);
    *called += calls;
    if (group.rank < 0) return SL_OK;
    for (int i = 0; i < calls; i++) {
        if (prepare(&trial[i], group.rank, self->coordinate)) return sl_fail(self, SL_FAILED, "no memory");
    }
    status = call_all(self, trial, calls, order, &group);
    if (!status) status = check_all(self, trial, calls, &group);
    for (int i = 0; i < calls; i++) free(trial[i].memory);
    return status;
}

/* Calls drawn from SEED, at least CALLS of them. */
struct series {
    uint64_t seed;
    long calls;
};

static int random_program(struct sl_spmd *self, void *arg) {
    const struct series *series = arg;
    uint64_t random = series->seed * 1000 + (uint64_t)self->mesh->size * 77 + (uint64_t)self->mesh->axes;
    for (long called = 0; called < series->calls;) SL_TRY(random_round(self, &random, &called));
    return SL_OK;
}

/* Returns the number in the environment variable NAME, or WITHOUT. */
static long asked(const char *name, long without) {
    const char *given = getenv(name);
    return given ? atol(given) : without;
}

/* Each mesh has its share of SL_TEST_CALLS, plain and checked, at most A_RUN of them in a run, because a run keeps all
 * groups that it has opened. SL_TEST_SEED chooses the calls. */
static void test_random(void **state) {
    (void)state;
    enum { A_RUN = 1000 };
    static const char *const meshes[] = {"x=1",     "x=2",         "a=3", "a=2,b=2", "data=2,model=4",
                                         "a=2,b=3", "a=2,b=2,c=3", "x=7", "x=16"};
    const long count = sizeof meshes / sizeof *meshes, all = asked("SL_TEST_CALLS", makes_many ? 1000000 : 3000);
    const long each = (all + 2 * count - 1) / (2 * count), seed = asked("SL_TEST_SEED", 0);
    printf("# seed %ld: %ld calls or a few more\n", seed, 2 * count * each);
    for (long i = 0; i < count; i++) {
        const double begin = sl_now();
        for (long left = each, run = 0; left > 0; left -= A_RUN, run++) {
            struct series series = {.seed = (uint64_t)(seed + 1000 * run), .calls = left < A_RUN ? left : A_RUN};
            expect_ok(meshes[i], random_program, &series);
        }
        printf("# %s: %.1f s\n", meshes[i], sl_now() - begin);
        fflush(stdout);
    }
}

static void test_largest_mesh(void **state) {
    (void)state;
    struct series series = {.calls = 30};
    expect_ok(shares_memory() ? "a=4,b=16" : "a=4,b=4", random_program, &series); /* without starting 64 processes */
}

/* ---- particular cases ---- */

/* Every macro, in both forms, with readable numbers. */
static int macros_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    struct sl_group group;
    SL_TRY(sl_group_axes(self, "model", &group));
    const int me = group.rank, ring[3][2] = {{0, 1}, {1, 2}, {2, 0}};
    const size_t shape[2] = {3, 2};
    for (int split = 0; split < 2; split++) {
        float in[6], sum[6], mean[6], most[6], moved[6], share[2], all[18], turned[6], sent[6];
        for (int i = 0; i < 6; i++) in[i] = (float)(10 * me + i);
        struct sl_request r[9];
        if (split) {
            SL_TRY(sl_psum_start(self, &r[0], &group, SL_F32, in, sum, 6));
            SL_TRY(sl_pmean_start(self, &r[1], &group, SL_F32, in, mean, 6));
            SL_TRY(sl_pmax_start(self, &r[2], &group, SL_F32, in, most, 6));
            SL_TRY(sl_ppermute_start(self, &r[3], &group, SL_F32, in, moved, 6, 3, ring));
            SL_TRY(sl_psum_scatter_start(self, &r[4], &group, SL_F32, in, share, 2));
            SL_TRY(sl_all_gather_start(self, &r[5], &group, SL_F32, in, all, 6));
            SL_TRY(sl_all_to_all_start(self, &r[6], &group, SL_F32, in, turned, 2, shape, 0, 1));
            SL_TRY(sl_broadcast_start(self, &r[7], &group, SL_F32, in, sent, 6, 2));
            for (int i = 0; i < 8; i++) SL_TRY(sl_wait(self, &r[i]));
            SL_TRY(sl_barrier_start(self, &r[8], &group));
            SL_TRY(sl_progress(self));
            SL_TRY(sl_wait(self, &r[8]));
        } else {
            SL_TRY(sl_psum(self, &group, SL_F32, in, sum, 6));
            SL_TRY(sl_pmean(self, &group, SL_F32, in, mean, 6));
            SL_TRY(sl_pmax(self, &group, SL_F32, in, most, 6));
            SL_TRY(sl_ppermute(self, &group, SL_F32, in, moved, 6, 3, ring));
            SL_TRY(sl_psum_scatter(self, &group, SL_F32, in, share, 2));
            SL_TRY(sl_all_gather(self, &group, SL_F32, in, all, 6));
            SL_TRY(sl_all_to_all(self, &group, SL_F32, in, turned, 2, shape, 0, 1));
            SL_TRY(sl_broadcast(self, &group, SL_F32, in, sent, 6, 2));
            SL_TRY(sl_barrier(self, &group));
        }
        CHECK(self, sum[4] == 42 && fabsf(mean[4] - 14) < 1e-5f && most[4] == 24 && sent[4] == 24);
        CHECK(self, moved[0] == (float)(10 * ((me + 2) % 3)));
        CHECK(self, share[1] == (float)(30 + 3 * (2 * me + 1)));
        CHECK(self, all[6] == 10 && all[17] == 25);
        /* row ME of everyone, side by side: [[2 me, 2 me + 1, 10 + 2 me, ...]] */
        CHECK(self, turned[0] == (float)(2 * me) && turned[3] == (float)(10 + 2 * me + 1) &&
                        turned[4] == (float)(20 + 2 * me));
    }
    return SL_OK;
}

static void test_macros(void **state) {
    (void)state;
    expect_ok("data=2,model=3", macros_program, NULL);
}

/* The root's output is every member's blocks; shard_map assembles its outputs by this operation. */
static int gather_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    struct sl_group group;
    SL_TRY(sl_group_axes(self, "*", &group));
    struct sl_request request;
    for (int root = 0; root < group.size; root++) {
        const bool here = group.rank == root;
        int32_t in[4], out[12], all[3];
        for (int i = 0; i < 4; i++) in[i] = 100 * group.rank + i;
        for (int i = 0; i < 12; i++) out[i] = -1;
        all[group.rank] = root + group.rank;
        SL_TRY(sl_gather_start(self, &request, &group, SL_I32, in, out, 4, root));
        SL_TRY(sl_gather(self, &group, SL_I32, &all[group.rank], here ? all : NULL, 1, root)); /* in place */
        SL_TRY(sl_wait(self, &request));
        for (int i = 0; i < 12; i++) CHECK(self, out[i] == (here ? 100 * (i / 4) + i % 4 : -1));
        for (int i = 0; i < 3; i++) CHECK(self, !here || all[i] == root + i);
    }
    return SL_OK;
}

static void test_gather(void **state) {
    (void)state;
    expect_ok("x=3", gather_program, NULL);
}

/* A NaN anywhere gives NaN, in every position of the order. */
static int nan_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    struct sl_group group;
    SL_TRY(sl_group_axes(self, "*", &group));
    float x[4] = {1, 2, 3, (float)group.rank};
    if (group.rank < 3) x[group.rank] = NAN;
    SL_TRY(sl_pmax(self, &group, SL_F32, x, x, 4));
    CHECK(self, isnan(x[0]) && isnan(x[1]) && isnan(x[2]) && x[3] == 2);
    uint16_t half[2] = {0x7f81, 0x3f80}; /* a NaN with low bits only, which rounding would clear; 1 */
    SL_TRY(sl_psum(self, &group, SL_BF16, half, half, 2));
    CHECK(self, (half[0] & 0x7fff) > 0x7f80 && half[1] == 0x4040);
    const float largest = 3.4028235e38f;
    float big[1] = {group.rank ? 0 : largest};
    SL_TRY(sl_pmax(self, &group, SL_F32, big, big, 1));
    CHECK(self, big[0] == largest);
    return SL_OK;
}

static void test_nan(void **state) {
    (void)state;
    expect_ok("x=3", nan_program, NULL);
}

/* Members that neither send nor receive do not wait for the others. */
static int holes_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    struct sl_group world;
    struct sl_channel channel;
    SL_TRY(sl_group_axes(self, "*", &world));
    const int pair[1][2] = {{0, 1}};
    float x = 7, y = 1;
    if (self->coordinate != 1) {
        SL_TRY(sl_channel_open(self, &channel, 2, 0, 8, 1));
    }
    if (self->coordinate == 0) {
        const void *slot;
        SL_TRY(sl_channel_take(self, &channel, &slot));
    }
    SL_TRY(sl_ppermute(self, &world, SL_F32, &x, &y, 1, 1, pair));
    if (self->coordinate == 2) {
        void *slot;
        SL_TRY(sl_channel_acquire(self, &channel, &slot));
        SL_TRY(sl_channel_post(self, &channel));
    }
    CHECK(self, y == (self->coordinate == 1 ? 7 : 0));
    return SL_OK;
}

static void test_holes(void **state) {
    (void)state;
    expect_ok("x=3", holes_program, NULL);
}

/* Sums are the same bit for bit, whichever coordinate comes late. */
static int late_program(struct sl_spmd *self, void *arg) {
    struct sl_group group;
    SL_TRY(sl_group_axes(self, "*", &group));
    (void)arg;
    float first[500], x[500], sum[500];
    for (int repeat = 0; repeat < 20; repeat++) {
        uint64_t random = (uint64_t)repeat * 100 + (uint64_t)self->coordinate;
        for (volatile int i = pick(&random, 100000); i > 0; i--) continue;
        for (int i = 0; i < 500; i++) x[i] = as_float(SL_F32, element(SL_F32, 5, self->coordinate, (size_t)i));
        SL_TRY(sl_psum(self, &group, SL_F32, x, sum, 500));
        if (repeat == 0) SL_TRY(sl_broadcast(self, &group, SL_F32, sum, first, 500, 0));
        CHECK(self, !memcmp(first, sum, sizeof sum));
    }
    return SL_OK;
}

static void test_repeatable(void **state) {
    (void)state;
    expect_ok("x=5", late_program, NULL);
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    makes_many = argc > 2 && !strcmp(argv[2], "many") && getenv("SL_TEST_LONG");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_macros),     cmocka_unit_test(test_random), cmocka_unit_test(test_largest_mesh),
        cmocka_unit_test(test_gather),     cmocka_unit_test(test_nan),    cmocka_unit_test(test_holes),
        cmocka_unit_test(test_repeatable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
