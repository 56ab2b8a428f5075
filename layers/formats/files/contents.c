/* contents.c - maps, copies and unpacks files. */
#include "layers/formats/files/contents.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

enum { HEAD = 1 << 13 }; /* bytes in which a zero marks a binary file */

static int no_memory(const char *path, struct sl_error *error) {
    return sl_error_set(error, SL_FAILED, "%s: out of memory", path);
}

/* ---- unpacked files ---- */

static int copy_file(struct sl_contents *contents, int descriptor, size_t bytes, const char *path,
                     struct sl_error *error) {
    contents->bytes = malloc(bytes);
    if (!contents->bytes) return no_memory(path, error);
    while (contents->count < bytes) {
        const ssize_t got = read(descriptor, (char *)contents->bytes + contents->count, bytes - contents->count);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return sl_error_set(error, SL_BAD_INPUT, "%s: cannot be read: %s", path, strerror(errno));
        if (got == 0) break; /* it has become shorter meanwhile */
        contents->count += (size_t)got;
    }
    return SL_OK;
}

static int map_file(struct sl_contents *contents, int descriptor, size_t bytes, const char *path,
                    struct sl_error *error) {
    void *map = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (map == MAP_FAILED) return sl_error_set(error, SL_BAD_INPUT, "%s: cannot be mapped: %s", path, strerror(errno));
    *contents = (struct sl_contents){map, bytes, true};
    madvise(map, bytes, MADV_RANDOM); /* reads are random windows */
    return SL_OK;
}

static int open_descriptor(struct sl_contents *contents, int descriptor, const char *path, struct sl_error *error) {
    struct stat status;
    if (fstat(descriptor, &status) || !S_ISREG(status.st_mode))
        return sl_error_set(error, SL_BAD_INPUT, "%s: neither a regular file nor a directory", path);
    const size_t bytes = (size_t)status.st_size;
    if (bytes == 0) return SL_OK; /* nothing to map */
    return bytes <= SL_MOST_COPIED ? copy_file(contents, descriptor, bytes, path, error)
                                   : map_file(contents, descriptor, bytes, path, error);
}

int sl_contents_refuse_pointer(const void *bytes, size_t count, const char *path, struct sl_error *error) {
    static const char begin[] = "version https://git-lfs";
    if (count < sizeof begin - 1 || memcmp(bytes, begin, sizeof begin - 1) != 0) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT,
                        "%s: a pointer of Git LFS in place of the file that it stands for: fetch that, as by git lfs "
                        "pull",
                        path);
}

int sl_contents_open(struct sl_contents *contents, const char *path, struct sl_error *error) {
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK); /* a FIFO does not block */
    if (descriptor < 0) return sl_error_set(error, SL_BAD_INPUT, "%s: cannot be opened: %s", path, strerror(errno));
    int status = open_descriptor(contents, descriptor, path, error);
    close(descriptor);
    if (status == SL_OK) status = sl_contents_refuse_pointer(contents->bytes, contents->count, path, error);
    if (status) sl_contents_close(contents);
    return status;
}

void sl_contents_close(struct sl_contents *contents) {
    if (contents->mapped)
        munmap(contents->bytes, contents->count);
    else
        free(contents->bytes);
    *contents = (struct sl_contents){0};
}

/* ---- packed files ---- */

/* A file being unpacked, and the state of reading it: gzip's members one after another, or zstd's frames. */
struct unpacking {
    const struct packing *packing;
    z_stream stream;
    ZSTD_DStream *frames;
    const uint8_t *rest; /* bytes not read by the stream yet */
    size_t left;
    bool ended;
    const char *wrong; /* error text; NULL: no error so far */
};

/* A packed file format. SOME writes up to ROOM bytes to OUT, fewer only at the end or after an error (WRONG), and
 * returns their number. */
struct packing {
    bool (*begins)(const uint8_t *bytes, size_t count);
    bool (*open)(struct unpacking *u);
    size_t (*some)(struct unpacking *u, void *out, size_t room);
    void (*close)(struct unpacking *u);
};

/* ---- gzip ---- */

/* Whether a member begins here: its magic number, and the only method. */
static bool begins_member(const uint8_t *bytes, size_t count) {
    return count > 2 && bytes[0] == 0x1f && bytes[1] == 0x8b && bytes[2] == Z_DEFLATED;
}

static bool open_members(struct unpacking *u) {
    enum { GZIP = 16 }; /* zlib: added to the logarithm of the window's size */
    return inflateInit2(&u->stream, MAX_WBITS + GZIP) == Z_OK;
}

static void close_members(struct unpacking *u) { inflateEnd(&u->stream); }

/* Gives the stream more of the file, in amounts that fit its 32-bit count. */
static void feed(struct unpacking *u) {
    enum { MOST = 1 << 30 };
    if (u->stream.avail_in) return;
    u->stream.next_in = (Bytef *)u->rest;
    u->stream.avail_in = u->left < MOST ? (uInt)u->left : MOST;
    u->rest += u->stream.avail_in;
    u->left -= u->stream.avail_in;
}

/* Continues with the next member, or ends. Zeros at the end are allowed: tapes and disk blocks are padded with them. */
static void end_member(struct unpacking *u) {
    const uint8_t *rest = u->stream.next_in;
    const size_t count = u->stream.avail_in + u->left; /* they are adjacent */
    if (begins_member(rest, count)) {
        inflateReset(&u->stream);
        return;
    }
    for (size_t i = 0; i < count; i++)
        if (rest[i]) u->wrong = "something else comes after what gzip has packed";
    u->ended = true;
}

static size_t unpack_members(struct unpacking *u, void *out, size_t room) {
    enum { MOST = 1 << 30 };
    size_t done = 0;
    while (done < room && !u->ended && !u->wrong) {
        const uInt here = room - done < MOST ? (uInt)(room - done) : MOST;
        feed(u);
        u->stream.next_out = (Bytef *)out + done;
        u->stream.avail_out = here;
        const int code = inflate(&u->stream, Z_NO_FLUSH);
        done += here - u->stream.avail_out;
        if (code == Z_STREAM_END)
            end_member(u);
        else if (code == Z_BUF_ERROR)
            u->wrong = "what gzip has packed is cut short";
        else if (code != Z_OK)
            u->wrong = "what gzip has packed is damaged";
    }
    return done;
}

/* ---- zstd ---- */

static bool begins_frame(const uint8_t *bytes, size_t count) {
    return count > 3 && bytes[0] == 0x28 && bytes[1] == 0xb5 && bytes[2] == 0x2f && bytes[3] == 0xfd;
}

static bool open_frames(struct unpacking *u) {
    u->frames = ZSTD_createDStream();
    return u->frames;
}

static void close_frames(struct unpacking *u) { ZSTD_freeDStream(u->frames); }

static size_t unpack_frames(struct unpacking *u, void *out, size_t room) {
    ZSTD_outBuffer to = {out, room, 0};
    while (to.pos < room && !u->ended && !u->wrong) {
        const size_t before = to.pos;
        ZSTD_inBuffer from = {u->rest, u->left, 0};
        const size_t more = ZSTD_decompressStream(u->frames, &to, &from);
        u->rest += from.pos;
        u->left -= from.pos;
        if (ZSTD_isError(more))
            u->wrong = ZSTD_getErrorCode(more) == ZSTD_error_frameParameter_windowTooLarge
                           ? "zstd has packed it with a window of more than 128 MB: unpack it on the disk"
                       : ZSTD_getErrorCode(more) == ZSTD_error_prefix_unknown
                           ? "something else comes after what zstd has packed"
                           : "what zstd has packed is damaged";
        else if (!u->left && !more)
            u->ended = true;
        else if (!u->left && to.pos == before && from.pos == 0)
            u->wrong = "what zstd has packed is cut short";
    }
    return to.pos;
}

/* ---- both ---- */

static const struct packing packings[] = {
    {begins_member, open_members, unpack_members, close_members},
    {begins_frame, open_frames, unpack_frames, close_frames},
};

static const struct packing *packing_of(const struct sl_contents *contents) {
    for (size_t i = 0; i < sizeof packings / sizeof *packings; i++)
        if (packings[i].begins(contents->bytes, contents->count)) return &packings[i];
    return NULL;
}

bool sl_contents_are_packed(const struct sl_contents *contents) { return packing_of(contents); }

static bool begin(struct unpacking *u, const struct sl_contents *packed) {
    *u = (struct unpacking){.packing = packing_of(packed), .rest = packed->bytes, .left = packed->count};
    return u->packing->open(u);
}

/* Doubles TEXT's memory, up to MOST bytes and one more, which shows that there are too many. */
static bool grow(struct sl_contents *text, size_t *room, size_t most) {
    enum { LEAST = 1 << 16 };
    size_t wanted = *room ? *room > most / 2 ? most : 2 * *room : LEAST;
    if (wanted >= most) wanted = most + 1;
    void *grown = *room ? mremap(text->bytes, *room, wanted, MREMAP_MAYMOVE)
                        : mmap(NULL, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (grown == MAP_FAILED) return false;
    text->bytes = grown;
    *room = wanted;
    return true;
}

/* Shrinks TEXT's memory from ROOM bytes to its size. */
static void shrink(struct sl_contents *text, size_t room) {
    void *copy = text->count <= SL_MOST_COPIED ? malloc(text->count + 1) : NULL;
    if (copy) {
        memcpy(copy, text->bytes, text->count);
        munmap(text->bytes, room);
        *text = (struct sl_contents){copy, text->count, false};
        return;
    }
    void *shrunk = mremap(text->bytes, room, text->count, 0);
    if (shrunk != MAP_FAILED) text->bytes = shrunk;
}

static int unpack(struct unpacking *u, struct sl_contents *text, const char *path, size_t most,
                  struct sl_error *error) {
    size_t room = 0;
    while (text->count == room && !u->ended && !u->wrong && room <= most) {
        if (!grow(text, &room, most)) {
            if (room) munmap(text->bytes, room);
            return no_memory(path, error);
        }
        text->mapped = true;
        text->count += u->packing->some(u, (char *)text->bytes + text->count, room - text->count);
    }
    if (!u->wrong && text->count <= most) {
        shrink(text, room);
        return SL_OK;
    }
    munmap(text->bytes, room);
    if (u->wrong) return sl_error_set(error, SL_BAD_INPUT, "%s: %s", path, u->wrong);
    return sl_error_set(
        error, SL_BAD_INPUT,
        "%s: more than %.0f MB when unpacked, which is all that there is room for: unpack it on the disk", path,
        (double)most / 1e6);
}

int sl_contents_unpack(struct sl_contents *contents, const char *path, size_t most, struct sl_error *error) {
    struct unpacking unpacking;
    struct sl_contents text = {0};
    if (!begin(&unpacking, contents)) return no_memory(path, error);
    const int status = unpack(&unpacking, &text, path, most, error);
    unpacking.packing->close(&unpacking);
    if (status != SL_OK) return status;
    sl_contents_close(contents);
    *contents = text;
    return SL_OK;
}

/* ---- texts and others ---- */

bool sl_contents_are_binary(const struct sl_contents *contents) {
    char head[HEAD];
    struct unpacking unpacking;
    if (contents->count == 0) return false;
    if (!sl_contents_are_packed(contents))
        return memchr(contents->bytes, 0, contents->count < HEAD ? contents->count : HEAD);
    if (!begin(&unpacking, contents)) return false;
    const size_t count = unpacking.packing->some(&unpacking, head, sizeof head);
    unpacking.packing->close(&unpacking);
    return memchr(head, 0, count);
}

/* ---- kinds of files ---- */

size_t sl_contents_mark(const struct sl_contents *contents) {
    return contents->count >= 3 && !memcmp(contents->bytes, "\xef\xbb\xbf", 3) ? 3 : 0;
}

static bool ends_with(const char *path, const char *suffix) {
    const size_t count = strlen(path), tail = strlen(suffix);
    return count > tail && !strcasecmp(path + count - tail, suffix);
}

bool sl_contents_are_lines(const char *path) {
    static const char *const packed[] = {".gz", ".zst", ".zstd"}, *const lines[] = {".jsonl", ".ndjson"};
    char name[16] = ""; /* the end of PATH, without a suffix of packing */
    size_t count = strlen(path);
    for (int i = 0; i < 3; i++)
        if (ends_with(path, packed[i])) {
            count -= strlen(packed[i]);
            break;
        }
    const size_t shown = count < sizeof name - 1 ? count : sizeof name - 1;
    memcpy(name, path + count - shown, shown);
    return ends_with(name, lines[0]) || ends_with(name, lines[1]);
}

const char *sl_contents_kind(const struct sl_contents *contents, const char *path) {
    static const struct {
        const char *bytes;
        size_t count;
        const char *suffix, *kind;
    } kinds[] = {
        {"PAR1", 4, ".parquet", "a Parquet file"},
        {"\x93NUMPY", 6, ".npy", "an array of NumPy's"},
        {"PK\3\4", 4, ".zip", "a zip archive"},
        {"PK\3\4", 4, ".npz", "a zip archive"},
        {"\x80\2", 2, ".pkl", "a pickle of Python's"},
        {"\x80\3", 2, ".pickle", "a pickle of Python's"},
        {"\x80\4", 2, ".pt", "a pickle of Python's"},
        {"\x80\5", 2, ".pkl", "a pickle of Python's"},
        {"ARROW1", 6, ".arrow", "an Arrow file"},
        {"\x89HDF", 4, ".h5", "an HDF5 file"},
        {"\xfd"
         "7zXZ",
         5, ".xz", "a file that xz has packed"},
        {"BZh", 3, ".bz2", "a file that bzip2 has packed"},
        {"GGUF", 4, ".gguf", "a GGUF file"},
        {"%PDF", 4, ".pdf", "a PDF file"},
        {"{\"", 2, ".json", "JSON"},
        {"[{", 2, ".json", "JSON"},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if ((contents->count >= kinds[i].count && !memcmp(contents->bytes, kinds[i].bytes, kinds[i].count)) ||
            ends_with(path, kinds[i].suffix))
            return kinds[i].kind;
    if (sl_contents_are_lines(path)) return "JSON";
    if (ends_with(path, ".bin") && contents->count % 2 == 0 && sl_contents_are_binary(contents))
        return "tokens of 16 bits without a header, which --data-format uint16 reads";
    return NULL;
}
