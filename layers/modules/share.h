/* share.h - passes over a call's rows, or over single numbers, divided between the threads of a crew. Only coordinates
 * in forward-only runs have a crew.
 *
 * Rows, or numbers, are independent of each other, so the bits are the same as in a single pass. */
#ifndef SL_LAYERS_MODULES_SHARE_H
#define SL_LAYERS_MODULES_SHARE_H

#include "layers/modules/module.h"

SL_BEGIN_C

/* Work on the units [FIRST, END). */
typedef void sl_share_work(const void *arg, size_t first, size_t end);

/* Calls WORK for UNITS units of WIDTH numbers each: for all at once, or part by part if that is faster. */
void sl_share(const struct sl_context *context, size_t units, size_t width, sl_share_work *work, const void *arg);

SL_END_C
#endif
