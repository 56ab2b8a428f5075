/* test_checksums.c - one wrong bit anywhere in a file with checksums is refused, and so is a float that is not finite;
 * files rewritten by other programs stay valid; files with many names and notes are read in time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/rigs/one_file.h"

#include "layers/formats/stores/checksums.h"
#include "layers/formats/stores/safetensors.h"
#include "spmd/base/hash.h"

enum { FLOATS = 3 << 16 }; /* of the large tensor: 768 KB, more than is verified at once */

static int make_file(void **state) {
    (void)state;
    return make_one_file("test_checksums");
}

static void fill(struct sl_tensor *tensor) {
    uint32_t random = (uint32_t)strlen(tensor->name);
    for (size_t i = 0; i < sl_array_elements(&tensor->array); i++) {
        random = random * 1664525u + 1013904223u;
        if (tensor->array.dtype == SL_F32) ((float *)tensor->array.data)[i] = (float)(random >> 8) * 0x1p-24f;
        if (tensor->array.dtype == SL_BF16) ((uint16_t *)tensor->array.data)[i] = (uint16_t)(0x3f00 + (random >> 24));
        if (tensor->array.dtype == SL_I32) ((uint32_t *)tensor->array.data)[i] = random;
    }
}

/* Not in the order of their names. */
static void add_all(struct sl_store *store,
                    struct sl_tensor *(*add)(struct sl_store *, const char *, enum sl_dtype, int, const size_t *)) {
    const size_t large[] = {3, 1 << 16}, small[] = {2, 3}, empty[] = {4, 0};
    assert_non_null(add(store, "large", SL_F32, 2, large));
    assert_non_null(add(store, "half", SL_BF16, 2, small));
    assert_non_null(add(store, "empty", SL_F32, 2, empty));
    assert_non_null(add(store, "\xc3\xa9", SL_I32, 1, small));
    assert_non_null(add(store, "scalar", SL_F32, 0, NULL));
    assert_int_equal(sl_store_set_note(store, "version", "2"), SL_OK);
    assert_int_equal(sl_store_set_note(store, "a \"note\"", "of\nlines"), SL_OK);
    store->checksums = true;
}

static void write_file(void) {
    struct sl_store store = {0};
    struct sl_error error = {0};
    add_all(&store, sl_store_add);
    for (int i = 0; i < store.count; i++) fill(&store.tensor[i]);
    if (sl_safetensors_write(&store, path, &error)) fail_msg("%s", error.message);
    sl_store_free(&store);
}

/* Maps and verifies the file. Returns the status of the first step that fails. */
static int map_and_verify(struct sl_error *error) {
    struct sl_store store = {0};
    int status = sl_safetensors_map(&store, path, error);
    if (status == SL_OK && !store.checksums) status = sl_error_set(error, SL_CHECK_FAILED, "no checksums");
    if (status == SL_OK) status = sl_safetensors_verify(&store, NULL, NULL, error);
    sl_store_free(&store);
    return status;
}

static void expect_valid(void) {
    struct sl_error error = {0};
    if (map_and_verify(&error)) fail_msg("%s", error.message);
}

static void expect_refusal(const char *reason) {
    struct sl_error error = {0};
    assert_int_equal(map_and_verify(&error), SL_BAD_INPUT);
    assert_memory_equal(error.message, path, strlen(path));
    assert_null(strchr(error.message, '\n'));
    if (!strstr(error.message, reason)) fail_msg("\"%s\" is not in: %s", reason, error.message);
}

/* ---- single bits ---- */

static void flip(int file, off_t at, int bit) {
    unsigned char byte;
    assert_int_equal(pread(file, &byte, 1, at), 1);
    byte ^= (unsigned char)(1 << bit);
    assert_int_equal(pwrite(file, &byte, 1, at), 1);
}

/* If the note's own key is hit, there seem to be no checksums: programs that need them refuse the file. Flips each bit
 * of the header, and of the data one in every 4 KB and in the first and last byte of every tensor. */
static void test_every_flipped_bit_is_refused(void **state) {
    (void)state;
    write_file();
    struct sl_store store = {0};
    struct sl_error error = {0};
    assert_int_equal(sl_safetensors_map(&store, path, &error), SL_OK);
    const int file = open(path, O_RDWR);
    assert_true(file >= 0);
    const off_t start = (char *)sl_store_find(&store, "empty")->array.data - store.mapping;
    const off_t end = (off_t)store.mapped;
    int flips = 0;
    for (off_t at = 0; at < end; at++) {
        bool due = at < start || (at - start) % 4096 == 0;
        for (int t = 0; t < store.count && !due; t++) {
            const off_t first = (char *)store.tensor[t].array.data - store.mapping;
            due = at == first || at == first + (off_t)sl_tensor_bytes(&store.tensor[t]) - 1;
        }
        for (int bit = at < start ? 0 : (int)(at / 4096 % 8); due && bit < 8; bit += at < start ? 1 : 8, flips++) {
            flip(file, at, bit);
            if (map_and_verify(&error) == SL_OK) fail_msg("bit %d of byte %jd: not refused", bit, (intmax_t)at);
            if (at >= start && !strstr(error.message, " is damaged: its checksum is ")) fail_msg("%s", error.message);
            flip(file, at, bit);
        }
    }
    close(file);
    sl_store_free(&store);
    assert_true(flips > 4000);
    expect_valid();
}

static void test_every_length_is_refused(void **state) {
    (void)state;
    struct stat status;
    write_file();
    assert_int_equal(stat(path, &status), 0);
    for (off_t length = status.st_size - 1; length > 0; length -= length > 3000 ? 1009 : 1) {
        struct sl_error error = {0};
        assert_int_equal(truncate(path, length), 0);
        assert_int_equal(map_and_verify(&error), SL_BAD_INPUT);
        assert_true(sl_safetensors_is_cut(path, &error));
    }
    write_file();
    struct sl_error error = {0};
    assert_false(sl_safetensors_is_cut(path, &error));
}

/* ---- coverage of the root ---- */

static void change_text(const char *from, const char *to) {
    static char file[2 << 20];
    FILE *stream = fopen(path, "rb+");
    assert_non_null(stream);
    const size_t bytes = fread(file, 1, sizeof file, stream);
    char *place = memmem(file, bytes, from, strlen(from));
    assert_non_null(place);
    assert_int_equal(strlen(from), strlen(to));
    assert_int_equal(fseek(stream, place - file, SEEK_SET), 0);
    assert_int_equal(fwrite(to, 1, strlen(to), stream), strlen(to));
    assert_int_equal(fclose(stream), 0);
}

static void test_notes_names_and_shapes_are_covered(void **state) {
    (void)state;
    static const char *const changes[][2] = {
        {"\"version\":\"2\"", "\"version\":\"3\""}, {"\"version\"", "\"vorsion\""},         {"\"half\"", "\"hale\""},
        {"\"shape\":[2,3]", "\"shape\":[3,2]"},     {"\"shape\":[4,0]", "\"shape\":[5,0]"}, {"\"I32\"", "\"F32\""},
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        write_file();
        change_text(changes[i][0], changes[i][1]);
        expect_refusal("damaged: the checksum of its header is ");
    }
    write_file();
    change_text(SL_CHECKSUMS_KEY, "shardloop.xxh4"); /* a program that needs checksums finds none */
    struct sl_error error = {0};
    assert_int_equal(map_and_verify(&error), SL_CHECK_FAILED);
}

/* Another program's header, white space and order of tensors included: the same notes and tensors. */
static void test_another_writer_s_file_is_valid(void **state) {
    (void)state;
    struct sl_store store = {0};
    struct sl_error error = {0};
    write_file();
    assert_int_equal(sl_safetensors_read(&store, path, &error), SL_OK);
    char note[200] = "", header[2000];
    assert_true(sl_checksums_length(store.count) < sizeof note);
    assert_int_equal(sl_checksums_print(&store, store.tensor, note), SL_OK);
    int used = snprintf(header, sizeof header, "{ \"__metadata__\" : {\"version\":\"2\",\n");
    size_t begin = 0;
    for (int i = store.count - 1; i >= 0; i--) { /* the last one first */
        const struct sl_array *array = &store.tensor[i].array;
        char shape[80] = "";
        for (int d = 0; d < array->dims; d++) sprintf(shape + strlen(shape), "%s%zu", d ? ", " : "", array->shape[d]);
        if (i == store.count - 1)
            used += snprintf(header + used, sizeof header - (size_t)used,
                             "\"a \\u0022note\\\"\":\"of\\u000alines\",\"" SL_CHECKSUMS_KEY "\":\"%s\"}", note);
        used += snprintf(header + used, sizeof header - (size_t)used,
                         ", \"%s\":{\"data_offsets\":[%zu,%zu],\"shape\":[%s],\"dtype\":\"%s\"}", store.tensor[i].name,
                         begin, begin + sl_tensor_bytes(&store.tensor[i]), shape, sl_dtypes[array->dtype].label);
        begin += sl_tensor_bytes(&store.tensor[i]);
    }
    used += snprintf(header + used, sizeof header - (size_t)used, "}  ");
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    const uint64_t length = (uint64_t)used;
    assert_int_equal(fwrite(&length, 1, 8, file), 8);
    assert_int_equal(fwrite(header, 1, length, file), length);
    for (int i = store.count - 1; i >= 0; i--)
        fwrite(store.tensor[i].array.data, 1, sl_tensor_bytes(&store.tensor[i]), file);
    assert_int_equal(fclose(file), 0);
    expect_valid();
    sl_store_free(&store);
}

/* The definition, put together by hand. */
static void test_the_definition(void **state) {
    (void)state;
    struct sl_store store = {0};
    struct sl_error error = {0};
    char digits[2][SL_HASH_DIGITS + 1], tail[200], note[200];
    const size_t shape[] = {2, 1};
    const float data[] = {1.0f, -2.0f};
    memcpy(sl_store_add(&store, "b", SL_F32, 2, shape)->array.data, data, sizeof data);
    assert_non_null(sl_store_add(&store, "a", SL_I32, 0, NULL));
    sl_store_set_note(&store, "step", "7");
    sl_store_set_note(&store, "seed", "42");
    store.checksums = true;
    assert_int_equal(sl_safetensors_write(&store, path, &error), SL_OK);
    sl_store_free(&store);

    sl_hash_print(sl_hash("\0\0\0\0", 4), digits[0]);
    sl_hash_print(sl_hash(data, sizeof data), digits[1]);
    const int length = snprintf(tail, sizeof tail, "seed%c42%cstep%c7%ca%cI32%c%c%s%cb%cF32%c2,1%c%s%c", 0, 0, 0, 0, 0,
                                0, 0, digits[0], 0, 0, 0, 0, digits[1], 0);
    char root[SL_HASH_DIGITS + 1];
    sl_hash_print(sl_hash(tail, (size_t)length), root);
    snprintf(note, sizeof note, "{\"__metadata__\":{\"shardloop.xxh3\":\"%s %s %s\",\"step\":\"7\"", digits[0],
             digits[1], root);
    char file[400] = "";
    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    assert_true(fread(file, 1, sizeof file, stream) > strlen(note) + 8);
    fclose(stream);
    assert_memory_equal(file + 8, note, strlen(note));
}

/* ---- files made in place ---- */

static int count(void *arg) {
    ++*(int *)arg;
    return SL_OK;
}

static void test_made_in_place(void **state) {
    (void)state;
    struct sl_store store = {0}, read = {0};
    struct sl_error error = {0};
    add_all(&store, sl_store_declare);
    assert_int_equal(sl_safetensors_create(&store, path, &error), SL_OK);
    for (int i = 0; i < store.count; i++) fill(&store.tensor[i]);
    assert_int_equal(sl_safetensors_commit(&store, NULL, NULL, &error), SL_OK);
    expect_valid();
    /* Written again, it is the same file. */
    static char first[2 << 20], second[2 << 20];
    for (int i = 0; i < 2; i++) {
        FILE *file = fopen(path, "rb");
        assert_non_null(file);
        assert_true(fread(i ? second : first, 1, sizeof first, file) > 4 * FLOATS);
        fclose(file);
        assert_int_equal(sl_safetensors_read(&read, path, &error), SL_OK);
        assert_true(read.checksums);
        assert_int_equal(read.notes, 2);
        assert_int_equal(sl_safetensors_write(&read, path, &error), SL_OK);
    }
    assert_memory_equal(first, second, sizeof first);
    sl_store_free(&read);
}

/* Called now and then during long work; may end it. */
static int refuse(void *arg) {
    (void)arg;
    return SL_FAILED;
}

static void test_others_are_told(void **state) {
    (void)state;
    struct sl_store store = {0};
    struct sl_error error = {0};
    const size_t shape[] = {9 << 20}; /* floats */
    int calls = 0;
    assert_non_null(sl_store_declare(&store, "long", SL_F32, 1, shape));
    store.checksums = true;
    assert_int_equal(sl_safetensors_create(&store, path, &error), SL_OK);
    assert_int_equal(sl_safetensors_commit(&store, count, &calls, &error), SL_OK);
    assert_true(calls >= 36 / 8);
    assert_int_equal(sl_safetensors_map(&store, path, &error), SL_OK);
    calls = 0;
    assert_int_equal(sl_safetensors_verify(&store, count, &calls, &error), SL_OK);
    assert_true(calls >= 36 / 8);
    assert_int_equal(sl_safetensors_verify(&store, refuse, NULL, &error), SL_FAILED);
    assert_int_equal(sl_safetensors_verify(&store, NULL, NULL, &error), SL_OK); /* without a callback */
    sl_store_free(&store);
    /* If the callback ends the making of a file, the old file stays. */
    assert_non_null(sl_store_declare(&store, "long", SL_F32, 1, shape));
    store.checksums = true;
    assert_int_equal(sl_safetensors_create(&store, path, &error), SL_OK);
    ((float *)store.tensor[0].array.data)[0] = 1;
    assert_int_equal(sl_safetensors_commit(&store, refuse, NULL, &error), SL_FAILED);
    assert_int_equal(sl_safetensors_map(&store, path, &error), SL_OK);
    assert_true(((const float *)store.tensor[0].array.data)[0] == 0);
    sl_store_free(&store);
}

/* ---- failing disks ---- */

static int syncs_left = -1; /* number of successful syncs; -1: all */

int __real_msync(void *address, size_t bytes, int flags);
int __wrap_msync(void *address, size_t bytes, int flags);
int __wrap_msync(void *address, size_t bytes, int flags) {
    if (syncs_left == 0) {
        errno = EIO;
        return -1;
    }
    if (syncs_left > 0) syncs_left--;
    return __real_msync(address, bytes, flags);
}

/* The old file stays. */
static void test_syncs_that_fail(void **state) {
    (void)state;
    const size_t shape[] = {9 << 20}; /* floats: synced in two parts */
    struct sl_error error = {0};
    for (int syncs = 0; syncs < 2; syncs++) {
        struct sl_store store = {0};
        write_file();
        assert_non_null(sl_store_declare(&store, "long", SL_F32, 1, shape));
        store.checksums = true;
        assert_int_equal(sl_safetensors_create(&store, path, &error), SL_OK);
        syncs_left = syncs;
        const int status = sl_safetensors_commit(&store, NULL, NULL, &error);
        syncs_left = -1;
        assert_int_equal(status, SL_FAILED);
        assert_non_null(strstr(error.message, "Input/output error"));
        expect_valid();
    }
}

/* ---- floats ---- */

static void test_not_finite(void **state) {
    (void)state;
    static const struct {
        const char *name, *reason;
        size_t at;
        float value;
    } cases[] = {
        {"large", "tensor large: value 196607 is not finite", FLOATS - 1, NAN},
        {"large", "tensor large: value 70000 is not finite", 70000, -INFINITY},
        {"scalar", "tensor scalar: value 0 is not finite", 0, INFINITY},
        {"half", "tensor half: value 5 is not finite", 5, NAN},
    };
    struct sl_error error = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sl_store store = {0};
        struct stat before, after;
        write_file();
        assert_int_equal(stat(path, &before), 0);
        assert_int_equal(sl_safetensors_read(&store, path, &error), SL_OK);
        struct sl_array *array = &sl_store_find(&store, cases[i].name)->array;
        sl_store_float(array->dtype, array->data, cases[i].at, cases[i].value);
        if (cases[i].at == 70000)
            sl_store_float(array->dtype, array->data, FLOATS - 1, NAN); /* the first one is reported */
        /* With checksums it is not written: the old file stays. */
        assert_int_equal(sl_safetensors_write(&store, path, &error), SL_FAILED);
        if (!strstr(error.message, cases[i].reason)) fail_msg("%s", error.message);
        assert_int_equal(stat(path, &after), 0);
        assert_int_equal(before.st_ino, after.st_ino);
        /* Without them it is, but will not be taken. */
        store.checksums = false;
        assert_int_equal(sl_safetensors_write(&store, path, &error), SL_OK);
        sl_store_free(&store);
        assert_int_equal(sl_safetensors_map(&store, path, &error), SL_OK);
        assert_false(store.checksums);
        assert_int_equal(sl_safetensors_verify(&store, NULL, NULL, &error), SL_BAD_INPUT);
        if (!strstr(error.message, cases[i].reason)) fail_msg("%s", error.message);
        sl_store_free(&store);
    }
    struct sl_store made = {0};
    add_all(&made, sl_store_declare);
    write_file();
    assert_int_equal(sl_safetensors_create(&made, path, &error), SL_OK);
    *(float *)sl_store_find(&made, "scalar")->array.data = NAN;
    assert_int_equal(sl_safetensors_commit(&made, NULL, NULL, &error), SL_FAILED);
    assert_non_null(strstr(error.message, "tensor scalar: value 0 is not finite"));
    expect_valid();
}

static void test_a_note_of_the_same_length_takes_no_memory(void **state) {
    (void)state;
    struct sl_store store = {0};
    assert_int_equal(sl_store_set_note(&store, "step", "07"), SL_OK);
    const char *text = sl_store_note(&store, "step");
    assert_int_equal(sl_store_set_note(&store, "step", "08"), SL_OK);
    assert_ptr_equal(sl_store_note(&store, "step"), text);
    assert_string_equal(text, "08");
    assert_int_equal(sl_store_set_note(&store, "step", "more"), SL_OK);
    assert_string_equal(sl_store_note(&store, "step"), "more");
    sl_store_free(&store);
}

static void test_the_note_cannot_be_given(void **state) {
    (void)state;
    struct sl_store store = {0};
    struct sl_error error = {0};
    assert_int_equal(sl_store_set_note(&store, SL_CHECKSUMS_KEY, "0"), SL_OK);
    assert_int_equal(sl_safetensors_write(&store, path, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "the note shardloop.xxh3 is computed, not given"));
    sl_store_free(&store);
}

/* ---- many names ---- */

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Writes a file with COUNT tensors, or with COUNT notes, and returns how long reading it takes. */
static double time_to_read(int names, bool notes) {
    struct sl_store store = {0};
    struct sl_error error = {0};
    char name[40];
    for (int i = 0; i < names; i++) {
        snprintf(name, sizeof name, "%08x", (unsigned)i);
        if (notes)
            assert_int_equal(sl_store_set_note(&store, name, "text"), SL_OK);
        else
            assert_non_null(sl_store_declare(&store, name, SL_F32, 1, (size_t[]){0}));
    }
    store.checksums = true;
    if (sl_safetensors_write(&store, path, &error)) fail_msg("%s", error.message);
    sl_store_free(&store);
    double least = 1e9;
    for (int round = 0; round < 30; round++) {
        const double began = seconds();
        if (sl_safetensors_map(&store, path, &error)) fail_msg("%s", error.message);
        assert_int_equal(notes ? store.notes : store.count, names);
        assert_int_equal(sl_safetensors_verify(&store, NULL, NULL, &error), SL_OK);
        const double took = seconds() - began;
        least = took < least ? took : least;
        sl_store_free(&store);
    }
    return least;
}

/* Twice as many names take at most 2.5 times as long. There are few enough to fit a core's cache, because larger sets
 * take longer for that reason. Other work on the machine may disturb it: three trials. */
static void test_many_names(void **state) {
    (void)state;
    for (int notes = 0; notes < 2; notes++) {
        double took[3];
        bool holds = false;
        for (int trial = 0; trial < 3 && !holds; trial++) {
            for (int i = 0; i < 3; i++) took[i] = time_to_read((notes ? 1000 : 500) << i, notes);
            holds = took[1] < 2.5 * took[0] && took[2] < 2.5 * took[1];
        }
        print_message("# %s: n take %.5f s, 2n %.5f s, 4n %.5f s\n", notes ? "notes" : "tensors", took[0], took[1],
                      took[2]);
        assert_true(holds);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_flipped_bit_is_refused),
        cmocka_unit_test(test_every_length_is_refused),
        cmocka_unit_test(test_notes_names_and_shapes_are_covered),
        cmocka_unit_test(test_another_writer_s_file_is_valid),
        cmocka_unit_test(test_the_definition),
        cmocka_unit_test(test_made_in_place),
        cmocka_unit_test(test_others_are_told),
        cmocka_unit_test(test_syncs_that_fail),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_the_note_cannot_be_given),
        cmocka_unit_test(test_a_note_of_the_same_length_takes_no_memory),
        cmocka_unit_test(test_many_names),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, make_file, remove_one_file);
}
