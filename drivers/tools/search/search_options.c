/* search_options.c - the option table, and sizes in bytes. */
#include "drivers/tools/search/search_options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/engine.h"

#define FIELD(name) offsetof(struct sl_search_options, name)

const struct sl_option sl_search_table[] = {
    {"plan", SL_OPTION_CHOICE, FIELD(plan), .value = "no|search|auto",
     .help = "search: predict all layouts on --devices, print the best, and do nothing else; auto: then run the best. "
             "Options that are given do not change"},
    {"devices", SL_OPTION_INTEGER, FIELD(devices), .min = 0, .max = SL_MOST_DEVICES, .read = "plan",
     .help = "coordinates of the layouts that --plan searches; 0: those of --mesh"},
    {"memory", SL_OPTION_TEXT, FIELD(memory), .value = "BYTES", .read = "plan",
     .help = "largest memory of a coordinate in a planned layout, such as 500MB or 2GiB (default: the machine's)"},
    {"machine", SL_OPTION_TEXT, FIELD(machine), .value = "FILE", .path = SL_PATH_TEXT,
     .help = "predict times on the machine that FILE describes; its numbers were measured or written by hand (default: "
             "this machine, measured for a second)"},
    {"save-options", SL_OPTION_TEXT, FIELD(save), .value = "FILE", .path = SL_PATH_STREAM, .read = "plan",
     .help = "write the options of the best layout to FILE, to be used as @FILE"},
    {0},
};

/* ---- sizes ---- */

bool sl_search_bytes(const char *text, double *bytes) {
    static const char prefixes[] = "kMGT";
    char *end;
    if (*text < '0' || *text > '9') return false;
    double value = strtod(text, &end), unit = 1;
    if (*end == ' ') end++;
    const char *prefix = *end ? strchr(prefixes, *end == 'K' ? 'k' : *end) : NULL;
    if (prefix) {
        const bool binary = end[1] == 'i';
        unit = pow(binary ? 1024 : 1000, (double)(prefix - prefixes + 1));
        end += binary ? 2 : 1;
    }
    if (*end == 'B') end++;
    value *= unit;
    if (*end || !(value >= 1 && value < 1e18)) return false;
    *bytes = value;
    return true;
}

/* ---- preparing a search ---- */

int sl_search_prepare(struct sl_search_options *options, struct sl_common_options *common,
                      const struct sl_options *command, struct sl_error *error) {
    double bytes;
    struct sl_mesh mesh;
    if (options->memory && !sl_search_bytes(options->memory, &bytes))
        return sl_error_set(error, SL_BAD_INPUT,
                            "--memory: \"%.40s\" is no size of at least a byte, such as 500MB or 2GiB",
                            options->memory);
    options->given = common->mesh;
    if (!options->plan || sl_option_given(command, "mesh")) return SL_OK;
    if (!options->devices && sl_mesh_parse(&mesh, common->mesh, error) == SL_OK) options->devices = mesh.size;
    common->mesh = "data=1";
    return error->status;
}
