/* memory_report.h - reports the memory of each coordinate and the parts of each process: for --dry-run, and at the end
 * of a run. */
#ifndef SL_DRIVERS_MEMORY_MEMORY_REPORT_H
#define SL_DRIVERS_MEMORY_MEMORY_REPORT_H

#include <jansson.h>

#include "drivers/memory/limits.h"
#include "drivers/memory/process.h"
#include "spmd/base/error.h"
#include "spmd/spmd.h"

/* Memory of a coordinate. */
struct sl_memory {
    struct sl_budget planned, held;   /* held: at the end of the run */
    struct sl_limits limits;          /* of its process and device, before any allocation */
    bool looked;                      /* whether this coordinate has read the limits: one per process, or per device */
    int device;                       /* as in struct sl_spmd */
    uint64_t host, process;           /* identities; coordinates of one process have the same */
    struct sl_process_memory resides; /* at the end of the run; on one coordinate per process */
};

/* Collective over the mesh: gathers all coordinates' plans in MEMORY[coordinates], on coordinate 0 if coordinates
 * share memory, otherwise on all. PLANNED is the coordinate's plan. */
int sl_memory_gather_planned(struct sl_spmd *self, const struct sl_budget *planned, struct sl_memory *memory);
/* Collective over the mesh, at the end of a run: adds the coordinates' allocated memory and the processes' parts. */
int sl_memory_gather_held(struct sl_spmd *self, struct sl_memory *memory);

/* Returns the expected bytes of host memory of COORDINATE's process besides its coordinates' plans; 0 unless
 * COORDINATE is the first of its process. */
double sl_memory_besides(const struct sl_memory *memory, const struct sl_mesh *mesh, int coordinate);

/* Prints the plan for --dry-run: a table with a row per coordinate, or if JSON an object per coordinate. RUN is the
 * plan's name among several; NULL: there is one. */
int sl_memory_print(const struct sl_memory *memory, const struct sl_mesh *mesh, const char *run, bool json,
                    struct sl_error *error);
enum { SL_BUDGET_TEXT = 280 }; /* room for all categories */
/* Writes "parameters 1.2, kept 3.4", in MB, for each category other than 0.0, to TEXT [size]. Returns TEXT. */
char *sl_budget_describe(const struct sl_budget *budget, char *text, size_t size);
/* Prints a line for people to STREAM at the end of a run, or if FULL a table of allocated memory and a line per
 * process. */
void sl_memory_print_end(FILE *stream, const struct sl_memory *memory, const struct sl_mesh *mesh, bool full);

/* Returns MEMORY[mesh->size], as planned, as a list of an object per coordinate, in bytes; NULL without memory. */
json_t *sl_memory_json(const struct sl_memory *memory, const struct sl_mesh *mesh);
/* Returns an object per process: its coordinates, their allocated memory, and the other parts by name. */
json_t *sl_memory_json_processes(const struct sl_memory *memory, const struct sl_mesh *mesh);

/* Returns the planned bytes of the coordinate with the largest plan. */
double sl_memory_most(const struct sl_memory *memory, const struct sl_mesh *mesh);

#endif
