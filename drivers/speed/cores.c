/* cores.c - how many cores a run has, and a line where coordinates share them. */
#include "drivers/speed/cores.h"

#include <string.h>

#include "collectives/engines.h"
#include "spmd/device/device.h"
#include "spmd/topology.h"

int sl_cores_of(const struct sl_engine *engine) {
    return engine->table == &sl_engine_local && !strcmp(sl_device.name, "cpu") ? sl_topology_usable() : 0;
}

const char *sl_cores_describe(int coordinates, int cores, char *text, size_t size) {
    *text = '\0';
    if (cores > 0 && coordinates > cores)
        snprintf(text, size, "%d coordinates share %d core%s: times are not those of %d devices", coordinates, cores,
                 cores == 1 ? "" : "s", coordinates);
    return text;
}

void sl_cores_print(FILE *stream, int coordinates, int cores) {
    char text[100];
    if (*sl_cores_describe(coordinates, cores, text, sizeof text)) fprintf(stream, "%s\n", text);
}
