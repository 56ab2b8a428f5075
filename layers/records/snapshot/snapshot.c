/* snapshot.c - a copy of a run in memory, and the thread for writing it. */
#include "layers/records/snapshot/snapshot.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "layers/records/snapshot/saved_parts_internal.h"
#include "layers/training/replicas.h"
#include "spmd/base/memory.h"

struct sl_snapshot {
    /* Owned by the thread while a copy is being written, otherwise by coordinate 0. */
    struct sl_store store;
    char directory[SL_MAX_PATH];
    int64_t step;
    int keep;
    int64_t best;
    int part, parts;       /* from 1; 0: one file */
    struct sl_store whole; /* with parts: whole tensors, in the process with the index */
    /* Owned by coordinate 0, or with parts by each coordinate. */
    float *memory; /* of the tensors */
    struct sl_snapshot_account account;
    /* Shared, protected by the mutex. */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool writes, ends;
    bool gives_up;         /* no more parts will come */
    struct sl_error error; /* of the first failed write */
    pthread_t thread;
};

/* In nanoseconds. */
enum { PAUSE = 20000000, LOOK = 5000000 };

/* Waits for a change, at most NANOSECONDS; the mutex is held. */
static void pause_for(struct sl_snapshot *s, long nanoseconds) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += nanoseconds;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&s->changed, &s->mutex, &until);
}

/* ---- the thread ---- */

/* Returns true once part PATH exists, under its final name; false: it will not come. */
static bool await_part(struct sl_snapshot *s, const char *path) {
    bool given_up = false;
    while (access(path, F_OK)) {
        if (given_up) return false;
        pthread_mutex_lock(&s->mutex);
        if (!s->gives_up) pause_for(s, LOOK);
        given_up = s->gives_up;
        pthread_mutex_unlock(&s->mutex);
    }
    return true;
}

static int find_root(struct sl_snapshot *s, int part, uint64_t *root, struct sl_error *error) {
    char path[SL_MAX_PATH];
    struct sl_store there = {0};
    SL_TRY(sl_checkpoint_part_name(s->directory, s->step, part, s->parts, path, error));
    if (!await_part(s, path)) return sl_error_set(error, SL_FAILED, "%s: has not been written", path);
    const int status = sl_safetensors_map(&there, path, error);
    *root = there.root;
    sl_store_free(&there);
    return status;
}

static void write_part(struct sl_snapshot *s, struct sl_error *error) {
    uint64_t root[s->parts];
    char path[SL_MAX_PATH];
    int status = sl_checkpoint_part_name(s->directory, s->step, s->part, s->parts, path, error);
    if (status == SL_OK) status = sl_safetensors_write(&s->store, path, error);
    for (int part = 1; part <= s->parts && s->part == 1 && status == SL_OK; part++)
        status = find_root(s, part, &root[part - 1], error);
    if (status) error->status = SL_FAILED; /* it could be written when the run began */
    if (s->part != 1 || status) return;
    sl_saved_parts_index(&s->whole, s->directory, s->step, s->parts, root, error);
    if (!error->status) sl_checkpoint_prune(s->directory, s->step, s->keep, s->best, error);
}

static void write_copy(struct sl_snapshot *s, struct sl_error *error) {
    char path[SL_MAX_PATH];
    if (s->parts) {
        write_part(s, error);
        return;
    }
    if (sl_checkpoint_name(s->directory, s->step, path, error)) return;
    if (sl_safetensors_write(&s->store, path, error))
        error->status = SL_FAILED; /* it could be written when the run began */
    else
        sl_checkpoint_prune(s->directory, s->step, s->keep, s->best, error);
}

static void *write_copies(void *arg) {
    struct sl_snapshot *s = arg;
    pthread_mutex_lock(&s->mutex);
    for (;;) {
        while (!s->writes && !s->ends) pthread_cond_wait(&s->changed, &s->mutex);
        if (!s->writes) break;
        struct sl_error error = {0};
        pthread_mutex_unlock(&s->mutex);
        write_copy(s, &error);
        pthread_mutex_lock(&s->mutex);
        if (!s->error.status) s->error = error;
        s->writes = false;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

/* Starts the thread with all signals blocked: other threads handle them. */
static int start_thread(struct sl_snapshot *s) {
    sigset_t all, usual;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &usual);
    const int refused = pthread_create(&s->thread, NULL, write_copies, s);
    pthread_sigmask(SIG_SETMASK, &usual, NULL);
    return refused;
}

int sl_snapshot_start(struct sl_snapshot **snapshot, struct sl_error *error) {
    struct sl_snapshot *s = calloc(1, sizeof *s);
    *snapshot = NULL;
    if (!s) return sl_error_set(error, SL_FAILED, "no memory to save in the background");
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->changed, NULL);
    const int refused = start_thread(s);
    if (!refused) {
        *snapshot = s;
        return SL_OK;
    }
    free(s);
    return sl_error_set(error, SL_FAILED, "no thread to save in the background: %s", strerror(refused));
}

void sl_snapshot_close(struct sl_snapshot *s) {
    if (!s) return;
    pthread_mutex_lock(&s->mutex);
    s->ends = s->gives_up = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
    pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->mutex);
    for (int i = 0; i < s->store.count; i++) s->store.tensor[i].array.data = NULL; /* part of `memory` */
    sl_store_free(&s->store);
    sl_store_free(&s->whole);
    sl_memory_give(s->memory);
    free(s);
}

/* Returns once no copy is being written. Meanwhile reports progress to other coordinates; SL_FAILED once the run has
 * ended. */
static int await(struct sl_snapshot *s, struct sl_spmd *self, struct sl_error *error) {
    const double began = sl_now();
    int status = SL_OK;
    pthread_mutex_lock(&s->mutex);
    while (s->writes && status == SL_OK) {
        pause_for(s, PAUSE);
        pthread_mutex_unlock(&s->mutex);
        status = sl_progress(self);
        pthread_mutex_lock(&s->mutex);
    }
    *error = s->error;
    pthread_mutex_unlock(&s->mutex);
    s->account.waited += sl_now() - began;
    return status;
}

static void hand_over(struct sl_snapshot *s) {
    pthread_mutex_lock(&s->mutex);
    s->writes = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

bool sl_snapshot_has_failed(struct sl_snapshot *s) {
    if (!s) return false;
    pthread_mutex_lock(&s->mutex);
    const bool failed = s->error.status != SL_OK;
    pthread_mutex_unlock(&s->mutex);
    return failed;
}

struct sl_snapshot_account sl_snapshot_account(const struct sl_snapshot *s) { return s->account; }

/* ---- memory ---- */

static size_t bytes_of(const struct sl_store *store) {
    size_t bytes = 0;
    for (int i = 0; i < store->count; i++) bytes += sl_tensor_bytes(&store->tensor[i]);
    return bytes;
}

static int plan_part(struct sl_spmd *self, struct sl_trainer *trainer, struct sl_budget *budget) {
    struct sl_store own = {0}, whole = {0};
    const int status = sl_saved_parts_declare(self, trainer, &own, &whole);
    sl_budget_add(budget, SL_MEMORY_RUNTIME, bytes_of(&own));
    sl_store_free(&own);
    sl_store_free(&whole);
    return status;
}

/* Without communication, as in planning alone, peers do not answer, and stages are assumed to be equal. */
int sl_snapshot_plan_bytes(struct sl_spmd *self, struct sl_trainer *trainer, bool parts, struct sl_budget *budget) {
    if (parts) return plan_part(self, trainer, budget);
    const struct sl_group *world = sl_trainer_world(trainer);
    struct sl_store store = {0};
    float said = 1;
    int status = sl_checkpoint_declare(self, trainer, &store);
    if (status == SL_OK) status = sl_psum(self, world, SL_F32, &said, &said, 1);
    const int ranks = said == (float)world->size ? 1 : sl_trainer_options_of(trainer)->pipeline.schedule->ranks;
    if (self->coordinate == 0) sl_budget_add(budget, SL_MEMORY_RUNTIME, bytes_of(&store) * (size_t)ranks);
    sl_store_free(&store);
    return status;
}

static void take(struct sl_snapshot *s, struct sl_spmd *self, struct sl_error *error) {
    const size_t bytes = bytes_of(&s->store);
    s->memory = sl_memory_take(bytes);
    if (!s->memory) {
        sl_error_set(error, SL_FAILED, "no memory for a copy of the run, %zu bytes, to save it in the background",
                     bytes);
        return;
    }
    sl_memory_touch(s->memory, bytes);
    sl_budget_add(&self->held, SL_MEMORY_RUNTIME, bytes);
    s->account.bytes = bytes;
    float *place = s->memory;
    for (int i = 0; i < s->store.count; i++) {
        s->store.tensor[i].array.data = place;
        place += sl_array_elements(&s->store.tensor[i].array);
    }
}

static int open_part(struct sl_snapshot *s, struct sl_spmd *self, struct sl_trainer *trainer) {
    struct sl_error error = {0}, first;
    s->part = self->coordinate + 1;
    s->parts = self->mesh->size;
    SL_TRY(sl_saved_parts_declare(self, trainer, &s->store, &s->whole));
    take(s, self, &error);
    return sl_saved_parts_agree(self, trainer, &error, &first, 0, NULL);
}

int sl_snapshot_open(struct sl_snapshot *s, struct sl_spmd *self, struct sl_trainer *trainer, bool parts) {
    struct sl_error error = {0};
    if (parts) return open_part(s, self, trainer);
    const bool has_copy = self->coordinate == 0;
    SL_TRY(sl_checkpoint_declare(self, trainer, s ? &s->store : NULL));
    if (has_copy) take(s, self, &error);
    return sl_checkpoint_agree(self, trainer, &error);
}

/* ---- saving ---- */

static struct sl_error error_of(struct sl_snapshot *s) {
    pthread_mutex_lock(&s->mutex);
    const struct sl_error error = s->error;
    pthread_mutex_unlock(&s->mutex);
    return error;
}

/* Returns once all parts are written, on all coordinates; the index may still be in progress. Coordinate 0's thread
 * waits for the others' parts, so coordinate 0 does not wait for its thread before knowing of them. Collective. */
static int await_parts(struct sl_snapshot *s, struct sl_spmd *self, struct sl_trainer *trainer) {
    struct sl_error error = {0}, first;
    if (s->part != 1) SL_TRY(await(s, self, &error));
    if (s->part == 1) error = error_of(s);
    return sl_saved_parts_agree(self, trainer, &error, &first, 0, NULL);
}

int sl_snapshot_wait(struct sl_snapshot *s, struct sl_spmd *self, struct sl_trainer *trainer) {
    struct sl_error error = {0};
    if (s && s->parts) SL_TRY(await_parts(s, self, trainer));
    if (self->coordinate == 0) SL_TRY(await(s, self, &error));
    return sl_checkpoint_agree(self, trainer, &error);
}

/* Fills in the store, which coordinate 0 owns again. */
static void describe(struct sl_snapshot *s, struct sl_trainer *trainer, const char *directory,
                     const struct sl_checkpoint *about, const struct sl_setting *settings, const struct sl_store *notes,
                     int keep, int64_t best, struct sl_error *error) {
    struct sl_store *noted = s->parts ? &s->whole : &s->store;
    s->step = sl_trainer_steps(trainer);
    s->keep = keep;
    s->best = best;
    const int length = snprintf(s->directory, sizeof s->directory, "%s", directory);
    if (length >= SL_MAX_PATH)
        sl_error_set(error, SL_BAD_INPUT, "%.100s...: the path is too long", directory);
    else if (sl_checkpoint_note(noted, trainer, about, settings, notes))
        sl_error_set(error, SL_FAILED, "%s: no memory to save the run", directory);
}

/* Removes files with the names of this step's parts: a killed run may have left a part, which would be mistaken for a
 * new one. */
static void clear_step(const struct sl_snapshot *s, struct sl_error *error) {
    char path[SL_MAX_PATH];
    for (int part = 1; part <= s->parts && !error->status; part++) {
        sl_checkpoint_part_name(s->directory, s->step, part, s->parts, path, error);
        if (!error->status && unlink(path) && errno != ENOENT)
            sl_error_set(error, SL_FAILED, "%s: cannot be removed: %s", path, strerror(errno));
    }
}

/* Copies each coordinate's own part, and starts to write it. */
static int save_part(struct sl_snapshot *s, struct sl_spmd *self, struct sl_trainer *trainer, const char *directory,
                     const struct sl_checkpoint *about, const struct sl_setting *settings, const struct sl_store *notes,
                     int keep, int64_t best) {
    struct sl_error error = {0}, first;
    SL_TRY(await_parts(s, self, trainer));
    if (s->part == 1) SL_TRY(await(s, self, &error));
    if (!error.status) describe(s, trainer, directory, about, settings, notes, keep, best, &error);
    if (!error.status && sl_saved_parts_note(self, trainer, &s->store))
        sl_error_set(&error, SL_FAILED, "%s: no memory to save the run", directory);
    if (!error.status && s->part == 1) clear_step(s, &error);
    SL_TRY(sl_saved_parts_agree(self, trainer, &error, &first, 0, NULL));
    const double began = sl_now();
    SL_TRY(sl_saved_parts_export(self, trainer, &s->store, NULL));
    if (about->compares) SL_TRY(sl_check_replicas(self, trainer));
    s->account.copied += sl_now() - began;
    s->account.copies++;
    hand_over(s);
    return SL_OK;
}

int sl_snapshot_save(struct sl_snapshot *s, struct sl_spmd *self, struct sl_trainer *trainer, const char *directory,
                     const struct sl_checkpoint *about, const struct sl_setting *settings, const struct sl_store *notes,
                     int keep, int64_t best) {
    struct sl_error error = {0};
    const bool has_copy = self->coordinate == 0;
    if (s && s->parts) return save_part(s, self, trainer, directory, about, settings, notes, keep, best);
    if (has_copy) SL_TRY(await(s, self, &error));
    if (has_copy && !error.status) describe(s, trainer, directory, about, settings, notes, keep, best, &error);
    SL_TRY(sl_checkpoint_agree(self, trainer, &error));
    const double began = sl_now();
    SL_TRY(sl_checkpoint_copy(self, trainer, s ? &s->store : NULL));
    if (about->compares) SL_TRY(sl_check_replicas(self, trainer));
    if (!has_copy) return SL_OK;
    s->account.copied += sl_now() - began;
    s->account.copies++;
    hand_over(s);
    return SL_OK;
}
