/* prints.h - fingerprints of a step: hashes of a coordinate's parameters and of the sums of their gradients.
 *
 * They are computed by the thread that owns the numbers, when it uses them anyway: in the optimizer's pass over
 * gradients and values, or after each piece of it; on devices by kernels after it (hashes.h). A parameter's hash is of
 * the elements that this coordinate updates (its shard, or its share of the shard), by their places in the whole
 * parameter (spmd/base/places.h). So the hashes of all coordinates that represent a part add up to the hash of the
 * parameter, in every layout. Gradients are hashed as sums, neither scaled nor clipped. */
#ifndef SL_LAYERS_RECORDS_JOURNAL_PRINTS_H
#define SL_LAYERS_RECORDS_JOURNAL_PRINTS_H

#include "layers/records/journal/hashes.h"
#include "layers/modules/parameters/parameters.h"
#include "spmd/base/places.h"

SL_BEGIN_C

enum sl_print { SL_PRINT_GRADIENT, SL_PRINT_VALUE, SL_PRINTS };

struct sl_prints; /* opaque; each coordinate has its own */

/* Opens prints of PARAMETERS, which are laid out and must outlive them. HASHES: device hashes, which the caller opens
 * and reads; prints use those from NUMBER on, SL_PRINTS for each parameter; NULL: the host computes hashes. SL_FAILED
 * if memory is short. Free with sl_prints_close. */
int sl_prints_open(struct sl_prints **prints, struct sl_spmd *self, const struct sl_parameters *parameters,
                   struct sl_hashes *hashes, int number);
void sl_prints_close(struct sl_prints *prints);

/* Clears all hashes before a step. */
void sl_prints_begin(struct sl_prints *prints);
/* Hashes COUNT elements of flat range RANGE from FIRST on, in device memory: their GRADIENT and VALUES, each unless it
 * is NULL. If ADDEND is not NULL, gradients are GRADIENT + ADDEND, both in host memory. Elements outside of parameters
 * are ignored. */
void sl_prints_add(struct sl_prints *prints, int range, size_t first, size_t count, const float *gradient,
                   const float *addend, const float *values);
/* For a pass that computes the sums itself. sl_prints_keys: number of elements of RANGE from FIRST on, at least one,
 * with consecutive KEYS. sl_prints_add_sums: adds, for COUNT of these, the sums of keys times gradients, and of keys
 * times values, as words. */
size_t sl_prints_keys(struct sl_prints *prints, int range, size_t first, const uint32_t **keys);
void sl_prints_add_sums(struct sl_prints *prints, size_t first, size_t count, uint64_t gradients, uint64_t values);
/* Hashes all values in memory, also of frozen parameters. SL_FAILED only if parameters take turns in memory and reading
 * a file fails. */
int sl_prints_add_values(struct sl_prints *prints);

/* Number of hashed elements of parameter I: 0 if it is another coordinate's share, or the second declaration of a tied
 * one. */
size_t sl_prints_elements(const struct sl_prints *prints, int i);
/* Whether this coordinate represents them: the hashes of all such coordinates add up to the parameter's. */
bool sl_prints_count(const struct sl_prints *prints, int i);
/* Writes the hash of parameter I to *HASH; false if not all of its elements have been hashed. */
bool sl_prints_hash(const struct sl_prints *prints, enum sl_print kind, int i, uint64_t *hash);

SL_END_C
#endif
