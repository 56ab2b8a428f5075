/* restart.c - starts a run, waits for its end, and restarts it. */
#include "drivers/training/restart.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "collectives/launcher.h"
#include "drivers/training/launched.h"
#include "layers/records/snapshot/protection_folder.h"

/* Seconds to wait: for a launcher's remaining processes to end by themselves, then for them to end after being
 * killed, and for the directory's lock, which such processes on other machines may hold. */
static const double time_to_end = 10, time_to_die = 5, time_to_unlock = 30;
/* Seconds for the other processes to print why they end, once one has ended; between two looks for processes; and after
 * which a launcher has started all on this machine. */
static const double time_to_tell = 0.3, time_to_look = 0.02, time_to_start = 20;

enum { MORE = 16, MESH_TEXT = 256, MOST_TRIES = 3 }; /* words added to the command line; bytes of a mesh */

struct watcher {
    const struct sl_options *options;
    const struct sl_checkpoint_options *checkpoints;
    const char *command, *engine;
    char program[PATH_MAX]; /* path of this program's file */
    char *launcher;         /* its words begin argv; NULL: the program is started directly */
    int head, count, words; /* words of argv: the launcher's, those before the options, and all */
    char **argv;
    struct sl_mesh mesh;       /* of the next run */
    char mesh_text[MESH_TEXT]; /* if different from the command line's mesh; else "" */
    bool protects;             /* steps are kept in memory */
    bool lost;                 /* the watcher has ended the last run, because one of its processes had ended */
    int fruitless;             /* runs in a row without a saved checkpoint or a step in memory */
    int64_t last;              /* steps of the latest of them when the present run began; -1: none */
    int64_t memory;            /* number of the step in memory that the next run goes on from; -1: none */
    char from[SL_MAX_PATH];    /* the checkpoint to resume from */
    int64_t before;            /* steps of the latest checkpoint before the first run; -1: none */
    sigset_t signals, usual;
    int arrived; /* descriptor to read the signals from */
    int asked;   /* the terminating signal that has arrived; 0: none */
};

/* ---- the command line ---- */

static int check(const struct watcher *w, struct sl_error *error) {
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
                            "--restart-mesh fewer: --launcher \"%.80s\" starts as many processes each time: write %%n "
                            "where it has their number",
                            options->launcher);
    return SL_OK;
}

/* Whether WORD is the option NAME, perhaps abbreviated: the command line was parsed without error, so the
 * abbreviation is unambiguous. */
static bool is_option(const char *word, const char *name) {
    const size_t length = strncmp(word, "--", 2) ? 0 : strcspn(word + 2, "=");
    return length > 0 && !strncmp(word + 2, name, length);
}

/* Whether WORD is left out: an option for the watcher only, or, in a resumed run, an option with initial values. */
static bool is_left_out(const struct watcher *w, const char *word, bool goes_on) {
    static const char *const names[] = {"params", "model", "adapters", "restart", "restart-mesh", "launcher", NULL};
    for (int i = goes_on ? 0 : 3; names[i]; i++)
        if (sl_option_given(w->options, names[i]) && is_option(word, names[i])) return true;
    return false;
}

/* Adds the options as given, up to a "--". */
static void add_options(struct watcher *w, bool goes_on) {
    const struct sl_arguments *given = &w->options->arguments;
    for (int i = 1; i < given->count && strcmp(given->word[i], "--") != 0; i++) {
        if (is_left_out(w, given->word[i], goes_on))
            i += !strchr(given->word[i], '=');
        else
            w->argv[w->words++] = given->word[i];
    }
}

static void add(struct watcher *w, char *option, char *value) {
    w->argv[w->words++] = option;
    w->argv[w->words++] = value;
    w->argv[w->words] = NULL;
}

/* Completes the command line. Added options come last, so they override. */
static void complete(struct watcher *w, bool goes_on) {
    w->words = w->count;
    add_options(w, goes_on);
    add(w, "--restart", "0");
    add(w, "--protect", w->protects ? "1" : "0");
    if (goes_on) add(w, "--resume", w->from);
    if (*w->mesh_text) add(w, "--mesh", w->mesh_text);
}

/* Copies the launcher's command, with the mesh's size in place of each %n. */
static char *copy_launcher(const struct watcher *w) {
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

static void free_words(struct watcher *w) {
    free(w->argv);
    free(w->launcher);
    w->argv = NULL;
    w->launcher = NULL;
    w->count = 0;
}

/* Begins argv with the launcher's words, the program and the command. */
static int begin_words(struct watcher *w, struct sl_error *error) {
    char *rest, *word;
    free_words(w);
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

/* ---- a process ---- */

/* Becomes the run, in the child process; it ends if PARENT ends. */
static void become_run(const struct watcher *w, pid_t parent, int told) {
    sigprocmask(SIG_SETMASK, &w->usual, NULL);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(SL_FAILED);
    if (w->launcher)
        execvp(w->argv[0], w->argv);
    else
        execv("/proc/self/exe", w->argv);
    const int reason = errno;
    _exit(write(told, &reason, sizeof reason) > 0 ? SL_FAILED : SL_BAD_INPUT);
}

/* Starts the command line as the process CHILD. If exec fails, the reason comes through a pipe, which a successful
 * exec closes. */
static int start(const struct watcher *w, pid_t *child, struct sl_error *error) {
    const char *name = w->launcher ? w->argv[0] : w->program;
    const pid_t parent = getpid();
    int tell[2], reason = 0;
    if (pipe2(tell, O_CLOEXEC)) return sl_error_set(error, SL_FAILED, "--restart: no pipe: %s", strerror(errno));
    *child = fork();
    if (*child == 0) become_run(w, parent, tell[1]);
    if (*child < 0) reason = errno;
    close(tell[1]);
    if (*child > 0 && read(tell[0], &reason, sizeof reason) > 0) waitpid(*child, NULL, 0);
    close(tell[0]);
    if (!reason) return SL_OK;
    return sl_error_set(error, *child > 0 && w->launcher ? SL_BAD_INPUT : SL_FAILED,
                        "--restart: %s cannot be started: %s", name, strerror(reason));
}

/* ---- signals ---- */

/* Blocks signals until they are waited for. SIGHUP stays ignored if it was: the run should then outlive its
 * terminal. */
static void hold_signals(struct watcher *w) {
    static const int numbers[] = {SIGCHLD, SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2};
    struct sigaction hangup;
    signal(SIGCHLD, SIG_DFL);
    sigemptyset(&w->signals);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) sigaddset(&w->signals, numbers[i]);
    if (!sigaction(SIGHUP, NULL, &hangup) && hangup.sa_handler != SIG_IGN) sigaddset(&w->signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &w->signals, &w->usual);
    w->arrived = signalfd(-1, &w->signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Handles a signal that may end the run, if one has arrived: passes it on to CHILD (0: none) unless it came from the
 * terminal, which has sent it to the child, too. */
static void pass_on(struct watcher *w, pid_t child) {
    struct signalfd_siginfo info;
    if (read(w->arrived, &info, sizeof info) != sizeof info || info.ssi_signo == SIGCHLD) return;
    w->asked = (int)info.ssi_signo;
    if (child && info.ssi_code <= 0) kill(child, w->asked);
}

/* Whether to end the run now: some of its processes have ended, since BEGAN, and steps are in memory, which a run that
 * ends by itself removes first. */
static bool is_lost(const struct watcher *w, const struct sl_launched *launched, double began) {
    const bool over = sl_launched_ended(launched) == launched->count || sl_now() > began + time_to_tell;
    return over && !w->asked && sl_protection_step(w->checkpoints->save) >= 0;
}

/* Waits for the child; returns its status as waitpid does. With steps in memory, ends the child itself once the
 * processes that it has launched end. */
static int await_end(struct watcher *w, pid_t child) {
    struct sl_launched launched = {0};
    const double begin = sl_now();
    double began = 0; /* of the end of the first process; 0: all run */
    int status;
    w->lost = false;
    while (waitpid(child, &status, WNOHANG) != child) {
        const bool starts = w->protects && w->launcher && launched.count < w->mesh.size && began == 0 &&
                            sl_now() < begin + time_to_start;
        const double pause = starts || began > 0 ? time_to_look : -1;
        if (starts) sl_launched_find(&launched, child, w->program);
        if (sl_launched_wait(&launched, began == 0, w->arrived, pause < 0 ? -1 : (int)(1e3 * pause)))
            pass_on(w, child);
        else if (began == 0 && sl_launched_ended(&launched))
            began = sl_now();
        if (began == 0 || w->lost || !is_lost(w, &launched, began)) continue;
        w->lost = true;
        sl_launched_kill(child);
    }
    sl_launched_free(&launched);
    return status;
}

/* ---- between two runs ---- */

/* Waits for a moment, or until a signal comes. */
static void rest(struct watcher *w) {
    const struct sl_launched none = {0};
    if (sl_launched_wait(&none, false, w->arrived, w->protects ? 2 : 50)) pass_on(w, 0);
}

static bool has_children(void) {
    pid_t ended;
    while ((ended = waitpid(-1, NULL, WNOHANG)) > 0) continue;
    return ended == 0;
}

static void kill_children(void) {
    char path[64];
    int child;
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *list = fopen(path, "r");
    while (list && fscanf(list, "%d", &child) == 1) kill(child, SIGKILL);
    if (list) fclose(list);
}

/* Waits for processes that a dead launcher has left: they are this process's children now. They may train and save
 * for a while, and must end before the next run looks for the last checkpoint. With steps in memory they are killed at
 * once. */
static void await_rest(struct watcher *w) {
    const double begin = sl_now(), patience = w->protects ? 0 : time_to_end;
    while (!w->asked && has_children() && sl_now() < begin + patience + time_to_die) {
        if (sl_now() >= begin + patience) kill_children();
        rest(w);
    }
}

/* Waits until the directory is unlocked, for a limited time: after it the next run reports the lock. */
static void await_lock(struct watcher *w) {
    const double end = sl_now() + time_to_unlock;
    const int directory = open(w->checkpoints->save, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (directory >= 0 && !w->asked && flock(directory, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK && sl_now() < end)
        rest(w);
    if (directory >= 0) close(directory);
}

/* ---- fewer replicas ---- */

/* Whether the command line can be planned on the mesh TEXT. Discards the output. */
static bool can_be_planned(struct watcher *w, bool goes_on, char *text) {
    int status = -1;
    complete(w, goes_on);
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

/* Makes the next run's mesh smaller; returns false, without changes, if no smaller one can be planned. */
static bool take_fewer(struct watcher *w, bool goes_on) {
    const int axis = sl_mesh_find_axis(&w->mesh, "data"), size = axis < 0 ? 1 : w->mesh.axis[axis].size;
    for (int fewer = size / 2; fewer >= 1; fewer--) {
        char text[MESH_TEXT];
        struct sl_mesh mesh = w->mesh;
        if (size % fewer) continue;
        mesh.axis[axis].size = fewer;
        mesh.size = w->mesh.size / size * fewer;
        sl_mesh_print(&mesh, text, sizeof text);
        if (!can_be_planned(w, goes_on, text)) continue;
        w->mesh = mesh;
        snprintf(w->mesh_text, sizeof w->mesh_text, "%s", text);
        return true;
    }
    return false;
}

/* Call it after find_checkpoint. Returns whether two runs in a row have saved nothing. */
static bool is_stuck(struct watcher *w) {
    const int64_t saved = sl_checkpoint_last_step(w->checkpoints->save), last = w->memory > saved ? w->memory : saved;
    w->fruitless = last > w->last ? 0 : w->fruitless + 1;
    w->last = last;
    return w->fruitless >= 2;
}

/* Whether there is a step in memory after AFTER to go on from. If several runs have died after it without another
 * step, it may be the reason, and is removed. */
static bool find_memory(struct watcher *w, int64_t after) {
    w->memory = -1;
    if (!w->protects) return false;
    const int64_t step = sl_protection_find(w->checkpoints->save, w->from);
    if (step >= 0 && w->fruitless >= MOST_TRIES && step <= w->last) {
        sl_remark("--protect: %d runs in a row have ended without a step after step %" PRId64
                  " in memory: it is given up",
                  w->fruitless, step);
        sl_protection_forget(w->checkpoints->save);
        return false;
    }
    if (step > after) w->memory = step;
    return step > after;
}

/* Whether the run has left a step or a checkpoint of its own to resume from. */
static bool find_checkpoint(struct watcher *w) {
    struct sl_error skipped = {0};
    const int64_t saved = sl_checkpoint_last_step(w->checkpoints->save);
    if (find_memory(w, saved > w->before ? saved : w->before)) return true;
    if (saved <= w->before) return false;
    return sl_checkpoint_latest(w->checkpoints->save, w->from, &skipped, NULL) == SL_OK;
}

static int exit_status(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

/* "the run was killed by signal 9 (Killed)" */
static void describe_end(const struct watcher *w, int status, char *text, size_t size) {
    if (w->lost)
        snprintf(text, size, "the run lost a process");
    else if (WIFSIGNALED(status))
        snprintf(text, size, "the run was killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(text, size, "the run ended with status %d", WEXITSTATUS(status));
}

/* Whether the run has ended for good; launchers have exit statuses of their own. If --check-replicas finds that
 * replicas differ, the run counts as dead: the last checkpoint is from a step before that. */
static bool is_over(const struct watcher *w, int status) {
    const int exited = WIFSIGNALED(status) ? -1 : WEXITSTATUS(status);
    const bool drifts = sl_option_given(w->options, "check-replicas");
    return w->asked || exited == SL_OK || exited == SL_BAD_INPUT ||
           (exited == SL_CHECK_FAILED && !w->launcher && !drifts);
}

/* Writes the place that the next run goes on from. */
static void describe_place(const struct watcher *w, bool found, char place[SL_MAX_PATH]) {
    const char *resumed = w->checkpoints->resume ? w->checkpoints->resume : "the beginning";
    if (w->memory >= 0)
        snprintf(place, SL_MAX_PATH, "memory, after %" PRId64 " steps", w->memory);
    else
        snprintf(place, SL_MAX_PATH, "%s", found ? w->from : resumed);
}

/* Whether to start the run again, after RESTARTS restarts; reports the decision. */
static bool goes_on(struct watcher *w, int status, int restarts, struct sl_error *error) {
    const int most = w->checkpoints->restart;
    char end[120];
    if (is_over(w, status)) return false;
    describe_end(w, status, end, sizeof end);
    if (restarts == most) {
        sl_remark("%s; it was started again as often as --restart %d allows", end, most);
        return false;
    }
    if (w->launcher) await_rest(w);
    await_lock(w);
    if (w->asked) return false;
    const bool found = find_checkpoint(w), stuck = is_stuck(w);
    char why[2 * MESH_TEXT] = "", place[SL_MAX_PATH];
    describe_place(w, found, place);
    if (stuck && w->checkpoints->restart_mesh == SL_RESTART_FEWER && take_fewer(w, found)) {
        snprintf(why, sizeof why, " on %s: two runs in a row have saved nothing", w->mesh_text);
        w->fruitless = 0;
        if (begin_words(w, error)) return false;
    }
    complete(w, found);
    sl_remark("%s; restart %d of %d goes on from %s%s", end, restarts + 1, most, place, why);
    return true;
}

/* Whether --resume and --save name one directory. */
static bool resumes_own(const struct watcher *w) {
    const struct sl_checkpoint_options *options = w->checkpoints;
    char *saved = realpath(options->save, NULL), *resumed = options->resume ? realpath(options->resume, NULL) : NULL;
    const bool same = saved && resumed && !strcmp(saved, resumed);
    free(saved);
    free(resumed);
    return same;
}

/* Whether the first run goes on from a step in memory that a dead run has left, whose watcher died, too. */
static bool takes_over(struct watcher *w) {
    w->memory = -1;
    if (!w->protects || !resumes_own(w)) return false;
    await_lock(w);
    if (w->asked || !find_memory(w, w->before)) return false;
    sl_remark("goes on from memory, after %" PRId64 " steps: an earlier run has left them", w->memory);
    return true;
}

static int supervise(struct watcher *w, struct sl_error *error) {
    int restarts = 0, status;
    w->before = w->last = sl_checkpoint_last_step(w->checkpoints->save);
    complete(w, takes_over(w));
    do {
        pid_t child = 0;
        SL_TRY(start(w, &child, error));
        status = await_end(w, child);
    } while (goes_on(w, status, restarts++, error));
    return exit_status(status);
}

int sl_restart(const struct sl_options *options, const char *command, const struct sl_checkpoint_options *checkpoints,
               const struct sl_common_options *common) {
    struct watcher w = {.options = options, .checkpoints = checkpoints, .command = command, .engine = common->engine};
    struct sl_error error = {0};
    int status = check(&w, &error);
    if (status == SL_OK) status = sl_mesh_parse(&w.mesh, common->mesh, &error);
    if (status == SL_OK) status = begin_words(&w, &error);
    w.protects = sl_option_given(options, "protect") ? checkpoints->protect : w.launcher != NULL;
    if (status == SL_OK) {
        hold_signals(&w);
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        status = supervise(&w, &error);
    }
    free_words(&w);
    return error.status ? sl_options_report(options, &error) : status;
}
