/* replicas.c - compares tensors held by several coordinates. */
#include "layers/training/replicas.h"

#include <md5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/device/device.h"

enum { PIECE = 1 << 18 }; /* floats copied from the device at a time */

/* Digest of a parameter's shard, or of the state of its elements from FIRST on. Coordinates with sums of the same name,
 * SHARD and FIRST should have the same DIGEST. */
struct sum {
    char name[128];
    uint64_t first;
    int32_t shard; /* the shard, named by its first replica's coordinate */
    uint8_t digest[MD5_DIGEST_LENGTH];
};

struct sums {
    int32_t count;
    struct sum *list;
};

/* First difference found by a coordinate. */
struct difference {
    int32_t found, other;
    char name[128];
};

/* Whether another coordinate of this one's stage holds the same shard; true if the parameter is tied. */
static bool has_replicas(const struct sl_spmd *self, const struct sl_parameters *parameters,
                         const struct sl_parameter *parameter) {
    const struct sl_mesh *mesh = self->mesh;
    const int me = self->coordinate,
              axis = parameters->stage_axis ? sl_mesh_find_axis(mesh, parameters->stage_axis) : -1;
    const int shard = sl_spec_first_replica(&parameter->spec, mesh, me);
    bool found = parameter->tied;
    for (int c = 0; c < mesh->size && !found; c++) {
        const bool same_stage = axis < 0 || sl_mesh_index(mesh, c, axis) == sl_mesh_index(mesh, me, axis);
        found = c != me && same_stage && sl_spec_first_replica(&parameter->spec, mesh, c) == shard;
    }
    return found;
}

static void digest(const void *values, size_t bytes, float *piece, uint8_t sum[MD5_DIGEST_LENGTH]) {
    MD5_CTX context;
    MD5Init(&context);
    for (size_t first = 0, part; first < bytes; first += part) {
        part = bytes - first < PIECE * sizeof *piece ? bytes - first : PIECE * sizeof *piece;
        sl_device.copy(piece, (const char *)values + first, part);
        MD5Update(&context, (const uint8_t *)piece, part);
    }
    MD5Final(sum, &context);
}

/* Digest of parameter I's values, if they are not contiguous (sl_range_is_whole). */
static void digest_values(const struct sl_parameters *parameters, int i, float *piece, uint8_t sum[MD5_DIGEST_LENGTH]) {
    const struct sl_parameter *parameter = &parameters->list[i];
    MD5_CTX context;
    MD5Init(&context);
    for (size_t first = 0, part; first < parameter->count; first += part) {
        part = parameter->count - first < PIECE ? parameter->count - first : PIECE;
        sl_parameters_copy_values(parameters, parameter->range, parameter->offset + first, part, piece, false);
        MD5Update(&context, (const uint8_t *)piece, part * sizeof *piece);
    }
    MD5Final(sum, &context);
}

/* Appends a sum of parameter I; the caller sets name and digest. */
static struct sum *add_sum(const struct sl_spmd *self, const struct sl_parameters *parameters, int i, size_t first,
                           struct sums *sums) {
    struct sum *sum = &sums->list[sums->count++];
    sum->shard = sl_spec_first_replica(&parameters->list[i].spec, self->mesh, self->coordinate);
    sum->first = first;
    return sum;
}

/* Digest of elements [FIRST, FIRST + COUNT) of parameter I's shard of state tensor STATE, offloaded or not. */
static int digest_state(struct sl_spmd *self, const struct sl_parameters *parameters, int i, int state, size_t first,
                        size_t count, float *piece, uint8_t sum[MD5_DIGEST_LENGTH]) {
    const struct sl_parameter *parameter = &parameters->list[i];
    const size_t begin = parameter->offset + first - parameters->range[parameter->range].shard;
    MD5_CTX context;
    MD5Init(&context);
    for (size_t done = 0, part; done < count; done += part) {
        part = count - done < PIECE ? count - done : PIECE;
        SL_TRY(sl_parameters_read_state(parameters, parameter->range, state, begin + done, part, piece, &self->error));
        MD5Update(&context, (const uint8_t *)piece, part * sizeof *piece);
    }
    MD5Final(sum, &context);
    return SL_OK;
}

static int list_states(struct sl_spmd *self, const struct sl_parameters *parameters, int i, struct sums *sums,
                       float *piece) {
    size_t first, count;
    sl_parameter_share(parameters, i, &first, &count);
    for (int s = 0; count > 0 && s < parameters->states; s++) {
        struct sum *sum = add_sum(self, parameters, i, first, sums);
        snprintf(sum->name, sizeof sum->name, "optimizer.%s.%s", parameters->state_name[s], parameters->list[i].name);
        SL_TRY(digest_state(self, parameters, i, s, first, count, piece, sum->digest));
    }
    return SL_OK;
}

/* Adds sums of all values, as every coordinate has them, and of this coordinate's own floats. */
static void list_values(struct sl_spmd *self, const struct sl_parameters *parameters, int i, struct sums *sums,
                        float *piece) {
    const struct sl_parameter *parameter = &parameters->list[i];
    const struct sl_range *range = &parameters->range[parameter->range];
    struct sum *sum = add_sum(self, parameters, i, 0, sums);
    size_t first, count;
    memcpy(sum->name, parameter->name, sizeof parameter->name);
    if (sl_range_is_whole(parameters, parameter->range)) {
        digest_values(parameters, i, piece, sum->digest);
        return;
    }
    if (!range->own_floats) {
        digest(sl_parameter_value(parameters, i), parameter->count * sizeof *piece, piece, sum->digest);
        return;
    }
    digest(sl_parameter_rounded(parameters, i), parameter->count * sizeof *range->rounded, piece, sum->digest);
    sl_parameter_share(parameters, i, &first, &count);
    if (!count) return;
    sum = add_sum(self, parameters, i, first, sums);
    snprintf(sum->name, sizeof sum->name, "%s (floats)", parameter->name);
    digest(sl_range_values(range, parameter->offset + first), count * sizeof *piece, piece, sum->digest);
}

static int list_sums(struct sl_spmd *self, const struct sl_parameters *parameters, struct sums *sums, float *piece) {
    for (int i = 0; i < parameters->count; i++) {
        const struct sl_parameter *parameter = &parameters->list[i];
        if (parameter->second || !has_replicas(self, parameters, parameter)) continue;
        SL_TRY(sl_parameters_use_values(parameters, parameter->range, false, &self->error));
        list_values(self, parameters, i, sums, piece);
        SL_TRY(list_states(self, parameters, i, sums, piece));
        SL_TRY(sl_progress(self));
    }
    return SL_OK;
}

static int make_sums(struct sl_spmd *self, const struct sl_parameters *parameters, struct sums *sums) {
    float *piece = malloc(PIECE * sizeof *piece);
    sums->list = calloc((size_t)parameters->count * (2 + (size_t)parameters->states) + 1, sizeof *sums->list);
    const int status = piece && sums->list ? list_sums(self, parameters, sums, piece)
                                           : sl_fail(self, SL_FAILED, "no memory to compare replicas");
    free(piece);
    return status;
}

/* The sum with the name, shard and first element of LIKE. The search begins at number I, its likely place. */
static const struct sum *find(const struct sums *sums, int i, const struct sum *like) {
    for (int k = 0; k < sums->count; k++) {
        const struct sum *sum = &sums->list[(i + k) % sums->count];
        if (sum->shard == like->shard && sum->first == like->first && !strcmp(sum->name, like->name)) return sum;
    }
    return NULL;
}

static void compare(const struct sums *own, const struct sums *others, int other, struct difference *difference) {
    for (int i = 0; i < own->count && !difference->found; i++) {
        const struct sum *sum = find(others, i, &own->list[i]);
        if (!sum || !memcmp(sum->digest, own->list[i].digest, sizeof sum->digest)) continue;
        *difference = (struct difference){.found = true, .other = other};
        memcpy(difference->name, sum->name, sizeof difference->name);
    }
}

/* Sends each coordinate's sums to all, which compare them with their own. */
static int find_difference(struct sl_spmd *self, const struct sl_group *world, const struct sums *own,
                           struct difference *difference) {
    _Static_assert(sizeof *own->list % sizeof(int32_t) == 0, "sent as words");
    for (int from = 0; from < world->size; from++) {
        int32_t count = own->count;
        SL_TRY(sl_broadcast(self, world, SL_I32, &count, &count, 1, from));
        struct sums others = {count, malloc(((size_t)count + 1) * sizeof *others.list)};
        if (!others.list) return sl_fail(self, SL_FAILED, "no memory to compare replicas");
        const int status = sl_broadcast(self, world, SL_I32, own->list, others.list,
                                        (size_t)count * sizeof *others.list / sizeof(int32_t), from);
        if (status == SL_OK && from < self->coordinate) compare(own, &others, from, difference);
        free(others.list);
        SL_TRY(status);
    }
    return SL_OK;
}

/* A coordinate's copy of the sum in question. */
struct copy {
    int32_t has, shard;
    uint64_t first;
    uint8_t digest[MD5_DIGEST_LENGTH];
};

static struct copy copy_of(const struct sums *sums, const char *name) {
    struct copy copy = {0};
    for (int i = 0; i < sums->count && !copy.has; i++) {
        if (strcmp(sums->list[i].name, name) != 0) continue;
        copy = (struct copy){.has = true, .shard = sums->list[i].shard, .first = sums->list[i].first};
        memcpy(copy.digest, sums->list[i].digest, sizeof copy.digest);
    }
    return copy;
}

static bool alike(const struct copy *a, const struct copy *b) {
    return a->has && b->has && a->shard == b->shard && a->first == b->first;
}

/* Whether copy C differs from all others, and there are at least two others, all equal. */
static bool is_odd(const struct copy *copy, int count, int c, int *others) {
    const struct copy *first = NULL;
    *others = 0;
    for (int k = 0; k < count; k++) {
        if (k == c || !alike(&copy[k], &copy[c])) continue;
        if (!first) first = &copy[k];
        if (memcmp(copy[k].digest, first->digest, sizeof first->digest) != 0) return false;
        if (!memcmp(copy[k].digest, copy[c].digest, sizeof first->digest)) return false;
        ++*others;
    }
    return *others > 1;
}

/* The one copy that differs from all other copies of LIKE, which are equal; -1: there is no such majority. */
static int find_odd(const struct copy *copy, int count, const struct copy *like, int *others) {
    for (int c = 0; c < count; c++)
        if (alike(&copy[c], like) && is_odd(copy, count, c, others)) return c;
    return -1;
}

/* Reports the same difference on all coordinates. */
static int report(struct sl_spmd *self, const struct sl_group *world, const struct sums *sums,
                  const struct difference *own) {
    struct difference all[world->size];
    struct copy copies[world->size], copy;
    char one[128], other[128];
    int others;
    _Static_assert(sizeof copy % sizeof(int32_t) == 0, "sent as words");
    _Static_assert(sizeof *own % sizeof(int32_t) == 0, "sent as words");
    SL_TRY(sl_all_gather(self, world, SL_I32, own, all, sizeof *own / sizeof(int32_t)));
    for (int c = 0; c < world->size; c++) {
        if (!all[c].found) continue;
        copy = copy_of(sums, all[c].name);
        SL_TRY(sl_all_gather(self, world, SL_I32, &copy, copies, sizeof copy / sizeof(int32_t)));
        const int odd = find_odd(copies, world->size, &copies[c], &others);
        if (odd >= 0)
            return sl_fail(self, SL_CHECK_FAILED, "parameter %s: coordinate %s has other bits than the %d others",
                           all[c].name, sl_mesh_describe(self->mesh, odd, one, sizeof one), others);
        return sl_fail(self, SL_CHECK_FAILED, "parameter %s: coordinates %s and %s have drifted apart", all[c].name,
                       sl_mesh_describe(self->mesh, all[c].other, one, sizeof one),
                       sl_mesh_describe(self->mesh, c, other, sizeof other));
    }
    return SL_OK;
}

int sl_check_replicas(struct sl_spmd *self, struct sl_trainer *trainer) {
    const struct sl_group *world = sl_trainer_world(trainer);
    struct difference difference = {0};
    struct sums own = {0};
    int status = make_sums(self, sl_trainer_parameters(trainer), &own);
    if (status == SL_OK) status = find_difference(self, world, &own, &difference);
    if (status == SL_OK) status = report(self, world, &own, &difference);
    free(own.list);
    return status;
}
