/* fake.h - what the parts of the fake CUDA share.
 *
 * The fake runs what is enqueued on a stream in a thread of that stream, in order and at some later time, as a GPU
 * does: code that forgets to wait computes nonsense, and ThreadSanitizer sees the race. Memory is the host's, but
 * cudaFree and copies know which kind a block is. The environment says what is pretended:
 *
 *   FAKE_CUDA_DEVICES=n   devices (2)
 *   FAKE_CUDA_OPENMP=n    devices that OpenMP finds (as many as CUDA)
 *   FAKE_CUDA_ARCHITECTURE=n of the devices (90)
 *   FAKE_CUDA_MEMORY_MB=n of each device: cudaMalloc refuses more (65536)
 *   FAKE_CUDA_OTHERS_MB=n@m: of each device others take n once this program has m (0)
 *   FAKE_CUDA_APART=13     devices 1 and 3 reach no other one's memory, and no other one reaches theirs ()
 *   FAKE_CUDA_DELAY_US=n  every fourth piece of work, at random, begins up to n microseconds late (0)
 *   FAKE_CUDA_LATE_MS=n   who asks whether an event is done gets to know it n milliseconds late (0)
 *   FAKE_CUDA_FAIL=f@n    the nth call of function f from now on fails; f = "work": the nth piece of work on a stream
 *   FAKE_CUDA_IDLE=1      large work is not done: no products, no copies of more than 64 KB; memory comes as zeros
 *   FAKE_CUDA_RECORD=file a line a call is written there, after the number of the thread that calls; where the call
 *                         puts something into a stream, a point and the stream's number follow (2.5):
 *       call FUNCTION [BYTES]                      bytes: that the call of a communicator hands over, or flags
 *       peer DEVICE DEVICE                         the first one reaches the other one's memory from now on
 *       launch KERNEL GRID BLOCK PARAMETER...      a parameter: a number, or ALLOCATION+OFFSET
 *       copy KIND>KIND BYTES TO FROM               kinds: device, pinned, host
 *       fill MEMORY BYTES
 *       take device|pinned ALLOCATION BYTES        numbered in their order, but for the driver's own
 *       product M N K bf16|tf32|f32 BYTES A B D C    bytes: of all operands, and of C where it is added
 *       mark EVENT, await EVENT                    an event is recorded in a stream, or makes it wait
 *       saw EVENT                                  the host finds it done, or has waited for it
 *     What is captured has its line when its graph is launched.
 *
 * Kernels of images for NVIDIA's GPUs do nothing, unless an executor runs them, which then is told of memory, too.
 *
 * Built as the libraries that a program for GPUs is linked with (tests/spmd/device/null_cuda.cmake), the same code is
 * a GPU that computes nothing, and tells what a step asks for. */
#ifndef FAKE_H
#define FAKE_H

#include <stdbool.h>

#include "cuda_runtime_api.h"

/* WORK will run on the stream's thread, with a copy of the BYTES of ARGUMENT. 0, or an error of the runtime's. */
int fake_enqueue(cudaStream_t stream, void (*work)(void *), const void *argument, size_t bytes);

/* The same for a stream whose work is being captured by the calling thread: the node goes to its graph, and so do the
 * lines of fake_work before it. */
struct CUgraph_st;
struct CUgraph_st *fake_capture_of(cudaStream_t stream);
int fake_capture(struct CUgraph_st *graph, cudaStream_t stream, void (*work)(void *), const void *argument,
                 size_t bytes);
void fake_capture_line(struct CUgraph_st *graph, const char *line);
/* Events in what is captured: EVENT number NUMBER of the graph is recorded in STREAM, which is being captured; a stream
 * waits for it, and is captured from then on. */
int fake_capture_mark(struct CUgraph_st *graph, cudaStream_t stream);
int fake_capture_await(struct CUgraph_st *graph, cudaStream_t stream, int number);
/* The graph that the calling thread captures. */
struct CUgraph_st *fake_capturing(void);
/* What was captured last holds something: KEEP is called for each copy of its argument, DROP when that goes. A copy
 * that is launched is dropped by the work itself. */
void fake_capture_holds(struct CUgraph_st *graph, void (*keep)(const void *argument, bool launched),
                        void (*drop)(const void *argument));
/* The stream on which graphs do what was captured on STREAM, which was not the first. */
cudaStream_t fake_shadow(cudaStream_t stream);
/* The next record of an event in STREAM, and another stream's wait for it. */
struct mark;
struct mark *fake_mark(cudaStream_t stream);
int fake_await(cudaStream_t stream, struct mark *mark);
void fake_unmark(struct mark *mark);

/* Of a call that may not come while the calling thread captures: whether it does so, and the capture is spoilt. */
bool fake_spoils_capture(void);
#define FAKE_UNCAPTURED()                                                                                              \
    if (fake_spoils_capture()) return fake_error(cudaErrorStreamCaptureUnsupported)

/* Of the function that calls: whether this call has been told to fail. */
bool fake_fails(const char *function);
#define FAKE_CALL()                                                                                                    \
    fake_record("call %s", __func__);                                                                                  \
    if (fake_fails(__func__)) return fake_error(cudaErrorUnknown)

/* A line of the account, if one is kept. */
__attribute__((format(printf, 1, 2))) void fake_record(const char *format, ...);
bool fake_records(void);
/* The line of the work that is enqueued on STREAM next. */
__attribute__((format(printf, 2, 3))) void fake_work(cudaStream_t stream, const char *format, ...);

/* Whether so much work is left out. */
bool fake_skips(size_t bytes);

/* What the runtime's function returns: ERROR, kept for cudaGetLastError. */
cudaError_t fake_error(cudaError_t error);

/* The number in the environment variable NAME, or OTHERWISE. */
int fake_number(const char *name, int otherwise);

int fake_devices(void);
int fake_openmp_devices(void);
int fake_device(void); /* the calling thread's */
int fake_stream_device(cudaStream_t stream);
int fake_stream_number(cudaStream_t stream);
/* Memory of a device's, as the driver gives it: without a number. */
cudaError_t fake_take(void **memory, size_t bytes);
/* Prints where MEMORY lies, ALLOCATION+OFFSET, or the number that it is. */
void fake_name(char *text, size_t size, const void *memory);
/* Waits for everything on the device's streams. */
void fake_finish_device(int device);

/* What runs kernels for GPUs. A launch runs to its end in the calling thread. */
struct fake_executor {
    void *(*open)(const void *image, size_t bytes);
    void (*close)(void *module);
    const void *(*find)(void *module, const char *kernel);
    void *(*variable)(void *module, const char *name, size_t *bytes);
    void (*launch)(void *module, const void *kernel, unsigned blocks, unsigned threads, unsigned dynamic,
                   const void *parameters, size_t bytes);
    void (*taken)(const void *memory, size_t bytes, enum cudaMemoryType type);
    void (*freed)(const void *memory);
    void (*written)(const void *memory, size_t bytes);
    void (*copied)(const void *to, const void *from, size_t bytes);
    void (*read)(const void *memory, size_t bytes);
};
extern const struct fake_executor *fake_executor; /* NULL: there is none */

/* What something else than kernels does with memory. */
static inline void fake_written(const void *memory, size_t bytes) {
    if (fake_executor) fake_executor->written(memory, bytes);
}
static inline void fake_copied(const void *to, const void *from, size_t bytes) {
    if (fake_executor) fake_executor->copied(to, from, bytes);
}
static inline void fake_read(const void *memory, size_t bytes) {
    if (fake_executor) fake_executor->read(memory, bytes);
}

#endif
