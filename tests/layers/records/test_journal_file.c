/* test_journal_file.c - files of journals: heads with one fault each, and records in a wrong order. */
#include "tests/rigs/changes.h"
#include "tests/rigs/one_file.h"

#include "layers/records/journal/journal_file.h"

/* Reads all steps; *ARG (may be NULL) becomes how many there are. */
static int try(const char *name, void *arg, struct sl_error *error) {
    static struct sl_journal_file file;
    bool more = true;
    int steps = 0, status = sl_journal_file_open(&file, name, error);
    while (status == SL_OK && more) {
        status = sl_journal_next(&file, &more, error);
        steps += status == SL_OK && more;
    }
    sl_journal_file_close(&file);
    if (arg) *(int *)arg = steps;
    return status;
}

static const char head[] =
    "{\"shardloop.journal\":1,\"coordinate\":1,\"layout\":{\"mesh\":\"data=1,model=2\",\"data_axis\":\"data\","
    "\"stage_axis\":\"model\",\"stages\":2,\"layers\":[0,1],\"microbatches\":2,\"rows\":2,\"passes\":1,"
    "\"wgrad_group\":2},\"tensors\":[{\"name\":\"a\",\"shape\":[4],\"stage\":1,\"elements\":4,\"counts\":true}]}\n";

#define LAYOUT "its head has no sound layout"
#define TENSORS "its head has no sound list of tensors"

static const struct change heads[] = {
    {"{\"shardloop", "[\"shardloop", "it does not begin with {"},
    {"}]}\n", "}]}", "its head is cut off"},
    {"\"coordinate\":1", "\"coordinate\"", "its first line is no JSON object"},
    {"\"shardloop.journal\":1", "\"shardloop.journal\":\"1\"", "its head has no version"},
    {"\"shardloop.journal\":1", "\"shardloop.journal\":2", "a journal of version 2: this program reads version 1"},
    {"\"coordinate\":1", "\"coordinate\":-1", LAYOUT},
    {"\"coordinate\":1", "\"coordinate\":1048576", LAYOUT},
    {"\"mesh\":\"data=1,model=2\"", "\"mesh\":2", LAYOUT},
    {"\"data_axis\":\"data\"", "\"data_axis\":2", LAYOUT},
    {"\"stage_axis\":\"model\"", "\"stage_axis\":2", LAYOUT},
    {"\"stages\":2", "\"stages\":0", LAYOUT},
    {"\"stages\":2", "\"stages\":2000000", LAYOUT},
    {"\"microbatches\":2", "\"microbatches\":0", LAYOUT},
    {"\"rows\":2", "\"rows\":0", LAYOUT},
    {"\"passes\":1", "\"passes\":0", LAYOUT},
    {"\"wgrad_group\":2", "\"wgrad_group\":0", LAYOUT},
    {"\"wgrad_group\":2", "\"wgrad_group\":2,\"layer_sums\":0", LAYOUT},
    {"\"layers\":[0,1]", "\"layers\":[0]", LAYOUT},
    {"\"layers\":[0,1]", "\"layers\":[0,1.25]", LAYOUT},
    {"\"layers\":[0,1]", "\"layers\":[0,1e300]", LAYOUT},
    {"\"layers\":[0,1]", "\"layers\":[0,\"1\"]", LAYOUT},
    {"\"tensors\":[", "\"tensor\":[", TENSORS},
    {"\"name\":\"a\"", "\"name\":7", TENSORS},
    {"\"shape\":[4]", "\"shape\":4", TENSORS},
    {"\"shape\":[4]", "\"shape\":[1,1,1,1,1,1,1,1,1]", TENSORS},
    {"\"shape\":[4]", "\"shape\":[-4]", TENSORS},
    {"\"stage\":1", "\"stage\":2", TENSORS},
    {"\"stage\":1", "\"stage\":-1", TENSORS},
    {"\"elements\":4", "\"elements\":\"4\"", TENSORS},
    {"\"elements\":4", "\"elements\":-4", TENSORS},
    {"{\"shardloop", "{\"shardloop", NULL},
};

static void heads_that_are_wrong(void **state) {
    (void)state;
    EXPECT_CHANGES(path, head, heads, try, NULL);
}

/* ---- records ---- */

static struct sl_journal_record record_of(int64_t step, enum sl_journal_kind kind, int32_t item) {
    struct sl_journal_record record = {.step = step, .hash = 5, .item = item, .kind = kind};
    sl_journal_seal(&record);
    return record;
}

/* The head, and COUNT records. */
static void expect_records(const struct sl_journal_record *record, size_t count, int wanted, const char *line) {
    struct sl_error error = {0};
    int steps = 0;
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fputs(head, file);
    assert_int_equal(fwrite(record, sizeof *record, count, file), count);
    fclose(file);
    const int status = try(path, &steps, &error);
    expect_line("records", status, &error, line);
    if (!line) assert_int_equal(steps, wanted);
}
#define EXPECT_RECORDS(wanted, line, ...)                                                                              \
    expect_records((const struct sl_journal_record[]){__VA_ARGS__},                                                    \
                   sizeof((const struct sl_journal_record[]){__VA_ARGS__}) / sizeof(struct sl_journal_record), wanted, \
                   line)

static void records_in_order(void **state) {
    (void)state;
    const struct sl_journal_record value = record_of(-1, SL_JOURNAL_VALUE, 0),
                                   begin = record_of(-1, SL_JOURNAL_BEGIN, 0);
    const struct sl_journal_record loss = record_of(0, SL_JOURNAL_LOSS, 0), end = record_of(0, SL_JOURNAL_END, 0);
    const struct sl_journal_record later = record_of(1, SL_JOURNAL_LOSS, 0), last = record_of(1, SL_JOURNAL_END, 0);
    EXPECT_RECORDS(3, NULL, value, begin, loss, end, later, last);
    EXPECT_RECORDS(2, NULL, value, begin, loss, end, later); /* the last step has no end */
    EXPECT_RECORDS(1, NULL, value, begin, value, begin);     /* begun again */
    EXPECT_RECORDS(0, "steps do not ascend", later, last, loss, end);
    EXPECT_RECORDS(0, "a step without an end", loss, later, last);
}

static void records_of_nothing(void **state) {
    (void)state;
    struct sl_journal_record wrong = record_of(0, SL_JOURNAL_LOSS, 0);
    const char *unknown = "a record of nothing that is known";
    wrong.hash++;
    EXPECT_RECORDS(0, "a record's checksum is another one", wrong);
    EXPECT_RECORDS(0, unknown, record_of(0, 0, 0));
    EXPECT_RECORDS(0, unknown, record_of(0, SL_JOURNAL_KINDS, 0));
    EXPECT_RECORDS(0, unknown, record_of(-2, SL_JOURNAL_LOSS, 0));
    EXPECT_RECORDS(0, unknown, record_of(0, SL_JOURNAL_LOSS, -1));
    EXPECT_RECORDS(0, unknown, record_of(0, SL_JOURNAL_LOSS, 1));
    EXPECT_RECORDS(0, unknown, record_of(0, SL_JOURNAL_VALUE, 1));
    EXPECT_RECORDS(0, unknown, record_of(0, SL_JOURNAL_ROWS, 2));
    wrong = record_of(0, SL_JOURNAL_LOSS, 0);
    wrong.microbatch = -1;
    sl_journal_seal(&wrong);
    EXPECT_RECORDS(0, unknown, wrong);
    wrong.microbatch = 1 << 20;
    sl_journal_seal(&wrong);
    EXPECT_RECORDS(0, unknown, wrong);
}

static void long_paths(void **state) {
    (void)state;
    static struct sl_journal_file file;
    static char name[2 * SL_MAX_PATH], made[SL_MAX_PATH];
    struct sl_error error = {0};
    memset(name, 'a', sizeof name - 1);
    assert_int_equal(sl_journal_name(name, 0, made, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "the path is too long"));
    assert_false(sl_journal_is_there(name));
    assert_false(sl_journal_is_there(folder));
    assert_int_equal(sl_journal_file_open(&file, name, &error), SL_BAD_INPUT);
    sl_journal_file_close(&file);
    assert_int_equal(sl_journal_file_open(&file, "/nowhere", &error), SL_BAD_INPUT);
    sl_journal_file_close(&file);
}

static int make_files(void **state) {
    (void)state;
    return make_one_file("test_journal_file");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_that_are_wrong),
        cmocka_unit_test(records_in_order),
        cmocka_unit_test(records_of_nothing),
        cmocka_unit_test(long_paths),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, make_files, remove_one_file);
}
