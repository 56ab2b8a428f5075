/* mla_caches.c - latent attention to cached tokens. Caches have one of two forms.
 *
 * Expanded: keys and values of this coordinate's heads, and the rotary key. Latent: the latent and the rotary key, the
 * same on each coordinate along the axis; kv_up is absorbed into queries and outputs
 * (layers/kernels/attention/attention_latent.h). For this every coordinate has kv_up's columns of its own heads, in a
 * table computed when a run begins. If positions are divided, each coordinate attends to its own latents, and the
 * results are merged. Otherwise, if there are many queries, products with keys and values are cheaper: a prompt
 * attends to its own keys and values, then to those of earlier cached tokens, expanded chunk by chunk. */
#include "layers/modules/feedforward/products.h"
#include "layers/modules/sequence/mla/mla_internal.h"

/* ---- planning ---- */

/* Keys and values have separate caches, because decoding passes over all keys, then over all values. */
static int plan_expanded(struct mla *mla, struct sl_plan *plan) {
    const struct sl_attention attention = sl_mla_attention(mla, (int)sl_plan_rows(plan), plan->sequence);
    SL_TRY(sl_plan_cache(plan, mla->columns, &mla->expanded.k));
    SL_TRY(sl_plan_cache(plan, mla->columns, &mla->expanded.v));
    if (mla->rope) SL_TRY(sl_plan_cache(plan, mla->rope, &mla->expanded.k_rope));
    return sl_plan_cached(plan, &attention, &mla->expanded);
}

static struct sl_latent_attention latent_shape(const struct mla *mla, int rows, int sequence, enum sl_dtype cached) {
    return (struct sl_latent_attention){.sequences = (size_t)(rows / sequence),
                                        .queries = (size_t)sequence,
                                        .heads = mla->heads,
                                        .width = mla->columns / mla->heads,
                                        .rope = mla->rope,
                                        .latent = (size_t)mla->shape.latent,
                                        .cached = cached};
}

/* Keys and values of a chunk use the memory of the pass's own. */
static int plan_chunk(struct mla *mla, struct sl_plan *plan) {
    const size_t rows = sl_plan_rows(plan), latent = (size_t)mla->shape.latent;
    const size_t chunk = (size_t)sl_mla_chunk(plan->sequence), keys = rows / (size_t)plan->sequence * chunk;
    sl_gemm_release(&mla->expansion);
    if (!chunk || plan->caches->parts > 1) return SL_OK;
    if (plan->caches->storage == SL_BF16)
        sl_plan_workspace(plan, chunk * (latent + mla->rope) * sizeof(float), &mla->widened);
    sl_plan_workspace(plan, keys * latent * sizeof(float), &mla->latents);
    sl_plan_workspace(plan, keys * mla->rope * sizeof(float), &mla->rotated_keys);
    sl_plan_workspace(plan, 2 * mla->columns * sizeof(float), &mla->bias);
    sl_plan_workspace(plan, rows * mla->columns * sizeof(float), &mla->others);
    sl_plan_workspace(plan, rows * mla->heads * sizeof(float), &mla->others_logsum);
    if (plan->sizes_only) return SL_OK;
    return sl_gemm_plan(&mla->expansion, plan->gemm, SL_F32, (int)chunk, (int)(2 * mla->columns), (int)latent, false,
                        false, SL_EPILOGUE_BIAS, plan->error);
}

static int plan_latent(struct mla *mla, struct sl_plan *plan) {
    const size_t latent = (size_t)mla->shape.latent, table = 2 * latent * mla->columns;
    const struct sl_latent_attention shape =
        latent_shape(mla, (int)sl_plan_rows(plan), plan->sequence, plan->caches->storage);
    const struct sl_attention attention = sl_mla_attention(mla, (int)sl_plan_rows(plan), plan->sequence);
    SL_TRY(sl_plan_cache(plan, latent + mla->rope, &mla->latents_cache));
    SL_TRY(sl_plan_cache_once(plan, table, &mla->table_cache));
    if (mla->group >= 0)
        SL_TRY(sl_plan_array(plan, (size_t)plan->rows * latent, SL_UNTIL_RETURN, &mla->kept[ALL_LATENT].values));
    sl_plan_workspace(plan, table * sizeof(float), &mla->kernel);
    sl_plan_workspace(plan, sl_kernels_select()->latent->scratch(&shape), &mla->scratch);
    SL_TRY(sl_plan_cached(plan, &attention, &mla->expanded));
    return plan_chunk(mla, plan);
}

int sl_mla_plan_caches(struct mla *mla, struct sl_plan *plan) {
    if (plan->caches->form == SL_CACHE_LATENT && mla->module.child[KV_UP]->children)
        return sl_error_set(plan->error, SL_BAD_INPUT, "%smla: latent caches take kernels without adapters",
                            plan->name);
    return plan->caches->form == SL_CACHE_LATENT ? plan_latent(mla, plan) : plan_expanded(mla, plan);
}

/* Appends whole rows to a cache. */
static void append_all(const struct sl_context *context, int number, const float *rows, size_t stride) {
    sl_cache_append(context, number, 0, context->caches->cache[number].columns, rows, stride);
}

/* ---- expanded ---- */

static int attend_expanded(const struct sl_module *module, struct sl_context *context) {
    const struct mla *mla = sl_mla_of(module);
    const size_t stride = 2 * mla->columns;
    const float *own = sl_mla_at(module, context, KEYS_VALUES);
    struct sl_attention shape = sl_mla_attention(mla, context->rows, context->sequence);
    shape.key_stride = mla->columns;
    append_all(context, mla->expanded.k, own, stride);
    append_all(context, mla->expanded.v, own + mla->columns, stride);
    if (mla->rope) append_all(context, mla->expanded.k_rope, sl_mla_at(module, context, ROTATED_KEYS), mla->rope);
    return sl_attend_cached(context, &shape, &mla->expanded, sl_mla_at(module, context, QUERIES),
                            mla->rope ? sl_mla_at(module, context, ROTATED_QUERIES) : NULL,
                            sl_out_f32(sl_mla_at(module, context, OUTPUT)), sl_mla_at(module, context, LOGSUM));
}

/* ---- latent ---- */

/* Makes the table from kv_up's columns for this coordinate's heads. It has all rows of the kernel, gathered from the
 * coordinates. */
static int make_table(const struct sl_module *module, struct sl_context *context) {
    const struct mla *mla = sl_mla_of(module);
    float *kernel = sl_at(context, &mla->kernel);
    SL_TRY(sl_sharded_dense_columns(module->child[KV_UP], context, kernel));
    context->kernels->latent->absorb((size_t)mla->shape.latent, mla->columns, kernel, context->caches->storage,
                                     context->caches->cache[mla->table_cache].data);
    return SL_OK;
}

/* Appends the call's tokens; *CACHED becomes the cache's rows of the first sequence. */
static int append_latents(const struct sl_module *module, struct sl_context *context, const void **cached) {
    const struct mla *mla = sl_mla_of(module);
    const size_t latent = (size_t)mla->shape.latent;
    const float *latents;
    SL_TRY(sl_mla_all_latents(module, context, sl_mla_at(module, context, KV_LATENT), &latents));
    *cached = sl_cache_append(context, mla->latents_cache, 0, latent, latents, latent);
    if (mla->rope)
        sl_cache_append(context, mla->latents_cache, latent, mla->rope, sl_mla_at(module, context, ROTATED_KEYS),
                        mla->rope);
    return SL_OK;
}

/* Attends to the cached rows of SHAPE from sequence SEQUENCE of the caches on; the queries begin with the call's row
 * ROW. LOGSUM may be NULL. */
static void attend_to_rows(const struct sl_module *module, const struct sl_context *context,
                           const struct sl_latent_attention *shape, int sequence, size_t row, float *o, float *logsum) {
    const struct mla *mla = sl_mla_of(module);
    const struct sl_caches *caches = context->caches;
    context->kernels->latent->forward(
        shape, sl_mla_at(module, context, QUERIES) + row * mla->columns,
        mla->rope ? sl_mla_at(module, context, ROTATED_QUERIES) + row * mla->rotated : NULL,
        sl_cache_rows(caches, mla->latents_cache, sequence), caches->cache[mla->table_cache].data,
        sl_mla_bias(module, context, true), o, logsum, sl_at(context, &mla->scratch), context->queue);
}

static void attend_to_part(const struct sl_context *context, const void *arg, const struct sl_cached_part *part,
                           float *o, float *logsum) {
    const struct sl_module *module = arg;
    struct sl_latent_attention shape =
        latent_shape(sl_mla_of(module), (int)part->rows, (int)part->rows, context->caches->storage);
    shape.position = part->position;
    shape.key_rows = part->keys;
    attend_to_rows(module, context, &shape, part->sequence, part->row, o, logsum);
}

static int attend_to_latents(const struct sl_module *module, struct sl_context *context) {
    const struct mla *mla = sl_mla_of(module);
    const struct sl_caches *caches = context->caches;
    const struct sl_attention all = sl_mla_attention(mla, context->rows, context->sequence);
    float *const o = sl_mla_at(module, context, OUTPUT);
    if (mla->expanded.group >= 0)
        return sl_attend_parts(context, &all, &mla->expanded, attend_to_part, module, sl_out_f32(o),
                               sl_mla_at(module, context, LOGSUM));
    for (int s = 0, abreast; s < context->rows / context->sequence; s += abreast) {
        const size_t row = (size_t)s * (size_t)context->sequence;
        abreast = sl_abreast(context, s);
        struct sl_latent_attention shape =
            latent_shape(mla, abreast * context->sequence, context->sequence, caches->storage);
        shape.position = (size_t)sl_first_position(context, s);
        shape.key_rows = (size_t)caches->positions;
        attend_to_rows(module, context, &shape, sl_cached_sequence(context) + s, row, o + row * mla->columns, NULL);
    }
    return SL_OK;
}

/* Copies the latents and rotary keys of each sequence's CHUNK tokens from FIRST on. */
static void take_chunk(const struct sl_module *module, const struct sl_context *context, const void *cached,
                       size_t first, size_t chunk) {
    const struct mla *mla = sl_mla_of(module);
    const struct sl_kernels *kernels = context->kernels;
    const size_t latent = (size_t)mla->shape.latent, rope = mla->rope, depth = latent + rope;
    const size_t sequences = (size_t)(context->rows / context->sequence);
    float *latents = sl_at(context, &mla->latents), *rotated = sl_at(context, &mla->rotated_keys);
    for (size_t s = 0; s < sequences; s++) {
        const size_t from = (s * (size_t)context->caches->positions + first) * depth;
        const float *rows = (const float *)cached + from;
        if (context->caches->storage == SL_BF16) {
            float *widened = sl_at(context, &mla->widened);
            kernels->widen_bf16(chunk * depth, (const uint16_t *)cached + from, widened);
            rows = widened;
        }
        kernels->sequence->copy_block(chunk, latent, rows, depth, latents + s * chunk * latent, latent);
        if (rope) kernels->sequence->copy_block(chunk, rope, rows + latent, depth, rotated + s * chunk * rope, rope);
    }
}

/* Adds to OUTPUT attention to a chunk's keys and values, which lie in the memory of the pass's own. */
static void attend_to_chunk(const struct sl_module *module, struct sl_context *context, size_t chunk) {
    const struct mla *mla = sl_mla_of(module);
    const struct sl_attention_kernels *attention = context->kernels->attention;
    struct sl_attention shape = sl_mla_attention(mla, context->rows, context->sequence);
    const float *keys = sl_mla_at(module, context, KEYS_VALUES);
    float *others = sl_at(context, &mla->others), *logsum = sl_at(context, &mla->others_logsum);
    shape.position = shape.key_rows = chunk; /* all queries see the whole chunk */
    attention->forward(&shape, sl_mla_at(module, context, QUERIES),
                       mla->rope ? sl_mla_at(module, context, ROTATED_QUERIES) : NULL, keys, keys + mla->columns,
                       mla->rope ? sl_at(context, &mla->rotated_keys) : NULL, sl_out_f32(others), logsum);
    attention->merge(&shape, others, logsum, sl_mla_at(module, context, OUTPUT), sl_mla_at(module, context, LOGSUM));
}

/* Attends to the pass's own keys and values, then to those of all earlier cached tokens. */
static int attend_to_chunks(const struct sl_module *module, struct sl_context *context, const void *cached) {
    const struct mla *mla = sl_mla_of(module);
    const size_t chunk = (size_t)sl_mla_chunk(context->sequence);
    SL_TRY(sl_mla_attend(module, context, sl_out_f32(sl_mla_at(module, context, OUTPUT))));
    if (context->position == 0) return SL_OK;
    SL_TRY(sl_mla_take_columns(module, context));
    for (size_t first = 0; first < (size_t)context->position; first += chunk) {
        take_chunk(module, context, cached, first, chunk);
        SL_TRY(sl_products_multiply(context, &mla->expansion,
                                    sl_gemm_floats(&mla->expansion, context->rows / context->sequence,
                                                   sl_at(context, &mla->latents), sl_at(context, &mla->kernel),
                                                   sl_at(context, &mla->bias), false,
                                                   sl_mla_at(module, context, KEYS_VALUES))));
        attend_to_chunk(module, context, chunk);
    }
    return SL_OK;
}

static int attend_latent(const struct sl_module *module, struct sl_context *context) {
    const void *cached;
    if (context->begins && context->microbatch == 0) SL_TRY(make_table(module, context));
    SL_TRY(append_latents(module, context, &cached));
    if (!sl_mla_absorbs(context->caches, context->sequence, context->position))
        return attend_to_chunks(module, context, cached);
    return attend_to_latents(module, context);
}

int sl_mla_attend_caches(const struct sl_module *module, struct sl_context *context) {
    return context->caches->form == SL_CACHE_LATENT ? attend_latent(module, context) : attend_expanded(module, context);
}
