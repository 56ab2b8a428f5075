/* signature.h - the identity of a run, as a list of keys and texts: "--lr" "0.001". Processes of a run compare their
 * signatures: all must train with the same options, data and build.
 *
 * The form, in memory and on its way to other processes: each entry is its key, a zero byte, its text, a zero byte;
 * entries follow one another in the order in which they were added. The signature's hash is XXH3 (spmd/base/hash.h)
 * over these bytes. docs/engines.md lists the entries the drivers sign. */
#ifndef SL_SPMD_SIGNATURE_H
#define SL_SPMD_SIGNATURE_H

#include "spmd/base/base.h"

SL_BEGIN_C

struct sl_signature {
    char *bytes; /* NULL: no entries */
    size_t size, room;
};

/* An entry's texts lie in the signature's bytes. */
struct sl_signature_entry {
    const char *key, *text;
};

/* Adds an entry; copies both texts. KEY is the name known to users; verdicts print it; keys should be unique. False
 * without memory: the signature is unchanged. */
bool sl_signature_add(struct sl_signature *signature, const char *key, const char *text);
/* Adds all entries of OTHER, which may be NULL. */
bool sl_signature_append(struct sl_signature *signature, const struct sl_signature *other);

uint64_t sl_signature_hash(const struct sl_signature *signature);

/* Reads the entry at *AT of the SIZE bytes at BYTES, and moves *AT behind it. False at the end, and if an entry is
 * incomplete: BYTES may come from another process. */
bool sl_signature_next(const char *bytes, size_t size, size_t *at, struct sl_signature_entry *entry);

void sl_signature_free(struct sl_signature *signature);

SL_END_C
#endif
