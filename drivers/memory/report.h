/* report.h - what memory each coordinate takes, and what each process consists of: --dry-run, and the end of a run. */
#ifndef SL_DRIVERS_MEMORY_REPORT_H
#define SL_DRIVERS_MEMORY_REPORT_H

#include <jansson.h>

#include "drivers/memory/limits.h"
#include "drivers/memory/process.h"
#include "spmd/base/error.h"
#include "spmd/spmd.h"

/* Of a coordinate. */
struct sl_memory {
    struct sl_budget planned, held;   /* held: at the end of the run */
    struct sl_limits limits;          /* of its process and device, before anything was taken; and */
    bool looked;                      /* whether the coordinate has looked: one of a process, or of a device */
    int device;                       /* as in struct sl_spmd */
    uint64_t host, process;           /* which; coordinates of one process have the same */
    struct sl_process_memory resides; /* at the end of the run; of one coordinate of the process */
};

/* Collective over the mesh: coordinate 0 gets everyone's in MEMORY[coordinates], where coordinates share memory, and
 * all get it where they do not. A coordinate plans to take what is in PLANNED. */
int sl_memory_gather_planned(struct sl_spmd *self, const struct sl_budget *planned, struct sl_memory *memory);
/* Collective over the mesh, at the end of a run: adds what coordinates hold and processes consist of. */
int sl_memory_gather_held(struct sl_spmd *self, struct sl_memory *memory);

/* What the process of COORDINATE is likely to take besides what its coordinates plan to take, in bytes of the host; 0
 * unless COORDINATE is the first of its process. */
double sl_memory_besides(const struct sl_memory *memory, const struct sl_mesh *mesh, int coordinate);

/* For --dry-run, prints what is planned: a table with a row a coordinate, or where JSON an object a coordinate. RUN is
 * its name among several; NULL: there is one. */
int sl_memory_print(const struct sl_memory *memory, const struct sl_mesh *mesh, const char *run, bool json,
                    struct sl_error *error);
enum { SL_BUDGET_TEXT = 280 }; /* room for all categories */
/* "parameters 1.2, kept 3.4", in MB, of each category that is not 0.0, in TEXT [size]. Returns TEXT. */
char *sl_budget_describe(const struct sl_budget *budget, char *text, size_t size);
/* At the end of a run, for people: a line on STREAM, or where LONG the table of what is held and a line a process. */
void sl_memory_print_end(FILE *stream, const struct sl_memory *memory, const struct sl_mesh *mesh, bool full);

/* MEMORY[mesh->size], planned, as a list with an object a coordinate, in bytes; NULL without memory for it. */
json_t *sl_memory_json(const struct sl_memory *memory, const struct sl_mesh *mesh);
/* An object a process: its coordinates, what they hold, and the rest by name. */
json_t *sl_memory_json_processes(const struct sl_memory *memory, const struct sl_mesh *mesh);

/* Of the coordinate that plans to take the most. */
double sl_memory_most(const struct sl_memory *memory, const struct sl_mesh *mesh);

#endif
