/* predict.c - plans a layout of the job with the code that trains it: memory and time of a step are those of
 * `transformer train --plan search`, and so of its --dry-run. The devices are processes with memory of their own. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "drivers/tools/plan/plan.h"
#include "drivers/tools/search/search.h"
#include "drivers/transformer/transformer.h"

/* Fills in the options that plan_command writes. */
static struct transformer_config config_of(const struct plan_job *job, const struct plan_layout *layout) {
    static const char *const optimizer[] = {[PLAN_SGD] = "sgd", [PLAN_MOMENTUM] = "sgd", [PLAN_ADAM] = "adamw"};
    enum { FULL = 2 }; /* of --recompute */
    struct transformer_config config = transformer_defaults(layout->trains ? TRANSFORMER_TRAIN : TRANSFORMER_EVALUATE);
    struct sl_training_options *training = &config.training;
    const bool rounded = layout->precision == PLAN_MIXED;
    config.model_dimension = job->hidden;
    config.heads = job->heads;
    config.blocks = 1;
    config.layers_per_block = job->layers;
    config.attention = SL_ATTENTION_GROUPED;
    config.rope = 0;
    config.norm = SL_NORM_LAYER;
    config.mlp = SL_MLP_ERF_GELU;
    config.mlp_dimension = job->expansion * job->hidden;
    config.learned_positions = config.sequence = job->sequence;
    config.vocabulary = job->vocabulary;
    config.spread_head = layout->spread_head ? SL_SPREAD_VOCABULARY : SL_SPREAD_NOTHING;
    config.vocabulary_parallel = !layout->spread_head && layout->tensor > 1;
    training->batch = (int)(layout->samples * layout->microbatches * layout->data);
    training->microbatches = layout->microbatches;
    training->wgrad_group = 1;
    training->schedule = layout->schedule;
    training->loops = layout->loops;
    training->recompute = layout->recompute ? FULL : 0;
    training->zero = layout->zero < 2 ? layout->zero : 2;
    training->fsdp = layout->zero == 3;
    training->prefetch = layout->zero < 3;
    training->offload = layout->offload ? SL_OFFLOAD_OPTIMIZER : 0;
    training->optimizer.name = optimizer[job->optimizer];
    if (job->optimizer != PLAN_ADAM) training->optimizer.momentum = job->optimizer == PLAN_MOMENTUM ? 0.9 : 0;
    training->precision = rounded ? SL_PRODUCTS_BF16 : SL_PRODUCTS_F32;
    training->storage = rounded;
    return config;
}

/* Fills in a machine of the job's devices. Only products, attention, the optimizer's state on the host, and bytes over
 * links take time. */
static void make_machine(struct sl_machine *machine, const struct plan_job *job, const struct sl_mesh *mesh) {
    const double flops = 1e12 * job->teraflops;
    const struct sl_machine_product product = {.m = 4096, .n = 4096, .k = 4096, .gflops = flops / 1e9};
    *machine = (struct sl_machine){.name = "the devices", .kinds = 1, .attention = flops / 2, .far = 1e9 * job->fast};
    machine->nodes[0] =
        (struct sl_machine_nodes){.count = (mesh->size + job->node - 1) / job->node, .places = job->node, .speed = 1};
    for (int type = 0; type < 2; type++) {
        machine->product[machine->products] = product;
        machine->product[machine->products++].type = type ? SL_BF16 : SL_F32;
    }
    for (int link = 0; link < SL_LINKS; link++)
        machine->bandwidth[link] = 1e9 * (link == SL_LINK_NETWORK ? job->slow : job->fast);
}

/* A model of another kind has as many bytes per parameter; and with all numbers in bf16, which no run has, everything
 * takes half of its bytes in f32. */
static void scale(struct sl_budget *budget, const struct plan_job *job, const struct plan_layout *layout) {
    struct plan_job own = *job;
    own.parameters = 0;
    const double half = layout->precision == PLAN_ALL_BF16 ? 0.5 : 1;
    const double other = job->parameters > 0 ? job->parameters / plan_count_parameters(&own) : 1;
    for (int c = 0; c < SL_MEMORY_CATEGORIES; c++) {
        const double factor = half * (c <= SL_MEMORY_OPTIMIZER ? other : 1);
        if (factor != 1) budget->bytes[c] = (uint64_t)round(factor * (double)budget->bytes[c]);
    }
}

int plan_predict(struct plan_prediction *result, const struct plan_job *job, const struct plan_layout *layout,
                 struct sl_error *error) {
    const struct sl_engine like = {.table = &sl_search_processes};
    const struct transformer_config config = config_of(job, layout);
    struct transformer_job trained = {0};
    struct sl_machine *machine = malloc(sizeof *machine);
    struct sl_prediction of = {0};
    struct sl_mesh mesh;
    char text[96];
    if (!machine) return sl_error_set(error, SL_FAILED, "no memory to plan a layout");
    plan_mesh(text, sizeof text, layout);
    int status = sl_mesh_parse(&mesh, text, error);
    if (status == SL_OK) make_machine(machine, job, &mesh);
    if (status == SL_OK)
        status = transformer_plan_on_paper(&trained, layout->trains ? TRANSFORMER_TRAIN : TRANSFORMER_EVALUATE, &config,
                                           &mesh, &like, error);
    if (status == SL_OK) status = sl_predict(&trained.job, &like, machine, &of, error);
    transformer_finish(&trained);
    free(machine);
    scale(&of.budget, job, layout);
    const double sent = of.share_ms[SL_SHARE_CALLS] + of.reduce_ms;
    *result = (struct plan_prediction){
        .budget = of.budget, .bubble = of.bubble, .seconds = of.ms / 1e3, .sent = fmin(sent, of.ms) / 1e3};
    return status;
}
