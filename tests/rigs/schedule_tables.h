/* schedule_tables.h - the tables of data/schedules as text, and ours in the same form. */
#ifndef SL_TESTS_RIGS_SCHEDULE_TABLES_H
#define SL_TESTS_RIGS_SCHEDULE_TABLES_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/schedule/schedule.h"

enum { TABLE_BYTES = 1 << 16, TABLE_FILES = 128 };

struct table_file {
    char path[512], algorithm[32]; /* as PyTorch calls it */
    int ranks, loops, microbatches;
};

/* Finds the tables of compute actions; returns how many. */
static inline int list_tables(struct table_file file[TABLE_FILES]) {
    int count = 0;
    DIR *directory = opendir(SL_TEST_DATA "/schedules");
    for (struct dirent *entry; directory && count < TABLE_FILES && (entry = readdir(directory));) {
        struct table_file *table = &file[count];
        int end = 0;
        sscanf(entry->d_name, "%31[A-Za-z0-9]_pp%d_v%d_m%d.csv%n", table->algorithm, &table->ranks, &table->loops,
               &table->microbatches, &end);
        if (end == 0 || entry->d_name[end]) continue;
        snprintf(table->path, sizeof table->path, "%s/schedules/%.255s", SL_TEST_DATA, entry->d_name);
        count++;
    }
    if (directory) closedir(directory);
    return count;
}

/* Reads the file's text. Returns -1 if the file cannot be read or is longer than TABLE_BYTES - 1. */
static inline int read_bytes(const char *path, char text[TABLE_BYTES]) {
    FILE *file = fopen(path, "r");
    if (!file) return -1;
    const size_t length = fread(text, 1, TABLE_BYTES, file);
    fclose(file);
    if (length == TABLE_BYTES) return -1;
    text[length] = '\0';
    return (int)length;
}

/* Takes the idle cells out of a table's text. */
static inline void drop_idle(char *text) {
    char *to = text;
    for (const char *from = text; *from; from++) {
        const char before = to > text ? to[-1] : '\n';
        if (*from == ',' && (before == ',' || before == '\n')) continue;
        if (*from == '\n' && before == ',') to--;
        *to++ = *from;
    }
    *to = '\0';
}

/* The table's compute actions without idle cells. */
static inline void table_text(const struct sl_schedule *schedule, char text[TABLE_BYTES]) {
    char *to = text;
    for (int r = 0; r < schedule->ranks; r++) {
        for (int i = 0; i < schedule->rank[r].count; i++) {
            const struct sl_action *action = &schedule->rank[r].action[i];
            const bool pair = i + 1 < schedule->rank[r].count && action[1].paired;
            to += snprintf(to, (size_t)(text + TABLE_BYTES - to), "%s%s%d%c%d%s",
                           i == 0           ? ""
                           : action->paired ? ";"
                                            : ",",
                           pair ? "(" : "", schedule->stage[r * schedule->loops + action->loop], "FBIW"[action->kind],
                           action -> microbatch, action -> paired ? ")OVERLAP_F_B" : "");
        }
        to += snprintf(to, (size_t)(text + TABLE_BYTES - to), "\n");
    }
}

#endif
