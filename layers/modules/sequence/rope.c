/* rope.c - computes tables of rotary positions, in double on the host. */
#include "layers/modules/sequence/rope.h"

#include <math.h>
#include <stdlib.h>

#include "spmd/device/device.h"

/* Llama 3's rates: slow rotations become slower, and rates between slow and fast change gradually. */
static double stretched(const struct sl_rotary *angles, double rate) {
    const double waves = angles->original * rate / (2 * 3.14159265358979323846);
    if (angles->factor == 0.0 || waves > angles->high) return rate;
    if (waves < angles->low) return rate / angles->factor;
    const double smooth = (waves - angles->low) / (angles->high - angles->low);
    return (1 - smooth) * rate / angles->factor + smooth * rate;
}

/* Divisor from the configured list. */
static double given(const struct sl_rotary *angles, int pair) { return angles->divisors ? angles->divisors[pair] : 1; }

double sl_rotary_divisor(const struct sl_rotary *angles, int pair, int width) {
    const double rate = pow(angles->base, -2.0 * pair / width);
    return rate / stretched(angles, rate) * given(angles, pair);
}

static void fill(const struct sl_rope *rope, float *cosine, float *sine) {
    const struct sl_rotary *angles = &rope->angles;
    const double base = angles->base > 0 ? angles->base : 10000.0;
    const double amplitude = angles->amplitude > 0 ? angles->amplitude : 1;
    const int begin = angles->base > 0 ? 0 : 1;
    for (int i = 0; i < rope->pairs; i++) {
        const double rate =
            stretched(angles, pow(base, -2.0 * (rope->first + i) / rope->columns)) / given(angles, rope->first + i);
        for (int t = 0; t < rope->positions; t++) {
            const size_t at = (size_t)t * (size_t)rope->pairs + (size_t)i;
            cosine[at] = (float)(amplitude * cos((t + begin) * rate));
            sine[at] = (float)(amplitude * sin((t + begin) * rate));
        }
    }
}

static bool same_angles(const struct sl_rotary *a, const struct sl_rotary *b) {
    return a->base == b->base && a->factor == b->factor && a->low == b->low && a->high == b->high &&
           a->original == b->original && a->divisors == b->divisors && a->amplitude == b->amplitude;
}

static bool is_table(const struct sl_rope *rope, const struct sl_rope *like, bool sizes_only) {
    return rope && rope->positions == like->positions && rope->columns == like->columns && rope->first == like->first &&
           rope->pairs == like->pairs && same_angles(&rope->angles, &like->angles) && (rope->cosine || sizes_only);
}

static size_t count_of(const struct sl_rope *rope) { return (size_t)rope->positions * (size_t)rope->pairs; }

size_t sl_rope_bytes(const struct sl_rope *list) {
    size_t bytes = 0;
    for (; list; list = list->next) bytes += 2 * count_of(list) * sizeof(float);
    return bytes;
}

static bool take(struct sl_rope *rope, struct sl_budget *held) {
    const size_t count = count_of(rope), bytes = 2 * count * sizeof(float);
    float *host = malloc(bytes);
    rope->cosine = sl_device_take(held, SL_MEMORY_RUNTIME, bytes);
    if (host && rope->cosine) {
        rope->sine = rope->cosine + count;
        fill(rope, host, host + count);
        sl_device.copy(rope->cosine, host, bytes);
        sl_device.settle(NULL); /* the copy may still be reading */
    }
    free(host);
    return rope->sine;
}

int sl_rope_share(struct sl_rope **list, const struct sl_rope *like, bool sizes_only, struct sl_budget *held,
                  struct sl_rope **rope, struct sl_error *error) {
    if (is_table(*rope, like, sizes_only)) return SL_OK;
    sl_rope_release(*rope);
    *rope = *list;
    while (*rope && !is_table(*rope, like, sizes_only)) *rope = (*rope)->next;
    if (!*rope) {
        struct sl_rope *new = calloc(1, sizeof *new);
        if (new)
            *new = (struct sl_rope){.positions = like->positions,
                                    .columns = like->columns,
                                    .first = like->first,
                                    .pairs = like->pairs,
                                    .angles = like->angles};
        if (!new || (!sizes_only && !take(new, held))) {
            sl_rope_release(new);
            return sl_error_set(error, SL_FAILED, "no memory for the angles of %d positions", like->positions);
        }
        new->next = *list;
        *rope = *list = new;
    }
    (*rope)->users++;
    return SL_OK;
}

void sl_rope_release(struct sl_rope *rope) {
    if (!rope || --rope->users > 0) return;
    sl_device.give(rope->cosine);
    free(rope);
}
