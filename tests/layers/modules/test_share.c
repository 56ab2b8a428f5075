/* test_share.c - passes divided among a crew: every unit is done once, and short passes are not divided. */
#include "layers/modules/share.h"
#include "spmd/base/crew.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

enum { SHARED = 1 << 15 }; /* numbers, from which on threads help */

struct pass {
    size_t units;
    unsigned char *done; /* [units]: each is written by one thread */
    atomic_size_t parts, ends;
    size_t multiple; /* parts begin at multiples of it */
};

static void count(const void *arg, size_t first, size_t end) {
    struct pass *pass = (struct pass *)(uintptr_t)arg;
    for (size_t i = first; i < end; i++) pass->done[i]++;
    atomic_fetch_add(&pass->parts, 1);
    atomic_fetch_add(&pass->ends, first % pass->multiple != 0 || end > pass->units);
}

/* Returns in how many parts. */
static size_t share(struct sl_crew *crew, size_t units, size_t width) {
    const struct sl_context context = {.crew = crew};
    struct pass pass = {.units = units, .multiple = width == 1 ? 64 : 1};
    pass.done = calloc(units + 1, 1);
    assert_non_null(pass.done);
    sl_share(&context, units, width, count, &pass);
    for (size_t i = 0; i < units; i++) assert_int_equal(pass.done[i], 1);
    assert_int_equal(atomic_load(&pass.ends), 0);
    free(pass.done);
    return atomic_load(&pass.parts);
}

static void every_unit_is_done_once(void **state) {
    (void)state;
    for (int threads = 1; threads <= 5; threads++) {
        struct sl_crew *crew = sl_crew_open(threads);
        for (size_t units = SHARED - 3; units < SHARED + 200; units += 13) share(crew, units, 1);
        for (size_t units = 1; units < 12; units++) share(crew, units, SHARED);
        assert_int_equal(share(crew, SHARED, 1), threads);
        assert_int_equal(share(crew, 60, SHARED / 60 + 1), threads);
        sl_crew_close(crew);
    }
}

static void what_is_short_is_not_shared(void **state) {
    (void)state;
    struct sl_crew *crew = sl_crew_open(3);
    assert_non_null(crew);
    assert_int_equal(share(crew, SHARED - 1, 1), 1);
    assert_int_equal(share(crew, 7, SHARED / 8), 1);
    sl_crew_close(crew);
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_unit_is_done_once),
                                       cmocka_unit_test(what_is_short_is_not_shared)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
