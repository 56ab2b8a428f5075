/* ring_names.c - the names of a ring's files, and a list of existing ones. */
#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>

#include "layers/records/replay/ring.h"
#include "spmd/base/memory.h"

static int too_long(const char *directory, struct sl_error *error) {
    return sl_error_set(error, SL_BAD_INPUT, "%.100s...: the path is too long", directory);
}

int sl_ring_opening_name(const char *directory, int coordinate, char path[SL_MAX_PATH], struct sl_error *error) {
    const int length = snprintf(path, SL_MAX_PATH, "%s/coordinate-%02d.opening", directory, coordinate);
    return length < SL_MAX_PATH ? SL_OK : too_long(directory, error);
}

int sl_ring_segment_name(const char *directory, int coordinate, int64_t first, char path[SL_MAX_PATH],
                         struct sl_error *error) {
    const int length =
        snprintf(path, SL_MAX_PATH, "%s/coordinate-%02d-%012" PRId64 ".segment", directory, coordinate, first);
    return length < SL_MAX_PATH ? SL_OK : too_long(directory, error);
}

static int ascending(const void *a, const void *b) {
    const int64_t one = *(const int64_t *)a, other = *(const int64_t *)b;
    return (one > other) - (one < other);
}

int sl_ring_list(const char *directory, int coordinate, int64_t **first) {
    DIR *open = opendir(directory);
    int count = 0, room = 0;
    *first = NULL;
    for (const struct dirent *entry; open && count >= 0 && (entry = readdir(open));) {
        int64_t step;
        int whose, end = 0;
        if (sscanf(entry->d_name, "coordinate-%2d-%12" SCNd64 ".segment%n", &whose, &step, &end) != 2 || !end ||
            entry->d_name[end] || whose != coordinate || step < 0)
            continue;
        int64_t *list = sl_grow(*first, count, &room, 8, sizeof *list);
        if (list) *first = list, list[count] = step;
        count = list ? count + 1 : -1;
    }
    if (open) closedir(open);
    if (count > 1) qsort(*first, (size_t)count, sizeof **first, ascending);
    return count;
}
