/* memory.c - memory of a device, and ways to reduce it.
 *
 * The model is that of `transformer train --attention gqa --rope-dim 0 --norm layer --mlp erf-gelu
 * --learned-positions`, and the formulas are those of its planning code with --wgrad-group 1: parameters, gradients,
 * optimizer and activations are the bytes in its --dry-run with one stage per rank. Memory of running calls
 * (`workspace`), messages between stages and the batch are excluded.
 *
 * Parameters of a layer with hidden size h and expansion e: kernels (4 + 2 e) h h, biases (5 + e) h, two norms 4 h.
 * Floats that a layer saves per token for its backward: inputs and outputs of both norms (4 h), queries, keys and
 * values, and the attention's result (4 h), the perceptron's middle and its slope (2 e h), a sum per head (its
 * weights are recomputed), one per norm; and, per microbatch, sums for biases and norms. Ranks that send the input
 * gradient to another stage first compute weight gradients later: until then they save 5 h more, or, if tensor
 * coordinates share layers, gather them again. Tensor parallelism divides all but biases and a norm's numbers per
 * token. */
#include <math.h>
#include <string.h>

#include "drivers/plan/plan.h"
#include "layers/training/model.h"

static const double gibibyte = 1024.0 * 1024 * 1024;

enum { F32 = 4, BF16 = 2 };

/* ---- counts ---- */

static double table_parameters(const struct plan_job *job) { return (double)job->hidden * job->vocabulary; }

static double layer_kernels(const struct plan_job *job, int tensor) {
    return (4 + 2.0 * job->expansion) * job->hidden * job->hidden / tensor;
}

/* Counts biases of products, and scales and shifts of norms. */
static double layer_rest(const struct plan_job *job, int tensor) {
    return (5.0 + job->expansion) * job->hidden + 4.0 * job->hidden / tensor;
}

static double layer_parameters(const struct plan_job *job, int tensor) {
    return layer_kernels(job, tensor) + layer_rest(job, tensor);
}

static double embedding_parameters(const struct plan_job *job) {
    return table_parameters(job) + (double)job->hidden * job->sequence + 2.0 * job->hidden; /* positions, last norm */
}

double plan_count_parameters(const struct plan_job *job) {
    return job->parameters > 0 ? job->parameters : job->layers * layer_parameters(job, 1) + embedding_parameters(job);
}

double plan_head_share(const struct plan_job *job, int stages) {
    if (job->parameters > 0) return 0;
    return table_parameters(job) * stages / (job->layers * layer_parameters(job, 1));
}

enum plan_place plan_place_of(int rank, int stages) {
    return rank == 0 ? PLAN_FIRST : rank == stages - 1 ? PLAN_LAST : PLAN_MIDDLE;
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
    struct plan_share share = {.layers = layers_at(job, stages, rank),
                               .first = rank == 0,
                               .last = rank == stages - 1,
                               .kept = layout->kept[plan_place_of(rank, stages)]};
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

/* Returns the bytes of sums, and of numbers that are exact in mixed precision. */
static double exact_bytes(int precision) { return precision == PLAN_ALL_BF16 ? BF16 : F32; }

double plan_gradient_bytes(int precision) { return exact_bytes(precision); }

/* Returns the bytes of a value: in mixed precision a float, with a bf16 copy for products. */
static double value_bytes(int precision) {
    return precision == PLAN_MIXED ? F32 + BF16 : plan_element_bytes(precision);
}

/* ZeRO shards the float values of parameters that modules read as bf16; with FSDP the kernels are sharded already. */
double plan_count_halves(const struct plan_layout *layout, const struct plan_share *share) {
    if (layout->precision != PLAN_MIXED || !layout->trains || !layout->zero || layout->data == 1) return 0;
    return share->table + (layout->zero < 3 ? share->kernels : 0);
}

static double parameter_bytes(const struct plan_layout *layout, const struct plan_share *share) {
    const double data = layout->data, kernels = share->kernels / (layout->zero >= 3 ? data : 1);
    const double others = (1 - 1 / data) * plan_count_halves(layout, share);
    return (kernels + share->rest) * value_bytes(layout->precision) - F32 * others;
}

static double optimizer_bytes(const struct plan_job *job, int precision) {
    static const double states[] = {[PLAN_SGD] = 0, [PLAN_MOMENTUM] = 1, [PLAN_ADAM] = 2};
    return exact_bytes(precision) * states[job->optimizer];
}

/* ---- activations: bytes of one microbatch ---- */

static double tokens_of(const struct plan_job *job, const struct plan_layout *layout) {
    return layout->samples * job->sequence;
}

static double state_bytes(const struct plan_job *job, const struct plan_layout *layout) {
    return plan_element_bytes(layout->precision) * tokens_of(job, layout) * job->hidden;
}

static double layer_activations(const struct plan_job *job, const struct plan_layout *layout) {
    const double h = job->hidden, tensor = layout->tensor, exact = exact_bytes(layout->precision);
    const double sums = tokens_of(job, layout) * (job->heads / tensor + 2) + (5 + job->expansion + 4 / tensor) * h;
    return (8 + 2.0 * job->expansion) * state_bytes(job, layout) / tensor + exact * sums;
}

/* Returns the bytes of the last norm, the logits, and the loss's numbers per token. */
static double head_activations(const struct plan_job *job, const struct plan_layout *layout) {
    const double h = job->hidden, tensor = layout->tensor, exact = exact_bytes(layout->precision);
    const double states = tensor > 1 ? 1 + 2 / tensor : 2; /* complete rows; other coordinates' states have some
                                                            * columns */
    const double floats = tokens_of(job, layout) * (job->vocabulary / tensor + 3 + states * h) + 2 * h / tensor;
    return exact * floats + state_bytes(job, layout) / tensor;
}

static bool weights_follow_late(const struct plan_layout *layout, const struct plan_share *share) {
    return !share->first && layout->tensor == 1 && layout->zero < 3;
}

static double activation_bytes(const struct plan_job *job, const struct plan_layout *layout,
                               const struct plan_share *share) {
    const double layer = layer_activations(job, layout), state = state_bytes(job, layout), tensor = layout->tensor;
    const double late = weights_follow_late(layout, share) ? 5 * state : 0;
    const double spread = layout->kept_heads * 4 * state; /* a state, and three that a share sends on */
    const double head = share->last && !layout->spread_head && job->parameters == 0 ? head_activations(job, layout) : 0;
    if (!layout->trains) return layer;
    if (!layout->recompute) return share->kept * (share->layers * (layer + late) + head) + spread;
    return share->kept * (share->layers * state / tensor + head) + layer + 4 * state / tensor + spread;
}

/* ---- memory ---- */

struct plan_layout plan_layout_of(const struct plan_job *job) {
    return (struct plan_layout){.precision = job->precision,
                                .trains = !job->pipeline || plan_pipeline_trains(job->pipeline),
                                .recompute = job->recompute,
                                .offload = job->offload,
                                .data = job->data,
                                .stages = job->stages,
                                .tensor = job->tensor,
                                .zero = job->zero,
                                .samples = job->microbatch_size,
                                .kept = {1, 1, 1}};
}

/* With ZeRO 2 a layer's gradient exists only while it is computed, if the rank has enough layers to save memory; in
 * mixed precision only the gradient of its kernels. */
double plan_count_freed(const struct plan_job *job, const struct plan_layout *layout, const struct plan_share *share) {
    if (layout->zero != 2 || share->layers * (layout->data - 1) <= layout->data) return 0;
    const bool all = layout->precision != PLAN_MIXED && job->parameters == 0;
    return share->kernels + (all ? share->layers * layer_rest(job, layout->tensor) : 0);
}

/* FSDP shards kernels, and gathers each for every use. The token table has two gradients: of lookups and of logits. */
static struct plan_memory memory_at(const struct plan_job *job, const struct plan_layout *layout,
                                    enum plan_place place) {
    const struct plan_share share = plan_share_of(job, layout, place);
    const double data = layout->data, kernels = share.kernels / (layout->zero >= 3 ? data : 1);
    const bool both = share.first && share.last && job->parameters == 0;
    const double twice = both ? table_parameters(job) / layout->tensor : 0;
    struct plan_memory memory = {.parameters = parameter_bytes(layout, &share),
                                 .activations = activation_bytes(job, layout, &share),
                                 .code = job->code * gibibyte};
    if (!layout->trains) return memory;
    const double freed = plan_count_freed(job, layout, &share), left = freed / share.layers + freed / data;
    memory.gradients = (kernels + share.rest + twice - freed + left) * plan_gradient_bytes(layout->precision);
    if (!layout->offload)
        memory.optimizer =
            (share.kernels + share.rest) * optimizer_bytes(job, layout->precision) / (layout->zero >= 1 ? data : 1);
    return memory;
}

struct plan_memory plan_memory_of(const struct plan_job *job, const struct plan_layout *layout) {
    struct plan_memory most = memory_at(job, layout, PLAN_FIRST);
    for (enum plan_place place = PLAN_MIDDLE; place < PLAN_PLACES && layout->stages > 1; place++) {
        const struct plan_memory memory = memory_at(job, layout, place);
        if (plan_memory_total(&memory) > plan_memory_total(&most)) most = memory;
    }
    return most;
}

double plan_memory_total(const struct plan_memory *memory) {
    return memory->parameters + memory->gradients + memory->optimizer + memory->activations + memory->code;
}

/* ---- the section ---- */

static const struct plan_field field[] = {{"setup", "setup", -36, PLAN_FIELD_TEXT},
                                          {"devices", "devices", 8, PLAN_FIELD_COUNT},
                                          {"parameters", "parameters", 13, PLAN_FIELD_BYTES},
                                          {"gradients", "gradients", 13, PLAN_FIELD_BYTES},
                                          {"optimizer", "optimizer", 13, PLAN_FIELD_BYTES},
                                          {"activations", "activations", 13, PLAN_FIELD_BYTES},
                                          {"code", "code", 11, PLAN_FIELD_BYTES},
                                          {"total", "total", 13, PLAN_FIELD_BYTES},
                                          {"fits", "fits", 4, PLAN_FIELD_TEXT},
                                          {0}};

static int add(struct plan_rows *rows, const struct plan_job *job, const char *setup, struct plan_layout layout,
               struct sl_error *error) {
    const struct plan_memory memory = plan_memory_of(job, &layout);
    const double total = plan_memory_total(&memory);
    const char *fits = total <= job->capacity * gibibyte ? "yes" : "no";
    const union plan_value value[] = {{.text = setup},
                                      {.number = (double)layout.data * layout.stages * layout.tensor},
                                      {.number = memory.parameters},
                                      {.number = memory.gradients},
                                      {.number = memory.optimizer},
                                      {.number = memory.activations},
                                      {.number = memory.code},
                                      {.number = total},
                                      {.text = job->capacity > 0 ? fits : "-"}};
    return plan_rows_add(rows, value, error);
}

/* Adds rows for one device: all microbatches as one batch, then memory-saving changes, one at a time. */
static int add_one_device(struct plan_rows *rows, const struct plan_job *job, struct sl_error *error) {
    const struct plan_layout batch = {.precision = PLAN_ALL_F32,
                                      .trains = true,
                                      .data = 1,
                                      .stages = 1,
                                      .tensor = 1,
                                      .samples = (double)job->microbatch_size * job->microbatches,
                                      .kept = {1, 1, 1}};
    struct plan_layout layout = batch;
    SL_TRY(add(rows, job, "one device, the whole batch, f32", layout, error));
    layout.precision = PLAN_ALL_BF16;
    SL_TRY(add(rows, job, "lower precision: bf16", layout, error));
    layout.precision = PLAN_MIXED;
    SL_TRY(add(rows, job, "bf16, with f32 values and states", layout, error));
    layout = batch;
    layout.samples = job->microbatch_size;
    SL_TRY(add(rows, job, "gradient accumulation", layout, error));
    layout = batch;
    layout.trains = false;
    SL_TRY(add(rows, job, "no gradients: inference", layout, error));
    layout = batch;
    layout.recompute = true;
    SL_TRY(add(rows, job, "recomputation", layout, error));
    layout = batch;
    layout.offload = true;
    SL_TRY(add(rows, job, "optimizer states on the host", layout, error));
    layout = batch;
    layout.precision = PLAN_ALL_BF16;
    layout.samples = job->microbatch_size;
    layout.recompute = layout.offload = true;
    return add(rows, job, "all of these for training", layout, error);
}

/* Adds rows for replicas of the model, and for ZeRO. */
static int add_data(struct plan_rows *rows, const struct plan_job *job, struct plan_layout layout,
                    struct sl_error *error) {
    static const char *const name[] = {"data", "data, ZeRO 1: optimizer states", "data, ZeRO 2: sums of gradients",
                                       "data, ZeRO 3 (FSDP): kernels too"};
    for (layout.zero = 0; layout.zero < 4; layout.zero++) SL_TRY(add(rows, job, name[layout.zero], layout, error));
    return SL_OK;
}

/* Adds a row per pipeline: a stage of the rank with the largest memory. */
static int add_pipelines(struct plan_rows *rows, const struct plan_job *job, struct plan_layout layout,
                         struct sl_error *error) {
    for (int i = 0; plan_pipeline_name(i); i++) {
        const char *name = plan_pipeline_name(i);
        struct plan_job plain = *job;
        struct plan_pipeline pipeline = {0};
        char setup[64];
        plain.loops = 1;
        const int status = plan_pipeline_make(&pipeline, &plain, name, error);
        for (int p = 0; p < PLAN_PLACES; p++) layout.kept[p] = pipeline.kept_at[p];
        layout.trains = pipeline.trains;
        plan_pipeline_free(&pipeline);
        SL_TRY(status);
        snprintf(setup, sizeof setup, "pipeline: %s", name);
        SL_TRY(add(rows, job, setup, layout, error));
    }
    return SL_OK;
}

/* Adds a row with everything, with the job's pipeline, by default the interleaved one. */
static int add_all(struct plan_rows *rows, const struct plan_job *job, struct plan_layout layout,
                   struct sl_error *error) {
    const char *name = job->pipeline ? job->pipeline : "interleaved";
    struct plan_pipeline pipeline = {0};
    char setup[64];
    const int status = plan_pipeline_make(&pipeline, job, name, error);
    const double loops = pipeline.schedule.loops ? pipeline.schedule.loops : 1;
    for (int p = 0; p < PLAN_PLACES; p++) layout.kept[p] = pipeline.kept_at[p] / loops;
    layout.trains = pipeline.trains;
    plan_pipeline_free(&pipeline);
    SL_TRY(status);
    snprintf(setup, sizeof setup, "all: ZeRO %d, %.24s", job->zero, name);
    return add(rows, job, setup, layout, error);
}

static const struct plan_field model_field[] = {{"parameters", "parameters", 14, PLAN_FIELD_COUNT},
                                                {"layer", "of a layer", 14, PLAN_FIELD_COUNT},
                                                {"embedding", "of embeddings", 14, PLAN_FIELD_COUNT},
                                                {"tokens", "tokens an update", 16, PLAN_FIELD_COUNT},
                                                {0}};

static int add_model(struct plan_rows *rows, const struct plan_job *job, struct sl_error *error) {
    const bool own = job->parameters == 0;
    const union plan_value value[] = {
        {.number = plan_count_parameters(job)},
        {.number = own ? layer_parameters(job, 1) : NAN},
        {.number = own ? embedding_parameters(job) : NAN},
        {.number = (double)job->data * job->microbatches * job->microbatch_size * job->sequence}};
    plan_rows_begin(rows, "model", "Model", model_field);
    SL_TRY(plan_rows_add(rows, value, error));
    if (!own)
        plan_rows_note(
            rows, "\nactivations are those of %d layers of %d columns with %d heads (--layers, --hidden, --heads)\n",
            job->layers, job->hidden, job->heads);
    plan_rows_note(rows, "\n");
    return SL_OK;
}

int plan_print_memory(struct plan_rows *rows, const struct plan_job *job, struct sl_error *error) {
    struct plan_layout layout = plan_layout_of(job), alone = layout;
    SL_TRY(add_model(rows, job, error));
    plan_rows_begin(rows, "memory",
                    "Memory on one device, and on the fullest one of several (one microbatch at a time)", field);
    SL_TRY(add_one_device(rows, job, error));
    alone.data = alone.stages = alone.tensor = 1;
    alone.zero = 0;
    alone.data = job->data;
    SL_TRY(add_data(rows, job, alone, error));
    alone.data = 1;
    alone.stages = job->stages;
    SL_TRY(add_pipelines(rows, job, alone, error));
    alone.stages = 1;
    alone.tensor = job->tensor;
    SL_TRY(add(rows, job, "tensor", alone, error));
    return add_all(rows, job, layout, error);
}

/* ---- data parallelism: batches ---- */

static const struct plan_field data_field[] = {{"replicas", "replicas", 8, PLAN_FIELD_COUNT},
                                               {"microbatch", "microbatch", 10, PLAN_FIELD_COUNT},
                                               {"accumulated", "accumulated", 11, PLAN_FIELD_COUNT},
                                               {"batch", "batch", 8, PLAN_FIELD_COUNT},
                                               {"all_reduce", "all-reduced", 13, PLAN_FIELD_BYTES},
                                               {"sent", "sent a device", 13, PLAN_FIELD_BYTES},
                                               {"sent_per_sample", "sent a sample", 13, PLAN_FIELD_BYTES},
                                               {0}};

int plan_print_data(struct plan_rows *rows, const struct plan_job *job, struct sl_error *error) {
    const double bytes = plan_count_parameters(job) * plan_gradient_bytes(job->precision);
    plan_rows_begin(
        rows, "data",
        "Data: each replica has all of the model and does its own microbatches; gradients are summed once an\n"
        "update, after so many of them have been accumulated.",
        data_field);
    for (int replicas = 1;; replicas = 2 * replicas < job->data ? 2 * replicas : job->data) {
        const double local = (double)job->microbatch_size * job->microbatches, batch = local * replicas;
        const double sent = 2 * bytes * (replicas - 1) / replicas; /* on a ring */
        const union plan_value value[] = {
            {.number = replicas},    {.number = job->microbatch_size},     {.number = job->microbatches},
            {.number = batch},       {.number = replicas > 1 ? bytes : 0}, {.number = sent},
            {.number = sent / local}};
        SL_TRY(plan_rows_add(rows, value, error));
        if (replicas == job->data) return SL_OK;
    }
}
