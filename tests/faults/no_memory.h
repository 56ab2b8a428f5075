/* no_memory.h - for faults that are allocations: which call fails, as if there were no memory. */
#ifndef SL_TESTS_FAULTS_NO_MEMORY_H
#define SL_TESTS_FAULTS_NO_MEMORY_H

#include <errno.h>

#include "tests/faults/counted.h"

static bool libraries; /* their calls are counted, too */

__attribute__((destructor)) static void close_faults(void) { tell_count("FAIL_COUNT"); }

/* Whether the call that returns to CALLER is to fail. */
static bool fails(const void *caller) {
    if (!ready || !(libraries || is_own(caller)) || !is_hit()) return false;
    errno = ENOMEM;
    return true;
}

#define FAILS fails(__builtin_return_address(0))

#endif
