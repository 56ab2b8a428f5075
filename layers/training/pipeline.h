/* pipeline.h - the executor: one coordinate walks the lowered schedule of its rank.
 *
 * A stage is a module, usually a list of modules; the loss follows the last stage. Ranks are the coordinates along one
 * axis of the mesh ("model"). Two ranks that hold neighbouring stages are connected by a channel in each direction; on
 * a ring all channels together are a persistent ppermute. A rank does no work while it is idle (in a bubble).
 *
 * sl_trainer (layers/training/trainer.h) has one, and trains with it. A loop of one's own makes these calls, in this
 * order; drivers/examples/regression.c is one:
 *
 *     sl_schedule_make          and sl_schedule_lower: once, before sl_run
 *     sl_group_axes             the groups over data and others; on every coordinate in the same order
 *     sl_parameters_open        an empty list of parameters; set data_axis, stage_axis, decays, and what the optimizer
 *                               keeps: states and state_name
 *     sl_pipeline_plan          declares the model's parameters and computes the pipeline's memory
 *     sl_parameters_layout      pads and shards them for the data axis
 *     sl_parameters_seed        gives each parameter its random key
 *     sl_parameters_take        takes their memory
 *     sl_parameters_initialize  draws the initial values and rounds them (sl_import does so with given ones)
 *     sl_pipeline_open          takes the pipeline's memory and opens its channels
 *     sl_pipeline_train         a step's forward and backward; then, for each range that is not empty, sl_pmean of
 *                               its gradients over data, unless sl_range_is_sharded; sl_optimizer_update; and
 *                               sl_parameters_round, which modules with bf16 operands need
 *     sl_pipeline_close, sl_parameters_close, sl_module_free */
#ifndef SL_LAYERS_TRAINING_PIPELINE_H
#define SL_LAYERS_TRAINING_PIPELINE_H

#include "collectives/channel.h"
#include "layers/journal/journal.h"
#include "layers/training/model.h"
#include "layers/training/trace.h"
#include "spmd/base/crew.h"

SL_BEGIN_C

/* Slots of a channel. A schedule is proven with the smallest number, at least SL_PIPELINE_FEWEST_SLOTS, that works.
 * More slots let a stage run ahead of the next one, so that a core which several coordinates share computes many
 * microbatches with the weights of one stage in its cache. */
enum { SL_PIPELINE_FEWEST_SLOTS = 2, SL_PIPELINE_MOST_SLOTS = 16 };

struct sl_pipeline; /* opaque */

struct sl_pipeline_options {
    const struct sl_rule *rules; /* rules for the parameters' specs; may be NULL */
    const char *axis;            /* axis of the ranks */
    /* Other axes, over which modules communicate (layers/modules/groups.h); may be NULL. */
    const char *const *group_axes;
    /* One of group_axes: sums over it are those of LEAVES, 1, 2, 4, ..., a multiple of its size, in the order of a
     * tree, so that bits do not depend on that size (layers/modules/leaves.h). NULL: they are in the order of
     * coordinates. */
    const char *leaf_axis;
    int leaves;
    const struct sl_schedule *schedule; /* lowered; must outlive the pipeline */
    const struct sl_gemm_backend *gemm;
    enum sl_dtype precision; /* of the operands of products: SL_F32 or SL_BF16 */
    /* Of what is kept for backward and handed over: SL_F32 or SL_BF16. With bf16, rows are rounded after every layer,
     * whether they are handed over or not, so that bits do not follow the stages. The first plan over the parameters
     * decides how kernels are held: bf16 is refused over those of a plan with floats. */
    enum sl_dtype storage;
    int slots;          /* slots of a channel with which the schedule is proven; 0: as many as sl_schedule_slots says */
    int rows;           /* rows of a microbatch */
    int sequence;       /* rows of a sequence; 0: rows are independent of each other */
    bool forward_only;  /* the pipeline will never train */
    bool keeps_outputs; /* sl_pipeline_outputs and sl_pipeline_predictions have the rows of all microbatches, as they
                         * do where it is forward_only; else those that W still needs, and there is less memory */
    bool sizes_only;    /* the pipeline will never be opened: it tells of parameters and bytes */
    struct sl_load *load;     /* counts the work of a microbatch while it is planned; NULL: nobody does */
    struct sl_crew *crew;     /* of this coordinate, which helps with forward_only's work; NULL: none */
    struct sl_caches *caches; /* for prefill and decode; must outlive the pipeline; else NULL */
    /* What the stages keep for backward lies further away (spmd/device/window.h), where the host computes in a file in
     * offload_directory, and comes back ahead of its use. */
    bool offload_activations;
    const char *offload_directory;
    int wgrad_group; /* microbatches of one weight-gradient product; must divide the number of microbatches */
    /* Where layers are parts of the parameters (sl_model_open_parameters), in how many sums over data a layer's
     * gradient is made in a step: one, of all microbatches, or one of each weight-gradient product's. 0: layers are no
     * parts. */
    int layer_sums;
    /* Receives the gradient of the batch's inputs in each call of sl_pipeline_train: [rows of a call, in] in the
     * caller's device memory. All coordinates with the first stage set it, or none (NULL). SL_BAD_INPUT if that stage
     * reads tokens. */
    float *batch_gradient;
    int passes; /* calls of sl_pipeline_train with UNREAD that follow each other at most; 0 counts as 1 */
};

/* The fewest of MICROBATCHES, into groups of which they divide, whose ROWS each make together a product that is deep
 * enough to be fast; else all. Shapes alone decide, so that a wgrad_group of this size keeps the bits that it gives. */
int sl_pipeline_wgrad_group(int microbatches, int rows);

/* What sl_pipeline_plan checks first, and sl_trainer_plan, too: SL_BAD_INPUT names the field of OPTIONS or MODEL that
 * is missing or does not fit, and what is allowed. */
int sl_pipeline_check(struct sl_spmd *self, const struct sl_pipeline_options *options, const struct sl_model *model);

/* Plans MODEL: declares its parameters in PARAMETERS, and computes the sizes of stash, workspace and buffers. Allocates
 * nothing large. MODEL and PARAMETERS must outlive the pipeline. Collective over the mesh: groups are opened and names
 * compared. SL_BAD_INPUT if options, schedule and model do not fit each other, or if two stages declare a parameter of
 * the same name and it is not tied. Free with sl_pipeline_close, also after a failure. */
int sl_pipeline_plan(struct sl_pipeline **pipeline, struct sl_spmd *self, const struct sl_pipeline_options *options,
                     struct sl_model *model, struct sl_parameters *parameters);
/* Bytes that sl_pipeline_open will take, and those that planning has taken: stash, workspace, buffers, channel slots,
 * tables; all together, and added to BUDGET by category. */
size_t sl_pipeline_bytes(const struct sl_pipeline *pipeline);
void sl_pipeline_plan_bytes(const struct sl_pipeline *pipeline, struct sl_budget *budget);
/* Columns of the batch's inputs; 0 if this coordinate lacks the first stage and so reads no inputs. */
int sl_pipeline_inputs(const struct sl_pipeline *pipeline);
/* Columns of the batch's targets; 0 if this coordinate has no loss that reads targets. */
int sl_pipeline_targets(const struct sl_pipeline *pipeline);
/* Rows that the batch of a call has: microbatches times the rows of one. */
int sl_pipeline_rows(const struct sl_pipeline *pipeline);
/* Takes the memory and opens the channels. SL_BAD_INPUT if the parameters have no memory yet or, without a line,
 * PIPELINE is NULL; SL_FAILED if there is not enough. */
int sl_pipeline_open(struct sl_pipeline *pipeline);
void sl_pipeline_close(struct sl_pipeline *pipeline);

/* Called when the gradients of LOOP are complete, while other loops still compute; or before the first of them, and so
 * for each layer that is a part of the parameters, by its part's number: then those of the part before are complete.
 * Where a layer has several sums in a step, so again for each of them. */
typedef int sl_reduce_function(struct sl_spmd *self, int loop, void *arg);

struct sl_pipeline_step {
    struct sl_batch batch; /* this coordinate's sl_pipeline_rows rows, in the order of the microbatches */
    uint32_t first_row;    /* global number of this coordinate's first row */
    /* For generation: the position of each sequence's first row; where sequences of one row have different ones, that
     * of each [sequences], else NULL; the first of the step's sequences in the caches; whether what caches keep of the
     * parameters is made anew, as the first call has it with new parameters. */
    int position;
    const int *positions;
    int first_sequence;
    bool begins;
    bool accumulate;                /* add the gradients to those of the calls before */
    int pass;                       /* number of this call among the PASSES between which the host does not wait */
    struct sl_key step_key;         /* key of dropout by global position */
    const struct sl_key *layer_key; /* [iterations][layers of a stage] in JAX's layout, or NULL */
    /* Factor of each row's loss in the gradient; to train, not 0. For the gradient of the mean loss it is 1 / this
     * coordinate's rows if sl_pmean over data follows, and 1 / the rows of all of data's coordinates if sl_psum does.
     */
    float weight;
    sl_reduce_function *begin;  /* before a loop's first weight gradient; may be NULL */
    sl_reduce_function *reduce; /* may be NULL */
    int (*between)(void *arg);  /* may be NULL; called between actions, so that complete loops can be reduced */
    void *callback_arg;
    struct sl_profile *profile; /* may be NULL */
    struct sl_trace *trace;     /* may be NULL */
    struct sl_journal *journal; /* records what stages hand over (layers/journal/journal.h); may be NULL */
    struct sl_not_finite
        *not_finite;           /* looks at the results of all modules (layers/modules/not_finite.h); may be NULL */
    bool unread;               /* metrics stay on the device, until sl_pipeline_read or the next call */
    struct sl_metrics metrics; /* out: sums over this coordinate's rows; zero unless it has the last stage */
};

/* Runs forward and backward of all microbatches. The gradients are in the parameters afterwards. SL_BAD_INPUT if the
 * batch has another number of rows, or lacks what the first stage or the loss reads; fails if a communication call or a
 * product fails. The same holds for the two functions below. Here SL_BAD_INPUT also if step->weight is 0. */
int sl_pipeline_train(struct sl_pipeline *pipeline, struct sl_pipeline_step *step);
/* Where the step's kernels add up, once the pipeline is open. */
struct sl_sums *sl_pipeline_sums(const struct sl_pipeline *pipeline);
/* Of a step that has been trained with UNREAD: fills in its metrics, which waits for what is on the device's queue. */
void sl_pipeline_read(struct sl_pipeline *pipeline, struct sl_pipeline_step *step);
/* Runs only the forward actions. */
int sl_pipeline_evaluate(struct sl_pipeline *pipeline, struct sl_pipeline_step *step);
/* Runs only the forward actions, and adds the tokens to the caches from step->position on (or positions). PHASE is
 * SL_PREFILL for a prompt, or SL_DECODE for one token of each sequence. */
int sl_pipeline_generate(struct sl_pipeline *pipeline, struct sl_pipeline_step *step, enum sl_phase phase);
/* What the loss wrote in the last call: [microbatches][rows, its out] in device memory; NULL unless this coordinate has
 * the last stage, and options.keeps_outputs or options.forward_only. */
const float *sl_pipeline_outputs(const struct sl_pipeline *pipeline);
/* What the last stage gave in the last call, and the loss took: [microbatches][rows, its out]; NULL as well. */
const float *sl_pipeline_predictions(const struct sl_pipeline *pipeline);

SL_END_C
#endif
