/* prints.h - hashes of a coordinate's parameters and of the sums of their gradients, a step: its fingerprints.
 *
 * They are made where the numbers are at hand anyway, by the thread that owns them: in the pass in which the optimizer
 * reads gradients and makes values, or behind each piece of it; on devices by kernels behind it (hashes.h). A
 * parameter's hash is of the elements that this coordinate updates (its shard, or its share of that), by their places
 * in the whole parameter (spmd/base/places.h): so the hashes of all coordinates that stand for a part add up to that of
 * the parameter, in every layout. Gradients are hashed as they are summed, neither scaled nor clipped. */
#ifndef SL_LAYERS_JOURNAL_PRINTS_H
#define SL_LAYERS_JOURNAL_PRINTS_H

#include "layers/journal/hashes.h"
#include "layers/modules/parameters/parameters.h"
#include "spmd/base/places.h"

SL_BEGIN_C

enum sl_print { SL_PRINT_GRADIENT, SL_PRINT_VALUE, SL_PRINTS };

struct sl_prints; /* opaque; each coordinate has its own */

/* Of PARAMETERS, which are laid out and outlive the prints. Of a device's memory HASHES from NUMBER on are theirs,
 * SL_PRINTS for each parameter, which the caller begins and reads; NULL where there are none. SL_FAILED without memory.
 * Free with sl_prints_close. */
int sl_prints_open(struct sl_prints **prints, struct sl_spmd *self, const struct sl_parameters *parameters,
                   struct sl_hashes *hashes, int number);
void sl_prints_close(struct sl_prints *prints);

/* Before a step: nothing has been seen. */
void sl_prints_begin(struct sl_prints *prints);
/* COUNT elements of flat range RANGE from FIRST on, in the device's memory: their GRADIENT and VALUES, each unless it
 * is NULL. Where ADDEND is not NULL, gradients are the sums of the two, both in the host's memory. What is no
 * parameter's is left out. */
void sl_prints_add(struct sl_prints *prints, int range, size_t first, size_t count, const float *gradient,
                   const float *addend, const float *values);
/* The same where a pass makes the sums itself: how many elements of RANGE from FIRST on, at least one, have their keys
 * together, KEYS; and then, of COUNT of these, the sums of keys times gradients, and times values, as words. */
size_t sl_prints_keys(struct sl_prints *prints, int range, size_t first, const uint32_t **keys);
void sl_prints_add_sums(struct sl_prints *prints, size_t first, size_t count, uint64_t gradients, uint64_t values);
/* All values as they lie, of frozen parameters, too. SL_FAILED only if some take turns in memory and a file gives less.
 */
int sl_prints_add_values(struct sl_prints *prints);

/* How many elements of parameter I are hashed: 0 if it is another's share, or the second declaration of a tied one. */
size_t sl_prints_elements(const struct sl_prints *prints, int i);
/* Whether this coordinate stands for them: the hashes of those that do add up to the parameter's. */
bool sl_prints_count(const struct sl_prints *prints, int i);
/* Writes the hash of parameter I to *HASH; false if not all of its elements have been seen. */
bool sl_prints_hash(const struct sl_prints *prints, enum sl_print kind, int i, uint64_t *hash);

SL_END_C
#endif
