/* gpipe.h - shared by the driver's files: a network of linear layers, and one run of it on a mesh. */
#ifndef SL_DRIVERS_GPIPE_GPIPE_H
#define SL_DRIVERS_GPIPE_GPIPE_H

#include "layers/modules/modules.h"
#include "layers/formats/stores/safetensors.h"
#include "layers/models/forecast.h"
#include "layers/training/trace/trace_file.h"
#include "spmd/schedule/schedule.h"

/* Names of the mesh's axes. */
enum { GPIPE_MOST_LAYERS = 1024 };

#define GPIPE_PIPE_AXIS "pipe"
#define GPIPE_TENSOR_AXIS "tensor"

/* Linear layers in sequence, layer l called "layers.l"; with RELU, rectifiers between them. On a mesh with the axis
 * "tensor" the kernels of odd layers are sharded over it by rows, the others by columns. The loss is the sum of the
 * outputs. */
struct gpipe_network {
    int layers, batch;
    int columns[GPIPE_MOST_LAYERS + 1]; /* before the first layer, and after each */
    bool relu;
    float *inputs;          /* [batch, columns[0]] */
    struct sl_store values; /* of all parameters */
};

/* Initializes the network. COLUMNS ends with 0. Weights and biases are uniform within 1 / sqrt(columns before the
 * layer), as in PyTorch. */
int gpipe_network_open(struct gpipe_network *network, const int *columns, bool relu, int batch, uint64_t seed,
                       struct sl_error *error);
void gpipe_network_free(struct gpipe_network *network);

/* COORDINATE fails right before an action: F, B, I or W of a microbatch. */
struct gpipe_failure {
    const char *text;                  /* as the user gave it */
    int coordinate, stage, microbatch; /* stage -1: any */
    char action;
};

/* Options of a pipeline of queues and workers (fit.c). */
struct gpipe_queues {
    int workers;    /* 0: as many as the cycle has active partitions */
    int attempts;   /* limit per task */
    double trouble; /* probability that an attempt fails; half of the failures end their worker, too */
    double task_ms; /* added time of each task, as of a device */
    uint64_t seed;  /* of random failures */
    const struct gpipe_failure *death; /* task whose first worker dies; COORDINATE is its partition; NULL: none */
};

struct gpipe_place {
    int microbatch, partition;
    bool backward;
};

/* Results of the tasks, at coordinate 0. */
struct gpipe_record {
    struct gpipe_place *order; /* [tasks], in the order of their outputs; NULL: not wanted */
    int tasks, attempts, started, died;
    double utilization; /* of the workers: time in tasks over time alive */
};

struct gpipe_run {
    const char *name; /* in messages */
    const struct gpipe_network *network;
    const struct gpipe_queues *queues; /* NULL: a pipeline of coordinates */
    struct sl_mesh mesh;               /* as requested */
    struct sl_mesh on;                 /* mesh of the run: with queues each coordinate has all partitions */
    int partitions;
    struct sl_schedule schedule;         /* lowered; for the batch divided into microbatches */
    const struct gpipe_failure *failure; /* NULL: none */
    struct sl_trace_file *trace;         /* actions of each coordinate; NULL: not recorded */
    /* Results. */
    float *outputs;             /* [batch, last columns] */
    float *batch_gradient;      /* [batch, columns[0]]: of the inputs */
    struct sl_store gradients;  /* of all parameters */
    struct gpipe_record record; /* with queues */
    struct sl_watch *watch;     /* [coordinates], of the pass */
};

/* The active partitions of a clock cycle, FIRST to END - 1; partition p computes microbatch CYCLE - p. */
struct gpipe_cycle {
    int first, end;
};
static inline struct gpipe_cycle gpipe_cycle_of(const struct gpipe_run *run, int cycle) {
    const int microbatches = run->schedule.microbatches, next = cycle + 1;
    return (struct gpipe_cycle){next > microbatches ? next - microbatches : 0,
                                next < run->partitions ? next : run->partitions};
}
static inline int gpipe_cycles(const struct gpipe_run *run) { return run->partitions + run->schedule.microbatches - 1; }

/* Makes the schedule, and allocates the results; the caller has set the mesh. SL_BAD_INPUT if the network does not
 * fit the mesh. */
int gpipe_open(struct gpipe_run *run, const struct gpipe_network *network, int microbatches, struct sl_error *error);
void gpipe_free(struct gpipe_run *run);
/* Whether the run has FAILURE's action. */
bool gpipe_has(const struct gpipe_run *run, const struct gpipe_failure *failure);
/* Returns the run's description for a trace or a forecast. */
struct sl_trace_run gpipe_about(const struct gpipe_run *run, int cores);
/* Runs one forward and backward pass. */
int gpipe_pass(struct gpipe_run *run, const struct sl_engine *engine);

/* Prints the order of the tasks of a run with queues, and the work of its workers (queues.c). */
void gpipe_print_queues(const struct gpipe_run *run);
/* The program of a run with queues (fit.c); ARG is the run. */
int gpipe_fit(struct sl_spmd *self, void *arg);

/* Makes the layers of partition r of R, from r * layers / R on (run.c). NULL without memory. Free with
 * sl_module_free. */
struct sl_module *gpipe_stage(const struct gpipe_network *network, const struct sl_mesh *mesh, int r, int ranks);

/* ---- modules (modules.c), used like those in layers/modules/modules.h ---- */

/* y = max(x, 0) */
struct sl_module *gpipe_relu(int cols);
/* A loss: the sum of x. OUTPUTS, in the device's memory, receives x of all microbatches in order; NULL: not wanted. */
struct sl_module *gpipe_sum(int cols, float *outputs);
/* Wraps INNER so that it fails as FAILURE says; the caller compares the coordinate. */
struct sl_module *gpipe_failing(struct sl_module *inner, const struct gpipe_failure *failure);

#endif
