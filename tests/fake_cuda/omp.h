/* omp.h - in the place of OpenMP's: with the fake CUDA, target regions are the host's code. */
#ifndef FAKE_OMP_H
#define FAKE_OMP_H

#include "fake.h"

static inline int omp_get_num_devices(void) { return fake_openmp_devices(); }
static inline void omp_set_default_device(int device) { (void)device; }
static inline void omp_set_num_threads(int threads) { (void)threads; }
static inline void omp_set_teams_thread_limit(int threads) { (void)threads; }
static inline int omp_is_initial_device(void) { return 1; }

#endif
