/* json_file.c - a JSON file in a folder, written completely or not at all. */
#include "layers/formats/files/json_file_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layers/formats/files/draft.h"

int sl_json_write(json_t *json, const char *folder, const char *name, struct sl_error *error) {
    struct sl_draft draft = {0};
    char path[SL_MAX_PATH], *text = json ? json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(json);
    if (!text) return sl_error_set(error, SL_FAILED, "no memory for %s", name);
    int status = SL_OK;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        status = sl_error_set(error, SL_BAD_INPUT, "%.100s...: the path is too long", folder);
    if (status == SL_OK) status = sl_draft_open(&draft, path, SL_LINKS_REPLACED, error);
    if (status == SL_OK) status = sl_draft_finish(&draft, sl_draft_write(&draft, text, strlen(text)), error);
    free(text);
    return status;
}
