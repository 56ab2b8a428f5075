/* signatures.h - describes in words how the signatures (spmd/signature.h) of a run's processes differ. */
#ifndef SL_COLLECTIVES_SIGNATURES_H
#define SL_COLLECTIVES_SIGNATURES_H

#include "collectives/verdict.h"

SL_BEGIN_C

/* A process's signature as received. Processes with the same signature share the bytes. */
struct sl_signed {
    const char *bytes;
    size_t size;
};

/* Adds to VERDICT each key with a text that differs or is missing in some processes, in key order, as far as there is
 * room: "--lr is 0.001 at coordinates 0, 1 and 0.5 at coordinates 2, 3; --seed is ...". SIGNATURE is [processes];
 * processes beyond MESH are not coordinates. The bytes may be anything. */
void sl_verdict_signatures(struct sl_error *verdict, const struct sl_mesh *mesh, int processes,
                           const struct sl_signed *signature);

SL_END_C
#endif
