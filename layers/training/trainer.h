/* trainer.h - a training run of one coordinate: pipeline, gradient reduction over data, optimizer, metrics.
 *
 * After a loop's last weight gradient its gradients are summed over the data axis, used and gathered while other loops
 * compute (layers/training/update.h). */
#ifndef SL_LAYERS_TRAINING_TRAINER_H
#define SL_LAYERS_TRAINING_TRAINER_H

#include "layers/training/optimizer.h"
#include "layers/training/pipeline.h"
#include "layers/storage/safetensors.h"
#include "layers/training/update.h"

SL_BEGIN_C

struct sl_trainer_options {
    struct sl_pipeline_options pipeline;
    const char *data_axis;
    struct sl_optimizer_options optimizer; /* may be left out where the pipeline is forward_only */
    float clip;                            /* the largest norm of all gradients together; 0: any */
    int accumulate;                        /* passes of the pipeline a step, each over as many rows; 0: one */
    bool zero, overlap;                    /* shard the optimizer over data; reduce while other loops compute */
    uint64_t seed;
    /* Called once after parameters are declared, to replace their keys (may be NULL). */
    void (*assign_keys)(struct sl_parameters *parameters, void *arg);
    /* Called before each training step for the dropout keys of this step (may be NULL: by global position). */
    const struct sl_key *(*step_keys)(void *arg);
    void *arg;
};

struct sl_trainer; /* opaque; one a coordinate */

int sl_trainer_plan(struct sl_trainer **trainer, struct sl_spmd *self, const struct sl_trainer_options *options,
                    struct sl_model *model);
/* Bytes of parameters, gradients, optimizer state; and of stash, workspace, buffers. */
void sl_trainer_bytes(const struct sl_trainer *trainer, size_t *state, size_t *activations);
/* Takes the memory and makes (or, where FROM is given, takes over by name) the initial values. */
int sl_trainer_open(struct sl_trainer *trainer, const struct sl_store *from);
void sl_trainer_close(struct sl_trainer *trainer);

/* From the next step on. */
void sl_trainer_set_learning_rate(struct sl_trainer *trainer, float learning_rate);

/* The norm of all gradients of the last step, before it was clipped; 0 where nothing is. */
double sl_trainer_norm(const struct sl_trainer *trainer);
/* For pipelines over the same parameters, and for checkpoints. */
struct sl_parameters *sl_trainer_parameters(struct sl_trainer *trainer);
const struct sl_optimizer_options *sl_trainer_optimizer(const struct sl_trainer *trainer);
const struct sl_group *sl_trainer_world(const struct sl_trainer *trainer);
/* Steps taken: of the optimizer, and of dropout's keys. */
int64_t sl_trainer_steps(const struct sl_trainer *trainer);
void sl_trainer_set_steps(struct sl_trainer *trainer, int64_t steps);

/* One step on this coordinate's rows: those of the first pass, then of the next. METRICS are the sums over the whole
 * mesh, on every coordinate. *STOP says whether this coordinate wants to stop, and afterwards whether any does: all see
 * the same. */
int sl_trainer_step(struct sl_trainer *trainer, const struct sl_batch *batch, struct sl_metrics *metrics, bool *stop);
/* From the next step on; PROFILE (NULL: no more) is the caller's, who calls sl_profile_start. */
void sl_trainer_set_profile(struct sl_trainer *trainer, struct sl_profile *profile);
/* From the next step on; TRACE (NULL: no more) is the caller's. */
void sl_trainer_set_trace(struct sl_trainer *trainer, struct sl_trace *trace);
int sl_trainer_evaluate(struct sl_trainer *trainer, const struct sl_batch *batch, struct sl_metrics *metrics);

/* Collective: assembles all values (or the last step's gradients) under their global names in STORE on coordinate 0. */
int sl_trainer_export(struct sl_trainer *trainer, bool gradients, struct sl_store *store);

SL_END_C
#endif
