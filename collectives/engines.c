/* engines.c - the table of engines. One left out of the build still resolves, and says what builds it. */
#include "collectives/engines.h"

#include <stdio.h>
#include <string.h>

#ifndef SL_CHECKED_DEFAULT
#define SL_CHECKED_DEFAULT 0
#endif

static const struct sl_engine_table *const engines[] = {&sl_engine_local};
enum { ENGINES = sizeof engines / sizeof *engines };

int sl_engine_open(struct sl_engine *engine, const char *name, struct sl_error *error) {
    char known[100] = "";
    for (int i = 0; i < ENGINES; i++) {
        const struct sl_engine_table *table = engines[i];
        if (!strcmp(table->name, name)) {
            if (table->missing) {
                return sl_error_set(error, SL_BAD_INPUT, "engine \"%s\" is not in this build: configure with -D%s=ON",
                                    name, table->missing);
            }
            *engine = (struct sl_engine){.table = table, .timeout = 30, .checked = SL_CHECKED_DEFAULT};
            return SL_OK;
        }
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", table->name);
    }
    return sl_error_set(error, SL_BAD_INPUT, "there is no engine \"%.60s\": choose one of %s", name, known);
}
