/* line.c - lines of the local engine: each member's count is a word, and its messages lie beside it. */
#include "collectives/local/engine.h"
#include "spmd/base/memory.h"

#include <stdlib.h>
#include <string.h>

struct member {
    alignas(SL_CACHE_LINE) struct sl_local_word count;
    char *messages; /* [kept], each of `bytes` rounded up */
};

struct sl_local_line {
    struct sl_local_line *next;
    struct sl_group group; /* the copy of its first opener */
    int64_t number;
    int left; /* members still to close it */
    struct member member[];
};

static size_t pitch(const struct sl_engine_line *line) { return sl_round_up(line->bytes, SL_CACHE_LINE); }

static struct sl_local_line *new_line(const struct sl_engine_line *wanted) {
    const size_t size = (size_t)wanted->group->size, each = pitch(wanted) * (size_t)wanted->kept;
    struct sl_local_line *line = sl_local_take(sizeof *line + size * (sizeof *line->member + each));
    if (!line) return NULL;
    line->group = *wanted->group;
    line->number = wanted->number;
    line->left = wanted->group->size;
    for (size_t i = 0; i < size; i++) line->member[i].messages = (char *)&line->member[size] + i * each;
    return line;
}

static bool is_same(const struct sl_local_line *line, const struct sl_engine_line *wanted) {
    bool same = line->number == wanted->number && line->group.size == wanted->group->size;
    for (int i = 0; i < line->group.size && same; i++)
        same = sl_group_member(&line->group, i) == sl_group_member(wanted->group, i);
    return same;
}

const char *sl_local_line_open(struct sl_spmd *self, struct sl_engine_line *wanted) {
    struct sl_local_run *run = sl_local_self(self)->run;
    pthread_mutex_lock(&run->opening);
    struct sl_local_line **at = &run->coordinate[sl_group_member(wanted->group, 0)].lines;
    while (*at && !is_same(*at, wanted)) at = &(*at)->next;
    if (!*at) *at = new_line(wanted);
    wanted->state = *at;
    pthread_mutex_unlock(&run->opening);
    return wanted->state ? NULL : "no memory";
}

/* The last member frees it. Afterwards no verdict refers to it as an awaited word. */
int sl_local_line_close(struct sl_spmd *self, struct sl_engine_line *closed) {
    struct sl_local_run *run = sl_local_self(self)->run;
    struct sl_local_line *line = closed->state, **at = &run->coordinate[sl_group_member(&line->group, 0)].lines;
    pthread_mutex_lock(&run->opening);
    if (--line->left == 0) {
        while (*at != line) at = &(*at)->next;
        *at = line->next;
        free(line);
    }
    pthread_mutex_unlock(&run->opening);
    return SL_OK;
}

void sl_local_lines_close(struct sl_local_run *run) {
    for (int i = 0; i < run->mesh->size; i++) {
        struct sl_local_line **first = &run->coordinate[i].lines;
        while (*first) {
            struct sl_local_line *line = *first;
            *first = line->next;
            free(line);
        }
    }
}

static struct member *member_of(const struct sl_engine_line *line, int position) {
    return &((struct sl_local_line *)line->state)->member[position];
}

static char *place_of(const struct sl_engine_line *line, int position, uint32_t count) {
    return member_of(line, position)->messages + pitch(line) * (count % (uint32_t)line->kept);
}

void sl_local_line_tell(struct sl_spmd *self, struct sl_engine_line *line, uint32_t count, const void *message,
                        const bool *to) {
    (void)to;
    if (self->sent) self->sent[line->kind].bells++;
    if (message) memcpy(place_of(line, line->group->rank, count), message, line->bytes);
    sl_local_post(&member_of(line, line->group->rank)->count, count);
}

int sl_local_line_hear(struct sl_spmd *self, struct sl_engine_line *line, int position, uint32_t count, bool waits) {
    if (!waits) return SL_OK;
    for (int i = 0; i < line->group->size && position == SL_ALL_MEMBERS; i++)
        if (i != line->group->rank) SL_TRY(sl_local_line_hear(self, line, i, count, true));
    if (position == SL_ALL_MEMBERS) return SL_OK;
    return sl_local_wait(sl_local_self(self), &member_of(line, position)->count, count,
                         sl_group_member(line->group, position), NULL);
}

/* SC: if two members tell counts, and then each looks for the other's count, at least one of them hears it. */
bool sl_local_line_heard(const struct sl_engine_line *line, int position, uint32_t count) {
    for (int i = 0; i < line->group->size && position == SL_ALL_MEMBERS; i++)
        if (i != line->group->rank && !sl_local_line_heard(line, i, count)) return false;
    return position == SL_ALL_MEMBERS || sl_local_reached(atomic_load(&member_of(line, position)->count.value), count);
}

const void *sl_local_line_message(const struct sl_engine_line *line, int position, uint32_t count) {
    return place_of(line, position, count);
}
