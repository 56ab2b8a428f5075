/* share.h - passes over a call's rows, or over single numbers, of which the threads of a crew take parts, where forward
 * is all that is done and the coordinate has a crew.
 *
 * Rows, or numbers, do not depend on each other: so the bits are those of one pass. */
#ifndef SL_LAYERS_MODULES_SHARE_H
#define SL_LAYERS_MODULES_SHARE_H

#include "layers/modules/module.h"

SL_BEGIN_C

/* What is done to the units from FIRST on, before END. */
typedef void sl_share_work(const void *arg, size_t first, size_t end);

/* Calls WORK for all of UNITS units, of WIDTH numbers each: for all at once, or part by part where that is quicker. */
void sl_share(const struct sl_context *context, size_t units, size_t width, sl_share_work *work, const void *arg);

SL_END_C
#endif
