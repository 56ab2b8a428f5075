/* layouts.c - lists layouts. */
#include "drivers/tools/search/layouts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/training/choices/schedule_choice.h"
#include "spmd/base/memory.h"

enum {
    MOST_MICROBATCHES = 64,
    MOST_LOOPS = 8,
    FEWEST_TOKENS = 128 /* of a block of a divided sequence: products with fewer rows are slow */
};

/* ---- as text ---- */

static void add(char *text, const char *format, const char *word) {
    const size_t used = strlen(text);
    if (used && used + 1 < SL_LAYOUT_TEXT) strcat(text, " ");
    snprintf(text + strlen(text), SL_LAYOUT_TEXT - strlen(text), format, word);
}

static void add_number(char *text, const char *option, int number) {
    char word[48];
    snprintf(word, sizeof word, "--%s %d", option, number);
    add(text, "%s", word);
}

/* Fills in WAY with the ways to spread the head; empty if heads are not shared. */
static void find_heads(const struct sl_job *job, const struct sl_mesh *mesh, const char *way[SL_JOB_HEADS]) {
    if (job->type->heads) job->type->heads(job, sl_mesh_axis_size(mesh, sl_job_axis(job, SL_JOB_PIPE)), way);
}

static void add_head(char *text, const struct sl_variant *variant, const struct sl_job *job) {
    const char *way[SL_JOB_HEADS] = {NULL};
    find_heads(job, &variant->mesh, way);
    if (way[variant->spread_head]) add(text, "%s", way[variant->spread_head]);
}

static void describe(struct sl_layout *layout, const struct sl_job *job) {
    static const char *const recompute[] = {"none", "selective", "full", "block"};
    static const char *const offload[] = {"optimizer", "activations", "weights"};
    const struct sl_training_options *of = &layout->variant.options, *given = job->options;
    char *text = layout->text, list[64] = "";
    *text = '\0';
    add(text, "--mesh %s", layout->mesh);
    if (layout->variant.context_by) add(text, "--context-by %s", layout->variant.context_by);
    if (layout->variant.tensor_layout) add(text, "--tensor-layout %s", layout->variant.tensor_layout);
    if (!of->schedule_file) add(text, "--schedule %s", of->schedule);
    if (of->loops) add_number(text, "loops", of->loops);
    if (!of->schedule_file && of->microbatches) add_number(text, "microbatches", of->microbatches);
    if (of->wgrad_group != given->wgrad_group) add_number(text, "wgrad-group", of->wgrad_group);
    if (of->stage_layers) add(text, "--stage-layers %s", of->stage_layers);
    if (of->zero != given->zero) add_number(text, "zero", of->zero);
    if (of->fsdp && !given->fsdp) add(text, "%s", "--fsdp");
    if (of->storage != given->storage) add(text, "%s", "--storage bf16");
    if (of->recompute != given->recompute) add(text, "--recompute %s", recompute[of->recompute]);
    add_head(text, &layout->variant, job);
    if (of->offload == given->offload) return;
    for (int i = 0; i < 3; i++)
        if (of->offload >> i & 1)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", *list ? "," : "", offload[i]);
    add(text, "--offload %s", list);
}

/* ---- the list ---- */

struct listing {
    struct sl_layouts *layouts;
    const struct sl_job *job;
    const struct sl_layout_limits *limits;
    struct sl_mesh mesh;
    const char *context_by;    /* NULL: the job's way, or sequences are not divided */
    const char *tensor_layout; /* NULL: the job's, or channels are not divided */
    struct sl_error *error;
};

/* Makes pointers to a layout's own texts valid after the list has moved. */
static void settle(struct sl_layout *layout) {
    if (layout->stage_layers[0]) layout->variant.options.stage_layers = layout->stage_layers;
}

static int append(struct listing *l, const char *schedule, int loops, int microbatches, int head) {
    struct sl_layouts *layouts = l->layouts;
    struct sl_layout *grown = sl_grow(layouts->list, layouts->count, &layouts->capacity, 64, sizeof *layouts->list);
    if (!grown) return sl_error_set(l->error, SL_FAILED, "no memory for a list of layouts");
    layouts->list = grown;
    struct sl_layout *layout = &grown[layouts->count++];
    *layout = (struct sl_layout){.variant = {.options = *l->job->options,
                                             .mesh = l->mesh,
                                             .context_by = l->context_by,
                                             .tensor_layout = l->tensor_layout}};
    sl_mesh_print(&l->mesh, layout->mesh, sizeof layout->mesh);
    layout->variant.options.schedule = schedule;
    layout->variant.options.loops = loops;
    layout->variant.options.microbatches = microbatches;
    layout->variant.spread_head = head;
    describe(layout, l->job);
    return SL_OK;
}

int sl_layouts_insert_own(struct sl_layouts *layouts, const struct sl_job *job, const struct sl_mesh *mesh,
                          struct sl_error *error) {
    struct listing l = {.layouts = layouts, .job = job, .mesh = *mesh, .error = error};
    SL_TRY(append(&l, job->options->schedule, job->options->loops, job->options->microbatches, 0));
    const struct sl_layout own = layouts->list[layouts->count - 1];
    memmove(layouts->list + 1, layouts->list, (size_t)(layouts->count - 1) * sizeof *layouts->list);
    layouts->list[0] = own;
    return SL_OK;
}

/* Appends the layout with the head on one rank, and with each useful way to spread it. A spread head has loops of
 * its own. */
static int append_heads(struct listing *l, const struct sl_schedule_kind *kind, const char *schedule, int loops,
                        int microbatches) {
    const char *way[SL_JOB_HEADS] = {NULL};
    SL_TRY(append(l, schedule, loops, microbatches, 0));
    if (!kind || kind->most_loops != SL_ANY_LOOPS || kind->placement != SL_RING) return SL_OK;
    find_heads(l->job, &l->mesh, way);
    for (int head = 1; head < SL_JOB_HEADS; head++)
        if (way[head]) SL_TRY(append(l, schedule, loops, microbatches, head));
    return SL_OK;
}

/* Whether a microbatch of SAMPLES may be divided over the mesh's context axis. If it can be divided over data by a
 * divisor of the axis, this gives each coordinate as many tokens without the axis' calls. */
static bool is_divided_well(const struct listing *l, int samples) {
    const char *divided = l->job->type->context_axis;
    const int parts = divided && !l->limits->mesh ? sl_mesh_axis_size(&l->mesh, divided) : 1;
    for (int divisor = 2; divisor <= parts; divisor++)
        if (parts % divisor == 0 && samples % divisor == 0) return false;
    return true;
}

/* Lists numbers of microbatches: powers of two from the pipeline's ranks on, or the largest possible number; and one
 * per sample, if samples are few. Or the user's number. */
static int list_microbatches(struct listing *l, const struct sl_schedule_kind *kind, const char *schedule, int loops,
                             int ranks) {
    const struct sl_training_options *options = l->job->options;
    if (l->limits->microbatches || options->schedule_file)
        return append_heads(l, kind, schedule, loops, options->microbatches);
    const int replicas = sl_mesh_axis_size(&l->mesh, sl_job_axis(l->job, SL_JOB_DATA));
    const int samples = options->batch / ((l->job->exact ? l->job->exact : replicas) * options->accumulate);
    int m = 1;
    for (; m <= MOST_MICROBATCHES && m <= samples && samples % m == 0; m *= 2) {
        const bool highest = samples % (2 * m) || 2 * m > MOST_MICROBATCHES;
        if (!is_divided_well(l, samples / m)) continue;
        if ((m > 1 || ranks == 1) && (m >= ranks || highest)) SL_TRY(append_heads(l, kind, schedule, loops, m));
    }
    return m <= samples && samples <= MOST_MICROBATCHES ? append_heads(l, kind, schedule, loops, samples) : SL_OK;
}

/* Lists 1, 2, 4 and 8 loops, as far as the schedule and the number of layers allow. */
static int list_loops(struct listing *l, const struct sl_schedule_kind *kind, const char *name, int ranks) {
    const int given = l->job->options->loops;
    if (l->limits->loops) return list_microbatches(l, kind, name, given, ranks);
    for (int loops = kind->least_loops; loops <= MOST_LOOPS && loops <= kind->most_loops; loops *= 2) {
        if (loops * ranks > l->job->layers && loops > kind->least_loops) break;
        SL_TRY(list_microbatches(l, kind, name, loops, ranks));
    }
    return SL_OK;
}

/* Lists schedules. Without a pipeline all schedules are one of two: all forwards first, or each followed by its
 * backward. */
static int list_schedules(struct listing *l) {
    const struct sl_training_options *options = l->job->options;
    const int ranks = sl_mesh_axis_size(&l->mesh, sl_job_axis(l->job, SL_JOB_PIPE));
    struct sl_schedule_choice choice;
    if (options->schedule_file) return append(l, options->schedule, options->loops, options->microbatches, 0);
    if (l->limits->schedule) {
        SL_TRY(sl_schedule_choose(&choice, options->schedule, l->error));
        return list_loops(l, choice.kind, options->schedule, ranks);
    }
    for (int i = 0; sl_schedule_kind_at(i); i++) {
        const struct sl_schedule_kind *kind = sl_schedule_kind_at(i);
        const bool plain = !strcmp(kind->name, "gpipe") || !strcmp(kind->name, "1f1b");
        if (ranks > 1 || plain) SL_TRY(list_loops(l, kind, kind->name, ranks));
    }
    return SL_OK;
}

/* Calls LIST with *CHOSEN set to each of NAMES, if AXIS has several coordinates; once, with NULL, if it does not, or if
 * the name is GIVEN. */
static int list_each(struct listing *l, const char **chosen, const char *const *names, const char *axis, bool given,
                     int (*list)(struct listing *l)) {
    *chosen = NULL;
    if (given || !names || !axis || sl_mesh_axis_size(&l->mesh, axis) < 2) return list(l);
    for (int i = 0; names[i]; i++) {
        *chosen = names[i];
        SL_TRY(list(l));
    }
    return SL_OK;
}

/* Lists the ways in which divided sequences attend. */
static int list_ways(struct listing *l) {
    const struct sl_job_type *type = l->job->type;
    return list_each(l, &l->context_by, type->context_ways, type->context_axis, l->limits->context_by, list_schedules);
}

/* Lists the layouts of arrays over the axis of channels, if it divides them. */
static int list_tensor_layouts(struct listing *l) {
    const struct sl_job_type *type = l->job->type;
    return list_each(l, &l->tensor_layout, type->tensor_layouts, type->leaf_axis, l->limits->tensor_layout, list_ways);
}

/* Whether AXIS of the mesh may have SIZE. The context axis is left out of meshes that do not divide sequences. With
 * --exact, the bits depend on how a sequence is divided, unless it has leaves. */
static bool may_have(const struct listing *l, int axis, int size) {
    const struct sl_job *job = l->job;
    const char *divided = job->type->context_axis;
    const int whole = job->sequence * job->parts;
    if (!divided || strcmp(l->mesh.axis[axis].name, divided) != 0) return true;
    if (job->exact && (!job->context_leaves || job->context_leaves % size)) return false;
    return size > 1 && whole % (2 * size) == 0 && whole / (2 * size) >= FEWEST_TOKENS;
}

/* Lists the sizes of axes from index AXIS on, with the product LEFT. */
static int list_meshes(struct listing *l, int axis, int left) {
    if (axis == l->mesh.axes) return left == 1 ? list_tensor_layouts(l) : SL_OK;
    for (int size = 1; size <= left; size++) {
        if (left % size || !may_have(l, axis, size)) continue;
        l->mesh.axis[axis].size = size;
        SL_TRY(list_meshes(l, axis + 1, left / size));
    }
    return SL_OK;
}

static void add_axis(struct sl_mesh *mesh, const char *name) {
    snprintf(mesh->axis[mesh->axes++].name, sizeof mesh->axis->name, "%s", name);
}

/* Lists orders of axes. Neighbours along the last axis are nearest to each other: that axis is for the model's
 * products; next are those who divide sequences. Stages of a pipeline send less than replicas, so the order with stages
 * farthest apart is listed, too. */
static int list_orders(struct listing *l, int devices) {
    const char *const *names = l->job->type->axes, *divided = l->job->type->context_axis;
    for (int i = 0; i < (l->limits->spread ? 2 : 1) * (divided ? 2 : 1); i++) {
        const bool apart = divided ? i / 2 : i;
        l->mesh = (struct sl_mesh){.size = devices};
        for (int a = 0; names[a]; a++) {
            if (a == 2 && divided && i % 2) add_axis(&l->mesh, divided);
            if (!divided || strcmp(names[a], divided) != 0) add_axis(&l->mesh, names[apart && a < 2 ? 1 - a : a]);
        }
        SL_TRY(list_meshes(l, 0, devices));
    }
    return SL_OK;
}

int sl_layouts_list(struct sl_layouts *layouts, const struct sl_job *job, int devices,
                    const struct sl_layout_limits *limits, struct sl_error *error) {
    struct listing l = {.layouts = layouts, .job = job, .limits = limits, .mesh = job->mesh, .error = error};
    return limits->mesh ? list_tensor_layouts(&l) : list_orders(&l, devices);
}

/* ---- saving memory ---- */

/* Memory-saving steps, the cheapest first. */
enum { SAVE_SUMS, SAVE_GROUP, SAVE_SELECTIVE, SAVE_KERNELS, SAVE_FULL, SAVE_FAR, SAVINGS };

static bool save(struct sl_layout *layout, const struct sl_job *job, const struct sl_layout_limits *limits, int how) {
    struct sl_training_options *of = &layout->variant.options;
    const char *axes = job->type->replica_axes ? job->type->replica_axes : sl_job_axis(job, SL_JOB_DATA);
    const bool replicas = sl_mesh_axis_size(&layout->variant.mesh, axes) > 1;
    switch (how) {
    case SAVE_SUMS:
        if (of->zero == 2 || !replicas) return false;
        of->zero = 2;
        return true;
    case SAVE_GROUP:
        if (of->wgrad_group == 1 || of->microbatches == 1) return false;
        of->wgrad_group = 1;
        return true;
    case SAVE_SELECTIVE:
    case SAVE_FULL: {
        const int level = how == SAVE_FULL ? 2 : 1;
        if (limits->recompute || of->recompute >= level) return false;
        of->recompute = level;
        return true;
    }
    case SAVE_KERNELS:
        if (of->fsdp || !replicas) return false;
        return of->fsdp = true;
    default:
        if (of->offload & SL_OFFLOAD_OPTIMIZER) return false;
        of->offload |= SL_OFFLOAD_OPTIMIZER;
        return true;
    }
}

bool sl_layout_save(struct sl_layout *layout, const struct sl_job *job, const struct sl_layout_limits *limits) {
    settle(layout);
    while (layout->savings < SAVINGS) {
        if (!save(layout, job, limits, layout->savings++)) continue;
        describe(layout, job);
        return true;
    }
    return false;
}

bool sl_layout_round(struct sl_layout *layout, const struct sl_job *job, const struct sl_layout_limits *limits) {
    struct sl_training_options *of = &layout->variant.options;
    if (limits->storage || of->storage == 1) return false;
    of->storage = 1;
    settle(layout);
    describe(layout, job);
    return true;
}

/* ---- balance ---- */

/* Adds COUNT parts of layers; a layer has PARTS. */
static void add_count(char *text, size_t size, int count, int parts) {
    const size_t used = strlen(text);
    snprintf(text + used, size - used, "%s%d%s", used ? "," : "", count / parts, count % parts ? ".5" : "");
}

/* Balances the stages. A layer's time is that of the stage with the least time per layer; the rest of a stage's time
 * is its embedding or head. Layers, or half layers, are given one by one to the stage with the least time so far. A
 * spread head is balanced by itself. */
bool sl_layout_balance(struct sl_layout *layout, const double *stage, int stages, const struct sl_job *job, int parts) {
    const int layers = job->layers;
    double layer = 0, *other = calloc((size_t)stages, sizeof *other);
    int *count = calloc((size_t)stages, sizeof *count);
    const int least = layers / stages, more = layers % stages;
    bool changed = false;
    char *text = layout->stage_layers;
    if (!other || !count || least == 0 || layout->variant.options.stage_layers || layout->variant.spread_head) goto end;
    for (int s = 0; s < stages; s++) {
        const double each = stage ? stage[s] / (least + (s < more)) : 1;
        layer = s == 0 || each < layer ? each : layer;
        count[s] = 1;
    }
    for (int s = 0; stage && s < stages; s++) other[s] = stage[s] - layer * (least + (s < more));
    layer /= parts;
    for (int left = parts * layers - stages; left > 0; left--) {
        int first = 0;
        for (int s = 1; s < stages; s++)
            if (other[s] + layer * (count[s] + 1) < other[first] + layer * (count[first] + 1)) first = s;
        count[first]++;
    }
    for (int s = 0; s < stages; s++) {
        changed = changed || count[s] != parts * (least + (s < more));
        add_count(text, sizeof layout->stage_layers, count[s], parts);
    }
    changed = changed && strlen(text) + 8 < sizeof layout->stage_layers;
end:
    if (!changed) *text = '\0';
    settle(layout);
    if (changed) describe(layout, job);
    free(other);
    free(count);
    return changed;
}
