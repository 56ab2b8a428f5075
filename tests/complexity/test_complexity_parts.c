/* test_complexity_parts.c - the time to read a checkpoint in parts grows as its tensors do, and their rows. */
#include "tests/rigs/complexity.h"
#include "tests/rigs/folder.h"

#include "layers/formats/stores/store_parts.h"
#include "layers/formats/stores/safetensors.h"

static char folder[FOLDER], index_path[FOLDER + 20], part_path[2][FOLDER + 20];

/* PART [parts] and an index of WHOLE; all are freed. */
static void write_all(struct sl_store *part, int parts, struct sl_store *whole) {
    struct sl_part about[2];
    for (int p = 0; p < parts; p++) {
        struct sl_store there = {0};
        part[p].checksums = true;
        assert_int_equal(sl_safetensors_write(&part[p], part_path[p], NULL), SL_OK);
        assert_int_equal(sl_safetensors_map(&there, part_path[p], NULL), SL_OK);
        about[p] = (struct sl_part){part_path[p], there.root};
        sl_store_free(&there);
        sl_store_free(&part[p]);
    }
    assert_int_equal(sl_parts_write_index(whole, parts, about, index_path, NULL), SL_OK);
    sl_store_free(whole);
}

static void prepare_tensors(const struct complexity_row *row, int n) {
    struct sl_store part = {0}, whole = {0};
    const size_t one = 1;
    const struct sl_tensor_piece piece = {.shard = {1, {{1, 1, 1, 0, 1}}}, .count = 1};
    (void)row;
    for (int i = 0; i < n; i++) {
        char name[40];
        snprintf(name, sizeof name, "tensor.%07d", i * 7919 % n);
        assert_non_null(sl_store_add(&part, name, SL_F32, 1, &one));
        assert_int_equal(sl_pieces_add(sl_store_declare(&whole, name, SL_F32, 1, &one), &piece), SL_OK);
    }
    write_all(&part, 1, &whole);
}

/* A matrix of N rows, of which each part has half of the columns. */
static void prepare_rows(const struct complexity_row *row, int n) {
    struct sl_store part[2] = {{0}}, whole = {0};
    const size_t rows = (size_t)n, shape[] = {rows, 2};
    struct sl_tensor *matrix = sl_store_declare(&whole, "matrix", SL_F32, 2, shape);
    (void)row;
    for (int p = 0; p < 2; p++) {
        const struct sl_tensor_piece piece = {
            .part = p, .shard = {2, {{rows, rows, rows, 0, 2}, {1, 1, 2, (size_t)p, 1}}}, .count = rows};
        assert_non_null(sl_store_add(&part[p], "matrix", SL_F32, 1, &rows));
        assert_int_equal(sl_pieces_add(matrix, &piece), SL_OK);
    }
    write_all(part, 2, &whole);
}

static void read_parts(const struct complexity_row *row, int n) {
    struct sl_store store = {0};
    struct sl_error error = {0};
    if (sl_parts_map(&store, index_path, &error)) fail_msg("%s", error.message);
    assert_int_equal(store.count, row->argument ? row->argument : n);
    for (int i = 0; i < store.count; i++) {
        assert_int_equal(sl_tensor_hold(&store.tensor[i]), SL_OK);
        sl_tensor_let_go(&store.tensor[i]);
    }
    sl_store_free(&store);
}

static struct complexity_row rows[] = {
    {"an index: tensors", 256, prepare_tensors, read_parts, NULL, 0},
    {"an index: rows of a matrix", 4000, prepare_rows, read_parts, NULL, 1},
};

int main(void) {
    if (!make_folder(folder, "test_complexity_parts")) return 1;
    snprintf(index_path, sizeof index_path, "%s/index.json", folder);
    for (int p = 0; p < 2; p++) snprintf(part_path[p], sizeof part_path[p], "%s/part.%d", folder, p);
    const int failed = complexity_run("parts", rows, sizeof rows / sizeof *rows);
    unlink(index_path);
    for (int p = 0; p < 2; p++) unlink(part_path[p]);
    rmdir(folder);
    return failed;
}
