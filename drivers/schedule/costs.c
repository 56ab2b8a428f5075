/* costs.c - reads the costs of a schedule's actions from a file. */
#include "drivers/schedule/costs.h"

#include <jansson.h>
#include <string.h>

#include "drivers/common/metrics.h"
#include "drivers/schedule/trace_means.h"

/* Fields of struct sl_stage_costs, by name. */
struct field {
    const char *name;
    size_t offset;
};
static const struct field fields[] = {
    {"forward", offsetof(struct sl_stage_costs, forward)},
    {"input_gradient", offsetof(struct sl_stage_costs, input_gradient)},
    {"weight_gradient", offsetof(struct sl_stage_costs, weight_gradient)},
    {"reduce", offsetof(struct sl_stage_costs, reduce)},
    {"unshard", offsetof(struct sl_stage_costs, unshard)},
    {"optimizer", offsetof(struct sl_stage_costs, optimizer)},
};
enum { FIELDS = sizeof fields / sizeof *fields };

struct reader {
    const char *path;
    struct sl_error *error;
};

/* Properties of an entry of the file. */
struct quantity {
    const char *name, *unit;
    double most;
};

static bool is_within(const json_t *value, double most) {
    return json_is_number(value) && json_number_value(value) >= 0 && json_number_value(value) <= most;
}

/* Reads a number, or a list of one number per stage, into FIRST and then every STRIDE bytes; FIRST NULL: only checks
 * it. */
static int read_list(const struct reader *reader, const struct quantity *quantity, const json_t *value, void *first,
                     size_t stride, int stages) {
    const bool list = json_is_array(value);
    if (list && json_array_size(value) != (size_t)stages)
        return sl_error_set(reader->error, SL_BAD_INPUT,
                            "--costs: %s: \"%s\" has %zu numbers: must have one a stage, %d", reader->path,
                            quantity->name, json_array_size(value), stages);
    for (int s = 0; s < stages; s++) {
        const json_t *number = list ? json_array_get(value, (size_t)s) : value;
        if (!is_within(number, quantity->most)) {
            char place[16] = "";
            if (list) snprintf(place, sizeof place, "[%d]", s);
            return sl_error_set(
                reader->error, SL_BAD_INPUT, "--costs: %s: \"%s\"%s is not a number of %s from 0 to %g%s", reader->path,
                quantity->name, place, quantity->unit, quantity->most, list ? "" : " or a list of them");
        }
        if (first) *(double *)((char *)first + (size_t)s * stride) = json_number_value(number);
    }
    return SL_OK;
}

static int read_entry(const struct reader *reader, const char *name, const json_t *value, struct sl_costs *costs,
                      struct sl_stage_costs *stage, double *kept, int stages) {
    const struct quantity time = {name, "ms", SL_MAX_COST}, bytes = {name, "bytes", SCHEDULE_MOST_BYTES};
    for (int i = 0; i < FIELDS; i++)
        if (!strcmp(fields[i].name, name))
            return read_list(reader, &time, value, (char *)stage + fields[i].offset, sizeof *stage, stages);
    if (!strcmp(name, "kept")) return read_list(reader, &bytes, value, kept, sizeof *kept, stages);
    if (!strcmp(name, "communication")) {
        if (!is_within(value, SL_MAX_COST))
            return sl_error_set(reader->error, SL_BAD_INPUT,
                                "--costs: %s: \"communication\" is not a number of ms from 0 to %g", reader->path,
                                SL_MAX_COST);
        costs->communication = json_number_value(value);
        return SL_OK;
    }
    if (!strcmp(name, "overlap")) {
        if (!json_is_boolean(value))
            return sl_error_set(reader->error, SL_BAD_INPUT, "--costs: %s: \"overlap\" is not true or false",
                                reader->path);
        costs->overlap = json_is_true(value);
        return SL_OK;
    }
    return sl_error_set(reader->error, SL_BAD_INPUT,
                        "--costs: %s: \"%.80s\": no such cost; there are forward, input_gradient, weight_gradient, "
                        "reduce, unshard, optimizer, kept, communication, overlap",
                        reader->path, name);
}

static int read_trace(struct sl_costs *costs, struct sl_stage_costs *stage, int stages, const char *path,
                      struct sl_error *error) {
    struct schedule_trace trace;
    int status = schedule_trace_read(&trace, path, error);
    if (status == SL_OK) status = schedule_trace_costs(&trace, stages, costs, stage, error);
    schedule_trace_free(&trace);
    return status;
}

int schedule_costs_read(struct sl_costs *costs, struct sl_stage_costs *stage, double *kept, int stages,
                        const char *path, struct sl_error *error) {
    const struct reader reader = {path, error};
    json_t *object = sl_json_read("--costs: ", path, JSON_REJECT_DUPLICATES, error);
    if (!object) return SL_BAD_INPUT;
    int status = SL_OK;
    if (json_object_get(object, "traceEvents")) {
        json_decref(object);
        return read_trace(costs, stage, stages, path, error);
    }
    if (!json_is_object(object))
        status = sl_error_set(error, SL_BAD_INPUT, "--costs: %s: is not an object, {\"forward\": 1.5, ...}", path);
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value) {
        if (status == SL_OK) status = read_entry(&reader, name, value, costs, stage, kept, stages);
    }
    json_decref(object);
    return status;
}
