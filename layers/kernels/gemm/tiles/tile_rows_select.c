/* tile_rows_select.c - selects the products by tiles for this CPU. */
#include "layers/kernels/gemm/tiles/tile_rows.h"
#include "spmd/base/cpu_level.h"

const struct sl_tile_rows *sl_tile_rows_select(void) { return sl_cpu_has_tiles() ? &sl_tile_rows_amx : NULL; }
