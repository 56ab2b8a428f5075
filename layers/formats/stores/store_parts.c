/* store_parts.c - writes and reads the index of a store in several files. */
#include "layers/formats/stores/store_parts.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "layers/formats/files/contents.h"
#include "layers/formats/stores/safetensors.h"
#include "spmd/base/hash.h"

static const char version_key[] = "shardloop.index", version[] = "1", end[] = ".json";
/* The first line: 16 digits between these two texts. */
static const char before_checksum[] = "{\"shardloop.xxh3\":\"", after_checksum[] = "\",\n";
enum { FIRST_LINE = sizeof before_checksum - 1 + SL_HASH_DIGITS + sizeof after_checksum - 1 };

bool sl_parts_is_index(const char *path) {
    const size_t length = strlen(path), last = sizeof end - 1;
    return length > last && !strcmp(path + length - last, end);
}

static const char *file_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* ---- writing ---- */

/* JSON, or NULL if it is not VALID: memory was short, or a text is not UTF-8. */
static json_t *whole(json_t *json, bool valid) {
    if (valid) return json;
    json_decref(json);
    return NULL;
}

static bool append(json_t *array, size_t number) {
    return !json_array_append_new(array, json_integer((json_int_t)number));
}

static json_t *describe_dim(const struct sl_shard_dim *dim) {
    json_t *numbers = json_array();
    const bool valid = append(numbers, dim->local / dim->piece) && append(numbers, dim->segment) &&
                       append(numbers, dim->start) && append(numbers, dim->piece);
    return whole(numbers, valid);
}

static json_t *describe_piece(const struct sl_tensor_piece *piece, size_t elements) {
    const struct sl_shard *shard = &piece->shard;
    json_t *list = json_array();
    bool valid = append(list, (size_t)piece->part + 1) && append(list, piece->first) && append(list, piece->count);
    for (int d = 0; d < shard->dims && sl_shard_elements(shard) < elements && valid; d++)
        valid = !json_array_append_new(list, describe_dim(&shard->dim[d]));
    return whole(list, valid);
}

static json_t *describe_tensor(const struct sl_tensor *tensor) {
    json_t *shape = json_array(), *pieces = json_array(), *object = json_object();
    bool valid = true;
    for (int d = 0; d < tensor->array.dims && valid; d++) valid = append(shape, tensor->array.shape[d]);
    for (int i = 0; i < tensor->pieces && valid; i++)
        valid = !json_array_append_new(pieces, describe_piece(&tensor->piece[i], sl_array_elements(&tensor->array)));
    valid = !json_object_set_new(object, "shape", shape) && valid;
    valid = !json_object_set_new(object, "pieces", pieces) && valid;
    return whole(object, valid);
}

static json_t *describe_part(const struct sl_part *part) {
    char root[SL_HASH_DIGITS + 1];
    json_t *pair = json_array();
    const bool valid = !json_array_append_new(pair, json_string(file_of(part->path))) &&
                       !json_array_append_new(pair, json_string(sl_hash_print(part->root, root)));
    return whole(pair, valid);
}

/* The index without its checksum. */
static json_t *describe(const struct sl_store *store, int parts, const struct sl_part *part) {
    json_t *notes = json_object(), *files = json_array(), *tensors = json_object(), *index = json_object();
    bool valid = !json_object_set_new(index, version_key, json_string(version));
    for (int i = 0; i < store->notes && valid; i++)
        valid = !json_object_set_new(notes, store->note[i].key, json_string(store->note[i].text));
    for (int i = 0; i < parts && valid; i++) valid = !json_array_append_new(files, describe_part(&part[i]));
    for (int i = 0; i < store->count && valid; i++)
        valid = !json_object_set_new(tensors, store->tensor[i].name, describe_tensor(&store->tensor[i]));
    valid = !json_object_set_new(index, "notes", notes) && valid;
    valid = !json_object_set_new(index, "parts", files) && valid;
    valid = !json_object_set_new(index, "tensors", tensors) && valid;
    return whole(index, valid);
}

/* Both lines, of *LENGTH bytes; the caller frees them. Uses json_dumpb, which has no buffer of its own: json_dumps of
 * jansson 2.14 drops a part of a key if its buffer cannot grow. */
static char *print(json_t *index, size_t *length) {
    const size_t rest = index ? json_dumpb(index, NULL, 0, JSON_COMPACT) : 0;
    char *text = rest ? malloc(FIRST_LINE + rest) : NULL, digits[SL_HASH_DIGITS + 1];
    /* The second line continues after the brace, which is in the first line, and ends with a newline. */
    const bool whole = text && json_dumpb(index, text + FIRST_LINE - 1, rest, JSON_COMPACT) == rest;
    json_decref(index);
    if (!whole) {
        free(text);
        return NULL;
    }
    text[FIRST_LINE + rest - 1] = '\n';
    sl_hash_print(sl_hash(text + FIRST_LINE, rest), digits);
    memcpy(text, before_checksum, sizeof before_checksum - 1);
    memcpy(text + sizeof before_checksum - 1, digits, SL_HASH_DIGITS);
    memcpy(text + FIRST_LINE - (sizeof after_checksum - 1), after_checksum, sizeof after_checksum - 1);
    *length = FIRST_LINE + rest;
    return text;
}

int sl_parts_write_index(const struct sl_store *store, int parts, const struct sl_part *part, const char *path,
                         struct sl_error *error) {
    struct sl_draft draft = {0};
    size_t length = 0;
    char *text = print(describe(store, parts, part), &length);
    if (!text) return sl_error_set(error, SL_FAILED, "%s: no memory for the index, or a name is not UTF-8", path);
    int status = sl_draft_open(&draft, path, SL_LINKS_REPLACED, error);
    if (status == SL_OK) status = sl_draft_finish(&draft, sl_draft_write(&draft, text, length), error);
    free(text);
    return status;
}

/* ---- reading ---- */

/* An index being read. */
struct source {
    const char *path;
    struct sl_contents contents;
    json_t *index;
    struct sl_store *store;
    int pieces; /* found so far */
    bool cut;   /* whether files are incomplete */
    struct sl_error *error;
};

#define REFUSE(source, format, ...)                                                                                    \
    sl_error_set((source)->error, SL_BAD_INPUT, "%s: " format, (source)->path, __VA_ARGS__)

static int no_memory(const struct source *source) {
    return sl_error_set(source->error, SL_FAILED, "%s: no memory to read it", source->path);
}

/* Parses the bytes as JSON, and checks their checksum. */
static int parse(struct source *source) {
    const char *text = source->contents.bytes;
    const size_t length = source->contents.count;
    char is[SL_HASH_DIGITS + 1];
    json_error_t reason = {0};
    source->cut = length == 0 || text[length - 1] != '\n';
    source->index = length ? json_loadb(text, length, JSON_REJECT_DUPLICATES, &reason) : NULL;
    if (!source->index && length) source->cut |= json_error_code(&reason) == json_error_premature_end_of_input;
    if (source->cut) return REFUSE(source, "cut short after %zu bytes", length);
    if (!source->index) return REFUSE(source, "not JSON: %s", reason.text);
    const char *was = json_string_value(json_object_get(source->index, "shardloop.xxh3"));
    if (!was || length < FIRST_LINE || strlen(was) != SL_HASH_DIGITS ||
        memcmp(text, before_checksum, sizeof before_checksum - 1) != 0)
        return REFUSE(source, "no index of a checkpoint: it does not begin with its checksum, shardloop.xxh3%s", "");
    sl_hash_print(sl_hash(text + FIRST_LINE, length - FIRST_LINE), is);
    if (memcmp(text + sizeof before_checksum - 1, is, SL_HASH_DIGITS) != 0 ||
        memcmp(text + FIRST_LINE - (sizeof after_checksum - 1), after_checksum, sizeof after_checksum - 1) != 0)
        return REFUSE(source, "damaged: its checksum is %s, the file says %.20s", is, was);
    const char *found = json_string_value(json_object_get(source->index, version_key));
    if (found && !strcmp(found, version)) return SL_OK;
    return REFUSE(source, "an index of version %.20s, not %s", found ? found : "(none)", version);
}

static int read_notes(struct source *source) {
    const json_t *notes = json_object_get(source->index, "notes");
    const char *key;
    json_t *text;
    if (!json_is_object(notes)) return REFUSE(source, "its notes are no object%s", "");
    json_object_foreach((json_t *)(uintptr_t)notes, key, text) {
        if (!json_is_string(text)) return REFUSE(source, "the note %.80s is no text", key);
        if (sl_store_set_note(source->store, key, json_string_value(text))) return no_memory(source);
    }
    return SL_OK;
}

/* Opens part NUMBER, from 0, and checks that it matches the index. */
static int open_part(struct source *source, int number, const json_t *value) {
    const char *file = json_string_value(json_array_get(value, 0)), *root = json_string_value(json_array_get(value, 1));
    struct sl_store *part = &source->store->part[number];
    char path[SL_MAX_PATH], is[SL_HASH_DIGITS + 1];
    const int folder = (int)(file_of(source->path) - source->path);
    if (!file || !root || json_array_size(value) != 2) return REFUSE(source, "part %d is not [FILE, ROOT]", number + 1);
    if (!*file || strchr(file, '/') || sl_parts_is_index(file))
        return REFUSE(source, "part %d, %.80s, is no file beside the index", number + 1, file);
    if (snprintf(path, sizeof path, "%.*s%s", folder, source->path, file) >= (int)sizeof path)
        return REFUSE(source, "part %d: the path is too long", number + 1);
    if (sl_safetensors_map(part, path, source->error)) {
        const struct sl_error reason = source->error ? *source->error : (struct sl_error){.status = SL_BAD_INPUT};
        source->cut = access(path, F_OK) != 0 || sl_safetensors_is_cut(path, NULL);
        return sl_error_set(source->error, reason.status, "part %d of %s: %s", number + 1, source->path,
                            reason.message);
    }
    if (part->checksums && !strcmp(sl_hash_print(part->root, is), root)) return SL_OK;
    return REFUSE(source, "part %d, %.80s, is another one than the index means: its root is %s, the index says %.20s",
                  number + 1, file, part->checksums ? is : "missing", root);
}

static int open_parts(struct source *source) {
    const json_t *parts = json_object_get(source->index, "parts");
    const size_t count = json_array_size(parts); /* 0 if it is not an array */
    if (count == 0 || count > SL_MOST_COORDINATES)
        return REFUSE(source, "its parts are no list of 1 to %d", SL_MOST_COORDINATES);
    source->store->part = calloc(count, sizeof *source->store->part);
    if (!source->store->part) return no_memory(source);
    for (size_t i = 0; i < count; i++) {
        source->store->parts++;
        SL_TRY(open_part(source, (int)i, json_array_get(parts, i)));
    }
    return SL_OK;
}

/* Reads number I of a JSON array; false if there is none. */
static bool number_at(const json_t *array, size_t i, size_t *number) {
    const json_t *value = json_array_get(array, i);
    if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
    *number = (size_t)json_integer_value(value);
    return true;
}

/* Reads the dims of a piece, without checking whether they fit (sl_piece_is_possible); false if they are malformed. */
static bool read_shard(const json_t *piece, size_t elements, struct sl_shard *shard) {
    const size_t dims = json_array_size(piece) - 3;
    *shard = (struct sl_shard){.dims = (int)dims};
    if (dims > SL_MAX_DIMS) return false;
    if (dims == 0) *shard = (struct sl_shard){1, {{elements, elements, elements, 0, 1}}};
    size_t stride = 1;
    for (size_t d = dims; d-- > 0;) {
        struct sl_shard_dim *dim = &shard->dim[d];
        const json_t *numbers = json_array_get(piece, 3 + d);
        size_t segments, extent;
        if (json_array_size(numbers) != 4 || !number_at(numbers, 0, &segments) || segments == 0 ||
            !number_at(numbers, 1, &dim->segment) || !number_at(numbers, 2, &dim->start) ||
            !number_at(numbers, 3, &dim->piece) || __builtin_mul_overflow(segments, dim->piece, &dim->local) ||
            __builtin_mul_overflow(segments, dim->segment, &extent))
            return false;
        dim->stride = stride;
        if (__builtin_mul_overflow(stride, extent, &stride)) return false;
    }
    return true;
}

static int read_piece(struct source *source, struct sl_tensor *tensor, const json_t *value) {
    struct sl_tensor_piece piece = {0};
    size_t part = 0;
    const size_t elements = sl_array_elements(&tensor->array);
    const int last = tensor->pieces ? tensor->piece[tensor->pieces - 1].part : -1;
    if (json_array_size(value) < 3 || !number_at(value, 0, &part) || !number_at(value, 1, &piece.first) ||
        !number_at(value, 2, &piece.count) || !read_shard(value, elements, &piece.shard) ||
        !sl_piece_is_possible(&piece, elements))
        return REFUSE(source, "tensor %s: piece %d is none of its %zu elements", tensor->name, tensor->pieces + 1,
                      elements);
    piece.part = (int)part - 1;
    if (part > (size_t)source->store->parts || piece.part <= last)
        return REFUSE(source, "tensor %s: piece %d is of part %zu: of parts from %d to %d, in this order", tensor->name,
                      tensor->pieces + 1, part, last + 2, source->store->parts);
    const struct sl_tensor *there = sl_store_find(&source->store->part[piece.part], tensor->name);
    if (!there || there->array.dtype != SL_F32 || there->array.dims != 1 || there->array.shape[0] != piece.count)
        return REFUSE(source, "tensor %s: part %zu does not have its %zu elements", tensor->name, part, piece.count);
    piece.data = there->array.data;
    source->pieces++;
    return sl_pieces_add(tensor, &piece) ? no_memory(source) : SL_OK;
}

/* Checks that the pieces have each element of TENSOR once. */
static int check_pieces(const struct source *source, const struct sl_tensor *tensor) {
    const size_t elements = sl_array_elements(&tensor->array);
    size_t sum = 0;
    for (int i = 0; i < tensor->pieces; i++) sum += tensor->piece[i].count; /* no overflow: they lie in files */
    if (sum != elements)
        return REFUSE(source, "tensor %s has %zu elements, and its pieces have %zu", tensor->name, elements, sum);
    const size_t missing = sl_pieces_missing(tensor);
    if (missing == elements) return SL_OK;
    return REFUSE(source, "tensor %s: its pieces overlap, and none has element %zu", tensor->name, missing);
}

static int read_tensor(struct source *source, const char *name, const json_t *value) {
    const json_t *shape = json_object_get(value, "shape"), *pieces = json_object_get(value, "pieces");
    size_t sizes[SL_MAX_DIMS], bytes;
    const size_t dims = json_array_size(shape);
    bool valid = json_is_array(shape) && dims <= SL_MAX_DIMS && json_is_array(pieces);
    for (size_t d = 0; valid && d < dims; d++) valid = number_at(shape, d, &sizes[d]);
    if (!valid || strlen(name) >= sizeof((struct sl_tensor){0}).name ||
        !sl_array_bytes(SL_F32, (int)dims, sizes, &bytes))
        return REFUSE(source, "tensor %.100s: its name is too long, or it has no shape and pieces", name);
    struct sl_tensor *tensor = sl_store_declare(source->store, name, SL_F32, (int)dims, sizes);
    if (!tensor) return no_memory(source);
    for (size_t i = 0; i < json_array_size(pieces); i++) SL_TRY(read_piece(source, tensor, json_array_get(pieces, i)));
    return check_pieces(source, tensor);
}

static int read_tensors(struct source *source) {
    const json_t *tensors = json_object_get(source->index, "tensors");
    const char *name;
    json_t *value;
    int there = 0;
    if (!json_is_object(tensors)) return REFUSE(source, "its tensors are no object%s", "");
    json_object_foreach((json_t *)(uintptr_t)tensors, name, value) SL_TRY(read_tensor(source, name, value));
    for (int i = 0; i < source->store->parts; i++) there += source->store->part[i].count;
    if (there == source->pieces) return SL_OK;
    return REFUSE(source, "its parts have %d tensors, and it names %d of them", there, source->pieces);
}

static int read_source(struct source *source) {
    SL_TRY(sl_contents_open(&source->contents, source->path, source->error));
    SL_TRY(parse(source));
    source->store->path = strdup(source->path);
    if (!source->store->path) return no_memory(source);
    SL_TRY(read_notes(source));
    SL_TRY(open_parts(source));
    SL_TRY(read_tensors(source));
    source->store->checksums = true;
    sl_store_sort(source->store);
    return SL_OK;
}

static int read_index(struct sl_store *store, const char *path, bool *cut, struct sl_error *error) {
    struct sl_store read = {0};
    struct source source = {.path = path, .store = &read, .error = error};
    const int status = read_source(&source);
    json_decref(source.index);
    sl_contents_close(&source.contents);
    *cut = source.cut;
    sl_store_free(status == SL_OK ? store : &read);
    if (status == SL_OK) *store = read;
    return status;
}

int sl_parts_map(struct sl_store *store, const char *path, struct sl_error *error) {
    bool cut;
    return read_index(store, path, &cut, error);
}

bool sl_parts_are_cut(const char *path, struct sl_error *error) {
    struct sl_store store = {0};
    bool cut;
    read_index(&store, path, &cut, error);
    sl_store_free(&store);
    return cut;
}

/* ---- an index with other parts ---- */

/* Opens and parses the index alone. Close SOURCE's contents and index also after a failure. */
static int read_alone(struct source *source) {
    SL_TRY(sl_contents_open(&source->contents, source->path, source->error));
    return parse(source);
}

int sl_parts_count(const char *path, struct sl_store *notes) {
    struct source source = {.path = path, .store = notes};
    int status = read_alone(&source);
    if (status == SL_OK && notes) status = read_notes(&source);
    const size_t parts = status ? 0 : json_array_size(json_object_get(source.index, "parts"));
    json_decref(source.index);
    sl_contents_close(&source.contents);
    return parts <= SL_MOST_COORDINATES ? (int)parts : 0;
}

/* Replaces INDEX's parts and notes; false if memory is short. */
static bool renew(json_t *index, const struct sl_store *notes, int parts, const struct sl_part *part) {
    json_t *files = json_array(), *texts = json_object_get(index, "notes");
    bool valid = !json_object_del(index, "shardloop.xxh3");
    for (int i = 0; i < parts && valid; i++) valid = !json_array_append_new(files, describe_part(&part[i]));
    for (int i = 0; i < notes->notes && valid; i++)
        valid = !json_object_set_new(texts, notes->note[i].key, json_string(notes->note[i].text));
    return !json_object_set_new(index, "parts", files) && valid;
}

int sl_parts_renew_index(const char *from, const struct sl_store *notes, int parts, const struct sl_part *part,
                         const char *path, struct sl_error *error) {
    struct source source = {.path = from, .error = error};
    struct sl_draft draft = {0};
    size_t length = 0;
    char *text = NULL;
    int status = read_alone(&source);
    if (status == SL_OK && json_array_size(json_object_get(source.index, "parts")) != (size_t)parts)
        status = sl_error_set(error, SL_BAD_INPUT, "%s: its parts are not %d", from, parts);
    if (status == SL_OK && renew(source.index, notes, parts, part)) text = print(json_incref(source.index), &length);
    if (status == SL_OK && !text) status = sl_error_set(error, SL_FAILED, "%s: no memory for the index", path);
    if (status == SL_OK) status = sl_draft_open(&draft, path, SL_LINKS_REPLACED, error);
    if (status == SL_OK) status = sl_draft_finish(&draft, sl_draft_write(&draft, text, length), error);
    json_decref(source.index);
    sl_contents_close(&source.contents);
    free(text);
    return status;
}
