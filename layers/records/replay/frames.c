/* frames.c - writes and reads frames. */
#include "layers/records/replay/frames.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "spmd/base/file.h"

static const char magic[8] = {'s', 'l', 'f', 'r', 'a', 'm', 'e', '1'};

_Static_assert(sizeof(struct sl_frame) == 64, "heads lie in files as in memory");

static uint64_t hash_of(const struct sl_frame *frame) { return sl_hash(frame, offsetof(struct sl_frame, hash)); }

/* ---- writing ---- */

static int put(FILE *stream, const void *data, size_t bytes) {
    errno = 0;
    return !bytes || fwrite(data, bytes, 1, stream) == 1 ? 0 : errno ? errno : EIO;
}

static int put_head(FILE *stream, struct sl_frame *frame) {
    memcpy(frame->magic, magic, sizeof magic);
    frame->hash = hash_of(frame);
    return put(stream, frame, sizeof *frame);
}

static int put_hash(FILE *stream, uint64_t hash) {
    const int number = put(stream, &hash, sizeof hash);
    errno = 0;
    return number ? number : fflush(stream) ? (errno ? errno : EIO) : 0;
}

int sl_frame_write(FILE *stream, struct sl_frame *frame, const void *data) {
    int number = put_head(stream, frame);
    if (!number) number = put(stream, data, frame->bytes);
    return number ? number : put_hash(stream, sl_hash(data, frame->bytes));
}

int sl_frame_begin(FILE *stream, struct sl_hasher *hasher, struct sl_frame *frame) {
    sl_hasher_begin(hasher);
    return put_head(stream, frame);
}

int sl_frame_add(FILE *stream, struct sl_hasher *hasher, const void *data, size_t bytes) {
    sl_hasher_add(hasher, data, bytes);
    return put(stream, data, bytes);
}

int sl_frame_end(FILE *stream, struct sl_hasher *hasher) { return put_hash(stream, sl_hasher_end(hasher)); }

/* ---- reading ---- */

int sl_frames_open(struct sl_frames *frames, const char *path, struct sl_error *error) {
    const char *reason;
    *frames = (struct sl_frames){0};
    snprintf(frames->path, sizeof frames->path, "%s", path);
    frames->stream = sl_file_read(path, SL_FILE_REGULAR, &reason);
    return frames->stream ? SL_OK : sl_error_set(error, SL_BAD_INPUT, "%s: %s", path, reason);
}

void sl_frames_close(struct sl_frames *frames) {
    if (frames->stream) fclose(frames->stream);
    sl_messages_free(&frames->contents);
    frames->stream = NULL;
}

static int refuse(const struct sl_frames *frames, const char *what, struct sl_error *error) {
    return sl_error_set(error, SL_BAD_INPUT, "%s: damaged: %s", frames->path, what);
}

/* Remaining bytes of the file. */
static uint64_t left_of(FILE *stream) {
    struct stat about;
    const off_t at = ftello(stream);
    return at < 0 || fstat(fileno(stream), &about) || about.st_size < at ? 0 : (uint64_t)(about.st_size - at);
}

static int read_contents(struct sl_frames *frames, struct sl_error *error) {
    const size_t bytes = frames->frame.bytes;
    struct sl_messages *contents = &frames->contents;
    uint64_t hash;
    if (bytes + 1 > contents->room) {
        sl_messages_free(contents);
        contents->room = (bytes + SL_MESSAGE_ALIGN) / SL_MESSAGE_ALIGN * SL_MESSAGE_ALIGN;
        contents->block = aligned_alloc(SL_MESSAGE_ALIGN, contents->room);
        if (!contents->block) {
            contents->room = 0;
            return sl_error_set(error, SL_FAILED, "%s: no memory for %zu bytes", frames->path, bytes);
        }
    }
    if ((bytes && fread(contents->block, bytes, 1, frames->stream) != 1) ||
        fread(&hash, sizeof hash, 1, frames->stream) != 1)
        return sl_error_set(error, SL_BAD_INPUT, "%s: cannot be read: %s", frames->path, strerror(errno));
    contents->size = bytes;
    contents->block[bytes] = 0; /* ends a text */
    if (hash != sl_hash(contents->block, bytes)) return refuse(frames, "the checksum of a frame is another", error);
    const bool messages = frames->frame.kind == SL_FRAME_OPENING || frames->frame.kind == SL_FRAME_STEP;
    if (messages && !sl_messages_are_sound(contents))
        return refuse(frames, "a frame has other bytes than messages", error);
    return SL_OK;
}

int sl_frames_next(struct sl_frames *frames, bool reads, bool *more, struct sl_error *error) {
    struct sl_frame *frame = &frames->frame;
    *more = false;
    if (fread(frame, sizeof *frame, 1, frames->stream) != 1) return SL_OK;
    if (memcmp(frame->magic, magic, sizeof magic) != 0 || frame->hash != hash_of(frame) || frame->step < 0 ||
        frame->samples < 0 || !frame->kind || frame->kind >= SL_FRAME_KINDS)
        return refuse(frames, "the head of a frame", error);
    const uint64_t left = left_of(frames->stream);
    if (left < sizeof frame->hash || frame->bytes > left - sizeof frame->hash) return SL_OK;
    *more = true;
    if (reads) return read_contents(frames, error);
    if (fseeko(frames->stream, (off_t)(frame->bytes + sizeof frame->hash), SEEK_CUR))
        return sl_error_set(error, SL_BAD_INPUT, "%s: cannot be read: %s", frames->path, strerror(errno));
    return SL_OK;
}
