/* convolution_layers.h - layers of a convolution network with images sharded by lines and convolutions sharded by
 * channels: for convolution.c.
 *
 * A row of a batch is an image [lines, width, channels]. Along the axis "rows" of the mesh each coordinate has a band
 * of the lines of every image. A 3x3 convolution needs one line more above its band and one below it. The neighbours
 * have these lines, and send them by ppermute; in backward the gradients of these lines go back the same way. Beyond
 * the first and the last line of an image are zeros, as a ppermute writes zeros at members that receive nothing.
 *
 * Along the axis "tensor" each coordinate has a part of a convolution's kernel. By OUTPUTS, it computes its own
 * channels of y from all channels of x; dx is the sum over the coordinates. By INPUTS, y is the sum over the
 * coordinates, each of which uses its own channels of x. So a pair of the two sums once in forward and once in
 * backward, and channels stay on their coordinates between them; gather_channels sends them to all coordinates, if a
 * layer needs all. */
#ifndef CONVOLUTION_LAYERS_H
#define CONVOLUTION_LAYERS_H

#include <shardloop/shardloop.h>

#define ROWS_AXIS "rows"
#define CHANNELS_AXIS "tensor"

/* ---- the 3x3 convolution ---- */

enum { KERNEL, BIAS, SIDE = 3, TAPS = SIDE * SIDE };
enum conv_by { UNDIVIDED, OUTPUTS, INPUTS }; /* the channels sharded along CHANNELS_AXIS */

struct conv {
    struct sl_module module;
    int lines, width, channels_in, channels_out; /* lines of this coordinate's band; its own channels */
    int whole_in, whole_out;                     /* channels of all coordinates together */
    enum conv_by by;
    int group; /* of the coordinates that share the images; -1: alone */
    int peers; /* group of the coordinates that share the channels; -1: alone */
    struct sl_gemm forward, input, weight;
    struct sl_place received; /* [2][rows, width, channels_in]: the lines above and below the band; saved for W */
    struct sl_place sent;     /* the lines for the neighbours, of the same shape; in I also the received ones: [4] */
    struct sl_place patches;  /* [rows * lines * width, taps * channels_in]: each point's neighbourhood, or gradient */
    struct sl_place partial;  /* gradients of kernel and bias, summed over this coordinate's band */
};

static size_t conv_points(const struct conv *conv, int rows) {
    return (size_t)rows * (size_t)conv->lines * (size_t)conv->width;
}
/* Floats of one line of each of ROWS images. */
static size_t conv_edge(const struct conv *conv, int rows) {
    return (size_t)rows * (size_t)conv->width * (size_t)conv->channels_in;
}
static size_t conv_kernel(const struct conv *conv) {
    return TAPS * (size_t)conv->channels_in * (size_t)conv->channels_out;
}

/* Whether y is summed over coordinates. The bias is then added after the sum, and so once. */
static bool conv_sums(const struct conv *conv) { return conv->by == INPUTS && conv->peers >= 0; }

static void conv_release(struct sl_module *module) {
    struct conv *conv = (struct conv *)module;
    sl_gemm_release(&conv->forward);
    sl_gemm_release(&conv->input);
    sl_gemm_release(&conv->weight);
}

/* forward: y = patches kernel + bias. I: the patches' gradient = dy kernel^T. W: the kernel's = patches^T dy. */
static int conv_plan_products(struct conv *conv, struct sl_plan *plan) {
    const int points = (int)conv_points(conv, plan->rows), in = TAPS * conv->channels_in, out = conv->channels_out;
    const struct sl_gemm_backend *gemm = plan->gemm;
    conv_release(&conv->module);
    const enum sl_epilogue epilogue = conv_sums(conv) ? SL_EPILOGUE_NONE : SL_EPILOGUE_BIAS;
    SL_TRY(sl_gemm_plan(&conv->forward, gemm, SL_F32, points, out, in, false, false, epilogue, plan->error));
    if (plan->forward_only) return SL_OK;
    SL_TRY(sl_gemm_plan(&conv->input, gemm, SL_F32, points, in, out, false, true, SL_EPILOGUE_NONE, plan->error));
    return sl_gemm_plan(&conv->weight, gemm, SL_F32, in, out, points, true, false, SL_EPILOGUE_NONE, plan->error);
}

static int conv_plan_parameters(const struct conv *conv, struct sl_plan *plan) {
    static const char *const spec[] = {"-,-,-", "-,-," CHANNELS_AXIS, "-," CHANNELS_AXIS ",-"};
    const size_t kernel[] = {TAPS, (size_t)conv->whole_in, (size_t)conv->whole_out};
    const float scale = 1.4f * sl_lecun_normal(TAPS * kernel[1]);
    SL_TRY(sl_plan_parameter_sharded(plan, "kernel", SL_INIT_TRUNCATED_NORMAL, scale, 3, kernel, spec[conv->by]));
    return sl_plan_parameter_sharded(plan, "bias", SL_INIT_ZEROS, 0.0f, 1, &kernel[2],
                                     conv->by == OUTPUTS ? CHANNELS_AXIS : "-");
}

static int conv_plan(struct sl_module *module, struct sl_plan *plan) {
    struct conv *conv = (struct conv *)module;
    const size_t in = TAPS * (size_t)conv->channels_in, out = (size_t)conv->channels_out;
    const size_t edge = conv_edge(conv, plan->rows);
    SL_TRY(sl_plan_group(plan, ROWS_AXIS, &conv->group));
    conv->peers = -1;
    if (conv->by != UNDIVIDED) SL_TRY(sl_plan_group(plan, CHANNELS_AXIS, &conv->peers));
    SL_TRY(conv_plan_parameters(conv, plan));
    SL_TRY(sl_plan_array(plan, 2 * edge, SL_UNTIL_WEIGHT, &conv->received));
    sl_plan_workspace(plan, 4 * edge * sizeof(float), &conv->sent);
    sl_plan_workspace(plan, conv_points(conv, plan->rows) * in * sizeof(float), &conv->patches);
    sl_plan_workspace(plan, (conv_kernel(conv) + out) * sizeof(float), &conv->partial);
    return conv_plan_products(conv, plan);
}

/* Sends SENT [2][count] to the coordinates above and below; RECEIVED [2][count] is their data. */
static int conv_exchange(const struct conv *conv, struct sl_context *context, size_t count, const float *sent,
                         float *received) {
    const struct sl_group *group = sl_group_of(context, conv->group);
    if (!group) {
        SL_ELEMENTWISE(is_device_ptr(received))
        for (size_t i = 0; i < 2 * count; i++) received[i] = 0;
        return SL_OK;
    }
    int up[group->size][2], down[group->size][2];
    for (int i = 1; i < group->size; i++) {
        up[i - 1][0] = down[i - 1][1] = i;
        up[i - 1][1] = down[i - 1][0] = i - 1;
    }
    const int pairs = group->size - 1;
    SL_TRY(sl_communicate(context, sl_describe_ppermute(group, SL_F32, sent + count, received, count, pairs, down)));
    return sl_communicate(context, sl_describe_ppermute(group, SL_F32, sent, received + count, count, pairs, up));
}

/* Writes the neighbourhoods of all points of X [rows, lines, width, channels]. The three points of one line of a
 * neighbourhood are adjacent. */
static void conv_gather(const struct conv *conv, int rows, const float *x, const float *received, float *patches) {
    const int lines = conv->lines, width = conv->width, channels = conv->channels_in;
    const int line = width * channels, run = SIDE * channels;
    SL_ROWS(is_device_ptr(x, received, patches))
    for (int i = 0; i < rows * lines * SIDE * width; i++) {
        const int w = i % width, tap = i / width % SIDE, l = i / width / SIDE % lines, row = i / width / SIDE / lines;
        const int from = l + tap - 1, first = (w - 1) * channels;
        const int begin = w > 0 ? 0 : channels, end = w < width - 1 ? run : run - channels;
        const float *source = from < 0        ? received + (size_t)row * line
                              : from == lines ? received + (size_t)(rows + row) * line
                                              : x + ((size_t)row * lines + from) * line;
        float *patch = patches + (((size_t)row * lines + l) * width + w) * SIDE * run + (size_t)tap * run;
        SL_LANES()
        for (int e = 0; e < run; e++) patch[e] = e < begin || e >= end ? 0 : source[first + e];
    }
}

/* The transpose: sums the gradients PATCHES into DX, and into the gradients SENT of the lines above and below the band.
 */
static void conv_scatter(const struct conv *conv, int rows, const float *patches, float *dx, float *sent) {
    const int lines = conv->lines, width = conv->width, channels = conv->channels_in;
    const int line = width * channels, run = SIDE * channels;
    SL_ROWS(is_device_ptr(patches, dx, sent))
    for (int i = 0; i < rows * (lines + 2) * width; i++) {
        const int w = i % width, l = i / width % (lines + 2) - 1, row = i / width / (lines + 2);
        float *to = l < 0        ? sent + (size_t)row * line
                    : l == lines ? sent + (size_t)(rows + row) * line
                                 : dx + ((size_t)row * lines + l) * line;
        SL_LANES()
        for (int c = 0; c < channels; c++) {
            float sum = 0;
            for (int tap = 0; tap < TAPS; tap++) {
                const int y = l + 1 - tap / SIDE, x = w + 1 - tap % SIDE; /* the point with this neighbourhood */
                if (y >= 0 && y < lines && x >= 0 && x < width)
                    sum += patches[(((size_t)row * lines + y) * width + x) * SIDE * run + tap * channels + c];
            }
            to[w * channels + c] = sum;
        }
    }
}

/* conv_edges copies the first and the last line of each image of X to SENT [2][rows, line]; conv_add_edges adds the
 * received gradients of these lines to DX. */
static void conv_edges(const struct conv *conv, int rows, const float *x, float *sent) {
    const int line = conv->width * conv->channels_in, image = conv->lines * line;
    SL_ELEMENTWISE(is_device_ptr(x, sent))
    for (int i = 0; i < 2 * rows * line; i++) {
        const int row = i / line % rows, last = i / line / rows * (image - line);
        sent[i] = x[(size_t)row * image + last + i % line];
    }
}
static void conv_add_edges(const struct conv *conv, int rows, const float *received, float *dx) {
    const int line = conv->width * conv->channels_in, image = conv->lines * line;
    for (int side = 0; side < 2; side++) { /* a band of one line has both */
        const int last = side * (image - line);
        const float *from = received + (size_t)side * rows * line;
        SL_ELEMENTWISE(is_device_ptr(from, dx))
        for (int i = 0; i < rows * line; i++) dx[(size_t)(i / line) * image + last + i % line] += from[i];
    }
}

static int conv_forward(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                        struct sl_result *y) {
    const struct conv *conv = (const struct conv *)module;
    float *received = sl_at(context, &conv->received), *sent = sl_at(context, &conv->sent);
    float *patches = sl_at(context, &conv->patches);
    conv_edges(conv, context->rows, x.floats, sent);
    SL_TRY(conv_exchange(conv, context, conv_edge(conv, context->rows), sent, received));
    conv_gather(conv, context->rows, x.floats, received, patches);
    SL_TRY(sl_gemm_execute(&conv->forward,
                           sl_gemm_floats(&conv->forward, 1, patches, sl_value(module, context, KERNEL),
                                          conv_sums(conv) ? NULL : sl_value(module, context, BIAS), false, y->floats),
                           context->queue));
    if (!conv_sums(conv)) return SL_OK;
    const size_t points = conv_points(conv, context->rows), out = (size_t)conv->channels_out;
    SL_TRY(sl_sum_over(context, conv->peers, points * out, y->floats));
    context->kernels->sequence->add_bias(points, out, sl_value(module, context, BIAS), sl_out_f32(y->floats), out);
    return SL_OK;
}

static int conv_backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                               struct sl_given dy, struct sl_result *dx) {
    const struct conv *conv = (const struct conv *)module;
    const size_t edge = conv_edge(conv, context->rows);
    float *patches = sl_at(context, &conv->patches), *sent = sl_at(context, &conv->sent), *received = sent + 2 * edge;
    (void)x;
    if (!dx) return SL_OK; /* for all coordinates that share the images */
    SL_TRY(sl_gemm_execute(
        &conv->input,
        sl_gemm_floats(&conv->input, 1, dy.floats, sl_value(module, context, KERNEL), NULL, false, patches),
        context->queue));
    conv_scatter(conv, context->rows, patches, dx->floats, sent);
    SL_TRY(conv_exchange(conv, context, edge, sent, received));
    conv_add_edges(conv, context->rows, received, dx->floats);
    return conv->by == OUTPUTS
               ? sl_sum_over(context, conv->peers, (size_t)context->rows * (size_t)module->in, dx->floats)
               : SL_OK;
}

static void conv_add(size_t n, const float *partial, bool accumulate, float *gradient) {
    SL_ELEMENTWISE(is_device_ptr(partial, gradient))
    for (size_t i = 0; i < n; i++) gradient[i] = (accumulate ? gradient[i] : 0) + partial[i];
}

/* Each coordinate computes the summands of its band. */
static int conv_backward_weight(const struct sl_module *module, struct sl_context *context, struct sl_given saved,
                                struct sl_given given) {
    const float *x = saved.floats, *dy = given.floats;
    const struct conv *conv = (const struct conv *)module;
    const size_t kernel = conv_kernel(conv), out = (size_t)conv->channels_out, rows = (size_t)context->rows;
    const size_t points = conv_points(conv, context->rows);
    const float *received = sl_at(context, &conv->received);
    float *patches = sl_at(context, &conv->patches), *partial = sl_at(context, &conv->partial);
    for (size_t i = 0; i < (size_t)context->wgrad_group; i++) {
        conv_gather(conv, context->rows, x + i * rows * (size_t)module->in,
                    received + i * 2 * conv_edge(conv, context->rows), patches);
        SL_TRY(sl_gemm_execute(&conv->weight,
                               sl_gemm_floats(&conv->weight, 1, patches, dy + i * points * out, NULL, i > 0, partial),
                               context->queue));
    }
    context->kernels->column_sums(points * (size_t)context->wgrad_group, out, dy, false, partial + kernel);
    SL_TRY(sl_sum_over(context, conv->group, kernel + out, partial));
    conv_add(kernel, partial, context->accumulate, sl_gradient(module, context, KERNEL));
    conv_add(out, partial + kernel, context->accumulate, sl_gradient(module, context, BIAS));
    return SL_OK;
}

static const struct sl_module_type conv_type = {.name = "conv3x3",
                                                .plan = conv_plan,
                                                .forward = conv_forward,
                                                .backward_input = conv_backward_input,
                                                .backward_weight = conv_backward_weight,
                                                .bytes = sizeof(struct conv),
                                                .release = conv_release};

/* y [lines, width, OUT] of x [lines, width, IN] of this coordinate's LINES. BY selects the channels that are sharded
 * along CHANNELS_AXIS of MESH; IN and OUT count all channels, and are divisible by the axis. */
static inline struct sl_module *conv3x3(const char *name, int lines, int width, int in, int out, enum conv_by by,
                                        const struct sl_mesh *mesh) {
    const int peers = by == UNDIVIDED ? 1 : sl_mesh_axis_size(mesh, CHANNELS_AXIS);
    const int own_in = by == INPUTS ? in / peers : in, own_out = by == OUTPUTS ? out / peers : out;
    struct sl_module *module = sl_module_new(&conv_type, name, lines * width * own_in, lines * width * own_out);
    if (!module) return NULL;
    struct conv *conv = (struct conv *)module;
    conv->lines = lines;
    conv->width = width;
    conv->channels_in = own_in;
    conv->channels_out = own_out;
    conv->whole_in = in;
    conv->whole_out = out;
    conv->by = by;
    return module;
}

/* ---- all channels ---- */

struct gather_channels {
    struct sl_module module;
    int points, channels; /* of this coordinate */
    int peers;
};

static int gather_channels_plan(struct sl_module *module, struct sl_plan *plan) {
    module->x.lasts = SL_UNTIL_RETURN;
    return sl_plan_group(plan, CHANNELS_AXIS, &((struct gather_channels *)module)->peers);
}

static int gather_channels_forward(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                                   struct sl_result *y) {
    const struct gather_channels *gather = (const struct gather_channels *)module;
    const size_t shape[] = {(size_t)context->rows * (size_t)gather->points, (size_t)gather->channels};
    return sl_communicate(context, sl_describe_all_gather_dim(sl_group_of(context, gather->peers), SL_F32, x.floats,
                                                              y->floats, 2, shape, 1));
}

/* All coordinates have computed the same dy, so none sums. */
static int gather_channels_backward_input(const struct sl_module *module, struct sl_context *context,
                                          struct sl_given saved, struct sl_given given, struct sl_result *result) {
    const float *dy = given.floats;
    float *dx = sl_result_floats(result);
    const struct gather_channels *gather = (const struct gather_channels *)module;
    const size_t points = (size_t)context->rows * (size_t)gather->points, channels = (size_t)gather->channels;
    const size_t whole = channels * (size_t)(module->out / module->in);
    (void)saved;
    if (dx)
        context->kernels->sequence->copy_block(
            points, channels, dy + channels * (size_t)sl_axis_index(context->self, CHANNELS_AXIS), whole, dx, channels);
    return SL_OK;
}

static const struct sl_module_type gather_channels_type = {.name = "gather_channels",
                                                           .plan = gather_channels_plan,
                                                           .forward = gather_channels_forward,
                                                           .backward_input = gather_channels_backward_input,
                                                           .fuses = true,
                                                           .bytes = sizeof(struct gather_channels)};

/* y [points, CHANNELS] of x, this coordinate's share of the channels along CHANNELS_AXIS of MESH. The axis has several
 * coordinates, and divides CHANNELS. */
static inline struct sl_module *gather_channels(int points, int channels, const struct sl_mesh *mesh) {
    const int own = channels / sl_mesh_axis_size(mesh, CHANNELS_AXIS);
    struct sl_module *module = sl_module_new(&gather_channels_type, NULL, points * own, points * channels);
    if (!module) return NULL;
    ((struct gather_channels *)module)->points = points;
    ((struct gather_channels *)module)->channels = own;
    return module;
}

/* ---- the largest of 2x2 points, or zero ---- */

struct pool {
    struct sl_module module;
    int width, channels; /* of x */
};

static int pool_forward(const struct sl_module *module, struct sl_context *context, struct sl_given given,
                        struct sl_result *result) {
    const float *x = given.floats;
    float *y = result->floats;
    const int channels = ((const struct pool *)module)->channels, width = ((const struct pool *)module)->width;
    const int line = width * channels, half = line / 2, lines = context->rows * (module->out / half);
    SL_ROWS(is_device_ptr(x, y))
    for (int i = 0; i < lines * (width / 2); i++) {
        const int l = i / (width / 2), w = i % (width / 2);
        SL_LANES()
        for (int c = 0; c < channels; c++) {
            const float *from = x + (size_t)l * 2 * line + 2 * w * channels + c;
            const float above = from[0] > from[channels] ? from[0] : from[channels];
            const float below = from[line] > from[line + channels] ? from[line] : from[line + channels];
            const float most = above > below ? above : below;
            y[(size_t)l * half + w * channels + c] = most > 0 ? most : 0;
        }
    }
    return SL_OK;
}

/* If several points are the largest, the first gets the gradient. */
static int pool_backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given saved,
                               struct sl_given given, struct sl_result *result) {
    const float *x = saved.floats, *dy = given.floats;
    float *dx = sl_result_floats(result);
    const int channels = ((const struct pool *)module)->channels, width = ((const struct pool *)module)->width;
    const int line = width * channels, half = line / 2, lines = dx ? context->rows * (module->out / half) : 0;
    SL_ROWS(is_device_ptr(x, dy, dx))
    for (int i = 0; i < lines * (width / 2); i++) {
        const int l = i / (width / 2), w = i % (width / 2);
        SL_LANES()
        for (int c = 0; c < channels; c++) {
            const size_t at = (size_t)l * 2 * line + 2 * w * channels + c;
            const float a = x[at], b = x[at + channels], d = x[at + line], e = x[at + line + channels];
            const float above = a > b ? a : b, below = d > e ? d : e, most = above > below ? above : below;
            const float given = most > 0 ? dy[(size_t)l * half + w * channels + c] : 0;
            const bool in_a = a == most, in_b = !in_a && b == most, in_d = !in_a && !in_b && d == most;
            dx[at] = in_a ? given : 0;
            dx[at + channels] = in_b ? given : 0;
            dx[at + line] = in_d ? given : 0;
            dx[at + line + channels] = in_a || in_b || in_d ? 0 : given;
        }
    }
    return SL_OK;
}

static const struct sl_module_type pool_type = {.name = "pool2x2",
                                                .forward = pool_forward,
                                                .backward_input = pool_backward_input,
                                                .fuses = true,
                                                .bytes = sizeof(struct pool)};

/* y [lines / 2, width / 2, channels] of x [lines, width, channels]; LINES and WIDTH are even. */
static inline struct sl_module *pool2x2(int lines, int width, int channels) {
    const int in = lines * width * channels;
    struct sl_module *module = sl_module_new(&pool_type, NULL, in, in / 4);
    if (!module) return NULL;
    ((struct pool *)module)->width = width;
    ((struct pool *)module)->channels = channels;
    return module;
}

#endif
