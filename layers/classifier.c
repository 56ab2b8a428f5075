/* classifier.c - builds each rank's part of the residual MLP classifier. */
#include "layers/classifier.h"

#include <stdio.h>
#include <stdlib.h>

#include "layers/modules.h"

static struct sl_module *build_block(const struct sl_classifier *classifier, int number) {
    char name[32];
    snprintf(name, sizeof name, "blocks.%d", number);
    struct sl_module *block = sl_mlp_block(name, classifier->hidden, classifier->expansion, classifier->dropout);
    if (block) block->is_layer = true;
    return block;
}

/* Stage number STAGE: its layers, the input layer before the first and the output layers after the last. */
static struct sl_module *build_stage(const struct sl_classifier *classifier, int stage, int layers) {
    const int stages = classifier->stages * classifier->loops;
    struct sl_module **part = calloc((size_t)layers + 3, sizeof *part), *whole = NULL;
    if (!part) return NULL;
    int parts = 0;
    if (stage == 0) part[parts++] = sl_dense("input_dense", classifier->inputs, classifier->hidden);
    for (int i = 0; i < layers; i++) part[parts++] = build_block(classifier, stage * layers + i);
    if (stage == stages - 1) {
        part[parts++] = sl_layer_norm("output_norm", classifier->hidden);
        part[parts++] = sl_dense("output_dense", classifier->hidden, classifier->classes);
    }
    whole = sl_sequential("", parts, part); /* takes the parts, also where one is missing */
    free(part);
    return whole;
}

int sl_classifier_build(const struct sl_classifier *classifier, int rank, struct sl_model *model,
                        struct sl_error *error) {
    const int stages = classifier->stages * classifier->loops;
    if (classifier->layers % stages)
        return sl_error_set(error, SL_BAD_INPUT, "%d layers do not divide over %d stages x %d loops",
                            classifier->layers, classifier->stages, classifier->loops);
    *model = (struct sl_model){
        .in = classifier->inputs,
        .hidden = classifier->hidden,
        .classes = classifier->classes,
        .loops = classifier->loops,
        .layers = classifier->layers / stages,
        .stage = calloc((size_t)classifier->loops, sizeof *model->stage),
    };
    for (int l = 0; model->stage && l < classifier->loops; l++) {
        model->stage[l] = build_stage(classifier, l * classifier->stages + rank, model->layers);
        if (!model->stage[l]) return sl_error_set(error, SL_FAILED, "no memory for the model");
    }
    if (rank == classifier->stages - 1) model->loss = sl_softmax_cross_entropy(classifier->classes);
    if (!model->stage || (rank == classifier->stages - 1 && !model->loss))
        return sl_error_set(error, SL_FAILED, "no memory for the model");
    return SL_OK;
}

void sl_classifier_free(struct sl_model *model) {
    for (int l = 0; model->stage && l < model->loops; l++) sl_module_free(model->stage[l]);
    free(model->stage);
    sl_module_free(model->loss);
    *model = (struct sl_model){0};
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

size_t sl_classifier_parameters_stacked(const struct sl_classifier *classifier) {
    return (size_t)classifier->layers * block_parameters(classifier) +
           (size_t)classifier->stages * edge_parameters(classifier);
}
