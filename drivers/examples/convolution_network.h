/* convolution_network.h - a convolution network whose stages hand over different widths, and its training at every
 * coordinate: for convolution.c. */
#ifndef CONVOLUTION_NETWORK_H
#define CONVOLUTION_NETWORK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convolution_layers.h"

/* ---- the network ---- */

enum { IMAGE = 32, CLASSES = 10, CHANNELS1 = 16, CHANNELS2 = 32, BLOCKS = 3, MOST_BANDS = IMAGE / 4 };

/* Columns that BLOCK, 0 or 1, gives a coordinate which has one of so many BANDS. */
static inline int network_columns(int block, int bands) {
    const int side = IMAGE >> (block + 1);
    return side / bands * side * (block ? CHANNELS2 : CHANNELS1);
}

/* Two blocks of a convolution and a pool, and the head, whose kernel is sharded as its x is. A rank has at least one of
 * them. What a block hands over is half of what the block before does, so slots have room for the widest. */
static inline void network_build(struct sl_module **stage, struct sl_model *model, struct sl_spmd *self) {
    const int bands = sl_axis_size(self, ROWS_AXIS), rank = sl_axis_index(self, "pipe");
    const int ranks = sl_axis_size(self, "pipe"), half = IMAGE / 2;
    const struct sl_layers layers = {.count = BLOCKS};
    struct sl_module *part[2 * BLOCKS];
    int parts = 0;
    for (int block = sl_model_first_layer(layers, ranks, rank); block < sl_model_first_layer(layers, ranks, rank + 1);
         block++) {
        if (block == 0) {
            part[parts++] = conv3x3("conv1", IMAGE / bands, IMAGE, 1, CHANNELS1);
            part[parts++] = pool2x2(IMAGE / bands, IMAGE, CHANNELS1);
        } else if (block == 1) {
            part[parts++] = conv3x3("conv2", half / bands, half, CHANNELS1, CHANNELS2);
            part[parts++] = pool2x2(half / bands, half, CHANNELS2);
        } else {
            const int in = bands * network_columns(1, bands);
            part[parts++] = sl_row_parallel("head", in, CLASSES, self->mesh, ROWS_AXIS);
        }
    }
    *stage = sl_sequential("", parts, part);
    *model = (struct sl_model){.loops = 1, .stage = stage, .handed = network_columns(0, bands), .layers = 1};
    if (rank == ranks - 1) model->loss = sl_softmax_cross_entropy(CLASSES);
}

/* ---- a run: the same program at every coordinate ---- */

enum { PIXELS = 28, BATCH = 128, MICROBATCHES = 8, MOST_STEPS = 3, TRACED = 8 };

struct images {
    uint32_t count;
    uint8_t *pixels, *labels; /* [count, 28, 28], [count] */
};

struct network_run {
    struct sl_schedule schedule;
    struct images train, test; /* TEST may be empty */
    int steps, epochs;         /* of EPOCHS 0: as many steps, at most MOST_STEPS */
    double loss[MOST_STEPS];
    struct sl_store gradients;   /* of the last step, where EPOCHS is 0 */
    struct sl_trace_file *trace; /* of the first few steps but the very first; NULL: none is recorded */
    struct sl_watch *watch;      /* [coordinates] of the same steps; NULL: nobody watches */
    int watched;                 /* of them; written by coordinate 0 */
};

struct network_worker {
    struct sl_module *stage;
    struct sl_model model;
    struct sl_trainer *trainer;
    uint32_t *order;
    float *inputs; /* [rows, lines, IMAGE] of this coordinate */
    int32_t *labels;
    struct sl_batch batch;
    int watched; /* steps */
};

/* The rows of this coordinate of IMAGES, in ORDER (NULL: as they lie), whose batch begins with FIRST: its band of
 * lines, with zeros around each image. Rows behind the last image have label -1, which the loss leaves out. */
static inline void network_fetch(struct network_worker *w, const struct sl_spmd *self, const struct images *images,
                                 const uint32_t *order, uint32_t first) {
    enum { MARGIN = (IMAGE - PIXELS) / 2 };
    const int lines = IMAGE / sl_axis_size(self, ROWS_AXIS), top = lines * sl_axis_index(self, ROWS_AXIS) - MARGIN;
    first += (uint32_t)(w->batch.rows * sl_axis_index(self, "data"));
    memset(w->inputs, 0, (size_t)(w->batch.rows * lines * IMAGE) * sizeof *w->inputs);
    for (int row = 0; row < w->batch.rows; row++) {
        const uint32_t at = first + (uint32_t)row;
        const size_t image = at >= images->count ? 0 : order ? order[at] : at;
        w->labels[row] = at < images->count ? images->labels[image] : -1;
        for (int l = 0; l < lines; l++) {
            if (top + l < 0 || top + l >= PIXELS) continue;
            const uint8_t *line = images->pixels + (image * PIXELS + (size_t)(top + l)) * PIXELS;
            for (int i = 0; i < PIXELS; i++) w->inputs[(row * lines + l) * IMAGE + MARGIN + i] = (float)line[i] / 128;
        }
    }
}

/* Fisher and Yates; a word times n, shifted, is a number below n. */
static inline void network_shuffle(uint32_t *order, uint32_t count, uint32_t epoch) {
    const struct sl_key key = sl_fold_in(sl_key_of_seed(1), epoch);
    for (uint32_t i = 0; i < count; i++) order[i] = i;
    for (uint32_t left = count; left > 1; left--) {
        const uint32_t taken = (uint32_t)((uint64_t)sl_random_word(key, count, left - 1) * left >> 32);
        const uint32_t image = order[taken];
        order[taken] = order[left - 1];
        order[left - 1] = image;
    }
}

static inline int network_plan(struct network_worker *w, struct sl_spmd *self, const struct network_run *run) {
    static const char *const groups[] = {ROWS_AXIS, NULL};
    const int rows = BATCH / sl_axis_size(self, "data"), bands = sl_axis_size(self, ROWS_AXIS);
    if (bands > MOST_BANDS || IMAGE % bands || MICROBATCHES * sl_axis_size(self, "data") > BATCH ||
        BATCH % sl_axis_size(self, "data") || sl_axis_size(self, "pipe") > BLOCKS)
        return sl_fail(self, SL_BAD_INPUT, "data must be 1, 2, 4, 8 or 16, pipe at most %d, and rows 1, 2, 4 or %d",
                       BLOCKS, MOST_BANDS);
    const struct sl_trainer_options options = {.pipeline = {.axis = "pipe",
                                                            .group_axes = groups,
                                                            .schedule = &run->schedule,
                                                            .gemm = sl_gemm_find(NULL, &self->error),
                                                            .rows = rows / MICROBATCHES,
                                                            .wgrad_group = MICROBATCHES},
                                               .data_axis = "data",
                                               .optimizer = sl_adamw_defaults(2e-3f),
                                               .zero = 1,
                                               .overlap = true,
                                               .seed = 42};
    network_build(&w->stage, &w->model, self);
    w->inputs = malloc((size_t)(rows * IMAGE / bands * IMAGE) * sizeof *w->inputs);
    w->labels = malloc((size_t)rows * sizeof *w->labels);
    w->order = malloc(run->train.count * sizeof *w->order);
    if (!w->inputs || !w->labels || !w->order) return sl_fail(self, SL_FAILED, "no memory for a batch");
    w->batch = (struct sl_batch){.rows = rows, .inputs = w->inputs, .labels = w->labels};
    SL_TRY(sl_trainer_plan(&w->trainer, self, &options, &w->model));
    return sl_trainer_open(w->trainer, NULL);
}

/* Step NUMBER of the run. */
static inline int network_step(struct network_worker *w, struct sl_spmd *self, const struct network_run *run,
                               uint32_t number, struct sl_metrics *metrics) {
    const bool watched = number >= 1 && number <= TRACED;
    struct sl_trace_file *trace = watched ? run->trace : NULL;
    struct sl_watch *watch = run->watch ? &run->watch[self->coordinate] : NULL;
    const double began = sl_now();
    bool stop = false;
    if (watch && number == 1) sl_watch_begin(watch, self, w->trainer);
    if (watch && number == TRACED + 1) sl_watch_end(watch, w->trainer);
    w->watched += watched;
    sl_trainer_set_trace(w->trainer, trace ? sl_trace_file_of(trace, self) : NULL);
    SL_TRY(sl_trainer_step(w->trainer, &w->batch, metrics, &stop));
    if (trace && self->coordinate == 0)
        sl_trace_file_step(trace, number, began, sl_now(), metrics->loss / metrics->rows);
    return SL_OK;
}

static inline int network_steps(struct network_worker *w, struct sl_spmd *self, struct network_run *run) {
    struct sl_metrics metrics;
    for (int step = 0; step < run->steps; step++) {
        network_fetch(w, self, &run->train, NULL, (uint32_t)step * BATCH);
        SL_TRY(network_step(w, self, run, (uint32_t)step, &metrics));
        if (self->coordinate == 0) run->loss[step] = metrics.loss / metrics.rows;
    }
    return sl_trainer_export(w->trainer, true, &run->gradients);
}

/* The images that do not fill an epoch's last batch are left out. */
static inline int network_epoch(struct network_worker *w, struct sl_spmd *self, const struct network_run *run,
                                int epoch) {
    const uint32_t steps = run->train.count / BATCH;
    struct sl_metrics metrics, sum = {0};
    network_shuffle(w->order, run->train.count, (uint32_t)epoch);
    for (uint32_t step = 0; step < steps; step++) {
        const float done = (float)((uint32_t)epoch * steps + step) / (float)((uint32_t)run->epochs * steps);
        network_fetch(w, self, &run->train, w->order, step * BATCH);
        sl_trainer_set_learning_rate(w->trainer, 2e-3f * (1.0f - done));
        SL_TRY(network_step(w, self, run, (uint32_t)epoch * steps + step, &metrics));
        sl_metrics_add(&sum, (double[]){metrics.loss, metrics.correct, metrics.rows});
    }
    const double loss = sum.loss / sum.rows;
    sum = (struct sl_metrics){0};
    for (uint32_t first = 0; first < run->test.count; first += BATCH) {
        network_fetch(w, self, &run->test, NULL, first);
        SL_TRY(sl_trainer_evaluate(w->trainer, &w->batch, &metrics));
        sl_metrics_add(&sum, (double[]){metrics.loss, metrics.correct, metrics.rows});
    }
    if (self->coordinate == 0)
        printf("epoch %d  loss %.4f  test loss %.4f  test accuracy %.4f\n", epoch, loss, sum.loss / sum.rows,
               sum.correct / sum.rows);
    return self->coordinate == 0 && fflush(stdout) ? sl_fail(self, SL_FAILED, "stdout: could not be written") : SL_OK;
}

/* ARG is a struct network_run. */
static inline int network_program(struct sl_spmd *self, void *arg) {
    struct network_run *run = arg;
    struct network_worker w = {0};
    int status = network_plan(&w, self, run);
    if (status == SL_OK && run->epochs == 0) status = network_steps(&w, self, run);
    for (int epoch = 0; status == SL_OK && epoch < run->epochs; epoch++) status = network_epoch(&w, self, run, epoch);
    if (status == SL_OK && run->watch) {
        sl_watch_end(&run->watch[self->coordinate], w.trainer);
        status = sl_gather_records(self, run->watch, sizeof *run->watch);
    }
    if (self->coordinate == 0) run->watched = w.watched;
    if (status == SL_OK && run->trace) status = sl_gather_traces(self, run->trace->trace);
    sl_trainer_close(w.trainer);
    sl_module_free(w.stage);
    sl_module_free(w.model.loss);
    free(w.inputs);
    free(w.labels);
    free(w.order);
    return status;
}

/* COUNT random images. SL_FAILED without memory. */
static inline int images_draw(struct images *images, uint32_t count) {
    const struct sl_key key = sl_key_of_seed(7);
    const size_t pixels = (size_t)count * PIXELS * PIXELS;
    *images = (struct images){.count = count, .pixels = malloc(pixels), .labels = malloc(count)};
    if (!images->pixels || !images->labels) return SL_FAILED;
    for (size_t i = 0; i < pixels; i++)
        images->pixels[i] = (uint8_t)(sl_random_word(key, (uint32_t)pixels, (uint32_t)i) >> 24);
    for (uint32_t i = 0; i < count; i++)
        images->labels[i] = (uint8_t)(images->pixels[(size_t)i * PIXELS * PIXELS] % CLASSES);
    return SL_OK;
}

static inline void images_free(struct images *images) {
    free(images->pixels);
    free(images->labels);
    *images = (struct images){0};
}

#endif
