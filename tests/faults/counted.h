/* counted.h - for libraries preloaded into a program, or linked into it: counts its calls from the start of main on;
 * one of them fails, or one and all after it. */
#ifndef SL_TESTS_FAULTS_COUNTED_H
#define SL_TESTS_FAULTS_COUNTED_H

#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static bool ready, after;
static long nth; /* 0: none fails */
static atomic_long count;
static uintptr_t begin, end; /* the program's own code and data */

/* The first object is the program. */
static int find_program(struct dl_phdr_info *object, size_t size, void *arg) {
    (void)size, (void)arg;
    begin = UINTPTR_MAX;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        const uintptr_t first = object->dlpi_addr + segment->p_vaddr;
        if (segment->p_type != PT_LOAD) continue;
        if (first < begin) begin = first;
        if (first + segment->p_memsz > end) end = first + segment->p_memsz;
    }
    return 1;
}

/* The arguments are names of variables of the environment. */
static void begin_to_count(const char *number, const char *and_all_after) {
    dl_iterate_phdr(find_program, NULL);
    nth = getenv(number) ? atol(getenv(number)) : 0;
    after = getenv(and_all_after);
    ready = true;
}

/* Writes how many calls there were to the file that the variable FILE names, if it is there. */
static void tell_count(const char *file) {
    const char *path = getenv(file);
    ready = false;
    FILE *stream = path ? fopen(path, "w") : NULL;
    if (!stream) return;
    fprintf(stream, "%ld\n", atomic_load(&count));
    fclose(stream);
}

/* Whether the program itself has made the call that returns to CALLER, and not one of its libraries. */
static bool is_own(const void *caller) { return (uintptr_t)caller >= begin && (uintptr_t)caller < end; }

/* Counts a call; whether it is to fail. */
static bool is_hit(void) {
    const long number = atomic_fetch_add(&count, 1) + 1;
    return nth != 0 && (after ? number >= nth : number == nth);
}

#endif
