/* fuzz_chats.c - conversations. Samples are at most as long as allowed, each has scored labels, and labels are the next
 * inputs, even if several conversations share a sample; otherwise a file is refused with one line.
 *
 * The first byte chooses the length of samples and the template; the file begins after it. */
#include "drivers/tools/text/chats.h"
#include "tests/fuzz/fuzz.h"

static void check_sample(const struct sl_samples *samples, int64_t i, int sequence) {
    int32_t inputs[128], labels[128], places[128];
    int scored = 0;
    sl_samples_fetch(samples, i, 1, sequence, inputs, labels, places);
    const int count = (int)(samples->end[i] - (i ? samples->end[i - 1] : 0));
    FUZZ_PROMISE(count > 0 && count <= sequence, "%d inputs", count);
    for (int t = 0; t < sequence; t++) {
        FUZZ_PROMISE(inputs[t] >= 0 && inputs[t] < 256 && labels[t] >= -1 && labels[t] < 256, "token %d", inputs[t]);
        FUZZ_PROMISE(t < count || labels[t] == -1, "label %d", labels[t]);
        FUZZ_PROMISE(places[t] == 0 || (t && places[t] == places[t - 1] + 1), "place %d", places[t]);
        const bool ends = t + 1 >= count || places[t + 1] == 0; /* of a conversation */
        FUZZ_PROMISE(ends || labels[t] < 0 || inputs[t + 1] == labels[t], "label %d", labels[t]);
        scored += labels[t] >= 0;
    }
    FUZZ_PROMISE(scored > 0, "sample %d", (int)i);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sl_chats chats = {0};
    struct sl_error error = {0};
    if (size < 1) return 0;
    const int sequence = 1 + data[0] % 128;
    const struct sl_chat_text text = {
        .template = data[0] & 128 ? SL_CHAT_LLAMA3 : SL_CHAT_BY_TOKENIZER, .sequence = sequence, .vocabulary = 256};
    const int status = sl_chats_read(&chats, fuzz_file(0, data + 1, size - 1), &text, &error);
    if (status)
        fuzz_refused(status, &error);
    else
        FUZZ_PROMISE(chats.samples.count > 0 && chats.samples.longest <= sequence, "%d", chats.samples.longest);
    for (int64_t i = 0; status == SL_OK && i < chats.samples.count; i++) check_sample(&chats.samples, i, sequence);
    const int64_t count = chats.samples.count, first = count / 3;
    const int64_t packed = sl_samples_pack(&chats.samples, first, count, sequence);
    FUZZ_PROMISE(packed == chats.samples.count && packed <= count, "%d samples", (int)packed);
    for (int64_t i = 0; status == SL_OK && i < packed; i++) check_sample(&chats.samples, i, sequence);
    sl_chats_free(&chats);
    return 0;
}
