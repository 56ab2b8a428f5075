/* protection_hosts.h - the hosts of a run's coordinates. Coordinates are on one host if they see the same memory that
 * outlives processes (layers/records/snapshot/protection_folder.h). */
#ifndef SL_LAYERS_RECORDS_SNAPSHOT_PROTECTION_HOSTS_H
#define SL_LAYERS_RECORDS_SNAPSHOT_PROTECTION_HOSTS_H

#include "spmd/engine.h"

SL_BEGIN_C

/* Zero-initialize; free with sl_protection_hosts_free. */
struct sl_protection_hosts {
    int count;   /* of hosts */
    int *first;  /* [coordinates]: the first coordinate on the same host; it leads the host */
    int *keeper; /* [coordinates]: the coordinate on the next host that keeps a copy of this one's part; -1: none, as
                    all coordinates are on one host */
};

/* Collective over WORLD, the whole mesh. SL_FAILED if memory is short. */
int sl_protection_hosts_find(struct sl_spmd *self, const struct sl_group *world, struct sl_protection_hosts *hosts);
void sl_protection_hosts_free(struct sl_protection_hosts *hosts);

SL_END_C
#endif
