/* record.c - the fake CUDA's record of calls: a line per call, in a file. */
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "fake.h"

static FILE *file;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_int threads;
static _Thread_local int thread;

static void open_file(void) {
    const char *path = getenv("FAKE_CUDA_RECORD");
    if (!path || !*path) return;
    file = fopen(path, "w");
    if (!file) {
        perror(path);
        abort();
    }
    setvbuf(file, NULL, _IOLBF, 1 << 16); /* whatever becomes of the program */
}

bool fake_records(void) {
    pthread_once(&once, open_file);
    return file != NULL;
}

static void write_line(int stream, const char *format, va_list arguments) {
    if (!thread) thread = atomic_fetch_add(&threads, 1) + 1;
    flockfile(file);
    fprintf(file, stream ? "%d.%d " : "%d ", thread, stream);
    vfprintf(file, format, arguments);
    putc('\n', file);
    funlockfile(file);
}

void fake_record(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (fake_records()) write_line(0, format, arguments);
    va_end(arguments);
}

void fake_work(cudaStream_t stream, const char *format, ...) {
    enum { LONGEST = 4000 };
    char line[LONGEST];
    va_list arguments;
    if (!fake_records() || !stream) return;
    va_start(arguments, format);
    if (fake_capture_of(stream)) {
        vsnprintf(line, sizeof line, format, arguments);
        fake_capture_line(fake_capture_of(stream), line);
    } else {
        write_line(fake_stream_number(stream), format, arguments);
    }
    va_end(arguments);
}
