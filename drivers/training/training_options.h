/* training_options.h - the options of every driver that trains: one struct, and the tables that fill it in.
 *
 * A driver's own table has the options whose meaning is the driver's: its schedules, its batch. They may fill in this
 * struct's fields, too. */
#ifndef SL_DRIVERS_TRAINING_TRAINING_OPTIONS_H
#define SL_DRIVERS_TRAINING_TRAINING_OPTIONS_H

#include "drivers/common/checkpoints.h"
#include "drivers/common/optimizer_options.h"
#include "drivers/common/options.h"
#include "drivers/training/learning_rate.h"

enum sl_product_precision { SL_PRODUCTS_F32, SL_PRODUCTS_BF16, SL_PRODUCTS_TF32 };

/* How parameters are listed: a row for each of a rank's parameters, or one for all that are stacked. */
enum sl_shardings { SL_SHARDINGS_NONE, SL_SHARDINGS_EACH, SL_SHARDINGS_STACKED };

/* --lr-schedule; the default of some drivers depends on their data. */
enum sl_rate_schedule { SL_RATE_DEFAULT = -1, SL_RATE_CONSTANT, SL_RATE_COSINE };

/* Bits of --offload, in the order of its words. */
enum { SL_OFFLOAD_OPTIMIZER = 1, SL_OFFLOAD_ACTIVATIONS = 2, SL_OFFLOAD_WEIGHTS = 4 };

struct sl_training_options {
    /* Filled in by the driver's own table. */
    const char *schedule;
    int loops, microbatches, batch;
    const char *stage_layers; /* "3,2,2,1": of each stage; NULL: as equally many as can be */
    /* By sl_pipeline_table. */
    const char *schedule_file; /* a table of actions in place of the schedule; NULL: none */
    int accumulate;            /* passes through the pipeline a step */
    const char *exact;         /* "data=N,tensor=W", or one of them; NULL: sums are in the order of coordinates */
    int recompute;             /* enum sl_recomputation */
    int offload;               /* SL_OFFLOAD_... */
    const char *offload_directory;
    int wgrad_group; /* 0: the driver's default */
    int zero;
    bool prefetch, overlap;
    int fuse;     /* microbatches in a product; 0: as the simulator finds best */
    bool no_fuse; /* as fuse 1 */
    int graph;    /* enum sl_graphs */
    double delay_ms;
    /* By sl_layout_table. */
    int precision; /* enum sl_product_precision */
    int storage;   /* 1: what is kept and handed over, and caches, are bf16 */
    bool fsdp, dry_run;
    int show_shardings; /* enum sl_shardings */
    /* By sl_optimizer_section. */
    struct sl_optimizer_flags optimizer;
    /* By sl_rate_table. */
    double learning_rate, least_rate, clip;
    int warmup, lr_schedule; /* enum sl_rate_schedule */
    const char *freeze;      /* patterns of parameters that stay as they are; NULL: none */
    /* By sl_record_table. */
    const char *metrics, *gradients, *trace; /* files; NULL: none */
    const char *tensorboard;                 /* a folder; NULL: none */
    const char *journal;                     /* a directory; NULL: none */
    int journal_every;                       /* steps from one that is recorded there to the next; 0: one */
    int journal_messages;                    /* steps whose messages are kept there; 0: of none */
    const char *replay;                      /* "COORDINATE@STEP"; NULL: the run is not one of a single coordinate */
    double progress_every;                   /* seconds from one line about the rest of the run to the next */
    int log_every;                           /* steps from one printed line to the next; 0: the driver's choice */
    bool check_replicas, profile, advice;
    struct sl_checkpoint_options checkpoints;
    bool plans; /* set by the driver: layouts are planned, and nothing is trained */
};

/* Each over a struct sl_training_options; sl_checkpoint_table is over its checkpoints. */
extern const struct sl_option sl_pipeline_table[]; /* what a step does, and in which order */
extern const struct sl_option sl_layout_table[];   /* how parameters are kept; also for those that do not train */
extern const struct sl_option sl_rate_table[];     /* how far a step moves them */
extern const struct sl_option sl_record_table[];   /* what is checked and written down */

/* One pass, ZeRO-1, overlap, a constant rate of 1e-3. */
struct sl_training_options sl_training_defaults(void);

/* What the options say about the learning rates of a run of STEPS. */
struct sl_learning_rate sl_training_rate(const struct sl_training_options *options, int64_t steps);

#endif
