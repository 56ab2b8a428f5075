/* test_machine.c - from rates to seconds, and the places of coordinates. */
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "drivers/tools/machine/machine.h"
#include "drivers/tools/machine/machine_file.h"
#include "drivers/tools/machine/measure.h"
#include "drivers/tools/search/search_options.h"

static bool near(double a, double b) { return fabs(a - b) <= 1e-9 * fabs(b); }

static const struct sl_machine two_rates = {.products = 3,
                                            .product = {{SL_F32, 64, 64, 64, false, false, 10},
                                                        {SL_F32, 1024, 1024, 1024, false, false, 90},
                                                        {SL_BF16, 1024, 1024, 1024, false, false, 200}}};

static void measured_shapes_have_their_rates(void **state) {
    (void)state;
    assert_true(near(sl_machine_product(&two_rates, SL_F32, 64, 64, 64, false, false), 2.0 * 64 * 64 * 64 / 10e9));
    assert_true(near(sl_machine_product(&two_rates, SL_BF16, 1024, 1024, 1024, false, false),
                     2.0 * 1024 * 1024 * 1024 / 200e9));
}

/* With equal distances from two shapes the rate is the geometric mean; nearer to one its rate counts more. Never above
 * the best. */
static void others_lie_between(void **state) {
    (void)state;
    const double middle = 2.0 * 256 * 256 * 256 / sl_machine_product(&two_rates, SL_F32, 256, 256, 256, false, false);
    const double large = 2.0 * 512 * 512 * 512 / sl_machine_product(&two_rates, SL_F32, 512, 512, 512, false, false);
    assert_true(fabs(middle - 30e9) < 1e6);
    assert_true(large > 45e9 && large < 90e9);
    const double huge =
        2.0 * 4096 * 4096 * 4096 / sl_machine_product(&two_rates, SL_F32, 4096, 4096, 4096, false, false);
    assert_true(huge > 60e9 && huge <= 90e9 * (1 + 1e-9));
}

/* The rate of few rows is proportional to the rows: half as many rows have half the rate, also between and beyond the
 * known shapes. */
static void rates_go_on_as_they_went(void **state) {
    (void)state;
    struct sl_machine machine = {0};
    for (int m = 4; m <= 16; m *= 2)
        for (int width = 256; width <= 1024; width *= 4)
            machine.product[machine.products++] = (struct sl_machine_product){SL_F32, m, width, width, false, false, m};
    const double between = 2.0 * 8 * 512 * 512 / sl_machine_product(&machine, SL_F32, 8, 512, 512, false, false);
    const double beyond = 2.0 * 2 * 512 * 512 / sl_machine_product(&machine, SL_F32, 2, 512, 512, false, false);
    assert_true(fabs(between / 8e9 - 1) < 0.02);
    assert_true(fabs(beyond / 2e9 - 1) < 0.1);
}

/* Between sizes of memory the rate falls evenly; beyond them it stays. */
static void memory_has_sizes(void **state) {
    (void)state;
    const struct sl_machine machine = {.sizes = 2, .memory = {{1e6, 100e9}, {100e6, 25e9}}};
    assert_true(near(sl_machine_moved(&machine, 1e9, 1e3), 0.01));
    assert_true(near(sl_machine_moved(&machine, 1e9, 1e7), 0.02));
    assert_true(near(sl_machine_moved(&machine, 1e9, 1e12), 0.04));
    assert_true(sl_machine_moved(&two_rates, 1e9, 1e7) == 0);
}

static void other_types_count_only_where_nothing_else_is_known(void **state) {
    (void)state;
    struct sl_machine one = {.products = 1, .product = {{SL_F32, 64, 64, 64, false, false, 10}}};
    assert_true(near(sl_machine_product(&one, SL_BF16, 64, 64, 64, true, false), 2.0 * 64 * 64 * 64 / 10e9));
}

/* Rings: N - 1 steps of a part each, twice for a sum for all members. A ppermute is a message. */
static void calls_are_rings(void **state) {
    (void)state;
    const struct sl_machine machine = {.latency = {0, 0, 1e-6, 2e-6, 1e-3}, .bandwidth = {1e10, 1e10, 1e10, 1e9, 1e8}};
    assert_true(near(sl_machine_message(&machine, SL_LINK_NODE, 1e6), 2e-6 + 1e-3));
    assert_true(near(sl_machine_collective(&machine, NULL, SL_LINK_PACKAGE, SL_ALL_GATHER, 4, 4e6), 3 * (1e-6 + 1e-4)));
    assert_true(near(sl_machine_collective(&machine, NULL, SL_LINK_PACKAGE, SL_PSUM, 4, 4e6), 6 * (1e-6 + 1e-4)));
    assert_true(near(sl_machine_collective(&machine, NULL, SL_LINK_PACKAGE, SL_PPERMUTE, 4, 4e6), 1e-6 + 4e-4));
    assert_true(sl_machine_collective(&machine, NULL, SL_LINK_NETWORK, SL_PSUM, 1, 4e6) == 0);
    assert_true(sl_machine_touched(SL_ALL_GATHER, 4, 4e6) == 8e6);
    assert_true(sl_machine_touched(SL_PSUM_SCATTER, 4, 4e6) == 5e6);
    assert_true(sl_machine_touched(SL_PSUM, 1, 4e6) == 0);
}

/* Times are interpolated between known groups; larger groups wait longer. An older file knows one figure. */
static void calls_depend_on_groups(void **state) {
    (void)state;
    const struct sl_machine_turns known = {
        .call = 5e-6, .groups = 3, .group = {{2, 10e-6, 0}, {4, 20e-6, 0}, {8, 60e-6, 0}}};
    const struct sl_machine_turns older = {.call = 5e-6};
    assert_true(near(sl_machine_turn(&known, 2), 10e-6) && near(sl_machine_turn(&known, 4), 20e-6));
    assert_true(near(sl_machine_turn(&known, 3), 15e-6) && near(sl_machine_turn(&known, 6), 40e-6));
    assert_true(near(sl_machine_turn(&known, 16), 120e-6));
    assert_true(sl_machine_turn(&older, 2) == 5e-6 && sl_machine_turn(&older, 64) == 5e-6);
}

/* If members share a core, peers' data arrive at most at the bandwidth measured of such a group, and at most at the
 * link's. */
static void groups_have_a_bandwidth(void **state) {
    (void)state;
    const struct sl_machine machine = {.bandwidth = {1e10, 1e10, 1e10, 1e10, 1e8}};
    const struct sl_machine_turns turns = {.groups = 3, .group = {{2, 0, 0}, {4, 0, 1e9}, {8, 0, 4e10}}};
    assert_true(near(sl_machine_collective(&machine, &turns, SL_LINK_CORE, SL_ALL_GATHER, 2, 2e6), 1e-4));
    assert_true(near(sl_machine_collective(&machine, &turns, SL_LINK_CORE, SL_ALL_GATHER, 4, 4e6), 3e-3));
    assert_true(near(sl_machine_collective(&machine, &turns, SL_LINK_CORE, SL_ALL_GATHER, 3, 3e6), 2e-3));
    assert_true(near(sl_machine_collective(&machine, &turns, SL_LINK_CORE, SL_ALL_GATHER, 16, 16e6), 15e-4));
    assert_true(near(sl_machine_collective(&machine, &turns, SL_LINK_NETWORK, SL_ALL_GATHER, 4, 4e6), 3e-2));
}

/* Two nodes of four devices in pairs, and one of two devices with half the speed. */
static const struct sl_machine uneven = {.kinds = 2,
                                         .nodes = {{.count = 2, .places = 4, .package = 2, .memory = 80e9, .speed = 1},
                                                   {.count = 1, .places = 2, .memory = 24e9, .speed = 0.5}}};

static void coordinates_fill_nodes(void **state) {
    (void)state;
    assert_int_equal(sl_machine_room(&uneven), 10);
    assert_int_equal(sl_machine_link(&uneven, 0, 1), SL_LINK_PACKAGE);
    assert_int_equal(sl_machine_link(&uneven, 1, 2), SL_LINK_NODE);
    assert_int_equal(sl_machine_link(&uneven, 3, 4), SL_LINK_NETWORK);
    assert_int_equal(sl_machine_link(&uneven, 8, 9), SL_LINK_PACKAGE);
    assert_int_equal(sl_machine_link(&uneven, 7, 8), SL_LINK_NETWORK);
    assert_true(sl_machine_memory(&uneven, 8) == 80e9);
    assert_true(sl_machine_memory(&uneven, 9) == 24e9);
    assert_true(sl_machine_speed(&uneven, 8, 1) == 1);
    assert_true(sl_machine_speed(&uneven, 10, 1) == 0.5);
    assert_int_equal(sl_machine_sharing(&uneven, 10), 0);
}

/* Eight places are four cores of two threads each; or GPUs, joined by fours. */
static void near_places(void **state) {
    const struct sl_machine threads = {.kinds = 1, .nodes = {{.count = 1, .places = 8, .core = 2, .package = 4}}};
    const struct sl_machine gpus = {.kinds = 1, .nodes = {{.count = 1, .places = 8, .gpus = 4}}};
    const struct sl_machine shared = {.kinds = 1, .nodes = {{.count = 1, .places = 2, .shares = true}}};
    (void)state;
    assert_int_equal(sl_machine_link(&threads, 2, 3), SL_LINK_CORE);
    assert_int_equal(sl_machine_link(&threads, 1, 2), SL_LINK_PACKAGE);
    assert_int_equal(sl_machine_link(&threads, 3, 4), SL_LINK_NODE);
    assert_int_equal(sl_machine_link(&gpus, 0, 3), SL_LINK_GPU);
    assert_int_equal(sl_machine_link(&gpus, 3, 4), SL_LINK_PACKAGE);
    assert_int_equal(sl_machine_link(&shared, 0, 2), SL_LINK_CORE);
    assert_int_equal(sl_machine_link(&shared, 0, 1), SL_LINK_PACKAGE);
}

static void cores_may_be_shared(void **state) {
    (void)state;
    const struct sl_machine laptop = {.kinds = 1, .nodes = {{.count = 1, .places = 2, .shares = true, .speed = 1}}};
    assert_int_equal(sl_machine_room(&laptop), INT_MAX);
    assert_int_equal(sl_machine_sharing(&laptop, 2), 0);
    assert_int_equal(sl_machine_sharing(&laptop, 8), 2);
    assert_true(sl_machine_ties(&laptop, 8, 4) && !sl_machine_ties(&laptop, 8, 1) && !sl_machine_ties(&laptop, 2, 2));
    assert_int_equal(sl_machine_link(&laptop, 0, 7), SL_LINK_PACKAGE);
}

/* The slowest used place counts; if coordinates roam, all places do. Nodes' own speeds count, too. */
static void places_may_differ(void **state) {
    (void)state;
    const struct sl_machine laptop = {
        .kinds = 1, .nodes = {{.count = 1, .places = 2, .shares = true, .speed = 1, .speeds = {1, 0.9}}}};
    const struct sl_machine swarm = {.kinds = 2,
                                     .nodes = {{.count = 1, .places = 3, .speed = 2, .speeds = {1, 0.75}},
                                               {.count = 2, .places = 1, .speed = 1, .speeds = {1.25}}}};
    assert_true(sl_machine_speed(&laptop, 1, 1) == 1);
    assert_true(sl_machine_speed(&laptop, 2, 2) == 0.9 && sl_machine_speed(&laptop, 2, 1) == 0.9);
    assert_true(sl_machine_speed(&laptop, 8, 4) == 0.9);
    assert_true(near(sl_machine_speed(&laptop, 8, 1), 0.95));
    assert_true(sl_machine_speed(&swarm, 1, 1) == 2 && sl_machine_speed(&swarm, 3, 1) == 1.5);
    assert_true(sl_machine_speed(&swarm, 5, 1) == 1.25);
}

/* Ignores one preempted piece of work, and work that only some places have done. */
static void places_are_compared(void **state) {
    (void)state;
    struct sl_machine machine = {.kinds = 1, .nodes = {{.count = 1, .places = 3, .speed = 1}}};
    const float differ[3][5] = {{1, 2, 3, 4, 0}, {1.25f, 2.5f, 30, 5, 1}, {1, 2, 3, 0, 1}};
    const float alike[3][5] = {{1, 2, 3, 4, 5}, {1.01f, 2.02f, 3.03f, 4.04f, 50}, {1, 2, 3, 4, 5}};
    const float nothing[3][5] = {{0}};
    sl_machine_compare_places(&machine, differ[0], 5);
    const double *speeds = machine.nodes[0].speeds;
    assert_true(speeds[0] == 1 && fabs(speeds[1] - 0.8) < 1e-6 && speeds[2] == 1 && speeds[3] == 0);
    sl_machine_compare_places(&machine, alike[0], 5);
    assert_true(speeds[0] == 0 && speeds[1] == 0);
    sl_machine_compare_places(&machine, nothing[0], 5);
    assert_true(speeds[0] == 0 && speeds[1] == 0);
}

/* Written machines are read again; equal speeds of places and unknown groups are not written. */
static void speeds_and_calls_are_kept(void **state) {
    static struct sl_machine machine, again;
    struct sl_error error = {0};
    (void)state;
    for (int differ = 0; differ < 2; differ++) {
        char text[4096] = "", path[] = "/tmp/machineXXXXXX";
        machine = (struct sl_machine){.name = "two",
                                      .kinds = 1,
                                      .nodes = {{.count = 1, .places = 2, .speed = 1}},
                                      .products = 1,
                                      .product = {{SL_F32, 64, 64, 64, false, false, 10}},
                                      .kernel = {1e-9, 1e-9, 1e-9, 1e-9, 1e-9, 1e-9},
                                      .attention = 1e9,
                                      .far = 1e9,
                                      .bandwidth = {1e9, 1e9, 1e9, 1e9, 1e9}};
        if (differ) machine.nodes[0].speeds[0] = 1, machine.nodes[0].speeds[1] = 0.96;
        if (differ) machine.tied = (struct sl_machine_turns){1e-6, 2e-6, 0.125, 2, {{2, 3e-6, 5e9}, {64, 4e-6, 0}}};
        const int file = mkstemp(path);
        assert_true(file >= 0);
        close(file);
        assert_int_equal(sl_machine_write(&machine, path, &error), SL_OK);
        FILE *written = fopen(path, "r");
        assert_non_null(written);
        assert_true(fread(text, 1, sizeof text - 1, written) > 0);
        fclose(written);
        assert_true((strstr(text, "\"speeds\"") != NULL) == (differ == 1));
        assert_int_equal(sl_machine_read(&again, path, &error), SL_OK);
        unlink(path);
        assert_true(sl_machine_speed(&again, 2, 2) == (differ ? 0.96 : 1));
        assert_true((strstr(text, "\"calls\"") != NULL) == (differ == 1) && again.tied.groups == (differ ? 2 : 0));
        assert_true(near(sl_machine_turn(&again.tied, 64), differ ? 4e-6 : 0) && again.roaming.groups == 0);
        assert_true(again.tied.idle == (differ ? 0.125 : 0) && near(again.tied.group[0].bandwidth, differ ? 5e9 : 0));
    }
}

static void a_full_disk_is_told(void **state) {
    const struct sl_machine machine = {.name = "none",
                                       .kinds = 1,
                                       .nodes = {{.count = 1, .places = 1, .speed = 1}},
                                       .kernel = {1, 1, 1, 1, 1, 1},
                                       .attention = 1,
                                       .far = 1};
    struct sl_error error = {0};
    (void)state;
    assert_int_equal(sl_machine_write(&machine, "/dev/full", &error), SL_FAILED);
    assert_non_null(strstr(error.message, "/dev/full: "));
}

static void sizes_are_read(void **state) {
    (void)state;
    const struct {
        const char *text;
        double bytes; /* 0: refused */
    } sizes[] = {{"1", 1},           {"512MB", 512e6}, {"2GiB", 2147483648.0},
                 {"1.5 TB", 1.5e12}, {"3k", 3e3},      {"3KiB", 3072},
                 {"7B", 7},          {"1e3", 1e3},     {"", 0},
                 {"GB", 0},          {"1 G B", 0},     {"1GBs", 0},
                 {"0", 0},           {"-1", 0},        {"inf", 0},
                 {"nan", 0},         {"1e19", 0},      {" 1", 0},
                 {"1EB", 0},         {"0x10", 16}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        double bytes = 0;
        const bool read = sl_search_bytes(sizes[i].text, &bytes);
        if (read != (sizes[i].bytes > 0) || (read && !near(bytes, sizes[i].bytes)))
            fail_msg("\"%s\": %g", sizes[i].text, bytes);
    }
}

/* Four nodes of two members: a barrier takes two steps of leaders; a long sum goes to the last node and back, and a
 * broadcast from its root both ways; members that are apart send messages to each other. */
static void calls_over_nodes_follow_the_counts(void **state) {
    (void)state;
    struct sl_machine machine = {0};
    static const int together[] = {0, 0, 1, 1, 2, 2, 3, 3}, apart[] = {0, 1, 2, 3, 0, 1, 2, 3};
    double barrier[SL_LINKS] = {0}, sum[SL_LINKS] = {0}, longer[SL_LINKS] = {0}, messages[SL_LINKS] = {0};
    double moved[SL_LINKS] = {0}, few[SL_LINKS] = {0}, many[SL_LINKS] = {0};
    for (int l = 0; l < SL_LINKS; l++) machine.latency[l] = 1e-5, machine.bandwidth[l] = 1e9;
    sl_machine_call_over_nodes(&machine, SL_BARRIER, 8, together, 0, barrier);
    assert_true(near(barrier[SL_LINK_NETWORK], 4e-5 + 2 * 144 / 1e9)); /* each message has a note beside it */
    assert_true(near(barrier[SL_LINK_PACKAGE], 2e-5));
    sl_machine_call_over_nodes(&machine, SL_PSUM, 8, together, 65536 * 8, sum);
    const double notes = 2 * 2 * 144; /* of two lanes, to both sides */
    assert_true(near(sum[SL_LINK_NETWORK], 6e-5 + (2 * 65536 * 8 + notes) / 1e9));
    sl_machine_call_over_nodes(&machine, SL_PSUM, 8, together, 65536 * 800, longer);
    assert_true(longer[SL_LINK_NETWORK] > 99 * 6e-5 + 2 * 65536 * 800 / 1e9 &&
                longer[SL_LINK_NETWORK] < 101 * 6e-5 + 2.001 * 65536 * 800 / 1e9);
    sl_machine_call_over_nodes(&machine, SL_PSUM, 8, apart, 1024, messages);
    assert_true(near(messages[SL_LINK_NETWORK], 12e-5 + 2 * 6 * (1024 + 144) / 1e9));
    assert_true(near(messages[SL_LINK_PACKAGE], 2e-5 + (1024 + 144) / 1e9));
    sl_machine_call_over_nodes(&machine, SL_BROADCAST, 8, together, 1024, few); /* from the third node */
    assert_true(near(few[SL_LINK_NETWORK], 4e-5 + 2 * (1024 + 144) / 1e9));
    sl_machine_call_over_nodes(&machine, SL_BROADCAST, 8, together, 65536 * 8, many);
    assert_true(near(many[SL_LINK_NETWORK], 6e-5 + (2 * 65536 * 8 + notes) / 1e9));
    sl_machine_call_over_nodes(&machine, SL_PPERMUTE, 8, together, 1024, moved);
    assert_true(near(moved[SL_LINK_NETWORK], 2e-5 + 2 * (1024 + 144) / 1e9) && moved[SL_LINK_PACKAGE] == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_over_nodes_follow_the_counts),
        cmocka_unit_test(measured_shapes_have_their_rates),
        cmocka_unit_test(others_lie_between),
        cmocka_unit_test(rates_go_on_as_they_went),
        cmocka_unit_test(memory_has_sizes),
        cmocka_unit_test(other_types_count_only_where_nothing_else_is_known),
        cmocka_unit_test(calls_are_rings),
        cmocka_unit_test(calls_depend_on_groups),
        cmocka_unit_test(groups_have_a_bandwidth),
        cmocka_unit_test(coordinates_fill_nodes),
        cmocka_unit_test(near_places),
        cmocka_unit_test(cores_may_be_shared),
        cmocka_unit_test(places_may_differ),
        cmocka_unit_test(places_are_compared),
        cmocka_unit_test(speeds_and_calls_are_kept),
        cmocka_unit_test(a_full_disk_is_told),
        cmocka_unit_test(sizes_are_read),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("machine", tests, NULL, NULL);
}
