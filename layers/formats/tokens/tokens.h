/* tokens.h - text to train on: tokens in mapped files, cut into samples. A sample's number determines its tokens.
 *
 * The contents of a path determine its format:
 * - a directory: the texts in it and in all directories below (layers/formats/files/file_tree.h), sorted by the bytes
 * of their paths, one after another; each byte is a token. Files packed by gzip or zstd are unpacked. Binary files
 *   (layers/formats/files/contents.h) are skipped and counted;
 * - a file, packed or not: each byte is a token, for any bytes;
 * - a token shard in llm.c's format: a header of 256 words (magic 20240520, version 1, number of tokens), then GPT-2's
 *   tokens of 16 bits each, or (magic 20240801, version 7) tokens of larger vocabularies, of 32 bits; or a directory
 *   whose *.bin files, also those in directories below, are all such shards; they are read one after another in the
 *   same order, and other files are ignored;
 * - a safetensors file with an I32 tensor "tokens" [rows, sequence + 1]: sample i is row i mod rows, unshuffled, in
 *   training and in evaluation.
 *
 * All but the last kind are streams. The end of a stream is for evaluation. It is cut into windows of sequence + 1
 * tokens, each of which begins with the last token of the window before; evaluation takes them in order, and starts
 * again after the last. The rest of the stream is for training. Sample k belongs to epoch k / windows. An epoch takes
 * each of its windows once; the seed and the epoch determine their order, and the offset of the first window in [0,
 * sequence). So a resumed run needs only the number of samples taken, and any coordinate may fetch any rows.
 *
 * Data opened whole are for evaluation only, which scores each token of a stream but the first exactly once.
 *
 * A text can be encoded as tokens of a vocabulary (sl_tokens_encode); it is then a stream of these tokens.
 *
 * Files must not shrink while they are open: reading the lost part ends the process (SIGBUS). */
#ifndef SL_LAYERS_FORMATS_TOKENS_TOKENS_H
#define SL_LAYERS_FORMATS_TOKENS_TOKENS_H

#include "layers/formats/files/contents.h"
#include "layers/formats/stores/safetensors.h"

SL_BEGIN_C

struct sl_token_format; /* layers/formats/tokens/token_format.h */

/* Limit on the unpacked bytes of all packed files of a path together; half of the machine's memory is another limit. */
static const size_t sl_tokens_most_unpacked = (size_t)4 << 30;

struct sl_token_file {
    char *path;
    struct sl_contents contents; /* unpacked */
    const void *tokens;          /* of the format's width */
    int32_t *encoded;            /* tokens encoded from the bytes, which TOKENS then points to; NULL: not encoded */
    int64_t count;               /* tokens of the file */
    int64_t first;               /* position of the file's first token in the stream */
};

/* Numbers of a directory's skipped files, by reason; packed: number of packed files read. */
struct sl_token_counts {
    int binary, links, hidden, others, packed;
};

/* Fields may be read; VOCABULARY and STRIDE may be set. */
struct sl_tokens {
    const struct sl_token_format *format;
    bool given;     /* whether the caller gave the format */
    int vocabulary; /* larger tokens are refused; opening sets 256 (bytes), 50257 or 128256 (shards), or the largest
                       token + 1 (rows); callers may set the model's */
    int64_t count, training; /* numbers of tokens; the first TRAINING are for training */
    int columns;             /* rows: tokens of a row; streams: 0 */
    bool whole;              /* whether all data are for evaluation */
    int stride; /* of whole streams: tokens from the start of one window to the next, at most a sequence; 0: a sequence.
                   Callers may set it */
    bool directory; /* whether the path is a directory; counts are then of its files */
    struct sl_token_counts counts;
    size_t unpacked; /* bytes of packed files, after unpacking */
    int files;
    struct sl_token_file *file;
    struct sl_store store; /* rows: the file's tensors */
};

/* Opens PATH. FORMAT: format of its files (sl_token_format_raw); NULL: detect it. VALIDATION, 0 to 1, is the share of a
 * stream for evaluation; rows ignore it. SL_BAD_INPUT if PATH cannot be read or is malformed, or if a part with a share
 * is too short for one sample of SEQUENCE: training needs 2 * SEQUENCE tokens, evaluation SEQUENCE + 1. */
int sl_tokens_open(struct sl_tokens *tokens, const char *path, const struct sl_token_format *format, double validation,
                   int sequence, struct sl_error *error);
/* As sl_tokens_open, but all of PATH is for evaluation: at least two tokens. */
int sl_tokens_open_whole(struct sl_tokens *tokens, const char *path, const struct sl_token_format *format, int sequence,
                         struct sl_error *error);

/* Encodes the bytes of FILE: returns *COUNT tokens in memory of malloc. SL_BAD_INPUT has the reason in ERROR. */
typedef int sl_encode_file(void *arg, const struct sl_token_file *file, int32_t **encoded, int64_t *count,
                           struct sl_error *error);
/* Encodes the bytes of an open text as tokens of VOCABULARY: calls ENCODE for each file in turn. VALIDATION, SEQUENCE
 * and the errors are as for opening; close it also after a failure. PATH is for messages. */
int sl_tokens_encode(struct sl_tokens *tokens, const char *path, double validation, int sequence, int vocabulary,
                     sl_encode_file *encode, void *arg, struct sl_error *error);
/* Frees the tokens, also after a failure. */
void sl_tokens_close(struct sl_tokens *tokens);

/* Samples in an epoch: windows of the training part or of the evaluation part; for rows, the rows. The last window of a
 * whole stream may be shorter than the others, and counts. If windows overlap, each scores only tokens not scored by
 * earlier windows. */
int64_t sl_tokens_windows(const struct sl_tokens *tokens, bool evaluation, int sequence);

/* Whether a token is a byte of a text. */
bool sl_tokens_are_bytes(const struct sl_tokens *tokens);

/* The I-th window in the order of (SEED, EPOCH), a permutation of [0, WINDOWS). */
int64_t sl_tokens_shuffle(uint64_t seed, int64_t epoch, int64_t windows, int64_t i);

/* Writes samples [FIRST, FIRST + ROWS): inputs [rows, sequence], and labels [rows, sequence], the tokens that follow
 * the inputs. Either may be NULL. In the evaluation of whole data, samples past the last, and the missing end of the
 * last window, get inputs 0 and labels -1, which losses ignore; labels already in the window before are -1, too.
 * SL_BAD_INPUT names the file and the position of a token outside of the vocabulary. */
int sl_tokens_fetch(const struct sl_tokens *tokens, bool evaluation, uint64_t seed, int64_t first, int64_t rows,
                    int sequence, int32_t *inputs, int32_t *labels, struct sl_error *error);

/* Computes PLACES [rows, sequence] from inputs [ROWS, SEQUENCE] with several documents: for each token, the number of
 * tokens of its document before it in its sequence. FIRST is the first token of each document. */
void sl_tokens_places(const int32_t *inputs, int64_t rows, int sequence, int32_t first, int32_t *places);

SL_END_C
#endif
