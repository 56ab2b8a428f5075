/* data.c - random examples and Fashion-MNIST. */
#include "drivers/classifier/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "drivers/classifier/idx.h"
#include "drivers/common/identity.h"
#include "layers/kernels/kernels.h"
#include "spmd/device/device.h"

/* Streams of the seed, as split in the notebook; [0] is the model's. */
enum { STREAMS = 3, INPUT_STREAM = 1, LABEL_STREAM = 2 };
enum { RANDOM_COLUMNS = 784, CLASSES = 10, MAX_EXAMPLES = 1 << 24, MAX_COLUMNS = 1 << 16 };

/* Mean and deviation of Fashion-MNIST's training pixels, from 0 to 1. */
static const float pixel_mean = 0.2860f, pixel_deviation = 0.3530f;

static struct sl_key stream_key(uint64_t seed, uint32_t stream) {
    return sl_split(sl_key_of_seed(seed), STREAMS, stream);
}

/* Draws the inputs with the CPU's kernels, which are many times faster, if they use the host's memory. */
static void draw_normal(struct sl_key key, uint32_t count, float *values) {
    const struct sl_kernels *kernels = sl_kernels_select();
    uint32_t *const words = (uint32_t *)(void *)values;
    if (!sl_device.shares_memory) {
        sl_random_normal(key, count, values);
        return;
    }
    kernels->draws->words(key, count, words);
    kernels->draws->normal(count, words, values);
}

int classifier_dataset_draw(struct classifier_dataset *dataset, uint64_t seed, struct sl_error *error) {
    struct classifier_examples *examples = &dataset->train;
    const uint32_t rows = examples->count, count = rows * dataset->columns;
    if (dataset->shuffled) return SL_OK;
    examples->values = malloc(count * sizeof *examples->values);
    examples->labels = malloc(rows * sizeof *examples->labels);
    if (!examples->values || !examples->labels) return sl_error_set(error, SL_FAILED, "--data random: out of memory");
    draw_normal(stream_key(seed, INPUT_STREAM), count, examples->values);
    sl_random_randint(stream_key(seed, LABEL_STREAM), rows, 0, CLASSES, examples->labels);
    return SL_OK;
}

static int read_images(struct classifier_dataset *dataset, struct classifier_examples *examples, const char *directory,
                       const char *name, struct sl_error *error) {
    struct classifier_idx idx;
    SL_TRY(classifier_idx_read(&idx, directory, name, 3, error));
    examples->count = idx.shape[0];
    examples->pixels = idx.data;
    const uint32_t columns = idx.shape[1] * idx.shape[2];
    if (examples->count > MAX_EXAMPLES || columns > MAX_COLUMNS) {
        return sl_error_set(error, SL_BAD_INPUT, "%s/%s: %u images of %u pixels are more than %d of %d", directory,
                            name, examples->count, columns, MAX_EXAMPLES, MAX_COLUMNS);
    }
    if (dataset->columns && dataset->columns != columns) {
        return sl_error_set(error, SL_BAD_INPUT, "%s/%s: images have %u pixels, but %u in the training part", directory,
                            name, columns, dataset->columns);
    }
    dataset->columns = columns;
    return SL_OK;
}

static int read_labels(struct classifier_examples *examples, const char *directory, const char *name,
                       struct sl_error *error) {
    struct classifier_idx idx;
    SL_TRY(classifier_idx_read(&idx, directory, name, 1, error));
    int status = SL_OK;
    if (idx.shape[0] != examples->count) {
        status = sl_error_set(error, SL_BAD_INPUT, "%s/%s: %u labels for %u images", directory, name, idx.shape[0],
                              examples->count);
    }
    examples->labels = malloc(examples->count * sizeof *examples->labels);
    if (!examples->labels) status = sl_error_set(error, SL_FAILED, "%s/%s: out of memory", directory, name);
    for (uint32_t i = 0; i < examples->count && !status; i++) {
        examples->labels[i] = idx.data[i];
        if (idx.data[i] >= CLASSES) {
            status = sl_error_set(error, SL_BAD_INPUT, "%s/%s: label %d of image %u is not one from 0 to %d", directory,
                                  name, idx.data[i], i, CLASSES - 1);
        }
    }
    free(idx.data);
    return status;
}

/* Folder of Debian's package dataset-fashion-mnist. */
static const char debian_fashion_mnist[] = "/usr/share/datasets/fashion-mnist";

/* Refuses a missing DIRECTORY, with advice. */
static int check_directory(const char *directory, struct sl_error *error) {
    struct stat about;
    if (!stat(directory, &about) && S_ISDIR(about.st_mode)) return SL_OK;
    if (directory == debian_fashion_mnist)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--data fashion-mnist: there is no %s: install Debian's package dataset-fashion-mnist, or "
                            "say where the IDX files are, fashion-mnist:DIR",
                            directory);
    return sl_error_set(
        error, SL_BAD_INPUT,
        "--data fashion-mnist:%.300s: there is no such directory; fashion-mnist alone takes Debian's, %s", directory,
        debian_fashion_mnist);
}

static int open_fashion_mnist(struct classifier_dataset *dataset, const char *directory, struct sl_error *error) {
    SL_TRY(check_directory(directory, error));
    dataset->shuffled = true;
    for (int pixel = 0; pixel < 256; pixel++) {
        dataset->of_pixel[pixel] = ((float)pixel / 255.0f - pixel_mean) / pixel_deviation;
    }
    SL_TRY(read_images(dataset, &dataset->train, directory, "train-images-idx3-ubyte", error));
    SL_TRY(read_labels(&dataset->train, directory, "train-labels-idx1-ubyte", error));
    SL_TRY(read_images(dataset, &dataset->test, directory, "t10k-images-idx3-ubyte", error));
    return read_labels(&dataset->test, directory, "t10k-labels-idx1-ubyte", error);
}

int classifier_dataset_open(struct classifier_dataset *dataset, const char *spec, uint32_t batch,
                            struct sl_error *error) {
    static const char fashion_mnist[] = "fashion-mnist";
    const size_t prefix = sizeof fashion_mnist - 1;
    *dataset = (struct classifier_dataset){.classes = CLASSES};
    if (!strcmp(spec, "random")) {
        dataset->columns = RANDOM_COLUMNS;
        dataset->train.count = batch;
        return SL_OK;
    }
    if (!strcmp(spec, fashion_mnist)) return open_fashion_mnist(dataset, debian_fashion_mnist, error);
    if (!strncmp(spec, fashion_mnist, prefix) && spec[prefix] == ':' && spec[prefix + 1])
        return open_fashion_mnist(dataset, spec + prefix + 1, error);
    return sl_error_set(error, SL_BAD_INPUT, "--data: \"%.80s\" is not random, fashion-mnist or fashion-mnist:DIR",
                        spec);
}

static void free_examples(struct classifier_examples *examples) {
    free(examples->values);
    free(examples->pixels);
    free(examples->labels);
}

void classifier_dataset_close(struct classifier_dataset *dataset) {
    free_examples(&dataset->train);
    free_examples(&dataset->test);
    *dataset = (struct classifier_dataset){0};
}

int classifier_dataset_sign(const struct classifier_dataset *dataset, struct sl_signature *signature,
                            struct sl_error *error) {
    const struct classifier_examples *train = &dataset->train, *test = &dataset->test;
    const size_t columns = dataset->columns;
    char about[100];
    if (!train->pixels) return SL_OK;
    snprintf(about, sizeof about, "%u and %u images of %zu pixels", train->count, test->count, columns);
    const struct sl_piece piece[] = {{train->pixels, columns * train->count},
                                     {train->labels, sizeof *train->labels * train->count},
                                     {test->pixels, columns * test->count},
                                     {test->labels, sizeof *test->labels * test->count}};
    return sl_sign_contents(signature, "data", about, piece, sizeof piece / sizeof *piece, error);
}

void classifier_dataset_epoch_order(const struct classifier_dataset *dataset, uint64_t seed, uint32_t epoch,
                                    uint32_t *order) {
    const uint32_t count = dataset->train.count;
    for (uint32_t i = 0; i < count; i++) order[i] = i;
    if (!dataset->shuffled) return;
    /* Fisher-Yates; a word times n, shifted right, is a number below n. */
    const struct sl_key key = sl_fold_in(stream_key(seed, INPUT_STREAM), epoch);
    for (uint32_t left = count; left > 1; left--) {
        const uint32_t taken = (uint32_t)((uint64_t)sl_random_word(key, count, left - 1) * left >> 32);
        const uint32_t example = order[taken];
        order[taken] = order[left - 1];
        order[left - 1] = example;
    }
}

/* Writes one example's inputs [columns]. */
static void fetch_input(const struct classifier_dataset *dataset, const struct classifier_examples *examples,
                        size_t example, float *input) {
    const size_t columns = dataset->columns;
    if (examples->values) {
        memcpy(input, examples->values + example * columns, columns * sizeof *input);
        return;
    }
    const uint8_t *const pixel = examples->pixels + example * columns;
    for (size_t i = 0; i < columns; i++) input[i] = dataset->of_pixel[pixel[i]];
}

void classifier_dataset_fetch(const struct classifier_dataset *dataset, const struct classifier_examples *examples,
                              const uint32_t *order, uint32_t first, uint32_t rows, float *inputs, int32_t *labels) {
    for (uint32_t row = 0; row < rows; row++) {
        const bool there = row < examples->count && first < examples->count - row;
        const size_t example = !there ? 0 : order ? order[first + row] : first + row;
        if (labels) labels[row] = there ? examples->labels[example] : -1;
        if (!inputs) continue;
        float *const input = inputs + (size_t)row * dataset->columns;
        if (there)
            fetch_input(dataset, examples, example, input);
        else
            memset(input, 0, dataset->columns * sizeof *input);
    }
}
