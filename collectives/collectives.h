/* collectives.h - ppermute, psum, all_gather and similar calls over groups of coordinates.
 *
 * Every member of a group makes the same calls in the same order. Each operation has a blocking form,
 *
 *     sl_psum(self, &group, SL_F32, in, out, count)
 *
 * and a form in two steps: sl_psum_start(self, &request, ...the same arguments...), then sl_wait(self, &request).
 * Between the two steps neither IN nor OUT may be touched. Up to SL_MAX_IN_FLIGHT calls of a group may be under way at
 * once; one more is SL_BAD_INPUT. Members wait for calls in the order in which they started them. A program that stops
 * early waits for its started calls before it frees their memory. Any call may wait for all members of its group.
 *
 * Calls return SL_OK, SL_BAD_INPUT if arguments cannot be right, or SL_FAILED once the run has ended; the program
 * should then return this status. Sums are taken in member order, so results repeat bit for bit. A sum over more than
 * SL_SUM_BLOCK members adds blocks of SL_SUM_BLOCK members first, then the blocks' sums, in the same order. bf16 is
 * summed in float and rounded once.
 *
 * IN may be OUT in psum, psum_tree, pmean, pmax and broadcast. In psum_scatter over dim 0, and in psum_scatter_tree,
 * OUT may be this member's block of IN; in gather and in all_gather along dim 0 IN may be this member's block of OUT.
 * Otherwise the two must not overlap. IN may be NULL if it is not read: at the receivers of a broadcast, and in a
 * ppermute at a member that is no source. OUT may be NULL if it is not written: in a gather at all members but the
 * root.
 *
 * Checked mode compares the members' calls before data moves: operation, dtype, elements, root, pairs and the line of
 * the call must be the same for all. A call that a member skips is found at its next call over the group from another
 * line: in a loop that repeats one line, only after the loop. Opening groups is not compared. No member starts a call
 * before all have finished the call SL_MAX_IN_FLIGHT calls earlier.
 *
 * In unchecked mode, the n-th call of a member over a group meets the n-th calls of the others. Engines local and mpi
 * compare a member's call with the calls of the members it receives from, before data moves: group, operation, dtype,
 * elements and root, but neither the line of the call nor pairs. A skipped call therefore ends the run at the next call
 * of another kind. If one member skips a psum and calls an equally large psum next, the two meet: sums are wrong with
 * status SL_OK until a call of another kind comes, or a member waits for a call that never comes; only then is there a
 * verdict. Engine nccl compares nothing. Neither mode notices a program that ignores statuses: after a failed or
 * skipped call, OUT is unchanged. */
#ifndef SL_COLLECTIVES_COLLECTIVES_H
#define SL_COLLECTIVES_COLLECTIVES_H

#include "spmd/engine.h"

SL_BEGIN_C

enum { SL_MAX_IN_FLIGHT = 8 };

/* Opens the group of the coordinates with this one's index in all axes except AXES. AXES is a name, several names
 * separated by commas, or "*" for the whole mesh. Collective over the mesh: all coordinates open the same groups in the
 * same order. Two groups of the same members have separate calls. Close with sl_group_close. */
int sl_group_axes(struct sl_spmd *self, const char *axes, struct sl_group *group);
/* Opens the group of COUNT COORDINATES, in this order. Collective over the mesh: coordinates outside the list call it,
 * too, and get rank -1. One call may open several disjoint groups, if each coordinate gives its own list. */
int sl_group_list(struct sl_spmd *self, int count, const int *coordinates, struct sl_group *group);

/* Closes GROUP and empties it. Every member closes it, in its order of calls over the group, after it has waited for
 * all its started calls (otherwise SL_BAD_INPUT). The call may wait until the other members have reached the same
 * point. Nothing happens if this coordinate is not a member, or if the group is empty ({0}) or closed. Copies of GROUP
 * are closed with it. The end of the run closes all open groups. */
#define sl_group_close(self, group) sl_close_group(self, SL_HERE, group)
int sl_close_group(struct sl_spmd *self, const char *site, struct sl_group *group);

/* Descriptions of calls. Shapes are in elements. */
struct sl_collective sl_describe_barrier(const struct sl_group *group);
/* IN and OUT are [count]. PERMUTATION holds PAIRS of (source, destination), positions in the group. Members outside the
 * destinations get zeros. */
struct sl_collective sl_describe_ppermute(const struct sl_group *group, enum sl_dtype dtype, const void *in, void *out,
                                          size_t count, int pairs, const int (*permutation)[2]);
/* Sum, mean and elementwise maximum over the members: IN and OUT are [count]. */
struct sl_collective sl_describe_psum(const struct sl_group *group, enum sl_dtype dtype, const void *in, void *out,
                                      size_t count);
struct sl_collective sl_describe_pmean(const struct sl_group *group, enum sl_dtype dtype, const void *in, void *out,
                                       size_t count);
struct sl_collective sl_describe_pmax(const struct sl_group *group, enum sl_dtype dtype, const void *in, void *out,
                                      size_t count);
/* IN is [size, count], OUT [count]: the sum of the members' rows for this member. */
struct sl_collective sl_describe_psum_scatter(const struct sl_group *group, enum sl_dtype dtype, const void *in,
                                              void *out, size_t count);
/* The same along dim DIM: IN has SHAPE [dims]; OUT has this dim divided by the group's size. */
struct sl_collective sl_describe_psum_scatter_dim(const struct sl_group *group, enum sl_dtype dtype, const void *in,
                                                  void *out, int dims, const size_t *shape, int dim);
/* psum and psum_scatter in tree order: the sum of N arrays is the sum of the first P, the largest power of two below N,
 * plus the sum of the others. If each member's array is itself a sum of 1, 2, 4, ... leaves in their order, the result
 * is the sum of all leaves in the order of one tree, for any number of leaves per member. With up to three members the
 * order is psum's. */
struct sl_collective sl_describe_psum_tree(const struct sl_group *group, enum sl_dtype dtype, const void *in, void *out,
                                           size_t count);
struct sl_collective sl_describe_psum_scatter_tree(const struct sl_group *group, enum sl_dtype dtype, const void *in,
                                                   void *out, size_t count);
struct sl_collective sl_describe_psum_scatter_tree_dim(const struct sl_group *group, enum sl_dtype dtype,
                                                       const void *in, void *out, int dims, const size_t *shape,
                                                       int dim);
/* IN is [count], OUT [size, count]: the members' arrays one after another. */
struct sl_collective sl_describe_all_gather(const struct sl_group *group, enum sl_dtype dtype, const void *in,
                                            void *out, size_t count);
/* The same along dim DIM: IN has SHAPE [dims]; OUT has this dim multiplied by the group's size. */
struct sl_collective sl_describe_all_gather_dim(const struct sl_group *group, enum sl_dtype dtype, const void *in,
                                                void *out, int dims, const size_t *shape, int dim);
/* IN has SHAPE [dims]; OUT has dim SPLIT divided and dim CONCAT multiplied by the group's size. SPLIT and CONCAT
 * differ. */
struct sl_collective sl_describe_all_to_all(const struct sl_group *group, enum sl_dtype dtype, const void *in,
                                            void *out, int dims, const size_t *shape, int split, int concat);
/* OUT [count] of every member becomes IN [count] of the member at position ROOT. IN is read at the root only. */
struct sl_collective sl_describe_broadcast(const struct sl_group *group, enum sl_dtype dtype, const void *in, void *out,
                                           size_t count, int root);
/* OUT [size, count] of the member at position ROOT becomes the IN [count] of all members, in member order. OUT is
 * written at the root only. */
struct sl_collective sl_describe_gather(const struct sl_group *group, enum sl_dtype dtype, const void *in, void *out,
                                        size_t count, int root);

/* Makes the call and waits until it has ended. SITE ("file:line") must live as long as the run. The macros below call
 * these functions. */
int sl_call(struct sl_spmd *self, const char *site, struct sl_collective call);
/* Starts the call. REQUEST must live until the call has ended. */
int sl_start(struct sl_spmd *self, struct sl_request *request, const char *site, struct sl_collective call);
/* Waits until the call has ended. */
int sl_wait(struct sl_spmd *self, struct sl_request *request);
/* Advances the call without waiting. Sets *DONE to whether the call has ended; if so, do not call sl_wait. Test the
 * calls of a group in the order in which they were started, as with sl_wait. Within a step captured as graphs
 * (spmd/device/device.h) a call may end only in sl_wait: do not loop on sl_test until the call is done. */
int sl_test(struct sl_spmd *self, struct sl_request *request, bool *done);

/* Whether the functions below can be called: coordinates are threads of one process, and no delay is simulated.
 * Otherwise they return SL_BAD_INPUT. */
bool sl_reads_peers(const struct sl_spmd *self);
/* An all_gather made by this member alone, while the others do other work: it reads INPUT[i], the address of IN at the
 * member at position i. The program must keep these arrays allocated and unchanged: the members meet after writing
 * them, and again before the next write. If the run ends meanwhile, a member's arrays must stay until its next call has
 * failed. */
#define sl_gather_from(self, input, ...) sl_gather_from_at(self, SL_HERE, input, __VA_ARGS__)
int sl_gather_from_at(struct sl_spmd *self, const char *site, const void *const *input, struct sl_collective call);
/* Brackets reads of peers' arrays by the program itself, under the same conditions. Make no other call of the library
 * between the two calls: if the run ends, peers wait for sl_peers_end. */
#define sl_peers_begin(self) sl_peers_begin_at(self, SL_HERE)
int sl_peers_begin_at(struct sl_spmd *self, const char *site);
void sl_peers_end(struct sl_spmd *self);
/* Sets *MEMORY to BYTES of zeroed memory, allocated by sl_device and shared by the members of GROUP; all members ask
 * for the same BYTES. A second call for GROUP returns the same memory. The last member to close GROUP frees it.
 * SL_BAD_INPUT if BYTES differ from the first caller's; SL_FAILED without memory. Does not wait. */
int sl_group_memory(struct sl_spmd *self, const struct sl_group *group, size_t bytes, void **memory);

/* The name of CALL's operation, for messages: "psum", "pmean", ... */
const char *sl_collective_name(const struct sl_collective *call);

/* Reports to peers: this coordinate is computing, not absent. SL_FAILED once the run has ended. */
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
#define sl_psum_tree(self, ...) sl_call(self, SL_HERE, sl_describe_psum_tree(__VA_ARGS__))
#define sl_psum_scatter_tree(self, ...) sl_call(self, SL_HERE, sl_describe_psum_scatter_tree(__VA_ARGS__))
#define sl_psum_scatter_tree_dim(self, ...) sl_call(self, SL_HERE, sl_describe_psum_scatter_tree_dim(__VA_ARGS__))
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
#define sl_psum_tree_start(self, request, ...) sl_start(self, request, SL_HERE, sl_describe_psum_tree(__VA_ARGS__))
#define sl_psum_scatter_tree_start(self, request, ...)                                                                 \
    sl_start(self, request, SL_HERE, sl_describe_psum_scatter_tree(__VA_ARGS__))
#define sl_psum_scatter_tree_dim_start(self, request, ...)                                                             \
    sl_start(self, request, SL_HERE, sl_describe_psum_scatter_tree_dim(__VA_ARGS__))
#define sl_all_gather_start(self, request, ...) sl_start(self, request, SL_HERE, sl_describe_all_gather(__VA_ARGS__))
#define sl_all_gather_dim_start(self, request, ...)                                                                    \
    sl_start(self, request, SL_HERE, sl_describe_all_gather_dim(__VA_ARGS__))
#define sl_all_to_all_start(self, request, ...) sl_start(self, request, SL_HERE, sl_describe_all_to_all(__VA_ARGS__))
#define sl_broadcast_start(self, request, ...) sl_start(self, request, SL_HERE, sl_describe_broadcast(__VA_ARGS__))
#define sl_gather_start(self, request, ...) sl_start(self, request, SL_HERE, sl_describe_gather(__VA_ARGS__))

SL_END_C
#endif
