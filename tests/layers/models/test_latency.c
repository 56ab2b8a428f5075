/* test_latency.c - percentiles of times, within a percent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "layers/models/latency.h"

static void near_percent(double got, double wanted) {
    if (!(fabs(got - wanted) <= 0.01 * wanted)) fail_msg("%g instead of %g", got, wanted);
}

static void nothing_has_no_percentile(void **state) {
    (void)state;
    struct sl_latency latency = {.all = 0};
    assert_true(isnan(sl_latency_percentile(&latency, 0.5)));
}

static void one_time_is_every_percentile(void **state) {
    (void)state;
    for (double ms = 2e-3; ms < 8e5; ms *= 7) {
        struct sl_latency latency = {.all = 0};
        sl_latency_add(&latency, ms, 3);
        near_percent(sl_latency_percentile(&latency, 0), ms);
        near_percent(sl_latency_percentile(&latency, 0.5), ms);
        near_percent(sl_latency_percentile(&latency, 1), ms);
    }
}

/* 1 to 1000 ms, in any order: a share's percentile is that share of 1000 ms. */
static void shares_are_counted(void **state) {
    (void)state;
    static const double share[] = {0.01, 0.1, 0.5, 0.9, 0.99, 1};
    struct sl_latency latency = {.all = 0};
    for (int i = 0; i < 1000; i++) sl_latency_add(&latency, 1 + i * 389 % 1000, 1);
    for (int i = 0; i < 6; i++) near_percent(sl_latency_percentile(&latency, share[i]), 1000 * share[i]);
}

/* 98 of a hundred take 1 ms, two 50. */
static void times_count_as_often_as_they_say(void **state) {
    (void)state;
    struct sl_latency latency = {.all = 0};
    sl_latency_add(&latency, 50, 2);
    sl_latency_add(&latency, 1, 98);
    near_percent(sl_latency_percentile(&latency, 0.5), 1);
    near_percent(sl_latency_percentile(&latency, 0.98), 1);
    near_percent(sl_latency_percentile(&latency, 0.99), 50);
}

/* Times outside the classes. */
static void the_ends_take_all_others(void **state) {
    (void)state;
    struct sl_latency latency = {.all = 0};
    sl_latency_add(&latency, 0, 1);
    assert_true(sl_latency_percentile(&latency, 1) <= 1.01e-3);
    sl_latency_add(&latency, 1e12, 1);
    assert_in_range((int)sl_latency_percentile(&latency, 1), 890000, 910000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_has_no_percentile), cmocka_unit_test(one_time_is_every_percentile),
        cmocka_unit_test(shares_are_counted),        cmocka_unit_test(times_count_as_often_as_they_say),
        cmocka_unit_test(the_ends_take_all_others),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
