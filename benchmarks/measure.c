/* measure.c - medians, all cores at once, the memory's bandwidth, numbers from options. */
#include "benchmarks/measure.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "spmd/base/cpu_level.h"
#include "spmd/base/memory.h"

static int by_value(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

double sl_median(int count, double *values) {
    qsort(values, (size_t)count, sizeof *values, by_value);
    return 0.5 * (values[(count - 1) / 2] + values[count / 2]);
}

double sl_peak_bytes(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return 1024.0 * (double)usage.ru_maxrss;
}

int sl_read_integer(const char *option, const char *text, int min, int max, int *value) {
    char *end;
    const long read = strtol(text, &end, 10);
    if (end == text || *end || read < min || read > max) {
        fprintf(stderr, "--%s: \"%.80s\" is not a whole number from %d to %d\n", option, text, min, max);
        return SL_BAD_INPUT;
    }
    *value = (int)read;
    return SL_OK;
}

int sl_read_real(const char *option, const char *text, double min, double max, double *value) {
    char *end;
    const double read = strtod(text, &end);
    if (end == text || *end || !(read >= min && read <= max)) {
        fprintf(stderr, "--%s: \"%.80s\" is not a number from %g to %g\n", option, text, min, max);
        return SL_BAD_INPUT;
    }
    *value = read;
    return SL_OK;
}

int sl_read_list(const char *option, char *text, int min, int max, struct sl_list *list) {
    list->count = 0;
    for (char *rest = text, *word; (word = strsep(&rest, ","));) {
        if (list->count == SL_MAX_LIST) {
            fprintf(stderr, "--%s: more than %d numbers\n", option, SL_MAX_LIST);
            return SL_BAD_INPUT;
        }
        SL_TRY(sl_read_integer(option, word, min, max, &list->value[list->count++]));
    }
    return SL_OK;
}

/* ---- all cores at once ---- */

void sl_cores_find(struct sl_cores *cores) {
    cpu_set_t allowed;
    cores->count = 0;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
        for (int i = 0; i < CPU_SETSIZE && cores->count < SL_MAX_CORES; i++) {
            if (CPU_ISSET(i, &allowed)) cores->number[cores->count++] = i;
        }
    }
    if (cores->count == 0) cores->number[cores->count++] = 0;
}

void sl_stay_on_this_core(void) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
}

enum gate { SHUT, OPEN, GIVEN_UP };

struct core_thread {
    pthread_t thread;
    _Atomic int *gate; /* opens when all threads are there */
    sl_core_work *work;
    void *arg;
    int i, core;
    double result;
};

static void *run_on_core(void *arg) {
    struct core_thread *me = arg;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(me->core, &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one); /* a thread that stays on its core is no failure */
    int gate;
    while ((gate = atomic_load(me->gate)) == SHUT) sched_yield();
    if (gate == OPEN) me->result = me->work(me->arg, me->i);
    return NULL;
}

double sl_on_all_cores(const struct sl_cores *cores, sl_core_work *work, void *arg) {
    struct core_thread thread[SL_MAX_CORES];
    _Atomic int gate = SHUT;
    int started = 0;
    for (; started < cores->count; started++) {
        struct core_thread *next = &thread[started];
        *next =
            (struct core_thread){.gate = &gate, .work = work, .arg = arg, .i = started, .core = cores->number[started]};
        if (pthread_create(&next->thread, NULL, run_on_core, next)) break;
    }
    atomic_store(&gate, started == cores->count ? OPEN : GIVEN_UP);
    double sum = 0;
    for (int i = 0; i < started; i++) {
        pthread_join(thread[i].thread, NULL);
        sum += thread[i].result;
    }
    return started == cores->count ? sum : -1;
}

/* ---- bandwidth ---- */

static double stream_on_core(void *arg, int i) {
    const struct sl_stream *stream = arg;
    const size_t n = stream->elements / (size_t)stream->cores->count;
    float *array = stream->memory + 4 * n * (size_t)i;
    const double began = sl_now();
    double passes = 0, elapsed;
    do {
        stream->pass(n, array, array + n, array + 2 * n, array + 3 * n);
        passes++;
        elapsed = sl_now() - began;
    } while (elapsed < stream->seconds);
    return passes * SL_STREAM_BYTES * (double)n / elapsed;
}

static double read_on_core(void *arg, int i) {
    const struct sl_stream *stream = arg;
    sl_read_pass *const levels[] = {sl_read_pass_v2, sl_read_pass_v3, sl_read_pass_v4};
    sl_read_pass *const pass = levels[sl_cpu_level() - 2];
    const size_t n = stream->elements / (size_t)stream->cores->count;
    const float *array = stream->memory + 4 * n * (size_t)i;
    volatile float kept = pass(n, array); /* now it lies as near as it can */
    const double began = sl_now();
    double passes = 0, elapsed;
    do {
        kept = pass(n, array);
        passes++;
        elapsed = sl_now() - began;
    } while (elapsed < stream->seconds);
    (void)kept;
    return passes * sizeof *array * (double)n / elapsed;
}

int sl_stream_open(struct sl_stream *stream, const struct sl_cores *cores, size_t elements, double seconds) {
    *stream = (struct sl_stream){.cores = cores, .elements = elements, .seconds = seconds, .pass = sl_stream_pass_v2};
    stream->memory = sl_memory_take(4 * elements * sizeof *stream->memory);
    /* Touch the pages: unwritten pages are all the same page, which stays in a cache. */
    if (stream->memory) sl_memory_touch(stream->memory, 4 * elements * sizeof *stream->memory);
    /* The first measurement does not count: it warms up caches, clocks and threads. */
    return stream->memory && sl_stream_measure(stream) >= 0 ? SL_OK : SL_FAILED;
}

void sl_stream_widen(struct sl_stream *stream) {
    sl_stream_pass *const levels[] = {sl_stream_pass_v2, sl_stream_pass_v3, sl_stream_pass_v4};
    stream->pass = levels[sl_cpu_level() - 2];
}

double sl_stream_measure(struct sl_stream *stream) { return sl_on_all_cores(stream->cores, stream_on_core, stream); }

double sl_stream_read(const struct sl_stream *stream, size_t elements) {
    struct sl_stream part = *stream;
    if (elements && elements < part.elements) part.elements = elements;
    return sl_on_all_cores(part.cores, read_on_core, &part);
}

void sl_stream_close(struct sl_stream *stream) {
    sl_memory_give(stream->memory);
    stream->memory = NULL;
}
