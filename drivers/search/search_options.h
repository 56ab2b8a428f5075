/* search_options.h - the options that ask for a plan. */
#ifndef SL_DRIVERS_SEARCH_SEARCH_OPTIONS_H
#define SL_DRIVERS_SEARCH_SEARCH_OPTIONS_H

#include "drivers/common/options.h"

enum sl_plan_use { SL_PLAN_NO, SL_PLAN_SEARCH, SL_PLAN_AUTO };

enum { SL_MOST_DEVICES = 65536 };

struct sl_search_options {
    int plan;            /* enum sl_plan_use */
    int devices;         /* 0: as many as the mesh has coordinates */
    const char *memory;  /* "2GB" that a coordinate may take; NULL: what the machine says */
    const char *machine; /* a file; NULL: this machine is measured */
    const char *save;    /* a file of options for the best layout; NULL: none */
    const char *given;   /* the mesh of the run without a search; set by sl_search_prepare */
};

/* Over a struct sl_search_options. */
extern const struct sl_option sl_search_table[];

/* Bytes of "512MB", "2GB", "1.5TB": powers of 1000, or with an "i" ("2GiB") of 1024. False where TEXT is no such size,
 * or none from 1 byte to 1e18. */
bool sl_search_bytes(const char *text, double *bytes);

/* SL_BAD_INPUT where a run on ENGINE cannot have as many coordinates as there are DEVICES: a search alone, with a
 * machine's file, plans them on paper. */
int sl_search_check(const struct sl_search_options *options, const struct sl_engine *engine, int devices,
                    struct sl_error *error);

/* Once COMMAND has been parsed: a plan that is given no mesh begins with one of one coordinate, so that what is given
 * need not fit the default. SL_BAD_INPUT where the options contradict each other. */
int sl_search_prepare(struct sl_search_options *options, struct sl_common_options *common,
                      const struct sl_options *command, struct sl_error *error);

#endif
