/* device.h - where coordinates compute: this machine's CPU, or devices with memory and queues of their own.
 *
 * A build computes on one kind of device, and sl_device is the table of that kind (cpu.c, offload.c or cuda.c).
 * Each thread has a current device. sl_run opens one for every coordinate's thread before the program begins; several
 * threads may share a device. From then on that thread's target regions, memory and copies are on its device. A thread
 * for which no device was opened uses device 0.
 *
 * Matrix products, communication and target regions are enqueued on the thread's queue, and the host does not wait for
 * them: what a region has computed can be read, by a copy, after everything in the queue. Only a region that maps
 * something back to the host has ended when it returns. */
#ifndef SL_SPMD_DEVICE_DEVICE_H
#define SL_SPMD_DEVICE_DEVICE_H

#include "spmd/base/budget.h"
#include "spmd/base/error.h"

SL_BEGIN_C

/* Whether what a step asks of a device's queue becomes graphs, which later steps run: where that works, with a reason
 * where it does not, or else the queue fails. */
enum sl_graphs { SL_GRAPHS_OFF, SL_GRAPHS_AUTO, SL_GRAPHS_ON };

enum { SL_MOST_CONSTANT = 1 << 16 }; /* bytes */

/* What became of it. */
struct sl_graph_report {
    int steps, replayed; /* of them, those that were graphs to the end */
    int parted;          /* of these, those with a part that was calls: the host could not go on before all had come */
    /* Of the last one that was replayed: regions, products, copies and fills; in how many graphs, and how many of them;
     * and kernels that had other arguments than in the step before. */
    int calls, graphs, kept, changed;
    char why[240]; /* why the last step that was none was not; empty: there has been no such step */
};

/* A request for a device's memory that was refused. */
struct sl_refusal {
    int device;
    size_t bytes;       /* that were asked for; 0: not known */
    size_t room, whole; /* what the device had free then, and all that it has; whole = 0: it does not tell */
    char why[160];      /* empty: it has no more; otherwise what else was wrong */
};
enum { SL_DEVICE_ROOM = 1 << 20 };

struct sl_device_table {
    const char *name;   /* "cpu", "offload", "cuda" */
    bool shares_memory; /* host and device read and write the same memory: no copies are needed */
    /* SL_OK where programs can run on this kind of device; otherwise SL_BAD_INPUT, with a line that says why not. */
    int (*check)(struct sl_error *error);
    /* How many devices there are. */
    int (*count)(void);
    /* Before devices are opened: whether threads sleep while they wait for one, as where cores are fewer than threads,
     * or look on. A device that is open already stays as it is. NULL where nobody waits. */
    void (*rests)(bool asleep);
    /* Opens device NUMBER for the calling thread; *QUEUE is the thread's compute queue, NULL where there is none. */
    int (*open)(int number, void **queue, struct sl_error *error);
    void (*close)(void);

    /* Allocates device memory: zeroed, aligned to a cache line; NULL when there is not enough. Free it with give, from
     * any thread. */
    void *(*take)(size_t bytes);
    void (*give)(void *memory);
    /* Allocates host memory from which a copy to the device runs while the host goes on (pinned memory). Free it with
     * give_host. */
    void *(*take_host)(size_t bytes);
    void (*give_host)(void *memory);
    /* Bytes of the calling thread's device: *ROOM that can still be taken, of *WHOLE; false where it does not tell.
     * NULL where take gives the host's memory. */
    bool (*memory)(size_t *room, size_t *whole);
    /* What the process was refused last, of several requests to a device the largest; false: nothing was. NULL where
     * take gives the host's memory. */
    bool (*refused)(struct sl_refusal *refusal);
    /* Whether target regions can read and write MEMORY. */
    bool (*reaches)(const void *memory);
    /* Copies BYTES between any two memories, after everything in the queue. A copy to the host has ended on return. A
     * copy from the host has ended too, unless FROM came from take_host. All other copies are only enqueued. */
    void (*copy)(void *to, const void *from, size_t bytes);
    /* The same of ROWS rows of BYTES, which begin TO_PITCH and FROM_PITCH bytes apart. */
    void (*copy_rows)(size_t rows, size_t bytes, void *to, size_t to_pitch, const void *from, size_t from_pitch);
    /* Copies BYTES between device memory and memory from take_host on a queue beside the thread's own: after everything
     * that is in the thread's queue now, and while what comes into it later runs. await_aside makes what comes into the
     * thread's queue from then on wait for all such copies. Where there are no queues, a copy has ended on return. */
    void (*copy_aside)(void *to, const void *from, size_t bytes);
    void (*await_aside)(void);
    void (*zero)(void *memory, size_t bytes);
    /* Waits until the queue is empty. ERROR (may be NULL) receives the first failure in it since the last call. */
    int (*settle)(struct sl_error *error);
    /* Between queues, without the host's waiting. mark sets *MARK, which is NULL at first, to all that is in the
     * thread's queue by now, and reports like settle what is known to have failed. follow makes what comes into the
     * thread's queue from now on wait for another thread's MARK; NULL: for nothing. A mark may be set again while
     * others follow it. await lets the host wait for one, free_mark frees it, both from any thread. Where there are no
     * queues, there is nothing to do. */
    int (*mark)(void **mark, struct sl_error *error);
    void (*follow)(void *mark);
    void (*await)(void *mark);
    void (*free_mark)(void *mark);
    /* Memory that target regions can read, with the BYTES (at most SL_MOST_CONSTANT) that are at FROM now: good for the
     * regions that come before the next call, which only read it. What has the same bytes as in an earlier call need
     * not be copied again; so a step, whose lists of pointers are those of steps before it, copies none. What lies
     * between fields must be set, too. Where there are no queues, it is FROM itself. */
    const void *(*constant)(const void *from, size_t bytes);
    /* SL_DEVICE_ROOM bytes that a queue has of its own, for what a kernel's first region leaves to its second: whatever
     * comes into the queue later may write there. NULL where there are no queues. */
    void *(*room)(void);
    /* Stands before a target region (spmd/device/offload.h), where the device has a queue; NULL where it has none. */
    void (*begin_region)(void);

    /* Between these a thread takes a step. Steps of one OWNER ask the queue for the same in the same order, but for
     * numbers: after two that were alike they become graphs, where there are some, and which the device runs as it runs
     * what it is asked for call by call (spmd/device/tape.h). OWNER is not followed. */
    void (*begin_step)(const void *owner, enum sl_graphs graphs);
    void (*end_step)(void);
    /* Of the thread's steps, of their last owner. NULL where there are no graphs. */
    void (*report_graphs)(struct sl_graph_report *report);

    /* Whether target regions really run on a device, and not on the CPU in its place. */
    bool (*offloads)(void);
    /* For placement: the distance of two devices (0: closest; INT_MAX: neither reaches the other's memory). */
    int (*distance)(int one, int other);
    /* The device's PCI address; NULL where it has none. */
    const char *(*bus)(int number);
};

extern const struct sl_device_table sl_device;

/* Device memory as from sl_device.take, which HELD (may be NULL) counts as memory for WHAT. */
static inline void *sl_device_take(struct sl_budget *held, enum sl_memory_kind what, size_t bytes) {
    void *memory = sl_device.take(bytes);
    if (memory) sl_budget_add(held, what, bytes);
    return memory;
}

SL_END_C
#endif
