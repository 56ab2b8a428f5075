/* regions_library.h - the functions of regions_library.c; X lies in the device's memory. */
#ifndef SL_TESTS_SPMD_DEVICE_REGIONS_LIBRARY_H
#define SL_TESTS_SPMD_DEVICE_REGIONS_LIBRARY_H

enum { TERMS = 5, MANY = 20000 };
struct terms {
    float term[TERMS];
};
struct many { /* more than a region may map */
    float term[MANY];
};

void scale(int n, float *x);
double sum(int n, const float *x);
void add_terms(int n, struct terms terms, float *x);
void add_many(int n, const struct many *many, float *x);
void map_region(int n, float *x);
void scale_in_three_teams(int n, float *x);
void scale_alone(int n, float *x);
void scale_in_one_team(int n, float *x);

#endif
