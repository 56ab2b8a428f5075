/* gpipe.h - what the files of the driver gpipe share: a network of linear layers, and one run of it on a mesh. */
#ifndef SL_DRIVERS_GPIPE_GPIPE_H
#define SL_DRIVERS_GPIPE_GPIPE_H

#include "layers/modules/modules.h"
#include "layers/storage/safetensors.h"
#include "layers/models/forecast.h"
#include "layers/training/trace_file.h"
#include "spmd/schedule/schedule.h"

/* The axes of its meshes. */
#define GPIPE_PIPE_AXIS "pipe"
#define GPIPE_TENSOR_AXIS "tensor"

/* Linear layers one after another, number l called "layers.l"; with RELU a rectifier between them, and every second
 * kernel sharded over "tensor" by rows, the others by columns. The loss is the sum of the outputs. */
struct gpipe_network {
    int layers, batch;
    int columns[SL_MAX_COORDINATES + 1]; /* before the first layer, and after each */
    bool relu;
    float *inputs;          /* [batch, columns[0]] */
    struct sl_store values; /* of all parameters */
};

/* COLUMNS ends with 0. Weights and biases are uniform within 1 / sqrt(columns before the layer), as in PyTorch. */
int gpipe_network_open(struct gpipe_network *network, const int *columns, bool relu, int batch, uint64_t seed,
                       struct sl_error *error);
void gpipe_network_free(struct gpipe_network *network);

/* COORDINATE fails when it is about to do an action: F, B, I or W of a microbatch. */
struct gpipe_failure {
    const char *text;                  /* as the user gave it */
    int coordinate, stage, microbatch; /* stage -1: whichever it has */
    char action;
};

struct gpipe_run {
    const char *name; /* in messages */
    const struct gpipe_network *network;
    struct sl_mesh mesh;
    struct sl_schedule schedule;         /* lowered; for the batch as so many microbatches */
    const struct gpipe_failure *failure; /* NULL: none */
    struct sl_trace_file *trace;         /* what each coordinate did when; NULL: not recorded */
    /* Filled in. */
    float *outputs;                            /* [batch, last columns] */
    struct sl_store gradients;                 /* of all parameters */
    struct sl_watch watch[SL_MAX_COORDINATES]; /* of the pass */
};

/* Makes the schedule, and room for the results; the caller has filled in the mesh, on which SL_BAD_INPUT says that the
 * network does not fit. */
int gpipe_open(struct gpipe_run *run, const struct gpipe_network *network, int microbatches, struct sl_error *error);
void gpipe_free(struct gpipe_run *run);
/* Whether the run has the action that FAILURE names. */
bool gpipe_has(const struct gpipe_run *run, const struct gpipe_failure *failure);
/* What a trace, or a forecast, needs to know of it. */
struct sl_trace_run gpipe_about(const struct gpipe_run *run, int cores);
/* One pass forward and backward. */
int gpipe_pass(struct gpipe_run *run, const struct sl_engine *engine);

/* ---- modules (modules.c); as for those in layers/modules/modules.h ---- */

/* y = max(x, 0) */
struct sl_module *gpipe_relu(int cols);
/* A loss: the sum of x. OUTPUTS, in the device's memory, receives x of all microbatches, one after
 * another; NULL: nobody wants it. */
struct sl_module *gpipe_sum(int cols, float *outputs);
/* INNER, but it fails as FAILURE says; the coordinate is the caller's to compare. */
struct sl_module *gpipe_failing(struct sl_module *inner, const struct gpipe_failure *failure);

#endif
