/* run.c - reads metrics line by line. */
#include "drivers/tools/report/runs/run.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/base/file.h"

/* Keys of quantities; an evaluation's key depends on the part of the data. */
static const struct {
    const char *key;
    enum report_quantity quantity;
} keys[] = {{"loss", REPORT_LOSS},
            {"evaluation_loss", REPORT_EVALUATION},
            {"test_loss", REPORT_EVALUATION},
            {"accuracy", REPORT_ACCURACY},
            {"test_accuracy", REPORT_TEST_ACCURACY},
            {"lr", REPORT_RATE},
            {"norm", REPORT_NORM},
            {"tokens_per_second", REPORT_TOKENS},
            {"samples_per_second", REPORT_SAMPLES},
            {"ms", REPORT_MS},
            {"mfu", REPORT_UTILIZATION},
            {"balance", REPORT_BALANCE}};
enum { KEYS = sizeof keys / sizeof *keys };

const char *report_quantity_key(enum report_quantity quantity) {
    int k = 0;
    while (keys[k].quantity != quantity) k++;
    return keys[k].key;
}

struct reader {
    struct report_run *run;
    int line;
    double step; /* the latest one; lines of epochs belong to it */
    struct sl_error *error;
};

static int wrong(const struct reader *reader, const char *format, const char *key) {
    char what[160];
    snprintf(what, sizeof what, format, key);
    return sl_error_set(reader->error, SL_BAD_INPUT, "%.300s: line %d: %s", reader->run->metrics, reader->line, what);
}

static int no_memory(const struct reader *reader) {
    return sl_error_set(reader->error, SL_FAILED, "%.300s: no memory", reader->run->metrics);
}

/* Adds the numbers of a step's or an epoch's line. */
static int take_numbers(struct reader *reader, const json_t *line) {
    for (int k = 0; k < KEYS; k++) {
        const json_t *number = json_object_get(line, keys[k].key);
        if (!number) continue;
        if (!json_is_number(number) && !json_is_null(number))
            return wrong(reader, "\"%s\" is neither a number nor null", keys[k].key);
        const double value = json_is_null(number) ? NAN : json_number_value(number);
        if (fabs(value) > REPORT_LARGEST) return wrong(reader, "\"%s\" is beyond 1e100", keys[k].key);
        if (!report_series_add(&reader->run->series[keys[k].quantity], reader->step, value)) return no_memory(reader);
    }
    return SL_OK;
}

/* Replaces one of the lines about the whole run. NULL: the run was resumed after it, and has not ended. */
static void set_line(json_t **line, json_t *to) {
    json_decref(*line);
    *line = json_incref(to);
}

static int take_object(struct reader *reader, json_t *line) {
    const json_t *step = json_object_get(line, "step");
    if (step) {
        reader->step = json_is_number(step) ? json_number_value(step) : NAN;
        if (!(reader->step >= 0 && reader->step <= REPORT_LAST_STEP) || reader->step != floor(reader->step))
            return wrong(reader, "\"%s\" is not a whole number from 0 to 1e15", "step");
    }
    if (step || json_object_get(line, "epoch")) {
        set_line(&reader->run->summary, NULL);
        set_line(&reader->run->losses, NULL);
        return take_numbers(reader, line);
    }
    if (json_object_get(line, "goodput")) set_line(&reader->run->losses, line);
    if (json_object_get(line, "final_loss")) set_line(&reader->run->summary, line);
    return SL_OK;
}

/* Parses a line. LAST: it has no newline, so it may be incomplete. */
static int take_line(struct reader *reader, const char *text, size_t length, bool last) {
    reader->line++;
    if (strspn(text, " \t\r\n") == length) return SL_OK;
    json_t *line = json_loadb(text, length, 0, NULL);
    if (!json_is_object(line)) {
        json_decref(line);
        if (!last) return wrong(reader, "is no JSON object: %s are JSON lines, as --metrics writes them", "metrics");
        reader->run->cut = reader->line;
        return SL_OK;
    }
    const int status = take_object(reader, line);
    json_decref(line);
    return status;
}

static int take_file(struct reader *reader, FILE *file) {
    char *text = NULL;
    size_t room = 0;
    ssize_t length;
    int status = SL_OK;
    errno = 0;
    while (status == SL_OK && (length = getline(&text, &room, file)) > 0)
        status = take_line(reader, text, (size_t)length, text[length - 1] != '\n');
    if (status == SL_OK && !feof(file))
        status = sl_error_set(reader->error, errno == ENOMEM ? SL_FAILED : SL_BAD_INPUT, "%.300s: %s",
                              reader->run->metrics, strerror(errno));
    free(text);
    return status;
}

int report_run_read(struct report_run *run, struct sl_error *error) {
    const char *reason;
    struct reader reader = {.run = run, .error = error};
    FILE *file = sl_file_read(run->metrics, SL_FILE_REGULAR | SL_FILE_PIPE, &reason);
    if (!file) return sl_error_set(error, SL_BAD_INPUT, "%.300s: %s", run->metrics, reason);
    const int status = take_file(&reader, file);
    fclose(file);
    SL_TRY(status);
    for (int q = 0; q < REPORT_QUANTITIES; q++)
        if (!report_series_order(&run->series[q])) return no_memory(&reader);
    if (run->series[REPORT_LOSS].count || run->series[REPORT_EVALUATION].count) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%.300s: has no step yet: no line with \"step\" and \"loss\"",
                        run->metrics);
}

void report_run_free(struct report_run *run) {
    for (int q = 0; q < REPORT_QUANTITIES; q++) report_series_free(&run->series[q]);
    json_decref(run->summary);
    json_decref(run->losses);
    free(run->name);
    free(run->metrics);
    free(run->trace);
    *run = (struct report_run){0};
}
