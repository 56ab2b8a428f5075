/* line.c - lines of the mpi engine: a message on the run's communicator for each count that a member tells to another.
 *
 * Each member has a receive under way for each other member. Whenever a line is looked at, received messages are
 * copied, and their receives are posted again at once. Until all members of a line have told a first count, the line is
 * looked at in every turn. A line's number is the tag of its messages. */
#include "collectives/mpi/wire.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/base/memory.h"

struct letter {
    uint32_t count;
    bool has_message;
    max_align_t message[];
};

/* A letter that is being sent, or that can be used again. */
struct sent {
    struct sent *next;
    MPI_Request request;
    int to;
    struct letter letter;
};

struct member {
    _Atomic uint32_t heard;
    MPI_Request request;
    struct letter *letter; /* being received */
    char *messages;        /* [kept] */
};

struct sl_mpi_line {
    struct sl_mpi_line *next;
    struct sl_mpi_run *run;
    struct sl_group group;
    int tag, kept;
    size_t pitch;        /* bytes of a message, rounded up */
    int unheard;         /* number of other members that have told nothing yet */
    struct sent *sent;   /* the latest first */
    struct sent *unused; /* letters */
    struct member member[];
};

/* ---- opening and closing ---- */

static int bytes_of(const struct sl_mpi_line *line, bool has_message) {
    return (int)(sizeof(struct letter) + (has_message ? line->pitch : 0));
}

static void free_sent(struct sent *sent) {
    while (sent) {
        struct sent *next = sent->next;
        if (sent->request != MPI_REQUEST_NULL) MPI_Request_free(&sent->request);
        free(sent);
        sent = next;
    }
}

static void free_line(struct sl_mpi_line *line) {
    for (int i = 0; i < line->group.size; i++) {
        if (line->member[i].request != MPI_REQUEST_NULL) MPI_Request_free(&line->member[i].request);
    }
    free_sent(line->sent);
    free_sent(line->unused);
    free(line);
}

static struct sl_mpi_line *new_line(struct sl_mpi_run *run, const struct sl_engine_line *wanted) {
    const size_t size = (size_t)wanted->group->size, pitch = sl_round_up(wanted->bytes, sizeof(max_align_t));
    const size_t letter = sizeof(struct letter) + pitch, each = letter + pitch * (size_t)wanted->kept;
    struct sl_mpi_line *line = calloc(1, sizeof *line + size * (sizeof *line->member + each) + sizeof(max_align_t));
    if (!line) return NULL;
    line->run = run;
    line->group = *wanted->group;
    line->tag = (int)wanted->number;
    line->kept = wanted->kept;
    line->pitch = pitch;
    line->unheard = wanted->group->size - 1;
    char *behind = (char *)sl_round_up((size_t)(uintptr_t)&line->member[size], sizeof(max_align_t));
    for (size_t i = 0; i < size; i++, behind += each) {
        line->member[i].letter = (struct letter *)(void *)behind;
        line->member[i].messages = behind + letter;
        line->member[i].request = MPI_REQUEST_NULL;
    }
    return line;
}

static bool await_letter(struct sl_mpi_line *line, int position) {
    struct member *member = &line->member[position];
    return sl_mpi_ok(line->run,
                     MPI_Irecv(member->letter, bytes_of(line, true), MPI_BYTE, sl_group_member(&line->group, position),
                               line->tag, line->run->wire, &member->request),
                     "a line");
}

const char *sl_mpi_line_open(struct sl_spmd *self, struct sl_engine_line *wanted) {
    struct sl_mpi_run *run = sl_mpi_self(self);
    if (wanted->number > sl_mpi_process()->largest_tag) return "this MPI has no tags for so many";
    struct sl_mpi_line *line = new_line(run, wanted);
    if (!line) return "no memory";
    wanted->state = line;
    line->next = run->lines;
    run->lines = line;
    for (int i = 0; i < line->group.size; i++) {
        if (i != line->group.rank && !await_letter(line, i)) break;
    }
    return NULL;
}

/* Takes letters that have been sent out of the list. */
static void sweep(struct sl_mpi_line *line) {
    for (struct sent **at = &line->sent; *at;) {
        struct sent *one = *at;
        int ended = 0;
        if (!sl_mpi_ok(line->run, MPI_Test(&one->request, &ended, MPI_STATUS_IGNORE), "a line") || !ended) {
            at = &one->next;
        } else {
            *at = one->next;
            one->next = line->unused;
            line->unused = one;
        }
    }
}

static bool has_sent(void *of) {
    sweep(of);
    return !((struct sl_mpi_line *)of)->sent || ((struct sl_mpi_line *)of)->run->proposed;
}

static int receiver(void *of) {
    const struct sl_mpi_line *line = of;
    return line->sent ? line->sent->to : -1;
}

int sl_mpi_line_close(struct sl_spmd *self, struct sl_engine_line *closed) {
    struct sl_mpi_run *run = sl_mpi_self(self);
    struct sl_mpi_line *line = closed->state, **at = &run->lines;
    SL_TRY(sl_mpi_wait(run, &(struct sl_mpi_wait){has_sent, receiver, line, false}));
    if (run->proposed) return sl_mpi_await_end(run);
    for (int i = 0; i < line->group.size; i++) sl_mpi_withdraw_receive(&line->member[i].request, sl_now() + 1);
    while (*at != line) at = &(*at)->next;
    *at = line->next;
    free_line(line);
    return SL_OK;
}

/* ---- telling ---- */

static void send(struct sl_mpi_line *line, int position, uint32_t count, const void *message, size_t bytes) {
    struct sent *one = line->unused ? line->unused : malloc(sizeof *one + line->pitch);
    if (!one) {
        sl_mpi_propose(line->run, SL_FAILED, -1,
                       &(struct sl_error){SL_FAILED, "no memory for a message between hosts"});
        return;
    }
    if (one == line->unused) line->unused = one->next;
    one->to = sl_group_member(&line->group, position);
    one->letter.count = count;
    one->letter.has_message = message != NULL;
    if (message) memcpy(one->letter.message, message, bytes);
    one->next = line->sent;
    line->sent = one;
    const int code =
        MPI_Isend(&one->letter, bytes_of(line, message), MPI_BYTE, one->to, line->tag, line->run->wire, &one->request);
    if (sl_mpi_ok(line->run, code, "a line")) sl_mpi_ring_for_letter(one->to);
}

void sl_mpi_line_tell(struct sl_spmd *self, struct sl_engine_line *of, uint32_t count, const void *message,
                      const bool *to) {
    struct sl_mpi_line *line = of->state;
    (void)self;
    sweep(line);
    for (int i = 0; i < line->group.size; i++) {
        if (i != line->group.rank && (!to || to[i])) send(line, i, count, message, of->bytes);
    }
}

/* ---- hearing ---- */

static char *place_of(const struct sl_mpi_line *line, int position, uint32_t count) {
    return line->member[position].messages + line->pitch * (count % (uint32_t)line->kept);
}

/* Handles all letters that have come from the member at POSITION. */
static void listen(struct sl_mpi_line *line, int position) {
    struct member *member = &line->member[position];
    int came = member->request != MPI_REQUEST_NULL;
    while (came) {
        if (!sl_mpi_ok(line->run, MPI_Test(&member->request, &came, MPI_STATUS_IGNORE), "a line") || !came) return;
        const uint32_t count = member->letter->count;
        if (member->letter->has_message) memcpy(place_of(line, position, count), member->letter->message, line->pitch);
        line->unheard -= atomic_load_explicit(&member->heard, memory_order_relaxed) == 0;
        atomic_store_explicit(&member->heard, count, memory_order_release);
        came = await_letter(line, position);
    }
}

static bool has_heard(const struct sl_mpi_line *line, int position, uint32_t count) {
    return (int32_t)(atomic_load_explicit(&line->member[position].heard, memory_order_acquire) - count) >= 0;
}

bool sl_mpi_line_heard(const struct sl_engine_line *line, int position, uint32_t count) {
    return has_heard(line->state, position, count);
}

const void *sl_mpi_line_message(const struct sl_engine_line *line, int position, uint32_t count) {
    return place_of(line->state, position, count);
}

struct awaited {
    struct sl_mpi_line *line;
    int position;
    uint32_t count;
};

static bool is_told(void *of) {
    const struct awaited *awaited = of;
    if (!has_heard(awaited->line, awaited->position, awaited->count)) listen(awaited->line, awaited->position);
    return has_heard(awaited->line, awaited->position, awaited->count);
}

static int teller(void *of) {
    const struct awaited *awaited = of;
    return sl_group_member(&awaited->line->group, awaited->position);
}

int sl_mpi_line_hear(struct sl_spmd *self, struct sl_engine_line *of, int position, uint32_t count, bool waits) {
    struct sl_mpi_run *run = sl_mpi_self(self);
    struct awaited awaited = {of->state, position, count};
    const bool told = is_told(&awaited);
    if (!told && waits && position == of->group->rank) return sl_mpi_wait_for_oneself(run);
    if (!told && waits) SL_TRY(sl_mpi_wait(run, &(struct sl_mpi_wait){is_told, teller, &awaited, false}));
    return run->proposed ? sl_mpi_await_end(run) : SL_OK;
}

/* ---- as a carrier ---- */

static void advance(struct sl_mpi_run *run) {
    for (struct sl_mpi_line *line = run->lines; line; line = line->next) {
        for (int i = 0; i < line->group.size && line->unheard; i++) {
            if (i != line->group.rank && !has_heard(line, i, 1)) listen(line, i);
        }
    }
}

static bool is_sending(const struct sl_mpi_run *run) {
    for (const struct sl_mpi_line *line = run->lines; line; line = line->next) {
        for (const struct sent *one = line->sent; one; one = one->next) {
            if (sl_mpi_is_pending(one->request)) return true;
        }
    }
    return false;
}

static void withdraw(struct sl_mpi_run *run, double end) {
    for (struct sl_mpi_line *line = run->lines; line; line = line->next) {
        for (int i = 0; i < line->group.size; i++) sl_mpi_withdraw_receive(&line->member[i].request, end);
    }
}

static void close_all(struct sl_mpi_run *run) {
    while (run->lines) {
        struct sl_mpi_line *line = run->lines;
        run->lines = line->next;
        free_line(line);
    }
}

const struct sl_mpi_carrier sl_mpi_lines = {advance, withdraw, is_sending, close_all};
