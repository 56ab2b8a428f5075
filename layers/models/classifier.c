/* classifier.c - builds each rank's part of the residual MLP classifier. */
#include "layers/models/classifier.h"

#include <stdio.h>
#include <stdlib.h>

#include "layers/modules/transformer_modules.h"

static const char data_axis[] = "data";

const struct sl_rule *sl_classifier_rules(const struct sl_classifier *classifier) {
    static const struct sl_rule over_data[] = {{"*.kernel", "-,data"}, {0}};
    return classifier->fsdp ? over_data : NULL;
}

const char *const *sl_classifier_axes(const struct sl_classifier *classifier) {
    static const char *const data[] = {data_axis, NULL};
    return classifier->fsdp ? data : NULL;
}

/* A dense layer. If rules may shard its kernel, it is a sharded one whose columns no axis shards. */
static struct sl_module *build_dense(const struct sl_classifier *classifier, const char *name, int in, int out) {
    static const struct sl_mesh alone = {.size = 1};
    const struct sl_channels channels = {.mesh = &alone, .axis = "tensor", .pieces = 1};
    const bool sharded = classifier->fsdp || classifier->exact;
    return sharded ? sl_sharded_dense(name, in, out, 1, 1, &channels) : sl_dense(name, in, out);
}

/* The modules of sl_mlp_block. Selective recomputation leaves out the last product, because backward does not read its
 * result. */
static struct sl_module *build_mlp(const struct sl_classifier *classifier, const char *name) {
    const int hidden = classifier->hidden, inside = hidden * classifier->expansion;
    struct sl_module *const layer[] = {
        sl_layer_norm("pre_norm", hidden),
        build_dense(classifier, "input_dense", hidden, inside),
        sl_silu_dropout(inside, classifier->dropout),
        build_dense(classifier, "output_dense", inside, hidden),
    };
    if (classifier->recomputation != SL_RECOMPUTE_SELECTIVE) return sl_sequential(name, 4, layer);
    struct sl_module *const part[] = {sl_recompute(sl_sequential("", 3, layer)), layer[3]};
    return sl_sequential(name, 2, part);
}

static struct sl_module *build_block(const struct sl_classifier *classifier, int number) {
    char name[32];
    snprintf(name, sizeof name, "blocks.%d", number);
    struct sl_module *block = sl_residual(build_mlp(classifier, name));
    if (block) block->is_layer = true;
    return classifier->recomputation >= SL_RECOMPUTE_FULL ? sl_recompute(block) : block;
}

static struct sl_layers layers_of(const struct sl_classifier *classifier) {
    return (struct sl_layers){.count = classifier->layers, .of_stage = classifier->stage_layers};
}

/* Stage number STAGE: its layers, with the input layer before the first and the output layers after the last. */
static struct sl_module *build_stage(const struct sl_classifier *classifier, int stages, int stage) {
    const int first = sl_model_first_layer(layers_of(classifier), stages, stage);
    const int end = sl_model_first_layer(layers_of(classifier), stages, stage + 1);
    struct sl_module **part = calloc((size_t)(end - first) + 3, sizeof *part), *whole = NULL;
    if (!part) return NULL;
    int parts = 0;
    if (stage == 0) part[parts++] = build_dense(classifier, "input_dense", classifier->inputs, classifier->hidden);
    for (int layer = first; layer < end; layer++) part[parts++] = build_block(classifier, layer);
    if (stage == stages - 1) {
        part[parts++] = sl_layer_norm("output_norm", classifier->hidden);
        part[parts++] = build_dense(classifier, "output_dense", classifier->hidden, classifier->classes);
    }
    whole = sl_sequential("", parts, part); /* takes ownership of the parts, even if one is NULL */
    free(part);
    return whole;
}

int sl_classifier_build(const struct sl_classifier *classifier, const struct sl_schedule *schedule, int rank,
                        struct sl_model *model, struct sl_error *error) {
    const int stages = sl_schedule_depth(schedule);
    SL_TRY(sl_model_open(model, schedule, rank, layers_of(classifier), 0, 0, error));
    for (int l = 0; l < model->loops; l++) {
        const int stage = sl_schedule_position(schedule, sl_schedule_stage(schedule, rank, l));
        model->stage[l] = build_stage(classifier, stages, stage);
        if (stage == stages - 1) model->loss = sl_softmax_cross_entropy(classifier->classes);
        if (!model->stage[l] || (stage == stages - 1 && !model->loss))
            return sl_error_set(error, SL_FAILED, "no memory for the model");
    }
    return SL_OK;
}

static size_t block_parameters(const struct sl_classifier *classifier) {
    const size_t hidden = (size_t)classifier->hidden, inside = hidden * (size_t)classifier->expansion;
    return 2 * hidden + (hidden * inside + inside) + (inside * hidden + hidden);
}

static size_t edge_parameters(const struct sl_classifier *classifier) {
    const size_t hidden = (size_t)classifier->hidden;
    return ((size_t)classifier->inputs + 1) * hidden + 2 * hidden + (hidden + 1) * (size_t)classifier->classes;
}

size_t sl_classifier_parameters(const struct sl_classifier *classifier) {
    return (size_t)classifier->layers * block_parameters(classifier) + edge_parameters(classifier);
}

size_t sl_classifier_parameters_stacked(const struct sl_classifier *classifier, int ranks) {
    return (size_t)classifier->layers * block_parameters(classifier) + (size_t)ranks * edge_parameters(classifier);
}
