/* optimizer_options.c - an optimizer by its name, and its settings. */
#include "drivers/common/optimizer_options.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "drivers/command_line/suggest.h"

#define FIELD(name) offsetof(struct sl_optimizer_flags, name)

enum { OPTIMIZER, WEIGHT_DECAY }; /* options whose help is written below */

/* Settings of optimizers are called as the fields of struct sl_optimizer_options. */
static const struct sl_option table[] = {
    [OPTIMIZER] = {"optimizer", SL_OPTION_TEXT, FIELD(name), .value = "NAME", .keep = SL_KEPT_STATE},
    [WEIGHT_DECAY] = {"weight-decay", SL_OPTION_REAL, FIELD(weight_decay), .min = 0, .max = 1e6, .keep = SL_KEPT_RUN},
    {"decay-biases", SL_OPTION_SWITCH, FIELD(decay_biases), .keep = SL_KEPT_RUN,
     .help = "apply weight decay to biases and to the scales and shifts of norms, too"},
    {"beta1", SL_OPTION_REAL, FIELD(beta1), .min = 0, .max = 1, .below = true, .keep = SL_KEPT_RUN,
     .help = "decay rate of the mean of the gradients"},
    {"beta2", SL_OPTION_REAL, FIELD(beta2), .min = 0, .max = 1, .below = true, .keep = SL_KEPT_RUN,
     .help = "decay rate of the mean of the squared gradients"},
    {"epsilon", SL_OPTION_REAL, FIELD(epsilon), .min = 0, .max = 1e6, .keep = SL_KEPT_RUN,
     .help = "added to the root of that mean before the division"},
    {"momentum", SL_OPTION_REAL, FIELD(momentum), .min = 0, .max = 1, .below = true, .keep = SL_KEPT_RUN,
     .help = "share of the last step's direction that is kept"},
    {"nesterov", SL_OPTION_FLAG, FIELD(nesterov), .keep = SL_KEPT_RUN,
     .help = "Nesterov's momentum, which looks one step ahead"},
    {0},
};

/* Biases and what norms learn, by the names that the modules give them. */
static const struct sl_decay_rule no_biases[] = {
    {"*.bias", false}, {"*.scale", false}, {"*.gamma", false}, {"*.beta", false}, {NULL, false}};

struct sl_optimizer_flags sl_optimizer_flags_defaults(void) {
    return (struct sl_optimizer_flags){.name = "adamw",
                                       .weight_decay = NAN,
                                       .beta1 = NAN,
                                       .beta2 = NAN,
                                       .epsilon = NAN,
                                       .momentum = NAN,
                                       .decay_biases = true};
}

/* "adamw, sgd: HELP": the optimizers that use the setting of OPTION come first. */
static void explain_setting(struct sl_option *option, char *text, size_t size) {
    const struct sl_optimizer *row;
    size_t used = 0;
    for (int i = 0; (row = sl_optimizer_at(i)) && used < size; i++)
        if (sl_optimizer_uses(row, option->name))
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", row->name);
    if (!used) return; /* a setting of all */
    snprintf(text + used, size - used, ": %s", option->help);
    option->help = text;
}

struct sl_option_section sl_optimizer_section(struct sl_optimizer_flags *flags) {
    const struct sl_optimizer *row;
    enum { SIZE = sizeof flags->help[0] };
    _Static_assert(sizeof table <= sizeof flags->table, "room for all options");
    memcpy(flags->table, table, sizeof table);
    for (int i = WEIGHT_DECAY + 1; flags->table[i].name; i++) explain_setting(&flags->table[i], flags->help[i], SIZE);
    char *const choices = flags->help[OPTIMIZER], *const decay = flags->help[WEIGHT_DECAY];
    size_t chosen = (size_t)snprintf(choices, SIZE, "the optimizer:");
    size_t decays = (size_t)snprintf(decay, SIZE, "weight decay (default:");
    for (int i = 0; (row = sl_optimizer_at(i)) && chosen < SIZE && decays < SIZE; i++) {
        const char *const comma = i ? "," : "";
        chosen += (size_t)snprintf(choices + chosen, SIZE - chosen, "%s %s (%s)", comma, row->name, row->help);
        decays += (size_t)snprintf(decay + decays, SIZE - decays, "%s %g for %s", comma, (double)row->defaults.decay,
                                   row->name);
    }
    if (decays < SIZE) snprintf(decay + decays, SIZE - decays, ")");
    flags->table[OPTIMIZER].help = choices;
    flags->table[WEIGHT_DECAY].help = decay;
    return (struct sl_option_section){"Optimizer", flags->table, flags};
}

/* Whether the flag called NAME was GIVEN: the optimizer must have a use for it. */
static bool take(bool given, const struct sl_optimizer *method, const char *name, struct sl_error *error) {
    char uses[160] = "";
    if (!given || sl_optimizer_uses(method, name)) return given;
    if (error->status) return false; /* one at a time */
    for (int i = 0; method->settings[i]; i++) {
        const size_t used = strlen(uses);
        snprintf(uses + used, sizeof uses - used, ", --%s", method->settings[i]);
    }
    sl_error_set(error, SL_BAD_INPUT, "--%s: optimizer %s has no such setting: its are --weight-decay%s", name,
                 method->name, uses);
    return false;
}

static int suggest_optimizer(const char *asked, struct sl_error *error) {
    const struct sl_optimizer *row;
    struct sl_nearest nearest = sl_nearest_to(asked, strlen(asked));
    for (int i = 0; (row = sl_optimizer_at(i)); i++) sl_nearest_try(&nearest, row->name, strlen(row->name));
    return sl_suggest(&nearest, "", error);
}

int sl_optimizer_choose(const struct sl_optimizer_flags *flags, double learning_rate,
                        struct sl_optimizer_options *options, struct sl_error *error) {
    const struct sl_optimizer *method = sl_optimizer_find(flags->name, error);
    struct sl_error misuse = {0};
    if (!method) return suggest_optimizer(flags->name, error);
    *options = sl_optimizer_defaults(method, (float)learning_rate);
    options->decays = flags->decay_biases ? NULL : no_biases;
    if (!isnan(flags->weight_decay)) options->decay = (float)flags->weight_decay;
    if (take(!isnan(flags->beta1), method, "beta1", &misuse)) options->beta1 = flags->beta1;
    if (take(!isnan(flags->beta2), method, "beta2", &misuse)) options->beta2 = flags->beta2;
    if (take(!isnan(flags->epsilon), method, "epsilon", &misuse)) options->epsilon = (float)flags->epsilon;
    if (take(!isnan(flags->momentum), method, "momentum", &misuse)) options->momentum = (float)flags->momentum;
    if (take(flags->nesterov, method, "nesterov", &misuse)) options->nesterov = true;
    if (misuse.status) return sl_error_set(error, misuse.status, "%s", misuse.message);
    return sl_optimizer_check(options, error);
}
