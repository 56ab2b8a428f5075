/* scatters.c - see scatters.h. */
#include "layers/modules/parameters/scatters.h"

#include "collectives/sums.h"
#include "spmd/base/memory.h"
#include "spmd/device/device.h"

enum { LINE = SL_CACHE_LINE / sizeof(float) };

/* ---- planning, opening and closing ---- */

int sl_scatters_plan(struct sl_scatters *s, struct sl_spmd *self, const char *axis) {
    *s = (struct sl_scatters){.reads = sl_reads_peers(self) && sl_device.shares_memory};
    return sl_group_axes(self, axis, &s->group);
}

void sl_scatters_add(struct sl_scatters *s, size_t whole) {
    const size_t shard = whole / (size_t)s->group.size;
    if (sl_round_up(whole, LINE) > s->whole) s->whole = sl_round_up(whole, LINE);
    if (!s->reads && sl_round_up(shard, LINE) > s->shard) s->shard = sl_round_up(shard, LINE);
}

size_t sl_scatters_bytes(const struct sl_scatters *s) { return SL_SCATTERS * (s->whole + s->shard) * sizeof(float); }

int sl_scatters_open(struct sl_scatters *s, struct sl_spmd *self, struct sl_budget *held) {
    if (!s->whole) return SL_OK;
    s->memory = sl_device_take(held, SL_MEMORY_WORKSPACE, sl_scatters_bytes(s));
    if (!s->memory) return sl_fail(self, SL_FAILED, "no memory for %zu bytes of gradients", sl_scatters_bytes(s));
    for (int i = 0; i < SL_SCATTERS; i++) {
        s->scatter[i].whole = s->memory + (size_t)i * (s->whole + s->shard);
        s->scatter[i].sum = s->scatter[i].whole + s->whole;
    }
    /* Addresses travel as integers: the members are of one process. */
    if (!s->reads) return SL_OK;
    return sl_all_gather(self, &s->group, SL_I32, &s->memory, (void *)s->peer, sizeof s->memory / sizeof(int32_t));
}

static struct sl_scatter *after(struct sl_scatters *s, int i) { return &s->scatter[(s->next + i) % SL_SCATTERS]; }

/* Peers may still read this coordinate's gradients. If the run has ended, the barrier fails when they do not. */
void sl_scatters_close(struct sl_scatters *s, struct sl_spmd *self) {
    for (int i = 0; i < SL_SCATTERS; i++)
        if (after(s, i)->under_way) sl_wait(self, &after(s, i)->request);
    if (s->reads && s->memory) sl_barrier(self, &s->group);
    if (s->group.size) sl_group_close(self, &s->group);
    sl_device.give(s->memory);
    *s = (struct sl_scatters){0};
}

/* ---- sums ---- */

/* This member's columns of all members' gradients. */
static void add_members(const struct sl_scatters *s, const struct sl_scatter *scatter) {
    const int members = s->group.size;
    const size_t columns = scatter->columns, stride = columns * (size_t)members;
    const float *x[SL_MAX_COORDINATES];
    for (int i = 0; i < members; i++)
        x[i] = s->peer[i] + (scatter->whole - s->memory) + columns * (size_t)s->group.rank;
    sl_add_rows(scatter->rows, columns, members, x, stride, scatter->accumulate, scatter->gradient, columns);
}

static int finish(struct sl_scatters *s, struct sl_scatter *scatter, struct sl_spmd *self,
                  const struct sl_kernels *kernels) {
    scatter->under_way = false;
    if (s->reads) {
        SL_TRY(sl_peers_begin(self));
        add_members(s, scatter);
        sl_peers_end(self);
    } else if (scatter->accumulate) {
        kernels->add(scatter->rows * scatter->columns, scatter->sum, scatter->gradient);
    }
    return SL_OK;
}

static int wait_for(struct sl_scatters *s, struct sl_scatter *scatter, struct sl_spmd *self,
                    const struct sl_kernels *kernels) {
    if (!scatter->under_way) return SL_OK;
    SL_TRY(sl_wait(self, &scatter->request));
    return finish(s, scatter, self, kernels);
}

int sl_scatters_room(struct sl_scatters *s, struct sl_spmd *self, const struct sl_kernels *kernels, float **whole) {
    struct sl_scatter *scatter = after(s, 0);
    *whole = scatter->whole;
    return wait_for(s, scatter, self, kernels);
}

/* The gradient before has had the time of a product to be there at all members. */
static int advance(struct sl_scatters *s, struct sl_spmd *self, const struct sl_kernels *kernels) {
    struct sl_scatter *before = after(s, SL_SCATTERS - 1);
    if (s->reads) return wait_for(s, before, self, kernels);
    bool done = false;
    for (int i = 1; i < SL_SCATTERS; i++) {
        if (!after(s, i)->under_way) continue;
        SL_TRY(sl_test(self, &after(s, i)->request, &done));
        if (!done) break;
        SL_TRY(finish(s, after(s, i), self, kernels));
    }
    return SL_OK;
}

int sl_scatters_start(struct sl_scatters *s, struct sl_spmd *self, const struct sl_kernels *kernels, size_t rows,
                      size_t columns, bool accumulate, float *gradient) {
    struct sl_scatter *scatter = after(s, 0);
    const size_t shape[] = {rows, columns};
    scatter->rows = rows;
    scatter->columns = columns / (size_t)s->group.size;
    scatter->accumulate = accumulate;
    scatter->gradient = gradient;
    SL_TRY(advance(s, self, kernels));
    if (s->reads)
        SL_TRY(sl_barrier_start(self, &scatter->request, &s->group));
    else
        SL_TRY(sl_start(self, &scatter->request, SL_HERE,
                        sl_describe_psum_scatter_dim(&s->group, SL_F32, scatter->whole,
                                                     accumulate ? scatter->sum : gradient, 2, shape, 1)));
    scatter->under_way = true;
    s->next = (s->next + 1) % SL_SCATTERS;
    return SL_OK;
}

int sl_scatters_end(struct sl_scatters *s, struct sl_spmd *self, const struct sl_kernels *kernels) {
    for (int i = 0; i < SL_SCATTERS; i++) SL_TRY(wait_for(s, after(s, i), self, kernels));
    return SL_OK;
}
