/* window.h - arrays that take turns in memory: a few are near, all others further away (far.h).
 *
 * The arrays are numbered units, used one at a time, in an order that is known beforehand and begins anew when it has
 * ended. Near memory has room for a few of them, each in a frame. When a unit is used, the next one in the order that
 * is not near begins to come, to the frame whose unit will be used last of all; that one leaves first. What is used out
 * of order is brought, too, but later. */
#ifndef SL_SPMD_DEVICE_WINDOW_H
#define SL_SPMD_DEVICE_WINDOW_H

#include "spmd/device/far.h"

SL_BEGIN_C

struct sl_window_unit {
    size_t bytes, place; /* its place in the memory that is further away */
    bool stored;         /* has been written there */
    int frame;           /* -1: it is not near */
};

struct sl_window_frame {
    char *memory;
    int unit;     /* -1: none */
    bool changed; /* since it came */
    bool coming;  /* the unit begins to come, and has not ended yet */
    bool leaving; /* the frame's former unit may still be on its way out */
};

struct sl_window {
    struct sl_far far;
    size_t place, most; /* bytes of all units, and of the largest one */
    int units, unit_capacity;
    struct sl_window_unit *unit;
    int frames;
    struct sl_window_frame *frame;
    char *memory; /* of all frames */
    int uses, use_capacity;
    int *order; /* [uses] units; no two neighbours are the same */
    int cursor; /* the last use */
};

/* Plans, from a window of zeros on: one more unit of BYTES; the next use in the order. SL_FAILED without memory. */
int sl_window_add(struct sl_window *window, size_t bytes, struct sl_error *error);
int sl_window_plan_use(struct sl_window *window, int unit, struct sl_error *error);
/* Bytes of FRAMES frames, near; all units' bytes further away are window->place. */
size_t sl_window_near_bytes(const struct sl_window *window, int frames);

/* Takes the memory. DIRECTORY and errors are those of sl_far_open. */
int sl_window_open(struct sl_window *window, int frames, const char *directory, struct sl_error *error);
/* Frees also what has been planned. */
void sl_window_close(struct sl_window *window);

/* Brings UNIT near, and begins to bring the next one. It stays at *MEMORY until another unit is used. CHANGES: what is
 * there will be written to, and must not be lost. A unit that has never left has the bytes of others, until it is
 * written to. SL_FAILED if a file gives or takes less. */
int sl_window_use(struct sl_window *window, int unit, bool changes, void **memory, struct sl_error *error);
/* What UNIT holds is not needed any more. */
void sl_window_drop(struct sl_window *window, int unit);
/* All units are what the memory further away holds, which begins as zeros. */
void sl_window_begin_stored(struct sl_window *window);

SL_END_C
#endif
