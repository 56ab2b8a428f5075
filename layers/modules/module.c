/* module.c - making, planning and freeing modules. */
#include "layers/modules/module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/base/memory.h"

struct sl_module *sl_module_new(const struct sl_module_type *type, const char *name, int in, int out) {
    struct sl_module *module = strlen(name) < sizeof module->name ? calloc(1, sizeof *module) : NULL;
    if (!module) return NULL;
    module->type = type;
    module->in = in;
    module->out = out;
    snprintf(module->name, sizeof module->name, "%s", name);
    return module;
}

static void release_products(struct sl_module *module) {
    for (size_t i = 0; i < sizeof module->gemm / sizeof *module->gemm; i++)
        if (module->gemm[i].backend) sl_gemm_release(&module->gemm[i]);
}

void sl_module_free(struct sl_module *module) {
    if (!module) return;
    release_products(module);
    if (module->release) module->release(module);
    for (int i = 0; i < module->children; i++) sl_module_free(module->child[i]);
    free(module->child);
    free(module->edge);
    free(module);
}

int sl_module_plan(struct sl_module *module, struct sl_plan *plan) {
    const size_t prefix = strlen(plan->name);
    if (module->name[0]) {
        const int added = snprintf(plan->name + prefix, sizeof plan->name - prefix, "%s.", module->name);
        if (prefix + (size_t)added >= sizeof plan->name) {
            plan->name[prefix] = '\0';
            return sl_error_set(plan->error, SL_BAD_INPUT, "the name of module %s%s is longer than %zu characters",
                                plan->name, module->name, sizeof plan->name - 2);
        }
    }
    release_products(module);
    const int status = module->type->plan(module, plan);
    plan->name[prefix] = '\0';
    if (module->is_layer) {
        plan->layer++;
        plan->global_layer++;
        plan->dropouts = 0;
    }
    return status;
}

/* An absent axis is an unsharded one. */
static void leave_out_absent_axes(struct sl_spec *spec, const struct sl_mesh *mesh) {
    for (struct sl_spec_dim *dim = spec->dim; dim < spec->dim + spec->dims; dim++) {
        const int axes = dim->axes;
        dim->axes = 0;
        for (int a = 0; a < axes; a++)
            if (sl_mesh_find_axis(mesh, dim->axis[a]) >= 0)
                memmove(dim->axis[dim->axes++], dim->axis[a], sizeof dim->axis[a]);
    }
}

int sl_plan_parameter(struct sl_plan *plan, const char *name, enum sl_initializer initializer, float scale, int dims,
                      const size_t *shape) {
    return sl_plan_parameter_sharded(plan, name, initializer, scale, dims, shape, "");
}

/* PARAMETER's name: under the plan's PREFIX. */
static int name_parameter(const struct sl_plan *plan, const char *prefix, const char *name,
                          struct sl_parameter *parameter) {
    const int length = snprintf(parameter->name, sizeof parameter->name, "%s%s", prefix, name);
    if ((size_t)length < sizeof parameter->name) return SL_OK;
    return sl_error_set(plan->error, SL_BAD_INPUT, "the name of parameter %s%s is longer than %zu characters", prefix,
                        name, sizeof parameter->name - 1);
}

/* What the data axis cannot shard equally stays whole over it: FSDP saves memory where it can. */
static void leave_out_uneven_data(struct sl_spec *spec, const struct sl_mesh *mesh, const char *data_axis,
                                  const size_t *shape) {
    for (int d = 1; data_axis && d < spec->dims; d++) {
        struct sl_spec_dim *dim = &spec->dim[d];
        const size_t shards = (size_t)sl_mesh_axis_size(mesh, data_axis) * (size_t)dim->segments;
        if (dim->axes == 1 && !strcmp(dim->axis[0], data_axis) && shape[d] % shards) dim->axes = 0;
    }
}

static int declare(struct sl_plan *plan, struct sl_parameter *parameter, const size_t *shape, const char *spec) {
    if (sl_spec_parse(&parameter->spec, spec, plan->error)) return -1;
    leave_out_absent_axes(&parameter->spec, plan->mesh);
    leave_out_uneven_data(&parameter->spec, plan->mesh, plan->parameters->data_axis, shape);
    memcpy(parameter->shape, shape, (size_t)parameter->dims * sizeof *shape);
    return sl_parameters_declare(plan->parameters, plan->mesh, parameter, plan->error);
}

int sl_plan_parameter_sharded(struct sl_plan *plan, const char *name, enum sl_initializer initializer, float scale,
                              int dims, const size_t *shape, const char *spec) {
    struct sl_parameter parameter = {.dims = dims, .initializer = initializer, .scale = scale, .range = plan->loop};
    if (name_parameter(plan, plan->name, name, &parameter)) return -1;
    return declare(plan, &parameter, shape, spec);
}

int sl_plan_parameter_by_rule(struct sl_plan *plan, const char *name, enum sl_initializer initializer, float scale,
                              int dims, const size_t *shape) {
    struct sl_parameter parameter = {.dims = dims, .initializer = initializer, .scale = scale, .range = plan->loop};
    if (name_parameter(plan, plan->name, name, &parameter)) return -1;
    return declare(plan, &parameter, shape, sl_rule_find(plan->rules, parameter.name));
}

int sl_plan_parameter_tied(struct sl_plan *plan, const char *name, enum sl_initializer initializer, float scale,
                           int dims, const size_t *shape) {
    struct sl_parameter parameter = {
        .dims = dims, .initializer = initializer, .scale = scale, .tied = true, .range = plan->loop};
    if (name_parameter(plan, "", name, &parameter)) return -1;
    return declare(plan, &parameter, shape, sl_rule_find(plan->rules, parameter.name));
}

int sl_plan_cache(struct sl_plan *plan, size_t columns) {
    return sl_caches_declare(plan->caches, columns, plan->error);
}

int sl_plan_stash_flat(struct sl_plan *plan, size_t count) {
    struct sl_stash *stash = plan->stash;
    if (stash->count == stash->capacity) {
        const int capacity = stash->capacity ? 2 * stash->capacity : 32;
        struct sl_stash_tensor *grown = realloc(stash->tensor, (size_t)capacity * sizeof *grown);
        if (!grown) {
            sl_error_set(plan->error, SL_FAILED, "no memory to plan the stash");
            return -1;
        }
        stash->tensor = grown;
        stash->capacity = capacity;
    }
    stash->tensor[stash->count] = (struct sl_stash_tensor){.stride = count, .offset = stash->elements};
    stash->elements += sl_round_up(count, SL_CACHE_LINE / sizeof(float));
    return stash->count++;
}

int sl_plan_stash(struct sl_plan *plan, size_t columns) {
    return sl_plan_stash_flat(plan, (size_t)plan->rows * columns);
}

size_t sl_plan_workspace(struct sl_plan *plan, size_t bytes) {
    const size_t offset = sl_round_up(plan->workspace, SL_CACHE_LINE);
    plan->workspace = offset + bytes;
    if (plan->workspace > plan->workspace_peak) plan->workspace_peak = plan->workspace;
    return offset;
}
