/* fuzz_choices.c - questions. Samples are at most as long as allowed, each has scored labels, and answers are among the
 * choices; otherwise a file is refused with one line.
 *
 * The first byte chooses the length of samples and the text before a choice; the file begins after it. */
#include "drivers/tools/text/choices.h"
#include "tests/fuzz/fuzz.h"

static void check_sample(const struct sl_samples *samples, int64_t i, int sequence) {
    int32_t inputs[16], labels[16];
    int scored = 0;
    sl_samples_fetch(samples, i, 1, sequence, inputs, labels, NULL);
    const size_t count = samples->end[i] - (i ? samples->end[i - 1] : 0);
    FUZZ_PROMISE(count > 0 && count <= (size_t)sequence, "%zu inputs", count);
    for (int t = 0; t < sequence; t++) {
        FUZZ_PROMISE(inputs[t] >= 0 && inputs[t] < 200 && labels[t] < 200, "token %d", inputs[t]);
        FUZZ_PROMISE(labels[t] >= -1 && ((size_t)t < count || labels[t] == -1), "label %d", labels[t]);
        scored += labels[t] >= 0;
        FUZZ_PROMISE(t + 1 >= (int)count || labels[t] < 0 || inputs[t + 1] == labels[t], "label %d", labels[t]);
    }
    FUZZ_PROMISE(scored > 0, "sample %d", (int)i);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sl_choices choices = {0};
    struct sl_error error = {0};
    if (size < 1) return 0;
    const int sequence = 1 + data[0] % 16;
    const struct sl_choice_text text = {
        .between = data[0] & 16 ? " " : "", .sequence = sequence, .vocabulary = 200, .special = true};
    const int status = sl_choices_read(&choices, fuzz_file(0, data + 1, size - 1), &text, &error);
    if (status) {
        fuzz_refused(status, &error);
    } else {
        FUZZ_PROMISE(choices.count > 0 && choices.samples.longest <= sequence, "%d", choices.samples.longest);
        for (int64_t i = 0; i < choices.samples.count; i++) {
            check_sample(&choices.samples, i, sequence);
            FUZZ_PROMISE(choices.bytes[i] > 0, "%g bytes", choices.bytes[i]);
        }
        for (int64_t q = 0; q < choices.count; q++) {
            const struct sl_question *question = &choices.question[q];
            FUZZ_PROMISE(question->answer >= 0 && question->answer < question->choices, "%d", question->answer);
            FUZZ_PROMISE(question->first + question->choices <= choices.samples.count, "question %d", (int)q);
        }
    }
    sl_choices_free(&choices);
    return 0;
}
