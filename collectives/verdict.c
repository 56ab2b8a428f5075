/* verdict.c - writes verdicts as text and compares calls. */
#include "collectives/verdict.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "collectives/operations.h"
#include "spmd/ranges.h"

enum {
    REST = 24,   /* bytes reserved for "and 12 more" */
    SCREEN = 24, /* lines */
};

/* Steps are counted from 0, as in all messages. "" means no module. */
static void add_doing(const struct sl_doing *doing, char *text, size_t size) {
    const size_t used = strlen(text);
    char step[40] = "";
    const char *module = doing->module;
    if (doing->steps > 0) snprintf(step, sizeof step, "step %" PRId64, doing->steps - 1);
    if (doing->what)
        snprintf(text + used, size - used, " (%s of stage %d, microbatch %d, action %d%s%s%s%s)", doing->what,
                 doing->stage, doing->microbatch, doing->action, *step ? ", " : "", step, *module ? ", in " : "",
                 module);
    else if (*step || *module)
        snprintf(text + used, size - used, " (%s%s%s%s)", step, *step && *module ? ", " : "", *module ? "in " : "",
                 module);
}

char *sl_last_call_describe(const struct sl_last_call *place, char *text, size_t size) {
    if (place->verb && place->object && place->site) {
        snprintf(text, size, "%s %s at %s", place->verb, place->object, place->site);
    } else {
        snprintf(text, size, "its start");
    }
    struct sl_doing doing = place->doing;
    doing.module = place->module;
    add_doing(&doing, text, size);
    return text;
}

bool sl_verdict_add(struct sl_error *verdict, const char *format, ...) {
    const size_t used = strlen(verdict->message), left = sizeof verdict->message - REST - used;
    va_list arguments;
    va_start(arguments, format);
    const int wrote = vsnprintf(verdict->message + used, left, format, arguments);
    va_end(arguments);
    if (wrote >= 0 && (size_t)wrote < left) return true;
    verdict->message[used] = 0;
    return false;
}

const char *sl_verdict_name(const struct sl_mesh *mesh, int coordinate, char text[SL_VERDICT_NAME]) {
    const int used = sprintf(text, "coordinate ");
    sl_mesh_describe(mesh, coordinate, text + used, SL_VERDICT_NAME - (size_t)used);
    return text;
}

/* ---- waiting ---- */

void sl_verdict_deadlock(struct sl_error *verdict, int waiting) {
    sl_verdict_add(verdict, "deadlock: %d coordinate%s:", waiting,
                   waiting == 1 ? " waits for itself" : "s wait for one another");
}

void sl_verdict_returned(struct sl_error *verdict, const struct sl_mesh *mesh, int peer, const char *place) {
    char who[SL_VERDICT_NAME];
    sl_verdict_add(verdict, "%s returned after %s while others wait for it:", sl_verdict_name(mesh, peer, who), place);
}

void sl_verdict_absent(struct sl_error *verdict, const struct sl_mesh *mesh, int peer, double seconds,
                       const char *place) {
    char who[SL_VERDICT_NAME];
    sl_verdict_add(verdict, "%s is absent: no sign of it for %g s, ", sl_verdict_name(mesh, peer, who), seconds);
    if (place) sl_verdict_add(verdict, "since %s, ", place);
    sl_verdict_add(verdict, "while others wait for it:");
}

bool sl_verdict_add_wait(struct sl_error *verdict, const struct sl_mesh *mesh, int coordinate, int peer,
                         const char *place) {
    char who[SL_VERDICT_NAME];
    return sl_verdict_add(verdict, "\n  %s waits for coordinate %d in %s", sl_verdict_name(mesh, coordinate, who), peer,
                          place);
}

void sl_verdict_add_more(struct sl_error *verdict, int lines) {
    sprintf(verdict->message + strlen(verdict->message), "\n  and %d more", lines);
}

/* Adds one line for all coordinates of REST in the same place as FIRST, and removes them from REST. Returns their
 * number; 0: the line does not fit. */
static int add_alike(struct sl_error *verdict, const struct sl_mesh *mesh, int first, uint64_t *rest,
                     const struct sl_verdict_waits *waits) {
    enum { RANGES = 120 };
    const size_t words = sl_set_words(mesh->size);
    uint64_t alike[words], peers[words];
    char where[SL_VERDICT_PLACE], there[SL_VERDICT_PLACE], who[RANGES], whom[RANGES];
    int count = 0;
    memset(alike, 0, sizeof alike);
    memset(peers, 0, sizeof peers);
    waits->place(waits->arg, first, where);
    for (int c = first; c < mesh->size; c++) {
        if (!sl_set_has(rest, c) || strcmp(waits->place(waits->arg, c, there), where) != 0) continue;
        sl_set_adds(alike, c);
        sl_set_adds(peers, waits->peer(waits->arg, c));
        count++;
    }
    const bool fits = count == 1 ? sl_verdict_add_wait(verdict, mesh, first, waits->peer(waits->arg, first), where)
                                 : sl_verdict_add(verdict, "\n  %d coordinates (%s) wait for %s in %s", count,
                                                  sl_mesh_describe_set(mesh, alike, who, sizeof who),
                                                  sl_mesh_describe_set(mesh, peers, whom, sizeof whom), where);
    if (!fits) return 0;
    for (size_t i = 0; i < words; i++) rest[i] &= ~alike[i];
    return count;
}

static int add_ranges(struct sl_error *verdict, const struct sl_mesh *mesh, int count, const int *coordinates,
                      const struct sl_verdict_waits *waits) {
    uint64_t rest[sl_set_words(mesh->size)];
    int told = 0, of = 1;
    memset(rest, 0, sizeof rest);
    for (int i = 0; i < count; i++) sl_set_adds(rest, coordinates[i]);
    for (int c = 0; c < mesh->size && of; c++) {
        if (!sl_set_has(rest, c)) continue;
        of = add_alike(verdict, mesh, c, rest, waits);
        told += of;
    }
    return told;
}

static int add_lines(struct sl_error *verdict, const struct sl_mesh *mesh, int count, const int *coordinates,
                     const struct sl_verdict_waits *waits) {
    int i = 0;
    for (bool fits = true; i < count && fits; i += fits) {
        char where[SL_VERDICT_PLACE];
        const int c = coordinates[i];
        fits = sl_verdict_add_wait(verdict, mesh, c, waits->peer(waits->arg, c), waits->place(waits->arg, c, where));
    }
    return i;
}

void sl_verdict_add_waits(struct sl_error *verdict, const struct sl_mesh *mesh, int count, const int *coordinates,
                          const struct sl_verdict_waits *waits) {
    const int told = (count > SCREEN ? add_ranges : add_lines)(verdict, mesh, count, coordinates, waits);
    if (told < count) sl_verdict_add_more(verdict, count - told);
}

/* ---- differing calls ---- */

bool sl_calls_fit(const struct sl_collective *mine, const struct sl_collective *theirs, int rank) {
    const int me = mine->group->rank;
    const bool permuted =
        (mine->source == rank) == (theirs->destination == me) && (mine->destination == rank) == (theirs->source == me);
    return mine->operation == theirs->operation && mine->dtype == theirs->dtype &&
           sl_block_elements(mine) == sl_block_elements(theirs) && mine->root == theirs->root &&
           mine->scale == theirs->scale && permuted;
}

bool sl_calls_agree(const struct sl_collective *mine, const struct sl_collective *theirs, int rank) {
    return sl_calls_fit(mine, theirs, rank) && (mine->site == theirs->site || !strcmp(mine->site, theirs->site));
}

/* Bits of a call's word, from the lowest: operation, dtype, mean, root + 1 (0: none); elements use the rest. */
enum { DTYPE_BIT = 4, MEAN_BIT = 8, ROOT_BIT = 9, ELEMENTS_BIT = 30 };
_Static_assert(SL_OPERATIONS <= 1 << DTYPE_BIT && SL_MOST_COORDINATES < 1 << (ELEMENTS_BIT - ROOT_BIT), "they fit");

uint64_t sl_call_word(const struct sl_collective *call) {
    return (uint64_t)call->operation | (uint64_t)call->dtype << DTYPE_BIT | (uint64_t)(call->scale != 1) << MEAN_BIT |
           (uint64_t)(call->root + 1) << ROOT_BIT | (uint64_t)sl_block_elements(call) << ELEMENTS_BIT;
}

struct sl_collective sl_call_of_word(uint64_t word) {
    return (struct sl_collective){.operation = (enum sl_operation)(word & ((1 << DTYPE_BIT) - 1)),
                                  .dtype = (enum sl_dtype)(word >> DTYPE_BIT & ((1 << (MEAN_BIT - DTYPE_BIT)) - 1)),
                                  .scale = word >> MEAN_BIT & 1 ? 0 : 1,
                                  .root = (int)(word >> ROOT_BIT & ((1 << (ELEMENTS_BIT - ROOT_BIT)) - 1)) - 1,
                                  .count = {1, 1, word >> ELEMENTS_BIT}};
}

struct sl_call_note sl_note_call(const struct sl_collective *call) {
    struct sl_call_note note = {.operation = (int32_t)call->operation,
                                .dtype = (int32_t)call->dtype,
                                .root = call->root,
                                .source = call->source,
                                .destination = call->destination,
                                .scale = call->scale,
                                .elements = sl_block_elements(call)};
    snprintf(note.site, sizeof note.site, "%s", call->site);
    return note;
}

struct sl_collective sl_noted_call(const struct sl_call_note *note) {
    return (struct sl_collective){.operation = (enum sl_operation)note->operation,
                                  .dtype = (enum sl_dtype)note->dtype,
                                  .root = note->root,
                                  .source = note->source,
                                  .destination = note->destination,
                                  .scale = note->scale,
                                  .count = {1, 1, note->elements},
                                  .site = note->site};
}

/* Adds a position in the group; -1: "nobody". */
static void add_position(struct sl_error *verdict, const char *what, int position) {
    if (position < 0) {
        sl_verdict_add(verdict, "%s nobody", what);
    } else {
        sl_verdict_add(verdict, "%s position %d", what, position);
    }
}

static void add_call(struct sl_error *verdict, const struct sl_mesh *mesh, const struct sl_collective *call,
                     int coordinate) {
    const struct sl_operation_row *operation = sl_operation_of(call);
    char who[SL_VERDICT_NAME];
    sl_verdict_add(verdict, "%s calls %s", sl_verdict_name(mesh, coordinate, who), sl_collective_name(call));
    if (call->operation != SL_BARRIER) {
        sl_verdict_add(verdict, " of %zu %s", sl_block_elements(call), sl_dtypes[call->dtype].name);
    }
    if (operation->from == SL_WITH_PAIRED && call->site) add_position(verdict, " from", call->source);
    if (operation->to == SL_WITH_PAIRED && call->site) add_position(verdict, " to", call->destination);
    if (operation->from == SL_WITH_ROOT) add_position(verdict, " from", call->root);
    if (operation->to == SL_WITH_ROOT) add_position(verdict, " to", call->root);
    if (call->site) sl_verdict_add(verdict, " at %s", call->site);
}

void sl_verdict_mismatch(struct sl_error *verdict, const struct sl_mesh *mesh, const struct sl_collective *mine, int me,
                         const struct sl_collective *theirs, int peer) {
    sl_verdict_add(verdict, "calls over \"%s\" differ: ", mine->group->name);
    add_call(verdict, mesh, mine, me);
    sl_verdict_add(verdict, ", ");
    add_call(verdict, mesh, theirs, peer);
}

void sl_verdict_other_members(struct sl_error *verdict, const struct sl_mesh *mesh, const struct sl_collective *mine,
                              int me, int peer) {
    char who[SL_VERDICT_NAME];
    sl_verdict_add(verdict, "calls over \"%s\" differ: ", mine->group->name);
    add_call(verdict, mesh, mine, me);
    sl_verdict_add(verdict, ", %s calls over other members: all coordinates open the same groups in the same order",
                   sl_verdict_name(mesh, peer, who));
}

bool sl_channel_ends_agree(struct sl_error *verdict, int from, int to, const struct sl_channel_end *mine,
                           const struct sl_channel_end *theirs) {
    if (mine->bytes == theirs->bytes && mine->slots == theirs->slots) return true;
    sl_verdict_add(
        verdict,
        "the ends of channel %d -> %d differ: %d slots of %zu bytes at %.150s, %d slots of %zu bytes at %.150s", from,
        to, mine->slots, mine->bytes, mine->site, theirs->slots, theirs->bytes, theirs->site);
    return false;
}
