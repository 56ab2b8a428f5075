/* csv.c - reads and writes tables in PyTorch's CSV format.
 *
 * The reader goes through the text once and records the compute actions; only then are the numbers of stages and
 * microbatches known. Input is not trusted: numbers and the file's size are limited. */
#include "spmd/schedule/csv.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/base/file.h"
#include "spmd/base/memory.h"

enum { FEWEST_BYTES = 1 << 14, MOST_BYTES = 1 << 26, HIGHEST_NUMBER = 65535, LONGEST_WORD = 31, END = -1 };

struct item {
    enum sl_action_kind kind;
    int row, column, stage, microbatch;
    bool paired;
};

struct reader {
    const char *path;
    char *text;
    int length, at, line, row; /* LINE: position at which the row begins; rows count from 0 */
    struct item *item;         /* compute actions in the file's order */
    int items, capacity;
    int *row_of, stages, room; /* [stages] -1: not seen yet; ROOM: allocated entries */
    struct sl_error *error;
};

/* ---- characters ---- */

static int read_text(struct reader *reader, FILE *file) {
    for (int capacity = FEWEST_BYTES; capacity <= MOST_BYTES; capacity *= 2) {
        char *grown = realloc(reader->text, (size_t)capacity);
        if (!grown) return SL_FAILED;
        reader->text = grown;
        reader->length += (int)fread(grown + reader->length, 1, (size_t)(capacity - reader->length), file);
        if (ferror(file))
            return sl_error_set(reader->error, SL_BAD_INPUT, "%s: cannot be read: %s", reader->path, strerror(errno));
        if (reader->length < capacity) return SL_OK;
    }
    return sl_error_set(reader->error, SL_BAD_INPUT, "%s: the file is too long: must be shorter than %d bytes",
                        reader->path, MOST_BYTES);
}

static int next(const struct reader *reader) {
    return reader->at < reader->length ? (unsigned char)reader->text[reader->at] : END;
}
static int column(const struct reader *reader) { return reader->at - reader->line; }

/* Reports an error with its place: ROW and COLUMN count from 0, in the message from 1, as in editors. */
static int refuse(const struct reader *reader, int row, int column, const char *format, ...) SL_PRINTF(4, 5);
static int refuse(const struct reader *reader, int row, int column, const char *format, ...) {
    char what[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return sl_error_set(reader->error, SL_BAD_INPUT, "%s:%d:%d: %s", reader->path, row + 1, column + 1, what);
}

static int expected(const struct reader *reader, const char *what) {
    const int c = next(reader);
    char found[32];
    if (c == END || c == '\n')
        snprintf(found, sizeof found, "the end of the %s", c == END ? "file" : "line");
    else
        snprintf(found, sizeof found, c < ' ' || c > '~' ? "byte 0x%02x" : "\"%c\"", (unsigned)c);
    return refuse(reader, reader->row, column(reader), "expected %s, found %s", what, found);
}

static void skip_blanks(struct reader *reader) {
    while (next(reader) == ' ' || next(reader) == '\t' || next(reader) == '\r') reader->at++;
}

static bool is_digit(int c) { return c >= '0' && c <= '9'; }
static bool is_letter(int c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_'; }

static int read_number(struct reader *reader, int *number, const char *what) {
    const int begin = column(reader);
    if (!is_digit(next(reader))) return expected(reader, what);
    for (*number = 0; is_digit(next(reader)); reader->at++) {
        *number = 10 * *number + next(reader) - '0';
        if (*number > HIGHEST_NUMBER)
            return refuse(reader, reader->row, begin, "expected %s up to %d, found a larger one", what, HIGHEST_NUMBER);
    }
    return SL_OK;
}

static void read_word(struct reader *reader, char word[LONGEST_WORD + 1]) {
    int length = 0;
    for (; is_letter(next(reader)) && length < LONGEST_WORD; reader->at++) word[length++] = (char)next(reader);
    word[length] = '\0';
}

/* ---- cells ---- */

static const char left_out[][LONGEST_WORD + 1] = {
    "SEND_F",      "RECV_F",  "SEND_B",  "RECV_B",      "WAIT_SEND_F",
    "WAIT_SEND_B", "UNSHARD", "RESHARD", "REDUCE_GRAD", "WAIT_REDUCE_GRAD",
};

static bool is_left_out(const char *word) {
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++) {
        if (!strcmp(word, left_out[i])) return true;
    }
    return false;
}

/* The kind of a compute action; SL_ACTION_KINDS: none. */
static enum sl_action_kind kind_of(const char *word) {
    enum sl_action_kind kind = SL_FORWARD;
    while (kind <= SL_WEIGHT_GRADIENT && (word[0] != sl_action_letter(kind) || word[1])) kind++;
    return kind <= SL_WEIGHT_GRADIENT ? kind : SL_ACTION_KINDS;
}

/* Assigns a stage to the row of its first action. */
static int note_stage(struct reader *reader, const struct item *item) {
    while (reader->stages <= item->stage) {
        int *grown = sl_grow(reader->row_of, reader->stages, &reader->room, 64, sizeof *grown);
        if (!grown) return SL_FAILED;
        reader->row_of = grown;
        grown[reader->stages++] = -1;
    }
    int *row = &reader->row_of[item->stage];
    if (*row < 0) *row = item->row;
    if (*row == item->row) return SL_OK;
    return refuse(reader, item->row, item->column, "stage %d is on line %d already: every stage has one line",
                  item->stage, *row + 1);
}

static int note(struct reader *reader, const struct item *item) {
    struct item *grown = sl_grow(reader->item, reader->items, &reader->capacity, 1024, sizeof *grown);
    if (!grown) return SL_FAILED;
    reader->item = grown;
    reader->item[reader->items++] = *item;
    return note_stage(reader, item);
}

/* Reads an action such as 4F0, or an action of communication, with or without a microbatch; in pairs only the
 * former. */
static int read_action(struct reader *reader, bool in_pair, bool paired) {
    char word[LONGEST_WORD + 1];
    skip_blanks(reader);
    struct item item = {.row = reader->row, .column = column(reader), .paired = paired};
    SL_TRY(read_number(reader, &item.stage, "a stage number"));
    const int begin = column(reader);
    read_word(reader, word);
    if (!word[0]) return expected(reader, "an action: F, B, I or W");
    item.kind = kind_of(word);
    if (item.kind == SL_ACTION_KINDS && (in_pair || !is_left_out(word)))
        return refuse(reader, item.row, begin, "unknown action \"%s\": expected F, B, I or W%s", word,
                      in_pair ? "" : ", or PyTorch's communication: SEND_F, RECV_F, ..., REDUCE_GRAD");
    if (item.kind == SL_ACTION_KINDS && !is_digit(next(reader))) return SL_OK;
    SL_TRY(read_number(reader, &item.microbatch, "a microbatch number"));
    return item.kind == SL_ACTION_KINDS ? SL_OK : note(reader, &item);
}

static int skip(struct reader *reader, int character, const char *what) {
    skip_blanks(reader);
    if (next(reader) != character) return expected(reader, what);
    reader->at++;
    return SL_OK;
}

/* Reads (1F6;6B2)OVERLAP_F_B. */
static int read_pair(struct reader *reader) {
    char word[LONGEST_WORD + 1];
    SL_TRY(skip(reader, '(', "\"(\""));
    SL_TRY(read_action(reader, true, false));
    SL_TRY(skip(reader, ';', "\";\" and the second action of a pair"));
    SL_TRY(read_action(reader, true, true));
    SL_TRY(skip(reader, ')', "\")\" after the second action of a pair"));
    skip_blanks(reader);
    const int begin = column(reader);
    read_word(reader, word);
    if (!word[0]) return expected(reader, "OVERLAP_F_B after a pair");
    if (strcmp(word, "OVERLAP_F_B"))
        return refuse(reader, reader->row, begin, "expected OVERLAP_F_B after a pair, found \"%s\"", word);
    return SL_OK;
}

static bool at_end_of_row(const struct reader *reader) { return next(reader) == '\n' || next(reader) == END; }

static int read_row(struct reader *reader) {
    const int first = reader->items;
    for (;; reader->at++) {
        skip_blanks(reader);
        if (next(reader) == '(')
            SL_TRY(read_pair(reader));
        else if (next(reader) != ',' && !at_end_of_row(reader))
            SL_TRY(read_action(reader, false, false));
        skip_blanks(reader);
        if (at_end_of_row(reader)) break;
        if (next(reader) != ',') return expected(reader, "\",\" or the end of the line after a cell");
    }
    if (reader->items == first)
        return refuse(reader, reader->row, 0, "expected a rank's actions, as in 4F0: the line has no F, B, I or W");
    if (next(reader) == '\n') reader->at++;
    reader->line = reader->at;
    reader->row++;
    return SL_OK;
}

static int read_rows(struct reader *reader) {
    if (reader->length == 0) return expected(reader, "a line of actions, as in 4F0, for each rank");
    while (next(reader) != END) SL_TRY(read_row(reader));
    return SL_OK;
}

/* ---- tables ---- */

/* The first action whose stage is at least LOWEST. */
static const struct item *first_from(const struct reader *reader, int lowest) {
    const struct item *item = reader->item;
    while (item->stage < lowest) item++;
    return item;
}

/* Places the stages, ascending on each rank within their copies of the model. COUNT [ranks] is scratch memory. */
static int place_stages(const struct reader *reader, struct sl_schedule *schedule, int *count) {
    for (int i = 0; i < reader->stages; i++) {
        const int s = i / schedule->copies + i % schedule->copies * sl_schedule_depth(schedule);
        const int rank = reader->row_of[s], place = rank * schedule->loops + count[rank];
        if (count[rank]++ == schedule->loops)
            return refuse(reader, rank, 0, "the line has more than %d stages: %d stages on %d lines must be %d on each",
                          schedule->loops, reader->stages, schedule->ranks, schedule->loops);
        schedule->stage[place] = s;
        schedule->place[s] = place;
    }
    return SL_OK;
}

static int fill(const struct reader *reader, struct sl_schedule *schedule) {
    int *count = calloc((size_t)schedule->ranks, sizeof *count);
    if (!count) return SL_FAILED;
    int status = place_stages(reader, schedule, count);
    free(count);
    for (int i = 0; i < reader->items && status == SL_OK; i++) {
        const struct item *item = &reader->item[i];
        status = sl_schedule_compute(schedule, item->kind, item->stage, item->microbatch, item->paired);
    }
    return status;
}

static void base_name(const char *path, char *name, size_t size) {
    const char *slash = strrchr(path, '/');
    snprintf(name, size, "%s", slash ? slash + 1 : path);
    const size_t length = strlen(name);
    if (length > 4 && !strcmp(name + length - 4, ".csv")) name[length - 4] = '\0';
}

/* Refuses missing stages below the highest one, and lines with unequal numbers of stages. */
static int check_stages(const struct reader *reader) {
    for (int s = 0; s < reader->stages; s++) {
        if (reader->row_of[s] >= 0) continue;
        const struct item *above = first_from(reader, s);
        return refuse(reader, above->row, above->column, "there is a stage %d, but no line has stage %d", above->stage,
                      s);
    }
    if (reader->stages % reader->row == 0) return SL_OK;
    return refuse(reader, reader->row - 1, 0, "%d stages on %d lines: every line must have the same number of stages",
                  reader->stages, reader->row);
}

/* Limits memory to a small multiple of the file's size: a few cells may have any numbers. */
static int check_size(const struct reader *reader, int microbatches) {
    enum { FEW = 1 << 16, SPARSE = 16 };
    const long long forwards = (long long)reader->stages * microbatches;
    if (forwards <= FEW || forwards / SPARSE <= reader->items) return SL_OK;
    return sl_error_set(reader->error, SL_BAD_INPUT,
                        "%d stages and %d microbatches have %lld forwards, but the file has %d actions", reader->stages,
                        microbatches, forwards, reader->items);
}

/* Whether there are two copies of the model: the lower stages have only the lower microbatches, and the upper stages
 * only the upper ones. In a table of one model all stages have all microbatches. */
static bool has_copies(const struct reader *reader, int microbatches) {
    bool apart = microbatches % 2 == 0 && reader->stages / reader->row % 2 == 0;
    for (int i = 0; i < reader->items && apart; i++)
        apart = (reader->item[i].stage < reader->stages / 2) == (reader->item[i].microbatch < microbatches / 2);
    return apart;
}

static int make_table(const struct reader *reader, struct sl_schedule *schedule) {
    char name[256];
    int highest = 0;
    base_name(reader->path, name, sizeof name);
    for (int i = 0; i < reader->items; i++) {
        if (reader->item[i].microbatch > highest) highest = reader->item[i].microbatch;
    }
    SL_TRY(check_stages(reader));
    int status =
        sl_schedule_open(schedule, name, reader->row, reader->stages / reader->row, highest + 1, reader->error);
    if (status == SL_OK) status = check_size(reader, highest + 1);
    if (status == SL_OK) {
        schedule->copies = has_copies(reader, highest + 1) ? 2 : 1;
        SL_TRY(fill(reader, schedule));
        status = sl_schedule_clock(schedule, reader->error);
    }
    return status ? sl_error_set(reader->error, status, "%s: %s", reader->path, reader->error->message) : SL_OK;
}

int sl_schedule_read_csv(struct sl_schedule *schedule, const char *path, struct sl_error *error) {
    struct sl_error own;
    struct reader reader = {.path = path, .error = &own};
    memset(schedule, 0, sizeof *schedule);
    const char *reason;
    FILE *file = sl_file_read(path, SL_FILE_REGULAR | SL_FILE_PIPE | SL_FILE_DIRECTORY, &reason);
    if (!file) return sl_error_set(error, SL_BAD_INPUT, "%s: cannot be opened: %s", path, reason);
    int status = read_text(&reader, file);
    if (status == SL_OK) status = read_rows(&reader);
    if (status == SL_OK) status = make_table(&reader, schedule);
    fclose(file);
    free(reader.text);
    free(reader.item);
    free(reader.row_of);
    if (status) sl_schedule_free(schedule);
    if (status == SL_FAILED) sl_error_set(&own, status, "%s: no memory", path);
    if (status && error) *error = own;
    return status;
}

/* ---- writing ---- */

static bool is_written(const struct sl_schedule *schedule, enum sl_action_kind kind) {
    return kind <= SL_WEIGHT_GRADIENT || (schedule->sharded && kind >= SL_REDUCE);
}

/* The next written action of RANK from I on; the count if there is none. */
static int next_written(const struct sl_schedule *schedule, const struct sl_rank_schedule *rank, int i) {
    while (i < rank->count && !is_written(schedule, rank->action[i].kind)) i++;
    return i;
}

static void write_action(const struct sl_action *action, int stage, FILE *file) {
    static const char *const name[] = {"REDUCE_GRAD", "UNSHARD", "RESHARD"}; /* from SL_REDUCE on */
    if (action->kind >= SL_REDUCE)
        fprintf(file, "%d%s", stage, name[action->kind - SL_REDUCE]);
    else
        fprintf(file, "%d%c%d", stage, sl_action_letter(action->kind), action->microbatch);
}

/* Writes a rank. Gathers and reductions have no iteration of their own, so cells of a sharded table do not stand for
 * iterations. */
static void write_rank(const struct sl_schedule *schedule, int number, FILE *file) {
    const struct sl_rank_schedule *rank = &schedule->rank[number];
    int cell = 0, following;
    for (int i = next_written(schedule, rank, 0), first = i; i < rank->count; i = following) {
        const struct sl_action *action = &rank->action[i];
        following = next_written(schedule, rank, i + 1);
        const bool begins_pair = following < rank->count && rank->action[following].paired;
        if (schedule->sharded && i > first && !action->paired) fputc(',', file);
        for (; !schedule->sharded && cell < action->time; cell++) fputc(',', file);
        fputs(begins_pair ? "(" : action->paired ? ";" : "", file);
        write_action(action, sl_schedule_stage(schedule, number, action->loop), file);
        fputs(action->paired ? ")OVERLAP_F_B" : "", file);
    }
    fputc('\n', file);
}

int sl_schedule_write_csv(const struct sl_schedule *schedule, FILE *file) {
    for (int r = 0; r < schedule->ranks; r++) write_rank(schedule, r, file);
    return fflush(file) || ferror(file) ? SL_FAILED : SL_OK;
}
