/* exchange.c - copies shards to and from a store of whole tensors. */
#include "layers/training/exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/base/numbers/bf16.h"
#include "spmd/base/memory.h"
#include "spmd/device/device.h"

/* PIECE: floats sent at a time. COPIED: floats that one coordinate copies at a time; they fit a core's cache. HALVES:
 * bf16 values converted at a time. */
enum { PIECE = 1 << 20, COPIED = 1 << 15, HALVES = 4096 };

/* Elements [first, first + count) of a coordinate's shard of a parameter. */
struct part {
    struct sl_parameter parameter;
    size_t first, count;
};

/* Parts sent or received by one coordinate, one after another. */
struct parts {
    int32_t count;
    struct part *list;
    size_t elements;
};

/* An exchange under way. */
struct exchange {
    struct sl_spmd *self;
    const struct sl_group *world;
    const struct sl_parameters *parameters;
    enum sl_state state;
    bool imports;
    enum which { ALL, BASE, ADAPTERS } which; /* parameters: all, all but adapters, adapters only */
    bool spreads;                             /* replicas with the same values each export a share */
    float scale;
    struct sl_store *store; /* on coordinate 0 */
    float *sent, *received; /* [PIECE] */
};

static struct exchange exchange_of(struct sl_spmd *self, const struct sl_group *world,
                                   const struct sl_parameters *parameters, enum sl_state state) {
    return (struct exchange){.self = self,
                             .world = world,
                             .parameters = parameters,
                             .state = state == SL_ADAPTERS ? SL_VALUES : state,
                             .which = state == SL_ADAPTERS ? ADAPTERS : ALL,
                             .scale = 1.0f};
}

/* ---- parts ---- */

static bool is_shared_out(const struct sl_range *range) { return range->shard_count < range->count; }

static bool has_own_floats(const struct exchange *x, int range) {
    return x->state == SL_VALUES && x->parameters->range[range].own_floats;
}

/* Whether coordinates along data have different parts of RANGE, which they import or export separately. Every
 * coordinate imports all values, because it rounds all of them. */
static bool keeps_parts(const struct exchange *x, int range) {
    if (x->spreads && sl_range_trains(x->parameters, range)) return true;
    return x->state != SL_VALUES || (!x->imports && has_own_floats(x, range));
}

/* This coordinate's part of parameter I's shard, in elements of the parameter. */
static void kept_part(const struct exchange *x, int i, struct part *part) {
    const struct sl_parameter *parameter = &x->parameters->list[i];
    *part = (struct part){*parameter, 0, parameter->count};
    if (keeps_parts(x, parameter->range)) sl_parameter_share(x->parameters, i, &part->first, &part->count);
}

/* Whether this coordinate writes the values; if coordinates hold values together, only the first one does. */
static bool writes_values(const struct exchange *x, int range) {
    return !sl_range_is_common(x->parameters, range) || x->parameters->range[range].shard == 0;
}

/* Whether this coordinate sends, or receives, parameter I's part. */
static bool takes_part(const struct exchange *x, int i) {
    const struct sl_parameter *parameter = &x->parameters->list[i];
    if (x->which != ALL && parameter->adapter != (x->which == ADAPTERS)) return false;
    if (x->imports) return !parameter->second && (x->state != SL_VALUES || writes_values(x, parameter->range));
    const bool shared = keeps_parts(x, parameter->range) && is_shared_out(&x->parameters->range[parameter->range]);
    return sl_parameter_is_first(x->parameters, x->self, i, shared);
}

/* Copies values held only as bf16; the host converts them. */
static void copy_rounded(const struct exchange *x, uint16_t *own, size_t count, float *at) {
    uint16_t piece[HALVES];
    for (size_t begin = 0, some; begin < count; begin += some) {
        some = count - begin < HALVES ? count - begin : HALVES;
        if (x->imports) {
            for (size_t i = 0; i < some; i++) piece[i] = sl_bf16_of_float(at[begin + i]);
            sl_device.copy(own + begin, piece, some * sizeof *piece);
        } else {
            sl_device.copy(piece, own + begin, some * sizeof *piece);
            for (size_t i = 0; i < some; i++) at[begin + i] = sl_float_of_bf16(piece[i]);
        }
    }
}

/* Writes received values of RANGE, from element IN_RANGE on: all as bf16, and this coordinate's part also as floats. */
static void take_floats(const struct exchange *x, const struct sl_range *range, size_t in_range, size_t count,
                        float *at) {
    const size_t begin = in_range > range->shard ? in_range : range->shard;
    const size_t end = in_range + count, shard_end = range->shard + range->shard_count;
    const size_t stop = end < shard_end ? end : shard_end;
    copy_rounded(x, range->rounded + in_range, count, at);
    if (stop > begin)
        sl_device.copy(sl_range_values(range, begin), at + (begin - in_range), (stop - begin) * sizeof *at);
}

/* Copies elements [FIRST, FIRST + COUNT) of the parameter's shard between its memory and AT. */
static int copy_own(const struct exchange *x, const struct sl_parameter *parameter, size_t first, size_t count,
                    float *at) {
    const struct sl_range *range = &x->parameters->range[parameter->range];
    const int state = (int)x->state - SL_STATES;
    const size_t in_range = parameter->offset + first;
    if (state >= 0) { /* the state begins with the range's share */
        const size_t in_shard = in_range - range->shard;
        return x->imports ? sl_parameters_write_state(x->parameters, parameter->range, state, in_shard, count, at,
                                                      &x->self->error)
                          : sl_parameters_read_state(x->parameters, parameter->range, state, in_shard, count, at,
                                                     &x->self->error);
    }
    SL_TRY(x->state == SL_VALUES
               ? sl_parameters_use_values(x->parameters, parameter->range, x->imports, &x->self->error)
               : sl_parameters_use_gradients(x->parameters, parameter->range, x->imports, &x->self->error));
    if (x->state == SL_VALUES && sl_kernels_are_bf16_alone(x->parameters) && parameter->kernel) {
        copy_rounded(x, range->rounded + in_range, count, at);
        return SL_OK;
    }
    if (x->imports && has_own_floats(x, parameter->range)) {
        take_floats(x, range, in_range, count, at);
        return SL_OK;
    }
    if (x->state == SL_VALUES) {
        sl_parameters_copy_values(x->parameters, parameter->range, in_range, count, at, x->imports);
        return SL_OK;
    }
    float *own = range->sum + (in_range - range->shard);
    sl_device.copy(x->imports ? own : at, x->imports ? at : own, count * sizeof *at);
    return SL_OK;
}

/* Whether this coordinate sends, or receives, a PART of parameter I. */
static bool find_part(const struct exchange *x, int i, struct part *part) {
    kept_part(x, i, part);
    return takes_part(x, i) && part->count > 0;
}

static int list_own(struct exchange *x, struct parts *parts) {
    parts->list = malloc(((size_t)x->parameters->count + 1) * sizeof *parts->list);
    if (!parts->list) return sl_fail(x->self, SL_FAILED, "no memory to list %d parameters", x->parameters->count);
    for (int i = 0; i < x->parameters->count; i++) parts->count += find_part(x, i, &parts->list[parts->count]);
    return SL_OK;
}

/* Sends OWNER's list of parts to all coordinates, because names and shapes differ between stages. Free parts->list. */
static int tell(struct exchange *x, int owner, struct parts *parts) {
    _Static_assert(sizeof(struct part) % sizeof(int32_t) == 0, "sent as words");
    *parts = (struct parts){0};
    if (x->self->coordinate == owner) SL_TRY(list_own(x, parts));
    SL_TRY(sl_broadcast(x->self, x->world, SL_I32, &parts->count, &parts->count, 1, owner));
    if (!parts->list) parts->list = malloc(((size_t)parts->count + 1) * sizeof *parts->list);
    if (!parts->list) return sl_fail(x->self, SL_FAILED, "no memory to list %d parameters", parts->count);
    SL_TRY(sl_broadcast(x->self, x->world, SL_I32, parts->list, parts->list,
                        (size_t)parts->count * sizeof *parts->list / sizeof(int32_t), owner));
    for (int i = 0; i < parts->count; i++) parts->elements += parts->list[i].count;
    return SL_OK;
}

/* ---- coordinate 0's tensors ---- */

static void name_of(const struct sl_parameters *parameters, enum sl_state state, const char *parameter,
                    char name[static 128]) {
    if (state < SL_STATES)
        snprintf(name, 128, "%s", parameter);
    else
        snprintf(name, 128, "optimizer.%s.%s", parameters->state_name[state - SL_STATES], parameter);
}

static int find_tensor(const struct exchange *x, const struct sl_parameter *parameter, struct sl_tensor **tensor) {
    char name[128];
    name_of(x->parameters, x->state, parameter->name, name);
    *tensor = sl_store_find(x->store, name);
    if (!*tensor && !x->imports) *tensor = sl_store_add(x->store, name, SL_F32, parameter->dims, parameter->shape);
    if (!*tensor && !x->imports) return sl_fail(x->self, SL_FAILED, "no memory to assemble %s", name);
    if (!*tensor) return sl_fail(x->self, SL_BAD_INPUT, "parameter %s is not in the given values", name);
    const struct sl_array *array = &(*tensor)->array;
    if (array->dtype == SL_F32 && array->dims == parameter->dims &&
        !memcmp(array->shape, parameter->shape, (size_t)parameter->dims * sizeof *parameter->shape))
        return SL_OK;
    return sl_fail(x->self, SL_BAD_INPUT, "parameter %s: the given values have another shape or type", name);
}

/* Copies elements [FIRST, END) of OWNER's shard between TENSOR and PIECE. */
static void copy_runs(const struct exchange *x, int owner, const struct sl_parameter *parameter,
                      const struct sl_tensor *tensor, size_t first, size_t end, float *piece) {
    const struct sl_shard shard =
        sl_spec_shard(&parameter->spec, x->self->mesh, owner, parameter->dims, parameter->shape);
    const size_t run = sl_shard_run(&shard);
    for (size_t i = first, count; i < end; i += count, piece += count) {
        const size_t global = sl_shard_global_index(&shard, i);
        count = run - i % run < end - i ? run - i % run : end - i;
        if (x->imports) {
            sl_tensor_read(tensor, global, count, piece);
            continue;
        }
        float *place = (float *)tensor->array.data + global;
        memcpy(place, piece, count * sizeof *piece);
        if (x->scale == 1.0f) continue;
        for (size_t e = 0; e < count; e++) place[e] *= x->scale;
    }
}

/* ---- the stream ---- */

/* Copies elements [BEGIN, END) of the stream, part by part: if TENSORS, between PIECE and coordinate 0's tensors,
 * otherwise between PIECE and the owner's memory. */
static int walk(struct exchange *x, int owner, const struct parts *parts, size_t begin, size_t end, bool tensors,
                float *piece) {
    size_t start = 0; /* of the part, in the stream */
    for (int i = 0; i < parts->count && start < end; start += parts->list[i++].count) {
        const struct part *part = &parts->list[i];
        if (start + part->count <= begin) continue;
        const size_t from = begin > start ? begin - start : 0;
        const size_t to = end - start < part->count ? end - start : part->count;
        float *at = piece + (start + from - begin);
        if (tensors) {
            struct sl_tensor *tensor;
            SL_TRY(find_tensor(x, &part->parameter, &tensor));
            copy_runs(x, owner, &part->parameter, tensor, part->first + from, part->first + to, at);
        } else {
            SL_TRY(copy_own(x, &part->parameter, part->first + from, to - from, at));
        }
    }
    return SL_OK;
}

/* Sends OWNER's parts from coordinate 0 to OWNER, or back. */
static int stream(struct exchange *x, int owner, const struct parts *parts) {
    const int pair[1][2] = {{x->imports ? 0 : owner, x->imports ? owner : 0}}, me = x->self->coordinate;
    for (size_t begin = 0, count; begin < parts->elements; begin += count) {
        count = parts->elements - begin < PIECE ? parts->elements - begin : PIECE;
        if (me == pair[0][0]) SL_TRY(walk(x, owner, parts, begin, begin + count, x->imports, x->sent));
        SL_TRY(sl_ppermute(x->self, x->world, SL_F32, x->sent, x->received, count, 1, pair));
        if (me == pair[0][1]) SL_TRY(walk(x, owner, parts, begin, begin + count, !x->imports, x->received));
        if (me == 0) sl_store_relax(x->store);
    }
    return SL_OK;
}

static int exchange_all(struct exchange *x) {
    x->sent = sl_memory_take(2 * PIECE * sizeof *x->sent); /* not malloc: the heap would not return the memory to the
                                                              system */
    if (!x->sent) return sl_fail(x->self, SL_FAILED, "no memory to exchange parameters");
    x->received = x->sent + PIECE;
    int status = SL_OK;
    for (int owner = 0; owner < x->world->size && status == SL_OK; owner++) {
        struct parts parts;
        status = tell(x, owner, &parts);
        if (status == SL_OK) status = stream(x, owner, &parts);
        free(parts.list);
    }
    sl_memory_give(x->sent);
    return status;
}

static int import(struct exchange x, struct sl_parameters *parameters, const struct sl_store *store) {
    struct sl_spmd *self = x.self;
    const struct sl_group *world = x.world;
    x.imports = true;
    x.store = (struct sl_store *)(uintptr_t)store; /* only read */
    SL_TRY(exchange_all(&x));
    if (x.state != SL_VALUES) return SL_OK;
    if (parameters->one_copy) SL_TRY(sl_barrier(self, world)); /* other members' values are rounded, and then read */
    SL_TRY(sl_parameters_round_all(parameters, &self->error));
    return parameters->one_copy ? sl_barrier(self, world) : SL_OK;
}

int sl_import(struct sl_spmd *self, const struct sl_group *world, struct sl_parameters *parameters, enum sl_state state,
              const struct sl_store *store) {
    return import(exchange_of(self, world, parameters, state), parameters, store);
}

int sl_import_base(struct sl_spmd *self, const struct sl_group *world, struct sl_parameters *parameters,
                   const struct sl_store *store) {
    struct exchange x = exchange_of(self, world, parameters, SL_VALUES);
    x.which = BASE;
    return import(x, parameters, store);
}

int sl_export(struct sl_spmd *self, const struct sl_group *world, const struct sl_parameters *parameters,
              enum sl_state state, float scale, struct sl_store *store) {
    struct exchange x = exchange_of(self, world, parameters, state);
    x.scale = scale;
    x.store = store;
    return exchange_all(&x);
}

int sl_export_beside(struct sl_spmd *self, const struct sl_group *world, const struct sl_parameters *parameters,
                     enum sl_state state, struct sl_store *store) {
    struct exchange x = exchange_of(self, world, parameters, state);
    struct parts parts = {0};
    x.store = store;
    float *piece = malloc(COPIED * sizeof *piece);
    int status = piece ? list_own(&x, &parts) : sl_fail(self, SL_FAILED, "no memory to copy parameters");
    for (int i = 0; i < parts.count && status == SL_OK; i++) parts.elements += parts.list[i].count;
    for (size_t begin = 0, count; begin < parts.elements && status == SL_OK; begin += count) {
        count = parts.elements - begin < COPIED ? parts.elements - begin : COPIED;
        status = walk(&x, self->coordinate, &parts, begin, begin + count, false, piece);
        if (status == SL_OK) status = walk(&x, self->coordinate, &parts, begin, begin + count, true, piece);
    }
    free(parts.list);
    free(piece);
    return status;
}

int sl_declare(struct sl_spmd *self, const struct sl_group *world, const struct sl_parameters *parameters,
               enum sl_state state, struct sl_store *store) {
    struct exchange x = exchange_of(self, world, parameters, state == SL_ADAPTERS ? state : SL_VALUES);
    int status = SL_OK;
    for (int owner = 0; owner < world->size && status == SL_OK; owner++) {
        struct parts parts;
        status = tell(&x, owner, &parts);
        for (int i = 0; i < parts.count && status == SL_OK && self->coordinate == 0; i++) {
            const struct sl_parameter *parameter = &parts.list[i].parameter;
            char name[128];
            if (state >= SL_STATES && parameter->frozen) continue;
            name_of(parameters, state, parameter->name, name);
            if (!sl_store_find(store, name) &&
                !sl_store_declare(store, name, SL_F32, parameter->dims, parameter->shape))
                status = sl_fail(self, SL_FAILED, "no memory to declare %s", name);
        }
        free(parts.list);
    }
    return status;
}

/* ---- each coordinate separately ---- */

static int no_memory(struct sl_spmd *self, const char *name) {
    return sl_fail(self, SL_FAILED, "no memory to declare %s", name);
}

/* Declares OWNER's PART: a tensor of its own at OWNER, a piece of the whole tensor at coordinate 0. */
static int declare_part(const struct exchange *x, int owner, const struct part *part, struct sl_store *own,
                        struct sl_store *whole) {
    const struct sl_parameter *parameter = &part->parameter;
    const struct sl_mesh *mesh = x->self->mesh;
    char name[128];
    name_of(x->parameters, x->state, parameter->name, name);
    if (x->self->coordinate == owner && !sl_store_declare(own, name, SL_F32, 1, &part->count))
        return no_memory(x->self, name);
    if (x->self->coordinate != 0) return SL_OK;
    struct sl_tensor *tensor = sl_store_find(whole, name);
    if (!tensor) tensor = sl_store_declare(whole, name, SL_F32, parameter->dims, parameter->shape);
    if (!tensor) return no_memory(x->self, name);
    const struct sl_shard shard = sl_spec_shard(&parameter->spec, mesh, owner, parameter->dims, parameter->shape);
    const struct sl_tensor_piece piece = {.part = owner, .shard = shard, .first = part->first, .count = part->count};
    return sl_pieces_add(tensor, &piece) ? no_memory(x->self, name) : SL_OK;
}

int sl_declare_own(struct sl_spmd *self, const struct sl_group *world, const struct sl_parameters *parameters,
                   enum sl_state state, struct sl_store *own, struct sl_store *whole) {
    struct exchange x = exchange_of(self, world, parameters, state);
    x.spreads = true;
    int status = SL_OK;
    for (int owner = 0; owner < world->size && status == SL_OK; owner++) {
        struct parts parts;
        status = tell(&x, owner, &parts);
        for (int i = 0; i < parts.count && status == SL_OK; i++)
            status = declare_part(&x, owner, &parts.list[i], own, whole);
        free(parts.list);
    }
    return status;
}

/* Copies this coordinate's whole PART to TO, even if the run ends meanwhile, and adds it to SUM (NULL: to no sum). */
static int copy_part(const struct exchange *x, const struct part *part, struct sl_tensor *to, struct sl_checking *sum) {
    for (size_t at = 0, some; at < part->count; at += some) {
        some = part->count - at < COPIED ? part->count - at : COPIED;
        SL_TRY(copy_own(x, &part->parameter, part->first + at, some, (float *)to->array.data + at));
        if (sum) sl_checking_add(sum, SL_F32, (float *)to->array.data + at, some * sizeof(float));
        if (at % PIECE == 0) sl_progress(x->self);
    }
    if (sum) sl_checking_end(sum, to);
    return SL_OK;
}

int sl_export_own(struct sl_spmd *self, const struct sl_parameters *parameters, enum sl_state state,
                  struct sl_store *own, struct sl_checking *sum) {
    struct exchange x = exchange_of(self, NULL, parameters, state);
    x.spreads = true;
    for (int i = 0; i < parameters->count; i++) {
        struct part part;
        char name[128];
        if (!find_part(&x, i, &part)) continue;
        name_of(parameters, state, part.parameter.name, name);
        SL_TRY(copy_part(&x, &part, sl_store_find(own, name), sum));
    }
    return SL_OK;
}

/* ---- copies of another coordinate's parts ---- */

static bool are_equal(const struct sl_shard *a, const struct sl_shard *b) {
    return a->dims == b->dims && !memcmp(a->dim, b->dim, (size_t)a->dims * sizeof *a->dim);
}

/* Whether this coordinate has the elements of OWNER's PART, too; parameter *MINE has them. */
static bool holds(const struct exchange *x, int owner, const struct part *part, int *mine) {
    const struct sl_parameters *all = x->parameters;
    for (*mine = 0; *mine < all->count; (*mine)++)
        if (!all->list[*mine].second && !strcmp(all->list[*mine].name, part->parameter.name)) break;
    if (*mine == all->count) return false;
    const struct sl_parameter *own = &all->list[*mine];
    const struct sl_range *range = &all->range[own->range];
    const struct sl_shard there = sl_spec_shard(&own->spec, x->self->mesh, owner, own->dims, own->shape);
    const struct sl_shard here = sl_spec_shard(&own->spec, x->self->mesh, x->self->coordinate, own->dims, own->shape);
    const size_t first = own->offset + part->first;
    if (!are_equal(&there, &here)) return false;
    if (x->state == SL_VALUES && !has_own_floats(x, own->range)) return !sl_range_is_sharded(all, own->range);
    return first >= range->shard && first + part->count <= range->shard + range->shard_count;
}

static int declare_copied(const struct exchange *x, int owner, const struct part *part, struct sl_store *copy,
                          struct sl_held_list *held) {
    char name[128];
    int mine;
    name_of(x->parameters, x->state, part->parameter.name, name);
    if (!sl_store_declare(copy, name, SL_F32, 1, &part->count)) return no_memory(x->self, name);
    if (!holds(x, owner, part, &mine)) return SL_OK;
    struct sl_held *list = sl_grow(held->list, held->count, &held->room, 64, sizeof *list);
    if (!list) return no_memory(x->self, name);
    held->list = list;
    list[held->count] =
        (struct sl_held){.state = x->state, .parameter = mine, .first = part->first, .count = part->count};
    memcpy(list[held->count++].name, name, sizeof name);
    return SL_OK;
}

/* Asks all coordinates for their parts, and gives OF's (-1: none) to declare_copied with COPY and HELD. */
int sl_declare_copy(struct sl_spmd *self, const struct sl_group *world, const struct sl_parameters *parameters,
                    enum sl_state state, int of, struct sl_store *copy, struct sl_held_list *held) {
    struct exchange x = exchange_of(self, world, parameters, state);
    x.spreads = true;
    int status = SL_OK;
    for (int owner = 0; owner < world->size && status == SL_OK; owner++) {
        struct parts parts;
        status = tell(&x, owner, &parts);
        for (int i = 0; i < parts.count && status == SL_OK && owner == of; i++)
            status = declare_copied(&x, owner, &parts.list[i], copy, held);
        free(parts.list);
    }
    return status;
}

int sl_export_held(struct sl_spmd *self, const struct sl_parameters *parameters, const struct sl_held *held,
                   float *to) {
    const struct exchange x = exchange_of(self, NULL, parameters, held->state);
    SL_TRY(copy_own(&x, &parameters->list[held->parameter], held->first, held->count, to));
    return sl_progress(self);
}

/* ---- records and traces ---- */

int sl_gather_records(struct sl_spmd *self, void *records, size_t bytes) {
    struct sl_group world;
    SL_TRY(sl_group_axes(self, "*", &world));
    const void *mine = (const char *)records + bytes * (size_t)self->coordinate;
    SL_TRY(sl_gather(self, &world, SL_I32, mine, records, bytes / sizeof(int32_t), 0));
    return sl_group_close(self, &world);
}

int sl_gather_traces(struct sl_spmd *self, struct sl_trace *trace) {
    struct sl_group world, pair;
    const int me = self->coordinate;
    if (!self->engine->table->apart) return SL_OK; /* all events are in place */
    SL_TRY(sl_group_axes(self, "*", &world));
    int32_t count[self->mesh->size][2];
    count[me][0] = trace[me].count;
    count[me][1] = trace[me].dropped;
    SL_TRY(sl_all_gather(self, &world, SL_I32, count[me], count, 2));
    for (int from = 1; from < world.size; from++) {
        const int both[] = {0, from};
        SL_TRY(sl_group_list(self, 2, both, &pair));
        if (pair.rank < 0) continue;
        struct sl_trace_event *event = trace[from].event;
        trace[from].count = count[from][0];
        trace[from].dropped = count[from][1];
        SL_TRY(sl_broadcast(self, &pair, SL_I32, event, event, (size_t)count[from][0] * sizeof *event / 4, 1));
        SL_TRY(sl_group_close(self, &pair));
    }
    return sl_group_close(self, &world);
}
