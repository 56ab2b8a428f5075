/* cores.c - the cores of a run, and a message if coordinates share them. */
#include "drivers/speed/cores.h"

#include <string.h>
#include <unistd.h>

#include "collectives/engines.h"
#include "collectives/launcher.h"
#include "spmd/device/device.h"
#include "spmd/placement/topology.h"

int sl_cores_of(const struct sl_engine *engine) {
    return engine->table == &sl_engine_local && !strcmp(sl_device.name, "cpu") ? sl_topology_usable() : 0;
}

/* Processes bound by a launcher see only their own cores: together they have the host's. */
void sl_cores_share(const struct sl_engine *engine, int size, int *coordinates, int *cores) {
    const struct sl_launch launch = sl_launch_of_process();
    *coordinates = size;
    *cores = sl_cores_of(engine);
    if (engine->table == &sl_engine_local || strcmp(sl_device.name, "cpu") != 0 || !launch.here) return;
    *coordinates = launch.here;
    *cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
}

int sl_cores_each(const struct sl_engine *engine, int size) {
    const int usable = sl_topology_usable();
    int coordinates, cores;
    sl_cores_share(engine, size, &coordinates, &cores);
    const int each = cores / coordinates < usable ? cores / coordinates : usable;
    return each > 1 ? each : 1;
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
