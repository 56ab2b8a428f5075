/* error.h - statuses and one-line messages.
 *
 * A function that can get bad input returns a status and, through a struct sl_error of the caller, one line that names
 * the wrong input and the allowed ones. Statuses are the drivers' exit codes. */
#ifndef SL_SPMD_BASE_ERROR_H
#define SL_SPMD_BASE_ERROR_H

#include "spmd/base/base.h"

SL_BEGIN_C

enum sl_status {
    SL_OK = 0,
    SL_CHECK_FAILED = 1, /* the experiment's own check failed */
    SL_BAD_INPUT = 2,    /* flags, files, shapes, meshes that do not divide */
    SL_FAILED = 3,       /* a peer lost, NaN, disk full */
};

struct sl_error {
    int status;
    char message[800];
};

/* Writes the message and returns STATUS. If ERROR is NULL, only returns STATUS. */
int sl_error_set(struct sl_error *error, int status, const char *format, ...) SL_PRINTF(3, 4);

/* Replaces control characters in TEXT, which may quote users' text, so that it is one line; returns TEXT. sl_error_set
 * does so with its messages. */
char *sl_error_line(char *text);

/* Returns from the enclosing function when EXPRESSION is not SL_OK. */
#define SL_TRY(expression)                                                                                             \
    do {                                                                                                               \
        int sl_try_status = (expression);                                                                              \
        if (sl_try_status) return sl_try_status;                                                                       \
    } while (0)

SL_END_C
#endif
