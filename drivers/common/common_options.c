/* common_options.c - options shared by all drivers that run on a mesh. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/engines.h"
#include "collectives/waits.h"
#include "drivers/common/options.h"
#include "drivers/common/metrics.h"
#include "drivers/command_line/suggest.h"

static struct sl_option_word engine_word(int i) {
    const struct sl_engine_table *table = sl_engine_at(i);
    return (struct sl_option_word){.name = table ? table->name : NULL};
}

const struct sl_option sl_mesh_table[] = {
    {"mesh", SL_OPTION_TEXT, offsetof(struct sl_common_options, mesh), .value = "AXIS=SIZE,...", .keep = SL_KEPT_FREE,
     .help = "axes of the mesh and their sizes; coordinates are numbered with the last axis fastest"},
    {"engine", SL_OPTION_TEXT, offsetof(struct sl_common_options, engine), .value = "NAME", .word = engine_word,
     .help = "local, mpi or nccl: a coordinate is a thread of this process; a process that mpirun or srun has started; "
             "a thread or process with a GPU"},
    {"timeout", SL_OPTION_REAL, offsetof(struct sl_common_options, timeout), .min = 0.01, .max = 86400,
     .help = "seconds without a sign of a coordinate after which it counts as absent, and the run ends"},
    {"checked", SL_OPTION_FLAG, offsetof(struct sl_common_options, checked),
     .help = "check that the members of a group make the same calls; end the run if they do not"},
    {"show-placement", SL_OPTION_FLAG, offsetof(struct sl_common_options, show_placement),
     .help = "print on which core and device each coordinate runs, and do nothing else"},
    {0},
};

const struct sl_option sl_common_table[] = {
    {"seed", SL_OPTION_SEED, offsetof(struct sl_common_options, seed), .keep = SL_KEPT_STATE,
     .help = "seed of all random numbers, taken modulo 2^32"},
    {"steps", SL_OPTION_INTEGER, offsetof(struct sl_common_options, steps), .min = 0, .max = 1000000000,
     .keep = SL_KEPT_RUN, .read = "!epochs", .help = "number of training steps"},
    {"json", SL_OPTION_FLAG, offsetof(struct sl_common_options, json), .help = "print JSON, one object a line"},
    {0},
};

const struct sl_option sl_query_table[] = {
    {"seed", SL_OPTION_SEED, offsetof(struct sl_common_options, seed), .keep = SL_KEPT_STATE,
     .help = "seed of all random numbers, taken modulo 2^32"},
    {"json", SL_OPTION_FLAG, offsetof(struct sl_common_options, json), .read = "!interactive",
     .help = "print JSON, one object a line"},
    {0},
};

const struct sl_option sl_print_table[] = {
    {"json", SL_OPTION_FLAG, offsetof(struct sl_common_options, json), .help = "print JSON, one object a line"},
    {0},
};

static const double time_to_return = 5; /* seconds for coordinates to return after a verdict */

const char sl_default_mesh[] = "data=2,model=4", sl_default_engine[] = "local";

struct sl_common_options sl_common_defaults(int steps) {
    return (struct sl_common_options){
        .mesh = sl_default_mesh, .engine = sl_default_engine, .timeout = 30, .seed = 42, .steps = steps};
}

static int open_engine(const struct sl_common_options *common, struct sl_engine *engine, struct sl_error *error) {
    const struct sl_engine_table *table;
    struct sl_nearest nearest = sl_nearest_to(common->engine, strlen(common->engine));
    const int status = sl_engine_open_within(engine, common->engine, common->timeout, error);
    if (status == SL_OK || sl_engine_find(common->engine)) return status;
    for (int i = 0; (table = sl_engine_at(i)); i++) sl_nearest_try(&nearest, table->name, strlen(table->name));
    return sl_suggest(&nearest, "", error);
}

/* ---- waiting coordinates ---- */

static void set_text(json_t *object, const char *key, const char *text) {
    if (*text) json_object_set_new(object, key, json_string(text));
}

static json_t *waiting_json(int coordinate, const struct sl_waiting *waiting) {
    json_t *object = json_pack("{si ss}", "coordinate", coordinate, "state", sl_waiting_name(waiting->state));
    if (waiting->state == SL_WAITS) json_object_set_new(object, "waits_for", json_integer(waiting->peer));
    set_text(object, "call", waiting->verb);
    set_text(object, "object", waiting->object);
    set_text(object, "site", waiting->site);
    set_text(object, "doing", waiting->what);
    if (*waiting->what) {
        json_object_set_new(object, "stage", json_integer(waiting->stage));
        json_object_set_new(object, "microbatch", json_integer(waiting->microbatch));
        json_object_set_new(object, "action", json_integer(waiting->action));
    }
    if (waiting->steps > 0) json_object_set_new(object, "step", json_integer(waiting->steps - 1));
    set_text(object, "module", waiting->module);
    return object;
}

void sl_common_print_waits(const struct sl_options *options, const struct sl_error *verdict) {
    const struct sl_waits *waits = options->waits;
    if (!waits || !waits->coordinates) return;
    json_t *list = json_array();
    for (int i = 0; i < waits->coordinates; i++) json_array_append_new(list, waiting_json(i, &waits->coordinate[i]));
    sl_json_print(stdout, "stdout", json_pack("{ss so}", "verdict", verdict->message, "coordinates", list), NULL);
}

/* ---- the engine ---- */

/* Returns NULL without memory: waits are then not reported. */
static struct sl_waits *new_waits(int coordinates) {
    struct sl_waits *waits = calloc(1, sizeof *waits + (size_t)coordinates * sizeof *waits->coordinate);
    if (waits) waits->coordinate = (struct sl_waiting *)(waits + 1);
    return waits;
}

int sl_common_open(const struct sl_common_options *common, struct sl_mesh *mesh, struct sl_engine *engine,
                   struct sl_error *error) {
    SL_TRY(sl_mesh_parse(mesh, common->mesh, error));
    SL_TRY(open_engine(common, engine, error));
    if (common->command) engine->signature = &common->command->signature;
    if (common->command && common->json) engine->waits = common->command->waits = new_waits(mesh->size);
    engine->checked |= common->checked;
    engine->grace = time_to_return;
    if (engine->table->speaks) setenv("NO_COLOR", "1", 0); /* the launcher's terminal may not be one */
    setenv("HWLOC_HIDE_ERRORS", "2", 0);                   /* hwloc's errors are of no use to users */
    /* If coordinates are threads, only cores are asked for: hwloc's plugins for GPUs and X take longer than all the
     * rest. */
    if (!engine->table->apart) setenv("HWLOC_PLUGINS_PATH", "/dev/null", 0);
    if (sl_speaks(engine) || freopen("/dev/null", "w", stdout)) return SL_OK;
    return sl_error_set(error, SL_FAILED, "/dev/null cannot be opened");
}
