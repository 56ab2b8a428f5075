/* facts.h - the numbers that sum a run up, one row each: for people side by side, for programs as JSON. */
#ifndef SL_DRIVERS_REPORT_FACTS_H
#define SL_DRIVERS_REPORT_FACTS_H

#include "drivers/report/runs.h"

/* How far chance reaches. */
enum report_chance {
    REPORT_EXACT,    /* it has none */
    REPORT_OF_STEPS, /* a step's number: report_series_noise */
    REPORT_OF_PARTS, /* a median's: those of parts of the run, report_series.low to high */
};

struct report_fact {
    const char *key, *title;
    int digits;                                    /* for people; 0: it is a whole number */
    double unit;                                   /* for people, the value is divided by it */
    int better;                                    /* 1: more of it is, -1: less of it is, 0: neither */
    bool speed;                                    /* of the machine, too: see report_speeds_compare */
    double (*value)(const struct report_run *run); /* NaN: the run has none */
    double (*step)(const struct report_run *run);  /* at which it was so; NULL: at none or many */
    enum report_chance chance;
    enum report_quantity quantity; /* whose series tells that; of exact facts none */
};

enum { REPORT_FACTS = 17 };
extern const struct report_fact report_facts[REPORT_FACTS];

/* "finished", "interrupted", "not finished"; "no metrics". */
const char *report_run_state(const struct report_run *run);
/* Whether any of RUNS has FACT. */
bool report_fact_is_known(const struct report_fact *fact, const struct report_runs *runs);
/* From where to where FACT of RUN may be by chance: LOW and HIGH, both its value where it is exact. */
struct report_interval {
    double low, high;
};
struct report_interval report_fact_interval(const struct report_fact *fact, const struct report_run *run);
/* FACT of RUN for people, "-" where there is none. Returns TEXT. */
char *report_fact_text(const struct report_fact *fact, const struct report_run *run, char *text, size_t size);
/* "at 120" where it belongs to a step, "4.1 to 4.5" where chance reaches so far, "" otherwise. Returns TEXT. */
char *report_fact_place(const struct report_fact *fact, const struct report_run *run, char *text, size_t size);
/* How much run I's FACT is above or below that of the first run, "+3.1 %"; "" where that is next to nothing, or
 * within the reach of chance, or says nothing. */
char *report_fact_difference(const struct report_fact *fact, const struct report_runs *runs, int i, char *text,
                             size_t size);
/* "8 coordinates share 2 cores: ..." where RUN says so, "" otherwise. Returns TEXT. */
const char *report_run_cores(const struct report_run *run, char *text, size_t size);
/* Whether one of RUNS may be called the fastest: they had one mesh, and a core for each coordinate. */
bool report_speeds_compare(const struct report_runs *runs);
/* Whether run I's FACT is the best one of several, further from every other than chance reaches. Of speeds that do not
 * compare none is. */
bool report_fact_is_best(const struct report_fact *fact, const struct report_runs *runs, int i);

/* An option as runs say that they had it, and its value in run I; NULL: that run does not say. */
const char *report_option_of(const struct report_run *run, const char *option);
/* Calls TELL for every option that not all of RUNS had alike, in the order of the first run that says any. */
void report_options_that_differ(const struct report_runs *runs, void (*tell)(const char *option, void *arg), void *arg);

/* Prints an object a run on stdout. */
int report_facts_json(const struct report_runs *runs, struct sl_error *error);

#endif
