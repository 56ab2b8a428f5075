/* traffic_report.c - see traffic_report.h. */
#include "drivers/speed/traffic_report.h"

#include "collectives/operations.h"

static const char *const way_name[SL_WAYS] = {"memory", "host", "network"};

static const char *call_name(int kind) { return kind < SL_OPERATIONS ? sl_operations[kind].name : "channels"; }

static json_t *row_of(const struct sl_traffic *sent, int kind, enum sl_way way, int64_t steps) {
    const double many = (double)steps;
    json_t *row = json_pack("{ssss}", "call", call_name(kind), "by", way_name[way]);
    if (!row) return NULL;
    json_object_set_new(row, "messages", sl_json_real((double)sent->messages[way] / many));
    json_object_set_new(row, "bytes", sl_json_real((double)sent->bytes[way] / many));
    if (way == SL_WAY_MEMORY) json_object_set_new(row, "bells", sl_json_real((double)sent->bells / many));
    return row;
}

json_t *sl_traffic_object(const struct sl_traffic sent[SL_TRAFFIC_KINDS], int64_t steps) {
    json_t *rows = json_array();
    for (int kind = 0; kind < SL_TRAFFIC_KINDS; kind++)
        for (enum sl_way way = 0; way < SL_WAYS; way++)
            if (sent[kind].messages[way]) json_array_append_new(rows, row_of(&sent[kind], kind, way, steps));
    if (json_array_size(rows)) return rows;
    json_decref(rows);
    return NULL;
}

/* Adds up one call over the coordinates; *MOST is the one with most bytes by WAY. */
static struct sl_traffic sum_of(const struct sl_traffic *sent, size_t stride, int coordinates, enum sl_way way,
                                struct sl_traffic *most) {
    struct sl_traffic all = {0};
    *most = all;
    for (int c = 0; c < coordinates; c++) {
        const struct sl_traffic *one = (const void *)((const char *)sent + (size_t)c * stride);
        sl_traffic_add(&all, way, one->messages[way], one->bytes[way]);
        all.bells += one->bells;
        if (one->bytes[way] >= most->bytes[way]) *most = *one;
    }
    return all;
}

static void print_messages(struct sl_table *table, const struct sl_traffic *traffic, enum sl_way way, int64_t steps) {
    sl_table_cell(table, "%.1f", (double)traffic->messages[way] / (double)steps);
    sl_table_cell(table, "%.3f", 1e-6 * (double)traffic->bytes[way] / (double)steps);
}

void sl_traffic_print(const struct sl_traffic *sent, size_t stride, int coordinates, int64_t steps) {
    static const struct sl_column column[] = {{"sent a step", -18}, {"by", -8},     {"messages", 9}, {"MB", 9},
                                              {"bells", 9},         {"busiest", 9}, {"its MB", 9}};
    struct sl_table table;
    bool begun = false;
    for (int kind = 0; kind < SL_TRAFFIC_KINDS; kind++) {
        for (enum sl_way way = 0; way < SL_WAYS; way++) {
            struct sl_traffic most;
            const struct sl_traffic all = sum_of(&sent[kind], stride, coordinates, way, &most);
            if (!all.messages[way]) continue;
            if (!begun) sl_table_begin(&table, stdout, 7, column);
            begun = true;
            sl_table_cell(&table, "%s", call_name(kind));
            sl_table_cell(&table, "%s", way_name[way]);
            print_messages(&table, &all, way, steps);
            sl_table_cell(&table, "%.1f", way == SL_WAY_MEMORY ? (double)all.bells / (double)steps : 0.0);
            print_messages(&table, &most, way, steps);
        }
    }
}
