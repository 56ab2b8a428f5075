/* fake.h - declarations shared by the parts of the fake CUDA.
 *
 * Each stream has a thread. It runs the stream's work in order and at some later time, as a GPU does: code that forgets
 * to wait computes nonsense, and ThreadSanitizer sees the race. All memory is the host's, but the fake knows the kind
 * of each block (device, pinned) in cudaFree and in copies. Environment variables set the pretended machine:
 *
 *   FAKE_CUDA_DEVICES=n   devices (2)
 *   FAKE_CUDA_OPENMP=n    devices that OpenMP finds (as many as CUDA)
 *   FAKE_CUDA_ARCHITECTURE=n of the devices (90)
 *   FAKE_CUDA_MEMORY_MB=n of each device; cudaMalloc refuses more (65536)
 *   FAKE_CUDA_OTHERS_MB=n@m: other programs use n of each device once this program has m (0)
 *   FAKE_CUDA_APART=13     devices 1 and 3 cannot access other devices' memory, nor others theirs ()
 *   FAKE_CUDA_DELAY_US=n  every fourth piece of work, at random, begins up to n microseconds late (0)
 *   FAKE_CUDA_LATE_MS=n   queries of events report their end n milliseconds late (0)
 *   FAKE_CUDA_FAIL=f@n    the nth call of function f from now on fails; f = "work": the nth piece of work on a stream
 *   FAKE_CUDA_IDLE=1      large work is left out: products, and copies of more than 64 KB; new memory is zeros
 *   FAKE_CUDA_RECORD=file writes a line per call to file. A line begins with the calling thread's number; if the call
 *                         puts work on a stream, a point and the stream's number follow (2.5):
 *       call FUNCTION [BYTES]                      bytes: a communicator's input to the call; or flags
 *       peer DEVICE DEVICE                         the first can access the second's memory from now on
 *       launch KERNEL GRID BLOCK PARAMETER...      a parameter: a number, or ALLOCATION+OFFSET
 *       copy KIND>KIND BYTES TO FROM               kinds: device, pinned, host
 *       fill MEMORY BYTES
 *       take device|pinned ALLOCATION BYTES        numbered in order; the driver's own have no number
 *       product M N K bf16|tf32|f32 BYTES A B D C    bytes: of all operands, and of C if it is added
 *       mark EVENT, await EVENT                    an event is recorded in a stream, or a stream waits for it
 *       saw EVENT                                  the host has seen its end, or has waited for it
 *     Captured work has its line when its graph is launched.
 *
 * Kernels in images for NVIDIA's GPUs do nothing unless there is an executor. It runs them, and gets notice of other
 * accesses to device memory.
 *
 * tests/spmd/device/null_cuda.cmake builds the same code as shared libraries for programs that were built for GPUs: a
 * GPU that computes nothing and records the calls of a step. */
#ifndef FAKE_H
#define FAKE_H

#include <stdbool.h>

#include "cuda_runtime_api.h"

/* WORK will run on the stream's thread, with a copy of the BYTES of ARGUMENT. 0, or an error of the runtime's. */
int fake_enqueue(cudaStream_t stream, void (*work)(void *), const void *argument, size_t bytes);

/* The same for a stream in capture by the calling thread: the work becomes a node of its graph, with the lines of
 * fake_work before it. */
struct CUgraph_st;
struct CUgraph_st *fake_capture_of(cudaStream_t stream);
int fake_capture(struct CUgraph_st *graph, cudaStream_t stream, void (*work)(void *), const void *argument,
                 size_t bytes);
void fake_capture_line(struct CUgraph_st *graph, const char *line);
/* Events in captured work: an event is recorded in STREAM, which is in capture, as number NUMBER of the graph; or a
 * stream waits for it, and is in capture from then on. */
int fake_capture_mark(struct CUgraph_st *graph, cudaStream_t stream);
int fake_capture_await(struct CUgraph_st *graph, cudaStream_t stream, int number);
/* Returns the graph that the calling thread captures. */
struct CUgraph_st *fake_capturing(void);
/* The argument of the last captured node holds references: KEEP is called for each copy of it, DROP when a copy is
 * freed. The work itself drops a launched copy. */
void fake_capture_holds(struct CUgraph_st *graph, void (*keep)(const void *argument, bool launched),
                        void (*drop)(const void *argument));
/* For a stream other than the one on which a capture began: returns the stream on which graphs run the work captured on
 * it. */
cudaStream_t fake_shadow(cudaStream_t stream);
/* Records a new event in STREAM and returns its mark; fake_await makes a stream wait for the mark. */
struct mark;
struct mark *fake_mark(cudaStream_t stream);
int fake_await(cudaStream_t stream, struct mark *mark);
void fake_unmark(struct mark *mark);

/* Spoils the capture of the calling thread, if there is one, and returns whether there is. For calls that CUDA forbids
 * during capture. */
bool fake_spoils_capture(void);
#define FAKE_UNCAPTURED()                                                                                              \
    if (fake_spoils_capture()) return fake_error(cudaErrorStreamCaptureUnsupported)

/* Returns whether this call of FUNCTION is to fail. */
bool fake_fails(const char *function);
#define FAKE_CALL()                                                                                                    \
    fake_record("call %s", __func__);                                                                                  \
    if (fake_fails(__func__)) return fake_error(cudaErrorUnknown)

/* Writes a line of the record, if there is one. */
__attribute__((format(printf, 1, 2))) void fake_record(const char *format, ...);
bool fake_records(void);
/* Writes the line of the work that is enqueued on STREAM next. */
__attribute__((format(printf, 2, 3))) void fake_work(cudaStream_t stream, const char *format, ...);

/* Returns whether work on so many bytes is left out. */
bool fake_skips(size_t bytes);

/* Saves ERROR for cudaGetLastError and returns it. */
cudaError_t fake_error(cudaError_t error);

/* Returns the number in the environment variable NAME, or OTHERWISE. */
int fake_number(const char *name, int otherwise);

int fake_devices(void);
int fake_openmp_devices(void);
int fake_device(void); /* the calling thread's */
int fake_stream_device(cudaStream_t stream);
int fake_stream_number(cudaStream_t stream);
/* Allocates memory of a device, as the driver does: without a number. */
cudaError_t fake_take(void **memory, size_t bytes);
/* Prints MEMORY as ALLOCATION+OFFSET, or as the number that it is. */
void fake_name(char *text, size_t size, const void *memory);
/* Waits for all work on the device's streams. */
void fake_finish_device(int device);

/* Runs kernels for GPUs. A launch runs to its end in the calling thread. */
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
extern const struct fake_executor *fake_executor; /* NULL: none */

/* Report accesses to memory by other work than kernels. */
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
