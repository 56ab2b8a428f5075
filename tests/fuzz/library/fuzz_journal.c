/* fuzz_journal.c - a coordinate's journal file. The first byte chooses whether records get correct checksums, so
 * their contents are read too. */
#include "layers/records/journal/journal_file.h"
#include "tests/fuzz/fuzz.h"

static void seal(uint8_t *bytes, size_t size) {
    const uint8_t *line = memchr(bytes, '\n', size);
    for (size_t at = line ? (size_t)(line - bytes) + 1 : size; at + SL_JOURNAL_RECORD <= size;
         at += SL_JOURNAL_RECORD) {
        struct sl_journal_record record;
        memcpy(&record, bytes + at, sizeof record);
        sl_journal_seal(&record);
        memcpy(bytes + at, &record, sizeof record);
    }
}

/* Checks the promises that readers which compare journals rely on. */
static void check_records(const struct sl_journal_file *file) {
    for (int i = 0; i < file->count; i++) {
        const struct sl_journal_record *record = &file->record[i];
        const bool tensor = record->kind == SL_JOURNAL_GRADIENT || record->kind == SL_JOURNAL_VALUE;
        FUZZ_PROMISE(record->kind > 0 && record->kind < SL_JOURNAL_BEGIN, "kind %u", record->kind);
        FUZZ_PROMISE(record->step == file->step, "step %lld", (long long)record->step);
        FUZZ_PROMISE(record->item >= 0 && record->microbatch >= 0, "item %d", record->item);
        FUZZ_PROMISE(record->item < (tensor ? file->tensors : file->stages), "item %d", record->item);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sl_journal_file file;
    struct sl_error error = {0};
    bool more = true;
    if (size < 1) return 0;
    uint8_t *bytes = (uint8_t *)fuzz_text(data + 1, size - 1);
    if (data[0] & 1) seal(bytes, size - 1);
    int status = sl_journal_file_open(&file, fuzz_file(0, bytes, size - 1), &error);
    int64_t before = INT64_MIN;
    while (status == SL_OK && more) {
        status = sl_journal_next(&file, &more, &error);
        if (status || !more) break;
        FUZZ_PROMISE(file.step > before, "step %lld", (long long)file.step);
        FUZZ_PROMISE(file.whole < (long long)size, "%lld of %zu bytes", file.whole, size);
        before = file.step;
        check_records(&file);
    }
    if (status) fuzz_refused(status, &error);
    sl_journal_file_close(&file);
    free(bytes);
    return 0;
}
