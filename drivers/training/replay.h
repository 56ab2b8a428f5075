/* replay.h - replays one coordinate of a recorded run alone, in the training driver, and writes the command for it. */
#ifndef SL_DRIVERS_TRAINING_REPLAY_H
#define SL_DRIVERS_TRAINING_REPLAY_H

#include "drivers/training/training.h"

/* Words of a command. Zero-initialize. */
struct sl_replay_words {
    char **word; /* ends with NULL */
    int count, room;
};

/* Writes the words of the command to replay TRAINING's job: its program and all options with an effect on results,
 * given or taken from a checkpoint. Files have absolute paths. SL_FAILED without memory. */
int sl_replay_describe(const struct sl_training *training, struct sl_replay_words *words, struct sl_error *error);
void sl_replay_words_free(struct sl_replay_words *words);

/* The argument of --replay. */
struct sl_replay_place {
    int coordinate;
    int64_t step; /* last step to replay */
};

/* Checks the options of a replay, or of a run that can be replayed. With --replay, writes its argument to PLACE. */
int sl_replay_check(const struct sl_training_options *options, const struct sl_engine *engine,
                    struct sl_replay_place *place, struct sl_error *error);

/* Replays the steps of PLACE's coordinate, and compares hashes with the journal's. The status is SL_CHECK_FAILED if
 * one differs, after a line that names it. */
int sl_training_replay(struct sl_training *training, struct sl_replay_place place, struct sl_error *error);

#endif
