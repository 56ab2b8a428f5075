/* facts.h - summary numbers of a run, one row each: side by side for people, as JSON for programs. */
#ifndef SL_DRIVERS_TOOLS_REPORT_RUNS_FACTS_H
#define SL_DRIVERS_TOOLS_REPORT_RUNS_FACTS_H

#include "drivers/tools/report/runs/runs.h"

/* Source of a fact's uncertainty. */
enum report_chance {
    REPORT_EXACT,    /* none */
    REPORT_OF_STEPS, /* of a step's number: report_series_noise */
    REPORT_OF_PARTS, /* of a median: range over parts of the run, report_series.low to high */
};

struct report_fact {
    const char *key, *title;
    int digits;                                    /* for people; 0: a whole number */
    double unit;                                   /* for people, the value is divided by it */
    int better;                                    /* 1: larger is better, -1: smaller is better, 0: neither */
    bool speed;                                    /* depends on the machine: see report_speeds_compare */
    double (*value)(const struct report_run *run); /* NaN: unknown */
    double (*step)(const struct report_run *run);  /* step of the value; NULL: none or many */
    enum report_chance chance;
    enum report_quantity quantity; /* series for the uncertainty; unused for exact facts */
};

enum { REPORT_FACTS = 26 };
extern const struct report_fact report_facts[REPORT_FACTS];

/* Returns "finished", "interrupted", "not finished" or "no metrics". */
const char *report_run_state(const struct report_run *run);
/* Whether any of RUNS has FACT. */
bool report_fact_is_known(const struct report_fact *fact, const struct report_runs *runs);
/* Returns the uncertainty interval of FACT in RUN, LOW to HIGH; both are the value if it is exact. */
struct report_interval {
    double low, high;
};
struct report_interval report_fact_interval(const struct report_fact *fact, const struct report_run *run);
/* Writes FACT of RUN for people, "-" if unknown. Returns TEXT. */
char *report_fact_text(const struct report_fact *fact, const struct report_run *run, char *text, size_t size);
/* Writes "at 120" if the fact belongs to a step, "4.1 to 4.5" for its interval, otherwise "". Returns TEXT. */
char *report_fact_place(const struct report_fact *fact, const struct report_run *run, char *text, size_t size);
/* Writes the relative difference of run I's FACT from the first run's, "+3.1 %"; "" if it is negligible, within the
 * uncertainty, or meaningless. */
char *report_fact_difference(const struct report_fact *fact, const struct report_runs *runs, int i, char *text,
                             size_t size);
/* Writes "8 coordinates share 2 cores: ..." if RUN's summary says so, otherwise "". Returns TEXT. */
const char *report_run_cores(const struct report_run *run, char *text, size_t size);
/* Whether speeds of RUNS may be compared: all have the same mesh, and a core for each coordinate. */
bool report_speeds_compare(const struct report_runs *runs);
/* Whether run I's FACT is the best of several, beyond the uncertainty of each. False for speeds that cannot be
 * compared. */
bool report_fact_is_best(const struct report_fact *fact, const struct report_runs *runs, int i);

/* Returns the value of OPTION in RUN; NULL: not in its summary. */
const char *report_option_of(const struct report_run *run, const char *option);
/* Calls TELL for every option with different values in RUNS, in the order of the first run that has any. */
void report_options_that_differ(const struct report_runs *runs, void (*tell)(const char *option, void *arg), void *arg);

/* Prints a JSON object per run on stdout. */
int report_facts_json(const struct report_runs *runs, struct sl_error *error);

#endif
