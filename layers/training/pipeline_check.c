/* pipeline_check.c - checks a pipeline's options and model before planning, the batch before each call, and the names
 * of declared parameters. A forgotten field is NULL or 0, and is reported before it is used. */
#include <stdlib.h>
#include <string.h>

#include "layers/training/pipeline_internal.h"
#include "spmd/base/hash.h"
#include "spmd/device/device.h"

#include <limits.h>

/* ---- options and model ---- */

static int missing(struct sl_spmd *self, const char *field, const char *allowed) {
    return sl_fail(self, SL_BAD_INPUT, "%s is NULL: it must be %s", field, allowed);
}

static int too_small(struct sl_spmd *self, const char *field, int value, const char *allowed) {
    return sl_fail(self, SL_BAD_INPUT, "%s is %d: it must be %s", field, value, allowed);
}

static int check_leaves(struct sl_spmd *self, const struct sl_pipeline_options *options) {
    const int leaves = options->leaves;
    if (!options->leaf_axis) return SL_OK;
    const int members = sl_axis_size(self, options->leaf_axis);
    if (leaves >= 1 && (leaves & (leaves - 1)) == 0 && leaves <= SL_MOST_COORDINATES && leaves % members == 0)
        return SL_OK;
    return sl_fail(self, SL_BAD_INPUT,
                   "the pipeline's option leaves is %d: it must be 1, 2, 4, ..., at most %d, and a multiple of the %d "
                   "coordinates along \"%s\"",
                   leaves, SL_MOST_COORDINATES, members, options->leaf_axis);
}

static int check_context_leaves(struct sl_spmd *self, const struct sl_pipeline_options *options) {
    const int leaves = options->context_leaves;
    if (!options->context_axis)
        return missing(self, "the pipeline's option context_axis", "the axis of context_leaves");
    const int members = sl_axis_size(self, options->context_axis), blocks = leaves > 0 ? 2 * leaves / members : 0;
    if (leaves < 1 || leaves & (leaves - 1) || leaves % members || options->sequence < 1 || options->sequence % blocks)
        return sl_fail(self, SL_BAD_INPUT,
                       "the pipeline's option context_leaves is %d: it must be 1, 2, 4, ..., and a multiple of the %d "
                       "coordinates along \"%s\"; their %d rows of a sequence must divide into two blocks for each of "
                       "their leaves",
                       leaves, members, options->context_axis, options->sequence);
    if (options->context_by != SL_CONTEXT_BY_GATHER)
        return sl_fail(self, SL_BAD_INPUT,
                       "the pipeline's option context_leaves is %d: context_by must be SL_CONTEXT_BY_GATHER", leaves);
    if (options->caches || options->offload_activations)
        return sl_fail(self, SL_BAD_INPUT, "the pipeline's option context_leaves is %d: there can be no %s", leaves,
                       options->caches ? "caches" : "offload_activations");
    return SL_OK;
}

static int check_options(struct sl_spmd *self, const struct sl_pipeline_options *options) {
    if (!options->axis)
        return missing(self, "the pipeline's option axis",
                       "the name of the axis whose coordinates are the ranks, such as \"model\"");
    if (!options->schedule)
        return missing(self, "the pipeline's option schedule", "a schedule that sl_schedule_lower has lowered");
    if (!options->gemm) return missing(self, "the pipeline's option gemm", "what sl_gemm_find has found");
    if (options->rows < 1)
        return too_small(self, "the pipeline's option rows", options->rows, "the rows of a microbatch, 1 at least");
    if (options->sequence < 0 || (options->sequence > 0 && options->rows % options->sequence))
        return sl_fail(self, SL_BAD_INPUT,
                       "the pipeline's option sequence is %d: it must divide the %d rows of a microbatch, or be 0 if "
                       "rows are independent of each other",
                       options->sequence, options->rows);
    if (options->context_leaves) SL_TRY(check_context_leaves(self, options));
    if (options->context_axis && sl_axis_size(self, options->context_axis) > 1 &&
        (options->sequence == 0 || options->sequence % 2 || options->caches))
        return sl_fail(self, SL_BAD_INPUT,
                       "the pipeline's option context_axis is \"%s\", with sequences of %d rows a coordinate%s: they "
                       "must be two equal blocks, and there are no caches",
                       options->context_axis, options->sequence, options->caches ? " and caches" : "");
    if (options->storage != SL_F32 && options->storage != SL_BF16)
        return sl_fail(self, SL_BAD_INPUT, "the pipeline's option storage is %d: it must be SL_F32 or SL_BF16",
                       (int)options->storage);
    if (options->wgrad_group < 1)
        return too_small(self, "the pipeline's option wgrad_group", options->wgrad_group,
                         "a number that divides that of the microbatches, 1 at least");
    return check_leaves(self, options);
}

/* Checks that the second copies of a rank's stages are on one rank, in the same order, so that gradients can be added
 * up. */
static int check_copies(struct sl_spmd *self, const struct sl_schedule *schedule) {
    for (int s = 0; s < sl_schedule_stages(schedule) && schedule->copies > 1; s++) {
        const int twin = sl_schedule_twin(schedule, s), rank = sl_schedule_rank_of(schedule, s);
        const int first = sl_schedule_twin(schedule, sl_schedule_stage(schedule, rank, 0));
        if (sl_schedule_rank_of(schedule, twin) == sl_schedule_rank_of(schedule, first) &&
            sl_schedule_loop_of(schedule, twin) == sl_schedule_loop_of(schedule, s))
            continue;
        return sl_fail(self, SL_BAD_INPUT,
                       "schedule %s: the other copies of the stages of rank %d are not on one rank, as they must be",
                       schedule->name, rank);
    }
    return SL_OK;
}

static int check_schedule(struct sl_spmd *self, const struct sl_pipeline_options *options) {
    const struct sl_schedule *schedule = options->schedule;
    const int ranks = sl_axis_size(self, options->axis);
    if (!schedule->rank)
        return sl_fail(self, SL_BAD_INPUT,
                       "the pipeline's schedule is empty: make it by sl_schedule_make or read it "
                       "by sl_schedule_read_csv, then lower it by sl_schedule_lower");
    if (!schedule->lowered)
        return sl_fail(self, SL_BAD_INPUT, "schedule %s has not been lowered: call sl_schedule_lower", schedule->name);
    if (ranks != schedule->ranks)
        return sl_fail(self, SL_BAD_INPUT, "schedule %s is for %d ranks, axis \"%s\" has %d", schedule->name,
                       schedule->ranks, options->axis, ranks);
    const int each = sl_schedule_first_of_copy(schedule, 1);
    if (each % options->wgrad_group)
        return sl_fail(self, SL_BAD_INPUT, "%d microbatches do not divide into weight-gradient groups of %d", each,
                       options->wgrad_group);
    SL_TRY(check_copies(self, schedule));
    const long long rows = (long long)schedule->microbatches * options->rows;
    if (rows > INT_MAX)
        return sl_fail(self, SL_BAD_INPUT, "the pipeline's batch has %lld rows (rows %d x microbatches %d): at most %d",
                       rows, options->rows, schedule->microbatches, INT_MAX);
    return SL_OK;
}

static int check_model(struct sl_spmd *self, const struct sl_pipeline_options *options, const struct sl_model *model) {
    const struct sl_schedule *schedule = options->schedule;
    const int rank = sl_axis_index(self, options->axis);
    if (!model) return missing(self, "the model", "a struct sl_model with this rank's stages");
    if (model->loops != schedule->loops)
        return sl_fail(self, SL_BAD_INPUT, "schedule %s has %d loops, the model has %d", schedule->name,
                       schedule->loops, model->loops);
    if (!model->stage) return missing(self, "the model's field stage", "an array with a module for each loop");
    for (int l = 0; l < model->loops; l++) {
        if (!model->stage[l])
            return sl_fail(self, SL_BAD_INPUT, "the model has no stage for loop %d (its stage[%d] is NULL)", l, l);
        SL_TRY(sl_module_check(model->stage[l], options->forward_only, &self->error));
    }
    bool last = false;
    for (int l = 0; l < model->loops; l++)
        last = last || sl_schedule_is_last(schedule, sl_schedule_stage(schedule, rank, l));
    if (!last) return SL_OK;
    if (!model->loss)
        return sl_fail(self, SL_BAD_INPUT, "the model with the last stage has no loss (its loss is NULL)");
    return sl_module_check(model->loss, true, &self->error);
}

int sl_pipeline_check(struct sl_spmd *self, const struct sl_pipeline_options *options, const struct sl_model *model) {
    SL_TRY(check_options(self, options));
    SL_TRY(check_schedule(self, options));
    return check_model(self, options, model);
}

/* ---- names ---- */

/* Mark by which names are compared: a hash, and in the lowest bit whether the parameter is tied, i.e. shared by the
 * first and the last stage. */
static uint64_t mark_of(const struct sl_parameter *parameter) {
    return sl_hash(parameter->name, strlen(parameter->name)) << 1 | (uint64_t)parameter->tied;
}

static int compare_marks(const void *a, const void *b) {
    const uint64_t one = *(const uint64_t *)a >> 1, other = *(const uint64_t *)b >> 1;
    return (one > other) - (one < other);
}

static int refuse_name(const struct sl_pipeline *p, const struct sl_parameters *parameters, uint64_t mark, int rank) {
    int i = 0;
    while (compare_marks(&(uint64_t){mark_of(&parameters->list[i])}, &mark)) i++;
    return sl_fail(p->self, SL_BAD_INPUT,
                   "parameter %s is declared by stages of ranks %d and %d: names of parameters are unique in the whole "
                   "model, so give the stages different names, or tie it",
                   parameters->list[i].name, rank, p->rank);
}

/* Compares names: each rank looks for its own names in those of lower ranks. MARKS has MOST entries per rank;
 * COUNT[rank] are set. */
static int compare_names(const struct sl_pipeline *p, const struct sl_parameters *parameters, const int32_t *count,
                         const uint64_t *marks, size_t most, uint64_t *own) {
    const size_t mine = (size_t)parameters->count;
    memcpy(own, marks + (size_t)p->rank * most, mine * sizeof *own);
    qsort(own, mine, sizeof *own, compare_marks);
    for (int rank = 0; rank < p->rank; rank++) {
        for (int i = 0; i < count[rank]; i++) {
            const uint64_t *mark = &marks[(size_t)rank * most + (size_t)i];
            const uint64_t *same = bsearch(mark, own, mine, sizeof *own, compare_marks);
            if (same && !(*same & *mark & 1)) return refuse_name(p, parameters, *mark, rank);
        }
    }
    return SL_OK;
}

static int gather_names(struct sl_pipeline *p, const struct sl_parameters *parameters, const struct sl_group *ranks) {
    int32_t *count = calloc((size_t)ranks->size, sizeof *count), mine = parameters->count, most = 1;
    if (!count) return sl_fail(p->self, SL_FAILED, "no memory to compare names");
    int status = sl_all_gather(p->self, ranks, SL_I32, &mine, count, 1);
    for (int r = 0; r < ranks->size; r++) most = count[r] > most ? count[r] : most;
    uint64_t *marks = calloc((size_t)ranks->size * (size_t)most, sizeof *marks),
             *own = calloc((size_t)most, sizeof *own);
    if (status == SL_OK && !(marks && own)) status = sl_fail(p->self, SL_FAILED, "no memory to compare names");
    if (status == SL_OK) {
        for (int i = 0; i < mine; i++) own[i] = mark_of(&parameters->list[i]);
        status = sl_all_gather(p->self, ranks, SL_I32, own, marks, 2 * (size_t)most);
    }
    if (status == SL_OK) status = compare_names(p, parameters, count, marks, (size_t)most, own);
    free(count);
    free(marks);
    free(own);
    return status;
}

int sl_pipeline_check_names(struct sl_pipeline *p, const struct sl_parameters *parameters) {
    struct sl_group ranks;
    if (sl_axis_size(p->self, p->options.axis) == 1) return SL_OK;
    SL_TRY(sl_group_axes(p->self, p->options.axis, &ranks));
    SL_TRY(gather_names(p, parameters, &ranks));
    return sl_group_close(p->self, &ranks);
}

/* ---- the batch ---- */

static int lacks(const struct sl_pipeline *p, const char *array, const char *who) {
    return sl_fail(p->self, SL_BAD_INPUT, "the batch has no %s, which %s of this coordinate reads", array, who);
}

/* Whether there is an array, and the host can read it. */
static bool is_near(const int32_t *array) { return array && (sl_device.shares_memory || !sl_device.reaches(array)); }

/* Checks that all ROWS of VALUES are in LEAST to BOUND - 1; BOUND 0: unknown. */
static int check_values(const struct sl_pipeline *p, const char *array, const int32_t *values, int rows, int least,
                        int bound) {
    bool beyond = false;
    if (!bound || !is_near(values)) return SL_OK;
    for (int i = 0; i < rows; i++) beyond |= (uint32_t)values[i] - (uint32_t)least >= (uint32_t)bound - (uint32_t)least;
    for (int i = 0; i < rows && beyond; i++)
        if (values[i] < least || values[i] >= bound)
            return sl_fail(p->self, SL_BAD_INPUT, "the batch's %s have %d in row %d: they must be %d to %d", array,
                           values[i], i, least, bound - 1);
    return SL_OK;
}

/* Checks places: each is 0, or one more than the place of the row before, so that documents are contiguous. A block of
 * a divided sequence may begin inside a document. */
static int check_places(const struct sl_pipeline *p, const struct sl_batch *batch) {
    const int32_t *places = batch->places;
    const int sequence = p->options.sequence;
    const struct sl_cut cut = sl_pipeline_cut(p);
    for (int i = 0; i < batch->rows && sequence && is_near(places); i++) {
        const bool begins = i % (sequence / sl_cut_blocks(cut)) == 0;
        const int next = begins ? sl_cut_position(cut, sequence, i % sequence) : places[i - 1] + 1;
        const bool inside = begins && places[i] > 0 && places[i] <= next;
        if (places[i] && places[i] != next && !inside)
            return sl_fail(p->self, SL_BAD_INPUT,
                           "the batch's places have %d in row %d, row %d of its sequence: it must be %s%d", places[i],
                           i, i % sequence, next ? "0 or " : "", next);
    }
    return SL_OK;
}

int sl_pipeline_check_batch(const struct sl_pipeline *p, const struct sl_batch *batch, enum sl_phase phase) {
    const bool has_results = phase == SL_TRAIN || phase == SL_EVALUATE; /* others compute no loss */
    if (!p->context.workspace)
        return sl_fail(
            p->self, SL_BAD_INPUT,
            "the pipeline has not been opened: sl_pipeline_open, or sl_trainer_open, comes before the first step");
    if (batch->rows != (int)batch_rows(p))
        return sl_fail(p->self, SL_BAD_INPUT,
                       "the batch has %d rows (its field rows), but the pipeline takes %d: %d microbatches of %d",
                       batch->rows, (int)batch_rows(p), p->microbatches, p->options.rows);
    if (p->reads_inputs && !batch->inputs) return lacks(p, "inputs", "the first stage");
    if (p->reads & SL_READS_TOKENS && !batch->tokens) return lacks(p, "tokens", "a stage");
    if (sl_pipeline_cut(p).parts > 1 && !batch->places) return lacks(p, "places", "attention to divided sequences");
    SL_TRY(check_values(p, "tokens", batch->tokens, batch->rows, 0, p->bounds.tokens));
    SL_TRY(check_places(p, batch));
    if (!has_results) return SL_OK;
    if (p->reads & SL_READS_LABELS && !batch->labels) return lacks(p, "labels", "the loss");
    if (p->reads & SL_READS_TARGETS && !batch->targets) return lacks(p, "targets", "the loss");
    return check_values(p, "labels", batch->labels, batch->rows, -1, p->bounds.labels);
}
