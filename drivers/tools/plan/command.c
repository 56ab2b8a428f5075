/* command.c - writes the command of the driver transformer for a planned job: the same model, parameter by
 * parameter, with the formulas' memory and traffic. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "drivers/command_line/called.h"
#include "drivers/tools/plan/plan.h"
#include "spmd/mesh.h"
#include "spmd/schedule/registry.h"

const char *plan_schedule_name(const char *name, int loops) {
    if (!strcmp(name, "interleaved") && loops > 1) return "interleaved-1f1b";
    const struct sl_schedule_kind *kind = sl_schedule_find(name, NULL);
    return kind ? kind->name : NULL;
}

/* Whether the driver's options allow the layout. */
static bool can_train(const struct plan_job *job, const struct plan_layout *layout) {
    enum { MOST_CHANNELS = 65536, MOST_HEADS = 1024, MOST = 4096, MOST_BATCH = 1 << 20 };
    const double batch = layout->samples * layout->microbatches * layout->data;
    if (!layout->trains || job->parameters > 0) return false;
    if ((double)job->expansion * job->hidden > 1 << 20) return false;
    if (layout->precision == PLAN_ALL_BF16 || job->hidden % job->heads || job->hidden % layout->tensor) return false;
    if (job->hidden > MOST_CHANNELS || job->heads > MOST_HEADS || job->layers > MOST || job->sequence > MOST_BATCH)
        return false;
    if ((double)layout->data * layout->stages * layout->tensor * layout->context > SL_MOST_COORDINATES) return false;
    return layout->microbatches <= MOST && batch <= MOST_BATCH;
}

static const char *optimizer_options(const struct plan_job *job) {
    static const char *const options[] = {[PLAN_SGD] = " --optimizer sgd --momentum 0",
                                          [PLAN_MOMENTUM] = " --optimizer sgd --momentum 0.9",
                                          [PLAN_ADAM] = " --optimizer adamw"};
    return options[job->optimizer];
}

static const char *zero_options(int zero) {
    static const char *const options[] = {" --no-fsdp --zero 0", " --no-fsdp --zero 1", " --no-fsdp --zero 2",
                                          " --fsdp --no-prefetch --zero 2"};
    return options[zero];
}

void plan_mesh(char *text, size_t size, const struct plan_layout *layout) {
    char context[32] = "";
    if (layout->context > 1) snprintf(context, sizeof context, "context=%d,", layout->context);
    snprintf(text, size, "data=%d,pipe=%d,%stensor=%d", layout->data, layout->stages, context, layout->tensor);
}

bool plan_command(char *text, size_t size, const struct plan_job *job, const struct plan_layout *layout) {
    const int tensor = layout->tensor;
    if (!can_train(job, layout)) return false;
    char program[PATH_MAX], mesh[96];
    plan_mesh(mesh, sizeof mesh, layout);
    const int used = snprintf(
        text, size,
        "%s --mesh %s --model-dimension %d --n-heads %d --blocks 1 "
        "--layers-per-block %d --attention gqa --rope-dim 0 --norm layer --mlp erf-gelu --mlp-dim %d "
        "--learned-positions %d --vocab-size %d --sequence %d --batch %.0f --microbatches %d --wgrad-group 1 "
        "--schedule %s --loops %d%s%s%s%s%s%s",
        sl_program_called("transformer train", program, sizeof program), mesh, job->hidden, job->heads, job->layers,
        job->expansion * job->hidden, job->sequence, job->vocabulary, job->sequence,
        layout->samples * layout->microbatches * layout->data, layout->microbatches, layout->schedule, layout->loops,
        layout->spread_head ? " --spread-head" : "", !layout->spread_head && tensor > 1 ? " --vocabulary-parallel" : "",
        optimizer_options(job), zero_options(layout->zero), layout->recompute ? " --recompute full" : "",
        layout->precision == PLAN_MIXED ? " --precision bf16 --storage bf16" : "");
    if (used < 0 || (size_t)used >= size) return false;
    const char *offload = layout->offload ? " --offload optimizer" : "";
    return (size_t)snprintf(text + used, size - (size_t)used, "%s", offload) < size - (size_t)used;
}
