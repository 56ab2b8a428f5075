/* weights.c - decides whether quantized weights of a GGUF file stay quantized in memory: --weights. */
#include <stdlib.h>

#include "drivers/transformer/transformer.h"
#include "spmd/device/device.h"

/* Returns the bytes of the file's tensors; *QUANTIZED: of the tensors that may stay quantized. */
static double file_bytes(const struct sl_published *published, double *quantized) {
    double bytes = *quantized = 0;
    for (int i = 0; i < published->weights.count; i++) {
        const struct sl_weight *weight = &published->weights.weight[i];
        const struct sl_blocks blocks = sl_weight_blocks(weight);
        const double own = (double)blocks.rows * (double)blocks.stride;
        *quantized += own;
        bytes += blocks.at ? own : (double)sizeof(float) * (double)sl_weight_elements(weight);
    }
    return bytes;
}

double transformer_file_bytes(const struct transformer_job *job) {
    double quantized;
    return file_bytes(&job->published, &quantized);
}

/* Returns why they cannot stay; NULL: they can. */
static const char *why_not(const struct transformer_job *job, enum transformer_command command,
                           const struct transformer_config *config) {
    const struct sl_training_options *training = &config->training;
    const bool trains = command == TRANSFORMER_TRAIN;
    double quantized;
    file_bytes(&job->published, &quantized);
    if (quantized <= 0) return "the model's files have no quantized weights";
    if (!sl_device.shares_memory) return "devices read none of them";
    if (training->precision) return "products read them as floats: leave --precision out";
    if (config->spread_head) return "--spread-head needs the token table as floats";
    if (training->exact) return "--exact needs them as floats";
    if (trains && config->weights == TRANSFORMER_INTEGERS) return "training multiplies floats: --weights file";
    if (trains && !config->lora_rank) return "all weights train: --lora-rank trains adapters beside them";
    if (trains && training->checkpoints.save && config->save_frozen)
        return "checkpoints would have all values: --no-save-frozen leaves these out";
    return NULL;
}

/* Weights that stay are small, so they are not sharded over data. */
int transformer_choose_weights(struct transformer_job *job, enum transformer_command command,
                               struct transformer_config *config, const struct sl_options *options,
                               struct sl_error *error) {
    const bool asked = sl_option_given(options, "weights"), sharded = sl_option_given(options, "fsdp");
    if (!job->publishes || config->params || command == TRANSFORMER_EXPORT || config->weights == TRANSFORMER_STORED)
        return SL_OK;
    const bool shards = sharded && config->training.fsdp, stores = !asked && config->training.storage;
    const char *why = shards ? "--fsdp shards floats" : why_not(job, command, config);
    if (why && asked)
        return sl_error_set(error, SL_BAD_INPUT, "--weights %s: %s",
                            config->weights == TRANSFORMER_INTEGERS ? "integers" : "file", why);
    if (why || stores) return SL_OK;
    job->in_file = true;
    job->blocks = (struct sl_block_source){
        .find = sl_published_find_blocks, .arg = &job->published, .dots = config->weights == TRANSFORMER_INTEGERS};
    config->training.fsdp = false;
    return SL_OK;
}
