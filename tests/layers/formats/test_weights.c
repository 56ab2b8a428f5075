/* test_weights.c - the tensors of GGUF files and of folders: their types, and refusals. */
#include "tests/rigs/folder.h"
#include "tests/rigs/gguf_file.h"
#include "tests/rigs/numbers.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "layers/formats/stores/safetensors.h"
#include "layers/formats/models/weights.h"

static char folder[FOLDER], path[2 * FOLDER];

static int open_file(struct sl_weights *weights, struct sl_error *error) {
    FILE *stream = fopen(path, "wb");
    assert_non_null(stream);
    assert_int_equal(fwrite(file.bytes, 1, file.count, stream), file.count);
    fclose(stream);
    *error = (struct sl_error){0};
    return sl_weights_open(weights, path, error);
}

/* ---- types ---- */

enum { ROWS = 2, COLUMNS = 64, COUNT = ROWS * COLUMNS, BLOCKS = COUNT / 32 };
enum { F32 = 0, F16 = 1, Q4_0 = 2, Q4_1 = 3, Q8_0 = 8, IQ2_XXS = 16, BF16 = 30 };

/* Element I, exact in every type: q is -8 to 7 or 0 to 15. */
static int quant(size_t i) { return (int)(i * 7 % 16); }
static float scale(size_t i) { return ldexpf(1.0f, (int)(i / 32) - 2); }
static float expected(uint32_t type, size_t i) {
    if (type == Q4_0) return (float)(quant(i) - 8) * scale(i);
    if (type == Q4_1) return (float)quant(i) * scale(i) - 0.5f;
    if (type == Q8_0) return (float)(quant(i) * 9 - 64) * scale(i);
    return (float)quant(i) * 0.25f - 1.0f;
}

static void put_block(uint32_t type, size_t first) {
    put_number(sl_f16_of_float(scale(first)), 2);
    if (type == Q4_1) put_number(sl_f16_of_float(-0.5f), 2);
    for (size_t i = first; type != Q8_0 && i < first + 16; i++)
        put_number((uint64_t)(quant(i) | quant(i + 16) << 4), 1);
    for (size_t i = first; type == Q8_0 && i < first + 32; i++) put_number((uint8_t)(quant(i) * 9 - 64), 1);
}

static void put_values(uint32_t type) {
    for (size_t i = 0; i < COUNT; i++) {
        const float value = expected(type, i);
        if (type == F32) put(&value, sizeof value);
        if (type == F16) put_number(sl_f16_of_float(value), 2);
        if (type == BF16) put_number(sl_bf16_of_float(value), 2);
        if (type != F32 && type != F16 && type != BF16 && i % 32 == 0) put_block(type, i);
    }
}

static void every_type_is_read(void **state) {
    (void)state;
    const uint32_t types[] = {F32, F16, BF16, Q4_0, Q4_1, Q8_0};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        struct sl_weights weights;
        struct sl_error error;
        float values[COUNT];
        put_head(1, 0);
        put_tensor("a", ROWS, COLUMNS, types[t], 0);
        align();
        put_values(types[t]);
        if (open_file(&weights, &error)) fail_msg("%s", error.message);
        const struct sl_weight *a = sl_weights_find(&weights, "a");
        assert_non_null(a);
        assert_null(sl_weights_find(&weights, "b"));
        assert_int_equal(a->dims, 2);
        assert_int_equal(a->shape[0], ROWS);
        assert_int_equal(a->shape[1], COLUMNS);
        for (size_t first = 0; first < COUNT; first += 13) { /* from anywhere to anywhere */
            for (size_t count = 0; first + count <= COUNT; count += 11) {
                sl_weight_read(a, first, count, values);
                for (size_t i = 0; i < count; i++)
                    expect_close("value", first + i, values[i], expected(types[t], first + i), 0, 0);
            }
        }
        sl_weights_close(&weights);
    }
}

/* Blocks of random bytes, against the results of gguf's dequantize (quantized.py): the same to the bit, for any range
 * of elements. */
static void quantized_blocks_are_those_of_gguf(void **state) {
    (void)state;
    struct sl_weights weights;
    struct sl_error error = {0};
    int types = 0;
    if (sl_weights_open(&weights, SL_TEST_DATA "/published/quantized.gguf", &error)) fail_msg("%s", error.message);
    for (int i = 0; i < weights.count; i++) {
        const struct sl_weight *weight = &weights.weight[i], *values;
        static float got[512], want[512];
        char name[160];
        snprintf(name, sizeof name, "%s.values", weight->name);
        values = sl_weights_find(&weights, name);
        if (!values) continue;
        const size_t count = sl_weight_elements(weight);
        assert_int_equal(count, sl_weight_elements(values));
        assert_int_equal(sl_weight_check_type(&weights, weight, &error), SL_OK);
        sl_weight_read(values, 0, count, want);
        for (size_t first = 0; first < count; first += 37) {
            sl_weight_read(weight, first, count - first, got);
            for (size_t e = first; e < count; e++) expect_close(weight->name, e, got[e - first], want[e], 0, 0);
        }
        types++;
    }
    assert_int_equal(types, 10);
    sl_weights_close(&weights);
}

static void halves_are_those_of_the_compiler(void **state) {
    (void)state;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        const float value = sl_float_of_f16((uint16_t)bits);
        if (isnan(value)) continue;
        assert_int_equal(sl_f16_of_float(value), bits);
    }
    assert_int_equal(sl_f16_of_float(65520.0f), 0x7c00);        /* halfway to the next number, which does not exist */
    assert_int_equal(sl_f16_of_float(1.0f + 0x1p-11f), 0x3c00); /* ties go to even */
    assert_int_equal(sl_f16_of_float(1.0f + 3 * 0x1p-11f), 0x3c02);
    assert_int_equal(sl_f16_of_float(0x1p-25f), 0);
    assert_int_equal(sl_f16_of_float(-0x1.8p-24f), 0x8002);
}

/* The largest number of each block of 32 is 127 steps, which are rounded to F16; an element is within half a step. */
static void what_is_written_is_read(void **state) {
    (void)state;
    static const struct {
        enum sl_weight_type type;
        double relative; /* of an element */
        double steps;    /* of a block's largest element */
    } trial[] = {{SL_WEIGHT_F32, 0, 0},
                 {SL_WEIGHT_F16, 0x1p-11, 0},
                 {SL_WEIGHT_BF16, 0x1p-8, 0},
                 {SL_WEIGHT_Q8_0, 0, 0.5 / 127 + 0x1p-11}};
    struct numbers numbers = {4};
    float *values = random_floats(&numbers, COUNT, -3, 3), read[COUNT];
    for (int i = 96; i < COUNT; i++) values[i] = 0; /* a block without a scale */
    for (int t = 0; t < 4; t++) {
        char data[COUNT * sizeof(float)];
        const struct sl_weight weight = {.dims = 1, .shape = {COUNT}, .type = trial[t].type, .data = data};
        assert_true(sl_weight_bytes(trial[t].type, COUNT) <= sizeof data &&
                    COUNT % sl_weight_block(trial[t].type) == 0);
        sl_weight_write(trial[t].type, values, COUNT, data);
        sl_weight_read(&weight, 0, COUNT, read);
        for (size_t i = 0; i < COUNT; i++) {
            float most = 0;
            for (size_t e = i / 32 * 32; e < i / 32 * 32 + 32; e++) most = fmaxf(most, fabsf(values[e]));
            expect_close("value", i, read[i], values[i], trial[t].relative, trial[t].steps * most);
        }
    }
    assert_int_equal(sl_weight_gguf_type(SL_WEIGHT_Q8_0), Q8_0);
    assert_int_equal(sl_weight_gguf_type(SL_WEIGHT_BF16), BF16);
    free(values);
}

/* ---- refusals ---- */

static void refuses(const char *text) {
    struct sl_weights weights;
    struct sl_error error;
    assert_int_equal(open_file(&weights, &error), SL_BAD_INPUT);
    if (!strstr(error.message, text)) fail_msg("\"%s\" is not in: %s", text, error.message);
    sl_weights_close(&weights);
}

/* Expects reading to be refused. The file can be opened, because a model may not need the tensor. */
static void refuses_to_read(const char *name, const char *text) {
    struct sl_weights weights;
    struct sl_error error = {0};
    if (open_file(&weights, &error)) fail_msg("%s", error.message);
    const struct sl_weight *weight = sl_weights_find(&weights, name);
    assert_non_null(weight);
    assert_int_equal(sl_weight_check_type(&weights, weight, &error), SL_BAD_INPUT);
    if (!strstr(error.message, text)) fail_msg("\"%s\" is not in: %s", text, error.message);
    sl_weights_close(&weights);
}

static void other_types_are_listed(void **state) {
    (void)state;
    put_head(2, 0);
    put_tensor("a", 1, 256, IQ2_XXS, 0);
    put_tensor("b", 1, 8, F32, 32);
    align();
    for (int i = 0; i < 8; i++) put_number(0, 8);
    refuses_to_read("a", "tensor a: its type, IQ2_XXS, is not supported: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, "
                         "Q2_K, Q3_K, Q4_K, Q5_K "
                         "and Q6_K are");
    put_head(1, 0);
    put_tensor("a", 1, 32, 99, 0);
    align();
    refuses_to_read("a", "its type, 99, is not supported");
}

static void bad_files_are_refused(void **state) {
    (void)state;
    put_head(1, 0);
    put_tensor("a", 1, 40, Q8_0, 0);
    align();
    refuses("tensor a: rows of 40 elements are no blocks of 32");
    put_head(1, 0);
    put_tensor("a", (uint64_t)1 << 40, (uint64_t)1 << 40, F32, 0);
    align();
    refuses("tensor a is too large");
    put_head(1, 0);
    put_tensor("a", 1, 8, F32, 0);
    align();
    put_number(0, 8);
    refuses("truncated: tensor a has 32 bytes, and 8 are left");
    put_head(1, 0);
    put_tensor("a", 1, 8, F32, 7);
    align();
    refuses("tensor a begins at byte 7 of the data, which the alignment forbids");
    put_head(1, 0);
    put_tensor("a", 1, 8, F32, 64);
    align();
    refuses("tensor a begins at byte 64 of the data, behind their end");
    put_head(2, 0);
    put_tensor("a", 1, 16, F32, 0);
    put_tensor("b", 1, 8, F32, 32);
    align();
    for (int i = 0; i < 16; i++) put_number(0, 8);
    refuses("tensors a and b overlap");
    put_head(2, 0);
    put_tensor("a", 1, 8, F32, 0);
    put_tensor("a", 1, 8, F32, 32);
    align();
    for (int i = 0; i < 8; i++) put_number(0, 8);
    refuses("tensor a is there twice");
    put_head(3, 0);
    put_tensor("a", 1, 8, F32, 0);
    refuses("number 1 in the list of tensors is malformed or truncated");
    put_head((uint64_t)1 << 60, 0);
    refuses("number 0 in the list of tensors is malformed or truncated");
}

/* ---- folders ---- */

static void write_text(const char *name, const char *text) {
    char to[3 * FOLDER];
    snprintf(to, sizeof to, "%s/%s", folder, name);
    FILE *stream = fopen(to, "wb");
    assert_non_null(stream);
    fputs(text, stream);
    fclose(stream);
}

static void write_shard(const char *name, const char *tensor, enum sl_dtype dtype) {
    char to[3 * FOLDER];
    struct sl_store store = {0};
    struct sl_error error = {0};
    struct sl_tensor *added = sl_store_add(&store, tensor, dtype, 1, (size_t[]){3});
    assert_non_null(added);
    for (size_t i = 0; i < 3; i++) sl_store_float(dtype, added->array.data, i, (float)i + 0.5f);
    snprintf(to, sizeof to, "%s/%s", folder, name);
    assert_int_equal(sl_safetensors_write(&store, to, &error), SL_OK);
    sl_store_free(&store);
}

static void folder_gives(int status, const char *text) {
    struct sl_weights weights;
    struct sl_error error = {0};
    assert_int_equal(sl_weights_open(&weights, folder, &error), status);
    if (status && !strstr(error.message, text)) fail_msg("\"%s\" is not in: %s", text, error.message);
    if (!status) {
        float values[3];
        sl_weight_read(sl_weights_find(&weights, "b"), 0, 3, values);
        for (int i = 0; i < 3; i++) expect_close("b", (size_t)i, values[i], i + 0.5, 0, 0);
        assert_non_null(sl_weights_find(&weights, "a"));
    }
    sl_weights_close(&weights);
}

static void folders_have_shards(void **state) {
    (void)state;
    write_text("config.json", "{}");
    write_shard("one.safetensors", "a", SL_F32);
    write_shard("two.safetensors", "b", SL_F16);
    folder_gives(SL_BAD_INPUT, "model.safetensors: cannot be opened");
    write_text("model.safetensors.index.json",
               "{\"weight_map\": {\"a\": \"one.safetensors\", \"b\": \"two.safetensors\"}}");
    folder_gives(SL_OK, "");
    write_text("model.safetensors.index.json",
               "{\"weight_map\": {\"a\": \"one.safetensors\", \"c\": \"two.safetensors\"}}");
    folder_gives(SL_BAD_INPUT, "weight_map: c is not in its file");
    write_text("model.safetensors.index.json", "{\"weight_map\": {\"a\": \"../one.safetensors\"}}");
    folder_gives(SL_BAD_INPUT, "weight_map: the file of a is none of the folder's");
    write_text("model.safetensors.index.json", "{\"weight_map\": 3}");
    folder_gives(SL_BAD_INPUT, "no weight_map");
    write_text("config.json", "[1]");
    folder_gives(SL_BAD_INPUT, "config.json: not a JSON object");
    write_text("config.json", "");
    folder_gives(SL_BAD_INPUT, "config.json: not a JSON object: it is empty");
}

static int open_folder(void **state) {
    (void)state;
    if (!make_folder(folder, "weights")) return -1;
    snprintf(path, sizeof path, "%s/model.gguf", folder);
    return 0;
}

static int remove_folder(void **state) {
    static const char *const names[] = {"model.gguf", "config.json", "one.safetensors", "two.safetensors",
                                        "model.safetensors.index.json"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char at[3 * FOLDER];
        snprintf(at, sizeof at, "%s/%s", folder, names[i]);
        remove(at);
    }
    return rmdir(folder);
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantized_blocks_are_those_of_gguf),
        cmocka_unit_test(every_type_is_read),
        cmocka_unit_test(halves_are_those_of_the_compiler),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(other_types_are_listed),
        cmocka_unit_test(folders_have_shards),
    };
    return cmocka_run_group_tests(tests, open_folder, remove_folder);
}
