/* journal_file.h - the format of journals, and a reader. journal.h writes journals.
 *
 * A journal is a directory with a file for each coordinate of the mesh, coordinate-00.journal and so on. A file has a
 * line of JSON, the head, and then records of 32 bytes each. Numbers are little-endian.
 *
 *     bytes 0-7    the step, from 0. Values are those after the step; a run's initial values are after the step before
 *     bytes 8-15   a hash (spmd/base/places.h), or a number (a double)
 *     bytes 16-19  the tensor's number in the head's list, or the stage
 *     bytes 20-23  the microbatch, counted through all passes of the step; otherwise 0
 *     bytes 24-27  enum sl_journal_kind
 *     bytes 28-31  the lowest 32 bits of the XXH3 of the bytes before
 *
 * Records come in blocks: those of a step, in the order in which they were made, and its end. An incomplete block at
 * the end of the file, left by a killed run, is ignored. Steps ascend; if a run was resumed, its values at that time
 * follow the block of the step before.
 *
 * The head is an object:
 *
 *     shardloop.journal  the version of this format: 1
 *     coordinate         of the file
 *     layout             mesh ("data=2,pipe=2"), data_axis, stage_axis, stages, layers (first layer of each stage;
 *                        1.5: layer 1's MLP), microbatches and rows (of one) of a pass, passes, wgrad_group,
 *                        layer_sums (sums over data per gradient of a layer; 1 if missing), precision, storage
 *     machine            engine, device, cpu, products: hardware and software of the run
 *     tensors            a list of the coordinate's parameters: name, shape (of the whole), stage, elements (number of
 *                        hashed elements; 0: none), counts (whether this coordinate represents them)
 *     notes              texts: the run's options and data, as in the notes of checkpoints */
#ifndef SL_LAYERS_RECORDS_JOURNAL_JOURNAL_FILE_H
#define SL_LAYERS_RECORDS_JOURNAL_JOURNAL_FILE_H

#include <stdio.h>

#include "layers/formats/stores/store.h"
#include "layers/formats/files/draft.h"

SL_BEGIN_C

enum { SL_JOURNAL_VERSION = 1, SL_JOURNAL_RECORD = 32 };

/* Kinds, in the order of cause and effect within a step. */
enum sl_journal_kind {
    SL_JOURNAL_ROWS = 1,     /* output of a stage for a microbatch, to the next stage or the loss: all its rows */
    SL_JOURNAL_LOSS,         /* the mean loss of the step: a number */
    SL_JOURNAL_ROW_GRADIENT, /* gradient of a stage's input, sent to the stage before */
    SL_JOURNAL_GRADIENT,     /* of a parameter: the sum over data, neither scaled nor clipped */
    SL_JOURNAL_NORM,         /* of all gradients, if they are clipped: a number */
    SL_JOURNAL_VALUE,        /* of a parameter */
    SL_JOURNAL_BEGIN,        /* ends the block of a run's initial values */
    SL_JOURNAL_END,          /* ends the block of a step */
    SL_JOURNAL_KINDS
};

struct sl_journal_record {
    int64_t step;
    uint64_t hash; /* or the bits of a double */
    int32_t item, microbatch;
    uint32_t kind, check;
};

/* Sets the record's check; and returns whether it is right. */
void sl_journal_seal(struct sl_journal_record *record);
bool sl_journal_is_sound(const struct sl_journal_record *record);

static inline bool sl_journal_ends_block(const struct sl_journal_record *record) {
    return record->kind == SL_JOURNAL_BEGIN || record->kind == SL_JOURNAL_END;
}

/* Writes the name of COORDINATE's file in DIRECTORY. SL_BAD_INPUT if it is too long. */
int sl_journal_name(const char *directory, int coordinate, char path[SL_MAX_PATH], struct sl_error *error);
/* Whether DIRECTORY has the first coordinate's file. */
bool sl_journal_is_there(const char *directory);

/* ---- reading ---- */

struct sl_journal_tensor {
    const char *name;
    int dims, stage;
    size_t shape[SL_MAX_DIMS];
    uint64_t elements;
    bool counts;
};

/* One coordinate's file, read step by step. */
struct sl_journal_file {
    char path[SL_MAX_PATH];
    FILE *stream;
    void *head; /* json_t */
    int coordinate;
    const char *mesh, *data_axis, *stage_axis; /* in the head's memory */
    int stages, microbatches, rows, passes, wgrad_group, layer_sums;
    int *half; /* [stages] halves of layers before each */
    int tensors;
    struct sl_journal_tensor *tensor; /* [tensors] */
    /* Set by sl_journal_next: the records of all blocks of one step, without their ends. Values of a resumed run
     * replace the earlier ones of the same step. */
    int64_t step;
    int count, capacity;
    struct sl_journal_record *record;
    long long whole; /* bytes up to the end of these blocks */
    /* The next record. */
    bool has_next;
    struct sl_journal_record next;
};

/* Opens PATH and reads its head. SL_BAD_INPUT if it is not a journal's file. Close it also after a failure. */
int sl_journal_file_open(struct sl_journal_file *file, const char *path, struct sl_error *error);
void sl_journal_file_close(struct sl_journal_file *file);
/* Reads the next complete step; *MORE is false if there is none, and nothing else changes then. SL_BAD_INPUT if the
 * file is damaged. */
int sl_journal_next(struct sl_journal_file *file, bool *more, struct sl_error *error);

SL_END_C
#endif
