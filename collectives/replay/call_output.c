/* call_output.c - the output of a call as contiguous bytes. */
#include "collectives/replay/call_output_internal.h"

#include <string.h>

/* Blocks in the output. */
static size_t blocks(const struct sl_collective *call) {
    if (!sl_call_writes(call)) return 0;
    return sl_operation_of(call)->joins ? (size_t)call->group->size : 1;
}

size_t sl_result_bytes(const struct sl_collective *call) { return blocks(call) * sl_block_bytes(call); }

/* Copies run by run; READS: from the output to PACKED, otherwise back. */
static void move(const struct sl_collective *call, char *packed, bool reads) {
    const size_t size = sl_dtype_size(call->dtype), *count = call->count;
    const struct sl_view *view = &call->output_view;
    const bool solid = sl_block_is_solid(call, view);
    const size_t rows = solid ? 1 : count[0], runs = solid ? 1 : count[1];
    const size_t bytes = (solid ? sl_block_elements(call) : count[2]) * size;
    for (size_t b = 0; bytes && b < blocks(call); b++)
        for (size_t row = 0; row < rows; row++)
            for (size_t run = 0; run < runs; run++, packed += bytes) {
                char *at =
                    (char *)call->output + size * (b * view->peer + row * view->stride[0] + run * view->stride[1]);
                if (reads)
                    memcpy(packed, at, bytes);
                else
                    memcpy(at, packed, bytes);
            }
}

void sl_result_read(const struct sl_collective *call, void *to) { move(call, to, true); }
void sl_result_write(const struct sl_collective *call, const void *from) { move(call, (char *)from, false); }
