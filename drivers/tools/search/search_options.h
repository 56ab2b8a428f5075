/* search_options.h - options for planning. */
#ifndef SL_DRIVERS_TOOLS_SEARCH_SEARCH_OPTIONS_H
#define SL_DRIVERS_TOOLS_SEARCH_SEARCH_OPTIONS_H

#include "drivers/common/options.h"

enum sl_plan_use { SL_PLAN_NO, SL_PLAN_SEARCH, SL_PLAN_AUTO };

enum { SL_MOST_DEVICES = 65536 };

struct sl_search_options {
    int plan;            /* enum sl_plan_use */
    int devices;         /* 0: the size of the mesh */
    const char *memory;  /* limit per coordinate, "2GB"; NULL: the machine's */
    const char *machine; /* a file; NULL: this machine is measured */
    const char *save;    /* a file for the options of the best layout; NULL: none */
    const char *given;   /* the run's mesh without a search; set by sl_search_prepare */
};

/* Table over a struct sl_search_options. */
extern const struct sl_option sl_search_table[];

/* Reads bytes from "512MB", "2GB", "1.5TB": powers of 1000, or with an "i" ("2GiB") of 1024. Returns false if TEXT
 * is not a size from 1 byte to 1e18. */
bool sl_search_bytes(const char *text, double *bytes);

/* Call it after COMMAND was parsed: without --mesh, a plan begins with a mesh of one coordinate, so given options
 * need not fit the default mesh. SL_BAD_INPUT if the options contradict each other. */
int sl_search_prepare(struct sl_search_options *options, struct sl_common_options *common,
                      const struct sl_options *command, struct sl_error *error);

#endif
