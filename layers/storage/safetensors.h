/* safetensors.h - stores as files in the safetensors format: a header length in 8 bytes (little-endian), a JSON header,
 * the data. Source of the format: the README of the safetensors project. A store's notes are the header's __metadata__.
 *
 * A file can be read or written whole. Or its tensors stay in the file, which is mapped into memory, so that no process
 * needs memory for all of them. sl_safetensors_map maps an existing file, read-only. A new file is made in place:
 *
 *     sl_store_declare(&store, "a", SL_F32, 1, &n);         // likewise all other tensors and all notes
 *     sl_safetensors_create(&store, path, &error);          // now every tensor has data: zeros
 *     memcpy(sl_store_find(&store, "a")->array.data, a, n * sizeof *a);
 *     sl_safetensors_commit(&store, NULL, NULL, &error);
 *
 * Before the commit the file has a temporary name, PATH.PROCESS.tmp. So a crash leaves either the old file or the new
 * one. sl_store_free removes a file that was not committed. */
#ifndef SL_LAYERS_STORAGE_SAFETENSORS_H
#define SL_LAYERS_STORAGE_SAFETENSORS_H

#include "layers/storage/store.h"

SL_BEGIN_C

/* SL_BAD_INPUT if PATH cannot be written: it is not a regular file, or its directory is missing or not writable. */
int sl_safetensors_can_write(const char *path, struct sl_error *error);
/* Writes STORE, sorted by name. SL_FAILED if the file system fails (disk full); the old file then stays. */
int sl_safetensors_write(const struct sl_store *store, const char *path, struct sl_error *error);
/* Replaces STORE by the contents of PATH. SL_BAD_INPUT if the file is missing, malformed or truncated, or if its
 * tensors overlap or leave holes; the line names the path, the tensor and the reason, and STORE is untouched. */
int sl_safetensors_read(struct sl_store *store, const char *path, struct sl_error *error);
/* The same, but the tensors stay in the mapped file, read-only. Nobody may truncate the file while the store lives. */
int sl_safetensors_map(struct sl_store *store, const char *path, struct sl_error *error);

/* Creates the file for STORE, whose tensors are declared, and reserves all its space: a full disk is SL_FAILED here.
 * Sorts the tensors by name. Free STORE also after a failure. */
int sl_safetensors_create(struct sl_store *store, const char *path, struct sl_error *error);
/* Syncs the file, renames it to its path, and frees STORE, also after a failure. BETWEEN (may be NULL) is called again
 * and again while the file is written to the disk; if it returns a status other than SL_OK, the file is removed and
 * that status returned. */
int sl_safetensors_commit(struct sl_store *store, int (*between)(void *arg), void *arg, struct sl_error *error);

SL_END_C
#endif
