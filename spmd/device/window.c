/* window.c - loads units before their use, in the planned order. */
#include "spmd/device/window.h"

#include <limits.h>
#include <stdlib.h>

#include "spmd/base/memory.h"
#include "spmd/device/device.h"

/* ---- planning ---- */

int sl_window_add(struct sl_window *window, size_t bytes, struct sl_error *error) {
    struct sl_window_unit *grown =
        sl_grow(window->unit, window->units, &window->unit_capacity, 16, sizeof *window->unit);
    if (!grown) return sl_error_set(error, SL_FAILED, "no memory to plan what is offloaded");
    window->unit = grown;
    window->unit[window->units++] = (struct sl_window_unit){.bytes = bytes, .place = window->place, .frame = -1};
    window->place += bytes;
    if (bytes > window->most) window->most = bytes;
    return SL_OK;
}

int sl_window_plan_use(struct sl_window *window, int unit, struct sl_error *error) {
    if (window->uses && window->order[window->uses - 1] == unit) return SL_OK;
    int *grown = sl_grow(window->order, window->uses, &window->use_capacity, 64, sizeof *grown);
    if (!grown) return sl_error_set(error, SL_FAILED, "no memory to plan what is offloaded");
    window->order = grown;
    window->order[window->uses++] = unit;
    return SL_OK;
}

static size_t frame_bytes(const struct sl_window *window) { return sl_round_up(window->most, SL_CACHE_LINE); }

size_t sl_window_near_bytes(const struct sl_window *window, int frames) { return (size_t)frames * frame_bytes(window); }

int sl_window_open(struct sl_window *window, int frames, const char *directory, struct sl_error *error) {
    window->memory = sl_device.take(sl_window_near_bytes(window, frames));
    window->frame = calloc((size_t)frames, sizeof *window->frame);
    if (!window->memory || !window->frame)
        return sl_error_set(error, SL_FAILED, "no memory for %zu bytes of what is offloaded in turns",
                            sl_window_near_bytes(window, frames));
    window->frames = frames;
    for (int f = 0; f < frames; f++)
        window->frame[f] =
            (struct sl_window_frame){.memory = window->memory + (size_t)f * frame_bytes(window), .unit = -1};
    return sl_far_open(&window->far, directory, window->place, error);
}

void sl_window_close(struct sl_window *window) {
    if (window->memory) sl_far_await(&window->far);
    sl_far_close(&window->far);
    sl_device.give(window->memory);
    free(window->frame);
    free(window->unit);
    free(window->order);
    *window = (struct sl_window){0};
}

void sl_window_begin_stored(struct sl_window *window) {
    for (int u = 0; u < window->units; u++) window->unit[u].stored = true;
}

/* ---- the order ---- */

/* The number of uses from the last one to the next use of UNIT, which is not the last used unit. */
static int uses_until(const struct sl_window *window, int unit) {
    for (int i = 1; i <= window->uses; i++)
        if (window->order[(window->cursor + i) % window->uses] == unit) return i;
    return INT_MAX;
}

/* Moves the cursor to the next use of UNIT. If UNIT is not in the order, the cursor stays. */
static void move_cursor(struct sl_window *window, int unit) {
    if (!window->uses || window->order[window->cursor] == unit) return;
    const int uses = uses_until(window, unit);
    if (uses != INT_MAX) window->cursor = (window->cursor + uses) % window->uses;
}

/* An empty frame, or the frame whose unit is used last of all, but after more than SOON uses; never KEEP. -1: there is
 * none. */
static int find_frame(const struct sl_window *window, int keep, int soon) {
    int found = -1, last = soon;
    for (int f = 0; f < window->frames; f++) {
        if (f == keep) continue;
        if (window->frame[f].unit < 0) return f;
        const int uses = uses_until(window, window->frame[f].unit);
        if (uses <= last) continue;
        found = f;
        last = uses;
    }
    return found;
}

/* ---- moving ---- */

static int leave(struct sl_window *window, int number, struct sl_error *error) {
    struct sl_window_frame *frame = &window->frame[number];
    if (frame->unit < 0) return SL_OK;
    struct sl_window_unit *unit = &window->unit[frame->unit];
    if (frame->changed) {
        SL_TRY(sl_far_write_start(&window->far, unit->place, frame->memory, unit->bytes, error));
        unit->stored = frame->leaving = true;
    }
    frame->leaving = frame->leaving || frame->coming;
    frame->changed = frame->coming = false;
    frame->unit = unit->frame = -1;
    return SL_OK;
}

static void come(struct sl_window *window, int number, int frame) {
    struct sl_window_unit *unit = &window->unit[number];
    window->frame[frame].unit = number;
    unit->frame = frame;
    if (!unit->stored) return;
    window->frame[frame].coming = true;
    sl_far_read_start(&window->far, unit->place, window->frame[frame].memory, unit->bytes);
}

/* Waits for FRAME's transfers. */
static int settle(struct sl_window *window, struct sl_window_frame *frame, struct sl_error *error) {
    const struct sl_window_unit *unit = &window->unit[frame->unit];
    if (frame->coming)
        SL_TRY(sl_far_read_end(&window->far, unit->place, frame->memory, unit->bytes, error));
    else if (frame->leaving)
        sl_far_await(&window->far);
    frame->coming = frame->leaving = false;
    return SL_OK;
}

/* The next non-resident unit in the order; -1: all are. */
static int next_unit(const struct sl_window *window) {
    for (int i = 1; i < window->uses; i++) {
        const int unit = window->order[(window->cursor + i) % window->uses];
        if (window->unit[unit].frame < 0) return unit;
    }
    return -1;
}

/* Begins to load the next unit, while frame CURRENT is in use. */
static int bring_next(struct sl_window *window, int current, struct sl_error *error) {
    const int unit = next_unit(window);
    if (unit < 0) return SL_OK;
    const int frame = find_frame(window, current, uses_until(window, unit));
    if (frame < 0) return SL_OK;
    SL_TRY(leave(window, frame, error));
    come(window, unit, frame);
    return SL_OK;
}

int sl_window_use(struct sl_window *window, int unit, bool changes, void **memory, struct sl_error *error) {
    move_cursor(window, unit);
    if (window->unit[unit].frame < 0) {
        const int frame = find_frame(window, -1, 0);
        SL_TRY(leave(window, frame, error));
        come(window, unit, frame);
    }
    struct sl_window_frame *frame = &window->frame[window->unit[unit].frame];
    SL_TRY(settle(window, frame, error));
    frame->changed = frame->changed || changes;
    *memory = frame->memory;
    return bring_next(window, window->unit[unit].frame, error);
}

void sl_window_drop(struct sl_window *window, int number) {
    struct sl_window_unit *unit = &window->unit[number];
    unit->stored = false;
    if (unit->frame < 0) return;
    struct sl_window_frame *frame = &window->frame[unit->frame];
    frame->leaving = frame->leaving || frame->coming; /* the transfer must end before the frame is written to */
    frame->changed = frame->coming = false;
    frame->unit = unit->frame = -1;
}
