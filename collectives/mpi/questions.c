/* questions.c - questions, answers and the end of a run: messages between processes besides data.
 *
 * Verdicts on a wait:
 *
 * - A coordinate's process has ended; others on its host find out.
 *
 * - The peer has not answered for the engine's timeout. Every process answers when it waits, calls or calls
 * sl_progress.
 *
 * - The peer has returned from its program and has nothing left to send. Its last messages are given some time to
 * arrive.
 *
 * - The peer itself waits in a circle of coordinates, in which no wait has ended for the engine's timeout. Answers do
 * not say whether data is still on its way, so this is a decision, as absence is. */
#include "collectives/mpi/word.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { QUESTION, ANSWER, PROPOSAL, END, QUIET, WAITING };
enum state { COMPUTES, WAITS, HAS_RETURNED, HAS_RETURNED_AND_SENDS };

static const double time_to_arrive = 0.3; /* seconds, for a peer's messages sent before its return */
static const double last_moments = 0.4;   /* seconds, to reach a verdict before the launcher's second signal */

/* ---- messages ---- */

/* Outgoing messages: few, and none without trouble; and unused ones. They belong to the process, as MPI's state does.
 */
struct outgoing {
    struct outgoing *next;
    MPI_Request request;
    struct sl_mpi_message message;
};
static struct outgoing *outgoing, *spare;
static struct sl_mpi_message incoming;
static MPI_Request receive = MPI_REQUEST_NULL;

static void sweep(void) {
    for (struct outgoing **at = &outgoing; *at;) {
        struct outgoing *one = *at;
        int sent;
        if (MPI_Test(&one->request, &sent, MPI_STATUS_IGNORE) == MPI_SUCCESS && !sent) {
            at = &one->next;
        } else {
            *at = one->next;
            one->next = spare;
            spare = one;
        }
    }
}

bool sl_mpi_provide_messages(int count) {
    for (int i = 0; i < count; i++) {
        struct outgoing *one = malloc(sizeof *one);
        if (!one) return false;
        one->next = spare;
        spare = one;
    }
    return true;
}

static void post(struct sl_mpi_run *run, int to, const struct sl_mpi_message *message) {
    if (!spare && !sl_mpi_provide_messages(1)) return; /* the question will be repeated */
    struct outgoing *one = spare;
    spare = one->next;
    *one = (struct outgoing){.next = outgoing, .message = *message};
    one->message.run = run->number;
    one->message.from = sl_mpi_process()->rank;
    MPI_Isend(&one->message, sizeof one->message, MPI_BYTE, to, 0, sl_mpi_process()->comm, &one->request);
    sl_mpi_ring_for_letter(to);
    outgoing = one;
}

static void post_to_others(struct sl_mpi_run *run, const struct sl_mpi_message *message) {
    for (int rank = 0; rank < sl_mpi_process()->size; rank++) {
        if (rank != sl_mpi_process()->rank && !sl_mpi_is_gone(rank)) post(run, rank, message);
    }
}

/* ---- the end ---- */

static int peer_of(const struct sl_mpi_run *run) { return run->wait->peer(run->wait->of); }

static void hear_waiting(struct sl_mpi_run *run, const struct sl_mpi_message *message) {
    struct sl_waits *waits = run->engine->waits;
    if (!waits || message->from >= run->mesh->size) return;
    memcpy(&waits->coordinate[message->from], message->text, sizeof *waits->coordinate);
    run->heard |= sl_set_adds(run->told, message->from);
}

/* Reports this coordinate's wait at the end of the run, to WHO, the rank of the printing process. */
static void tell_waiting(struct sl_mpi_run *run, int who) {
    struct sl_mpi_message message = {.kind = WAITING, .from = sl_mpi_process()->rank};
    struct sl_waiting own;
    _Static_assert(sizeof own <= sizeof message.text, "it travels as text does");
    const int peer = run->wait ? peer_of(run) : -1;
    sl_waiting_note(&own, run->returned ? SL_RETURNED : peer >= 0 ? SL_WAITS : SL_COMPUTES, peer, &run->place);
    memcpy(message.text, &own, sizeof own);
    if (who == sl_mpi_process()->rank)
        hear_waiting(run, &message);
    else if (run->spmd.coordinate < run->mesh->size)
        post(run, who, &message);
}

/* The first verdict is the run's. */
static void adopt(struct sl_mpi_run *run, const struct sl_mpi_message *end) {
    if (run->status) return;
    run->status = end->status;
    run->verdict.status = end->status;
    memcpy(run->verdict.message, end->text, sizeof run->verdict.message);
    sl_mpi_process()->speaker = end->from;
    run->absent = end->peer;
    if (run->absent >= 0) sl_set_adds(run->quiet, run->absent);
    if (end->number && run->engine->waits) tell_waiting(run, end->from);
}

/* Ends the run for all; this process prints the verdict. */
static void announce(struct sl_mpi_run *run, const struct sl_mpi_message *proposal) {
    struct sl_mpi_message end = *proposal;
    if (run->status) return;
    end.kind = END;
    end.from = sl_mpi_process()->rank;
    post_to_others(run, &end);
    adopt(run, &end);
}

/* The arbiter: the first coordinate. If a process has ended, only its host knows, and its peers on other hosts may be
 * stuck in their network: then the first coordinate on that host. */
static int find_arbiter(const struct sl_mpi_run *run, int absent) {
    for (int coordinate = 0; coordinate < sl_mpi_process()->size; coordinate++) { /* or a process beyond the mesh */
        const bool close = absent < 0 || !sl_mpi_is_gone(absent) || sl_mpi_is_neighbour(coordinate);
        if (coordinate != absent && close) return coordinate;
    }
    return run->spmd.coordinate;
}

static void propose(struct sl_mpi_run *run, int status, int absent, bool waits, const struct sl_error *verdict) {
    const int arbiter = find_arbiter(run, absent);
    if (run->status || run->proposed || (run->returned && absent < 0)) return;
    run->proposed = true;
    run->proposed_at = sl_now();
    run->proposal = (struct sl_mpi_message){.kind = PROPOSAL, .status = status, .peer = absent, .number = waits};
    memcpy(run->proposal.text, verdict->message, sizeof run->proposal.text);
    if (arbiter == run->spmd.coordinate) {
        announce(run, &run->proposal);
    } else {
        post(run, arbiter, &run->proposal);
    }
}

void sl_mpi_propose(struct sl_mpi_run *run, int status, int absent, const struct sl_error *verdict) {
    propose(run, status, absent, false, verdict);
}

/* If the arbiter does not answer in time, this process ends the run itself. Of several that do, one of each host
 * prints the verdict. */
static void end_alone(struct sl_mpi_run *run) {
    const double patience = sl_mpi_terminated() ? last_moments / 2 : run->engine->timeout;
    if (!run->proposed || run->status || sl_now() < run->proposed_at + patience) return;
    announce(run, &run->proposal);
    if (!sl_mpi_claim_word()) sl_mpi_process()->speaker = -1;
}

/* Neighbours read it on the board. */
void sl_mpi_say_quiet(struct sl_mpi_run *run) {
    const int me = sl_mpi_process()->rank;
    sl_mpi_note_quiet(run->number);
    const bool noted = sl_mpi_is_noted_quiet(me, run->number);
    for (int rank = 0; rank < sl_mpi_process()->size; rank++)
        if (rank != me && !(noted && sl_mpi_is_neighbour(rank)) && !sl_mpi_is_gone(rank))
            post(run, rank, &(struct sl_mpi_message){.kind = QUIET});
}

bool sl_mpi_is_quiet(const struct sl_mpi_run *run, int coordinate) {
    return sl_set_has(run->quiet, coordinate) || sl_mpi_is_noted_quiet(coordinate, run->number);
}

/* ---- answers ---- */

bool sl_mpi_is_sending(const struct sl_mpi_run *run) {
    for (int i = 0; i < SL_MPI_CARRIERS; i++)
        if (run->carrier[i]->is_sending(run)) return true;
    return false;
}

static struct sl_mpi_note note_of(struct sl_mpi_run *run) {
    struct sl_mpi_note note = {.run = run->number, .state = COMPUTES, .peer = -1, .number = run->waits};
    sl_last_call_describe(&run->place, note.place, sizeof note.place);
    if (run->wait) {
        note.peer = peer_of(run);
        note.state = note.peer >= 0 ? WAITS : COMPUTES;
    } else if (run->returned) {
        note.state = sl_mpi_is_sending(run) ? HAS_RETURNED_AND_SENDS : HAS_RETURNED;
    }
    return note;
}

void sl_mpi_note_state(struct sl_mpi_run *run) {
    const struct sl_mpi_note note = note_of(run);
    sl_mpi_write_note(&note);
}

static struct sl_mpi_message answer_of(const struct sl_mpi_note *note, int from) {
    struct sl_mpi_message message = {.kind = ANSWER,
                                     .run = note->run,
                                     .from = from,
                                     .status = note->state,
                                     .peer = note->peer,
                                     .number = note->number};
    memcpy(message.text, note->place, sizeof note->place);
    return message;
}

static void answer(struct sl_mpi_run *run, int to) {
    const struct sl_mpi_note note = note_of(run);
    const struct sl_mpi_message message = answer_of(&note, run->spmd.coordinate);
    post(run, to, &message);
}

/* ---- verdicts ---- */

static void add_own_wait(struct sl_error *verdict, const struct sl_mpi_run *run) {
    const struct sl_mpi_link *own = &run->chain[0];
    sl_verdict_add_wait(verdict, run->mesh, own->coordinate, own->peer, run->place_called[own->place]);
}

static void propose_absent(struct sl_mpi_run *run, double limit) {
    const struct sl_mpi_watch *watch = &run->watch;
    struct sl_error verdict = {0};
    sl_verdict_absent(&verdict, run->mesh, watch->peer, limit, watch->last[0] ? watch->last : NULL);
    add_own_wait(&verdict, run);
    propose(run, SL_FAILED, watch->peer, true, &verdict);
}

static void propose_gone(struct sl_mpi_run *run, int coordinate) {
    struct sl_error verdict = {0};
    char who[SL_VERDICT_NAME];
    sl_verdict_add(&verdict, "%s is lost: its process has ended%s", sl_verdict_name(run->mesh, coordinate, who),
                   run->wait ? ", while" : "");
    if (run->wait) add_own_wait(&verdict, run);
    propose(run, SL_FAILED, coordinate, true, &verdict);
}

static void propose_returned(struct sl_mpi_run *run) {
    struct sl_error verdict = {0};
    sl_verdict_returned(&verdict, run->mesh, run->watch.peer, run->watch.last);
    add_own_wait(&verdict, run);
    propose(run, SL_FAILED, -1, true, &verdict);
}

static const struct sl_mpi_link *link_of(const struct sl_mpi_run *run, int coordinate) {
    const struct sl_mpi_link *link = run->chain;
    while (link->coordinate != coordinate) link++;
    return link;
}

static int linked_peer(void *run, int coordinate) { return link_of(run, coordinate)->peer; }

static const char *linked_place(void *arg, int coordinate, char text[SL_VERDICT_PLACE]) {
    const struct sl_mpi_run *run = arg;
    _Static_assert((int)SL_MPI_PLACE <= (int)SL_VERDICT_PLACE, "there is room");
    return strcpy(text, run->place_called[link_of(run, coordinate)->place]);
}

/* Proposes a deadlock: the chain ends with a CIRCLE of COUNT waiting coordinates. */
static void propose_deadlock(struct sl_mpi_run *run, int count, const struct sl_mpi_link *circle) {
    const struct sl_verdict_waits waits = {linked_peer, linked_place, run};
    struct sl_error verdict = {0};
    int *coordinate = malloc((size_t)count * sizeof *coordinate);
    sl_verdict_deadlock(&verdict, count);
    for (int i = 0; i < count && coordinate; i++) coordinate[i] = circle[i].coordinate;
    sl_verdict_add_waits(&verdict, run->mesh, coordinate ? count : 0, coordinate, &waits);
    free(coordinate);
    propose(run, SL_FAILED, -1, true, &verdict);
}

/* ---- asking ---- */

static const double time_to_fade = 0.5; /* seconds, after which a note does not tell of a wait any more */

/* Asks COORDINATE. Returns whether a neighbour's ANSWER is on the board; otherwise it comes as a message. A new note of
 * the awaited peer is a sign of life, however late it is read. */
static bool ask(struct sl_mpi_run *run, int coordinate, struct sl_mpi_message *answer) {
    struct sl_mpi_watch *watch = &run->watch;
    struct sl_mpi_note note;
    double written;
    watch->asked = coordinate;
    if (!sl_mpi_ask_neighbour(coordinate, &note, &written)) {
        post(run, coordinate, &(struct sl_mpi_message){.kind = QUESTION});
        return false;
    }
    if (written <= (coordinate == watch->peer ? watch->noted : 0) || note.run != run->number) return false;
    if (coordinate == watch->peer) {
        watch->noted = written;
        watch->answered = true;
    }
    *answer = answer_of(&note, coordinate);
    return sl_now() < written + time_to_fade;
}

/* The index of PLACE in the chain's places; if they are full, it replaces the last one. */
static int number_of_place(struct sl_mpi_run *run, const char *place) {
    struct sl_mpi_watch *watch = &run->watch;
    for (int i = 0; i < watch->places; i++)
        if (!strncmp(run->place_called[i], place, SL_MPI_PLACE - 1)) return i;
    if (watch->places < SL_MPI_PLACES) watch->places++;
    snprintf(run->place_called[watch->places - 1], SL_MPI_PLACE, "%.299s", place);
    return watch->places - 1;
}

static void add_link(struct sl_mpi_run *run, int coordinate, int peer, uint32_t number, const char *place) {
    run->chain[run->watch.count++] = (struct sl_mpi_link){coordinate, peer, number, number_of_place(run, place)};
}

/* A hash of the waits of a circle. Not 0. */
static uint32_t number_of(int count, const struct sl_mpi_link *circle) {
    uint32_t number = 2166136261u;
    for (int i = 0; i < count; i++) {
        number = (number ^ (uint32_t)circle[i].coordinate) * 16777619u;
        number = (number ^ circle[i].number) * 16777619u;
    }
    return number | 1;
}

/* The chain's last peer is its FIRST-th link: a circle. */
static void found_circle(struct sl_mpi_run *run, int first) {
    struct sl_mpi_watch *watch = &run->watch;
    const struct sl_mpi_link *circle = &run->chain[first];
    const int count = watch->count - first;
    const uint32_t number = number_of(count, circle);
    if (number != watch->circle) {
        watch->circle = number;
        watch->since = sl_now();
    } else if (sl_now() > watch->since + run->engine->timeout) {
        propose_deadlock(run, count, circle);
    }
}

/* The coordinate asked last waits itself. Returns its peer, to be asked next; -1 if the chain is full, or if this
 * closes a circle. */
static int follow(struct sl_mpi_run *run, const struct sl_mpi_message *answer) {
    struct sl_mpi_watch *watch = &run->watch;
    if (watch->count == run->mesh->size) return -1;
    add_link(run, answer->from, answer->peer, answer->number, answer->text);
    for (int i = 0; i < watch->count; i++) {
        if (run->chain[i].coordinate != answer->peer) continue;
        found_circle(run, i);
        return -1;
    }
    return answer->peer;
}

/* Returns the coordinate to be asked next, or -1. */
static int take_answer(struct sl_mpi_run *run, const struct sl_mpi_message *answer) {
    struct sl_mpi_watch *watch = &run->watch;
    if (!run->wait || run->waits != run->chain[0].number) return -1; /* the wait is over */
    const bool returned = answer->status == HAS_RETURNED || answer->status == HAS_RETURNED_AND_SENDS;
    if (answer->from == watch->peer) {
        watch->answered = true;
        snprintf(watch->last, sizeof watch->last, "%.299s", answer->text);
        if (!returned) watch->returned = 0;
        if (returned && watch->returned == 0) watch->returned = sl_now();
        const double limit = answer->status == HAS_RETURNED ? time_to_arrive : run->engine->timeout;
        if (returned && sl_now() > watch->returned + limit) propose_returned(run);
    }
    if (answer->from != watch->asked) return -1;
    watch->asked = -1;
    if (answer->status == WAITS) return follow(run, answer);
    watch->circle = 0;
    return -1;
}

/* Asks COORDINATE, and follows the chain of waits as far as answers are on the board. */
static void ask_on(struct sl_mpi_run *run, int coordinate) {
    struct sl_mpi_message answer;
    while (coordinate >= 0 && ask(run, coordinate, &answer)) coordinate = take_answer(run, &answer);
}

/* Begins to watch PEER; earlier state belongs to another wait. */
static void watch_peer(struct sl_mpi_run *run, int peer) {
    run->watch = (struct sl_mpi_watch){.peer = peer, .asked = -1};
    run->chain[0].number = run->waits;
}

static void look_for_gone(struct sl_mpi_run *run) {
    const int gone = sl_mpi_find_gone();
    if (gone >= 0 && gone < run->mesh->size) propose_gone(run, gone);
}

/* Time in which this process did not run does not count as silence. */
void sl_mpi_look(struct sl_mpi_run *run) {
    struct sl_mpi_watch *watch = &run->watch;
    const int peer = peer_of(run);
    const double now = sl_now(), limit = sl_mpi_terminated() ? last_moments : run->engine->timeout;
    char where[SL_MPI_PLACE];
    if (peer < 0) return;
    if (peer != watch->peer || run->waits != run->chain[0].number) watch_peer(run, peer);
    const double elapsed = watch->ticked > 0 ? now - watch->ticked : 0;
    const double most = 2e-3 * SL_MPI_TICK_MS;
    watch->silent = watch->answered ? 0 : watch->silent + (elapsed < most ? elapsed : most);
    watch->answered = false;
    watch->ticked = now;
    watch->count = watch->places = 0;
    add_link(run, run->spmd.coordinate, peer, run->waits, sl_last_call_describe(&run->place, where, sizeof where));
    run->noted = true;
    sl_mpi_note_state(run);
    look_for_gone(run);
    if (watch->silent > limit) propose_absent(run, limit);
    ask_on(run, peer);
}

void sl_mpi_look_for_missing(struct sl_mpi_run *run) {
    struct sl_error verdict = {0};
    look_for_gone(run);
    const struct sl_mpi_missing missing = {.rank = sl_mpi_find_stopped(), .stopped = true};
    if (missing.rank < 0) return;
    sl_mpi_report_missing(run->mesh, &missing, "while others wait for the end of the run", &verdict);
    sl_mpi_propose(run, SL_FAILED, missing.rank, &verdict);
}

/* ---- listening ---- */

static void hear(struct sl_mpi_run *run, const struct sl_mpi_message *message) {
    if (message->run != run->number) return; /* late, from an ended run */
    switch ((enum kind)message->kind) {
    case QUESTION:
        answer(run, message->from);
        break;
    case ANSWER:
        ask_on(run, take_answer(run, message));
        break;
    case PROPOSAL:
        announce(run, message);
        break;
    case END:
        adopt(run, message);
        break;
    case WAITING:
        hear_waiting(run, message);
        break;
    case QUIET:
        sl_set_adds(run->quiet, message->from);
        break;
    }
}

bool sl_mpi_has_outgoing(void) { return outgoing; }

void sl_mpi_listen(struct sl_mpi_run *run) {
    for (;;) {
        int heard;
        if (receive == MPI_REQUEST_NULL) {
            MPI_Recv_init(&incoming, sizeof incoming, MPI_BYTE, MPI_ANY_SOURCE, 0, sl_mpi_process()->comm, &receive);
            MPI_Start(&receive);
        }
        MPI_Test(&receive, &heard, MPI_STATUS_IGNORE);
        if (!heard) break;
        const struct sl_mpi_message message = incoming;
        MPI_Start(&receive);
        hear(run, &message);
    }
    if (outgoing) sweep();
    end_alone(run);
}

void sl_mpi_stop_listening(void) {
    sl_mpi_withdraw_receive(&receive, sl_now() + 1);
    if (receive != MPI_REQUEST_NULL) MPI_Request_free(&receive);
}
