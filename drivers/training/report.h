/* report.h - what a training says: a line a step for people, JSON lines on stdout and in the metrics file, progress on
 * stderr. Only coordinate 0 speaks. */
#ifndef SL_DRIVERS_TRAINING_REPORT_H
#define SL_DRIVERS_TRAINING_REPORT_H

#include "drivers/common/metrics.h"
#include "drivers/common/progress.h"
#include "drivers/training/events.h"
#include "drivers/training/step_times.h"
#include "layers/modules/module.h"

enum { SL_REPORT_COLUMNS = 12 };

/* One step, as it is reported. */
struct sl_step {
    int64_t number;
    struct sl_metrics metrics; /* sums over the batch */
    double rate;               /* the learning rate */
    double norm;               /* of all gradients, before they were clipped; NaN where they are not */
    double ms;
};

/* A number of each step: a column of the table, a key of the JSON objects, or both. */
struct sl_report_field {
    const char *key;   /* in JSON; NULL: it is not there */
    const char *title; /* in the table; NULL: it is not there */
    int width;
    char style;    /* 'd': a whole number; 'f', 'g': as printf's */
    int digits;    /* of style f and g */
    bool optional; /* where the first step has none, there is no column */
    /* OWN is the driver's. NaN where there is none: a dash in the table, no key in JSON. */
    double (*value)(const struct sl_step *step, const void *own);
};

double sl_step_number(const struct sl_step *step, const void *own);
double sl_step_loss(const struct sl_step *step, const void *own); /* the mean of the batch */
double sl_step_accuracy(const struct sl_step *step, const void *own);
double sl_step_rate(const struct sl_step *step, const void *own);
double sl_step_norm(const struct sl_step *step, const void *own);
double sl_step_ms(const struct sl_step *step, const void *own);

struct sl_report {
    bool json;                           /* on stdout, in place of tables */
    const struct sl_report_field *field; /* up to one without a value; at most SL_REPORT_COLUMNS with a title */
    const void *own;                     /* for the fields */
    const char *rows;                    /* what a batch's rows are: "tokens" */
    struct sl_metrics_file metrics;
    struct sl_events events;
    struct sl_progress progress;
    double progress_every; /* seconds; see there */
    struct sl_table table; /* of steps */
    struct sl_column column[SL_REPORT_COLUMNS];
    const struct sl_report_field *shown[SL_REPORT_COLUMNS]; /* the table's fields */
    struct sl_step_times times;
    int64_t first;             /* steps before this run */
    double rows_done, seconds; /* of the steps alone */
    double final_loss, first_step_ms;
    /* Of a report that was opened: why its lines can no longer be written. The run should end then, after it was
     * saved; until then, lines still go wherever they can. */
    bool opened;
    struct sl_error lost;
};

/* METRICS is the file's path, or NULL; a RESUMED run goes on with its lines. EVENTS is the folder for TensorBoard's
 * files, or NULL. The run begins after FIRST of STEPS steps. */
int sl_report_open(struct sl_report *report, const char *metrics, const char *events, bool resumed, int64_t first,
                   int64_t steps, struct sl_error *error);
int sl_report_close(struct sl_report *report, struct sl_error *error);

/* Whether somebody reads JSON objects. */
bool sl_report_wants_json(const struct sl_report *report);
/* Prints OBJECT to whoever reads JSON, and drops the caller's reference to it. A report that was opened keeps what
 * failed in `lost`, and SL_OK is returned. */
int sl_report_print(struct sl_report *report, json_t *object, struct sl_error *error);
/* Hands over what was printed, also where stdout is a file or a pipe: whoever follows a run sees each line at once. */
int sl_report_flush(struct sl_report *report, struct sl_error *error);
/* A step; its row of the table only where SHOWN. */
int sl_report_step(struct sl_report *report, const struct sl_step *step, bool shown, struct sl_error *error);

#endif
