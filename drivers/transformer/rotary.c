/* rotary.c - rotary positions as options: a published model's numbers become texts of options, so its checkpoints
 * have them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/transformer/transformer.h"

/* ---- from texts to numbers ---- */

static int read_scaling(const char *text, struct sl_rotary *rotary, struct sl_error *error) {
    int end = 0;
    if (!text) return SL_OK;
    if (sscanf(text, "%lf,%lf,%lf,%lf%n", &rotary->factor, &rotary->low, &rotary->high, &rotary->original, &end) == 4 &&
        !text[end] && rotary->factor >= 1 && rotary->low > 0 && rotary->high > rotary->low && rotary->original >= 1 &&
        rotary->factor < 1e6 && rotary->high < 1e6 && rotary->original < 1e9)
        return SL_OK;
    return sl_error_set(
        error, SL_BAD_INPUT,
        "--rope-scaling: \"%.40s\" is no FACTOR,LOW,HIGH,LENGTH: a factor of 1 or more, LOW below HIGH, "
        "LENGTH tokens",
        text);
}

/* Reads the next number of *TEXT, and moves *TEXT behind its comma. */
static bool next_divisor(const char **text, float *divisor) {
    char *end;
    *divisor = strtof(*text, &end);
    const bool good = end > *text && *divisor > 0 && *divisor < 1e12f && (*end == ',' || !*end);
    *text = *end ? end + 1 : end;
    return good;
}

static int read_divisors(struct transformer_job *job, struct sl_error *error) {
    const struct sl_transformer *t = &job->model;
    const char *text = job->config->rope_divisors;
    const int pairs = sl_transformer_head_width(t) / 2;
    int count = 0;
    bool good = true;
    if (!text) return SL_OK;
    job->divisors = malloc(((size_t)pairs + 1) * sizeof *job->divisors);
    if (!job->divisors) return sl_error_set(error, SL_FAILED, "no memory for --rope-divisors");
    for (; good && *text && count <= pairs; count++) good = next_divisor(&text, &job->divisors[count]);
    if (!good || count != pairs)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--rope-divisors: \"%.40s\" is no list of %d numbers above 0, one for each pair of a "
                            "head's columns",
                            job->config->rope_divisors, pairs);
    job->model.rotary.divisors = job->divisors;
    return SL_OK;
}

/* Checks the width: heads of grouped attention rotate as a whole or not at all, so another width would be ignored. */
static int check_width(const struct transformer_job *job, struct sl_error *error) {
    const struct sl_transformer *model = &job->model;
    const int width = sl_transformer_head_width(model);
    if (model->attention != SL_ATTENTION_GROUPED || !model->rope || model->rope == width) return SL_OK;
    if (!sl_option_given(job->config->common.command, "rope-dim")) return SL_OK;
    return sl_error_set(
        error, SL_BAD_INPUT,
        "--rope-dim %d: with attention gqa all %d columns of a head have rotary positions, or with 0 none", model->rope,
        width);
}

int transformer_read_rotary(struct transformer_job *job, struct sl_error *error) {
    SL_TRY(check_width(job, error));
    SL_TRY(read_scaling(job->config->rope_scaling, &job->model.rotary, error));
    return read_divisors(job, error);
}

/* ---- from numbers to texts ---- */

static int write_divisors(struct transformer_job *job, const struct sl_rotary *rotary, int pairs,
                          struct sl_error *error) {
    enum { DIGITS = 20 }; /* per number, with its comma */
    const size_t size = (size_t)pairs * DIGITS + 1;
    size_t used = 0;
    job->rope_divisors = malloc(size);
    if (!job->rope_divisors) return sl_error_set(error, SL_FAILED, "no memory for the model's rotations");
    for (int i = 0; i < pairs; i++)
        used += (size_t)snprintf(job->rope_divisors + used, size - used, "%s%.9g", i ? "," : "",
                                 (double)rotary->divisors[i]);
    return SL_OK;
}

int transformer_write_rotary(struct transformer_job *job, struct transformer_config *config,
                             const struct sl_transformer *t, struct sl_error *error) {
    const struct sl_rotary *rotary = &t->rotary;
    config->rope_pairs = rotary->pairs;
    if (rotary->base > 0) config->rope_base = rotary->base;
    if (rotary->amplitude > 0) config->rope_amplitude = rotary->amplitude;
    if (rotary->factor > 0) {
        snprintf(job->rope_scaling, sizeof job->rope_scaling, "%.17g,%.17g,%.17g,%.17g", rotary->factor, rotary->low,
                 rotary->high, rotary->original);
        config->rope_scaling = job->rope_scaling;
    }
    if (!rotary->divisors) return SL_OK;
    SL_TRY(write_divisors(job, rotary, sl_transformer_head_width(t) / 2, error));
    config->rope_divisors = job->rope_divisors;
    return SL_OK;
}
