/* protection_collect.h - a step in the memory of more than two hosts (layers/records/snapshot/protection.h): each host
 * has a few of its parts. When a run begins from the step, coordinate 0 decides which step has all its parts on the
 * run's hosts, and the parts that its own host lacks are sent there. */
#ifndef SL_LAYERS_RECORDS_SNAPSHOT_PROTECTION_COLLECT_H
#define SL_LAYERS_RECORDS_SNAPSHOT_PROTECTION_COLLECT_H

#include "layers/records/snapshot/protection_folder.h"
#include "spmd/engine.h"

SL_BEGIN_C

/* SOUGHT is the name of a step in memory, as sl_protection_find writes it; the step itself may be another one of the
 * same start. On coordinate 0, INDEX becomes the name of the latest whole step, and *MOVED the bytes that other hosts
 * have sent; if SOUGHT exists, it is the step. SL_FAILED names a coordinate whose part no host has; the start is then
 * removed from coordinate 0's host, so the next restart does not find it. Collective over the mesh, whose coordinates
 * are processes. */
int sl_protection_collect(struct sl_spmd *self, const char *sought, char index[SL_MAX_PATH], size_t *moved);

SL_END_C
#endif
