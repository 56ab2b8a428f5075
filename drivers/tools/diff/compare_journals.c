/* compare_journals.c - compares two journals step by step: their hashes up to the first difference, and their losses to
 * the end. */
#include <math.h>
#include <string.h>

#include "drivers/tools/diff/journals.h"

/* Returns 0 if A and B are the same array, otherwise which comes first. */
static int order_of(const struct sl_journal_entry *a, const struct sl_journal_entry *b) {
    if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
    if (a->microbatch != b->microbatch) return a->microbatch < b->microbatch ? -1 : 1;
    if (a->place != b->place) return a->place < b->place ? -1 : 1;
    return (a->coordinate > b->coordinate) - (a->coordinate < b->coordinate);
}

/* Whether entries are comparable. A replica's gradients are of the mean over its own rows, so they depend on the
 * number of replicas, unless the runs sum over the same leaves. */
static bool compares(const struct sl_journals *js, const struct sl_journal_entry *entry) {
    const struct sl_journal_side *a = &js->side[0], *b = &js->side[1];
    const bool gradient = entry->kind == SL_JOURNAL_GRADIENT || entry->kind == SL_JOURNAL_ROW_GRADIENT;
    if (entry->kind == SL_JOURNAL_NORM) return js->aligned;
    return !gradient || js->exact ||
           sl_mesh_axis_size(&a->mesh, a->file[0].data_axis) == sl_mesh_axis_size(&b->mesh, b->file[0].data_axis);
}

/* Compares norms. Between layouts the squares are summed in another order, and if the norm clips, the parameters
 * depend on its last bits. */
static void compare_norms(struct sl_journals *js, const struct sl_journal_entry *a, const struct sl_journal_entry *b) {
    if (a->kind != SL_JOURNAL_NORM || js->aligned || a->hash == b->hash || js->norms_differ) return;
    js->norms_differ = true;
    memcpy(&js->norm[0], &a->hash, sizeof a->hash);
    memcpy(&js->norm[1], &b->hash, sizeof b->hash);
}

static double relative(double a, double b) {
    if (a == b || (isnan(a) && isnan(b))) return 0;
    return isfinite(a - b) ? fabs(a - b) / fmax(fabs(a), fabs(b)) : (double)INFINITY;
}

static void compare_losses(struct sl_journals *js) {
    const double a = js->side[0].loss, b = js->side[1].loss, apart = relative(a, b);
    if (apart <= js->largest) return;
    js->largest = apart;
    js->largest_at = js->side[0].step;
}

/* Compares a step. Entries in only one journal are skipped: a gradient that was not finite, a journal of another
 * kind of run. */
static void compare_step(struct sl_journals *js) {
    const struct sl_journal_side *a = &js->side[0], *b = &js->side[1];
    memset(js->differ, 0, sizeof js->differ);
    memset(js->compared, 0, sizeof js->compared);
    for (int i = 0, j = 0; i < a->entries && j < b->entries;) {
        const struct sl_journal_entry *one = &a->entry[i], *other = &b->entry[j];
        const int order = order_of(one, other);
        i += order <= 0;
        j += order >= 0;
        if (!order && !js->parted) compare_norms(js, one, other);
        if (order || !compares(js, one)) continue;
        js->compared[one->kind]++;
        if (one->hash == other->hash) continue;
        js->differ[one->kind]++;
        if (js->parted) continue;
        js->parted = true;
        js->step = a->step;
        js->at = *one;
    }
    js->loss[0] = a->loss;
    js->loss[1] = b->loss;
}

int sl_journals_compare(struct sl_journals *js, struct sl_error *error) {
    struct sl_journal_side *a = &js->side[0], *b = &js->side[1];
    SL_TRY(sl_journal_side_next(js, a, error));
    SL_TRY(sl_journal_side_next(js, b, error));
    while (a->more && b->more) {
        if (a->step != b->step) {
            SL_TRY(sl_journal_side_next(js, a->step < b->step ? a : b, error));
            continue;
        }
        if (!js->steps++) js->first = a->step;
        js->last = a->step;
        if (!js->parted) compare_step(js);
        compare_losses(js);
        SL_TRY(sl_journal_side_next(js, a, error));
        SL_TRY(sl_journal_side_next(js, b, error));
    }
    if (js->parted && js->norms_differ && js->reasons < SL_JOURNAL_REASONS)
        snprintf(js->reason[js->reasons++], SL_JOURNAL_TEXT, "norm of all gradients: %.17g | %.17g", js->norm[0],
                 js->norm[1]);
    if (js->steps) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%.200s and %.200s have no step in common", a->directory, b->directory);
}

bool sl_journals_agree(const struct sl_journals *js) {
    return js->reasons ? js->largest <= 1.0 / SL_JOURNALS_NEAR : !js->parted;
}
