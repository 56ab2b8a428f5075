/* shard_writer.c - writes shards, one after another. */
#include "drivers/tools/tokens/shard_writer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "layers/formats/files/file_tree.h"
#include "layers/formats/tokens/token_format.h"

enum { BUFFER = 1 << 20 };

static int refuse_others(const char *directory, struct sl_error *error) {
    struct sl_file_tree tree;
    int status = sl_file_tree_open(&tree, directory, error);
    for (int i = 0; !status && i < tree.files; i++) {
        const size_t count = strlen(tree.path[i]);
        if (count > 4 && !strcmp(tree.path[i] + count - 4, ".bin"))
            status = sl_error_set(error, SL_BAD_INPUT, "--save: %s is there already: write to an empty folder",
                                  tree.path[i]);
    }
    sl_file_tree_close(&tree);
    return status;
}

int tokens_shards_open(struct tokens_shard_writer *w, const char *directory, int64_t most, int vocabulary,
                       struct sl_error *error) {
    *w = (struct tokens_shard_writer){.directory = directory, .most = most, .width = vocabulary <= 1 << 16 ? 2 : 4};
    if (strlen(directory) + 40 > SL_MAX_PATH)
        return sl_error_set(error, SL_BAD_INPUT, "--save: the folder's path is too long");
    if (mkdir(directory, 0777) && errno != EEXIST)
        return sl_error_set(error, SL_BAD_INPUT, "--save %s: cannot be made: %s", directory, strerror(errno));
    SL_TRY(refuse_others(directory, error));
    w->buffer = malloc(BUFFER);
    return w->buffer ? SL_OK : sl_error_set(error, SL_FAILED, "no memory for shards");
}

static void name_shard(const struct tokens_shard_writer *w, int number, char path[SL_MAX_PATH]) {
    snprintf(path, SL_MAX_PATH, "%.4000s/tokens_%06d.bin", w->directory, number);
}

static int write_bytes(const struct tokens_shard_writer *w, const void *bytes, size_t count, off_t at,
                       struct sl_error *error) {
    while (count) {
        const ssize_t written = pwrite(w->draft.descriptor, bytes, count, at);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return sl_error_set(error, SL_FAILED, "%s: %s", w->draft.path, strerror(errno));
        bytes = (const char *)bytes + written;
        count -= (size_t)written;
        at += written;
    }
    return SL_OK;
}

static int flush(struct tokens_shard_writer *w, struct sl_error *error) {
    const off_t at = SL_SHARD_HEADER + (off_t)(w->count * (int64_t)w->width) - (off_t)w->buffered;
    SL_TRY(write_bytes(w, w->buffer, w->buffered, at, error));
    w->buffered = 0;
    return SL_OK;
}

static int begin_shard(struct tokens_shard_writer *w, struct sl_error *error) {
    char path[SL_MAX_PATH];
    name_shard(w, w->shards, path);
    w->count = 0;
    return sl_draft_open(&w->draft, path, SL_LINKS_REPLACED, error);
}

static int end_shard(struct tokens_shard_writer *w, struct sl_error *error) {
    int32_t header[SL_SHARD_HEADER / 4];
    sl_shard_header(header, w->width, w->count);
    SL_TRY(flush(w, error));
    SL_TRY(write_bytes(w, header, sizeof header, 0, error));
    SL_TRY(sl_draft_finish(&w->draft, 0, error));
    w->shards++;
    return SL_OK;
}

int tokens_shards_write(struct tokens_shard_writer *w, const int32_t *token, size_t count, struct sl_error *error) {
    for (size_t i = 0; i < count; i++) {
        if (!w->draft.open) SL_TRY(begin_shard(w, error));
        if (w->buffered + w->width > BUFFER) SL_TRY(flush(w, error));
        if (w->width == 2)
            memcpy(w->buffer + w->buffered, &(uint16_t){(uint16_t)token[i]}, 2);
        else
            memcpy(w->buffer + w->buffered, &token[i], 4);
        w->buffered += w->width;
        w->count++;
        if (w->count == w->most) SL_TRY(end_shard(w, error));
    }
    return SL_OK;
}

int tokens_shards_close(struct tokens_shard_writer *w, int status, struct sl_error *error) {
    char path[SL_MAX_PATH];
    if (!status && w->draft.open) status = end_shard(w, error);
    free(w->buffer);
    w->buffer = NULL;
    if (!status) return SL_OK;
    sl_draft_give_up(&w->draft);
    for (; w->shards; w->shards--) {
        name_shard(w, w->shards - 1, path);
        unlink(path);
    }
    return status;
}
