/* regions_image.h - what the kernel of regions_image.c leaves. */
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
