/* test_safetensors.c - files are read as they were written; malformed files are refused with a reason, without a
 * crash. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/rigs/one_file.h"

#include "layers/formats/stores/safetensors.h"

static int make_file(void **state) {
    (void)state;
    return make_one_file("test_safetensors");
}

/* ---- files ---- */

static void put(const void *data, size_t bytes) {
    unlink(path); /* overwriting a file makes file systems flush it, which takes milliseconds */
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static size_t get(unsigned char *data, size_t most) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    const size_t bytes = fread(data, 1, most, file);
    fclose(file);
    return bytes;
}

/* HEADER with its length before it and DATA bytes 0, 1, 2... after it. */
static void put_parts(const char *header, size_t data) {
    unsigned char file[4096];
    const size_t length = strlen(header);
    assert_true(8 + length + data <= sizeof file);
    for (int i = 0; i < 8; i++) file[i] = (unsigned char)((uint64_t)length >> 8 * i);
    memcpy(file + 8, header, length);
    for (size_t i = 0; i < data; i++) file[8 + length + i] = (unsigned char)i;
    put(file, 8 + length + data);
}

static struct sl_tensor *add(struct sl_store *store, const char *name, enum sl_dtype dtype, int dims,
                             const size_t *shape) {
    struct sl_tensor *tensor = sl_store_add(store, name, dtype, dims, shape);
    assert_non_null(tensor);
    return tensor;
}

/* Both are to say the same of every file. */
static int (*const reading[])(struct sl_store *, const char *, struct sl_error *) = {sl_safetensors_read,
                                                                                     sl_safetensors_map};

static void expect_same(const struct sl_store *got, const struct sl_store *want) {
    assert_int_equal(got->count, want->count);
    for (int i = 0; i < want->count; i++) {
        const struct sl_array *expected = &want->tensor[i].array;
        const struct sl_tensor *tensor = sl_store_find(got, want->tensor[i].name);
        assert_non_null(tensor);
        assert_int_equal(tensor->array.dtype, expected->dtype);
        assert_int_equal(tensor->array.dims, expected->dims);
        assert_memory_equal(tensor->array.shape, expected->shape, sizeof expected->shape);
        assert_memory_equal(tensor->array.data, expected->data, sl_tensor_bytes(&want->tensor[i]));
    }
    assert_int_equal(got->notes, want->notes);
    for (int i = 0; i < want->notes; i++)
        assert_string_equal(sl_store_note(got, want->note[i].key), want->note[i].text);
}

/* A small file with all dtypes, for cutting and changing. */
static size_t valid_file(unsigned char *file, size_t most) {
    struct sl_store store = {0};
    struct sl_error error = {0};
    const size_t shape[] = {2, 3};
    add(&store, "first.kernel", SL_F32, 2, shape);
    add(&store, "second", SL_BF16, 1, shape);
    add(&store, "third", SL_I32, 0, shape);
    assert_int_equal(sl_store_set_note(&store, "key", "text"), SL_OK);
    assert_int_equal(sl_safetensors_write(&store, path, &error), SL_OK);
    sl_store_free(&store);
    return get(file, most);
}

static uint32_t next(uint64_t *random) {
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*random >> 33);
}

/* ---- valid files ---- */

static void test_round_trip(void **state) {
    (void)state;
    struct sl_store store = {0}, read = {0};
    struct sl_error error = {0};
    static const struct {
        const char *name;
        enum sl_dtype dtype;
        int dims;
        size_t shape[SL_MAX_DIMS];
    } tensors[] = {
        {"blocks.3.input_dense.kernel", SL_F32, 2, {5, 7}},
        {"half", SL_BF16, 3, {3, 1, 5}},
        {"step", SL_I32, 0, {0}},
        {"empty", SL_F32, 2, {4, 0}},
        {"\"quoted\\\n\xc3\xa9", SL_I32, 1, {2}},
        {"six", SL_F32, 6, {1, 2, 1, 3, 1, 2}},
        {"", SL_F32, 1, {1}},
    };
    enum { COUNT = sizeof tensors / sizeof *tensors };
    for (int i = 0; i < COUNT; i++) {
        struct sl_tensor *tensor = add(&store, tensors[i].name, tensors[i].dtype, tensors[i].dims, tensors[i].shape);
        unsigned char *data = tensor->array.data;
        const size_t bytes = sl_array_elements(&tensor->array) * sl_dtype_size(tensor->array.dtype);
        for (size_t b = 0; b < bytes; b++) {
            assert_int_equal(data[b], 0);
            data[b] = (unsigned char)(251 * b + (size_t)i); /* NaNs among them */
        }
    }
    assert_int_equal(sl_store_set_note(&store, "step", "7"), SL_OK);
    assert_int_equal(sl_store_set_note(&store, "", "\"\n\xc3\xa9"), SL_OK);
    assert_int_equal(sl_store_set_note(&store, "step", "12"), SL_OK);
    for (int round = 0; round < 4; round++) { /* over an existing file and an existing store */
        assert_int_equal(sl_safetensors_write(&store, path, &error), SL_OK);
        assert_int_equal(reading[round % 2](&read, path, &error), SL_OK);
        expect_same(&read, &store);
    }
    assert_int_equal(store.notes, 2);
    assert_string_equal(sl_store_note(&read, "step"), "12");
    assert_null(sl_store_note(&read, "another"));
    assert_null(sl_store_find(&read, "another"));
    sl_store_free(&store);
    sl_store_free(&read);
    assert_int_equal(read.count, 0);
}

/* A file made in place has the same bytes. */
static void test_in_place(void **state) {
    (void)state;
    struct sl_store store = {0}, made = {0};
    struct sl_error error = {0};
    static const char *const name[] = {"second", "first", "empty", "half", "last"};
    static const enum sl_dtype dtype[] = {SL_F32, SL_I32, SL_F32, SL_BF16, SL_F32};
    static const size_t shape[][2] = {{3, 4}, {2, 2}, {0, 5}, {1, 3}, {1, 1}};
    static unsigned char written[4096], in_place[4096];
    uint64_t random = 7;
    for (int round = 0; round < 3; round++) { /* the last one over an existing file */
        for (int i = 0; i < 5; i++) {
            struct sl_tensor *tensor = add(&store, name[i], dtype[i], 2, shape[i]);
            for (size_t b = 0; b < sl_tensor_bytes(tensor); b++)
                ((unsigned char *)tensor->array.data)[b] = (unsigned char)next(&random);
            assert_non_null(sl_store_declare(&made, name[i], dtype[i], 2, shape[i]));
        }
        for (int i = 0; i < round; i++) {
            assert_int_equal(sl_store_set_note(&store, name[i], name[i + 1]), SL_OK);
            assert_int_equal(sl_store_set_note(&made, name[i], name[i + 1]), SL_OK);
        }
        assert_int_equal(sl_safetensors_write(&store, path, &error), SL_OK);
        const size_t bytes = get(written, sizeof written);
        if (round < 2) unlink(path);
        if (sl_safetensors_create(&made, path, &error)) fail_msg("%s", error.message);
        if (round < 2) assert_int_not_equal(access(path, F_OK), 0); /* not yet */
        for (int i = 0; i < 5; i++) {
            struct sl_tensor *tensor = sl_store_find(&made, name[i]);
            for (size_t b = 0; b < sl_tensor_bytes(tensor); b++)
                assert_int_equal(((unsigned char *)tensor->array.data)[b], 0);
            memcpy(tensor->array.data, sl_store_find(&store, name[i])->array.data, sl_tensor_bytes(tensor));
        }
        assert_int_equal(sl_safetensors_commit(&made, NULL, NULL, &error), SL_OK);
        assert_int_equal(made.count, 0);
        assert_int_equal(get(in_place, sizeof in_place), bytes);
        assert_memory_equal(in_place, written, bytes);
        sl_store_free(&store);
    }
}

static int refuse(void *arg) { return ++*(int *)arg == 2 ? SL_FAILED : SL_OK; }

/* A file that is given up leaves the old one, and no other file: remove_one_file checks that. */
static void test_given_up(void **state) {
    (void)state;
    unsigned char before[512], after[512];
    const size_t bytes = valid_file(before, sizeof before), large[] = {9 << 20}; /* floats: more than one part */
    struct sl_error error = {0};
    for (int way = 0; way < 3; way++) {
        struct sl_store made = {0};
        int parts = 0;
        assert_non_null(sl_store_declare(&made, "a", SL_F32, 1, large));
        if (way == 2) assert_non_null(sl_store_declare(&made, "a", SL_F32, 1, large));
        assert_int_equal(sl_safetensors_create(&made, path, &error), way == 2 ? SL_BAD_INPUT : SL_OK);
        if (way == 0) assert_int_equal(sl_safetensors_commit(&made, refuse, &parts, &error), SL_FAILED);
        if (way == 0) assert_int_equal(parts, 2);
        sl_store_free(&made);
        assert_int_equal(get(after, sizeof after), bytes);
        assert_memory_equal(after, before, bytes);
    }
    assert_non_null(strstr(error.message, "two tensors"));
}

static void test_bytes(void **state) {
    (void)state;
    struct sl_store store = {0};
    struct sl_error error = {0};
    const size_t two = 2, shape[] = {1, 3};
    ((float *)add(&store, "b", SL_F32, 1, &two)->array.data)[1] = 1.0f;
    ((uint16_t *)add(&store, "a", SL_BF16, 2, shape)->array.data)[2] = 0x3f80;
    assert_int_equal(sl_safetensors_write(&store, path, &error), SL_OK);
    sl_store_free(&store);
    static const char header[] = "{\"a\":{\"dtype\":\"BF16\",\"shape\":[1,3],\"data_offsets\":[0,6]},"
                                 "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[6,14]}}";
    static const unsigned char data[] = {0, 0, 0, 0, 0x80, 0x3f, 0, 0, 0, 0, 0, 0, 0x80, 0x3f};
    unsigned char file[512];
    const size_t bytes = get(file, sizeof file), length = file[0];
    assert_int_equal(bytes, 8 + length + sizeof data);
    assert_int_equal(length % 8, 0);
    for (int i = 1; i < 8; i++) assert_int_equal(file[i], 0);
    assert_memory_equal(file + 8, header, strlen(header));
    assert_true(length - strlen(header) < 8);
    for (size_t i = strlen(header); i < length; i++) assert_int_equal(file[8 + i], ' ');
    assert_memory_equal(file + 8 + length, data, sizeof data);
}

static void test_empty_store(void **state) {
    (void)state;
    struct sl_store store = {0};
    struct sl_error error = {0};
    assert_int_equal(sl_safetensors_write(&store, path, &error), SL_OK);
    add(&store, "gone after reading", SL_F32, 0, NULL);
    assert_int_equal(sl_safetensors_read(&store, path, &error), SL_OK);
    assert_int_equal(store.count, 0);
    sl_store_free(&store);
}

/* Files of other libraries: metadata, data in another order than the names, white space, unknown fields. */
static void test_foreign_file(void **state) {
    (void)state;
    struct sl_store store = {0};
    struct sl_error error = {0};
    put_parts("{\"__metadata__\": {\"format\": \"pt\"},\n"
              " \"a\": {\"data_offsets\": [4, 12], \"shape\": [2], \"dtype\": \"I32\", \"more\": null},\n"
              " \"b\": {\"data_offsets\": [0, 4], \"shape\": [], \"dtype\": \"I32\"}}  ",
              12);
    for (int way = 0; way < 2; way++) { /* the header's length leaves the data unaligned */
        assert_int_equal(reading[way](&store, path, &error), SL_OK);
        assert_int_equal(store.count, 2);
        const int32_t *a = sl_store_find(&store, "a")->array.data, *b = sl_store_find(&store, "b")->array.data;
        assert_int_equal((uintptr_t)a % 4, 0);
        assert_int_equal(b[0], 0x03020100);
        assert_int_equal(a[0], 0x07060504);
        assert_int_equal(a[1], 0x0b0a0908);
        assert_string_equal(sl_store_note(&store, "format"), "pt");
    }
    sl_store_free(&store);
}

static void test_store_refuses(void **state) {
    (void)state;
    struct sl_store store = {0};
    const size_t shape[] = {SIZE_MAX / 2, SIZE_MAX / 2, 1, 1, 1, 1, 1};
    char name[129];
    memset(name, 'x', sizeof name);
    name[128] = '\0';
    assert_null(sl_store_add(&store, "huge", SL_F32, 2, shape));
    assert_null(sl_store_add(&store, "deep", SL_F32, SL_MAX_DIMS + 1, shape));
    assert_null(sl_store_add(&store, name, SL_F32, 0, NULL));
    assert_non_null(sl_store_add(&store, name + 1, SL_F32, 0, NULL));
    assert_int_equal(store.count, 1);
    sl_store_free(&store);
}

/* ---- invalid files ---- */

/* Expects a line that begins with PATH and contains REASON. The store stays unchanged. */
static void expect_refusal(const char *reason) {
    struct sl_store store = {0};
    struct sl_error error = {0};
    add(&store, "stays", SL_F32, 0, NULL);
    for (int way = 0; way < 2; way++) {
        const int status = reading[way](&store, path, &error);
        if (status != SL_BAD_INPUT) fail_msg("status %d instead of \"%s\"", status, reason);
        assert_int_equal(error.status, SL_BAD_INPUT);
        assert_int_equal(store.count, 1);
        assert_int_equal(store.notes, 0);
        assert_non_null(sl_store_find(&store, "stays"));
        assert_memory_equal(error.message, path, strlen(path));
        if (!strstr(error.message, reason)) fail_msg("\"%s\" is not in: %s", reason, error.message);
    }
    sl_store_free(&store);
}

#define A(fields) "{\"a\":{" fields "}}"
#define F32 "\"dtype\":\"F32\","
#define TWO F32 "\"shape\":[2],"

static void test_malformed(void **state) {
    (void)state;
    char deep[1500];
    memset(deep, '[', sizeof deep);
    deep[0] = '{';
    deep[sizeof deep - 1] = '\0';
    const struct {
        const char *header;
        size_t data;
        const char *reason;
    } cases[] = {
        {"", 0, "not a JSON object: it does not begin with '{'"},
        {" {}", 0, "not a JSON object"},
        {"[]", 0, "not a JSON object"},
        {"{", 0, "not a JSON object"},
        {"{} x", 0, "not a JSON object"},
        {"{\"a\":1e}", 0, "not a JSON object"},
        {"{\"\xff\":1}", 0, "not a JSON object"},
        {"{\"a\\u0000b\":1}", 0, "not a JSON object"},
        {deep, 0, "not a JSON object"},
        {"{\"a\":99999999999999999999999}", 0, "not a JSON object"},
        {"{\"a\":{" TWO "\"data_offsets\":[0,8]},\"a\":{" TWO "\"data_offsets\":[0,8]}}", 8, "duplicate"},
        {"{}", 1, "bytes 0 to 1 of the data belong to no tensor"},
        {"{\"a\":3}", 0, "tensor a: dtype is missing"},
        {"{\"a\":null}", 0, "tensor a: dtype is missing"},
        {A("\"shape\":[2],\"data_offsets\":[0,8]"), 8, "tensor a: dtype is missing"},
        {A("\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,8]"), 8, "tensor a: dtype is missing"},
        {A("\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]"), 8,
         "tensor a: dtype F64: only F32, BF16, I32 and F16 can be read"},
        {A(F32 "\"data_offsets\":[0,8]"), 8, "shape is not a list of at most 6 sizes"},
        {A(F32 "\"shape\":2,\"data_offsets\":[0,8]"), 8, "shape is not a list"},
        {A(F32 "\"shape\":[-2],\"data_offsets\":[0,8]"), 8, "shape is not a list"},
        {A(F32 "\"shape\":[2.0],\"data_offsets\":[0,8]"), 8, "shape is not a list"},
        {A(F32 "\"shape\":[1,1,1,1,1,1,2],\"data_offsets\":[0,8]"), 8, "shape is not a list of at most 6 sizes"},
        {A(TWO "\"data_offsets\":[0]"), 8, "data_offsets are not [begin, end]"},
        {A(TWO "\"data_offsets\":[0,8,8]"), 8, "data_offsets are not"},
        {A(TWO "\"data_offsets\":{}"), 8, "data_offsets are not"},
        {A(TWO "\"data_offsets\":[8,0]"), 8, "data_offsets are not"},
        {A(TWO "\"data_offsets\":[-8,0]"), 8, "data_offsets are not"},
        {A(TWO "\"data_offsets\":[0,8.0]"), 8, "data_offsets are not"},
        {A(TWO "\"data_offsets\":[0,8]"), 7, "tensor a ends at byte 8 of the data, of which the file has 7: truncated"},
        {A(TWO "\"data_offsets\":[9223372036854775800,9223372036854775807]"), 8, "truncated"},
        {A(TWO "\"data_offsets\":[0,4]"), 4, "tensor a has 4 bytes, which does not match its shape"},
        {A(TWO "\"data_offsets\":[0,8]"), 9, "bytes 8 to 9 of the data belong to no tensor"},
        {A(TWO "\"data_offsets\":[1,9]"), 9, "bytes 0 to 1 of the data belong to no tensor"},
        {A(F32 "\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]"), 0, "does not match its shape"},
        {A(F32 "\"shape\":[4611686018427387905],\"data_offsets\":[0,4]"), 4, "does not match its shape"},
        {"{\"a\":{" TWO "\"data_offsets\":[0,8]},\"b\":{" TWO "\"data_offsets\":[4,12]}}", 12,
         "tensors a and b overlap"},
        {"{\"a\":{" TWO "\"data_offsets\":[0,8]},\"b\":{" TWO "\"data_offsets\":[0,8]}}", 8, "overlap"},
        {"{\"a\":{" TWO "\"data_offsets\":[0,8]},\"b\":{" TWO "\"data_offsets\":[12,20]}}", 20,
         "bytes 8 to 12 of the data belong to no tensor"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__ is not an object of strings"},
        {"{\"__metadata__\":\"a\"}", 0, "__metadata__ is not an object of strings"},
        {"{\"a123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345"
         "67890"
         "12345678901234567\":0}",
         0, "the name is longer than 127 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_parts(cases[i].header, cases[i].data);
        expect_refusal(cases[i].reason);
    }
}

static void test_no_file(void **state) {
    (void)state;
    struct sl_store store = {0};
    struct sl_error error = {0};
    unlink(path);
    expect_refusal("cannot be opened: No such file");
    assert_int_equal(sl_safetensors_read(&store, folder, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "not a regular file"));
}

static void test_every_length(void **state) {
    (void)state;
    unsigned char file[512];
    const size_t bytes = valid_file(file, sizeof file);
    for (size_t length = 0; length < bytes; length++) {
        put(file, length);
        expect_refusal("");
    }
    file[bytes] = 0;
    put(file, bytes + 1);
    expect_refusal("belong to no tensor");
}

static void test_header_lengths(void **state) {
    (void)state;
    unsigned char file[512];
    const size_t bytes = valid_file(file, sizeof file);
    for (int bit = 0; bit < 64; bit++) {
        unsigned char changed[512];
        memcpy(changed, file, bytes);
        changed[bit / 8] ^= (unsigned char)(1 << bit % 8);
        put(changed, bytes);
        expect_refusal(bit > 8 ? "not a safetensors file, or truncated" : "");
    }
    memset(file, 0xff, 8);
    put(file, bytes);
    expect_refusal("the header should have 18446744073709551615 bytes");
    put(file, 7);
    expect_refusal("too short: 7 bytes");
}

/* Changes FILE a little; returns its new length. */
static size_t mutate(uint64_t *random, unsigned char *file, size_t bytes, size_t most) {
    static const char telling[] = "0123456789-.{}[],:\"\\ eEabF3B16I2\xff";
    for (uint32_t changes = 1 + next(random) % 4; changes > 0; changes--) {
        const size_t at = next(random) % bytes, run = 1 + next(random) % 8;
        switch (next(random) % 5) {
        case 0:
            file[at] = (unsigned char)next(random);
            break;
        case 1:
            file[at] = (unsigned char)telling[next(random) % (sizeof telling - 1)];
            break;
        case 2:
            file[at] ^= (unsigned char)(1u << next(random) % 8);
            break;
        case 3: /* doubles a run */
            if (bytes + run > most || at + run > bytes) break;
            memmove(file + at + run, file + at, bytes - at);
            bytes += run;
            break;
        default: /* removes one */
            if (at + run > bytes || bytes - run < 9) break;
            memmove(file + at, file + at + run, bytes - at - run);
            bytes -= run;
        }
    }
    /* Half of the time, make the header's length fit, so the code behind that check is reached. */
    if (next(random) % 2 && bytes > 8 + 28) {
        const uint64_t length = bytes - 8 - 28;
        for (int i = 0; i < 8; i++) file[i] = (unsigned char)(length >> 8 * i);
    }
    return bytes;
}

static void test_mutations(void **state) {
    (void)state;
    unsigned char file[512], changed[600];
    const size_t bytes = valid_file(file, sizeof file);
    uint64_t random = 1;
    int accepted = 0;
    for (int i = 0; i < 5000; i++) {
        memcpy(changed, file, bytes);
        put(changed, mutate(&random, changed, bytes, sizeof changed));
        struct sl_store read = {0}, mapped = {0};
        struct sl_error error = {0}, error_mapped = {0};
        const int status = sl_safetensors_read(&read, path, &error);
        assert_int_equal(sl_safetensors_map(&mapped, path, &error_mapped), status);
        expect_same(&mapped, &read); /* sanitizers look whether the data is all there */
        assert_string_equal(error_mapped.message, error.message);
        if (status == SL_OK) {
            accepted++;
        } else {
            assert_int_equal(status, SL_BAD_INPUT);
            assert_int_equal(read.count, 0);
            assert_memory_equal(error.message, path, strlen(path));
            assert_null(strchr(error.message, '\n'));
        }
        sl_store_free(&read);
        sl_store_free(&mapped);
    }
    assert_in_range(accepted, 50, 4000); /* a change of data or of a name is no fault */
}

/* ---- failing writes ---- */

static void test_unwritable_names(void **state) {
    (void)state;
    struct sl_store store = {0};
    struct sl_error error = {0};
    add(&store, "twice", SL_F32, 0, NULL);
    add(&store, "between", SL_F32, 0, NULL);
    add(&store, "twice", SL_F32, 0, NULL);
    assert_int_equal(sl_safetensors_write(&store, path, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "two tensors are called \"twice\""));
    strcpy(store.tensor[2].name, "__metadata__");
    assert_int_equal(sl_safetensors_write(&store, path, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "a tensor cannot be called __metadata__"));
    strcpy(store.tensor[2].name, "\xff");
    assert_int_equal(sl_safetensors_write(&store, path, &error), SL_FAILED);
    assert_non_null(strstr(error.message, "UTF-8"));
    strcpy(store.tensor[2].name, "name");
    assert_int_equal(sl_safetensors_write(&store, path, &error), SL_OK);
    assert_int_equal(sl_store_set_note(&store, "note", "\xff"), SL_OK);
    assert_int_equal(sl_safetensors_write(&store, path, &error), SL_FAILED);
    assert_int_equal(sl_safetensors_create(&store, path, &error), SL_FAILED);
    assert_int_equal(sl_safetensors_create(&store, path, NULL), SL_FAILED); /* who wants no reason gets the status */
    sl_store_free(&store);
}

static void test_unwritable_path(void **state) {
    (void)state;
    struct sl_store store = {0};
    struct sl_error error = {0};
    char missing[400];
    snprintf(missing, sizeof missing, "%s/missing/file", folder);
    assert_int_equal(sl_safetensors_write(&store, missing, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "/missing/file: cannot be written: No such file"));
    assert_int_equal(sl_safetensors_write(&store, folder, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "not a regular file"));
    /* A link stays a link, and its target is replaced; a device is left unchanged. */
    char target[400], link[400];
    struct stat status;
    snprintf(target, sizeof target, "%s/target", folder);
    snprintf(link, sizeof link, "%s/link", folder);
    assert_int_equal(sl_safetensors_write(&store, target, &error), SL_OK);
    assert_int_equal(symlink("target", link), 0);
    assert_int_equal(sl_safetensors_write(&store, link, &error), SL_OK);
    assert_true(lstat(link, &status) == 0 && S_ISLNK(status.st_mode));
    assert_int_equal(sl_safetensors_write(&store, "/dev/null", &error), SL_BAD_INPUT);
    unlink(link);
    unlink(target);
}

/* A full disk: here, a limit on files' sizes. */
static void test_disk_full(void **state) {
    (void)state;
    unsigned char file[512];
    const size_t bytes = valid_file(file, sizeof file), count = 1 << 20;
    struct sl_store store = {0}, made = {0};
    struct sl_error error = {0}, error_created = {0};
    add(&store, "large", SL_F32, 1, &count);
    assert_non_null(sl_store_declare(&made, "large", SL_F32, 1, &count));
    struct rlimit before, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 1 << 20;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    const int status = sl_safetensors_write(&store, path, &error);
    const int created = sl_safetensors_create(&made, path, &error_created);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(status, SL_FAILED);
    assert_int_equal(created, SL_FAILED);
    assert_non_null(strstr(error.message, "cannot be written: File too large"));
    assert_string_equal(error.message, error_created.message);
    sl_store_free(&made);
    unsigned char after[512];
    assert_int_equal(get(after, sizeof after), bytes); /* the old file is still there, the new one is not */
    assert_memory_equal(after, file, bytes);
    sl_store_free(&store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),       cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_given_up),         cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_empty_store),      cmocka_unit_test(test_foreign_file),
        cmocka_unit_test(test_store_refuses),    cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_no_file),          cmocka_unit_test(test_every_length),
        cmocka_unit_test(test_header_lengths),   cmocka_unit_test(test_mutations),
        cmocka_unit_test(test_unwritable_names), cmocka_unit_test(test_unwritable_path),
        cmocka_unit_test(test_disk_full),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, make_file, remove_one_file);
}
