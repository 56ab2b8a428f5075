/* test_complexity_foreign.c - files as others write them are read in a time that grows as they do: GGUF files, whole
 * and in parts, adapters of PEFT's, packed texts, tokens without a header, tokenizers with many added tokens. */
#include "tests/rigs/complexity.h"
#include "tests/rigs/folder.h"
#include "tests/rigs/gguf_file.h"

#include <jansson.h>
#include <unistd.h>
#include <zstd.h>

#include "drivers/tools/text/documents.h"
#include "layers/models/peft/peft.h"
#include "layers/models/published/published_internal.h"
#include "layers/formats/quantized/quantized.h"
#include "layers/formats/stores/safetensors.h"
#include "layers/formats/tokens/token_format.h"
#include "layers/formats/tokens/tokens.h"
#include "layers/formats/models/weights.h"
#include "layers/formats/tokenizers/tokenizer.h"

static char folder[FOLDER], path[FOLDER + 40];

static void name_file(const char *name) { snprintf(path, sizeof path, "%s/%s", folder, name); }

static void write_file(const char *name, const void *bytes, size_t count) {
    name_file(name);
    FILE *stream = fopen(path, "wb");
    assert_non_null(stream);
    assert_int_equal(fwrite(bytes, 1, count, stream), count);
    assert_int_equal(fclose(stream), 0);
}

/* ---- GGUF ---- */

enum { BYTES = 32 /* of a tensor's data */ };

static void prepare_gguf(const struct complexity_row *row, int n) {
    (void)row;
    put_head((uint64_t)n, 1);
    put_string("general.architecture", "llama");
    for (int i = 0; i < n; i++) {
        char name[24];
        snprintf(name, sizeof name, "t.%d", i * 7919 % n);
        put_tensor(name, 1, 8, 0, (uint64_t)i * BYTES);
    }
    align();
    for (int i = 0; i < n * BYTES / 8; i++) put_number(0, 8);
    write_file("model.gguf", file.bytes, file.count);
}

static void name_part(int number, int count, char name[40]) {
    snprintf(name, 40, "model-%05d-of-%05d.gguf", number + 1, count);
}

static void prepare_split(const struct complexity_row *row, int n) {
    char name[40];
    (void)row;
    for (int i = n - 1; i >= 0; i--) { /* the first is named last */
        put_head(1, 3);
        put_string("general.architecture", "llama");
        put_integer("split.no", (uint32_t)i);
        put_integer("split.count", (uint32_t)n);
        snprintf(name, sizeof name, "t.%d", i);
        put_tensor(name, 1, 8, 0, 0);
        align();
        for (int b = 0; b < BYTES / 8; b++) put_number(0, 8);
        name_part(i, n, name);
        write_file(name, file.bytes, file.count);
    }
}

/* A tensor of N blocks, of the type that is the row's argument. */
static void prepare_blocks(const struct complexity_row *row, int n) {
    const struct sl_quantized *type = &sl_quantized_types[row->argument];
    put_head(1, 1);
    put_string("general.architecture", "llama");
    put_tensor("t", (uint64_t)n, type->elements, type->number, 0);
    align();
    for (size_t i = 0; i < (size_t)n * type->bytes; i++) put_number(i * 7919 % 251, 1);
    write_file("model.gguf", file.bytes, file.count);
}

static void read_weights(const struct complexity_row *row, int n) {
    struct sl_weights weights = {0};
    struct sl_error error = {0};
    if (sl_weights_open(&weights, path, &error)) fail_msg("%s", error.message);
    assert_int_equal(weights.count, row->prepare == prepare_blocks ? 1 : n);
    for (int i = 0; i < weights.count; i++) {
        const size_t all = sl_weight_elements(&weights.weight[i]);
        float values[SL_LARGEST_BLOCK];
        for (size_t first = 0; first < all; first += SL_LARGEST_BLOCK)
            sl_weight_read(&weights.weight[i], first, all - first < SL_LARGEST_BLOCK ? all - first : SL_LARGEST_BLOCK,
                           values);
    }
    sl_weights_close(&weights);
}

/* ---- adapters ---- */

/* Makes a model of N layers of the family; with an argument, also a tensor that no layer reads. */
static void prepare_adapters(const struct complexity_row *row, int n) {
    static const char config[] = "{\"peft_type\": \"LORA\", \"r\": 1, \"lora_alpha\": 1}";
    const struct sl_published_family *family = sl_published_find_family(row->about);
    struct sl_peft peft = {.rank = 1, .alpha = 1};
    const struct sl_transformer transformer = {.blocks = n};
    struct sl_store tensors = {0};
    const size_t one[] = {1, 1};
    for (int layer = 0; layer < n; layer++)
        for (int s = 0; s < 6; s++) {
            char name[96];
            snprintf(name, sizeof name, "blocks.%d.layers.0.gqa.%c.lora_%c.kernel", layer, "qkv"[s / 2], "ab"[s % 2]);
            struct sl_tensor *tensor = sl_store_add(&peft.values, name, SL_F32, 2, one);
            assert_non_null(tensor);
            *(float *)tensor->array.data = 1;
        }
    assert_int_equal(sl_peft_write(&peft, folder, family, &transformer, NULL, NULL), SL_OK);
    sl_peft_free(&peft);
    write_file("adapter_config.json", config, strlen(config));
    name_file("adapter_model.safetensors");
    if (!row->argument) return;
    assert_int_equal(sl_safetensors_read(&tensors, path, NULL), SL_OK);
    assert_non_null(sl_store_add(&tensors, "lm_head.lora_A.weight", SL_F32, 2, one));
    assert_int_equal(sl_safetensors_write(&tensors, path, NULL), SL_OK);
    sl_store_free(&tensors);
}

static void read_adapters(const struct complexity_row *row, int n) {
    const struct sl_transformer transformer = {.blocks = n};
    struct sl_peft peft;
    struct sl_error error = {0};
    const int status = sl_peft_read(&peft, folder, sl_published_find_family(row->about), &transformer, &error);
    assert_int_equal(status, row->argument ? SL_BAD_INPUT : SL_OK);
    assert_true(status || peft.values.count == 6 * n);
    sl_peft_free(&peft);
}

/* ---- texts and tokens ---- */

static void prepare_packed(const struct complexity_row *row, int n) {
    const size_t count = (size_t)n, room = ZSTD_compressBound(count);
    char *text = malloc(count), *packed = malloc(room);
    (void)row;
    assert_true(text && packed);
    for (int i = 0; i < n; i++) text[i] = (char)('a' + (i * 7919 >> 5) % 25);
    write_file("text", packed, ZSTD_compress(packed, room, text, count, 1));
    free(text);
    free(packed);
}

static void prepare_raw(const struct complexity_row *row, int n) {
    char *tokens = calloc((size_t)n, (size_t)row->argument);
    assert_non_null(tokens);
    write_file("tokens.bin", tokens, (size_t)n * (size_t)row->argument);
    free(tokens);
}

static void read_tokens(const struct complexity_row *row, int n) {
    const struct sl_token_format *format = row->argument ? sl_token_format_raw((size_t)row->argument) : NULL;
    struct sl_tokens tokens;
    struct sl_error error = {0};
    int32_t inputs[8], labels[8];
    if (sl_tokens_open(&tokens, path, format, 0, 8, &error)) fail_msg("%s", error.message);
    for (int i = 0; i < n / 64; i++)
        assert_int_equal(sl_tokens_fetch(&tokens, false, 1, i, 1, 8, inputs, labels, &error), SL_OK);
    sl_tokens_close(&tokens);
}

static char *lines;

static void prepare_lines(const struct complexity_row *row, int n) {
    const size_t each = strlen(row->about);
    lines = realloc(lines, (size_t)n * each);
    assert_non_null(lines);
    for (size_t i = 0; i < (size_t)n; i++) memcpy(lines + i * each, row->about, each);
}

static void read_lines(const struct complexity_row *row, int n) {
    struct sl_token_file text = {.path = "a.NDJSON",
                                 .contents = {.bytes = (void *)lines, .count = (size_t)n * strlen(row->about)}};
    struct sl_document_lines of = {.file = &text};
    struct sl_document document;
    int count = 0;
    while (sl_document_next(&of, &document)) {
        const char *found;
        char *owned;
        size_t bytes;
        if (sl_document_text(&document, "text", &found, &bytes, &owned, NULL) == SL_OK) count++;
        free(owned);
    }
    assert_int_equal(count, row->argument ? 0 : n);
}

/* ---- added tokens ---- */

static struct sl_tokenizer *tokenizer;
static struct sl_encoder *encoder;
static struct sl_token_list list;

/* So many that are no special ones. */
static void add_tokens(const char *name, int n) {
    json_t *whole = json_load_file(SL_TEST_DATA "/tokenizers/gpt2.json", 0, NULL);
    json_t *added = json_object_get(whole, "added_tokens");
    assert_non_null(added);
    assert_int_equal(sl_tokenizer_open(&tokenizer, SL_TEST_DATA "/tokenizers/gpt2.json", NULL, NULL), SL_OK);
    for (int i = 0; i < n; i++) {
        char content[16];
        snprintf(content, sizeof content, "<t%d>", i);
        json_array_append_new(added, json_pack("{si ss sb sb sb sb sb}", "id", sl_tokenizer_vocabulary(tokenizer) + i,
                                               "content", content, "special", 0, "single_word", 0, "lstrip", 0,
                                               "rstrip", 0, "normalized", 0));
    }
    sl_tokenizer_close(tokenizer);
    tokenizer = NULL;
    name_file(name);
    assert_int_equal(json_dump_file(whole, path, 0), 0);
    json_decref(whole);
}

static void prepare_added(const struct complexity_row *row, int n) {
    (void)row;
    add_tokens("tokenizer.json", n);
}

static void open_tokenizer(const struct complexity_row *row, int n) {
    struct sl_error error = {0};
    (void)row, (void)n;
    if (sl_tokenizer_open(&tokenizer, path, NULL, &error)) fail_msg("%s", error.message);
    sl_tokenizer_close(tokenizer);
    tokenizer = NULL;
}

static void prepare_text(const struct complexity_row *row, int n) {
    const size_t each = strlen(row->about);
    struct sl_error error = {0};
    sl_encoder_close(encoder);
    sl_tokenizer_close(tokenizer);
    add_tokens("tokenizer.json", 100);
    if (row->argument) snprintf(path, sizeof path, SL_TEST_DATA "/tokenizers/pieces.json");
    if (sl_tokenizer_open(&tokenizer, path, NULL, &error)) fail_msg("%s", error.message);
    assert_int_equal(sl_encoder_open(&encoder, tokenizer, NULL), SL_OK);
    lines = realloc(lines, (size_t)n);
    assert_non_null(lines);
    for (size_t i = 0; i < (size_t)n; i++) lines[i] = ((const char *)row->about)[i % each];
}

/* Lines become tokens, with special ones among them, and text again. */
static void encode(const struct complexity_row *row, int n) {
    char *back;
    size_t bytes;
    (void)row;
    for (int how = 0; how <= SL_ENCODE_SPECIAL; how++) {
        list.count = 0;
        assert_int_equal(sl_encode(encoder, lines, (size_t)n, how, &list, NULL), SL_OK);
    }
    assert_int_equal(sl_decode(tokenizer, list.token, list.count, &back, &bytes, NULL), SL_OK);
    free(back);
}

static struct complexity_row rows[] = {
    {"GGUF: tensors", 40, prepare_gguf, read_weights, NULL, 0},
    {"GGUF: parts", 32, prepare_split, read_weights, NULL, 0},
    {"PEFT: layers", 64, prepare_adapters, read_adapters, "llama", 0},
    {"PEFT: layers whose q, k and v have one adapter", 64, prepare_adapters, read_adapters, "gpt2", 0},
    {"PEFT: layers, and a tensor that is refused", 64, prepare_adapters, read_adapters, "gpt2", 1},
    {"tokens: bytes that zstd has packed", 1 << 18, prepare_packed, read_tokens, NULL, 0},
    {"tokens: of 16 bits without a header", 1 << 16, prepare_raw, read_tokens, NULL, 2},
    {"tokens: of 32 bits without a header", 1 << 16, prepare_raw, read_tokens, NULL, 4},
    {"documents: lines", 1000, prepare_lines, read_lines, "{\"text\": \"a\"}\r\n", 0},
    {"documents: lines of an object that is pretty", 1000, prepare_lines, read_lines, "  \"text\": [\n", 1},
    {"a tokenizer: added tokens", 500, prepare_added, open_tokenizer, NULL, 0},
    {"added tokens that are no special ones", 1 << 14, prepare_text, encode, "a<t7> <|endoftext|>b", 0},
    {"beginnings of added tokens", 1 << 14, prepare_text, encode, "<t<t1", 0},
    {"pieces behind special tokens", 1 << 14, prepare_text, encode, "<s>Hello world", 1},
};

/* Blocks of each type, as the file has room for. */
static int add_blocks(struct complexity_row *all) {
    int count = 0;
    for (; sl_quantized_types[count].name; count++) {
        const struct sl_quantized *type = &sl_quantized_types[count];
        all[count] = (struct complexity_row){.n = (int)(sizeof file.bytes / 17 / type->bytes),
                                             .prepare = prepare_blocks,
                                             .run = read_weights,
                                             .argument = count};
        snprintf(all[count].name, sizeof all->name, "GGUF: blocks of %s", type->name);
    }
    return count;
}

int main(void) {
    enum { ROWS = sizeof rows / sizeof *rows };
    struct complexity_row all[ROWS + 32];
    memcpy(all, rows, sizeof rows);
    if (!make_folder(folder, "test_complexity_foreign")) return 1;
    const int failed = complexity_run("foreign", all, ROWS + add_blocks(all + ROWS));
    static const char *const written[] = {"model.gguf", "adapter_config.json", "adapter_model.safetensors",
                                          "text",       "tokens.bin",          "tokenizer.json"};
    for (size_t i = 0; i < sizeof written / sizeof *written; i++) name_file(written[i]), unlink(path);
    for (int n = 32; n <= 512; n *= 2)
        for (int i = 0; i < n; i++) {
            char name[40];
            name_part(i, n, name);
            name_file(name);
            unlink(path);
        }
    rmdir(folder);
    sl_encoder_close(encoder);
    sl_tokenizer_close(tokenizer);
    sl_token_list_free(&list);
    free(lines);
    return failed;
}
