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
    {"exact", SL_OPTION_TEXT, FIELD(exact), .value = "data=N,tensor=W", .keep = SL_KEPT_RUN,
     .help =
         "the same bits, whatever the size of the data axis: gradients, losses and norms are sums over N leaves, parts "
         "of the batch that the replicas share, in the order of a tree; a replica with several leaves takes one after "
         "the other, each in as many microbatches as --microbatches says; N divided by the replicas is 1, 2, 4, ..., "
         "or there is one. tensor=W, for models that have a tensor axis: W is 1, 2, 4, ..., and a multiple of that "
         "axis; "
         "sums over it are those of W leaves, parts of the columns or of a sequence, each with products of its own, so "
         "that its size changes no bit. --offload weights and --spread-head do not go with it"},
    {"recompute", SL_OPTION_CHOICE, FIELD(recompute), .value = "none|selective|full|block", .keep = SL_KEPT_FREE,
     .help = "parts of forward that backward computes again, so that they need not be kept: none; a part of each layer "
             "(attention, or an MLP block up to its last product); whole layers; or whole blocks of --layers-per-block "
             "layers, of which a model without that option has one each"},
    {"wgrad-group", SL_OPTION_INTEGER, FIELD(wgrad_group), .min = 0, .max = MOST_MICROBATCHES, .keep = SL_KEPT_FREE,
     .unless = "mesh|microbatches|schedule-file",
     .help = "microbatches in one weight-gradient product; 0: with --exact 1, otherwise the fewest that have 256 rows "
             "together in a model of sequences, and all of them in other models; a stage keeps its microbatches until "
             "their product, so that only with 1 it keeps as few as its schedule allows"},
    {"zero", SL_OPTION_INTEGER, FIELD(zero), .min = 0,
     .max = 2, /* not saved: it changes the place of data, not their values */
     .help = "1: shard the optimizer's state over the data axis (ZeRO-1); 2: sums of gradients, too, so that a layer's "
             "or a loop's whole gradient is there only while it is computed, where that takes less memory; 0: each "
             "replica keeps all of it. With 2 a layer is summed over the replicas as often as its microbatches have "
             "weight gradients apart (--wgrad-group): that sends more, and sums have another order, but for --exact, "
             "which keeps bits"},
    {"offload", SL_OPTION_LIST, FIELD(offload), .value = "optimizer|activations|weights",
     .help =
         "keep a part of the memory in a file of --offload-dir, or in the host's memory where GPUs compute, with the "
         "same bits: optimizer, its state, which a step brings piece by piece; activations, kept for backward, "
         "which come back ahead of their use; weights, the values and gradients of loops that do not compute (where "
         "a schedule has several loops a rank)"},
    {"offload-dir", SL_OPTION_TEXT, FIELD(offload_directory), .value = "FOLDER", .read = "offload",
     .help = "where the files of --offload are: on a disk, and not in memory as /tmp may be; they have no names"},
    {"prefetch", SL_OPTION_SWITCH, FIELD(prefetch), .read = "fsdp",
     .help = "with --fsdp, gather the kernels of a stage once, while another one computes, into room for two stages; "
             "otherwise each kernel for each use, which takes less memory and more time"},
    {"overlap", SL_OPTION_SWITCH, FIELD(overlap),
     .help = "sum a loop's gradients over the data axis while other loops compute"},
    {"fuse", SL_OPTION_INTEGER, FIELD(fuse), .min = 0, .max = MOST_MICROBATCHES, .read = "!no-fuse",
     .help =
         "run N neighbouring microbatches as one product, so that weights are read once for all of them; 0: as many "
         "as the simulator finds best; the bits are the same"},
    {"no-fuse", SL_OPTION_FLAG, FIELD(no_fuse), .help = "each microbatch has products of its own: --fuse 1"},
    {"graph", SL_OPTION_CHOICE, FIELD(graph), .value = "off|auto|on",
     .help =
         "on NVIDIA GPUs, once two steps were alike, run a step's calls as CUDA graphs, in which new numbers replace "
         "old ones; auto: where that works, and --profile tells where not; on: end the run where it does not; the "
         "bits are the same"},
    {"delay-ms", SL_OPTION_REAL, FIELD(delay_ms), .min = 0, .max = 10000,
     .help = "make every message and sum take X ms longer, as on a slow network (engine local only)"},
    {0},
};

const struct sl_option sl_layout_table[] = {
    {"precision", SL_OPTION_CHOICE, FIELD(precision), .value = "f32|bf16|tf32", .keep = SL_KEPT_RUN,
     .help = "type of the operands of matrix products; tf32 needs an NVIDIA GPU; sums, parameters and everything else "
             "are float32"},
    {"storage", SL_OPTION_CHOICE, FIELD(storage), .value = "f32|bf16", .keep = SL_KEPT_RUN,
     .help =
         "storage type of saved activations, messages between stages, KV caches, working weights and FSDP's gathers; "
         "with bf16 activations are rounded after every layer, and weights that train have a copy of 2 bytes each "
         "beside float32; sums, the optimizer's state and gradients are float32"},
    {"fsdp", SL_OPTION_SWITCH, FIELD(fsdp), .keep = SL_KEPT_FREE,
     .help = "shard kernels over the data axis (FSDP); they are gathered for use"},
    {"show-shardings", SL_OPTION_CHOICE, FIELD(show_shardings), .value = "no|each|stacked", .plain = "each",
     .help =
         "print how each parameter is sharded, or with stacked the shapes and specs of arrays that are stacked over "
         "ranks, loops and layers; do nothing else"},
    {"dry-run", SL_OPTION_FLAG, FIELD(dry_run),
     .help = "print how much memory each coordinate needs, and for which parts; do nothing else"},
    {0},
};

const struct sl_option sl_rate_table[] = {
    {"lr", SL_OPTION_REAL, FIELD(learning_rate), .min = 0, .max = 1e6, .alias = "learning-rate", .keep = SL_KEPT_RUN,
     .help = "highest learning rate of the run"},
    {"warmup", SL_OPTION_INTEGER, FIELD(warmup), .min = 0, .max = MOST_STEPS, .alias = "warmup-steps",
     .keep = SL_KEPT_RUN, .help = "steps in which the learning rate rises from 0 to --lr"},
    {"lr-schedule", SL_OPTION_CHOICE, FIELD(lr_schedule), .value = "constant|cosine", .keep = SL_KEPT_RUN,
     .help = "learning rate after the warm-up: it stays, or falls along half a cosine until the last step"},
    {"min-lr", SL_OPTION_REAL, FIELD(least_rate), .min = 0, .max = 1e6, .keep = SL_KEPT_RUN,
     .read = "lr-schedule=cosine", .help = "learning rate at the end of the cosine"},
    {"clip", SL_OPTION_REAL, FIELD(clip), .min = 0, .max = 1e30, .keep = SL_KEPT_RUN,
     .help = "scale the gradients down so that the norm of all of them is at most X; 0: never"},
    {"freeze", SL_OPTION_TEXT, FIELD(freeze), .value = "PATTERN,...", .keep = SL_KEPT_STATE,
     .help =
         "parameters that stay as they are, by patterns of their names as a shell has them, such as \"blocks.0.*\": "
         "nothing is computed for their gradients, and they have no optimizer state"},
    {0},
};

const struct sl_option sl_record_table[] = {
    {"check-replicas", SL_OPTION_FLAG, FIELD(check_replicas),
     .help = "after each step, compare hashes of the parameters and optimizer state that several coordinates hold, and "
             "again before a checkpoint is written; end the run if they differ"},
    {"journal", SL_OPTION_TEXT, FIELD(journal), .value = "DIR", .path = SL_PATH_JOURNAL,
     .help =
         "record each step in DIR, a file a coordinate: hashes of the messages between stages, of gradients and "
         "of parameters, and the loss, by which two runs can be compared; with --resume, go on after the steps before"},
    {"journal-every", SL_OPTION_INTEGER, FIELD(journal_every), .min = 0, .max = MOST_STEPS, .read = "journal",
     .help = "record steps 0, N, 2 N, ... in --journal, and no others; 0: all"},
    {"journal-messages", SL_OPTION_INTEGER, FIELD(journal_messages), .min = 0, .max = MOST_STEPS, .read = "journal",
     .help = "also keep in --journal the messages that each coordinate received in the last N steps and more, and its "
             "state before them, so that it can run again alone (--replay); 0: nothing"},
    {"replay", SL_OPTION_TEXT, FIELD(replay), .value = "COORDINATE@STEP", .read = "journal",
     .help = "run one coordinate alone up to a step, with the messages that --journal has for it, and compare all "
             "hashes; the other options are those of the run"},
    {"log-every", SL_OPTION_INTEGER, FIELD(log_every), .min = 0, .max = MOST_STEPS, .read = "!json",
     .help = "print a line for people after every N steps and after the last one; 0: after some, the fewer the longer "
             "the run; "
             "--metrics has all steps, and so has --json, which goes without it"},
    {"progress-every", SL_OPTION_REAL, FIELD(progress_every), .min = 0, .max = 86400, .read = "!json",
     .help = "where stderr is no terminal, print there every X seconds which step it is, of how many, how fast the run "
             "is and how long the rest takes; 0: never"},
    {"metrics", SL_OPTION_TEXT, FIELD(metrics), .value = "FILE", .path = SL_PATH_STREAM,
     .help = "write a JSON object a step to FILE; with --resume, go on with the lines of the steps before"},
    {"tensorboard", SL_OPTION_TEXT, FIELD(tensorboard), .value = "DIR", .path = SL_PATH_EVENTS,
     .help = "write the numbers of --metrics to a new file in DIR, as TensorBoard reads them: each is a scalar of its "
             "step"},
    {"gradients", SL_OPTION_TEXT, FIELD(gradients), .value = "FILE", .path = SL_PATH_REPLACED,
     .help = "write the last step's gradients to FILE (safetensors)"},
    {"trace", SL_OPTION_TEXT, FIELD(trace), .value = "FILE", .path = SL_PATH_STREAM,
     .help = "record when each coordinate did its work, and write it to FILE (Chrome trace events, as Perfetto reads "
             "them)"},
    {"advice", SL_OPTION_SWITCH, FIELD(advice), .read = "!machine",
     .help = "where steps have taken 2 s or more, look at the end of the run for a layout that is predicted to be "
             "faster"},
    {"profile", SL_OPTION_FLAG, FIELD(profile),
     .help = "print where each coordinate's time went, without the first step: its own work, and not ready (it waits "
             "for numbers that are not computed yet), transfer (for numbers on their way), no core (another coordinate "
             "or program had the core)"},
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
