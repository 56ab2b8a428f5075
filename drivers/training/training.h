/* training.h - a training run: the loop over steps that every coordinate runs, and what is done before and after it.
 *
 * A driver gives the job (its model), and in struct sl_training_type its data and what it adds to steps and reports. */
#ifndef SL_DRIVERS_TRAINING_TRAINING_H
#define SL_DRIVERS_TRAINING_TRAINING_H

#include "drivers/memory/report.h"
#include "drivers/training/heading.h"
#include "drivers/training/job.h"
#include "drivers/training/learning_rate.h"
#include "drivers/training/report.h"
#include "layers/training/trace_file.h"
#include "layers/modules/profile.h"

struct sl_training;

struct sl_training_type {
    /* This coordinate's rows of STEP's batch; they last until the next call. */
    int (*fetch)(struct sl_worker *worker, int64_t step, struct sl_batch *batch);
    /* Before the first step, and after the run has been resumed; NULL: nothing is due. */
    int (*begin)(struct sl_worker *worker);
    /* After STEP, which may be the LAST, and after it was saved: evaluations, samples; NULL: none. */
    int (*after)(struct sl_worker *worker, const struct sl_step *step, bool last);
    /* What is reported of a step, and whether people see that of step NUMBER; NULL: of all. */
    const struct sl_report_field *field;
    bool (*shows)(const struct sl_training *training, int64_t number);
    /* At the end: prints for people, unless the report is in JSON; returns the last JSON object, NULL without memory.
     */
    json_t *(*end)(struct sl_training *training);
    /* Gives GRADIENTS other names and shapes before they are written; NULL: they have the parameters'. */
    int (*name)(const struct sl_training *training, struct sl_store *gradients, struct sl_error *error);
};

/* What was measured: ms of the median step, and of the fast and slow tenth of them; bytes of the fullest coordinate. */
struct sl_training_measured {
    int64_t steps; /* of one, its times are that one's; of none NaN */
    double median, fast, slow, bytes;
    /* NaN where nobody knows, as where coordinates share cores: the bubble (layers/modules/profile.h); and the share of
     * the passes' time in which other programs had their cores. */
    double bubble, taken;
};

/* What was predicted of a run, and is told at its end. */
struct sl_training_forecast {
    bool made;
    /* When the training has ended: makes it, by the profile of STEPS steps, if it has not been made; of no steps, as
     * far as no times are needed. The run's steps took SECONDS. */
    void (*settle)(struct sl_training_forecast *forecast, const struct sl_training *training, int64_t steps,
                   double seconds);
    /* For people, beside what was measured; as JSON, NULL without memory. */
    void (*print)(const struct sl_training_forecast *forecast, FILE *stream,
                  const struct sl_training_measured *measured);
    json_t *(*json)(const struct sl_training_forecast *forecast);
};

struct sl_training {
    /* Given. */
    const struct sl_training_type *type;
    struct sl_job *job;
    bool json;
    int64_t steps; /* in the end, those before a resumed run included */
    struct sl_learning_rate rate;
    const struct sl_store *from; /* initial values; NULL: they are made */
    struct sl_heading heading;
    struct sl_setting setting[SL_MOST_SETTINGS + 1]; /* what stays the same where a run is resumed */
    const struct sl_options *command;                /* whose options the last JSON object tells */
    struct sl_training_forecast *forecast;           /* NULL: nothing is predicted */
    bool watched;                                    /* a few steps are profiled; the same in all processes */
    struct sl_store notes;                           /* what its checkpoints tell of it beside the settings */
    /* Filled in. */
    struct sl_checkpoints checkpoints;
    char *const *words; /* the command that runs this again; NULL: nobody wants to know */
    /* Of each coordinate, [noted]; `trained`: parameters that --freeze leaves, at the first coordinate of each stage
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

/* What a run of JOB tells: of the TIMES of its steps, of PROFILE, which has PROFILED of them, and of MEMORY. The last
 * two are [coordinates]. */
struct sl_training_measured sl_training_measure(const struct sl_job *job, struct sl_step_times *times,
                                                const struct sl_profile *profile, int64_t profiled,
                                                const struct sl_memory *memory);

/* Gives ENGINE the delay that the options ask for. SL_BAD_INPUT where it has none. */
int sl_training_delay(const struct sl_training_options *options, struct sl_engine *engine, struct sl_error *error);

/* Notes in TRAINING what checkpoints tell: all options of COMMAND, and of DATA (which may be empty) the identity. The
 * driver adds values that it has found for defaults. */
int sl_training_describe(struct sl_training *training, const struct sl_options *command,
                         const struct sl_signature *data, struct sl_error *error);

/* Room for what is noted of each coordinate of MESH, unless there is as much; sl_training_run takes it, too. */
int sl_training_take_notes(struct sl_training *training, const struct sl_mesh *mesh, struct sl_error *error);

/* Trains, or does what the job's options ask for in place of that. ENGINE has been opened; it gets the options'
 * delay.
 */
int sl_training_run(struct sl_training *training, struct sl_engine *engine, struct sl_error *error);
void sl_training_close(struct sl_training *training);

/* Steps taken in this run. */
static inline int64_t sl_training_done(const struct sl_training *training) { return training->report.times.count; }
/* Samples of the data that were taken before STEP: the steps of a resumed run may have had other batches. */
int64_t sl_training_samples(const struct sl_worker *worker, int64_t step);

#endif
