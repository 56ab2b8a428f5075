/* mailbox.c - moves the data of a collective whose members are all on one host: through shared memory, without MPI.
 *
 * Each member of a group has a mailbox. It writes its data for the others there and rings their bells; they read it in
 * place, directly into their outputs and sums. MPI would copy twice, and would have to be polled.
 *
 * A call goes in rounds, each as long as a piece of the mailbox. There are two pieces per slot, so that one is written
 * while the other is read. In a round a member writes its piece, waits for the pieces of the members that it receives
 * from, and reads them. In long sums over many members each member sums a share, into its own piece, and reads the
 * others' sums in a second part of the round. Words in the mailbox count a slot's rounds, from the beginning of the
 * run: they are the members' only signals. A piece is written again when all have read it. */
#include "collectives/mpi/hosts.h"
#include "collectives/mpi/mailbox_internal.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/sums/copies.h"
#include "collectives/sums/reduce.h"
#include "collectives/sums/sums.h"
#include "spmd/base/memory.h"

enum {
    GROUPS = 128, /* of a run, the first ones; others use MPI. Memory once used stays allocated */
};

static int file = -1;   /* mailboxes [GROUPS][processes of this host]; -1: none */
static bool everywhere; /* all processes of all hosts have them */
static int opened;      /* number of groups of this process's run, or of the previous run */

/* ---- mailboxes ---- */

/* Rounded up to whole pages. */
static size_t bytes_of_group(void) {
    enum { LARGEST_PAGE = 1 << 16 };
    return sl_round_up((size_t)sl_mpi_process()->here * sizeof(struct sl_mpi_mailbox), LARGEST_PAGE);
}

void sl_mpi_mailboxes_open(MPI_Comm host) {
    if (sl_mpi_has_bells()) file = sl_mpi_share_file_with_all(host, GROUPS * bytes_of_group());
    const int has = file >= 0;
    int all;
    MPI_Allreduce(&has, &all, 1, MPI_INT, MPI_MIN, sl_mpi_process()->comm);
    everywhere = all;
}

bool sl_mpi_shares_memory_with(int rank) { return file >= 0 && sl_mpi_is_neighbour(rank); }

bool sl_mpi_take_mailboxes(struct sl_mpi_communicator *communicator) {
    const struct sl_group *group = &communicator->group;
    const int number = communicator->number;
    bool apart = false;
    if (number >= GROUPS) return true;
    for (int i = 0; i < group->size; i++) apart |= !sl_mpi_shares_memory_with(sl_group_member(group, i));
    if (!apart && group->size > SL_MPI_PIECE / SL_CACHE_LINE) return true;
    if (apart && everywhere && !sl_mpi_find_hosts(group, &communicator->hosts)) return false;
    if (apart && !communicator->hosts) return true;
    if (opened <= number) opened = number + 1;
    communicator->mailboxes = sl_mpi_map(file, (size_t)number * bytes_of_group(), bytes_of_group());
    return communicator->mailboxes;
}

void sl_mpi_leave_mailboxes(struct sl_mpi_communicator *communicator) {
    sl_mpi_unmap(communicator->mailboxes, bytes_of_group());
    free(communicator->hosts);
}

/* Through a map: a write would fail beyond a limit on the size of files. */
void sl_mpi_mailboxes_clear(void) {
    const int place = sl_mpi_place_of(sl_mpi_process()->rank);
    for (int group = 0; group < opened; group++) {
        struct sl_mpi_mailbox *mailboxes = sl_mpi_map(file, (size_t)group * bytes_of_group(), bytes_of_group());
        if (!mailboxes) continue;
        memset(mailboxes[place].words, 0, sizeof mailboxes->words);
        sl_mpi_unmap(mailboxes, bytes_of_group());
    }
    opened = 0;
}

/* ---- rounds ---- */

/* Elements [begin, begin + count) of each block. */
struct range {
    size_t begin, count;
};

/* Elements per block in a piece, together with as many of the other blocks. They are whole cache lines. */
static size_t elements_a_round(const struct sl_collective *call) {
    const size_t blocks = sl_operation_of(call)->cuts ? (size_t)call->group->size : 1;
    return SL_MPI_PIECE / blocks / SL_CACHE_LINE * SL_CACHE_LINE / sl_dtype_size(call->dtype);
}

static uint32_t count_rounds(const struct sl_collective *call) {
    const size_t most = elements_a_round(call), rounds = (sl_block_elements(call) + most - 1) / most;
    return rounds ? (uint32_t)rounds : 1;
}

static struct range range_of(const struct sl_collective *call, uint32_t round) {
    const size_t most = elements_a_round(call), total = sl_block_elements(call), begin = most * round;
    const size_t left = begin < total ? total - begin : 0;
    return (struct range){begin, left < most ? left : most};
}

/* Data from the member at POSITION for the member at TO in a round. */
static char *piece(const struct sl_mpi_call *c, int position, uint32_t round, int to) {
    const struct sl_collective *call = &c->call;
    const size_t before = sl_operation_of(call)->cuts ? elements_a_round(call) * (size_t)to : 0;
    return sl_mpi_box_of(c, position)->piece[c->slot][round % SL_MPI_PIECES] + before * sl_dtype_size(call->dtype);
}

/* ---- blocks, which may consist of runs ---- */

/* Runs of a range with a constant distance in the program's arrays: RUNS of them, each of COUNT elements. */
struct stretch {
    size_t row, column, skip; /* the first run, and the elements skipped at its beginning */
    size_t at;                /* elements from the beginning of the range */
    size_t runs, count;       /* 0 elements: none */
};

/* The stretch AT elements behind the range's beginning. If the arrays are SOLID, it is the whole rest. */
static struct stretch stretch_at(const struct sl_collective *call, struct range range, size_t at, bool solid) {
    const size_t run = call->count[2], begin = range.begin + at, left = range.count - at;
    if (solid || !left) return (struct stretch){.skip = begin, .at = at, .runs = 1, .count = left};
    const size_t skip = begin % run, rest = run - skip, columns = call->count[1];
    struct stretch stretch = {.row = begin / run / columns, .column = begin / run % columns, .skip = skip, .at = at};
    const bool whole = !skip && left >= run;
    const size_t more = columns - stretch.column;
    stretch.runs = !whole ? 1 : more < left / run ? more : left / run;
    stretch.count = rest < left ? rest : left;
    return stretch;
}

static struct stretch stretch_after(const struct sl_collective *call, struct range range, const struct stretch *last) {
    return stretch_at(call, range, last->at + last->runs * last->count, false);
}

/* Bytes from the beginning of a block to STRETCH. */
static size_t offset_of(const struct sl_collective *call, const struct sl_view *view, const struct stretch *stretch) {
    return sl_dtype_size(call->dtype) *
           (stretch->row * view->stride[0] + stretch->column * view->stride[1] + stretch->skip);
}

/* Copies STRETCH from a program's block to packed memory. */
static void pack_stretch(const struct sl_collective *call, const struct stretch *s, char *tight, const char *block) {
    const size_t size = sl_dtype_size(call->dtype);
    sl_copy_rows(s->runs, size * s->count, tight + size * s->at, size * s->count,
                 block + offset_of(call, &call->input_view, s), size * call->input_view.stride[1]);
}

/* Copies STRETCH from packed memory to a program's block. */
static void unpack_stretch(const struct sl_collective *call, const struct stretch *s, const char *tight, char *block) {
    const size_t size = sl_dtype_size(call->dtype);
    sl_copy_rows(s->runs, size * s->count, block + offset_of(call, &call->output_view, s),
                 size * call->output_view.stride[1], tight + size * s->at, size * s->count);
}

static void pack(const struct sl_collective *call, struct range range, char *tight, const char *block) {
    struct stretch s = stretch_at(call, range, 0, sl_block_is_solid(call, &call->input_view));
    for (; s.count; s = stretch_after(call, range, &s)) pack_stretch(call, &s, tight, block);
}

static void unpack(const struct sl_collective *call, struct range range, const char *tight, char *block) {
    struct stretch s = stretch_at(call, range, 0, sl_block_is_solid(call, &call->output_view));
    for (; s.count; s = stretch_after(call, range, &s)) unpack_stretch(call, &s, tight, block);
}

/* The part of SPAN from AT on that lies in one block, whose number goes to INDEX. */
static struct range block_at(const struct sl_collective *call, struct sl_span span, uint64_t at, size_t *index) {
    const uint64_t bytes = sl_block_bytes(call), size = sl_dtype_size(call->dtype);
    *index = at / bytes;
    const uint64_t end = (*index + 1) * bytes < span.end ? (*index + 1) * bytes : span.end;
    return (struct range){(at - *index * bytes) / size, (end - at) / size};
}

void sl_mpi_pack_span(const struct sl_collective *call, struct sl_span span, char *tight) {
    const bool cuts = sl_operation_of(call)->cuts;
    for (uint64_t at = span.begin; at < span.end;) {
        size_t index;
        const struct range range = block_at(call, span, at, &index);
        pack(call, range, tight + (at - span.begin), sl_mpi_input_block(call, cuts ? (int)index : 0));
        at += range.count * sl_dtype_size(call->dtype);
    }
}

void sl_mpi_unpack_span(const struct sl_collective *call, struct sl_span span, const char *tight) {
    const bool joins = sl_operation_of(call)->joins;
    for (uint64_t at = span.begin; at < span.end;) {
        size_t index;
        const struct range range = block_at(call, span, at, &index);
        unpack(call, range, tight + (at - span.begin), sl_mpi_output_block(call, joins ? (int)index : 0));
        at += range.count * sl_dtype_size(call->dtype);
    }
}

/* ---- writing ---- */

static bool have_read(const struct sl_mpi_call *c, uint32_t rounds) {
    for (int peer = 0; peer < c->call.group->size; peer++)
        if (peer != c->call.group->rank && !sl_mpi_reached(&sl_mpi_words_of(c, peer)->read, rounds)) return false;
    return true;
}

/* Number of the slot's rounds to be read by all before this member's next piece is free. */
static uint32_t rounds_before(const struct sl_mpi_call *c) { return c->before + (c->written ? c->written - 1 : 0); }

static bool has_room(const struct sl_mpi_call *c) {
    if (have_read(c, rounds_before(c))) return true;
    sl_mpi_want_room(true);
    return have_read(c, rounds_before(c));
}

/* The first source that has not raised its word to TARGET, or -1. */
static int find_missing(const struct sl_mpi_call *c, bool sums, uint32_t target) {
    const struct sl_positions from = sl_call_sources(&c->call);
    for (int peer = from.begin; peer < from.end; peer++) {
        const struct sl_mpi_words *words = sl_mpi_words_of(c, peer);
        if (!sl_mpi_reached(sums ? &words->summed : &words->written, target)) return peer;
    }
    return -1;
}

/* Rings for the destinations, after a word has been raised to TARGET. If all members wait for all, the last one rings.
 */
static void ring_destinations(const struct sl_mpi_call *c, bool sums, uint32_t target) {
    const struct sl_positions to = sl_call_destinations(&c->call);
    if (sl_call_meets(&c->call)) {
        sl_mpi_ring_if_complete(c, to, to, find_missing(c, sums, target) < 0);
        return;
    }
    for (int peer = to.begin; peer < to.end; peer++)
        if (peer != c->call.group->rank) sl_mpi_ring_at(c, peer);
}

/* Writes the next piece, if there is room. */
static bool write_piece(struct sl_mpi_call *c) {
    const struct sl_collective *call = &c->call;
    const struct sl_positions to = sl_call_destinations(call);
    const struct range range = range_of(call, c->written);
    const int me = call->group->rank;
    if (c->written == c->rounds || c->written == c->read + SL_MPI_PIECES || !has_room(c)) return false;
    if (sl_operation_of(call)->cuts) {
        for (int peer = to.begin; peer < to.end; peer++)
            if (peer != me) pack(call, range, piece(c, me, c->written, peer), sl_mpi_input_block(call, peer));
    } else if (to.end > to.begin + sl_has_position(to, me)) {
        pack(call, range, piece(c, me, c->written, 0), sl_mpi_input_block(call, to.begin));
    }
    const int readers = to.end - to.begin - sl_has_position(to, me), blocks = sl_operation_of(call)->cuts ? readers : 1;
    if (readers) sl_mpi_count_piece(c, (size_t)blocks * range.count * sl_dtype_size(call->dtype));
    sl_mpi_state_call(c);
    atomic_store(&sl_mpi_own_words(c)->written, c->before + ++c->written); /* SC: see sl_mpi_ring_if_complete */
    ring_destinations(c, false, c->before + c->written);
    return true;
}

/* ---- reading ---- */

/* The same for the next round to read. */
static int find_unready(const struct sl_mpi_call *c, bool sums) {
    return find_missing(c, sums, c->before + c->read + 1);
}

void sl_mpi_state_call(const struct sl_mpi_call *c) {
    atomic_store_explicit(&sl_mpi_own_words(c)->call, sl_call_word(&c->call), memory_order_relaxed);
    atomic_store_explicit(&sl_mpi_own_words(c)->group, c->communicator->members, memory_order_relaxed);
}

bool sl_mpi_state_alike(struct sl_mpi_call *c, struct sl_positions positions) {
    const uint64_t mine = sl_call_word(&c->call);
    for (int peer = positions.begin; peer < positions.end; peer++) {
        const struct sl_mpi_words *words = sl_mpi_words_of(c, peer);
        const uint64_t theirs = atomic_load_explicit(&words->call, memory_order_relaxed);
        const bool together = atomic_load_explicit(&words->group, memory_order_relaxed) == c->communicator->members;
        if (theirs == mine && together) continue;
        sl_mpi_propose_mismatch(c, peer, theirs, together);
        return false;
    }
    return true;
}

static void collect(const struct sl_mpi_call *c, struct range range) {
    const struct sl_collective *call = &c->call;
    const struct sl_positions from = sl_call_sources(call);
    for (int peer = from.begin; peer < from.end; peer++) {
        if (peer == call->group->rank) continue;
        unpack(call, range, piece(c, peer, c->read, call->group->rank), sl_mpi_output_block(call, peer));
    }
}

/* Of the blocks for this member, its own is read from the program's memory. */
static void sum_runs(const struct sl_mpi_call *c, const struct stretch *s) {
    const struct sl_collective *call = &c->call;
    const int size = call->group->size, me = call->group->rank;
    const size_t bytes = sl_dtype_size(call->dtype);
    const char *own = sl_mpi_input_block(call, me) + offset_of(call, &call->input_view, s);
    char *sum = sl_mpi_output_block(call, 0) + offset_of(call, &call->output_view, s);
    for (size_t run = 0; run < s->runs; run++) {
        const void **input = c->communicator->input;
        for (int peer = 0; peer < size; peer++)
            input[peer] = piece(c, peer, c->read, me) + bytes * (s->at + run * s->count);
        input[me] = own + bytes * run * call->input_view.stride[1];
        void *output = sum + bytes * run * call->output_view.stride[1];
        sl_reduce(sl_operation_of(call)->reduction, call->dtype, call->scale, s->count, size, input, 1, &output);
    }
}

/* The same for floats, without a call for each run: adds packed rows; this member's own block is packed into its own
 * piece, in the part unread by others. */
static void add_runs(const struct sl_mpi_call *c, const struct stretch *s) {
    const struct sl_collective *call = &c->call;
    const int me = call->group->rank;
    const void **input = c->communicator->input;
    pack_stretch(call, s, piece(c, me, c->read, me), sl_mpi_input_block(call, me));
    for (int peer = 0; peer < call->group->size; peer++)
        input[peer] = piece(c, peer, c->read, me) + s->at * sizeof(float);
    char *sum = sl_mpi_output_block(call, 0) + offset_of(call, &call->output_view, s);
    sl_add_rows(s->runs, s->count, call->group->size, (const float *const *)input, s->count, false,
                (float *)(void *)sum, call->output_view.stride[1]);
}

static void sum_stretches(const struct sl_mpi_call *c, struct range range) {
    const struct sl_collective *call = &c->call;
    const bool solid = sl_block_is_solid(call, &call->input_view) && sl_block_is_solid(call, &call->output_view);
    const bool adds_floats = sl_operation_of(call)->reduction == SL_SUM && call->dtype == SL_F32 && call->scale == 1;
    for (struct stretch s = stretch_at(call, range, 0, solid); s.count; s = stretch_after(call, range, &s)) {
        if (s.runs > 1 && adds_floats)
            add_runs(c, &s);
        else
            sum_runs(c, &s);
    }
}

/* ---- long sums ---- */

static bool takes_shares(const struct sl_collective *call) {
    const struct sl_operation_row *operation = sl_operation_of(call);
    return operation->reduction != SL_NO_REDUCTION && !operation->cuts && call->group->size > 2 &&
           sl_block_bytes(call) > SL_SHORT_CALL;
}

static struct range portion_of(const struct sl_collective *call, struct range range, int index, int shares) {
    const size_t total = range.count * sl_dtype_size(call->dtype);
    const size_t lines = (total + SL_CACHE_LINE - 1) / SL_CACHE_LINE;
    const size_t most = (lines + (size_t)shares - 1) / (size_t)shares * SL_CACHE_LINE, begin = most * (size_t)index;
    const size_t left = begin < total ? total - begin : 0;
    return (struct range){begin, left < most ? left : most};
}

static void sum_share(const struct sl_mpi_call *c, struct range range) {
    const struct sl_collective *call = &c->call;
    const int size = call->group->size;
    const struct range share = portion_of(call, range, call->group->rank, size);
    const void **input = c->communicator->input;
    for (int peer = 0; peer < size; peer++) input[peer] = piece(c, peer, c->read, 0) + share.begin;
    void *output = piece(c, call->group->rank, c->read, 0) + share.begin;
    sl_reduce(sl_operation_of(call)->reduction, call->dtype, call->scale, share.count / sl_dtype_size(call->dtype),
              size, input, 1, &output);
}

static void collect_shares(const struct sl_mpi_call *c, struct range range) {
    const struct sl_collective *call = &c->call;
    char *output = sl_mpi_output_block(call, 0) + range.begin * sl_dtype_size(call->dtype);
    for (int peer = 0; peer < call->group->size; peer++) {
        const struct range share = portion_of(call, range, peer, call->group->size);
        memcpy(output + share.begin, piece(c, peer, c->read, 0) + share.begin, share.count);
    }
}

/* ---- rounds in sequence ---- */

/* First part of the next round to read, if the sources have written theirs. */
static bool read_piece(struct sl_mpi_call *c) {
    const struct sl_collective *call = &c->call;
    const struct range range = range_of(call, c->read);
    if (c->read == c->written || c->summed > c->read || find_unready(c, false) >= 0) return false;
    if (!sl_mpi_state_alike(c, sl_call_sources(call))) return false; /* then no data moves */
    if (takes_shares(call)) {
        sum_share(c, range);
        sl_mpi_count_piece(c, portion_of(call, range, call->group->rank, call->group->size).count);
        atomic_store(&sl_mpi_own_words(c)->summed, c->before + ++c->summed);
        ring_destinations(c, true, c->before + c->summed);
        return true;
    }
    if (sl_operation_of(call)->reduction == SL_NO_REDUCTION)
        collect(c, range);
    else
        sum_stretches(c, range);
    c->summed++;
    return true;
}

/* Second part: if the sum is shared, waits until all have summed their shares. */
static bool end_round(struct sl_mpi_call *c) {
    const struct sl_collective *call = &c->call;
    if (c->summed == c->read || (takes_shares(call) && find_unready(c, true) >= 0)) return false;
    if (takes_shares(call)) collect_shares(c, range_of(call, c->read));
    atomic_store(&sl_mpi_own_words(c)->read, c->before + ++c->read); /* SC: see sl_mpi_want_room */
    const bool complete = have_read(c, c->before + c->read);         /* those that want room need all to have read */
    for (int peer = 0; peer < call->group->size && complete; peer++)
        sl_mpi_ring_for_room(sl_group_member(call->group, peer));
    return true;
}

static void begin_rounds(struct sl_mpi_call *c) {
    c->written = c->summed = c->read = 0;
    c->rounds = count_rounds(&c->call);
}

static bool go_round(struct sl_mpi_call *c) {
    for (bool moved = true; moved;) {
        moved = write_piece(c);
        moved |= read_piece(c);
        moved |= end_round(c);
    }
    if (c->read < c->rounds) return false;
    sl_mpi_close_rounds(c);
    return true;
}

static int find_laggard(const struct sl_mpi_call *c) {
    for (int peer = 0; peer < c->call.group->size && c->written == c->read; peer++)
        if (peer != c->call.group->rank && !sl_mpi_reached(&sl_mpi_words_of(c, peer)->read, rounds_before(c)))
            return peer;
    return find_unready(c, c->summed > c->read);
}

static bool never(const struct sl_mpi_call *c) {
    (void)c;
    return false;
}
const struct sl_mpi_route sl_mpi_by_mailboxes = {begin_rounds, go_round, find_laggard, NULL, NULL, never, NULL, NULL};
