/* move.c - a member's share of the data movement of a call on the local engine, directly between the members' buffers.
 */
#include "collectives/sums/copies.h"
#include "collectives/local/communicator_internal.h"
#include "collectives/operations.h"
#include "collectives/sums/reduce.h"
#include "collectives/sums/sums.h"
#include "spmd/device/device.h"

enum { AT_ONCE = 16 }; /* runs */

/* Beginning of the block for PEER in a caller's input, and of the block from PEER in its output. */
static const char *input_block(const struct sl_collective *call, int peer) {
    return (const char *)call->input + sl_dtype_size(call->dtype) * (size_t)peer * call->input_view.peer;
}
static char *output_block(const struct sl_collective *call, int peer) {
    return (char *)call->output + sl_dtype_size(call->dtype) * (size_t)peer * call->output_view.peer;
}

/* Bytes from the beginning of a block to its run (ROW, COLUMN). */
static size_t run_offset(const struct sl_collective *call, const struct sl_view *view, size_t row, size_t column) {
    return sl_dtype_size(call->dtype) * (row * view->stride[0] + column * view->stride[1]);
}

/* Copies from IN[i], the block of the I-th of COUNT members for this one, to OUT[i], a few runs at a time, to write
 * adjacent parts of the output together. */
static void copy_blocks(const struct sl_collective *mine, const struct sl_view *view, int count, const char *const *in,
                        char *const *out) {
    const struct sl_view *to = &mine->output_view;
    const size_t size = sl_dtype_size(mine->dtype), bytes = size * mine->count[2], columns = mine->count[1];
    if (sl_device.reaches(out[0]) || sl_device.reaches(in[0])) {
        const struct sl_matrices matrices = sl_block_matrices(mine, view, to);
        const bool apart = count > 1 && sl_device.reaches(out[0]) && sl_device.reaches(in[0]);
        for (int i = 0, n; i < count; i += n) {
            n = !apart ? 1 : count - i < SL_COLLECTED ? count - i : SL_COLLECTED;
            if (apart)
                sl_collect_on_device(&matrices, size, n, out + i, in + i);
            else
                sl_copy_matrices(&matrices, size, out[i], in[i]);
        }
        return;
    }
    for (size_t row = 0; row < mine->count[0]; row++) {
        for (size_t column = 0; column < columns; column += AT_ONCE) {
            const size_t runs = columns - column < AT_ONCE ? columns - column : AT_ONCE;
            const size_t from_at = run_offset(mine, view, row, column), to_at = run_offset(mine, to, row, column);
            for (int i = 0; i < count; i++)
                sl_copy_rows(runs, bytes, out[i] + to_at, size * to->stride[1], in[i] + from_at,
                             size * view->stride[1]);
        }
    }
}

/* Copies the blocks from all sources. If there are several, begins with the caller's own, so that members do not all
 * read from the same source. */
static void collect(const struct sl_collective *mine, const struct member *member, uint32_t slot,
                    struct sl_traffic *sent) {
    const struct sl_positions from = sl_call_sources(mine);
    const int count = from.end - from.begin, offset = count > 1 ? mine->group->rank : 0;
    const char *in[count + 1];
    char *out[count + 1];
    int moved = 0;
    for (int i = 0; i < count; i++) {
        const int source = from.begin + (i + offset) % count;
        in[moved] = input_block(&member[source].call[slot], mine->group->rank);
        out[moved] = output_block(mine, source);
        moved += in[moved] != out[moved]; /* otherwise it is in place */
        if (source != mine->group->rank) sl_local_count(sent, 1, sl_block_bytes(mine));
    }
    if (moved) copy_blocks(mine, &member[from.begin].call[slot].input_view, moved, in, out);
    if (!count && sl_operation_of(mine)->zeros) sl_device.zero(mine->output, sl_block_bytes(mine));
}

static void combine(const struct sl_collective *mine, const struct sl_matrices *matrices, const void *const *input,
                    int outputs, void *const *output) {
    (sl_device.reaches(output[0]) ? sl_reduce_on_device
                                  : sl_reduce_matrices)(sl_operation_of(mine)->reduction, mine->dtype, mine->scale,
                                                        matrices, mine->group->size, input, outputs, output);
}

/* Reduces the caller's share of the elements, from all inputs to all outputs. Shares begin at cache lines. */
static void reduce(const struct sl_collective *mine, const struct member *member, uint32_t slot,
                   struct sl_traffic *sent) {
    const int size = mine->group->size;
    const size_t element = sl_dtype_size(mine->dtype), line = SL_CACHE_LINE / element, total = mine->count[2];
    const size_t lines = (total + line - 1) / line, members = (size_t)size;
    const size_t share = (lines + members - 1) / members * line, begin = share * (size_t)mine->group->rank;
    if (begin >= total) return;
    const void *input[size];
    void *output[size];
    for (int i = 0; i < size; i++) {
        input[i] = (const char *)member[i].call[slot].input + begin * element;
        output[i] = (char *)member[i].call[slot].output + begin * element;
    }
    const struct sl_matrices array = sl_one_array(share < total - begin ? share : total - begin);
    combine(mine, &array, input, size, output);
    sl_local_count(sent, 2 * (members - 1), array.columns * element);
}

/* Reduces the caller's own block, for floats in member order: adds rows without a function call per row. */
static void add_floats(const struct sl_collective *mine, const struct member *member, uint32_t slot) {
    const struct sl_view *to = &mine->output_view, *from = &member[mine->group->rank].call[slot].input_view;
    for (size_t column = 0; column < mine->count[1]; column++) {
        const float *input[mine->group->size];
        for (int i = 0; i < mine->group->size; i++)
            input[i] = (const float *)input_block(&member[i].call[slot], mine->group->rank) + column * from->stride[1];
        sl_add_rows(mine->count[0], mine->count[2], mine->group->size, input, from->stride[0], false,
                    (float *)mine->output + column * to->stride[1], to->stride[0]);
    }
}

/* Reduces the caller's own block, from all inputs. */
static void reduce_scatter(const struct sl_collective *mine, const struct member *member, uint32_t slot) {
    const int size = mine->group->size;
    const bool in_order = sl_operation_of(mine)->reduction == SL_SUM;
    if (in_order && mine->dtype == SL_F32 && mine->scale == 1 && !sl_device.reaches(mine->output))
        return add_floats(mine, member, slot);
    const struct sl_matrices matrices =
        sl_block_matrices(mine, &member[mine->group->rank].call[slot].input_view, &mine->output_view);
    const void *input[size];
    for (int i = 0; i < size; i++) input[i] = input_block(&member[i].call[slot], mine->group->rank);
    combine(mine, &matrices, input, 1, &mine->output);
}

void sl_local_move(const struct sl_collective *mine, const struct member *member, uint32_t slot,
                   struct sl_traffic *sent) {
    const struct sl_operation_row *operation = sl_operation_of(mine);
    if (!sl_block_elements(mine)) return; /* pointers may be NULL then */
    if (operation->reduction == SL_NO_REDUCTION) {
        collect(mine, member, slot, sent);
    } else if (operation->cuts) {
        reduce_scatter(mine, member, slot);
        sl_local_count(sent, (size_t)mine->group->size - 1, sl_block_bytes(mine));
    } else {
        reduce(mine, member, slot, sent);
    }
}

void sl_local_sum(const struct sl_collective *call, const struct member *member, uint32_t slot, void *sum) {
    const int size = call->group->size;
    const struct sl_matrices array = sl_one_array(call->count[2]);
    const void *input[size];
    for (int i = 0; i < size; i++) input[i] = member[i].call[slot].input;
    combine(call, &array, input, 1, &sum);
}

void sl_local_gather(const struct sl_collective *call, const char *const *input) {
    char *out[call->group->size];
    for (int i = 0; i < call->group->size; i++) out[i] = output_block(call, i);
    copy_blocks(call, &call->input_view, call->group->size, input, out);
}
