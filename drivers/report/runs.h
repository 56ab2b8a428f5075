/* runs.h - the runs that a command line names.
 *
 * A RUN is one of these, and NAME=RUN gives it a name other than its file's:
 *     a file of metrics   JSON lines, as --metrics writes them; or a pipe that has them
 *     a trace             as --trace writes it; it is told by its contents, and belongs to the run of its NAME, or else
 *                         to the one before it
 *     a directory         a run whose files in it are called metrics and trace, whatever follows (metrics.jsonl) */
#ifndef SL_DRIVERS_REPORT_RUNS_H
#define SL_DRIVERS_REPORT_RUNS_H

#include "drivers/report/run.h"

enum { REPORT_MOST_RUNS = 24 };

/* Zero-initialize. */
struct report_runs {
    int count;
    struct report_run run[REPORT_MOST_RUNS];
};

/* Where in the argument WORD the path begins: behind NAME=, if it has one. */
const char *report_path_of(const char *word);

/* Finds the files of the COUNT arguments at WORD, and reads the metrics. SL_BAD_INPUT names the argument or the line
 * that is wrong. Free RUNS with report_runs_free, also after a failure. */
int report_runs_open(struct report_runs *runs, const char *const *word, int count, struct sl_error *error);
void report_runs_free(struct report_runs *runs);

#endif
