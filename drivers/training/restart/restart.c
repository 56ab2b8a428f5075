/* restart.c - starts a run, waits for its end, and restarts it. */
#include "drivers/training/restart/restart.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
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

#include "drivers/common/metrics.h"
#include "drivers/training/restart/command_file.h"
#include "drivers/training/restart/restart_internal.h"
#include "drivers/training/restart/same_process.h"
#include "layers/records/snapshot/protection_folder.h"

/* Limits in seconds: time_to_end for a launcher's remaining processes to end by themselves, time_to_die for them to end
 * after a kill, and time_to_unlock for the directory's lock, which processes on other machines may hold. */
static const double time_to_end = 10, time_to_die = 5, time_to_unlock = 30;
/* Seconds: time_to_tell for the other processes to print why they end, once one has ended; time_to_look between two
 * looks for processes; time_to_start for a launcher to start all processes on this machine. */
static const double time_to_tell = 0.2, time_to_look = 0.02, time_to_start = 20;
/* Seconds between two looks: time_to_see for a new step, time_to_look_again for other hosts, time_to_rest for others.
 */
static const double time_to_see = 0.002, time_to_look_again = 0.5, time_to_rest = 0.05;

/* ---- a process ---- */

/* Becomes the run, in the child process; it ends if PARENT ends. */
static void become_run(const struct sl_watcher *w, pid_t parent, int told, int line) {
    sigprocmask(SIG_SETMASK, &w->usual, NULL);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (line >= 0) sl_same_process_inherit(line);
    if (getppid() != parent) _exit(SL_FAILED);
    if (w->launcher)
        execvp(w->argv[0], w->argv);
    else
        execv("/proc/self/exe", w->argv);
    const int reason = errno;
    _exit(write(told, &reason, sizeof reason) > 0 ? SL_FAILED : SL_BAD_INPUT);
}

/* No longer listens to the run's process: it ends if it waits for an answer. */
static void hang_up(struct sl_watcher *w) {
    if (w->ear[2] >= 0) close(w->ear[2]);
    w->ear[2] = -1;
}

/* Starts the command line as the process w->child. If exec fails, the reason comes through a pipe, which a successful
 * exec closes. */
static int start_process(struct sl_watcher *w, struct sl_error *error) {
    const char *name = w->launcher ? w->argv[0] : w->program;
    const pid_t parent = getpid();
    int tell[2], line[2] = {-1, -1}, reason = 0;
    if (pipe2(tell, O_CLOEXEC)) return sl_error_set(error, SL_FAILED, "--restart: no pipe: %s", strerror(errno));
    hang_up(w);
    if (!w->launcher && sl_same_process_open(line)) w->ear[2] = line[0];
    const pid_t child = fork();
    if (child == 0) become_run(w, parent, tell[1], line[1]);
    if (child < 0) reason = errno;
    close(tell[1]);
    if (line[1] >= 0) close(line[1]);
    if (child > 0 && read(tell[0], &reason, sizeof reason) > 0) waitpid(child, NULL, 0);
    close(tell[0]);
    w->child = reason ? 0 : child;
    w->resumed = w->found;
    if (!reason) return SL_OK;
    return sl_error_set(error, child > 0 && w->launcher ? SL_BAD_INPUT : SL_FAILED,
                        "--restart: %s cannot be started: %s", name, strerror(reason));
}

/* Starts a run: in the process of the last one if that stays. */
static int start(struct sl_watcher *w, struct sl_error *error) {
    w->here = w->stays;
    w->stays = false;
    if (!w->here) return start_process(w, error);
    sl_same_process_answer(w->ear[2], w->found ? w->from : "");
    return SL_OK;
}

/* Ends a process that stays, and has the directory's lock: it may be the reason why the run keeps nothing, or have been
 * told to begin where it no longer can. */
static void replace_process(struct sl_watcher *w) {
    if (!w->stays) return;
    w->stays = false;
    kill(w->child, SIGKILL);
    waitpid(w->child, NULL, 0);
    w->child = 0;
}

/* ---- signals ---- */

/* Blocks signals until they are waited for. SIGHUP stays ignored if it was: the run should then outlive its
 * terminal. */
static void hold_signals(struct sl_watcher *w) {
    static const int numbers[] = {SIGCHLD, SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2};
    struct sigaction hangup;
    signal(SIGCHLD, SIG_DFL);
    sigemptyset(&w->signals);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) sigaddset(&w->signals, numbers[i]);
    if (!sigaction(SIGHUP, NULL, &hangup) && hangup.sa_handler != SIG_IGN) sigaddset(&w->signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &w->signals, &w->usual);
    w->ear[0] = signalfd(-1, &w->signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Handles a signal that may end the run, if one has arrived: passes it on to the child unless it came from the
 * terminal, which has sent it to the child, too. */
static void pass_on(struct sl_watcher *w) {
    struct signalfd_siginfo info;
    if (read(w->ear[0], &info, sizeof info) != sizeof info || info.ssi_signo == SIGCHLD) return;
    w->asked = (int)info.ssi_signo;
    if (w->child && info.ssi_code <= 0) kill(w->child, w->asked);
}

/* Returns whether to end the run now: some of its processes have ended, the first at BEGAN, and there are steps in
 * memory. A run that ends by itself removes its steps before its processes end. */
static bool is_lost(const struct sl_watcher *w, const struct sl_launched *launched, double began) {
    int rank;
    const bool over = sl_launched_ended(launched, &rank) == launched->count || sl_now() > began + time_to_tell;
    return over && !w->asked && sl_protection_step(w->checkpoints->save) >= 0;
}

/* ---- a run ---- */

/* Returns the seconds until the watcher has to look again; negative: it need not, until something happens. */
static double pause_of(const struct sl_watcher *w, bool starts, bool ends) {
    if (*w->wanted || (w->here && w->protects && sl_losses_run(&w->losses))) return time_to_see;
    if (starts || ends || (w->protects && sl_losses_run(&w->losses))) return time_to_look;
    return w->protects && *w->hosts.path ? time_to_look_again : -1;
}

/* Takes the child's message, if it has not ended. The child stays if the run may start again as it is. */
static void take_failure(struct sl_watcher *w) {
    w->stays = sl_same_process_hear(w->ear[2], &w->failure) && !w->asked && !*w->wanted && !*w->back &&
               w->restarts < w->checkpoints->restart;
    if (!w->stays) hang_up(w);
}

/* Returns whether the child has ended, or stays after its coordinates have ended, and its STATUS, as waitpid does. */
static bool has_ended(struct sl_watcher *w, int *status) {
    *status = W_EXITCODE(w->failure.status, 0);
    if (w->stays) return true;
    const bool ended = waitpid(w->child, status, WNOHANG) == w->child;
    if (ended) w->child = 0;
    return ended;
}

/* Waits for the end of the run, and returns its status. If there are steps in memory, it ends the child when a process
 * launched by the child ends, or when another mesh is wanted. */
static int await_end(struct sl_watcher *w) {
    struct sl_launched launched = {0};
    const double begin = sl_now();
    double began = 0; /* when the first process ended; 0: all processes run */
    int status;
    w->lost = false;
    while (!has_ended(w, &status)) {
        const bool starts = w->protects && w->launcher && launched.count < w->mesh.size && began == 0 &&
                            sl_now() < begin + time_to_start;
        if (starts) sl_launched_find(&launched, w->child, w->program);
        if (w->protects && sl_losses_run(&w->losses)) sl_restart_note_step(w);
        const int heard = sl_launched_wait(&launched, began == 0, w->ear, pause_of(w, starts, began > 0));
        if (heard == 0) pass_on(w);
        if (heard == 1) sl_restart_take_request(w);
        if (heard == 2) take_failure(w);
        if (w->protects) sl_restart_look_at_hosts(w);
        if (heard < 0 && began == 0 && sl_launched_ended(&launched, &w->rank)) began = sl_now();
        const bool dies = began > 0 && is_lost(w, &launched, began);
        if (w->lost || (!dies && !sl_restart_is_due(w))) continue;
        w->lost = true;
        sl_launched_kill(w->child);
    }
    sl_losses_begin(&w->losses, began > 0 ? began : sl_now());
    sl_launched_free(&launched);
    return status;
}

/* ---- between two runs ---- */

/* Waits for a moment, or until a signal comes. */
static void rest(struct sl_watcher *w) {
    const struct sl_launched none = {0};
    const int ear[SL_EARS] = {w->ear[0], -1, -1};
    if (sl_launched_wait(&none, false, ear, w->protects ? time_to_see : time_to_rest) == 0) pass_on(w);
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

/* Waits for processes that a dead launcher has left: they are this process's children now. They may train and save for
 * a while, and must end before the next run looks for the last checkpoint. If the run protects its steps, they are
 * killed at once. */
static void await_rest(struct sl_watcher *w) {
    const double begin = sl_now(), patience = w->protects ? 0 : time_to_end;
    while (!w->asked && has_children() && sl_now() < begin + patience + time_to_die) {
        if (sl_now() >= begin + patience) kill_children();
        rest(w);
    }
}

/* Waits for a limited time until the directory is unlocked. If it stays locked, the next run reports the lock. */
static void await_lock(struct sl_watcher *w) {
    if (w->stays) return; /* it has the lock */
    const double end = sl_now() + time_to_unlock;
    const int directory = open(w->checkpoints->save, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (directory >= 0 && !w->asked && flock(directory, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK && sl_now() < end)
        rest(w);
    if (directory >= 0) close(directory);
}

/* ---- the beginning of the next run ---- */

/* Call it after find_checkpoint. Returns whether two runs in a row have saved nothing. */
static bool is_stuck(struct sl_watcher *w) {
    const int64_t saved = sl_checkpoint_last_step(w->checkpoints->save), last = w->memory > saved ? w->memory : saved;
    w->fruitless = last > w->last ? 0 : w->fruitless + 1;
    w->last = last;
    return w->fruitless >= 2;
}

/* Returns whether memory has a step later than AFTER, from which the next run continues. */
static bool find_memory(struct sl_watcher *w, int64_t after) {
    struct sl_error untold = {0};
    w->memory = -1;
    const int64_t made = w->protects ? sl_protection_step(w->checkpoints->save) : -1;
    if (made < 0 || made == w->foreign) return false;
    const int64_t step = sl_protection_find(w->checkpoints->save, w->from, &w->whole);
    if (made > w->losses.furthest) w->losses.furthest = made;
    if (step <= after) return false;
    if (w->launcher && sl_protection_tell(w->checkpoints->save, w->from, &untold)) sl_remark("%s", untold.message);
    w->memory = w->begins = step;
    return true;
}

/* Counts the loss, after find_checkpoint, which has FOUND something to continue from or not. */
static void count_loss(struct sl_watcher *w, enum sl_lost_by cause, bool found) {
    struct sl_store state = {0};
    int version;
    w->bytes = 0;
    if (found && !sl_checkpoint_map(&state, w->from, &version, NULL))
        for (int i = 0; i < state.count; i++) w->bytes += (double)sl_tensor_bytes(&state.tensor[i]);
    sl_store_free(&state);
    sl_losses_cause(&w->losses, cause, found ? w->begins : 0, w->bytes);
}

/* Whether the run has left a step or a checkpoint of its own to resume from. */
static bool find_checkpoint(struct sl_watcher *w) {
    struct sl_error skipped = {0};
    const int64_t saved = sl_checkpoint_last_step(w->checkpoints->save);
    if (find_memory(w, saved > w->before ? saved : w->before)) return true;
    if (saved <= w->before) return false;
    w->begins = saved;
    return sl_checkpoint_latest(w->checkpoints->save, w->from, &skipped, NULL) == SL_OK;
}

static int exit_status(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

/* "the run was killed by signal 9 (Killed)" */
static void describe_end(const struct sl_watcher *w, int status, char *text, size_t size) {
    if (w->lost && w->rank >= 0)
        snprintf(text, size, "the run lost the process of coordinate %d", w->rank);
    else if (w->lost)
        snprintf(text, size, "the run lost a process");
    else if (WIFSIGNALED(status))
        snprintf(text, size, "the run was killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(text, size, "the run ended with status %d", WEXITSTATUS(status));
}

/* Whether the run has ended for good; launchers have exit statuses of their own. If --check-replicas finds that
 * replicas differ, the run counts as dead: the last checkpoint is from a step before that. */
static bool is_over(const struct sl_watcher *w, int status) {
    const int exited = WIFSIGNALED(status) ? -1 : WEXITSTATUS(status);
    const bool drifts = sl_option_given(w->options, "check-replicas");
    return w->asked || exited == SL_OK || exited == SL_BAD_INPUT ||
           (exited == SL_CHECK_FAILED && !w->launcher && !drifts);
}

/* Writes the name of the place from which the next run continues. */
static void describe_place(const struct sl_watcher *w, bool found, char place[SL_MAX_PATH]) {
    const char *resumed = w->checkpoints->resume ? w->checkpoints->resume : "the beginning";
    if (w->memory >= 0)
        snprintf(place, SL_MAX_PATH, "%smemory, after %s%" PRId64 " steps", w->whole ? "" : "several hosts' ",
                 w->whole ? "" : "about ", w->memory);
    else
        snprintf(place, SL_MAX_PATH, "%s", found ? w->from : resumed);
}

/* Prepares the next run, on MESH. */
static bool take_mesh(struct sl_watcher *w, const char *mesh, struct sl_error *error) {
    char place[SL_MAX_PATH];
    if (w->launcher) await_rest(w);
    await_lock(w);
    if (w->asked || sl_restart_take_mesh(w, mesh, error)) return false;
    const bool found = w->found = find_checkpoint(w);
    is_stuck(w);
    describe_place(w, found, place);
    sl_restart_complete(w, found);
    count_loss(w, SL_LOST_BY_RESIZE, found);
    sl_remark("resized to %s: goes on from %s", mesh, place);
    return true;
}

/* Goes on on the mesh that was asked for. */
static bool resize(struct sl_watcher *w, struct sl_error *error) {
    char mesh[MESH_TEXT];
    snprintf(mesh, sizeof mesh, "%s", w->wanted);
    *w->wanted = '\0';
    sl_mesh_print(&w->mesh, w->back, sizeof w->back);
    return take_mesh(w, mesh, error);
}

/* Goes on on the mesh before: on the one that was asked for, the run has ended as END says, before its first step. */
static bool go_back(struct sl_watcher *w, const char *end, struct sl_error *error) {
    char mesh[MESH_TEXT], text[SL_CONTROL_TEXT];
    snprintf(mesh, sizeof mesh, "%s", w->back);
    *w->back = '\0';
    snprintf(text, sizeof text, "on %s %s before its first step: it goes on on %s", w->mesh_text, end, mesh);
    sl_remark("%s", text);
    sl_restart_answer(w, text);
    return take_mesh(w, mesh, error);
}

/* Whether to start the run again; reports the decision. */
static bool goes_on(struct sl_watcher *w, int status, struct sl_error *error) {
    const int most = w->checkpoints->restart;
    char end[120];
    describe_end(w, status, end, sizeof end);
    if (*w->back && !w->asked && exit_status(status) != SL_OK) return go_back(w, end, error);
    if (is_over(w, status)) return false;
    if (*w->wanted) return resize(w, error);
    if (w->restarts == most) {
        sl_remark("%s; it was started again as often as --restart %d allows", end, most);
        return false;
    }
    if (w->launcher) await_rest(w);
    await_lock(w);
    if (w->asked) return false;
    const bool found = w->found = find_checkpoint(w), stuck = is_stuck(w);
    if (w->stays) sl_remark("%s", w->failure.message);
    if (stuck || (w->resumed && !found)) replace_process(w);
    char why[2 * MESH_TEXT] = "", place[SL_MAX_PATH], mesh[MESH_TEXT];
    describe_place(w, found, place);
    if (sl_restart_mesh_of_hosts(w, mesh)) {
        snprintf(why, sizeof why, " on %s: the launcher's hosts have changed", mesh);
        if (sl_restart_take_mesh(w, mesh, error)) return false;
    } else if (stuck && w->checkpoints->restart_mesh == SL_RESTART_FEWER && sl_restart_take_fewer(w, found)) {
        snprintf(why, sizeof why, " on %s: two runs in a row have saved nothing", w->mesh_text);
        w->fruitless = 0;
        if (sl_restart_begin_words(w, error)) return false;
    }
    sl_restart_complete(w, found);
    count_loss(w, SL_LOST_BY_DEATH, found);
    sl_remark("%s; restart %d of %d goes on from %s%s%s", end, w->restarts + 1, most, place, why,
              w->stays ? ", in the same process" : "");
    return true;
}

/* Whether --resume and --save name one directory. */
static bool resumes_own(const struct sl_watcher *w) {
    const struct sl_checkpoint_options *options = w->checkpoints;
    char *saved = realpath(options->save, NULL), *resumed = options->resume ? realpath(options->resume, NULL) : NULL;
    const bool same = saved && resumed && !strcmp(saved, resumed);
    free(saved);
    free(resumed);
    return same;
}

/* Whether this is the command line of a watcher that died. */
static bool is_repeated(const struct sl_watcher *w) {
    return w->ear[1] >= 0 && sl_command_file_matches(w->checkpoints->save, w->options, w->program, w->command);
}

/* Returns whether the first run continues from a step in memory. An earlier run has left this step if both the run and
 * its watcher died. If the first run does not continue from it, no later one does. */
static bool takes_over(struct sl_watcher *w) {
    const bool wants = w->protects && (is_repeated(w) || resumes_own(w));
    if (wants) await_lock(w);
    if (!wants || w->asked || !find_memory(w, w->before)) {
        w->foreign = sl_protection_step(w->checkpoints->save);
        return false;
    }
    char place[SL_MAX_PATH];
    describe_place(w, true, place);
    count_loss(w, SL_LOST_BY_START, true);
    sl_remark("goes on from %s: an earlier run has left them", place);
    return true;
}

static int supervise(struct sl_watcher *w, struct sl_error *error) {
    int status, before;
    bool again;
    w->before = w->last = sl_checkpoint_last_step(w->checkpoints->save);
    w->found = takes_over(w);
    sl_restart_complete(w, w->found);
    sl_losses_begin(&w->losses, sl_now());
    do {
        before = w->losses.count[SL_LOST_BY_RESIZE];
        w->noted = false;
        w->stale = w->protects ? sl_protection_step(w->checkpoints->save) : -1;
        SL_TRY(start(w, error));
        w->again = true;
        status = await_end(w);
        again = goes_on(w, status, error);
        w->restarts += again && w->losses.count[SL_LOST_BY_RESIZE] == before;
    } while (again);
    if (w->stays) { /* it ends by itself */
        hang_up(w);
        waitpid(w->child, &status, 0);
    }
    sl_restart_answer(w, "the run has ended");
    return exit_status(status);
}

int sl_restart(const struct sl_options *options, const char *command, const struct sl_checkpoint_options *checkpoints,
               const struct sl_common_options *common) {
    struct sl_watcher w = {.options = options,
                           .checkpoints = checkpoints,
                           .command = command,
                           .engine = common->engine,
                           .ear = {-1, -1, -1},
                           .answer = -1,
                           .memory = -1,
                           .foreign = -1};
    struct sl_error error = {0};
    int status = sl_restart_check(&w, &error);
    if (status == SL_OK) status = sl_mesh_parse(&w.mesh, common->mesh, &error);
    if (status == SL_OK) status = sl_restart_begin_words(&w, &error);
    if (status == SL_OK) status = sl_metrics_check(sl_option_file(options, "metrics"), &error);
    w.full = w.mesh;
    if (w.launcher) sl_hosts_open(&w.hosts, w.argv, w.head);
    w.protects = sl_option_given(options, "protect") ? checkpoints->protect : w.launcher != NULL;
    if (status == SL_OK) {
        hold_signals(&w);
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        if (w.protects) w.ear[1] = sl_control_listen(checkpoints->save);
        status = supervise(&w, &error);
        /* If there is no step to continue from: */
        if (w.ear[1] >= 0 && sl_protection_step(checkpoints->save) < 0) sl_command_file_remove(checkpoints->save);
        sl_control_close(w.ear[1], checkpoints->save);
        const int told = sl_losses_report(&w.losses, w.protects, common->json, sl_option_file(options, "metrics"),
                                          status ? NULL : &error);
        if (status == SL_OK) status = told;
    }
    sl_restart_free_words(&w);
    return error.status ? sl_options_report(options, &error) : status;
}
