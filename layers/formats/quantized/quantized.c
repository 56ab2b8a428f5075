/* quantized.c - reads blocks of quantized elements. Source: GGML's layout (ggml-common.h, ggml-quants.c), with its
 * names: d is a block's scale, m or dmin its minimum; blocks of 256 elements have a scale for each 16 or 32. The host
 * is little-endian, as the formats are. */
#include "layers/formats/quantized/quantized.h"

#include <string.h>

#include "spmd/base/numbers/f16.h"

static float half_at(const uint8_t *at) {
    uint16_t half;
    memcpy(&half, at, sizeof half);
    return sl_float_of_f16(half);
}

/* ---- 32 elements ---- */

enum { BLOCK = 32 };

/* Reads pairs of elements, I and I + 16: their low four bits share a byte of LOW; their fifth bits are in HIGH (NULL:
 * there are none). Their least value is -BASE. */
static void read_pairs(const uint8_t *low, const uint8_t *high, int base, float scale, float least, float *to) {
    uint32_t bits = 0;
    if (high) memcpy(&bits, high, sizeof bits);
    for (int i = 0; i < BLOCK / 2; i++) {
        const int first = (low[i] & 15) | (int)(bits >> i & 1) << 4;
        const int second = low[i] >> 4 | (int)(bits >> (i + BLOCK / 2) & 1) << 4;
        to[i] = (float)(first - base) * scale + least;
        to[i + BLOCK / 2] = (float)(second - base) * scale + least;
    }
}

static void read_q4_0(const uint8_t *at, float *to) { read_pairs(at + 2, NULL, 8, half_at(at), 0, to); }
static void read_q4_1(const uint8_t *at, float *to) { read_pairs(at + 4, NULL, 0, half_at(at), half_at(at + 2), to); }
static void read_q5_0(const uint8_t *at, float *to) { read_pairs(at + 6, at + 2, 16, half_at(at), 0, to); }
static void read_q5_1(const uint8_t *at, float *to) { read_pairs(at + 8, at + 4, 0, half_at(at), half_at(at + 2), to); }

static void read_q8_0(const uint8_t *at, float *to) {
    const float scale = half_at(at);
    for (int i = 0; i < BLOCK; i++) to[i] = (float)(int8_t)at[2 + i] * scale;
}

/* ---- 256 elements ---- */

/* Q2_K: each 16 elements have four bits of scale and four of minimum; each element has two bits, and four elements, 32
 * apart, share a byte. */
static void read_q2_k(const uint8_t *at, float *to) {
    const uint8_t *scales = at, *pairs = at + 16;
    const float d = half_at(at + 80), least = half_at(at + 82);
    for (int i = 0; i < SL_LARGEST_BLOCK; i++) {
        const int part = i / 128, turn = i % 128 / 32, scale = scales[i / 16];
        const int value = pairs[32 * part + i % 32] >> 2 * turn & 3;
        to[i] = d * (float)(scale & 15) * (float)value - least * (float)(scale >> 4);
    }
}

/* Q3_K: as Q2_K, with a third bit per element, and scales of six bits: first the lower four bits of all, then the upper
 * two. */
static void read_q3_k(const uint8_t *at, float *to) {
    const uint8_t *third = at, *pairs = at + 32, *scales = at + 96;
    const float d = half_at(at + 108);
    for (int i = 0; i < SL_LARGEST_BLOCK; i++) {
        const int part = i / 128, turn = i % 128 / 32, group = i / 16;
        const int low = group < 8 ? scales[group] & 15 : scales[group - 8] >> 4;
        const int scale = (low | (scales[8 + group % 4] >> 2 * (group / 4) & 3) << 4) - 32;
        const int value =
            (pairs[32 * part + i % 32] >> 2 * turn & 3) - (third[i % 32] >> (4 * part + turn) & 1 ? 0 : 4);
        to[i] = d * (float)scale * (float)value;
    }
}

/* Scale and minimum, six bits each, of group GROUP of 32 elements. Upper bits of the last four groups are in the bytes
 * of the first four, which use six of the eight bits. */
static void read_scale(const uint8_t *packed, int group, int *scale, int *least) {
    if (group < 4) {
        *scale = packed[group] & 63;
        *least = packed[group + 4] & 63;
        return;
    }
    *scale = (packed[group + 4] & 15) | packed[group - 4] >> 6 << 4;
    *least = packed[group + 4] >> 4 | packed[group] >> 6 << 4;
}

/* FIFTH: bytes with the fifth bits of elements 32 apart; NULL: there are none. */
static void read_groups(const uint8_t *at, const uint8_t *fifth, const uint8_t *low, float *to) {
    const float d = half_at(at), dmin = half_at(at + 2);
    for (int group = 0; group < SL_LARGEST_BLOCK / 32; group++) {
        int scale, least;
        read_scale(at + 4, group, &scale, &least);
        const float by = d * (float)scale, less = dmin * (float)least;
        for (int i = 0; i < 32; i++) {
            const int value = low[32 * (group / 2) + i] >> 4 * (group % 2) & 15;
            const int more = fifth ? (fifth[i] >> group & 1) << 4 : 0;
            to[32 * group + i] = by * (float)(value | more) - less;
        }
    }
}

static void read_q4_k(const uint8_t *at, float *to) { read_groups(at, NULL, at + 16, to); }
static void read_q5_k(const uint8_t *at, float *to) { read_groups(at, at + 16, at + 48, to); }

/* Q6_K: the low four bits of elements 64 apart share a byte, and so do the upper two of elements 32 apart. */
static void read_q6_k(const uint8_t *at, float *to) {
    const float d = half_at(at + 208);
    for (int i = 0; i < SL_LARGEST_BLOCK; i++) {
        const int part = i / 128, turn = i % 128 / 32;
        const int low = at[64 * part + i % 64] >> 4 * (turn / 2) & 15;
        const int high = at[128 + 32 * part + i % 32] >> 2 * turn & 3;
        to[i] = d * (float)(int8_t)at[192 + i / 16] * (float)((low | high << 4) - 32);
    }
}

const struct sl_quantized sl_quantized_types[] = {
    {"Q8_0", 8, BLOCK, 34, read_q8_0},
    {"Q4_0", 2, BLOCK, 18, read_q4_0},
    {"Q4_1", 3, BLOCK, 20, read_q4_1},
    {"Q5_0", 6, BLOCK, 22, read_q5_0},
    {"Q5_1", 7, BLOCK, 24, read_q5_1},
    {"Q2_K", 10, SL_LARGEST_BLOCK, 84, read_q2_k},
    {"Q3_K", 11, SL_LARGEST_BLOCK, 110, read_q3_k},
    {"Q4_K", 12, SL_LARGEST_BLOCK, 144, read_q4_k},
    {"Q5_K", 13, SL_LARGEST_BLOCK, 176, read_q5_k},
    {"Q6_K", 14, SL_LARGEST_BLOCK, 210, read_q6_k},
    {0},
};

void sl_quantized_read(const struct sl_quantized *type, const uint8_t *at, size_t first, size_t count, float *to) {
    for (size_t i = first, end = first + count, some; i < end; i += some, to += some) {
        float block[SL_LARGEST_BLOCK];
        const size_t skipped = i % type->elements;
        const uint8_t *from = at + i / type->elements * type->bytes;
        some = type->elements - skipped < end - i ? type->elements - skipped : end - i;
        if (some == type->elements) {
            type->read(from, to);
            continue;
        }
        type->read(from, block);
        memcpy(to, block + skipped, some * sizeof *to);
    }
}
