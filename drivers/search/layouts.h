/* layouts.h - the layouts of a job on a number of devices: meshes, schedules, microbatches, and what saves memory. */
#ifndef SL_DRIVERS_SEARCH_LAYOUTS_H
#define SL_DRIVERS_SEARCH_LAYOUTS_H

#include "drivers/search/predict.h"

enum { SL_LAYOUT_TEXT = 320 };

struct sl_layout {
    struct sl_variant variant;
    char mesh[96];             /* "data=2,pipe=4" */
    char stage_layers[96];     /* "" unless the layout says how many layers each stage has */
    char text[SL_LAYOUT_TEXT]; /* its options as they are written */
    int savings;               /* steps that save memory, each at a price, that have been taken */
    struct sl_prediction prediction;
    bool planned; /* it could be planned, and has a prediction */
    bool fits;    /* in the memory that a coordinate may take */
};

struct sl_layouts {
    int count, capacity;
    struct sl_layout *list;
};

/* What the user has fixed: then layouts have nothing else. */
struct sl_layout_limits {
    bool mesh, schedule, loops, microbatches, recompute, storage, stage_layers;
    bool spread; /* nodes are far from each other: places along axes matter, and so does the order of axes */
};

/* Appends all layouts of JOB on DEVICES, without any that saves memory; SL_FAILED without memory. Free the list. */
int sl_layouts_list(struct sl_layouts *layouts, const struct sl_job *job, int devices,
                    const struct sl_layout_limits *limits, struct sl_error *error);
/* Inserts JOB on MESH, with all its options, before all others; SL_FAILED without memory. */
int sl_layouts_insert_own(struct sl_layouts *layouts, const struct sl_job *job, const struct sl_mesh *mesh,
                          struct sl_error *error);
/* Takes the next step that saves memory; false where there is none left. */
bool sl_layout_save(struct sl_layout *layout, const struct sl_job *job, const struct sl_layout_limits *limits);
/* Rounds what is kept to bf16, which may take less memory or more; false where that is given. */
bool sl_layout_round(struct sl_layout *layout, const struct sl_job *job, const struct sl_layout_limits *limits);
/* Gives the stages as many layers as balance their predicted times, or with 2 PARTS halves of layers; false where that
 * is what they have. STAGE has the ms of each of STAGES stages in a step of JOB's layers; NULL: as if layers were all
 * that takes time. */
bool sl_layout_balance(struct sl_layout *layout, const double *stage, int stages, const struct sl_job *job, int parts);

#endif
