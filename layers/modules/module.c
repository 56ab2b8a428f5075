/* module.c - constructs, plans and frees modules; functions for all types. */
#include "layers/modules/module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/base/memory.h"

struct sl_module *sl_module_new(const struct sl_module_type *type, const char *name, int in, int out) {
    /* If the type has fewer bytes, planning refuses it. */
    const size_t least = sizeof(struct sl_module), bytes = type->bytes > least ? type->bytes : least;
    if (!name) name = "";
    const size_t length = strlen(name) + 1;
    struct sl_module *module = calloc(1, bytes + length);
    if (!module) return NULL;
    module->type = type;
    module->name = memcpy((char *)module + bytes, name, length);
    module->in = in;
    module->out = out;
    return module;
}

struct sl_module *sl_module_new_parent(const struct sl_module_type *type, const char *name, int in, int out,
                                       int children, struct sl_module *const *child) {
    bool complete = children > 0;
    for (int i = 0; i < children; i++) complete = complete && child[i];
    struct sl_module *module = complete ? sl_module_new(type, name, in, out) : NULL;
    if (module) module->child = calloc((size_t)children, sizeof(struct sl_module *));
    if (!module || !module->child) {
        sl_module_free(module);
        for (int i = 0; i < children; i++) sl_module_free(child[i]);
        return NULL;
    }
    memcpy(module->child, child, (size_t)children * sizeof *child);
    module->children = children;
    return module;
}

void sl_module_free(struct sl_module *module) {
    if (!module) return;
    if (module->type->release) module->type->release(module);
    for (int i = 0; i < module->children; i++) sl_module_free(module->child[i]);
    free(module->child);
    free(module);
}

/* ---- names ---- */

/* TO [size] becomes the name of WHAT: PREFIX, NAME, END. The error message omits END. */
static int join_names(const struct sl_plan *plan, const char *what, const char *prefix, const char *name,
                      const char *end, char *to, size_t size) {
    const int length = snprintf(to, size, "%s%s%s", prefix, name, end);
    if ((size_t)length < size) return SL_OK;
    return sl_error_set(plan->error, SL_BAD_INPUT, "the name of %s %s%s is longer than %zu characters", what, prefix,
                        name, size - strlen(end) - 1);
}

/* ---- planning ---- */

/* Sets the module's `called` from the plan's prefix, which is the prefix of MODULE's parameters. */
static void call(struct sl_module *module, const struct sl_plan *plan) {
    const int length = (int)strlen(plan->name), dot = length > 0; /* at the end */
    snprintf(module->called, sizeof module->called, dot ? "%.*s (%.30s)" : "%.*s%.30s", length - dot, plan->name,
             module->type->name);
}

static int plan_named(struct sl_module *module, struct sl_plan *plan) {
    char name[sizeof plan->name];
    if (module->name[0]) {
        SL_TRY(join_names(plan, "module", plan->name, module->name, ".", name, sizeof name));
        memcpy(plan->name, name, sizeof name);
    }
    call(module, plan);
    return module->type->plan ? module->type->plan(module, plan) : SL_OK;
}

unsigned sl_module_reads(const struct sl_module *module) {
    unsigned reads = module ? module->type->reads : 0;
    for (int i = 0; module && i < module->children; i++) reads |= sl_module_reads(module->child[i]);
    return reads;
}

static void lower(int *bound, int count) {
    if (!*bound || count < *bound) *bound = count;
}

void sl_plan_bound(struct sl_plan *plan, unsigned reads, int count) {
    if (plan->bounds && reads & SL_READS_LABELS) lower(&plan->bounds->labels, count);
    if (plan->bounds && reads & SL_READS_TOKENS) lower(&plan->bounds->tokens, count);
}

int sl_module_check(const struct sl_module *module, bool forward_only, struct sl_error *error) {
    if (!module->type->forward)
        return sl_error_set(error, SL_BAD_INPUT, "module type %s has no forward", module->type->name);
    if (!module->type->backward_input && !forward_only)
        return sl_error_set(error, SL_BAD_INPUT, "module type %s has no backward_input, which only a loss may lack",
                            module->type->name);
    for (int i = 0; i < module->children; i++) SL_TRY(sl_module_check(module->child[i], forward_only, error));
    return SL_OK;
}

/* Checks MODULE after its type's plan has run; sl_module_check checks it before. */
static int check_type(const struct sl_module *module, const struct sl_plan *plan) {
    const struct sl_module_type *type = module->type;
    if (type->bytes && type->bytes < sizeof(struct sl_module))
        return sl_error_set(plan->error, SL_BAD_INPUT,
                            "%s%s: its type has bytes %zu: its own struct begins with a struct sl_module, and has %zu "
                            "at least",
                            plan->name, type->name, type->bytes, sizeof(struct sl_module));
    if (module->parameters == 0 || type->backward_weight || plan->forward_only) return SL_OK;
    return sl_error_set(plan->error, SL_BAD_INPUT,
                        "%s%s: it has parameters, but its type has no backward_weight, which computes their gradients",
                        plan->name, type->name);
}

static int count_frozen(const struct sl_module *module, const struct sl_plan *plan) {
    int frozen = 0;
    for (int i = 0; i < module->parameters; i++) frozen += plan->parameters->list[module->parameter[i]].frozen;
    return frozen;
}

/* If all parameters of a module without children are frozen, W is not called. If only some are, W must skip them. */
static int freeze(struct sl_module *module, const struct sl_plan *plan) {
    const int frozen = count_frozen(module, plan);
    module->frozen = frozen > 0 && frozen == module->parameters && module->children == 0;
    if (frozen == 0 || module->frozen || module->type->spares || plan->forward_only) return SL_OK;
    return sl_error_set(plan->error, SL_BAD_INPUT,
                        "%s%s: a part of its parameters is frozen, and its type cannot leave a part out: freeze all of "
                        "them or none, or let its backward_weight ask sl_is_frozen, and set spares",
                        plan->name, module->type->name);
}

/* Whether W runs right after I. If another rank waits for the stage's dx, W runs after dx has been sent. Recomputed
 * modules order their calls themselves (layers/modules/parents/recompute.c). */
static bool weights_follow(const struct sl_module *module, const struct sl_plan *plan) {
    const bool alone = plan->wgrad_group == 1 && sl_plan_run(plan) == 1;
    return plan->weights_follow && plan->nobody_waits && alone && plan->stash != plan->again && module->children == 0 &&
           module->type->backward_weight && !module->frozen;
}

/* Plans workspace for x and dy in a type other than the one in which they are passed. */
static void plan_rooms(struct sl_module *module, struct sl_plan *plan) {
    const size_t group = (size_t)plan->rows * (size_t)plan->wgrad_group;
    const size_t rows = sl_plan_rows(plan) > group ? sl_plan_rows(plan) : group;
    if (module->weights_follow && module->follower_dy != SL_F32)
        sl_plan_workspace(plan, sl_plan_rows(plan) * (size_t)module->out * sizeof(uint16_t), &module->room_dy);
    if (module->type->stores) return;
    if (sl_is_kept(&module->x)) sl_plan_workspace(plan, rows * (size_t)module->in * sizeof(float), &module->room_x);
    if (sl_is_kept(&module->y)) sl_plan_workspace(plan, group * (size_t)module->out * sizeof(float), &module->room_dy);
}

/* Notes whether I or W computes the gradients of the module's own parameters. If W follows, a recomputed module's I
 * calls W. */
static void note_written(const struct sl_module *module, const struct sl_plan *plan) {
    const bool by_input = module->weights_follow || (plan->stash == plan->again && plan->weights_follow);
    for (int i = 0; i < module->parameters; i++) {
        struct sl_range *range = &plan->parameters->range[plan->parameters->list[module->parameter[i]].range];
        range->written |= by_input ? SL_WRITTEN_BY_INPUT : SL_WRITTEN_BY_WEIGHT;
    }
}

static void begin_part(const struct sl_module *module, struct sl_plan *plan) {
    plan->part = module->part;
    if (!plan->parameters->laid_out) sl_parameters_part(plan->parameters, module->part, plan->loop);
}

int sl_module_plan(struct sl_module *module, struct sl_plan *plan) {
    struct sl_module *parent = plan->module;
    const size_t prefix = strlen(plan->name);
    const int run = plan->run;
    const enum sl_dtype storage = plan->storage;
    plan->module = module;
    if (!module->type->fuses) plan->run = 1;
    if (!module->type->stores) plan->storage = SL_F32;
    const int part = plan->part;
    if (module->part) begin_part(module, plan);
    module->parameters = 0;
    const int x_stride = plan->x_stride;
    if (module->children > 0) plan->x_stride = 0; /* no request to its own children */
    module->x_stride = 0;
    module->follower_dy = plan->storage;
    module->x = (struct sl_use){.lasts = sl_until_weight_if(module->type->backward_input && !plan->forward_only)};
    module->y = (struct sl_use){.lasts = sl_from_input_if(module->type->backward_weight && !plan->forward_only)};
    int status = plan_named(module, plan);
    plan->run = run;
    plan->storage = storage;
    plan->x_stride = x_stride;
    if (status == SL_OK) status = check_type(module, plan);
    if (status == SL_OK) status = freeze(module, plan);
    module->weights_follow = weights_follow(module, plan);
    if (status == SL_OK && !plan->forward_only) note_written(module, plan);
    plan->part = part;
    if (!sl_is_kept(&module->y)) module->follower_dy = SL_F32;
    if (module->weights_follow || module->frozen) module->y.lasts = SL_UNTIL_RETURN;
    if (storage != SL_F32 && !plan->forward_only) plan_rooms(module, plan);
    plan->module = parent;
    plan->name[prefix] = '\0';
    if (module->is_layer) {
        plan->layer++;
        plan->global_layer++;
        plan->dropouts = 0;
    }
    return status;
}

int sl_plan_keeps_nothing(struct sl_module *module, struct sl_plan *plan) {
    (void)plan;
    module->x.lasts = module->y.lasts = SL_UNTIL_RETURN;
    return SL_OK;
}

int sl_plan_child(struct sl_plan *plan, struct sl_module *child, size_t begin) {
    const size_t end = plan->workspace;
    plan->workspace = begin;
    SL_TRY(sl_module_plan(child, plan));
    if (plan->workspace < end) plan->workspace = end;
    return SL_OK;
}

/* ---- parameters ---- */

/* Removes axes missing in the mesh: they do not shard. */
static void leave_out_absent_axes(struct sl_spec *spec, const struct sl_mesh *mesh) {
    for (struct sl_spec_dim *dim = spec->dim; dim < spec->dim + spec->dims; dim++) {
        const int axes = dim->axes;
        dim->axes = 0;
        for (int a = 0; a < axes; a++)
            if (sl_mesh_find_axis(mesh, dim->axis[a]) >= 0)
                memmove(dim->axis[dim->axes++], dim->axis[a], sizeof dim->axis[a]);
    }
}

/* Keeps a dim whole if the data axis cannot divide it equally: FSDP shards only where this is possible. */
static void leave_out_uneven_data(struct sl_spec *spec, const struct sl_mesh *mesh, const char *data_axis, int dims,
                                  const size_t *shape) {
    for (int d = 1; data_axis && d < spec->dims && d < dims; d++) {
        struct sl_spec_dim *dim = &spec->dim[d];
        const size_t shards = (size_t)sl_mesh_axis_size(mesh, data_axis) * (size_t)dim->segments;
        bool all = dim->axes > 0;
        for (int a = 0; a < dim->axes; a++) all = all && sl_axes_have(data_axis, dim->axis[a]);
        if (all && shape[d] % shards) dim->axes = 0;
    }
}

/* Pads the rows as the module has requested; rules have no padding. */
static void pad(struct sl_plan *plan, struct sl_parameter *parameter) {
    struct sl_spec *spec = &parameter->spec;
    if (plan->padded_rows <= parameter->shape[0]) return;
    if (spec->dims == 0) spec->dim[spec->dims++].segments = 1;
    spec->dim[0].padded = plan->padded_rows;
}

/* SPEC NULL: the rules' spec. */
static int declare(struct sl_plan *plan, const char *prefix, const char *name, struct sl_parameter *parameter,
                   const size_t *shape, const char *spec) {
    struct sl_module *module = plan->module;
    if (module->parameters == SL_MODULE_PARAMETERS)
        return sl_error_set(plan->error, SL_BAD_INPUT, "%s%s: more than %d parameters", plan->name, module->type->name,
                            SL_MODULE_PARAMETERS);
    if (parameter->dims < 1 || parameter->dims > SL_MAX_DIMS)
        return sl_error_set(plan->error, SL_BAD_INPUT, "%s%s: parameter %s of %d dims: there are 1 to %d", plan->name,
                            module->type->name, name, parameter->dims, SL_MAX_DIMS);
    SL_TRY(join_names(plan, "parameter", prefix, name, "", parameter->name, sizeof parameter->name));
    if (!spec) spec = sl_rule_find(plan->rules, parameter->name);
    SL_TRY(sl_spec_parse(&parameter->spec, spec, plan->error));
    leave_out_absent_axes(&parameter->spec, plan->mesh);
    leave_out_uneven_data(&parameter->spec, plan->mesh, plan->parameters->data_axis, parameter->dims, shape);
    memcpy(parameter->shape, shape, (size_t)parameter->dims * sizeof *shape);
    pad(plan, parameter);
    plan->padded_rows = 0;
    const int number = sl_parameters_declare(plan->parameters, plan->mesh, parameter, plan->error);
    if (number < 0) return plan->error->status;
    module->parameter[module->parameters++] = number;
    return SL_OK;
}

int sl_plan_parameter(struct sl_plan *plan, const char *name, enum sl_initializer initializer, float scale, int dims,
                      const size_t *shape) {
    return sl_plan_parameter_sharded(plan, name, initializer, scale, dims, shape, "");
}

int sl_plan_parameter_sharded(struct sl_plan *plan, const char *name, enum sl_initializer initializer, float scale,
                              int dims, const size_t *shape, const char *spec) {
    struct sl_parameter parameter = {.dims = dims, .initializer = initializer, .scale = scale, .range = plan->part};
    return declare(plan, plan->name, name, &parameter, shape, spec);
}

int sl_plan_parameter_by_rule(struct sl_plan *plan, const char *name, enum sl_initializer initializer, float scale,
                              int dims, const size_t *shape) {
    return sl_plan_parameter_sharded(plan, name, initializer, scale, dims, shape, NULL);
}

int sl_plan_parameter_tied(struct sl_plan *plan, const char *name, enum sl_initializer initializer, float scale,
                           int dims, const size_t *shape) {
    struct sl_parameter parameter = {
        .dims = dims, .initializer = initializer, .scale = scale, .tied = true, .range = plan->part};
    return declare(plan, "", name, &parameter, shape, NULL);
}

/* ---- arrays, caches and groups ---- */

/* Adds a tensor of BYTES for each microbatch. Without ROOM, the tensor has a number but no memory. */
static int add_tensor(struct sl_plan *plan, struct sl_stash *stash, size_t bytes, bool room) {
    struct sl_stash_tensor *grown = sl_grow(stash->tensor, stash->count, &stash->capacity, 32, sizeof *grown);
    if (!grown) return sl_error_set(plan->error, SL_FAILED, "no memory to plan the stash");
    stash->tensor = grown;
    stash->tensor[stash->count++] = (struct sl_stash_tensor){.stride = bytes, .offset = stash->used, .passes = !room};
    if (room) stash->used += sl_round_up(bytes, SL_CACHE_LINE) / sizeof(float);
    if (stash->used > stash->elements) stash->elements = stash->used;
    return SL_OK;
}

/* Plans an array in both stashes of recomputed modules. The first forward of such a module writes the array, but it is
 * not read before the second forward writes it again. At that time W may still need the values of other microbatches,
 * which the first forward must not overwrite. */
static int plan_recomputed(struct sl_plan *plan, size_t bytes, enum sl_lifetime lifetime) {
    const bool passes = lifetime <= SL_UNTIL_INPUT || plan->weights_follow;
    const bool apart = lifetime == SL_UNTIL_WEIGHT && !plan->forward_keeps;
    SL_TRY(add_tensor(plan, plan->stash->once, bytes, passes || apart));
    return add_tensor(plan, plan->stash, bytes, !passes);
}

static int plan_stash(struct sl_plan *plan, size_t bytes, enum sl_lifetime lifetime, struct sl_place *place) {
    *place = (struct sl_place){.stashed = true, .number = plan->stash->count};
    return plan->stash->once ? plan_recomputed(plan, bytes, lifetime) : add_tensor(plan, plan->stash, bytes, true);
}

int sl_plan_stash(struct sl_plan *plan, size_t count, struct sl_place *place) {
    return plan_stash(plan, count * sizeof(float), SL_UNTIL_WEIGHT, place);
}

int sl_plan_stored(struct sl_plan *plan, size_t count, enum sl_lifetime lifetime, struct sl_place *place) {
    return plan_stash(plan, count * sizeof(uint16_t), lifetime, place);
}

void sl_plan_workspace(struct sl_plan *plan, size_t bytes, struct sl_place *place) {
    const size_t offset = sl_round_up(plan->workspace, SL_CACHE_LINE);
    plan->workspace = offset + bytes;
    if (plan->workspace > plan->workspace_peak) plan->workspace_peak = plan->workspace;
    *place = (struct sl_place){.offset = offset};
}

int sl_plan_array(struct sl_plan *plan, size_t count, enum sl_lifetime lifetime, struct sl_place *place) {
    if (lifetime != SL_UNTIL_RETURN && !plan->forward_only)
        return plan_stash(plan, count * sizeof(float), lifetime, place);
    sl_plan_workspace(plan, count * sl_plan_run(plan) * sizeof(float), place);
    return SL_OK;
}

int sl_plan_cache(struct sl_plan *plan, size_t columns, int *number) {
    *number = sl_caches_declare(plan->caches, columns, false, plan->error);
    return *number < 0 ? plan->error->status : SL_OK;
}

int sl_plan_cache_once(struct sl_plan *plan, size_t columns, int *number) {
    *number = sl_caches_declare(plan->caches, columns, true, plan->error);
    return *number < 0 ? plan->error->status : SL_OK;
}

int sl_plan_group(const struct sl_plan *plan, const char *axes, int *group) {
    return sl_groups_find(plan->groups, plan->mesh, axes, group, plan->error);
}

/* ---- communication ---- */

int sl_communicate_at(struct sl_context *context, const char *site, struct sl_collective call) {
    const enum sl_work before = sl_profile_begin(context->profile, SL_WORK_COMMUNICATION);
    const int status = sl_call(context->self, site, call);
    sl_profile_end(context->profile, before);
    return status;
}

int sl_sum_over(struct sl_context *context, int group, size_t n, float *x) {
    const struct sl_group *peers = sl_group_of(context, group);
    if (!peers) return SL_OK;
    return sl_communicate(context, context->groups->by_tree[group] ? sl_describe_psum_tree(peers, SL_F32, x, x, n)
                                                                   : sl_describe_psum(peers, SL_F32, x, x, n));
}
