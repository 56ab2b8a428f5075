/* pipeline.h - the executor: one coordinate walks its rank's lowered schedule.
 *
 * A stage is a list of modules; the first stage begins with the prologue, the last ends with the epilogue and the loss.
 * Ranks are the coordinates along one axis of the mesh ("model"); hand-over is a channel for each pair of ranks with
 * neighbouring stages, each way: on a ring together a persistent ppermute. Bubbles do no work. */
#ifndef SL_LAYERS_TRAINING_PIPELINE_H
#define SL_LAYERS_TRAINING_PIPELINE_H

#include "collectives/channel.h"
#include "layers/training/model.h"
#include "layers/training/trace.h"

SL_BEGIN_C

/* Slots of a channel. Schedules are proven with the fewest; more let a stage run ahead of the next one, so that a core
 * which several coordinates share goes through many microbatches with one stage's weights in its cache. */
enum { SL_PIPELINE_FEWEST_SLOTS = 2, SL_PIPELINE_MOST_SLOTS = 16 };

struct sl_pipeline; /* opaque */

struct sl_pipeline_options {
    const struct sl_rule *rules;   /* of parameters' specs; may be NULL */
    const char *axis;              /* the axis of the ranks */
    const char *const *group_axes; /* others, over which modules communicate (layers/modules/groups.h); may be NULL */
    const struct sl_schedule *schedule; /* lowered; outlives the pipeline */
    const struct sl_gemm_backend *gemm;
    enum sl_dtype precision;  /* of products' operands: SL_F32 or SL_BF16 */
    int slots;                /* of a channel, with which the schedule is proven; 0: sl_schedule_slots tells */
    int rows;                 /* of a microbatch */
    int sequence;             /* rows of one sequence in it; 0: rows have nothing to do with each other */
    bool forward_only;        /* it will never train */
    struct sl_caches *caches; /* for prefill and decode; outlives the pipeline; else NULL */
    int wgrad_group;          /* microbatches of one weight-gradient product; divides the number of microbatches */
};

/* Plans MODEL: parameters are declared, stash, workspace and buffers sized. Nothing large is taken yet. */
int sl_pipeline_plan(struct sl_pipeline **pipeline, struct sl_spmd *self, const struct sl_pipeline_options *options,
                     struct sl_model *model, struct sl_parameters *parameters);
/* Bytes that sl_pipeline_open will take: stash, workspace, buffers, channel slots. */
size_t sl_pipeline_bytes(const struct sl_pipeline *pipeline);
/* Columns of the batch's inputs; 0 where this coordinate has not the first stage, and reads none. */
int sl_pipeline_inputs(const struct sl_pipeline *pipeline);
/* Takes the memory and opens the channels. */
int sl_pipeline_open(struct sl_pipeline *pipeline);
void sl_pipeline_close(struct sl_pipeline *pipeline);

/* Called when a loop's gradients are complete, while other loops still compute. */
typedef int sl_reduce_function(struct sl_spmd *self, int loop, void *arg);

struct sl_pipeline_step {
    struct sl_batch batch;          /* this coordinate's rows: all microbatches, one after another */
    uint32_t first_row;             /* global row of this coordinate's first row */
    int position;                   /* of each sequence's first row: decoding */
    bool accumulate;                /* gradients are added to those of the calls before: no longer the first part */
    struct sl_key step_key;         /* for dropout by global position */
    const struct sl_key *layer_key; /* [iterations][layers of a stage] in JAX's layout, or NULL */
    float weight;                   /* what each row's loss is multiplied with in the gradient: 1 / rows of the batch */
    sl_reduce_function *reduce;     /* may be NULL, and so may: */
    int (*between)(void *arg);      /* called between actions while loops that are complete may be on their way */
    void *callback_arg;
    struct sl_profile *profile; /* may be NULL */
    struct sl_trace *trace;     /* may be NULL */
    struct sl_metrics metrics;  /* out: sums over this coordinate's rows, zero but on the last stage */
};

/* Runs one training step: forward and backward of all microbatches; gradients are left in the parameters. */
int sl_pipeline_train(struct sl_pipeline *pipeline, struct sl_pipeline_step *step);
/* Runs the forward actions alone. */
int sl_pipeline_evaluate(struct sl_pipeline *pipeline, struct sl_pipeline_step *step);
/* The same over sequences whose tokens go to the caches, from step->position on: of a prompt, or of one token each. */
int sl_pipeline_generate(struct sl_pipeline *pipeline, struct sl_pipeline_step *step, enum sl_phase phase);
/* What the loss has made of the last call's logits: [microbatches][rows, columns], NULL but on the last stage. */
const float *sl_pipeline_outputs(const struct sl_pipeline *pipeline);

SL_END_C
#endif
