/* curve.c - computes utilization as a function of the batch. */
#include <stdlib.h>
#include <string.h>

#include "drivers/training/choices/schedule_choice.h"
#include "drivers/tools/machine/machine_file.h"
#include "drivers/schedule/curve_internal.h"

/* Costs of a microbatch, in ms. */
struct price {
    struct sl_stage_costs layer;
    double communication;
    double useful; /* of a layer, at the best rate for all rows */
};

struct pricing {
    const struct schedule_curve_options *options;
    struct sl_machine *machine; /* NULL: none */
    double row;                 /* ms per row and layer, at the best rate */
};

/* ---- costs ---- */

static double product_ms(const struct pricing *pricing, int m, int n, int k, bool a, bool b) {
    return 1e3 * sl_machine_product(pricing->machine, SL_F32, m, n, k, a, b);
}

static struct sl_stage_costs layer_of(const struct pricing *pricing, int rows) {
    const int width = pricing->options->width;
    return (struct sl_stage_costs){.forward = product_ms(pricing, rows, width, width, false, false),
                                   .input_gradient = product_ms(pricing, rows, width, width, false, true),
                                   .weight_gradient = product_ms(pricing, width, width, rows, true, false)};
}

static double compute_of(const struct sl_stage_costs *cost) {
    return cost->forward + cost->input_gradient + cost->weight_gradient;
}

/* Returns the time of a message over the slowest link between neighbouring ranks. */
static double message_ms(const struct pricing *pricing, int rows) {
    enum sl_link link = SL_LINK_CORE;
    for (int r = 0; r + 1 < pricing->options->model.stages; r++) {
        const enum sl_link next = sl_machine_link(pricing->machine, r, r + 1);
        if (next > link) link = next;
    }
    return 1e3 * sl_machine_message(pricing->machine, link, 4.0 * rows * pricing->options->width);
}

static struct price price_of(const struct pricing *pricing, int batch, int microbatches) {
    const struct schedule_curve_options *options = pricing->options;
    if (!pricing->machine)
        return (struct price){options->model.cost, options->model.communication,
                              microbatches * compute_of(&options->model.cost)};
    const int rows = batch / microbatches;
    return (struct price){layer_of(pricing, rows), message_ms(pricing, rows), batch * pricing->row};
}

static int open_pricing(struct pricing *pricing, struct sl_error *error) {
    const struct schedule_curve_options *options = pricing->options;
    if (!options->machine) return SL_OK;
    pricing->machine = calloc(1, sizeof *pricing->machine);
    if (!pricing->machine) return sl_error_set(error, SL_FAILED, "no memory for a machine");
    SL_TRY(sl_machine_read(pricing->machine, options->machine, error));
    if (sl_machine_room(pricing->machine) < options->model.stages)
        return sl_error_set(error, SL_BAD_INPUT, "--curve: %s has %d places, fewer than --stages %d", options->machine,
                            sl_machine_room(pricing->machine), options->model.stages);
    for (int rows = 1; rows <= options->batch; rows *= 2) {
        const struct sl_stage_costs cost = layer_of(pricing, rows);
        const double row = compute_of(&cost) / rows;
        if (rows == 1 || row < pricing->row) pricing->row = row;
    }
    return SL_OK;
}

/* ---- points ---- */

/* Computes the utilization; SL_BAD_INPUT if the schedule does not fit. */
static int measure(const struct pricing *pricing, const struct curve *curve, int batch, int microbatches, bool sends,
                   double *utilization, struct sl_error *error) {
    const struct schedule_curve_options *options = pricing->options;
    const struct price price = price_of(pricing, batch, microbatches);
    const int copies = curve->kind->placement == SL_MIRRORED ? 2 : 1;
    const double layers = (double)options->model.loops * copies / curve->loops; /* per stage */
    const struct sl_stage_costs stage = {layers * price.layer.forward,         layers * price.layer.input_gradient,
                                         layers * price.layer.weight_gradient, layers * price.layer.reduce,
                                         layers * price.layer.optimizer,       layers * price.layer.unshard};
    const struct sl_costs costs = {.count = 1,
                                   .stage = &stage,
                                   .communication = sends ? price.communication : 0,
                                   .overlap = options->model.overlap,
                                   .group = options->model.group,
                                   .cores = options->model.cores};
    struct schedule_study study = {0};
    int status =
        sl_schedule_generate(&study.schedule, curve->kind, options->model.stages, curve->loops, microbatches, error);
    if (status == SL_OK) status = schedule_study_prove(&study, options->model.buffers, options->model.group, error);
    if (status == SL_OK) status = sl_schedule_time(&study.schedule, &costs, &study.simulation, error);
    if (status == SL_OK && study.simulation.step > 0)
        *utilization = options->model.loops * price.useful / study.simulation.step;
    schedule_study_free(&study);
    return status;
}

/* Finds the best number of microbatches for a batch of rows; a batch given in microbatches has only one. */
static int find(const struct pricing *pricing, const struct curve *curve, int batch, bool sends,
                struct curve_point *point, struct sl_error *error) {
    const int most = pricing->options->model.microbatches;
    *point = (struct curve_point){.utilization = -1};
    for (int m = pricing->machine ? 1 : batch; m <= batch && m <= most; m *= 2) {
        double utilization = 0;
        const int status = measure(pricing, curve, batch, m, sends, &utilization, error);
        if (status == SL_BAD_INPUT) continue;
        SL_TRY(status);
        if (utilization > point->utilization) *point = (struct curve_point){utilization, m};
    }
    return SL_OK;
}

static int compute(struct curves *curves, const struct pricing *pricing, struct sl_error *error) {
    const struct schedule_curve_options *options = curves->options;
    const int last = options->machine ? options->batch : options->model.microbatches;
    curves->sends = options->machine || options->model.communication > 0;
    for (int batch = 1; batch <= last && batch > 0; batch *= 2) curves->batch[curves->batches++] = batch;
    for (int i = 0; i < curves->count; i++) {
        struct curve *curve = &curves->curve[i];
        bool fits = false;
        for (int b = 0; b < curves->batches; b++) {
            SL_TRY(find(pricing, curve, curves->batch[b], false, &curve->free[b], error));
            if (curves->sends) SL_TRY(find(pricing, curve, curves->batch[b], true, &curve->sent[b], error));
            fits |= curve->free[b].utilization >= 0;
        }
        if (fits) continue;
        const struct sl_error why = *error; /* error of the last batch */
        return sl_error_set(error, SL_BAD_INPUT, "--curve: %s fits no batch: %.400s", curve->kind->name, why.message);
    }
    *error = (struct sl_error){0}; /* errors of single batches */
    return SL_OK;
}

/* ---- schedules ---- */

static int add(struct curves *curves, const char *name, struct sl_error *error) {
    const struct schedule_curve_options *options = curves->options;
    const struct sl_schedule_kind *kind = sl_schedule_find(name, error);
    if (!kind) return sl_schedule_suggest(name, NULL, error);
    if (curves->count == SCHEDULE_MOST_CURVES)
        return sl_error_set(error, SL_BAD_INPUT, "--curve: at most %d schedules", SCHEDULE_MOST_CURVES);
    struct curve *curve = &curves->curve[curves->count++];
    curve->kind = kind;
    curve->loops = sl_schedule_fit_loops(kind, options->model.loops);
    return SL_OK;
}

static int read_names(struct curves *curves, struct sl_error *error) {
    char *names = strdup(curves->options->names), *rest = names;
    if (!names) return sl_error_set(error, SL_FAILED, "no memory for the curves");
    int status = SL_OK;
    while (status == SL_OK && rest) status = add(curves, strsep(&rest, ","), error);
    free(names);
    return status;
}

int schedule_curve(const struct schedule_curve_options *options, const struct sl_output *output,
                   struct sl_error *error) {
    struct curves *curves = calloc(1, sizeof *curves);
    struct pricing pricing = {.options = options};
    if (!curves) return sl_error_set(error, SL_FAILED, "no memory for the curves");
    curves->options = options;
    int status = read_names(curves, error);
    if (status == SL_OK) status = open_pricing(&pricing, error);
    if (status == SL_OK) status = compute(curves, &pricing, error);
    if (status == SL_OK) status = schedule_curves_print(curves, output, error);
    free(pricing.machine);
    free(curves);
    return status;
}
