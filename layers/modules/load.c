/* load.c - sums the work of planned modules. */
#include "layers/modules/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layers/modules/module.h"
#include "spmd/base/memory.h"

int sl_load_open(struct sl_load *load, int loops) {
    *load = (struct sl_load){.loops = loops, .repeat = 1, .loop = calloc((size_t)loops, sizeof *load->loop)};
    return load->loop ? SL_OK : SL_FAILED;
}

void sl_load_close(struct sl_load *load) {
    for (int l = 0; load->loop && l < load->loops; l++) {
        for (int p = 0; p < SL_LOAD_PARTS; p++) {
            free(load->loop[l].part[p].product);
            free(load->loop[l].part[p].call);
        }
    }
    free(load->loop);
    *load = (struct sl_load){0};
}

/* The work to which PART counts: a loss computes dx in its forward. */
static struct sl_load_work *work_of(const struct sl_plan *plan, enum sl_load_part part) {
    const bool loss = part == SL_LOAD_INPUT && plan->module && !plan->module->type->backward_input;
    return &plan->load->loop[plan->loop].part[loss ? SL_LOAD_FORWARD : part];
}

/* Whether PART is repeated: the I of a recomputed module repeats its forward. */
static bool comes_again(const struct sl_plan *plan, enum sl_load_part part) {
    return plan->load && plan->load->again && part == SL_LOAD_FORWARD;
}

/* Whether PART is not called: the W of a module with only frozen parameters. */
static bool is_left_out(const struct sl_plan *plan, enum sl_load_part part) {
    const struct sl_module *module = plan->module;
    if (part != SL_LOAD_WEIGHT || !module || module->children > 0 || module->parameters == 0) return false;
    for (int i = 0; i < module->parameters; i++)
        if (sl_plan_trains(plan, i)) return false;
    return true;
}

static bool counts(const struct sl_plan *plan, enum sl_load_part part) {
    return plan->load && !is_left_out(plan, part);
}

/* ---- products ---- */

static bool is_same(const struct sl_load_product *a, const struct sl_load_product *b) {
    return a->type == b->type && a->m == b->m && a->n == b->n && a->k == b->k && a->a_transposed == b->a_transposed &&
           a->b_transposed == b->b_transposed;
}

/* Layers are alike, so the list stays short. */
static void add_product(struct sl_load *load, struct sl_load_work *work, const struct sl_load_product *product) {
    for (int i = 0; i < work->products; i++) {
        if (!is_same(&work->product[i], product)) continue;
        work->product[i].count += product->count;
        return;
    }
    struct sl_load_product *grown =
        sl_grow(work->product, work->products, &work->product_capacity, 8, sizeof *work->product);
    if (!grown) {
        load->failed = true;
        return;
    }
    work->product = grown;
    work->product[work->products++] = *product;
}

void sl_load_repeat(const struct sl_plan *plan, double times) {
    if (plan->load) plan->load->repeat = times;
}

void sl_load_product(const struct sl_plan *plan, enum sl_load_part part, const struct sl_load_product *product) {
    if (!counts(plan, part)) return;
    struct sl_load_product counted = *product;
    counted.count *= plan->load->repeat;
    if (counted.count == 0) return;
    add_product(plan->load, work_of(plan, part), &counted);
    if (comes_again(plan, part)) add_product(plan->load, work_of(plan, SL_LOAD_INPUT), &counted);
}

/* ---- kernels ---- */

static void add_floats(struct sl_load_work *work, enum sl_load_kernel kernel, double floats) {
    work->floats[kernel] += floats;
    work->kernels++;
}

void sl_load_floats(const struct sl_plan *plan, enum sl_load_part part, enum sl_load_kernel kernel, double floats) {
    if (!counts(plan, part)) return;
    add_floats(work_of(plan, part), kernel, floats);
    if (comes_again(plan, part)) add_floats(work_of(plan, SL_LOAD_INPUT), kernel, floats);
}

void sl_load_attention(const struct sl_plan *plan, enum sl_load_part part, double multiply_adds) {
    if (!counts(plan, part)) return;
    work_of(plan, part)->attention += multiply_adds;
    if (comes_again(plan, part)) work_of(plan, SL_LOAD_INPUT)->attention += multiply_adds;
}

/* ---- collective calls ---- */

static void add_call(struct sl_load *load, struct sl_load_work *work, const struct sl_load_call *call) {
    for (int i = 0; i < work->calls; i++) {
        struct sl_load_call *same = &work->call[i];
        const bool alike = same->operation == call->operation && !strcmp(same->axes, call->axes);
        if (!alike || same->bytes != call->bytes) continue;
        same->count += call->count;
        return;
    }
    struct sl_load_call *grown = sl_grow(work->call, work->calls, &work->call_capacity, 8, sizeof *work->call);
    if (!grown) {
        load->failed = true;
        return;
    }
    work->call = grown;
    work->call[work->calls++] = *call;
}

void sl_load_call(const struct sl_plan *plan, enum sl_load_part part, enum sl_operation operation, const char *axes,
                  double bytes, double count) {
    const int members = counts(plan, part) && axes ? sl_mesh_axis_size(plan->mesh, axes) : 1;
    if (members <= 1) return;
    struct sl_load_call call = {
        .operation = operation, .members = members, .bytes = count > 0 ? bytes / count : 0, .count = count};
    snprintf(call.axes, sizeof call.axes, "%s", axes);
    add_call(plan->load, work_of(plan, part), &call);
    if (comes_again(plan, part)) add_call(plan->load, work_of(plan, SL_LOAD_INPUT), &call);
}
