/* fuzz_ring.c - a file of recorded messages. The first byte chooses whether frames get correct checksums, so their
 * contents are read too. */
#include "layers/records/replay/frames.h"
#include "tests/fuzz/fuzz.h"

static void seal(uint8_t *bytes, size_t size) {
    for (size_t at = 0; size - at >= sizeof(struct sl_frame);) {
        struct sl_frame frame;
        memcpy(&frame, bytes + at, sizeof frame);
        memcpy(frame.magic, "slframe1", sizeof frame.magic);
        frame.hash = sl_hash(&frame, offsetof(struct sl_frame, hash));
        memcpy(bytes + at, &frame, sizeof frame);
        at += sizeof frame;
        if (size - at < sizeof frame.hash || frame.bytes > size - at - sizeof frame.hash) return;
        const uint64_t hash = sl_hash(bytes + at, frame.bytes);
        memcpy(bytes + at + frame.bytes, &hash, sizeof hash);
        at += frame.bytes + sizeof hash;
    }
}

/* Checks a promise that players rely on: messages lie within the contents. */
static void check_contents(const struct sl_frames *frames, size_t size) {
    const struct sl_messages *contents = &frames->contents;
    const bool messages = frames->frame.kind == SL_FRAME_OPENING || frames->frame.kind == SL_FRAME_STEP;
    size_t at = 0;
    FUZZ_PROMISE(frames->frame.kind > 0 && frames->frame.kind < SL_FRAME_KINDS, "kind %u", frames->frame.kind);
    FUZZ_PROMISE(frames->frame.step >= 0 && frames->frame.samples >= 0, "step %lld", (long long)frames->frame.step);
    FUZZ_PROMISE(contents->size == frames->frame.bytes && contents->size <= size, "%zu bytes", contents->size);
    for (const struct sl_message *m; messages && (m = sl_messages_next(contents, &at));) {
        const char *begin = (const char *)(m + 1);
        FUZZ_PROMISE(begin + m->bytes <= contents->block + contents->size, "%llu bytes", (unsigned long long)m->bytes);
        FUZZ_PROMISE((uintptr_t)begin % SL_MESSAGE_ALIGN == 0, "not aligned");
    }
    FUZZ_PROMISE(!messages || at == contents->size, "%zu of %zu bytes", at, contents->size);
}

/* Counts frames, either read or skipped; the counts must agree. */
static int count(const char *path, bool reads, size_t size, int *frames, struct sl_error *error) {
    struct sl_frames file;
    bool more = true;
    *frames = 0;
    int status = sl_frames_open(&file, path, error);
    while (status == SL_OK && more) {
        status = sl_frames_next(&file, reads, &more, error);
        if (status == SL_OK && more && reads) check_contents(&file, size);
        *frames += status == SL_OK && more;
    }
    sl_frames_close(&file);
    if (status) fuzz_refused(status, error);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sl_error error = {0}, other = {0};
    int read, passed;
    if (size < 1) return 0;
    uint8_t *bytes = (uint8_t *)fuzz_text(data + 1, size - 1);
    if (data[0] & 1) seal(bytes, size - 1);
    const char *path = fuzz_file(0, bytes, size - 1);
    const int status = count(path, true, size, &read, &error);
    count(path, false, size, &passed, &other);
    FUZZ_PROMISE(status ? read <= passed : read == passed, "%d and %d frames", read, passed);
    free(bytes);
    return 0;
}
