/* prints.c - hashes parameters and gradients, piece by piece. */
#include "layers/records/journal/prints.h"

#include <stdlib.h>

#include "collectives/collectives.h"

/* Hashes of a parameter. */
struct print {
    struct sl_shard shard; /* place of its elements in the whole */
    size_t elements;
    bool counts;
    size_t seen[SL_PRINTS];
    uint64_t hash[SL_PRINTS];
};

/* Elements [begin, end) of a range: those of a parameter from LOCAL on, at consecutive places in the whole from PLACE
 * on. On a device, all following elements of the parameter, at any places. */
struct span {
    int range;
    size_t begin, end, local;
    uint64_t place;
    struct print *print; /* NULL: they belong to no parameter */
};

struct sl_prints {
    struct sl_spmd *self;
    const struct sl_parameters *parameters;
    struct sl_places places;
    struct print *print; /* [parameters] */
    int *order; /* [parameters]: numbers of the parameters, range by range, in order of offsets; without second ones */
    int *begin; /* [ranges + 1]: first index in order of each range */
    struct sl_hashes *hashes; /* NULL: the host computes hashes */
    int number;               /* number of the first hash */
    struct span span;         /* the last span: the next piece is usually in it, too */
};

/* ---- elements ---- */

/* Number of elements of the shard, from *FIRST on, that this coordinate updates; all, if the parameter is frozen. */
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

/* Sorts parameters by range; within a range, they lie in the order of their declarations. */
static void sort(struct sl_prints *p) {
    int count = 0;
    for (int r = 0; r < p->parameters->ranges; r++) {
        p->begin[r] = count;
        for (int i = 0; i < p->parameters->count; i++)
            if (p->parameters->list[i].range == r && !p->parameters->list[i].second) p->order[count++] = i;
    }
    p->begin[p->parameters->ranges] = count;
}

int sl_prints_open(struct sl_prints **prints, struct sl_spmd *self, const struct sl_parameters *parameters,
                   struct sl_hashes *hashes, int number) {
    struct sl_prints *p = calloc(1, sizeof *p);
    *prints = p;
    if (!p) return sl_fail(self, SL_FAILED, "no memory for hashes of parameters");
    p->self = self;
    p->parameters = parameters;
    p->hashes = hashes;
    p->number = number;
    p->print = calloc((size_t)parameters->count + 1, sizeof *p->print);
    p->order = calloc((size_t)parameters->count + 1, sizeof *p->order);
    p->begin = calloc((size_t)parameters->ranges + 1, sizeof *p->begin);
    if (!p->print || !p->order || !p->begin) return sl_fail(self, SL_FAILED, "no memory for hashes of parameters");
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
    free(p);
}

/* ---- a step ---- */

void sl_prints_begin(struct sl_prints *p) {
    for (int i = 0; i < p->parameters->count; i++)
        for (int kind = 0; kind < SL_PRINTS; kind++) p->print[i].seen[kind] = p->print[i].hash[kind] = 0;
}

/* Index in order of RANGE's parameter that has element FIRST, or is the next after it. */
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

/* Sets the span to one that begins at element FIRST of RANGE. */
static void seek(struct sl_prints *p, int range, size_t first) {
    const int at = find(p, range, first);
    struct span *span = &p->span;
    *span = (struct span){.range = range, .begin = first, .end = SIZE_MAX};
    if (at == p->begin[range + 1]) return; /* after the last parameter */
    const struct sl_parameter *parameter = &p->parameters->list[p->order[at]];
    struct print *print = &p->print[p->order[at]];
    span->end = parameter->offset;
    if (first < parameter->offset) return;
    const size_t local = first - parameter->offset, run = sl_shard_run(&print->shard);
    const size_t left = run - local % run, count = parameter->count - local;
    span->print = print;
    span->local = local;
    span->place = sl_shard_global_index(&print->shard, local);
    span->end = first + (left < count && !p->hashes ? left : count);
}

/* Place of element FIRST of the span. */
static uint64_t place_of(const struct sl_prints *p, size_t first) { return p->span.place + (first - p->span.begin); }

static void add(struct sl_prints *p, enum sl_print kind, size_t first, size_t count, const float *elements,
                const float *addend) {
    const struct span *span = &p->span;
    struct print *print = span->print;
    const size_t local = span->local + (first - span->begin);
    const int number = p->number + (int)(print - p->print) * SL_PRINTS + (int)kind;
    if (p->hashes) /* without addend: memory of others' devices is not read */
        sl_hashes_add_shard(p->hashes, number, &print->shard, local, count, elements);
    else if (addend)
        print->hash[kind] += sl_places_hash_sum(&p->places, place_of(p, first), elements, addend, count);
    else
        print->hash[kind] += sl_places_hash(&p->places, place_of(p, first), elements, count);
    print->seen[kind] += count;
}

void sl_prints_add(struct sl_prints *p, int range, size_t first, size_t count, const float *gradient,
                   const float *addend, const float *values) {
    const struct span *span = &p->span;
    for (size_t done = 0, part; done < count; done += part) {
        const size_t at = first + done;
        if (span->range != range || at < span->begin || at >= span->end) seek(p, range, at);
        part = span->end - at < count - done ? span->end - at : count - done;
        if (span->print && gradient)
            add(p, SL_PRINT_GRADIENT, at, part, gradient + done, addend ? addend + done : NULL);
        if (span->print && values) add(p, SL_PRINT_VALUE, at, part, values + done, NULL);
    }
}

size_t sl_prints_keys(struct sl_prints *p, int range, size_t first, const uint32_t **keys) {
    const struct span *span = &p->span;
    if (span->range != range || first < span->begin || first >= span->end) seek(p, range, first);
    const size_t left = span->end - first, together = sl_places_keys(&p->places, place_of(p, first), keys);
    return left < together ? left : together;
}

void sl_prints_add_sums(struct sl_prints *p, size_t first, size_t count, uint64_t gradients, uint64_t values) {
    struct print *print = p->span.print;
    if (!print) return;
    const uint64_t high = sl_places_high(place_of(p, first));
    print->hash[SL_PRINT_GRADIENT] += high * gradients;
    print->hash[SL_PRINT_VALUE] += high * values;
    print->seen[SL_PRINT_GRADIENT] += count;
    print->seen[SL_PRINT_VALUE] += count;
}

/* Hashes values; if they are not contiguous (sl_range_is_whole), they are copied piece by piece. */
static void add_values(struct sl_prints *p, int range, size_t first, size_t count) {
    enum { PIECE = 2048 };
    float values[PIECE];
    if (!sl_range_is_whole(p->parameters, range)) {
        sl_prints_add(p, range, first, count, NULL, NULL, sl_range_values(&p->parameters->range[range], first));
        return;
    }
    for (size_t done = 0, part; done < count; done += part) {
        part = count - done < PIECE ? count - done : PIECE;
        sl_parameters_copy_values(p->parameters, range, first + done, part, values, false);
        sl_prints_add(p, range, first + done, part, NULL, NULL, values);
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
        add_values(p, parameter->range, first + parameter->offset, count);
        SL_TRY(sl_progress(p->self));
    }
    return SL_OK;
}

/* ---- results ---- */

size_t sl_prints_elements(const struct sl_prints *p, int i) { return p->print[i].elements; }

bool sl_prints_count(const struct sl_prints *p, int i) { return p->print[i].counts; }

bool sl_prints_hash(const struct sl_prints *p, enum sl_print kind, int i, uint64_t *hash) {
    const struct print *print = &p->print[i];
    *hash = print->hash[kind];
    if (p->hashes) *hash += sl_hashes_at(p->hashes, p->number + i * SL_PRINTS + (int)kind);
    return print->elements && print->seen[kind] == print->elements;
}
