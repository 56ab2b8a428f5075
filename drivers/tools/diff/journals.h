/* journals.h - reads two runs' journals step by step and compares them.
 *
 * If both have the same coordinates with the same parts, hashes are compared per coordinate and microbatch.
 * Otherwise the hashes of coordinates with distinct parts are summed, which gives hashes of whole arrays
 * (spmd/base/places.h): of parameters, of the sums of their gradients, and of all rows of the batch between two
 * layers. */
#ifndef SL_DRIVERS_TOOLS_DIFF_JOURNALS_H
#define SL_DRIVERS_TOOLS_DIFF_JOURNALS_H

#include <jansson.h>

#include "layers/records/journal/journal_file.h"
#include "spmd/mesh.h"

enum { SL_JOURNAL_TEXT = 200 };

/* An array with a hash, the same array in both runs. */
struct sl_journal_entry {
    int kind, microbatch; /* -1: all rows of the batch */
    int place;            /* of a tensor: its index in the common list; of rows: their order by stages or layers */
    int coordinate;       /* -1: all coordinates with parts of it */
    int stage;            /* -1: none, or more than one */
    uint64_t hash;
};

/* The journal of one run. */
struct sl_journal_side {
    const char *directory;
    struct sl_mesh mesh;
    int files;                    /* number of opened files: in the end mesh.size */
    struct sl_journal_file *file; /* [files] */
    int **number;                 /* [mesh.size][tensors] index of each tensor in the common list */
    /* The last step read; MORE: there is one. */
    bool more;
    int64_t step;
    int entries, capacity;
    struct sl_journal_entry *entry; /* sorted in the order of computation */
    double loss;                    /* NAN: not recorded */
};

/* A tensor in either journal. */
struct sl_journal_name {
    const char *name; /* with its shape, to distinguish tensors of two shapes: "norm.gamma [16]" */
    int stage;        /* in the first run with this tensor */
    bool in[2];
};

enum { SL_JOURNAL_REASONS = 16 };

struct sl_journals {
    struct sl_journal_side side[2];
    int names;
    struct sl_journal_name *name;
    char *text;   /* of the names */
    bool aligned; /* compared per coordinate */
    bool exact;   /* both runs sum over the same leaves (--exact) */
    /* Reasons why equal bits are not guaranteed between the layouts: "data: 2 | 1". 0: they are guaranteed. */
    int reasons;
    char reason[SL_JOURNAL_REASONS][SL_JOURNAL_TEXT];
    /* Results. */
    int64_t steps, first, last; /* number of steps in both journals, the first and the last */
    bool parted;                /* the runs differ at a step: */
    int64_t step;
    struct sl_journal_entry at; /* the first differing array */
    double loss[2];
    int differ[SL_JOURNAL_KINDS], compared[SL_JOURNAL_KINDS]; /* in this step */
    bool norms_differ;                                        /* before it, between two layouts: */
    double norm[2];
    double largest; /* largest relative difference of losses over all steps */
    int64_t largest_at;
};

/* Opens the journals in directories A and B, and determines how to compare them. Zero-initialize JOURNALS.
 * SL_BAD_INPUT if one cannot be read, or they have no tensor in common. Close also after a failure. */
int sl_journals_open(struct sl_journals *journals, const char *a, const char *b, struct sl_error *error);
void sl_journals_close(struct sl_journals *journals);
/* Reads and compares all common steps. SL_BAD_INPUT if a file is damaged, or there is no such step. */
int sl_journals_compare(struct sl_journals *journals, struct sl_error *error);

/* Reads the next step of SIDE, with its entries. */
int sl_journal_side_next(struct sl_journals *journals, struct sl_journal_side *side, struct sl_error *error);

/* Whether the runs are the same: bit for bit, or, if that is not guaranteed, by their losses. */
enum { SL_JOURNALS_NEAR = 10000 }; /* losses agree within 1 / this */
bool sl_journals_agree(const struct sl_journals *journals);

/* ---- output ---- */

void sl_journals_print(FILE *stream, const struct sl_journals *journals);
json_t *sl_journals_json(const struct sl_journals *journals);

#endif
