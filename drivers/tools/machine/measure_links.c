/* measure_links.c - times messages, calls and the waking of sleeping coordinates: with a core per coordinate, and
 * with shared cores.
 *
 * In a run, calls come between other work, and members do not arrive at the same time. So rounds of work are timed
 * with and without a call in each: the difference is the cost of a call. */
#include "drivers/tools/machine/measure_links.h"

#include <math.h>
#include <stdio.h>

#include "collectives/channel.h"
#include "collectives/collectives.h"
#include "collectives/engines.h"
#include "layers/kernels/gemm/gemm.h"
#include "spmd/device/device.h"

double sl_median_of(double *value, int count) {
    for (int i = 1; i < count; i++)
        for (int j = i; j > 0 && value[j] < value[j - 1]; j--) {
            const double kept = value[j];
            value[j] = value[j - 1];
            value[j - 1] = kept;
        }
    return value[count / 2];
}

enum {
    ROUNDS = 24,       /* per timing; */
    TIMES = 9,         /* timings; the median counts; */
    SOME = 5,          /* timings that take long */
    SHARERS = 4,       /* coordinates per core */
    ROWS = 64,         /* of a round's product of ROWS x WIDTH and WIDTH x WIDTH; */
    WIDTH = 256,       /* a tenth of a millisecond */
    SMALL = 256,       /* floats of a call with negligible transfer time; */
    LARGE = 1 << 16,   /* and of one with a measurable time; each call uses other floats ... */
    POOL = 16 * LARGE, /* ... out of so many; */
    NEAR = 4 * LARGE,  /* recently written data are in the members' shared caches */
    TURN_MATRICES = 4, /* of a turn's weights: a megabyte; */
    TURN_PRODUCTS = 8, /* its products, long enough for a waiting coordinate to fall asleep; */
    NAP_PRODUCTS = 1,  /* products of a turn hardly longer than a coordinate stays awake */
};

enum exchange { NOTHING, SMALL_CALL, LARGE_CALL, SMALL_COLUMNS, LARGE_COLUMNS };

struct links {
    struct sl_spmd *self;
    struct sl_group all, world; /* all coordinates, and the members of a call */
    struct sl_gemm product;
    struct sl_channel send, take; /* to the next coordinate, from the one before */
    float *in, *out;              /* [POOL] */
    size_t turn;
    bool shared; /* coordinates share cores */
};

/* ---- rounds ---- */

/* Computes products with weights that fill a near cache, which a sleeping core may lose. */
static int work(struct links *l, int products) {
    for (int i = 0; i < products; i++) {
        const float *weights = l->in + LARGE * (i % TURN_MATRICES + 1);
        SL_TRY(sl_gemm_execute(&l->product, sl_gemm_floats(&l->product, 1, l->in, weights, NULL, false, l->out),
                               l->self->queue));
    }
    return sl_device.settle(&l->self->error);
}

static int post(struct links *l) {
    void *slot;
    SL_TRY(sl_channel_acquire(l->self, &l->send, &slot));
    return sl_channel_post(l->self, &l->send);
}

static int take(struct links *l) {
    const void *slot;
    SL_TRY(sl_channel_take(l->self, &l->take, &slot));
    return sl_channel_release(l->self, &l->take);
}

/* Runs the calls of layers sharded over coordinates: columns of [rows, WIDTH] are scattered and gathered again. */
static int exchange_columns(struct links *l, size_t at, size_t rows) {
    const size_t whole[] = {rows, WIDTH}, part[] = {rows, (size_t)(WIDTH / l->world.size)};
    float *sums = l->out + at % NEAR, *all = l->out + (at + LARGE) % NEAR;
    SL_TRY(sl_psum_scatter_dim(l->self, &l->world, SL_F32, l->in + at % NEAR, sums, 2, whole, 1));
    return sl_all_gather_dim(l->self, &l->world, SL_F32, sums, all, 2, part, 1);
}

static int exchange(struct links *l, enum exchange what) {
    const size_t at = l->turn++ * LARGE % POOL;
    switch (what) {
    case NOTHING:
        return SL_OK;
    case SMALL_CALL:
    case LARGE_CALL:
        return sl_psum(l->self, &l->world, SL_F32, l->in + at, l->out + at, what == SMALL_CALL ? SMALL : LARGE);
    case SMALL_COLUMNS:
    case LARGE_COLUMNS:
        return exchange_columns(l, at, what == SMALL_COLUMNS ? 1 : LARGE / WIDTH);
    }
    return SL_OK;
}

/* Writes to EACH the seconds per round, from the time when the first coordinate BEGAN until now: others may have
 * waited for a core meanwhile. */
static int since_first(struct links *l, double began, double *each) {
    float own = (float)(sl_now() - began), most = 0;
    SL_TRY(sl_pmax(l->self, &l->all, SL_F32, &own, &most, 1));
    *each = (double)most / ROUNDS;
    return SL_OK;
}

/* Times rounds of PRODUCTS with WHAT in each; writes to SECONDS the median round, or, if coordinates share cores and
 * take turns, the mean of all. */
static int time_rounds(struct links *l, int products, enum exchange what, double *seconds) {
    double round[ROUNDS];
    SL_TRY(sl_barrier(l->self, &l->all));
    const double began = sl_now();
    for (int i = 0; i < ROUNDS; i++) {
        const double before = sl_now();
        SL_TRY(work(l, products));
        SL_TRY(exchange(l, what));
        round[i] = sl_now() - before;
    }
    SL_TRY(sl_barrier(l->self, &l->all));
    *seconds = sl_median_of(round, ROUNDS);
    return l->shared ? since_first(l, began, seconds) : SL_OK;
}

/* Returns the typical of TIMES timings: the median. If coordinates share cores, the times depend on their placement
 * by the operating system, and a run meets all placements: so it is the mean, without the slowest timing, during
 * which another program may have had a core, and without the fastest, as a balance. */
static double typical(const struct links *l, double *seconds) {
    const double median = sl_median_of(seconds, TIMES);
    double sum = 0;
    for (int i = 1; i < TIMES - 1; i++) sum += seconds[i];
    return l->shared ? sum / (TIMES - 2) : median;
}

/* Writes to SECONDS how much longer a round takes with WHAT, at least 0. Each timing is compared with a timing
 * without WHAT right before it, because a machine's speed changes. */
static int time_exchange(struct links *l, enum exchange what, double *seconds) {
    double longer[TIMES];
    for (int i = 0; i < TIMES; i++) {
        double without, with;
        SL_TRY(time_rounds(l, 1, NOTHING, &without));
        SL_TRY(time_rounds(l, 1, what, &with));
        longer[i] = with - without;
    }
    *seconds = fmax(0, typical(l, longer));
    return SL_OK;
}

/* ---- sleep ---- */

/* Returns the standard deviation of sorted VALUES relative to their median, from the two thirds in the middle, as if
 * normally distributed: so a few interrupted rounds do not count. */
static double spread_of(const double *value, int count) {
    return (value[count * 5 / 6] - value[count / 6]) / 2 / value[count / 2];
}

/* The first two coordinates exchange one message; each works for a turn before it sends the message back. Writes
 * medians: ONCE the seconds of a turn with its message, SPREAD their relative deviation, POSTING the sender's own
 * part. */
static int play(struct links *l, int products, double *once, double *posting, double *spread) {
    double round[ROUNDS], own[ROUNDS];
    const int me = l->world.rank;
    SL_TRY(sl_barrier(l->self, &l->world));
    for (int i = 0; i < ROUNDS && me < 2; i++) {
        const double began = sl_now();
        if (me == 1) SL_TRY(take(l));
        SL_TRY(work(l, products));
        const double thrown = sl_now();
        SL_TRY(post(l));
        own[i] = sl_now() - thrown;
        if (me == 0) SL_TRY(take(l));
        round[i] = (sl_now() - began) / 2;
    }
    SL_TRY(sl_barrier(l->self, &l->world));
    *once = me < 2 ? sl_median_of(round, ROUNDS) : 0;
    *posting = me < 2 ? sl_median_of(own, ROUNDS) : 0;
    *spread = me < 2 ? spread_of(round, ROUNDS) : 0;
    return SL_OK;
}

/* Times the same turns of one coordinate while the other one waits. */
static int work_alone(struct links *l, int products, double *once) {
    double own[ROUNDS];
    SL_TRY(sl_barrier(l->self, &l->world));
    for (int i = 0; i < ROUNDS && l->world.rank == 0; i++) {
        const double began = sl_now();
        SL_TRY(work(l, products));
        own[i] = sl_now() - began;
    }
    SL_TRY(sl_barrier(l->self, &l->world));
    *once = l->world.rank == 0 ? sl_median_of(own, ROUNDS) : 0;
    return SL_OK;
}

/* Times waking: a woken coordinate is late, and works more slowly for a while, since its core's clock is low and its
 * caches are empty. Writes *WAKE for turns of PRODUCTS, their relative deviation *SPREAD, and the other coordinate's
 * time for waking, *NOTIFY. */
static int time_sleep(struct links *l, int products, double *wake, double *notify, double *spread) {
    double alone[TIMES], asleep[TIMES], waking[TIMES], spreads[TIMES], awake, posting;
    SL_TRY(play(l, 0, &awake, &posting, &spreads[0]));
    for (int i = 0; i < TIMES; i++) {
        SL_TRY(work_alone(l, products, &alone[i]));
        SL_TRY(play(l, products, &asleep[i], &waking[i], &spreads[i]));
    }
    *wake = fmax(0, sl_median_of(asleep, TIMES) - awake - sl_median_of(alone, TIMES));
    *notify = fmax(0, sl_median_of(waking, TIMES) - posting);
    *spread = fmin(1, sl_median_of(spreads, TIMES));
    return SL_OK;
}

static int time_waking(struct links *l, struct sl_machine_waits *waits) {
    double notify, spread;
    SL_TRY(time_sleep(l, NAP_PRODUCTS, &waits->nap, &notify, &waits->spread));
    SL_TRY(time_sleep(l, TURN_PRODUCTS, &waits->wake, &waits->notify, &spread));
    waits->nap = fmin(waits->nap, waits->wake);
    waits->awake = SL_AWAKE_SECONDS;
    return SL_OK;
}

/* ---- groups, channels and buffers ---- */

/* Opens the links. On a mesh with one axis the first two coordinates exchange a message; with two axes a message
 * goes round along the second. */
static int open_links(struct links *l, struct sl_spmd *self, const struct sl_gemm_backend *gemm) {
    const bool shared = self->mesh->axes > 1;
    *l = (struct links){.self = self, .shared = shared};
    SL_TRY(sl_group_axes(self, "*", &l->all));
    SL_TRY(sl_group_axes(self, shared ? self->mesh->axis[1].name : "*", &l->world));
    const int ring = shared ? l->world.size : 2, me = l->world.rank;
    if (me < ring) {
        const int next = sl_group_member(&l->world, (me + 1) % ring);
        const int before = sl_group_member(&l->world, (me + ring - 1) % ring);
        SL_TRY(sl_channel_open(self, &l->send, self->coordinate, next, SL_CACHE_LINE, 2));
        SL_TRY(sl_channel_open(self, &l->take, before, self->coordinate, SL_CACHE_LINE, 2));
    }
    SL_TRY(sl_gemm_plan(&l->product, gemm, SL_F32, ROWS, WIDTH, WIDTH, false, false, SL_EPILOGUE_NONE, &self->error));
    l->in = sl_device.take(POOL * sizeof(float));
    l->out = sl_device.take(POOL * sizeof(float));
    if (!l->in || !l->out) return sl_fail(self, SL_FAILED, "no memory to measure this machine");
    sl_device.zero(l->in, POOL * sizeof(float));
    sl_device.zero(l->out, POOL * sizeof(float));
    return sl_device.settle(&self->error);
}

static void close_links(struct links *l) {
    sl_gemm_release(&l->product);
    sl_device.give(l->in);
    sl_device.give(l->out);
}

/* Times calls: a call of few bytes shows the latency of its steps, a larger one the bandwidth, after subtracting its
 * members' own reads and writes. */
static int time_calls(struct links *l, struct sl_machine *machine) {
    const int members = l->world.size, steps = 2 * (members - 1);
    double small, large;
    SL_TRY(time_exchange(l, SMALL_CALL, &small));
    SL_TRY(time_exchange(l, LARGE_CALL, &large));
    const double touched = sl_machine_touched(SL_PSUM, members, LARGE * sizeof(float));
    large -= sl_machine_moved(machine, touched, 2.0 * POOL * sizeof(float));
    for (int link = 0; link < SL_LINKS; link++) {
        machine->latency[link] = small / steps;
        machine->bandwidth[link] = steps * (LARGE * sizeof(float) / (double)members) / fmax(large - small, 1e-7);
    }
    return SL_OK;
}

int sl_measure_links(struct sl_spmd *self, const struct sl_gemm_backend *gemm, struct sl_machine *machine) {
    struct links links;
    for (int link = 0; link < SL_LINKS && self->mesh->size == 1; link++) {
        machine->latency[link] = 2e-6;
        machine->bandwidth[link] = 1e10;
    }
    if (self->mesh->size == 1) return SL_OK;
    int status = open_links(&links, self, gemm);
    if (status == SL_OK) status = time_calls(&links, machine);
    if (status == SL_OK) status = time_waking(&links, &machine->waits);
    if (status == SL_OK) status = sl_barrier(self, &links.world);
    close_links(&links);
    return status;
}

/* ---- shared cores ---- */

struct sharing {
    bool brief; /* without columns, which take long to time */
    const struct sl_machine *machine;
    struct sl_machine_turns *turns;
    const struct sl_gemm_backend *gemm;
};

/* Sends a message round in each group; the member that has it works. Writes to SECONDS the time per member besides
 * that work. */
static int relay(struct links *l, double *seconds) {
    double own[ROUNDS];
    SL_TRY(sl_barrier(l->self, &l->all));
    const double began = sl_now();
    if (l->world.rank == 0) SL_TRY(post(l));
    for (int i = 0; i < ROUNDS; i++) {
        SL_TRY(take(l));
        const double before = sl_now();
        SL_TRY(work(l, 1));
        own[i] = sl_now() - before;
        if (i < ROUNDS - 1 || l->world.rank != 0) SL_TRY(post(l));
    }
    SL_TRY(sl_barrier(l->self, &l->all));
    double round;
    SL_TRY(since_first(l, began, &round));
    *seconds = fmax(0, round / l->world.size - sl_median_of(own, ROUNDS));
    return SL_OK;
}

/* Adds a group. Its cost is at least that of smaller groups: a lower time was chance. */
static void add_group(struct sl_machine_turns *turns, int members, double call, double bandwidth) {
    const double smaller = turns->groups ? turns->group[turns->groups - 1].call : 0;
    turns->group[turns->groups++] = (struct sl_machine_group){members, fmax(call, smaller), bandwidth};
}

/* Runs rounds of PRODUCTS with WHAT: *WALL seconds, with *BUSY seconds of core time over all coordinates together. */
static int count_busy(struct links *l, int products, enum exchange what, double *wall, double *busy) {
    const double before = sl_cpu_now();
    SL_TRY(time_rounds(l, products, what, wall));
    const float own = (float)(sl_cpu_now() - before);
    float all = 0;
    SL_TRY(sl_psum(l->self, &l->all, SL_F32, &own, &all, 1));
    *busy = (double)all / ROUNDS;
    return SL_OK;
}

/* Measures the bandwidth of data from other members, in seconds of a core: the more members, the shorter the rows
 * that each receives from another. */
static int time_columns(struct links *l, const struct sl_machine *machine, double *bandwidth) {
    const int members = l->world.size;
    const double bytes = LARGE * sizeof(float), used = SHARERS * 2.0 * NEAR * sizeof(float);
    const double touched =
        sl_machine_touched(SL_PSUM_SCATTER, members, bytes) + sl_machine_touched(SL_ALL_GATHER, members, bytes);
    double longer[TIMES];
    for (int i = 0; i < TIMES; i++) {
        double wall, small, large;
        SL_TRY(count_busy(l, 1, SMALL_COLUMNS, &wall, &small));
        SL_TRY(count_busy(l, 1, LARGE_COLUMNS, &wall, &large));
        longer[i] = (large - small) / l->all.size;
    }
    const double moving = sl_median_of(longer, TIMES) - sl_machine_moved(machine, touched, used);
    *bandwidth = 2 * (members - 1) * bytes / members / fmax(moving, 1e-7);
    return SL_OK;
}

/* Measures idle cores: while all members wait for the last one, a core may have nothing to run, since coordinates
 * waiting for another core are not moved at once. */
static int time_idle(struct links *l, double *idle) {
    double free = 0, calling = 0;
    for (int i = 0; i < SOME; i++) {
        double wall, busy;
        SL_TRY(count_busy(l, TURN_PRODUCTS, NOTHING, &wall, &busy));
        free += busy / wall;
        SL_TRY(count_busy(l, TURN_PRODUCTS, SMALL_CALL, &wall, &busy));
        calling += busy / wall;
    }
    *idle = fmax(0, 1 - calling / free);
    return SL_OK;
}

/* Adds the cost of a call, besides its link, for groups of this size; with SHARERS members also the cost of
 * messages; with all coordinates also the idle share. */
static int time_turns(struct links *l, const struct sharing *sharing, struct sl_machine_turns *turns) {
    const struct sl_machine *machine = sharing->machine;
    double message[TIMES], call, bandwidth = 0;
    const int members = l->world.size;
    for (int i = 0; i < TIMES && members == SHARERS; i++) SL_TRY(relay(l, &message[i]));
    SL_TRY(time_exchange(l, SMALL_CALL, &call));
    if (members == l->all.size) SL_TRY(time_idle(l, &turns->idle));
    if (!sharing->brief) SL_TRY(time_columns(l, machine, &bandwidth));
    const double moving = sl_machine_collective(machine, NULL, SL_LINK_CORE, SL_PSUM, members, SMALL * sizeof(float));
    const double each = fmax(0, call / SHARERS - moving);
    add_group(turns, members, each, bandwidth);
    if (members != SHARERS) return SL_OK;
    turns->message = typical(l, message);
    turns->call = turns->group[turns->groups - 1].call;
    return SL_OK;
}

static int program(struct sl_spmd *self, void *arg) {
    const struct sharing *sharing = arg;
    struct links links;
    struct sl_machine_turns turns = *sharing->turns;
    int status = open_links(&links, self, sharing->gemm);
    if (status == SL_OK) status = time_turns(&links, sharing, &turns);
    close_links(&links);
    if (status == SL_OK && self->coordinate == 0) *sharing->turns = turns;
    return status;
}

/* Measures SHARERS coordinates per core: whole replicas tied to a core (spmd/placement/placement.h), in groups up to
 * SHARERS; and untied ones, in groups up to all coordinates. */
int sl_measure_sharing(const struct sl_engine *engine, const struct sl_gemm_backend *gemm, int places, bool brief,
                       struct sl_machine *machine) {
    const int most = SL_MACHINE_SPEEDS / SHARERS, all = SHARERS * (places < most ? places : most);
    for (int tied = 0; tied < 2; tied++) {
        struct sharing sharing = {brief, machine, tied ? &machine->tied : &machine->roaming, gemm};
        for (int members = 2; members <= (tied ? SHARERS : all) && all % members == 0; members *= 2) {
            struct sl_mesh mesh = {.axes = 2, .axis = {{"", all / members}, {"tensor", members}}, .size = all};
            snprintf(mesh.axis[0].name, sizeof mesh.axis[0].name, "%s", tied ? "data" : "pipe");
            SL_TRY(sl_run(&mesh, engine, program, &sharing));
        }
    }
    return SL_OK;
}
