/* line.c - lines of the mpi engine: a message on the run's communicator for each count that a member tells to another.
 *
 * Each member has a receive under way for each other member. Whenever a line is looked at, received messages are
 * copied, and their receives are posted again at once. Until all members of a line have told a first count, the line is
 * looked at in every turn. A line's number is the tag of its messages.
 *
 * If there are more than DIRECT members, a count without a message that is told to all goes in rounds, of which there
 * are as many as the logarithm of the members' number. In round r a member tells the one 2^r places behind it that its
 * own count, and those of the 2^r - 1 members before it, are at least so high. So after the last round it knows this of
 * all. Whoever hears a round tells the next one at once, in any call. Receives are then under way for the members from
 * which rounds come, and for those that have been waited for. */
#include "collectives/mpi/wire.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/base/memory.h"

enum { DIRECT = 8, ROUNDS = 31 };

struct letter {
    uint32_t count;
    bool has_message, of_round;
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
    size_t pitch;           /* bytes of a message, rounded up */
    int unheard;            /* number of other members that have told nothing yet; 0 if there are rounds */
    enum sl_operation kind; /* of the call for which this member has told its latest count */
    int rounds;             /* 0: all counts are told directly */
    uint32_t own;           /* this member's latest count in rounds; by round, the count told and the count heard: */
    uint32_t told[ROUNDS], heard[ROUNDS];
    _Atomic uint32_t all; /* of all members, by rounds */
    struct sent *sent;    /* the latest first */
    struct sent *unused;  /* letters */
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
    while (wanted->group->size > DIRECT && 1 << line->rounds < wanted->group->size) line->rounds++;
    line->unheard = line->rounds ? 0 : wanted->group->size - 1;
    char *behind = (char *)sl_round_up((size_t)(uintptr_t)&line->member[size], sizeof(max_align_t));
    for (size_t i = 0; i < size; i++, behind += each) {
        line->member[i].letter = (struct letter *)(void *)behind;
        line->member[i].messages = behind + letter;
        line->member[i].request = MPI_REQUEST_NULL;
    }
    return line;
}

/* The members that tell this one, and that hear from it, in ROUND. */
static int teller_in(const struct sl_mpi_line *line, int round) {
    return (line->group.rank + line->group.size - (1 << round)) % line->group.size;
}
static int hearer_in(const struct sl_mpi_line *line, int round) {
    return (line->group.rank + (1 << round)) % line->group.size;
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
    for (int i = 0; i < line->group.size && !line->rounds; i++) {
        if (i != line->group.rank && !await_letter(line, i)) break;
    }
    for (int round = 0; round < line->rounds; round++) {
        if (!await_letter(line, teller_in(line, round))) break;
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

static void count_letter(struct sl_mpi_line *line, int to, int bytes) {
    struct sl_traffic *sent = line->run->spmd.sent;
    const bool here = sl_mpi_is_neighbour(to);
    if (!sent) return;
    sl_traffic_add(&sent[line->kind], here ? SL_WAY_HOST : SL_WAY_NETWORK, 1, (uint64_t)bytes);
    sent[line->kind].bells += here;
}

static void send(struct sl_mpi_line *line, int position, struct letter what, const void *message, size_t bytes) {
    struct sent *one = line->unused ? line->unused : malloc(sizeof *one + line->pitch);
    if (!one) {
        sl_mpi_propose(line->run, SL_FAILED, -1,
                       &(struct sl_error){SL_FAILED, "no memory for a message between hosts"});
        return;
    }
    if (one == line->unused) line->unused = one->next;
    one->to = sl_group_member(&line->group, position);
    one->letter = what;
    one->letter.has_message = message != NULL;
    if (message) memcpy(one->letter.message, message, bytes);
    one->next = line->sent;
    line->sent = one;
    const int code =
        MPI_Isend(&one->letter, bytes_of(line, message), MPI_BYTE, one->to, line->tag, line->run->wire, &one->request);
    count_letter(line, one->to, bytes_of(line, message));
    if (sl_mpi_ok(line->run, code, "a line")) sl_mpi_ring_for_letter(one->to);
}

static bool has_reached(uint32_t count, uint32_t target) { return (int32_t)(count - target) >= 0; }

/* The count that this member, and those before it as far as ROUND tells, have reached. */
static uint32_t known_before(const struct sl_mpi_line *line, int round) {
    uint32_t known = line->own;
    for (int i = 0; i < round; i++)
        if (!has_reached(line->heard[i], known)) known = line->heard[i];
    return known;
}

/* Tells all rounds that can be told. */
static void go_round(struct sl_mpi_line *line) {
    for (int round = 0; round < line->rounds; round++) {
        const uint32_t known = known_before(line, round);
        if (known == line->told[round]) continue;
        line->told[round] = known;
        send(line, hearer_in(line, round), (struct letter){.count = known, .of_round = true}, NULL, 0);
    }
    atomic_store_explicit(&line->all, known_before(line, line->rounds), memory_order_release);
}

void sl_mpi_line_tell(struct sl_spmd *self, struct sl_engine_line *of, uint32_t count, const void *message,
                      const bool *to) {
    struct sl_mpi_line *line = of->state;
    (void)self;
    sweep(line);
    line->kind = of->kind;
    if (line->rounds && !to && !message) {
        line->own = count;
        go_round(line);
        return;
    }
    for (int i = 0; i < line->group.size; i++) {
        if (i != line->group.rank && (!to || to[i])) send(line, i, (struct letter){.count = count}, message, of->bytes);
    }
}

/* ---- hearing ---- */

static char *place_of(const struct sl_mpi_line *line, int position, uint32_t count) {
    return line->member[position].messages + line->pitch * (count % (uint32_t)line->kept);
}

/* The round in which the member at POSITION tells this one. */
static int round_from(const struct sl_mpi_line *line, int position) {
    int round = 0;
    while (teller_in(line, round) != position) round++;
    return round;
}

/* Handles all letters that have come from the member at POSITION. */
static void listen(struct sl_mpi_line *line, int position) {
    struct member *member = &line->member[position];
    int came = member->request != MPI_REQUEST_NULL;
    while (came) {
        if (!sl_mpi_ok(line->run, MPI_Test(&member->request, &came, MPI_STATUS_IGNORE), "a line") || !came) return;
        const uint32_t count = member->letter->count;
        if (member->letter->has_message) memcpy(place_of(line, position, count), member->letter->message, line->pitch);
        if (member->letter->of_round) {
            line->heard[round_from(line, position)] = count;
        } else {
            line->unheard -= line->unheard && atomic_load_explicit(&member->heard, memory_order_relaxed) == 0;
            atomic_store_explicit(&member->heard, count, memory_order_release);
        }
        came = await_letter(line, position);
    }
}

/* Until this member has told more, nothing that it hears can be passed on. */
static void listen_for_rounds(struct sl_mpi_line *line) {
    if (line->own == atomic_load_explicit(&line->all, memory_order_relaxed)) return;
    for (int round = 0; round < line->rounds; round++) listen(line, teller_in(line, round));
    go_round(line);
}

/* Whether the member at POSITION, or, if it is SL_ALL_MEMBERS, each other one, has told COUNT. */
static bool has_heard(const struct sl_mpi_line *line, int position, uint32_t count) {
    if (line->rounds && has_reached(atomic_load_explicit(&line->all, memory_order_acquire), count)) return true;
    if (position != SL_ALL_MEMBERS)
        return has_reached(atomic_load_explicit(&line->member[position].heard, memory_order_acquire), count);
    for (int i = 0; i < line->group.size; i++)
        if (i != line->group.rank && (line->rounds || !has_heard(line, i, count))) return false;
    return true;
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
    struct sl_mpi_line *line = awaited->line;
    if (has_heard(line, awaited->position, awaited->count)) return true;
    listen_for_rounds(line);
    for (int i = 0; i < line->group.size; i++) {
        const bool awaits = awaited->position == i || (awaited->position == SL_ALL_MEMBERS && !line->rounds);
        if (!awaits || i == line->group.rank) continue;
        if (line->member[i].request == MPI_REQUEST_NULL) await_letter(line, i);
        listen(line, i);
    }
    return has_heard(line, awaited->position, awaited->count);
}

/* The first member from which a count, or a round, is missing. */
static int teller(void *of) {
    const struct awaited *awaited = of;
    const struct sl_mpi_line *line = awaited->line;
    int position = awaited->position == SL_ALL_MEMBERS ? 0 : awaited->position, round = 0;
    if (awaited->position == SL_ALL_MEMBERS && line->rounds) {
        while (round < line->rounds - 1 && has_reached(line->heard[round], awaited->count)) round++;
        position = teller_in(line, round);
    } else if (awaited->position == SL_ALL_MEMBERS) {
        while (position < line->group.size - 1 &&
               (position == line->group.rank || has_heard(line, position, awaited->count)))
            position++;
    }
    return sl_group_member(&line->group, position);
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
        listen_for_rounds(line);
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
