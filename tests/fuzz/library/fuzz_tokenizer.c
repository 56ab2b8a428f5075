/* fuzz_tokenizer.c - tokenizers of all formats: opened, a text encoded and decoded, and converted to GGUF metadata and
 * to a tokenizer.json that cannot be written.
 *
 * The first byte chooses the pattern of ranks; the second is the number of last bytes that are the text; the bytes
 * between are the file. */
#include "layers/formats/tokenizers/tokenizer.h"
#include "tests/fuzz/fuzz.h"

/* Encodes a text, which never fails. Decoding gives the same text if every byte has its token. */
static void encode(const struct sl_tokenizer *tokenizer, const char *text, size_t bytes) {
    struct sl_encoder *encoder;
    struct sl_token_list list = {0};
    char *back;
    size_t count, length;
    FUZZ_PROMISE(!sl_encoder_open(&encoder, tokenizer, NULL), "memory");
    FUZZ_PROMISE(!sl_encode(encoder, text, bytes, bytes % 2, &list, NULL), "memory");
    for (size_t i = 0; i < list.count; i++)
        FUZZ_PROMISE(sl_token_bytes(tokenizer, list.token[i], &length), "token %d", list.token[i]);
    FUZZ_PROMISE(!sl_decode(tokenizer, list.token, list.count, &back, &count, NULL), "memory");
    for (size_t i = 0; i < list.count; i++)
        FUZZ_PROMISE(list.token[i] >= 0 && list.token[i] < sl_tokenizer_vocabulary(tokenizer), "%d", list.token[i]);
    free(back);
    sl_token_list_free(&list);
    sl_encoder_close(encoder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sl_tokenizer *tokenizer;
    struct sl_error error = {0};
    if (size < 2) return 0;
    const size_t rest = size - 2, text = data[1] < rest ? data[1] : rest;
    const char *pattern = data[0] % 8 < 4 ? sl_tokenizer_pattern(data[0] % 8) : NULL;
    const int status = sl_tokenizer_open(&tokenizer, fuzz_file(0, data + 2, rest - text), pattern, &error);
    if (status) {
        fuzz_refused(status, &error);
        return 0;
    }
    encode(tokenizer, (const char *)data + size - text, text);
    struct sl_gguf_metadata metadata = {0};
    if (sl_tokenizer_has_gguf(tokenizer))
        FUZZ_PROMISE(!sl_tokenizer_put_gguf(tokenizer, 9, NULL, &metadata, &error) && metadata.values, "memory");
    free(metadata.bytes);
    FUZZ_PROMISE(sl_tokenizer_publish(tokenizer, "/dev/null", NULL, &error) == SL_BAD_INPUT, "a file in /dev/null");
    sl_tokenizer_close(tokenizer);
    return 0;
}
