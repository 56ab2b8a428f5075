/* file_tree.c - walks a directory. */
#include "layers/formats/files/file_tree.h"

#include <errno.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/base/memory.h"

enum { SHOWN = 250 }; /* bytes of a path in a message, to leave room for the reason */

static int add(struct sl_file_tree *tree, const char *path, struct sl_error *error) {
    char **grown = sl_grow(tree->path, tree->files, &tree->capacity, 64, sizeof *tree->path), *copy = strdup(path);
    if (grown) tree->path = grown;
    if (grown && copy) {
        tree->path[tree->files++] = copy;
        return SL_OK;
    }
    free(copy);
    return sl_error_set(error, SL_FAILED, "%s: out of memory", path);
}

static int take(struct sl_file_tree *tree, FTS *walk, FTSENT *entry, struct sl_error *error) {
    if (entry->fts_info == FTS_DP) return SL_OK; /* a directory after its entries */
    if (entry->fts_info == FTS_DNR || entry->fts_info == FTS_ERR || entry->fts_info == FTS_NS)
        return sl_error_set(error, SL_BAD_INPUT, "%.*s%s: cannot be read: %s", SHOWN, entry->fts_path,
                            entry->fts_pathlen > SHOWN ? "..." : "", strerror(entry->fts_errno));
    if (entry->fts_level > FTS_ROOTLEVEL && entry->fts_name[0] == '.') {
        tree->hidden++;
        fts_set(walk, entry, FTS_SKIP);
        return SL_OK;
    }
    if (entry->fts_info == FTS_F) return add(tree, entry->fts_path, error);
    if (entry->fts_info == FTS_SL) tree->links++;
    if (entry->fts_info == FTS_DEFAULT) tree->others++;
    return SL_OK;
}

/* strcmp rather than strcoll, whose order depends on the locale. */
static int by_path(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

int sl_file_tree_open(struct sl_file_tree *tree, const char *directory, struct sl_error *error) {
    char *const roots[] = {(char *)directory, NULL};
    int status = SL_OK;
    *tree = (struct sl_file_tree){0};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, NULL);
    if (!walk) return sl_error_set(error, SL_BAD_INPUT, "%s: cannot be read: %s", directory, strerror(errno));
    errno = 0;
    for (FTSENT *entry; status == SL_OK && (entry = fts_read(walk)); errno = 0) status = take(tree, walk, entry, error);
    if (status == SL_OK && errno)
        status = sl_error_set(error, SL_BAD_INPUT, "%s: cannot be read: %s", directory, strerror(errno));
    fts_close(walk);
    if (tree->files) qsort(tree->path, (size_t)tree->files, sizeof *tree->path, by_path);
    return status;
}

void sl_file_tree_close(struct sl_file_tree *tree) {
    for (int i = 0; i < tree->files; i++) free(tree->path[i]);
    free(tree->path);
    *tree = (struct sl_file_tree){0};
}
