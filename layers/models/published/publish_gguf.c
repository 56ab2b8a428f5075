/* publish_gguf.c - a GGUF file as llama.cpp reads it: metadata, the list of tensors, and their data. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "layers/models/published/publish_files.h"
#include "layers/models/published/published_internal.h"
#include "layers/formats/files/draft.h"

enum { ALIGNMENT = 32 };

/* ---- bytes ---- */

struct stream {
    struct sl_draft draft;
    int number; /* errno of the first error; 0: none */
    size_t written, used;
    uint64_t values; /* number of metadata values */
    char buffer[1 << 16];
};

static void flush(struct stream *s) {
    if (!s->number) s->number = sl_draft_write(&s->draft, s->buffer, s->used);
    s->used = 0;
}

static void put(struct stream *s, const void *data, size_t bytes) {
    for (const char *from = data; bytes > 0;) {
        const size_t room = sizeof s->buffer - s->used, some = bytes < room ? bytes : room;
        memcpy(s->buffer + s->used, from, some);
        s->used += some;
        s->written += some;
        from += some;
        bytes -= some;
        if (s->used == sizeof s->buffer) flush(s);
    }
}

static void put_u32(struct stream *s, uint32_t value) { put(s, &value, sizeof value); }
static void put_u64(struct stream *s, uint64_t value) { put(s, &value, sizeof value); }

static void put_text(struct stream *s, const char *text, size_t count) {
    put_u64(s, count);
    put(s, text, count);
}

static void align(struct stream *s) {
    static const char zeros[ALIGNMENT];
    if (s->written % ALIGNMENT) put(s, zeros, ALIGNMENT - s->written % ALIGNMENT);
}

/* ---- metadata ---- */

static void put_key(struct stream *s, const struct sl_publishing *p, const char *key) {
    char name[96];
    snprintf(name, sizeof name, "%s.%s", p->publication->family->name, sl_published_key(p->publication->family, key));
    put_text(s, name, strlen(name));
    s->values++;
}

static void put_size(struct stream *s, const struct sl_publishing *p, const char *key, int value) {
    put_key(s, p, key);
    put_u32(s, SL_GGUF_U32);
    put_u32(s, (uint32_t)value);
}

static void put_real(struct stream *s, const struct sl_publishing *p, const char *key, double value) {
    const float single = (float)value;
    put_key(s, p, key);
    put_u32(s, SL_GGUF_F32);
    put(s, &single, sizeof single);
}

static void put_string(struct stream *s, const char *key, const char *value) {
    put_text(s, key, strlen(key));
    put_u32(s, SL_GGUF_STRING);
    put_text(s, value, strlen(value));
    s->values++;
}

/* Whether all rates are divided by the same number, and not changed otherwise. */
static bool scales_linearly(const struct sl_publishing *p) {
    const struct sl_rotary *rotary = &p->publication->transformer->rotary;
    return rotary->divisors && sl_publish_divisor(p) > 0 && !(rotary->factor > 0);
}

static void put_sizes(struct stream *s, const struct sl_publishing *p) {
    const struct sl_transformer *t = p->publication->transformer;
    const int width = sl_transformer_head_width(t);
    put_string(s, "general.architecture", p->publication->family->name);
    put_size(s, p, "vocab_size", t->vocabulary);
    put_size(s, p, "context_length", p->context);
    put_size(s, p, "embedding_length", t->dimension);
    put_size(s, p, "block_count", t->blocks);
    put_size(s, p, "feed_forward_length", sl_transformer_inside(t));
    put_size(s, p, "attention.head_count", t->heads);
    put_size(s, p, "attention.head_count_kv", sl_transformer_key_heads(t));
    put_real(s, p, "attention.layer_norm_rms_epsilon", sl_transformer_epsilon(t));
    if (!t->rope) return;
    put_size(s, p, "attention.key_length", width);
    put_size(s, p, "attention.value_length", width);
    put_size(s, p, "rope.dimension_count", width);
    put_real(s, p, "rope.freq_base", t->rotary.base);
    if (t->rotary.amplitude > 0 && t->rotary.amplitude != 1.0)
        put_real(s, p, "rope.scaling.attn_factor", t->rotary.amplitude);
    if (!scales_linearly(p)) return;
    put_key(s, p, "rope.scaling.type");
    put_u32(s, SL_GGUF_STRING);
    put_text(s, "linear", strlen("linear"));
    put_real(s, p, "rope.scaling.factor", (double)t->rotary.divisors[0]);
}

/* Copies another file's tokenizer metadata, byte by byte. */
static void put_vocabulary(struct stream *s, const struct sl_gguf *vocabulary) {
    static const char prefix[] = "tokenizer.";
    for (int i = 0; vocabulary && i < vocabulary->count; i++) {
        const struct sl_gguf_value *value = &vocabulary->value[i];
        const char *end =
            i + 1 < vocabulary->count ? vocabulary->value[i + 1].key.bytes - sizeof(uint64_t) : vocabulary->end;
        if (value->key.count < sizeof prefix || strncmp(value->key.bytes, prefix, sizeof prefix - 1) != 0) continue;
        put(s, value->key.bytes - sizeof(uint64_t), (size_t)(end - value->key.bytes) + sizeof(uint64_t));
        s->values++;
    }
}

/* ---- tensors ---- */

/* Type of a tensor in the file: vectors stay float32; matrices whose rows are not whole blocks become float16. */
static enum sl_weight_type type_of(const struct sl_publishing *p, const struct sl_published_tensor *tensor) {
    if (tensor->dims == 1) return SL_WEIGHT_F32;
    return tensor->shape[1] % sl_weight_block(p->type) ? SL_WEIGHT_F16 : p->type;
}

static void list_tensor(struct stream *s, const char *name, int dims, const size_t *shape, enum sl_weight_type type,
                        size_t *offset, size_t bytes) {
    put_text(s, name, strlen(name));
    put_u32(s, (uint32_t)dims);
    for (int d = dims - 1; d >= 0; d--) put_u64(s, shape[d]);
    put_u32(s, sl_weight_gguf_type(type));
    put_u64(s, *offset);
    *offset += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static size_t pairs_of(const struct sl_publishing *p) {
    return (size_t)sl_transformer_head_width(p->publication->transformer) / 2;
}

static bool has_divisors(const struct sl_publishing *p) {
    const struct sl_rotary *rotary = &p->publication->transformer->rotary;
    return p->publication->transformer->rope && !scales_linearly(p) && (rotary->divisors || rotary->factor > 0);
}

static void list_tensors(struct stream *s, const struct sl_publishing *p) {
    size_t offset = 0;
    for (int i = 0; i < p->publication->count; i++) {
        const struct sl_published_tensor *tensor = &p->publication->tensor[i];
        const enum sl_weight_type type = type_of(p, tensor);
        list_tensor(s, tensor->name, tensor->dims, tensor->shape, type, &offset, sl_published_bytes(tensor, type));
    }
    const size_t pairs = pairs_of(p);
    if (has_divisors(p))
        list_tensor(s, sl_published_divisors, 1, &pairs, SL_WEIGHT_F32, &offset, pairs * sizeof(float));
}

static void put_divisors(struct stream *s, const struct sl_publishing *p) {
    for (size_t i = 0, pairs = pairs_of(p); i < pairs; i++) {
        const float divisor = (float)sl_rotary_divisor(&p->publication->transformer->rotary, (int)i, 2 * (int)pairs);
        put(s, &divisor, sizeof divisor);
    }
    align(s);
}

static int put_tensors(struct stream *s, const struct sl_publishing *p, struct sl_error *error) {
    for (int i = 0; i < p->publication->count && !s->number; i++) {
        const struct sl_published_tensor *tensor = &p->publication->tensor[i];
        const enum sl_weight_type type = type_of(p, tensor);
        const size_t bytes = sl_published_bytes(tensor, type);
        char *data = malloc(bytes + 1);
        if (!data) return sl_error_set(error, SL_FAILED, "no memory for tensor %s", tensor->name);
        const int status = sl_publication_encode(p->publication, i, type, data, error);
        if (status == SL_OK) put(s, data, bytes);
        free(data);
        SL_TRY(status);
        align(s);
    }
    if (has_divisors(p)) put_divisors(s, p);
    return SL_OK;
}

/* ---- the file ---- */

/* Writes the numbers of tensors and values, which are known only now. */
static void put_head(struct stream *s, const struct sl_publishing *p) {
    const uint64_t numbers[] = {(uint64_t)p->publication->count + has_divisors(p), s->values};
    for (size_t done = 0; !s->number && done < sizeof numbers;) {
        const void *left = (const char *)numbers + done;
        const ssize_t written = pwrite(s->draft.descriptor, left, sizeof numbers - done, (off_t)(8 + done));
        if (written > 0)
            done += (size_t)written;
        else if (written == 0 || errno != EINTR)
            s->number = written ? errno : ENOSPC;
    }
}

static int write_all(struct stream *s, const struct sl_publishing *p, struct sl_error *error) {
    put(s, "GGUF", 4);
    put_u32(s, 3);
    put_u64(s, 0);
    put_u64(s, 0);
    put_sizes(s, p);
    put_vocabulary(s, p->vocabulary);
    if (p->metadata) put(s, p->metadata->bytes, p->metadata->count);
    if (p->metadata) s->values += p->metadata->values;
    list_tensors(s, p);
    align(s);
    SL_TRY(put_tensors(s, p, error));
    flush(s);
    put_head(s, p);
    return SL_OK;
}

int sl_publish_gguf(const struct sl_publishing *p, const char *to, struct sl_error *error) {
    struct stream *s = calloc(1, sizeof *s);
    if (!s) return sl_error_set(error, SL_FAILED, "no memory to write %s", to);
    int status = sl_draft_open(&s->draft, to, SL_LINKS_REPLACED, error);
    if (status == SL_OK) status = write_all(s, p, error);
    if (status == SL_OK) status = sl_draft_finish(&s->draft, s->number, error);
    sl_draft_give_up(&s->draft);
    free(s);
    return status;
}
