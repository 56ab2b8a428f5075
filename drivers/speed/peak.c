/* peak.c - peaks in a JSON file. */
#include "drivers/speed/peak.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "drivers/common/metrics.h"
#include "spmd/device/device.h"

enum { MOST_PEAKS = 256, MOST_CORES = 1 << 20 };
static const double most_flops = 1e21;

/* ---- this machine ---- */

/* Replaces characters other than printable ASCII. */
static void make_plain(char *text) {
    for (; *text; text++)
        if (*text < ' ' || *text > '~') *text = '?';
}

static void find_processor(char *text, size_t size) {
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");
    snprintf(text, size, "unknown");
    while (file && fgets(line, sizeof line, file)) {
        const char *value = strstr(line, ": ");
        if (strncmp(line, "model name", 10) != 0 || !value) continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(text, size, "%s", value + 2);
        break;
    }
    if (file) fclose(file);
}

struct sl_peak_key sl_peak_key(const char *library, const char *precision, int cores, int usable) {
    struct sl_peak_key key = {.cores = cores, .usable = usable};
    if (gethostname(key.host, sizeof key.host - 1)) key.host[0] = '\0';
    if (strcmp(sl_device.name, "cpu") != 0)
        snprintf(key.processor, sizeof key.processor, "%s", sl_device.name);
    else
        find_processor(key.processor, sizeof key.processor);
    snprintf(key.library, sizeof key.library, "%s", library);
    snprintf(key.precision, sizeof key.precision, "%s", precision);
    make_plain(key.host);
    make_plain(key.processor);
    return key;
}

void sl_peak_date(char date[11]) {
    const time_t now = time(NULL);
    struct tm parts;
    if (!gmtime_r(&now, &parts) || !strftime(date, 11, "%Y-%m-%d", &parts)) snprintf(date, 11, "unknown");
}

bool sl_peak_path(char path[SL_MAX_PATH]) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length = SL_MAX_PATH;
    if (cache && *cache == '/')
        length = snprintf(path, SL_MAX_PATH, "%s/shardloop/peaks.json", cache);
    else if (home && *home == '/')
        length = snprintf(path, SL_MAX_PATH, "%s/.cache/shardloop/peaks.json", home);
    return length < SL_MAX_PATH;
}

/* ---- reading ---- */

/* An entry of the file. */
struct entry {
    const char *host, *processor, *library, *precision, *date;
    int cores, usable; /* usable is missing in files of older versions; such entries match no run */
    double flops;
};

static bool read_entry(json_t *object, struct entry *entry) {
    entry->usable = -1;
    if (json_unpack(object, "{s:s,s:s,s:s,s:s,s:i,s?i,s:F,s:s}", "host", &entry->host, "processor", &entry->processor,
                    "library", &entry->library, "precision", &entry->precision, "cores", &entry->cores, "usable",
                    &entry->usable, "flops_per_second", &entry->flops, "date", &entry->date))
        return false;
    return entry->cores > 0 && entry->cores <= MOST_CORES && entry->flops > 0 && entry->flops <= most_flops &&
           strlen(entry->date) == 10 && strspn(entry->date, "0123456789-") == 10;
}

static bool matches(const struct entry *entry, const struct sl_peak_key *key) {
    return entry->cores == key->cores && entry->usable == key->usable && !strcmp(entry->host, key->host) &&
           !strcmp(entry->processor, key->processor) && !strcmp(entry->library, key->library) &&
           !strcmp(entry->precision, key->precision);
}

/* Returns the list of PATH's entries, all valid; an empty one if there is no file. NULL: ERROR has the reason. If
 * memory is lacking, jansson's errors vary: only errno, ENOMEM, is reliable. */
static json_t *read_all(const char *path, struct sl_error *error) {
    struct stat about;
    struct entry entry;
    errno = 0;
    if (stat(path, &about) && (errno == ENOENT || errno == ENOTDIR)) return json_array();
    json_t *root = sl_json_read("", path, JSON_REJECT_DUPLICATES, error);
    if (!root) return NULL;
    json_t *list = json_incref(json_object_get(root, "peaks"));
    json_decref(root);
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (read_entry(json_array_get(list, i), &entry)) continue;
        sl_error_set(error, SL_BAD_INPUT, "%s: peak %zu is damaged", path, i);
        json_decref(list);
        return NULL;
    }
    if (json_is_array(list)) return list;
    sl_error_set(error, SL_BAD_INPUT, "%s: has no list of peaks", path);
    json_decref(list);
    return NULL;
}

int sl_peak_read(const char *path, const struct sl_peak_key *key, struct sl_peak *peak, struct sl_error *error) {
    struct entry entry;
    *peak = (struct sl_peak){0};
    json_t *list = read_all(path, error);
    if (!list) return SL_BAD_INPUT;
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (!read_entry(json_array_get(list, i), &entry) || !matches(&entry, key)) continue;
        peak->flops = entry.flops;
        snprintf(peak->date, sizeof peak->date, "%s", entry.date);
    }
    json_decref(list);
    return SL_OK;
}

/* ---- writing ---- */

/* Makes the directory of PATH, and its parent. */
static void make_directories(const char *path) {
    char directory[SL_MAX_PATH];
    snprintf(directory, sizeof directory, "%s", path);
    char *last = strrchr(directory, '/');
    *last = '\0';
    char *before = strrchr(directory, '/');
    if (before && before != directory) {
        *before = '\0';
        mkdir(directory, 0700);
        *before = '/';
    }
    mkdir(directory, 0700); /* if it fails, opening the file reports the error */
}

static void remove_peak(json_t *list, const struct sl_peak_key *key) {
    struct entry entry;
    for (size_t i = json_array_size(list); i-- > 0;)
        if (read_entry(json_array_get(list, i), &entry) && matches(&entry, key)) json_array_remove(list, i);
    while (json_array_size(list) >= MOST_PEAKS) json_array_remove(list, 0);
}

/* Prints the list as text, which the caller frees; NULL without memory. */
static char *print_all(json_t *list, const struct sl_peak_key *key, const struct sl_peak *peak) {
    json_array_append_new(list, json_pack("{ss ss ss ss si si sf ss}", "host", key->host, "processor", key->processor,
                                          "library", key->library, "precision", key->precision, "cores", key->cores,
                                          "usable", key->usable, "flops_per_second", peak->flops, "date", peak->date));
    json_t *root = json_pack("{sO}", "peaks", list);
    char *text = root ? json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) : NULL;
    json_decref(root);
    return text;
}

/* Writes the text; returns 0, or the error's number. */
static int write_text(int descriptor, const char *text) {
    for (size_t left = strlen(text); left;) {
        const ssize_t count = write(descriptor, text, left);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return errno;
        text += count;
        left -= (size_t)count;
    }
    return 0;
}

int sl_peak_write(const char *path, const struct sl_peak_key *key, const struct sl_peak *peak, struct sl_error *error) {
    struct sl_error damaged = {0};
    struct sl_draft draft = {0};
    json_t *list = read_all(path, &damaged);
    if (!list && errno == ENOMEM) return sl_error_set(error, SL_FAILED, "%s: no memory", path);
    if (!list) list = json_array();
    remove_peak(list, key);
    char *text = print_all(list, key, peak);
    json_decref(list);
    if (!text) return sl_error_set(error, SL_FAILED, "%s: no memory", path);
    make_directories(path);
    int status = sl_draft_open(&draft, path, SL_LINKS_FOLLOWED, error);
    if (status == SL_OK) status = sl_draft_finish(&draft, write_text(draft.descriptor, text), error);
    free(text);
    return status;
}
