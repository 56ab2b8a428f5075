/* test_process_memory.c - the kernel's files about memory, and processes with too little of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "drivers/memory/fit.h"
#include "spmd/device/device.h"

static FILE *file_of(const char *text) {
    FILE *file = tmpfile();
    assert_non_null(file);
    fputs(text, file);
    rewind(file);
    return file;
}

/* ---- mappings ---- */

static void mappings_are_sorted_by_what_they_are_for(void **state) {
    (void)state;
    static const char text[] =
        "5500000000-5500001000 r--p 00000000 08:01 11      /usr/bin/program\n"
        "Size:                  4 kB\nRss:                   4 kB\nPss:  4 kB\n"
        "5500001000-5500003000 rw-p 00001000 08:01 11      /usr/bin/program\nRss:   8 kB\n"
        "5600000000-5600100000 rw-p 00000000 00:00 0       [heap]\nRss:  100 kB\n"
        "7e00000000-7e00100000 r--s 00000000 08:01 12      /data/a file of tokens\nRss: 200 kB\n"
        "7e10000000-7e10100000 rw-s 00000000 00:05 13      /dev/shm/ring (deleted)\nRss: 300 kB\n"
        "7f00000000-7f00001000 ---p 00000000 00:00 0 \nRss: 0 kB\n"
        "7f00001000-7f00801000 rw-p 00000000 00:00 0 \nRss: 20 kB\n"
        "7f10000000-7f10010000 rwxp 00000000 00:00 0 \nRss: 40 kB\n"
        "7f20000000-7f21000000 rw-p 00000000 00:00 0 \nRss: 1000 kB\n"
        "7f30000000-7f30100000 r-xp 00000000 08:01 14      /usr/lib/libc.so.6\nRss: 400 kB\n"
        "7ffc0000000-7ffc0021000 rw-p 00000000 00:00 0     [stack]\nRss: 16 kB\n"
        "7ffc0100000-7ffc0102000 r-xp 00000000 00:00 0     [vdso]\nRss: 4 kB\n";
    struct sl_process_memory memory;
    double others;
    FILE *file = file_of(text);
    assert_true(sl_process_memory_parse(file, &memory, &others));
    fclose(file);
    const double *part = memory.part;
    assert_true(part[SL_PROCESS_LIBRARIES] == 1024 * (4 + 8 + 400 + 4));
    assert_true(part[SL_PROCESS_FILES] == 1024 * 200);
    assert_true(part[SL_PROCESS_SHARED] == 1024 * 300);
    assert_true(part[SL_PROCESS_STACKS] == 1024 * (20 + 16));
    assert_true(part[SL_PROCESS_CODE] == 1024 * 40);
    assert_true(others == 1024 * (100 + 1000));
    assert_true(memory.resident == 1024 * 2092);
}

static void what_is_no_list_of_mappings_tells_nothing(void **state) {
    (void)state;
    static const char *const text[] = {"", "Rss: 12 kB\n", "no list\n", "55-66 r--p\n",
                                       "55-66 r--p 0 08:01 11 /a\nRss: x kB\n"};
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        struct sl_process_memory memory;
        double others;
        FILE *file = file_of(text[i]);
        assert_false(sl_process_memory_parse(file, &memory, &others));
        assert_true(memory.resident == 0);
        fclose(file);
    }
}

static void this_process_knows_what_it_is(void **state) {
    (void)state;
    const struct sl_process_memory memory = sl_process_memory_now(0);
    assert_true(memory.resident > 1e5 && memory.part[SL_PROCESS_LIBRARIES] > 1e5);
    assert_true(sl_peak_bytes() > 1e5);
}

/* ---- limits ---- */

static double found(const char *text, const char *key) {
    FILE *file = file_of(text);
    const double number = sl_limits_find(file, key);
    fclose(file);
    return number;
}

static void numbers_are_found_by_their_key(void **state) {
    (void)state;
    static const char meminfo[] = "MemTotal:       2000 kB\nMemAvailable:   1000 kB\nHugePages_Total:       7\n";
    assert_true(found(meminfo, "MemAvailable") == 1024000);
    assert_true(found(meminfo, "HugePages_Total") == 7);
    assert_true(isnan(found(meminfo, "Mem")));
    assert_true(found("cache 5\ninactive_file 123456\n", "inactive_file") == 123456);
    assert_true(isnan(found("inactive_file -3\n", "inactive_file")));
    assert_true(isnan(found("inactive_file nan\n", "inactive_file")));
    assert_true(isnan(found("", "MemTotal")));
}

static void expect_group(const char *text, const char *wanted, bool unified) {
    char path[64] = "";
    bool is_unified;
    FILE *file = file_of(text);
    assert_int_equal(sl_limits_find_group(file, path, sizeof path, &is_unified), wanted != NULL);
    if (wanted) assert_string_equal(path, wanted);
    if (wanted) assert_int_equal(is_unified, unified);
    fclose(file);
}

static void the_control_group_of_memory_is_found(void **state) {
    (void)state;
    expect_group("0::/user.slice/a b\n", "/user.slice/a b", true);
    expect_group("5:cpu:/x\n4:memory:/docker/1\n0::/\n", "/docker/1", false);
    expect_group("0::/\n4:cpu,memory:/docker/2\n", "/docker/2", false);
    expect_group("5:memoryless:/x\n", NULL, false);
    expect_group("nothing\n::\n4:memory\n4:memory:relative\n", NULL, false);
    expect_group("0::/a/path/that/is/longer/than/the/room/which/there/is/for/it/in/this/test\n", NULL, false);
}

static void this_machine_has_memory(void **state) {
    (void)state;
    const struct sl_limits limits = sl_limits_now();
    assert_true(limits.room[SL_LIMIT_MACHINE] > 1e6 && isfinite(limits.room[SL_LIMIT_MACHINE]));
    for (int i = 0; i < SL_LIMITS; i++) assert_true(limits.room[i] >= 0);
}

/* ---- who has too little ---- */

static struct sl_memory coordinate(double bytes, uint64_t host, uint64_t process) {
    struct sl_memory memory = {.host = host, .process = process, .looked = true};
    memory.planned.bytes[SL_MEMORY_KEPT] = (uint64_t)bytes;
    for (int i = 0; i < SL_LIMITS; i++) memory.limits.room[i] = memory.limits.whole[i] = INFINITY;
    return memory;
}

#define GB 1e9

static void processes_take_more_than_their_coordinates(void **state) {
    (void)state;
    struct sl_mesh mesh;
    struct sl_misfit misfit;
    assert_int_equal(sl_mesh_parse(&mesh, "a=3", NULL), SL_OK);
    if (sl_device.memory) return;
    struct sl_memory memory[] = {coordinate(1 * GB, 1, 1), coordinate(1 * GB, 1, 1), coordinate(2e6, 1, 2)};
    const double besides = sl_process_besides(2, 2 * GB) + sl_process_besides(1, 2e6);
    for (int c = 0; c < 3; c++) memory[c].limits.room[SL_LIMIT_CONTAINER] = 2 * GB + 2e6 + besides - 1;
    assert_false(sl_memory_fits(memory, &mesh, &misfit));
    assert_true(misfit.limit == SL_LIMIT_CONTAINER && misfit.besides == besides && misfit.others == 2);
    for (int c = 0; c < 3; c++) memory[c].limits.room[SL_LIMIT_CONTAINER] += 1;
    assert_true(sl_memory_fits(memory, &mesh, &misfit));
    assert_true(sl_process_besides(8, 10e6) < sl_process_besides(8, 1 * GB)); /* small models copy little */
}

static void coordinates_of_a_machine_share_it(void **state) {
    (void)state;
    struct sl_mesh mesh;
    struct sl_misfit misfit;
    assert_int_equal(sl_mesh_parse(&mesh, "a=4", NULL), SL_OK);
    if (sl_device.memory) return; /* theirs is the device's */
    struct sl_memory memory[] = {coordinate(10 * GB, 1, 1), coordinate(20 * GB, 1, 2), coordinate(50 * GB, 2, 1),
                                 coordinate(30 * GB, 2, 2)};
    const double besides = 2 * sl_process_besides(1, 30 * GB); /* of the two processes of a machine */
    assert_true(sl_memory_fits(memory, &mesh, &misfit));
    for (int c = 0; c < 4; c++) memory[c].limits.room[SL_LIMIT_MACHINE] = 80 * GB + besides;
    assert_true(sl_memory_fits(memory, &mesh, &misfit));
    memory[3].limits.room[SL_LIMIT_MACHINE] = 79 * GB; /* a limit seen by one of them holds for all */
    assert_false(sl_memory_fits(memory, &mesh, &misfit));
    assert_true(misfit.limit == SL_LIMIT_MACHINE && misfit.need == 80 * GB + besides && misfit.room == 79 * GB);
    assert_true(misfit.besides == besides);
    assert_true(misfit.fullest == 2 && misfit.others == 1 && misfit.most == 50 * GB);
    memory[1].limits.room[SL_LIMIT_MACHINE] = 3 * GB; /* farther away: ten times too much */
    memory[1].limits.room[SL_LIMIT_DATA] = 2 * GB;
    assert_false(sl_memory_fits(memory, &mesh, &misfit));
    assert_true(misfit.limit == SL_LIMIT_MACHINE && misfit.fullest == 1 && misfit.others == 1 &&
                misfit.need == 30 * GB + besides);
    for (int c = 0; c < 4; c++) memory[c].limits.room[SL_LIMIT_MACHINE] = 80 * GB + besides;
    assert_false(sl_memory_fits(memory, &mesh, &misfit));
    assert_true(misfit.limit == SL_LIMIT_DATA && misfit.fullest == 1 && misfit.others == 0 &&
                misfit.need == 20 * GB); /* it has its own */
    memory[1].looked = false;
    assert_true(sl_memory_fits(memory, &mesh, &misfit));
}

static void lines_have_units(void **state) {
    (void)state;
    char text[128], bytes[32];
    assert_string_equal(sl_bytes_describe(12.34e6, bytes, sizeof bytes), "12.3 MB");
    assert_string_equal(sl_bytes_describe(1.25e9, bytes, sizeof bytes), "1.25 GB");
    assert_string_equal(sl_limit_describe(SL_LIMIT_CONTAINER, 1e8, 2e9, text, sizeof text),
                        "the control group of this process has 100.0 MB free of 2.00 GB");
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mappings_are_sorted_by_what_they_are_for),
        cmocka_unit_test(what_is_no_list_of_mappings_tells_nothing),
        cmocka_unit_test(this_process_knows_what_it_is),
        cmocka_unit_test(numbers_are_found_by_their_key),
        cmocka_unit_test(the_control_group_of_memory_is_found),
        cmocka_unit_test(this_machine_has_memory),
        cmocka_unit_test(coordinates_of_a_machine_share_it),
        cmocka_unit_test(processes_take_more_than_their_coordinates),
        cmocka_unit_test(lines_have_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
