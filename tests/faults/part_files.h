/* part_files.h - a small checkpoint in parts, to be read and written while calls fail. */
#ifndef SL_TESTS_FAULTS_PART_FILES_H
#define SL_TESTS_FAULTS_PART_FILES_H

#include <stdio.h>
#include <unistd.h>

#include "layers/formats/stores/store_parts.h"
#include "layers/formats/stores/safetensors.h"

static char part_path[300], index_path[300];
static struct sl_part part;

/* The columns of a matrix, turned round. */
static int write_index(const char *to, struct sl_error *error) {
    const struct sl_tensor_piece halves[] = {
        {0, {2, {{3, 3, 3, 0, 4}, {2, 2, 4, 2, 1}}}, 0, 6, NULL},
        {1, {2, {{3, 3, 3, 0, 4}, {2, 2, 4, 0, 1}}}, 0, 6, NULL},
    };
    const size_t shape[] = {3, 4};
    struct sl_store whole = {0};
    int status = sl_store_set_note(&whole, "shardloop.checkpoint", "2");
    struct sl_tensor *tensor = sl_store_declare(&whole, "kernel", SL_F32, 2, shape);
    for (int i = 0; i < 2 && tensor && !status; i++) status = sl_pieces_add(tensor, &halves[i]);
    status = !tensor || status ? sl_error_set(error, SL_FAILED, "no memory") : SL_OK;
    const struct sl_part parts[] = {part, part};
    if (status == SL_OK) status = sl_parts_write_index(&whole, 2, parts, to, error);
    sl_store_free(&whole);
    return status;
}

/* Before there are faults: both parts are one file. */
static bool make_parts(const char *folder) {
    const size_t six = 6;
    struct sl_store store = {.checksums = true}, there = {0};
    snprintf(part_path, sizeof part_path, "%s/part", folder);
    snprintf(index_path, sizeof index_path, "%s/index.json", folder);
    part.path = part_path;
    bool made = sl_store_add(&store, "kernel", SL_F32, 1, &six) && !sl_safetensors_write(&store, part_path, NULL) &&
                !sl_safetensors_map(&there, part_path, NULL);
    part.root = there.root;
    sl_store_free(&store);
    sl_store_free(&there);
    return made && !write_index(index_path, NULL);
}

static void remove_parts(void) {
    unlink(part_path);
    unlink(index_path);
}

static int read_index(struct sl_error *error) {
    struct sl_store store = {0};
    int status = sl_parts_map(&store, index_path, error);
    if (status == SL_OK) status = sl_safetensors_verify(&store, NULL, NULL, error);
    if (status == SL_OK && sl_tensor_hold(&store.tensor[0])) status = sl_error_set(error, SL_FAILED, "no memory");
    sl_store_free(&store);
    return status;
}

#endif
