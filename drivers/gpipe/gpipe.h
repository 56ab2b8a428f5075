/* gpipe.h - the definitions that the driver's files share: a network of linear layers, and one run of it on a mesh. */
#ifndef SL_DRIVERS_GPIPE_GPIPE_H
#define SL_DRIVERS_GPIPE_GPIPE_H

#include "layers/modules/modules.h"
#include "layers/storage/safetensors.h"
#include "layers/models/forecast.h"
#include "layers/training/trace_file.h"
#include "spmd/schedule/schedule.h"

/* The axes of its meshes. */
enum { GPIPE_MOST_LAYERS = 1024 };

#define GPIPE_PIPE_AXIS "pipe"
#define GPIPE_TENSOR_AXIS "tensor"

/* Linear layers one after another, number l called "layers.l"; with RELU a rectifier between them, and every second
 * kernel sharded over "tensor" by rows, the others by columns. The loss is the sum of the outputs. */
struct gpipe_network {
    int layers, batch;
    int columns[GPIPE_MOST_LAYERS + 1]; /* before the first layer, and after each */
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

/* How a pipeline of queues and workers runs (fit.c). */
struct gpipe_queues {
    int workers;    /* 0: as many as the cycle has active partitions */
    int attempts;   /* that a task has at most */
    double trouble; /* probability with which an attempt fails; half of these end their worker, too */
    double task_ms; /* that each task takes longer, as if a device were at it */
    uint64_t seed;  /* of the trouble */
    const struct gpipe_failure *death; /* the task whose first worker dies; its COORDINATE is a partition; NULL: none */
};

struct gpipe_place {
    int microbatch, partition;
    bool backward;
};

/* What became of the tasks, at coordinate 0. */
struct gpipe_record {
    struct gpipe_place *order; /* [tasks], as their outputs came; NULL: not wanted */
    int tasks, attempts, started, died;
    double utilization; /* of the workers: time at tasks over time alive */
};

struct gpipe_run {
    const char *name; /* in messages */
    const struct gpipe_network *network;
    const struct gpipe_queues *queues; /* NULL: a pipeline of coordinates */
    struct sl_mesh mesh;               /* as it was asked for */
    struct sl_mesh on;                 /* on which it runs: with queues all partitions are each coordinate's */
    int partitions;
    struct sl_schedule schedule;         /* lowered; for the batch as so many microbatches */
    const struct gpipe_failure *failure; /* NULL: none */
    struct sl_trace_file *trace;         /* what each coordinate did when; NULL: not recorded */
    /* Filled in. */
    float *outputs;             /* [batch, last columns] */
    float *batch_gradient;      /* [batch, columns[0]]: of the inputs */
    struct sl_store gradients;  /* of all parameters */
    struct gpipe_record record; /* with queues */
    struct sl_watch *watch;     /* [coordinates], of the pass */
};

/* The partitions that are active in a clock cycle, from FIRST to END - 1; partition p has microbatch CYCLE - p. */
struct gpipe_cycle {
    int first, end;
};
static inline struct gpipe_cycle gpipe_cycle_of(const struct gpipe_run *run, int cycle) {
    const int microbatches = run->schedule.microbatches, next = cycle + 1;
    return (struct gpipe_cycle){next > microbatches ? next - microbatches : 0,
                                next < run->partitions ? next : run->partitions};
}
static inline int gpipe_cycles(const struct gpipe_run *run) { return run->partitions + run->schedule.microbatches - 1; }

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

/* Prints the order of the tasks of a run with queues, and what workers had to do (queues.c). */
void gpipe_print_queues(const struct gpipe_run *run);
/* The program of a run with queues (fit.c); ARG is the run. */
int gpipe_fit(struct sl_spmd *self, void *arg);

/* Layers of partition r of R, from r * layers / R on (run.c). NULL without memory. Free with sl_module_free. */
struct sl_module *gpipe_stage(const struct gpipe_network *network, const struct sl_mesh *mesh, int r, int ranks);

/* ---- modules (modules.c); as for those in layers/modules/modules.h ---- */

/* y = max(x, 0) */
struct sl_module *gpipe_relu(int cols);
/* A loss: the sum of x. OUTPUTS, in the device's memory, receives x of all microbatches, one after
 * another; NULL: nobody wants it. */
struct sl_module *gpipe_sum(int cols, float *outputs);
/* INNER, but it fails as FAILURE says; the coordinate is the caller's to compare. */
struct sl_module *gpipe_failing(struct sl_module *inner, const struct gpipe_failure *failure);

#endif
