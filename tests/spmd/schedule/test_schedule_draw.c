/* test_schedule_draw.c - positions in a drawn timeline: everything once, at its time, in the right row. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "spmd/schedule/drawing/draw.h"
#include "spmd/schedule/registry.h"

struct drawn {
    struct sl_schedule schedule;
    struct sl_simulation simulation;
    char *text;
    size_t size;
};

static void draw(struct drawn *drawn, const char *name, int stages, int loops, int microbatches, double reduce) {
    const struct sl_stage_costs cost = {.forward = 1, .input_gradient = 2, .weight_gradient = 1.5, .reduce = reduce};
    const struct sl_costs costs = {.count = 1, .stage = &cost, .communication = 0.25, .overlap = true};
    struct sl_error error = {0};
    if (sl_schedule_make(&drawn->schedule, name, stages, loops, microbatches, &error) ||
        sl_schedule_lower(&drawn->schedule, &error) ||
        sl_schedule_simulate(&drawn->schedule, &costs, &drawn->simulation, &error))
        fail_msg("%s", error.message);
    FILE *file = open_memstream(&drawn->text, &drawn->size);
    assert_non_null(file);
    sl_schedule_write_svg(&drawn->schedule, &drawn->simulation, file);
    assert_int_equal(fclose(file), 0);
}

static void discard(struct drawn *drawn) {
    free(drawn->text);
    sl_simulation_free(&drawn->simulation);
    sl_schedule_free(&drawn->schedule);
}

/* A box: pixels, and the time in its title. */
struct box {
    double x, y, width, height, begin, end;
};

/* Reads the next box from *TEXT on, and moves *TEXT behind its line. It reads by lines, because AddressSanitizer
 * measures the whole text that strstr or sscanf gets. */
static bool next_box(const char **text, struct box *box) {
    char line[300];
    const char *rect = NULL;
    while (!rect) {
        const size_t length = strcspn(*text, "\n");
        if (!**text) return false;
        snprintf(line, sizeof line, "%.*s", (int)length, *text);
        *text += length + ((*text)[length] == '\n');
        rect = strstr(line, "<title>stage");
    }
    while (strncmp(rect, "<rect", 5) != 0) rect--;
    const char *times = strstr(rect, " to ");
    while (times[-1] != ' ') times--;
    assert_int_equal(sscanf(rect, "<rect x=\"%lf\" y=\"%lf\" width=\"%lf\" height=\"%lf\"", &box->x, &box->y,
                            &box->width, &box->height),
                     4);
    assert_int_equal(sscanf(times, "%lf to %lf ms<", &box->begin, &box->end), 2);
    return true;
}

/* All boxes have the same scale, so the sum of their pixels is the sum of all events' times. */
static void check(const char *name, int stages, int loops, int microbatches, double reduce) {
    struct drawn drawn;
    struct box box;
    double width, pixels = 0, scale = 0, time = 0;
    draw(&drawn, name, stages, loops, microbatches, reduce);
    width = strtod(strstr(drawn.text, " width=") + strlen(" width=\""), NULL);
    assert_true(width >= 800 && width <= 1400);
    for (const char *text = drawn.text; next_box(&text, &box);) {
        pixels += box.width;
        scale = fmax(scale, box.width / (box.end - box.begin)); /* of a box in one piece; others are shorter */
        assert_true(box.x >= 0 && box.x + box.width <= width);
    }
    for (int i = 0; i < drawn.simulation.count; i++)
        time += drawn.simulation.event[i].end - drawn.simulation.event[i].begin;
    if (fabs(pixels - scale * time) > 1e-3 * pixels)
        fail_msg("%s, %d x %d, %d: %g pixels of %g ms at %g pixels a ms", name, stages, loops, microbatches, pixels,
                 time, scale);
    discard(&drawn);
}

static void every_event_is_drawn(void **state) {
    (void)state;
    const struct sl_schedule_kind *kind;
    for (int i = 0; (kind = sl_schedule_kind_at(i)); i++) {
        const int loops = kind->default_loops;
        if (kind->placement != SL_MIRRORED) check(kind->name, 1, loops, 4, 0);
        check(kind->name, 4, loops, 8, 3);
        check(kind->name, 4, loops, 64, 0);
        check(kind->name, 8, loops, 48, 2);
    }
    check("looped-bfs", 64, 4, 64, 1);
}

/* Rows of different ranks, and bands, do not overlap: boxes at one height follow each other. */
static void boxes_do_not_overlap(void **state) {
    (void)state;
    struct drawn drawn;
    enum { MOST = 1000 };
    struct box box[MOST], *a, *b;
    int count = 0;
    draw(&drawn, "interleaved-zb", 4, 2, 24, 2);
    for (const char *text = drawn.text; count < MOST && next_box(&text, &box[count]);) count++;
    assert_in_range(count, drawn.simulation.count, MOST - 1);
    for (a = box; a < box + count; a++)
        for (b = a + 1; b < box + count; b++)
            if (a->x < b->x + b->width - 0.01 && b->x < a->x + a->width - 0.01 && a->y < b->y + b->height &&
                b->y < a->y + a->height)
                fail_msg("boxes at %g, %g and %g, %g", a->x, a->y, b->x, b->y);
    discard(&drawn);
}

static void print(const struct sl_schedule *schedule, int columns, char **text) {
    size_t size;
    FILE *file = open_memstream(text, &size);
    assert_non_null(file);
    assert_int_equal(columns ? sl_schedule_print_folded(schedule, columns, false, file)
                             : sl_schedule_print_table(schedule, file),
                     SL_OK);
    assert_int_equal(fclose(file), 0);
}

/* If a table fits, folding adds only the time steps above it. */
static void what_fits_is_not_folded(void **state) {
    (void)state;
    struct sl_schedule schedule;
    struct sl_error error = {0};
    assert_int_equal(sl_schedule_make(&schedule, "dualpipev", 2, 2, 4, &error), SL_OK);
    char *whole, *folded, *fits, *too_narrow;
    print(&schedule, 0, &whole);
    print(&schedule, 1000, &folded);
    const char *line = strchr(folded, '\n');
    assert_non_null(line);
    assert_string_equal(line + 1, whole);
    const int width = (int)(line - folded);
    print(&schedule, width, &fits);
    print(&schedule, width - 1, &too_narrow);
    assert_string_equal(fits, folded);
    assert_non_null(strstr(too_narrow, "\n\ntime"));
    free(whole);
    free(folded);
    free(fits);
    free(too_narrow);
    sl_schedule_free(&schedule);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_event_is_drawn),
        cmocka_unit_test(boxes_do_not_overlap),
        cmocka_unit_test(what_fits_is_not_folded),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
