/* json_file_internal.h - a JSON file in a folder, written completely or not at all. */
#ifndef SL_LAYERS_FORMATS_FILES_JSON_FILE_INTERNAL_H
#define SL_LAYERS_FORMATS_FILES_JSON_FILE_INTERNAL_H

#include <jansson.h>

#include "spmd/base/error.h"

/* Writes JSON to the file NAME of FOLDER, and frees it. SL_BAD_INPUT: the path is too long, or cannot be written;
 * SL_FAILED: the file system fails, or JSON is NULL because memory was short. */
int sl_json_write(json_t *json, const char *folder, const char *name, struct sl_error *error);

#endif
