/* rig.h - common parts of the benchmarks of a training step: options, the run over the mesh, rounds of steps and of the
 * floor.
 *
 * A benchmark defines its options, its step and its floor. The rig takes the steps in rounds and measures the floor
 * before, between and behind them. A round's ratio is its steps' median over the mean of the floors around it, so
 * a machine that slows down slows both. */
#ifndef SL_BENCHMARKS_RIG_H
#define SL_BENCHMARKS_RIG_H

#include "benchmarks/floor.h"
#include "collectives/engines.h"
#include "layers/training/trainer.h"
#include "spmd/schedule/schedule.h"

struct sl_rig;

/* An option of a benchmark: the target of its value, by type. A table ends with {0}. */
struct sl_rig_option {
    const char *name;
    int *integer, max;  /* from 1 to MAX */
    double *real, most; /* from 0 to MOST */
    const char **text;
    bool *flag;
    int (*set)(struct sl_rig *rig, const char *value); /* SL_BAD_INPUT after one line on stderr */
};

/* Results of a step. */
struct sl_rig_step {
    double ms;
    double prefill_ms; /* of a generation's prompt */
    double loss;       /* a row's; of a training step */
};

struct sl_rig {
    /* Set by the benchmark. */
    const char *name, *usage;
    const struct sl_rig_option *options; /* in addition to the rig's own */
    void *run;                           /* the benchmark's own state */
    /* Called when the mesh is known: checks the options, sets the schedule and RUN's needs. */
    int (*prepare)(struct sl_rig *rig, struct sl_error *error);
    sl_program *program; /* of a coordinate; its argument is the rig */
    double (*floor_ms)(const struct sl_rig *rig, struct sl_floor_rates rates); /* a step's floor at these rates */
    void (*print)(struct sl_rig *rig);

    /* Options of every benchmark. */
    const char *mesh_text, *schedule_name, *precision_name, *storage_name, *engine;
    int steps, warmup, rounds;
    int fuse; /* microbatches of a product; 0: as the simulator finds best */
    double floor_seconds;

    enum sl_dtype precision; /* of products' operands */
    enum sl_dtype storage;   /* of weights that products read, saved activations, and messages */
    const struct sl_gemm_backend *gemm;
    struct sl_cores cores;
    struct sl_mesh mesh;
    struct sl_schedule schedule;
    int rows; /* of a microbatch; set by PREPARE */

    /* Written by coordinate 0. */
    struct sl_floor floor;
    double *ms, *prefill_ms; /* [steps] */
    double *round_ms;        /* [rounds]: the median of its steps */
    double *floors_ms;       /* [rounds + 1]: measured before, between and after rounds */
    int taken;               /* steps in all */
    double peak_bytes, first_loss;
};

/* Reads the options, runs the benchmark and prints its result. Returns the process's exit status. */
int sl_rig_main(struct sl_rig *rig, int argc, char **argv);

/* Called on every coordinate: warms up, then takes the steps and measures the floor in turns. STEP takes a step of
 * WORKER; TELL adds the step's products and parameters to the floor. */
typedef int sl_rig_take(void *worker, struct sl_rig_step *step);
typedef void sl_rig_tell(const struct sl_rig *rig, struct sl_floor *floor);
int sl_rig_measure(struct sl_rig *rig, struct sl_spmd *self, const struct sl_group *world, sl_rig_take *take,
                   sl_rig_tell *tell, void *worker);

/* Takes a training step, for STEP. */
int sl_rig_train(struct sl_trainer *trainer, const struct sl_batch *batch, struct sl_rig_step *step);

/* The first fields of the JSON object, up to the number of threads. */
void sl_rig_print_name(const struct sl_rig *rig, const char *benchmark);
/* Prints the steps' times, with their MEDIAN, and the floor's; and THEORY_MS unless it is 0. */
void sl_rig_print_ms(const struct sl_rig *rig, double median, double theory_ms);

#endif
