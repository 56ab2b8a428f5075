/* fake.h - what the parts of the fake CUDA share.
 *
 * The fake runs what is enqueued on a stream in a thread of that stream, in order and at some later time, as a GPU
 * does: code that forgets to wait computes nonsense, and ThreadSanitizer sees the race. Memory is the host's, but
 * cudaFree and copies know which kind a block is. The environment says what is pretended:
 *
 *   FAKE_CUDA_DEVICES=n   devices (2)
 *   FAKE_CUDA_OPENMP=n    devices that OpenMP finds (as many as CUDA)
 *   FAKE_CUDA_DELAY_US=n  every fourth piece of work, at random, begins up to n microseconds late (0)
 *   FAKE_CUDA_FAIL=f@n    the nth call of function f from now on fails; f = "work": the nth piece of work on a stream
 */
#ifndef FAKE_H
#define FAKE_H

#include <stdbool.h>

#include "cuda_runtime_api.h"

/* WORK will run on the stream's thread, with a copy of the BYTES of ARGUMENT. 0, or an error of the runtime's. */
int fake_enqueue(cudaStream_t stream, void (*work)(void *), const void *argument, size_t bytes);

/* Of the function that calls: whether this call has been told to fail. */
bool fake_fails(const char *function);
#define FAKE_CALL()                                                                                                    \
    if (fake_fails(__func__)) return fake_error(cudaErrorUnknown)

/* What the runtime's function returns: ERROR, kept for cudaGetLastError. */
cudaError_t fake_error(cudaError_t error);

/* The number in the environment variable NAME, or OTHERWISE. */
int fake_number(const char *name, int otherwise);

int fake_devices(void);
int fake_openmp_devices(void);
int fake_device(void); /* the calling thread's */
int fake_stream_device(cudaStream_t stream);
/* Waits for everything on the device's streams. */
void fake_finish_device(int device);

#endif
