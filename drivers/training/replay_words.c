/* replay_words.c - writes the command to replay a run. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/common/identity.h"
#include "drivers/training/replay.h"
#include "spmd/base/memory.h"

/* Options left out: they choose where a run goes, its output and its restarts, but do not affect results. */
static const char *const left_out[] = {
    "check-replicas", "checked",    "delay-ms",       "dry-run",          "engine",  "gradients",
    "graph",          "journal",    "journal-every",  "journal-messages", "json",    "keep",
    "progress-every", "launcher",   "log-every",      "metrics",          "profile", "protect",
    "replay",         "restart",    "restart-mesh",   "resume",           "save",    "save-async",
    "save-every",     "save-parts", "show-placement", "tensorboard",      "timeout", "trace"};

static bool is_left_out(const char *name) {
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
        if (!strcmp(name, left_out[i])) return true;
    return false;
}

static int no_memory(struct sl_error *error) { return sl_error_set(error, SL_FAILED, "no memory to describe the run"); }

/* Adds WORD and takes ownership; NULL: there was no memory. */
static int take(struct sl_replay_words *words, char *word, struct sl_error *error) {
    void *list = word ? sl_grow(words->word, words->count + 1, &words->room, 32, sizeof *words->word) : NULL;
    if (!list) {
        free(word);
        return no_memory(error);
    }
    words->word = list;
    words->word[words->count++] = word;
    words->word[words->count] = NULL;
    return SL_OK;
}

static int add(struct sl_replay_words *words, const char *text, struct sl_error *error) {
    return take(words, strdup(text), error);
}

/* Adds an option with TEXT; a file's path is made absolute. */
static int add_text(struct sl_replay_words *words, const struct sl_option *option, const char *text,
                    struct sl_error *error) {
    const char *path = sl_option_path(option, text);
    char *whole = path ? realpath(path, NULL) : NULL, *word = NULL;
    const int before = whole ? (int)(path - text) : 0;
    if (asprintf(&word, "--%s=%.*s%s", option->name, before, text, whole ? whole : text) < 0) word = NULL;
    free(whole);
    return take(words, word, error);
}

static int add_option(struct sl_replay_words *words, const struct sl_option *option, const void *target,
                      struct sl_error *error) {
    char text[SL_OPTION_TEXT_SIZE], word[SL_OPTION_TEXT_SIZE + 80];
    const char *value = sl_option_print(option, target, text);
    if (option->kind == SL_OPTION_TEXT)
        return *(const char *const *)target ? add_text(words, option, *(const char *const *)target, error) : SL_OK;
    if (option->kind == SL_OPTION_REAL && isnan(*(const double *)target)) return SL_OK;
    if (option->kind == SL_OPTION_FLAG && !*(const bool *)target) return SL_OK;
    if (!*value) return SL_OK; /* no choice was made */
    if (option->kind == SL_OPTION_FLAG || option->kind == SL_OPTION_SWITCH)
        snprintf(word, sizeof word, "--%s%s", *(const bool *)target ? "" : "no-", option->name);
    else
        snprintf(word, sizeof word, "--%s=%s", option->name, value);
    return add(words, word, error);
}

static bool is_told(const struct sl_options *command, const struct sl_option *option) {
    if (is_left_out(option->name)) return false;
    return sl_option_given(command, option->name) || (command->adoption.resumes && option->keep != SL_NOT_KEPT);
}

int sl_replay_describe(const struct sl_training *training, struct sl_replay_words *words, struct sl_error *error) {
    const struct sl_options *command = training->command;
    char program[80], fuse[40], *rest;
    snprintf(program, sizeof program, "%s", command->program);
    for (const char *word = strtok_r(program, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        SL_TRY(add(words, word, error));
    for (const struct sl_option_section *section = command->section; section->table; section++)
        for (const struct sl_option *option = section->table; option->name; option++)
            if (is_told(command, option))
                SL_TRY(add_option(words, option, (const char *)section->target + option->target, error));
    /* The best number of joined microbatches may depend on the machine, so it is added. */
    snprintf(fuse, sizeof fuse, "--fuse=%d", sl_schedule_run(&training->job->schedule, SL_FORWARD));
    if (sl_option_given(command, "fuse") || sl_option_given(command, "no-fuse")) return SL_OK;
    return add(words, fuse, error);
}

void sl_replay_words_free(struct sl_replay_words *words) {
    for (int i = 0; i < words->count; i++) free(words->word[i]);
    free(words->word);
    *words = (struct sl_replay_words){0};
}
