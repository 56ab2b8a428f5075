/* replay.h - one coordinate of a recorded run again, alone, in the training driver itself; and the words of the command
 * that does so. */
#ifndef SL_DRIVERS_TRAINING_REPLAY_H
#define SL_DRIVERS_TRAINING_REPLAY_H

#include "drivers/training/training.h"

/* A command's words. Zero-initialize. */
struct sl_replay_words {
    char **word; /* ends with NULL */
    int count, room;
};

/* The words that give TRAINING's job again: its program and those of its options that have to do with results, as they
 * were given or taken from a checkpoint. Files have absolute paths. SL_FAILED without memory. */
int sl_replay_describe(const struct sl_training *training, struct sl_replay_words *words, struct sl_error *error);
void sl_replay_words_free(struct sl_replay_words *words);

/* What --replay names. */
struct sl_replay_place {
    int coordinate;
    int64_t step; /* the last one to take */
};

/* What options of a replay, or of a run that can be replayed, have to fit. With --replay *PLACE is what it names. */
int sl_replay_check(const struct sl_training_options *options, const struct sl_engine *engine,
                    struct sl_replay_place *place, struct sl_error *error);

/* Takes the steps of PLACE's coordinate again, and compares hashes with the journal's. The status is SL_CHECK_FAILED
 * where one differs, after a line that names it. */
int sl_training_replay(struct sl_training *training, struct sl_replay_place place, struct sl_error *error);

#endif
