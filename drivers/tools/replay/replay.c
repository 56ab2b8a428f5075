/* replay.c - replays one coordinate of a recorded run: becomes the driver of that run, with its options. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/command_line/become.h"
#include "drivers/common/options.h"
#include "layers/records/journal/journal_file.h"
#include "layers/records/replay/ring.h"

enum { MOST_STEPS = 1000000000 };

struct config {
    const char *journal;
    int coordinate, step;
    bool json;
};

#define FIELD(name) offsetof(struct config, name)

static const struct sl_option table[] = {
    {"journal", SL_OPTION_TEXT, FIELD(journal), .value = "DIR", .path = SL_PATH_DATA,
     .help = "the directory of a run with --journal DIR and --journal-messages N"},
    {"coordinate", SL_OPTION_INTEGER, FIELD(coordinate), .min = 0, .max = SL_MOST_COORDINATES - 1,
     .help = "the coordinate of the run's mesh to run"},
    {"step", SL_OPTION_INTEGER, FIELD(step), .min = -1, .max = MOST_STEPS,
     .help = "the last step to run, one whose messages are stored; the run begins with the stored state at most N/2 "
             "steps earlier; -1: the last stored step"},
    {"json", SL_OPTION_FLAG, FIELD(json), .help = "print one object of JSON"},
    {0},
};

/* Checks the journal; a coordinate outside the mesh has an error message of its own. */
static int check_journal(const struct config *config, struct sl_error *error) {
    struct sl_journal_file journal = {0};
    struct sl_mesh mesh;
    char path[SL_MAX_PATH];
    if (!config->journal) return sl_error_set(error, SL_BAD_INPUT, "no journal: give --journal DIR");
    SL_TRY(sl_journal_name(config->journal, 0, path, error));
    int status = sl_journal_file_open(&journal, path, error);
    if (status == SL_OK) status = sl_mesh_parse(&mesh, journal.mesh, error);
    if (status == SL_OK && config->coordinate >= mesh.size)
        status = sl_error_set(error, SL_BAD_INPUT, "--coordinate %d: %.200s has coordinates 0 to %d",
                              config->coordinate, config->journal, mesh.size - 1);
    sl_journal_file_close(&journal);
    return status;
}

/* Finds the requested step, or else the last one. */
static int find(const struct config *config, struct sl_ring_file *file, int64_t *step, struct sl_error *error) {
    char path[SL_MAX_PATH];
    FILE *opening = NULL;
    SL_TRY(sl_ring_opening_name(config->journal, config->coordinate, path, error));
    if (!(opening = fopen(path, "r")))
        return sl_error_set(error, SL_BAD_INPUT, "%s: there are no messages: record them with --journal-messages N",
                            config->journal);
    fclose(opening);
    *step = config->step;
    if (config->step < 0) SL_TRY(sl_ring_last(config->journal, config->coordinate, step, error));
    return sl_ring_find(file, config->journal, config->coordinate, *step, error);
}

/* Becomes the driver; returns only if it is missing. */
static int become(const struct config *config, const struct sl_ring_file *file, int64_t step, struct sl_error *error) {
    char place[60], *whole = realpath(config->journal, NULL), *journal = NULL;
    int words = 0, count = 0;
    while (file->word[words]) words++;
    char **argv = calloc((size_t)words + 5, sizeof *argv);
    snprintf(place, sizeof place, "--replay=%d@%" PRId64, config->coordinate, step);
    if (!whole || !argv || asprintf(&journal, "--journal=%s", whole) < 0) {
        free(whole);
        free(argv);
        return sl_error_set(error, SL_FAILED, "no memory to replay");
    }
    for (; count < words; count++) argv[count] = (char *)file->word[count];
    argv[count++] = journal;
    argv[count++] = place;
    if (config->json) argv[count++] = "--json";
    fflush(stdout);
    const int status = sl_become(file->word[0], file->word[0], argv);
    free(whole);
    free(journal);
    free(argv);
    return status;
}

static int run(const struct config *config, struct sl_error *error) {
    struct sl_ring_file file = {0};
    int64_t step;
    SL_TRY(check_journal(config, error));
    int status = find(config, &file, &step, error);
    if (status == SL_OK) status = become(config, &file, step, error);
    sl_ring_file_close(&file);
    return status;
}

int main(int argc, char **argv) {
    struct config config = {.step = -1};
    struct sl_options options = {
        .program = "replay",
        .summary = "Runs one coordinate of a recorded run again, alone in one process, with the messages that it "
                   "received then, and compares all hashes with the journal's. The exit status is 1 if one "
                   "differs. The process becomes the driver that has trained, so that it can be run under a debugger.",
        .section = SL_SECTIONS({"Replay", table, &config}),
    };
    struct sl_error error = {0};
    int status = sl_options_parse(&options, argc, argv);
    if (status == SL_OK && !options.answered) status = sl_options_finish(&options, run(&config, &error), &error);
    sl_options_free(&options);
    return status;
}
