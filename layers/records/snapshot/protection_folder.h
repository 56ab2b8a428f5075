/* protection_folder.h - the folder in memory with a run's latest steps (layers/records/snapshot/protection.h), as its
 * supervisor sees it.
 *
 * It is /dev/shm/shardloop-USER-HASH, by the real path of the directory of --save, which its file `save` names. Each
 * start of the run has a folder of its own in it, and there the file layout.json, an index of parts
 * (layers/formats/stores/store_parts.h) as of no step, and the parts of two steps. A step counts if all its parts are
 * valid and have its number. */
#ifndef SL_LAYERS_RECORDS_SNAPSHOT_PROTECTION_FOLDER_H
#define SL_LAYERS_RECORDS_SNAPSHOT_PROTECTION_FOLDER_H

#include "layers/training/checkpoint.h"

SL_BEGIN_C

#define SL_PROTECTION_ROOT "/dev/shm"
#define SL_PROTECTION_PREFIX "shardloop-"
#define SL_PROTECTION_LAYOUT "layout.json"
enum { SL_PROTECTION_STEPS = 2 }; /* in each start's folder */

/* Writes the folder's name for the directory SAVE, which may not exist yet, to FOLDER. SL_BAD_INPUT if SAVE cannot be
 * found. */
int sl_protection_name(const char *save, char folder[SL_MAX_PATH], struct sl_error *error);
/* Makes the folder, and in it a new folder START for a run. SL_BAD_INPUT if it cannot be made, or is another user's. */
int sl_protection_make(const char *save, char start[SL_MAX_PATH], struct sl_error *error);
/* Writes the name of part PART, from 1, of PARTS in place PLACE, from 0, to PATH. */
void sl_protection_part(const char *start, int place, int part, int parts, char path[SL_MAX_PATH]);

/* Looks for the latest step of SAVE that counts. Returns its number, -1: there is none; and writes an index of it to
 * INDEX, a checkpoint for all readers of checkpoints. Its data have been verified. */
int64_t sl_protection_find(const char *save, char index[SL_MAX_PATH]);
/* The number of the latest step of SAVE that counts, without an index and without verification; -1: none. */
int64_t sl_protection_step(const char *save);

/* Removes all starts' folders from FOLDER but the one that has the file EXCEPT; NULL: FOLDER, too. */
void sl_protection_remove(const char *folder, const char *except);
/* Removes the folder of SAVE, if there is one. */
void sl_protection_forget(const char *save);

SL_END_C
#endif
