/* memory.c - what a device has to hold, and what makes it less.
 *
 * Parameters of a layer with hidden size h and expansion e: attention 4 h h + 4 h, perceptron 2 e h h + (e + 1) h, two
 * norms 4 h. Elements that a layer keeps of each token for its backward: the inputs of both norms and what they give
 * (4 h), queries, keys and values, the attention's result (4 h), a row of attention weights per head, and the
 * perceptron's middle before and after its activation (2 e h). Tensor parallelism divides all but the first 4 h. */
#include <math.h>
#include <string.h>

#include "drivers/plan/plan.h"

static const double gibibyte = 1024.0 * 1024 * 1024;

/* ---- counts ---- */

static double embedding_parameters(const struct plan_job *job, int tensor) {
    const double h = job->hidden;
    return h * job->vocabulary / tensor + h * job->sequence + 2 * h; /* tokens, positions, last norm */
}

static double layer_parameters(const struct plan_job *job, int tensor) {
    const double h = job->hidden, e = job->expansion;
    return ((4 + 2 * e) * h * h + (3 + e) * h) / tensor + 6 * h;
}

static int layers_of_stage(const struct plan_job *job, int stages) { return (job->layers + stages - 1) / stages; }

double plan_count_parameters(const struct plan_job *job, int stages, int tensor) {
    if (job->parameters > 0) return job->parameters / stages / tensor;
    return layers_of_stage(job, stages) * layer_parameters(job, tensor) + embedding_parameters(job, tensor);
}

double plan_count_held(const struct plan_job *job, const struct plan_layout *layout) {
    const double count = plan_count_parameters(job, layout->stages, layout->tensor);
    const double table = (double)job->hidden * job->vocabulary;
    return layout->spread_head ? count + table / layout->stages - table / layout->tensor : count;
}

double plan_head_share(const struct plan_job *job, int stages) {
    if (job->parameters > 0) return 0;
    return (double)job->hidden * job->vocabulary * stages / (job->layers * layer_parameters(job, 1));
}

/* Elements of one sample that a layer keeps, and those with which recomputation begins. */
static double layer_activations(const struct plan_job *job, int tensor) {
    const double h = job->hidden, tokens = job->sequence;
    return tokens * (4 * h + ((4.0 + 2 * job->expansion) * h + (double)job->heads * tokens) / tensor);
}

static double layer_input(const struct plan_job *job) { return (double)job->sequence * job->hidden; }

double plan_element_bytes(int precision) { return precision == PLAN_ALL_F32 ? 4 : 2; }

static double optimizer_bytes(const struct plan_job *job, int precision) {
    static const double states[] = {[PLAN_SGD] = 0, [PLAN_MOMENTUM] = 1, [PLAN_ADAM] = 2};
    if (precision == PLAN_MIXED) return 4 * (states[job->optimizer] + 1);
    return plan_element_bytes(precision) * states[job->optimizer];
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
                                .kept = 1};
}

static double activation_bytes(const struct plan_job *job, const struct plan_layout *layout) {
    const double element = plan_element_bytes(layout->precision), layers = layers_of_stage(job, layout->stages);
    const double layer = layer_activations(job, layout->tensor);
    const double heads = layout->kept_heads * 4 * layer_input(job); /* a state, and three that a share hands on */
    if (!layout->trains) return element * layout->samples * layer;
    if (!layout->recompute) return element * layout->samples * (layout->kept * layers * layer + heads);
    return element * layout->samples * (layout->kept * layers * layer_input(job) + layer + heads);
}

struct plan_memory plan_memory_of(const struct plan_job *job, const struct plan_layout *layout) {
    const double count = plan_count_held(job, layout);
    const double element = plan_element_bytes(layout->precision), data = layout->data;
    struct plan_memory memory = {.parameters = count * element / (layout->zero >= 3 ? data : 1),
                                 .activations = activation_bytes(job, layout),
                                 .code = job->code * gibibyte};
    if (!layout->trains) return memory;
    memory.gradients = count * element / (layout->zero >= 2 ? data : 1);
    if (!layout->offload)
        memory.optimizer = count * optimizer_bytes(job, layout->precision) / (layout->zero >= 1 ? data : 1);
    return memory;
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

/* One device: all microbatches as one batch, then what saves memory, one thing at a time. */
static int add_one_device(struct plan_rows *rows, const struct plan_job *job, struct sl_error *error) {
    const struct plan_layout batch = {.precision = PLAN_ALL_F32,
                                      .trains = true,
                                      .data = 1,
                                      .stages = 1,
                                      .tensor = 1,
                                      .samples = (double)job->microbatch_size * job->microbatches,
                                      .kept = 1};
    struct plan_layout layout = batch;
    SL_TRY(add(rows, job, "one device, the whole batch, f32", layout, error));
    layout.precision = PLAN_ALL_BF16;
    SL_TRY(add(rows, job, "lower precision: bf16", layout, error));
    layout.precision = PLAN_MIXED;
    SL_TRY(add(rows, job, "bf16, with f32 copy and states", layout, error));
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
    layout = (struct plan_layout){PLAN_ALL_BF16, true, true, true, 1, 1, 1, 0, job->microbatch_size, 1, false, 0};
    return add(rows, job, "all of these for training", layout, error);
}

/* Copies of the model, and what ZeRO divides among them. */
static int add_data(struct plan_rows *rows, const struct plan_job *job, struct plan_layout layout,
                    struct sl_error *error) {
    static const char *const name[] = {"data", "data, ZeRO 1: optimizer states", "data, ZeRO 2: gradients too",
                                       "data, ZeRO 3 (FSDP): parameters too"};
    for (layout.zero = 0; layout.zero < 4; layout.zero++) SL_TRY(add(rows, job, name[layout.zero], layout, error));
    return SL_OK;
}

/* A stage of each pipeline: the rank that keeps most. */
static int add_pipelines(struct plan_rows *rows, const struct plan_job *job, struct plan_layout layout,
                         struct sl_error *error) {
    for (int i = 0; plan_pipeline_name(i); i++) {
        const char *name = plan_pipeline_name(i);
        struct plan_job plain = *job;
        struct plan_pipeline pipeline = {0};
        char setup[64];
        plain.loops = 1;
        const int status = plan_pipeline_make(&pipeline, &plain, name, error);
        layout.kept = pipeline.kept;
        layout.trains = pipeline.trains;
        plan_pipeline_free(&pipeline);
        SL_TRY(status);
        snprintf(setup, sizeof setup, "pipeline: %s", name);
        SL_TRY(add(rows, job, setup, layout, error));
    }
    return SL_OK;
}

/* All of it, with the pipeline of the job: the interleaved one unless it trains by another one. */
static int add_all(struct plan_rows *rows, const struct plan_job *job, struct plan_layout layout,
                   struct sl_error *error) {
    const char *name = job->pipeline ? job->pipeline : "interleaved";
    struct plan_pipeline pipeline = {0};
    char setup[64];
    const int status = plan_pipeline_make(&pipeline, job, name, error);
    layout.kept = (double)pipeline.kept / (pipeline.schedule.loops ? pipeline.schedule.loops : 1);
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
        {.number = plan_count_parameters(job, 1, 1)},
        {.number = own ? layer_parameters(job, 1) : NAN},
        {.number = own ? embedding_parameters(job, 1) : NAN},
        {.number = (double)job->data * job->microbatches * job->microbatch_size * job->sequence}};
    plan_rows_begin(rows, "model", "Model", model_field);
    SL_TRY(plan_rows_add(rows, value, error));
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
    const double bytes = plan_count_parameters(job, 1, 1) * plan_element_bytes(job->precision);
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
