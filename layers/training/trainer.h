/* trainer.h - a training run of one coordinate: pipeline, reduction of gradients over data, optimizer, metrics.
 *
 * When the last weight gradient of a loop is complete, the loop's gradients are summed over the data axis, the
 * optimizer uses the sums, and the new values are gathered, while other loops still compute
 * (layers/training/update.h). */
#ifndef SL_LAYERS_TRAINING_TRAINER_H
#define SL_LAYERS_TRAINING_TRAINER_H

#include "layers/records/journal/journal.h"
#include "layers/training/optimizers/optimizer.h"
#include "layers/training/pipeline.h"
#include "layers/formats/stores/safetensors.h"
#include "layers/training/update.h"
#include "spmd/device/device.h"

SL_BEGIN_C

struct sl_trainer_options {
    struct sl_pipeline_options pipeline;
    /* Axis of data parallelism: its coordinates train on different rows. Or a list, "data,context", with the pipeline's
     * context_axis at its end, in the order of the mesh. Every axis of the mesh with more than one coordinate must be
     * this axis or in this list, or be the pipeline's axis or in its group_axes. */
    const char *data_axis;
    struct sl_optimizer_options optimizer; /* may be left out if the pipeline is forward_only */
    float clip;                            /* limit on the norm of all gradients together; 0: no limit */
    const char *freeze; /* patterns of names, separated by commas: untrained parameters; NULL: none */
    /* Patterns of the parameters of adapters (struct sl_lora). Only adapters train. They are initialized even if all
     * other values are loaded. NULL: there are no adapters. */
    const char *adapters;
    const struct sl_block_source *source; /* source of kernels to use from a file's blocks; NULL: none */
    struct sl_adapters_alone alone;       /* whether checkpoints are saved, or loaded, with adapters' values only */
    int accumulate;                       /* passes of the pipeline per step, with equally many rows each; 0: one */
    /* Leaves, with equally many rows each, shared by the replicas along data_axis. A coordinate
     * computes its leaves one after another, and the bits do not depend on the number of coordinates
     * (layers/training/exact/leaves.h). If a parameter is sharded over data, its module must write its gradient in
     * parts (sl_gradient_parts), or each coordinate must have one leaf, with one weight gradient of the parameter. 0:
     * sums over data are in the order of coordinates. */
    int exact;
    /* 1: shard optimizer state over data (ZeRO-1). 2: also shard sums of gradients if this takes less memory. With 2,
     * whole gradients are held only for loops that compute gradients at the same time; with several passes, for all
     * loops. */
    int zero;
    bool overlap; /* reduce while other loops compute */
    /* Offload the optimizer's state (sl_parameters.far_states); if the host computes, to a file in
     * offload_directory. */
    bool offload_optimizer;
    /* Offload values and gradients of idle loops (sl_parameters_begin_turns); this turns overlap off. */
    bool offload_weights;
    /* Folder of the offloaded files, of the pipeline's offload_activations, too. */
    const char *offload_directory;
    /* Continue if the loss or gradients are not finite. */
    bool ignore_nan;
    enum sl_graphs graphs; /* of steps, on devices with graphs (spmd/device/device.h); bits do not change */
    uint64_t seed;
    /* Called once after parameters are declared, to replace their keys. May be NULL. */
    void (*assign_keys)(struct sl_parameters *parameters, void *arg);
    /* Called before each pass of a training step; returns the pass's dropout keys [iterations][layers of a stage].
     * NULL: step number n, from 1, has the key fold_in(fold_in(key of `seed`, 1), n), and random words follow from the
     * global position. Must be NULL if sequences are divided, or have leaves. */
    const struct sl_key *(*step_keys)(void *arg);
    void *arg;
};

struct sl_trainer; /* opaque; each coordinate has its own */

/* Plans a training run of MODEL: declares its parameters and computes how much memory it needs. Takes no large memory
 * yet. MODEL and everything OPTIONS points to must outlive the trainer. Collective over the mesh. SL_BAD_INPUT if
 * options, schedule, model and mesh do not fit each other, or if two stages declare a parameter of the same name; the
 * error names the missing or wrong item. SL_FAILED if memory is short. Free with sl_trainer_close, also after a
 * failure. */
int sl_trainer_plan(struct sl_trainer **trainer, struct sl_spmd *self, const struct sl_trainer_options *options,
                    struct sl_model *model);
/* *STATE: bytes of parameters, gradients and optimizer state. *ACTIVATIONS: bytes of stash, workspace, buffers and
 * channels. */
void sl_trainer_bytes(const struct sl_trainer *trainer, size_t *state, size_t *activations);
/* Adds the memory of planning and sl_trainer_open to BUDGET, by category. */
void sl_trainer_plan_bytes(const struct sl_trainer *trainer, struct sl_budget *budget);
/* Allocates the memory. Initial values are drawn or, if FROM is not NULL, copied from its tensors of the same names.
 * All coordinates pass a store or all pass NULL; only coordinate 0 reads it. Collective over the mesh. SL_BAD_INPUT if
 * a tensor does not fit (the error names it) or TRAINER is NULL (without an error message); SL_FAILED if memory is
 * short. */
int sl_trainer_open(struct sl_trainer *trainer, const struct sl_store *from);
/* Frees the trainer, not its model. TRAINER may be NULL. */
void sl_trainer_close(struct sl_trainer *trainer);

/* Sets the learning rate from the next step on. */
void sl_trainer_set_learning_rate(struct sl_trainer *trainer, float learning_rate);

/* Norm of all gradients of the last step, before clipping; 0 if gradients are not clipped. */
double sl_trainer_norm(const struct sl_trainer *trainer);
/* Whether a step has failed because its loss or gradients were not finite. */
bool sl_trainer_diverged(const struct sl_trainer *trainer);
/* The trainer's pipeline, for predictions after an evaluation. */
const struct sl_pipeline *sl_trainer_pipeline(const struct sl_trainer *trainer);
/* The trainer's parameters, for other pipelines and for checkpoints. The trainer owns them. */
struct sl_parameters *sl_trainer_parameters(struct sl_trainer *trainer);
/* Passes per step, over all leaves of this coordinate. */
int sl_trainer_passes(const struct sl_trainer *trainer);
/* The trainer's coordinate, and the options of its plan. */
struct sl_spmd *sl_trainer_self(const struct sl_trainer *trainer);
const struct sl_trainer_options *sl_trainer_options_of(const struct sl_trainer *trainer);
/* The optimizer's settings. */
const struct sl_optimizer_options *sl_trainer_optimizer(const struct sl_trainer *trainer);
/* The group of all coordinates of the mesh. */
const struct sl_group *sl_trainer_world(const struct sl_trainer *trainer);
/* Steps taken so far. The optimizer and dropout's keys count them. */
int64_t sl_trainer_steps(const struct sl_trainer *trainer);
/* Sets the number of steps taken, to resume from a checkpoint. */
void sl_trainer_set_steps(struct sl_trainer *trainer, int64_t steps);

/* Takes one training step on this coordinate's rows: the first pass takes the first rows, the next pass the next.
 * *METRICS receives the sums over the whole mesh, on every coordinate. Set *STOP before the call if this coordinate
 * wants to stop; afterwards *STOP is true on all coordinates if any coordinate wanted to. Collective over the mesh.
 *
 * SL_BAD_INPUT if the batch does not have the rows of all passes together, or lacks an array that the model reads.
 * SL_FAILED, on all coordinates, if the loss or gradients are not finite, unless the option ignore_nan is set. With
 * clipping, the norm shows whether gradients are finite; otherwise a few of them are checked. After such a failure the
 * step runs once more, and the error names the first module whose result is not finite, with stage, microbatch and
 * coordinate (layers/modules/not_finite.h). Some values may have been updated by then: resume from a checkpoint.
 * Messages count steps from 0: the first call is step 0. */
int sl_trainer_step(struct sl_trainer *trainer, const struct sl_batch *batch, struct sl_metrics *metrics, bool *stop);
/* Checks OPTIONS, except the pipeline's. SL_BAD_INPUT with an error if they do not fit each other or the mesh. */
int sl_trainer_check(struct sl_spmd *self, const struct sl_trainer_options *options);
/* Number of coordinates that have rows of the same sequences: those along the pipeline's context_axis. */
int sl_trainer_sharing(struct sl_spmd *self, const struct sl_trainer_options *options);
/* Adds times to PROFILE from the next step on. If PROFILE is NULL, stops. The caller owns PROFILE and calls
 * sl_profile_start. */
void sl_trainer_set_profile(struct sl_trainer *trainer, struct sl_profile *profile);
/* Records events in TRACE from the next step on. If TRACE is NULL, stops. The caller owns TRACE. */
void sl_trainer_set_trace(struct sl_trainer *trainer, struct sl_trace *trace);
/* Adds the memory of a journal of TRAINER to BUDGET, as sl_journal_plan_bytes does. */
void sl_trainer_plan_journal(struct sl_trainer *trainer, struct sl_budget *budget);
/* Opens a journal of TRAINER and records steps in it from the next one on. TRAINER trains MODEL, is open, and has
 * resumed. As sl_journal_open (layers/records/journal/journal.h). The caller closes the journal after the trainer. */
int sl_trainer_open_journal(struct sl_trainer *trainer, const struct sl_model *model,
                            const struct sl_journal_options *options, struct sl_journal **journal);
/* Records steps in JOURNAL from the next one on. If JOURNAL is NULL, stops. */
void sl_trainer_set_journal(struct sl_trainer *trainer, struct sl_journal *journal);
/* Evaluates the rows of one pass, without training. *METRICS as in sl_trainer_step. Collective over the mesh. */
int sl_trainer_evaluate(struct sl_trainer *trainer, const struct sl_batch *batch, struct sl_metrics *metrics);
/* Evaluates one of several consecutive passes through the pipeline: adds this coordinate's sums to *OWN, records in
 * TRACE (may be NULL), and does not wait for other coordinates. Call sl_trainer_sum after the last pass. */
int sl_trainer_stream(struct sl_trainer *trainer, const struct sl_batch *batch, struct sl_trace *trace,
                      struct sl_metrics *own);
/* Sums OWN [count] of all coordinates into METRICS [count], each as in sl_trainer_step. Collective over the mesh.
 * SL_FAILED if memory is short. */
int sl_trainer_sum(struct sl_trainer *trainer, size_t count, const struct sl_metrics *own, struct sl_metrics *metrics);

/* Assembles all values, or the mean gradients of the last step, under their global names in STORE on coordinate 0.
 * Collective over the mesh. */
int sl_trainer_export(struct sl_trainer *trainer, bool gradients, struct sl_store *store);

SL_END_C
#endif
