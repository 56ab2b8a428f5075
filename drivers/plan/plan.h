/* plan.h - what the sections of the driver plan share: the job, what it costs, and rows that are a table or JSON.
 *
 * The model is a transformer: each layer has attention, and a perceptron from hidden to expansion x hidden and back.
 * Memory is counted in bytes, the time of pipelines in ms. */
#ifndef SL_DRIVERS_PLAN_PLAN_H
#define SL_DRIVERS_PLAN_PLAN_H

#include "drivers/common/metrics.h"
#include "drivers/common/output.h"
#include "spmd/schedule/schedule.h"

enum plan_precision {
    PLAN_ALL_F32,
    PLAN_ALL_BF16,
    PLAN_MIXED
}; /* MIXED: bf16 beside float values, gradients and states */
enum plan_optimizer { PLAN_SGD, PLAN_MOMENTUM, PLAN_ADAM };

struct plan_job {
    /* pipeline */
    const char *pipeline, *stage_times; /* NULL: the article's, and stages that all take the same time */
    int stages, loops, microbatches;    /* 0 loops: as many as the pipeline has by default */
    double forward, backward, exchange; /* of one microbatch in all of a rank's layers */
    /* model */
    int layers, hidden, expansion, heads, vocabulary, sequence, microbatch_size;
    double parameters; /* 0: as many as the model has */
    /* device */
    int precision, optimizer;
    bool recompute, offload;
    double code, capacity; /* GiB; a capacity of 0 is not known */
    double fast, slow;     /* GB/s within and between nodes */
    double teraflops;
    /* layout */
    int data, tensor, zero, node;
};

/* Gives a job of which parameters alone are known the layers, columns and heads of a model with so many, but those that
 * are given. Tensor coordinates share its heads evenly. */
void plan_shape(struct plan_job *job, bool layers, bool hidden, bool heads);

/* ---- rows (rows.c) ---- */

enum plan_field_kind { PLAN_FIELD_TEXT, PLAN_FIELD_COUNT, PLAN_FIELD_REAL, PLAN_FIELD_SHARE, PLAN_FIELD_BYTES };

struct plan_field {
    const char *key; /* in JSON; NULL ends a list */
    const char *title;
    int width;
    enum plan_field_kind kind;
};

union plan_value {
    const char *text;
    double number; /* NaN: there is none */
};

enum { PLAN_MOST_FIELDS = 16 };

/* Where the rows of a section go. */
struct plan_rows {
    const struct sl_output *output;
    bool json;
    const char *section;
    const struct plan_field *field;
    struct sl_column column[PLAN_MOST_FIELDS];
    struct sl_table table;
};

/* Begins a table under TITLE. */
void plan_rows_begin(struct plan_rows *rows, const char *section, const char *title, const struct plan_field *field);
int plan_rows_add(struct plan_rows *rows, const union plan_value *value, struct sl_error *error);
/* A remark for people; in JSON it is left out. */
void plan_rows_note(const struct plan_rows *rows, const char *format, ...) SL_PRINTF(2, 3);

/* ---- pipelines (pipeline.c) ---- */

/* Counted in iterations of the table's clock, in which a rank does at most one cell, and in time: an iteration takes as
 * long as its longest cell, and all ranks exchange states together, as late as they can. */
struct plan_pipeline {
    struct sl_schedule schedule;
    bool trains;
    double *weight; /* [ranks] relative time of the rank's stages */
    int iterations;
    double *begin, *end;          /* [iterations] time */
    double time, busy, bubble;    /* busy: the ranks' work added up; bubble: their idle share */
    int ramp_up, main, ramp_down; /* iterations: main is the longest stretch in which all ranks work */
    int kept;                     /* most microbatches whose activations one rank keeps; and by their places */
    int kept_at[3];               /* [PLAN_PLACES] */
    int messages, exchanges;
};

/* Builds the pipeline called NAME: sequential, grouped, interleaved, inference, or a schedule's name. Tables with a
 * backward are proven. Free with plan_pipeline_free, after a failure too. */
int plan_pipeline_make(struct plan_pipeline *pipeline, const struct plan_job *job, const char *name,
                       struct sl_error *error);
void plan_pipeline_free(struct plan_pipeline *pipeline);

/* Makes the table alone; SL_BAD_INPUT where NAME, the job's loops and its stages do not suit each other. Free with
 * sl_schedule_free, after a failure too. */
int plan_pipeline_table(struct sl_schedule *schedule, const struct plan_job *job, const char *name,
                        struct sl_error *error);

/* The article's four; NULL after the last. */
const char *plan_pipeline_name(int i);
/* Whether the pipeline called NAME has backwards. */
bool plan_pipeline_trains(const char *name);

/* The time that an action takes on RANK. */
double plan_pipeline_cost(const struct plan_pipeline *pipeline, const struct plan_job *job, int rank,
                          enum sl_action_kind kind);

/* ---- memory and traffic (memory.c, communication.c) ---- */

/* Ranks of a pipeline that differ: the first has the token table and positions, the last the head. One rank alone is
 * the first and the last. */
enum plan_place { PLAN_FIRST, PLAN_MIDDLE, PLAN_LAST, PLAN_PLACES };

/* How a job lies on its devices. */
struct plan_layout {
    int precision;
    bool trains, recompute, offload;
    int data, stages, tensor, zero;
    double samples;           /* of a microbatch */
    double kept[PLAN_PLACES]; /* microbatches whose activations are kept, there, and on the fullest between them */
    bool spread_head;         /* the stages share the token table and the logits, in two loops of their own */
    double kept_heads;        /* microbatches whose state a share of such a head keeps */
};

/* The place of a rank among so many STAGES. */
enum plan_place plan_place_of(int rank, int stages);

/* What the rank at a place has, on each of its devices; kernels are what FSDP shards. */
struct plan_share {
    int layers;
    bool first, last; /* it begins the pipeline, it ends it */
    double kernels, rest;
    double table; /* of the rest, the token table */
    double kept;  /* microbatches */
};

struct plan_share plan_share_of(const struct plan_job *job, const struct plan_layout *layout, enum plan_place place);

/* Bytes on the device that holds most. */
struct plan_memory {
    double parameters, gradients, optimizer, activations, code;
};

/* The job's own, for one microbatch at a time. */
struct plan_layout plan_layout_of(const struct plan_job *job);

/* Parameters of the whole model. */
double plan_count_parameters(const struct plan_job *job);
/* The token table's parameters, as a share of those of a stage's layers; 0: the model's layers are not known. */
double plan_head_share(const struct plan_job *job, int stages);
/* Bytes of an element of what the passes compute, and of a gradient. */
double plan_element_bytes(int precision);
double plan_gradient_bytes(int precision);
/* Parameters that replicas have as bf16, each with float values of its own part alone. */
double plan_count_halves(const struct plan_layout *layout, const struct plan_share *share);
/* Parameters whose gradients are summed over data, and freed, for each microbatch. */
double plan_count_freed(const struct plan_job *job, const struct plan_layout *layout, const struct plan_share *share);
struct plan_memory plan_memory_of(const struct plan_job *job, const struct plan_layout *layout);
double plan_memory_total(const struct plan_memory *memory);

enum plan_along { PLAN_ALONG_DATA, PLAN_ALONG_STAGES, PLAN_ALONG_TENSOR, PLAN_ALONGS };

/* What the device that sends most sends along an axis for one update. */
struct plan_traffic {
    const char *operation;
    double times, bytes; /* so many operations of so many bytes, in the mean */
};

struct plan_traffic plan_traffic_of(const struct plan_job *job, const struct plan_layout *layout, enum plan_along along,
                                    int microbatches);

/* Whether a group along AXIS has members on several nodes, when axes lie in ORDER, the last one fastest. */
bool plan_crosses_nodes(const struct plan_job *job, const struct plan_layout *layout, const enum plan_along *order,
                        enum plan_along axis);

/* ---- layouts (simulate.c, command.c) ---- */

/* A way to train the job, and what the simulator says of it: ranks do not wait for each other's iterations, the last
 * stage also computes the head, or each stage its share of it. */
struct plan_simulation {
    double bubble;                        /* the ranks' idle share */
    double kept[PLAN_PLACES], kept_heads; /* as in a layout */
};

/* Simulates the pipeline called NAME, which trains. LAYOUT says how many stages there are and whether they share the
 * head: then two of the job's loops are the head's. */
int plan_simulate(struct plan_simulation *simulation, const struct plan_job *job, const struct plan_layout *layout,
                  const char *name, struct sl_error *error);

/* The driver's schedule that does what the pipeline called NAME does, with LOOPS; NULL: there is none. */
const char *plan_schedule_name(const char *name, int loops);

/* Writes the command that trains the job in that layout; LOOPS are those that have layers. False where the driver
 * transformer cannot train it. */
bool plan_command(char *text, size_t size, const struct plan_job *job, const struct plan_layout *layout,
                  const char *name, int loops, int microbatches);

/* ---- sections ---- */

typedef int plan_section(struct plan_rows *rows, const struct plan_job *job, struct sl_error *error);

plan_section plan_print_memory, plan_print_data, plan_print_pipelines, plan_print_tensor, plan_print_communication,
    plan_print_replicas, plan_print_search;

/* ---- commands that have options of their own; each is given its words from its name on, or all of them ---- */

/* `plan memory --driver NAME ...` and `plan search --driver NAME ...`: this process becomes the driver. */
int plan_by_driver(int argc, char **argv);
/* `plan measure ...`. */
int plan_measure(int argc, char **argv);

/* Draws the job's one pipeline, or all of the article's in one drawing; as SVG, or as a page for browsers. */
int plan_draw(const struct sl_output *output, const struct plan_job *job, bool page, struct sl_error *error);
/* Writes the one pipeline's table (spmd/schedule/csv.h). */
int plan_write_csv(const struct sl_output *output, const struct plan_job *job, struct sl_error *error);

#endif
