/* layouts.h - lists layouts of a job on a number of devices: meshes, schedules, microbatches, and options that save
 * memory. */
#ifndef SL_DRIVERS_TOOLS_SEARCH_LAYOUTS_H
#define SL_DRIVERS_TOOLS_SEARCH_LAYOUTS_H

#include "drivers/tools/search/predict.h"

enum { SL_LAYOUT_TEXT = 320 };

struct sl_layout {
    struct sl_variant variant;
    char mesh[96];             /* "data=2,pipe=4" */
    char stage_layers[96];     /* layers of each stage; "": not given by the layout */
    char text[SL_LAYOUT_TEXT]; /* its options, as on a command line */
    int savings;               /* number of memory-saving steps taken, each of which has a cost */
    struct sl_prediction prediction;
    bool planned; /* planning succeeded; `prediction` is set */
    bool fits;    /* in a coordinate's memory */
};

struct sl_layouts {
    int count, capacity;
    struct sl_layout *list;
};

/* Options fixed by the user: layouts keep them. */
struct sl_layout_limits {
    bool mesh, schedule, loops, microbatches, recompute, storage, stage_layers, context_by, tensor_layout;
    bool spread; /* nodes have slow links: the order of axes matters */
};

/* Appends all layouts of JOB on DEVICES, without memory-saving steps; SL_FAILED without memory. The caller frees the
 * list. */
int sl_layouts_list(struct sl_layouts *layouts, const struct sl_job *job, int devices,
                    const struct sl_layout_limits *limits, struct sl_error *error);
/* Inserts JOB on MESH, with all its options, as the first layout; SL_FAILED without memory. */
int sl_layouts_insert_own(struct sl_layouts *layouts, const struct sl_job *job, const struct sl_mesh *mesh,
                          struct sl_error *error);
/* Takes the next memory-saving step; returns false if there is none. */
bool sl_layout_save(struct sl_layout *layout, const struct sl_job *job, const struct sl_layout_limits *limits);
/* Rounds saved activations to bf16, which may take less memory or more; returns false if the user has fixed the
 * storage. */
bool sl_layout_round(struct sl_layout *layout, const struct sl_job *job, const struct sl_layout_limits *limits);
/* Distributes the layers over stages to balance their predicted times; with 2 PARTS in half layers. Returns false if
 * the layout has this distribution already. STAGE has the ms per step of each of STAGES stages of JOB; NULL: only
 * layers take time. */
bool sl_layout_balance(struct sl_layout *layout, const double *stage, int stages, const struct sl_job *job, int parts);

#endif
