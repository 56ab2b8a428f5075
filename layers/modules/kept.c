/* kept.c - arrays that modules save between calls, as floats or as bf16. */
#include "layers/modules/kept.h"
#include "layers/modules/share.h"

int sl_plan_kept_at(struct sl_plan *plan, const struct sl_place *values, size_t count, enum sl_lifetime lifetime,
                    struct sl_kept *kept) {
    *kept = (struct sl_kept){.values = *values, .count = count};
    if (plan->storage == SL_F32) return sl_plan_array(plan, count, lifetime, &kept->values);
    kept->form = SL_ROUNDED;
    kept->stores = lifetime != SL_UNTIL_RETURN && !plan->forward_only;
    return kept->stores ? sl_plan_stored(plan, count, lifetime, &kept->stored) : SL_OK;
}

/* Operands are not saved as bf16 on CPUs: a core that rounds its next input has it in its cache. */
bool sl_keeps_operands(const struct sl_plan *plan) {
    return plan->precision == SL_BF16 && plan->storage == SL_F32 && !plan->forward_only && plan->gemm->on_device;
}

int sl_plan_operand(struct sl_plan *plan, size_t count, bool outlasts, enum sl_lifetime lifetime,
                    struct sl_kept *kept) {
    *kept = (struct sl_kept){.count = count, .form = SL_BESIDE, .stores = true};
    return outlasts ? sl_plan_stored(plan, count, lifetime, &kept->stored) : SL_OK;
}

int sl_plan_written(struct sl_plan *plan, size_t count, bool outlasts, enum sl_lifetime lifetime, enum sl_form form,
                    struct sl_kept *kept) {
    SL_TRY(sl_plan_operand(plan, count, outlasts, lifetime, kept));
    kept->form = form;
    sl_plan_workspace(plan, count * sl_plan_run(plan) * sizeof(float), &kept->values);
    if (!outlasts) sl_plan_kept_room(plan, kept);
    return SL_OK;
}

int sl_plan_kept_input(struct sl_plan *plan, struct sl_module *child, size_t count, enum sl_lifetime lifetime,
                       enum sl_form form, struct sl_kept *kept) {
    if (!sl_reads_operand(&child->x)) return sl_plan_kept(plan, count, lifetime, kept);
    return sl_plan_written(plan, count, true, SL_UNTIL_WEIGHT, form, kept);
}

int sl_plan_kept_gradient(struct sl_plan *plan, struct sl_module *child, size_t count, enum sl_form form,
                          struct sl_kept *kept) {
    if (sl_reads_operand(&child->y))
        return sl_plan_written(plan, count, sl_is_kept(&child->y), SL_FROM_INPUT, form, kept);
    SL_TRY(sl_plan_kept(plan, count, child->y.lasts, kept));
    if (sl_reads_stored_gradient(plan, child)) sl_plan_kept_room(plan, kept);
    if (form == SL_ALONE) sl_plan_reader(kept, &child->y);
    return SL_OK;
}

int sl_plan_kept_both(struct sl_plan *plan, struct sl_module *child, size_t count, struct sl_kept *kept) {
    if (!sl_reads_operand(&child->x)) return sl_plan_kept(plan, count, sl_longer(child->x.lasts, SL_UNTIL_INPUT), kept);
    SL_TRY(sl_plan_operand(plan, count, true, SL_UNTIL_WEIGHT, kept));
    return sl_plan_array(plan, count, SL_UNTIL_INPUT, &kept->values);
}

int sl_plan_kept(struct sl_plan *plan, size_t count, enum sl_lifetime lifetime, struct sl_kept *kept) {
    struct sl_place values = {0};
    if (plan->storage != SL_F32) sl_plan_workspace(plan, count * sl_plan_run(plan) * sizeof(float), &values);
    return sl_plan_kept_at(plan, &values, count, lifetime, kept);
}

int sl_plan_kept_halves(struct sl_plan *plan, size_t count, enum sl_lifetime lifetime, struct sl_kept *kept) {
    SL_TRY(sl_plan_kept(plan, count, lifetime, kept));
    if (kept->form == SL_ROUNDED && !kept->stores) sl_plan_kept_room(plan, kept);
    return SL_OK;
}

void sl_plan_ends(struct sl_module *module, const struct sl_module *first, const struct sl_module *last) {
    module->x = first->x;
    module->y = last->y;
    if (sl_reads_operand(&module->x)) module->x.reads = SL_READS_COPY;
    if (sl_reads_operand(&module->y)) module->y.reads = SL_READS_BOTH;
}

bool sl_reads_stored_gradient(const struct sl_plan *plan, const struct sl_module *child) {
    if (plan->storage == SL_F32 || plan->forward_only || sl_is_kept(&child->y)) return false;
    if (sl_reads_copy(&child->y)) return true;
    if (child->children > 0) return plan->weights_follow;
    return child->weights_follow && child->follower_dy != SL_F32;
}

bool sl_reads_stored(const struct sl_plan *plan, const struct sl_module *child) {
    return plan->storage != SL_F32 && plan->forward_only && plan->precision == SL_BF16 && sl_reads_copy(&child->x);
}

void sl_plan_kept_beside(struct sl_kept *kept, const struct sl_place *room) {
    kept->stores = true;
    kept->stored = *room;
}

void sl_plan_kept_room(struct sl_plan *plan, struct sl_kept *kept) {
    struct sl_place room;
    sl_plan_workspace(plan, kept->count * sl_plan_run(plan) * sizeof(uint16_t), &room);
    sl_plan_kept_beside(kept, &room);
}

struct sl_result sl_kept_result(const struct sl_context *context, const struct sl_kept *kept) {
    return (struct sl_result){.floats = sl_kept_values(context, kept),
                              .halves = kept->stores ? sl_kept_halves(context, kept) : NULL,
                              .form = kept->form == SL_OPEN ? SL_WHOLE : kept->form};
}

struct sl_given sl_kept_given(const struct sl_context *context, const struct sl_kept *kept) {
    return (struct sl_given){kept->form == SL_ALONE ? NULL : sl_kept_values(context, kept),
                             kept->stores ? sl_kept_halves(context, kept) : NULL, kept->form};
}

/* A pass over numbers: rounds X to STORED, or Y in place, or first adds X to Y. */
struct pass {
    const struct sl_kernels *kernels;
    const float *x;
    float *y;
    uint16_t *stored; /* may be NULL */
};

static void settle_numbers(const void *arg, size_t first, size_t end) {
    const struct pass *pass = arg;
    pass->kernels->settle_bf16(end - first, pass->y + first, pass->stored ? pass->stored + first : NULL);
}

static void round_numbers(const void *arg, size_t first, size_t end) {
    const struct pass *pass = arg;
    pass->kernels->round_bf16(end - first, pass->x + first, pass->stored + first);
}

static void add_numbers(const void *arg, size_t first, size_t end) {
    const struct pass *pass = arg;
    pass->kernels->add(end - first, pass->x + first, pass->y + first);
}

static void add_settled_numbers(const void *arg, size_t first, size_t end) {
    const struct pass *pass = arg;
    pass->kernels->add_settled(end - first, pass->x + first, pass->y + first,
                               pass->stored ? pass->stored + first : NULL);
}

/* Rounds Y [n] in place and to STORED, which may be NULL. BESIDE: only to STORED. */
static void settle(const struct sl_context *context, size_t n, float *y, uint16_t *stored, bool beside) {
    const struct pass pass = {context->kernels, y, y, stored};
    sl_share(context, n, 1, beside ? round_numbers : settle_numbers, &pass);
}

void sl_keep(const struct sl_context *context, const struct sl_kept *kept) {
    if (kept->form != SL_WHOLE)
        settle(context, sl_kept_elements(context, kept), sl_kept_values(context, kept),
               kept->stores ? sl_at(context, &kept->stored) : NULL, kept->form != SL_ROUNDED);
}

void sl_module_finish(const struct sl_context *context, size_t n, struct sl_result *y) {
    settle(context, n, y->floats, y->halves, y->form != SL_ROUNDED);
    y->made = SL_MADE;
}

const uint16_t *sl_round_rows(const struct sl_context *context, size_t n, const float *x, uint16_t *y) {
    const struct pass pass = {.kernels = context->kernels, .x = x, .stored = y};
    sl_share(context, n, 1, round_numbers, &pass);
    return y;
}

float *sl_recall(const struct sl_context *context, const struct sl_kept *kept) {
    float *values = sl_at(context, &kept->values);
    if (sl_kept_outlasts(kept))
        context->kernels->widen_bf16(sl_kept_elements(context, kept), sl_at(context, &kept->stored), values);
    return values;
}

const void *sl_kept_operand(const struct sl_context *context, const struct sl_kept *kept, enum sl_dtype dtype) {
    return dtype == SL_F32 ? sl_recall(context, kept) : sl_given_rows(sl_kept_saved(context, kept)).at;
}

void sl_add_result(const struct sl_context *context, size_t n, const float *x, struct sl_result *y) {
    const struct pass pass = {context->kernels, x, y->floats, y->halves};
    sl_share(context, n, 1, sl_result_rounds(y) ? add_settled_numbers : add_numbers, &pass);
    if (y->form == SL_BESIDE) sl_round_rows(context, n, y->floats, y->halves);
    if (y->form != SL_WHOLE) y->made = SL_MADE;
}

const float *sl_widen(const struct sl_context *context, const struct sl_place *room, size_t n, struct sl_given x) {
    if (x.floats) return x.floats;
    float *values = sl_at(context, room);
    context->kernels->widen_bf16(n, x.halves, values);
    return values;
}
