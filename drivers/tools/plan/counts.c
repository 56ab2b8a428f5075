/* counts.c - parameters of the model, and of a device: what communication.c's formulas send.
 *
 * The model is that of `transformer train --attention gqa --rope-dim 0 --norm layer --mlp erf-gelu
 * --learned-positions`. Parameters of a layer with hidden size h and expansion e: kernels (4 + 2 e) h h, biases
 * (5 + e) h, two norms 4 h. Tensor parallelism divides all but biases. */
#include "drivers/tools/plan/plan.h"
#include "layers/training/model.h"

enum { F32 = 4, BF16 = 2 };

static double table_parameters(const struct plan_job *job) { return (double)job->hidden * job->vocabulary; }

static double layer_kernels(const struct plan_job *job, int tensor) {
    return (4 + 2.0 * job->expansion) * job->hidden * job->hidden / tensor;
}

/* Counts biases of products, and scales and shifts of norms. */
static double layer_rest(const struct plan_job *job, int tensor) {
    return (5.0 + job->expansion) * job->hidden + 4.0 * job->hidden / tensor;
}

double plan_layer_parameters(const struct plan_job *job, int tensor) {
    return layer_kernels(job, tensor) + layer_rest(job, tensor);
}

double plan_embedding_parameters(const struct plan_job *job) {
    return table_parameters(job) + (double)job->hidden * job->sequence + 2.0 * job->hidden; /* positions, last norm */
}

double plan_count_parameters(const struct plan_job *job) {
    return job->parameters > 0 ? job->parameters
                               : job->layers * plan_layer_parameters(job, 1) + plan_embedding_parameters(job);
}

/* Counts the token table's parameters on a rank: the table is used for looking up tokens, and for the logits. */
static double share_of_table(const struct plan_job *job, const struct plan_layout *layout,
                             const struct plan_share *share) {
    if (layout->spread_head) return table_parameters(job) / layout->stages;
    return share->first || share->last ? table_parameters(job) / layout->tensor : 0;
}

/* Returns the layers of a rank; between the first and the last rank, the largest number of any. */
static int layers_at(const struct plan_job *job, int stages, int rank) {
    const struct sl_layers all = {.count = job->layers};
    if (rank > 0 && rank < stages - 1) return (job->layers + stages - 1) / stages;
    return sl_model_first_layer(all, stages, rank + 1) - sl_model_first_layer(all, stages, rank);
}

struct plan_share plan_share_of(const struct plan_job *job, const struct plan_layout *layout, enum plan_place place) {
    const int stages = layout->stages, tensor = layout->tensor;
    const int rank = place == PLAN_FIRST ? 0 : place == PLAN_LAST ? stages - 1 : 1;
    struct plan_share share = {.layers = layers_at(job, stages, rank), .first = rank == 0, .last = rank == stages - 1};
    if (job->parameters > 0) {
        share.kernels = job->parameters / stages / tensor;
        return share;
    }
    share.kernels = share.layers * layer_kernels(job, tensor);
    share.table = share_of_table(job, layout, &share);
    share.rest = share.layers * layer_rest(job, tensor) + share.table;
    if (share.first) share.rest += (double)job->hidden * job->sequence / tensor;
    if (share.last) share.rest += 2.0 * job->hidden / tensor;
    return share;
}

/* ---- bytes of an element ---- */

double plan_element_bytes(int precision) { return precision == PLAN_ALL_F32 ? F32 : BF16; }

double plan_gradient_bytes(int precision) { return precision == PLAN_ALL_BF16 ? BF16 : F32; }

/* ZeRO shards the float values of parameters that modules read as bf16; with FSDP the kernels are sharded already. */
double plan_count_halves(const struct plan_layout *layout, const struct plan_share *share) {
    if (layout->precision != PLAN_MIXED || !layout->trains || !layout->zero || layout->data == 1) return 0;
    return share->table + (layout->zero < 3 ? share->kernels : 0);
}

/* With ZeRO 2 a layer's gradient exists only while it is computed, if the rank has enough layers to save memory; in
 * mixed precision only the gradient of its kernels. */
double plan_count_freed(const struct plan_job *job, const struct plan_layout *layout, const struct plan_share *share) {
    if (layout->zero != 2 || share->layers * (layout->data - 1) <= layout->data) return 0;
    const bool all = layout->precision != PLAN_MIXED && job->parameters == 0;
    return share->kernels + (all ? share->layers * layer_rest(job, layout->tensor) : 0);
}
