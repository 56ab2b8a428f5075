/* fma_tiles.c - multiply-adds of bf16 by the CPU's tile unit (AMX): tiles of 16 x 32 and 32 x 16 bf16, and of 16 x 16
 * sums. */
#include <immintrin.h>
#include <stdlib.h>
#include <string.h>

#include "benchmarks/rates/fma.h"
#include "spmd/base/cpu_level.h"

enum { SUMS = 6, ROWS = 16, PAIRS = 16, ROW_BYTES = 64, TILES = 8, PALETTE = 1 };

/* The instruction ldtilecfg reads this layout. */
struct shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
_Static_assert(sizeof(struct shapes) == 64, "what ldtilecfg reads");

static float run(uint64_t rounds) {
    struct shapes shapes = {.palette = PALETTE};
    uint16_t x[ROWS * 2 * PAIRS];
    float sums[ROWS * PAIRS];
    for (int i = 0; i < ROWS * 2 * PAIRS; i++) x[i] = i % 2 ? 0x3f80 : 0xbf00; /* 1, -0.5 */
    for (int i = 0; i < TILES; i++) {
        shapes.row_bytes[i] = ROW_BYTES;
        shapes.rows[i] = ROWS;
    }
    __asm__ volatile("" ::: "memory"); /* gcc does not know that this reads memory */
    _tile_loadconfig(&shapes);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_loadd(6, x, ROW_BYTES);
    _tile_loadd(7, x, ROW_BYTES);
    for (uint64_t round = 0; round < rounds; round++) {
        _tile_dpbf16ps(0, 6, 7);
        _tile_dpbf16ps(1, 6, 7);
        _tile_dpbf16ps(2, 6, 7);
        _tile_dpbf16ps(3, 6, 7);
        _tile_dpbf16ps(4, 6, 7);
        _tile_dpbf16ps(5, 6, 7);
    }
    _tile_stored(0, sums, ROW_BYTES);
    _tile_release();
    return sums[0];
}

bool sl_fma_has_tiles(void) {
    const char *most = getenv("ONEDNN_MAX_CPU_ISA");
    return (!most || strstr(most, "AMX")) && sl_cpu_has_tiles();
}

const struct sl_fma_loop sl_fma_loop_tiles = {
    .level = "AMX_BF16", .flops = 2 * ROWS * PAIRS * 2 * PAIRS, .in_a_round = SUMS, .run = run};
