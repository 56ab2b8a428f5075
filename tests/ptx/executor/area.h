/* area.h - memory that device code may touch, and the checker's record of it: which bytes have been written, and for
 * each word of four bytes who has written and read it last.
 *
 * A stamp has: launch (21 bits), phase within it (20), warp's syncs (5), two neighbours (1: the lower half belongs
 * to the thread, the upper half to the next one), bytes of the word (4), atomic (1), many threads (1), thread (10). A
 * phase ends when all of a block's threads have met at a barrier, and when a block ends; no number is used twice for a
 * launch. */
#ifndef PTX_AREA_H
#define PTX_AREA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PTX_PHASE_AT = 22, PTX_LAUNCH_AT = 42, PTX_MOST_PHASES = 1 << 20, PTX_MOST_LAUNCHES = 1 << 21 };
#define PTX_MANY (1ull << 10) /* threads have read it, or stored the same bytes */
#define PTX_ATOMIC_BIT (1ull << 11)
#define PTX_BYTES(mask) ((uint64_t)(mask) << 12)
#define PTX_PAIR (1ull << 16)
#define PTX_SYNCS(n) ((uint64_t)((n) & 31) << 17)

/* The launch and phase in a thread's stamps now. */
struct ptx_stamps {
    uint64_t launch;      /* at its place */
    uint64_t phase;       /* number */
    uint64_t block_first; /* phase in which the block began */
};

enum ptx_kind { PTX_OF_DEVICE, PTX_OF_BOTH, PTX_OF_HOST, PTX_OF_BLOCK, PTX_OF_LANES };
struct ptx_area {
    uint64_t begin, end;
    enum ptx_kind kind;
    bool freed;
    uint8_t *valid;         /* a bit a byte: somebody has written it; NULL: all */
    uint8_t *inside;        /* a bit a byte: belongs to a variable; NULL: all */
    uint64_t *wrote, *read; /* a stamp a word */
};
struct ptx_near { /* areas that were found last */
    struct ptx_area *area;
    uint64_t begin, end;
    unsigned changes;
};

enum { PTX_PATTERN = 0xfb }; /* bytes of memory that were never written */

struct ptx_area *ptx_area_make(uint64_t begin, size_t bytes, enum ptx_kind kind, bool inside);
void ptx_area_drop(struct ptx_area *area);
/* The area of ADDRESS; NULL: there is none. NEAR: the area that the thread found before. */
struct ptx_area *ptx_area_find(struct ptx_near *near, uint64_t address);

bool ptx_bits_all(const uint8_t *bits, size_t from, size_t count);
void ptx_bits_set(uint8_t *bits, size_t from, size_t count, bool on);

/* Whether AREA's BYTES from FROM have been written. */
bool ptx_area_written(const struct ptx_area *area, size_t from, size_t bytes);

#endif
