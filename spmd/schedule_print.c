/* schedule_print.c - schedules as text: the looping pipeline's index arrays, and the table of cells. */
#include "spmd/schedule.h"

#include <stdlib.h>
#include <string.h>

enum row { INPUT, OUTPUT, UPDATE, PARAMS, ROWS };

/* Fills ROW[ROWS][iterations] from the forward actions of a lowered table: -1 where there is nothing to do, but params,
 * which is 0 in the bubble. */
static void index_rows(const struct sl_schedule *schedule, int rank, int iterations, int *row) {
    for (int i = 0; i < ROWS * iterations; i++) row[i] = i < PARAMS * iterations ? -1 : 0;
    for (int i = 0; i < schedule->rank[rank].count; i++) {
        const struct sl_action *action = &schedule->rank[rank].action[i];
        if (action->kind == SL_TAKE_ACTIVATION) row[UPDATE * iterations + action->time] = action->update;
        if (action->kind != SL_FORWARD) continue;
        row[INPUT * iterations + action->time] = action->input;
        row[OUTPUT * iterations + action->time] = action->output;
        row[PARAMS * iterations + action->time] = action->params;
    }
}

static void print_row(FILE *file, const char *name, const int *value, int iterations) {
    fprintf(file, "%-6s:", name);
    for (int t = 0; t < iterations; t++) fprintf(file, " %2d", value ? value[t] : t);
    fputc('\n', file);
}

static void print_title(FILE *file, int rank, int width) {
    char title[48];
    const int length = snprintf(title, sizeof title, " Stage Index %d ", rank);
    const int padding = width > length ? width - length : 0;
    /* An odd column goes to the left, as Python's str.center does for an even length. */
    const int left = padding / 2 + (padding & width & 1);
    for (int i = 0; i < left; i++) fputc('=', file);
    fputs(title, file);
    for (int i = 0; i < padding - left; i++) fputc('=', file);
    fputc('\n', file);
}

static int row_width(const int *row, int iterations) {
    int widest = 0;
    for (int r = -1; r < ROWS; r++) {
        int width = 7;
        for (int t = 0; t < iterations; t++) {
            const int length = snprintf(NULL, 0, "%d", r < 0 ? t : row[r * iterations + t]);
            width += 1 + (length > 2 ? length : 2);
        }
        if (width > widest) widest = width;
    }
    return widest;
}

int sl_schedule_print_indices(const struct sl_schedule *schedule, FILE *file) {
    static const char *const name[ROWS] = {"input", "output", "update", "params"};
    const int iterations = sl_schedule_iterations(schedule);
    int *row = malloc(ROWS * (size_t)iterations * sizeof *row);
    if (!row) return SL_FAILED;
    for (int r = 0; r < schedule->ranks; r++) {
        index_rows(schedule, r, iterations, row);
        print_title(file, r, row_width(row, iterations));
        print_row(file, "step", NULL, iterations);
        for (int i = 0; i < ROWS; i++) print_row(file, name[i], row + i * iterations, iterations);
        fputc('\n', file);
    }
    free(row);
    return SL_OK;
}

/* The cell's text, as wide as the widest one: "4F0". */
static int cell_text(const struct sl_schedule *schedule, int rank, const struct sl_action *action, char *text,
                     size_t size) {
    return snprintf(text, size, "%d%c%d", sl_schedule_stage(schedule, rank, action->loop),
                    sl_action_letter(action->kind), action->microbatch);
}

void sl_schedule_print_table(const struct sl_schedule *schedule, FILE *file) {
    char text[40];
    const int width = snprintf(NULL, 0, "%dF%d", schedule->ranks * schedule->loops - 1, schedule->microbatches - 1);
    for (int r = 0; r < schedule->ranks; r++) {
        fprintf(file, "rank %d:", r);
        int time = 0;
        for (int i = 0; i < schedule->rank[r].count; i++) {
            const struct sl_action *action = &schedule->rank[r].action[i];
            if (action->kind > SL_WEIGHT_GRADIENT) continue;
            for (; time < action->time; time++) fprintf(file, " %*s", width, ".");
            cell_text(schedule, r, action, text, sizeof text);
            fprintf(file, " %*s", width, text);
            time++;
        }
        fputc('\n', file);
    }
}
