/* filter.c - SL_TEST_FILTER for test programs of cmocka that do not ask for it. */
#include <dlfcn.h>
#include <stdlib.h>

__attribute__((constructor)) static void filter(void) {
    void (*set)(const char *) = (void (*)(const char *))dlsym(RTLD_DEFAULT, "cmocka_set_test_filter");
    if (set) set(getenv("SL_TEST_FILTER"));
}
