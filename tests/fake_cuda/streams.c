/* streams.c - the fake CUDA's streams, each a thread with a queue, and events. */
#include "fake.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

struct work {
    struct work *next;
    void (*run)(void *);
    bool fails;
    _Alignas(max_align_t) unsigned char argument[];
};

struct CUstream_st {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct work *first, **end;
    uint64_t enqueued, done;
    bool destroyed;
    cudaError_t error; /* stays: after a failure of its work a stream is of no use */
    int device, number;
    unsigned delay, seed;
    /* Protected by streams_lock: the list of all streams, and the number of threads that use this one, which keep it
     * alive. */
    struct CUstream_st *next;
    int lookers;
    struct CUstream_st *shadow; /* NULL: no capture so far, or this stream was the first */
};

/* All streams, for waits for a device. */
static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t streams_changed = PTHREAD_COND_INITIALIZER;
static struct CUstream_st *streams;

static void unlist(struct CUstream_st *stream) {
    pthread_mutex_lock(&streams_lock);
    while (stream->lookers) pthread_cond_wait(&streams_changed, &streams_lock);
    struct CUstream_st **at = &streams;
    while (*at != stream) at = &(*at)->next;
    *at = stream->next;
    pthread_mutex_unlock(&streams_lock);
}

static void free_stream(struct CUstream_st *stream) {
    unlist(stream);
    pthread_cond_destroy(&stream->changed);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
}

/* The next piece of work, or NULL when the stream has been destroyed and is empty. */
static struct work *next_work(struct CUstream_st *stream) {
    pthread_mutex_lock(&stream->lock);
    while (!stream->first && !stream->destroyed) pthread_cond_wait(&stream->changed, &stream->lock);
    struct work *work = stream->first;
    if (work && !(stream->first = work->next)) stream->end = &stream->first;
    pthread_mutex_unlock(&stream->lock);
    return work;
}

static void *run_stream(void *argument) {
    struct CUstream_st *stream = argument;
    prctl(PR_SET_TIMERSLACK, 1000UL); /* nanoseconds: a delay is no longer than it is meant to be */
    for (struct work *work; (work = next_work(stream));) {
        if (stream->delay && rand_r(&stream->seed) % 4 == 0)
            usleep((useconds_t)rand_r(&stream->seed) % (stream->delay + 1));
        if (!work->fails) work->run(work->argument);
        pthread_mutex_lock(&stream->lock);
        if (work->fails) stream->error = cudaErrorLaunchFailure;
        stream->done++;
        pthread_mutex_unlock(&stream->lock);
        pthread_cond_broadcast(&stream->changed);
        free(work);
    }
    free_stream(stream);
    return NULL;
}

static struct CUstream_st *new_stream(int device) {
    static atomic_uint seeds = 1;
    struct CUstream_st *new = calloc(1, sizeof *new);
    if (!new) return NULL;
    pthread_mutex_init(&new->lock, NULL);
    pthread_cond_init(&new->changed, NULL);
    new->end = &new->first;
    new->device = device;
    new->delay = (unsigned)fake_number("FAKE_CUDA_DELAY_US", 0);
    new->seed = atomic_fetch_add(&seeds, 1);
    new->number = (int)new->seed;
    pthread_mutex_lock(&streams_lock);
    new->next = streams;
    streams = new;
    pthread_mutex_unlock(&streams_lock);
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_stream, new)) {
        free_stream(new);
        return NULL;
    }
    pthread_detach(thread);
    return new;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    FAKE_CALL();
    if (flags != cudaStreamNonBlocking) return fake_error(cudaErrorInvalidValue);
    FAKE_UNCAPTURED();
    *stream = new_stream(fake_device());
    return *stream ? cudaSuccess : fake_error(cudaErrorMemoryAllocation);
}

cudaStream_t fake_shadow(cudaStream_t stream) {
    if (!stream->shadow && (stream->shadow = new_stream(stream->device))) stream->shadow->number = stream->number;
    return stream->shadow;
}

static void destroy(struct CUstream_st *stream) {
    pthread_mutex_lock(&stream->lock);
    stream->destroyed = true;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
}

/* As in CUDA: work on the stream is still done. */
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    FAKE_CALL();
    if (!stream) return fake_error(cudaErrorInvalidResourceHandle);
    if (stream->shadow) destroy(stream->shadow);
    destroy(stream);
    return cudaSuccess;
}

int fake_stream_device(cudaStream_t stream) { return stream->device; }
int fake_stream_number(cudaStream_t stream) { return stream->number; }

int fake_enqueue(cudaStream_t stream, void (*work)(void *), const void *argument, size_t bytes) {
    if (!stream) return fake_error(cudaErrorInvalidResourceHandle); /* nothing here uses the default stream */
    if (fake_capture_of(stream)) return fake_capture(fake_capture_of(stream), stream, work, argument, bytes);
    struct work *new = malloc(sizeof *new + bytes);
    if (!new) return fake_error(cudaErrorMemoryAllocation);
    new->next = NULL;
    new->run = work;
    new->fails = fake_fails("work");
    if (bytes) memcpy(new->argument, argument, bytes);
    pthread_mutex_lock(&stream->lock);
    *stream->end = new;
    stream->end = &new->next;
    stream->enqueued++;
    pthread_mutex_unlock(&stream->lock);
    pthread_cond_broadcast(&stream->changed);
    return cudaSuccess;
}

static cudaError_t finish(struct CUstream_st *stream) {
    pthread_mutex_lock(&stream->lock);
    const uint64_t last = stream->enqueued;
    while (stream->done < last) pthread_cond_wait(&stream->changed, &stream->lock);
    const cudaError_t error = stream->error;
    pthread_mutex_unlock(&stream->lock);
    return error;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    FAKE_UNCAPTURED();
    if (!stream) return fake_error(cudaErrorInvalidResourceHandle);
    fake_work(stream, "call %s", __func__);
    if (fake_fails(__func__)) return fake_error(cudaErrorUnknown);
    return fake_error(finish(stream));
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    FAKE_CALL();
    FAKE_UNCAPTURED();
    if (!stream) return fake_error(cudaErrorInvalidResourceHandle);
    pthread_mutex_lock(&stream->lock);
    const cudaError_t error = stream->done < stream->enqueued ? cudaErrorNotReady : stream->error;
    pthread_mutex_unlock(&stream->lock);
    return error == cudaErrorNotReady ? error : fake_error(error);
}

/* Waits for all streams of the device. Other threads may create streams meanwhile, because work on these may wait for
 * them. */
void fake_finish_device(int device) {
    pthread_mutex_lock(&streams_lock);
    for (struct CUstream_st *stream = streams; stream; stream = stream->next) {
        if (stream->device != device) continue;
        stream->lookers++;
        pthread_mutex_unlock(&streams_lock);
        finish(stream);
        pthread_mutex_lock(&streams_lock);
        stream->lookers--;
        pthread_cond_broadcast(&streams_changed);
    }
    pthread_mutex_unlock(&streams_lock);
}

struct call {
    cudaHostFn_t function;
    void *argument;
};

static void run_call(void *argument) {
    const struct call *call = argument;
    call->function(call->argument);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument) {
    FAKE_CALL();
    const struct call call = {function, argument};
    return (cudaError_t)fake_enqueue(stream, run_call, &call, sizeof call);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return 1e3 * (double)time.tv_sec + 1e-6 * (double)time.tv_nsec;
}

/* One record of an event. Who waits for it holds it, whatever becomes of the event. */
struct mark {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool reached;
    double since; /* ms */
    atomic_int holders;
};

struct CUevent_st {
    int number;
    pthread_mutex_t lock;
    struct mark *latest;      /* NULL: never recorded */
    struct CUgraph_st *graph; /* graph of its last record; NULL: recorded in a stream */
    int captured;             /* its number in that graph */
};

static struct mark *new_mark(void) {
    struct mark *mark = malloc(sizeof *mark);
    if (!mark) return NULL;
    pthread_mutex_init(&mark->lock, NULL);
    pthread_cond_init(&mark->changed, NULL);
    mark->reached = false;
    atomic_init(&mark->holders, 1);
    return mark;
}

static void let_go(struct mark *mark) {
    if (!mark || atomic_fetch_sub(&mark->holders, 1) > 1) return;
    pthread_cond_destroy(&mark->changed);
    pthread_mutex_destroy(&mark->lock);
    free(mark);
}

static struct CUgraph_st *graph_of(struct CUevent_st *event) {
    pthread_mutex_lock(&event->lock);
    struct CUgraph_st *graph = event->graph;
    pthread_mutex_unlock(&event->lock);
    return graph;
}

static struct mark *hold_latest(struct CUevent_st *event) {
    pthread_mutex_lock(&event->lock);
    struct mark *mark = event->latest;
    if (mark) atomic_fetch_add(&mark->holders, 1);
    pthread_mutex_unlock(&event->lock);
    return mark;
}

/* Waits for a mark that the caller holds, and releases it. */
static void await(struct mark *mark) {
    if (!mark) return;
    pthread_mutex_lock(&mark->lock);
    while (!mark->reached) pthread_cond_wait(&mark->changed, &mark->lock);
    pthread_mutex_unlock(&mark->lock);
    let_go(mark);
}

static void run_record(void *argument) {
    struct mark *mark = *(struct mark **)argument;
    pthread_mutex_lock(&mark->lock);
    mark->reached = true;
    mark->since = now();
    pthread_cond_broadcast(&mark->changed);
    pthread_mutex_unlock(&mark->lock);
    let_go(mark);
}

static void run_wait(void *argument) { await(*(struct mark **)argument); }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    FAKE_CALL();
    static atomic_int events;
    (void)flags;
    *event = calloc(1, sizeof **event);
    if (!*event) return fake_error(cudaErrorMemoryAllocation);
    (*event)->number = atomic_fetch_add(&events, 1) + 1;
    pthread_mutex_init(&(*event)->lock, NULL);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    FAKE_CALL();
    if (!event) return fake_error(cudaErrorInvalidResourceHandle);
    let_go(event->latest);
    pthread_mutex_destroy(&event->lock);
    free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    FAKE_CALL();
    if (!event || !stream) return fake_error(cudaErrorInvalidResourceHandle);
    struct CUgraph_st *graph = fake_capture_of(stream);
    if (!graph) FAKE_UNCAPTURED();
    pthread_mutex_lock(&event->lock);
    event->graph = graph;
    pthread_mutex_unlock(&event->lock);
    if (graph) {
        fake_work(stream, "mark %d", event->number);
        event->captured = fake_capture_mark(graph, stream);
        return cudaSuccess;
    }
    fake_work(stream, "mark %d", event->number);
    struct mark *mark = new_mark();
    if (!mark) return fake_error(cudaErrorMemoryAllocation);
    atomic_fetch_add(&mark->holders, 1); /* the stream's work, and the event */
    pthread_mutex_lock(&event->lock);
    struct mark *before = event->latest;
    event->latest = mark;
    pthread_mutex_unlock(&event->lock);
    let_go(before);
    return (cudaError_t)fake_enqueue(stream, run_record, &mark, sizeof mark);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    FAKE_CALL();
    if (!event || !stream || flags) return fake_error(cudaErrorInvalidResourceHandle);
    struct CUgraph_st *graph = graph_of(event);
    if (graph && graph == fake_capturing()) {
        char line[32];
        snprintf(line, sizeof line, "await %d", event->number);
        if (fake_records()) fake_capture_line(graph, line);
        const int status = fake_capture_await(graph, stream, event->captured);
        return status ? fake_error(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
    }
    FAKE_UNCAPTURED(); /* captured work waits for no other event */
    if (graph) return fake_error(cudaErrorStreamCaptureUnsupported);
    fake_work(stream, "await %d", event->number);
    struct mark *mark = hold_latest(event);
    return mark ? (cudaError_t)fake_enqueue(stream, run_wait, &mark, sizeof mark) : cudaSuccess;
}

struct mark *fake_mark(cudaStream_t stream) {
    struct mark *mark = new_mark();
    if (!mark) abort();
    atomic_fetch_add(&mark->holders, 1);
    fake_enqueue(stream, run_record, &mark, sizeof mark);
    return mark;
}

int fake_await(cudaStream_t stream, struct mark *mark) {
    atomic_fetch_add(&mark->holders, 1);
    return fake_enqueue(stream, run_wait, &mark, sizeof mark);
}

void fake_unmark(struct mark *mark) { let_go(mark); }

/* Returns whether the event has ended. Captured events are refused. */
cudaError_t cudaEventQuery(cudaEvent_t event) {
    FAKE_CALL();
    if (!event || graph_of(event)) return fake_error(cudaErrorInvalidResourceHandle);
    struct mark *mark = hold_latest(event);
    if (!mark) return cudaSuccess;
    pthread_mutex_lock(&mark->lock);
    const bool reached = mark->reached && now() - mark->since >= fake_number("FAKE_CUDA_LATE_MS", 0);
    pthread_mutex_unlock(&mark->lock);
    let_go(mark);
    if (reached) fake_record("saw %d", event->number);
    return reached ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    FAKE_CALL();
    if (!event || graph_of(event)) return fake_error(cudaErrorInvalidResourceHandle);
    await(hold_latest(event));
    fake_record("saw %d", event->number);
    return cudaSuccess;
}
