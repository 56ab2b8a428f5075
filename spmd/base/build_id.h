/* build_id.h - tells one build of a program from another. */
#ifndef SL_SPMD_BASE_BUILD_ID_H
#define SL_SPMD_BASE_BUILD_ID_H

#include "spmd/base/base.h"

SL_BEGIN_C

/* Writes the build id that the linker has given this process's executable (a GNU note; -Wl,--build-id), in hexadecimal
 * digits, or "unknown" where it has none. Returns TEXT. */
enum { SL_BUILD_ID_SIZE = 129 };
char *sl_build_id(char text[SL_BUILD_ID_SIZE]);

SL_END_C
#endif
