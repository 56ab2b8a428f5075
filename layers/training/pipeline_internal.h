/* pipeline_internal.h - the plan of a pipeline (pipeline_plan.c), for walking its schedule (pipeline.c). */
#ifndef SL_LAYERS_TRAINING_PIPELINE_INTERNAL_H
#define SL_LAYERS_TRAINING_PIPELINE_INTERNAL_H

#include "layers/modules/parameters/gathers.h"
#include "layers/training/pipeline.h"
#include "spmd/device/window.h"

/* Places of a stage's x and dy, saved for W in the type of sl_pipeline_dtype. An unstashed place is unused: the rows
 * lie elsewhere, or W does not need them. */
struct kept {
    struct sl_place x, dy;
    size_t begin; /* start of the loop's part of the stash, in elements of one slot */
};

/* Channels of one loop's stage, to and from its neighbours. NULL at the ends of the pipeline. */
struct ends {
    struct sl_channel *take_activation, *send_activation, *take_gradient, *send_gradient;
};

/* A channel for one ordered pair of ranks and one kind of data. Stages of several loops may share it. */
struct link {
    int from, to; /* ranks */
    bool gradients;
    struct sl_channel channel;
};

/* Weight gradients of one loop. A group of microbatches is computed when all of them are ready; groups are computed in
 * ascending order. */
struct weight_gradients {
    bool *ready;    /* [microbatches] */
    int first, end; /* microbatches of the stage */
    int next;       /* first microbatch of the next group */
    bool begun;
};

struct sl_pipeline {
    struct sl_spmd *self;
    struct sl_pipeline_options options;
    struct sl_model *model;
    const struct sl_rank_schedule *actions;
    int rank, microbatches;
    int run;             /* microbatches of a forward, an input gradient and their messages */
    int in, hidden, out; /* columns of the batch's inputs, of rows between stages, and of the last stage's output; 0 if
                            this rank has none */
    unsigned reads;      /* arrays of the batch for this rank's stages and loss, as in struct sl_module_type */
    struct sl_batch_bounds bounds;
    bool reads_inputs; /* whether the first stage reads the batch's inputs */
    struct sl_stash stash;
    struct sl_stash again, once;        /* stashes of recomputed modules: tensors until W, and tensors for one call */
    bool weights_follow, forward_keeps; /* as in struct sl_plan */
    /* With frames, the stash is one unit of the window at a time: stash.slots microbatches of a loop. */
    struct sl_window window;
    int frames, turns; /* units held in memory at a time (0: nothing is offloaded); units of a loop */
    struct sl_groups groups;
    bool unshards; /* UNSHARD and RESHARD are carried out, by the gathers and scatters below */
    struct sl_gathers gathers;
    struct sl_scatters scatters;
    struct kept *kept; /* [loops] */
    /* If stages send bf16: float buffers for a call's x or dy, and for its y or dx. */
    struct sl_place taken, given;
    struct weight_gradients *weights;    /* [loops] */
    size_t workspace_bytes, table_bytes; /* of a call; of tables shared by layers (rotary positions) */
    size_t sums_at;                      /* offset of the sums, after the modules' workspace */
    struct sl_context context;
    /* Buffers of stage inputs, if the schedule saves states, and of their gradients. Then outputs of the last stage and
     * of the loss; the loss outputs gradients, unless the model generates. */
    char *inputs, *input_gradients;    /* [microbatches * rows, hidden], in the type in which they are sent */
    float *outputs, *output_gradients; /* [output_slots * rows, out], [output_slots * rows, the loss's out] */
    int output_slots;                  /* microbatches held at the same time */
    struct ends *ends;                 /* [loops] */
    struct link *link;                 /* [links], at most 4 for each loop */
    int links;
    const void *state;          /* the activation last received, in its slot; NULL: none */
    const void *state_gradient; /* the gradient last received */
    struct sl_batch_room room;
    struct sl_batch batch; /* the step's batch, in memory that the device can read */
    struct sl_pipeline_step *step;
};

/* Type in which rows of COLUMNS columns are sent and saved. Rows as wide as `handed` contain sums, which stay
 * floats. */
static inline enum sl_dtype sl_pipeline_dtype(const struct sl_pipeline *p, int columns) {
    return columns == p->model->handed ? SL_F32 : p->options.storage;
}
/* Bytes of COUNT rows of COLUMNS columns in that type. */
static inline size_t sl_pipeline_row_bytes(const struct sl_pipeline *p, int count, int columns) {
    return (size_t)count * (size_t)columns * sl_dtype_size(sl_pipeline_dtype(p, columns));
}

/* Bytes before MICROBATCH in arrays of rows sent between stages. */
static inline size_t hidden_bytes(const struct sl_pipeline *p, int microbatch) {
    return sl_pipeline_row_bytes(p, microbatch * p->options.rows, p->hidden);
}

/* Elements before MICROBATCH's slot in arrays of slots of COLUMNS columns. */
static inline size_t slot_row(const struct sl_pipeline *p, int microbatch, int columns) {
    return (size_t)(microbatch % p->output_slots) * (size_t)p->options.rows * (size_t)columns;
}
/* Elements before MICROBATCH's slot in the outputs of the last stage, and of the loss. */
static inline size_t output_row(const struct sl_pipeline *p, int microbatch) { return slot_row(p, microbatch, p->out); }
static inline size_t loss_row(const struct sl_pipeline *p, int microbatch) {
    return slot_row(p, microbatch, p->model->loss->out);
}
/* Elements before MICROBATCH in the batch's inputs. */
static inline size_t input_row(const struct sl_pipeline *p, int microbatch) {
    return (size_t)microbatch * (size_t)p->options.rows * (size_t)p->in;
}

static inline size_t batch_rows(const struct sl_pipeline *p) {
    return (size_t)p->microbatches * (size_t)p->options.rows;
}

/* This coordinate's part of sequences. */
static inline struct sl_cut sl_pipeline_cut(const struct sl_pipeline *p) {
    const char *axis = p->options.context_axis;
    const int leaves = p->options.context_leaves;
    return axis ? (struct sl_cut){sl_axis_size(p->self, axis), sl_axis_index(p->self, axis), leaves}
                : (struct sl_cut){0};
}
/* Rows of a sequence in modules' calls: a coordinate's rows, or a block if there are leaves. */
static inline int sl_pipeline_sequence(const struct sl_pipeline *p) {
    return p->options.sequence / sl_cut_own_blocks(sl_pipeline_cut(p));
}
/* Modules' microbatches in one of the schedule: with leaves of sequences, their blocks. */
static inline int sl_pipeline_blocks(const struct sl_pipeline *p) {
    return p->options.context_leaves ? p->options.rows / sl_pipeline_sequence(p) : 1;
}
static inline int stage_of(const struct sl_pipeline *p, int loop) {
    return sl_schedule_stage(p->options.schedule, p->rank, loop);
}
static inline bool is_first(const struct sl_pipeline *p, int loop) {
    return sl_schedule_is_first(p->options.schedule, stage_of(p, loop));
}
static inline bool is_last(const struct sl_pipeline *p, int loop) {
    return sl_schedule_is_last(p->options.schedule, stage_of(p, loop));
}
/* Whether this rank has a last stage, and so the loss. */
static inline bool has_loss(const struct sl_pipeline *p) {
    bool has = false;
    for (int l = 0; l < p->model->loops; l++) has = has || is_last(p, l);
    return has;
}

/* ---- weight gradients ---- */

/* Marks the weight gradient of ACTION as ready to compute. */
static inline void sl_pipeline_weights_due(struct sl_pipeline *p, const struct sl_action *action) {
    for (int i = 0; i < sl_schedule_run(p->options.schedule, action->kind); i++)
        p->weights[action->loop].ready[action->microbatch + i] = true;
}

/* Whether the loop has a next group, and all of it is due. */
static inline bool sl_pipeline_group_is_due(const struct sl_pipeline *p, const struct weight_gradients *weights) {
    if (weights->next >= weights->end) return false;
    for (int i = 0; i < p->options.wgrad_group; i++)
        if (!weights->ready[weights->next + i]) return false;
    return true;
}

/* Whether the gradient of ACTION, a backward, is sent at once; it may wait until the previous stage needs it. */
static inline bool is_sent(const struct sl_pipeline *p, const struct sl_action *action) {
    const struct sl_action *next = action + 1, *end = p->actions->action + p->actions->count;
    return next < end && next->kind == SL_SEND_GRADIENT && next->loop == action->loop &&
           next->microbatch == action->microbatch;
}

/* Whether the due groups of ACTION's loop run after ACTION. Groups that become due in a backward run once the
 * backward's gradient has been sent: the previous stage waits for it, and weight gradients are not needed before the
 * reduction. They run before the next backward, which may reuse their microbatches' slots. */
static inline bool sl_pipeline_runs_weights(const struct sl_pipeline *p, const struct sl_action *action) {
    return action->kind == SL_WEIGHT_GRADIENT || action->kind == SL_SEND_GRADIENT || action->kind == SL_REDUCE ||
           (sl_has_weight_gradient(action->kind) && !is_sent(p, action));
}

/* ---- the stash in a window (pipeline_offload.c) ---- */

/* Whether ACTION itself reads or writes the stash of its microbatches. */
static inline bool sl_pipeline_uses_stash(const struct sl_pipeline *p, const struct sl_action *action) {
    return action->kind == SL_FORWARD || sl_has_input_gradient(action->kind) ||
           (action->kind == SL_TAKE_GRADIENT && p->kept[action->loop].dy.stashed);
}

/* Plan the window once the stages are planned; open it; bring a unit into memory. */
int sl_pipeline_plan_offload(struct sl_pipeline *p);
int sl_pipeline_open_offload(struct sl_pipeline *p);
int sl_pipeline_bring_stash(struct sl_pipeline *p, int loop, int microbatch);
/* Makes the unit of MICROBATCH in LOOP the current stash. */
static inline int sl_pipeline_use_stash(struct sl_pipeline *p, int loop, int microbatch) {
    return p->frames ? sl_pipeline_bring_stash(p, loop, microbatch) : SL_OK;
}
/* Drops units of LOOP whose weight gradients have been computed, up to microbatch END (exclusive). */
void sl_pipeline_drop_stash(struct sl_pipeline *p, int loop, int end);

/* ---- parameters that take turns in memory (pipeline_offload.c) ---- */

int sl_pipeline_plan_turns(const struct sl_pipeline *p, struct sl_parameters *parameters);
/* Brings into memory all that ACTION uses: its parameters, its part of the stash, its loop's gathered kernels. */
int sl_pipeline_bring(struct sl_pipeline *p, const struct sl_action *action);

/* ---- sharded kernels (pipeline_shards.c) ---- */

/* Plans gathers and scatters before the stages are planned. Collective over the mesh. */
int sl_pipeline_plan_shards(struct sl_pipeline *p, const struct sl_parameters *parameters);
/* Call these, in this order, at the beginning of a step; for an UNSHARD or RESHARD; between actions; before an action
 * that may read kernels. Call sl_pipeline_end_shards after the last action. */
int sl_pipeline_begin_shards(struct sl_pipeline *p);
int sl_pipeline_shard_step(struct sl_pipeline *p, const struct sl_action *action);
int sl_pipeline_advance_shards(struct sl_pipeline *p);
int sl_pipeline_use_shards(struct sl_pipeline *p, const struct sl_action *action);
/* Call before the gradients are read. */
int sl_pipeline_end_scatters(struct sl_pipeline *p);
int sl_pipeline_end_shards(struct sl_pipeline *p);

/* SL_BAD_INPUT if stages of two ranks have declared an untied parameter of the same name. Collective over the mesh. */
int sl_pipeline_check_names(struct sl_pipeline *p, const struct sl_parameters *parameters);
/* SL_BAD_INPUT if BATCH does not fit a call in PHASE. */
int sl_pipeline_check_batch(const struct sl_pipeline *p, const struct sl_batch *batch, enum sl_phase phase);

#endif
