/* plan.h - shared by the sections of the driver plan: the job, its costs, and rows printed as a table or JSON.
 *
 * The model is a transformer: each layer has attention, and a perceptron from hidden to expansion x hidden and back.
 * Memory is in bytes, the time of pipelines in ms. */
#ifndef SL_DRIVERS_TOOLS_PLAN_PLAN_H
#define SL_DRIVERS_TOOLS_PLAN_PLAN_H

#include "drivers/common/metrics.h"
#include "drivers/common/output.h"
#include "spmd/base/budget.h"
#include "spmd/schedule/schedule.h"

enum plan_precision {
    PLAN_ALL_F32,
    PLAN_ALL_BF16,
    PLAN_MIXED
}; /* MIXED: bf16 copies of float values; gradients and states are float */
enum plan_optimizer { PLAN_SGD, PLAN_MOMENTUM, PLAN_ADAM };

struct plan_job {
    /* pipeline */
    const char *pipeline, *stage_times; /* NULL: the article's pipelines; stages with equal times */
    int stages, loops, microbatches;    /* 0 loops: the pipeline's default */
    double forward, backward, exchange; /* ms of one microbatch in all of a rank's layers */
    /* model */
    int layers, hidden, expansion, heads, vocabulary, sequence, microbatch_size;
    double parameters; /* 0: the model's own number */
    /* device */
    int precision, optimizer;
    bool recompute, offload;
    double code, capacity; /* GiB; capacity 0: unknown */
    double fast, slow;     /* GB/s within and between nodes */
    double teraflops;
    /* layout */
    int data, tensor, context, zero, node;
};

/* Sets the layers, hidden size and heads of a job with a known number of parameters, except given ones (true
 * arguments). Tensor coordinates share its heads evenly. */
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
    double number; /* NaN: no value */
};

enum { PLAN_MOST_FIELDS = 16 };

/* Output of a section's rows. */
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
/* Prints a remark for people; prints nothing in JSON. */
void plan_rows_note(const struct plan_rows *rows, const char *format, ...) SL_PRINTF(2, 3);

/* ---- pipelines (pipeline.c) ---- */

/* A pipeline's costs, in iterations of the table's clock, with at most one cell per rank, and in time: an iteration
 * takes as long as its longest cell, and all ranks exchange states together, as late as possible. */
struct plan_pipeline {
    struct sl_schedule schedule;
    bool trains;
    double *weight; /* [ranks] relative time of the rank's stages */
    int iterations;
    double *begin, *end;          /* [iterations] time */
    double time, busy, bubble;    /* busy: total of the ranks' work; bubble: their idle share */
    int ramp_up, main, ramp_down; /* iterations: main is the longest stretch with all ranks working */
    int kept;                     /* largest number of microbatches with saved activations on a rank */
    int messages, exchanges;
};

/* Builds the pipeline called NAME: sequential, grouped, interleaved, inference, or a schedule's name. Tables with
 * backwards are proven. Free with plan_pipeline_free, also after a failure. */
int plan_pipeline_make(struct plan_pipeline *pipeline, const struct plan_job *job, const char *name,
                       struct sl_error *error);
void plan_pipeline_free(struct plan_pipeline *pipeline);

/* Makes only the table; SL_BAD_INPUT if NAME, the job's loops and its stages do not fit together. Free with
 * sl_schedule_free, also after a failure. */
int plan_pipeline_table(struct sl_schedule *schedule, const struct plan_job *job, const char *name,
                        struct sl_error *error);

/* Returns the article's four pipelines by index; NULL after the last. */
const char *plan_pipeline_name(int i);
/* Whether the pipeline called NAME has backwards. */
bool plan_pipeline_trains(const char *name);

/* Returns the time of an action on RANK. */
double plan_pipeline_cost(const struct plan_pipeline *pipeline, const struct plan_job *job, int rank,
                          enum sl_action_kind kind);

/* ---- memory, time and traffic (predict.c, memory_section.c, counts.c, communication.c) ---- */

/* Kinds of ranks in a pipeline: the first has the token table and positions, the last the head. A single rank is
 * both. */
enum plan_place { PLAN_FIRST, PLAN_MIDDLE, PLAN_LAST, PLAN_PLACES };

/* Layout of a job on its devices. */
struct plan_layout {
    int precision;
    bool trains, recompute, offload;
    int data, stages, tensor, context, zero;
    double samples; /* of a microbatch */
    int microbatches;
    const char *schedule; /* the trainer's */
    int loops;            /* with layers; 0: the schedule's fewest */
    bool spread_head;     /* the stages share the token table and the logits, in two extra loops */
};

/* Parameters of a rank, on each of its devices; FSDP shards the kernels. */
struct plan_share {
    int layers;
    bool first, last; /* it is the first, the last rank of the pipeline */
    double kernels, rest;
    double table; /* part of `rest`: the token table */
};

struct plan_share plan_share_of(const struct plan_job *job, const struct plan_layout *layout, enum plan_place place);

/* A layout's step, planned by the code that trains it. */
struct plan_prediction {
    struct sl_budget budget; /* of the fullest device */
    double bubble;           /* as in docs/glossary.md */
    double seconds, sent;    /* of the step; of it, in calls within layers and in sums over data */
};

/* SL_BAD_INPUT if the trainer would refuse the layout. Memory of a job with a known number of parameters is scaled to
 * it. */
int plan_predict(struct plan_prediction *prediction, const struct plan_job *job, const struct plan_layout *layout,
                 struct sl_error *error);

/* Bytes on the fullest device. */
struct plan_memory {
    double parameters, gradients, optimizer, activations, code;
};

/* Returns the job's own layout, by default with the interleaved pipeline. */
struct plan_layout plan_layout_of(const struct plan_job *job);

/* Returns the number of parameters of the whole model. */
double plan_count_parameters(const struct plan_job *job);
/* Return those of a layer, on each of TENSOR devices, and of the token table, positions and last norm. */
double plan_layer_parameters(const struct plan_job *job, int tensor);
double plan_embedding_parameters(const struct plan_job *job);
/* Return the bytes of an activation element, and of a gradient element. */
double plan_element_bytes(int precision);
double plan_gradient_bytes(int precision);
/* Returns the number of parameters that replicas have as bf16 copies, each with float values of only its own part. */
double plan_count_halves(const struct plan_layout *layout, const struct plan_share *share);
/* Returns the number of parameters with gradients summed over data and freed for each microbatch. */
double plan_count_freed(const struct plan_job *job, const struct plan_layout *layout, const struct plan_share *share);
int plan_memory_of(struct plan_memory *memory, const struct plan_job *job, const struct plan_layout *layout,
                   struct sl_error *error);
struct plan_memory plan_memory_in(const struct plan_prediction *prediction, const struct plan_job *job);
double plan_memory_total(const struct plan_memory *memory);

enum plan_along { PLAN_ALONG_DATA, PLAN_ALONG_STAGES, PLAN_ALONG_TENSOR, PLAN_ALONGS };

/* Largest traffic of a device along an axis for one update. */
struct plan_traffic {
    const char *operation;
    double times, bytes; /* number of operations, and their mean bytes */
};

struct plan_traffic plan_traffic_of(const struct plan_job *job, const struct plan_layout *layout, enum plan_along along,
                                    int microbatches);

/* Whether a group along AXIS spans several nodes if axes are in ORDER, the last one fastest. */
bool plan_crosses_nodes(const struct plan_job *job, const struct plan_layout *layout, const enum plan_along *order,
                        enum plan_along axis);

/* ---- layouts (command.c) ---- */

/* Returns the driver's schedule equivalent to the pipeline called NAME with LOOPS; NULL: none. */
const char *plan_schedule_name(const char *name, int loops);

/* Writes the layout's mesh: "data=2,pipe=4,tensor=8", or with the axis context if it divides sequences. */
void plan_mesh(char *text, size_t size, const struct plan_layout *layout);
/* Writes the command that trains the job in that layout. Returns false if the driver transformer cannot train it. */
bool plan_command(char *text, size_t size, const struct plan_job *job, const struct plan_layout *layout);

/* ---- sections ---- */

typedef int plan_section(struct plan_rows *rows, const struct plan_job *job, struct sl_error *error);

plan_section plan_print_memory, plan_print_data, plan_print_pipelines, plan_print_tensor, plan_print_communication,
    plan_print_replicas, plan_print_calls, plan_print_search;

/* ---- commands with options of their own; ARGV begins with the command's name, or has all words ---- */

/* `plan memory --driver NAME ...` and `plan search --driver NAME ...`: this process becomes that driver. */
int plan_by_driver(int argc, char **argv);
/* `plan measure ...`. */
int plan_measure(int argc, char **argv);

/* Draws the job's pipeline, or all of the article's in one drawing; as SVG, or as an HTML page. */
int plan_draw(const struct sl_output *output, const struct plan_job *job, bool page, struct sl_error *error);
/* Writes the table of the job's pipeline (spmd/schedule/csv.h). */
int plan_write_csv(const struct sl_output *output, const struct plan_job *job, struct sl_error *error);

#endif
