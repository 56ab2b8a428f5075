/* trainer_check.c - checks a trainer's options before planning. */
#include <limits.h>
#include <string.h>

#include "layers/training/trainer.h"
#include "spmd/device/device.h"

int sl_trainer_sharing(struct sl_spmd *self, const struct sl_trainer_options *options) {
    return options->pipeline.context_axis ? sl_axis_size(self, options->pipeline.context_axis) : 1;
}

/* Refuses unused axes: along such an axis, each coordinate would train a model of its own. */
static int check_axes(struct sl_spmd *self, const struct sl_trainer_options *options) {
    const struct sl_pipeline_options *pipeline = &options->pipeline;
    if (pipeline->context_axis && !sl_axes_end_with(self->mesh, options->data_axis, pipeline->context_axis))
        return sl_fail(self, SL_BAD_INPUT,
                       "the pipeline's context_axis \"%s\" must be the mesh's last of the trainer's data_axis \"%s\"",
                       pipeline->context_axis, options->data_axis);
    for (int a = 0; a < self->mesh->axes; a++) {
        const struct sl_axis *axis = &self->mesh->axis[a];
        bool used =
            axis->size == 1 || sl_axes_have(options->data_axis, axis->name) || !strcmp(axis->name, pipeline->axis);
        for (const char *const *list = pipeline->group_axes; !used && list && *list; list++)
            used = sl_axes_have(*list, axis->name);
        if (used) continue;
        return sl_fail(self, SL_BAD_INPUT,
                       "nothing uses the mesh's axis \"%s\": the trainer's option data_axis is \"%s\", the pipeline's "
                       "option axis is \"%s\", and group_axes has others or none",
                       axis->name, options->data_axis, pipeline->axis);
    }
    return SL_OK;
}

/* Keys of layers give the same words to all coordinates of a sequence, and are not those of leaves. */
static int check_keys(struct sl_spmd *self, const struct sl_trainer_options *options) {
    if (!options->step_keys || (sl_trainer_sharing(self, options) == 1 && !options->pipeline.context_leaves))
        return SL_OK;
    return sl_fail(self, SL_BAD_INPUT,
                   "the trainer's option step_keys is set: it must be NULL if sequences are divided over the "
                   "pipeline's context_axis \"%s\", or have context_leaves",
                   options->pipeline.context_axis);
}

int sl_trainer_check(struct sl_spmd *self, const struct sl_trainer_options *options) {
    if (!options->data_axis)
        return sl_fail(self, SL_BAD_INPUT,
                       "the trainer's option data_axis is NULL: it must be the name of the axis whose "
                       "coordinates have different rows, such as \"data\"; an axis that the mesh has "
                       "not is one of size 1");
    if (sl_axes_have(options->data_axis, options->pipeline.axis) && sl_axis_size(self, options->pipeline.axis) > 1)
        return sl_fail(self, SL_BAD_INPUT,
                       "the trainer's option data_axis \"%s\" has the pipeline's option axis \"%s\": rows and stages "
                       "must lie along different axes",
                       options->data_axis, options->pipeline.axis);
    SL_TRY(check_axes(self, options));
    SL_TRY(check_keys(self, options));
    const struct sl_pipeline_options *pipeline = &options->pipeline;
    SL_TRY(sl_apart_check(self, pipeline->context_leaves, options->exact, options->zero, pipeline->schedule->sharded));
    if (options->zero < 0 || options->zero > 2)
        return sl_fail(self, SL_BAD_INPUT, "the trainer's option zero is %d: it must be 0, 1 or 2", options->zero);
    if (!(options->clip >= 0.0f))
        return sl_fail(self, SL_BAD_INPUT,
                       "the trainer's option clip is %g: it must be the largest norm of the gradients, "
                       "or 0 for no limit",
                       (double)options->clip);
    const bool offloads =
        options->offload_optimizer || options->offload_weights || options->pipeline.offload_activations;
    if (offloads && !options->offload_directory)
        return sl_fail(self, SL_BAD_INPUT,
                       "the trainer's option offload_directory is NULL: it must be the folder for the "
                       "offloaded files, such as \".\"");
    if (options->graphs == SL_GRAPHS_ON && !sl_device.report_graphs)
        return sl_fail(self, SL_BAD_INPUT, "the trainer's option graphs is SL_GRAPHS_ON: device %s has none",
                       sl_device.name);
    if (options->accumulate < 0)
        return sl_fail(self, SL_BAD_INPUT,
                       "the trainer's option accumulate is %d: it must be the passes in a step, or 0, "
                       "which is one",
                       options->accumulate);
    const int pass = options->pipeline.rows * options->pipeline.schedule->microbatches; /* checked by the pipeline */
    const int members = sl_axis_size(self, options->data_axis) / sl_trainer_sharing(self, options),
              accumulate = options->accumulate;
    const long long passes = (long long)(accumulate ? accumulate : 1) * (options->exact ? options->exact / members : 1);
    if (pass * passes > INT_MAX)
        return sl_fail(self, SL_BAD_INPUT, "the batch has %lld rows (%d in a pass x passes %lld): at most %d",
                       pass * passes, pass, passes, INT_MAX);
    return SL_OK;
}
