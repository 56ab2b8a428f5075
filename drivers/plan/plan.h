/* plan.h - what the sections of the driver plan share: the job, what it costs, and rows that are a table or JSON.
 *
 * The model is a transformer: each layer has attention, and a perceptron from hidden to expansion x hidden and back.
 * Memory is counted in bytes, the time of pipelines in ms. */
#ifndef SL_DRIVERS_PLAN_PLAN_H
#define SL_DRIVERS_PLAN_PLAN_H

#include "drivers/common/metrics.h"
#include "drivers/common/output.h"
#include "spmd/schedule/schedule.h"

enum sl_precision { SL_ALL_F32, SL_ALL_BF16, SL_MIXED }; /* MIXED: bf16, with an f32 copy and f32 states beside */
enum sl_optimizer { SL_SGD, SL_MOMENTUM, SL_ADAM };

struct sl_job {
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

/* ---- rows (rows.c) ---- */

enum sl_field_kind { SL_FIELD_TEXT, SL_FIELD_COUNT, SL_FIELD_REAL, SL_FIELD_SHARE, SL_FIELD_BYTES };

struct sl_field {
    const char *key; /* in JSON; NULL ends a list */
    const char *title;
    int width;
    enum sl_field_kind kind;
};

union sl_value {
    const char *text;
    double number; /* NaN: there is none */
};

enum { SL_MOST_FIELDS = 16 };

/* Where the rows of a section go. */
struct sl_rows {
    const struct sl_output *output;
    bool json;
    const char *section;
    const struct sl_field *field;
    struct sl_column column[SL_MOST_FIELDS];
    struct sl_table table;
};

/* Begins a table under TITLE. */
void sl_rows_begin(struct sl_rows *rows, const char *section, const char *title, const struct sl_field *field);
int sl_rows_add(struct sl_rows *rows, const union sl_value *value, struct sl_error *error);
/* A remark for people; in JSON it is left out. */
void sl_rows_note(const struct sl_rows *rows, const char *format, ...) SL_PRINTF(2, 3);

/* ---- pipelines (pipeline.c) ---- */

/* Counted in iterations of the table's clock, in which a rank does at most one cell, and in time: an iteration takes as
 * long as its longest cell, and all ranks exchange states together, as late as they can. */
struct sl_pipeline {
    struct sl_schedule schedule;
    bool trains;
    double *weight; /* [ranks] relative time of the rank's stages */
    int iterations;
    double *begin, *end;          /* [iterations] time */
    double time, busy, bubble;    /* busy: the ranks' work added up; bubble: their idle share */
    int ramp_up, main, ramp_down; /* iterations: main is the longest stretch in which all ranks work */
    int kept;                     /* most microbatches whose activations one rank keeps */
    int messages, exchanges;
};

/* Builds the pipeline called NAME: sequential, grouped, interleaved, inference, or a schedule's name. Tables with a
 * backward are proven. Free with sl_pipeline_free, after a failure too. */
int sl_pipeline_make(struct sl_pipeline *pipeline, const struct sl_job *job, const char *name, struct sl_error *error);
void sl_pipeline_free(struct sl_pipeline *pipeline);

/* The article's four; NULL after the last. */
const char *sl_pipeline_name(int i);
/* Whether the pipeline called NAME has backwards. */
bool sl_pipeline_trains(const char *name);

/* The time that an action takes on RANK. */
double sl_pipeline_cost(const struct sl_pipeline *pipeline, const struct sl_job *job, int rank,
                        enum sl_action_kind kind);

/* ---- memory and traffic (memory.c, communication.c) ---- */

/* How a job lies on its devices. */
struct sl_layout {
    int precision;
    bool trains, recompute, offload;
    int data, stages, tensor, zero;
    double samples; /* of a microbatch */
    double kept;    /* microbatches whose activations are kept */
};

/* Bytes on the device that holds most. */
struct sl_memory {
    double parameters, gradients, optimizer, activations, code;
};

/* The job's own, for one microbatch at a time. */
struct sl_layout sl_layout_of(const struct sl_job *job);

/* Parameters on the device of the largest stage. */
double sl_count_parameters(const struct sl_job *job, int stages, int tensor);
/* Bytes of an element of what the passes compute. */
double sl_element_bytes(int precision);
struct sl_memory sl_memory_of(const struct sl_job *job, const struct sl_layout *layout);
double sl_memory_total(const struct sl_memory *memory);

enum sl_along { SL_ALONG_DATA, SL_ALONG_STAGES, SL_ALONG_TENSOR, SL_ALONGS };

/* What a device sends along an axis for one update. */
struct sl_traffic {
    const char *operation;
    double times, bytes; /* so many operations of so many bytes */
};

struct sl_traffic sl_traffic_of(const struct sl_job *job, const struct sl_layout *layout, enum sl_along along,
                                int microbatches);

/* Whether a group along AXIS has members on several nodes, when axes lie in ORDER, the last one fastest. */
bool sl_crosses_nodes(const struct sl_job *job, const struct sl_layout *layout, const enum sl_along *order,
                      enum sl_along axis);

/* ---- sections ---- */

typedef int sl_plan_section(struct sl_rows *rows, const struct sl_job *job, struct sl_error *error);

sl_plan_section sl_plan_memory, sl_plan_data, sl_plan_pipelines, sl_plan_tensor, sl_plan_communication,
    sl_plan_replicas, sl_plan_search;

/* Draws the job's one pipeline. */
int sl_plan_draw_svg(const struct sl_output *output, const struct sl_job *job, struct sl_error *error);

#endif
