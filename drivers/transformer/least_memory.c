/* least_memory.c - the transformer's minimal memory, computed from its sizes. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/training/memory_check.h"
#include "drivers/transformer/transformer.h"
#include "layers/modules/sequence/token_chunks.h"

static bool is_grouped(const struct sl_transformer *m) { return m->attention == SL_ATTENTION_GROUPED; }

/* Floats of rotary tables. With grouped attention all heads share one. With latent attention each coordinate has
 * cosines and sines of the pairs of the shared key, and of its heads' queries. The last layer of a block has no
 * rotary positions, and it may be the only one. */
static double rotary_floats(const struct transformer_job *job) {
    const struct sl_transformer *m = &job->model;
    if (is_grouped(m)) return m->rope ? (double)m->positions * sl_transformer_head_width(m) * job->job.mesh.size : 0;
    if (m->layers_per_block < 2) return 0;
    const double keys = m->rope,
                 queries = (double)m->rope * m->heads / sl_mesh_axis_size(&job->job.mesh, sl_tensor_axis);
    return (double)m->positions * (keys + queries) * job->job.mesh.size;
}

/* Floats of the caches of all coordinates together: at least the keys and values of all heads. With latent attention
 * each coordinate along the tensor axis has the latents and the rotary keys, or its heads' keys and values; the last
 * layer of a block has no rotary keys. With latents each replica has tables of kv_up
 * (layers/modules/sequence/mla/mla_caches.c). */
static double cached_floats(const struct transformer_job *job) {
    const struct sl_transformer *m = &job->model;
    const bool latent = transformer_cache(job) == SL_CACHE_LATENT;
    const double tensor = sl_mesh_axis_size(&job->job.mesh, sl_tensor_axis), data = job->job.data;
    const double layers = (double)m->blocks * m->layers_per_block;
    if (is_grouped(m))
        return transformer_in_flight(job) * data * job->length * layers * 2 * sl_transformer_head_width(m) *
               sl_transformer_key_heads(m);
    const double rotary = (layers - m->blocks) * m->rope * tensor;
    const double once = latent ? 2 * data * layers * m->latent * m->dimension : 0;
    const double floats = rotary + layers * (latent ? m->latent * tensor : 2.0 * m->dimension);
    return once + transformer_in_flight(job) * data * job->length * floats;
}

/* Floats of the head's logits, for a chunk of classes or for all saved ones, and of their softmax if there is a
 * backward pass: at least for a microbatch of each replica. */
static double logit_floats(const struct transformer_job *job, double tokens) {
    const struct sl_vocabulary vocabulary = {.size = job->model.vocabulary, .chunk = job->model.chunk};
    const double rows = tokens / job->job.passes / job->job.schedule.microbatches;
    const double chunk = (double)sl_token_chunk(&vocabulary);
    if (job->job.forward_only) return rows * chunk;
    return rows * (chunk + (job->model.keep_logits ? job->model.vocabulary : chunk));
}

/* Floats of kernels' copies: of parameters except biases, norms and tables. Experts have no copies. */
static double copied_floats(const struct transformer_job *job) {
    const struct sl_transformer *m = &job->model;
    const double tables = (double)m->dimension * (2.0 * m->vocabulary + m->positions);
    const double others = 32.0 * m->dimension * m->blocks * m->layers_per_block;
    const double kernels = sl_transformer_parameters(m) - tables - others;
    const int groups = transformer_groups(job), width = (transformer_in_flight(job) + groups - 1) / groups;
    const bool halves = job->config->training.storage == 1 || job->job.precision == SL_BF16;
    const bool packs =
        sl_gemm_packs(job->job.gemm, job->job.precision, halves ? SL_BF16 : SL_F32, width, m->dimension, m->dimension);
    if (!job->config->copies || job->in_file || !packs || m->fsdp || m->experts || kernels < 0) return 0;
    return halves ? kernels / 2 : kernels;
}

int transformer_check_memory(const struct transformer_job *job, const struct sl_engine *engine,
                             struct sl_error *error) {
    const bool generates = job->command == TRANSFORMER_GENERATE;
    const double tokens = (double)job->config->training.batch * job->config->sequence;
    const double computed = generates ? cached_floats(job) : logit_floats(job, tokens);
    const double parameters = sl_transformer_parameters(&job->model);
    const double adapters = sl_memory_of_parameters(&job->job, sl_transformer_adapters(&job->model, job->adapters));
    const double values = job->in_file ? transformer_file_bytes(job) : sl_memory_of_values(&job->job, parameters);
    const double copies = generates ? sl_memory_of_values(&job->job, copied_floats(job)) : 0;
    const struct sl_memory_need need = {
        .parameters = copies + (job->adapters  ? values + adapters
                                : job->in_file ? values
                                               : sl_memory_of_parameters(&job->job, parameters)),
        .activations = sizeof(float) * (rotary_floats(job) + computed),
        .data = generates ? 0 : (2 + transformer_has_places(job)) * sizeof(int32_t) * tokens,
    };
    if (!job->one_machine || job->job.sizes_only) return SL_OK;
    return sl_memory_check(&job->job, engine, &need, 0, error);
}

/* ---- copies with other options ---- */

struct copy {
    struct transformer_config config;
    struct transformer_job job;
};

/* Applies the variant. Tables of positions are as long as necessary for its length. */
static void change_generation(struct copy *copy, const struct sl_variant *variant) {
    struct transformer_config *config = &copy->config;
    if (variant->latent_cache) config->cache = SL_CACHE_LATENT;
    if (variant->one_copy) config->copies = false;
    if (variant->in_flight) config->in_flight = variant->in_flight;
    if (!variant->length) return;
    config->length = copy->job.length = variant->length;
    copy->job.model.positions = config->sequence > variant->length ? config->sequence : variant->length;
}

struct sl_job *transformer_copy_job(const struct sl_job *from, const struct sl_variant *variant,
                                    const struct sl_engine *engine, struct sl_error *error) {
    const struct transformer_job *old = from->own;
    struct copy *copy = calloc(1, sizeof *copy);
    if (!copy) return NULL;
    struct transformer_job *job = &copy->job;
    copy->config = *old->config;
    copy->config.training = variant->options;
    if (variant->spread_head) copy->config.spread_head = variant->spread_head;
    if (variant->drop_logits) copy->config.keep_logits = false;
    if (variant->context_by) copy->config.context_by = transformer_context_way(variant->context_by);
    *job = *old;
    /* A run that is started with these options reads weights as floats. */
    job->in_file = old->in_file && !variant->options.fsdp && !variant->spread_head &&
                   variant->options.storage == old->config->training.storage;
    job->config = &copy->config;
    job->model.recomputation = variant->options.recompute;
    job->model.fsdp = variant->options.fsdp && !job->in_file;
    if (variant->tensor_layout)
        job->model.tensor_layout = copy->config.tensor_layout =
            strcmp(variant->tensor_layout, transformer_tensor_layouts[SL_TENSOR_ROWS]) == 0;
    job->model.keep_logits = copy->config.keep_logits;
    change_generation(copy, variant);
    if (variant->layers) job->model.blocks = copy->config.blocks = variant->layers;
    if (variant->layers_per_block)
        job->model.layers_per_block = copy->config.layers_per_block = variant->layers_per_block;
    job->job = (struct sl_job){.type = from->type,
                               .options = &copy->config.training,
                               .own = job,
                               .seed = from->seed,
                               .sequence = from->sequence * from->parts,
                               .forward_only = from->forward_only,
                               .local = 1,
                               .pass = 1};
    int status = transformer_check_context(job, &variant->mesh, error);
    if (status == SL_OK) status = transformer_check_layout(job, &variant->mesh, error);
    if (status == SL_OK) status = sl_job_open(&job->job, &variant->mesh, engine, error);
    if (status == SL_OK) status = sl_transformer_check(&job->model, &job->job.mesh, error);
    if (status == SL_OK) status = transformer_fit(job, error);
    if (status == SL_OK) status = transformer_check_samples(job, error);
    job->job.sizes_only = true;
    if (status == SL_OK) return &job->job;
    transformer_free_copy(&job->job);
    return NULL;
}

/* Frees a copy's schedule; all other parts belong to the original job. */
void transformer_free_copy(struct sl_job *copy) {
    struct transformer_job *job = copy->own;
    sl_job_close(copy);
    free((char *)job - offsetof(struct copy, job));
}

/* ---- attempts ---- */

static bool cache_latents(const struct sl_job *job, int attempt, struct sl_variant *variant,
                          char text[SL_ATTEMPT_TEXT]) {
    const struct transformer_job *own = job->own;
    snprintf(text, SL_ATTEMPT_TEXT, "--cache latent");
    if (attempt || own->command != TRANSFORMER_GENERATE || transformer_cache(own) == SL_CACHE_LATENT) return false;
    return variant->latent_cache = true;
}

static bool drop_copies(const struct sl_job *job, int attempt, struct sl_variant *variant, char text[SL_ATTEMPT_TEXT]) {
    const struct transformer_job *own = job->own;
    snprintf(text, SL_ATTEMPT_TEXT, "--no-kernel-copies");
    if (attempt || own->command != TRANSFORMER_GENERATE || copied_floats(own) == 0) return false;
    return variant->one_copy = true;
}

static bool drop_logits(const struct sl_job *job, int attempt, struct sl_variant *variant, char text[SL_ATTEMPT_TEXT]) {
    const struct transformer_job *own = job->own;
    snprintf(text, SL_ATTEMPT_TEXT, "--no-keep-logits");
    if (attempt || !own->model.keep_logits) return false;
    return variant->drop_logits = true;
}

/* Whether spreading the head may help: if the token table has more parameters than a rank's layers, the ranks with
 * the table need most. */
static bool may_spread_head(const struct sl_job *job, int ranks) {
    const struct transformer_job *own = job->own;
    const struct transformer_config *config = own->config;
    const double table = (double)own->model.vocabulary * own->model.dimension;
    if (own->command == TRANSFORMER_GENERATE || ranks == 1 || config->spread_head || config->sample_every) return false;
    if (job->leaves > 1 || own->in_file) return false;
    return !job->options->schedule_file && (sl_transformer_parameters(&own->model) - table) / ranks <= table;
}

void transformer_heads(const struct sl_job *job, int ranks, const char *way[SL_JOB_HEADS]) {
    const struct transformer_job *own = job->own;
    if (!may_spread_head(job, ranks)) return;
    if (!own->config->vocabulary_parallel) way[SL_SPREAD_VOCABULARY] = "--spread-head";
    way[SL_SPREAD_ROWS] = "--spread-head rows";
}

/* Spreads the head. Schedules of one loop have no room for the head's two. */
static bool spread_head(const struct sl_job *job, int attempt, struct sl_variant *variant, char text[SL_ATTEMPT_TEXT]) {
    const struct sl_schedule_kind *kind = sl_schedule_find(variant->options.schedule, NULL);
    if (attempt || !may_spread_head(job, job->ranks)) return false;
    const bool looped = kind && kind->most_loops == SL_ANY_LOOPS;
    if (!looped) variant->options.schedule = "interleaved-1f1b", variant->options.loops = 0;
    snprintf(text, SL_ATTEMPT_TEXT, "--spread-head%s", looped ? "" : " --schedule interleaved-1f1b");
    variant->spread_head = SL_SPREAD_VOCABULARY;
    return true;
}

/* Processes the same samples in smaller groups. */
static bool fewer_in_flight(const struct sl_job *job, int attempt, struct sl_variant *variant,
                            char text[SL_ATTEMPT_TEXT]) {
    const struct transformer_job *own = job->own;
    const int least = own->config->groups ? own->config->groups : 1;
    variant->in_flight = own->command == TRANSFORMER_GENERATE ? transformer_in_flight(own) >> (attempt + 1) : 0;
    snprintf(text, SL_ATTEMPT_TEXT, "--in-flight %d", variant->in_flight);
    return variant->in_flight >= least;
}

static bool shorter_samples(const struct sl_job *job, int attempt, struct sl_variant *variant,
                            char text[SL_ATTEMPT_TEXT]) {
    const struct transformer_job *own = job->own;
    variant->length = own->length >> (attempt + 1);
    snprintf(text, SL_ATTEMPT_TEXT, "--length %d", variant->length);
    return own->command == TRANSFORMER_GENERATE && variant->length > transformer_longest_prompt(own);
}

/* Reduces the batch: the score of all data does not depend on it. */
static bool smaller_batch(const struct sl_job *job, int attempt, struct sl_variant *variant,
                          char text[SL_ATTEMPT_TEXT]) {
    const struct transformer_job *own = job->own;
    variant->options.batch = own->config->training.batch >> (attempt + 1);
    snprintf(text, SL_ATTEMPT_TEXT, "--batch %d", variant->options.batch);
    return own->command == TRANSFORMER_EVALUATE && variant->options.batch > 0;
}

/* Reduces the layers, unless their values are given: blocks, or the layers of a single block. */
static bool fewer_layers(const struct sl_job *job, int attempt, struct sl_variant *variant,
                         char text[SL_ATTEMPT_TEXT]) {
    const struct transformer_job *own = job->own;
    const bool blocks = own->model.blocks > 1;
    int *count = blocks ? &variant->layers : &variant->layers_per_block;
    *count = (blocks ? own->model.blocks : own->model.layers_per_block) >> (attempt + 1);
    snprintf(text, SL_ATTEMPT_TEXT, "--%s %d", blocks ? "blocks" : "layers-per-block", *count);
    return *count > 0 && !own->publishes && !own->config->params && !job->options->checkpoints.resume;
}

sl_attempt *const transformer_smaller_attempts[] = {fewer_layers, NULL};
sl_attempt *const transformer_gentle_attempts[] = {drop_copies, cache_latents, drop_logits, spread_head, NULL};
sl_attempt *const transformer_harsh_attempts[] = {smaller_batch, fewer_in_flight, shorter_samples, NULL};
