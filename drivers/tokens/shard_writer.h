/* shard_writer.h - writes tokens as shards in the format of llm.c: of 16 bits where the vocabulary fits, otherwise of
 * 32. layers/storage/token_formats.c reads them. */
#ifndef SL_DRIVERS_TOKENS_SHARD_WRITER_H
#define SL_DRIVERS_TOKENS_SHARD_WRITER_H

#include "layers/storage/draft.h"

/* Zero-initialize. */
struct tokens_shard_writer {
    const char *directory;
    int64_t most;  /* tokens of a shard */
    size_t width;  /* bytes of a token: 2 or 4 */
    int shards;    /* that are whole */
    int64_t count; /* tokens of the one that is open */
    struct sl_draft draft;
    char *buffer;
    size_t buffered;
};

/* Makes DIRECTORY where there is none. SL_BAD_INPUT where there are files *.bin in it already. */
int tokens_shards_open(struct tokens_shard_writer *writer, const char *directory, int64_t most, int vocabulary,
                       struct sl_error *error);
int tokens_shards_write(struct tokens_shard_writer *writer, const int32_t *token, size_t count, struct sl_error *error);
/* Ends the last shard if STATUS is SL_OK; otherwise takes all shards away again. Returns STATUS, or what failed. */
int tokens_shards_close(struct tokens_shard_writer *writer, int status, struct sl_error *error);

#endif
