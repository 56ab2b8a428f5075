/* tokens.h - text to train on: tokens in mapped files, cut into samples. Which tokens a sample has follows from its
 * number.
 *
 * The contents of a path decide how it is read:
 *  - a directory: the texts in it and in its directories (layers/storage/file_tree.h), sorted by the bytes of their
 *    paths, one after another; each byte is a token. Files that gzip or zstd has packed are read as what they were
 * packed from. Binary files (layers/storage/contents.h) are left out and counted;
 *  - a file, packed or not: each byte is a token, whatever the bytes are;
 *  - a token shard in llm.c's format: a header of 256 words (magic 20240520, version 1, number of tokens), then GPT-2's
 *    tokens of 16 bits each, or (magic 20240801, version 7) those of larger vocabularies, of 32 bits; or a directory
 * whose *.bin files are all such shards, also those of its directories, read one after another in the same order (its
 * other files are ignored);
 *  - a safetensors file with an I32 tensor "tokens" [rows, sequence + 1]: sample i is row i mod rows, unshuffled, in
 *    training and in evaluation alike.
 *
 * All but the last kind are streams. The end of a stream is for evaluation. It is cut into windows of sequence + 1
 * tokens, each of which begins with the last token of the window before; evaluation takes them in order, and starts
 * again after the last. The rest of the stream is for training. Sample k belongs to epoch k / windows. An epoch takes
 * each of its windows once; the seed and the epoch draw their order, and the token in [0, sequence) where the first one
 * begins. So a resumed run needs nothing but the number of samples taken, and it does not matter which coordinate
 * fetches which rows.
 *
 * Data that are opened whole are for evaluation alone, which scores each token of a stream but the first exactly once.
 *
 * A text can be made into tokens of a vocabulary (sl_tokens_encode); then it is a stream of them.
 *
 * Files must not shrink while they are open: reading the lost part ends the process (SIGBUS). */
#ifndef SL_LAYERS_STORAGE_TOKENS_H
#define SL_LAYERS_STORAGE_TOKENS_H

#include "layers/storage/contents.h"
#include "layers/storage/safetensors.h"

SL_BEGIN_C

struct sl_token_format; /* layers/storage/token_format.h */

/* All packed files of a path together may have so many bytes when they are unpacked, and no more than half of the
 * machine's memory. */
static const size_t sl_tokens_most_unpacked = (size_t)4 << 30;

struct sl_token_file {
    char *path;
    struct sl_contents contents; /* unpacked */
    const void *tokens;          /* as wide as the format's */
    int32_t *encoded;            /* the same, where they were made from the bytes; NULL: they were not */
    int64_t count;               /* tokens of the file */
    int64_t first;               /* position in the stream of the file's first token */
};

/* Files of a directory that were left out, and of those that were taken, how many gzip has packed. */
struct sl_token_counts {
    int binary, links, hidden, others, packed;
};

/* Everybody may read the fields; VOCABULARY may be set. */
struct sl_tokens {
    const struct sl_token_format *format;
    bool given;     /* whoever opened them said the format */
    int vocabulary; /* larger tokens are refused; opening sets 256 (bytes), 50257 or 128256 (shards), or the largest
                       token + 1 (rows), and a user may set the model's */
    int64_t count, training; /* tokens; the first TRAINING of them are for training */
    int columns;             /* rows: tokens of a row; streams: 0 */
    bool whole;              /* all is for evaluation */
    int stride;              /* of whole streams: tokens from where a window begins to where the next one does, at most
                                a sequence; 0: a sequence. A user may set it */
    bool directory;          /* the path is one, and these are counts of its files: */
    struct sl_token_counts counts;
    size_t unpacked; /* bytes of the files that gzip has packed */
    int files;
    struct sl_token_file *file;
    struct sl_store store; /* rows: the file's tensors */
};

/* Opens PATH. FORMAT: what its files have (sl_token_format_raw); NULL: their contents decide. VALIDATION, 0 to 1, is
 * the share of a stream that is kept for evaluation; rows ignore it. SL_BAD_INPUT if PATH cannot be read or is
 * malformed, or if a part that has a share is too short for one sample of SEQUENCE: training needs 2 * SEQUENCE tokens,
 * evaluation SEQUENCE + 1. */
int sl_tokens_open(struct sl_tokens *tokens, const char *path, const struct sl_token_format *format, double validation,
                   int sequence, struct sl_error *error);
/* The same, but all of PATH is for evaluation: at least two tokens. */
int sl_tokens_open_whole(struct sl_tokens *tokens, const char *path, const struct sl_token_format *format, int sequence,
                         struct sl_error *error);

/* Gives the tokens that FILE's bytes are, in memory of malloc, and their number. SL_BAD_INPUT says what is wrong. */
typedef int sl_encode_file(void *arg, const struct sl_token_file *file, int32_t **encoded, int64_t *count,
                           struct sl_error *error);
/* Makes the bytes of an open text into tokens of VOCABULARY: ENCODE is called for each file in turn. VALIDATION and
 * SEQUENCE are those that it was opened with, and so are the errors; close it also after a failure. PATH is for
 * messages. */
int sl_tokens_encode(struct sl_tokens *tokens, const char *path, double validation, int sequence, int vocabulary,
                     sl_encode_file *encode, void *arg, struct sl_error *error);
/* Also after a failure. */
void sl_tokens_close(struct sl_tokens *tokens);

/* Samples in an epoch: windows of the training part or of the evaluation part; rows where PATH had rows. Of a stream
 * that is whole the last window may be shorter than the others, and counts; where windows begin closer to each other
 * than they are long, each scores the tokens that those before it have not. */
int64_t sl_tokens_windows(const struct sl_tokens *tokens, bool evaluation, int sequence);

/* Whether a token is a byte of a text. */
bool sl_tokens_are_bytes(const struct sl_tokens *tokens);

/* The window that comes I-th in the order of (SEED, EPOCH): a permutation of [0, WINDOWS). */
int64_t sl_tokens_shuffle(uint64_t seed, int64_t epoch, int64_t windows, int64_t i);

/* Writes samples [FIRST, FIRST + ROWS): inputs [rows, sequence], and labels [rows, sequence], which are the tokens that
 * follow the inputs. Either may be NULL. In the evaluation of data that are whole, samples past the last, and what the
 * last window lacks, get inputs 0 and labels -1, which losses leave out; so do labels that the window before has.
 * SL_BAD_INPUT names the file and the position of a token that is not in the vocabulary. */
int sl_tokens_fetch(const struct sl_tokens *tokens, bool evaluation, uint64_t seed, int64_t first, int64_t rows,
                    int sequence, int32_t *inputs, int32_t *labels, struct sl_error *error);

/* Of inputs [ROWS, SEQUENCE], where documents follow each other: PLACES [rows, sequence], how many tokens of its
 * document come before each one in its sequence. FIRST is the token that begins a document. */
void sl_tokens_places(const int32_t *inputs, int64_t rows, int sequence, int32_t first, int32_t *places);

SL_END_C
#endif
