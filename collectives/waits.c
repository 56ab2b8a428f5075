/* waits.c - saves a coordinate's call and activity as texts, which outlive it. */
#include "collectives/waits.h"

#include <string.h>

/* Copies the first bytes of FROM, which may be NULL, and a final zero. */
static void copy_text(char *to, size_t size, const char *from) {
    const size_t length = from ? strnlen(from, size - 1) : 0;
    if (length) memcpy(to, from, length);
    to[length] = 0;
}

void sl_last_call_note(struct sl_last_call *place, const char *verb, const char *object, const char *site,
                       const struct sl_doing *doing) {
    place->verb = verb, place->object = object, place->site = site;
    place->doing = *doing;
    place->doing.module = NULL;
    copy_text(place->module, sizeof place->module, doing->module);
}

const char *sl_waiting_name(int state) {
    static const char *const name[] = {"unknown", "computes", "waits", "returned"};
    return state >= 0 && state < (int)(sizeof name / sizeof *name) ? name[state] : name[SL_WAITING_UNKNOWN];
}

void sl_waiting_note(struct sl_waiting *waiting, enum sl_waiting_state state, int peer,
                     const struct sl_last_call *place) {
    *waiting = (struct sl_waiting){.state = (int32_t)state,
                                   .peer = state == SL_WAITS ? peer : -1,
                                   .stage = place->doing.stage,
                                   .microbatch = place->doing.microbatch,
                                   .action = place->doing.action,
                                   .steps = place->doing.steps};
    copy_text(waiting->verb, sizeof waiting->verb, place->verb);
    copy_text(waiting->object, sizeof waiting->object, place->object);
    copy_text(waiting->site, sizeof waiting->site, place->site);
    copy_text(waiting->what, sizeof waiting->what, place->doing.what);
    copy_text(waiting->module, sizeof waiting->module, place->module);
}
