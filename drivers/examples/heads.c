/* heads.c - an example to copy: attention over tensor-parallel coordinates, in two ways: with heads that stay on their
 * coordinates, and with heads reassembled by an all_to_all. It teaches the meaning of sharding a dim, and the cost of
 * changing it.
 *
 * Queries, keys and values are arrays [tokens, heads, width]. Along "tensor" a coordinate has either a share of the
 * heads, each of them complete, or a share of every head's columns. Attention needs complete heads. So in the second
 * way an all_to_all splits the heads and joins the columns of q, k and v, and another does the opposite with
 * attention's output; backward does as much once more. A layer whose columns are scattered head by head gets the first
 * way for free: any assignment of columns to heads works, until a checkpoint names them. */
#include <shardloop/shardloop.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 4, LENGTH = 128, TOKENS = SEQUENCES * LENGTH, HEADS = 8, WIDTH = 32, COLUMNS = HEADS * WIDTH };
enum { Q, K, V, OUTPUT, ARRAYS, REPEATS = 30 };

struct run {
    bool exchanges;                /* coordinates have shares of every head's columns */
    float (*output)[HEADS][WIDTH]; /* [TOKENS], shared by all coordinates */
    double exchange, attention;    /* at coordinate 0: shortest milliseconds of a forward pass */
};

/* Element (TOKEN, HEAD, COLUMN) of array number ARRAY. */
static float element(int array, int token, int head, int column) {
    const int index = (token * HEADS + head) * WIDTH + column;
    return (float)sl_random_word(sl_key_of_seed((uint64_t)array), TOKENS * COLUMNS, (uint32_t)index) * 0x1p-31f - 1;
}

struct worker {
    struct sl_group peers;
    int heads, first_head, width, first_column; /* of this coordinate's share */
    float *share[ARRAYS];                       /* [TOKENS, heads, width] */
    float *whole[ARRAYS];                       /* [TOKENS, HEADS / peers, WIDTH]; the same memory if heads stay */
    float *logsum;
};

/* Allocates device memory and fills it with the share's elements. */
static float *fill(const struct worker *w, int array) {
    const size_t bytes = (size_t)TOKENS * COLUMNS / (size_t)w->peers.size * sizeof(float);
    float *share = sl_device.take(bytes), *values = malloc(bytes), *next = values;
    for (int token = 0; values && token < TOKENS; token++)
        for (int head = 0; head < w->heads; head++)
            for (int column = 0; column < w->width; column++)
                *next++ = element(array, token, w->first_head + head, w->first_column + column);
    if (share && values) sl_device.copy(share, values, bytes);
    free(values);
    return values ? share : NULL;
}

static int open_worker(struct worker *w, struct sl_spmd *self, const struct run *run) {
    SL_TRY(sl_group_axes(self, "tensor", &w->peers));
    const int peers = w->peers.size, rank = w->peers.rank;
    w->heads = run->exchanges ? HEADS : HEADS / peers;
    w->width = run->exchanges ? WIDTH / peers : WIDTH;
    w->first_head = run->exchanges ? 0 : rank * w->heads;
    w->first_column = run->exchanges ? rank * w->width : 0;
    w->logsum = sl_device.take((size_t)TOKENS * HEADS * sizeof *w->logsum);
    bool there = w->logsum != NULL;
    for (int i = 0; i < ARRAYS; i++) {
        w->share[i] = fill(w, i);
        w->whole[i] = run->exchanges ? fill(w, i) : w->share[i];
        there = there && w->share[i] && w->whole[i];
    }
    return there ? SL_OK : sl_fail(self, SL_FAILED, "no memory for heads");
}

static void close_worker(struct worker *w, const struct run *run) {
    for (int i = 0; i < ARRAYS; i++) {
        if (run->exchanges) sl_device.give(w->whole[i]);
        sl_device.give(w->share[i]);
    }
    sl_device.give(w->logsum);
}

/* join: from shares of all heads to complete heads; split: back. */
static int join(struct sl_spmd *self, struct worker *w, int array) {
    const size_t shape[] = {TOKENS, HEADS, (size_t)w->width};
    return sl_all_to_all(self, &w->peers, SL_F32, w->share[array], w->whole[array], 3, shape, 1, 2);
}
static int split(struct sl_spmd *self, struct worker *w, int array) {
    const size_t shape[] = {TOKENS, (size_t)(HEADS / w->peers.size), WIDTH};
    return sl_all_to_all(self, &w->peers, SL_F32, w->whole[array], w->share[array], 3, shape, 2, 1);
}

static int forward(struct sl_spmd *self, struct worker *w, struct run *run) {
    const size_t heads = (size_t)(HEADS / w->peers.size);
    const struct sl_attention shape = {.sequences = SEQUENCES,
                                       .queries = LENGTH,
                                       .key_rows = LENGTH,
                                       .heads = heads,
                                       .width = WIDTH,
                                       .key_stride = heads * WIDTH};
    SL_TRY(sl_barrier(self, &w->peers));
    const double began = sl_now();
    for (int i = Q; i <= V && run->exchanges; i++) SL_TRY(join(self, w, i));
    const double joined = sl_now();
    sl_kernels_select()->attention->forward(&shape, w->whole[Q], NULL, w->whole[K], w->whole[V], NULL,
                                            sl_out_f32(w->whole[OUTPUT]), w->logsum);
    SL_TRY(sl_device.settle(&self->error));
    const double attended = sl_now();
    if (run->exchanges) SL_TRY(split(self, w, OUTPUT));
    if (self->coordinate != 0) return SL_OK;
    run->exchange = fmin(run->exchange, joined - began + sl_now() - attended);
    run->attention = fmin(run->attention, attended - joined);
    return SL_OK;
}

/* Copies this coordinate's share of the output to the run's. */
static void leave(const struct worker *w, struct run *run) {
    const size_t bytes = (size_t)w->width * sizeof(float);
    for (int token = 0; token < TOKENS; token++)
        for (int head = 0; head < w->heads; head++)
            sl_device.copy(&run->output[token][w->first_head + head][w->first_column],
                           w->share[OUTPUT] + (token * w->heads + head) * w->width, bytes);
}

static int program(struct sl_spmd *self, void *arg) {
    struct run *run = arg;
    struct worker w = {0};
    int status = open_worker(&w, self, run);
    for (int i = 0; status == SL_OK && i < REPEATS; i++) status = forward(self, &w, run);
    if (status == SL_OK) leave(&w, run);
    close_worker(&w, run);
    return status;
}

/* Runs one way and prints a line of the table. Clears *SAME if the output's bits differ from SINGLE's. */
static int run_way(int peers, bool exchanges, const struct run *single, struct run *run, bool *same,
                   struct sl_error *error) {
    struct sl_mesh mesh;
    struct sl_engine engine = {.error = error};
    char axes[32];
    snprintf(axes, sizeof axes, "tensor=%d", peers);
    SL_TRY(sl_mesh_parse(&mesh, axes, error));
    SL_TRY(sl_engine_open(&engine, "local", error));
    engine.error = error;
    *run = (struct run){.exchanges = exchanges, .exchange = INFINITY, .attention = INFINITY};
    const size_t bytes = TOKENS * sizeof *run->output;
    if (!(run->output = malloc(bytes))) return sl_error_set(error, SL_FAILED, "no memory for an output");
    SL_TRY(sl_run(&mesh, &engine, program, run));
    const int sent = exchanges ? ARRAYS * TOKENS * COLUMNS / peers * (peers - 1) / peers * 4 / 1024 : 0;
    printf("%-9s  %-10s  %8d  %8.3f  %9.3f\n", axes, exchanges ? "all_to_all" : "heads stay", sent, 1e3 * run->exchange,
           1e3 * run->attention);
    if (single) *same = *same && !memcmp(run->output, single->output, bytes);
    return SL_OK;
}

/* Runs both ways on several meshes, and compares them with one coordinate. */
static int compare(struct sl_error *error) {
    struct run single = {0}, run = {0};
    bool same = true;
    puts("mesh       way         sent KiB  exchange  attention");
    int status = run_way(1, false, NULL, &single, &same, error);
    for (int peers = 2; status == SL_OK && peers <= 8; peers *= 2) {
        for (int exchanges = 0; status == SL_OK && exchanges < 2; exchanges++) {
            status = run_way(peers, exchanges, &single, &run, &same, error);
            free(run.output);
        }
    }
    free(single.output);
    if (status) return status;
    printf("outputs: %s\n", same ? "the same bits" : "other bits");
    return same ? SL_OK : 1;
}

/* Reports errors of stdout, such as a full disk. */
static int finish(int status, const struct sl_error *error) {
    errno = 0;
    if (error->status) {
        fprintf(stderr, "heads: %s\n", error->message);
    } else if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "heads: stdout: %s\n", errno ? strerror(errno) : "could not be written");
        status = SL_FAILED;
    }
    return status;
}

int main(int argc, char **argv) {
    struct sl_error error = {0};
    const bool help = argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));
    signal(SIGXFSZ, SIG_IGN); /* so that a file size limit is a write error, too */
    if (argc > 1) {
        fputs("heads: an example; it takes no arguments\n", help ? stdout : stderr);
        return help ? finish(SL_OK, &error) : SL_BAD_INPUT;
    }
    int status = sl_cpu_level_check(&error); /* checks SHARDLOOP_CPU_LEVEL */
    if (status == SL_OK) status = compare(&error);
    return finish(status, &error);
}
