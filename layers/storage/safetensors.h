/* safetensors.h - stores as files in the safetensors format: 8 bytes little-endian header length, a JSON header, the
 * data. Source of the format: the safetensors project's README. Notes are the header's __metadata__.
 *
 * Files are read or written whole, or tensors lie where they are in the file, so that no process needs memory for all
 * of them: mapped, read-only; or made in place: sl_store_declare(&store, "a", SL_F32, 1, &n);  ...and all the others;
 * notes, too sl_safetensors_create(&store, path, &error);   now they have data, zero memcpy(sl_store_find(&store,
 * "a")->array.data, a, n * sizeof *a); sl_safetensors_commit(&store, NULL, NULL, &error); Until it is committed the
 * file has a temporary name, PATH.PROCESS.tmp: a crash leaves either the old file or the new one. sl_store_free gives
 * it up. */
#ifndef SL_LAYERS_STORAGE_SAFETENSORS_H
#define SL_LAYERS_STORAGE_SAFETENSORS_H

#include "layers/storage/store.h"

SL_BEGIN_C

/* SL_BAD_INPUT where PATH could not be written: something other than a regular file, or in no directory of ours. */
int sl_safetensors_can_write(const char *path, struct sl_error *error);
/* Writes STORE, sorted by name. SL_FAILED where the file system fails (disk full); the old file then stays. */
int sl_safetensors_write(const struct sl_store *store, const char *path, struct sl_error *error);
/* Replaces STORE by what PATH holds. SL_BAD_INPUT, STORE untouched, for a file that is not there, malformed, truncated,
 * overlapping or with holes; the line names the path, the tensor and the reason. */
int sl_safetensors_read(struct sl_store *store, const char *path, struct sl_error *error);
/* The same, but tensors lie in the file, read-only; nobody may cut it short as long as the store lives. */
int sl_safetensors_map(struct sl_store *store, const char *path, struct sl_error *error);

/* Makes the file that STORE, whose tensors are declared, will be, with all its space reserved: a full disk is SL_FAILED
 * here. Sorts the tensors by name. Free STORE also after a failure. */
int sl_safetensors_create(struct sl_store *store, const char *path, struct sl_error *error);
/* Syncs the file, gives it its name, and frees STORE, also after a failure. BETWEEN (may be NULL) is called while parts
 * of it go to the disk; a status that it returns ends that, and the file is given up. */
int sl_safetensors_commit(struct sl_store *store, int (*between)(void *arg), void *arg, struct sl_error *error);

SL_END_C
#endif
