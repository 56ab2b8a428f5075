/* metrics.h - writes results as JSON lines and as tables; reads JSON files. */
#ifndef SL_DRIVERS_COMMON_METRICS_H
#define SL_DRIVERS_COMMON_METRICS_H

#include <jansson.h>
#include <stdio.h>

#include "spmd/mesh.h"

/* Makes a JSON number, null if VALUE is not finite: JSON has no NaN. */
json_t *sl_json_real(double value);

/* Prints OBJECT on one line, floats with 9 significant digits, and releases the caller's reference. Returns
 * SL_FAILED if OBJECT is NULL (it could not be made) or the disk is full. NAME is the stream's in messages. */
int sl_json_print(FILE *stream, const char *name, json_t *object, struct sl_error *error);

/* A file of JSON lines that readers can follow while it grows. If PATH is NULL, there is no file and writing does
 * nothing. */
struct sl_metrics_file {
    const char *path;
    FILE *stream;
};

/* Before anything is changed for a run: SL_FAILED if the file, which may be NULL or missing, takes no byte, as on a
 * full disk. */
int sl_metrics_check(const char *path, struct sl_error *error);
/* Opens the file. If FROM is -1, the file is emptied. If FROM is 0 or more, the run resumes after FROM steps and
 * appends to a regular file: the first object with a "step" of FROM or more and all lines after it are cut (these
 * steps run again), as are an incomplete last line and objects about the whole run (with "final_loss", or with
 * "goodput"). Returns SL_BAD_INPUT if an earlier line is not from a run; the file then stays unchanged. */
int sl_metrics_open(struct sl_metrics_file *file, const char *path, int64_t from, struct sl_error *error);
int sl_metrics_write(struct sl_metrics_file *file, json_t *object, struct sl_error *error);
int sl_metrics_close(struct sl_metrics_file *file, struct sl_error *error);

/* A table for people: a line of titles, then cells one by one, each right-aligned in its column (left-aligned if the
 * width is negative). */
struct sl_column {
    const char *title;
    int width;
};

struct sl_table {
    FILE *stream;
    int columns, next;
    const struct sl_column *column;
};

void sl_table_begin(struct sl_table *table, FILE *stream, int columns, const struct sl_column *column);
void sl_table_cell(struct sl_table *table, const char *format, ...) SL_PRINTF(2, 3);

/* Returns whether a table of MESH has a row for coordinate C, and writes the row's name to NAME: "5 (data=1,
 * pipe=1)". If the mesh has more than SL_TABLE_ROWS coordinates, coordinates with equal rows (ALIKE) share one row,
 * named by their number and ranges. TOLD is the set of coordinates named so far (spmd/set.h); call it in the order
 * of coordinates. */
enum { SL_TABLE_ROWS = 64 };
bool sl_row_of(const struct sl_mesh *mesh, int c, bool (*alike)(const void *arg, int a, int b), const void *arg,
               uint64_t *told, char *name, size_t size);

/* Reads the JSON file PATH, with jansson's FLAGS. Returns NULL if it cannot be read; the error begins with WHAT. */
json_t *sl_json_read(const char *what, const char *path, size_t flags, struct sl_error *error);

#endif
