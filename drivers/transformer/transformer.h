/* transformer.h - shared by the driver's subcommands: options, values derived from them, a coordinate's part. */
#ifndef SL_DRIVERS_TRANSFORMER_TRANSFORMER_H
#define SL_DRIVERS_TRANSFORMER_TRANSFORMER_H

#include "drivers/tools/search/search_options.h"
#include "drivers/tools/text/chats.h"
#include "drivers/tools/text/choices.h"
#include "drivers/tools/text/encoding.h"
#include "drivers/tools/text/lines.h"
#include "drivers/training/peak_measure.h"
#include "drivers/training/training.h"
#include "layers/models/generate.h"
#include "layers/models/peft/peft.h"
#include "layers/models/published/publish.h"
#include "layers/models/transformer.h"
#include "layers/formats/tokens/prompts.h"

enum transformer_command { TRANSFORMER_TRAIN, TRANSFORMER_EVALUATE, TRANSFORMER_GENERATE, TRANSFORMER_EXPORT };
static inline bool transformer_reads_data(enum transformer_command command) { return command < TRANSFORMER_GENERATE; }

/* Storage of a GGUF file's quantized weights in memory. */
enum transformer_weights {
    TRANSFORMER_IN_FILE,  /* quantized, as in the file */
    TRANSFORMER_INTEGERS, /* the same, with products of integers */
    TRANSFORMER_STORED    /* as --storage says */
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
    int learned_positions; /* rows of the table of positions */
    bool untied_head, vocabulary_parallel;
    int context;     /* longest sequence that the model is made for; 0: `sequence` */
    int context_by;  /* how sequences that are divided attend to each other: 0, by gathered keys */
    int spread_head; /* enum sl_spread_head */
    bool keep_logits;
    int tensor_pieces, tensor_layout;
    int experts, choices, shared_experts, expert_dimension;
    double capacity, balance;
    /* data */
    const char *data, *eval_data, *text_key, *params, *model, *tokenizer;
    int weights; /* enum transformer_weights */
    bool special;
    bool document_mask; /* documents in a sequence do not attend to each other */
    int data_format;    /* 0: by the files; 1, 2: tokens of 16 or 32 bits without a header */
    int document_token; /* first token of each document; -1: the end-of-text token */
    double validation;
    int stride;
    const char *chat;                /* file of conversations */
    int chat_template;               /* enum sl_chat_template */
    bool pack;                       /* several conversations per sequence */
    bool interactive;                /* lines of stdin are messages to the model */
    const char *system;              /* system message for it */
    int answer;                      /* limit of tokens per answer */
    const char *questions, *between; /* file of questions; text between a prompt and a choice */
    bool bare_choices;               /* no text between */
    int epochs;                      /* 0: the number of steps is given */
    int evaluate_every, evaluate_batches, sample_every;
    bool measure_peak;
    /* adapters */
    const char *adapters, *save_adapters; /* PEFT folders to read, and to write; NULL: none */
    bool save_frozen;                     /* checkpoints have all values, not only those of adapters */
    int lora_rank;                        /* 0: none */
    double lora_alpha;                    /* 0: twice the rank */
    const char *lora_modules;
    /* generation */
    const char *prompt, *prompt_tokens, *prompts, *logits, *stop;
    bool ends; /* samples end at end-of-text tokens */
    int length, samples, groups, in_flight, top_k;
    int cache;   /* enum sl_cache_form */
    bool copies; /* of kernels, for passes of few rows */
    int threads; /* per coordinate; 0: as many as its cores */
    double temperature, top_p;
    /* export */
    int format, type;
    const char *to;
    double file_megabytes; /* of each file in a folder */
};

/* Option tables of subcommands, over the config. */
extern const struct sl_option transformer_model_table[], transformer_own_table[], transformer_loss_table[],
    transformer_parameter_table[], transformer_schedule_table[], transformer_data_table[], transformer_sample_table[],
    transformer_speed_table[], transformer_generation_table[], transformer_choice_table[], transformer_chat_table[],
    transformer_ending_table[], transformer_interactive_table[], transformer_export_table[],
    transformer_adapter_table[], transformer_given_adapter_table[], transformer_context_table[];

struct transformer_config transformer_defaults(enum transformer_command command);

/* Result of an evaluation. */
struct transformer_score {
    double loss;   /* mean over the tokens, in nats */
    double tokens; /* number of scored tokens */
};

/* Times of an evaluation, run as a stream through the pipeline, in ms. */
struct transformer_times {
    double all;         /* from the first forward to the end of the last */
    double ramp_up;     /* until every coordinate has had work */
    double ramp_down;   /* from the time when the first coordinate has no more work */
    double utilization; /* share of the coordinates' time in forwards */
};
struct transformer_stream {
    double passes;  /* number of passes through the schedule */
    double *record; /* [coordinates, numbers of a record] */
    struct transformer_times measured, simulated;
};

/* State of --interactive in a process; coordinate 0 reads the user's lines. */
struct transformer_talk {
    bool written;                 /* messages are written by a template: */
    struct sl_chat_writer writer; /* this writer; */
    struct sl_encoder *encoder;   /* otherwise as plain text; NULL: tokens are bytes */
    struct sl_token_list tokens;  /* of a line of plain text */
    struct sl_lines *lines;       /* of stdin; NULL in other processes */
};

/* Everything decided before a mesh is started. */
struct transformer_job {
    enum transformer_command command;
    const struct transformer_config *config;
    bool one_machine; /* set by the caller: all coordinates use this machine's memory */
    struct sl_job job;
    struct sl_training training;
    struct sl_transformer model;
    bool speaks;                  /* this process prints for all */
    struct sl_tokens tokens;      /* training data, if any */
    struct sl_tokens eval_tokens; /* evaluation data, all of which is scored, instead of a part of `tokens`; no
                                   * files: none */
    int32_t document;             /* first token of a document, for document masks; -1: no masks */
    struct sl_chats chats;        /* conversations instead of data; empty: none */
    int64_t chat_training;        /* number of samples for training, which come first; */
    int64_t chat_conversations;   /* number of conversations in these samples, */
    int64_t chat_others;          /* and in the other samples */
    struct sl_choices choices;    /* questions, scored instead of data; empty: none */
    struct sl_store params;       /* initial values */
    struct sl_prompts prompts;
    bool base;      /* the checkpoint has only adapters: other values are from --model or --params, as in its run */
    bool publishes; /* the model is a published one */
    bool in_file;   /* its quantized weights stay in its file */
    struct sl_published published;
    struct sl_block_source blocks;
    struct sl_tokenizer *tokenizer; /* NULL: tokens are bytes, or have no known text */
    struct sl_token_list ends;      /* end-of-text tokens; empty: samples have their full length */
    struct sl_token_list textless;  /* tokens unknown to the tokenizer: they have no text, and are never sampled */
    struct transformer_talk talk;
    char rope_scaling[128], *rope_divisors; /* of the published model, as options */
    float *divisors;                        /* of the model's rotary positions */
    char *adapters;                         /* patterns of the adapters' parameters; NULL: no adapters */
    struct sl_peft peft;                    /* adapters that are read; rank 0: none */
    struct sl_store exported;               /* values to export */
    int length;                             /* tokens of a prompt and its continuation */
    /* Set by coordinate 0. */
    struct sl_peak peak; /* peak speed of products on the run's cores */
    double frozen;       /* weights of products without weight gradients, except those frozen because of adapters */
    struct transformer_score score;
    double scored_bytes;              /* bytes of the scored tokens; NaN: unknown */
    struct transformer_stream stream; /* of an evaluation */
    double *choice_scores;            /* [samples of choices]: sums of log-probabilities */
    bool evaluated;                   /* the evaluation is done, and this process prints */
};

/* With --model: opens it, and takes over its sizes. Call it first. EXPORTS: --params may replace its values. */
int transformer_take_model(struct transformer_job *job, struct transformer_config *config,
                           const struct sl_options *options, bool exports, struct sl_error *error);
/* weights.c: decides whether the model's quantized weights stay in the file. Call it after transformer_take_model
 * and the adapters. SL_BAD_INPUT if --weights cannot be satisfied. */
int transformer_choose_weights(struct transformer_job *job, enum transformer_command command,
                               struct transformer_config *config, const struct sl_options *options,
                               struct sl_error *error);
/* Returns the bytes of the weights that stay there, and of all others as floats. */
double transformer_file_bytes(const struct transformer_job *job);
/* Writes the rotary positions of the model's file to CONFIG's options; reads the options of any model into the job's
 * rotary. */
int transformer_write_rotary(struct transformer_job *job, struct transformer_config *config,
                             const struct sl_transformer *transformer, struct sl_error *error);
int transformer_read_rotary(struct transformer_job *job, struct sl_error *error);
/* adapters.c: sets up the model's adapters from the options, and checks --save-adapters; transformer_merge_adapters
 * merges adapters stored in the given values into these. */
int transformer_prepare_adapters(struct transformer_job *job, struct sl_error *error);
/* For a checkpoint of adapters alone (--no-save-frozen). transformer_take_base, before transformer_take_model, sets
 * --model or --params as in the checkpoint's run. transformer_check_base refuses other values once they are open.
 * transformer_describe_base notes them for a run that saves only adapters. */
int transformer_take_base(struct transformer_job *job, enum transformer_command command,
                          struct transformer_config *config, const struct sl_options *options, struct sl_error *error);
int transformer_check_base(struct transformer_job *job, struct sl_error *error);
int transformer_describe_base(struct transformer_job *job, struct sl_error *error);
/* With --adapters: reads them, and takes over their sizes. Call it after transformer_take_model. */
int transformer_take_adapters(struct transformer_job *job, struct transformer_config *config, struct sl_error *error);
int transformer_load_adapters(struct sl_worker *worker); /* for struct sl_job_type */
/* Writes the adapters after the last step of a training, as --save-adapters says. Collective over the mesh. */
int transformer_save_adapters(struct sl_worker *worker);
int transformer_merge_adapters(struct transformer_job *job, struct sl_error *error);
/* For struct sl_job_type. */
bool transformer_gives_values(const struct sl_worker *worker);
int transformer_load_model(struct sl_worker *worker);
/* Renames and reshapes STORE's tensors from the parameters' names and shapes to the published model's. */
int transformer_publish(const struct transformer_job *job, struct sl_store *store, struct sl_error *error);
/* Opens the tokenizer, if there is one and it is not open yet. A failure is an error only if it is NEEDED. */
int transformer_open_tokenizer(struct transformer_job *job, bool needed, struct sl_error *error);
/* Encodes the job's prompts, given as bytes, as the model's tokens. */
int transformer_encode_prompts(struct transformer_job *job, struct sl_error *error);
/* Returns the text of LENGTH tokens, *COUNT bytes; the caller frees it; NULL without memory. */
char *transformer_text_of(const struct transformer_job *job, const int32_t *tokens, int length, size_t *count);
/* Whether samples are printed as text. */
bool transformer_shows_text(const struct transformer_job *job);
void transformer_close_model(struct transformer_job *job);
/* special_tokens.c: transformer_know_tokens, called with the tokenizer open, finds the end-of-text tokens and the
 * tokens without a text. The other two return whether TOKEN ends a text, and whether TOKEN has a text. */
int transformer_know_tokens(struct transformer_job *job, struct sl_error *error);
bool transformer_ends_text(const struct transformer_job *job, int32_t token);
bool transformer_has_text(const struct transformer_job *job, int32_t token);
void transformer_forget_tokens(struct transformer_job *job);
int transformer_prepare(struct transformer_job *job, enum transformer_command command,
                        const struct transformer_config *config, const struct sl_mesh *mesh,
                        const struct sl_engine *engine, struct sl_error *error);
/* The same without data, for sizes and times alone, over an engine like LIKE; CONFIG has a vocabulary. End with
 * transformer_finish. */
int transformer_plan_on_paper(struct transformer_job *job, enum transformer_command command,
                              const struct transformer_config *config, const struct sl_mesh *mesh,
                              const struct sl_engine *like, struct sl_error *error);
/* Default data: the licenses that Debian installs. */
extern const char transformer_default_data[];
/* Whether the given values come with tokens to train on. */
bool transformer_takes_given_tokens(const struct transformer_job *job);
/* Opens the command's data, and reports the files of a directory. Sets the vocabulary if it is still 0. */
int transformer_open_data(struct transformer_job *job, struct sl_error *error);
/* Whether sequences have several documents that do not attend to each other; and whether batches have places: then, or
 * if sequences are divided. */
bool transformer_has_documents(const struct transformer_job *job);
static inline bool transformer_has_places(const struct transformer_job *job) {
    return transformer_has_documents(job) || job->job.parts > 1 || job->job.context_leaves;
}
/* context.c: checks the options of divided sequences, against MESH and other options; transformer_divide reduces the
 * worker's whole sequences to this coordinate's rows. */
int transformer_check_context(const struct transformer_job *job, const struct sl_mesh *mesh, struct sl_error *error);
/* Tokens of the shortest sequence that MESH divides. */
int transformer_shortest_sequence(const struct sl_mesh *mesh);
void transformer_divide(const struct sl_worker *worker);
/* Checks the tensor layout against other options; the words of --tensor-layout, ended by NULL. */
int transformer_check_layout(const struct transformer_job *job, const struct sl_mesh *mesh, struct sl_error *error);
extern const char *const transformer_tensor_layouts[];
/* The words of --context-by, ended by NULL; and the number of one of them. */
extern const char *const transformer_context_ways[];
int transformer_context_way(const char *word);
/* Sets scored_bytes. */
int transformer_count_bytes(struct transformer_job *job, struct sl_error *error);
/* Prints the scored part of evaluation data: "data text: the last 70 of 700 tokens, 8 batches of 8 sequences". */
void transformer_print_scored(const struct transformer_job *job, FILE *stream);
/* Prints the source of the parameters: "parameters run/step-00000100.safetensors (step 100)". */
void transformer_print_source(const struct transformer_job *job, FILE *stream);
/* Prints a line on stderr if the parameters are random. */
void transformer_warn_of_source(const struct transformer_job *job);
/* Reads the prompts, and checks the numbers of samples and the sampling options. */
int transformer_read_prompts(struct transformer_job *job, struct sl_error *error);
/* Returns SL_BAD_INPUT if a replica has fewer samples than groups. */
int transformer_check_samples(const struct transformer_job *job, struct sl_error *error);
/* Return the number of samples: of all prompts; of a replica; of a replica at the same time; and the number of
 * groups of these. */
int transformer_samples(const struct transformer_job *job);
int transformer_own_samples(const struct transformer_job *job);
int transformer_in_flight(const struct transformer_job *job);
int transformer_groups(const struct transformer_job *job);
/* Form of the caches. Latent caches use kernels without their adapters, and are not divided over the axis context: with
 * adapters, and by default over this axis, the form is expanded. */
enum sl_cache_form transformer_cache(const struct transformer_job *job);
int transformer_longest_prompt(const struct transformer_job *job);
/* Returns the prompt of sample NUMBER; for samples that only fill up replicas, the last prompt. */
int transformer_prompt_of(const struct transformer_job *job, int number);
/* Prints all samples, TOKENS [samples, length], each with LENGTHS [samples] tokens; STEP is a training's step, or
 * NO_STEP. */
enum { NO_STEP = -1 };
int transformer_print_samples(struct transformer_job *job, int64_t step, const int32_t *tokens, const int *lengths,
                              struct sl_error *error);

/* generation/ending.c: samples that end early, and text printed as it is generated. ARG is a struct transformer_ending;
 * the functions are callbacks of struct sl_generation. */
struct transformer_printer;
struct transformer_ending {
    const struct transformer_job *job;
    bool ends;        /* at end-of-text tokens */
    int32_t turn;     /* the token that ends an answer; -1: none */
    const char *stop; /* text to stop at; NULL: none */
    size_t stop_bytes;
    struct transformer_printer *printer; /* NULL: nothing is printed during generation */
};
void transformer_open_ending(struct transformer_ending *ending, const struct transformer_job *job);
/* Whether samples can end early. */
bool transformer_has_ending(const struct transformer_ending *ending);
bool transformer_ends(void *arg, const int32_t *tokens, int prompt, int count);
/* Returns the printed text of a sample's LENGTH tokens, without the token or text that ended it; the caller frees
 * it; NULL without memory. */
char *transformer_shown_text(const struct transformer_ending *ending, const int32_t *tokens, int prompt, int length,
                             size_t *count);
/* Opens the printer for the only sample, which begins with the COUNT tokens of PROMPT. */
int transformer_open_printer(struct transformer_ending *ending, const int32_t *prompt, int count,
                             struct sl_error *error);
/* Begins again, with an empty text. */
void transformer_begin_print(struct transformer_ending *ending);
void transformer_print_token(void *arg, int sequence, const int32_t *tokens, int position);
/* Prints the text held back, and a newline. SL_FAILED if stdout did not take all. */
int transformer_end_print(struct transformer_ending *ending, struct sl_error *error);
void transformer_close_printer(struct transformer_ending *ending);
/* Adds the job's inputs to the signature of the run. */
int transformer_sign(const struct transformer_job *job, struct sl_error *error);
void transformer_finish(struct transformer_job *job);
/* Returns SL_BAD_INPUT if the memory of one machine cannot hold the model. */
int transformer_check_memory(const struct transformer_job *job, const struct sl_engine *engine, struct sl_error *error);
/* Computes the schedule and batches of a job with a known model. */
int transformer_fit(struct transformer_job *job, struct sl_error *error);
/* For struct sl_job_type: the bytes of a coordinate besides its trainer; a job for the same model and data with
 * other options. */
int transformer_plan_bytes(struct sl_worker *worker, struct sl_budget *budget);
struct sl_job *transformer_copy_job(const struct sl_job *job, const struct sl_variant *variant,
                                    const struct sl_engine *engine, struct sl_error *error);
void transformer_free_copy(struct sl_job *copy);
void transformer_heads(const struct sl_job *job, int ranks, const char *way[SL_JOB_HEADS]);
extern sl_attempt *const transformer_gentle_attempts[], *const transformer_harsh_attempts[],
                                                            *const transformer_smaller_attempts[];

/* A coordinate's own state while a program runs (sl_worker.own). */
struct transformer_sampler;
struct transformer_worker {
    int32_t *inputs, *labels;            /* [local * whole sequence] */
    int32_t *places;                     /* [local * whole sequence]; NULL: each sequence is one document */
    struct transformer_sampler *sampler; /* NULL: nothing is sampled */
    struct sl_crew *crew;                /* for evaluations; NULL: none */
};

/* Returns the job of a worker. */
static inline struct transformer_job *transformer_job_of(const struct sl_worker *worker) { return worker->job->own; }

extern const struct sl_job_type transformer_job_type;
/* Plans and opens the worker: parameters are read, or initialized from the seed. *OPENED becomes false if it does
 * not fit, or if --dry-run asks for the plan only. */
int transformer_open_worker(struct sl_worker *worker, struct sl_spmd *self, struct transformer_job *job, bool *opened);
struct transformer_watch;
/* Scores --eval-data, each token once; without it, --evaluate-batches batches of the part of the data reserved for
 * evaluation. */
int transformer_evaluate(struct sl_worker *worker, struct transformer_watch *watch, struct transformer_score *score);
/* Returns the number of sequences it scores. */
int64_t transformer_scored(const struct transformer_job *job);

/* chats.c: reads the conversations of --chat, and sets CONFIG's vocabulary from them. Call it before
 * transformer_prepare. */
int transformer_read_chats(struct transformer_job *job, struct transformer_config *config,
                           enum transformer_command command, bool speaks, struct sl_error *error);
/* Returns the number of samples that an evaluation scores. */
int64_t transformer_chats_scored(const struct transformer_job *job);
/* Fetches this replica's MINE samples of the batch with first sample FIRST. */
void transformer_fetch_chats(struct sl_worker *worker, bool evaluation, int64_t first, int64_t mine,
                             struct sl_batch *batch);
void transformer_print_chats(const struct transformer_job *job, FILE *stream);

/* choices.c: reads the questions of --choices, if any, and sets CONFIG's vocabulary, batch and sequence from them.
 * Call it before transformer_prepare. */
int transformer_read_choices(struct transformer_job *job, struct transformer_config *config, const struct sl_mesh *mesh,
                             struct sl_error *error);
/* Adds to BUDGET the memory for scoring them. */
void transformer_plan_choices(const struct transformer_job *job, struct sl_budget *budget);
/* Scores all choices. Collective over the mesh. */
int transformer_score_choices(struct sl_worker *worker, struct transformer_watch *watch);
/* Prints the number of right answers. */
int transformer_report_choices(const struct transformer_job *job, struct sl_error *error);
/* Print the times of an evaluation, for people and as JSON. */
double transformer_sequences_per_second(const struct transformer_job *job);
void transformer_print_stream(const struct transformer_job *job);
json_t *transformer_json_times(const struct transformer_times *times);

/* A coordinate's times during an evaluation (stream.c). */
/* transformer_open_stream allocates the job's stream before the run; transformer_judge_stream computes its times
 * after it. */
int transformer_open_stream(struct transformer_job *job, struct sl_error *error);
int transformer_judge_stream(struct transformer_job *job, struct sl_error *error);
void transformer_close_stream(struct transformer_job *job);
/* Opens a coordinate's watch; all coordinates begin together. */
int transformer_open_watch(struct transformer_watch **watch, struct sl_worker *worker);
struct sl_trace *transformer_trace_of(struct transformer_watch *watch); /* NULL of NULL */
/* Call it after a pass: adds the times of its trace. */
void transformer_watch_pass(struct transformer_watch *watch);
/* Collective over the mesh: gathers all records on coordinate 0. */
int transformer_gather_watches(const struct transformer_watch *watch);
void transformer_close_watch(struct transformer_watch *watch);
/* Fetches this replica's part of samples FIRST + [0, batch) of the training or evaluation data; valid until the next
 * call. */
int transformer_fetch(struct sl_worker *worker, bool evaluation, int64_t first, struct sl_batch *batch);

extern const struct sl_training_type transformer_training;

/* Runs an evaluation and prints its score. */
int transformer_run_evaluation(struct transformer_job *job, const struct sl_engine *engine, struct sl_error *error);
/* Generates and prints samples. */
int transformer_run_generation(struct transformer_job *job, const struct sl_engine *engine, struct sl_error *error);

enum { TRANSFORMER_NO_TEMPLATE = SL_CHAT_LLAMA3 + 1 }; /* --chat-template none */
void transformer_close_talk(struct transformer_job *job);
/* Returns the default number of tokens in a conversation. */
int transformer_context(const struct transformer_config *config);
/* Opens stdin before the run, in the speaking process. */
int transformer_open_lines(struct transformer_job *job, struct sl_error *error);
/* Callback of struct sl_generation: whether the user stops the answer. */
bool transformer_stops_talk(void *arg);
/* Holds the conversation until there are no more lines. Collective over the mesh. */
int transformer_talk(struct sl_worker *worker);

/* Writes the model for other programs. */
int transformer_run_export(struct transformer_job *job, const struct sl_engine *engine, struct sl_error *error);
/* Prints the plan of an evaluation or a generation. */
int transformer_print_plan(struct transformer_job *job, const struct sl_engine *engine, struct sl_error *error);

/* Opens a sampler, which prints, after step STEP of a training, continuations of the job's prompt, or of the data's
 * first token if there is no prompt. */
int transformer_open_sampler(struct transformer_sampler **sampler, struct sl_worker *worker);
/* Opens a generator of the job's samples with the parameters of the worker's trainer; with sizes_only, a generator
 * that only reports bytes. */
int transformer_open_generator(struct sl_generator **generator, struct sl_worker *worker,
                               struct transformer_ending *ending, bool sizes_only);
/* Adds to BUDGET the sampler's bytes. Collective over the mesh. */
int transformer_plan_sampler(struct sl_worker *worker, struct sl_budget *budget);
int transformer_sample(struct transformer_sampler *sampler, int64_t step);
/* Generates; during a training, prints the samples under STEP. */
int transformer_sampler_run(struct transformer_sampler *sampler, int64_t step, struct sl_generated *generated);
void transformer_close_sampler(struct transformer_sampler *sampler);

#endif
