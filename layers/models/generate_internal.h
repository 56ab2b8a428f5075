/* generate_internal.h - what opening a generator (generate_open.c) prepares for running it (generate.c). */
#ifndef SL_LAYERS_MODELS_GENERATE_INTERNAL_H
#define SL_LAYERS_MODELS_GENERATE_INTERNAL_H

#include "collectives/channel.h"
#include "layers/models/generate.h"
#include "spmd/base/crew.h"

/* The model for passes of one shape, with its pipeline. */
struct pass {
    int width, tokens; /* sequences; of each */
    struct sl_model model;
    struct sl_pipeline *pipeline;
};
/* Groups have two widths at most, and each its passes over a prompt's parts, over the last one, and for a token. */
enum { MOST_PASSES = 6 };

enum { NOBODY = -1 };
/* The caches of a sequence. */
struct place {
    int sequence; /* or NOBODY */
    int position; /* tokens that are in the caches, or on their way there */
    bool told;    /* a token has been chosen */
};

/* Places whose sequences go through the pipeline together. */
struct group {
    int first, width;
    bool due;         /* at the first stage: tokens of the last pass have still to be taken */
    double chosen_at; /* at the last stage: when it chose the group's tokens */
};

struct sl_generator {
    struct sl_spmd *self;
    struct sl_generation options;
    struct sl_schedule schedule; /* forward alone, one microbatch */
    struct sl_caches caches;
    struct sl_crew *crew;
    struct pass pass[MOST_PASSES];
    int passes;
    bool uniform;         /* all prompts have one length */
    int part;             /* tokens of a part of a prompt */
    int *prompt, *fewest; /* [sequences]: tokens of each prompt; of the shortest in its place, over the replicas */
    int most;             /* tokens of a sequence in the end */
    struct place *place;  /* [in_flight] */
    struct group *group;  /* [groups] */
    struct sl_group stages, world; /* world: where sequences may end sooner */
    int first_rank, last_rank, replica;
    bool is_first, is_last;    /* this coordinate has the first stage, the last one */
    struct sl_channel returns; /* of tokens [width], from the last stage to the first, where these are apart */
    /* The host's. Width: the widest group's. */
    float *logits;     /* [width, vocabulary] at the last stage */
    int32_t *chosen;   /* [width] */
    int32_t *batch;    /* tokens of the largest pass, at the first stage */
    int32_t *position; /* [width] */
    struct sl_sampling_room room;
    float *ended; /* [in_flight]: how many coordinates know that the sequence has ended; in a conversation, behind that,
                     how many say that the run is to end */
    /* Of a run. */
    struct sl_generated *generated;
    int waiting; /* the first sequence that waits; all behind it wait, too */
    bool begun;  /* there has been a pass */
    int rounds;  /* that all groups have gone */
    struct sl_latency latency;
};

/* The pass of that shape. */
struct pass *sl_generator_pass(struct sl_generator *generator, int width, int tokens);
/* In a conversation, the largest pass of at most TOKENS. */
struct pass *sl_generator_largest_pass(struct sl_generator *generator, int tokens);

#endif
