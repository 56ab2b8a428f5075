/* window.h - offloaded arrays that take turns in memory: a few are resident, the others lie in offload memory (far.h).
 *
 * The arrays are numbered units, used one at a time, in a known, repeating order. Resident memory has room for a few
 * units, each in a frame. When a unit is used, the next non-resident unit in the order begins to load. It takes the
 * frame whose unit has its next use last; that unit is written back first. A unit used out of order is loaded, too, but
 * only when it is used. */
#ifndef SL_SPMD_DEVICE_WINDOW_H
#define SL_SPMD_DEVICE_WINDOW_H

#include "spmd/device/far.h"

SL_BEGIN_C

struct sl_window_unit {
    size_t bytes, place; /* place: its offset in the offload memory */
    bool stored;         /* has been written to the offload memory */
    int frame;           /* -1: not resident */
};

struct sl_window_frame {
    char *memory;
    int unit;     /* -1: none */
    bool changed; /* the unit has been written to since it was loaded */
    bool coming;  /* the load of the unit has begun and not been awaited yet */
    bool leaving; /* the former unit's write-back may still be running */
};

struct sl_window {
    struct sl_far far;
    size_t place, most; /* bytes of all units, and of the largest one */
    int units, unit_capacity;
    struct sl_window_unit *unit;
    int frames;
    struct sl_window_frame *frame;
    char *memory; /* memory of all frames */
    int uses, use_capacity;
    int *order; /* [uses] units; no two neighbours are the same */
    int cursor; /* index of the last use in the order */
};

/* For planning, from a zeroed window on: adds a unit of BYTES; adds the next use to the order. SL_FAILED without
 * memory. */
int sl_window_add(struct sl_window *window, size_t bytes, struct sl_error *error);
int sl_window_plan_use(struct sl_window *window, int unit, struct sl_error *error);
/* Bytes of FRAMES frames in resident memory. All units' offloaded bytes are window->place. */
size_t sl_window_near_bytes(const struct sl_window *window, int frames);

/* Allocates the memory. DIRECTORY and errors are those of sl_far_open. */
int sl_window_open(struct sl_window *window, int frames, const char *directory, struct sl_error *error);
/* Frees also the plan. */
void sl_window_close(struct sl_window *window);

/* Makes UNIT resident, and begins to load the next one. *MEMORY is valid until another unit is used. CHANGES: the
 * caller will write to it, so it must be written back. A unit never written back begins with garbage. SL_FAILED if
 * fewer bytes of a file can be read or written. */
int sl_window_use(struct sl_window *window, int unit, bool changes, void **memory, struct sl_error *error);
/* Discards UNIT's contents. */
void sl_window_drop(struct sl_window *window, int unit);
/* Treats all units as stored: they have the values in the offload memory, which are zeros at first. */
void sl_window_begin_stored(struct sl_window *window);

SL_END_C
#endif
