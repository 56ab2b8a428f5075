/* scatters.c - see scatters.h. */
#include "layers/modules/parameters/scatters.h"

#include "collectives/sums/sums.h"
#include "spmd/base/memory.h"
#include "spmd/device/device.h"

#include <stdlib.h>

enum { LINE = SL_CACHE_LINE / sizeof(float) };

/* ---- planning, opening and closing ---- */

int sl_scatters_plan(struct sl_scatters *s, struct sl_spmd *self, const char *axis, bool tree) {
    *s = (struct sl_scatters){0};
    SL_TRY(sl_group_axes(self, axis, &s->group));
    s->tree = tree && s->group.size > 3; /* with fewer members, tree order is the members' order */
    s->reads = !s->tree && sl_reads_peers(self) && sl_device.shares_memory;
    return s->reads ? sl_group_axes(self, axis, &s->readers) : SL_OK;
}

static size_t floats_of_shard(const struct sl_scatters *s, size_t whole) {
    return s->reads ? 0 : sl_round_up(whole / (size_t)s->group.size, LINE);
}

/* Floats for the gradient and, unless peers' memory is read, for the sum of its shard. */
static size_t room_for(const struct sl_scatters *s, size_t whole) {
    return sl_round_up(whole, LINE) + floats_of_shard(s, whole);
}

void sl_scatters_add(struct sl_scatters *s, size_t whole) {
    const size_t saved = whole - whole / (size_t)s->group.size;
    if (room_for(s, whole) > s->largest) s->largest = room_for(s, whole);
    s->saved += saved / LINE * LINE;
    const size_t most = SL_SCATTERS_LARGEST * s->largest, least = s->saved > s->largest ? s->saved : s->largest;
    s->capacity = least < most ? least : most;
}

size_t sl_scatters_bytes(const struct sl_scatters *s) { return s->capacity * sizeof(float); }

int sl_scatters_open(struct sl_scatters *s, struct sl_spmd *self, struct sl_budget *held) {
    if (!s->capacity) return SL_OK;
    s->memory = sl_device_take(held, SL_MEMORY_WORKSPACE, sl_scatters_bytes(s));
    if (!s->memory) return sl_fail(self, SL_FAILED, "no memory for %zu bytes of gradients", sl_scatters_bytes(s));
    /* Addresses are sent as integers: the members are in one process. */
    if (!s->reads) return SL_OK;
    s->peer = malloc((size_t)s->group.size * sizeof *s->peer);
    if (!s->peer) return sl_fail(self, SL_FAILED, "no memory for %d members' addresses", s->group.size);
    return sl_all_gather(self, &s->group, SL_I32, &s->memory, (void *)s->peer, sizeof s->memory / sizeof(int32_t));
}

static struct sl_scatter *number(struct sl_scatters *s, int n) { return &s->scatter[n % SL_SCATTERS]; }

/* Waits for peers that may still read this coordinate's gradients. If the run has ended, the barrier fails once they
 * have stopped. */
void sl_scatters_close(struct sl_scatters *s, struct sl_spmd *self) {
    for (int n = s->summed; n < s->started; n++) sl_wait(self, &number(s, n)->request);
    for (int n = s->freed; s->reads && n < s->summed; n++) sl_wait(self, &number(s, n)->read);
    if (s->reads && s->memory) sl_barrier(self, &s->group);
    if (s->group.size) sl_group_close(self, &s->group);
    if (s->readers.size) sl_group_close(self, &s->readers);
    sl_device.give(s->memory);
    free(s->peer);
    *s = (struct sl_scatters){0};
}

/* ---- sums ---- */

/* Adds this member's columns of all members' gradients. */
static void add_members(const struct sl_scatters *s, const struct sl_scatter *scatter) {
    const int members = s->group.size;
    const size_t columns = scatter->columns, stride = columns * (size_t)members;
    const float *x[members];
    for (int i = 0; i < members; i++) x[i] = s->peer[i] + scatter->at + columns * (size_t)s->group.rank;
    sl_add_rows(scatter->rows, columns, members, x, stride, scatter->accumulate, scatter->gradient, columns);
}

/* Memory for the sum of an accumulating gradient, unless peers' memory is read. */
static float *sum_of(const struct sl_scatters *s, const struct sl_scatter *scatter) {
    const size_t whole = scatter->rows * scatter->columns * (size_t)s->group.size;
    return s->memory + scatter->at + scatter->size - floats_of_shard(s, whole);
}

/* Finishes the oldest unfinished sum: all members have its gradient, or the call is done. */
static int finish_sum(struct sl_scatters *s, struct sl_spmd *self, const struct sl_kernels *kernels) {
    struct sl_scatter *scatter = number(s, s->summed++);
    if (s->reads) {
        SL_TRY(sl_peers_begin(self));
        add_members(s, scatter);
        sl_peers_end(self);
        return sl_barrier_start(self, &scatter->read, &s->readers);
    }
    if (scatter->accumulate) kernels->add(scatter->rows * scatter->columns, sum_of(s, scatter), scatter->gradient);
    return SL_OK;
}

static int wait_for_sum(struct sl_scatters *s, struct sl_spmd *self, const struct sl_kernels *kernels) {
    SL_TRY(sl_wait(self, &number(s, s->summed)->request));
    return finish_sum(s, self, kernels);
}

/* ---- rooms ---- */

static int free_oldest(struct sl_scatters *s, struct sl_spmd *self, const struct sl_kernels *kernels) {
    if (s->freed == s->summed) SL_TRY(wait_for_sum(s, self, kernels));
    if (s->reads) SL_TRY(sl_wait(self, &number(s, s->freed)->read));
    s->freed++;
    return SL_OK;
}

/* Returns whether floats [AT, AT + SIZE) of the ring belong to another gradient. */
static bool is_taken(struct sl_scatters *s, size_t at, size_t size) {
    for (int n = s->freed; n < s->started; n++) {
        const struct sl_scatter *scatter = number(s, n);
        if (at < scatter->at + scatter->size && scatter->at < at + size) return true;
    }
    return false;
}

/* Does all work possible without waiting. */
static int advance(struct sl_scatters *s, struct sl_spmd *self, const struct sl_kernels *kernels) {
    bool done = true;
    while (s->summed < s->started) {
        SL_TRY(sl_test(self, &number(s, s->summed)->request, &done));
        if (!done) break;
        SL_TRY(finish_sum(s, self, kernels));
    }
    while (s->freed < s->summed) {
        if (s->reads) SL_TRY(sl_test(self, &number(s, s->freed)->read, &done));
        if (s->reads && !done) break;
        s->freed++;
    }
    return SL_OK;
}

int sl_scatters_room(struct sl_scatters *s, struct sl_spmd *self, const struct sl_kernels *kernels, size_t floats,
                     float **whole) {
    const size_t size = room_for(s, floats), at = s->next + size <= s->capacity ? s->next : 0;
    SL_TRY(advance(s, self, kernels));
    while (s->started - s->freed == SL_SCATTERS || is_taken(s, at, size)) SL_TRY(free_oldest(s, self, kernels));
    number(s, s->started)->at = at;
    number(s, s->started)->size = size;
    s->next = at + size;
    *whole = s->memory + at;
    return SL_OK;
}

int sl_scatters_start(struct sl_scatters *s, struct sl_spmd *self, const struct sl_kernels *kernels, size_t rows,
                      size_t columns, bool accumulate, float *gradient) {
    struct sl_scatter *scatter = number(s, s->started);
    const size_t shape[] = {rows, columns};
    scatter->rows = rows;
    scatter->columns = columns / (size_t)s->group.size;
    scatter->accumulate = accumulate;
    scatter->gradient = gradient;
    SL_TRY(advance(s, self, kernels));
    const float *whole = s->memory + scatter->at;
    float *sum = accumulate && !s->reads ? sum_of(s, scatter) : gradient;
    if (s->reads)
        SL_TRY(sl_barrier_start(self, &scatter->request, &s->group));
    else if (s->tree)
        SL_TRY(sl_psum_scatter_tree_dim_start(self, &scatter->request, &s->group, SL_F32, whole, sum, 2, shape, 1));
    else
        SL_TRY(sl_psum_scatter_dim_start(self, &scatter->request, &s->group, SL_F32, whole, sum, 2, shape, 1));
    s->started++;
    return SL_OK;
}

int sl_scatters_end(struct sl_scatters *s, struct sl_spmd *self, const struct sl_kernels *kernels) {
    while (s->summed < s->started) SL_TRY(wait_for_sum(s, self, kernels));
    s->next = 0; /* each pass uses the same rooms: so steps can be graphs (spmd/device/cuda/tape.h) */
    const int whole_turns = s->freed / SL_SCATTERS * SL_SCATTERS; /* counts stay small */
    s->started -= whole_turns;
    s->summed -= whole_turns;
    s->freed -= whole_turns;
    return SL_OK;
}
