/* test_store_parts.c - tensors cut into shards, and shards into shares, are read back from their parts; a changed
 * index, or one with changed parts, is refused with one line. */
#include "tests/rigs/changes.h"
#include "tests/rigs/folder.h"

#include "layers/formats/stores/store_parts.h"
#include "layers/formats/stores/safetensors.h"
#include "spmd/base/hash.h"

enum { PARTS = 8, TENSORS = 7, DIGITS_AT = 19, FIRST_LINE = 38 }; /* bytes of the index */
static char folder[FOLDER], index_path[FOLDER + 40], part_path[PARTS][FOLDER + 40];

static int make_files(void **state) {
    (void)state;
    if (!make_folder(folder, "test_store_parts")) return -1;
    snprintf(index_path, sizeof index_path, "%s/x.index.json", folder);
    for (int p = 0; p < PARTS; p++)
        snprintf(part_path[p], sizeof part_path[p], "%s/x.part-%d-of-%d.safetensors", folder, p + 1, PARTS);
    return 0;
}

static int remove_files(void **state) {
    (void)state;
    unlink(index_path);
    for (int p = 0; p < PARTS; p++) unlink(part_path[p]);
    return rmdir(folder);
}

/* ---- the written files ---- */

static const struct {
    const char *spec;
    int dims;
    size_t shape[SL_MAX_DIMS];
    int shares; /* into which each shard is cut: along data, if the spec does not name it */
} tensors[TENSORS] = {
    {"", 0, {1}, 1},
    {"-,tensor", 2, {5, 12}, 2},
    {"tensor", 2, {6, 7}, 2},
    {"-,tensor*3", 2, {4, 12}, 2},
    {"data,-,tensor", 3, {4, 3, 8}, 1},
    {"tensor*2,data", 2, {8, 6}, 1},
    {"", 1, {11}, 2},
};

static float value_of(int tensor, size_t element) { return (float)(1000 * tensor) + (float)element; }

/* Adds each coordinate's share of tensor NUMBER to PART [PARTS] and WHOLE. Along axes that the spec does not name,
 * tensors are repeated, except along data if it is cut. */
static void cut(int number, const struct sl_mesh *mesh, struct sl_store *part, struct sl_store *whole) {
    struct sl_spec spec;
    struct sl_error error;
    char name[20];
    const int dims = tensors[number].dims, shares = tensors[number].shares;
    const size_t *shape = tensors[number].shape;
    snprintf(name, sizeof name, "tensor.%d", number);
    assert_int_equal(sl_spec_parse(&spec, tensors[number].spec, &error), SL_OK);
    struct sl_tensor *to = sl_store_declare(whole, name, SL_F32, dims, shape);
    for (int c = 0; c < PARTS; c++) {
        const int share = shares > 1 ? sl_mesh_index(mesh, c, 0) : 0;
        bool first = true; /* along the axes that repeat the tensor */
        for (int a = 0; a < mesh->axes; a++) {
            const bool counts = strstr(tensors[number].spec, mesh->axis[a].name) || (a == 0 && shares > 1);
            if (!counts && sl_mesh_index(mesh, c, a)) first = false;
        }
        if (!first) continue;
        struct sl_tensor_piece piece = {.part = c, .shard = sl_spec_shard(&spec, mesh, c, dims, shape)};
        const size_t elements = sl_shard_elements(&piece.shard), begin = elements * (size_t)share / (size_t)shares;
        piece.first = begin;
        piece.count = elements * (size_t)(share + 1) / (size_t)shares - begin;
        float *data = sl_store_add(&part[c], name, SL_F32, 1, &piece.count)->array.data;
        for (size_t i = 0; i < piece.count; i++)
            data[i] = value_of(number, sl_shard_global_index(&piece.shard, begin + i));
        assert_int_equal(sl_pieces_add(to, &piece), SL_OK);
    }
}

static void write_all(void) {
    struct sl_mesh mesh;
    struct sl_store part[PARTS] = {{0}}, whole = {0};
    struct sl_part about[PARTS];
    struct sl_error error;
    assert_int_equal(sl_mesh_parse(&mesh, "data=2,tensor=2,other=2", &error), SL_OK);
    for (int t = 0; t < TENSORS; t++) cut(t, &mesh, part, &whole);
    for (int p = 0; p < PARTS; p++) {
        struct sl_store there = {0};
        char number[8];
        snprintf(number, sizeof number, "%d", p);
        part[p].checksums = true;
        sl_store_set_note(&part[p], "number", number);
        if (sl_safetensors_write(&part[p], part_path[p], &error)) fail_msg("%s", error.message);
        assert_int_equal(sl_safetensors_map(&there, part_path[p], &error), SL_OK);
        about[p] = (struct sl_part){part_path[p], there.root};
        sl_store_free(&there);
        sl_store_free(&part[p]);
    }
    sl_store_set_note(&whole, "step", "7");
    if (sl_parts_write_index(&whole, PARTS, about, index_path, &error)) fail_msg("%s", error.message);
    sl_store_free(&whole);
}

static void expect_values(const struct sl_store *store) {
    float values[100];
    assert_int_equal(store->count, TENSORS);
    assert_string_equal(sl_store_note(store, "step"), "7");
    for (int t = 0; t < TENSORS; t++) {
        const struct sl_tensor *tensor = &store->tensor[t];
        const size_t elements = sl_array_elements(&tensor->array);
        for (size_t first = 0; first < elements; first++)
            for (size_t count = 1; first + count <= elements; count += 1 + count / 3) {
                sl_tensor_read(tensor, first, count, values);
                for (size_t i = 0; i < count; i++) assert_true(values[i] == value_of(t, first + i));
            }
    }
}

static void parts_come_back(void **state) {
    struct sl_store store = {0};
    struct sl_error error = {0};
    (void)state;
    write_all();
    if (sl_parts_map(&store, index_path, &error)) fail_msg("%s", error.message);
    assert_int_equal(store.parts, PARTS);
    assert_int_equal(sl_safetensors_verify(&store, NULL, NULL, &error), SL_OK);
    expect_values(&store);
    for (int t = 0; t < TENSORS; t++) {
        struct sl_tensor *tensor = &store.tensor[t];
        assert_int_equal(sl_tensor_hold(tensor), SL_OK);
        assert_true(((const float *)tensor->array.data)[0] == value_of(t, 0));
    }
    expect_values(&store);
    sl_store_relax(&store);
    sl_tensor_let_go(&store.tensor[0]);
    assert_false(sl_parts_are_cut(index_path, &error));
    sl_store_free(&store);
}

/* ---- refusals ---- */

/* Replaces the index by BYTES, with a correct checksum. */
static void put_sealed(char *bytes) {
    char digits[SL_HASH_DIGITS + 1];
    const size_t size = strlen(bytes);
    memcpy(bytes + DIGITS_AT, sl_hash_print(sl_hash(bytes + FIRST_LINE, size - FIRST_LINE), digits), SL_HASH_DIGITS);
    write_file(index_path, bytes, size);
}

static void expect_refused(const char *reason, bool cut) {
    struct sl_store store = {0};
    struct sl_error error = {0}, why = {0};
    expect_line("an index", sl_parts_map(&store, index_path, &error), &error, reason);
    assert_int_equal(store.count, 0);
    if (sl_parts_are_cut(index_path, &why) != cut) fail_msg("%s: cut or not", error.message);
    if (cut) assert_string_equal(why.message, error.message);
}

static const struct change changes[] = {
    {"\"shardloop.index\":\"1\"", "\"shardloop.index\":\"2\"", "an index of version 2, not 1"},
    {"\"shardloop.index\":\"1\"", "\"shardloop.index\":1", "an index of version (none), not 1"},
    {"\"notes\":{\"step\":\"7\"}", "\"notes\":[]", "its notes are no object"},
    {"\"step\":\"7\"", "\"step\":7", "the note step is no text"},
    {"\"parts\":[", "\"files\":[", "its parts are no list of 1 to 1048576"},
    {"[\"x.part-1", "[\"../x.part-1", "part 1, ../x.part-1-of-8.safetensors, is no file beside the index"},
    {"[\"x.part-1-of-8.safetensors\"", "[\"x.index.json\"", "part 1, x.index.json, is no file beside the index"},
    {"[\"x.part-1-of-8.safetensors\"", "[1", "part 1 is not [FILE, ROOT]"},
    {"part-3-of-8", "part-4-of-8", "part 3, x.part-4-of-8.safetensors, is another one than the index means: its root"},
    {"\"tensors\":{", "\"tensors\":[],\"more\":{", "its tensors are no object"},
    {"\"tensor.1\":{\"shape\":[5,12]", "\"tensor.9\":{\"shape\":[5,12]",
     "tensor tensor.9: part 1 does not have its 15"},
    {"\"shape\":[5,12]", "\"shape\":[5,13]", "tensor tensor.1: piece 1 is none of its 65 elements"},
    {"\"shape\":[5,12]", "\"shape\":[5,-12]", "tensor tensor.1: its name is too long, or it has no shape and pieces"},
    {"\"shape\":[5,12]", "\"shape\":[4611686018427387904,12]", "it has no shape and pieces"},
    {"\"pieces\":[[1,0,15,[1,5,", "\"pieces\":7,\"p\":[[1,0,15,[1,5,", "it has no shape and pieces"},
    /* Tensor 6, with 11 elements: shares of 5 and 6. */
    {"[[1,0,5],[5,5,6]]", "[[1,0,5]]", "tensor tensor.6 has 11 elements, and its pieces have 5"},
    {"[[1,0,5],[5,5,6]]", "[[1,0,5],[5,4,6]]", "tensor tensor.6: its pieces overlap, and none has element 10"},
    {"[[1,0,5],[5,5,6]]", "[[1,0,5],[5,6,6]]", "tensor tensor.6: piece 2 is none of its 11 elements"},
    {"[[1,0,5],[5,5,6]]", "[[5,5,6],[1,0,5]]", "piece 2 is of part 1: of parts from 6 to 8, in this order"},
    {"[[1,0,5],[5,5,6]]", "[[1,0,5],[9,5,6]]", "piece 2 is of part 9: of parts from 2 to 8, in this order"},
    {"[[1,0,5],[5,5,6]]", "[[0,0,5],[5,5,6]]", "piece 1 is of part 0: of parts from 1 to 8, in this order"},
    {"[[1,0,5],[5,5,6]]", "[[1,0,5],[4,5,6]]", "tensor tensor.6: part 4 does not have its 6 elements"},
    {"[[1,0,5],[5,5,6]]", "[[1,1,5],[5,5,6]]", "tensor tensor.6: its pieces overlap, and none has element 0"},
    {"[[1,0,5],[5,5,6]]", "[[1,0],[5,5,6]]", "tensor tensor.6: piece 1 is none of its 11 elements"},
    {"[[1,0,5],[5,5,6]]", "[[1,0,5,[1,11,0,0]],[5,5,6]]", "tensor tensor.6: piece 1 is none of its 11 elements"},
    {"[[1,0,5],[5,5,6]]", "[[1,0,5,[1,11,7,5]],[5,5,6]]", "tensor tensor.6: piece 1 is none of its 11 elements"},
    {"[[1,0,5],[5,5,6]]", "[[1,0,5,[0,11,0,11]],[5,5,6]]", "tensor tensor.6: piece 1 is none of its 11 elements"},
    {"[[1,0,5],[5,5,6]]", "[[1,0,5,[1,1]],[5,5,6]]", "tensor tensor.6: piece 1 is none of its 11 elements"},
    {"[[1,0,5],[5,5,6]]", "[[1,0,5,[9223372036854775807,2,0,2]],[5,5,6]]", "piece 1 is none of its 11 elements"},
    {",\"tensor.6\":", ",\"more\":", "tensor more: part 1 does not have its 5 elements"},
    {",\"tensor.6\":{\"shape\":[11],\"pieces\":[[1,0,5],[5,5,6]]}", "", "its parts have "},
};

static void other_indices_are_refused(void **state) {
    (void)state;
    write_all();
    char *text = read_text(index_path);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        char *other = changed(text, &changes[i]);
        put_sealed(other);
        expect_refused(changes[i].line, false);
        free(other);
    }
    put_sealed(text);
    assert_false(sl_parts_are_cut(index_path, NULL));
    struct sl_store store = {0};
    assert_int_equal(sl_parts_map(&store, index_path, NULL), SL_OK);
    sl_store_free(&store);
    free(text);
}

/* Every shorter length is a cut copy; every byte is covered by checksums. */
static void damage_is_seen(void **state) {
    (void)state;
    write_all();
    char *text = read_text(index_path);
    const size_t length = strlen(text);
    for (size_t count = 0; count < length; count += 1 + count / 40) {
        write_file(index_path, text, count);
        expect_refused("cut short after ", true);
    }
    for (size_t at = 0; at + 1 < length; at++) { /* without its end it is cut */
        struct sl_store store = {0};
        const char was = text[at];
        text[at] = (char)(was ^ 1 << at % 8);
        write_file(index_path, text, length);
        text[at] = was;
        if (sl_parts_map(&store, index_path, NULL) != SL_BAD_INPUT) fail_msg("byte %zu may be another one", at);
    }
    free(text);
    write_file(index_path, "{}\n", 3);
    expect_refused("no index of a checkpoint: it does not begin with its checksum", false);
    write_file(index_path, "[1\n", 3);
    expect_refused("cut short", true);
    write_file(index_path, "no\n", 3);
    expect_refused("not JSON", false);
    unlink(index_path);
    expect_refused("cannot be opened: No such file", false);
}

static void parts_that_are_not_there_are_named(void **state) {
    char kept[sizeof part_path[0] + 8];
    (void)state;
    write_all();
    snprintf(kept, sizeof kept, "%s.kept", part_path[4]);
    assert_int_equal(rename(part_path[4], kept), 0);
    expect_refused("/x.index.json: ", true);
    expect_refused("part 5 of ", true);
    expect_refused("x.part-5-of-8.safetensors: cannot be opened: No such file", true);
    assert_int_equal(rename(kept, part_path[4]), 0);
    assert_false(sl_parts_are_cut(index_path, NULL));
    assert_int_equal(truncate(part_path[4], 300), 0);
    expect_refused("x.part-5-of-8.safetensors: ", true);
    /* A part without checksums proves nothing. */
    write_all();
    struct sl_store store = {0};
    assert_int_equal(sl_safetensors_read(&store, part_path[1], NULL), SL_OK);
    store.checksums = false;
    assert_int_equal(sl_safetensors_write(&store, part_path[1], NULL), SL_OK);
    sl_store_free(&store);
    expect_refused("part 2, x.part-2-of-8.safetensors, is another one than the index means: its root is missing",
                   false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_come_back),
        cmocka_unit_test(other_indices_are_refused),
        cmocka_unit_test(damage_is_seen),
        cmocka_unit_test(parts_that_are_not_there_are_named),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    cmocka_set_test_filter(getenv("SL_TEST_FILTER"));
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
