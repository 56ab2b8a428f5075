/* saved_job.h - a transformer small enough to be saved often, and comparison of files. Includes cmocka. */
#ifndef SL_TESTS_RIGS_SAVED_JOB_H
#define SL_TESTS_RIGS_SAVED_JOB_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/rigs/transformer_job.h"

/* Returns a job with four layers. A test adds the sharding and the run's program. */
static inline struct job saved_job(const char *mesh) {
    return (struct job){.mesh = mesh,
                        .schedule = "looped-bfs",
                        .model = {.vocabulary = 32,
                                  .dimension = 16,
                                  .heads = 2,
                                  .blocks = 2,
                                  .layers_per_block = 2,
                                  .latent = 8,
                                  .rope = 8,
                                  .positions = 4,
                                  .dropout = 0.1},
                        .loops = 1,
                        .batch = 8,
                        .sequence = 4,
                        .shared_out = true,
                        .overlap = true,
                        .optimizer = sl_adamw_defaults(1e-2f)};
}

struct file {
    unsigned char *data;
    size_t bytes;
};

/* Reads the file NAME; the caller frees its data. Ends the test if the file does not exist. */
static inline struct file read_file(const char *name) {
    struct file file = {0};
    FILE *stream = fopen(name, "rb");
    if (!stream) fail_msg("%s is not there", name);
    fseek(stream, 0, SEEK_END);
    file.bytes = (size_t)ftell(stream);
    rewind(stream);
    file.data = malloc(file.bytes + 1);
    assert_non_null(file.data);
    assert_int_equal(fread(file.data, 1, file.bytes, stream), file.bytes);
    fclose(stream);
    return file;
}

/* Compares two files, only in the process that has the results. Failures print WHAT, the name of the case. */
static inline void expect_same_files(const char *one, const char *two, const char *what) {
    if (!has_results()) return;
    struct file a = read_file(one), b = read_file(two);
    if (a.bytes != b.bytes || memcmp(a.data, b.data, a.bytes) != 0) fail_msg("%s: %s and %s differ", what, one, two);
    free(a.data);
    free(b.data);
}

#endif
