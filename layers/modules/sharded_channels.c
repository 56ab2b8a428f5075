/* sharded_channels.c - checks for the plan functions of modules with sharded channels. */
#include "layers/modules/sharded_channels.h"

#include <stdio.h>
#include <string.h>

static bool has_leaves(const struct sl_plan *plan, const char *axis) {
    return plan->leaf_axis && plan->leaves > 1 && !strcmp(plan->leaf_axis, axis);
}

int sl_plan_leaves(const struct sl_plan *plan, const char *axis) {
    return has_leaves(plan, axis) ? plan->leaves / sl_mesh_axis_size(plan->mesh, axis) : 0;
}

int sl_plan_slices(const struct sl_plan *plan, const char *axis) {
    const int leaves = sl_plan_leaves(plan, axis);
    return leaves ? leaves : 1;
}

int sl_plan_parts(const struct sl_plan *plan, const char *axis) {
    return has_leaves(plan, axis) ? plan->leaves : sl_mesh_axis_size(plan->mesh, axis);
}

const char *sl_plan_parts_name(const struct sl_plan *plan, const char *axis) {
    return has_leaves(plan, axis) ? "leaves" : "coordinates";
}

int sl_plan_without_leaves(const struct sl_plan *plan, const char *axis) {
    if (!has_leaves(plan, axis)) return SL_OK;
    return sl_error_set(plan->error, SL_BAD_INPUT, "%s%s: it has no sums over leaves along \"%s\" (--exact %s=%d)",
                        plan->name, plan->module->type->name, axis, axis, plan->leaves);
}

int sl_plan_columns(const struct sl_plan *plan, const char *axis, int columns, int segments) {
    const int shards = sl_plan_parts(plan, axis);
    if (columns > 0 && columns % (shards * segments) == 0) return SL_OK;
    char parts[32] = "";
    if (segments > 1) snprintf(parts, sizeof parts, " in %d segments", segments);
    return sl_error_set(plan->error, SL_BAD_INPUT, "%s%s: %d columns%s do not divide by the %d %s along \"%s\"",
                        plan->name, plan->module->type->name, columns, parts, shards, sl_plan_parts_name(plan, axis),
                        axis);
}

int sl_plan_share_rows(const struct sl_plan *plan, const char *axis) {
    const int size = sl_mesh_axis_size(plan->mesh, axis);
    SL_TRY(sl_plan_without_leaves(plan, axis));
    if (plan->sequence > 0 && plan->sequence % size == 0) return SL_OK;
    return sl_error_set(plan->error, SL_BAD_INPUT,
                        "%s%s: %d rows of a sequence do not divide by the %d coordinates along \"%s\" (tensor layout "
                        "rows)",
                        plan->name, plan->module->type->name, plan->sequence, size, axis);
}

int sl_plan_members_apart(const struct sl_plan *plan, const char *axis) {
    const struct sl_parameters *parameters = plan->parameters;
    const bool tree = parameters->sums_by_tree && parameters->data_axis && !strcmp(parameters->data_axis, axis);
    return tree ? sl_mesh_axis_size(plan->mesh, axis) : 1;
}

void sl_plan_gradient_parts(const struct sl_plan *plan, int i, enum sl_parts parts) {
    if (sl_plan_trains(plan, i)) sl_parameters_part_gradient(plan->parameters, plan->module->parameter[i], parts);
}

static const struct sl_parameter *parameter_of(const struct sl_plan *plan, int i) {
    return &plan->parameters->list[plan->module->parameter[i]];
}

/* Counts axes of more than one coordinate; *AXIS is the last one's name. */
static int count_axes(const struct sl_plan *plan, int i, int dim, const char **axis) {
    const struct sl_spec *spec = &parameter_of(plan, i)->spec;
    int count = 0;
    for (int a = 0; dim < spec->dims && a < spec->dim[dim].axes; a++) {
        if (sl_mesh_axis_size(plan->mesh, spec->dim[dim].axis[a]) == 1) continue;
        *axis = spec->dim[dim].axis[a];
        count++;
    }
    return count;
}

/* Returns the axis that shards dim DIM. If all axes of the data axis's list shard it together, returns the list. NULL:
 * the dim is not sharded; "": several other axes shard it together. */
static const char *axes_of(const struct sl_plan *plan, int i, int dim) {
    const char *axis = NULL, *data = plan->parameters->data_axis;
    const struct sl_spec *spec = &parameter_of(plan, i)->spec;
    const int count = count_axes(plan, i, dim, &axis);
    int size = 1;
    if (count == 0) return NULL;
    for (int a = 0; a < spec->dim[dim].axes; a++)
        size *= data && sl_axes_have(data, spec->dim[dim].axis[a])
                    ? sl_mesh_axis_size(plan->mesh, spec->dim[dim].axis[a])
                    : 0;
    if (data && size == sl_mesh_axis_size(plan->mesh, data)) return data;
    return count == 1 ? axis : "";
}

const char *sl_plan_sharding_axis(const struct sl_plan *plan, int i, int dim) {
    const char *axes = axes_of(plan, i, dim);
    return axes && *axes ? axes : NULL;
}

int sl_plan_expect_sharded(const struct sl_plan *plan, int i, int dim, const char *axis, int segments) {
    const struct sl_parameter *parameter = parameter_of(plan, i);
    const char *over = axes_of(plan, i, dim);
    if (axis && sl_mesh_axis_size(plan->mesh, axis) == 1) axis = NULL;
    if (!axis && !over) return SL_OK;
    if (axis && over && !strcmp(over, axis) && parameter->spec.dim[dim].segments == segments) return SL_OK;
    char given[200], wanted[2 * SL_AXIS_NAME + 16] = "-";
    if (axis && segments > 1) snprintf(wanted, sizeof wanted, "%s*%d", axis, segments);
    if (axis && segments == 1) snprintf(wanted, sizeof wanted, "%s", axis);
    return sl_error_set(plan->error, SL_BAD_INPUT, "%s is sharded as '%s', but its module needs '%s' for dim %d",
                        parameter->name, sl_spec_print(&parameter->spec, given, sizeof given), wanted, dim);
}
