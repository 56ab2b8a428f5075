/* file_tree.h - the files below a directory. */
#ifndef SL_LAYERS_FORMATS_FILES_FILE_TREE_H
#define SL_LAYERS_FORMATS_FILES_FILE_TREE_H

#include "spmd/base/error.h"

SL_BEGIN_C

/* Free with sl_file_tree_close. */
struct sl_file_tree {
    char **path; /* of the regular files: DIRECTORY/NAME and DIRECTORY/NAME/.../NAME */
    int files, capacity;
    /* Numbers of skipped entries. A hidden directory counts once. */
    int links, hidden;
    int others; /* FIFOs, sockets, devices */
};

/* Lists the regular files of DIRECTORY (which may be a link) and of all directories below it, sorted by the bytes of
 * their paths. Links are not followed, so there are no loops; files and directories with a leading dot are hidden.
 * SL_BAD_INPUT names an unreadable entry. Close it also after a failure. */
int sl_file_tree_open(struct sl_file_tree *tree, const char *directory, struct sl_error *error);
void sl_file_tree_close(struct sl_file_tree *tree);

SL_END_C
#endif
