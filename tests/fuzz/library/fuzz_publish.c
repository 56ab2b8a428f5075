/* fuzz_publish.c - import of published files: any bytes as a GGUF file, whose tokenizer is written again, or as the
 * config.json of a folder. Written files are read again and must be the same.
 *
 * The first byte chooses between them. The model has no tensors. */
#include "layers/models/published/publish_files.h"
#include "layers/formats/models/gguf.h"
#include "tests/fuzz/fuzz.h"

static const struct sl_transformer transformer = {.vocabulary = 7,
                                                  .dimension = 8,
                                                  .heads = 2,
                                                  .blocks = 1,
                                                  .layers_per_block = 1,
                                                  .rope = 4,
                                                  .attention = SL_ATTENTION_GROUPED,
                                                  .rotary = {.base = 10000},
                                                  .mlp = SL_MLP_GATED_SILU,
                                                  .biases = SL_BIASES_NONE,
                                                  .positions = 4};

/* Makes a folder, in memory if possible. */
static const char *folder(void) {
    static char path[64];
    snprintf(path, sizeof path, "%s/fuzz_publish.XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    if (!mkdtemp(path)) abort();
    return path;
}

static struct sl_publishing publishing_of(struct sl_publication *publication) {
    const char *why = "";
    *publication =
        (struct sl_publication){.family = sl_published_family_of(&transformer, &why), .transformer = &transformer};
    FUZZ_PROMISE(publication->family, "%s", why);
    return (struct sl_publishing){
        .publication = publication, .type = SL_WEIGHT_F32, .most = 1 << 20, .context = 4, .begin = -1, .end = -1};
}

static bool is_of_tokenizer(const struct sl_gguf_value *value) {
    return value->key.count > 10 && !memcmp(value->key.bytes, "tokenizer.", 10);
}

/* The next value of a tokenizer's from *AT on; NULL: there is none. */
static const struct sl_gguf_value *next(const struct sl_gguf *gguf, int *at) {
    while (*at < gguf->count && !is_of_tokenizer(&gguf->value[*at])) ++*at;
    return *at < gguf->count ? &gguf->value[(*at)++] : NULL;
}

static void compare(const struct sl_gguf *given, const struct sl_gguf *written) {
    const struct sl_gguf_value *a, *b;
    int at = 0, other = 0;
    while ((a = next(given, &at))) {
        b = next(written, &other);
        FUZZ_PROMISE(b && a->key.count == b->key.count && !memcmp(a->key.bytes, b->key.bytes, a->key.count), "a key");
        FUZZ_PROMISE(a->type == b->type && a->count == b->count && a->array == b->array, "a type");
        FUZZ_PROMISE(sl_gguf_integer(a, -7) == sl_gguf_integer(b, -7), "a number");
        struct sl_gguf_cursor x = sl_gguf_begin(a), y = sl_gguf_begin(b);
        for (uint64_t i = 0; a->type == SL_GGUF_STRING && i < a->count; i++) {
            const struct sl_gguf_text one = sl_gguf_next_text(&x), two = sl_gguf_next_text(&y);
            FUZZ_PROMISE(one.count == two.count && !memcmp(one.bytes, two.bytes, one.count), "a text");
        }
    }
    FUZZ_PROMISE(!next(written, &other), "one more");
}

static void write_gguf(const uint8_t *data, size_t size) {
    const struct sl_contents contents = {.bytes = (void *)data, .count = size};
    struct sl_publication publication;
    struct sl_publishing publishing = publishing_of(&publication);
    struct sl_error error = {0};
    struct sl_gguf given = {0}, written = {0};
    const int status = sl_gguf_open(&given, &contents, "given", &error);
    if (status) {
        fuzz_refused(status, &error);
    } else {
        const char *place = folder();
        char path[96];
        struct sl_contents file = {0};
        publication.gguf = true;
        publishing.vocabulary = &given;
        snprintf(path, sizeof path, "%s/model.gguf", place);
        FUZZ_PROMISE(!sl_publish_gguf(&publishing, path, &error), "%s", error.message);
        FUZZ_PROMISE(!sl_contents_open(&file, path, &error), "%s", error.message);
        FUZZ_PROMISE(!sl_gguf_open(&written, &file, path, &error), "%s", error.message);
        compare(&given, &written);
        sl_gguf_close(&written);
        sl_contents_close(&file);
        unlink(path);
        rmdir(place);
    }
    sl_gguf_close(&given);
}

static void write_config(const uint8_t *data, size_t size) {
    struct sl_publication publication;
    struct sl_publishing publishing = publishing_of(&publication);
    json_t *given = json_loadb((const char *)data, size, JSON_ALLOW_NUL, NULL);
    if (!json_is_object(given)) {
        json_decref(given);
        return;
    }
    publishing.config = given;
    json_t *made = sl_publish_config(&publishing);
    const char *key;
    json_t *value;
    FUZZ_PROMISE(made, "memory");
    FUZZ_PROMISE(json_is_string(json_object_get(made, "torch_dtype")), "no type");
    json_object_foreach(given, key, value) FUZZ_PROMISE(!strcmp(key, "torch_dtype") || !strcmp(key, "dtype") ||
                                                            json_equal(value, json_object_get(made, key)),
                                                        "%s", key);
    json_decref(made);
    json_decref(given);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1) return 0;
    (data[0] % 2 ? write_config : write_gguf)(data + 1, size - 1);
    return 0;
}
