/* journal.h - what a run has computed, step by step: hashes of what each coordinate has, in a file of its own. The
 * format is in journal_file.h; the driver diff compares two runs by it.
 *
 * A step's records are the rows that its stages hand over in both directions, by microbatch; the loss; the sums of
 * gradients; their norm, if they are clipped; and the parameters after the step. Before the first step come the
 * parameters as they are. No bit of the run changes. In a step nothing is allocated, and the file is written once, at
 * its end. */
#ifndef SL_LAYERS_JOURNAL_JOURNAL_H
#define SL_LAYERS_JOURNAL_JOURNAL_H

#include "layers/journal/journal_file.h"
#include "layers/journal/prints.h"
#include "spmd/schedule/schedule.h"

SL_BEGIN_C

struct sl_journal; /* opaque; each coordinate has its own */

/* What is recorded, of one coordinate. What it points to outlives the journal. */
struct sl_journal_run {
    const struct sl_group *world;           /* of all coordinates */
    const struct sl_parameters *parameters; /* which have their values */
    const struct sl_schedule *schedule;     /* lowered */
    const char *stage_axis, *data_axis;
    const int *first_half; /* [loops] how many halves of layers are before each of this rank's stages */
    int rows, passes;      /* of a microbatch; through the schedule, a step */
    int wgrad_group;       /* microbatches in a weight gradient */
    enum sl_dtype precision, storage;
    const char *products; /* who computes them */
    int64_t steps;        /* taken so far */
};

/* What a step's records should be, in place of a file: those of a run before. */
struct sl_journal_expected {
    const struct sl_journal_record *record; /* [count] of one step, which sl_journal_next has read */
    int count;
    /* Filled in at the end of a step. */
    int first;                      /* the first record that is another; -1: none is */
    struct sl_journal_record found; /* there; its kind is SL_JOURNAL_END where there was none */
};

struct sl_journal_options {
    struct sl_journal_expected *expected; /* NULL: a file is written. Else nothing is collective, and all that follows
                                             is left out */
    const char *directory;                /* which is there */
    int every;                            /* steps from one that is recorded to the next: 0, every, 2 every, ... */
    bool resumes;                 /* goes on with a file that is there, which loses what is beyond the run's steps */
    const struct sl_store *notes; /* of the run, for its head; may be NULL */
};

/* Makes DIRECTORY, unless it is there. SL_BAD_INPUT if no file can be made in it. */
int sl_journal_prepare(const char *directory, struct sl_error *error);

/* Adds to BUDGET what a journal of RUN takes of devices' memory and beside it; of RUN are read parameters, schedule and
 * passes. */
void sl_journal_plan_bytes(const struct sl_journal_run *run, struct sl_budget *budget);
/* Opens the coordinate's file, writes its head and the values that the parameters have. Collective over the mesh.
 * SL_BAD_INPUT if the file cannot be opened, or if the run resumes and the file is no journal of its layout; SL_FAILED
 * if the disk is full. Free with sl_journal_close, also after a failure, once nobody has it. */
int sl_journal_open(struct sl_journal **journal, struct sl_spmd *self, const struct sl_journal_run *run,
                    const struct sl_journal_options *options);
void sl_journal_close(struct sl_journal *journal);

/* ---- for whoever trains ---- */

/* Before step STEP, from 0: whether it is recorded. */
bool sl_journal_begin(struct sl_journal *journal, int64_t step);
/* Where the optimizer leaves its hashes. */
struct sl_prints *sl_journal_prints(struct sl_journal *journal);
/* The pass of the step that follows, and the global number of its first row. */
void sl_journal_pass(struct sl_journal *journal, int pass, uint32_t first_row);
/* Rows of KIND that STAGE hands over, of COUNT microbatches from MICROBATCH on: ROWS rows of each, [rows, columns] of
 * DTYPE, in the device's memory. */
void sl_journal_rows(struct sl_journal *journal, enum sl_journal_kind kind, int stage, int microbatch, int count,
                     int rows, int columns, enum sl_dtype dtype, const void *data);
/* All of the step is in the device's queue: hashes that were made there come to the host when it waits for the queue
 * (sl_device.settle), as it has to before sl_journal_end. */
void sl_journal_complete(struct sl_journal *journal);
/* After the step, whose mean LOSS and NORM (NAN: there is none) are given: writes what was recorded. SL_FAILED if that
 * does not fit on the disk. */
int sl_journal_end(struct sl_journal *journal, double loss, double norm);

SL_END_C
#endif
