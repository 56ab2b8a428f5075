/* attention_forward_internal.h - forward of attention by tensor cores. */
#ifndef SL_LAYERS_KERNELS_ATTENTION_ATTENTION_FORWARD_INTERNAL_H
#define SL_LAYERS_KERNELS_ATTENTION_ATTENTION_FORWARD_INTERNAL_H

#include "layers/kernels/attention/attention_tiles_internal.h"

/* State of 16 queries: for each row a reference score (high) and the sum of 2^(score - high); each lane has its
 * columns' part of the sum. The reference is the largest score, or less than FAR below it: so rows are seldom rescaled.
 */
struct softmax {
    float high[LANES_HERE][2], sum[LANES_HERE][2];
};
static const float FAR = 8.0f; /* so weights are 256 at most */

/* Rescales sums and O to the reference NEXT, in rows with a higher reference. */
SL_INLINE void raise(float next[2][LANES_HERE], const int columns, struct softmax *to, struct sums *o) {
    SL_UNROLL
    for (int half = 0; half < 2; half++) {
        EACH_LANE(l) {
            const float by = rough_exp2(to->high[l][half] - next[half][l]);
            to->high[l][half] = next[half][l];
            to->sum[l][half] *= by;
            SL_UNROLL
            for (int n = 0; n < columns / 8; n++) {
                SL_UNROLL
                for (int i = 2 * half; i < 2 * half + 2; i++) o[n].x[l][i] *= by;
            }
        }
    }
}

/* Replaces scores, times FACTOR, by weights 2^(score - high). */
SL_INLINE void weigh(float factor, const int tiles, const int columns, struct sums *s, struct softmax *to,
                     struct sums *o) {
    float next[2][LANES_HERE];
    bool raised[LANES_HERE] = {false};
    SL_UNROLL
    for (int half = 0; half < 2; half++) {
        float high[LANES_HERE];
        EACH_LANE(l) {
            high[l] = -INFINITY;
            SL_UNROLL
            for (int n = 0; n < tiles; n++) {
                SL_UNROLL
                for (int i = 2 * half; i < 2 * half + 2; i++) high[l] = fmaxf(high[l], s[n].x[l][i]);
            }
        }
        largest_of_row(high);
        EACH_LANE(l) {
            const float old = to->high[l][half], own = high[l] * factor;
            const bool far = own > old + FAR;
            next[half][l] = far ? own : old;
            raised[l] |= far;
        }
    }
    if (any_of_warp(raised)) raise(next, columns, to, o);
    SL_UNROLL
    for (int half = 0; half < 2; half++) {
        EACH_LANE(l) {
            SL_UNROLL
            for (int n = 0; n < tiles; n++) {
                SL_UNROLL
                for (int i = 2 * half; i < 2 * half + 2; i++) {
                    s[n].x[l][i] = rough_exp2(s[n].x[l][i] * factor - to->high[l][half]);
                    to->sum[l][half] += s[n].x[l][i];
                }
            }
        }
    }
}

/* State of a warp: its queries, and their weighted sums of values, in tiles of 16 queries. */
struct forward_warp {
    struct sums o[DEEP][ACROSS];
    struct softmax sums[DEEP];
    struct operand q[DEEP][ACROSS / 2];
    struct view view;
};

/* Writes the results of a tile after its last key. */
SL_INLINE void write_forward(const struct block *b, size_t width, const int columns, size_t row,
                             const struct softmax *sums, struct sums *own, struct sl_out o, size_t at, float *logsum) {
    const size_t count = b->count > row ? b->count - row : 0;
    SL_UNROLL
    for (int half = 0; half < 2; half++) {
        float sum[LANES_HERE];
        EACH_LANE(l) sum[l] = sums->sum[l][half];
        sum_of_row(sum);
        EACH_LANE(l) {
            const size_t query = row_of_sum(l, 2 * half) + nothing();
            const float whole = 1.0f / sum[l];
            if (query < count && lane_of(l) % 4 == 0)
                logsum[row + query] = sums->high[l][half] * log_2 + sl_log(sum[l]);
            SL_UNROLL
            for (int n = 0; n < columns / 8; n++) {
                SL_UNROLL
                for (int i = 2 * half; i < 2 * half + 2; i++) own[n].x[l][i] *= whole;
            }
        }
    }
    write_tiles(own, 0, width, columns / 8, count, o, at + row * b->head.q.stride, b->head.q.stride);
}

/* Initializes a warp, whose queries, in Q, are the block's from ROW on. */
SL_INLINE void begin_forward(const struct block *b, const int columns, const bool whole, const int down,
                             const uint16_t *q, size_t row, struct forward_warp *own) {
    SL_UNROLL
    for (int d = 0; d < down; d++) {
        read_rows(q + (row + 16 * (size_t)d) * SL_PITCH(columns), depth_of(&b->head, columns, whole), columns,
                  own->q[d]);
        clear_tiles(columns / 8, own->o[d]);
        EACH_LANE(l) {
            SL_UNROLL
            for (int i = 0; i < 2; i++) {
                own->sums[d].high[l][i] = LOWEST;
                own->sums[d].sum[l][i] = 0.0f;
            }
        }
    }
    own->view = down > 1 ? view_of(b, row, 16 * (size_t)down) : view_of(b, 0, b->count);
}

/* Writes O [rows, heads * width] and LOGSUM [rows] of the block's head; each warp has DOWN tiles of 16 rows. ROOM: for
 * two blocks, shared by the team; the next one is copied while one is used. Queries pass through it, and stay in
 * registers. */
SL_INLINE void forward_block(const struct block *b, const int columns, const bool whole, const int down, uint16_t *room,
                             struct sl_out o, size_t at, float *logsum) {
    const int keys = SL_NEAR(columns, KEYS_64, KEYS_128), pitch = SL_PITCH(columns), each = 2 * keys * pitch;
    const uint32_t rows = 16 * (uint32_t)down;
    const struct head *h = &b->head;
    const size_t width = width_of(h, columns, whole), depth = depth_of(h, columns, whole), last = b->first + b->count;
    const uint32_t end = (uint32_t)smaller(h->past.position + last, h->keys);
    const struct sums none = {0};
    const struct source q = source_of(h->q, h->q_rope);
    const struct key_source flow = keys_of(h);
    struct forward_warp own[WARPS_HERE];
    bring(&q, (uint32_t)b->first, (uint32_t)b->count, rows * WARPS, columns, whole, room);
    wait_for_copies();
    wait_for_team();
    EACH_WARP(w) begin_forward(b, columns, whole, down, room, rows * (uint32_t)warp_of(w), &own[w]);
    uint32_t from = (uint32_t)first_block(&h->past, b->first, (size_t)keys), next;
    int now, later = 0; /* positions of blocks in the room */
    wait_for_team();
    if (from < end) bring_keys(&flow, from, end, (uint32_t)keys, columns, whole, room);
    for (; from < end; from = next) {
        now = later, later = each - now, next = from + (uint32_t)keys;
        wait_for_copies();
        wait_for_team(); /* the block has arrived, and all warps have read the previous one */
        if (next < end) bring_keys(&flow, next, end, (uint32_t)keys, columns, whole, room + later);
        const uint16_t *k = room + now, *v = k + keys * pitch;
        EACH_WARP(w) {
            struct sums s[DEEP * KEYS_64 / 8];
            if (down > 1 && from >= own[w].view.end) continue;
            multiply_rows(own[w].q, NULL, k, depth, columns, down, keys / 8, &none, 0, 0, s);
            SL_UNROLL
            for (int d = 0; d < down; d++) {
                struct sums *part = s + d * (keys / 8);
                if (!sees_all(&own[w].view.clear, from, next))
                    hide_keys(h, b->first + rows * (uint32_t)warp_of(w) + 16 * (size_t)d, last, from, keys / 8,
                              -INFINITY, part);
                weigh(h->scale * per_log_2, keys / 8, columns, part, &own[w].sums[d], own[w].o[d]);
            }
            add_weighted(s, down, keys / 8, v, width, columns, own[w].o);
        }
    }
    EACH_WARP(w) {
        SL_UNROLL
        for (int d = 0; d < down; d++)
            write_forward(b, width, columns, rows * (uint32_t)warp_of(w) + 16 * (size_t)d, &own[w].sums[d], own[w].o[d],
                          o, at, logsum);
    }
}

#endif
