/* context_moves.c - moves rows of divided sequences between coordinates, and puts them in order. */
#include "layers/modules/sequence/context_internal.h"
#include "spmd/device/device.h"

void sl_context_order(const struct sl_context *context, size_t bytes, bool back, char *moved, char *whole) {
    const int parts = context->cut.parts,
              sequences = sl_context_sequences(context->cut, context->rows, context->sequence);
    const size_t block = (size_t)(context->rows / sequences) / 2 * bytes;
    for (int part = 0; part < parts; part++) {
        for (int i = 0; i < 2 * sequences; i++, moved += block) {
            const int number = sl_cut_block((struct sl_cut){.parts = parts, .part = part}, i % 2);
            char *const place = whole + (size_t)(i / 2 * 2 * parts + number) * block;
            sl_device.copy(back ? moved : place, back ? place : moved, block);
        }
    }
}

int sl_context_gather(struct sl_context *context, const struct sl_context_keys *keys, int i, enum sl_dtype dtype,
                      const void *own) {
    const struct sl_group *peers = sl_group_of(context, keys->group);
    void *const moved = sl_at(context, &keys->moved);
    const size_t count = (size_t)context->rows * keys->columns[i];
    if (!count) return SL_OK;
    if (!peers) return sl_device.copy(sl_at(context, &keys->whole[i]), own, count * sl_dtype_size(dtype)), SL_OK;
    SL_TRY(sl_communicate(context, sl_describe_all_gather(peers, dtype, own, moved, count)));
    sl_context_order(context, keys->columns[i] * sl_dtype_size(dtype), false, moved, sl_at(context, &keys->whole[i]));
    return SL_OK;
}

int sl_context_scatter(struct sl_context *context, const struct sl_context_keys *keys, int i, float *own) {
    const struct sl_group *peers = sl_group_of(context, keys->group);
    void *const moved = sl_at(context, &keys->moved), *const sum = sl_at(context, &keys->gradient[i]);
    const size_t count = (size_t)context->rows * keys->columns[i], all = count * (size_t)sl_cut_parts(context->cut);
    if (!count) return SL_OK;
    if (!peers) return sl_device.copy(own, sum, count * sizeof *own), SL_OK;
    sl_context_order(context, keys->columns[i] * sizeof(float), true, moved, sum);
    return sl_communicate(context, sl_describe_shares_of_sum(context->cut.leaves, peers, moved, own, 1, &all, 0));
}

void sl_context_settle(const struct sl_context *context, size_t columns, struct sl_out to) {
    if (to.rounds || sl_out_halves(to))
        context->kernels->sequence->copy_settled((size_t)context->rows, columns, sl_out_floats(to), columns, to,
                                                 columns);
}
