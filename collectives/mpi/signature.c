/* signature.c - members of the mpi engine exchange descriptions of their calls.
 *
 * In checked mode each member first sends its call to the others. Its data exchange begins when it agrees with its
 * sources and destinations; the others are compared whenever their messages come, at the latest before the call's slot
 * is used again.
 *
 * In unchecked mode, mailboxes carry the call (mailbox.c). Without mailboxes, the call travels beside the data, to the
 * receivers of messages (hosts.h), and received data is not used before the calls have been compared. */
#include "collectives/mpi/hosts.h"

#include "collectives/costs/costs.h"

_Static_assert(sizeof(struct sl_call_note) == SL_CALL_NOTE_BYTES, "costs count it");

static bool hears_from(const struct sl_mpi_call *c, int peer) {
    return c->run->engine->checked || c->route->receives(c, peer);
}
static bool tells(const struct sl_mpi_call *c, int peer) { return c->run->engine->checked || c->route->sends(c, peer); }

/* Whether data must not move before this member and the one at PEER have been compared. */
static bool is_concerned(const struct sl_mpi_call *c, int peer) {
    if (c->run->engine->checked) return sl_mpi_receives_from(&c->call, peer) || sl_mpi_sends_to(&c->call, peer);
    return c->route->receives(c, peer) || c->route->sends(c, peer);
}

void sl_mpi_exchange_signatures(struct sl_mpi_call *c) {
    const struct sl_collective *call = &c->call;
    const int tag = sl_mpi_tag_of(c->communicator, c->slot, SL_MPI_SIGNATURE);
    c->phase = SL_MPI_COMPARING;
    c->mine = sl_note_call(call);
    c->mine.members = c->communicator->members;
    for (int k = 1; k < call->group->size; k++) {
        const int from = sl_mpi_previous_peer(call, k), to = sl_mpi_next_peer(call, k);
        if (hears_from(c, from))
            sl_mpi_ok(c->run,
                      MPI_Irecv(&c->theirs[from], sizeof *c->theirs, MPI_BYTE, sl_group_member(call->group, from), tag,
                                c->run->wire, &c->hear[from]),
                      "MPI_Irecv");
        if (!tells(c, to)) continue;
        sl_mpi_count_message(c, to, sizeof c->mine);
        sl_mpi_ok(c->run,
                  MPI_Isend(&c->mine, sizeof c->mine, MPI_BYTE, sl_group_member(call->group, to), tag, c->run->wire,
                            &c->tell[to]),
                  "MPI_Isend");
        sl_mpi_ring_for_letter(sl_group_member(call->group, to));
    }
}

/* THEIRS is NULL if it is over other members. */
static void propose_mismatch(struct sl_mpi_call *c, const struct sl_collective *mine, int peer,
                             const struct sl_collective *theirs) {
    const int me = c->run->spmd.coordinate, other = sl_group_member(mine->group, peer);
    struct sl_error verdict = {0};
    if (theirs)
        sl_verdict_mismatch(&verdict, c->run->mesh, mine, me, theirs, other);
    else
        sl_verdict_other_members(&verdict, c->run->mesh, mine, me, other);
    sl_mpi_propose(c->run, SL_FAILED, -1, &verdict);
}

void sl_mpi_propose_mismatch(struct sl_mpi_call *c, int peer, uint64_t word, bool together) {
    const struct sl_collective theirs = sl_call_of_word(word);
    propose_mismatch(c, &c->call, peer, together ? &theirs : NULL);
}

bool sl_mpi_compare(struct sl_mpi_call *c) {
    struct sl_collective mine = sl_noted_call(&c->mine); /* the call itself may be over */
    mine.group = c->call.group;
    bool (*const fit)(const struct sl_collective *, const struct sl_collective *, int) =
        c->run->engine->checked ? sl_calls_agree : sl_calls_fit;
    int told;
    if (!sl_mpi_ok(c->run, MPI_Testall(mine.group->size, c->tell, &told, MPI_STATUSES_IGNORE), "a signature"))
        return false;
    for (int peer = 0; peer < mine.group->size; peer++) {
        int heard = 0;
        if (c->hear[peer] == MPI_REQUEST_NULL) continue;
        if (!sl_mpi_ok(c->run, MPI_Test(&c->hear[peer], &heard, MPI_STATUS_IGNORE), "a peer's signature")) return false;
        const struct sl_collective theirs = sl_noted_call(&c->theirs[peer]);
        const bool together = c->theirs[peer].members == c->mine.members;
        if (!heard || (together && fit(&mine, &theirs, peer))) continue;
        propose_mismatch(c, &mine, peer, together ? &theirs : NULL);
        return false;
    }
    return true;
}

int sl_mpi_uncompared(const struct sl_mpi_call *c) {
    for (int k = 1; k < c->call.group->size; k++) {
        const int peer = sl_mpi_next_peer(&c->call, k);
        if (is_concerned(c, peer) && c->hear[peer] != MPI_REQUEST_NULL) return peer;
    }
    return -1;
}

int sl_mpi_unheard(const struct sl_mpi_call *c) {
    for (int peer = 0; peer < c->call.group->size && c->theirs; peer++) {
        if (c->hear[peer] != MPI_REQUEST_NULL || c->tell[peer] != MPI_REQUEST_NULL) return peer;
    }
    return -1;
}
