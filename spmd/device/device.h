/* device.h - where coordinates compute: this machine's CPU, or devices with memory and queues of their own.
 *
 * A build computes on one kind of device; sl_device is its table (cpu.c, offload.c or cuda.c).
 * What runs where is the calling thread's: sl_run opens a device for each coordinate's thread before its program
 * begins, several may share one, and target regions, memory and copies of that thread are then that device's. A thread
 * that nobody has opened one for has the first.
 *
 * The queue is what products and communication work through while the host goes on. Target regions begin after what is
 * in it (spmd/device/offload.h sees to that) and have ended when they return. */
#ifndef SL_SPMD_DEVICE_DEVICE_H
#define SL_SPMD_DEVICE_DEVICE_H

#include "spmd/base/error.h"

SL_BEGIN_C

struct sl_device_table {
    const char *name;   /* "cpu", "offload", "cuda" */
    bool shares_memory; /* its memory is the host's, and the host's is its */
    /* SL_BAD_INPUT, with a line that says why, where programs cannot run on it. */
    int (*check)(struct sl_error *error);
    int (*count)(void);
    /* Opens device NUMBER for the calling thread; *QUEUE is the thread's compute queue, NULL where there is none. */
    int (*open)(int number, void **queue, struct sl_error *error);
    void (*close)(void);

    /* The device's memory: zeroed, aligned to a cache line; NULL where there is not enough. Any thread may give it. */
    void *(*take)(size_t bytes);
    void (*give)(void *memory);
    /* The host's, from where copies to the device go on while the host does. */
    void *(*take_host)(size_t bytes);
    void (*give_host)(void *memory);
    /* Whether target regions can work on what lies there. */
    bool (*reaches)(const void *memory);
    /* After what is in the queue, between any memory. On return copies to the host have ended, and so have those from
     * it but for take_host's; copies between devices and these are in the queue. */
    void (*copy)(void *to, const void *from, size_t bytes);
    void (*zero)(void *memory, size_t bytes);
    /* Waits for the queue. ERROR (may be NULL) receives what has gone wrong in it since it was asked last. */
    int (*settle)(struct sl_error *error);

    /* Whether a target region runs on a device other than the CPU's own. */
    bool (*offloads)(void);
    /* For placement: how far two devices are apart (0: closest; INT_MAX: neither reaches the other's memory), and the
     * PCI address or NULL. */
    int (*distance)(int one, int other);
    const char *(*bus)(int number);
};

extern const struct sl_device_table sl_device;

SL_END_C
#endif
