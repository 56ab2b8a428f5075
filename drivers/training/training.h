/* training.h - a training run: the loop over steps in every coordinate, and the work before and after it.
 *
 * A driver supplies the job (its model) and, in struct sl_training_type, its data and its additions to steps and
 * reports. */
#ifndef SL_DRIVERS_TRAINING_TRAINING_H
#define SL_DRIVERS_TRAINING_TRAINING_H

#include "drivers/memory/memory_report.h"
#include "drivers/training/faults.h"
#include "drivers/training/heading.h"
#include "drivers/training/job.h"
#include "drivers/training/choices/learning_rate.h"
#include "drivers/training/reports/training_report.h"
#include "layers/training/trace/trace_file.h"
#include "layers/modules/calls/profile.h"

struct sl_training;

struct sl_training_type {
    /* Sets BATCH to this coordinate's rows of STEP's batch; they are valid until the next call. */
    int (*fetch)(struct sl_worker *worker, int64_t step, struct sl_batch *batch);
    /* Called before the first step, after resuming; NULL: none. */
    int (*begin)(struct sl_worker *worker);
    /* Called after STEP, which may be the LAST, and after it was saved, for evaluations and samples; NULL: none. */
    int (*after)(struct sl_worker *worker, const struct sl_step *step, bool last);
    /* Reported fields of a step; and whether step NUMBER is printed for people; NULL: every step is. */
    const struct sl_report_field *field;
    bool (*shows)(const struct sl_training *training, int64_t number);
    /* Called at the end: prints results for people unless the report is in JSON; returns the last JSON object, NULL
     * without memory. */
    json_t *(*end)(struct sl_training *training);
    /* Renames and reshapes GRADIENTS before they are written; NULL: as the parameters. */
    int (*name)(const struct sl_training *training, struct sl_store *gradients, struct sl_error *error);
};

/* Measurements of a run: ms of the median step, and of the fastest and slowest tenth; bytes of the fullest
 * coordinate. */
struct sl_training_measured {
    int64_t steps; /* 1: all times are of this step; 0: NaN */
    double median, fast, slow, bytes;
    /* NaN if unknown, as when coordinates share cores: the bubble (layers/modules/calls/profile.h), and the share of
     * the passes' time in which other programs used their cores. */
    double bubble, taken;
};

/* Prediction of a run, reported at its end. */
struct sl_training_forecast {
    bool made;
    /* Makes the prediction when the training has ended, unless it was made before, from the profile of STEPS steps;
     * with 0 steps, only the parts without times. The run's steps took SECONDS. */
    void (*settle)(struct sl_training_forecast *forecast, const struct sl_training *training, int64_t steps,
                   double seconds);
    /* Prints it for people next to the measurements; returns it as JSON, NULL without memory. */
    void (*print)(const struct sl_training_forecast *forecast, FILE *stream,
                  const struct sl_training_measured *measured);
    json_t *(*json)(const struct sl_training_forecast *forecast);
};

struct sl_training {
    /* Set by the driver. */
    const struct sl_training_type *type;
    struct sl_job *job;
    bool json;
    int64_t steps; /* total number, including steps before resuming */
    struct sl_learning_rate rate;
    const struct sl_store *from; /* initial values; NULL: from the seed */
    struct sl_heading heading;
    struct sl_setting setting[SL_MOST_SETTINGS + 1]; /* values that must stay the same in a resumed run */
    const struct sl_options *command;                /* its options are part of the last JSON object */
    struct sl_training_forecast *forecast;           /* NULL: no prediction */
    bool watched;                                    /* a few steps are profiled; the same in all processes */
    struct sl_store notes;                           /* added to checkpoints besides the settings */
    /* Set by the functions below. */
    struct sl_checkpoints checkpoints;
    char *const *words; /* command to replay this run; NULL: not needed */
    struct sl_faults faults;
    /* Per coordinate, [noted]; `trained`: number of parameters not frozen, at the first coordinate of each stage
     * rank. */
    int noted;
    double *trained;
    struct sl_memory *memory;
    struct sl_profile *profile;
    struct sl_graph_report graphs; /* of coordinate 0 */
    struct sl_trace_file trace;
    /* Written by coordinate 0. */
    struct sl_report report;
    struct sl_store gradients;
    bool interrupted;
};

/* Returns a run's measurements from the TIMES of its steps, PROFILE of PROFILED steps, and MEMORY. The last two are
 * [coordinates]. */
struct sl_training_measured sl_training_measure(const struct sl_job *job, struct sl_step_times *times,
                                                const struct sl_profile *profile, int64_t profiled,
                                                const struct sl_memory *memory);

/* Sets ENGINE's delay from the options. SL_BAD_INPUT if the engine has no delay. */
int sl_training_delay(const struct sl_training_options *options, struct sl_engine *engine, struct sl_error *error);

/* Adds notes for checkpoints to TRAINING: all options of COMMAND, and the identity of DATA (which may be empty). The
 * driver adds defaults that it has determined. */
int sl_training_describe(struct sl_training *training, const struct sl_options *command,
                         const struct sl_signature *data, struct sl_error *error);

/* Allocates the arrays per coordinate for MESH, unless they are large enough; sl_training_run does so, too. */
int sl_training_take_notes(struct sl_training *training, const struct sl_mesh *mesh, struct sl_error *error);

/* Trains, or does the other work that the job's options ask for. ENGINE is open; its delay is set from the options. */
int sl_training_run(struct sl_training *training, struct sl_engine *engine, struct sl_error *error);
void sl_training_close(struct sl_training *training);

/* Steps taken in this run. */
static inline int64_t sl_training_done(const struct sl_training *training) { return training->report.times.count; }
/* Returns the samples taken before STEP: steps before resuming may have had other batch sizes. */
int64_t sl_training_samples(const struct sl_worker *worker, int64_t step);

#endif
