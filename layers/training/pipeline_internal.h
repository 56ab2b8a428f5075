/* pipeline_internal.h - what planning a pipeline (pipeline_plan.c) prepares for walking its schedule (pipeline.c). */
#ifndef SL_LAYERS_TRAINING_PIPELINE_INTERNAL_H
#define SL_LAYERS_TRAINING_PIPELINE_INTERNAL_H

#include "layers/training/pipeline.h"

/* Where a stage's x and dy are kept for W. A place that is not stashed is not used: the rows lie elsewhere, or W does
 * not need them. */
struct kept {
    struct sl_place x, dy;
};

/* The channels of one loop's stage: to and from the stage after it and the stage before it. NULL at the two ends of the
 * pipeline. */
struct ends {
    struct sl_channel *take_activation, *send_activation, *take_gradient, *send_gradient;
};

/* A channel for one ordered pair of ranks and one kind of data. Stages of several loops may share it. */
struct link {
    int from, to; /* ranks */
    bool gradients;
    struct sl_channel channel;
};

/* The weight gradients of one loop. A group of microbatches is computed when all of them are ready, and groups are
 * computed in ascending order. */
struct weight_gradients {
    bool *ready; /* [microbatches] */
    int next;    /* first microbatch of the next group */
    bool begun;
};

struct sl_pipeline {
    struct sl_spmd *self;
    struct sl_pipeline_options options;
    struct sl_model *model;
    const struct sl_rank_schedule *actions;
    int rank, microbatches;
    int run;             /* microbatches of a forward, an input gradient and their messages */
    int in, hidden, out; /* columns of the batch's inputs, between stages, and of what the last stage gives; 0 for those
                            that this rank does not have */
    unsigned reads;      /* what this rank's stages and loss read of the batch, as in struct sl_module_type */
    bool reads_inputs;   /* the first stage takes the batch's inputs */
    struct sl_stash stash;
    struct sl_stash again, once;        /* of recomputed modules: what waits for W, and what passes */
    bool weights_follow, forward_keeps; /* as in struct sl_plan */
    struct sl_groups groups;
    struct kept *kept;                   /* [loops] */
    struct weight_gradients *weights;    /* [loops] */
    size_t workspace_bytes, table_bytes; /* of a call; of what layers share (rotary positions) */
    struct sl_context context;
    /* The stage-input buffer, if the schedule keeps states, and its gradients; then what the last stage gives, and what
     * the loss makes of it: the gradients, unless the model generates. */
    float *inputs, *input_gradients;   /* [microbatches * rows, hidden] */
    float *outputs, *output_gradients; /* [microbatches * rows, out], [microbatches * rows, the loss's out] */
    struct ends *ends;                 /* [loops] */
    struct link *link;                 /* [links], at most 4 for each loop */
    int links;
    const float *state;          /* the activation last received, in its slot; NULL: none */
    const float *state_gradient; /* the gradient last received */
    struct sl_batch_room room;
    struct sl_batch batch; /* the step's batch, in memory that the device can read */
    struct sl_pipeline_step *step;
};

/* Elements before MICROBATCH in arrays of rows that stages hand over. */
static inline size_t hidden_row(const struct sl_pipeline *p, int microbatch) {
    return (size_t)microbatch * (size_t)p->options.rows * (size_t)p->hidden;
}

/* Elements before MICROBATCH in what the last stage gives. */
static inline size_t output_row(const struct sl_pipeline *p, int microbatch) {
    return (size_t)microbatch * (size_t)p->options.rows * (size_t)p->out;
}

/* The same in what the loss makes of it. */
static inline size_t loss_row(const struct sl_pipeline *p, int microbatch) {
    return (size_t)microbatch * (size_t)p->options.rows * (size_t)p->model->loss->out;
}

static inline size_t batch_rows(const struct sl_pipeline *p) {
    return (size_t)p->microbatches * (size_t)p->options.rows;
}

static inline int stage_of(const struct sl_pipeline *p, int loop) {
    return sl_schedule_stage(p->options.schedule, p->rank, loop);
}
static inline bool is_first(const struct sl_pipeline *p, int loop) { return stage_of(p, loop) == 0; }
static inline bool is_last(const struct sl_pipeline *p, int loop) {
    return stage_of(p, loop) == sl_schedule_stages(p->options.schedule) - 1;
}
/* Whether this rank has the last stage, and so the loss. The last stage is its rank's last loop. */
static inline bool has_loss(const struct sl_pipeline *p) { return is_last(p, p->model->loops - 1); }

/* SL_BAD_INPUT if stages of two ranks have declared a parameter of the same name, unless it is tied. Collective over
 * the mesh. */
int sl_pipeline_check_names(struct sl_pipeline *p, const struct sl_parameters *parameters);
/* SL_BAD_INPUT if BATCH is not what a call in PHASE takes. */
int sl_pipeline_check_batch(const struct sl_pipeline *p, const struct sl_batch *batch, enum sl_phase phase);

#endif
