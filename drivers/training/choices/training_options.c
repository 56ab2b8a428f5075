/* training_options.c - option tables common to all training drivers. */
#include "drivers/training/choices/training_options.h"

#define FIELD(name) offsetof(struct sl_training_options, name)

enum { MOST_MICROBATCHES = 4096, MOST_STEPS = 1000000000 };

const struct sl_option sl_pipeline_table[] = {
    {"schedule-file", SL_OPTION_TEXT, FIELD(schedule_file), .value = "FILE", .path = SL_PATH_TEXT, .keep = SL_KEPT_FREE,
     .unless = "schedule|mesh",
     .help = "read the schedule from FILE (CSV in PyTorch's format, one line a rank) instead of --schedule; FILE also "
             "sets the numbers of microbatches and loops"},
    {"accumulate", SL_OPTION_INTEGER, FIELD(accumulate), .min = 1, .max = 4096, .keep = SL_KEPT_FREE,
     .help = "passes through the pipeline in each step; their gradients are added up"},
    {"exact", SL_OPTION_TEXT, FIELD(exact), .value = "data=N,tensor=W,context=C", .keep = SL_KEPT_RUN,
     .help =
         "compute the same bits on axes of any size. data=N: gradients, losses and norms are sums over N leaves, parts "
         "of the batch that the replicas share, in the order of a tree; a replica with several leaves computes one "
         "after another, each in --microbatches microbatches; N divided by the replicas must be 1, 2, 4, ..., unless "
         "there is one replica. tensor=W, for models with a tensor axis: sums over this axis are sums over W leaves, "
         "parts of the columns or of a sequence, each with products of its own; W must be 1, 2, 4, ..., and a multiple "
         "of the axis. context=C: each sequence has C leaves, of two blocks each; C must be 1, 2, 4, ..., and a "
         "multiple of the axis context. Not with --offload weights or --spread-head"},
    {"recompute", SL_OPTION_CHOICE, FIELD(recompute), .value = "none|selective|full|block", .keep = SL_KEPT_FREE,
     .help = "save memory by computing parts of forward again in backward: none; selective: a part of each layer "
             "(attention, or an MLP up to its last product); full: whole layers; block: whole blocks of "
             "--layers-per-block layers (in a model without that option a block is a layer)"},
    {"wgrad-group", SL_OPTION_INTEGER, FIELD(wgrad_group), .min = 0, .max = MOST_MICROBATCHES, .keep = SL_KEPT_FREE,
     .unless = "mesh|microbatches|schedule-file",
     .help = "microbatches in one weight-gradient product; a stage stores their data until then, so 1 takes the least "
             "memory. 0: with --exact, 1; otherwise in a model of sequences the fewest that together have 256 rows, "
             "in other models all"},
    {"zero", SL_OPTION_INTEGER, FIELD(zero), .min = 0,
     .max = 2, /* not saved: it changes the place of data, not their values */
     .help = "state that is sharded over the data axis: 1: the optimizer's (ZeRO-1); 2: also sums of gradients, so "
             "that a whole gradient exists only while it is computed; 0: none. With 2 a layer's gradients are summed "
             "over the replicas once for each weight-gradient product (--wgrad-group): more bytes are sent, and "
             "without --exact sums have another order"},
    {"offload", SL_OPTION_LIST, FIELD(offload), .value = "optimizer|activations|weights",
     .help =
         "move data to files in --offload-dir, or from a GPU to the host's memory; bits do not change. optimizer: its "
         "state, which a step reads piece by piece; activations: data saved for backward, read ahead of use; weights: "
         "values and gradients of loops while they do not compute (for schedules with several loops a rank)"},
    {"offload-dir", SL_OPTION_TEXT, FIELD(offload_directory), .value = "FOLDER", .read = "offload",
     .help = "the folder of --offload's files, which have no names; choose a disk (/tmp may be in memory)"},
    {"prefetch", SL_OPTION_SWITCH, FIELD(prefetch), .read = "fsdp",
     .help = "with --fsdp, gather the kernels of the next stage while one computes, into memory for two stages; with "
             "--no-prefetch each kernel is gathered before each use, which takes less memory and more time"},
    {"overlap", SL_OPTION_SWITCH, FIELD(overlap),
     .help = "sum a loop's gradients over the data axis while other loops compute"},
    {"fuse", SL_OPTION_INTEGER, FIELD(fuse), .min = 0, .max = MOST_MICROBATCHES, .read = "!no-fuse",
     .help = "run N neighbouring microbatches as one product, so that weights are read once for all of them; 0: the "
             "number that the simulator finds best; bits do not change"},
    {"no-fuse", SL_OPTION_FLAG, FIELD(no_fuse), .help = "a product for each microbatch: --fuse 1"},
    {"graph", SL_OPTION_CHOICE, FIELD(graph), .value = "off|auto|on",
     .help = "on NVIDIA GPUs, run a step's calls as CUDA graphs after two equal steps; bits do not change. auto: if "
             "possible, and --profile gives the reason if not; on: end the run if it is impossible"},
    {"delay-ms", SL_OPTION_REAL, FIELD(delay_ms), .min = 0, .max = 10000,
     .help = "add X ms to every message and sum, as on a slow network (engine local only)"},
    {0},
};

const struct sl_option sl_layout_table[] = {
    {"precision", SL_OPTION_CHOICE, FIELD(precision), .value = "f32|bf16|tf32", .keep = SL_KEPT_RUN,
     .help = "type of the operands of matrix products; all else, such as sums and parameters, is float32. tf32 needs "
             "an NVIDIA GPU"},
    {"storage", SL_OPTION_CHOICE, FIELD(storage), .value = "f32|bf16", .keep = SL_KEPT_RUN,
     .help = "type of saved activations, messages between stages, KV caches, working weights and FSDP's gathers. With "
             "bf16 activations are rounded after every layer, and trained weights have a bf16 copy beside float32; "
             "sums, gradients and the optimizer's state stay float32"},
    {"fsdp", SL_OPTION_SWITCH, FIELD(fsdp), .keep = SL_KEPT_FREE,
     .help = "shard kernels over the data axis, and gather them for use (FSDP)"},
    {"no-rewrite", SL_OPTION_FLAG, FIELD(no_rewrite),
     .help = "fuse no layers: gelus and sums of residual connections are computed in separate passes, not in those of "
             "neighbouring products and norms"},
    {"show-shardings", SL_OPTION_CHOICE, FIELD(show_shardings), .value = "no|each|stacked", .plain = "each",
     .help = "print how each parameter is sharded, and do nothing else; stacked: the shapes and specs of arrays that "
             "are stacked over ranks, loops and layers"},
    {"dry-run", SL_OPTION_FLAG, FIELD(dry_run),
     .help = "print the memory of each coordinate by purpose; do nothing else"},
    {0},
};

const struct sl_option sl_rate_table[] = {
    {"lr", SL_OPTION_REAL, FIELD(learning_rate), .min = 0, .max = 1e6, .alias = "learning-rate", .keep = SL_KEPT_RUN,
     .help = "highest learning rate of the run"},
    {"warmup", SL_OPTION_INTEGER, FIELD(warmup), .min = 0, .max = MOST_STEPS, .alias = "warmup-steps",
     .keep = SL_KEPT_RUN, .help = "steps in which the learning rate rises from 0 to --lr"},
    {"lr-schedule", SL_OPTION_CHOICE, FIELD(lr_schedule), .value = "constant|cosine", .keep = SL_KEPT_RUN,
     .help = "learning rate after the warm-up: constant, or half a cosine that ends with the last step"},
    {"min-lr", SL_OPTION_REAL, FIELD(least_rate), .min = 0, .max = 1e6, .keep = SL_KEPT_RUN,
     .read = "lr-schedule=cosine", .help = "learning rate at the end of the cosine"},
    {"clip", SL_OPTION_REAL, FIELD(clip), .min = 0, .max = 1e30, .keep = SL_KEPT_RUN,
     .help = "largest norm of all gradients together: larger ones are scaled down; 0: no limit"},
    {"freeze", SL_OPTION_TEXT, FIELD(freeze), .value = "PATTERN,...", .keep = SL_KEPT_STATE,
     .help = "parameters that are not trained, by shell patterns of their names, such as \"blocks.0.*\"; they have no "
             "gradients and no optimizer state"},
    {0},
};

const struct sl_option sl_record_table[] = {
    {"check-replicas", SL_OPTION_FLAG, FIELD(check_replicas),
     .help = "compare hashes of parameters and optimizer state between the coordinates that have copies, after each "
             "step and before each checkpoint; end the run if they differ"},
    {"journal", SL_OPTION_TEXT, FIELD(journal), .value = "DIR", .path = SL_PATH_JOURNAL, .read = "!show-shardings",
     .help = "write hashes of each step to DIR, a file for each coordinate: of messages between stages, gradients and "
             "parameters, and the loss, for comparing two runs. With --resume, continue the journal"},
    {"journal-every", SL_OPTION_INTEGER, FIELD(journal_every), .min = 0, .max = MOST_STEPS, .read = "journal",
     .help = "write only steps 0, N, 2 N, ... to --journal; 0: all"},
    {"journal-messages", SL_OPTION_INTEGER, FIELD(journal_messages), .min = 0, .max = MOST_STEPS, .read = "journal",
     .help = "also write to --journal the messages that each coordinate received in at least the last N steps, and its "
             "state before them, for --replay; 0: none"},
    {"replay", SL_OPTION_TEXT, FIELD(replay), .value = "COORDINATE@STEP", .read = "journal",
     .help = "run one coordinate alone up to a step, with the messages in --journal, and compare all hashes; give the "
             "other options of the run, too"},
    {"fail", SL_OPTION_TEXT, FIELD(fail), .value = "COORDINATE@STEP,...",
     .read = "!dry-run&!show-shardings&!journal-messages",
     .help = "make coordinates fail, each once, as a trial: 2@17 at the beginning of step 17; 2@17:90 after 90 "
             "more of its calls of the engine, which may come in a later step"},
    {"log-every", SL_OPTION_INTEGER, FIELD(log_every), .min = 0, .max = MOST_STEPS, .read = "!json",
     .help = "print a line after every N steps and after the last one; 0: the longer the run, the fewer lines. "
             "--metrics and --json have all steps"},
    {"progress-every", SL_OPTION_REAL, FIELD(progress_every), .min = 0, .max = 86400, .read = "!json",
     .help = "if stderr is not a terminal, print the step, the speed and the remaining time there every X seconds; 0: "
             "never"},
    {"metrics", SL_OPTION_TEXT, FIELD(metrics), .value = "FILE", .path = SL_PATH_STREAM, .read = "!show-shardings",
     .help = "write a JSON object for each step to FILE; with --resume, continue FILE"},
    {"tensorboard", SL_OPTION_TEXT, FIELD(tensorboard), .value = "DIR", .path = SL_PATH_EVENTS,
     .read = "!show-shardings", .help = "write the numbers of --metrics as TensorBoard's scalars to a new file in DIR"},
    {"gradients", SL_OPTION_TEXT, FIELD(gradients), .value = "FILE", .path = SL_PATH_REPLACED,
     .read = "!show-shardings", .help = "write the last step's gradients to FILE (safetensors)"},
    {"trace", SL_OPTION_TEXT, FIELD(trace), .value = "FILE", .path = SL_PATH_STREAM, .read = "!show-shardings",
     .help = "write the times of each coordinate's work to FILE (Chrome trace events, for Perfetto)"},
    {"advice", SL_OPTION_SWITCH, FIELD(advice), .read = "!machine",
     .help =
         "if steps have taken 2 s or more, search at the end of the run for a layout that is predicted to be faster"},
    {"profile", SL_OPTION_FLAG, FIELD(profile),
     .help = "print each coordinate's time by cause, without the first step: its own work, not ready (data are not "
             "computed yet), transfer (data are on their way), no core (another coordinate or program has the core)"},
    {0},
};

struct sl_training_options sl_training_defaults(void) {
    return (struct sl_training_options){.accumulate = 1,
                                        .zero = 1,
                                        .offload_directory = ".",
                                        .overlap = true,
                                        .prefetch = true,
                                        .advice = true,
                                        .progress_every = 60,
                                        .checkpoints = {.keep = 2},
                                        .optimizer = sl_optimizer_flags_defaults(),
                                        .learning_rate = 1e-3};
}

struct sl_learning_rate sl_training_rate(const struct sl_training_options *options, int64_t steps) {
    return (struct sl_learning_rate){.highest = options->learning_rate,
                                     .least = options->least_rate,
                                     .warmup = options->warmup,
                                     .steps = steps,
                                     .falls = options->lr_schedule == SL_RATE_COSINE};
}
