/* transformer.h - what the subcommands of the driver share: options, what follows from them, a coordinate's part. */
#ifndef SL_DRIVERS_TRANSFORMER_TRANSFORMER_H
#define SL_DRIVERS_TRANSFORMER_TRANSFORMER_H

#include "drivers/common/checkpoints.h"
#include "drivers/common/metrics.h"
#include "drivers/common/options.h"
#include "drivers/common/progress.h"
#include "drivers/common/profile_report.h"
#include "layers/models/generate.h"
#include "layers/storage/tokens.h"
#include "layers/training/trainer.h"
#include "layers/models/transformer.h"

enum transformer_command { TRANSFORMER_TRAIN, TRANSFORMER_EVALUATE, TRANSFORMER_GENERATE };

struct transformer_config {
    struct sl_common_options common;
    /* model */
    int model_dimension, heads, blocks, layers_per_block, sequence, latent, rope, vocabulary;
    double dropout;
    bool fsdp, vocabulary_parallel;
    int experts, choices, shared_experts, expert_dimension;
    double capacity, balance;
    int recompute; /* enum sl_recomputation */
    int precision;
    /* data and batch */
    const char *data;
    double validation;
    int batch, microbatches, accumulate;
    /* schedule and optimizer */
    const char *schedule;
    int loops, wgrad_group, zero;
    bool overlap;
    double learning_rate, least_rate, clip, decay;
    int warmup, lr_schedule;
    /* while it trains */
    bool check_replicas;
    int evaluate_every, evaluate_batches, sample_every;
    /* files */
    const char *params, *gradients, *metrics;
    struct sl_checkpoint_options checkpoints;
    bool show_shardings, dry_run, profile;
    /* generation */
    const char *prompt, *prompt_tokens;
    int length, samples, top_k;
    double temperature, top_p;
};

struct transformer_config transformer_defaults(enum transformer_command command);
/* The sections of a subcommand's options over CONFIG. */
void transformer_sections(enum transformer_command command, struct transformer_config *config,
                          struct sl_option_section *section);

/* All that is decided before a mesh is started. */
struct transformer_job {
    enum transformer_command command;
    const struct transformer_config *config;
    struct sl_mesh mesh;
    struct sl_transformer model;
    struct sl_schedule schedule; /* lowered and proven */
    const struct sl_gemm_backend *gemm;
    enum sl_dtype precision;
    int slots, wgrad_group, microbatches;
    int data, pipe, tensor;  /* sizes of the axes */
    int local, rows;         /* sequences of a replica a step; tokens of a microbatch */
    struct sl_tokens tokens; /* the data, where there is any */
    struct sl_store params;  /* given values */
    struct sl_checkpoints checkpoints;
    int32_t *prompt;
    int prompt_length, length; /* tokens; with what is generated */
    /* Written by coordinate 0. */
    struct sl_metrics_file metrics;
    struct sl_progress progress;
    struct sl_table table;
    struct sl_store gradients;
    double rate; /* floating-point operations a second that products reach on the whole mesh */
    double state_bytes[SL_MAX_COORDINATES], activation_bytes[SL_MAX_COORDINATES];
    struct sl_profile profile[SL_MAX_COORDINATES]; /* everyone's own */
    int64_t first, done;                           /* steps before this run, and in it */
    double *ms;                                    /* of each step */
    double final_loss, evaluation_loss;
    bool interrupted;
};

int transformer_prepare(struct transformer_job *job, enum transformer_command command,
                        const struct transformer_config *config, const struct sl_mesh *mesh, struct sl_error *error);
void transformer_finish(struct transformer_job *job);

/* One coordinate's part while a program runs. */
struct transformer_worker {
    struct transformer_job *job;
    struct sl_spmd *self;
    struct sl_model model;
    struct sl_trainer *trainer;
    int32_t *inputs, *labels; /* [local * sequence] */
    int64_t first, samples;   /* steps, and samples of the data, taken before the run goes on here */
};

/* Plans and opens it: parameters are given, or made from the seed. Close it also after a failure. */
int transformer_open_worker(struct transformer_worker *worker, struct sl_spmd *self, struct transformer_job *job);
void transformer_close_worker(struct transformer_worker *worker);
/* The mean loss over COUNT batches of evaluation data. */
int transformer_mean_loss(struct transformer_worker *worker, int count, double *loss);
/* Samples FIRST + [0, batch) of the training or evaluation data: this replica's part, until the next call. */
int transformer_fetch(struct transformer_worker *worker, bool evaluation, int64_t first, struct sl_batch *batch);

/* Programs, one a subcommand; ARG is the job. And what every coordinate's storage is (--show-shardings). */
int transformer_train_program(struct sl_spmd *self, void *arg);
int transformer_evaluate_program(struct sl_spmd *self, void *arg);
int transformer_generate_program(struct sl_spmd *self, void *arg);
int transformer_shardings_program(struct sl_spmd *self, void *arg);

/* Shows what continues the job's prompt, or the first token of the data where there is none, during a training. */
struct transformer_sampler;
int transformer_open_sampler(struct transformer_sampler **sampler, struct transformer_worker *worker);
int transformer_sample(struct transformer_sampler *sampler);
void transformer_close_sampler(struct transformer_sampler *sampler);

/* What coordinate 0 says. */
int transformer_report_step(struct transformer_job *job, const struct sl_metrics *metrics, double rate, double norm,
                            double ms, struct sl_error *error);
int transformer_report_evaluation(struct transformer_job *job, int64_t step, double loss, struct sl_error *error);
int transformer_report_end(struct transformer_job *job, struct sl_error *error);
int transformer_print(struct transformer_job *job, json_t *object, struct sl_error *error);

#endif
