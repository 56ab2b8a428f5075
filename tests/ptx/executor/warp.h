/* warp.h - a kernel as the executor has it, and a warp that runs it. Lanes that part from others wait at basic blocks.
 */
#ifndef PTX_WARP_H
#define PTX_WARP_H

#include <stdbool.h>

#include "lanes.h"

struct ptx_site {
    const char *file, *text;
    int line;
};
struct ptx_warp;
/* An operation of a warp: a function of operations*.c, and numbers: places of operands, or plain ones. A place's two
 * top bits are the base from which the others count bytes: the warp's frame, the kernel's numbers, the parameters. */
struct ptx_op {
    void (*run)(struct ptx_warp *warp, const struct ptx_op *op);
    uint32_t site, bytes; /* of this operation, whose next one follows */
    uint32_t n[];
};
struct ptx_operation {
    const char *name;
    void (*run)(struct ptx_warp *warp, const struct ptx_op *op);
};
/* Tables that end with NULL. */
extern const struct ptx_operation ptx_integer_operations[], ptx_float_operations[], ptx_convert_operations[],
    ptx_memory_operations[], ptx_together_operations[];

enum ptx_end { PTX_GO, PTX_LEAVE, PTX_TRAP, PTX_TABLE };
enum { PTX_MEETS_NOT = -2, PTX_MEETS_ALL = -1 };
struct ptx_basic { /* a basic block */
    int64_t meets; /* lanes that meet before it: none, all that have not ended, or lanes of the mask at this place */
    const char *begin, *end; /* operations */
    enum ptx_end how;
    bool guarded, negated;
    uint32_t guard; /* place of the predicate; for a table, of the index */
    uint32_t site;
    uint32_t *target, targets; /* the block behind comes last */
};
enum { PTX_KINDS = 7 }; /* of instructions: float, integer, memory, control, together, mma, other */
struct ptx_given {      /* a parameter's place */
    uint32_t place, bits, offset, bytes;
    bool is_signed;
};
struct ptx_kernel {
    char *name;
    uint32_t static_bytes; /* of shared memory as a GPU has it, without the gaps between arrays */
    uint32_t registers;    /* of a thread, as ptxas has counted them; 0: it has not seen the kernel */
    uint32_t parameter_bytes, shared_bytes, local_bytes, most_threads, frame_bytes, place_bytes, blocks, arrays, givens;
    struct ptx_basic *block;
    uint16_t (*kinds)[PTX_KINDS];
    uint32_t (*array)[2]; /* of shared memory: offset, bytes */
    char *constants;
    struct ptx_given *given;
    struct ptx_site *site;
    uint32_t sites;
    char *ops;
    const char *line; /* of the image, with the kernel's text */
    bool made;
};
struct ptx_variable {
    char *name;
    size_t bytes;
    uint64_t at;
};
struct ptx_module {
    char *image;
    struct ptx_kernel *kernel;
    struct ptx_variable *variable;
    uint32_t kernels, variables;
};

struct ptx_team;       /* a block: team.h */
struct ptx_team_view { /* its beginning */
    struct ptx_module *module;
    uint32_t block, blocks, threads, dynamic_bytes, shared_bytes, dynamic_at;
    uint64_t shared_at; /* generic address of the block's shared memory */
};
struct ptx_warp {
    char *base[4]; /* of places */
    uint32_t m;    /* lanes that run now */
    uint32_t all;  /* the same, before a guard */
    uint32_t live; /* lanes that have not ended */
    bool whole;    /* all of them run */
    uint32_t number;
    struct ptx_team_view *team;
    uint64_t local_at, local_stride;
};
static inline void *ptx_place(const struct ptx_warp *warp, uint32_t place) {
    return warp->base[place >> 30] + (place & 0x3fffffff);
}

/* Lanes that wait at basic blocks. */
struct ptx_parted {
    uint32_t *waiting;
    uint64_t *some, *stuck; /* bits of blocks: lanes wait; lanes wait there for others */
    uint32_t words;
};
static inline void ptx_send(struct ptx_parted *d, uint32_t block, uint32_t lanes) {
    const uint64_t bit = 1ull << block % 64;
    d->waiting[block] = (d->some[block / 64] & bit ? d->waiting[block] : 0) | lanes;
    d->some[block / 64] |= bit;
    d->stuck[block / 64] &= ~bit;
}
static inline void ptx_park(struct ptx_parted *d, uint32_t block, uint32_t lanes) {
    ptx_send(d, block, lanes);
    d->stuck[block / 64] |= 1ull << block % 64;
}
static inline void ptx_unstick(struct ptx_parted *d) {
    for (uint32_t i = 0; i < d->words; i++) d->stuck[i] = 0;
}

void ptx_kernel_make(const struct ptx_module *module, struct ptx_kernel *kernel);
/* Runs a kernel from its first block until all lanes have ended. */
void ptx_run_warp(struct ptx_warp *warp, const struct ptx_kernel *kernel);

/* The lanes of MASK whose word in K is as the first one's, which NEED becomes. */
static inline uint32_t ptx_alike(const v_u32 *k, uint32_t mask, uint32_t *need) {
    *need = (*k)[__builtin_ctz(mask)];
    return LANES(*k == *need) & mask;
}
/* The word of X that all LANES must have alike. */
uint32_t ptx_uniform(struct ptx_warp *warp, const v_u32 *x, uint32_t lanes, uint32_t site);
_Noreturn void ptx_fail(struct ptx_warp *warp, uint32_t lanes, const char *why, uint32_t site);
uint64_t ptx_clock(void);

/* ---- memory.c: A has addresses, X an element of 1 to 16 bytes for each lane ---- */

#define PTX_ACCESS(bytes)                                                                                              \
    void ptx_load_##bytes(struct ptx_warp *, const v_u64 *a, uint32_t lanes, void *x, uint32_t site);                  \
    void ptx_load_shared_##bytes(struct ptx_warp *, const v_u64 *a, uint32_t lanes, void *x, uint32_t site);           \
    void ptx_store_##bytes(struct ptx_warp *, const v_u64 *a, uint32_t lanes, const void *x, uint32_t site);           \
    void ptx_store_shared_##bytes(struct ptx_warp *, const v_u64 *a, uint32_t lanes, const void *x, uint32_t site);
PTX_ACCESS(1)
PTX_ACCESS(2)
PTX_ACCESS(4)
PTX_ACCESS(8)
PTX_ACCESS(16)
uint32_t ptx_is_shared(const struct ptx_warp *warp, const v_u64 *a);
uint32_t ptx_is_local(const struct ptx_warp *warp, const v_u64 *a);
uint32_t ptx_is_global(const struct ptx_warp *warp, const v_u64 *a);
/* Checks the access of LANE's atomic instruction to address A; returns A as a pointer. */
void *ptx_atomic(struct ptx_warp *warp, uint64_t a, uint32_t bytes, uint32_t lane, uint32_t site);
void ptx_fence(struct ptx_warp *warp);
void ptx_warp_sync(struct ptx_warp *warp, uint32_t lanes);

/* cp.async: each lane copies its GIVEN bytes from memory, and sets the rest of its BYTES bytes to zero. */
void ptx_copy(struct ptx_warp *warp, const v_u64 *to, const v_u64 *from, const v_u32 *given, uint32_t bytes,
              uint32_t lanes, uint32_t site);
void ptx_copies_commit(struct ptx_warp *warp, uint32_t lanes);
enum { PTX_ALL_COPIES = -1 };
/* Waits until at most PENDING groups of copies are under way. PTX_ALL_COPIES: waits for all copies, also uncommitted
 * ones. */
void ptx_copies_wait(struct ptx_warp *warp, uint32_t pending, uint32_t lanes, uint32_t site);

/* ---- together.c: all lanes that have not ended, or the lanes of a mask ---- */

/* COUNT: threads that it is for; 0: all of the block. */
void ptx_barrier(struct ptx_warp *warp, uint32_t id, uint32_t count, uint32_t site);
#define PTX_SHUFFLE(how)                                                                                               \
    void ptx_shuffle_##how(struct ptx_warp *, v_u32 *x, const v_u32 *b, const v_u32 *c, uint32_t lanes, uint32_t *in,  \
                           uint32_t site);
PTX_SHUFFLE(up)
PTX_SHUFFLE(down)
PTX_SHUFFLE(bfly)
PTX_SHUFFLE(idx)
void ptx_mma(struct ptx_warp *warp, const v_u32 a[4], const v_u32 b[2], v_f32 c[4]);
void ptx_ldmatrix(struct ptx_warp *warp, const v_u64 *rows, int transposed, v_u32 x[4], uint32_t site);

#endif
