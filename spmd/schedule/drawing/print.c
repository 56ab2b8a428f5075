/* print.c - schedules as text: the looping pipeline's index arrays, and the table of cells. */
#include <stdlib.h>
#include <string.h>

#include "spmd/schedule/drawing/draw.h"

enum row { INPUT, OUTPUT, UPDATE, PARAMS, ROWS };

/* Fills ROW[ROWS][iterations] from the forwards of a lowered table: -1 in idle iterations, but 0 for params. */
static void index_rows(const struct sl_schedule *schedule, int rank, int iterations, int *row) {
    for (int i = 0; i < ROWS * iterations; i++) row[i] = i < PARAMS * iterations ? -1 : 0;
    for (int i = 0; i < schedule->rank[rank].count; i++) {
        const struct sl_action *action = &schedule->rank[rank].action[i];
        if (action->kind == SL_TAKE_ACTIVATION) row[UPDATE * iterations + action->time] = sl_action_update(action);
        if (action->kind != SL_FORWARD) continue;
        row[INPUT * iterations + action->time] = sl_action_input(action);
        row[OUTPUT * iterations + action->time] = sl_action_output(action);
        row[PARAMS * iterations + action->time] = sl_action_params(action);
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
    /* An odd column goes to the left, as in Python's str.center for an even length. */
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

/* The number of iterations up to the last forward of any rank. */
static int forward_iterations(const struct sl_schedule *schedule) {
    int iterations = 0;
    for (int r = 0; r < schedule->ranks; r++) {
        for (int i = 0; i < schedule->rank[r].count; i++) {
            const struct sl_action *action = &schedule->rank[r].action[i];
            const bool counts = action->kind == SL_FORWARD || action->kind == SL_TAKE_ACTIVATION;
            if (counts && action->time >= iterations) iterations = action->time + 1;
        }
    }
    return iterations;
}

int sl_schedule_print_indices(const struct sl_schedule *schedule, FILE *file) {
    static const char *const name[ROWS] = {"input", "output", "update", "params"};
    const int iterations = forward_iterations(schedule);
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

/* ---- the table of cells ---- */

/* The cells of a table: a rank's actions in an iteration, mostly none or one. */
struct cells {
    const struct sl_schedule *schedule;
    int iterations;
    int *width; /* [iterations] width of the widest text in a column */
    int *at;    /* [ranks] the rank's first action not printed yet */
};

static int action_text(const struct cells *cells, int rank, const struct sl_action *action, char *text, size_t size) {
    return snprintf(text, size, "%d%c%d", sl_schedule_stage(cells->schedule, rank, action->loop),
                    sl_action_letter(action->kind), action->microbatch);
}

/* The rank's next compute action, if it belongs to iteration TIME. */
static const struct sl_action *next_action(const struct cells *cells, int rank, int time) {
    const struct sl_rank_schedule *actions = &cells->schedule->rank[rank];
    int *at = &cells->at[rank];
    while (*at < actions->count && actions->action[*at].kind > SL_WEIGHT_GRADIENT) ++*at;
    return *at < actions->count && actions->action[*at].time == time ? &actions->action[*at] : NULL;
}

static void measure_rank(struct cells *cells, int rank) {
    char text[40];
    const struct sl_action *action;
    for (int time = 0; cells->at[rank] < cells->schedule->rank[rank].count; time++) {
        int width = 0;
        for (; (action = next_action(cells, rank, time)); cells->at[rank]++)
            width += (width > 0) + action_text(cells, rank, action, text, sizeof text);
        if (cells->width[time] < width) cells->width[time] = width;
    }
}

static int open_cells(struct cells *cells, const struct sl_schedule *schedule) {
    size_t ranks = 0;
    *cells = (struct cells){.schedule = schedule};
    for (int r = 0; r < schedule->ranks; r++, ranks++) {
        for (int i = 0; i < schedule->rank[r].count; i++) {
            const int time = schedule->rank[r].action[i].time;
            if (time >= cells->iterations) cells->iterations = time + 1;
        }
    }
    cells->width = calloc((size_t)cells->iterations + ranks, sizeof *cells->width);
    if (!cells->width) return SL_FAILED;
    cells->at = cells->width + cells->iterations;
    for (int t = 0; t < cells->iterations; t++) cells->width[t] = 1;
    for (int r = 0; r < schedule->ranks; r++) measure_rank(cells, r);
    memset(cells->at, 0, ranks * sizeof *cells->at);
    return SL_OK;
}

/* For 256-colour terminals: distant hues for neighbouring microbatches, shades from light to dark for loops. */
enum { HUES = 12, SHADES = 4, BLACK = 16, WHITE = 231 };
static const unsigned char palette[HUES][SHADES] = {
    {217, 203, 160, 88}, {153, 75, 32, 24},   {229, 227, 184, 100}, {183, 135, 92, 54},
    {157, 83, 40, 28},   {218, 205, 162, 89}, {159, 87, 44, 30},    {223, 215, 172, 94},
    {147, 63, 20, 18},   {193, 155, 112, 64}, {219, 207, 164, 90},  {158, 85, 42, 29},
};

/* Black letters on light colours: a colour is 16 + 36 red + 6 green + blue, each 0 to 5. */
static int letters_on(int colour) {
    const int red = (colour - 16) / 36, green = (colour - 16) / 6 % 6, blue = (colour - 16) % 6;
    return 3 * red + 6 * green + blue > 20 ? BLACK : WHITE;
}

static void print_coloured(const char *text, int microbatch, int loop, int loops, FILE *file) {
    const int shade = loops > SHADES ? loop * SHADES / loops : loop;
    const int colour = palette[microbatch % HUES][shade];
    fprintf(file, "\033[48;5;%d;38;5;%dm%s\033[0m", colour, letters_on(colour), text);
}

static void print_cell(const struct cells *cells, int rank, int time, bool coloured, FILE *file) {
    char text[40];
    int width = 0;
    const struct sl_action *action;
    const int begin = cells->at[rank];
    for (; (action = next_action(cells, rank, time)); cells->at[rank]++)
        width += (width > 0) + action_text(cells, rank, action, text, sizeof text);
    fprintf(file, " %*s%s", cells->width[time] - (width ? width : 1), "", width ? "" : ".");
    cells->at[rank] = begin;
    for (bool first = true; (action = next_action(cells, rank, time)); cells->at[rank]++, first = false) {
        if (!first) fputc('+', file);
        action_text(cells, rank, action, text, sizeof text);
        if (coloured)
            print_coloured(text, action->microbatch, action->loop, cells->schedule->loops, file);
        else
            fputs(text, file);
    }
}

/* Columns of the text "rank 3:". */
static int label_width(const struct sl_schedule *schedule) {
    return snprintf(NULL, 0, "rank %d:", schedule->ranks - 1);
}

/* Prints iterations BEGIN to END - 1 of all ranks. */
static void print_block(const struct cells *cells, int begin, int end, bool coloured, FILE *file) {
    const struct sl_schedule *schedule = cells->schedule;
    for (int r = 0; r < schedule->ranks; r++) {
        fprintf(file, "rank %*d:", label_width(schedule) - 6, r);
        for (int time = begin; time < end && cells->at[r] < schedule->rank[r].count; time++)
            print_cell(cells, r, time, coloured, file);
        fputc('\n', file);
    }
}

int sl_schedule_print_table(const struct sl_schedule *schedule, FILE *file) {
    struct cells cells;
    if (open_cells(&cells, schedule)) return SL_FAILED;
    print_block(&cells, 0, cells.iterations, false, file);
    free(cells.width);
    return SL_OK;
}

/* ---- folded ---- */

static void print_ruler(const struct cells *cells, int begin, int end, FILE *file) {
    fprintf(file, "%-*s", label_width(cells->schedule), "time");
    for (int time = begin; time < end; time++) fprintf(file, " %*d", cells->width[time], time);
    fputc('\n', file);
}

int sl_schedule_print_folded(const struct sl_schedule *schedule, int columns, bool coloured, FILE *file) {
    struct cells cells;
    if (open_cells(&cells, schedule)) return SL_FAILED;
    for (int time = 0; time < cells.iterations; time++) {
        const int width = snprintf(NULL, 0, "%d", time);
        if (cells.width[time] < width) cells.width[time] = width;
    }
    for (int begin = 0, end; begin < cells.iterations; begin = end) {
        int used = label_width(schedule);
        for (end = begin; end < cells.iterations; end++) {
            used += 1 + cells.width[end];
            if (used > columns && end > begin) break;
        }
        print_ruler(&cells, begin, end, file);
        print_block(&cells, begin, end, coloured, file);
        if (end < cells.iterations) fputc('\n', file);
    }
    free(cells.width);
    return SL_OK;
}

/* ---- legend ---- */

/* The notations in a table. */
struct notation {
    bool kind[SL_ACTION_KINDS], idle;
    /* The first action, and the first of two in a cell; NULL: there are none. */
    const struct sl_action *first, *pair;
    int first_rank, pair_rank;
};

static void look_at(struct notation *seen, const struct sl_schedule *schedule, int rank) {
    const struct sl_action *last = NULL;
    for (int i = 0; i < schedule->rank[rank].count; i++) {
        const struct sl_action *action = &schedule->rank[rank].action[i];
        if (action->kind > SL_WEIGHT_GRADIENT) continue;
        const bool shares = last && last->time == action->time;
        seen->kind[action->kind] = true;
        seen->idle |= action->time > (last ? last->time + 1 : 0);
        if (!seen->first) seen->first = action, seen->first_rank = rank;
        if (shares && !seen->pair) seen->pair = last, seen->pair_rank = rank;
        last = action;
    }
}

/* The compute action after ACTION; communication may be between them. */
static const struct sl_action *partner_of(const struct sl_action *action) {
    do action++;
    while (action->kind > SL_WEIGHT_GRADIENT);
    return action;
}

static void print_colours(const struct sl_schedule *schedule, FILE *file) {
    const int loops = schedule->loops, shades = loops < SHADES ? loops : SHADES;
    char text[16];
    fputs("colours: microbatches ", file);
    for (int i = 0; i < schedule->microbatches && i < HUES; i++) {
        snprintf(text, sizeof text, " %d ", i);
        print_coloured(text, i, 0, 1, file);
    }
    fprintf(file, "%s, loops ", schedule->microbatches > HUES ? " ..." : "");
    for (int i = 0; i < shades; i++) {
        const int first = (i * loops + shades - 1) / shades; /* first loop with this shade */
        snprintf(text, sizeof text, " %d ", first);
        print_coloured(text, 0, first, loops, file);
    }
    fputc('\n', file);
}

void sl_schedule_print_legend(const struct sl_schedule *schedule, bool coloured, FILE *file) {
    static const char *const name[] = {"forward", "backward", "input gradient", "weight gradient"};
    static const char *const help[] = {"forward", "backward: input gradient and weight gradient",
                                       "input gradient, the first half of a backward",
                                       "weight gradient, the second half of a backward"};
    const struct cells cells = {.schedule = schedule};
    struct notation seen = {0};
    char text[40], other[40];
    for (int r = 0; r < schedule->ranks; r++) look_at(&seen, schedule, r);
    if (!seen.first) return;
    action_text(&cells, seen.first_rank, seen.first, text, sizeof text);
    fprintf(file, "\n%s: stage %d, %s (%c), microbatch %d\n", text,
            sl_schedule_stage(schedule, seen.first_rank, seen.first->loop), name[seen.first->kind],
            sl_action_letter(seen.first->kind), seen.first->microbatch);
    for (enum sl_action_kind kind = SL_FORWARD; kind <= SL_WEIGHT_GRADIENT; kind++)
        if (seen.kind[kind] && kind != seen.first->kind) fprintf(file, "%c: %s\n", sl_action_letter(kind), help[kind]);
    if (seen.pair) {
        action_text(&cells, seen.pair_rank, seen.pair, text, sizeof text);
        action_text(&cells, seen.pair_rank, partner_of(seen.pair), other, sizeof other);
        fprintf(file, "%s+%s: two actions in one time step\n", text, other);
    }
    if (seen.idle) fputs(".: idle\n", file);
    if (coloured) print_colours(schedule, file);
}
