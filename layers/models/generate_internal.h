/* generate_internal.h - the state of a generator: generate_open.c prepares it, generate.c runs it. */
#ifndef SL_LAYERS_MODELS_GENERATE_INTERNAL_H
#define SL_LAYERS_MODELS_GENERATE_INTERNAL_H

#include "collectives/channel.h"
#include "layers/models/generate.h"
#include "spmd/base/crew.h"

/* The model and its pipeline for passes of one shape. */
struct pass {
    int width, tokens; /* sequences; tokens of each */
    struct sl_model model;
    struct sl_pipeline *pipeline;
};
/* Groups have at most two widths; each width has passes for a prompt's parts, for its rest, and for one token. */
enum { MOST_PASSES = 6 };

enum { NOBODY = -1 };
/* Place of a sequence in the caches. */
struct place {
    int sequence; /* or NOBODY: the place is free */
    int position; /* tokens in the caches, or on their way there */
    bool told;    /* whether a token has been chosen */
};

/* Places whose sequences go through the pipeline together. */
struct group {
    int first, width;
    bool due;         /* at the first stage: whether tokens of the last pass must still be received */
    double chosen_at; /* at the last stage: time of the group's last choice */
};

struct sl_generator {
    struct sl_spmd *self;
    struct sl_generation options;
    struct sl_schedule schedule; /* forward only, one microbatch */
    struct sl_caches caches;
    struct sl_crew *crew;
    struct pass pass[MOST_PASSES];
    int passes;
    bool uniform;         /* whether all prompts have one length */
    int part;             /* tokens of a part of a prompt */
    int *prompt, *fewest; /* [sequences]: tokens of each prompt; of the shortest in its place over all replicas */
    int most;             /* tokens of a sequence in the end */
    struct place *place;  /* [in_flight] */
    struct group *group;  /* [groups] */
    struct sl_group stages, world; /* world: only if sequences may end early */
    int first_rank, last_rank, replica;
    bool is_first, is_last;    /* whether this coordinate has the first stage, or the last */
    struct sl_channel returns; /* sends tokens [width] from the last stage to the first, if apart */
    /* Host memory. Width: that of the widest group. */
    float *logits;     /* [width, vocabulary] at the last stage */
    int32_t *chosen;   /* [width] */
    int32_t *batch;    /* tokens of the largest pass, at the first stage */
    int32_t *position; /* [width] */
    struct sl_sampling_room room;
    float *ended; /* [in_flight]: number of coordinates aware of the sequence's end; in a conversation, one more: number
                     of coordinates stopping the run */
    /* State of a run. */
    struct sl_generated *generated;
    int waiting; /* the first waiting sequence; all after it wait, too */
    bool begun;  /* whether there has been a pass */
    int rounds;  /* completed rounds over all groups */
    struct sl_latency latency;
};

/* The pass of this shape; NULL if there is none. */
struct pass *sl_generator_pass(struct sl_generator *generator, int width, int tokens);
/* The pass with the most tokens, at most TOKENS; for conversations. */
struct pass *sl_generator_largest_pass(struct sl_generator *generator, int tokens);

#endif
