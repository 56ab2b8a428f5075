/* journals.h - two runs' journals, read step by step and compared.
 *
 * Where both have the same coordinates with the same parts, hashes are compared coordinate by coordinate, and
 * microbatch by microbatch. Otherwise those of the coordinates that stand for a part are added up, which makes hashes
 * of whole arrays (spmd/base/places.h): of parameters, of their gradients' sums, and of the rows of the whole batch
 * that go from one layer to the next. */
#ifndef SL_DRIVERS_JOURNAL_JOURNALS_H
#define SL_DRIVERS_JOURNAL_JOURNALS_H

#include <jansson.h>

#include "layers/journal/journal_file.h"
#include "spmd/mesh.h"

enum { SL_JOURNAL_TEXT = 200 };

/* Something that has a hash, in both runs the same thing. */
struct sl_journal_entry {
    int kind, microbatch; /* -1: all rows of the batch */
    int place;            /* of a tensor, its number in the list of both; of rows, their order by stages or layers */
    int coordinate;       /* -1: all that stand for it */
    int stage;            /* -1: none, or more than one */
    uint64_t hash;
};

/* One of the two. */
struct sl_journal_side {
    const char *directory;
    struct sl_mesh mesh;
    int files;                    /* that have been opened: in the end mesh.size */
    struct sl_journal_file *file; /* [files] */
    int **number;                 /* [mesh.size][tensors] of each tensor in the list of both */
    /* The step that was read last; MORE: there is one. */
    bool more;
    int64_t step;
    int entries, capacity;
    struct sl_journal_entry *entry; /* sorted in the order in which one causes the next */
    double loss;                    /* NAN: not recorded */
};

/* A tensor of either. */
struct sl_journal_name {
    const char *name; /* with its shape, to tell those of two shapes apart: "norm.gamma [16]" */
    int stage;        /* in the first run that has it */
    bool in[2];
};

enum { SL_JOURNAL_REASONS = 16 };

struct sl_journals {
    struct sl_journal_side side[2];
    int names;
    struct sl_journal_name *name;
    char *text;   /* of the names */
    bool aligned; /* coordinate by coordinate */
    /* Why the runs' layouts do not promise the same bits: "data: 2 | 1". 0: they do. */
    int reasons;
    char reason[SL_JOURNAL_REASONS][SL_JOURNAL_TEXT];
    /* Found. */
    int64_t steps, first, last; /* that both have */
    bool parted;                /* at that step: */
    int64_t step;
    struct sl_journal_entry at; /* the first thing that differs */
    double loss[2];
    int differ[SL_JOURNAL_KINDS], compared[SL_JOURNAL_KINDS]; /* in that step */
    bool norms_differ;                                        /* before that, between two layouts: */
    double norm[2];
    double largest; /* relative difference of the losses of all steps */
    int64_t largest_at;
};

/* Zero-initialize JOURNALS. Opens those in directories A and B, and finds out how they compare. SL_BAD_INPUT where one
 * cannot be read, or they have no tensor in common. Close also after a failure. */
int sl_journals_open(struct sl_journals *journals, const char *a, const char *b, struct sl_error *error);
void sl_journals_close(struct sl_journals *journals);
/* Reads and compares all steps that both have. SL_BAD_INPUT where a file is damaged, or there is no such step. */
int sl_journals_compare(struct sl_journals *journals, struct sl_error *error);

/* The next step of SIDE, with its entries. */
int sl_journal_side_next(struct sl_journals *journals, struct sl_journal_side *side, struct sl_error *error);

/* Whether the runs are the same: bit for bit, or, where that is not promised, by their losses. */
enum { SL_JOURNALS_NEAR = 10000 }; /* losses agree within 1 / this */
bool sl_journals_agree(const struct sl_journals *journals);

/* ---- what is told ---- */

void sl_journals_print(FILE *stream, const struct sl_journals *journals);
json_t *sl_journals_json(const struct sl_journals *journals);

#endif
