/* transformer.h - what the subcommands of the driver share: options, what follows from them, a coordinate's part. */
#ifndef SL_DRIVERS_TRANSFORMER_TRANSFORMER_H
#define SL_DRIVERS_TRANSFORMER_TRANSFORMER_H

#include "drivers/search/search_options.h"
#include "drivers/text/chats.h"
#include "drivers/text/choices.h"
#include "drivers/text/encoding.h"
#include "drivers/text/lines.h"
#include "drivers/training/peak_measure.h"
#include "drivers/training/training.h"
#include "layers/models/generate.h"
#include "layers/models/peft/peft.h"
#include "layers/models/publish.h"
#include "layers/models/transformer.h"
#include "layers/storage/prompts.h"

enum transformer_command { TRANSFORMER_TRAIN, TRANSFORMER_EVALUATE, TRANSFORMER_GENERATE, TRANSFORMER_EXPORT };
static inline bool transformer_reads_data(enum transformer_command command) { return command < TRANSFORMER_GENERATE; }

/* How a GGUF file's quantized weights lie in memory. */
enum transformer_weights {
    TRANSFORMER_IN_FILE, /* as the file has them, */
    TRANSFORMER_STORED   /* or as --storage says */
};

struct transformer_config {
    struct sl_common_options common;
    struct sl_training_options training;
    struct sl_search_options search;
    /* model */
    int model_dimension, heads, blocks, layers_per_block, sequence, latent, rope, vocabulary;
    int attention, key_heads, head_width, window, mlp, mlp_dimension, norm,
        biases;     /* enums of layers/models/transformer.h */
    int rope_pairs; /* 0: halves; 1: adjacent columns */
    bool head_norms;
    double rope_base, rope_amplitude, norm_epsilon;
    const char *rope_scaling, *rope_divisors;
    double dropout;
    int learned_positions; /* rows of their table */
    bool untied_head, vocabulary_parallel;
    int context;     /* the longest sequence that the model is for; 0: `sequence` */
    int spread_head; /* enum sl_spread_head */
    bool keep_logits;
    int tensor_pieces;
    int experts, choices, shared_experts, expert_dimension;
    double capacity, balance;
    /* data */
    const char *data, *eval_data, *text_key, *params, *model, *tokenizer;
    int weights; /* enum transformer_weights */
    bool special;
    bool document_mask; /* documents do not see each other; */
    int data_format;    /* 0: as the files tell; 1, 2: tokens of 16 or 32 bits without a header */
    int document_token; /* each begins with this one; -1: the one that ends a text */
    double validation;
    int stride;
    const char *chat;                /* conversations */
    int chat_template;               /* enum sl_chat_template */
    bool pack;                       /* conversations share sequences */
    bool interactive;                /* lines of stdin are said to the model */
    const char *system;              /* what the first message says then */
    int answer;                      /* the most tokens of an answer */
    const char *questions, *between; /* questions, and what stands between a prompt and a choice */
    bool bare_choices;               /* nothing does */
    int epochs;                      /* 0: as many steps as are given */
    int evaluate_every, evaluate_batches, sample_every;
    bool measure_peak;
    /* adapters */
    const char *adapters, *save_adapters; /* folders of PEFT's to begin with, and to write; NULL: none */
    bool save_frozen;                     /* checkpoints have all values, not those of adapters alone */
    int lora_rank;                        /* 0: none */
    double lora_alpha;                    /* 0: twice the rank */
    const char *lora_modules;
    /* generation */
    const char *prompt, *prompt_tokens, *prompts, *logits, *stop;
    bool ends; /* samples end where the model says so */
    int length, samples, groups, in_flight, top_k;
    int cache;   /* enum sl_cache_form */
    bool copies; /* of kernels, for passes of few rows */
    int threads; /* of each coordinate; 0: as many as it has cores */
    double temperature, top_p;
    /* export */
    int format, type;
    const char *to;
    double file_megabytes; /* of a folder's files */
};

/* A subcommand's own tables, over the config. */
extern const struct sl_option transformer_model_table[], transformer_own_table[], transformer_loss_table[],
    transformer_parameter_table[], transformer_schedule_table[], transformer_data_table[], transformer_sample_table[],
    transformer_speed_table[], transformer_generation_table[], transformer_choice_table[], transformer_chat_table[],
    transformer_ending_table[], transformer_interactive_table[], transformer_export_table[],
    transformer_adapter_table[], transformer_given_adapter_table[];

struct transformer_config transformer_defaults(enum transformer_command command);

/* Of an evaluation. */
struct transformer_score {
    double loss;   /* mean over the tokens, in nats */
    double tokens; /* that were scored */
};

/* An evaluation as a stream through the pipeline: times in ms. */
struct transformer_times {
    double all;         /* from the first forward to the end of the last one */
    double ramp_up;     /* until all coordinates have had work */
    double ramp_down;   /* from when the first one has no more */
    double utilization; /* share of the coordinates' time in which they compute */
};
struct transformer_stream {
    double passes;  /* through the schedule */
    double *record; /* [coordinates, numbers of a record] */
    struct transformer_times measured, simulated;
};

/* What --interactive needs of one process, whose coordinate 0 talks. */
struct transformer_talk {
    bool written;                 /* by a template: */
    struct sl_chat_writer writer; /* this one; */
    struct sl_encoder *encoder;   /* otherwise, as text. NULL: tokens are bytes */
    struct sl_token_list tokens;  /* of a line of text */
    struct sl_lines *lines;       /* stdin's; NULL where nobody talks */
};

/* All that is decided before a mesh is started. */
struct transformer_job {
    enum transformer_command command;
    const struct transformer_config *config;
    bool one_machine; /* given: all coordinates are in this machine's memory */
    struct sl_job job;
    struct sl_training training;
    struct sl_transformer model;
    bool speaks;                  /* this process does, for the others */
    struct sl_tokens tokens;      /* the data, where there is any */
    struct sl_tokens eval_tokens; /* what is scored whole in place of a part of the data; no files: nothing is */
    int32_t document;             /* the token that begins a document, which sees no other; -1: there is none */
    struct sl_chats chats;        /* conversations in place of all data; none: there are no such */
    int64_t chat_training;        /* the first of them, which are for training; */
    int64_t chat_conversations;   /* so many conversations share these, */
    int64_t chat_others;          /* and so many the others */
    struct sl_choices choices;    /* questions that are scored in place of all data; none: there are no such */
    struct sl_store params;       /* given values */
    struct sl_prompts prompts;
    bool base;      /* a checkpoint has adapters alone: --model or --params, as its run had it, has all else */
    bool publishes; /* the model is a published one, */
    bool in_file;   /* and its quantized weights stay in its file */
    struct sl_published published;
    struct sl_block_source blocks;
    struct sl_tokenizer *tokenizer; /* NULL: tokens are bytes, or nobody knows their text */
    struct sl_token_list ends;      /* tokens that end a text; none: samples have all of their length */
    struct sl_token_list textless;  /* tokens that the tokenizer lacks: they have no text, and are never drawn */
    struct transformer_talk talk;
    char rope_scaling[128], *rope_divisors; /* the published model's, as options */
    float *divisors;                        /* of the model's rotary */
    char *adapters;                         /* patterns of their parameters; NULL: there are none */
    struct sl_peft peft;                    /* those that are given; rank 0: none are */
    struct sl_store exported;               /* values to be written for others */
    int length;                             /* tokens of a prompt with what is generated */
    /* Written by coordinate 0. */
    struct sl_peak peak; /* what products reach with the run's cores */
    double frozen;       /* weights of products whose gradients nobody computes, beside those that adapters freeze */
    struct transformer_score score;
    double scored_bytes;              /* that the scored tokens stand for; NaN: nobody knows */
    struct transformer_stream stream; /* of evaluate */
    double *choice_scores;            /* [samples of choices]: sums of log-probabilities */
    bool evaluated;                   /* evaluate is done, and this process prints */
};

/* With --model: opens it, and takes over its sizes. Before all else. Who EXPORTS may have values of its own. */
int transformer_take_model(struct transformer_job *job, struct transformer_config *config,
                           const struct sl_options *options, bool exports, struct sl_error *error);
/* weights.c: after that and the adapters, whether its quantized weights stay in the file. SL_BAD_INPUT where --weights
 * asks for what cannot be. */
int transformer_choose_weights(struct transformer_job *job, enum transformer_command command,
                               struct transformer_config *config, const struct sl_options *options,
                               struct sl_error *error);
/* Bytes of weights that stay there, and of all others as floats. */
double transformer_file_bytes(const struct transformer_job *job);
/* What its file says of rotations becomes CONFIG's options; and these, of any model, the job's rotary. */
int transformer_write_rotary(struct transformer_job *job, struct transformer_config *config,
                             const struct sl_transformer *transformer, struct sl_error *error);
int transformer_read_rotary(struct transformer_job *job, struct sl_error *error);
/* adapters.c: the model's adapters, by the options; and the given values with those that they have beside them. */
int transformer_prepare_adapters(struct transformer_job *job, struct sl_error *error);
/* Of a checkpoint of adapters alone, by --no-save-frozen: before transformer_take_model, gives --model or --params as
 * its run had it. Once their values are open, transformer_check_base refuses other ones; and a run that saves so
 * describes them. */
int transformer_take_base(struct transformer_job *job, enum transformer_command command,
                          struct transformer_config *config, const struct sl_options *options, struct sl_error *error);
int transformer_check_base(struct transformer_job *job, struct sl_error *error);
int transformer_describe_base(struct transformer_job *job, struct sl_error *error);
/* With --adapters: reads them, and takes over their sizes. After transformer_take_model. */
int transformer_take_adapters(struct transformer_job *job, struct transformer_config *config, struct sl_error *error);
int transformer_load_adapters(struct sl_worker *worker); /* for struct sl_job_type */
/* Writes those of a training, after its last step, as --save-adapters says. Collective over the mesh. */
int transformer_save_adapters(struct sl_worker *worker);
int transformer_merge_adapters(struct transformer_job *job, struct sl_error *error);
/* For struct sl_job_type. */
bool transformer_gives_values(const struct sl_worker *worker);
int transformer_load_model(struct sl_worker *worker);
/* STORE's tensors, which have the parameters' names and shapes, become those of the published model. */
int transformer_publish(const struct transformer_job *job, struct sl_store *store, struct sl_error *error);
/* Opens the tokenizer, if there is one and it is not open. One that cannot be opened is an error where it is NEEDED. */
int transformer_open_tokenizer(struct transformer_job *job, bool needed, struct sl_error *error);
/* The job's prompts, whose tokens are bytes, become the model's tokens. */
int transformer_encode_prompts(struct transformer_job *job, struct sl_error *error);
/* The bytes of LENGTH tokens, *COUNT of them, to be freed; NULL without memory. */
char *transformer_text_of(const struct transformer_job *job, const int32_t *tokens, int length, size_t *count);
/* Whether samples are shown as text. */
bool transformer_shows_text(const struct transformer_job *job);
void transformer_close_model(struct transformer_job *job);
/* tokens.c: finds the tokens that end a text and those that have none, once the tokenizer is open; whether TOKEN is one
 * of the first, and whether it is none of the others. */
int transformer_know_tokens(struct transformer_job *job, struct sl_error *error);
bool transformer_ends_text(const struct transformer_job *job, int32_t token);
bool transformer_has_text(const struct transformer_job *job, int32_t token);
void transformer_forget_tokens(struct transformer_job *job);
int transformer_prepare(struct transformer_job *job, enum transformer_command command,
                        const struct transformer_config *config, const struct sl_mesh *mesh,
                        const struct sl_engine *engine, struct sl_error *error);
/* The licenses that Debian installs, where the user names no data. */
extern const char transformer_default_data[];
/* Whether the given values come with the tokens to train on. */
bool transformer_takes_given_tokens(const struct transformer_job *job);
/* Opens the data that the command reads, and says what is in a directory. Sets the vocabulary, if it is still 0. */
int transformer_open_data(struct transformer_job *job, struct sl_error *error);
/* Whether sequences have several documents, which do not see each other. */
bool transformer_has_documents(const struct transformer_job *job);
/* Sets scored_bytes. */
int transformer_count_bytes(struct transformer_job *job, struct sl_error *error);
/* Prints what evaluations score: "data text: the last 70 of 700 tokens, 8 batches of 8 sequences". */
void transformer_print_scored(const struct transformer_job *job, FILE *stream);
/* Prints where the parameters are from: "parameters run/step-00000100.safetensors (step 100)". */
void transformer_print_source(const struct transformer_job *job, FILE *stream);
/* A line on stderr where the parameters that are used are random. */
void transformer_warn_of_source(const struct transformer_job *job);
/* Reads what is to be continued, and checks the numbers of samples and how they are chosen. */
int transformer_read_prompts(struct transformer_job *job, struct sl_error *error);
/* SL_BAD_INPUT where a replica has fewer samples than groups. */
int transformer_check_samples(const struct transformer_job *job, struct sl_error *error);
/* Samples of all prompts; of a replica; of it, those that are under way at the same time, and in how many groups. */
int transformer_samples(const struct transformer_job *job);
int transformer_own_samples(const struct transformer_job *job);
int transformer_in_flight(const struct transformer_job *job);
int transformer_groups(const struct transformer_job *job);
int transformer_longest_prompt(const struct transformer_job *job);
/* Sample NUMBER's prompt; the last one's for those that only make replicas alike. */
int transformer_prompt_of(const struct transformer_job *job, int number);
/* Prints all samples, TOKENS [samples, length], of which each has LENGTHS [samples]; in a training, those after step
 * STEP, else NO_STEP. */
enum { NO_STEP = -1 };
int transformer_print_samples(struct transformer_job *job, int64_t step, const int32_t *tokens, const int *lengths,
                              struct sl_error *error);

/* ending.c: where samples end before their length, and text that is printed as it comes. ARG is a struct
 * transformer_ending; the functions are those of struct sl_generation. */
struct transformer_printer;
struct transformer_ending {
    const struct transformer_job *job;
    bool ends;        /* with tokens that end a text */
    int32_t turn;     /* the one that ends an answer; -1: none does */
    const char *stop; /* or NULL */
    size_t stop_bytes;
    struct transformer_printer *printer; /* NULL: here nothing is printed as it comes */
};
void transformer_open_ending(struct transformer_ending *ending, const struct transformer_job *job);
/* Whether anything ends samples. */
bool transformer_has_ending(const struct transformer_ending *ending);
bool transformer_ends(void *arg, const int32_t *tokens, int prompt, int count);
/* What is shown of the LENGTH tokens of a sample: its bytes without what ended it, to be freed; NULL without memory. */
char *transformer_shown_text(const struct transformer_ending *ending, const int32_t *tokens, int prompt, int length,
                             size_t *count);
/* The text of the only sample begins with the COUNT tokens of its PROMPT. */
int transformer_open_printer(struct transformer_ending *ending, const int32_t *prompt, int count,
                             struct sl_error *error);
/* Begins again, with nothing. */
void transformer_begin_print(struct transformer_ending *ending);
void transformer_print_token(void *arg, int sequence, const int32_t *tokens, int position);
/* What was held back, and a newline. SL_FAILED where stdout did not take all. */
int transformer_end_print(struct transformer_ending *ending, struct sl_error *error);
void transformer_close_printer(struct transformer_ending *ending);
/* Adds what the job has read to the signature of the run. */
int transformer_sign(const struct transformer_job *job, struct sl_error *error);
void transformer_finish(struct transformer_job *job);
/* SL_BAD_INPUT where one machine's memory cannot hold the model. */
int transformer_check_memory(const struct transformer_job *job, const struct sl_engine *engine, struct sl_error *error);
/* The schedule and batches of a job whose model is known. */
int transformer_fit(struct transformer_job *job, struct sl_error *error);
/* For struct sl_job_type: what a coordinate takes beside its trainer; the same model and data with other options. */
int transformer_plan_bytes(struct sl_worker *worker, struct sl_budget *budget);
struct sl_job *transformer_copy_job(const struct sl_job *job, const struct sl_variant *variant,
                                    const struct sl_engine *engine, struct sl_error *error);
void transformer_free_copy(struct sl_job *copy);
void transformer_heads(const struct sl_job *job, int ranks, const char *way[SL_JOB_HEADS]);
extern sl_attempt *const transformer_gentle_attempts[], *const transformer_harsh_attempts[],
                                                            *const transformer_smaller_attempts[];

/* What a coordinate has of its own (sl_worker.own) while a program runs. */
struct transformer_sampler;
struct transformer_worker {
    int32_t *inputs, *labels;            /* [local * sequence] */
    int32_t *places;                     /* the same; NULL: a sequence is one document */
    struct transformer_sampler *sampler; /* NULL: nothing is generated */
    struct sl_crew *crew;                /* for evaluations; NULL: none */
};

/* The whole that a worker has its part of. */
static inline struct transformer_job *transformer_job_of(const struct sl_worker *worker) { return worker->job->own; }

extern const struct sl_job_type transformer_job_type;
/* Plans it and opens it: parameters are given, or made from the seed. *OPENED becomes false where it does not fit, or
 * --dry-run asks for the plan alone. */
int transformer_open_worker(struct sl_worker *worker, struct sl_spmd *self, struct transformer_job *job, bool *opened);
struct transformer_watch;
/* Scores --eval-data, each token once; without it, so many batches as --evaluate-batches says of the part of the data
 * that is kept for evaluation. */
int transformer_evaluate(struct sl_worker *worker, struct transformer_watch *watch, struct transformer_score *score);
/* Sequences that this scores. */
int64_t transformer_scored(const struct transformer_job *job);

/* chats.c: reads the conversations of --chat, and sets CONFIG's vocabulary by them. Before transformer_prepare. */
int transformer_read_chats(struct transformer_job *job, struct transformer_config *config,
                           enum transformer_command command, bool speaks, struct sl_error *error);
/* How many of them an evaluation scores. */
int64_t transformer_chats_scored(const struct transformer_job *job);
/* Of a batch whose first sample is FIRST, and this replica's MINE. */
void transformer_fetch_chats(struct sl_worker *worker, bool evaluation, int64_t first, int64_t mine,
                             struct sl_batch *batch);
void transformer_print_chats(const struct transformer_job *job, FILE *stream);

/* choices.c: reads the questions of --choices, if there are any, and sets CONFIG's vocabulary, batch and sequence by
 * them. Before transformer_prepare. */
int transformer_read_choices(struct transformer_job *job, struct transformer_config *config, const struct sl_mesh *mesh,
                             struct sl_error *error);
/* Adds to BUDGET what scoring them takes. */
void transformer_plan_choices(const struct transformer_job *job, struct sl_budget *budget);
/* Scores all choices. Collective over the mesh. */
int transformer_score_choices(struct sl_worker *worker, struct transformer_watch *watch);
/* Prints how many answers were right. */
int transformer_report_choices(const struct transformer_job *job, struct sl_error *error);
/* How fast an evaluation went, for people and for programs. */
void transformer_print_stream(const struct transformer_job *job);
json_t *transformer_json_times(const struct transformer_times *times);

/* What a coordinate notes of an evaluation (stream.c). */
/* Memory of the job's stream, before the run; and what is to be said of it, after. */
int transformer_open_stream(struct transformer_job *job, struct sl_error *error);
int transformer_judge_stream(struct transformer_job *job, struct sl_error *error);
void transformer_close_stream(struct transformer_job *job);
/* Every coordinate's own; all begin together. */
int transformer_open_watch(struct transformer_watch **watch, struct sl_worker *worker);
struct sl_trace *transformer_trace_of(struct transformer_watch *watch); /* NULL of NULL */
/* A pass has been made: takes what the trace has of it. */
void transformer_watch_pass(struct transformer_watch *watch);
/* Collective over the mesh: coordinate 0 has all records. */
int transformer_gather_watches(const struct transformer_watch *watch);
void transformer_close_watch(struct transformer_watch *watch);
/* Samples FIRST + [0, batch) of the training or evaluation data: this replica's part, until the next call. */
int transformer_fetch(struct sl_worker *worker, bool evaluation, int64_t first, struct sl_batch *batch);

extern const struct sl_training_type transformer_training;

/* Runs an evaluation and prints its score. */
int transformer_run_evaluation(struct transformer_job *job, const struct sl_engine *engine, struct sl_error *error);
/* Generates, and prints what was generated. */
int transformer_run_generation(struct transformer_job *job, const struct sl_engine *engine, struct sl_error *error);

/* interactive.c: gets the template of --interactive; nothing where it is not given. */
int transformer_prepare_talk(struct transformer_job *job, struct sl_error *error);
void transformer_close_talk(struct transformer_job *job);
/* Tokens that a conversation has where nobody says how many. */
int transformer_context(const struct transformer_config *config);
/* Before the run: the process that speaks reads stdin. */
int transformer_open_lines(struct transformer_job *job, struct sl_error *error);
/* Adds to ENDING what ends an answer. */
void transformer_talk_ending(const struct transformer_job *job, struct transformer_ending *ending);
/* For struct sl_generation: whether somebody stops the answer. */
bool transformer_stops_talk(void *arg);
/* Talks, until there are no more lines. Collective over the mesh. */
int transformer_talk(struct sl_worker *worker);

/* Writes the model for other programs. */
int transformer_run_export(struct transformer_job *job, const struct sl_engine *engine, struct sl_error *error);
/* Prints what was planned for an evaluation or a generation. */
int transformer_print_plan(struct transformer_job *job, const struct sl_engine *engine, struct sl_error *error);

/* Shows, after step STEP of a training, what continues the job's prompt, or the first token of the data where there is
 * none. */
int transformer_open_sampler(struct transformer_sampler **sampler, struct sl_worker *worker);
/* A generator of the job's samples over the parameters of the worker's trainer; or, with sizes_only, one that tells of
 * bytes. */
int transformer_open_generator(struct sl_generator **generator, struct sl_worker *worker,
                               struct transformer_ending *ending, bool sizes_only);
/* Adds to BUDGET what the sampler takes. Collective over the mesh. */
int transformer_plan_sampler(struct sl_worker *worker, struct sl_budget *budget);
int transformer_sample(struct transformer_sampler *sampler, int64_t step);
void transformer_close_sampler(struct transformer_sampler *sampler);

#endif
