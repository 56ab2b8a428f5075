/* json_file_internal.h - a JSON file of a folder, written whole or not at all. */
#ifndef SL_LAYERS_STORAGE_JSON_FILE_INTERNAL_H
#define SL_LAYERS_STORAGE_JSON_FILE_INTERNAL_H

#include <jansson.h>

#include "spmd/base/error.h"

/* Writes JSON, which it frees, as the file NAME of FOLDER. SL_BAD_INPUT: the path is too long, or cannot be written;
 * SL_FAILED: the file system fails, or JSON is NULL, for there was no memory to make it. */
int sl_json_write(json_t *json, const char *folder, const char *name, struct sl_error *error);

#endif
