/* journal.c - records a run's hashes in files. */
#include "layers/records/journal/journal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "layers/records/journal/head_internal.h"
#include "spmd/base/file.h"
#include "spmd/device/device.h"

struct sl_journal {
    struct sl_spmd *self;
    const struct sl_parameters *parameters;
    struct sl_prints *prints;
    struct sl_places places;
    char path[SL_MAX_PATH];
    FILE *stream;
    struct sl_journal_expected *expected; /* NULL: records go to the stream */
    int every, microbatches;              /* microbatches: of a pass */
    int64_t step;
    /* State of the step. */
    int count, most, rows;            /* rows: limit of the records of rows, which come first */
    struct sl_journal_record *record; /* [most] */
    struct sl_hashes *hashes;         /* of records of rows by number, then of prints; NULL if the host hashes */
    int pass;
    uint32_t first_row;
    int sequence; /* rows of a sequence on this coordinate */
    struct sl_cut cut;
};

/* ---- records ---- */

static void add(struct sl_journal *j, enum sl_journal_kind kind, int item, int microbatch, uint64_t hash) {
    struct sl_journal_record *record = &j->record[j->count];
    *record = (struct sl_journal_record){
        .step = j->step, .hash = hash, .item = item, .microbatch = microbatch, .kind = (uint32_t)kind};
    sl_journal_seal(record);
    j->count++;
}

static uint64_t bits_of(double number) {
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

static void add_prints(struct sl_journal *j, enum sl_print kind, enum sl_journal_kind as) {
    uint64_t hash;
    for (int i = 0; i < j->parameters->count; i++)
        if (sl_prints_hash(j->prints, kind, i, &hash)) add(j, as, i, 0, hash);
}

static int refuse(struct sl_journal *j, int number) {
    return sl_fail(j->self, SL_FAILED, "journal %s: %s", j->path, number ? strerror(number) : "could not be written");
}

/* Compares a step with the expected records. If a record is missing, the end of the block is reported in its place. */
static void compare_block(const struct sl_journal *j) {
    struct sl_journal_expected *expected = j->expected;
    int i = 0;
    while (i < expected->count && i < j->count && !memcmp(&expected->record[i], &j->record[i], sizeof *j->record)) i++;
    const bool same = i == expected->count && i + 1 == j->count;
    expected->first = same ? -1 : i;
    expected->found = j->record[i < j->count ? i : j->count - 1];
}

/* Ends the block and writes it. */
static int write_block(struct sl_journal *j, enum sl_journal_kind end) {
    add(j, end, 0, 0, 0);
    if (j->expected) {
        compare_block(j);
        j->count = 0;
        return SL_OK;
    }
    errno = 0;
    const size_t count = (size_t)j->count;
    if (fwrite(j->record, sizeof *j->record, count, j->stream) < count || fflush(j->stream)) return refuse(j, errno);
    j->count = 0;
    return SL_OK;
}

/* ---- the file ---- */

/* Finds *END, the bytes of the file to keep for a run that continues after STEPS steps with the layout in HEAD. */
static int find_end(struct sl_journal *j, const json_t *head, int64_t steps, long long *end) {
    struct sl_journal_file file;
    struct sl_error *error = &j->self->error;
    bool more = true;
    int status = sl_journal_file_open(&file, j->path, error);
    if (status == SL_OK && !sl_journal_same_layout(head, file.head))
        status = sl_error_set(error, SL_BAD_INPUT,
                              "%s: the journal is that of another layout or model: give another directory", j->path);
    while (status == SL_OK && more) {
        *end = file.whole;
        status = sl_journal_next(&file, &more, error);
        if (status == SL_OK && more && file.step >= steps) break;
    }
    sl_journal_file_close(&file);
    return status;
}

static int open_stream(struct sl_journal *j, const struct sl_journal_options *options, const json_t *head,
                       int64_t steps) {
    const bool goes_on = options->resumes && access(j->path, F_OK) == 0;
    const char *reason;
    long long end = 0;
    if (goes_on) SL_TRY(find_end(j, head, steps, &end));
    j->stream = sl_file_write(j->path, goes_on, SL_FILE_REGULAR | SL_FILE_DEVICE, &reason);
    if (!j->stream) return sl_fail(j->self, SL_BAD_INPUT, "journal %s: %s", j->path, reason);
    if (goes_on) return ftruncate(fileno(j->stream), (off_t)end) ? refuse(j, errno) : SL_OK;
    errno = 0;
    if (json_dumpf(head, j->stream, JSON_COMPACT) || putc('\n', j->stream) == EOF || fflush(j->stream))
        return refuse(j, errno);
    return SL_OK;
}

/* ---- opening ---- */

int sl_journal_prepare(const char *directory, struct sl_error *error) {
    if (mkdir(directory, 0777) && errno != EEXIST)
        return sl_error_set(error, SL_BAD_INPUT, "--journal %s: cannot be made: %s", directory, strerror(errno));
    if (access(directory, W_OK | X_OK))
        return sl_error_set(error, SL_BAD_INPUT, "--journal %s: no file can be made there: %s", directory,
                            strerror(errno));
    return SL_OK;
}

/* The most records of rows, and of parameters. */
static int rows_of(const struct sl_journal_run *run) {
    return 2 * run->schedule->loops * run->schedule->microbatches * run->passes;
}
static int prints_of(const struct sl_journal_run *run) { return SL_PRINTS * run->parameters->count; }

void sl_journal_plan_bytes(const struct sl_journal_run *run, struct sl_budget *budget) {
    sl_budget_add(budget, SL_MEMORY_RUNTIME, sl_hashes_bytes(rows_of(run) + prints_of(run)));
}

static int take(struct sl_journal *j, const struct sl_journal_run *run) {
    enum { OTHERS = 3 }; /* loss, norm, end */
    j->microbatches = run->schedule->microbatches;
    const int prints = prints_of(run);
    j->rows = rows_of(run);
    j->most = j->rows + prints + OTHERS;
    j->record = malloc((size_t)j->most * sizeof *j->record);
    if (!j->record) return sl_fail(j->self, SL_FAILED, "no memory for a journal");
    sl_places_open(&j->places);
    SL_TRY(sl_hashes_open(&j->hashes, j->self, j->rows + prints));
    return sl_prints_open(&j->prints, j->self, j->parameters, j->hashes, j->rows);
}

static void begin_block(struct sl_journal *j, int64_t step) {
    j->step = step;
    j->count = 0;
    sl_prints_begin(j->prints);
}

/* Records the initial values as those after the step before. */
static int write_values(struct sl_journal *j, int64_t steps) {
    begin_block(j, steps - 1);
    SL_TRY(sl_prints_add_values(j->prints));
    sl_journal_complete(j);
    SL_TRY(sl_device.settle(&j->self->error));
    add_prints(j, SL_PRINT_VALUE, SL_JOURNAL_VALUE);
    return write_block(j, SL_JOURNAL_BEGIN);
}

int sl_journal_open(struct sl_journal **journal, struct sl_spmd *self, const struct sl_journal_run *run,
                    const struct sl_journal_options *options) {
    struct sl_journal *j = calloc(1, sizeof *j);
    json_t *head = NULL;
    *journal = j;
    if (!j) return sl_fail(self, SL_FAILED, "no memory for a journal");
    j->self = self;
    j->parameters = run->parameters;
    j->every = options->every > 0 ? options->every : 1;
    j->sequence = run->sequence;
    j->cut = run->cut;
    SL_TRY(take(j, run));
    j->expected = options->expected;
    if (j->expected) return SL_OK;
    SL_TRY(sl_journal_prepare(options->directory, &self->error));
    SL_TRY(sl_journal_name(options->directory, self->coordinate, j->path, &self->error));
    int status = sl_journal_head(&head, self, run, j->prints, options->notes);
    if (status == SL_OK) status = open_stream(j, options, head, run->steps);
    json_decref(head);
    return status ? status : write_values(j, run->steps);
}

void sl_journal_close(struct sl_journal *j) {
    if (!j) return;
    if (j->stream) fclose(j->stream);
    sl_prints_close(j->prints);
    sl_hashes_close(j->hashes);
    free(j->record);
    free(j);
}

/* ---- a step ---- */

bool sl_journal_begin(struct sl_journal *j, int64_t step) {
    if (step % j->every) return false;
    begin_block(j, step);
    return true;
}

struct sl_prints *sl_journal_prints(struct sl_journal *j) { return j->prints; }

void sl_journal_pass(struct sl_journal *j, int pass, uint32_t first_row) {
    j->pass = pass;
    j->first_row = first_row;
}

static uint64_t hash_rows(struct sl_journal *j, uint64_t place, size_t count, enum sl_dtype dtype, const void *data) {
    if (dtype == SL_BF16) return sl_places_hash_bf16(&j->places, place, data, count);
    return sl_places_hash(&j->places, place, data, count);
}

/* Hash of rows of divided sequences, from row FIRST on, with their places in the whole sequences. */
static uint64_t hash_blocks(struct sl_journal *j, uint32_t first, int rows, size_t columns, enum sl_dtype dtype,
                            const char *data) {
    const int block = j->sequence / sl_cut_blocks(j->cut);
    const size_t elements = (size_t)block * columns;
    uint64_t hash = 0;
    for (int row = 0; row < rows; row += block, data += elements * sl_dtype_size(dtype)) {
        const uint64_t place = sl_cut_row(j->cut, (uint32_t)j->sequence, first + (uint32_t)row);
        hash += hash_rows(j, place * columns, elements, dtype, data);
    }
    return hash;
}

void sl_journal_rows(struct sl_journal *j, enum sl_journal_kind kind, int stage, int microbatch, int count, int rows,
                     int columns, enum sl_dtype dtype, const void *data) {
    const size_t elements = (size_t)rows * (size_t)columns;
    for (int m = 0; m < count && j->count < j->rows; m++) { /* each action comes once per pass */
        const uint64_t row = j->first_row + (uint64_t)(microbatch + m) * (uint64_t)rows;
        const char *from = (const char *)data + (size_t)m * elements * sl_dtype_size(dtype);
        const uint64_t place = row * (uint64_t)columns;
        if (j->hashes) sl_hashes_add(j->hashes, j->count, place, elements, dtype, from);
        const uint64_t hash = j->hashes ? 0
                              : sl_cut_parts(j->cut) > 1
                                  ? hash_blocks(j, (uint32_t)row, rows, (size_t)columns, dtype, from)
                                  : hash_rows(j, place, elements, dtype, from);
        add(j, kind, stage, j->pass * j->microbatches + microbatch + m, hash);
    }
}

void sl_journal_complete(struct sl_journal *j) {
    if (j->hashes) sl_hashes_bring(j->hashes);
}

/* Copies the hashes of records of rows; prints read their own. */
static void take_hashes(struct sl_journal *j) {
    for (int i = 0; i < j->count; i++) {
        j->record[i].hash = sl_hashes_at(j->hashes, i);
        sl_journal_seal(&j->record[i]);
    }
}

int sl_journal_end(struct sl_journal *j, double loss, double norm) {
    if (j->hashes) take_hashes(j);
    add(j, SL_JOURNAL_LOSS, 0, 0, bits_of(loss));
    add_prints(j, SL_PRINT_GRADIENT, SL_JOURNAL_GRADIENT);
    if (!isnan(norm)) add(j, SL_JOURNAL_NORM, 0, 0, bits_of(norm));
    add_prints(j, SL_PRINT_VALUE, SL_JOURNAL_VALUE);
    return write_block(j, SL_JOURNAL_END);
}
