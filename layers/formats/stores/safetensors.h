/* safetensors.h - stores as files in the safetensors format: a header length in 8 bytes (little-endian), a JSON header,
 * the data. Source of the format: the README of the safetensors project. A store's notes are the header's __metadata__.
 *
 * A file can be read or written at once. Or its tensors stay in the mapped file, so no process needs memory for all of
 * them. sl_safetensors_map maps an existing file, read-only. A new file is made in place:
 *
 *     sl_store_declare(&store, "a", SL_F32, 1, &n);         // likewise all other tensors and all notes
 *     sl_safetensors_create(&store, path, &error);          // now every tensor has data: zeros
 *     memcpy(sl_store_find(&store, "a")->array.data, a, n * sizeof *a);
 *     sl_safetensors_commit(&store, NULL, NULL, &error);
 *
 * Before the commit the file has a temporary name, PATH.PROCESS.tmp, so a crash leaves either the old file or the new
 * one. sl_store_free removes an uncommitted file.
 *
 * If a store's field `checksums` is set, it is written with checksums (layers/formats/stores/checksums.h), and all its
 * floats must be finite. Checksums of a file are always checked: those of its header, and so of notes, names, dtypes
 * and shapes, when it is read or mapped; those of the data when it is read, or by sl_safetensors_verify. */
#ifndef SL_LAYERS_FORMATS_STORES_SAFETENSORS_H
#define SL_LAYERS_FORMATS_STORES_SAFETENSORS_H

#include "layers/formats/stores/store.h"

SL_BEGIN_C

/* SL_BAD_INPUT if PATH cannot be written: it is not a regular file, or its directory is missing or not writable. */
int sl_safetensors_can_write(const char *path, struct sl_error *error);
/* Writes STORE, sorted by name. SL_FAILED if the file system fails (disk full), or if a float of a store with checksums
 * is not finite; the old file then stays. */
int sl_safetensors_write(const struct sl_store *store, const char *path, struct sl_error *error);
/* Replaces STORE by the contents of PATH, sorted by name. SL_BAD_INPUT, with STORE unchanged, if the file is missing,
 * malformed, truncated or damaged, or if its tensors overlap or leave holes; the error names the path, the tensor and
 * the reason. */
int sl_safetensors_read(struct sl_store *store, const char *path, struct sl_error *error);
/* As sl_safetensors_read, but the tensors stay in the mapped file, read-only, and their data are not checked. The file
 * must not be truncated while the store exists. */
int sl_safetensors_map(struct sl_store *store, const char *path, struct sl_error *error);
/* Reads all data of STORE once, if it was mapped or read, also in parts (layers/formats/stores/store_parts.h).
 * SL_BAD_INPUT names a tensor that does not match its checksum, if the file has checksums, or has a non-finite float.
 * BETWEEN (may be NULL) is called after every few megabytes; a status other than SL_OK ends the work and is returned.
 */
int sl_safetensors_verify(const struct sl_store *store, int (*between)(void *arg), void *arg, struct sl_error *error);
/* Whether PATH was cut short: it is shorter than its header says. ERROR then has the reason. */
bool sl_safetensors_is_cut(const char *path, struct sl_error *error);

/* Creates the file for STORE, whose tensors are declared, and reserves all its space: a full disk is SL_FAILED here.
 * Sorts the tensors by name. Free STORE also after a failure. */
int sl_safetensors_create(struct sl_store *store, const char *path, struct sl_error *error);
/* Computes checksums if requested, syncs the file, renames it to its path, and frees STORE, also after a failure.
 * BETWEEN (may be NULL) is called repeatedly meanwhile; if it returns a status other than SL_OK, the file is removed
 * and that status returned. SL_FAILED as for sl_safetensors_write. */
int sl_safetensors_commit(struct sl_store *store, int (*between)(void *arg), void *arg, struct sl_error *error);

/* ---- memory that outlives the process ---- */

/* Makes the new file PATH, in a file system in memory, for STORE, whose tensors and notes are declared and which has
 * checksums. Reserves all its space; the tensors lie in it. It is no valid file until it is sealed. SL_FAILED if it
 * cannot be made; *NUMBER is then the errno. Free STORE also after a failure; the file stays. */
int sl_safetensors_place(struct sl_store *store, const char *path, int *number, struct sl_error *error);
/* Makes the file invalid; then its tensors may be written. */
void sl_safetensors_unseal(struct sl_store *store);
/* Makes the file valid by a single store after all others: a process that is killed meanwhile leaves an invalid file.
 * The tensors have their checksums (sl_checking_end). Notes, of characters that JSON does not escape, may have changed,
 * but not their lengths; otherwise returns false, and the file stays invalid. */
bool sl_safetensors_seal(struct sl_store *store);

/* Makes the new file PATH of BYTES, as sl_safetensors_place does, for a copy of such a file. COPY is a store without
 * tensors. */
int sl_safetensors_place_copy(struct sl_store *copy, size_t bytes, const char *path, int *number,
                              struct sl_error *error);
/* The file's first word, of 8 bytes: its header's length; 0: it is not sealed. */
uint64_t sl_safetensors_sealed(const struct sl_store *store);
/* Makes COPY valid, which has all bytes of another file except the first word; LENGTH is that word. */
void sl_safetensors_seal_copy(struct sl_store *copy, uint64_t length);

SL_END_C
#endif
