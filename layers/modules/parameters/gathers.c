/* gathers.c - see gathers.h. */
#include "layers/modules/parameters/gathers.h"

#include <stdint.h>
#include <stdlib.h>

#include "spmd/base/memory.h"
#include "spmd/device/device.h"

enum { NOWHERE = -1 };

/* ---- planning ---- */

int sl_gathers_plan(struct sl_gathers *g, struct sl_spmd *self, const char *axis, int loops, int frames, bool wholes) {
    *g = (struct sl_gathers){.axis = axis,
                             .loops = loops,
                             .frames = frames,
                             .most = SIZE_MAX,
                             .together = sl_reads_peers(self),
                             .wholes = wholes};
    g->used = calloc((size_t)loops, sizeof *g->used);
    g->frame = malloc(2 * (size_t)loops * sizeof *g->frame);
    g->began = calloc((size_t)loops, sizeof *g->began);
    if (!g->used || !g->frame || !g->began) return sl_fail(self, SL_FAILED, "no memory to gather kernels");
    g->left = g->frame + loops;
    for (int l = 0; l < loops; l++) {
        g->frame[l] = NOWHERE;
        g->left[l] = 0;
    }
    return sl_group_axes(self, axis, &g->group);
}

static size_t whole_bytes(const struct sl_gathered *kernel) {
    return kernel->rows * kernel->columns * sl_dtype_size(kernel->dtype);
}

/* Bytes of all loops. */
static size_t all_bytes(const struct sl_gathers *g) {
    size_t bytes = 0;
    for (int l = 0; l < g->loops; l++) bytes += g->used[l];
    return bytes;
}

bool sl_gathers_take(const struct sl_gathers *g, size_t rows, size_t columns, enum sl_dtype dtype) {
    return rows * columns * sl_dtype_size(dtype) <= g->most;
}

int sl_gathers_add(struct sl_gathers *g, int loop, int parameter, size_t rows, size_t columns, enum sl_dtype dtype) {
    struct sl_gathered *grown = sl_grow(g->list, g->count, &g->capacity, 32, sizeof *grown);
    if (!grown) return NOWHERE;
    g->list = grown;
    struct sl_gathered *kernel = &g->list[g->count];
    *kernel =
        (struct sl_gathered){.loop = loop, .parameter = parameter, .rows = rows, .columns = columns, .dtype = dtype};
    if (g->wholes) return g->count++;
    kernel->offset = g->together ? all_bytes(g) : g->used[loop];
    /* If members hold memory together, each counts an equal part of it. */
    g->used[loop] += sl_round_up(whole_bytes(kernel), SL_CACHE_LINE * (size_t)g->group.size);
    if (g->used[loop] > g->frame_bytes) g->frame_bytes = g->used[loop];
    return g->count++;
}

size_t sl_gathers_bytes(const struct sl_gathers *g) {
    if (!g->group.size) return 0;
    return g->together ? all_bytes(g) / (size_t)g->group.size : (size_t)g->frames * g->frame_bytes;
}

/* ---- opening and closing ---- */

static int open_together(struct sl_gathers *g, struct sl_spmd *self) {
    void *memory;
    SL_TRY(sl_group_memory(self, &g->group, all_bytes(g), &memory));
    g->memory = memory;
    return SL_OK;
}

int sl_gathers_open(struct sl_gathers *g, struct sl_spmd *self, const struct sl_parameters *parameters,
                    struct sl_budget *held) {
    g->parameters = parameters;
    if (!g->count) return SL_OK;
    g->queue = malloc((size_t)g->count * sizeof *g->queue);
    if (!g->queue) return sl_fail(self, SL_FAILED, "no memory to gather kernels");
    if (g->wholes) return SL_OK;
    if (g->together) {
        sl_budget_add(held, SL_MEMORY_PARAMETERS, sl_gathers_bytes(g));
        return open_together(g, self);
    }
    g->memory = sl_device_take(held, SL_MEMORY_PARAMETERS, sl_gathers_bytes(g));
    return g->memory ? SL_OK : sl_fail(self, SL_FAILED, "no memory for %zu bytes of kernels", sl_gathers_bytes(g));
}

static struct sl_request *request_of(struct sl_gathers *g, int number) {
    return &g->request[number % SL_MAX_IN_FLIGHT];
}

/* Waits for calls under way first: they may read and write this coordinate's memory. */
void sl_gathers_close(struct sl_gathers *g, struct sl_spmd *self) {
    for (; g->ended < g->started; g->ended++) sl_wait(self, request_of(g, g->ended));
    if (g->group.size) sl_group_close(self, &g->group);
    if (!g->together) sl_device.give(g->memory);
    free(g->list);
    free(g->used);
    free(g->frame);
    free(g->began);
    free(g->queue);
    *g = (struct sl_gathers){0};
}

/* ---- one kernel ---- */

/* This member's shard of the kernel. */
static const void *shard_of(const struct sl_gathers *g, const struct sl_gathered *kernel) {
    if (kernel->dtype == SL_BF16) return sl_parameter_rounded(g->parameters, kernel->parameter);
    return sl_parameter_value(g->parameters, kernel->parameter);
}

const void *sl_gathered_kernel(const struct sl_gathers *g, int number) {
    const struct sl_gathered *kernel = &g->list[number];
    if (g->wholes) return sl_parameter_value(g->parameters, kernel->parameter);
    return g->memory + (g->together ? 0 : (size_t)g->frame[kernel->loop] * g->frame_bytes) + kernel->offset;
}

static struct sl_collective describe(const struct sl_gathers *g, int number) {
    const struct sl_gathered *kernel = &g->list[number];
    const size_t shape[] = {kernel->rows, kernel->columns / (size_t)g->group.size};
    void *all = (void *)(uintptr_t)sl_gathered_kernel(g, number); /* memory of the gathers */
    return sl_describe_all_gather_dim(&g->group, kernel->dtype, shard_of(g, kernel), all, 2, shape, 1);
}

/* ---- held together ---- */

/* Writes this member's columns of the kernel. */
static void lay_down(const struct sl_gathers *g, int number) {
    const struct sl_gathered *kernel = &g->list[number];
    const size_t row = kernel->columns * sl_dtype_size(kernel->dtype), own = row / (size_t)g->group.size;
    char *to =
        (char *)(uintptr_t)sl_gathered_kernel(g, number) + own * (size_t)g->group.rank; /* memory of the gathers */
    const char *from = shard_of(g, kernel);
    sl_device.copy_rows(kernel->rows, own, to, row, from, own);
}

/* The members meet when no member reads the kernels any more, and again once all kernels are complete. With wholes, one
 * meeting is enough: kernels change only after all members have computed their gradients, and so have read the
 * kernels. */
int sl_gathers_begin(struct sl_gathers *g, struct sl_spmd *self) {
    if (!g->together || !g->count) return SL_OK;
    SL_TRY(sl_barrier(self, &g->group));
    if (g->wholes) return SL_OK;
    for (int k = 0; k < g->count; k++) lay_down(g, k);
    return sl_barrier(self, &g->group);
}

/* ---- a loop at a time ---- */

static int kernel_of(const struct sl_gathers *g, int asked) { return g->queue[asked % g->count]; }

static void end_oldest(struct sl_gathers *g) { g->left[g->list[kernel_of(g, g->ended++)].loop]--; }

static int start_next(struct sl_gathers *g, struct sl_spmd *self) {
    while (g->started < g->asked && g->started - g->ended < SL_MAX_IN_FLIGHT) {
        SL_TRY(sl_start(self, request_of(g, g->started), SL_HERE, describe(g, kernel_of(g, g->started))));
        g->started++;
    }
    return SL_OK;
}

int sl_gathers_advance(struct sl_gathers *g, struct sl_spmd *self) {
    while (g->ended < g->started) {
        bool done;
        SL_TRY(sl_test(self, request_of(g, g->ended), &done));
        if (!done) break;
        end_oldest(g);
    }
    if (g->ended == g->asked) g->ended = g->started = g->asked = 0;
    return start_next(g, self);
}

static bool is_taken(const struct sl_gathers *g, int frame) {
    for (int l = 0; l < g->loops; l++)
        if (g->frame[l] == frame) return true;
    return false;
}

static int free_frame(const struct sl_gathers *g) {
    int frame = 0;
    while (is_taken(g, frame)) frame++;
    return frame;
}

int sl_gathers_start(struct sl_gathers *g, struct sl_spmd *self, int loop) {
    if (g->together || !g->count) return SL_OK;
    g->frame[loop] = free_frame(g);
    g->began[loop] = sl_now();
    for (int k = 0; k < g->count; k++) {
        if (g->list[k].loop != loop) continue;
        g->queue[g->asked++ % g->count] = k;
        g->left[loop]++;
    }
    return sl_gathers_advance(g, self);
}

int sl_gathers_wait(struct sl_gathers *g, struct sl_spmd *self, int loop) {
    while (g->left[loop]) {
        SL_TRY(start_next(g, self));
        SL_TRY(sl_wait(self, request_of(g, g->ended)));
        end_oldest(g);
    }
    return start_next(g, self);
}

int sl_gathers_drop(struct sl_gathers *g, struct sl_spmd *self, int loop) {
    SL_TRY(sl_gathers_wait(g, self, loop)); /* if the loop has not been used */
    g->frame[loop] = NOWHERE;
    return SL_OK;
}

int sl_gathers_end(struct sl_gathers *g, struct sl_spmd *self) {
    for (int l = 0; l < g->loops; l++) SL_TRY(sl_gathers_drop(g, self, l));
    return SL_OK;
}
