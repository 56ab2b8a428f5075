/* collectives.c - describes calls, checks their arguments and opens groups; the engine does the rest. */
#include "collectives/collectives.h"

#include <stdio.h>
#include <string.h>

#include "collectives/operations.h"
#include "spmd/set.h"

/* ---- groups ---- */

/* Empties a group that could not be opened, so that it counts as not open if the program goes on. */
static int leave_closed(struct sl_group *group, int status) {
    *group = (struct sl_group){0};
    return status;
}

static int open_group(struct sl_spmd *self, struct sl_group *group) {
    group->rank = -1;
    for (int i = 0; i < group->size; i++) {
        if (sl_group_member(group, i) == self->coordinate) group->rank = i;
    }
    const int status = self->engine->table->group_open(self, group);
    return status ? leave_closed(group, status) : SL_OK;
}

int sl_group_axes(struct sl_spmd *self, const char *axes, struct sl_group *group) {
    *group = (struct sl_group){0};
    group->size = sl_mesh_members(self->mesh, self->coordinate, axes, &group->members);
    if (group->size < 0) {
        char mesh[200];
        return leave_closed(group, sl_fail(self, SL_BAD_INPUT, "group: \"%.60s\" is not a list of axes of the mesh %s",
                                           axes, sl_mesh_print(self->mesh, mesh, sizeof mesh)));
    }
    snprintf(group->name, sizeof group->name, "%s", axes);
    return open_group(self, group);
}

/* Refuses a coordinate outside the mesh or listed twice; SEEN is the set of coordinates listed before. */
static int check_listed(struct sl_spmd *self, int coordinate, uint64_t *seen) {
    if (coordinate < 0 || coordinate >= self->mesh->size) {
        return sl_fail(self, SL_BAD_INPUT, "group: the mesh has coordinates 0 to %d, not %d", self->mesh->size - 1,
                       coordinate);
    }
    if (!sl_set_adds(seen, coordinate))
        return sl_fail(self, SL_BAD_INPUT, "group: coordinate %d is listed twice", coordinate);
    return SL_OK;
}

/* Saves the members COORDINATES [count]: as count and stride if they are evenly spaced, otherwise as a list. */
static int keep_members(struct sl_spmd *self, int count, const int *coordinates, struct sl_group *group) {
    const int stride = count > 1 ? coordinates[1] - coordinates[0] : 1;
    bool even = true;
    for (int i = 1; i < count; i++) even &= coordinates[i] - coordinates[i - 1] == stride;
    group->size = count;
    group->members = (struct sl_members){coordinates[0], .dims = 1, .count = {count}, .stride = {stride}};
    if (even) return SL_OK;
    group->members.list = sl_list_kept(self, count, coordinates);
    return group->members.list ? SL_OK : sl_fail(self, SL_FAILED, "no memory for a group of %d coordinates", count);
}

int sl_group_list(struct sl_spmd *self, int count, const int *coordinates, struct sl_group *group) {
    *group = (struct sl_group){0};
    if (count < 1 || count > self->mesh->size) {
        return sl_fail(self, SL_BAD_INPUT, "group: a list has 1 to %d coordinates, not %d", self->mesh->size, count);
    }
    uint64_t seen[sl_set_words(self->mesh->size)];
    memset(seen, 0, sizeof seen);
    size_t used = 0;
    for (int i = 0; i < count; i++) {
        SL_TRY(check_listed(self, coordinates[i], seen));
        if (used < sizeof group->name) {
            const size_t left = sizeof group->name - used;
            used += (size_t)snprintf(group->name + used, left, "%s%d%s", i ? "," : "{", coordinates[i],
                                     i == count - 1 ? "}" : "");
        }
    }
    const int status = keep_members(self, count, coordinates, group);
    return status ? leave_closed(group, status) : open_group(self, group);
}

int sl_close_group(struct sl_spmd *self, const char *site, struct sl_group *group) {
    if (group->communicator) SL_TRY(self->engine->table->group_close(self, group, site));
    *group = (struct sl_group){0};
    return SL_OK;
}

/* ---- describing calls ---- */

const char *sl_collective_name(const struct sl_collective *call) {
    return call->operation == SL_PSUM && call->scale != 1 ? "pmean" : sl_operation_of(call)->name;
}

/* A description cannot return an error: it becomes a call without an operation, which sl_start reports. REASON is a
 * format with up to three %td. */
static struct sl_collective invalid(const char *reason, ptrdiff_t a, ptrdiff_t b, ptrdiff_t c) {
    return (struct sl_collective){
        .operation = SL_OPERATIONS, .site = reason, .count = {(size_t)a, (size_t)b, (size_t)c}};
}

/* Arrays of COUNT contiguous elements. */
static struct sl_collective describe(enum sl_operation operation, const struct sl_group *group, enum sl_dtype dtype,
                                     const void *in, void *out, size_t count) {
    return (struct sl_collective){
        .operation = operation,
        .group = group,
        .dtype = dtype,
        .input = in,
        .output = out,
        .count = {1, 1, count},
        .scale = 1,
        .source = -1,
        .destination = -1,
    };
}

struct sl_collective sl_describe_barrier(const struct sl_group *group) {
    return describe(SL_BARRIER, group, SL_F32, NULL, NULL, 0);
}

struct sl_collective sl_describe_ppermute(const struct sl_group *group, enum sl_dtype dtype, const void *in, void *out,
                                          size_t count, int pairs, const int (*permutation)[2]) {
    struct sl_collective call = describe(SL_PPERMUTE, group, dtype, in, out, count);
    if (!group) return call;
    if (pairs < 0 || pairs > group->size) {
        return invalid("ppermute: a group of %td members cannot have %td pairs", group->size, pairs, 0);
    }
    if (pairs && !permutation) return invalid("ppermute: the pairs are NULL", 0, 0, 0);
    uint64_t sources[sl_set_words(group->size)], destinations[sl_set_words(group->size)];
    memset(sources, 0, sizeof sources);
    memset(destinations, 0, sizeof destinations);
    for (int i = 0; i < pairs; i++) {
        const int source = permutation[i][0], destination = permutation[i][1];
        if (source < 0 || source >= group->size || destination < 0 || destination >= group->size) {
            return invalid("ppermute: the pair (%td, %td) is not within a group of %td members", source, destination,
                           group->size);
        }
        if (!sl_set_adds(sources, source)) return invalid("ppermute: two pairs have the source %td", source, 0, 0);
        if (!sl_set_adds(destinations, destination)) {
            return invalid("ppermute: two pairs have the destination %td", destination, 0, 0);
        }
        if (destination == group->rank) call.source = source;
        if (source == group->rank) call.destination = destination;
    }
    return call;
}

struct sl_collective sl_describe_psum(const struct sl_group *group, enum sl_dtype dtype, const void *in, void *out,
                                      size_t count) {
    return describe(SL_PSUM, group, dtype, in, out, count);
}

struct sl_collective sl_describe_psum_tree(const struct sl_group *group, enum sl_dtype dtype, const void *in, void *out,
                                           size_t count) {
    return describe(SL_PSUM_TREE, group, dtype, in, out, count);
}

struct sl_collective sl_describe_pmean(const struct sl_group *group, enum sl_dtype dtype, const void *in, void *out,
                                       size_t count) {
    if (sl_dtype_exists(dtype) && sl_dtypes[dtype].integer)
        return invalid("pmean: the mean of i32 is not defined, nor of other integers: use psum", 0, 0, 0);
    struct sl_collective call = describe(SL_PSUM, group, dtype, in, out, count);
    if (group) call.scale = 1.0f / (float)group->size;
    return call;
}

struct sl_collective sl_describe_pmax(const struct sl_group *group, enum sl_dtype dtype, const void *in, void *out,
                                      size_t count) {
    return describe(SL_PMAX, group, dtype, in, out, count);
}

static size_t product(const size_t *shape, int begin, int end) {
    size_t elements = 1;
    for (int dim = begin; dim < end; dim++) elements *= shape[dim];
    return elements;
}

struct sl_collective sl_describe_psum_scatter_dim(const struct sl_group *group, enum sl_dtype dtype, const void *in,
                                                  void *out, int dims, const size_t *shape, int dim) {
    struct sl_collective call = describe(SL_PSUM_SCATTER, group, dtype, in, out, 0);
    if (!group || !group->size) return call; /* sl_start refuses it */
    if (dims < 1 || dims > SL_MAX_DIMS || !shape) {
        return invalid("psum_scatter: an array has 1 to %td dims, not %td", SL_MAX_DIMS, shape ? dims : 0, 0);
    }
    if (dim < 0 || dim >= dims) return invalid("psum_scatter: dim %td is not one of %td dims", dim, dims, 0);
    const size_t members = (size_t)group->size;
    if (shape[dim] % members) {
        return invalid("psum_scatter: dim %td of %td does not divide by %td members", dim, (ptrdiff_t)shape[dim],
                       group->size);
    }
    const size_t whole = product(shape, dim, dims), block = whole / members;
    call.count[1] = product(shape, 0, dim), call.count[2] = block;
    call.input_view = (struct sl_view){.peer = block, .stride = {0, whole}};
    call.output_view = (struct sl_view){.peer = 0, .stride = {0, block}};
    return call;
}

struct sl_collective sl_describe_psum_scatter(const struct sl_group *group, enum sl_dtype dtype, const void *in,
                                              void *out, size_t count) {
    const size_t whole = group ? (size_t)group->size * count : count;
    return sl_describe_psum_scatter_dim(group, dtype, in, out, 1, &whole, 0);
}

static struct sl_collective by_tree(struct sl_collective call) {
    if (call.operation == SL_PSUM_SCATTER) call.operation = SL_SCATTER_TREE;
    return call;
}
struct sl_collective sl_describe_psum_scatter_tree(const struct sl_group *group, enum sl_dtype dtype, const void *in,
                                                   void *out, size_t count) {
    return by_tree(sl_describe_psum_scatter(group, dtype, in, out, count));
}
struct sl_collective sl_describe_psum_scatter_tree_dim(const struct sl_group *group, enum sl_dtype dtype,
                                                       const void *in, void *out, int dims, const size_t *shape,
                                                       int dim) {
    return by_tree(sl_describe_psum_scatter_dim(group, dtype, in, out, dims, shape, dim));
}

struct sl_collective sl_describe_all_gather_dim(const struct sl_group *group, enum sl_dtype dtype, const void *in,
                                                void *out, int dims, const size_t *shape, int dim) {
    struct sl_collective call = describe(SL_ALL_GATHER, group, dtype, in, out, 0);
    if (!group) return call;
    if (dims < 1 || dims > SL_MAX_DIMS || !shape) {
        return invalid("all_gather: an array has 1 to %td dims, not %td", SL_MAX_DIMS, shape ? dims : 0, 0);
    }
    if (dim < 0 || dim >= dims) return invalid("all_gather: dim %td is not one of %td dims", dim, dims, 0);
    const size_t block = product(shape, dim, dims);
    call.count[1] = product(shape, 0, dim), call.count[2] = block;
    call.input_view = (struct sl_view){.peer = 0, .stride = {0, block}};
    call.output_view = (struct sl_view){.peer = block, .stride = {0, (size_t)group->size * block}};
    return call;
}

struct sl_collective sl_describe_all_gather(const struct sl_group *group, enum sl_dtype dtype, const void *in,
                                            void *out, size_t count) {
    return sl_describe_all_gather_dim(group, dtype, in, out, 1, &count, 0);
}

struct sl_collective sl_describe_all_to_all(const struct sl_group *group, enum sl_dtype dtype, const void *in,
                                            void *out, int dims, const size_t *shape, int split, int concat) {
    struct sl_collective call = describe(SL_ALL_TO_ALL, group, dtype, in, out, 0);
    if (!group || !group->size) return call;
    if (dims < 2 || dims > SL_MAX_DIMS || !shape) {
        return invalid("all_to_all: an array has 2 to %td dims, not %td", SL_MAX_DIMS, shape ? dims : 0, 0);
    }
    if (split < 0 || split >= dims || concat < 0 || concat >= dims || split == concat) {
        return invalid("all_to_all: split %td and concat %td are not two dims of %td", split, concat, dims);
    }
    const size_t members = (size_t)group->size;
    if (shape[split] % members) {
        return invalid("all_to_all: dim %td of %td does not divide by %td members", split, (ptrdiff_t)shape[split],
                       group->size);
    }
    /* The block for one peer is the input with a share of dim SPLIT. A run is the longest part contiguous in both
     * arrays: all dims after the later one of SPLIT and CONCAT, and the block's part of the later dim itself. */
    const size_t share = shape[split] / members;
    const int first = split < concat ? split : concat, last = split < concat ? concat : split;
    const size_t outer = product(shape, 0, first), middle = product(shape, first + 1, last),
                 inner = product(shape, last + 1, dims);
    if (split < concat) {
        const size_t run = shape[concat] * inner, block = share * middle * run;
        call.count[0] = outer, call.count[1] = share * middle, call.count[2] = run;
        call.input_view = (struct sl_view){.peer = block, .stride = {members * block, run}};
        call.output_view = (struct sl_view){.peer = run, .stride = {members * block, members * run}};
    } else {
        const size_t run = share * inner, block = shape[concat] * middle * run;
        call.count[0] = outer, call.count[1] = shape[concat] * middle, call.count[2] = run;
        call.input_view = (struct sl_view){.peer = run, .stride = {members * block, members * run}};
        call.output_view = (struct sl_view){.peer = block, .stride = {members * block, run}};
    }
    return call;
}

struct sl_collective sl_describe_broadcast(const struct sl_group *group, enum sl_dtype dtype, const void *in, void *out,
                                           size_t count, int root) {
    struct sl_collective call = describe(SL_BROADCAST, group, dtype, in, out, count);
    call.root = root;
    return call;
}

struct sl_collective sl_describe_gather(const struct sl_group *group, enum sl_dtype dtype, const void *in, void *out,
                                        size_t count, int root) {
    struct sl_collective call = describe(SL_GATHER, group, dtype, in, out, count);
    call.output_view.peer = count;
    call.root = root;
    return call;
}

/* ---- checking calls ---- */

/* Bytes from the first element of a call's first block to the end of its last one. MANY: there is a block per member;
 * otherwise there is one block. */
static size_t extent(const struct sl_collective *call, const struct sl_view *view, bool many) {
    if (!sl_block_elements(call)) return 0;
    const size_t peers = many ? (size_t)call->group->size - 1 : 0;
    return sl_dtype_size(call->dtype) * (peers * view->peer + (call->count[0] - 1) * view->stride[0] +
                                         (call->count[1] - 1) * view->stride[1] + call->count[2]);
}

/* Whether input and output share memory in a way that the operation does not allow. */
static bool overlaps(const struct sl_collective *call) {
    const struct sl_operation_row *operation = sl_operation_of(call);
    const uintptr_t in = (uintptr_t)call->input, out = (uintptr_t)call->output;
    if (in >= out + extent(call, &call->output_view, operation->joins)) return false;
    if (out >= in + extent(call, &call->input_view, operation->cuts)) return false;
    const size_t mine = (size_t)call->group->rank * sl_dtype_size(call->dtype);
    const bool same_block = in + mine * call->input_view.peer == out + mine * call->output_view.peer;
    return !operation->in_place || !same_block || call->count[0] * call->count[1] != 1;
}

/* The reason why CALL is refused; NULL: it is not. */
static const char *reason_against(const struct sl_spmd *self, const struct sl_collective *call) {
    const struct sl_group *group = call->group;
    const struct sl_operation_row *operation = sl_operation_of(call);
    const bool empty = sl_block_elements(call) == 0;
    const bool rooted = operation->from == SL_WITH_ROOT || operation->to == SL_WITH_ROOT;
    if (group->rank < 0) return "this coordinate is not a member";
    if (!sl_dtype_exists(call->dtype)) return "there is no such data type";
    if (rooted && (call->root < 0 || call->root >= group->size)) return "the root is not a position in the group";
    const bool reads = sl_call_reads(call), writes = sl_call_writes(call);
    if (!empty && reads && !call->input) return "the input is NULL";
    if (!empty && writes && !call->output) return "the output is NULL";
    if (self->engine->checked && reads && writes && overlaps(call)) return "input and output overlap";
    return NULL;
}

/* ---- the public calls ---- */

static int check(struct sl_spmd *self, const char *site, const struct sl_collective *given) {
    const struct sl_collective call = *given;
    if (call.operation == SL_OPERATIONS) {
        char reason[200];
        snprintf(reason, sizeof reason, call.site, (ptrdiff_t)call.count[0], (ptrdiff_t)call.count[1],
                 (ptrdiff_t)call.count[2]);
        return sl_fail(self, SL_BAD_INPUT, "%s (called at %s)", reason, site);
    }
    if (!call.group || !call.group->size) {
        return sl_fail(self, SL_BAD_INPUT, "%s: the group is NULL or not open (called at %s)",
                       sl_collective_name(&call), site);
    }
    const char *reason = reason_against(self, &call);
    if (reason) {
        return sl_fail(self, SL_BAD_INPUT, "%s over \"%s\": %s (called at %s)", sl_collective_name(&call),
                       call.group->name, reason, site);
    }
    return SL_OK;
}

int sl_start(struct sl_spmd *self, struct sl_request *request, const char *site, struct sl_collective call) {
    SL_TRY(check(self, site, &call));
    call.site = site;
    request->call = call;
    request->moved = false;
    return self->engine->table->start(self, request);
}

int sl_wait(struct sl_spmd *self, struct sl_request *request) { return self->engine->table->wait(self, request); }

int sl_test(struct sl_spmd *self, struct sl_request *request, bool *done) {
    return self->engine->table->test(self, request, done);
}

int sl_call(struct sl_spmd *self, const char *site, struct sl_collective call) {
    struct sl_request request;
    SL_TRY(sl_start(self, &request, site, call));
    return sl_wait(self, &request);
}

bool sl_reads_peers(const struct sl_spmd *self) {
    const struct sl_engine *engine = self->engine;
    return engine->table->gather_from && engine->delay <= 0 && !engine->recorded;
}

static int check_reach(struct sl_spmd *self, const char *what) {
    if (sl_reads_peers(self)) return SL_OK;
    return sl_fail(self, SL_BAD_INPUT, "%s: coordinates of engine %s%s do not read each other's memory", what,
                   self->engine->table->name, self->engine->delay > 0 ? ", with a delay," : "");
}

int sl_gather_from_at(struct sl_spmd *self, const char *site, const void *const *input, struct sl_collective call) {
    SL_TRY(check_reach(self, "sl_gather_from"));
    SL_TRY(check(self, site, &call));
    call.site = site;
    return self->engine->table->gather_from(self, &call, input);
}

int sl_peers_begin_at(struct sl_spmd *self, const char *site) {
    SL_TRY(check_reach(self, "sl_peers_begin"));
    return self->engine->table->peers_begin(self, site);
}
void sl_peers_end(struct sl_spmd *self) { self->engine->table->peers_end(self); }

int sl_group_memory(struct sl_spmd *self, const struct sl_group *group, size_t bytes, void **memory) {
    SL_TRY(check_reach(self, "sl_group_memory"));
    if (!group || group->rank < 0 || !group->size)
        return sl_fail(self, SL_BAD_INPUT,
                       "sl_group_memory: the group is NULL or not open, or this is no member of it");
    return self->engine->table->group_memory(self, group, bytes, memory);
}

int sl_progress(struct sl_spmd *self) { return self->engine->table->progress(self); }
