/* test_spec.c - partition specs against an oracle that deals elements out one by one. */
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

#include "spmd/random.h"
#include "spmd/spec.h"

enum { MOST_COORDINATES = 64 }; /* of its meshes */

/* Uniform in [0, n), the same in every run. */
static uint32_t draw(uint32_t n) {
    static uint32_t count;
    return sl_random_word(sl_key_of_seed(2), UINT32_MAX, count++) % n;
}

struct example {
    struct sl_mesh mesh;
    struct sl_spec spec;
    struct sl_array array; /* every element holds its own number */
    size_t elements, shards[SL_MAX_DIMS];
};

static const size_t element_size[] = {[SL_F32] = 4, [SL_BF16] = 2, [SL_I32] = 4, [SL_F16] = 2};

static uint32_t value_at(const struct sl_array *array, const void *data, size_t i) {
    return array->dtype == SL_BF16 ? ((const uint16_t *)data)[i] : ((const uint32_t *)data)[i];
}

static void make_example(struct example *example) {
    struct sl_mesh *mesh = &example->mesh;
    struct sl_spec *spec = &example->spec;
    struct sl_array *array = &example->array;
    *example = (struct example){.mesh = {.axes = (int)draw(4) + 1, .size = 1}, .elements = 1};
    for (int axis = 0; axis < mesh->axes; axis++) {
        snprintf(mesh->axis[axis].name, SL_AXIS_NAME, "axis%d", axis);
        mesh->axis[axis].size = 1 + (int)draw((uint32_t)(MOST_COORDINATES / mesh->size > 5 ? 5 : 1));
        mesh->size *= mesh->axis[axis].size;
    }
    array->dtype = (enum sl_dtype)draw(3);
    array->dims = (int)draw(5);
    spec->dims = (int)draw((uint32_t)array->dims + 1);
    for (int d = 0; d < spec->dims; d++) spec->dim[d].segments = 1;
    for (int k = 0, start = (int)draw((uint32_t)mesh->axes); k < mesh->axes && spec->dims; k++) {
        const int axis = (start + k) % mesh->axes;
        struct sl_spec_dim *dim = &spec->dim[draw((uint32_t)spec->dims)];
        if (draw(4)) strcpy(dim->axis[dim->axes++], mesh->axis[axis].name);
        if (dim->axes) dim->segments = 1 + (int)draw(3);
    }
    for (int d = 0; d < array->dims; d++) {
        example->shards[d] = 1;
        const int segments = d < spec->dims ? spec->dim[d].segments : 1;
        for (int a = 0; d < spec->dims && a < spec->dim[d].axes; a++) {
            example->shards[d] *= (size_t)sl_mesh_axis_size(mesh, spec->dim[d].axis[a]);
        }
        array->shape[d] = example->shards[d] * (size_t)segments * (draw(30) ? 1 + draw(3) : 0);
        example->elements *= array->shape[d];
    }
    array->data = malloc(example->elements * element_size[array->dtype] + 1);
    for (size_t i = 0; i < example->elements; i++) {
        if (array->dtype == SL_BF16) ((uint16_t *)array->data)[i] = (uint16_t)i;
        if (array->dtype != SL_BF16) ((uint32_t *)array->data)[i] = (uint32_t)i;
    }
}

/* Returns the shard of dim D with index INDEX; *LOCAL is the index in it. */
static size_t deal_out(const struct example *example, int d, size_t index, size_t *local) {
    const size_t segments = d < example->spec.dims ? (size_t)example->spec.dim[d].segments : 1;
    const size_t padded = d < example->spec.dims ? example->spec.dim[d].padded : 0;
    const size_t segment = example->array.shape[d] / segments;
    const size_t piece = (padded ? padded : segment) / example->shards[d];
    *local = index / segment * piece + index % segment % piece;
    return index % segment / piece;
}

/* Returns the shard of dim D at COORDINATE. */
static size_t shard_held(const struct example *example, int d, int coordinate) {
    size_t held = 0;
    for (int a = 0; d < example->spec.dims && a < example->spec.dim[d].axes; a++) {
        const int axis = sl_mesh_find_axis(&example->mesh, example->spec.dim[d].axis[a]);
        held = held * (size_t)example->mesh.axis[axis].size + (size_t)sl_mesh_index(&example->mesh, coordinate, axis);
    }
    return held;
}

/* Fills EXPECTED with the numbers of the elements of COORDINATE's shard, in its order; returns how many. */
static size_t expect_shard(const struct example *example, int coordinate, size_t *expected) {
    const struct sl_array *array = &example->array;
    size_t count = 0;
    for (size_t i = 0; i < example->elements; i++) {
        size_t rest = i, place = 0, stride = 1;
        bool mine = true;
        for (int d = array->dims - 1; d >= 0; d--) {
            size_t local;
            mine &= deal_out(example, d, rest % array->shape[d], &local) == shard_held(example, d, coordinate);
            rest /= array->shape[d];
            place += local * stride;
            stride *= array->shape[d] / example->shards[d];
        }
        if (mine) expected[place] = i;
        count += mine;
    }
    return count;
}

static void check_example(const struct example *example) {
    const struct sl_array *array = &example->array;
    const struct sl_spec *spec = &example->spec;
    const struct sl_mesh *mesh = &example->mesh;
    const size_t size = element_size[array->dtype];
    size_t local[SL_MAX_DIMS], *expected = malloc(sizeof *expected * (example->elements + 1));
    int *first = malloc(sizeof *first * (example->elements + 1)); /* [element] its first coordinate */
    for (size_t i = 0; i < example->elements; i++) first[i] = -1;
    struct sl_array assembled = *array;
    assembled.data = malloc(example->elements * size + 1);
    memset(assembled.data, 0xee, example->elements * size + 1);

    assert_int_equal(sl_spec_local_shape(spec, mesh, array->dims, array->shape, local, NULL), SL_OK);
    assert_int_equal(sl_array_elements(array), example->elements);
    for (int coordinate = 0; coordinate < mesh->size; coordinate++) {
        const size_t count = expect_shard(example, coordinate, expected);
        size_t product = 1;
        for (int d = 0; d < array->dims; d++) product *= local[d];
        assert_true(spec->dims && spec->dim[0].padded ? product >= count : product == count);

        unsigned char *shard = malloc(count * size + 1);
        shard[count * size] = 0x5a;
        sl_spec_slice(spec, mesh, coordinate, array, shard);
        assert_int_equal(shard[count * size], 0x5a);
        const bool is_first = sl_spec_is_first_replica(spec, mesh, coordinate);
        const struct sl_shard place = sl_spec_shard(spec, mesh, coordinate, array->dims, array->shape);
        assert_int_equal(sl_shard_elements(&place), count);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(value_at(array, shard, i), value_at(array, array->data, expected[i]));
            assert_int_equal(sl_spec_global_index(spec, mesh, coordinate, array->dims, array->shape, i), expected[i]);
            if (i % sl_shard_run(&place)) assert_int_equal(expected[i], expected[i - 1] + 1);
            if (first[expected[i]] < 0) first[expected[i]] = coordinate;
            assert_int_equal(first[expected[i]] == coordinate, is_first);
            assert_int_equal(first[expected[i]], sl_spec_first_replica(spec, mesh, coordinate));
        }
        if (is_first) sl_spec_assemble(spec, mesh, coordinate, &assembled, shard);
        free(shard);
    }
    assert_memory_equal(assembled.data, array->data, example->elements * size);
    assert_int_equal(((unsigned char *)assembled.data)[example->elements * size], 0xee);
    free(assembled.data);
    free(expected);
    free(first);
}

/* Removes rows of the first dim, maybe all rows of the last shards; their room stays. */
static void take_rows(struct example *example) {
    size_t *rows = &example->array.shape[0];
    if (!example->spec.dims || example->spec.dim[0].segments > 1 || *rows == 0) return;
    example->spec.dim[0].padded = *rows;
    example->elements /= *rows;
    *rows -= draw((uint32_t)*rows + 1);
    example->elements *= *rows;
}

static void test_oracle(void **state) {
    (void)state;
    for (int round = 0; round < 2000; round++) {
        struct example example;
        do {
            make_example(&example);
            if (example.elements > 3000) free(example.array.data);
        } while (example.elements > 3000);
        if (round % 2) take_rows(&example);
        check_example(&example);
        free(example.array.data);
    }
}

/* [k|v] of two columns each over two coordinates: each gets one column of k and one of v. */
static void test_segments(void **state) {
    (void)state;
    struct sl_mesh mesh;
    struct sl_spec spec;
    int32_t data[2][4] = {{0, 1, 10, 11}, {2, 3, 12, 13}}, local[2][2];
    const struct sl_array array = {.dtype = SL_I32, .dims = 2, .shape = {2, 4}, .data = data};
    assert_int_equal(sl_mesh_parse(&mesh, "tensor=2", NULL), SL_OK);
    assert_int_equal(sl_spec_parse(&spec, "-,tensor*2", NULL), SL_OK);
    sl_spec_slice(&spec, &mesh, 1, &array, local);
    const int32_t expected[2][2] = {{1, 11}, {3, 13}};
    assert_memory_equal(local, expected, sizeof expected);
}

static void check_spec_refused(const char *mesh_text, const struct sl_spec *spec, int dims, const size_t *shape,
                               const char *first, const char *second) {
    struct sl_mesh mesh;
    struct sl_error error = {0};
    size_t local[SL_MAX_DIMS];
    assert_int_equal(sl_mesh_parse(&mesh, mesh_text, NULL), SL_OK);
    assert_int_equal(sl_spec_local_shape(spec, &mesh, dims, shape, local, &error), SL_BAD_INPUT);
    if (!strstr(error.message, first) || !strstr(error.message, second)) fail_msg("%s", error.message);
}

static void check_refused(const char *mesh_text, const char *text, int dims, const size_t *shape, const char *first,
                          const char *second) {
    struct sl_spec spec;
    assert_int_equal(sl_spec_parse(&spec, text, NULL), SL_OK);
    check_spec_refused(mesh_text, &spec, dims, shape, first, second);
}

static void check_padding(const char *text, int d, size_t padded, const char *first, const char *second) {
    const size_t shape[] = {10, 12};
    struct sl_spec spec;
    assert_int_equal(sl_spec_parse(&spec, text, NULL), SL_OK);
    spec.dim[d].padded = padded;
    check_spec_refused("a=2,b=4", &spec, 2, shape, first, second);
}

static void test_refused_shapes(void **state) {
    (void)state;
    const size_t shape[] = {10, 12, 7, 1, 1, 1, 1};
    check_refused("a=2,b=4", "b", 3, shape, "size 10", "4 shards");
    check_refused("a=2,b=4", "-,a+b", 3, shape, "size 12", "8 shards");
    check_refused("a=2,b=4", "-,a*5", 3, shape, "size 12", "5 segments");
    check_refused("a=2,b=4", "-,b*2", 3, shape, "size 6", "4 shards");
    check_refused("a=2,b=4", "-,-,a", 3, shape, "dim 2", "size 7");
    check_refused("a=2,b=4", "-,-,-,-", 3, shape, "4 dims", "has 3");
    check_refused("a=2,b=4", "-,model", 3, shape, "'model'", "a=2,b=4");
    check_refused("a=2,b=4", "a,a", 3, shape, "'a'", "twice");
    check_refused("a=2,b=4", "a+a", 3, shape, "'a'", "twice");
    check_refused("a=2,b=4", "a", 7, shape, "7 dims", "0 to 6");
    check_padding("a", 0, 9, "dim 0, of size 10", "padded to 9");
    check_padding("a", 0, 11, "size 11", "2 shards");
    check_padding("-,a", 1, 14, "dim 1", "the first dim");
    check_padding("a*2", 0, 12, "dim 0", "one segment");
}

/* Shapes that do not divide are refused, with both numbers in the message. */
static void test_random_refused(void **state) {
    (void)state;
    for (int round = 0; round < 500;) {
        struct example example;
        make_example(&example);
        free(example.array.data);
        if (!example.array.dims) continue;
        const int d = (int)draw((uint32_t)example.array.dims);
        const size_t parts = example.shards[d] * (size_t)(d < example.spec.dims ? example.spec.dim[d].segments : 1);
        if (parts < 2) continue;
        round++;
        example.array.shape[d] += 1 + draw((uint32_t)parts - 1);
        struct sl_error error = {0};
        size_t local[SL_MAX_DIMS];
        assert_int_equal(
            sl_spec_local_shape(&example.spec, &example.mesh, example.array.dims, example.array.shape, local, &error),
            SL_BAD_INPUT);
        const size_t segments = (size_t)example.spec.dim[d].segments, size = example.array.shape[d];
        char numbers[2][40];
        sprintf(numbers[0], "size %zu,", size % segments ? size : size / segments);
        sprintf(numbers[1], size % segments ? "%zu segments" : "%zu shards",
                size % segments ? segments : example.shards[d]);
        if (!strstr(error.message, numbers[0]) || !strstr(error.message, numbers[1])) fail_msg("%s", error.message);
    }
}

static void test_text(void **state) {
    (void)state;
    for (int round = 0; round < 1000; round++) {
        struct example example;
        struct sl_spec again;
        char text[400];
        make_example(&example);
        free(example.array.data);
        for (int d = 0; d < example.spec.dims; d++) {
            if (!example.spec.dim[d].axes) example.spec.dim[d].segments = 1;
        }
        assert_int_equal(sl_spec_parse(&again, sl_spec_print(&example.spec, text, sizeof text), NULL), SL_OK);
        assert_int_equal(again.dims, example.spec.dims);
        assert_memory_equal(again.dim, example.spec.dim, sizeof again.dim);
    }
    struct sl_spec spec;
    char cut[6];
    assert_int_equal(sl_spec_parse(&spec, "data+model*3,-", NULL), SL_OK);
    assert_string_equal(sl_spec_print(&spec, cut, sizeof cut), "data+");
}

static void test_bad_text(void **state) {
    (void)state;
    static const char *const bad[][2] = {
        {",", "''"},
        {"a,", "''"},
        {"a,,b", "''"},
        {"+", "'+'"},
        {"a+", "'a+'"},
        {"a+-", "'a+-'"},
        {"--", "'--'"},
        {"*2", "'*2'"},
        {"-*2", "'-*2'"},
        {"a*", "'a*'"},
        {"a*0", "'a*0'"},
        {"a*2+b", "'a*2+b'"},
        {"a*65537", "1 to 65536"},
        {"a*99999999999999999999", "1 to 65536"},
        {"-, a", "' a'"},
        {"2a", "'2a'"},
        {"abcdefghijklmnopqrstuvwx", "'abcdefghijklmnopqrstuvwx'"},
        {"a+b+c+d+e+f+g", "'a+b+c+d+e+f+g'"},
        {"-,-,-,-,-,-,-", "more than 6 dims"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sl_spec spec;
        struct sl_error error = {0};
        assert_int_equal(sl_spec_parse(&spec, bad[i][0], &error), SL_BAD_INPUT);
        if (!strstr(error.message, bad[i][1])) fail_msg("'%s': %s", bad[i][0], error.message);
    }
}

/* Strings that are nearly specs: accepted exactly if the grammar and the limits allow them. */
static void test_parse_fuzz(void **state) {
    (void)state;
    regex_t grammar;
#define NAME "[A-Za-z][A-Za-z0-9_]{0,22}"
#define ENTRY "(-|" NAME "(\\+" NAME "){0,5}(\\*0*[1-9][0-9]{0,4})?)"
    assert_int_equal(regcomp(&grammar, "^(" ENTRY "(," ENTRY "){0,5})?$", REG_EXTENDED | REG_NOSUB), 0);
    int accepted = 0;
    for (int round = 0; round < 20000; round++) {
        struct example example;
        struct sl_spec spec;
        char text[400], printed[400];
        make_example(&example);
        free(example.array.data);
        sl_spec_print(&example.spec, text, sizeof text);
        for (uint32_t edits = draw(4); edits > 0; edits--) {
            char *at = text + draw((uint32_t)strlen(text) + 1);
            if (draw(2) && *at) memmove(at, at + 1, strlen(at));
            if (draw(2)) {
                memmove(at + 1, at, strlen(at) + 1);
                *at = "+,a_05*-*\n\x80 "[draw(12)];
            }
        }
        struct sl_error error = {0};
        const int status = sl_spec_parse(&spec, text, &error);
        assert_int_equal(status == SL_OK, regexec(&grammar, text, 0, NULL, 0) == 0);
        if (status == SL_OK) {
            accepted++;
            struct sl_spec again;
            assert_int_equal(sl_spec_parse(&again, sl_spec_print(&spec, printed, sizeof printed), NULL), SL_OK);
            assert_memory_equal(&again, &spec, sizeof spec);
        } else {
            assert_int_equal(status, SL_BAD_INPUT);
            for (const char *c = error.message; *c; c++) assert_false(iscntrl((unsigned char)*c));
        }
    }
    assert_in_range(accepted, 5000, 17000); /* the fuzz tries both sides */
    regfree(&grammar);
}

/* Invalid arguments. */
static void test_careless_callers(void **state) {
    (void)state;
    struct sl_mesh mesh;
    struct sl_spec spec;
    struct sl_error error = {0};
    const size_t shape[1] = {8};
    size_t local[SL_MAX_DIMS];
    char none[1] = {'x'}, long_name[200];
    sl_mesh_parse(&mesh, "data=2", NULL);
    sl_spec_parse(&spec, "data", NULL);
    sl_spec_print(&spec, none, 0);
    assert_int_equal(none[0], 'x');
    assert_int_equal(sl_spec_local_shape(&spec, &mesh, -1, shape, local, &error), SL_BAD_INPUT);
    assert_int_equal(sl_spec_local_shape(&spec, &mesh, SL_MAX_DIMS + 1, shape, local, &error), SL_BAD_INPUT);
    spec.dim[0].segments = 0;
    assert_int_equal(sl_spec_local_shape(&spec, &mesh, 1, shape, local, &error), SL_BAD_INPUT);
    memset(long_name, 'a', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    assert_int_equal(sl_spec_parse(&spec, long_name, &error), SL_BAD_INPUT);
    assert_int_equal(sl_spec_parse(&spec, "data,,", &error), SL_BAD_INPUT);
    assert_int_equal(sl_spec_parse(&spec, "data+", &error), SL_BAD_INPUT);
}

static void test_elements(void **state) {
    (void)state;
    assert_int_equal(sl_array_elements(&(struct sl_array){.dims = 0}), 1);
    assert_int_equal(sl_array_elements(&(struct sl_array){.dims = 3, .shape = {3, 5, 7}}), 105);
    assert_int_equal(sl_array_elements(&(struct sl_array){.dims = 3, .shape = {SIZE_MAX, SIZE_MAX, 0}}), 0);
    assert_true(sl_array_elements(&(struct sl_array){.dims = 2, .shape = {SIZE_MAX / 2, 3}}) == SIZE_MAX);
    assert_true(sl_array_elements(&(struct sl_array){.dims = 3, .shape = {(size_t)1 << 32, (size_t)1 << 32, 3}}) ==
                SIZE_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_oracle),         cmocka_unit_test(test_segments), cmocka_unit_test(test_refused_shapes),
        cmocka_unit_test(test_random_refused), cmocka_unit_test(test_text),     cmocka_unit_test(test_bad_text),
        cmocka_unit_test(test_parse_fuzz),     cmocka_unit_test(test_elements), cmocka_unit_test(test_careless_callers),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
