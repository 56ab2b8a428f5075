/* engines.c - the table of engines. An engine outside this build is still listed; its row has its CMake option. */
#include "collectives/engines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct sl_engine_table *const engines[] = {&sl_engine_local, &sl_engine_mpi, &sl_engine_nccl};
enum { ENGINES = sizeof engines / sizeof *engines };

const struct sl_engine_table *sl_engine_find(const char *name) {
    for (int i = 0; i < ENGINES; i++) {
        if (strcmp(engines[i]->name, name) != 0) continue;
        const struct sl_engine_table *launched = engines[i]->launched ? engines[i]->launched() : NULL;
        return launched ? launched : engines[i];
    }
    return NULL;
}

const struct sl_engine_table *sl_engine_at(int i) { return i < ENGINES ? engines[i] : NULL; }

/* Reads whether calls are compared: from the environment, or else the build's default. */
static int read_checked(bool *checked, struct sl_error *error) {
    const char *text = getenv("SHARDLOOP_CHECKED");
    *checked = text ? !strcmp(text, "1") : SL_CHECKED_BY_DEFAULT;
    if (!text || *checked || !strcmp(text, "0")) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "SHARDLOOP_CHECKED is \"%.60s\": choose 0 or 1", text);
}

int sl_engine_open(struct sl_engine *engine, const char *name, struct sl_error *error) {
    return sl_engine_open_within(engine, name, 30, error);
}

int sl_engine_open_within(struct sl_engine *engine, const char *name, double timeout, struct sl_error *error) {
    const struct sl_engine_table *table = sl_engine_find(name);
    char known[100] = "";
    for (int i = 0; i < ENGINES && !table; i++) {
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", engines[i]->name);
    }
    if (!table) return sl_error_set(error, SL_BAD_INPUT, "there is no engine \"%.60s\": choose one of %s", name, known);
    if (table->missing)
        return sl_error_set(error, SL_BAD_INPUT, "engine \"%s\" is not in this build: configure with -D%s=ON", name,
                            table->missing);
    *engine = (struct sl_engine){.table = table, .timeout = timeout};
    SL_TRY(read_checked(&engine->checked, error));
    return table->open ? table->open(timeout, error) : SL_OK;
}
