/* encode_shards.c - encodes documents as shards of tokens: several threads encode, one writes the results in order. */
#include <pthread.h>
#include <stdatomic.h>
#include <math.h>
#include <stdlib.h>

#include "drivers/common/interrupt.h"
#include "drivers/common/metrics.h"
#include "drivers/common/progress.h"
#include "drivers/tools/text/encoding.h"
#include "drivers/tools/tokens/shard_writer.h"
#include "drivers/tools/tokens/tokens.h"
#include "spmd/spmd.h"
#include "spmd/placement/topology.h"

enum { BATCH_BYTES = 1 << 24, BATCH_DOCUMENTS = 1 << 14 };

/* A document and its tokens. */
struct item {
    struct sl_document document;
    struct sl_token_list tokens;
};

struct work {
    const struct tokens_config *config;
    struct sl_tokens data;          /* the text, */
    int file;                       /* its next file, */
    struct sl_document_lines lines; /* and the lines read from it */
    struct tokens_shard_writer writer;
    struct sl_encoder *encoder[TOKENS_THREADS];
    int threads;
    struct item *item; /* BATCH_DOCUMENTS of them */
    int items;
    atomic_int next; /* next unassigned item */
    pthread_mutex_t lock;
    int failed;            /* index of the first failed item; `items`: none */
    struct sl_error error; /* its error */
    int64_t done, tokens;
    size_t bytes;
};

struct worker {
    struct work *work;
    struct sl_encoder *encoder;
};

/* ---- encoding ---- */

static int encode_item(const struct work *w, struct sl_encoder *encoder, struct item *item, struct sl_error *error) {
    item->tokens.count = 0;
    return sl_document_encode(encoder, &item->document, w->config->text_key, w->config->special, &item->tokens, error);
}

static void note_failure(struct work *w, int number, const struct sl_error *error) {
    pthread_mutex_lock(&w->lock);
    if (number < w->failed) {
        w->failed = number;
        w->error = *error;
    }
    pthread_mutex_unlock(&w->lock);
}

static void *encode_items(void *arg) {
    const struct worker *worker = arg;
    struct work *w = worker->work;
    for (int i; (i = atomic_fetch_add(&w->next, 1)) < w->items;) {
        struct sl_error error = {0};
        if (encode_item(w, worker->encoder, &w->item[i], &error)) note_failure(w, i, &error);
    }
    return NULL;
}

/* Encodes the batch; if some threads cannot be started, the others do their work. */
static void encode_batch(struct work *w) {
    struct worker worker[TOKENS_THREADS];
    pthread_t thread[TOKENS_THREADS];
    int started = 1;
    for (int t = 0; t < w->threads; t++) worker[t] = (struct worker){w, w->encoder[t]};
    while (started < w->threads && !pthread_create(&thread[started], NULL, encode_items, &worker[started])) started++;
    encode_items(&worker[0]);
    for (int t = 1; t < started; t++) pthread_join(thread[t], NULL);
}

/* ---- batches ---- */

static bool next_document(struct work *w, struct sl_document *document) {
    for (; w->file < w->data.files; w->file++, w->lines = (struct sl_document_lines){0}) {
        w->lines.file = &w->data.file[w->file];
        if (sl_document_next(&w->lines, document)) return true;
    }
    return false;
}

static void take_batch(struct work *w) {
    size_t bytes = 0;
    w->items = 0;
    while (w->items < BATCH_DOCUMENTS && bytes < BATCH_BYTES && next_document(w, &w->item[w->items].document))
        bytes += w->item[w->items++].document.count;
    w->bytes += bytes;
    w->failed = w->items;
    atomic_store(&w->next, 0);
}

static int write_batch(struct work *w, int32_t end, struct sl_error *error) {
    if (end < 0 && w->done + w->items > 1) return sl_text_refuse_joined(w->config->data, error);
    for (int i = 0; i < w->items; i++) {
        const struct sl_token_list *tokens = &w->item[i].tokens;
        if (end >= 0) SL_TRY(tokens_shards_write(&w->writer, &end, 1, error));
        SL_TRY(tokens_shards_write(&w->writer, tokens->token, tokens->count, error));
        w->tokens += (int64_t)tokens->count + (end >= 0);
    }
    w->done += w->items;
    return SL_OK;
}

static int write_all(struct work *w, int32_t end, struct sl_error *error) {
    enum { SECONDS_OF_A_LINE = 60 };
    struct sl_progress progress;
    const double began = sl_now();
    sl_progress_begin(&progress, "byte", "tokens", w->data.count, w->config->json ? 0 : SECONDS_OF_A_LINE);
    int status = SL_OK;
    for (take_batch(w); !status && w->items; take_batch(w)) {
        encode_batch(w);
        if (w->failed < w->items)
            status = sl_error_set(error, w->error.status, "%s", w->error.message);
        else
            status = write_batch(w, end, error);
        if (!status && sl_interrupt_arrived())
            status = sl_error_set(error, SL_FAILED, "interrupted after %lld documents: nothing is left in %s",
                                  (long long)w->done, w->config->save);
        sl_progress_update(&progress, (int64_t)w->bytes, (double)w->tokens, sl_now() - began, NAN, NAN);
    }
    sl_progress_clear(&progress);
    return status;
}

/* ---- the command ---- */

static int print_summary(const struct work *w, double seconds, struct sl_error *error) {
    if (w->config->json)
        return sl_json_print(stdout, "stdout",
                             json_pack("{s:I,s:I,s:I,s:i,s:o}", "documents", (json_int_t)w->done, "tokens",
                                       (json_int_t)w->tokens, "bytes", (json_int_t)w->bytes, "shards", w->writer.shards,
                                       "seconds", sl_json_real(seconds)),
                             error);
    printf("%lld document%s, %zu bytes: %lld tokens in %d shard%s in %s, %.1f s, %.1f MB/s\n", (long long)w->done,
           w->done == 1 ? "" : "s", w->bytes, (long long)w->tokens, w->writer.shards, w->writer.shards == 1 ? "" : "s",
           w->config->save, seconds, 1e-6 * (double)w->bytes / seconds);
    return SL_OK;
}

static int open_text(struct work *w, struct sl_error *error) {
    if (sl_tokens_open_whole(&w->data, w->config->data, NULL, 1, error))
        return sl_text_tell_line(w->config->data, error);
    sl_text_tell_kind("--data", &w->data, true);
    if (sl_tokens_are_bytes(&w->data)) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%s: these are tokens already, and no text", w->config->data);
}

static int prepare(struct work *w, const struct sl_tokenizer *tokenizer, struct sl_error *error) {
    w->threads = w->config->threads ? w->config->threads : sl_topology_usable();
    if (w->threads > TOKENS_THREADS) w->threads = TOKENS_THREADS;
    w->item = calloc(BATCH_DOCUMENTS, sizeof *w->item);
    if (!w->item) return sl_error_set(error, SL_FAILED, "no memory for documents");
    for (int t = 0; t < w->threads; t++) SL_TRY(sl_encoder_open(&w->encoder[t], tokenizer, error));
    SL_TRY(open_text(w, error));
    return tokens_shards_open(&w->writer, w->config->save, w->config->shard_tokens, sl_tokenizer_vocabulary(tokenizer),
                              error);
}

int tokens_make_shards(const struct tokens_config *config, const struct sl_tokenizer *tokenizer,
                       struct sl_error *error) {
    struct work w = {.config = config, .lock = PTHREAD_MUTEX_INITIALIZER};
    int32_t end;
    const double began = sl_now();
    if (!config->data || !config->save)
        return sl_error_set(error, SL_BAD_INPUT, "%s is missing: name what to read by --data, and a folder by --save",
                            config->data ? "--save" : "--data");
    SL_TRY(sl_text_find_end(tokenizer, config->document_token, &end, error));
    sl_interrupt_catch("these documents", false);
    int status = prepare(&w, tokenizer, error);
    if (!status) status = write_all(&w, end, error);
    status = tokens_shards_close(&w.writer, status, error);
    sl_tokens_close(&w.data);
    for (int t = 0; t < w.threads; t++) sl_encoder_close(w.encoder[t]);
    for (int i = 0; w.item && i < BATCH_DOCUMENTS; i++) sl_token_list_free(&w.item[i].tokens);
    free(w.item);
    return status ? status : print_summary(&w, sl_now() - began, error);
}
