/* dense.c - y = x kernel + bias. */
#include "layers/modules/feedforward/affine.h"
#include "layers/modules/modules.h"

static int plan(struct sl_module *module, struct sl_plan *plan) {
    const size_t kernel[] = {(size_t)module->in, (size_t)module->out};
    SL_TRY(sl_affine_plan(module, plan, kernel, "", "", SL_EPILOGUE_BIAS));
    module->x.reads = module->y.reads = sl_copy_if(plan->precision == SL_BF16);
    sl_products_offer(&((struct sl_affine *)module)->products, module, plan, true, false, true);
    return SL_OK;
}

static const struct sl_module_type dense = {.name = "dense",
                                            .plan = plan,
                                            .forward = sl_affine_forward,
                                            .backward_input = sl_affine_backward_input,
                                            .backward_weight = sl_affine_backward_weight,
                                            .spares = true,
                                            .stores = true,
                                            .fuses = true,
                                            .bytes = sizeof(struct sl_affine),
                                            .release = sl_affine_release};

struct sl_module *sl_dense(const char *name, int in, int out) { return sl_module_new(&dense, name, in, out); }
