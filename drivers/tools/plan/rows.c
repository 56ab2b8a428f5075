/* rows.c - prints rows as a table for people, or as JSON. */
#include "drivers/tools/plan/plan.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

void plan_rows_begin(struct plan_rows *rows, const char *section, const char *title, const struct plan_field *field) {
    rows->section = section;
    rows->field = field;
    if (rows->json) return;
    int fields = 0;
    for (; field[fields].key; fields++)
        rows->column[fields] = (struct sl_column){field[fields].title, field[fields].width};
    fprintf(rows->output->stream, "%s\n\n", title);
    sl_table_begin(&rows->table, rows->output->stream, fields, rows->column);
}

static void print_bytes(struct sl_table *table, double bytes) {
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB"};
    int i = 0;
    for (; i < 3 && bytes >= 1024; i++) bytes /= 1024;
    sl_table_cell(table, i ? "%.2f %s" : "%.0f %s", bytes, unit[i]);
}

static void print_cell(struct sl_table *table, enum plan_field_kind kind, union plan_value value) {
    if (kind == PLAN_FIELD_TEXT)
        sl_table_cell(table, "%s", value.text);
    else if (isnan(value.number))
        sl_table_cell(table, "-");
    else if (kind == PLAN_FIELD_COUNT)
        sl_table_cell(table, "%.0f", value.number);
    else if (kind == PLAN_FIELD_REAL)
        sl_table_cell(table, "%.6g", value.number);
    else if (kind == PLAN_FIELD_SHARE)
        sl_table_cell(table, "%.1f %%", 100 * value.number);
    else
        print_bytes(table, value.number);
}

/* Makes a JSON value; whole numbers have no decimal point. */
static json_t *json_of(enum plan_field_kind kind, union plan_value value) {
    if (kind == PLAN_FIELD_TEXT) return json_string(value.text);
    const bool whole = (kind == PLAN_FIELD_COUNT || kind == PLAN_FIELD_BYTES) && fabs(value.number) < 1e15;
    return whole ? json_integer((json_int_t)(value.number + 0.5)) : sl_json_real(value.number);
}

int plan_rows_add(struct plan_rows *rows, const union plan_value *value, struct sl_error *error) {
    json_t *object = rows->json ? json_pack("{s:s}", "section", rows->section) : NULL;
    for (int i = 0; rows->field[i].key; i++) {
        if (rows->json)
            json_object_set_new(object, rows->field[i].key, json_of(rows->field[i].kind, value[i]));
        else
            print_cell(&rows->table, rows->field[i].kind, value[i]);
    }
    return rows->json ? sl_json_print(rows->output->stream, rows->output->name, object, error) : SL_OK;
}

void plan_rows_note(const struct plan_rows *rows, const char *format, ...) {
    if (rows->json) return;
    va_list arguments;
    va_start(arguments, format);
    vfprintf(rows->output->stream, format, arguments);
    va_end(arguments);
}
