/* convolution_network.h - convolution networks whose stages have different output widths, and their training at every
 * coordinate: for convolution.c. */
#ifndef CONVOLUTION_NETWORK_H
#define CONVOLUTION_NETWORK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convolution_layers.h"
#include "convolution_skips.h"

/* ---- the networks ---- */

enum {
    IMAGE = 32,
    CLASSES = 10,
    CHANNELS1 = 16,
    CHANNELS2 = 32,
    MOST_BLOCKS = 6,
    MOST_BANDS = IMAGE / 4,
    MOST_PEERS = 8
};

/* A network of BLOCKS. A stage has at least one block, and its output is its last block's. */
struct network {
    const char *name;
    int blocks;
    struct sl_module *(*block)(int block, const struct sl_mesh *mesh);
};

#define CHAIN(...)                                                                                                     \
    sl_sequential("", (int)(sizeof((struct sl_module *[]){__VA_ARGS__}) / sizeof(struct sl_module *)),                 \
                  (struct sl_module *[]){__VA_ARGS__})

/* This coordinate's lines of an image of side SIDE, and its own of CHANNELS sharded channels. */
static inline int own_lines(const struct sl_mesh *mesh, int side) { return side / sl_mesh_axis_size(mesh, ROWS_AXIS); }
static inline int own_channels(const struct sl_mesh *mesh, int channels) {
    return channels / sl_mesh_axis_size(mesh, CHANNELS_AXIS);
}

/* LAYER, which writes its own CHANNELS of an image of side SIDE, and a gather of all channels if they are sharded. */
static inline struct sl_module *all_channels(struct sl_module *layer, int side, int channels,
                                             const struct sl_mesh *mesh) {
    if (own_channels(mesh, channels) == channels) return layer;
    return CHAIN(layer, gather_channels(own_lines(mesh, side) * side, channels, mesh));
}

static inline struct sl_module *conv_silu(const char *name, int side, int in, int out, const struct sl_mesh *mesh) {
    const int lines = own_lines(mesh, side);
    return CHAIN(conv3x3(name, lines, side, in, out, OUTPUTS, mesh), sl_silu(lines * side * own_channels(mesh, out)));
}

/* The head's kernel is sharded like its x. */
static inline struct sl_module *network_head(int side, int channels, const struct sl_mesh *mesh) {
    return sl_row_parallel("head", side * side * channels, CLASSES, mesh, ROWS_AXIS);
}

/* Two convolutions with pools and the head. A block's output has half the size of the previous block's. The first
 * convolution leaves channels on their coordinates, the second sums over them. */
static inline struct sl_module *plain_block(int block, const struct sl_mesh *mesh) {
    const int side = IMAGE >> block, lines = own_lines(mesh, side);
    if (block == 0)
        return CHAIN(conv3x3("conv1", lines, side, 1, CHANNELS1, OUTPUTS, mesh),
                     pool2x2(lines, side, own_channels(mesh, CHANNELS1)));
    if (block == 1)
        return CHAIN(conv3x3("conv2", lines, side, CHANNELS1, CHANNELS2, INPUTS, mesh),
                     pool2x2(lines, side, CHANNELS2));
    return network_head(side, CHANNELS2, mesh);
}

/* Two residual connections (He et al. 2015), each over two blocks, which may be in two stages: the first begins it, the
 * second, whose convolution sums over the first one's channels, ends it. */
static inline struct sl_module *residual_block(int block, const struct sl_mesh *mesh) {
    static const char *const name[] = {"conv0", "conv1", "conv2", "conv3", "conv4"};
    const int side = IMAGE >> (block + 1) / 2, lines = own_lines(mesh, side), columns = lines * side * CHANNELS1;
    if (block == 0)
        return all_channels(CHAIN(conv3x3(name[0], lines, side, 1, CHANNELS1, OUTPUTS, mesh),
                                  pool2x2(lines, side, own_channels(mesh, CHANNELS1))),
                            side / 2, CHANNELS1, mesh);
    if (block % 2 == 1 && block < 5) return begin_skip(conv_silu(name[block], side, CHANNELS1, CHANNELS1, mesh), 0);
    if (block == 5) return network_head(IMAGE / 4, CHANNELS1, mesh);
    struct sl_module *ends = CHAIN(
        pass_by(conv3x3(name[block], lines, side, CHANNELS1, CHANNELS1, INPUTS, mesh), columns), sum_skip(columns));
    return block == 2 ? CHAIN(ends, pool2x2(lines, side, CHANNELS1)) : ends;
}

/* A "U" (Ronneberger et al. 2015): down to images of 8 x 8 points and up again to 32 x 32; each layer on the way up
 * also reads the output of the same size on the way down. Two such skips pass by the lowest block. */
static inline struct sl_module *u_shaped_block(int block, const struct sl_mesh *mesh) {
    enum { DOWN1 = 8, DOWN2 = 16, DOWN3 = 16, HALF = IMAGE / 2, QUARTER = IMAGE / 4 };
    const int skip1 = own_lines(mesh, IMAGE) * IMAGE * DOWN1;
    if (block == 0) return all_channels(conv_silu("down1", IMAGE, 1, DOWN1, mesh), IMAGE, DOWN1, mesh);
    if (block == 1)
        return begin_skip(CHAIN(pool2x2(own_lines(mesh, IMAGE), IMAGE, DOWN1),
                                all_channels(conv_silu("down2", HALF, DOWN1, DOWN2, mesh), HALF, DOWN2, mesh)),
                          0);
    if (block == 2)
        return begin_skip(CHAIN(pool2x2(own_lines(mesh, HALF), HALF, DOWN2),
                                all_channels(conv_silu("down3", QUARTER, DOWN2, DOWN3, mesh), QUARTER, DOWN3, mesh)),
                          skip1);
    if (block == 3)
        return pass_by(CHAIN(merge_skip(own_lines(mesh, QUARTER), QUARTER, DOWN3, DOWN2),
                             all_channels(conv_silu("up2", HALF, DOWN3 + DOWN2, DOWN2, mesh), HALF, DOWN2, mesh)),
                       skip1);
    if (block == 4)
        return CHAIN(merge_skip(own_lines(mesh, HALF), HALF, DOWN2, DOWN1),
                     all_channels(conv_silu("up1", IMAGE, DOWN2 + DOWN1, DOWN1, mesh), IMAGE, DOWN1, mesh));
    return CHAIN(pool2x2(own_lines(mesh, IMAGE), IMAGE, DOWN1), network_head(HALF, DOWN1, mesh));
}

static const struct network networks[] = {
    {"plain", 3, plain_block}, {"residual", 6, residual_block}, {"u-shaped", 6, u_shaped_block}};
enum { NETWORKS = sizeof networks / sizeof *networks };

/* Returns NULL if there is none called NAME. */
static inline const struct network *network_find(const char *name) {
    for (int n = 0; n < NETWORKS; n++)
        if (!strcmp(name, networks[n].name)) return &networks[n];
    return NULL;
}

/* Builds the blocks of this rank's stages. Slots have room for the widest block output. */
static inline void network_build(const struct network *network, const struct sl_schedule *schedule,
                                 struct sl_module **stage, struct sl_model *model, struct sl_spmd *self) {
    const struct sl_layers layers = {.count = network->blocks};
    const int rank = sl_axis_index(self, "pipe"), stages = sl_schedule_stages(schedule);
    int handed = 0;
    *model = (struct sl_model){.loops = schedule->loops, .stage = stage, .layers = network->blocks};
    for (int loop = 0; loop < schedule->loops; loop++) {
        const int number = sl_schedule_stage(schedule, rank, loop);
        const int first = sl_model_first_layer(layers, stages, number);
        const int end = sl_model_first_layer(layers, stages, number + 1);
        struct sl_module *part[MOST_BLOCKS];
        for (int block = first; block < end; block++) part[block - first] = network->block(block, self->mesh);
        stage[loop] = sl_sequential("", end - first, part);
        if (number == stages - 1) model->loss = sl_softmax_cross_entropy(CLASSES);
    }
    for (int block = 0; block < network->blocks - 1; block++) {
        struct sl_module *made = network->block(block, self->mesh);
        if (made && made->out > handed) handed = made->out;
        sl_module_free(made);
    }
    model->handed = handed;
}

/* ---- a run: the same program at every coordinate ---- */

enum { PIXELS = 28, BATCH = 128, MICROBATCHES = 8, MOST_STEPS = 3, TRACED = 8 };

struct images {
    uint32_t count;
    uint8_t *pixels, *labels; /* [count, 28, 28], [count] */
};

struct network_run {
    const struct network *network;
    const char *scheduled; /* name of the schedule */
    struct sl_schedule schedule;
    struct images train, test; /* TEST may be empty */
    int batch;                 /* images a step */
    int steps, epochs;         /* if EPOCHS is 0: the number of steps, at most MOST_STEPS */
    double loss[MOST_STEPS];
    struct sl_store gradients;   /* of the last step, if EPOCHS is 0 */
    struct sl_trace_file *trace; /* of the first few steps after the very first; NULL: no trace */
    struct sl_watch *watch;      /* [coordinates], for the same steps; NULL: no statistics */
    int watched;                 /* number of steps measured; written by coordinate 0 */
};

/* Makes the run's schedule over RANKS: with two loops, if the schedule allows them and all stages then have blocks. */
static inline int network_schedule(struct network_run *run, int ranks, struct sl_error *error) {
    const struct sl_schedule_kind *kind = sl_schedule_find(run->scheduled, error);
    if (!kind) return SL_BAD_INPUT;
    if (kind->placement == SL_MIRRORED)
        return sl_error_set(error, SL_BAD_INPUT, "schedule %s holds a network twice: choose another", run->scheduled);
    const int loops = sl_schedule_fit_loops(kind, 2 * ranks <= run->network->blocks ? 2 : 1);
    if (ranks * loops > run->network->blocks)
        return sl_error_set(error, SL_BAD_INPUT, "schedule %s over %d ranks: it has %d stages, but %s has %d blocks",
                            run->scheduled, ranks, ranks * loops, run->network->name, run->network->blocks);
    SL_TRY(sl_schedule_make(&run->schedule, run->scheduled, ranks, loops, MICROBATCHES, error));
    return sl_schedule_lower(&run->schedule, error);
}

struct network_worker {
    struct sl_module *stage[MOST_BLOCKS];
    struct sl_model model;
    struct sl_trainer *trainer;
    uint32_t *order;
    float *inputs; /* [rows, lines, IMAGE] of this coordinate */
    int32_t *labels;
    struct sl_batch batch;
    int watched; /* steps measured */
};

/* Reads this coordinate's rows of the batch that begins with FIRST, of IMAGES in ORDER (NULL: as stored): its band of
 * lines, with zeros around each image. Rows behind the last image have label -1, which the loss ignores. */
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

/* Fisher-Yates shuffle; a random word times n, shifted, is a number below n. */
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

static inline int network_check(struct sl_spmd *self, int batch) {
    const int bands = sl_axis_size(self, ROWS_AXIS), peers = sl_axis_size(self, CHANNELS_AXIS);
    const int data = sl_axis_size(self, "data");
    if (bands > MOST_BANDS || IMAGE % bands || peers > MOST_PEERS || CHANNELS1 % peers || MICROBATCHES * data > batch ||
        batch % data)
        return sl_fail(self, SL_BAD_INPUT, "data must be 1, 2, 4, 8 or 16, and rows and tensor 1, 2, 4 or 8");
    return SL_OK;
}

static inline int network_plan(struct network_worker *w, struct sl_spmd *self, const struct network_run *run) {
    static const char *const groups[] = {ROWS_AXIS, CHANNELS_AXIS, NULL};
    const int rows = run->batch / sl_axis_size(self, "data"), bands = sl_axis_size(self, ROWS_AXIS);
    SL_TRY(network_check(self, run->batch));
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
    network_build(run->network, &run->schedule, w->stage, &w->model, self);
    w->inputs = malloc((size_t)(rows * IMAGE / bands * IMAGE) * sizeof *w->inputs);
    w->labels = malloc((size_t)rows * sizeof *w->labels);
    w->order = malloc(run->train.count * sizeof *w->order);
    if (!w->inputs || !w->labels || !w->order) return sl_fail(self, SL_FAILED, "no memory for a batch");
    w->batch = (struct sl_batch){.rows = rows, .inputs = w->inputs, .labels = w->labels};
    SL_TRY(sl_trainer_plan(&w->trainer, self, &options, &w->model));
    return sl_trainer_open(w->trainer, NULL);
}

/* Takes step NUMBER of the run. */
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
        network_fetch(w, self, &run->train, NULL, (uint32_t)(step * run->batch));
        SL_TRY(network_step(w, self, run, (uint32_t)step, &metrics));
        if (self->coordinate == 0) run->loss[step] = metrics.loss / metrics.rows;
    }
    return sl_trainer_export(w->trainer, true, &run->gradients);
}

/* Images that do not fill an epoch's last batch are omitted. */
static inline int network_epoch(struct network_worker *w, struct sl_spmd *self, const struct network_run *run,
                                int epoch) {
    const uint32_t batch = (uint32_t)run->batch, steps = run->train.count / batch;
    struct sl_metrics metrics, sum = {0};
    network_shuffle(w->order, run->train.count, (uint32_t)epoch);
    for (uint32_t step = 0; step < steps; step++) {
        const float done = (float)((uint32_t)epoch * steps + step) / (float)((uint32_t)run->epochs * steps);
        network_fetch(w, self, &run->train, w->order, step * batch);
        sl_trainer_set_learning_rate(w->trainer, 2e-3f * (1.0f - done));
        SL_TRY(network_step(w, self, run, (uint32_t)epoch * steps + step, &metrics));
        sl_metrics_add(&sum, (double[]){metrics.loss, metrics.correct, metrics.rows});
    }
    const double loss = sum.loss / sum.rows;
    sum = (struct sl_metrics){0};
    for (uint32_t first = 0; first < run->test.count; first += batch) {
        network_fetch(w, self, &run->test, NULL, first);
        SL_TRY(sl_trainer_evaluate(w->trainer, &w->batch, &metrics));
        sl_metrics_add(&sum, (double[]){metrics.loss, metrics.correct, metrics.rows});
    }
    if (self->coordinate == 0)
        printf("epoch %d  loss %.4f  test loss %.4f  test accuracy %.4f\n", epoch, loss, sum.loss / sum.rows,
               sum.correct / sum.rows);
    return self->coordinate == 0 && fflush(stdout) ? sl_fail(self, SL_FAILED, "stdout: could not be written") : SL_OK;
}

/* The program; ARG is a struct network_run. */
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
    for (int loop = 0; loop < MOST_BLOCKS; loop++) sl_module_free(w.stage[loop]);
    sl_module_free(w.model.loss);
    free(w.inputs);
    free(w.labels);
    free(w.order);
    return status;
}

/* Makes COUNT random images. SL_FAILED without memory. */
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
