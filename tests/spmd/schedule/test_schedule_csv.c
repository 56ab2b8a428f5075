/* test_schedule_csv.c - PyTorch's files are read and written; malformed files are refused with the place of the
 * fault. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <unistd.h>

#include "tests/rigs/schedule_tables.h"
#include "spmd/schedule/csv.h"
#include "spmd/schedule/registry.h"

static char directory[256], path[300];

static int make_directory(void **state) {
    (void)state;
    const char *parent = getenv("TMPDIR");
    snprintf(directory, sizeof directory, "%.200s/test_schedule_csv.XXXXXX", parent ? parent : "/tmp");
    if (!mkdtemp(directory)) return -1;
    snprintf(path, sizeof path, "%s/a-table.csv", directory);
    return 0;
}

static int remove_directory(void **state) {
    (void)state;
    unlink(path);
    return rmdir(directory);
}

static void put(const char *text, size_t bytes) {
    unlink(path); /* overwriting a file makes file systems flush it, which takes milliseconds */
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static void read_table(struct sl_schedule *schedule, const char *from) {
    struct sl_error error = {0};
    if (sl_schedule_read_csv(schedule, from, &error)) fail_msg("%s", error.message);
}

static size_t write_table(const struct sl_schedule *schedule, char text[TABLE_BYTES]) {
    FILE *file = fmemopen(text, TABLE_BYTES, "w");
    assert_non_null(file);
    assert_int_equal(sl_schedule_write_csv(schedule, file), SL_OK);
    assert_int_equal(fclose(file), 0);
    return strlen(text);
}

/* ---- PyTorch's files ---- */

static void pytorchs_files_are_read_and_written(void **state) {
    (void)state;
    static struct table_file file[TABLE_FILES];
    static char theirs[TABLE_BYTES], ours[TABLE_BYTES];
    const int files = list_tables(file);
    assert_true(files >= 59);
    for (int i = 0; i < files; i++) {
        struct sl_schedule schedule;
        read_table(&schedule, file[i].path);
        assert_int_equal(schedule.ranks, file[i].ranks);
        assert_int_equal(schedule.loops, file[i].loops);
        assert_int_equal(schedule.microbatches, file[i].microbatches);
        char name[64];
        snprintf(name, sizeof name, "%s_pp%d_v%d_m%d", file[i].algorithm, file[i].ranks, file[i].loops,
                 file[i].microbatches);
        name[sizeof schedule.name - 1] = '\0'; /* cut to fit */
        assert_string_equal(schedule.name, name);
        const bool v = !strcmp(file[i].algorithm, "ZBVZeroBubble") || !strcmp(file[i].algorithm, "DualPipeV");
        for (int stage = 0; stage < schedule.ranks * schedule.loops; stage++) {
            const int across = stage % schedule.ranks, back = v && stage >= schedule.ranks;
            const int rank = back ? schedule.ranks - 1 - across : across, loop = stage / schedule.ranks;
            assert_int_equal(schedule.place[stage], rank * schedule.loops + loop);
            assert_int_equal(schedule.stage[rank * schedule.loops + loop], stage);
        }
        assert_true(read_bytes(file[i].path, theirs) > 0);
        write_table(&schedule, ours);
        drop_idle(theirs);
        drop_idle(ours);
        assert_string_equal(ours, theirs);
        sl_schedule_free(&schedule);
    }
}

static void communication_is_left_out(void **state) {
    (void)state;
    static const char *const name[] = {"DualPipeV_pp3_v2_m6", "Interleaved1F1B_pp3_v2_m6", "ZBVZeroBubble_pp4_v2_m8"};
    static char with[TABLE_BYTES], without[TABLE_BYTES];
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        struct sl_schedule schedule;
        char from[512];
        snprintf(from, sizeof from, "%s/schedules/%s.csv", SL_TEST_DATA, name[i]);
        read_table(&schedule, from);
        write_table(&schedule, without);
        sl_schedule_free(&schedule);
        snprintf(from, sizeof from, "%s/schedules/%s_comms.csv", SL_TEST_DATA, name[i]);
        read_table(&schedule, from);
        write_table(&schedule, with);
        sl_schedule_free(&schedule);
        assert_string_equal(with, without);
    }
}

/* ---- ours ---- */

/* With their times: idle cells included. */
static void generated_tables_come_back(void **state) {
    (void)state;
    static char text[TABLE_BYTES], again[TABLE_BYTES];
    for (int n = 0; sl_schedule_kind_at(n); n++) {
        for (int ranks = 1; ranks <= 5; ranks++) {
            for (int loops = 1; loops <= 3; loops++) {
                for (int microbatches = 1; microbatches <= 12; microbatches += 1 + microbatches / 3) {
                    struct sl_schedule made, read;
                    struct sl_error error = {0};
                    if (sl_schedule_generate(&made, sl_schedule_kind_at(n), ranks, loops, microbatches, &error))
                        continue;
                    put(text, write_table(&made, text));
                    read_table(&read, path);
                    assert_string_equal(read.name, "a-table");
                    write_table(&read, again);
                    assert_string_equal(again, text);
                    assert_int_equal(sl_schedule_lower(&made, &error), SL_OK);
                    write_table(&made, again);
                    assert_string_equal(again, text);
                    sl_schedule_free(&made);
                    sl_schedule_free(&read);
                }
            }
        }
    }
}

/* Blanks, \r\n, no last line end; stages on any line. */
static void unusual_files_are_read(void **state) {
    (void)state;
    static const struct {
        const char *text, *written;
    } cases[] = {
        {"0F0,0B0", "0F0,0B0\n"},
        {" 0F0\t,, \t0I0 ,  0W0 , \r\n", "0F0,0I0,0W0\n"},
        {"1F0,1B0\n0F0,0B0\n", ",1F0,1B0\n0F0,,,0B0\n"},
        {"0F0,1F0,1B0,0B0\n,,2F0,3F0,3B0,2B0\n", "0F0,1F0,,,,,1B0,0B0\n,,2F0,3F0,3B0,2B0\n"},
        {"0F0,0F01,( 0F2 ; 0B0 ) OVERLAP_F_B,0B1,0B2", "0F0,0F1,(0F2;0B0)OVERLAP_F_B,0B1,0B2\n"},
        {"0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD,0RESHARD\n1RECV_F0,1F0,1WAIT_SEND_B0,1B0",
         "0F0,,,0B0\n,1F0,1B0\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static char text[TABLE_BYTES];
        struct sl_schedule schedule;
        put(cases[i].text, strlen(cases[i].text));
        read_table(&schedule, path);
        write_table(&schedule, text);
        assert_string_equal(text, cases[i].written);
        sl_schedule_free(&schedule);
    }
}

static void a_full_disk_is_noticed(void **state) {
    (void)state;
    struct sl_schedule schedule;
    struct sl_error error = {0};
    FILE *full = fopen("/dev/full", "w");
    if (!full) {
        printf("# SKIP there is no /dev/full\n");
        skip();
    }
    assert_int_equal(sl_schedule_make(&schedule, "gpipe", 2, 1, 2, &error), SL_OK);
    assert_int_equal(sl_schedule_write_csv(&schedule, full), SL_FAILED);
    fclose(full);
    full = fopen("/dev/full", "w"); /* each byte fails, and nothing is left for the end */
    assert_non_null(full);
    setvbuf(full, NULL, _IONBF, 0);
    assert_int_equal(sl_schedule_write_csv(&schedule, full), SL_FAILED);
    fclose(full);
    sl_schedule_free(&schedule);
}

/* Many forwards are accepted if the file has as many actions. */
static void large_tables_come_back(void **state) {
    (void)state;
    enum { MICROBATCHES = 33000 };
    struct sl_schedule made, read;
    struct sl_error error = {0};
    assert_int_equal(sl_schedule_make(&made, "gpipe", 2, 1, MICROBATCHES, &error), SL_OK);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(sl_schedule_write_csv(&made, file), SL_OK);
    assert_int_equal(fclose(file), 0);
    read_table(&read, path);
    assert_int_equal(read.microbatches, MICROBATCHES);
    sl_schedule_free(&made);
    sl_schedule_free(&read);
}

/* A sharded table has a comma between cells, and none within a pair. */
static void pairs_of_sharded_tables(void **state) {
    (void)state;
    static char text[TABLE_BYTES];
    struct sl_schedule schedule;
    struct sl_error error = {0};
    assert_int_equal(sl_schedule_make(&schedule, "dualpipev", 2, 2, 6, &error), SL_OK);
    schedule.sharded = true;
    assert_int_equal(sl_schedule_lower(&schedule, &error), SL_OK);
    write_table(&schedule, text);
    assert_non_null(strstr(text, "UNSHARD"));
    const char *pair = strchr(text, '(');
    assert_non_null(pair);
    assert_true(strcspn(pair, ";") < strcspn(pair, ","));
    assert_null(strstr(text, ",;"));
    sl_schedule_free(&schedule);
}

/* ---- malformed ---- */

static void refused(const char *from, const char *message) {
    struct sl_schedule schedule;
    struct sl_error error = {0};
    assert_int_equal(sl_schedule_read_csv(&schedule, from, &error), SL_BAD_INPUT);
    assert_int_equal(error.status, SL_BAD_INPUT);
    assert_memory_equal(error.message, from, strlen(from));
    assert_string_equal(error.message + strlen(from), message);
    assert_null(schedule.rank);
    assert_int_equal(sl_schedule_read_csv(&schedule, from, NULL), SL_BAD_INPUT);
}

static void malformed_files_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", ":1:1: expected a line of actions, as in 4F0, for each rank, found the end of the file"},
        {"\n", ":1:1: expected a rank's actions, as in 4F0: the line has no F, B, I or W"},
        {"0F0,0B0\n,0UNSHARD,\n", ":2:1: expected a rank's actions, as in 4F0: the line has no F, B, I or W"},
        {"0F0,0B0\n\n", ":2:1: expected a rank's actions, as in 4F0: the line has no F, B, I or W"},
        {"0F0,0X0\n", ":1:6: unknown action \"X\": expected F, B, I or W, or PyTorch's communication: SEND_F, RECV_F, "
                      "..., REDUCE_GRAD"},
        {"0F0,0f0\n", ":1:6: unknown action \"f\": expected F, B, I or W, or PyTorch's communication: SEND_F, RECV_F, "
                      "..., REDUCE_GRAD"},
        {"0F0,00\n", ":1:7: expected an action: F, B, I or W, found the end of the line"},
        {"0F0, B0\n", ":1:6: expected a stage number, found \"B\""},
        {"0F0,-1B0\n", ":1:5: expected a stage number, found \"-\""},
        {"0F0,0B\n", ":1:7: expected a microbatch number, found the end of the line"},
        {"0F0,0B", ":1:7: expected a microbatch number, found the end of the file"},
        {"0F0 0B0\n", ":1:5: expected \",\" or the end of the line after a cell, found \"0\""},
        {"0F0;0B0\n", ":1:4: expected \",\" or the end of the line after a cell, found \";\""},
        {"0F0x\n", ":1:4: expected \",\" or the end of the line after a cell, found \"x\""},
        {"0F0)\n", ":1:4: expected \",\" or the end of the line after a cell, found \")\""},
        {"\x7f"
         "ELF",
         ":1:1: expected a stage number, found byte 0x7f"},
        {"0F0,\xff", ":1:5: expected a stage number, found byte 0xff"},
        {"70000F0,0B0\n", ":1:1: expected a stage number up to 65535, found a larger one"},
        {"0F0\n1F99999999999999999999\n", ":2:3: expected a microbatch number up to 65535, found a larger one"},
        {"0F0,0B0\n1F0,0F1\n", ":2:5: stage 0 is on line 1 already: every stage has one line"},
        {"0F0,0B0\n1F0\n3F0\n", ":3:1: there is a stage 3, but no line has stage 2"},
        {"0F0,1F0,2F0\n3F0\n", ":1:1: the line has more than 2 stages: 4 stages on 2 lines must be 2 on each"},
        {"0F0\n1F0\n2F0,3F0\n", ":3:1: 4 stages on 3 lines: every line must have the same number of stages"},
        {"(0F0;0B0\n", ":1:9: expected \")\" after the second action of a pair, found the end of the line"},
        {"((0F0;0B0))OVERLAP_F_B\n", ":1:2: expected a stage number, found \"(\""},
        {"(0F0)OVERLAP_F_B\n", ":1:5: expected \";\" and the second action of a pair, found \")\""},
        {"(0F0;0B0;0F1)OVERLAP_F_B\n", ":1:9: expected \")\" after the second action of a pair, found \";\""},
        {"(0F0;0B0)\n", ":1:10: expected OVERLAP_F_B after a pair, found the end of the line"},
        {"(0F0;0B0)F\n", ":1:10: expected OVERLAP_F_B after a pair, found \"F\""},
        {"(0F0;0SEND_F0)OVERLAP_F_B\n", ":1:7: unknown action \"SEND_F\": expected F, B, I or W"},
        {"()OVERLAP_F_B\n", ":1:2: expected a stage number, found \")\""},
        {"0B0,0F0\n", ": schedule a-table: deadlock: rank 0 waits with 0B0 for 0F0 of rank 0"},
        {"(0F0;0B0)OVERLAP_F_B\n", ": schedule a-table: deadlock: rank 0 waits with 0B0 for 0F0 of rank 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put(cases[i].text, strlen(cases[i].text));
        refused(path, cases[i].message);
    }
    put("0F0\0,0B0\n", 9);
    refused(path, ":1:4: expected \",\" or the end of the line after a cell, found byte 0x00");
}

static void what_is_no_file_is_refused(void **state) {
    (void)state;
    refused(directory, ": cannot be read: Is a directory");
    unlink(path);
    refused(path, ": cannot be opened: No such file or directory");
    put("0F0,", 4);
    assert_int_equal(truncate(path, 1 << 27), 0);
    refused(path, ": the file is too long: must be shorter than 67108864 bytes");
    /* Numbers in range, but with too large a product. */
    static char text[TABLE_BYTES];
    size_t length = 0;
    for (int stage = 0; stage < 200; stage++)
        length += (size_t)snprintf(text + length, sizeof text - length, "%dF65535,", stage);
    put(text, length);
    refused(path,
            ": schedule a-table: 1 stages x 200 loops x 65536 microbatches: their product must be at most 8388608");
    /* A few cells that would need much memory. */
    put("0F65535,1F0,2F0,3F0", 19);
    refused(path, ": 4 stages and 65536 microbatches have 262144 forwards, but the file has 4 actions");
}

/* ---- mutations ---- */

static unsigned draw(unsigned *random, unsigned below) {
    *random = *random * 1664525u + 1013904223u;
    return (*random >> 8) % below;
}

/* One change of LENGTH bytes; there is room for twice as many. Returns the new length. */
static int mutate(char *text, int length, unsigned *random) {
    static const char likely[] = "0123456789FBIWX,,,;()\n\r \t_-SEND\"\0\xff";
    if (length == 0) return 0;
    const int at = (int)draw(random, (unsigned)length), most = length - at;
    const int run = 1 + (int)draw(random, most < 40 ? (unsigned)most : 40);
    switch (draw(random, 5)) {
    case 0: /* another character */
        text[at] = likely[draw(random, sizeof likely - 1)];
        return length;
    case 1: /* one more */
        memmove(text + at + 1, text + at, (size_t)most);
        text[at] = likely[draw(random, sizeof likely - 1)];
        return length + 1;
    case 2: /* a run fewer */
        memmove(text + at, text + at + run, (size_t)(most - run));
        return length - run;
    case 3: /* a run twice */
        memmove(text + at + run, text + at, (size_t)most);
        return length + run;
    default: /* a bit flipped */
        text[at] ^= (char)(1 << draw(random, 8));
        return length;
    }
}

/* Whatever can be read can be lowered, proven or refused, and written. */
static void use(struct sl_schedule *schedule) {
    static char text[TABLE_BYTES];
    struct sl_error error = {0};
    int slots = 0, status = sl_schedule_lower(schedule, &error);
    if (status == SL_OK) status = sl_schedule_slots(schedule, 1, &slots, &error);
    if (status == SL_OK) status = sl_schedule_check(schedule, slots, 1, NULL, &error);
    if (status) assert_int_equal(status, SL_BAD_INPUT);
    if (status) assert_true(error.message[0]);
    if (status == SL_OK) write_table(schedule, text);
}

static void mutated_files_are_read_or_refused(void **state) {
    (void)state;
    static struct table_file file[TABLE_FILES];
    static char text[2 * TABLE_BYTES];
    const int files = list_tables(file);
    unsigned random = 20240521;
    int read = 0;
    for (int round = 0; round < 4000; round++) {
        struct sl_schedule schedule;
        struct sl_error error = {0};
        int length = read_bytes(file[draw(&random, (unsigned)files)].path, text);
        assert_true(length > 0);
        for (unsigned changes = 1 + draw(&random, 2) * draw(&random, 6); changes > 0; changes--)
            length = mutate(text, length, &random);
        put(text, (size_t)length);
        const int status = sl_schedule_read_csv(&schedule, path, &error);
        if (status == SL_OK) {
            read++;
            use(&schedule);
            sl_schedule_free(&schedule);
            continue;
        }
        assert_int_equal(status, SL_BAD_INPUT);
        assert_memory_equal(error.message, path, strlen(path));
        assert_true(strlen(error.message) > strlen(path));
        assert_null(strchr(error.message, '\n'));
    }
    assert_in_range(read, 100, 3900); /* both happen */
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pytorchs_files_are_read_and_written),
        cmocka_unit_test(communication_is_left_out),
        cmocka_unit_test(generated_tables_come_back),
        cmocka_unit_test(unusual_files_are_read),
        cmocka_unit_test(a_full_disk_is_noticed),
        cmocka_unit_test(large_tables_come_back),
        cmocka_unit_test(pairs_of_sharded_tables),
        cmocka_unit_test(malformed_files_are_refused),
        cmocka_unit_test(what_is_no_file_is_refused),
        cmocka_unit_test(mutated_files_are_read_or_refused),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
