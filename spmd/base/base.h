/* base.h - needed by every header: C++ guards, attributes, limits. */
#ifndef SL_SPMD_BASE_BASE_H
#define SL_SPMD_BASE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define SL_BEGIN_C extern "C" {
#define SL_END_C }
#else
#define SL_BEGIN_C
#define SL_END_C
#endif

#define SL_PRINTF(template, first) __attribute__((format(printf, template, first)))

enum {
    SL_MAX_AXES = 6,    /* axes of a mesh */
    SL_MAX_DIMS = 6,    /* dims of an array */
    SL_CACHE_LINE = 64, /* bytes; the unit to which shared and flat storage is padded */
};

#endif
