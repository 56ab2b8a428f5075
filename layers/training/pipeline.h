/* pipeline.h - the executor: one coordinate walks the lowered schedule of its rank.
 *
 * A stage is a module, usually a list of modules; the loss follows the last stage. Ranks are the coordinates along one
 * axis of the mesh ("model"). Two ranks with neighbouring stages are connected by a channel in each direction; on a
 * ring all channels together are a persistent ppermute. A rank does no work while it is idle (in a bubble).
 *
 * sl_trainer (layers/training/trainer.h) contains a pipeline and trains with it. A user's own training loop makes these
 * calls, in this order; drivers/examples/regression.c is an example:
 *
 *     sl_schedule_make          and sl_schedule_lower: once, before sl_run
 *     sl_group_axes             groups over data and other axes; on every coordinate in the same order
 *     sl_parameters_open        an empty list of parameters; set data_axis, stage_axis, decays, and the optimizer's
 *                               states and state_name
 *     sl_pipeline_plan          declares the model's parameters and computes the pipeline's memory
 *     sl_parameters_layout      pads and shards them for the data axis
 *     sl_parameters_seed        gives each parameter its random key
 *     sl_parameters_take        allocates their memory
 *     sl_parameters_initialize  draws and rounds the initial values (sl_import reads and rounds given ones)
 *     sl_pipeline_open          allocates the pipeline's memory and opens its channels
 *     sl_pipeline_train         a step's forward and backward; then, for each non-empty range, sl_pmean of
 *                               its gradients over data, unless sl_range_is_sharded; sl_optimizer_update; and
 *                               sl_parameters_round, which modules with bf16 operands need
 *     sl_pipeline_close, sl_parameters_close, sl_module_free */
#ifndef SL_LAYERS_TRAINING_PIPELINE_H
#define SL_LAYERS_TRAINING_PIPELINE_H

#include "collectives/channel.h"
#include "layers/records/journal/journal.h"
#include "layers/training/model.h"
#include "spmd/base/crew.h"
#include "spmd/trace.h"

SL_BEGIN_C

/* Slots of a channel. A schedule is proven with the smallest sufficient number, at least SL_PIPELINE_FEWEST_SLOTS. With
 * more slots a stage can run ahead of the next one, so that a core shared by several coordinates computes many
 * microbatches with one stage's weights in its cache. */
enum { SL_PIPELINE_FEWEST_SLOTS = 2, SL_PIPELINE_MOST_SLOTS = 16 };

struct sl_pipeline; /* opaque */

struct sl_pipeline_options {
    const struct sl_rule *rules; /* rules for the parameters' specs; may be NULL */
    const char *axis;            /* axis of the ranks */
    /* Other axes, for communication of modules (layers/modules/calls/groups.h); may be NULL. */
    const char *const *group_axes;
    /* One of group_axes. Sums over it are in the order of a tree of LEAVES, which is 1, 2, 4, ... and a multiple of the
     * axis's size, so that bits do not depend on that size (layers/modules/leaves.h). NULL: sums are in the order of
     * coordinates. */
    const char *leaf_axis;
    int leaves;
    const struct sl_schedule *schedule; /* lowered; must outlive the pipeline */
    const struct sl_gemm_backend *gemm;
    enum sl_dtype precision; /* type of the operands of products: SL_F32 or SL_BF16 */
    /* Type of saved activations and of messages between stages: SL_F32 or SL_BF16. With bf16, rows are rounded after
     * every layer, also inside a stage, so that bits do not depend on the stages. The first plan over the parameters
     * sets the type of kernels: bf16 is refused after a plan with floats. */
    enum sl_dtype storage;
    bool no_rewrite; /* fuse no modules (layers/modules/parents/rewrite.h) */
    int slots;       /* slots per channel with which the schedule is proven; 0: as sl_schedule_slots computes */
    int rows;        /* rows of a microbatch */
    int sequence;    /* rows of a sequence; 0: rows are independent */
    /* One of group_axes, over which the rows of each sequence are divided (spmd/cut.h): a coordinate has
     * SEQUENCE of them, an even number, and batches have places. NULL, or an axis of size 1: they are not divided. */
    const char *context_axis;
    /* Leaves along context_axis, which may have size 1 then: 1, 2, 4, ..., a multiple of its size (spmd/cut.h). Modules
     * compute each block of a sequence as a microbatch of its own, and add up gradients in tree order of the leaves:
     * the bits do not depend on the axis's size. 0: none. */
    int context_leaves;
    enum sl_context_way context_by; /* with context_leaves: by gathered keys */
    bool forward_only;              /* the pipeline will never train */
    bool keeps_outputs; /* sl_pipeline_outputs and sl_pipeline_predictions return the rows of all microbatches, as with
                           forward_only. If not set, the pipeline holds only rows that W still needs, in less memory */
    bool sizes_only;    /* the pipeline is planned for its parameters and bytes, and never opened */
    struct sl_load *load;     /* counts the work of a microbatch during planning; NULL: not counted */
    struct sl_crew *crew;     /* this coordinate's helpers for forward_only; NULL: none */
    struct sl_caches *caches; /* for prefill and decode; must outlive the pipeline; else NULL */
    /* Offload saved activations (spmd/device/window.h); if the host computes, to a file in offload_directory. They are
     * read back ahead of use. */
    bool offload_activations;
    const char *offload_directory;
    int wgrad_group; /* microbatches of one weight-gradient product; must divide the number of microbatches */
    /* If layers are parts of the parameters (sl_model_open_parameters): sums over data per step of a layer's gradient,
     * either one, of all microbatches, or one per weight-gradient product. 0: layers are not parts. */
    int layer_sums;
    /* Receives the gradient of the batch's inputs in each call of sl_pipeline_train: [rows of a call, in] in the
     * caller's device memory. Set it on all coordinates with the first stage, or on none (NULL). SL_BAD_INPUT if the
     * stage reads tokens. */
    float *batch_gradient;
    int passes; /* the most consecutive calls of sl_pipeline_train with UNREAD; 0 counts as 1 */
};

/* Default wgrad_group: the smallest divisor of MICROBATCHES for which a group's rows, ROWS per microbatch, make a
 * product deep enough to be fast; else all. It depends on shapes only, so the bits of a given size do not change. */
int sl_pipeline_wgrad_group(int microbatches, int rows);

/* The first check of sl_pipeline_plan and sl_trainer_plan: SL_BAD_INPUT names the missing or unfit field of OPTIONS or
 * MODEL, and the allowed values. */
int sl_pipeline_check(struct sl_spmd *self, const struct sl_pipeline_options *options, const struct sl_model *model);

/* Plans MODEL: declares its parameters in PARAMETERS, and computes the sizes of stash, workspace and buffers. Allocates
 * nothing large. MODEL and PARAMETERS must outlive the pipeline. Collective over the mesh: groups are opened and names
 * compared. SL_BAD_INPUT if options, schedule and model do not fit each other, or if two stages declare an untied
 * parameter of the same name. Free with sl_pipeline_close, also after a failure. */
int sl_pipeline_plan(struct sl_pipeline **pipeline, struct sl_spmd *self, const struct sl_pipeline_options *options,
                     struct sl_model *model, struct sl_parameters *parameters);
/* Bytes to be allocated by sl_pipeline_open, or already allocated by planning: stash, workspace, buffers, channel
 * slots, tables. The total, or added to BUDGET by category. */
size_t sl_pipeline_bytes(const struct sl_pipeline *pipeline);
void sl_pipeline_plan_bytes(const struct sl_pipeline *pipeline, struct sl_budget *budget);
/* Columns of the batch's inputs; 0 if this coordinate lacks the first stage. */
int sl_pipeline_inputs(const struct sl_pipeline *pipeline);
/* Columns of the batch's targets; 0 if this coordinate has no loss with targets. */
int sl_pipeline_targets(const struct sl_pipeline *pipeline);
/* Rows of the batch of a call: microbatches times the rows of one. */
int sl_pipeline_rows(const struct sl_pipeline *pipeline);
/* Allocates the memory and opens the channels. SL_BAD_INPUT if the parameters have no memory yet, or if PIPELINE is
 * NULL (without an error message); SL_FAILED if memory is short. */
int sl_pipeline_open(struct sl_pipeline *pipeline);
void sl_pipeline_close(struct sl_pipeline *pipeline);

/* A callback in one of two roles. reduce: called when the gradients of LOOP are complete, while other loops still
 * compute. begin: called before the first gradient of LOOP; if layers are parts of the parameters, also before the
 * first gradient of each layer, with LOOP the number of its part. The part before is then complete. If a layer has
 * several sums in a step, begin is called for each of them. */
typedef int sl_reduce_function(struct sl_spmd *self, int loop, void *arg);

struct sl_pipeline_step {
    struct sl_batch batch; /* this coordinate's sl_pipeline_rows rows, in the order of the microbatches */
    uint32_t first_row;    /* number of the batch's first row; over context_axis, rows of a coordinate count */
    /* For generation. position: position of each sequence's first row. positions: [sequences], if sequences have one
     * row each, at different positions; else NULL. first_sequence: number, in the caches, of the step's first sequence.
     * begins: recompute the cached arrays made of parameters; set it in the first call with new parameters. */
    int position;
    const int *positions;
    int first_sequence;
    bool begins;
    bool accumulate;                /* add the gradients to those of earlier calls */
    int pass;                       /* number of this call among the PASSES between which the host does not wait */
    struct sl_key step_key;         /* dropout key by global position */
    const struct sl_key *layer_key; /* [iterations][layers of a stage] in JAX's layout, or NULL */
    /* Factor of each row's loss in the gradient; in training, not 0. For the gradient of the mean loss: 1 / this
     * coordinate's rows if sl_pmean over data follows; 1 / the rows of all coordinates of data if sl_psum does. */
    float weight;
    sl_reduce_function *begin;  /* before a loop's first weight gradient; may be NULL */
    sl_reduce_function *reduce; /* may be NULL */
    int (*between)(void *arg);  /* called between actions, to reduce complete loops; may be NULL */
    void *callback_arg;
    struct sl_profile *profile; /* may be NULL */
    struct sl_trace *trace;     /* may be NULL */
    struct sl_journal *journal; /* records rows sent between stages (layers/records/journal/journal.h); may be NULL */
    struct sl_inspector *inspector; /* NULL, or checks the results of all modules (layers/modules/not_finite.h) */
    bool unread;                    /* metrics stay on the device until sl_pipeline_read or the next call */
    struct sl_metrics metrics;      /* out: sums over this coordinate's rows; zero unless it has the last stage */
};

/* Runs forward and backward of all microbatches; the parameters then hold the gradients. SL_BAD_INPUT if the batch has
 * another number of rows, or lacks an array for the first stage or the loss; fails if a communication call or a product
 * fails. This also holds for sl_pipeline_evaluate and sl_pipeline_generate. SL_BAD_INPUT also if step->weight is 0. */
int sl_pipeline_train(struct sl_pipeline *pipeline, struct sl_pipeline_step *step);
/* Device memory for the sums of the step's kernels, once the pipeline is open. */
struct sl_sums *sl_pipeline_sums(const struct sl_pipeline *pipeline);
/* Fills in the metrics of a step trained with UNREAD; waits for the device's queue. */
void sl_pipeline_read(struct sl_pipeline *pipeline, struct sl_pipeline_step *step);
/* Runs only the forward actions. */
int sl_pipeline_evaluate(struct sl_pipeline *pipeline, struct sl_pipeline_step *step);
/* Runs only the forward actions, and adds the tokens to the caches from step->position (or positions) on. PHASE is
 * SL_PREFILL for a prompt, or SL_DECODE for one token of each sequence. */
int sl_pipeline_generate(struct sl_pipeline *pipeline, struct sl_pipeline_step *step, enum sl_phase phase);
/* Output of the loss in the last call: [microbatches][rows, its out] in device memory; NULL unless this coordinate has
 * the last stage, and options.keeps_outputs or options.forward_only. */
const float *sl_pipeline_outputs(const struct sl_pipeline *pipeline);
/* Output of the last stage in the last call, the loss's input: [microbatches][rows, its out]; NULL under the same
 * conditions. */
const float *sl_pipeline_predictions(const struct sl_pipeline *pipeline);

SL_END_C
#endif
