/* bench_collectives.c - times of collectives and hand-overs on the local engine. Prints JSON lines.
 *
 * Bytes are the larger of one coordinate's input and output; gbs is bytes over time. A time is a call's share of a
 * series of calls, until the slowest coordinate has finished: the median of a few such batches, with their least and
 * most.
 *
 * hand_over: messages of 16 KB go round a ring of channels; each coordinate takes one, copies it into a slot of its own
 * and posts that. With one message every hand-over waits for the one before; with as many as coordinates all have work.
 * The time is the whole time over all hand-overs.
 *
 * psum_gradients: the gradients of the looping pipeline's classifier, in place over 2 coordinates; gbs counts every
 * byte read and written, once, and share is its part of the bandwidth of a stream through as much memory. Both are
 * measured in turns and alike: first once, with caches that the other has filled (cold_), then both for the same time.
 * loops_us is the time of two plain loops that add up the same memory, a half each, without synchronization;
 * loops_share is its part of the time of the sum.
 *
 * line_ns is the time of a cache line between the cores of 2 coordinates, before and after: cores of a virtual machine
 * may be far apart, or become so. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benchmarks/line.h"
#include "benchmarks/measure.h"
#include "collectives/channel.h"
#include "collectives/engines.h"
#include "spmd/base/cpu_level.h"
#include "spmd/base/memory.h"

enum { BATCHES = 5, MAX_COUNT = 1 << 20, SLOT = 16384, GRADIENTS = 4618762, ROUNDS = 7 };

static const double STREAM_SECONDS = 0.01; /* at least: long enough to fill the caches with the stream */

struct run {
    struct sl_list groups, sizes;
    double seconds; /* of a measurement */
    struct sl_cores cores;
    size_t capacity; /* bytes of a coordinate's input, and of its output */
};

struct worker {
    struct sl_spmd *self;
    const struct run *run;
    struct sl_group group;
    float *in, *out;      /* [capacity] */
    double length;        /* seconds of a measurement of the stream, and of the sum of gradients */
    struct sl_line *line; /* NULL: the group is not 2 coordinates with a core each */
    uint32_t lines;       /* measurements of line */
};

/* ---- calls ---- */

/* The call of an operation on BYTES, and how many bytes these really are: each member has at least one element. */
typedef struct sl_collective describe(struct worker *worker, size_t *bytes);

static struct sl_collective describe_psum(struct worker *w, size_t *bytes) {
    return sl_describe_psum(&w->group, SL_F32, w->in, w->out, *bytes / sizeof(float));
}

static size_t block(const struct worker *w, size_t *bytes) {
    const size_t size = (size_t)w->group.size, elements = *bytes / sizeof(float) / size;
    const size_t count = elements ? elements : 1;
    *bytes = count * size * sizeof(float);
    return count;
}

static struct sl_collective describe_psum_scatter(struct worker *w, size_t *bytes) {
    return sl_describe_psum_scatter(&w->group, SL_F32, w->in, w->out, block(w, bytes));
}

static struct sl_collective describe_all_gather(struct worker *w, size_t *bytes) {
    return sl_describe_all_gather(&w->group, SL_F32, w->in, w->out, block(w, bytes));
}

static struct sl_collective describe_all_to_all(struct worker *w, size_t *bytes) {
    const size_t shape[2] = {(size_t)w->group.size, block(w, bytes)};
    return sl_describe_all_to_all(&w->group, SL_F32, w->in, w->out, 2, shape, 0, 1);
}

static struct sl_collective describe_ppermute(struct worker *w, size_t *bytes) {
    const int size = w->group.size;
    int ring[size][2];
    for (int i = 0; i < size; i++) ring[i][0] = i, ring[i][1] = (i + 1) % size;
    return sl_describe_ppermute(&w->group, SL_F32, w->in, w->out, *bytes / sizeof(float), size, ring);
}

static struct sl_collective describe_barrier(struct worker *w, size_t *bytes) {
    *bytes = 0;
    return sl_describe_barrier(&w->group);
}

static const struct {
    const char *name;
    describe *describe;
    bool sized;
} operations[] = {
    {"psum", describe_psum, true},
    {"all_gather", describe_all_gather, true},
    {"psum_scatter", describe_psum_scatter, true},
    {"ppermute", describe_ppermute, true},
    {"all_to_all", describe_all_to_all, true},
    {"barrier", describe_barrier, false},
};
enum { OPERATIONS = sizeof operations / sizeof *operations };

/* ---- measuring ---- */

/* Does something COUNT times, all members together; SECONDS until the last of them has finished. */
typedef int repeat(struct worker *worker, void *what, int count, double *seconds);

/* Measures a few batches, each large enough for the clock: all members double the count while the first one's clock
 * says that it is too small. Each count does PER_COUNT timed operations; US receives the sorted times. */
static int measure(struct worker *w, repeat *repeat, void *what, int per_count, double us[BATCHES]) {
    double seconds;
    int32_t count = 1, more = 1;
    SL_TRY(repeat(w, what, 2, &seconds)); /* the first calls take longer */
    while (more) {
        SL_TRY(repeat(w, what, count, &seconds));
        more = seconds < w->run->seconds / BATCHES && count < MAX_COUNT;
        SL_TRY(sl_broadcast(w->self, &w->group, SL_I32, &more, &more, 1, 0));
        if (more) count *= 2;
    }
    for (int i = 0; i < BATCHES; i++) {
        SL_TRY(repeat(w, what, count, &seconds));
        us[i] = 1e6 * seconds / count / per_count;
    }
    sl_median(BATCHES, us);
    return SL_OK;
}

/* Sets NS to 0 if there is no line to measure. */
static int measure_line(struct worker *w, double *ns) {
    *ns = 0;
    if (!w->line) return SL_OK;
    SL_TRY(sl_barrier(w->self, &w->group));
    *ns = sl_line_measure(w->line, w->group.rank, w->lines++);
    return SL_OK;
}

static void print_line(const double ns[2]) {
    if (ns[0] > 0) printf("\"line_ns\":[%.9g,%.9g],", ns[0], ns[1]);
}

/* The end of a line. */
static void print_times(const double us[BATCHES]) {
    printf("\"us\":%.9g,\"us_min\":%.9g,\"us_max\":%.9g}\n", us[BATCHES / 2], us[0], us[BATCHES - 1]);
    fflush(stdout);
}

/* Repeats the call WHAT COUNT times. */
static int repeat_call(struct worker *w, void *what, int count, double *seconds) {
    const struct sl_collective *call = what;
    SL_TRY(sl_barrier(w->self, &w->group));
    const double began = sl_now();
    for (int i = 0; i < count; i++) SL_TRY(sl_call(w->self, SL_HERE, *call));
    SL_TRY(sl_barrier(w->self, &w->group));
    *seconds = sl_now() - began;
    return SL_OK;
}

static int measure_operations(struct worker *w) {
    for (int o = 0; o < OPERATIONS; o++) {
        for (int s = 0; s < (operations[o].sized ? w->run->sizes.count : 1); s++) {
            size_t bytes = (size_t)w->run->sizes.value[s];
            struct sl_collective call = operations[o].describe(w, &bytes);
            double us[BATCHES];
            SL_TRY(measure(w, repeat_call, &call, 1, us));
            if (w->group.rank != 0) continue;
            printf("{\"operation\":\"%s\",\"group\":%d,\"bytes\":%zu,\"gbs\":%.9g,", operations[o].name, w->group.size,
                   bytes, 1e-3 * (double)bytes / us[BATCHES / 2]);
            print_times(us);
        }
    }
    return SL_OK;
}

/* ---- hand-overs ---- */

struct ring {
    struct sl_channel send, take;
    int messages;
};

static int hand_on(struct worker *w, struct ring *ring) {
    const void *taken;
    void *slot;
    SL_TRY(sl_channel_take(w->self, &ring->take, &taken));
    SL_TRY(sl_channel_acquire(w->self, &ring->send, &slot));
    memcpy(slot, taken, SLOT);
    SL_TRY(sl_channel_post(w->self, &ring->send));
    return sl_channel_release(w->self, &ring->take);
}

/* Sends the messages of the ring WHAT round it COUNT times. The first members put one each into it, and their receivers
 * take it out in the end. */
static int go_round(struct worker *w, void *what, int count, double *seconds) {
    struct ring *ring = what;
    const int size = w->group.size, rank = w->group.rank;
    void *slot;
    const void *taken;
    SL_TRY(sl_barrier(w->self, &w->group));
    const double began = sl_now();
    if (rank < ring->messages) {
        SL_TRY(sl_channel_acquire(w->self, &ring->send, &slot));
        SL_TRY(sl_channel_post(w->self, &ring->send));
    }
    for (int i = 0; i < count; i++) SL_TRY(hand_on(w, ring));
    if ((rank + size - 1) % size < ring->messages) {
        SL_TRY(sl_channel_take(w->self, &ring->take, &taken));
        SL_TRY(sl_channel_release(w->self, &ring->take));
    }
    SL_TRY(sl_barrier(w->self, &w->group));
    *seconds = sl_now() - began;
    return SL_OK;
}

static int measure_hand_overs(struct worker *w) {
    const int size = w->group.size, rank = w->group.rank, me = w->self->coordinate;
    const int next = sl_group_member(&w->group, (rank + 1) % size);
    const int previous = sl_group_member(&w->group, (rank + size - 1) % size);
    const int messages[2] = {1, size};
    struct ring ring = {0};
    SL_TRY(sl_channel_open(w->self, &ring.send, me, next, SLOT, 2));
    SL_TRY(sl_channel_open(w->self, &ring.take, previous, me, SLOT, 2));
    for (int m = 0; m < 2; m++) {
        double us[BATCHES], line_ns[2];
        ring.messages = messages[m];
        SL_TRY(measure_line(w, &line_ns[0]));
        SL_TRY(measure(w, go_round, &ring, size, us));
        SL_TRY(measure_line(w, &line_ns[1]));
        if (rank != 0) continue;
        printf("{\"operation\":\"hand_over\",\"group\":%d,\"bytes\":%d,\"messages\":%d,", size, SLOT, messages[m]);
        print_line(line_ns);
        print_times(us);
    }
    return SL_OK;
}

/* ---- gradients ---- */

/* By rounds: of the sum in microseconds, of the stream in bytes a second. */
struct rounds {
    double us[ROUNDS], cold_us[ROUNDS], stream[ROUNDS], cold_stream[ROUNDS], loops_us[ROUNDS];
};

/* Measures the stream at the first member; the others do nothing. COLD and WARM: bytes a second of one pass, and of
 * many. */
static int measure_stream(struct worker *w, struct sl_stream *stream, double *cold, double *warm) {
    const double seconds = stream->seconds;
    if (w->group.rank != 0) return SL_OK;
    stream->seconds = 0;
    *cold = sl_stream_measure(stream);
    stream->seconds = seconds;
    *warm = sl_stream_measure(stream);
    if (*cold > 0 && *warm > 0) return SL_OK;
    return sl_fail(w->self, SL_FAILED, "no threads to measure the memory's bandwidth");
}

static int measure_sum(struct worker *w, repeat *repeat, void *what, int count, double *cold, double *warm) {
    double seconds;
    SL_TRY(repeat(w, what, 1, &seconds));
    *cold = 1e6 * seconds;
    SL_TRY(repeat(w, what, count, &seconds));
    *warm = 1e6 * seconds / count;
    return SL_OK;
}

/* Loops COUNT times through both members' arrays WHAT, each member in its half. */
static int repeat_loop(struct worker *w, void *what, int count, double *seconds) {
    sl_sum_pass *const levels[] = {sl_sum_pass_v2, sl_sum_pass_v3, sl_sum_pass_v4};
    const size_t line = SL_CACHE_LINE / sizeof(float), half = GRADIENTS / 2 / line * line;
    const size_t begin = w->group.rank ? half : 0, n = w->group.rank ? GRADIENTS - half : half;
    float *const *x = what;
    SL_TRY(sl_barrier(w->self, &w->group));
    const double began = sl_now();
    for (int i = 0; i < count; i++) levels[sl_cpu_level() - 2](n, x[0] + begin, x[1] + begin);
    SL_TRY(sl_barrier(w->self, &w->group));
    *seconds = sl_now() - began;
    return SL_OK;
}

static void print_loops(double us[ROUNDS], double loops_us[ROUNDS]) {
    double share[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) share[i] = loops_us[i] / us[i];
    printf(",\"loops_us\":%.9g,\"loops_share\":%.9g", sl_median(ROUNDS, loops_us), sl_median(ROUNDS, share));
}

/* Prints fields with names that begin with PREFIX. A share is of one round: load on the machine slows both. */
static void print_share(const char *prefix, double moved, double us[ROUNDS], double stream[ROUNDS]) {
    double share[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) share[i] = 1e6 * moved / us[i] / stream[i];
    const double median = sl_median(ROUNDS, us), bandwidth = sl_median(ROUNDS, stream);
    printf(",\"%sus\":%.9g,\"%sus_min\":%.9g,\"%sus_max\":%.9g,\"%sgbs\":%.9g", prefix, median, prefix, us[0], prefix,
           us[ROUNDS - 1], prefix, 1e-3 * moved / median);
    printf(",\"%sbandwidth_gbs\":%.9g,\"%sshare\":%.9g,\"%sfloor_us\":%.9g", prefix, 1e-9 * bandwidth, prefix,
           sl_median(ROUNDS, share), prefix, 1e6 * moved / bandwidth);
}

static int compare_with_stream(struct worker *w, struct sl_stream *stream) {
    struct rounds rounds = {0};
    struct sl_collective call = sl_describe_psum(&w->group, SL_F32, w->in, w->in, GRADIENTS);
    const double moved = 2.0 * GRADIENTS * sizeof(float) * w->group.size; /* every buffer is read and written */
    double cold, warm, line_ns[2];
    float *x[2];
    SL_TRY(sl_all_gather(w->self, &w->group, SL_I32, &w->in, (void *)x, sizeof w->in / sizeof(int32_t)));
    SL_TRY(measure_sum(w, repeat_call, &call, 2, &cold, &warm));
    int32_t count = 1 + (int32_t)(1e6 * w->length / warm);
    SL_TRY(sl_broadcast(w->self, &w->group, SL_I32, &count, &count, 1, 0));
    SL_TRY(measure_line(w, &line_ns[0]));
    for (int i = 0; i < ROUNDS; i++) {
        SL_TRY(measure_stream(w, stream, &rounds.cold_stream[i], &rounds.stream[i]));
        SL_TRY(measure_sum(w, repeat_call, &call, count, &rounds.cold_us[i], &rounds.us[i]));
        SL_TRY(measure_stream(w, stream, &cold, &warm)); /* fills the caches as before the sum */
        SL_TRY(measure_sum(w, repeat_loop, x, count, &cold, &rounds.loops_us[i]));
    }
    SL_TRY(measure_line(w, &line_ns[1]));
    if (w->group.rank != 0) return SL_OK;
    printf("{\"operation\":\"psum_gradients\",\"group\":%d,", w->group.size);
    print_line(line_ns);
    printf("\"bytes\":%zu", GRADIENTS * sizeof(float));
    print_loops(rounds.us, rounds.loops_us);
    print_share("", moved, rounds.us, rounds.stream);
    print_share("cold_", moved, rounds.cold_us, rounds.cold_stream);
    puts("}");
    fflush(stdout);
    return SL_OK;
}

static int measure_gradients(struct worker *w) {
    struct sl_stream stream = {0};
    int status = SL_OK;
    w->length = w->run->seconds / 20 > STREAM_SECONDS ? w->run->seconds / 20 : STREAM_SECONDS;
    /* Four arrays, together as large as the buffers. */
    if (w->group.rank == 0 &&
        sl_stream_open(&stream, &w->run->cores, (size_t)GRADIENTS * (size_t)w->group.size / 4, w->length))
        status = sl_fail(w->self, SL_FAILED, "no memory to measure its bandwidth");
    sl_stream_widen(&stream);
    if (status == SL_OK) status = compare_with_stream(w, &stream);
    sl_stream_close(&stream);
    return status;
}

/* ---- the run: one for each group size ---- */

static int measure_all(struct worker *w) {
    SL_TRY(sl_group_axes(w->self, "rank", &w->group));
    w->in = sl_memory_take(w->run->capacity);
    w->out = sl_memory_take(w->run->capacity);
    if (!w->in || !w->out) return sl_fail(w->self, SL_FAILED, "no memory for 2 x %zu bytes", w->run->capacity);
    memset(w->in, 0, w->run->capacity); /* sums of zeros stay finite; pages are there */
    memset(w->out, 0, w->run->capacity);
    if (w->group.size == 2 && w->run->cores.count > 1) {
        void *line;
        SL_TRY(sl_group_memory(w->self, &w->group, sizeof *w->line, &line));
        w->line = line;
    }
    SL_TRY(measure_operations(w));
    SL_TRY(measure_hand_overs(w));
    return w->group.size == 2 ? measure_gradients(w) : SL_OK;
}

static int program(struct sl_spmd *self, void *arg) {
    struct worker worker = {.self = self, .run = arg};
    const int status = measure_all(&worker);
    sl_memory_give(worker.in);
    sl_memory_give(worker.out);
    return status;
}

static int run_group(struct run *run, int size, struct sl_error *error) {
    struct sl_mesh mesh = {.axes = 1, .axis = {{"rank", size}}, .size = size};
    struct sl_engine engine;
    SL_TRY(sl_engine_open(&engine, "local", error));
    engine.timeout = 3600; /* while the bandwidth is measured, coordinate 0 gives no sign */
    engine.error = error;
    return sl_run(&mesh, &engine, program, run);
}

/* ---- main ---- */

static const char usage[] =
    "usage: bench_collectives [--groups N,N...] [--sizes BYTES,BYTES...] [--seconds S]\n"
    "Times collectives and hand-overs among threads, each for about --seconds. Prints JSON lines.\n";

static int read_options(struct run *run, int argc, char **argv, bool *answered) {
    static const struct option option[] = {{"groups", required_argument, NULL, 'g'},
                                           {"sizes", required_argument, NULL, 's'},
                                           {"seconds", required_argument, NULL, 't'},
                                           {"help", no_argument, NULL, 'h'},
                                           {0}};
    for (int code; (code = getopt_long(argc, argv, "", option, NULL)) != -1;) {
        switch (code) {
        case 'g':
            SL_TRY(sl_read_list("groups", optarg, 2, SL_MOST_COORDINATES, &run->groups));
            break;
        case 's':
            SL_TRY(sl_read_list("sizes", optarg, sizeof(float), 1 << 30, &run->sizes));
            break;
        case 't':
            SL_TRY(sl_read_real("seconds", optarg, 0, 60, &run->seconds));
            break;
        case 'h':
            fputs(usage, stdout);
            *answered = true;
            return SL_OK;
        default:
            return SL_BAD_INPUT;
        }
    }
    if (optind == argc) return SL_OK;
    fprintf(stderr, "bench_collectives: \"%.80s\" is no option\n", argv[optind]);
    return SL_BAD_INPUT;
}

int main(int argc, char **argv) {
    struct run run = {.groups = {3, {2, 4, 8}},
                      .sizes = {7, {4, 1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 1 << 26}},
                      .seconds = 0.1};
    struct sl_error error = {0};
    bool answered = false;
    sl_cores_find(&run.cores);
    int status = read_options(&run, argc, argv, &answered);
    if (status || answered) return status;
    status = sl_cpu_level_check(&error);
    run.capacity = GRADIENTS * sizeof(float);
    for (int i = 0; i < run.sizes.count; i++) {
        /* A collective of one element a member may need more than the requested size. */
        if ((size_t)run.sizes.value[i] > run.capacity) run.capacity = (size_t)run.sizes.value[i];
    }
    for (int i = 0; i < run.groups.count && status == SL_OK; i++) status = run_group(&run, run.groups.value[i], &error);
    if (status) fprintf(stderr, "bench_collectives: %s\n", error.message);
    return status;
}
