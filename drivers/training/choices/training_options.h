/* training_options.h - options common to all training drivers: one struct, and the tables that fill it in.
 *
 * A driver's own table has the options with a meaning of its own: schedules, batch. They may fill in fields of this
 * struct, too. */
#ifndef SL_DRIVERS_TRAINING_CHOICES_TRAINING_OPTIONS_H
#define SL_DRIVERS_TRAINING_CHOICES_TRAINING_OPTIONS_H

#include "drivers/common/checkpoints.h"
#include "drivers/training/choices/optimizer_options.h"
#include "drivers/common/options.h"
#include "drivers/training/choices/learning_rate.h"

enum sl_product_precision { SL_PRODUCTS_F32, SL_PRODUCTS_BF16, SL_PRODUCTS_TF32 };

/* Rows of the list of parameters: one for each of a rank's parameters, or one for all that are stacked. */
enum sl_shardings { SL_SHARDINGS_NONE, SL_SHARDINGS_EACH, SL_SHARDINGS_STACKED };

/* --lr-schedule; the default of some drivers depends on their data. */
enum sl_rate_schedule { SL_RATE_DEFAULT = -1, SL_RATE_CONSTANT, SL_RATE_COSINE };

/* Bits of --offload, in the order of its words. */
enum { SL_OFFLOAD_OPTIMIZER = 1, SL_OFFLOAD_ACTIVATIONS = 2, SL_OFFLOAD_WEIGHTS = 4 };

struct sl_training_options {
    /* Set by the driver's own table. */
    const char *schedule;
    int loops, microbatches, batch;
    const char *stage_layers; /* "3,2,2,1": layers of each stage; NULL: as equal as possible */
    /* Set by sl_pipeline_table. */
    const char *schedule_file; /* a table of actions instead of the schedule; NULL: none */
    int accumulate;            /* passes through the pipeline per step */
    const char *exact;         /* "data=N,tensor=W", or one of them; NULL: sums in the order of coordinates */
    int recompute;             /* enum sl_recomputation */
    int offload;               /* SL_OFFLOAD_... */
    const char *offload_directory;
    int wgrad_group; /* 0: the driver's default */
    int zero;
    bool prefetch, overlap;
    int fuse;     /* microbatches per product; 0: the simulator's best number */
    bool no_fuse; /* as fuse 1 */
    int graph;    /* enum sl_graphs */
    double delay_ms;
    /* Set by sl_layout_table. */
    int precision; /* enum sl_product_precision */
    int storage;   /* 1: saved activations, messages between stages, and caches are bf16 */
    bool fsdp, dry_run;
    bool no_rewrite;    /* fuse no layers */
    int show_shardings; /* enum sl_shardings */
    /* Set by sl_optimizer_section. */
    struct sl_optimizer_flags optimizer;
    /* Set by sl_rate_table. */
    double learning_rate, least_rate, clip;
    int warmup, lr_schedule; /* enum sl_rate_schedule */
    const char *freeze;      /* patterns of frozen parameters; NULL: none */
    /* Set by sl_record_table. */
    const char *metrics, *gradients, *trace; /* files; NULL: none */
    const char *tensorboard;                 /* a folder; NULL: none */
    const char *journal;                     /* a directory; NULL: none */
    int journal_every;                       /* steps between records in the journal; 0: as 1 */
    int journal_messages;                    /* number of steps whose messages stay in the journal; 0: none */
    const char *replay;                      /* "COORDINATE@STEP"; NULL: not a replay */
    const char *fail;                        /* "2@17": coordinates that are to fail; NULL: none */
    double progress_every;                   /* seconds between progress lines */
    int log_every;                           /* steps between printed lines; 0: the driver's choice */
    bool check_replicas, profile, advice;
    struct sl_checkpoint_options checkpoints;
    bool plans; /* set by the driver: layouts are planned, without training */
};

/* Tables over a struct sl_training_options; sl_checkpoint_table is over its checkpoints. */
extern const struct sl_option sl_pipeline_table[]; /* actions of a step and their order */
extern const struct sl_option sl_layout_table[];   /* storage of parameters; also for drivers without training */
extern const struct sl_option sl_rate_table[];     /* size of an update */
extern const struct sl_option sl_record_table[];   /* checks and records */

/* Returns one pass, ZeRO-1, overlap, a constant rate of 1e-3. */
struct sl_training_options sl_training_defaults(void);

/* Returns the learning rates of a run of STEPS, from the options. */
struct sl_learning_rate sl_training_rate(const struct sl_training_options *options, int64_t steps);

#endif
