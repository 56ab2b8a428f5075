/* tile_rows_select.c - selects the products by tiles for this CPU, and shares them among threads. */
#include "layers/kernels/gemm/tiles/tile_rows.h"
#include "spmd/base/cpu_level.h"
#include "spmd/base/memory.h"

/* With so many weights, two cores win more than they need to synchronize. */
enum { SHARED_WEIGHTS = 1 << 15 };

const struct sl_tile_rows *sl_tile_rows_select(void) { return sl_cpu_has_tiles() ? &sl_tile_rows_amx : NULL; }

struct sharing {
    sl_multiply_tiles *multiply;
    const struct sl_tile_product *product;
    size_t columns; /* of each part except the last */
};

static void multiply_part(void *arg, int part) {
    const struct sharing *sharing = arg;
    struct sl_tile_product product = *sharing->product;
    product.first = sharing->columns * (size_t)part;
    if (product.first + sharing->columns < product.end) product.end = product.first + sharing->columns;
    sharing->multiply(&product);
}

void sl_tile_rows_share(sl_multiply_tiles *multiply, const struct sl_tile_product *product, struct sl_crew *crew) {
    const size_t n = product->n, threads = (size_t)sl_crew_threads(crew);
    const bool shared = n * (product->m > product->k ? product->m : product->k) >= SHARED_WEIGHTS;
    struct sharing sharing = {multiply, product,
                              shared ? sl_round_up((n + threads - 1) / threads, SL_TILE_COLUMNS) : n};
    sl_crew_run(crew, (int)((n + sharing.columns - 1) / sharing.columns), multiply_part, &sharing);
}
