/* rope.c - makes tables of rotary positions, in double on the host. */
#include "layers/modules/sequence/rope.h"

#include <math.h>
#include <stdlib.h>

#include "spmd/device/device.h"

static void fill(const struct sl_rope *rope, float *cosine, float *sine) {
    for (int i = 0; i < rope->pairs; i++) {
        const double rate = pow(10000.0, -2.0 * (rope->first + i) / rope->columns);
        for (int t = 0; t < rope->positions; t++) {
            const size_t at = (size_t)t * (size_t)rope->pairs + (size_t)i;
            cosine[at] = (float)cos((t + 1) * rate);
            sine[at] = (float)sin((t + 1) * rate);
        }
    }
}

int sl_rope_open(struct sl_rope *rope, int positions, int columns, int first, int pairs, struct sl_error *error) {
    const size_t count = (size_t)positions * (size_t)pairs;
    if (rope->cosine && rope->positions == positions && rope->columns == columns && rope->first == first &&
        rope->pairs == pairs)
        return SL_OK;
    sl_rope_close(rope);
    *rope = (struct sl_rope){.positions = positions, .columns = columns, .first = first, .pairs = pairs};
    float *host = malloc(2 * count * sizeof *host);
    rope->cosine = sl_device.take(2 * count * sizeof *host);
    if (!host || !rope->cosine) {
        free(host);
        sl_rope_close(rope);
        return sl_error_set(error, SL_FAILED, "no memory for the angles of %d positions", positions);
    }
    rope->sine = rope->cosine + count;
    fill(rope, host, host + count);
    sl_device.copy(rope->cosine, host, 2 * count * sizeof *host);
    sl_device.settle(NULL); /* the copy may still be reading */
    free(host);
    return SL_OK;
}

void sl_rope_close(struct sl_rope *rope) {
    sl_device.give(rope->cosine);
    *rope = (struct sl_rope){0};
}
