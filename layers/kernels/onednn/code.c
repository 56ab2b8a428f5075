/* code.c - has oneDNN generate code, and survives where there is no memory for it.
 *
 * The library's generator asks for memory with mmap and malloc, does not look whether it got any, and then writes
 * through a null pointer; or it throws in a destructor. To look for room before would not do, for another thread may
 * take it meanwhile. That is why SIGSEGV and std::terminate are caught as long as the generator runs, in its thread
 * alone. Once one was, nothing more is generated, for what the library had locked stays locked. */
#include <execinfo.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>

#include "layers/kernels/onednn/onednn_internal.h"

/* The process's, as the library's code is. */
static pthread_mutex_t generating = PTHREAD_MUTEX_INITIALIZER;
static bool generated; /* dnnl_sgemm's code */
static bool broken;
static struct sigaction signalled_before;
static sl_terminate_handler *terminated_before;
static _Thread_local sigjmp_buf *landing; /* where the thread goes that generates */

/* An exception that passes through glibc, as through pthread_once, aborts the process if glibc cannot load its unwinder
 * at that moment. This loads it. */
static bool load_unwinder(void) {
    void *frame;
    return backtrace(&frame, 1) > 0;
}

/* Any other thread faults again, and as it would have without this. */
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

/* One product for each of dnnl_sgemm's generators: C = A B, and C = A B^T of few rows. */
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
