/* test_machine_file.c - files of machines: an error message for each fault. */
#include "tests/rigs/changes.h"
#include "tests/rigs/one_file.h"

#include "drivers/tools/machine/machine_file.h"

static const char sound[] =
    "{\"name\": \"two nodes\",\n"
    "\"nodes\": [{\"count\": 2, \"places\": 4}],\n"
    "\"products\": [[\"f32\", 8, 9, 10, \"NT\", 100]],\n"
    "\"kernels\": {\"moves\": 100, \"norms\": 50, \"gelu\": 25, \"softmax\": 20, \"dropout\": 20, \"optimizer\": 10},\n"
    "\"attention_gflops\": 700, \"action_us\": 2, \"far_gb_per_s\": 1,\n"
    "\"links\": {\"package\": {\"latency_us\": 5, \"gb_per_s\": 100}},\n"
    "\"memory\": [[1, 100], [10, 50]],\n"
    "\"waiting\": {\"wake_us\": 3}, \"tied\": {\"call_us\": 4}, \"roaming\": {}}\n";

#define PRODUCT(row) "[[\"f32\", 8, 9, 10, \"NT\", 100]]", row, "a row of \"products\" must be"

#define ROAMING(rows, text) {"\"roaming\": {}", "\"roaming\": {\"calls\": " rows "}", text}
#define CALLS "roaming: a row of \"calls\" must be [members, us, gb_per_s]"

static const struct change changes[] = {
    {"{\"name\"", "[]{\"name\"", "end of file expected"},
    {"\"name\": \"two nodes\"", "\"name\": 7", "\"name\" must be a text"},
    {"\"name\": \"two nodes\"", "\"name\": \"a\\u0001b\\u007f\"", NULL},
    {"\"action_us\"", "\"actions\"", "a machine has a key \"actions\""},
    {"\"action_us\": 2", "\"action_us\": \"2\"", "\"action_us\" must be a number from 0 to 1e+09"},
    {"\"action_us\": 2", "\"action_us\": -1", "\"action_us\" must be a number"},
    {"\"action_us\": 2", "\"action_us\": 1e10", "\"action_us\" must be a number"},
    {"\"far_gb_per_s\": 1", "\"far_gb_per_s\": 0", "\"far_gb_per_s\" must be a number"},
    {"\"attention_gflops\": 700,", "", "a machine must have \"attention_gflops\""},
    {"\"attention_gflops\": 700", "\"attention_gflops\": []", "\"attention_gflops\" must be a number"},
    /* nodes */
    {"[{\"count\": 2, \"places\": 4}]", "4", "\"nodes\" must be a list of 1 to"},
    {"[{\"count\": 2, \"places\": 4}]", "[]", "\"nodes\" must be a list of 1 to"},
    {"[{\"count\": 2, \"places\": 4}]", "[[]]", "an object of \"nodes\" must be an object with count, places"},
    {"\"count\": 2", "\"count\": 1.5", "\"count\" must be a whole number from 1 to 1048576"},
    {"\"count\": 2", "\"count\": 0", "\"count\" must be a whole number"},
    {"\"count\": 2", "\"count\": 1048577", "\"count\" must be a whole number"},
    {"\"places\": 4", "\"places\": \"4\"", "\"places\" must be a whole number"},
    {"\"places\": 4", "\"core\": -1", "\"core\" must be a whole number from 0"},
    {"\"places\": 4", "\"gpus\": -1", "\"gpus\" must be a whole number from 0"},
    {"\"places\": 4", "\"package\": -1", "\"package\" must be a whole number from 0"},
    {"\"places\": 4", "\"memory_gb\": -1", "\"memory_gb\" must be a number from 0"},
    {"\"places\": 4", "\"speed\": 0", "\"speed\" must be a number from 1e-06"},
    {"\"places\": 4", "\"shares\": 1", "\"shares\" must be true or false"},
    {"\"places\": 4", "\"places\": 4, \"speeds\": 1", "\"speeds\" must be a list of at most 4 numbers"},
    {"\"places\": 4", "\"places\": 4, \"speeds\": [1, 1, 1, 1, 1]", "\"speeds\" must be a list of at most 4 numbers"},
    {"\"places\": 4", "\"places\": 4, \"speeds\": [1, \"1\"]", "each of \"speeds\" must be a number"},
    {"\"places\": 4", "\"places\": 4, \"speeds\": [0]", "each of \"speeds\" must be a number"},
    {"\"places\": 4", "\"places\": 4, \"speeds\": [2e6]", "each of \"speeds\" must be a number"},
    {"\"places\": 4", "\"places\": 99999, \"speeds\": [1, 2]", NULL},
    /* products */
    {PRODUCT("[7]")},
    {PRODUCT("[[\"f32\", 8, 9, 10, \"NT\"]]")},
    {PRODUCT("[[\"f32\", 8, 9, \"10\", \"NT\", 100]]")},
    {PRODUCT("[[\"f32\", 0, 9, 10, \"NT\", 100]]")},
    {PRODUCT("[[\"f32\", 8, 0, 10, \"NT\", 100]]")},
    {PRODUCT("[[\"f32\", 8, 9, 0, \"NT\", 100]]")},
    {PRODUCT("[[\"f32\", 2000000000, 9, 10, \"NT\", 100]]")},
    {PRODUCT("[[\"f32\", 8, 2000000000, 10, \"NT\", 100]]")},
    {PRODUCT("[[\"f32\", 8, 9, 2000000000, \"NT\", 100]]")},
    {PRODUCT("[[\"f32\", 8, 9, 10, \"N\", 100]]")},
    {PRODUCT("[[\"f32\", 8, 9, 10, \"NX\", 100]]")},
    {PRODUCT("[[\"f64\", 8, 9, 10, \"NT\", 100]]")},
    {PRODUCT("[[\"f32\", 8, 9, 10, \"NT\", 0]]")},
    {PRODUCT("[[\"f32\", 8, 9, 10, \"NT\", 1e12]]")},
    {"[[\"f32\", 8, 9, 10, \"NT\", 100]]", "7", "\"products\" must be a list of 1 to"},
    {"[[\"f32\", 8, 9, 10, \"NT\", 100]]", "[]", "\"products\" must be a list of 1 to"},
    {"[[\"f32\", 8, 9, 10, \"NT\", 100]]", "[[\"bf16\", 8, 9, 10, \"TN\", 100]]", NULL},
    /* kernels and links */
    {"\"moves\": 100, ", "", "\"kernels\" lacks \"moves\""},
    {"\"moves\": 100", "\"moves\": 0", "kernels: \"moves\" must be a number"},
    {"\"moves\": 100", "\"moved\": 100", "\"kernels\" has a key \"moved\""},
    {"{\"package\": {\"latency_us\": 5, \"gb_per_s\": 100}}", "{}", "\"links\" must have one of the links"},
    {"{\"package\": {\"latency_us\": 5, \"gb_per_s\": 100}}", "[]", "\"links\" must be an object with"},
    {"{\"latency_us\": 5, \"gb_per_s\": 100}", "{\"latency_us\": 5}", "\"links\" lacks \"gb_per_s\" of \"package\""},
    {"{\"latency_us\": 5, \"gb_per_s\": 100}", "{\"latency_us\": -5}", "package: \"latency_us\" must be a number"},
    {"{\"latency_us\": 5, \"gb_per_s\": 100}", "{\"gb_per_s\": 0}", "package: \"gb_per_s\" must be a number"},
    {"{\"latency_us\": 5, \"gb_per_s\": 100}", "{\"gb\": 1}", "package has a key \"gb\""},
    /* memory and waits */
    {"[[1, 100], [10, 50]]", "{}", "\"memory\" must be a list of at most"},
    {"[[1, 100], [10, 50]]", "[7]", "a row of \"memory\" must be [MB, GB/s]"},
    {"[[1, 100], [10, 50]]", "[[1]]", "a row of \"memory\" must be"},
    {"[[1, 100], [10, 50]]", "[[1, \"2\"]]", "a row of \"memory\" must be"},
    {"[[1, 100], [10, 50]]", "[[1, 100], [1, 50]]", "with more MB than the one before"},
    {"[[1, 100], [10, 50]]", "[[1e10, 100]]", "a row of \"memory\" must be"},
    {"[[1, 100], [10, 50]]", "[[1, 0]]", "a row of \"memory\" must be"},
    {"[[1, 100], [10, 50]]", "[[1, 1e10]]", "a row of \"memory\" must be"},
    {"{\"wake_us\": 3}", "7", "waiting must be an object with wake_us"},
    {"{\"wake_us\": 3}", "{\"nap_us\": -1}", "waiting: \"nap_us\" must be a number"},
    {"{\"call_us\": 4}", "{\"wake_us\": 4}", "tied has a key \"wake_us\""},
    {"\"roaming\": {}", "\"roaming\": []", "roaming must be an object with message_us"},
    {"\"roaming\": {}", "\"roaming\": {\"idle\": 1}", "roaming: \"idle\" must be a number from 0 to 0.9"},
    {"{\"wake_us\": 3}", "{\"spread\": 2}", "waiting: \"spread\" must be a number from 0 to 1"},
    ROAMING("7", "roaming: \"calls\" must be a list of at most 16 rows"),
    ROAMING("[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]",
            "\"calls\" must be a list of at most 16 rows"),
    ROAMING("[7]", CALLS),
    ROAMING("[[2]]", CALLS),
    ROAMING("[2, 20]", CALLS),
    ROAMING("[[2.5, 20]]", CALLS),
    ROAMING("[[2, 20, 1, 1]]", CALLS),
    ROAMING("[[2, \"1\"]]", CALLS),
    ROAMING("[[2, 1, \"1\"]]", CALLS),
    ROAMING("[[1, 1]]", CALLS),
    ROAMING("[[4, 1], [4, 2]]", CALLS),
    ROAMING("[[2000000, 1]]", CALLS),
    ROAMING("[[2, -1]]", CALLS),
    ROAMING("[[2, 1e10]]", CALLS),
    ROAMING("[[2, 1, -1]]", CALLS),
    ROAMING("[[2, 1, 1e10]]", CALLS),
};

static int try(const char *file, void *arg, struct sl_error *error) { return sl_machine_read(arg, file, error); }

static void what_is_wrong_is_said(void **state) {
    (void)state;
    static struct sl_machine machine;
    EXPECT_CHANGES(path, sound, changes, try, &machine);
}

/* Expects LINE for a list with COUNT elements, which are too many. */
static void expect_too_many(const char *list, const char *row, int count, const char *line) {
    static struct sl_machine machine;
    char *rows = calloc((size_t)count, strlen(row) + 2), *to = rows;
    assert_non_null(rows);
    for (int i = 0; i < count; i++) to += sprintf(to, "%s%s", i ? "," : "[", row);
    strcpy(to, "]");
    EXPECT_CHANGES(path, sound, ((const struct change[]){{list, rows, line}}), try, &machine);
    free(rows);
}

static void lists_have_limits(void **state) {
    (void)state;
    expect_too_many("[[\"f32\", 8, 9, 10, \"NT\", 100]]", "[\"f32\",8,9,10,\"NT\",100]", SL_MACHINE_PRODUCTS + 1,
                    "\"products\" must be a list of 1 to");
    expect_too_many("[[1, 100], [10, 50]]", "[1,1]", SL_MACHINE_SIZES + 1, "\"memory\" must be a list of at most");
    expect_too_many("[{\"count\": 2, \"places\": 4}]", "{}", SL_MACHINE_NODES + 1, "\"nodes\" must be a list of 1 to");
}

/* Written files are read again, and are the same; with speeds of all places, of some, of none. */
static void what_is_written_is_read(void **state) {
    (void)state;
    static const struct change speeds[] = {{"\"places\": 4", "\"places\": 4, \"speeds\": [1, 2, 3, 4]", NULL},
                                           {"\"places\": 4", "\"places\": 4, \"speeds\": [1, 2]", NULL},
                                           {"\"NT\", 100]]", "\"NT\", 100], [\"bf16\", 8, 9, 10, \"TN\", 50]]", NULL}};
    static struct sl_machine machine, again;
    for (int i = 0; i < 3; i++) {
        struct sl_error error = {0};
        expect_changes(path, sound, &speeds[i], 1, try, &machine);
        assert_int_equal(sl_machine_write(&machine, path, &error), SL_OK);
        assert_int_equal(sl_machine_read(&again, path, &error), SL_OK);
        assert_string_equal(again.name, machine.name);
        for (int s = 0; s < 5; s++) assert_true(again.nodes[0].speeds[s] == machine.nodes[0].speeds[s]);
        assert_int_equal(again.nodes[0].count, 2);
        assert_int_equal(again.sizes, 2);
        assert_true(again.product[0].b_transposed && !again.product[0].a_transposed);
        assert_int_equal(sl_machine_write(&machine, "/nowhere/file", &error), SL_BAD_INPUT);
        assert_non_null(strstr(error.message, "/nowhere/file: No such file or directory"));
    }
}

static void all_places_have_speeds(void **state) {
    (void)state;
    static struct sl_machine machine;
    struct sl_error error = {0};
    char speeds[600] = "\"places\": 99999, \"speeds\": [1";
    for (int i = 1; i < SL_MACHINE_SPEEDS; i++) strcat(speeds, ",2");
    strcat(speeds, "]");
    EXPECT_CHANGES(path, sound, ((const struct change[]){{"\"places\": 4", speeds, NULL}}), try, &machine);
    assert_int_equal(sl_machine_write(&machine, path, &error), SL_OK);
    assert_int_equal(sl_machine_read(&machine, path, &error), SL_OK);
    assert_true(machine.nodes[0].speeds[SL_MACHINE_SPEEDS - 1] == 2);
}

static int make_files(void **state) {
    (void)state;
    return make_one_file("test_machine_file");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_wrong_is_said),
        cmocka_unit_test(lists_have_limits),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(all_places_have_speeds),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, make_files, remove_one_file);
}
