/* regions_image.c - a handmade image: a kernel that reports its launch arguments, and the launch data that clang would
 * put there. */
#include <stddef.h>

#include "spmd/device/cuda/libomptarget.h"
#include "tests/spmd/device/regions_image.h"

void by_hand(const struct sl_omp_launch_environment *environment, struct launched *launched, uint64_t number) {
    *launched = (struct launched){environment->arrived, environment->round, environment->reduction, number};
    for (size_t i = 0; i < BY_HAND_REDUCTION; i++) ((char *)environment->reduction)[i] = 1;
    /* A state that a failed launch may leave. */
    ((struct sl_omp_launch_environment *)(uintptr_t)environment)->arrived = 7;
}

/* A region without an environment may have any number of threads. */
void without_environment(void);
void without_environment(void) {}

const struct sl_omp_kernel_environment by_hand_kernel_environment = {
    .mode = SL_OMP_GENERIC, .most_threads = 96, .reduction_bytes = BY_HAND_REDUCTION / 16, .reduction_length = 16};
