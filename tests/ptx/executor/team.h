/* team.h - a block of threads while it runs, within the runtime. */
#ifndef PTX_TEAM_H
#define PTX_TEAM_H

#include <stdbool.h>

#include "area.h"
#include "launch.h"
#include "warp.h"

enum { PTX_MOST_WARPS = 32, PTX_BARRIERS = 16, PTX_NEAR = 256, PTX_SHARED_MOST = 227 << 10, PTX_COPIES = 128 };
enum { PTX_REGISTERS_MOST = 65536 }; /* of a block */

struct ptx_pending { /* an asynchronous copy of one lane */
    uint64_t to, from;
    uint32_t bytes, given, lane, group;
    bool done; /* at its issue */
};
struct ptx_fiber {
    struct ptx_warp warp;
    void *sp, *stack, *frame;
    size_t frame_bytes;
    uint32_t words;      /* that lie behind parted */
    bool runs, ended;    /* may run; has come to its end */
    int barrier;         /* at which it waits; -1 */
    uint32_t site;       /* of that */
    uint32_t syncs;      /* bar.warp.sync since the last barrier */
    uint32_t groups[32]; /* of copies that each lane has committed */
    int copies;
    struct ptx_pending *copy; /* [PTX_COPIES * 32] */
    struct ptx_area *local;
    struct ptx_parted parted;
};
struct ptx_gate {
    uint32_t arrived, expected; /* warps; expected: 0: all */
};
struct ptx_team {
    struct ptx_team_view view; /* first */
    const struct ptx_kernel *kernel;
    char *parameters; /* their places */
    size_t parameter_room;
    struct ptx_fiber *fiber; /* [PTX_MOST_WARPS] */
    struct ptx_fiber *now;
    void *main_sp;
    uint32_t warps, living;
    struct ptx_gate gate[PTX_BARRIERS];
    uint64_t random;
    bool checks;
    bool wild; /* lanes that part go on in any order */
    struct ptx_stamps stamps;
    struct ptx_area *shared;
    struct ptx_near near[PTX_NEAR];
    uint64_t *ran;
    size_t ran_room;           /* blocks */
    struct ptx_counts *counts; /* NULL: not counted */
};

static inline struct ptx_team *ptx_team_of(const struct ptx_warp *warp) { return (struct ptx_team *)warp->team; }
static inline struct ptx_fiber *ptx_fiber_of(struct ptx_warp *warp) { return (struct ptx_fiber *)warp; }

/* The next of the team's random numbers, below BELOW. */
static inline uint32_t ptx_random(struct ptx_team *team, uint32_t below) {
    team->random = team->random * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(((team->random >> 32) * below) >> 32);
}

/* fiber.c */
void ptx_fiber_make(struct ptx_fiber *fiber, void (*begin)(void));
void ptx_switch(void **from, void *to);
char *ptx_frame(struct ptx_fiber *fiber, size_t bytes, uint32_t blocks);

/* Of the environment, read once. */
struct ptx_options {
    uint64_t seed;
    bool checks, goes_on;
    const char *counts, *coverage;
};
const struct ptx_options *ptx_options(void);

/* report.c */
_Noreturn void ptx_report(const struct ptx_team *team, const struct ptx_warp *warp, uint32_t lane, uint32_t site,
                          const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Of a launch that begins; NULL: nothing is counted. */
struct ptx_counts *ptx_counts_begin(void);
/* The same for races: the run goes on if it is told so. */
void ptx_tell(const struct ptx_team *team, const struct ptx_warp *warp, uint32_t lane, uint32_t site,
              const char *format, ...) __attribute__((format(printf, 5, 6)));
void ptx_launch_ends(struct ptx_team *team, const void *parameters);
void ptx_count_access(struct ptx_team *team, const v_u64 *a, uint32_t lanes, uint32_t bytes, bool shared, bool stores);

#endif
