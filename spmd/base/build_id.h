/* build_id.h - identifies a build of a program. */
#ifndef SL_SPMD_BASE_BUILD_ID_H
#define SL_SPMD_BASE_BUILD_ID_H

#include "spmd/base/base.h"

SL_BEGIN_C

/* Writes the build id of this process's executable, which the linker has added (a GNU note; -Wl,--build-id), in
 * hexadecimal digits; "unknown" if it has none. Returns TEXT. */
enum { SL_BUILD_ID_SIZE = 129 };
char *sl_build_id(char text[SL_BUILD_ID_SIZE]);

SL_END_C
#endif
