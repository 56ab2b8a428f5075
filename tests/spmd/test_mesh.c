/* test_mesh.c - meshes, errors, and a program's queries about itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <ctype.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/engine.h"
#include "spmd/random.h"
#include "spmd/ranges.h"

enum { MOST_COORDINATES = 64 }; /* of its meshes */

/* Uniform in [0, n), the same in every run. */
static uint32_t draw(uint32_t n) {
    static uint32_t count;
    return sl_random_word(sl_key_of_seed(1), UINT32_MAX, count++) % n;
}

static void random_mesh(struct sl_mesh *mesh) {
    *mesh = (struct sl_mesh){.axes = (int)draw(SL_MAX_AXES) + 1, .size = 1};
    for (int axis = 0; axis < mesh->axes; axis++) {
        snprintf(mesh->axis[axis].name, SL_AXIS_NAME, "%c_%d", "abZ"[draw(3)], axis);
        mesh->axis[axis].size = 1 + (int)draw((uint32_t)(MOST_COORDINATES / mesh->size > 7 ? 7 : 1));
        mesh->size *= mesh->axis[axis].size;
    }
}

/* Every coordinate's indices, by counting. */
static void count_indices(const struct sl_mesh *mesh, int index[MOST_COORDINATES][SL_MAX_AXES]) {
    int digits[SL_MAX_AXES] = {0};
    for (int coordinate = 0; coordinate < mesh->size; coordinate++) {
        memcpy(index[coordinate], digits, sizeof digits);
        for (int axis = mesh->axes - 1; axis >= 0 && ++digits[axis] == mesh->axis[axis].size; axis--) digits[axis] = 0;
    }
}

static void test_numbering(void **state) {
    (void)state;
    for (int round = 0; round < 300; round++) {
        struct sl_mesh mesh;
        int index[MOST_COORDINATES][SL_MAX_AXES];
        random_mesh(&mesh);
        count_indices(&mesh, index);
        assert_int_equal(sl_mesh_check(&mesh, NULL), SL_OK);
        for (int coordinate = 0; coordinate < mesh.size; coordinate++) {
            struct sl_spmd self = {.mesh = &mesh, .coordinate = coordinate};
            for (int axis = 0; axis < mesh.axes; axis++) {
                const char *name = mesh.axis[axis].name;
                assert_int_equal(sl_mesh_find_axis(&mesh, name), axis);
                assert_int_equal(sl_mesh_axis_size(&mesh, name), mesh.axis[axis].size);
                assert_int_equal(sl_mesh_index(&mesh, coordinate, axis), index[coordinate][axis]);
                assert_int_equal(sl_axis_index(&self, name), index[coordinate][axis]);
                assert_int_equal(sl_axis_size(&self, name), mesh.axis[axis].size);
                for (int i = 0; i < mesh.axis[axis].size; i++) {
                    const int other = sl_mesh_neighbour(&mesh, coordinate, axis, i);
                    assert_in_range(other, 0, mesh.size - 1);
                    for (int a = 0; a < mesh.axes; a++) {
                        assert_int_equal(index[other][a], a == axis ? i : index[coordinate][a]);
                    }
                }
            }
            assert_int_equal(sl_axis_index(&self, "absent"), 0);
            assert_int_equal(sl_axis_size(&self, "absent"), 1);
        }
    }
}

static void test_members(void **state) {
    (void)state;
    for (int round = 0; round < 500; round++) {
        struct sl_mesh mesh;
        int index[MOST_COORDINATES][SL_MAX_AXES];
        struct sl_members members;
        random_mesh(&mesh);
        count_indices(&mesh, index);
        char axes[SL_MAX_AXES * SL_AXIS_NAME] = "";
        bool varies[SL_MAX_AXES];
        for (int k = 0, start = (int)draw((uint32_t)mesh.axes); k < mesh.axes; k++) { /* any order */
            const int axis = (start + k) % mesh.axes;
            varies[axis] = draw(2);
            if (varies[axis]) sprintf(axes + strlen(axes), "%s%s", *axes ? "," : "", mesh.axis[axis].name);
        }
        const int coordinate = (int)draw((uint32_t)mesh.size);
        int expected = 0;
        const int count = sl_mesh_members(&mesh, coordinate, axes, &members);
        for (int other = 0; other < mesh.size; other++) {
            bool together = true;
            for (int a = 0; a < mesh.axes; a++) together &= varies[a] || index[other][a] == index[coordinate][a];
            if (together) assert_int_equal(sl_member_at(&members, expected++), other);
        }
        assert_int_equal(count, expected);
        assert_int_equal(sl_mesh_members(&mesh, coordinate, "*", &members), mesh.size);
        for (int i = 0; i < mesh.size; i++) assert_int_equal(sl_member_at(&members, i), i);
        assert_int_equal(sl_mesh_members(&mesh, coordinate, "absent", &members), -1);
        strcat(axes, ",");
        assert_int_equal(sl_mesh_members(&mesh, coordinate, axes, &members), -1);
    }
}

static void test_text(void **state) {
    (void)state;
    struct sl_mesh mesh, again;
    char text[400], cut[8];
    assert_int_equal(sl_mesh_parse(&mesh, "data=2,model=4", NULL), SL_OK);
    assert_int_equal(mesh.size, 8);
    assert_string_equal(sl_mesh_describe(&mesh, 5, text, sizeof text), "5 (data=1, model=1)");
    assert_string_equal(sl_mesh_describe(&mesh, 5, cut, sizeof cut), "5 (data");
    assert_string_equal(sl_mesh_print(&mesh, cut, sizeof cut), "data=2,");
    for (int round = 0; round < 300; round++) {
        random_mesh(&mesh);
        assert_int_equal(sl_mesh_parse(&again, sl_mesh_print(&mesh, text, sizeof text), NULL), SL_OK);
        assert_int_equal(again.axes, mesh.axes);
        assert_int_equal(again.size, mesh.size);
        for (int axis = 0; axis < mesh.axes; axis++) {
            assert_string_equal(again.axis[axis].name, mesh.axis[axis].name);
            assert_int_equal(again.axis[axis].size, mesh.axis[axis].size);
        }
    }
}

static void test_bad_meshes(void **state) {
    (void)state;
    static const char *const bad[][2] = {
        {"", "NAME=SIZE"},
        {"data", "'data' is not NAME=SIZE"},
        {"=2", "'=2'"},
        {"data=", "1 to 1048576"},
        {"data=0", "'data=0' is not a number from 1 to 1048576"},
        {"data=1048577", "'data=1048577'"},
        {"data=-1", "'data=-1'"},
        {"data=2x", "'data=2x'"},
        {"data=99999999999999999999", "1 to 1048576"},
        {"data=1024,model=1025", "more than 1048576 coordinates"},
        {"a=1048576,b=1048576", "more than 1048576 coordinates"},
        {"data=2,", "''"},
        {"data=2,,model=2", "''"},
        {"data=2,data=4", "names the axis 'data' twice"},
        {"2data=2", "'2data=2'"},
        {"da ta=2", "'da ta=2'"},
        {" data=2", "' data=2'"},
        {"abcdefghijklmnopqrstuvwx=2", "longer than 23"},
        {"a=1,b=1,c=1,d=1,e=1,f=1,g=1", "more than 6 axes"},
        {"data=2\nmodel=4", "data=2?model=4"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sl_mesh mesh;
        struct sl_error error = {0};
        assert_int_equal(sl_mesh_parse(&mesh, bad[i][0], &error), SL_BAD_INPUT);
        assert_int_equal(error.status, SL_BAD_INPUT);
        if (!strstr(error.message, bad[i][1])) fail_msg("'%s': %s", bad[i][0], error.message);
    }
    struct sl_mesh mesh;
    assert_int_equal(sl_mesh_parse(&mesh, "abcdefghijklmnopqrstuvw=64", NULL), SL_OK);
}

/* Strings that are nearly meshes: accepted exactly if the grammar and the limits allow them. */
static void test_parse_fuzz(void **state) {
    (void)state;
    regex_t grammar;
    assert_int_equal(regcomp(&grammar,
                             "^[A-Za-z][A-Za-z0-9_]*=0*[1-9][0-9]{0,6}(,[A-Za-z][A-Za-z0-9_]*=0*[1-9][0-9]{0,6})*$",
                             REG_EXTENDED | REG_NOSUB),
                     0);
    int accepted = 0;
    for (int round = 0; round < 30000; round++) {
        struct sl_mesh mesh;
        char text[200], printed[200];
        random_mesh(&mesh);
        sl_mesh_print(&mesh, text, sizeof text);
        for (uint32_t edits = draw(3); edits > 0; edits--) {
            char *at = text + draw((uint32_t)strlen(text) + 1);
            if (draw(2) && *at) memmove(at, at + 1, strlen(at));
            if (draw(2)) {
                memmove(at + 1, at, strlen(at) + 1);
                *at = "=,a_059-+\n\x80 "[draw(12)];
            }
        }
        struct sl_error error = {0};
        const int status = sl_mesh_parse(&mesh, text, &error);
        if (status == SL_OK) {
            accepted++;
            assert_int_equal(regexec(&grammar, text, 0, NULL, 0), 0);
            assert_int_equal(sl_mesh_check(&mesh, NULL), SL_OK);
            assert_in_range(strlen(sl_mesh_print(&mesh, printed, sizeof printed)), 1, strlen(text));
        } else {
            assert_int_equal(status, SL_BAD_INPUT);
            assert_true(error.message[0]);
            for (const char *c = error.message; *c; c++) assert_false(iscntrl((unsigned char)*c));
        }
    }
    assert_in_range(accepted, 8000, 25000); /* the fuzz tries both sides */
    regfree(&grammar);
}

static void test_handmade_meshes(void **state) {
    (void)state;
    const struct sl_mesh good = {.axes = 2, .axis = {{"a", 3}, {"b", 2}}, .size = 6};
    struct sl_mesh bad[7];
    for (int i = 0; i < 7; i++) bad[i] = good;
    bad[0].axes = SL_MAX_AXES + 1;
    bad[1].size = 5;
    strcpy(bad[2].axis[1].name, "a");
    bad[3].axis[0].size = 0;
    bad[4].axis[0].size = 1 << 30;
    bad[5].axis[1].name[0] = 0;
    memset(bad[6].axis[1].name, 'x', SL_AXIS_NAME);
    assert_int_equal(sl_mesh_check(&good, NULL), SL_OK);
    for (int i = 0; i < 7; i++) assert_int_equal(sl_mesh_check(&bad[i], NULL), SL_BAD_INPUT);
}

/* Sets of coordinates in words: blocks by their axes, others by numbers, and texts cut to their room. */
static void test_ranges(void **state) {
    (void)state;
    struct sl_mesh mesh;
    char text[60], cut[12];
    uint64_t set[4] = {0};
    assert_int_equal(sl_mesh_parse(&mesh, "data=16,pipe=4,tensor=2", NULL), SL_OK);
    sl_set_adds(set, 13);
    assert_string_equal(sl_mesh_describe_set(&mesh, set, text, sizeof text), "data=1, pipe=2, tensor=1");
    for (int c = 0; c < mesh.size; c++)
        if (sl_mesh_index(&mesh, c, 1) == 3) sl_set_adds(set, c);
    assert_string_equal(sl_mesh_describe_set(&mesh, set, text, sizeof text),
                        "6-7, 13-15, 22-23, 30-31, 38-39, 46-47, 54-55, 62-63, 70...");
    assert_false(sl_set_adds(set, 13));
    set[0] ^= UINT64_C(1) << 13;
    assert_string_equal(sl_mesh_describe_set(&mesh, set, text, sizeof text), "data=0-15, pipe=3, tensor=0-1");
    assert_string_equal(sl_mesh_describe_set(&mesh, set, cut, sizeof cut), "data=0-1...");
    memset(set, 0, sizeof set);
    for (int c = 0; c < mesh.size; c++)
        if (sl_mesh_index(&mesh, c, 0) % 5 < 2 && !sl_mesh_index(&mesh, c, 2)) sl_set_adds(set, c);
    assert_string_equal(sl_mesh_describe_set(&mesh, set, text, sizeof text),
                        "data=0-1, 5-6, 10-11, 15, pipe=0-3, tensor=0");
}

static void test_errors(void **state) {
    (void)state;
    struct sl_error error;
    assert_int_equal(sl_error_set(NULL, SL_FAILED, "%d", 1), SL_FAILED);
    assert_int_equal(sl_error_set(&error, SL_FAILED, "two\nlines"), SL_FAILED);
    assert_string_equal(error.message, "two?lines");
    sl_error_set(&error, SL_BAD_INPUT, "coordinate %d: %s", 3, error.message);
    assert_string_equal(error.message, "coordinate 3: two?lines");
    assert_int_equal(error.status, SL_BAD_INPUT);
    sl_error_set(&error, SL_FAILED, "%1000d", 1);
    assert_int_equal(strlen(error.message), sizeof error.message - 1);

    struct sl_spmd self = {0};
    assert_int_equal(sl_fail(&self, SL_CHECK_FAILED, "first %d", 1), SL_CHECK_FAILED);
    assert_int_equal(sl_fail(&self, SL_FAILED, "second"), SL_FAILED);
    assert_string_equal(self.error.message, "first 1");
    assert_int_equal(self.error.status, SL_CHECK_FAILED);
}

static int runs;

static int count_run(const struct sl_mesh *mesh, const struct sl_engine *engine, sl_program *program, void *arg) {
    (void)mesh, (void)engine, (void)program, (void)arg;
    return runs++ ? SL_OK : SL_FAILED;
}

static int no_program(struct sl_spmd *self, void *arg) {
    (void)self, (void)arg;
    return SL_OK;
}

static void test_run_checks(void **state) {
    (void)state;
    const struct sl_engine_table table = {.name = "counting", .run = count_run};
    const struct sl_engine_table missing = {.name = "absent", .missing = "SL_ABSENT"};
    struct sl_mesh mesh, bad;
    struct sl_error error = {0};
    struct sl_engine engine = {.table = &table, .timeout = 1, .error = &error};
    sl_mesh_parse(&mesh, "data=2,model=3", NULL);
    bad = mesh;
    bad.size = 7;

    assert_int_equal(sl_run(&mesh, &engine, no_program, NULL), SL_FAILED); /* the table's own status */
    assert_int_equal(sl_run(&mesh, &engine, no_program, NULL), SL_OK);
    assert_int_equal(runs, 2);
    assert_int_equal(sl_run(&bad, &engine, no_program, NULL), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "7"));
    assert_int_equal(sl_run(&mesh, &engine, NULL, NULL), SL_BAD_INPUT);
    assert_int_equal(sl_run(NULL, &engine, no_program, NULL), SL_BAD_INPUT);
    engine.timeout = 0;
    assert_int_equal(sl_run(&mesh, &engine, no_program, NULL), SL_BAD_INPUT);
    engine.timeout = 1;
    engine.table = &missing;
    assert_int_equal(sl_run(&mesh, &engine, no_program, NULL), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "-DSL_ABSENT=ON"));
    engine.table = NULL;
    assert_int_equal(sl_run(&mesh, &engine, no_program, NULL), SL_BAD_INPUT);
    assert_int_equal(runs, 2);
}

/* Invalid arguments: meshes made by hand, and rooms that are too small. */
static void test_careless_callers(void **state) {
    (void)state;
    struct sl_mesh mesh, bad;
    struct sl_error error = {0};
    char none[1] = {'x'}, one[1], text[100], names[200];
    struct sl_members members;
    sl_mesh_parse(&mesh, "data=2,model=3", NULL);
    bad = mesh;
    bad.axes = -1;
    assert_int_equal(sl_mesh_check(&bad, &error), SL_BAD_INPUT);
    bad = mesh;
    bad.axis[0].name[0] = 0;
    assert_int_equal(sl_mesh_check(&bad, &error), SL_BAD_INPUT);
    bad = mesh;
    memset(bad.axis[1].name, 'a', SL_AXIS_NAME);
    assert_int_equal(sl_mesh_check(&bad, &error), SL_BAD_INPUT);
    bad = mesh;
    memcpy(bad.axis[1].name, "a b", 4);
    assert_int_equal(sl_mesh_check(&bad, &error), SL_BAD_INPUT);
    bad = mesh;
    bad.axis[0].size = 0;
    assert_int_equal(sl_mesh_check(&bad, &error), SL_BAD_INPUT);
    bad.axis[0].size = SL_MOST_COORDINATES + 1;
    assert_int_equal(sl_mesh_check(&bad, &error), SL_BAD_INPUT);
    bad.axis[0].size = SL_MOST_COORDINATES;
    assert_int_equal(sl_mesh_check(&bad, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "a size of 3 along 'model'"));
    assert_string_equal(sl_mesh_print(&mesh, one, sizeof one), "");
    sl_mesh_print(&mesh, none, 0);
    assert_int_equal(none[0], 'x');
    bad = (struct sl_mesh){.size = 1};
    assert_string_equal(sl_mesh_describe(&bad, 0, text, sizeof text), "0");
    memset(names, 'a', sizeof names - 1);
    names[sizeof names - 1] = 0;
    assert_int_equal(sl_mesh_members(&mesh, 0, names, &members), -1);
    assert_int_equal(sl_mesh_parse(&bad, names, &error), SL_BAD_INPUT);
    names[100] = '=';
    assert_int_equal(sl_mesh_parse(&bad, names, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "is longer than"));
}

static void test_clock(void **state) {
    (void)state;
    const double start = sl_now();
    double now = start;
    while (now - start < 1e-3) {
        const double next = sl_now();
        assert_true(next >= now);
        now = next;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbering),
        cmocka_unit_test(test_members),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_bad_meshes),
        cmocka_unit_test(test_parse_fuzz),
        cmocka_unit_test(test_handmade_meshes),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_run_checks),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_careless_callers),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
