/* metrics.h - results as JSON lines and as tables; JSON files that are read. */
#ifndef SL_DRIVERS_COMMON_METRICS_H
#define SL_DRIVERS_COMMON_METRICS_H

#include <jansson.h>
#include <stdio.h>

#include "spmd/mesh.h"

/* A JSON number, null where VALUE is not finite: JSON knows no NaN. */
json_t *sl_json_real(double value);

/* Prints OBJECT in one line, floats with 9 significant digits, and drops the caller's reference to it. NULL (an object
 * that could not be made) and a full disk are SL_FAILED. NAME is the stream's in messages. */
int sl_json_print(FILE *stream, const char *name, json_t *object, struct sl_error *error);

/* A file of JSON lines that can be followed while it grows. Where PATH is NULL there is none, and writing does nothing.
 */
struct sl_metrics_file {
    const char *path;
    FILE *stream;
};

/* FROM 0 or more: a run goes on after so many steps, and its lines with those that a regular file holds. They end
 * before the first object whose "step" is FROM or more, for these steps are taken again; a line that was cut off at the
 * end and the run's summary (it has a "final_loss") go, too. SL_BAD_INPUT where an earlier line is none of a run's:
 * then the file stays as it is. Otherwise, FROM -1, it loses its contents. */
int sl_metrics_open(struct sl_metrics_file *file, const char *path, int64_t from, struct sl_error *error);
int sl_metrics_write(struct sl_metrics_file *file, json_t *object, struct sl_error *error);
int sl_metrics_close(struct sl_metrics_file *file, struct sl_error *error);

/* A table for people: a line with the titles, then cells one by one, each right-aligned in its column (left-aligned
 * where the width is negative). */
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

/* Whether a table of MESH has a row for coordinate C, whose name goes to NAME: "5 (data=1, pipe=1)". On meshes of more
 * than SL_TABLE_ROWS coordinates those whose rows are ALIKE have one, which says how many they are. TOLD is the set of
 * those that have been named (spmd/set.h); the rows are asked for in the order of coordinates. */
enum { SL_TABLE_ROWS = 64 };
bool sl_row_of(const struct sl_mesh *mesh, int c, bool (*alike)(const void *arg, int a, int b), const void *arg,
               uint64_t *told, char *name, size_t size);

/* Reads the JSON file PATH, with jansson's FLAGS. NULL, and the error begins with WHAT, where it cannot be read. */
json_t *sl_json_read(const char *what, const char *path, size_t flags, struct sl_error *error);

#endif
