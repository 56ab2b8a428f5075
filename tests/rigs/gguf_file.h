/* gguf_file.h - builds a GGUF file in memory, piece by piece. */
#ifndef SL_TESTS_RIGS_GGUF_FILE_H
#define SL_TESTS_RIGS_GGUF_FILE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "layers/formats/models/gguf.h"

static struct {
    unsigned char bytes[1 << 16];
    size_t count;
} file;

static inline void put(const void *data, size_t bytes) {
    assert_true(file.count + bytes <= sizeof file.bytes);
    memcpy(file.bytes + file.count, data, bytes);
    file.count += bytes;
}

static inline void put_number(uint64_t number, size_t bytes) { put(&number, bytes); }

static inline void put_text(const char *text) {
    put_number(strlen(text), 8);
    put(text, strlen(text));
}

static inline void put_head(uint64_t tensors, uint64_t values) {
    file.count = 0;
    put("GGUF", 4);
    put_number(3, 4);
    put_number(tensors, 8);
    put_number(values, 8);
}

/* [ROWS, COLUMNS] */
static inline void put_tensor(const char *name, uint64_t rows, uint64_t columns, uint32_t type, uint64_t offset) {
    put_text(name);
    put_number(2, 4);
    put_number(columns, 8);
    put_number(rows, 8);
    put_number(type, 4);
    put_number(offset, 8);
}

/* Appends a key and the type of its value. The caller appends the value next. */
static inline void put_key(const char *key, enum sl_gguf_type type) {
    put_text(key);
    put_number(type, 4);
}

static inline void put_string(const char *key, const char *text) {
    put_key(key, SL_GGUF_STRING);
    put_text(text);
}

static inline void put_integer(const char *key, uint32_t number) {
    put_key(key, SL_GGUF_U32);
    put_number(number, 4);
}

static inline void put_real(const char *key, float number) {
    put_key(key, SL_GGUF_F32);
    put(&number, sizeof number);
}

/* Appends the head of an array of COUNT elements. The caller appends the elements next. */
static inline void put_array(const char *key, enum sl_gguf_type type, uint64_t count) {
    put_key(key, SL_GGUF_ARRAY);
    put_number(type, 4);
    put_number(count, 8);
}

static inline void align(void) {
    while (file.count % 32) put("", 1);
}

#endif
