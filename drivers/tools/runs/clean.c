/* clean.c - removes steps in memory that dead runs have left, and segments of Open MPI that their processes have. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "drivers/common/options.h"
#include "drivers/common/output.h"
#include "drivers/training/restart/control.h"
#include "layers/records/snapshot/protection_folder.h"

struct config {
    bool dry_run;
};

static const struct sl_option table[] = {
    {"dry-run", SL_OPTION_FLAG, offsetof(struct config, dry_run), .help = "only print what would be removed"},
    {0},
};

/* Reads the name of FOLDER's directory of --save into SAVE; "": it is not known. */
static void read_save(const char *folder, char save[SL_MAX_PATH]) {
    char path[SL_MAX_PATH + 8];
    snprintf(path, sizeof path, "%s/save", folder);
    FILE *file = fopen(path, "r");
    const size_t length = file ? fread(save, 1, SL_MAX_PATH - 1, file) : 0;
    save[length] = '\0';
    if (file) fclose(file);
}

/* Whether a run saves in SAVE: the processes of a run lock the directory. */
static bool is_in_use(const char *save) {
    const int directory = *save ? open(save, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    const bool used = directory >= 0 && flock(directory, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
    if (directory >= 0) close(directory);
    return used;
}

/* The bytes of all files in FOLDER and its folders. */
static double bytes_of(const char *folder) {
    DIR *open = opendir(folder);
    char path[SL_MAX_PATH];
    double bytes = 0;
    for (const struct dirent *entry; open && (entry = readdir(open));) {
        struct stat about;
        if (*entry->d_name == '.' || snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >= SL_MAX_PATH)
            continue;
        if (!lstat(path, &about)) bytes += S_ISDIR(about.st_mode) ? bytes_of(path) : (double)about.st_size;
    }
    if (open) closedir(open);
    return bytes;
}

/* Removes the folder NAME and the files beside it, if no run and no watcher uses it. NAME may also be that of a file
 * beside a folder that is gone. */
static void clean(const struct config *config, const char *name, FILE *stream) {
    char folder[SL_MAX_PATH], save[SL_MAX_PATH];
    const int length = (int)strcspn(name, ".");
    snprintf(folder, sizeof folder, "%s/%.*s", SL_PROTECTION_ROOT, length, name);
    if (name[length] && !access(folder, F_OK)) return;
    if (!name[length] && !sl_protection_is_own(folder)) {
        fprintf(stream, "%s: is no folder of this user alone: stays\n", folder);
        return;
    }
    read_save(folder, save);
    const bool used = is_in_use(save) || sl_control_listens(folder);
    const char *done = used ? "is in use" : config->dry_run ? "would be removed" : "removed";
    fprintf(stream, "%s: %.1f MB of %s: %s\n", folder, 1e-6 * bytes_of(folder),
            *save ? sl_error_line(save) : "an unknown run", done);
    if (used || config->dry_run) return;
    sl_protection_remove(folder, NULL);
    sl_control_remove(folder);
}

/* ---- segments ---- */

/* Processes of Open MPI share memory by files called vader_segment.HOST.USER.JOB.RANK; a killed one leaves its file. */
static const char segment[] = "vader_segment.";
enum { FRESH = 60 }; /* seconds: a process that starts may not have mapped its file yet */

/* Adds the paths of segments that PROCESS has mapped, a line each. */
static void add_mapped(const char *process, FILE *mapped) {
    char path[64], *line = NULL;
    size_t room = 0;
    snprintf(path, sizeof path, "/proc/%.20s/maps", process);
    FILE *maps = isdigit((unsigned char)*process) ? fopen(path, "re") : NULL;
    while (maps && getline(&line, &room, maps) > 0)
        if (strstr(line, segment)) fputs(strchr(line, '/'), mapped);
    if (maps) fclose(maps);
    free(line);
}

/* Returns the paths of all segments that are mapped, a line each; the caller frees them. NULL: they are not known. */
static char *list_mapped(void) {
    char *text = NULL;
    size_t length;
    DIR *processes = opendir("/proc");
    FILE *mapped = processes ? open_memstream(&text, &length) : NULL;
    for (const struct dirent *entry; mapped && (entry = readdir(processes));) add_mapped(entry->d_name, mapped);
    if (mapped && fclose(mapped)) free(text), text = NULL;
    if (processes) closedir(processes);
    return text;
}

/* Removes the segment NAME, if it is this user's and none of MAPPED. */
static void clean_segment(const struct config *config, const char *name, const char *mapped, FILE *stream) {
    char line[SL_MAX_PATH];
    struct stat about;
    const int length = snprintf(line, sizeof line, SL_PROTECTION_ROOT "/%s\n", name) - 1;
    if (strstr(mapped, line)) return;
    line[length] = '\0';
    if (lstat(line, &about) || !S_ISREG(about.st_mode) || about.st_uid != getuid() ||
        time(NULL) < about.st_mtim.tv_sec + FRESH)
        return;
    fprintf(stream, "%s: %.1f MB of Open MPI: %s\n", sl_error_line(line), 1e-6 * (double)about.st_size,
            config->dry_run ? "would be removed" : "removed");
    if (!config->dry_run) unlink(line);
}

static int run(const struct config *config, struct sl_error *error) {
    struct sl_output output = {0};
    char prefix[64];
    SL_TRY(sl_output_open(&output, NULL, error));
    DIR *all = opendir(SL_PROTECTION_ROOT);
    char *mapped = list_mapped();
    snprintf(prefix, sizeof prefix, "%s%ld-", SL_PROTECTION_PREFIX, (long)getuid());
    for (const struct dirent *entry; all && (entry = readdir(all));)
        if (!strncmp(entry->d_name, prefix, strlen(prefix)))
            clean(config, entry->d_name, output.stream);
        else if (mapped && !strncmp(entry->d_name, segment, strlen(segment)))
            clean_segment(config, entry->d_name, mapped, output.stream);
    if (all) closedir(all);
    free(mapped);
    return sl_output_close(&output, SL_OK, error);
}

int main(int argc, char **argv) {
    struct config config = {0};
    struct sl_options options = {
        .program = "clean",
        .summary = "Removes the steps that this user's dead runs with --protect 1 have left in memory, in /dev/shm. "
                   "Such a run can then continue only from its last checkpoint. Steps of runs that train stay. Also "
                   "removes the segments there that killed processes of Open MPI have left.",
        .section = SL_SECTIONS({"Output", table, &config}),
    };
    struct sl_error error = {0};
    int status = sl_options_parse(&options, argc, argv);
    if (status == SL_OK && !options.answered) status = sl_options_finish(&options, run(&config, &error), &error);
    sl_options_free(&options);
    return status;
}
