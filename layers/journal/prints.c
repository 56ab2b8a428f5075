/* prints.c - hashes parameters and gradients, piece by piece. */
#include "layers/journal/prints.h"

#include <stdlib.h>

#include "collectives/collectives.h"
#include "spmd/device/device.h"

enum { PIECE = 1 << 14 }; /* floats that are copied from the device at once */

/* A parameter's. */
struct print {
    struct sl_shard shard; /* where its elements lie in the whole */
    size_t elements;
    bool counts;
    size_t seen[SL_PRINTS];
    uint64_t hash[SL_PRINTS];
};

struct sl_prints {
    struct sl_spmd *self;
    const struct sl_parameters *parameters;
    struct sl_places places;
    struct print *print; /* [parameters] */
    int *order;          /* [parameters]: their numbers, range by range, as they lie there; without second ones */
    int *begin;          /* [ranges + 1]: where each range's begin in that */
    float *room;         /* [PIECE]; NULL where the host reads the device's memory */
};

/* ---- which elements ---- */

/* Elements of the shard from *FIRST on: what this coordinate updates; of what is frozen, all. */
static size_t share_of(const struct sl_parameters *parameters, int i, size_t *first) {
    const struct sl_parameter *parameter = &parameters->list[i];
    size_t count = parameter->count;
    *first = 0;
    if (parameter->second) return 0;
    if (!parameter->frozen) sl_parameter_share(parameters, i, first, &count);
    return count;
}

static void plan_print(struct sl_prints *p, int i) {
    const struct sl_parameter *parameter = &p->parameters->list[i];
    const struct sl_range *range = &p->parameters->range[parameter->range];
    const bool shared = !parameter->frozen && range->shard_count < range->count;
    struct print *print = &p->print[i];
    size_t first;
    print->shard =
        sl_spec_shard(&parameter->spec, p->self->mesh, p->self->coordinate, parameter->dims, parameter->shape);
    print->elements = share_of(p->parameters, i, &first);
    print->counts = print->elements && sl_parameter_is_first(p->parameters, p->self, i, shared);
}

/* In a range, parameters lie in the order in which they were declared. */
static void sort(struct sl_prints *p) {
    int count = 0;
    for (int r = 0; r < p->parameters->ranges; r++) {
        p->begin[r] = count;
        for (int i = 0; i < p->parameters->count; i++)
            if (p->parameters->list[i].range == r && !p->parameters->list[i].second) p->order[count++] = i;
    }
    p->begin[p->parameters->ranges] = count;
}

int sl_prints_open(struct sl_prints **prints, struct sl_spmd *self, const struct sl_parameters *parameters) {
    struct sl_prints *p = calloc(1, sizeof *p);
    *prints = p;
    if (!p) return sl_fail(self, SL_FAILED, "no memory for hashes of parameters");
    p->self = self;
    p->parameters = parameters;
    p->print = calloc((size_t)parameters->count + 1, sizeof *p->print);
    p->order = calloc((size_t)parameters->count + 1, sizeof *p->order);
    p->begin = calloc((size_t)parameters->ranges + 1, sizeof *p->begin);
    if (!sl_device.shares_memory) p->room = malloc(PIECE * sizeof *p->room);
    if (!p->print || !p->order || !p->begin || (!p->room && !sl_device.shares_memory))
        return sl_fail(self, SL_FAILED, "no memory for hashes of parameters");
    sl_places_open(&p->places);
    for (int i = 0; i < parameters->count; i++) plan_print(p, i);
    sort(p);
    return SL_OK;
}

void sl_prints_close(struct sl_prints *p) {
    if (!p) return;
    free(p->print);
    free(p->order);
    free(p->begin);
    free(p->room);
    free(p);
}

/* ---- a step ---- */

void sl_prints_begin(struct sl_prints *p) {
    for (int i = 0; i < p->parameters->count; i++)
        for (int kind = 0; kind < SL_PRINTS; kind++) p->print[i].seen[kind] = p->print[i].hash[kind] = 0;
}

/* Of COUNT elements from FIRST on of a shard, run by run: a run lies together in the whole, too. */
static uint64_t hash_runs(const struct sl_places *places, const struct sl_shard *shard, size_t first, size_t count,
                          const float *elements, const float *addend) {
    const size_t run = sl_shard_run(shard);
    uint64_t hash = 0;
    for (size_t done = 0, part; done < count; done += part) {
        const size_t left = run - (first + done) % run;
        const uint64_t place = sl_shard_global_index(shard, first + done);
        part = left < count - done ? left : count - done;
        hash += addend ? sl_places_hash_sum(places, place, elements + done, addend + done, part)
                       : sl_places_hash(places, place, elements + done, part);
    }
    return hash;
}

/* On the host, or brought there. */
static uint64_t hash_elements(const struct sl_prints *p, const struct sl_shard *shard, size_t first, size_t count,
                              const float *elements, const float *addend) {
    uint64_t hash = 0;
    if (!p->room) return hash_runs(&p->places, shard, first, count, elements, addend);
    for (size_t part; count; count -= part, first += part, elements += part) {
        part = count < PIECE ? count : PIECE;
        sl_device.copy(p->room, elements, part * sizeof *elements);
        hash += hash_runs(&p->places, shard, first, part, p->room, NULL);
    }
    return hash;
}

/* The place in the order of RANGE's parameter that has element FIRST of it, or comes next. */
static int find(const struct sl_prints *p, int range, size_t first) {
    int low = p->begin[range], high = p->begin[range + 1];
    while (low < high) {
        const int middle = low + (high - low) / 2;
        const struct sl_parameter *parameter = &p->parameters->list[p->order[middle]];
        if (parameter->offset + parameter->count > first)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

void sl_prints_add(struct sl_prints *p, enum sl_print kind, int range, size_t first, size_t count,
                   const float *elements, const float *addend) {
    const size_t end = first + count;
    for (int at = find(p, range, first); at < p->begin[range + 1]; at++) {
        const int i = p->order[at];
        const size_t offset = p->parameters->list[i].offset, stop = offset + p->parameters->list[i].count;
        const size_t from = offset > first ? offset : first, to = stop < end ? stop : end;
        if (from >= to) break;
        p->print[i].hash[kind] += hash_elements(p, &p->print[i].shard, from - offset, to - from,
                                                elements + (from - first), addend ? addend + (from - first) : NULL);
        p->print[i].seen[kind] += to - from;
    }
}

int sl_prints_add_values(struct sl_prints *p) {
    for (int at = 0; at < p->begin[p->parameters->ranges]; at++) {
        const int i = p->order[at];
        const struct sl_parameter *parameter = &p->parameters->list[i];
        size_t first;
        const size_t count = share_of(p->parameters, i, &first);
        if (!count) continue;
        SL_TRY(sl_parameters_use_values(p->parameters, parameter->range, false, &p->self->error));
        first += parameter->offset;
        sl_prints_add(p, SL_PRINT_VALUE, parameter->range, first, count,
                      sl_range_values(&p->parameters->range[parameter->range], first), NULL);
        SL_TRY(sl_progress(p->self));
    }
    return SL_OK;
}

/* ---- what was seen ---- */

size_t sl_prints_elements(const struct sl_prints *p, int i) { return p->print[i].elements; }

bool sl_prints_count(const struct sl_prints *p, int i) { return p->print[i].counts; }

bool sl_prints_hash(const struct sl_prints *p, enum sl_print kind, int i, uint64_t *hash) {
    const struct print *print = &p->print[i];
    *hash = print->hash[kind];
    return print->elements && print->seen[kind] == print->elements;
}
