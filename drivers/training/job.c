/* job.c - computes mesh, schedule and trainer options from a driver's options. */
#include "drivers/training/job.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/engines.h"
#include "drivers/speed/cores.h"
#include "spmd/schedule/csv.h"
#include "spmd/schedule/fuse.h"

/* ---- axes ---- */

static bool knows_axis(const struct sl_job_type *type, const char *name) {
    for (const char *const *axis = type->axes; *axis; axis++)
        if (!strcmp(*axis, name)) return true;
    return false;
}

static int refuse_axis(const struct sl_job_type *type, const char *name, struct sl_error *error) {
    char known[80] = "";
    for (const char *const *axis = type->axes; *axis; axis++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", *known ? ", " : "", *axis);
    return sl_error_set(error, SL_BAD_INPUT, "mesh axis \"%s\": %s's axes are %s", name, type->model, known);
}

/* Divides a sample's rows over the context axis. */
static int divide_samples(struct sl_job *job, struct sl_error *error) {
    const int blocks = 2 * job->parts;
    if (job->parts == 1) return SL_OK;
    if (job->sequence % blocks)
        return sl_error_set(error, SL_BAD_INPUT,
                            "mesh axis \"%s\": each of its %d coordinates has 2 blocks of a sequence, and %d tokens "
                            "(--sequence) do not divide into %d blocks",
                            job->type->context_axis, job->parts, job->sequence, blocks);
    job->sequence /= job->parts;
    return SL_OK;
}

/* Checks the mesh's axes and adds missing ones but the context axis: unknown axes were refused, so there is room for
 * them. */
static int read_axes(struct sl_job *job, struct sl_error *error) {
    struct sl_mesh *mesh = &job->mesh;
    for (int a = 0; a < mesh->axes; a++)
        if (!knows_axis(job->type, mesh->axis[a].name)) return refuse_axis(job->type, mesh->axis[a].name, error);
    for (const char *const *name = job->type->axes; *name; name++) {
        const bool divided = job->type->context_axis && !strcmp(*name, job->type->context_axis);
        if (divided || sl_mesh_find_axis(mesh, *name) >= 0) continue;
        struct sl_axis *axis = &mesh->axis[mesh->axes++];
        *axis = (struct sl_axis){.size = 1};
        snprintf(axis->name, sizeof axis->name, "%s", *name);
    }
    job->data = sl_mesh_axis_size(mesh, sl_job_axis(job, SL_JOB_DATA));
    job->ranks = sl_mesh_axis_size(mesh, sl_job_axis(job, SL_JOB_PIPE));
    job->parts = job->type->context_axis ? sl_mesh_axis_size(mesh, job->type->context_axis) : 1;
    job->replicas = job->data * job->parts;
    job->replica_axes = job->parts > 1 ? job->type->replica_axes : sl_job_axis(job, SL_JOB_DATA);
    return divide_samples(job, error);
}

static int refuse_leaves(const struct sl_job *job, struct sl_error *error) {
    const char *text = job->options->exact, *data = sl_job_axis(job, SL_JOB_DATA), *other = job->type->leaf_axis;
    const char *context = job->type->context_axis;
    if (!other)
        return sl_error_set(error, SL_BAD_INPUT, "--exact %.80s: only the axis %s has leaves, %s=N", text, data, data);
    return sl_error_set(error, SL_BAD_INPUT, "--exact %.80s: only the axes %s, %s and %s have leaves, %s=N,%s=W,%s=C",
                        text, data, other, context, data, other, context);
}

/* Reads the number of leaves of the batch. */
static int read_data_leaves(struct sl_job *job, int leaves, struct sl_error *error) {
    const char *data = sl_job_axis(job, SL_JOB_DATA);
    if (!sl_leaves_divide(leaves, job->data))
        return sl_error_set(error, SL_BAD_INPUT,
                            "--exact %s=%d: %s=%d coordinates must have 1, 2, 4, ... leaves each, or one all of them",
                            data, leaves, data, job->data);
    job->exact = leaves;
    return SL_OK;
}

/* Reads the number of leaves of the model's channels. */
static int read_channel_leaves(struct sl_job *job, int leaves, struct sl_error *error) {
    const char *axis = job->type->leaf_axis;
    const int members = sl_mesh_axis_size(&job->mesh, axis);
    if ((leaves & (leaves - 1)) || leaves % members)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--exact %s=%d: it must be 1, 2, 4, ..., and %s=%d coordinates have equally many leaves",
                            axis, leaves, axis, members);
    job->leaves = leaves;
    return SL_OK;
}

/* Reads the number of leaves of sequences, of two blocks each. */
static int read_context_leaves(struct sl_job *job, int leaves, struct sl_error *error) {
    const char *axis = job->type->context_axis;
    const int whole = job->sequence * job->parts;
    if ((leaves & (leaves - 1)) || leaves % job->parts)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--exact %s=%d: it must be 1, 2, 4, ..., and %s=%d coordinates have equally many leaves",
                            axis, leaves, axis, job->parts);
    if (whole % (2 * leaves))
        return sl_error_set(error, SL_BAD_INPUT,
                            "--exact %s=%d: a leaf has 2 blocks of each sequence, and %d tokens (--sequence) do not "
                            "divide into %d blocks",
                            axis, leaves, whole, 2 * leaves);
    job->context_leaves = leaves;
    return SL_OK;
}

/* Reads the leaves of each axis. The default for sums over data is one leaf per replica, and one per coordinate along
 * the context axis: their order is then the mesh's. */
static int read_each_axis(struct sl_job *job, const struct sl_mesh *leaves, struct sl_error *error) {
    const char *other = job->type->leaf_axis, *context = job->type->context_axis;
    job->exact = job->data;
    if (job->parts > 1) SL_TRY(read_context_leaves(job, job->parts, error));
    for (int a = 0; a < leaves->axes; a++) {
        const char *name = leaves->axis[a].name;
        if (!strcmp(name, sl_job_axis(job, SL_JOB_DATA)))
            SL_TRY(read_data_leaves(job, leaves->axis[a].size, error));
        else if (other && !strcmp(name, other))
            SL_TRY(read_channel_leaves(job, leaves->axis[a].size, error));
        else if (context && !strcmp(name, context))
            SL_TRY(read_context_leaves(job, leaves->axis[a].size, error));
        else
            return refuse_leaves(job, error);
    }
    return SL_OK;
}

/* Reads "data=8,tensor=4". */
static int read_leaves(struct sl_job *job, struct sl_error *error) {
    const char *text = job->options->exact;
    struct sl_mesh leaves;
    struct sl_error reason = {0};
    if (!text || job->forward_only) return SL_OK;
    if (sl_mesh_parse(&leaves, text, &reason)) return sl_error_set(error, SL_BAD_INPUT, "--exact: %s", reason.message);
    SL_TRY(read_each_axis(job, &leaves, error));
    if (job->options->offload & SL_OFFLOAD_WEIGHTS)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--exact and --offload weights: sums of leaves wait in memory; choose one of them");
    return SL_OK;
}

/* ---- products ---- */

static int find_products(struct sl_job *job, struct sl_error *error) {
    const int precision = job->options->precision;
    job->precision = precision == SL_PRODUCTS_BF16 ? SL_BF16 : SL_F32;
    job->gemm = sl_gemm_find(precision == SL_PRODUCTS_TF32 ? "cublas-tf32" : NULL, error);
    if (!job->gemm) return error->status;
    if (sl_gemm_supports(job->gemm, job->precision)) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "--precision: %s has no products of that kind here", job->gemm->name);
}

int sl_job_open(struct sl_job *job, const struct sl_mesh *mesh, const struct sl_engine *engine,
                struct sl_error *error) {
    job->mesh = *mesh;
    job->cores = sl_cores_of(engine);
    job->cores_each = sl_cores_each(engine, job->mesh.size);
    sl_cores_share(engine, mesh->size, &job->sharing.coordinates, &job->sharing.cores);
    job->sizes_only = job->options->dry_run || job->options->show_shardings || job->options->plans;
    SL_TRY(read_axes(job, error));
    if (job->options->graph == SL_GRAPHS_ON && !sl_device.report_graphs)
        return sl_error_set(
            error, SL_BAD_INPUT,
            "--graph on: needs an NVIDIA GPU, and this build computes on the device %s: choose off or auto",
            sl_device.name);
    job->passes = 1;
    SL_TRY(read_leaves(job, error));
    SL_TRY(sl_optimizer_choose(&job->options->optimizer, job->options->learning_rate, &job->optimizer, error));
    return find_products(job, error);
}

/* ---- the batch ---- */

int sl_largest_divisor(int number, int most) {
    int divisor = most < number ? most : number;
    while (number % divisor) divisor--;
    return divisor;
}

int sl_job_share(struct sl_job *job, struct sl_error *error) {
    const struct sl_training_options *options = job->options;
    const int leaves = job->exact ? job->exact : job->data, parts = leaves * options->accumulate;
    const char *passes = options->accumulate == 1 ? "pass" : "passes";
    if (options->batch % parts && job->exact)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--batch %d: %s do not divide into %d leaves (--exact) of %d %s (--accumulate)",
                            options->batch, job->type->samples, leaves, options->accumulate, passes);
    if (options->batch % parts)
        return sl_error_set(error, SL_BAD_INPUT, "--batch %d: %s do not divide over data=%d and %d %s (--accumulate)",
                            options->batch, job->type->samples, job->data, options->accumulate, passes);
    job->local = options->batch / job->data;
    job->pass = options->batch / parts;
    job->passes = job->local / job->pass;
    return SL_OK;
}

int sl_job_microbatches(const struct sl_job *job, int usual) {
    enum { MOST_OF_A_LEAF = 8 };
    const int given = job->options->microbatches, passes = job->options->accumulate;
    if (given || !job->exact) return given ? given : usual;
    const int all = sl_largest_divisor(job->pass * passes, MOST_OF_A_LEAF);
    return all % passes ? sl_largest_divisor(job->pass, all > passes ? all / passes : 1) : all / passes;
}

int sl_job_wgrad_group(const struct sl_job *job, int usual) {
    const int given = job->options->wgrad_group;
    return given ? given : job->exact ? 1 : usual;
}

static int cut_pass(struct sl_job *job, struct sl_error *error) {
    const struct sl_training_options *options = job->options;
    const int microbatches = job->schedule.microbatches;
    const int sequence = job->sequence ? job->sequence : 1;
    if ((int64_t)job->pass * sequence > INT32_MAX)
        return sl_error_set(error, SL_BAD_INPUT, "a pass of %d %s, %d tokens each: at most %d tokens are possible",
                            job->pass, job->type->samples, sequence, INT32_MAX);
    job->rows = job->pass / microbatches * sequence;
    if (job->pass % microbatches == 0) return SL_OK;
    if (job->exact)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--microbatches %d: a leaf's %d %s a pass (--batch %d, --exact %s, --accumulate %d) do not "
                            "divide into so many",
                            microbatches, job->pass, job->type->samples, options->batch, options->exact,
                            options->accumulate);
    return sl_error_set(error, SL_BAD_INPUT,
                        "--microbatches %d: a replica's %d %s a pass (--batch %d over data=%d, --accumulate %d) do not "
                        "divide into so many",
                        microbatches, job->pass, job->type->samples, options->batch, job->data, options->accumulate);
}

/* ---- the schedule ---- */

static int read_schedule(struct sl_job *job, struct sl_error *error) {
    const char *file = job->options->schedule_file;
    SL_TRY(sl_schedule_read_csv(&job->schedule, file, error));
    if (job->schedule.ranks == job->ranks) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%s has %d ranks, the %s axis %d", file, job->schedule.ranks,
                        sl_job_axis(job, SL_JOB_PIPE), job->ranks);
}

/* Joins microbatches, before the coordinates start: all of them run the same table. If several hosts have
 * coordinates, perhaps in unequal numbers, fusing assumes a core per coordinate. Recomputed activations take memory
 * for a run of microbatches unless their weight gradients are delayed, and offloaded activations return a run at a
 * time; in both cases runs are at most as long as the groups. */
static int fuse(struct sl_job *job, struct sl_error *error) {
    const bool grouped = job->options->recompute || job->options->offload & SL_OFFLOAD_ACTIVATIONS;
    const bool one_host = job->sharing.coordinates >= job->mesh.size;
    const struct sl_fusing fusing = {.rows = job->rows,
                                     .coordinates = job->sharing.coordinates,
                                     .cores = one_host ? job->sharing.cores : 0,
                                     .group = grouped ? job->wgrad_group : 0};
    struct sl_schedule *schedule = &job->schedule;
    const int run = job->options->no_fuse || (job->bare_loops && !job->options->fuse) ? 1 : job->options->fuse;
    bool fused = true;
    schedule->crowded = job->options->delay_ms == 0 && sl_schedule_crowds(schedule, &fusing);
    if (run > 1 && job->bare_loops)
        return sl_error_set(error, SL_BAD_INPUT, "--fuse %d: a spread head takes one microbatch at a time", run);
    if (!run) return sl_schedule_fuse_planned(schedule, &fusing, error);
    if (schedule->microbatches % run)
        return sl_error_set(error, SL_BAD_INPUT, "--fuse %d: %d microbatches do not divide into runs of so many", run,
                            schedule->microbatches);
    if (run > 1) SL_TRY(sl_schedule_fuse(schedule, run, &fused, error));
    if (fused) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT,
                        "--fuse %d: schedule %s does not have %d microbatches next to each other everywhere", run,
                        schedule->name, run);
}

static int refuse_stage_layers(const struct sl_job *job, int stages, struct sl_error *error) {
    return sl_error_set(
        error, SL_BAD_INPUT,
        "--stage-layers: \"%.80s\" is not %d numbers from %s on, one a stage (%s=%d, loops %d), which add "
        "up to %d layers",
        job->options->stage_layers, stages, job->type->halves ? "0.5" : "1", sl_job_axis(job, SL_JOB_PIPE),
        job->schedule.ranks, stages / job->schedule.ranks, job->layers);
}

/* Refuses half layers with bf16 messages: these would be rounded inside a layer, and the result's bits would depend
 * on the stages. */
static int refuse_rounded_halves(const struct sl_job *job, struct sl_error *error) {
    return sl_error_set(
        error, SL_BAD_INPUT,
        "--stage-layers %s: with --storage bf16 stages have whole layers, behind which rows are rounded",
        job->options->stage_layers);
}

/* Reads a number of layers, followed by END, in half layers; 0 if there is none. */
static long read_halves(const char **text, char end, bool has_halves) {
    char *next;
    if (**text < '0' || **text > '9') return 0;
    const long count = strtol(*text, &next, 10);
    const bool half = has_halves && !strncmp(next, ".5", 2);
    if (half) next += 2;
    if (*next != end || count > INT_MAX / 4) return 0;
    *text = next + 1;
    return 2 * count + half;
}

/* Reads "3,2,2,1", or "1.5,1.5,1.5,1.5". */
static int read_stage_layers(struct sl_job *job, int stages, struct sl_error *error) {
    const char *text = job->options->stage_layers;
    long left = 2L * job->layers;
    if (!text) return SL_OK;
    free(job->stage_layers);
    job->stage_layers = calloc((size_t)stages, sizeof *job->stage_layers);
    if (!job->stage_layers) return sl_error_set(error, SL_FAILED, "no memory for %d stages", stages);
    job->stage_halves = strchr(text, '.') != NULL;
    for (int s = 0; s < stages; s++) {
        const long halves = read_halves(&text, s == stages - 1 ? '\0' : ',', job->type->halves);
        if (halves < 1 || halves > left) return refuse_stage_layers(job, stages, error);
        job->stage_layers[s] = (int)(job->stage_halves ? halves : halves / 2);
        left -= halves;
    }
    if (left) return refuse_stage_layers(job, stages, error);
    return job->stage_halves && job->options->storage == 1 ? refuse_rounded_halves(job, error) : SL_OK;
}

/* Refuses options incompatible with two copies of a model: ranks with the same parameters sum gradients between
 * them, and do not shard them over data. */
static int check_copies(const struct sl_job *job, struct sl_error *error) {
    const struct sl_training_options *options = job->options;
    const char *other = options->exact                          ? "--exact"
                        : options->fsdp && job->replicas > 1    ? "--fsdp"
                        : options->offload & SL_OFFLOAD_WEIGHTS ? "--offload weights"
                                                                : NULL;
    if (job->schedule.copies == 1 || !other) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "schedule %s holds the model twice, on ranks in pairs: without %s",
                        job->schedule.name, other);
}

int sl_job_schedule(struct sl_job *job, const struct sl_schedule_kind *kind, int loops, int microbatches, int layers,
                    struct sl_error *error) {
    struct sl_schedule *schedule = &job->schedule;
    job->layers = layers;
    SL_TRY(job->options->schedule_file ? read_schedule(job, error)
                                       : sl_schedule_generate(schedule, kind, job->ranks, loops, microbatches, error));
    SL_TRY(check_copies(job, error));
    const int with_layers = schedule->loops / schedule->copies - job->bare_loops,
              stages = with_layers * schedule->ranks;
    if (layers < stages)
        return sl_error_set(error, SL_BAD_INPUT,
                            "%d layers: each of the %d stages (%s=%d, loops %d) needs at least one", layers, stages,
                            sl_job_axis(job, SL_JOB_PIPE), schedule->ranks, with_layers);
    SL_TRY(read_stage_layers(job, stages, error));
    if (job->options->recompute) sl_schedule_ascend(schedule);
    return cut_pass(job, error);
}

int sl_job_group(struct sl_job *job, int group, struct sl_error *error) {
    const int microbatches = sl_schedule_first_of_copy(&job->schedule, 1); /* of one copy of the model */
    job->wgrad_group = group && group < microbatches ? group : microbatches;
    if (microbatches % job->wgrad_group)
        return sl_error_set(error, SL_BAD_INPUT, "--wgrad-group %d: %d microbatches do not divide into such groups",
                            job->wgrad_group, microbatches);
    SL_TRY(fuse(job, error));
    job->schedule.sharded = job->options->fsdp && job->options->prefetch && job->replicas > 1 && !job->forward_only;
    SL_TRY(sl_schedule_lower(&job->schedule, error));
    return sl_schedule_slots(&job->schedule, SL_PIPELINE_FEWEST_SLOTS, &job->slots, error);
}

int sl_job_sign(const struct sl_job *job, struct sl_signature *signature, struct sl_error *error) {
    char run[16];
    snprintf(run, sizeof run, "%d", sl_schedule_run(&job->schedule, SL_FORWARD));
    const char *follow = job->schedule.crowded ? "at once" : "later";
    if (sl_signature_add(signature, "runs of microbatches", run) &&
        sl_signature_add(signature, "weight gradients of ranks that others wait for", follow))
        return SL_OK;
    return sl_error_set(error, SL_FAILED, "no memory for the run's signature");
}

/* Most events of pieces: forward, recomputation and backward have a product and a move for each piece of each sharded
 * kernel; if sequences are divided, also attention to each coordinate's keys and the moves of their two blocks, and
 * backward the moves of two gradients. */
static int64_t most_moves(const struct sl_job *job) {
    enum { KERNELS = 8, KEYS = 3 * 3 + 2 }; /* of a layer with latent attention, which has the most */
    const int64_t pieces = job->pieces > 1 ? 3 * 2 * KERNELS * (int64_t)job->pieces : 0;
    return (pieces + (job->parts > 1 ? KEYS * (int64_t)job->parts : 0)) * job->layers;
}

struct sl_trace_run sl_job_trace(const struct sl_job *job) {
    return (struct sl_trace_run){.mesh = &job->mesh,
                                 .pipe_axis = sl_job_axis(job, SL_JOB_PIPE),
                                 .data_axis = sl_job_axis(job, SL_JOB_DATA),
                                 .schedule = &job->schedule,
                                 .passes = job->passes,
                                 .moves = most_moves(job),
                                 .wgrad_group = job->wgrad_group,
                                 .overlap = job->options->overlap,
                                 .delay_ms = job->options->delay_ms,
                                 .cores = job->cores};
}

void sl_job_close(struct sl_job *job) {
    sl_schedule_free(&job->schedule);
    free(job->stage_layers);
    job->stage_layers = NULL;
}

/* ---- one coordinate ---- */

int sl_worker_plan(struct sl_worker *worker, struct sl_spmd *self, struct sl_job *job) {
    const struct sl_training_options *of = job->options;
    struct sl_trainer_options options = {
        .pipeline = {.axis = sl_job_axis(job, SL_JOB_PIPE),
                     .schedule = &job->schedule,
                     .gemm = job->gemm,
                     .precision = job->precision,
                     .storage = of->storage == 1 ? SL_BF16 : SL_F32,
                     .no_rewrite = of->no_rewrite,
                     .slots = job->slots,
                     .rows = job->rows,
                     .sequence = job->sequence,
                     .context_axis = job->parts > 1 || job->context_leaves ? job->type->context_axis : NULL,
                     .context_leaves = job->context_leaves,
                     .forward_only = job->forward_only,
                     .sizes_only = job->sizes_only,
                     .load = job->load,
                     .leaf_axis = job->leaves > 1 ? job->type->leaf_axis : NULL,
                     .leaves = job->leaves,
                     .offload_activations = of->offload & SL_OFFLOAD_ACTIVATIONS,
                     .wgrad_group = job->wgrad_group},
        .data_axis = job->replica_axes,
        .optimizer = job->optimizer,
        .clip = (float)of->clip,
        .freeze = of->freeze,
        .accumulate = of->accumulate,
        .exact = job->exact,
        .zero = of->zero,
        .offload_weights = of->offload & SL_OFFLOAD_WEIGHTS,
        .offload_optimizer = of->offload & SL_OFFLOAD_OPTIMIZER,
        .offload_directory = of->offload_directory,
        .overlap = of->overlap,
        .graphs = (enum sl_graphs)of->graph,
        .seed = job->seed,
        .arg = worker,
    };
    *worker = (struct sl_worker){.job = job, .self = self};
    SL_TRY(job->type->open(worker, &options));
    return sl_trainer_plan(&worker->trainer, self, &options, &worker->model);
}

int sl_worker_plan_bytes(struct sl_worker *worker, struct sl_budget *budget) {
    sl_trainer_plan_bytes(worker->trainer, budget);
    if (worker->job->options->journal) sl_trainer_plan_journal(worker->trainer, budget);
    SL_TRY(sl_checkpoints_plan_bytes(&worker->job->options->checkpoints, worker->self, worker->trainer, budget));
    return worker->job->type->plan_bytes(worker, budget);
}

int sl_worker_open(struct sl_worker *worker, const struct sl_store *from) {
    const struct sl_job_type *type = worker->job->type;
    if (from) SL_TRY(sl_checkpoint_verify(worker->self, worker->trainer, from));
    sl_trainer_parameters(worker->trainer)->given = !from && type->gives && type->gives(worker);
    SL_TRY(sl_trainer_open(worker->trainer, from));
    if (!from && type->load) SL_TRY(type->load(worker));
    return type->adapt ? type->adapt(worker) : SL_OK;
}

void sl_worker_close(struct sl_worker *worker) {
    sl_trainer_close(worker->trainer);
    worker->job->type->close(worker);
}
