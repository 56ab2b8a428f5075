/* memory_section.c - memory of a device, and ways to reduce it.
 *
 * All bytes are those of the trainer's own plan (predict.c). Activations are all but parameters, gradients and
 * optimizer states: saved for backward, or recomputed; memory of running calls; messages between stages; the batch. */
#include <math.h>
#include <string.h>

#include "drivers/tools/plan/plan.h"

static const double gibibyte = 1024.0 * 1024 * 1024;

struct plan_layout plan_layout_of(const struct plan_job *job) {
    const int loops = job->loops > 1 ? job->loops : 0;
    const bool trains = !job->pipeline || plan_pipeline_trains(job->pipeline);
    const char *schedule =
        trains ? plan_schedule_name(job->pipeline ? job->pipeline : "interleaved", job->loops) : NULL;
    return (struct plan_layout){.precision = job->precision,
                                .trains = trains,
                                .recompute = job->recompute,
                                .offload = job->offload,
                                .data = job->data,
                                .stages = job->stages,
                                .tensor = job->tensor,
                                .context = job->context,
                                .zero = job->zero,
                                .samples = job->microbatch_size,
                                .microbatches = job->microbatches,
                                .schedule = schedule ? schedule : "gpipe",
                                .loops = loops};
}

int plan_memory_of(struct plan_memory *memory, const struct plan_job *job, const struct plan_layout *layout,
                   struct sl_error *error) {
    struct plan_prediction prediction;
    SL_TRY(plan_predict(&prediction, job, layout, error));
    *memory = plan_memory_in(&prediction, job);
    return SL_OK;
}

struct plan_memory plan_memory_in(const struct plan_prediction *prediction, const struct plan_job *job) {
    const uint64_t *bytes = prediction->budget.bytes;
    return (struct plan_memory){.parameters = (double)bytes[SL_MEMORY_PARAMETERS],
                                .gradients = (double)bytes[SL_MEMORY_GRADIENTS],
                                .optimizer = (double)bytes[SL_MEMORY_OPTIMIZER],
                                .activations = (double)sl_budget_activations(&prediction->budget),
                                .code = job->code * gibibyte};
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
    struct plan_memory memory;
    SL_TRY(plan_memory_of(&memory, job, &layout, error));
    const double total = plan_memory_total(&memory);
    const char *fits = total <= job->capacity * gibibyte ? "yes" : "no";
    const union plan_value value[] = {{.text = setup},
                                      {.number = (double)layout.data * layout.stages * layout.tensor * layout.context},
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
                                      .context = 1,
                                      .samples = (double)job->microbatch_size * job->microbatches,
                                      .microbatches = 1,
                                      .schedule = "sequential"};
    struct plan_layout layout = batch;
    SL_TRY(add(rows, job, "one device, the whole batch, f32", layout, error));
    layout.precision = PLAN_ALL_BF16;
    SL_TRY(add(rows, job, "lower precision: bf16", layout, error));
    layout.precision = PLAN_MIXED;
    SL_TRY(add(rows, job, "bf16, with f32 values and states", layout, error));
    layout = batch;
    layout.samples = job->microbatch_size;
    layout.microbatches = job->microbatches;
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
    layout.microbatches = job->microbatches;
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

/* Adds a row per pipeline. */
static int add_pipelines(struct plan_rows *rows, const struct plan_job *job, struct plan_layout layout,
                         struct sl_error *error) {
    for (int i = 0; plan_pipeline_name(i); i++) {
        const char *name = plan_pipeline_name(i), *schedule = plan_schedule_name(name, 1);
        char setup[64];
        layout.trains = plan_pipeline_trains(name);
        layout.schedule = schedule ? schedule : "gpipe";
        snprintf(setup, sizeof setup, "pipeline: %s", name);
        SL_TRY(add(rows, job, setup, layout, error));
    }
    return SL_OK;
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
        {.number = own ? plan_layer_parameters(job, 1) : NAN},
        {.number = own ? plan_embedding_parameters(job) : NAN},
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
    const struct plan_layout layout = plan_layout_of(job);
    struct plan_layout alone = layout;
    char all[64];
    SL_TRY(add_model(rows, job, error));
    plan_rows_begin(rows, "memory", "Memory on one device, and on the fullest one of several", field);
    SL_TRY(add_one_device(rows, job, error));
    alone.stages = alone.tensor = alone.context = 1;
    alone.schedule = "sequential";
    alone.loops = 0;
    SL_TRY(add_data(rows, job, alone, error));
    alone.data = 1;
    alone.zero = 0;
    alone.stages = job->stages;
    SL_TRY(add_pipelines(rows, job, alone, error));
    alone.stages = 1;
    alone.tensor = job->tensor;
    SL_TRY(add(rows, job, "tensor", alone, error));
    alone.tensor = 1;
    alone.context = job->context;
    if (job->context > 1) SL_TRY(add(rows, job, "context: sequences", alone, error));
    snprintf(all, sizeof all, "all: ZeRO %d, %.24s", job->zero, job->pipeline ? job->pipeline : "interleaved");
    return add(rows, job, all, layout, error);
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
