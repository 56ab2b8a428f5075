/* context.c - long sequences, whose rows are divided over the mesh's axis "context". */
#include <string.h>

#include "drivers/transformer/transformer.h"
#include "spmd/device/device.h"

const char *const transformer_context_ways[] = {[SL_CONTEXT_BY_GATHER] = "gather",
                                                [SL_CONTEXT_BY_RING] = "ring",
                                                [SL_CONTEXT_BY_HEADS] = "heads",
                                                [SL_CONTEXT_BY_LATENTS] = "latents",
                                                NULL};
const struct sl_option transformer_context_table[] = {
    {"context-by", SL_OPTION_CHOICE, offsetof(struct transformer_config, context_by),
     .value = "gather|ring|heads|latents", .keep = SL_KEPT_FREE, .read = "mesh=+context",
     .help = "with an axis context, how tokens see those of other coordinates, each of which has two blocks of a "
             "sequence: gather: each coordinate gathers all keys and values of a layer; ring: it "
             "attends to the keys of one coordinate while those of the next are sent; heads: coordinates exchange "
             "rows for heads, and each computes some of the heads for all tokens; latents: as gather, but of latents, "
             "from which each coordinate computes all keys and values. --zero and --fsdp shard over this "
             "axis, too"},
    {0},
};

/* Returns the first option that is not supported with leaves of sequences; NULL: all are supported. */
static const char *refused(const struct transformer_job *job) {
    const struct transformer_config *config = job->config;
    const struct sl_training_options *training = &config->training;
    return config->experts                               ? "--experts"
           : config->context_by == SL_CONTEXT_BY_HEADS   ? "--context-by heads"
           : config->context_by == SL_CONTEXT_BY_RING    ? "--context-by ring"
           : config->context_by == SL_CONTEXT_BY_LATENTS ? "--context-by latents"
           : training->offload & SL_OFFLOAD_ACTIVATIONS  ? "--offload activations"
           : training->fsdp                              ? "--fsdp"
           : training->zero == 2                         ? "--zero 2"
           : config->spread_head                         ? "--spread-head"
                                                         : NULL;
}

/* The same for divided sequences on a device with its own memory. */
static const char *refused_by_device(const struct transformer_job *job) {
    const struct transformer_config *config = job->config;
    return sl_device.shares_memory                                    ? NULL
           : job->command == TRANSFORMER_GENERATE                     ? "transformer generate"
           : config->sample_every                                     ? "--sample-every"
           : config->context_by == SL_CONTEXT_BY_RING                 ? "--context-by ring"
           : job->command == TRANSFORMER_TRAIN && config->dropout > 0 ? "--dropout"
                                                                      : NULL;
}

int transformer_context_way(const char *word) {
    int way = 0;
    while (strcmp(transformer_context_ways[way], word) != 0) way++;
    return way;
}

/* Whether --exact has leaves of sequences. A text that is no list is refused later. */
static bool has_leaves(const struct transformer_job *job) {
    struct sl_mesh leaves;
    struct sl_error reason = {0};
    const char *exact = job->command == TRANSFORMER_TRAIN ? job->config->training.exact : NULL;
    return exact && !sl_mesh_parse(&leaves, exact, &reason) && sl_mesh_find_axis(&leaves, sl_context_axis) >= 0;
}

int transformer_check_context(const struct transformer_job *job, const struct sl_mesh *mesh, struct sl_error *error) {
    const bool divides = sl_mesh_axis_size(mesh, sl_context_axis) > 1;
    const bool leaves = has_leaves(job) || (divides && job->config->training.exact);
    if (leaves && divides && refused(job))
        return sl_error_set(error, SL_BAD_INPUT,
                            "mesh axis \"context\": %s does not take sequences divided over it (--exact): leave the "
                            "axis out",
                            refused(job));
    if (leaves && refused(job))
        return sl_error_set(error, SL_BAD_INPUT, "--exact context=N: %s does not go with leaves of sequences",
                            refused(job));
    if (divides && !sl_axes_end_with(mesh, sl_replica_axes, sl_context_axis))
        return sl_error_set(error, SL_BAD_INPUT,
                            "mesh axis \"context\": it comes after \"data\", as in --mesh data=2,context=2");
    if (divides && refused_by_device(job))
        return sl_error_set(error, SL_BAD_INPUT,
                            "mesh axis \"context\": %s does not take sequences divided over it on device %s",
                            refused_by_device(job), sl_device.name);
    if (leaves && !sl_device.shares_memory)
        return sl_error_set(error, SL_BAD_INPUT, "--exact context=N: device %s has no leaves of sequences",
                            sl_device.name);
    return SL_OK;
}

int transformer_shortest_sequence(const struct sl_mesh *mesh) {
    const int parts = sl_mesh_axis_size(mesh, sl_context_axis);
    return parts > 1 ? 2 * parts : 1;
}

const char *const transformer_tensor_layouts[] = {[SL_TENSOR_COLUMNS] = "columns", [SL_TENSOR_ROWS] = "rows", NULL};

int transformer_check_layout(const struct transformer_job *job, const struct sl_mesh *mesh, struct sl_error *error) {
    const struct transformer_config *config = job->config;
    const char *refused = config->sample_every ? "--sample-every" : config->spread_head ? "--spread-head" : NULL;
    if (!sl_transformer_by_rows(&job->model, mesh) || !refused) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "--tensor-layout rows: %s does not take it: leave one of them out",
                        refused);
}

/* Moves this coordinate's blocks of COUNT sequences to the beginning of X, which has whole sequences; NULL is left
 * out. */
static void divide(struct sl_cut cut, int64_t count, int sequence, int32_t *x) {
    const int blocks = sl_cut_blocks(cut), rows = sequence / blocks;
    const int64_t whole = (int64_t)sequence * cut.parts;
    for (int64_t i = 0; x && i < count * blocks; i++)
        memmove(x + i * rows, x + i / blocks * whole + (int64_t)sl_cut_block(cut, (int)(i % blocks)) * rows,
                (size_t)rows * sizeof *x);
}

void transformer_divide(const struct sl_worker *worker) {
    const struct sl_job *job = worker->job;
    const struct transformer_worker *own = worker->own;
    const struct sl_cut cut = {.parts = job->parts, .part = sl_axis_index(worker->self, sl_context_axis)};
    if (job->parts == 1) return;
    divide(cut, job->local, job->sequence, own->inputs);
    divide(cut, job->local, job->sequence, own->labels);
    divide(cut, job->local, job->sequence, own->places);
}
