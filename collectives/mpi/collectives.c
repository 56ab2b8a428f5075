/* collectives.c - groups of the mpi engine, and calls from their start to their end. exchange.c and mailbox.c move
 * their data.
 *
 * Call number n of a group is in the group's slot n % SL_MAX_IN_FLIGHT, which has its own tags. A wait for one call
 * advances all calls under way: a peer may need another one first. */
#include "collectives/mpi/hosts.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "spmd/base/hash.h"

/* ---- groups ---- */

static uint64_t hash_of(const struct sl_group *group) {
    enum { AT_ONCE = 64 };
    uint64_t hash = 0;
    for (int i = 0; i < group->size;) {
        struct {
            uint64_t before;
            int member[AT_ONCE];
        } some = {.before = hash};
        for (int k = 0; k < AT_ONCE && i < group->size; k++, i++) some.member[k] = sl_group_member(group, i);
        hash = sl_hash(&some, sizeof some);
    }
    return hash;
}

static void free_communicator(struct sl_mpi_communicator *communicator) {
    sl_mpi_buffers_close(communicator);
    sl_mpi_leave_mailboxes(communicator);
    free(communicator->input);
    free(communicator->requests);
    free(communicator->signatures);
    free(communicator);
}

static struct sl_mpi_communicator *new_communicator(struct sl_mpi_run *run, const struct sl_group *group, int number) {
    const size_t size = (size_t)group->size, slots = SL_MAX_IN_FLIGHT;
    struct sl_mpi_communicator *communicator = calloc(1, sizeof *communicator);
    if (!communicator) return NULL;
    communicator->group = *group;
    communicator->number = number;
    if (!sl_mpi_take_mailboxes(communicator)) {
        free_communicator(communicator);
        return NULL;
    }
    const bool shared = communicator->mailboxes && !communicator->hosts, signs = run->engine->checked || !shared;
    const size_t least = 2 * SL_MPI_UNDER_WAY, width = shared ? 0 : size > least ? size : least;
    const size_t moving = 2 * width, requests = moving + (signs ? 2 * size : 0); /* per slot */
    communicator->input = malloc(size * sizeof *communicator->input);
    communicator->requests = malloc((slots * requests + 1) * sizeof *communicator->requests);
    communicator->signatures = calloc(signs ? slots * size : 1, sizeof *communicator->signatures);
    if (!communicator->input || !communicator->requests || !communicator->signatures) {
        free_communicator(communicator);
        return NULL;
    }
    communicator->members = hash_of(group);
    snprintf(communicator->name, sizeof communicator->name, "over \"%s\"", group->name);
    for (size_t i = 0; i < slots * requests; i++) communicator->requests[i] = MPI_REQUEST_NULL;
    for (size_t slot = 0; slot < slots; slot++) {
        MPI_Request *request = communicator->requests + slot * requests;
        communicator->call[slot] = (struct sl_mpi_call){
            .run = run,
            .communicator = communicator,
            .slot = (int)slot,
            .receive = shared ? NULL : request,
            .send = shared ? NULL : request + width,
            .width = (int)width,
            .hear = signs ? request + moving : NULL,
            .tell = signs ? request + moving + size : NULL,
            .theirs = signs ? communicator->signatures + slot * size : NULL,
        };
    }
    return communicator;
}

/* All coordinates open the same groups in the same order: a group's number is the same everywhere. */
int sl_mpi_group_open(struct sl_spmd *self, struct sl_group *group) {
    struct sl_mpi_run *run = sl_mpi_self(self);
    if (run->status) return sl_mpi_turn(run);
    const int number = run->groups++;
    if (group->rank < 0) return SL_OK;
    struct sl_mpi_communicator *communicator = new_communicator(run, group, number);
    if (!communicator) return sl_fail(self, SL_FAILED, "no memory for the group \"%s\"", group->name);
    communicator->next = run->communicators;
    run->communicators = communicator;
    if (sl_mpi_tag_of(communicator, SL_MAX_IN_FLIGHT - 1, SL_MPI_KINDS - 1) < 0)
        return sl_fail(self, SL_FAILED, "the group \"%s\" is number %d: this MPI has no tags for so many", group->name,
                       number);
    group->communicator = communicator;
    return SL_OK;
}

/* ---- calls under way ---- */

/* Advances the call as far as possible. Returns whether it is over, including its signatures. */
static bool advance(struct sl_mpi_call *c) {
    if (sl_mpi_unheard(c) >= 0 && !sl_mpi_compare(c)) return false;
    if (c->theirs && sl_mpi_uncompared(c) >= 0) return false;
    if (c->phase == SL_MPI_COMPARING) sl_mpi_begin(c);
    sl_mpi_move_on(c);
    return c->phase == SL_MPI_IDLE && sl_mpi_unheard(c) < 0;
}

static void advance_all(struct sl_mpi_run *run) {
    if (run->status) return;
    run->moves_by_mpi = false;
    for (struct sl_mpi_call **at = &run->active; *at && !run->proposed && !run->status;) {
        struct sl_mpi_call *c = *at;
        if (advance(c)) {
            *at = c->next;
            c->active = false;
        } else {
            at = &c->next;
            run->moves_by_mpi |= c->route->polls(c) || sl_mpi_unheard(c) >= 0;
        }
    }
}

static bool has_ended(void *of) { return ((struct sl_mpi_call *)of)->phase == SL_MPI_IDLE; }
static bool is_free(void *of) { return !((struct sl_mpi_call *)of)->active; }

/* The member of the first receive, or send, under way; -1: none. */
static int find_pending(const struct sl_mpi_call *c, bool receives) {
    const MPI_Request *request = receives ? c->receive : c->send;
    for (int i = 0; i < c->width; i++)
        if (sl_mpi_is_pending(request[i])) return c->route->peer(c, i, receives);
    return -1;
}

/* A coordinate that has not done its part yet, or -1. */
static int laggard(void *of) {
    struct sl_mpi_call *c = of;
    int peer = c->theirs && c->phase != SL_MPI_IDLE ? sl_mpi_uncompared(c) : -1;
    if (peer < 0 && c->phase == SL_MPI_FIRST && c->route->laggard) peer = c->route->laggard(c);
    if (peer < 0) peer = find_pending(c, true);
    if (peer < 0) peer = find_pending(c, false);
    if (peer < 0) peer = sl_mpi_unheard(c);
    return peer < 0 ? -1 : sl_group_member(c->call.group, peer);
}

/* ---- after the end of the run ---- */

static void withdraw(struct sl_mpi_run *run, double end) {
    for (struct sl_mpi_call *c = run->active; c; c = c->next) {
        for (int i = 0; i < c->width; i++) sl_mpi_withdraw_receive(&c->receive[i], end);
        for (int peer = 0; peer < c->call.group->size && c->hear; peer++) sl_mpi_withdraw_receive(&c->hear[peer], end);
    }
}

/* Waits until no peer reads the program's memory any more, which may then be freed. A peer that does not answer counts
 * as gone. */
static void settle(struct sl_mpi_call *c) {
    const double end = sl_now() + 2;
    for (int i = 0, round = 0; i < c->width && sl_now() < end;) {
        const bool sends = sl_mpi_is_pending(c->send[i]);
        if (sends && !sl_mpi_is_quiet(c->run, sl_group_member(c->call.group, c->route->peer(c, i, false)))) {
            sl_mpi_turn(c->run);
            sl_mpi_pause(round++);
        } else {
            i++;
        }
    }
}

/* ---- the public calls ---- */

static struct sl_mpi_call *slot_of(const struct sl_request *request) {
    struct sl_mpi_communicator *communicator = request->call.group->communicator;
    return &communicator->call[request->ticket % SL_MAX_IN_FLIGHT];
}

static int enter(struct sl_mpi_run *run, const struct sl_request *request) {
    const struct sl_collective *call = &request->call;
    const struct sl_mpi_communicator *communicator = call->group->communicator;
    return sl_mpi_enter(run, sl_collective_name(call), communicator->name, call->site);
}

/* Frees the slot for a new call: in checked mode waits for the signatures of the earlier call. */
static int free_slot(struct sl_mpi_run *run, struct sl_mpi_call *c, const struct sl_collective *call) {
    if (c->claimed)
        return sl_fail(&run->spmd, SL_BAD_INPUT, "%s over \"%s\": more than %d calls are under way (called at %s)",
                       sl_collective_name(call), call->group->name, SL_MAX_IN_FLIGHT, call->site);
    return sl_mpi_wait(run, &(struct sl_mpi_wait){is_free, laggard, c, true});
}

/* Ends the request; the call or the run is over. */
static int conclude(struct sl_request *request, int status) {
    if (status) settle(slot_of(request));
    slot_of(request)->claimed = request->moved = false;
    return status;
}

int sl_mpi_start(struct sl_spmd *self, struct sl_request *request) {
    struct sl_mpi_run *run = sl_mpi_self(self);
    struct sl_mpi_communicator *communicator = request->call.group->communicator;
    request->ticket = communicator->started;
    struct sl_mpi_call *c = slot_of(request);
    SL_TRY(enter(run, request));
    if (sl_block_elements(&request->call) > INT_MAX)
        return sl_fail(self, SL_BAD_INPUT, "%s over \"%s\": %zu elements, at most %d are possible (called at %s)",
                       sl_collective_name(&request->call), request->call.group->name, sl_block_elements(&request->call),
                       INT_MAX, request->call.site);
    SL_TRY(free_slot(run, c, &request->call));
    communicator->started++;
    c->call = request->call;
    c->call.group = &communicator->group;
    c->route = sl_mpi_route_of(communicator, &c->call);
    SL_TRY(sl_mpi_set_aside(c));
    if (c->theirs) sl_mpi_exchange_signatures(c);
    if (!self->engine->checked) sl_mpi_begin(c); /* received data is not used before the calls have been compared */
    c->claimed = request->moved = true;
    c->active = true;
    c->next = run->active;
    run->active = c;
    return sl_mpi_turn(run) ? conclude(request, SL_FAILED) : SL_OK;
}

int sl_mpi_test(struct sl_spmd *self, struct sl_request *request, bool *done) {
    struct sl_mpi_run *run = sl_mpi_self(self);
    *done = false;
    int status = enter(run, request);
    if (!status) status = sl_mpi_turn(run);
    if (status) return conclude(request, status);
    *done = has_ended(slot_of(request));
    return *done ? conclude(request, SL_OK) : SL_OK;
}

int sl_mpi_finish(struct sl_spmd *self, struct sl_request *request) {
    struct sl_mpi_run *run = sl_mpi_self(self);
    const struct sl_collective *call = &request->call;
    if (!request->moved && run->status) return sl_mpi_turn(run); /* it has ended with the run */
    if (!request->moved)
        return sl_fail(self, SL_BAD_INPUT, "%s over \"%s\": waited for twice (called at %s)", sl_collective_name(call),
                       call->group->name, call->site);
    int status = enter(run, request);
    if (!status) status = sl_mpi_wait(run, &(struct sl_mpi_wait){has_ended, laggard, slot_of(request), true});
    return conclude(request, status);
}

/* ---- closing ---- */

/* In checked mode, waits for signatures of ended calls. */
int sl_mpi_group_close(struct sl_spmd *self, struct sl_group *group, const char *site) {
    struct sl_mpi_run *run = sl_mpi_self(self);
    struct sl_mpi_communicator *communicator = group->communicator, **at = &run->communicators;
    for (int slot = 0; slot < SL_MAX_IN_FLIGHT; slot++) {
        if (!communicator->call[slot].claimed) continue;
        return sl_fail(self, SL_BAD_INPUT, "the group \"%s\" has calls under way (closed at %s)", group->name, site);
    }
    SL_TRY(sl_mpi_enter(run, "closing", "a group", site));
    for (int slot = 0; slot < SL_MAX_IN_FLIGHT; slot++)
        SL_TRY(sl_mpi_wait(run, &(struct sl_mpi_wait){is_free, laggard, &communicator->call[slot], true}));
    while (*at != communicator) at = &(*at)->next;
    *at = communicator->next;
    free_communicator(communicator);
    return SL_OK;
}

static bool is_sending(const struct sl_mpi_run *run) {
    for (const struct sl_mpi_call *c = run->active; c; c = c->next) {
        if (c->phase != SL_MPI_IDLE) return true;
        for (int peer = 0; peer < c->call.group->size && c->tell; peer++)
            if (sl_mpi_is_pending(c->tell[peer])) return true;
    }
    return false;
}

static void close_all(struct sl_mpi_run *run) {
    while (run->communicators) {
        struct sl_mpi_communicator *communicator = run->communicators;
        run->communicators = communicator->next;
        free_communicator(communicator);
    }
}

const struct sl_mpi_carrier sl_mpi_groups = {advance_all, withdraw, is_sending, close_all};
