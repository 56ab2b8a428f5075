/* runs.h - the runs named on a command line.
 *
 * A RUN is one of these, and NAME=RUN gives it a name other than its file's:
 *     a file of metrics   JSON lines, as written by --metrics; or a pipe with them
 *     a trace             as written by --trace, recognized by its contents; it belongs to the run called NAME, or else
 *                         to the preceding run
 *     a directory         a run with files called metrics and trace, with any ending (metrics.jsonl) */
#ifndef SL_DRIVERS_TOOLS_REPORT_RUNS_RUNS_H
#define SL_DRIVERS_TOOLS_REPORT_RUNS_RUNS_H

#include "drivers/tools/report/runs/run.h"

enum { REPORT_MOST_RUNS = 24 };

/* Zero-initialize. */
struct report_runs {
    int count;
    struct report_run run[REPORT_MOST_RUNS];
};

/* Returns the start of the path in the argument WORD: after NAME=, if present. */
const char *report_path_of(const char *word);

/* Finds the files of the COUNT arguments at WORD, and reads the metrics. SL_BAD_INPUT names the wrong argument or
 * line. Free RUNS with report_runs_free, also after a failure. */
int report_runs_open(struct report_runs *runs, const char *const *word, int count, struct sl_error *error);
void report_runs_free(struct report_runs *runs);

#endif
