/* regions_image.h - results of the kernel of regions_image.c. */
#ifndef SL_TESTS_SPMD_DEVICE_REGIONS_IMAGE_H
#define SL_TESTS_SPMD_DEVICE_REGIONS_IMAGE_H

#include <stdint.h>

enum { BY_HAND_REDUCTION = 1 << 20 };

struct launched {
    uint32_t arrived, round;
    void *reduction;
    uint64_t number;
};

#endif
