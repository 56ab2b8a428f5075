/* pipeline_internal.h - what planning a pipeline (pipeline_plan.c) leaves for walking its schedule (pipeline.c). */
#ifndef SL_LAYERS_TRAINING_PIPELINE_INTERNAL_H
#define SL_LAYERS_TRAINING_PIPELINE_INTERNAL_H

#include "layers/training/pipeline.h"

/* What W needs of a stage as a whole: the rows of its x and dy, kept over all microbatches. Not kept in the stash where
 * a place is not stashed. */
struct kept {
    struct sl_place x, dy;
};

/* The channels of one loop's stage: to and from the stages after and before it. NULL at the ends of the pipeline. */
struct ends {
    struct sl_channel *take_activation, *send_activation, *take_gradient, *send_gradient;
};

/* One for each ordered pair of ranks and direction: stages of several loops may share it. */
struct link {
    int from, to; /* ranks */
    bool gradients;
    struct sl_channel channel;
};

/* Weight gradients wait until all microbatches of their group are there, and groups go in ascending order. */
struct weight_gradients {
    bool *ready; /* [microbatches] */
    int next;    /* first microbatch of the next group */
};

struct sl_pipeline {
    struct sl_spmd *self;
    struct sl_pipeline_options options;
    struct sl_model *model;
    const struct sl_rank_schedule *actions;
    int rank, microbatches;
    int in, hidden, out; /* columns of the batch's inputs, between stages, of the logits; 0 where there are none here */
    struct sl_stash stash;
    struct sl_stash again, once; /* of what is recomputed: for backward, and for a forward whose results go */
    struct sl_groups groups;
    struct kept *kept;                /* [loops] */
    struct weight_gradients *weights; /* [loops] */
    int *forward_time; /* [loops][microbatches]: a backward that recomputes draws its forward's dropout */
    size_t workspace_bytes;
    struct sl_context context;
    /* Where the schedule keeps states that come round; and where the last stage is. */
    float *inputs, *input_gradients;   /* [microbatches * rows, hidden] */
    float *outputs, *output_gradients; /* [microbatches * rows, out] */
    struct ends *ends;                 /* [loops] */
    struct link *link;                 /* [links], at most 4 a loop */
    int links;
    const float *state;          /* activation last received, in its slot; NULL: none */
    const float *state_gradient; /* gradient last received */
    struct sl_batch_room room;
    struct sl_batch batch; /* the step's, where the device reaches it */
    struct sl_pipeline_step *step;
};

/* Elements before MICROBATCH in arrays of rows that stages hand over, and of logits. */
static inline size_t hidden_row(const struct sl_pipeline *p, int microbatch) {
    return (size_t)microbatch * (size_t)p->options.rows * (size_t)p->hidden;
}

static inline size_t output_row(const struct sl_pipeline *p, int microbatch) {
    return (size_t)microbatch * (size_t)p->options.rows * (size_t)p->out;
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
/* The last stage, and with it logits and labels, is this rank's highest. */
static inline bool has_loss(const struct sl_pipeline *p) { return is_last(p, p->model->loops - 1); }

#endif
