/* restart_words.c - the command lines of a run that is started again, and its mesh. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives/launcher.h"
#include "drivers/training/restart/restart_internal.h"

enum { MORE = 16 }; /* words added to the command line */

/* ---- the command line ---- */

int sl_restart_check(const struct sl_watcher *w, struct sl_error *error) {
    const struct sl_checkpoint_options *options = w->checkpoints;
    const struct sl_launch launch = sl_launch_of_process();
    if (!options->save || !options->every)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--restart %d: needs checkpoints to go on from: --save DIR and --save-every N",
                            options->restart);
    if (launch.processes > 1)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--restart %d: %s would be started again by each of its processes: call the program "
                            "without it, and give --launcher \"%s -n %d\"",
                            options->restart, launch.launcher, launch.launcher, launch.processes);
    if (sl_option_given(w->options, "plan"))
        return sl_error_set(error, SL_BAD_INPUT,
                            "--restart %d: not with --plan, which could find another layout each time: let it save "
                            "one (--save-options FILE), and restart @FILE",
                            options->restart);
    if (options->restart_mesh == SL_RESTART_FEWER && options->launcher && strcmp(w->engine, "local") != 0 &&
        !strstr(options->launcher, "%n"))
        return sl_error_set(error, SL_BAD_INPUT,
                            "--restart-mesh fewer: --launcher \"%.80s\" starts the same number of processes each time: "
                            "write %%n in place of that number",
                            options->launcher);
    return SL_OK;
}

/* Whether WORD is the option NAME, perhaps abbreviated: the command line was parsed without error, so the
 * abbreviation is unambiguous. */
static bool is_option(const char *word, const char *name) {
    const size_t length = strncmp(word, "--", 2) ? 0 : strcspn(word + 2, "=");
    return length > 0 && !strncmp(word + 2, name, length);
}

static bool is_one_of(const struct sl_watcher *w, const char *word, const char *const *name) {
    for (; *name; name++)
        if (sl_option_given(w->options, *name) && is_option(word, *name)) return true;
    return false;
}

/* Whether WORD is left out: an option for the watcher only, in a resumed run an option with initial values, or, if a
 * run was started before, its faults. */
static bool is_left_out(const struct sl_watcher *w, const char *word, bool goes_on) {
    static const char *const watchers[] = {"restart", "restart-mesh", "launcher", NULL},
                             *const values[] = {"params", "model", "adapters", NULL}, *const faults[] = {"fail", NULL};
    return is_one_of(w, word, watchers) || (goes_on && is_one_of(w, word, values)) ||
           (w->again && is_one_of(w, word, faults));
}

/* Adds the options as given, up to a "--". */
static void add_options(struct sl_watcher *w, bool goes_on) {
    const struct sl_arguments *given = &w->options->arguments;
    for (int i = 1; i < given->count && strcmp(given->word[i], "--") != 0; i++) {
        if (is_left_out(w, given->word[i], goes_on))
            i += !strchr(given->word[i], '=');
        else
            w->argv[w->words++] = given->word[i];
    }
}

static void add(struct sl_watcher *w, char *option, char *value) {
    w->argv[w->words++] = option;
    w->argv[w->words++] = value;
    w->argv[w->words] = NULL;
}

/* Completes the command line. Added options come last, so they override. */
void sl_restart_complete(struct sl_watcher *w, bool goes_on) {
    w->words = w->count;
    add_options(w, goes_on);
    add(w, "--restart", "0");
    add(w, "--protect", w->protects ? "1" : "0");
    if (goes_on) add(w, "--resume", w->from);
    if (*w->mesh_text) add(w, "--mesh", w->mesh_text);
}

/* Copies the launcher's command, with the mesh's size in place of each %n. */
static char *copy_launcher(const struct sl_watcher *w) {
    const char *engines = strcmp(w->engine, "mpi") ? "" : "mpirun -n %n";
    const char *from = w->checkpoints->launcher ? w->checkpoints->launcher : engines;
    enum { DIGITS = 12 };
    char *text = malloc(strlen(from) * DIGITS + 1), *to = text;
    for (; text && *from; from++)
        if (!strncmp(from, "%n", 2))
            to += sprintf(to, "%d", w->mesh.size), from++;
        else
            *to++ = *from;
    if (text) *to = '\0';
    return text;
}

void sl_restart_free_words(struct sl_watcher *w) {
    free(w->argv);
    free(w->launcher);
    w->argv = NULL;
    w->launcher = NULL;
    w->count = 0;
}

/* Begins argv with the launcher's words, the program and the command. */
int sl_restart_begin_words(struct sl_watcher *w, struct sl_error *error) {
    char *rest, *word;
    sl_restart_free_words(w);
    w->launcher = copy_launcher(w);
    const size_t most = (w->launcher ? strlen(w->launcher) : 0) + (size_t)w->options->arguments.count + MORE;
    w->argv = calloc(most, sizeof *w->argv);
    if (!w->argv || !w->launcher) return sl_error_set(error, SL_FAILED, "out of memory");
    for (word = strtok_r(w->launcher, " \t\n", &rest); word; word = strtok_r(NULL, " \t\n", &rest))
        w->argv[w->count++] = word;
    if (w->checkpoints->launcher && w->count == 0)
        return sl_error_set(error, SL_BAD_INPUT, "--launcher \"%.80s\": names no program", w->checkpoints->launcher);
    if (w->count == 0) {
        free(w->launcher);
        w->launcher = NULL;
    }
    const ssize_t length = readlink("/proc/self/exe", w->program, sizeof w->program - 1);
    if (length < 0) return sl_error_set(error, SL_FAILED, "/proc/self/exe: %s", strerror(errno));
    w->head = w->count;
    w->argv[w->count++] = w->launcher ? w->program : program_invocation_name;
    if (w->command) w->argv[w->count++] = (char *)w->command;
    return SL_OK;
}

/* ---- another mesh ---- */

/* Whether the command line can be planned on the mesh TEXT. Discards the output. */
bool sl_restart_can_be_planned(struct sl_watcher *w, bool goes_on, char *text) {
    int status = -1;
    sl_restart_complete(w, goes_on);
    add(w, "--mesh", text);
    add(w, "--engine", "local");
    w->argv[w->words++] = "--dry-run";
    w->argv[w->words] = NULL;
    const pid_t child = fork();
    if (child == 0) {
        const int nowhere = open("/dev/null", O_RDWR);
        sigprocmask(SIG_SETMASK, &w->usual, NULL);
        for (int file = 0; file < 3; file++) dup2(nowhere, file);
        execv("/proc/self/exe", w->argv + w->head);
        _exit(SL_FAILED);
    }
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    return child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == SL_OK;
}

int sl_restart_take_mesh(struct sl_watcher *w, const char *text, struct sl_error *error) {
    SL_TRY(sl_mesh_parse(&w->mesh, text, error));
    snprintf(w->mesh_text, sizeof w->mesh_text, "%s", text);
    return sl_restart_begin_words(w, error);
}

/* Finds the most replicas, at most MOST, that divide those of BASE, need at most SLOTS processes and can be planned.
 * TEXT receives the mesh; false: there is none. */
static bool find_replicas(struct sl_watcher *w, bool goes_on, const struct sl_mesh *base, int most, int slots,
                          char text[MESH_TEXT]) {
    const int axis = sl_mesh_find_axis(base, "data"), size = axis < 0 ? 1 : base->axis[axis].size;
    for (int replicas = most < size ? most : size; replicas >= 1; replicas--) {
        struct sl_mesh mesh = *base;
        if (axis >= 0) mesh.axis[axis].size = replicas;
        mesh.size = base->size / size * replicas;
        sl_mesh_print(&mesh, text, MESH_TEXT);
        if (size % replicas == 0 && mesh.size <= slots && sl_restart_can_be_planned(w, goes_on, text)) return true;
    }
    return false;
}

/* Makes the next run's mesh smaller; returns false, without changes, if no smaller one can be planned. */
bool sl_restart_take_fewer(struct sl_watcher *w, bool goes_on) {
    const int axis = sl_mesh_find_axis(&w->mesh, "data"), size = axis < 0 ? 1 : w->mesh.axis[axis].size;
    char text[MESH_TEXT];
    if (!find_replicas(w, goes_on, &w->mesh, size / 2, INT_MAX, text)) return false;
    snprintf(w->mesh_text, sizeof w->mesh_text, "%s", text);
    return sl_mesh_parse(&w->mesh, text, NULL) == SL_OK;
}

bool sl_restart_mesh_of_hosts(struct sl_watcher *w, char text[MESH_TEXT]) {
    char present[MESH_TEXT];
    if (w->checkpoints->restart_mesh != SL_RESTART_FEWER || !sl_hosts_have_changed(&w->hosts)) return false;
    sl_mesh_print(&w->mesh, present, sizeof present);
    return find_replicas(w, false, &w->full, INT_MAX, sl_hosts_slots(&w->hosts), text) && strcmp(text, present) != 0;
}
