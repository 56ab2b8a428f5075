/* job.h - a driver's model on a mesh, under a schedule: first the decisions before the coordinates start, then one
 * coordinate's part.
 *
 * A job is opened by four calls in this order, so that a driver may make its own decisions in between:
 *     sl_job_open       axes of the mesh, implementation of matrix products
 *     sl_job_share      samples of a replica per step and per pass, number of passes
 *     sl_job_schedule   table of actions, microbatches
 *     sl_job_group      microbatches of a weight-gradient product; joined microbatches, the lowered table
 * All of them return SL_BAD_INPUT with the numbers that do not fit. */
#ifndef SL_DRIVERS_TRAINING_JOB_H
#define SL_DRIVERS_TRAINING_JOB_H

#include "drivers/training/choices/training_options.h"
#include "layers/training/trace/trace_file.h"
#include "layers/training/trainer.h"
#include "spmd/schedule/registry.h"

struct sl_worker;
struct sl_job;

/* A job with changes. Fields of only some drivers: 0 or false means as in the job. */
struct sl_variant {
    struct sl_training_options options;
    struct sl_mesh mesh;    /* as large as the job's */
    int spread_head;        /* how the pipeline's ranks share the head: one of the job type's ways */
    const char *context_by; /* how divided samples' rows see each other: one of the type's ways; NULL: as in the job */
    const char *tensor_layout; /* of arrays over the type's leaf_axis: one of its layouts; NULL: as in the job */
    bool latent_cache;
    bool one_copy;    /* of kernels */
    bool drop_logits; /* do not save them */
    int length, in_flight;
    int layers, layers_per_block; /* of a smaller model; for models with blocks, layers counts blocks */
};

enum { SL_ATTEMPT_TEXT = 96 };

/* A way to make a job smaller: sets VARIANT to the ATTEMPTth change (from 0), always relative to JOB, and writes its
 * options to TEXT. Returns false if there is no such attempt. */
typedef bool sl_attempt(const struct sl_job *job, int attempt, struct sl_variant *variant, char text[SL_ATTEMPT_TEXT]);

/* Indices of axes in struct sl_job_type; later axes are the driver's. */
enum { SL_JOB_DATA, SL_JOB_PIPE };

enum { SL_JOB_HEADS = 3 };

/* Functions and names of a driver's model. */
struct sl_job_type {
    const char *model;       /* name of the model in messages: "the transformer" */
    const char *const *axes; /* names: axis of samples, axis of the pipeline's ranks, others; NULL ends them */
    const char *leaf_axis;   /* axis of channels with sums of leaves (--exact), too; NULL: none */
    /* Axis over which a sample's rows are divided, and a list of this axis and that of samples, for its coordinates
     * with the same parameters; NULL: rows are not divided. */
    const char *context_axis, *replica_axes;
    const char *const *context_ways;   /* words of --context-by, the default first; NULL ends them */
    const char *const *tensor_layouts; /* words of --tensor-layout, the default first; NULL ends them */
    const char *samples;               /* name of a batch's samples in messages: "sequences" */
    bool halves;                       /* its layers can be halved: a stage may have 1.5 */
    /* Builds WORKER's part of the model, allocates its buffers (worker->own), and adjusts OPTIONS, filled in from
     * the job, to the model. */
    int (*open)(struct sl_worker *worker, struct sl_trainer_options *options);
    /* Writes WORKER's parameters, which are open, in place of the seed's initial values; NULL: no other values.
     * Collective over the mesh. */
    int (*load)(struct sl_worker *worker);
    /* Changes the parameters after they have values from any source; NULL: no change. Collective over the mesh. */
    int (*adapt)(struct sl_worker *worker);
    bool (*gives)(const struct sl_worker *worker); /* whether `load` writes all parameters except adapters; NULL:
                                                    * never */
    /* Frees the resources of open; also called after a failure. */
    void (*close)(struct sl_worker *worker);
    /* Adds to BUDGET the memory of WORKER, whose trainer is planned, besides the trainer. Collective over the mesh. */
    int (*plan_bytes)(struct sl_worker *worker, struct sl_budget *budget);
    /* Makes a copy of JOB changed as VARIANT says, for planning only; NULL if it does not fit. */
    struct sl_job *(*copy)(const struct sl_job *job, const struct sl_variant *variant, const struct sl_engine *engine,
                           struct sl_error *error);
    void (*free_copy)(struct sl_job *copy);
    /* Writes to WAY a word for each way worth a try to share JOB's head over RANKS ranks, in the order of a
     * variant's spread_head from 1 on; NULL for other ways. If the function is NULL, heads are not shared. */
    void (*heads)(const struct sl_job *job, int ranks, const char *way[SL_JOB_HEADS]);
    /* The driver's attempts: tried before the common ones, after them, and, if no others suffice, changes of the
     * model; NULL ends each list, a NULL list is empty. */
    sl_attempt *const *gentle, *const *harsh, *const *smaller;
};

struct sl_job {
    /* Set by the driver. */
    const struct sl_job_type *type;
    const struct sl_training_options *options; /* valid for longer than the job */
    void *own;                                 /* the driver's */
    uint64_t seed;
    int sequence;      /* rows of a sample on a coordinate; 0: a sample is one row, and rows are independent */
    bool forward_only; /* the job never trains */
    int pieces;        /* pieces of a microbatch's rows that modules move beside products; 0 and 1: none */
    /* Set by the functions below. */
    int cores;      /* cores available to the coordinates; 0: unknown (drivers/speed/cores.h) */
    int cores_each; /* cores available to each of them */
    struct {        /* number of coordinates sharing cores, and of these cores; sl_cores_share */
        int coordinates, cores;
    } sharing;
    bool sizes_only;      /* only parameters and bytes are reported (--dry-run, --show-shardings) */
    struct sl_load *load; /* counts the work of the planned coordinate; NULL: not counted */
    struct sl_mesh mesh;
    int data, ranks;          /* sizes of these axes */
    int parts;                /* coordinates that share a sample's rows; */
    int replicas;             /* coordinates with the same parameters, data * parts, */
    const char *replica_axes; /* and their axes */
    const struct sl_gemm_backend *gemm;
    enum sl_dtype precision; /* of products' operands */
    struct sl_optimizer_options optimizer;
    int exact;          /* leaves of the batch (--exact); 0: none */
    int leaves;         /* of the channels, over the type's leaf_axis; 0 or 1: none */
    int context_leaves; /* of sequences, over the type's context_axis; 0: none */
    int passes;         /* through the pipeline a step */
    int local, pass;    /* samples of a replica per step, and per pass */
    int bare_loops;     /* loops of the schedule whose stages have no layers; if any, microbatches are not joined */
    struct sl_schedule schedule; /* lowered and proven */
    int slots;                   /* slots of a channel, as proven for the schedule */
    int rows;                    /* of a microbatch */
    int wgrad_group;
    int layers;        /* of the model */
    int *stage_layers; /* [stages with layers], from the options; NULL: not given */
    bool stage_halves; /* stage_layers counts half layers */
};

/* Opens the job. Axes missing in MESH are added with size 1. The run will use ENGINE. */
int sl_job_open(struct sl_job *job, const struct sl_mesh *mesh, const struct sl_engine *engine, struct sl_error *error);
int sl_job_share(struct sl_job *job, struct sl_error *error);
/* Makes a schedule of KIND, or reads the options' schedule file, which then sets the number of microbatches. The
 * model has LAYERS layers. */
int sl_job_schedule(struct sl_job *job, const struct sl_schedule_kind *kind, int loops, int microbatches, int layers,
                    struct sl_error *error);
/* Return the microbatches of a pass, and of a weight-gradient product, as given by the options, otherwise USUAL.
 * With --exact USUAL is ignored: a leaf's samples of a step are divided into up to 8 microbatches, distributed over
 * the passes, each with a product of its own, so neither mesh nor --accumulate changes a bit (unless there are more
 * passes than microbatches). Call them after sl_job_share. */
int sl_job_microbatches(const struct sl_job *job, int usual);
int sl_job_wgrad_group(const struct sl_job *job, int usual);
/* Sets the microbatches of a weight-gradient product; GROUP 0, or more than all: all microbatches. Also fuses the
 * schedule and lowers it. */
int sl_job_group(struct sl_job *job, int group, struct sl_error *error);
/* Adds to SIGNATURE this process's own decisions. */
int sl_job_sign(const struct sl_job *job, struct sl_signature *signature, struct sl_error *error);
/* Returns the job's description for a trace. */
struct sl_trace_run sl_job_trace(const struct sl_job *job);
/* Frees the job, also if it was never opened. */
void sl_job_close(struct sl_job *job);

/* Returns the largest divisor of NUMBER up to MOST. */
int sl_largest_divisor(int number, int most);

static inline const char *sl_job_axis(const struct sl_job *job, int axis) { return job->type->axes[axis]; }

/* ---- one coordinate ---- */

/* One coordinate's part of a job while a program runs. */
struct sl_worker {
    struct sl_job *job;
    struct sl_spmd *self;
    struct sl_model model;
    struct sl_trainer *trainer;
    void *own;              /* the driver's */
    int64_t first, samples; /* steps and samples taken before this run */
};

/* sl_worker_plan plans the coordinate's part. sl_worker_open allocates the memory and sets the initial values, or
 * copies them from FROM (NULL: none), a mapped and verified file. Call sl_worker_close also after a failure. */
int sl_worker_plan(struct sl_worker *worker, struct sl_spmd *self, struct sl_job *job);
/* Adds to BUDGET the coordinate's bytes, by category. Collective over the mesh. */
int sl_worker_plan_bytes(struct sl_worker *worker, struct sl_budget *budget);
int sl_worker_open(struct sl_worker *worker, const struct sl_store *from);
void sl_worker_close(struct sl_worker *worker);

#endif
