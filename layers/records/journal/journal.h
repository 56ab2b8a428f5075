/* journal.h - records hashes of a run's results, step by step, in one file per coordinate. The format is in
 * journal_file.h; the driver diff compares two runs by their journals.
 *
 * A step's records are hashes of the rows that its stages send in both directions, by microbatch; the loss; hashes of
 * the sums of gradients; their norm, if they are clipped; and hashes of the parameters after the step. Hashes of the
 * initial parameters come before the first step. The bits of the run do not change. Steps allocate no memory, and write
 * the file once, at their end. */
#ifndef SL_LAYERS_RECORDS_JOURNAL_JOURNAL_H
#define SL_LAYERS_RECORDS_JOURNAL_JOURNAL_H

#include "layers/records/journal/journal_file.h"
#include "layers/records/journal/prints.h"
#include "spmd/cut.h"
#include "spmd/schedule/schedule.h"

SL_BEGIN_C

struct sl_journal; /* opaque; each coordinate has its own */

/* The recorded run, seen from one coordinate. Everything it points to must outlive the journal. */
struct sl_journal_run {
    const struct sl_group *world;           /* of all coordinates */
    const struct sl_parameters *parameters; /* with their values */
    const struct sl_schedule *schedule;     /* lowered */
    const char *stage_axis, *data_axis;
    const int *first_half; /* [loops] halves of layers before each of this rank's stages */
    int rows, passes;      /* rows of a microbatch; passes through the schedule per step */
    int sequence;          /* of these rows, if sequences are divided: */
    struct sl_cut cut;
    int wgrad_group; /* microbatches in a weight gradient */
    enum sl_dtype precision, storage;
    const char *products; /* name of their backend */
    int64_t steps;        /* taken so far */
};

/* Expected records of a step, from an earlier run, to compare with instead of writing a file. */
struct sl_journal_expected {
    const struct sl_journal_record *record; /* [count] of one step, from sl_journal_next */
    int count;
    /* Set at the end of a step. */
    int first;                      /* index of the first record that differs; -1: none */
    struct sl_journal_record found; /* the record found there; SL_JOURNAL_END if there was none */
};

struct sl_journal_options {
    struct sl_journal_expected
        *expected;                /* NULL: write a file; else compare with these, and ignore the options below */
    const char *directory;        /* must exist */
    int every;                    /* distance of recorded steps: 0, every, 2 every, ... */
    bool resumes;                 /* continue an existing file, after removing records beyond the run's steps */
    const struct sl_store *notes; /* notes of the run, for the head; may be NULL */
};

/* Creates DIRECTORY if it does not exist. SL_BAD_INPUT if files cannot be created in it. */
int sl_journal_prepare(const char *directory, struct sl_error *error);

/* Adds the device and host memory of a journal of RUN to BUDGET; reads only RUN's parameters, schedule and passes. */
void sl_journal_plan_bytes(const struct sl_journal_run *run, struct sl_budget *budget);
/* Opens the coordinate's file, and writes its head and hashes of the current parameters. Collective over the mesh.
 * SL_BAD_INPUT if the file cannot be opened, or if the run resumes and the file is not a journal of its layout;
 * SL_FAILED if the disk is full. Free with sl_journal_close, also after a failure, once the journal is no longer in
 * use. */
int sl_journal_open(struct sl_journal **journal, struct sl_spmd *self, const struct sl_journal_run *run,
                    const struct sl_journal_options *options);
void sl_journal_close(struct sl_journal *journal);

/* ---- recording, for a training loop ---- */

/* Begins step STEP, from 0; returns whether it is recorded. */
bool sl_journal_begin(struct sl_journal *journal, int64_t step);
/* Returns the struct to which the optimizer adds its hashes. */
struct sl_prints *sl_journal_prints(struct sl_journal *journal);
/* Sets the current pass of the step, and the global number of its first row. */
void sl_journal_pass(struct sl_journal *journal, int pass, uint32_t first_row);
/* Records rows of KIND that STAGE sends: those of COUNT microbatches, the first one being MICROBATCH. DATA [COUNT,
 * ROWS, columns] is of DTYPE, in device memory. */
void sl_journal_rows(struct sl_journal *journal, enum sl_journal_kind kind, int stage, int microbatch, int count,
                     int rows, int columns, enum sl_dtype dtype, const void *data);
/* Queues the copy of hashes from the device. Call it when the whole step is in the device's queue. Then wait for the
 * queue (sl_device.settle) before sl_journal_end. */
void sl_journal_complete(struct sl_journal *journal);
/* Ends a step with its mean LOSS and NORM (NAN: there is none), and writes its records. SL_FAILED if they do not fit on
 * the disk. */
int sl_journal_end(struct sl_journal *journal, double loss, double norm);

SL_END_C
#endif
