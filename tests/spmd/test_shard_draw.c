/* test_shard_draw.c - drawings of shardings, against an oracle that asks every coordinate for its elements. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/random.h"
#include "spmd/shard_draw.h"

enum { MOST_COORDINATES = 64 }; /* of its meshes */

/* Uniform in [0, n), the same in every run. */
static uint32_t draw(uint32_t n) {
    static uint32_t count;
    return sl_random_word(sl_key_of_seed(5), UINT32_MAX, count++) % n;
}

struct example {
    struct sl_mesh mesh;
    struct sl_spec spec;
    size_t shape[SL_MAX_DIMS];
    struct sl_sharding sharding;
};

static void read_example(struct example *example, const char *mesh, const char *spec, int dims, const size_t *shape) {
    struct sl_error error;
    assert_int_equal(sl_mesh_parse(&example->mesh, mesh, &error), SL_OK);
    assert_int_equal(sl_spec_parse(&example->spec, spec, &error), SL_OK);
    for (int d = 0; d < dims; d++) example->shape[d] = shape[d];
    example->sharding = (struct sl_sharding){"w", &example->mesh, &example->spec, dims, example->shape};
}

/* Makes up to four axes over up to three dims, some of several segments, and axes without a dim. */
static void make_example(struct example *example) {
    *example = (struct example){.mesh = {.axes = (int)draw(4) + 1, .size = 1}};
    struct sl_mesh *mesh = &example->mesh;
    struct sl_spec *spec = &example->spec;
    const int dims = (int)draw(4);
    spec->dims = dims;
    for (int d = 0; d < dims; d++) {
        spec->dim[d].segments = draw(3) ? 1 : (int)draw(3) + 2;
        example->shape[d] = (1 + draw(3)) * (size_t)spec->dim[d].segments;
    }
    for (int axis = 0; axis < mesh->axes; axis++) {
        snprintf(mesh->axis[axis].name, SL_AXIS_NAME, "axis%d", axis);
        mesh->axis[axis].size = (int)draw(3) + 1;
        mesh->size *= mesh->axis[axis].size;
        const int d = (int)draw((uint32_t)dims + 1);
        if (d == dims) continue;
        memcpy(spec->dim[d].axis[spec->dim[d].axes++], mesh->axis[axis].name, SL_AXIS_NAME);
        example->shape[d] *= (size_t)mesh->axis[axis].size;
    }
    example->sharding = (struct sl_sharding){"w", mesh, spec, dims, example->shape};
}

/* Returns the drawing; the caller frees it. */
static char *draw_all(const struct sl_sharding *sharding, int count, enum sl_drawing drawing) {
    FILE *file = tmpfile();
    struct sl_error error = {0};
    assert_non_null(file);
    assert_int_equal(sl_sharding_draw(file, sharding, count, drawing, &error), SL_OK);
    const size_t size = (size_t)ftell(file);
    char *text = calloc(size + 1, 1);
    assert_non_null(text);
    rewind(file);
    assert_int_equal(fread(text, 1, size, file), size);
    fclose(file);
    return text;
}

static void assert_drawn(const char *mesh, const char *spec, int dims, const size_t *shape, const char *expected) {
    struct example example;
    read_example(&example, mesh, spec, dims, shape);
    char *text = draw_all(&example.sharding, 1, SL_DRAW_TEXT);
    assert_string_equal(text, expected);
    free(text);
}

static void test_examples(void **state) {
    (void)state;
    assert_drawn("x=2,y=4", "x,y", 2, (size_t[]){2, 4},
                 "w: 2 x 4, spec x,y; blocks of 1 x 1\n"
                 "      0:1   1:2   2:3   3:4\n"
                 "    ┌─────┬─────┬─────┬─────┐\n"
                 "0:1 │  0  │  1  │  2  │  3  │\n"
                 "    ├─────┼─────┼─────┼─────┤\n"
                 "1:2 │  4  │  5  │  6  │  7  │\n"
                 "    └─────┴─────┴─────┴─────┘\n");
    assert_drawn("x=2,y=4", "", 2, (size_t[]){2, 4},
                 "w: 2 x 4, spec -; blocks of 2 x 4\n"
                 "            0:4\n"
                 "    ┌─────────────────┐\n"
                 "0:2 │ 0,1,2,3,4,5,6,7 │\n"
                 "    └─────────────────┘\n");
    assert_drawn("data=2,tensor=2", "tensor,-", 2, (size_t[]){8, 6},
                 "w: 8 x 6, spec tensor,-; blocks of 4 x 6\n"
                 "      0:6\n"
                 "    ┌─────┐\n"
                 "0:4 │ 0,2 │\n"
                 "    ├─────┤\n"
                 "4:8 │ 1,3 │\n"
                 "    └─────┘\n");
    assert_drawn("tensor=2", "tensor*2", 1, (size_t[]){12},
                 "w: 12, spec tensor*2; blocks of 6\n"
                 "   0:3    3:6    6:9    9:12\n"
                 " ┌──────┬──────┬──────┬──────┐\n"
                 " │  0   │  1   │  0   │  1   │\n"
                 " └──────┴──────┴──────┴──────┘\n");
    assert_drawn("x=3", "", 0, NULL,
                 "w: scalar, spec -; blocks of scalar\n"
                 " ┌───────┐\n"
                 " │ 0,1,2 │\n"
                 " └───────┘\n");
}

/* Many segments are drawn as one block a shard, and wide arrays in bands. */
static void test_large(void **state) {
    (void)state;
    struct example example;
    assert_drawn("t=2", "t*100", 1, (size_t[]){1000},
                 "w: 1000, spec t*100; blocks of 500\n"
                 "   0:5 and 99 more    5:10 and 99 more\n"
                 " ┌──────────────────┬──────────────────┐\n"
                 " │        0         │        1         │\n"
                 " └──────────────────┴──────────────────┘\n");
    read_example(&example, "t=64", "t", 1, (size_t[]){64000000});
    char *text = draw_all(&example.sharding, 1, SL_DRAW_TEXT);
    int lines = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        int width = 0;
        for (const char *c = line; *c; c++) width += (*c & 0xc0) != 0x80; /* characters, not bytes */
        assert_true(width <= 100);
        lines++;
    }
    assert_true(lines > 5 && (lines - 1) % 4 == 0);
    free(text);
}

/* ---- slices ---- */

/* Returns whether a piece of COORDINATE's shard along DIM has element INDEX. */
static bool slice_has(const struct sl_sharding *sharding, int coordinate, int dim, size_t index) {
    int found = 0;
    for (int segment = 0; segment < sl_sharding_segments(sharding, dim); segment++) {
        size_t begin, end;
        sl_sharding_slice(sharding, coordinate, dim, segment, &begin, &end);
        found += index >= begin && index < end;
    }
    assert_true(found <= 1);
    return found;
}

static void test_slices(void **state) {
    (void)state;
    for (int round = 0; round < 200; round++) {
        struct example example;
        make_example(&example);
        const struct sl_sharding *sharding = &example.sharding;
        size_t elements = 1;
        for (int d = 0; d < sharding->dims; d++) elements *= example.shape[d];
        bool *held = calloc(elements, 1);
        for (int coordinate = 0; coordinate < example.mesh.size; coordinate++) {
            const struct sl_shard shard =
                sl_spec_shard(&example.spec, &example.mesh, coordinate, sharding->dims, example.shape);
            memset(held, 0, elements);
            for (size_t i = 0; i < sl_shard_elements(&shard); i++) held[sl_shard_global_index(&shard, i)] = true;
            for (size_t i = 0; i < elements; i++) {
                bool inside = true;
                size_t rest = i;
                for (int d = sharding->dims - 1; d >= 0; d--) {
                    inside &= slice_has(sharding, coordinate, d, rest % example.shape[d]);
                    rest /= example.shape[d];
                }
                assert_int_equal(inside, held[i]);
            }
        }
        free(held);
    }
}

/* ---- labels ---- */

/* Counts how often each coordinate stands in the blocks of TEXT, between vertical lines. */
static void count_labels(const char *text, int *count) {
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line != 0) {
        const char *block = strstr(line, "│");
        if (!block || block > line + strcspn(line, "\n")) continue;
        for (const char *c = block; *c && *c != '\n'; c++) {
            if (*c < '0' || *c > '9') continue;
            char *end;
            count[strtol(c, &end, 10)]++;
            c = end - 1;
        }
    }
}

/* A coordinate stands in as many blocks as its shard has pieces. */
static void test_labels(void **state) {
    (void)state;
    for (int round = 0; round < 200; round++) {
        struct example example;
        make_example(&example);
        int count[MOST_COORDINATES] = {0}, pieces = 1;
        for (int d = 0; d < example.sharding.dims; d++) pieces *= sl_sharding_segments(&example.sharding, d);
        char *text = draw_all(&example.sharding, 1, SL_DRAW_TEXT);
        count_labels(text, count);
        for (int c = 0; c < MOST_COORDINATES; c++) assert_int_equal(count[c], c < example.mesh.size ? pieces : 0);
        free(text);
    }
}

/* Takes "\033[...m" away. */
static void strip_colours(char *text) {
    char *to = text;
    for (const char *from = text; *from; from++) {
        if (*from == '\033')
            from += strcspn(from, "m");
        else
            *to++ = *from;
    }
    *to = 0;
}

static void test_colours(void **state) {
    (void)state;
    struct example example;
    for (int round = 0; round < 50; round++) {
        make_example(&example);
        char *plain = draw_all(&example.sharding, 1, SL_DRAW_TEXT);
        char *coloured = draw_all(&example.sharding, 1, SL_DRAW_COLOURS);
        assert_non_null(strstr(coloured, "\033["));
        strip_colours(coloured);
        assert_string_equal(plain, coloured);
        free(plain);
        free(coloured);
    }
    /* The two pieces of a shard have one colour, the two shards different ones. */
    read_example(&example, "t=2", "t*2", 1, (size_t[]){4});
    char *text = draw_all(&example.sharding, 1, SL_DRAW_COLOURS), *colour[4], *at = text;
    for (int i = 0; i < 4; i++) at = colour[i] = strstr(at, "\033[30") + 1;
    assert_memory_equal(colour[0], colour[2], 12);
    assert_memory_equal(colour[1], colour[3], 12);
    assert_memory_not_equal(colour[0], colour[1], 12);
    free(text);
}

/* ---- SVG ---- */

static int count(const char *text, const char *what) {
    int found = 0;
    for (text = strstr(text, what); text; text = strstr(text + 1, what)) found++;
    return found;
}

static void test_svg(void **state) {
    (void)state;
    struct example example[2];
    read_example(&example[0], "x=2,y=4", "x,y", 2, (size_t[]){2, 4});
    read_example(&example[1], "x=2,y=4", "y,-", 2, (size_t[]){8, 4});
    const struct sl_sharding sharding[] = {example[0].sharding, example[1].sharding};
    char *text = draw_all(sharding, 2, SL_DRAW_SVG);
    assert_memory_equal(text, "<svg ", 5);
    assert_int_equal(count(text, "<svg "), 1);
    assert_int_equal(count(text, "</svg>"), 1);
    assert_int_equal(count(text, "<rect x="), 8 + 4);
    assert_int_equal(count(text, "<text "), count(text, "</text>"));
    assert_int_equal(count(text, ">3,7</text>"), 1);
    assert_int_equal(count(text, ">2:4</text>"), 1);
    free(text);
    example[0].sharding.name = "a & <b>";
    text = draw_all(&example[0].sharding, 1, SL_DRAW_SVG);
    assert_non_null(strstr(text, "a &amp; &lt;b&gt;: 2 x 4"));
    free(text);
}

static void test_bad_input(void **state) {
    (void)state;
    struct example example[2];
    struct sl_error error = {0};
    read_example(&example[0], "x=2,y=4", "x,y", 2, (size_t[]){2, 4});
    read_example(&example[1], "x=2,y=4", "x,y", 2, (size_t[]){2, 6});
    const struct sl_sharding sharding[] = {example[0].sharding, example[1].sharding};
    FILE *file = tmpfile();
    assert_int_equal(sl_sharding_draw(file, sharding, 2, SL_DRAW_TEXT, &error), SL_BAD_INPUT);
    assert_string_equal(error.message, "w: spec 'x,y': dim 1, of size 6, does not divide by 4 shards");
    assert_int_equal(ftell(file), 0);
    fclose(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples),  cmocka_unit_test(test_large),   cmocka_unit_test(test_slices),
        cmocka_unit_test(test_labels),    cmocka_unit_test(test_colours), cmocka_unit_test(test_svg),
        cmocka_unit_test(test_bad_input),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
