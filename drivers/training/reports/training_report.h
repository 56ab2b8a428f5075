/* training_report.h - reports of a training run: a line per step for people, JSON lines on stdout and in the metrics
 * file, progress on stderr. Only coordinate 0 reports. */
#ifndef SL_DRIVERS_TRAINING_REPORTS_TRAINING_REPORT_H
#define SL_DRIVERS_TRAINING_REPORTS_TRAINING_REPORT_H

#include "drivers/common/metrics.h"
#include "drivers/common/progress.h"
#include "drivers/training/reports/events.h"
#include "drivers/training/reports/step_times.h"
#include "layers/modules/module.h"

enum { SL_REPORT_COLUMNS = 12 };

/* A step's results. */
struct sl_step {
    int64_t number;
    struct sl_metrics metrics; /* sums over the batch */
    double rate;               /* the learning rate */
    double norm;               /* norm of all gradients before clipping; NaN without clipping */
    double ms;
};

/* A number of each step: a column of the table, a key of the JSON objects, or both. */
struct sl_report_field {
    const char *key;   /* in JSON; NULL: not in JSON */
    const char *title; /* in the table; NULL: not in the table */
    int width;
    char style;    /* 'd': a whole number; 'f', 'g': as in printf */
    int digits;    /* of style f and g */
    bool optional; /* if the first step has no value, the column is omitted */
    /* Returns the value; OWN is the driver's. NaN: no value, a dash in the table and no key in JSON. */
    double (*value)(const struct sl_step *step, const void *own);
};

double sl_step_number(const struct sl_step *step, const void *own);
double sl_step_loss(const struct sl_step *step, const void *own); /* mean over the batch */
double sl_step_accuracy(const struct sl_step *step, const void *own);
double sl_step_rate(const struct sl_step *step, const void *own);
double sl_step_norm(const struct sl_step *step, const void *own);
double sl_step_ms(const struct sl_step *step, const void *own);

struct sl_report {
    bool json;                           /* JSON on stdout instead of tables */
    const struct sl_report_field *field; /* ends with a field without a value; at most SL_REPORT_COLUMNS fields have
                                          * a title */
    const void *own;                     /* for the fields */
    const char *rows;                    /* name of a batch's rows: "tokens" */
    struct sl_metrics_file metrics;
    struct sl_events events;
    struct sl_progress progress;
    double progress_every; /* seconds; as `every` of struct sl_progress */
    struct sl_table table; /* of steps */
    struct sl_column column[SL_REPORT_COLUMNS];
    const struct sl_report_field *shown[SL_REPORT_COLUMNS]; /* fields of the table's columns */
    struct sl_step_times times;
    int64_t first;             /* steps before this run */
    double rows_done, seconds; /* of training steps only */
    double final_loss, first_step_ms;
    /* Set by sl_report_open, and by the first failed write: `lost` tells why lines can no longer be written. The run
     * should then be saved and end; until then, lines still go to the outputs that work. */
    bool opened;
    struct sl_error lost;
};

/* Checks that the record PATH (may be NULL) of OPTION exists or has a folder to be made in; otherwise SL_BAD_INPUT. */
int sl_report_check_folder(const char *option, const char *path, struct sl_error *error);
/* Opens the report. METRICS is the path of the metrics file, or NULL; if RESUMED, its lines stay. EVENTS is the
 * folder for TensorBoard files, or NULL. The run begins after FIRST of STEPS steps. */
int sl_report_open(struct sl_report *report, const char *metrics, const char *events, bool resumed, int64_t first,
                   int64_t steps, struct sl_error *error);
int sl_report_close(struct sl_report *report, struct sl_error *error);

/* Whether JSON objects are written anywhere. */
bool sl_report_wants_json(const struct sl_report *report);
/* Prints OBJECT to all JSON outputs, and releases the caller's reference. If the report is open, a failure goes to
 * `lost`, and SL_OK is returned. */
int sl_report_print(struct sl_report *report, json_t *object, struct sl_error *error);
/* Flushes the output, also to a file or a pipe, so readers see each line at once. */
int sl_report_flush(struct sl_report *report, struct sl_error *error);
/* Reports a step; prints its row of the table only if SHOWN. */
int sl_report_step(struct sl_report *report, const struct sl_step *step, bool shown, struct sl_error *error);

#endif
