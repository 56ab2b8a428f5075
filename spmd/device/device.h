/* device.h - devices for computation: this machine's CPU, or devices with memory and queues of their own.
 *
 * A build computes on one kind of device, and sl_device is the table of that kind (cpu.c, offload.c or cuda.c). Each
 * thread has a current device. sl_run opens one for every coordinate's thread before the program begins; several
 * threads may share a device. From then on the thread's target regions, memory and copies are on this device. A thread
 * without an opened device uses device 0.
 *
 * Matrix products, communication and target regions are enqueued on the thread's queue, and the host does not wait for
 * them: a copy reads a region's results after everything in the queue. Only regions with data mapped back to the host
 * have ended when they return. */
#ifndef SL_SPMD_DEVICE_DEVICE_H
#define SL_SPMD_DEVICE_DEVICE_H

#include "spmd/base/budget.h"
#include "spmd/base/error.h"

SL_BEGIN_C

/* Whether the calls of a step become graphs that later steps launch. AUTO: if graphs fail, the steps stay calls, and
 * the report has the reason. ON: if graphs fail, the queue fails. */
enum sl_graphs { SL_GRAPHS_OFF, SL_GRAPHS_AUTO, SL_GRAPHS_ON };

enum { SL_MOST_CONSTANT = 1 << 16 }; /* bytes */

/* Statistics of a thread's graphs. */
struct sl_graph_report {
    int steps, replayed; /* all steps; steps that ran as graphs to their end */
    int parted; /* replayed steps with a piece run as single calls, because the host used the stream within it */
    /* The last replayed step: its calls (regions, products, copies, fills); its graphs; calls within graphs; kernels
     * with other arguments than in the step before. */
    int calls, graphs, kept, changed;
    char why[240]; /* why a step did not become or stay graphs, for the last such step; empty: none */
};

/* A refused request for a device's memory. */
struct sl_refusal {
    int device;
    size_t bytes;       /* requested bytes; 0: unknown */
    size_t room, whole; /* free and total bytes of the device at that time; whole = 0: unknown */
    char why[160];      /* empty: the device had no more memory; otherwise another cause */
};
enum { SL_DEVICE_ROOM = 1 << 20 };

struct sl_device_table {
    const char *name;   /* "cpu", "offload", "cuda" */
    bool shares_memory; /* host and device read and write the same memory: no copies are needed */
    /* SL_OK if programs can run on this kind of device; otherwise SL_BAD_INPUT, with the reason. */
    int (*check)(struct sl_error *error);
    /* The number of devices. */
    int (*count)(void);
    /* Called before devices are opened: whether threads sleep while they wait for a device (as with fewer cores than
     * threads) or poll. Open devices are not changed. NULL if threads never wait. */
    void (*rests)(bool asleep);
    /* Opens device NUMBER for the calling thread; *QUEUE receives the thread's compute queue, NULL if the device has
     * none. */
    int (*open)(int number, void **queue, struct sl_error *error);
    void (*close)(void);

    /* Allocates device memory: zeroed, aligned to a cache line; NULL if there is not enough. Free it with give, from
     * any thread. */
    void *(*take)(size_t bytes);
    void (*give)(void *memory);
    /* Allocates host memory from which copies to the device run while the host goes on (pinned memory). Free it with
     * give_host. */
    void *(*take_host)(size_t bytes);
    void (*give_host)(void *memory);
    /* Bytes of the calling thread's device: *ROOM free, *WHOLE in total; false: unknown. NULL if take returns host
     * memory. */
    bool (*memory)(size_t *room, size_t *whole);
    /* The process's last refused request; of several requests to one device the largest. False: no request was refused.
     * NULL if take returns host memory. */
    bool (*refused)(struct sl_refusal *refusal);
    /* Whether target regions can read and write MEMORY. */
    bool (*reaches)(const void *memory);
    /* Copies BYTES between any two memories, after everything in the queue. A copy to the host has ended on return. A
     * copy from the host has ended too, unless FROM came from take_host. All other copies are only enqueued. */
    void (*copy)(void *to, const void *from, size_t bytes);
    /* Copies ROWS rows of BYTES in the same way; rows begin TO_PITCH and FROM_PITCH bytes apart. */
    void (*copy_rows)(size_t rows, size_t bytes, void *to, size_t to_pitch, const void *from, size_t from_pitch);
    /* Copies BYTES between device memory and memory from take_host on a queue beside the thread's own: after everything
     * now in the thread's queue, and in parallel with later work in it. await_aside makes later work in the thread's
     * queue wait for all such copies. If there are no queues, a copy has ended on return. */
    void (*copy_aside)(void *to, const void *from, size_t bytes);
    void (*await_aside)(void);
    void (*zero)(void *memory, size_t bytes);
    /* Waits until the queue is empty. ERROR (may be NULL) receives the first failure in it since the last call. */
    int (*settle)(struct sl_error *error);
    /* Order between queues, without waiting on the host. mark sets *MARK, which is NULL at first, to all work in the
     * thread's queue so far, and reports known failures as settle does. follow makes later work in the thread's queue
     * wait for another thread's MARK; NULL: for nothing. A mark may be set again while others follow it. await waits
     * for a mark on the host; free_mark frees it; both from any thread. If there are no queues, these do nothing. */
    int (*mark)(void **mark, struct sl_error *error);
    void (*follow)(void *mark);
    void (*await)(void *mark);
    void (*free_mark)(void *mark);
    /* Returns memory for target regions to read, with a copy of the BYTES (at most SL_MOST_CONSTANT) at FROM. It is
     * valid for regions up to the next call; regions must not write it. If an earlier call had the same bytes, they
     * need not be copied again: a step with the same lists of pointers as earlier steps copies nothing. Padding between
     * fields must be set, too. If there are no queues, returns FROM. */
    const void *(*constant)(const void *from, size_t bytes);
    /* SL_DEVICE_ROOM bytes of the queue, in which a kernel's first region passes data to its second. Any later work in
     * the queue may overwrite them. NULL if there are no queues. */
    void *(*room)(void);
    /* Called before each target region (spmd/device/offload.h). NULL if the device has no queue. */
    void (*begin_region)(void);

    /* These two enclose a step of the thread. Steps of one OWNER make the same calls in the same order, with other
     * numbers. If the device has graphs, the calls become graphs after two equal steps; their results are those of
     * single calls (spmd/device/cuda/tape.h). OWNER is only compared, never dereferenced. */
    void (*begin_step)(const void *owner, enum sl_graphs graphs);
    void (*end_step)(void);
    /* Reports on the thread's steps of their last owner. NULL if there are no graphs. */
    void (*report_graphs)(struct sl_graph_report *report);

    /* Whether target regions run on a device, and not on the CPU instead. */
    bool (*offloads)(void);
    /* For placement: the distance of two devices (0: closest; INT_MAX: neither reaches the other's memory). */
    int (*distance)(int one, int other);
    /* The device's PCI address; NULL if it has none. */
    const char *(*bus)(int number);
};

extern const struct sl_device_table sl_device;

/* Takes device memory by sl_device.take; HELD (may be NULL) counts its bytes as WHAT. */
static inline void *sl_device_take(struct sl_budget *held, enum sl_memory_kind what, size_t bytes) {
    void *memory = sl_device.take(bytes);
    if (memory) sl_budget_add(held, what, bytes);
    return memory;
}

SL_END_C
#endif
