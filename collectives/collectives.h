/* collectives.h - ppermute, psum, all_gather and their kin, over groups of coordinates.
 *
 * Every member of the group makes the same calls in the same order. Each operation has a blocking form,
 *     sl_psum(self, &group, SL_F32, in, out, count)
 * and a split one: sl_psum_start(self, &request, ...same arguments...), then sl_wait(self, &request), with up to
 * SL_MAX_IN_FLIGHT calls of a group under way at once (one more is SL_BAD_INPUT); between the two neither IN nor OUT
 * may be touched. Calls return SL_OK, SL_BAD_INPUT for arguments that cannot be right, or SL_FAILED once the run has
 * ended; the program then returns that status. Sums are taken in member order, so results repeat bit for bit. bf16 is
 * summed in float and rounded once. IN may be OUT for psum, pmean, pmax and broadcast; for psum_scatter over dim 0
 * OUT may be this member's block of IN, for gather and for all_gather along dim 0 IN may be this member's block of OUT;
 * elsewhere the two must not overlap. IN may be NULL where it is not read: at the receivers of a broadcast, in a
 * ppermute at a member that is no source. OUT may be NULL where it is not written: in a gather at all but the root.
 *
 * Members wait for what they started in the same order, too, and a program that gives up waits before it frees the
 * memory of calls under way. In checked mode the members' calls are compared before data moves: operation, dtype,
 * elements, root, pairs and the line of the call are the same everywhere, and no member starts a call before all have
 * finished the one that was SL_MAX_IN_FLIGHT calls earlier. */
#ifndef SL_COLLECTIVES_COLLECTIVES_H
#define SL_COLLECTIVES_COLLECTIVES_H

#include "spmd/engine.h"

SL_BEGIN_C

enum { SL_MAX_IN_FLIGHT = 8 };

/* Groups. Collective over the whole mesh, in the same order everywhere: also coordinates outside the list call it (and
 * get rank -1; disjoint lists may be opened by one call, each coordinate giving its own). AXES is a name, several
 * separated by commas, "*" for the whole mesh. Two groups of the same members have their own calls. */
int sl_group_axes(struct sl_spmd *self, const char *axes, struct sl_group *group);
int sl_group_list(struct sl_spmd *self, int count, const int *coordinates, struct sl_group *group);

/* Gives back what GROUP holds, and leaves it empty. Every member closes it, in its order of calls over it, once it has
 * waited for all that it has started (otherwise SL_BAD_INPUT); this may wait for the others to come as far. Coordinates
 * outside, groups that are empty ({0}) and those that are closed already may be closed, too: nothing happens. Copies of
 * GROUP are closed with it. Groups that are open when the run ends are closed then. */
#define sl_group_close(self, group) sl_close_group(self, SL_HERE, group)
int sl_close_group(struct sl_spmd *self, const char *site, struct sl_group *group);

/* Descriptions of calls: [shapes] are in elements. */
struct sl_collective sl_describe_barrier(const struct sl_group *group);
/* PAIRS of (source, destination) positions; a member that is no destination gets zeros. in [count], out [count]. */
struct sl_collective sl_describe_ppermute(const struct sl_group *group, enum sl_dtype dtype, const void *in, void *out,
                                          size_t count, int pairs, const int (*permutation)[2]);
struct sl_collective sl_describe_psum(const struct sl_group *group, enum sl_dtype dtype, const void *in, void *out,
                                      size_t count);
struct sl_collective sl_describe_pmean(const struct sl_group *group, enum sl_dtype dtype, const void *in, void *out,
                                       size_t count);
struct sl_collective sl_describe_pmax(const struct sl_group *group, enum sl_dtype dtype, const void *in, void *out,
                                      size_t count);
/* in [size, count], out [count]: the sum of the rows for this member. */
struct sl_collective sl_describe_psum_scatter(const struct sl_group *group, enum sl_dtype dtype, const void *in,
                                              void *out, size_t count);
/* The same along dim DIM: in SHAPE[dims], out has that dim divided by the group's size. */
struct sl_collective sl_describe_psum_scatter_dim(const struct sl_group *group, enum sl_dtype dtype, const void *in,
                                                  void *out, int dims, const size_t *shape, int dim);
/* in [count], out [size, count]: the members' arrays one after another. */
struct sl_collective sl_describe_all_gather(const struct sl_group *group, enum sl_dtype dtype, const void *in,
                                            void *out, size_t count);
/* The same along dim DIM: in SHAPE[dims], out has that dim multiplied by the group's size. */
struct sl_collective sl_describe_all_gather_dim(const struct sl_group *group, enum sl_dtype dtype, const void *in,
                                                void *out, int dims, const size_t *shape, int dim);
/* in SHAPE[dims]; out has dim SPLIT divided and dim CONCAT multiplied by the group's size; the two differ. */
struct sl_collective sl_describe_all_to_all(const struct sl_group *group, enum sl_dtype dtype, const void *in,
                                            void *out, int dims, const size_t *shape, int split, int concat);
/* Everyone's out [count] becomes in of the member at position ROOT; IN is read at the root alone. */
struct sl_collective sl_describe_broadcast(const struct sl_group *group, enum sl_dtype dtype, const void *in, void *out,
                                           size_t count, int root);
/* Out [size, count] of the member at position ROOT becomes everyone's in [count], in member order; OUT is written there
 * alone. */
struct sl_collective sl_describe_gather(const struct sl_group *group, enum sl_dtype dtype, const void *in, void *out,
                                        size_t count, int root);

/* The verbs behind the macros below. SITE ("file:line") lives as long as the run. */
int sl_call(struct sl_spmd *self, const char *site, struct sl_collective call);
int sl_start(struct sl_spmd *self, struct sl_request *request, const char *site, struct sl_collective call);
int sl_wait(struct sl_spmd *self, struct sl_request *request);
/* Moves the call on without waiting for anyone. *DONE says whether it has ended; then sl_wait is not called any more.
 * Otherwise calls of a group are tested, as they are waited for, in the order in which they were started. */
int sl_test(struct sl_spmd *self, struct sl_request *request, bool *done);

/* "psum", "pmean", ...: the name of CALL's operation, for messages. */
const char *sl_collective_name(const struct sl_collective *call);

/* Tells peers that this coordinate is computing; returns SL_FAILED once the run has ended. */
int sl_progress(struct sl_spmd *self);

#define SL_TEXT_(x) #x
#define SL_TEXT(x) SL_TEXT_(x)
#define SL_HERE __FILE__ ":" SL_TEXT(__LINE__)

#define sl_barrier(self, ...) sl_call(self, SL_HERE, sl_describe_barrier(__VA_ARGS__))
#define sl_ppermute(self, ...) sl_call(self, SL_HERE, sl_describe_ppermute(__VA_ARGS__))
#define sl_psum(self, ...) sl_call(self, SL_HERE, sl_describe_psum(__VA_ARGS__))
#define sl_pmean(self, ...) sl_call(self, SL_HERE, sl_describe_pmean(__VA_ARGS__))
#define sl_pmax(self, ...) sl_call(self, SL_HERE, sl_describe_pmax(__VA_ARGS__))
#define sl_psum_scatter(self, ...) sl_call(self, SL_HERE, sl_describe_psum_scatter(__VA_ARGS__))
#define sl_psum_scatter_dim(self, ...) sl_call(self, SL_HERE, sl_describe_psum_scatter_dim(__VA_ARGS__))
#define sl_all_gather(self, ...) sl_call(self, SL_HERE, sl_describe_all_gather(__VA_ARGS__))
#define sl_all_gather_dim(self, ...) sl_call(self, SL_HERE, sl_describe_all_gather_dim(__VA_ARGS__))
#define sl_all_to_all(self, ...) sl_call(self, SL_HERE, sl_describe_all_to_all(__VA_ARGS__))
#define sl_broadcast(self, ...) sl_call(self, SL_HERE, sl_describe_broadcast(__VA_ARGS__))
#define sl_gather(self, ...) sl_call(self, SL_HERE, sl_describe_gather(__VA_ARGS__))

#define sl_barrier_start(self, request, ...) sl_start(self, request, SL_HERE, sl_describe_barrier(__VA_ARGS__))
#define sl_ppermute_start(self, request, ...) sl_start(self, request, SL_HERE, sl_describe_ppermute(__VA_ARGS__))
#define sl_psum_start(self, request, ...) sl_start(self, request, SL_HERE, sl_describe_psum(__VA_ARGS__))
#define sl_pmean_start(self, request, ...) sl_start(self, request, SL_HERE, sl_describe_pmean(__VA_ARGS__))
#define sl_pmax_start(self, request, ...) sl_start(self, request, SL_HERE, sl_describe_pmax(__VA_ARGS__))
#define sl_psum_scatter_start(self, request, ...)                                                                      \
    sl_start(self, request, SL_HERE, sl_describe_psum_scatter(__VA_ARGS__))
#define sl_psum_scatter_dim_start(self, request, ...)                                                                  \
    sl_start(self, request, SL_HERE, sl_describe_psum_scatter_dim(__VA_ARGS__))
#define sl_all_gather_start(self, request, ...) sl_start(self, request, SL_HERE, sl_describe_all_gather(__VA_ARGS__))
#define sl_all_gather_dim_start(self, request, ...)                                                                    \
    sl_start(self, request, SL_HERE, sl_describe_all_gather_dim(__VA_ARGS__))
#define sl_all_to_all_start(self, request, ...) sl_start(self, request, SL_HERE, sl_describe_all_to_all(__VA_ARGS__))
#define sl_broadcast_start(self, request, ...) sl_start(self, request, SL_HERE, sl_describe_broadcast(__VA_ARGS__))
#define sl_gather_start(self, request, ...) sl_start(self, request, SL_HERE, sl_describe_gather(__VA_ARGS__))

SL_END_C
#endif
