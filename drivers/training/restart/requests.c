/* requests.c - other meshes for a run that trains: on request, or because the launcher has other hosts. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "drivers/training/restart/command_file.h"
#include "drivers/training/restart/restart_internal.h"
#include "layers/records/snapshot/protection_folder.h"

static const double time_to_step = 30; /* seconds for a run to take the step before a resize */

/* Returns whether the run cannot continue on the mesh TEXT, and writes the reason to REASON. */
static bool refuses_mesh(struct sl_watcher *w, char *text, struct sl_error *reason) {
    const char *launcher = w->checkpoints->launcher;
    struct sl_mesh mesh;
    if (sl_mesh_parse(&mesh, text, reason)) return true;
    if (strlen(text) >= MESH_TEXT) return sl_error_set(reason, SL_BAD_INPUT, "the mesh is too long") != SL_OK;
    if (launcher && strcmp(w->engine, "local") != 0 && !strstr(launcher, "%n") && mesh.size != w->mesh.size)
        return sl_error_set(reason, SL_BAD_INPUT,
                            "--launcher \"%.80s\" starts the same number of processes each time: write %%n in place of "
                            "that number",
                            launcher) != SL_OK;
    if (sl_restart_can_be_planned(w, false, text)) return false;
    return sl_error_set(reason, SL_BAD_INPUT, "the run cannot be planned on %s: --dry-run says why", text) != SL_OK;
}

/* Notes that the run is to continue on MESH after its next step. */
static void want(struct sl_watcher *w, const char *mesh) {
    snprintf(w->wanted, sizeof w->wanted, "%s", mesh);
    w->after = sl_protection_step(w->checkpoints->save);
    w->until = sl_now() + time_to_step;
}

void sl_restart_take_request(struct sl_watcher *w) {
    char text[SL_CONTROL_TEXT];
    struct sl_error reason = {0};
    const int answer = sl_control_take(w->ear[1], text);
    if (answer < 0) return;
    if (w->asked) sl_error_set(&reason, SL_BAD_INPUT, "the run ends, by signal %d", w->asked);
    if (*w->wanted || w->answer >= 0) sl_error_set(&reason, SL_BAD_INPUT, "the run is changing already");
    if (reason.status || refuses_mesh(w, text, &reason)) {
        sl_control_answer(answer, reason.message);
        return;
    }
    want(w, text);
    w->answer = answer;
}

void sl_restart_look_at_hosts(struct sl_watcher *w) {
    char mesh[MESH_TEXT];
    if (!w->asked && !*w->wanted && w->answer < 0 && sl_restart_mesh_of_hosts(w, mesh)) want(w, mesh);
}

void sl_restart_answer(struct sl_watcher *w, const char *text) {
    sl_control_answer(w->answer, text);
    w->answer = -1;
}

/* Notes the command line once the run has a step in memory: steps of other runs are gone then. */
static void note_command(struct sl_watcher *w) {
    if (w->ear[1] >= 0 && !w->noted) sl_command_file_write(w->checkpoints->save, w->options, w->program, w->command);
    w->noted = true;
}

void sl_restart_note_step(struct sl_watcher *w) {
    char text[SL_CONTROL_TEXT];
    const int64_t step = sl_protection_step(w->checkpoints->save);
    if (step < 0) w->stale = w->foreign = -1; /* the run has removed them */
    if (step < 0 || step == w->stale) return;
    w->foreign = -1;
    note_command(w);
    const double pause = sl_losses_end(&w->losses, step);
    *w->back = '\0';
    if (w->answer < 0 || *w->wanted) return;
    snprintf(text, sizeof text, SL_CONTROL_DONE "to %s after %" PRId64 " steps; %.1f MB moved, paused %.0f ms",
             w->mesh_text, w->begins, 1e-6 * w->bytes, 1e3 * pause);
    sl_restart_answer(w, text);
    w->full = w->mesh;
}

bool sl_restart_is_due(struct sl_watcher *w) {
    if (!*w->wanted || w->asked) return false;
    const int64_t step = sl_protection_step(w->checkpoints->save);
    const bool leaves = sl_protection_ask_to_leave(w->checkpoints->save);
    if (leaves ? sl_protection_has_left(w->checkpoints->save) : step > w->after) return true;
    if (step > w->after) w->until = sl_now() + time_to_step; /* a run leaves its hosts two steps later */
    if (step > w->after) w->after = step;
    if (sl_now() <= w->until) return false;
    if (step >= 0) return true;
    *w->wanted = '\0';
    sl_restart_answer(w, "the run has no step in memory to go on from");
    return false;
}
