/* quantized.h - GGML's types with elements quantized in blocks, each with a scale, and some with a minimum. */
#ifndef SL_LAYERS_FORMATS_QUANTIZED_QUANTIZED_H
#define SL_LAYERS_FORMATS_QUANTIZED_QUANTIZED_H

#include "spmd/base/base.h"

SL_BEGIN_C

enum { SL_LARGEST_BLOCK = 256 }; /* elements */

struct sl_quantized {
    const char *name;       /* "Q6_K" */
    uint32_t number;        /* GGML's */
    size_t elements, bytes; /* of a block */
    /* Reads the block at AT, at any address, into TO [elements]. */
    void (*read)(const uint8_t *at, float *to);
};

/* List of all types; an entry without a name follows the last. */
extern const struct sl_quantized sl_quantized_types[];

/* Reads elements from FIRST on into TO [count], from consecutive blocks at AT. */
void sl_quantized_read(const struct sl_quantized *type, const uint8_t *at, size_t first, size_t count, float *to);

SL_END_C
#endif
