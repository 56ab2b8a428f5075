/* training_options.c - the tables of what all training drivers understand. */
#include "drivers/training/training_options.h"

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
         "or there is one; without --offload weights; a transformer's W is "
         "1, 2, 4, ..., and a multiple of the tensor axis: sums over it are those of W leaves, parts of the columns or "
         "of a sequence, so that its size changes no bit; each has products of its own; without "
         "--spread-head"},
    {"recompute", SL_OPTION_CHOICE, FIELD(recompute), .value = "none|selective|full", .keep = SL_KEPT_FREE,
     .help = "what backward computes again, so that it need not be kept: nothing, a part of each layer (attention, or "
             "an MLP block up to its last product), or whole layers"},
    {"wgrad-group", SL_OPTION_INTEGER, FIELD(wgrad_group), .min = 0, .max = MOST_MICROBATCHES, .keep = SL_KEPT_FREE,
     .unless = "mesh|microbatches|schedule-file",
     .help =
         "microbatches in one weight-gradient product; 0: with --exact 1, otherwise the fewest of 256 rows together "
         "for a transformer, and all of them for other models; a stage keeps its microbatches until their product, so "
         "that only with 1 a schedule keeps "
         "as few as the driver schedule tells"},
    {"zero", SL_OPTION_INTEGER, FIELD(zero), .min = 0, .max = 2, /* not kept: it changes no bit of a checkpoint */
     .help = "1: shard the optimizer's state over the data axis (ZeRO-1); 2: sums of gradients, too, so that a loop's "
             "whole gradient is there only while it is computed, where that takes less memory; 0: each replica keeps "
             "all of it"},
    {"offload", SL_OPTION_LIST, FIELD(offload), .value = "optimizer|activations|weights",
     .help = "keep a part of the memory further away than the rest, with the same bits: in a file of --offload-dir, or "
             "in the host's memory where GPUs compute; the optimizer's state, which a step brings piece by piece; "
             "what forward leaves for backward, which comes back ahead of its use; values and gradients of the loops "
             "that do not compute (a schedule with several loops a rank has such)"},
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
     .help = "on NVIDIA GPUs, once two steps were alike, run what a step asks of the GPU as CUDA graphs, in which new "
             "numbers replace old ones; auto: where that works, and --profile tells where not; on: or end the run; the "
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
     .help = "type of what is kept for backward, of what stages hand over, of caches, of the weights that products "
             "read and of what --fsdp gathers; with bf16 activations are rounded after every layer, and weights that "
             "train have a copy of 2 bytes each beside float32; sums, the optimizer's state and gradients are "
             "float32"},
    {"fsdp", SL_OPTION_SWITCH, FIELD(fsdp), .keep = SL_KEPT_FREE,
     .help = "shard kernels over the data axis (FSDP); they are gathered for use"},
    {"show-shardings", SL_OPTION_FLAG, FIELD(show_shardings),
     .help = "print how each parameter is sharded, and do nothing else"},
    {"dry-run", SL_OPTION_FLAG, FIELD(dry_run),
     .help = "print how much memory each coordinate needs and what for, and do nothing else"},
    {0},
};

const struct sl_option sl_rate_table[] = {
    {"lr", SL_OPTION_REAL, FIELD(learning_rate), .min = 0, .max = 1e6, .alias = "learning-rate", .keep = SL_KEPT_RUN,
     .help = "highest learning rate of the run"},
    {"warmup", SL_OPTION_INTEGER, FIELD(warmup), .min = 0, .max = MOST_STEPS, .alias = "warmup-steps",
     .keep = SL_KEPT_RUN, .help = "steps in which the learning rate rises from 0 to --lr"},
    {"lr-schedule", SL_OPTION_CHOICE, FIELD(lr_schedule), .value = "constant|cosine", .keep = SL_KEPT_RUN,
     .help = "learning rate after the warm-up: it stays, or falls along half a cosine until the last step; "
             "looping_pipeline's default is cosine for real data and constant for random data"},
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
     .help = "after each step, compare hashes of the parameters and optimizer state that several coordinates hold; end "
             "the run if they differ"},
    {"journal", SL_OPTION_TEXT, FIELD(journal), .value = "DIR", .path = SL_PATH_JOURNAL,
     .help = "record each step in DIR, a file a coordinate: hashes of what stages hand over, of gradients and of "
             "parameters, and the loss; diff compares two such runs; with --resume, go on after the steps before"},
    {"journal-every", SL_OPTION_INTEGER, FIELD(journal_every), .min = 0, .max = MOST_STEPS, .read = "journal",
     .help = "record steps 0, N, 2 N, ... in --journal, and no others; 0: all"},
    {"journal-messages", SL_OPTION_INTEGER, FIELD(journal_messages), .min = 0, .max = MOST_STEPS, .read = "journal",
     .help = "also keep in --journal what each coordinate received in the last N steps and more, and its state before "
             "them, so that the driver replay can run it again alone; 0: nothing"},
    {"replay", SL_OPTION_TEXT, FIELD(replay), .value = "COORDINATE@STEP", .read = "journal",
     .help = "run one coordinate alone up to a step, with what --journal has of its messages, and compare all hashes: "
             "the driver replay does so with the options of the run"},
    {"log-every", SL_OPTION_INTEGER, FIELD(log_every), .min = 0, .max = MOST_STEPS, .read = "!json",
     .help = "print a line for people after every N steps and after the last one; 0: as often as the driver sees fit; "
             "--metrics has all steps, and so has --json, which goes without it"},
    {"progress-every", SL_OPTION_REAL, FIELD(progress_every), .min = 0, .max = 86400, .read = "!json",
     .help = "where stderr is no terminal, print there every X seconds which step it is, of how many, how fast the run "
             "is and how long the rest takes; 0: never"},
    {"metrics", SL_OPTION_TEXT, FIELD(metrics), .value = "FILE", .path = SL_PATH_STREAM,
     .help = "write a JSON object a step to FILE; with --resume, go on with the lines of the steps before"},
    {"gradients", SL_OPTION_TEXT, FIELD(gradients), .value = "FILE", .path = SL_PATH_REPLACED,
     .help = "write the last step's gradients to FILE (safetensors)"},
    {"trace", SL_OPTION_TEXT, FIELD(trace), .value = "FILE", .path = SL_PATH_STREAM,
     .help = "record when each coordinate did what, and write it to FILE (Chrome trace events, for Perfetto or "
             "schedule --compare)"},
    {"profile", SL_OPTION_FLAG, FIELD(profile),
     .help =
         "print where each coordinate's time went, without the first step: its own work, and bubble (what it waits for "
         "has not been computed yet), transfer (it is on its way), no core (another "
         "coordinate or program had the core)"},
    {0},
};

struct sl_training_options sl_training_defaults(void) {
    return (struct sl_training_options){.accumulate = 1,
                                        .zero = 1,
                                        .offload_directory = ".",
                                        .overlap = true,
                                        .prefetch = true,
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
