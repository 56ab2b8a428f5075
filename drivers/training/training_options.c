/* training_options.c - the tables of what all training drivers understand. */
#include "drivers/training/training_options.h"

#define FIELD(name) offsetof(struct sl_training_options, name)

enum { MOST_MICROBATCHES = 4096, MOST_STEPS = 1000000000 };

const struct sl_option sl_pipeline_table[] = {
    {"schedule-file", SL_OPTION_TEXT, FIELD(schedule_file), .value = "FILE",
     .help = "a table of actions (CSV, one line a rank, as PyTorch writes it) instead of --schedule; it says how many "
             "microbatches there are"},
    {"accumulate", SL_OPTION_INTEGER, FIELD(accumulate), .min = 1, .max = 4096,
     .help = "passes through the pipeline a step, whose gradients are added up"},
    {"recompute", SL_OPTION_CHOICE, FIELD(recompute), .value = "none|selective|full",
     .help = "what is computed again for backward rather than kept: nothing, a part of each layer (attention, or an "
             "MLP block up to its last product), or whole layers"},
    {"wgrad-group", SL_OPTION_INTEGER, FIELD(wgrad_group), .min = 0, .max = MOST_MICROBATCHES,
     .help = "microbatches of one weight-gradient product; 0: all, but 1 for a transformer that recomputes something"},
    {"zero", SL_OPTION_INTEGER, FIELD(zero), .min = 0, .max = 1,
     .help = "1: shard the optimizer's state over the data axis, also of what is not sharded itself"},
    {"overlap", SL_OPTION_SWITCH, FIELD(overlap),
     .help = "sum a loop's gradients over the data axis while other loops compute"},
    {"delay-ms", SL_OPTION_REAL, FIELD(delay_ms), .min = 0, .max = 10000,
     .help = "let every message and sum take so much longer, as on a slow network (engine local)"},
    {0},
};

const struct sl_option sl_layout_table[] = {
    {"precision", SL_OPTION_CHOICE, FIELD(precision), .value = "f32|bf16|tf32",
     .help = "operands of matrix products: floats, or rounded to bf16, or to tf32 in multiplying (on NVIDIA's GPUs); "
             "sums, parameters and all else are floats"},
    {"fsdp", SL_OPTION_SWITCH, FIELD(fsdp), .help = "shard kernels over the data axis, too"},
    {"show-shardings", SL_OPTION_FLAG, FIELD(show_shardings),
     .help = "tell how each parameter is sharded, and do nothing else"},
    {0},
};

const struct sl_option sl_rate_table[] = {
    {"lr", SL_OPTION_REAL, FIELD(learning_rate), .min = 0, .max = 1e6,
     .help = "learning rate of the optimizer, at its highest"},
    {"warmup", SL_OPTION_INTEGER, FIELD(warmup), .min = 0, .max = MOST_STEPS,
     .help = "steps over which it rises to that"},
    {"lr-schedule", SL_OPTION_CHOICE, FIELD(lr_schedule), .value = "constant|cosine",
     .help = "then it stays, or falls along half a cosine until the last step; where looping_pipeline is told nothing, "
             "it falls for real data and stays for random data"},
    {"min-lr", SL_OPTION_REAL, FIELD(least_rate), .min = 0, .max = 1e6, .help = "to which the cosine falls"},
    {"clip", SL_OPTION_REAL, FIELD(clip), .min = 0, .max = 1e30,
     .help = "largest norm of all gradients together; 0: any"},
    {0},
};

const struct sl_option sl_record_table[] = {
    {"check-replicas", SL_OPTION_FLAG, FIELD(check_replicas),
     .help = "compare hashes of what several coordinates hold after each step"},
    {"metrics", SL_OPTION_TEXT, FIELD(metrics), .value = "FILE", .help = "write JSON lines to FILE"},
    {"gradients", SL_OPTION_TEXT, FIELD(gradients), .value = "FILE",
     .help = "write the last step's gradients to FILE (safetensors)"},
    {"trace", SL_OPTION_TEXT, FIELD(trace), .value = "FILE",
     .help = "write what each coordinate did when to FILE (Chrome trace events: for Perfetto, or schedule --compare)"},
    {"profile", SL_OPTION_FLAG, FIELD(profile),
     .help = "tell where each coordinate's time went in the steps after the first"},
    {"dry-run", SL_OPTION_FLAG, FIELD(dry_run), .help = "tell each coordinate's memory, and do nothing else"},
    {0},
};

struct sl_training_options sl_training_defaults(void) {
    return (struct sl_training_options){
        .accumulate = 1, .zero = 1, .overlap = true, .optimizer = sl_optimizer_flags_defaults(), .learning_rate = 1e-3};
}

struct sl_learning_rate sl_training_rate(const struct sl_training_options *options, int64_t steps) {
    return (struct sl_learning_rate){.highest = options->learning_rate,
                                     .least = options->least_rate,
                                     .warmup = options->warmup,
                                     .steps = steps,
                                     .falls = options->lr_schedule == SL_RATE_COSINE};
}
