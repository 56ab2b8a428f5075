/* regions_library.c - target regions, compiled for this machine, in a library of their own; the build defines FACTOR,
 * so two libraries have kernels with equal names. */
#include "tests/spmd/device/regions_library.h"

void scale(int n, float *x) {
#pragma omp target teams distribute parallel for is_device_ptr(x)
    for (int i = 0; i < n; i++) x[i] *= FACTOR;
}

double sum(int n, const float *x) {
    double total = 0;
#pragma omp target teams distribute parallel for is_device_ptr(x) map(tofrom : total) reduction(+ : total)
    for (int i = 0; i < n; i++) total += x[i];
    return total;
}

void add_terms(int n, struct terms terms, float *x) {
#pragma omp target teams distribute parallel for is_device_ptr(x) map(to : terms)
    for (int i = 0; i < n; i++) x[i] += terms.term[i % TERMS];
}

void add_many(int n, const struct many *many, float *x) {
#pragma omp target teams distribute parallel for is_device_ptr(x) map(to : many[0 : 1])
    for (int i = 0; i < n; i++) x[i] += many->term[i % MANY];
}

void map_region(int n, float *x) {
#pragma omp target enter data map(to : x[0 : n])
}

void scale_in_three_teams(int n, float *x) {
#pragma omp target teams distribute parallel for is_device_ptr(x) thread_limit(64) num_teams(3)
    for (int i = 0; i < n; i++) x[i] *= FACTOR;
}

void scale_alone(int n, float *x) {
#pragma omp target is_device_ptr(x)
    for (int i = 0; i < n; i++) x[i] *= FACTOR;
}

void scale_in_one_team(int n, float *x) {
#pragma omp target parallel for is_device_ptr(x)
    for (int i = 0; i < n; i++) x[i] *= FACTOR;
}
