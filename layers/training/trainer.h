/* trainer.h - a training run of one coordinate: pipeline, reduction of gradients over data, optimizer, metrics.
 *
 * When the last weight gradient of a loop is complete, the loop's gradients are summed over the data axis, the
 * optimizer uses them, and the new values are gathered, while other loops still compute (layers/training/update.h). */
#ifndef SL_LAYERS_TRAINING_TRAINER_H
#define SL_LAYERS_TRAINING_TRAINER_H

#include "layers/journal/journal.h"
#include "layers/training/optimizer.h"
#include "layers/training/pipeline.h"
#include "layers/storage/safetensors.h"
#include "layers/training/update.h"
#include "spmd/device/device.h"

SL_BEGIN_C

struct sl_trainer_options {
    struct sl_pipeline_options pipeline;
    /* Axis whose coordinates have different rows. Every axis of the mesh with more than one coordinate is this one, the
     * pipeline's axis, or in its group_axes. */
    const char *data_axis;
    struct sl_optimizer_options optimizer; /* may be left out if the pipeline is forward_only */
    float clip;                            /* the largest norm of all gradients together; 0: no limit */
    const char *freeze; /* patterns of names with commas between them: parameters that stay as they are; NULL: none */
    /* Patterns of the parameters of adapters (struct sl_lora), which alone train; where values are given, adapters
     * begin with their own. NULL: there are none. */
    const char *adapters;
    const struct sl_block_source *source; /* of kernels whose values stay in a file's blocks; NULL: none do */
    struct sl_adapters_alone alone;       /* checkpoints that it writes, or goes on from, have their values alone */
    int accumulate;                       /* passes of the pipeline in a step, each over as many rows; 0: one */
    /* Leaves, of equally many rows, which the coordinates of data_axis share: each takes the passes of one leaf after
     * the other, and bits do not depend on how many coordinates there are (layers/training/exact/leaves.h). What
     * is sharded over data has modules that leave parts of its gradient (sl_gradient_parts), or each coordinate has one
     * leaf, with one weight gradient of it. 0: sums over data are in the order of coordinates. */
    int exact;
    /* 1: shard optimizer state over data (ZeRO-1). 2: sums of gradients, too, where that takes less memory: a whole
     * gradient is there for loops that compute theirs at once; for all of them if there are several passes. */
    int zero;
    bool overlap; /* reduce while other loops compute */
    /* The optimizer's tensors lie further away (sl_parameters.far_states): where the host computes, in a file in
     * offload_directory. */
    bool offload_optimizer;
    /* So do values and gradients of the loops that do not compute (sl_parameters_begin_turns); then nothing overlaps.
     */
    bool offload_weights;
    /* Of the pipeline's offload_activations, too. */
    const char *offload_directory;
    /* Go on with a loss, or with gradients, that are not finite. */
    bool ignore_nan;
    enum sl_graphs graphs; /* of steps, on devices that have them (spmd/device/device.h); no bit changes */
    uint64_t seed;
    /* Called once after parameters are declared, to replace their keys. May be NULL. */
    void (*assign_keys)(struct sl_parameters *parameters, void *arg);
    /* Called before each pass of a training step; returns the dropout keys [iterations][layers of a stage] of that
     * pass. NULL: the key of step number n, from 1, is fold_in(fold_in(key of `seed`, 1), n), and words follow from the
     * global position. */
    const struct sl_key *(*step_keys)(void *arg);
    void *arg;
};

struct sl_trainer; /* opaque; each coordinate has its own */

/* Plans a training run of MODEL: declares its parameters and computes how much memory it needs. Takes no large memory
 * yet. MODEL must outlive the trainer, and so must what OPTIONS points to. Collective over the mesh. SL_BAD_INPUT if
 * options, schedule, model and mesh do not fit each other, or if two stages declare a parameter of the same name; the
 * line names what is missing or wrong. SL_FAILED if there is no
 * memory. Free with sl_trainer_close, also after a failure. */
int sl_trainer_plan(struct sl_trainer **trainer, struct sl_spmd *self, const struct sl_trainer_options *options,
                    struct sl_model *model);
/* *STATE: bytes of parameters, gradients and optimizer state. *ACTIVATIONS: bytes of stash, workspace, buffers and
 * channels. */
void sl_trainer_bytes(const struct sl_trainer *trainer, size_t *state, size_t *activations);
/* Adds to BUDGET what planning and sl_trainer_open take, by category. */
void sl_trainer_plan_bytes(const struct sl_trainer *trainer, struct sl_budget *budget);
/* Takes the memory. The initial values are drawn, or, if FROM is not NULL, copied from its tensors of the same names.
 * All coordinates pass a store or all pass NULL; the store is read on coordinate 0 alone. Collective over the mesh.
 * SL_BAD_INPUT names a tensor that does not fit, or, without a line, TRAINER is NULL; SL_FAILED if there is not enough
 * memory. */
int sl_trainer_open(struct sl_trainer *trainer, const struct sl_store *from);
/* Frees the trainer, but not its model. TRAINER may be NULL. */
void sl_trainer_close(struct sl_trainer *trainer);

/* Sets the learning rate from the next step on. */
void sl_trainer_set_learning_rate(struct sl_trainer *trainer, float learning_rate);

/* The norm of all gradients of the last step, before clipping; 0 if gradients are not clipped. */
double sl_trainer_norm(const struct sl_trainer *trainer);
/* Its pipeline, for predictions after an evaluation. */
const struct sl_pipeline *sl_trainer_pipeline(const struct sl_trainer *trainer);
/* The trainer's parameters, for other pipelines and for checkpoints. The trainer owns them. */
struct sl_parameters *sl_trainer_parameters(struct sl_trainer *trainer);
/* Passes of a step, of all leaves. */
int sl_trainer_passes(const struct sl_trainer *trainer);
/* Its coordinate, and the options that it was planned with. */
struct sl_spmd *sl_trainer_self(const struct sl_trainer *trainer);
const struct sl_trainer_options *sl_trainer_options_of(const struct sl_trainer *trainer);
/* The optimizer's settings. */
const struct sl_optimizer_options *sl_trainer_optimizer(const struct sl_trainer *trainer);
/* The group of all coordinates of the mesh. */
const struct sl_group *sl_trainer_world(const struct sl_trainer *trainer);
/* Steps taken so far. The optimizer and dropout's keys count them. */
int64_t sl_trainer_steps(const struct sl_trainer *trainer);
/* Sets the number of steps taken, when a run goes on from a checkpoint. */
void sl_trainer_set_steps(struct sl_trainer *trainer, int64_t steps);

/* Takes one training step on this coordinate's rows: first those of the first pass, then those of the next. *METRICS
 * receives the sums over the whole mesh, on every coordinate. Set *STOP before the call if this coordinate wants to
 * stop; afterwards *STOP says whether any coordinate wants to, and is the same on all. Collective over the mesh.
 *
 * SL_BAD_INPUT if the batch has not as many rows as all passes together take, or lacks what is read. SL_FAILED, on all
 * coordinates, if the loss is not finite, or if gradients are not, as far as their norm tells where they are clipped,
 * and otherwise a look at a few of them; unless the option ignore_nan says otherwise. Then the step is taken once more,
 * and the message names the first module whose result is not finite, its stage, microbatch and coordinate
 * (layers/modules/not_finite.h). Some of the values may have been updated by then: go on from a checkpoint. Messages
 * count steps from 0: that of the first call is step 0. */
int sl_trainer_step(struct sl_trainer *trainer, const struct sl_batch *batch, struct sl_metrics *metrics, bool *stop);
/* Counts times in PROFILE from the next step on; NULL: no longer. The caller owns it and calls sl_profile_start. */
void sl_trainer_set_profile(struct sl_trainer *trainer, struct sl_profile *profile);
/* Records events in TRACE from the next step on; NULL: no longer. The caller owns it. */
void sl_trainer_set_trace(struct sl_trainer *trainer, struct sl_trace *trace);
/* Adds to BUDGET what a journal of TRAINER takes, as sl_journal_plan_bytes. */
void sl_trainer_plan_journal(struct sl_trainer *trainer, struct sl_budget *budget);
/* Opens a journal of TRAINER, which trains MODEL, is open and has resumed, and records the steps from the next one on
 * in it. As sl_journal_open (layers/journal/journal.h). The caller closes it after the trainer. */
int sl_trainer_open_journal(struct sl_trainer *trainer, const struct sl_model *model,
                            const struct sl_journal_options *options, struct sl_journal **journal);
/* Records steps in JOURNAL from the next one on; NULL: no longer. */
void sl_trainer_set_journal(struct sl_trainer *trainer, struct sl_journal *journal);
/* Evaluates the rows of one pass, without training. *METRICS as for a step. Collective over the mesh. */
int sl_trainer_evaluate(struct sl_trainer *trainer, const struct sl_batch *batch, struct sl_metrics *metrics);
/* The same for passes that follow each other through the pipeline: adds this coordinate's sums to *OWN, records in
 * TRACE (NULL: nowhere), and does not wait for the others, which may still be at it. sl_trainer_sum comes after the
 * last. */
int sl_trainer_stream(struct sl_trainer *trainer, const struct sl_batch *batch, struct sl_trace *trace,
                      struct sl_metrics *own);
/* Collective over the mesh: METRICS [count], each as for a step, of what the coordinates have in OWN [count]. SL_FAILED
 * without memory. */
int sl_trainer_sum(struct sl_trainer *trainer, size_t count, const struct sl_metrics *own, struct sl_metrics *metrics);

/* Collective: assembles all values, or the mean gradients of the last step, under their global names in STORE on
 * coordinate 0. */
int sl_trainer_export(struct sl_trainer *trainer, bool gradients, struct sl_store *store);

SL_END_C
#endif
