/* job.h - a driver's model on a mesh, under a schedule: what is decided before the coordinates start, and then one
 * coordinate's part.
 *
 * A job is opened in this order, so that a driver may decide on its own things in between:
 *     sl_job_open       the axes of the mesh, the matrix products
 *     sl_job_share      how many samples a replica has, a step and a pass, and how many passes
 *     sl_job_schedule   the table of actions, microbatches
 *     sl_job_group      microbatches of a weight-gradient product; runs of them, the lowered table
 * All of them return SL_BAD_INPUT with the numbers that do not fit. */
#ifndef SL_DRIVERS_TRAINING_JOB_H
#define SL_DRIVERS_TRAINING_JOB_H

#include "drivers/training/training_options.h"
#include "layers/training/trace_file.h"
#include "layers/training/trainer.h"
#include "spmd/schedule/registry.h"

struct sl_worker;
struct sl_job;

/* A job with something changed. Of what only some drivers have, 0 or false is what the job has itself. */
struct sl_variant {
    struct sl_training_options options;
    struct sl_mesh mesh; /* as large as the job's */
    int spread_head;     /* the way in which the pipeline's ranks share the head, one of the job type's */
    bool latent_cache;
    bool one_copy;    /* of kernels */
    bool drop_logits; /* do not keep them */
    int length, in_flight;
    int layers, layers_per_block; /* of a smaller model; blocks of layers where models have blocks */
};

enum { SL_ATTEMPT_TEXT = 96 };

/* A way to make a job smaller: changes VARIANT for the ATTEMPTth time (from 0), always from what JOB has, and says in
 * TEXT how that is written. False where there is no such attempt. */
typedef bool sl_attempt(const struct sl_job *job, int attempt, struct sl_variant *variant, char text[SL_ATTEMPT_TEXT]);

/* The axes of a job's mesh in struct sl_job_type; what comes after these two is the driver's. */
enum { SL_JOB_DATA, SL_JOB_PIPE };

enum { SL_JOB_HEADS = 3 };

/* What a driver gives of its own. */
struct sl_job_type {
    const char *model;       /* whose axes these are, in messages: "the transformer" */
    const char *const *axes; /* names: of samples, of the pipeline's ranks, others; NULL ends them */
    const char *leaf_axis;   /* of channels: its sums can be those of leaves (--exact), too; NULL: there is none */
    const char *samples;     /* what a batch consists of, in messages: "sequences" */
    bool halves;             /* its layers can be halved: stages may have 1.5 */
    /* Builds WORKER's part of the model, takes its buffers (worker->own), and changes of OPTIONS, which come filled in
     * from the job, what its model needs. */
    int (*open)(struct sl_worker *worker, struct sl_trainer_options *options);
    /* Fills in WORKER's parameters, which are open, in place of those of the seed; NULL: it has nothing else.
     * Collective over the mesh. */
    int (*load)(struct sl_worker *worker);
    /* Changes the parameters once they have values, wherever these are from; NULL: nothing. Collective over the mesh.
     */
    int (*adapt)(struct sl_worker *worker);
    bool (*gives)(const struct sl_worker *worker); /* whether it writes all of them, but adapters'; NULL: never */
    /* Gives back what open has taken; also after it has failed. */
    void (*close)(struct sl_worker *worker);
    /* Adds to BUDGET what WORKER, whose trainer is planned, takes beside it. Collective over the mesh. */
    int (*plan_bytes)(struct sl_worker *worker, struct sl_budget *budget);
    /* A job like JOB as VARIANT has it, which is only planned; NULL where that does not fit. */
    struct sl_job *(*copy)(const struct sl_job *job, const struct sl_variant *variant, const struct sl_engine *engine,
                           struct sl_error *error);
    void (*free_copy)(struct sl_job *copy);
    /* The ways in which so many RANKS could share JOB's head that are worth a try, a word each, as a variant numbers
     * them from 1 on; NULL where one is not. NULL instead of a function: heads are not shared. */
    void (*heads)(const struct sl_job *job, int ranks, const char *way[SL_JOB_HEADS]);
    /* Beside those of all drivers, tried before them and after them, and those that make another model, where no others
     * are enough; NULL ends each, NULL: none. */
    sl_attempt *const *gentle, *const *harsh, *const *smaller;
};

struct sl_job {
    /* Given. */
    const struct sl_job_type *type;
    const struct sl_training_options *options; /* outlive the job */
    void *own;                                 /* the driver's */
    uint64_t seed;
    int sequence;      /* rows of a sample; 0: a sample is a row, and rows have nothing to do with each other */
    bool forward_only; /* it will never train */
    /* Decided. */
    int cores;      /* that the coordinates may use; 0: unknown (drivers/speed/cores.h) */
    int cores_each; /* that each of them can have */
    struct {        /* coordinates that share cores, and how many; sl_cores_share */
        int coordinates, cores;
    } sharing;
    bool sizes_only;      /* it only tells of parameters and bytes (--dry-run, --show-shardings) */
    struct sl_load *load; /* counts the work of the coordinate that is planned; NULL: nobody does */
    struct sl_mesh mesh;
    int data, ranks; /* sizes of these axes */
    const struct sl_gemm_backend *gemm;
    enum sl_dtype precision; /* of products' operands */
    struct sl_optimizer_options optimizer;
    int exact;       /* leaves of the batch (--exact); 0: none */
    int leaves;      /* of the channels, over the type's leaf_axis; 0 or 1: none */
    int passes;      /* through the pipeline a step */
    int local, pass; /* samples of a replica: a step, and a pass */
    int bare_loops;  /* of the schedule: loops whose stages have no layers; no microbatches are joined then */
    struct sl_schedule schedule; /* lowered and proven */
    int slots;                   /* of a channel, with which it is proven */
    int rows;                    /* of a microbatch */
    int wgrad_group;
    int layers;        /* of the model */
    int *stage_layers; /* [stages that have layers], as the options say; NULL: they do not */
    bool stage_halves; /* stage_layers counts halves of layers */
};

/* Axes that MESH lacks are added with size 1. The run will be over ENGINE. */
int sl_job_open(struct sl_job *job, const struct sl_mesh *mesh, const struct sl_engine *engine, struct sl_error *error);
int sl_job_share(struct sl_job *job, struct sl_error *error);
/* Makes a schedule of KIND, or reads the options' file, which then says how many microbatches there are. The model has
 * so many LAYERS. */
int sl_job_schedule(struct sl_job *job, const struct sl_schedule_kind *kind, int loops, int microbatches, int layers,
                    struct sl_error *error);
/* Microbatches of a pass, and of a weight-gradient product, as the options say; where they do not, USUAL. With --exact
 * that is of no account: then a leaf's samples of a step are divided into so many, up to 8, of which each pass has its
 * part, and each is a product of its own, so that neither mesh nor --accumulate changes a bit (unless there are more
 * passes than that). After sl_job_share. */
int sl_job_microbatches(const struct sl_job *job, int usual);
int sl_job_wgrad_group(const struct sl_job *job, int usual);
/* GROUP 0, or more than all: all microbatches. Also fuses the schedule and lowers it. */
int sl_job_group(struct sl_job *job, int group, struct sl_error *error);
/* Adds to SIGNATURE what each process has decided on its own. */
int sl_job_sign(const struct sl_job *job, struct sl_signature *signature, struct sl_error *error);
/* What a trace of it tells. */
struct sl_trace_run sl_job_trace(const struct sl_job *job);
/* Also where nothing was opened. */
void sl_job_close(struct sl_job *job);

/* The largest divisor of NUMBER that is at most MOST. */
int sl_largest_divisor(int number, int most);

static inline const char *sl_job_axis(const struct sl_job *job, int axis) { return job->type->axes[axis]; }

/* ---- one coordinate ---- */

/* Its part while a program runs. */
struct sl_worker {
    struct sl_job *job;
    struct sl_spmd *self;
    struct sl_model model;
    struct sl_trainer *trainer;
    void *own;              /* the driver's */
    int64_t first, samples; /* steps, and samples of the data, that were taken before the run goes on here */
};

/* Plans the coordinate's part. sl_worker_open takes the memory and makes the initial values, or takes those in FROM
 * (NULL: none), a file that was mapped and is verified before. Close it also after a failure. */
int sl_worker_plan(struct sl_worker *worker, struct sl_spmd *self, struct sl_job *job);
/* Adds to BUDGET what the coordinate takes, by category. Collective over the mesh. */
int sl_worker_plan_bytes(struct sl_worker *worker, struct sl_budget *budget);
int sl_worker_open(struct sl_worker *worker, const struct sl_store *from);
void sl_worker_close(struct sl_worker *worker);

#endif
