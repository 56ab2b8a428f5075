/* fiber.c - a warp's own stack, and the switch from one to another (x86_64, System V: six registers are the callee's).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "team.h"

enum { STACK = 2 << 20 }; /* touched as far as it is used */

__asm__(".text\n.globl ptx_switch\n.type ptx_switch,@function\nptx_switch:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nretq\n"
        ".size ptx_switch, .-ptx_switch\n");

/* The next switch to it comes to BEGIN, which does not return. */
void ptx_fiber_make(struct ptx_fiber *fiber, void (*begin)(void)) {
    if (!fiber->stack) {
        fiber->stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (fiber->stack == MAP_FAILED) {
            perror("ptx: a warp's stack");
            abort();
        }
    }
    void **top = (void **)((char *)fiber->stack + STACK - 256);
    *--top = NULL; /* return address of BEGIN */
    *--top = (void *)begin;
    for (int i = 0; i < 6; i++) *--top = NULL;
    fiber->sp = top;
}

/* Room for a kernel's places, and for lanes that wait at its BLOCKS. */
char *ptx_frame(struct ptx_fiber *fiber, size_t bytes, uint32_t blocks) {
    struct ptx_parted *d = &fiber->parted;
    const uint32_t words = blocks / 64 + 1;
    if (fiber->frame_bytes < bytes) {
        free(fiber->frame);
        fiber->frame_bytes = (bytes + 4095) & ~(size_t)4095;
        fiber->frame = aligned_alloc(4096, fiber->frame_bytes);
    }
    if (fiber->words < words) {
        free(d->waiting);
        free(d->some);
        fiber->words = words;
        d->waiting = malloc(64 * words * sizeof *d->waiting);
        d->some = malloc(2 * words * sizeof *d->some);
    }
    if (!fiber->frame || !d->waiting || !d->some) abort();
    d->words = words;
    d->stuck = d->some + words;
    memset(d->some, 0, 2 * words * sizeof *d->some);
    return fiber->frame;
}
