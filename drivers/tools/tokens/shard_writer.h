/* shard_writer.h - writes tokens as shards in the format of llm.c: of 16 bits if the vocabulary fits, otherwise of
 * 32. layers/formats/tokens/token_formats.c reads them. */
#ifndef SL_DRIVERS_TOOLS_TOKENS_SHARD_WRITER_H
#define SL_DRIVERS_TOOLS_TOKENS_SHARD_WRITER_H

#include "layers/formats/files/draft.h"

/* Zero-initialize. */
struct tokens_shard_writer {
    const char *directory;
    int64_t most;  /* limit of tokens per shard */
    size_t width;  /* bytes of a token: 2 or 4 */
    int shards;    /* number of complete shards */
    int64_t count; /* tokens in the open shard */
    struct sl_draft draft;
    char *buffer;
    size_t buffered;
};

/* Makes DIRECTORY if necessary. SL_BAD_INPUT if it already has files *.bin. */
int tokens_shards_open(struct tokens_shard_writer *writer, const char *directory, int64_t most, int vocabulary,
                       struct sl_error *error);
int tokens_shards_write(struct tokens_shard_writer *writer, const int32_t *token, size_t count, struct sl_error *error);
/* Completes the last shard if STATUS is SL_OK; otherwise deletes all shards. Returns STATUS, or the status of a
 * failure. */
int tokens_shards_close(struct tokens_shard_writer *writer, int status, struct sl_error *error);

#endif
