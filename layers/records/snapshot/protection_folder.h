/* protection_folder.h - the folder in memory with a run's latest steps (layers/records/snapshot/protection.h), for the
 * process that supervises the run.
 *
 * The folder is /dev/shm/shardloop-USER-HASH. HASH is that of the real path of the directory of --save, and the file
 * `save` in the folder has this path; the file `command` is the watcher's. Each start of the run has a subfolder, with
 * the file layout.json, which is an index of parts (layers/formats/stores/store_parts.h) without a step, and with the
 * parts of two steps, or three on several hosts. A step counts if all its parts are valid and have its number.
 *
 * If a run's coordinates are on several hosts, each host has such a folder, with the same names. Its parts are those of
 * the host's own coordinates, and copies of those of the host before it
 * (layers/records/snapshot/protection_copies.h). The layout has their number in the note SL_PROTECTION_HOSTS. On more
 * than two hosts a step counts if those of its parts that have files on this host are valid. The other parts are
 * brought here when a run begins (layers/records/snapshot/protection_collect.h). */
#ifndef SL_LAYERS_RECORDS_SNAPSHOT_PROTECTION_FOLDER_H
#define SL_LAYERS_RECORDS_SNAPSHOT_PROTECTION_FOLDER_H

#include "layers/training/checkpoint.h"

SL_BEGIN_C

#define SL_PROTECTION_ROOT "/dev/shm"
#define SL_PROTECTION_PREFIX "shardloop-"
#define SL_PROTECTION_LAYOUT "layout.json"
#define SL_PROTECTION_COMMAND "command"
#define SL_PROTECTION_HOSTS "protection.hosts"
enum { SL_PROTECTION_PLACES = 3 }; /* the most steps in a start's folder */

/* Writes the folder's name for the directory SAVE, which may not exist yet, to FOLDER. SL_BAD_INPUT if SAVE cannot be
 * found. */
int sl_protection_name(const char *save, char folder[SL_MAX_PATH], struct sl_error *error);
/* Whether FOLDER is a real folder, not a link, and belongs to this user alone: all users can make such names in
 * SL_PROTECTION_ROOT. Other folders are neither read nor removed. */
bool sl_protection_is_own(const char *folder);
/* Makes FOLDER, unless it exists, and the new subfolder START for a run; if START is empty, it receives a new name.
 * REAL is the real path of the directory of --save. SL_BAD_INPUT if one cannot be made, or if the folder is another
 * user's. */
int sl_protection_make(const char *folder, const char *real, char start[SL_MAX_PATH], struct sl_error *error);
/* Writes the path of part PART (from 1) of PARTS to PATH. PLACE (from 0) is the step's place in START. */
void sl_protection_part(const char *start, int place, int part, int parts, char path[SL_MAX_PATH]);

/* Looks for the latest step of SAVE that counts, verifies its data, and writes an index, which all readers of
 * checkpoints can open. INDEX receives the path. Returns the step's number; -1: there is none. If other hosts have some
 * parts, the data are not verified and no file is written; *WHOLE (may be NULL) becomes false. */
int64_t sl_protection_find(const char *save, char index[SL_MAX_PATH], bool *whole);
/* Verifies the data of STEP in START, of which this host has all PARTS in PLACE, and writes its index, as above. */
bool sl_protection_complete(const char *start, int place, int parts, int64_t step, char index[SL_MAX_PATH],
                            int (*between)(void *arg), void *arg);
/* The number of parts of each step in START; 0: it has no layout. */
int sl_protection_parts(const char *start);
/* The number of the step whose part is the file PATH, and the part's root (may be NULL); -1: it is no valid part. */
int64_t sl_protection_read_part(const char *path, uint64_t *root);
/* The number of the latest step of SAVE that counts, without an index and without verification; -1: none. */
int64_t sl_protection_step(const char *save);

/* Whether INDEX is a name of a step in memory. */
bool sl_protection_is_in_memory(const char *index);
/* For the processes of a run that continues from INDEX, but on other hosts: their options are those of its notes, which
 * sl_protection_tell writes to a file in SAVE (SL_FAILED if it cannot be written). is_elsewhere returns whether INDEX
 * is a step in the memory of other hosts, and writes the file's name to PATH. tell_no_more removes the file. */
int sl_protection_tell(const char *save, const char *index, struct sl_error *error);
bool sl_protection_is_elsewhere(const char *index, const char *save, char path[SL_MAX_PATH]);
void sl_protection_tell_no_more(const char *save);

/* Files in the folder by which a run on several hosts leaves them (layers/records/snapshot/protection_leave.h). ask:
 * asks the run of SAVE to leave; returns whether its steps, on this host, are those of a run on several hosts.
 * has_left: whether it has. is_asked_to_leave and say_left are for coordinate 0's process. The next start removes the
 * files. */
bool sl_protection_ask_to_leave(const char *save);
bool sl_protection_has_left(const char *save);
bool sl_protection_is_asked_to_leave(const char *folder);
void sl_protection_say_left(const char *folder);

/* Removes all steps from FOLDER except that of the index FROM (NULL: all), which sl_protection_find has written. The
 * file `command` is kept only beside such a step. Returns whether FOLDER has the subfolder of FROM. */
bool sl_protection_keep(const char *folder, const char *from);
/* Removes from FOLDER the subfolders of all starts except the one that contains the file EXCEPT. NULL removes FOLDER,
 * too. */
void sl_protection_remove(const char *folder, const char *except);
/* The bytes of all files in the folder of SAVE on this host. */
double sl_protection_bytes(const char *save);

SL_END_C
#endif
