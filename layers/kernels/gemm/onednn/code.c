/* code.c - lets oneDNN generate code, and survives lack of memory for it.
 *
 * The library's generator calls mmap and malloc, does not check the results, and then writes through a null pointer, or
 * throws in a destructor. A check for free memory beforehand would not help, because another thread may allocate it
 * meanwhile. So SIGSEGV and std::terminate are caught while the generator runs, in its thread alone. After one was
 * caught, no more code is generated, because the library's locks stay locked. */
#include <execinfo.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>

#include "layers/kernels/gemm/onednn/onednn_internal.h"

/* One lock per process, because the library's code is per process. */
static pthread_mutex_t generating = PTHREAD_MUTEX_INITIALIZER;
static bool generated; /* dnnl_sgemm's code */
static bool broken;
static struct sigaction signalled_before;
static sl_terminate_handler *terminated_before;
static _Thread_local sigjmp_buf *landing; /* jump target of the generating thread */

/* An exception that passes through glibc, for example through pthread_once, aborts the process if glibc cannot load its
 * unwinder at that moment. This loads it in advance. */
static bool load_unwinder(void) {
    void *frame;
    return backtrace(&frame, 1) > 0;
}

/* In any other thread the fault repeats under the previous handler. */
static void land_signalled(int signal) {
    if (landing) siglongjmp(*landing, 1);
    sigaction(signal, &signalled_before, NULL);
}

static void land_terminated(void) {
    if (landing) siglongjmp(*landing, 1);
    terminated_before();
}

static bool survive(bool (*call)(void *arg), void *arg) {
    const struct sigaction lands = {.sa_handler = land_signalled};
    sigjmp_buf here;
    volatile bool done = false;
    if (sigaction(SIGSEGV, &lands, &signalled_before)) return false;
    terminated_before = sl_onednn_set_terminate(land_terminated);
    if (sigsetjmp(here, 1)) {
        broken = true;
    } else {
        landing = &here;
        done = sl_onednn_guard(call, arg);
    }
    landing = NULL;
    sl_onednn_set_terminate(terminated_before);
    sigaction(SIGSEGV, &signalled_before, NULL);
    return done;
}

/* Computes one product for each of dnnl_sgemm's generators: C = A B, and C = A B^T of few rows. */
static bool multiply(void *arg) {
    enum { SIZE = 4 };
    static const char transposed[] = {'N', 'T'};
    static const float a[SIZE * SIZE], b[SIZE * SIZE];
    float c[SIZE * SIZE];
    (void)arg;
    for (size_t i = 0; i < sizeof transposed; i++) {
        if (dnnl_sgemm('N', transposed[i], SIZE, SIZE, SIZE, 1.0f, a, SIZE, b, SIZE, 0.0f, c, SIZE)) return false;
    }
    return true;
}

static bool generate(bool (*call)(void *arg), void *arg) {
    if (!generated) generated = load_unwinder() && survive(multiply, NULL);
    return generated && survive(call, arg);
}

bool sl_onednn_generate(bool (*call)(void *arg), void *arg) {
    pthread_mutex_lock(&generating);
    const bool done = !broken && generate(call, arg);
    pthread_mutex_unlock(&generating);
    return done;
}
