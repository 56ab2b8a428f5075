/* optimizer_options.c - selects an optimizer by name, with its settings. */
#include "drivers/training/choices/optimizer_options.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "drivers/command_line/suggest.h"

#define FIELD(name) offsetof(struct sl_optimizer_flags, name)

enum { OPTIMIZER, WEIGHT_DECAY }; /* options with help written below */

static struct sl_option_word optimizer_word(int i) {
    const struct sl_optimizer *row = sl_optimizer_at(i);
    return (struct sl_option_word){.name = row ? row->name : NULL};
}

/* Options have the names of the fields of struct sl_optimizer_options. */
static const struct sl_option table[] = {
    [OPTIMIZER] = {"optimizer", SL_OPTION_TEXT, FIELD(name), .value = "NAME", .keep = SL_KEPT_STATE,
                   .word = optimizer_word},
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

/* Biases and the parameters of norms, by the modules' names. */
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

/* Writes the optimizers with the setting NAME, separated by BETWEEN; nothing if all have it. Returns the length. */
static size_t list_users(const char *name, const char *between, char *text, size_t size) {
    const struct sl_optimizer *row;
    size_t used = 0;
    for (int i = 0; (row = sl_optimizer_at(i)) && used < size; i++)
        if (sl_optimizer_uses(row, name))
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? between : "", row->name);
    return used;
}

/* Completes setting I: it is read by the optimizers with this setting, and its help begins with their names: "adamw,
 * sgd: HELP". */
static void explain_setting(struct sl_optimizer_flags *flags, int i) {
    static const char by[] = "optimizer=";
    struct sl_option *option = &flags->table[i];
    char *const help = flags->help[i], *const read = flags->read[i];
    const size_t used = list_users(option->name, ", ", help, sizeof flags->help[i]);
    if (!used) return;
    snprintf(help + used, sizeof flags->help[i] - used, ": %s", option->help);
    strcpy(read, by);
    list_users(option->name, "/", read + sizeof by - 1, sizeof flags->read[i] - (sizeof by - 1));
    option->help = help;
    option->read = read;
}

struct sl_option_section sl_optimizer_section(struct sl_optimizer_flags *flags) {
    const struct sl_optimizer *row;
    enum { SIZE = sizeof flags->help[0] };
    _Static_assert(sizeof table <= sizeof flags->table, "room for all options");
    memcpy(flags->table, table, sizeof table);
    for (int i = WEIGHT_DECAY + 1; flags->table[i].name; i++) explain_setting(flags, i);
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

static int suggest_optimizer(const char *asked, struct sl_error *error) {
    const struct sl_optimizer *row;
    struct sl_nearest nearest = sl_nearest_to(asked, strlen(asked));
    for (int i = 0; (row = sl_optimizer_at(i)); i++) sl_nearest_try(&nearest, row->name, strlen(row->name));
    return sl_suggest(&nearest, "", error);
}

int sl_optimizer_choose(const struct sl_optimizer_flags *flags, double learning_rate,
                        struct sl_optimizer_options *options, struct sl_error *error) {
    const struct sl_optimizer *method = sl_optimizer_find(flags->name, error);
    if (!method) return suggest_optimizer(flags->name, error);
    *options = sl_optimizer_defaults(method, (float)learning_rate);
    options->decays = flags->decay_biases ? NULL : no_biases;
    if (!isnan(flags->weight_decay)) options->decay = (float)flags->weight_decay;
    if (!isnan(flags->beta1)) options->beta1 = flags->beta1;
    if (!isnan(flags->beta2)) options->beta2 = flags->beta2;
    if (!isnan(flags->epsilon)) options->epsilon = (float)flags->epsilon;
    if (!isnan(flags->momentum)) options->momentum = (float)flags->momentum;
    options->nesterov = flags->nesterov;
    return sl_optimizer_check(options, error);
}
