/* fuzz_prompts.c - files of prompts: the prompts read, joined by newlines, are the file without a byte order mark and
 * without carriage returns before newlines.
 *
 * The first byte chooses the vocabulary; the file begins after it. */
#include "layers/formats/tokens/prompts.h"
#include "tests/fuzz/fuzz.h"

static void compare(const struct sl_prompts *prompts, const uint8_t *data, size_t size, int vocabulary) {
    size_t at = size >= 3 && !memcmp(data, "\xef\xbb\xbf", 3) ? 3 : 0;
    for (int i = 0; i < prompts->count; i++) {
        const int length = sl_prompt_length(prompts, i);
        const int32_t *token = sl_prompt_tokens(prompts, i);
        FUZZ_PROMISE(length > 0, "prompt %d has %d tokens", i, length);
        for (int t = 0; t < length; t++, at++)
            FUZZ_PROMISE(at < size && token[t] == data[at] && token[t] < vocabulary && token[t] != '\n', "byte %zu",
                         at);
        at += at < size && data[at] == '\r';
        FUZZ_PROMISE(at == size || data[at] == '\n', "byte %zu", at);
        at += at < size;
    }
    while (at < size && (data[at] == '\n' || data[at] == '\r')) at++; /* empty lines at the end */
    FUZZ_PROMISE(at == size, "%zu of %zu bytes", at, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sl_prompts prompts = {0};
    struct sl_error error = {0};
    if (size < 1) return 0;
    const int vocabulary = data[0] % 4 ? 256 : 128;
    const int status = sl_prompts_read(&prompts, fuzz_file(0, data + 1, size - 1), vocabulary, &error);
    if (status)
        fuzz_refused(status, &error);
    else
        compare(&prompts, data + 1, size - 1, vocabulary);
    sl_prompts_free(&prompts);
    return 0;
}
