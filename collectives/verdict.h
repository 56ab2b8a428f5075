/* verdict.h - the words of verdicts, the same for every engine: which coordinate waits for which peer in which call,
 * and which calls, or ends of a channel, differ. */
#ifndef SL_COLLECTIVES_VERDICT_H
#define SL_COLLECTIVES_VERDICT_H

#include "collectives/waits.h"

SL_BEGIN_C

/* Writes `psum over "data" at train.c:12` to TEXT, or "its start" before the first call. In a training step it appends
 * ` (forward of stage 2, microbatch 3, action 17, step 12, in blocks.3.up (dense))`, or ` (step 12)` between actions.
 * Returns TEXT. */
char *sl_last_call_describe(const struct sl_last_call *place, char *text, size_t size);

/* Appends to a verdict. If the text does not fit, adds nothing and returns false. */
bool sl_verdict_add(struct sl_error *verdict, const char *format, ...) SL_PRINTF(2, 3);

/* Writes "coordinate 5 (data=1, model=1)" to TEXT, and returns it. */
enum { SL_VERDICT_NAME = 200, SL_VERDICT_PLACE = 300 };
const char *sl_verdict_name(const struct sl_mesh *mesh, int coordinate, char text[SL_VERDICT_NAME]);

/* Write the first line of a verdict; lines of sl_verdict_add_wait should follow. PLACE is the peer's last call as text.
 * In sl_verdict_absent PLACE may be NULL: the call is not known. */
void sl_verdict_deadlock(struct sl_error *verdict, int waiting);
void sl_verdict_returned(struct sl_error *verdict, const struct sl_mesh *mesh, int peer, const char *place);
void sl_verdict_absent(struct sl_error *verdict, const struct sl_mesh *mesh, int peer, double seconds,
                       const char *place);

/* Adds a line: COORDINATE waits for PEER in PLACE. If it does not fit, adds nothing and returns false. */
bool sl_verdict_add_wait(struct sl_error *verdict, const struct sl_mesh *mesh, int coordinate, int peer,
                         const char *place);
/* Adds a line for each of COUNT waiting COORDINATES. If a screen has too few lines for them, adds one line per place,
 * with the ranges of its waiting coordinates and of their peers. The callbacks PEER and PLACE describe one
 * coordinate. */
struct sl_verdict_waits {
    int (*peer)(void *arg, int coordinate);
    const char *(*place)(void *arg, int coordinate, char text[SL_VERDICT_PLACE]);
    void *arg;
};
void sl_verdict_add_waits(struct sl_error *verdict, const struct sl_mesh *mesh, int count, const int *coordinates,
                          const struct sl_verdict_waits *waits);
/* Adds a line with the number of LINES that did not fit. There is always room for it. */
void sl_verdict_add_more(struct sl_error *verdict, int lines);

/* Whether MINE and THEIRS, the call of the member at position RANK, match; the lines of the calls may differ. */
bool sl_calls_fit(const struct sl_collective *mine, const struct sl_collective *theirs, int rank);
/* Whether they match and come from the same line. */
bool sl_calls_agree(const struct sl_collective *mine, const struct sl_collective *theirs, int rank);

/* A call packed into one word, which members exchange in any mode: operation, dtype, elements, root, and whether it is
 * a mean. */
uint64_t sl_call_word(const struct sl_collective *call);
/* Unpacks WORD. Pairs and the line of the call are not in it, so verdicts omit them. */
struct sl_collective sl_call_of_word(uint64_t word);

/* A call described by values alone, which members send each other. */
struct sl_call_note {
    int32_t operation, dtype, root, source, destination;
    float scale;
    uint64_t elements, members; /* a hash of the group's members, if compared */
    char site[104];
};
struct sl_call_note sl_note_call(const struct sl_collective *call);
/* The call of NOTE, which has only the compared fields; its site is NOTE's. */
struct sl_collective sl_noted_call(const struct sl_call_note *note);

/* Adds a line: MINE, the call of coordinate ME, and THEIRS, the call of coordinate PEER, differ. A call without a site
 * comes from sl_call_of_word. */
void sl_verdict_mismatch(struct sl_error *verdict, const struct sl_mesh *mesh, const struct sl_collective *mine, int me,
                         const struct sl_collective *theirs, int peer);

/* As sl_verdict_mismatch, for a call of PEER over other members. */
void sl_verdict_other_members(struct sl_error *verdict, const struct sl_mesh *mesh, const struct sl_collective *mine,
                              int me, int peer);

/* Arguments with which one end opened a channel; BYTES are per slot. */
struct sl_channel_end {
    int slots;
    size_t bytes;
    const char *site;
};
/* Whether the ends of the channel FROM -> TO are alike; if not, adds the difference to the verdict. */
bool sl_channel_ends_agree(struct sl_error *verdict, int from, int to, const struct sl_channel_end *mine,
                           const struct sl_channel_end *theirs);

SL_END_C
#endif
