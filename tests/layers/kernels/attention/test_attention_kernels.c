/* test_attention_kernels.c - attention against a naive oracle in double, at every level of this CPU. A second build
 * tests the GPUs' kernels on the CPU (attention_of_gpus.c); the build defines KERNELS. */
#include "tests/layers/kernels/attention/attention_cases.h"

#include "layers/kernels/attention/attention_warps_internal.h"

/* ---- the oracle ---- */

/* Sums in double, of values and of magnitudes: the error of floats is some 2^-24 of the magnitudes, times the effect of
 * the scores' errors. */
struct sums {
    double *sum, *magnitude;
};

static struct sums sums_of(size_t count) {
    return (struct sums){array_of(count, sizeof(double)), array_of(count, sizeof(double))};
}

static void add(struct sums sums, size_t at, double factor, double magnitude, double x) {
    sums.sum[at] += factor * x;
    sums.magnitude[at] += magnitude * fabs(x);
}

struct oracle {
    struct sums o, logsum, dq, dq_rope, dkv, drope;
    double error; /* relative to magnitudes */
};

/* One head's view of query T and key J (rows of all sequences). */
struct at {
    size_t head, q, q_rope, k, v, rope;
};

static struct at place(const struct sl_attention *s, size_t head, size_t t, size_t j) {
    const size_t k = j * s->key_stride + sl_attention_key_head(s, head) * s->width;
    return (struct at){.head = head,
                       .q = (t * s->heads + head) * s->width,
                       .q_rope = (t * s->heads + head) * s->rope,
                       .k = k,
                       .v = k + half_of(s),
                       .rope = j * s->rope};
}

static double score(const struct example *e, struct at at, double *magnitude) {
    const struct sl_attention *s = &e->shape;
    const double scale = 1.0 / sqrt((double)(s->width + s->rope));
    struct sums sums = {(double[]){0.0}, (double[]){0.0}};
    for (size_t c = 0; c < s->width; c++) add(sums, 0, e->q[at.q + c], fabs(e->q[at.q + c]), e->kv[at.k + c]);
    for (size_t c = 0; c < s->rope; c++)
        add(sums, 0, e->q_rope[at.q_rope + c], fabs(e->q_rope[at.q_rope + c]), e->rope[at.rope + c]);
    if (*magnitude < scale * *sums.magnitude) *magnitude = scale * *sums.magnitude;
    return scale * *sums.sum;
}

/* Adds the contribution of query T, which sees SEEN keys from row FIRST on, through head HEAD. */
static void attend(const struct example *e, size_t head, size_t t, size_t first, size_t seen, struct oracle *oracle) {
    const struct sl_attention *s = &e->shape;
    const double scale = 1.0 / sqrt((double)(s->width + s->rope));
    double *p = array_of(seen, sizeof *p), *dp = array_of(seen, sizeof *dp), *size = array_of(seen, sizeof *size);
    double largest = -INFINITY, sum = 0.0, delta = 0.0, delta_size = 0.0, magnitude = 0.0;
    for (size_t j = 0; j < seen; j++) {
        p[j] = score(e, place(s, head, t, first + j), &magnitude);
        largest = fmax(largest, p[j]);
    }
    for (size_t j = 0; j < seen; j++) sum += exp(p[j] - largest);
    for (size_t j = 0; j < seen; j++) {
        const struct at at = place(s, head, t, first + j);
        p[j] = exp(p[j] - largest) / sum;
        for (size_t c = 0; c < s->width; c++) {
            const double v = e->kv[at.v + c], dy = e->d_o[at.q + c];
            add(oracle->o, at.q + c, p[j], p[j], v);
            add(oracle->dkv, at.v + c, p[j], p[j], dy);
            dp[j] += dy * v;
            size[j] += fabs(dy * v);
        }
        delta += p[j] * dp[j];
        delta_size += p[j] * size[j];
    }
    for (size_t j = 0; j < seen; j++) {
        const struct at at = place(s, head, t, first + j);
        const double ds = p[j] * (dp[j] - delta) * scale, ds_size = p[j] * (size[j] + delta_size) * scale;
        for (size_t c = 0; c < s->width; c++) {
            add(oracle->dq, at.q + c, ds, ds_size, e->kv[at.k + c]);
            add(oracle->dkv, at.k + c, ds, ds_size, e->q[at.q + c]);
        }
        for (size_t c = 0; c < s->rope; c++) {
            add(oracle->dq_rope, at.q_rope + c, ds, ds_size, e->rope[at.rope + c]);
            add(oracle->drope, at.rope + c, ds, ds_size, e->q_rope[at.q_rope + c]);
        }
    }
    oracle->logsum.sum[head * e->rows + t] = largest + log(sum);
    oracle->logsum.magnitude[head * e->rows + t] = 1.0;
    oracle->error = fmax(oracle->error, (12.0 + 2.0 * magnitude) * 0x1p-23);
    free(p);
    free(dp);
    free(size);
}

static struct oracle make_oracle(const struct example *e) {
    const struct sl_attention *s = &e->shape;
    const size_t wide = e->rows * s->heads * s->width, roped = e->rows * s->heads * s->rope;
    struct oracle oracle = {.o = sums_of(wide),
                            .logsum = sums_of(e->rows * s->heads),
                            .dq = sums_of(wide),
                            .dq_rope = sums_of(roped),
                            .dkv = sums_of(e->key_rows * s->key_stride),
                            .drope = sums_of(e->key_rows * s->rope)};
    for (size_t head = 0; head < s->heads; head++) {
        for (size_t t = 0; t < e->rows; t++) {
            const size_t end = s->position + t % s->queries + 1, most = s->window ? s->window : end;
            const size_t before = e->places ? (size_t)e->places[t] + 1 : end, seen = before < most ? before : most;
            attend(e, head, t, t / s->queries * s->key_rows + end - seen, seen, &oracle);
        }
    }
    return oracle;
}

static void release_oracle(struct oracle *oracle) {
    const struct sums all[] = {oracle->o, oracle->logsum, oracle->dq, oracle->dq_rope, oracle->dkv, oracle->drope};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i].sum);
        free(all[i].magnitude);
    }
}

static void expect(const char *level, const struct example *e, const char *what, const float *got, struct sums want,
                   size_t count, double error) {
    char name[240];
    snprintf(name, sizeof name, "%s, %s, %s", level, e->name, what);
    for (size_t i = 0; i < count; i++)
        expect_close(name, i, got[i], want.sum[i], 0.0, error * want.magnitude[i] + 1e-36);
}

/* Columns that belong to neither k nor v, and columns that heads of other calls read. */
static void expect_untouched(struct example *e, struct oracle *oracle) {
    const struct sl_attention *s = &e->shape;
    const size_t stride = s->key_stride, others = sl_attention_key_head(s, 0) * s->width;
    for (size_t key = 0; key < e->key_rows; key++) {
        double *row = oracle->dkv.sum + key * stride;
        for (size_t c = 2 * half_of(s); c < stride; c++) row[c] = UNTOUCHED;
        for (size_t c = 0; c < others; c++) row[c] = row[half_of(s) + c] = UNTOUCHED;
    }
}

/* Moves X [COUNT] to a new array, behind BY other elements, and releases X. */
static void *behind(size_t by, void *x, size_t count, size_t size) {
    char *room = device_array(by + count, size);
    memcpy(room + by * size, x, count * size);
    release_array(x);
    return room;
}

/* Elements before arrays that need not be aligned for reads of several elements: 1 for heads with rotary positions. */
static size_t before(const struct sl_attention *shape) { return shape->rope > 0; }

/* Backward with all inputs as bf16 gives the same bits of dq, dk and dv as E's. */
static void check_bf16_inputs(const struct sl_kernels *kernels, struct example *e) {
    struct sl_attention shape = e->shape;
    const size_t half = half_of(&shape), wide = e->rows * shape.heads * shape.width, by = before(&shape);
    const size_t roped = e->rows * shape.heads * shape.rope, shared = e->key_rows * shape.rope;
    uint16_t *q = behind(by, settle(e->q, wide), wide, sizeof *q);
    uint16_t *q_rope = behind(by, settle(e->q_rope, roped), roped, sizeof *q_rope);
    uint16_t *kv = settle(e->kv, e->key_rows * shape.key_stride);
    uint16_t *rope = behind(by, settle(e->rope, shared), shared, sizeof *rope);
    float *dq = device_copy(e->dq, wide * sizeof *dq);
    float *dkv = device_copy(e->dkv, e->key_rows * shape.key_stride * sizeof *dkv);
    shape.stored = SL_BF16;
    kernels->attention->backward(&shape, q + by, q_rope + by, kv, kv + half, rope + by, e->o, e->logsum, e->d_o,
                                 sl_out_f32(dq), e->dq_rope, sl_out_f32(dkv), sl_out_f32(dkv + half), e->drope,
                                 e->scratch);
    assert_memory_equal(dq, e->dq, wide * sizeof *dq);
    assert_memory_equal(dkv, e->dkv, e->key_rows * shape.key_stride * sizeof *dkv);
    void *const arrays[] = {q, q_rope, kv, rope, dq, dkv};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) release_array(arrays[i]);
}

/* Forward with E's operands as bf16 (as floats for few queries) gives E's bits: as bf16 beside unrounded floats, and as
 * bf16 only; at addresses aligned for floats, and at others. */
static void check_bf16_result(const struct sl_kernels *kernels, struct example *e) {
    struct sl_attention shape = e->shape;
    const size_t wide = e->rows * shape.heads * shape.width, half = half_of(&shape), by = before(&shape);
    const size_t roped = e->rows * shape.heads * shape.rope;
    const bool alone = kernels->attention->stores_alone(&shape), bf16 = shape.keys == SL_BF16;
    const void *k = bf16 ? (void *)e->stored_kv : e->kv, *v = bf16 ? (void *)(e->stored_kv + half) : e->kv + half;
    const void *k_rope = bf16 ? (void *)e->stored_rope : e->rope;
    uint16_t *q = behind(by, settle(e->q, wide), wide, sizeof *q);
    uint16_t *q_rope = behind(by, settle(e->q_rope, roped), roped, sizeof *q_rope);
    float *o = device_floats(wide), *logsum = device_floats(e->rows * shape.heads);
    uint16_t *want = device_array(wide, sizeof *want), *room = device_array(wide + 1, sizeof *room);
    for (size_t i = 0; i < wide; i++) want[i] = sl_bf16_of_float(e->o[i]);
    for (int n = 0; n < (alone ? 4 : 1); n++) { /* at last bf16 alone */
        uint16_t *stored = room + n % 2;
        memset(stored, 0, wide * sizeof *stored);
        memset(o, 0, wide * sizeof *o);
        shape.stored_q = n ? SL_BF16 : SL_F32;
        kernels->attention->forward(&shape, n ? (void *)(q + by) : e->q, n ? (void *)(q_rope + by) : e->q_rope, k, v,
                                    k_rope, sl_out_of(n < 2 ? o : NULL, false, stored), logsum);
        if (n < 2) assert_memory_equal(o, e->o, wide * sizeof *o);
        assert_memory_equal(stored, want, wide * sizeof *stored);
        assert_memory_equal(logsum, e->logsum, e->rows * shape.heads * sizeof *logsum);
    }
    void *const arrays[] = {q, q_rope, o, logsum, want, room};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) release_array(arrays[i]);
}

/* Backward with results as bf16 gives E's results, rounded. INPUTS: all inputs are bf16, results' addresses are not
 * aligned for floats, and no floats are written; else O or D_O is bf16, and floats are written too. */
static void check_bf16_gradients(const struct sl_kernels *kernels, struct example *e, bool inputs) {
    struct sl_attention shape = e->shape;
    const size_t half = half_of(&shape), wide = e->rows * shape.heads * shape.width;
    const size_t keys = e->key_rows * shape.key_stride, roped = e->rows * shape.heads * shape.rope;
    const size_t shared = e->key_rows * shape.rope, by = before(&shape), bytes = sizeof(float);
    uint16_t *o = settle(e->o, wide), *d_o = behind(by, settle(e->d_o, wide), wide, sizeof *d_o),
             *q = settle(e->q, wide);
    uint16_t *q_rope = settle(e->q_rope, roped), *kv = settle(e->kv, keys), *rope = settle(e->rope, shared);
    float *own_q = behind(by, device_copy(e->q, wide * bytes), wide, bytes);
    float *own_d_o = behind(by, device_copy(e->d_o, wide * bytes), wide, bytes);
    uint16_t *rooms[] = {device_array(wide + 1, sizeof *q), device_array(keys + 1, sizeof *q)};
    uint16_t *dq = rooms[0] + inputs, *dkv = rooms[1] + inputs;
    const bool of_o = inputs || shape.queries % 2, of_d_o = inputs || shape.queries % 2 == 0;
    float *dq_rope = device_floats(roped), *drope = device_floats(shared);
    const void *from[] = {inputs ? (void *)q : own_q + by, inputs ? (void *)q_rope : e->q_rope,
                          inputs ? (void *)kv : e->kv, inputs ? (void *)(kv + half) : e->kv + half,
                          inputs ? (void *)rope : e->rope};
    run_backward(kernels, e);
    float *own_dq = device_copy(e->dq, wide * bytes), *own_dkv = device_copy(e->dkv, keys * bytes);
    for (size_t i = 0; i < keys; i++) dkv[i] = sl_bf16_of_float(UNTOUCHED);
    shape.stored = inputs ? SL_BF16 : SL_F32;
    shape.stored_o = of_o ? SL_BF16 : SL_F32;
    shape.stored_d_o = of_d_o ? SL_BF16 : SL_F32;
    const struct sl_out to = sl_out_of(inputs ? NULL : own_dkv, false, dkv);
    kernels->attention->backward(&shape, from[0], from[1], from[2], from[3], from[4], of_o ? (void *)o : e->o,
                                 e->logsum, of_d_o ? (void *)(d_o + by) : own_d_o + by,
                                 sl_out_of(inputs ? NULL : own_dq, false, dq), dq_rope, to, sl_out_from(to, half),
                                 drope, e->scratch);
    assert_memory_equal(own_dq, e->dq, wide * bytes);
    assert_memory_equal(own_dkv, e->dkv, keys * bytes);
    for (size_t i = 0; i < wide; i++) assert_int_equal(dq[i], sl_bf16_of_float(e->dq[i]));
    for (size_t i = 0; i < keys; i++) assert_int_equal(dkv[i], sl_bf16_of_float(e->dkv[i]));
    assert_memory_equal(dq_rope, e->dq_rope, roped * sizeof *dq_rope);
    assert_memory_equal(drope, e->drope, shared * sizeof *drope);
    void *const arrays[] = {o,       d_o,      q,        q_rope,  kv,    rope,   own_q,
                            own_d_o, rooms[0], rooms[1], dq_rope, drope, own_dq, own_dkv};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) release_array(arrays[i]);
}

/* Rounded results are E's, rounded; STORES: with a bf16 copy, in forward, and in backward, which then reads it as o. */
static void check_rounded(const struct sl_kernels *kernels, struct example *e, bool stores) {
    const size_t wide = e->rows * e->shape.heads * e->shape.width, keys = e->key_rows * e->shape.key_stride;
    const size_t counts[] = {wide, wide, keys};
    run_forward(kernels, e);
    float *want[] = {device_copy(e->o, wide * sizeof(float)), e->dq, e->dkv};
    uint16_t *o = settle(e->o, wide);
    for (size_t i = 0; i < keys; i++) e->dkv[i] = UNTOUCHED;
    run_backward(kernels, e);
    float *got[] = {device_floats(wide), device_floats(wide),
                    random_device_floats(&(struct numbers){1}, keys, UNTOUCHED, UNTOUCHED)};
    uint16_t *stored[] = {device_array(wide, sizeof *o), device_array(wide, sizeof *o), device_array(keys, sizeof *o)};
    struct example own = *e;
    struct sl_out to[3];
    for (int i = 0; i < 3; i++) to[i] = sl_out_of(got[i], true, stores ? stored[i] : NULL);
    own.shape.stored_o = stores ? SL_BF16 : SL_F32;
    run_forward_to(kernels, &own, to[0]);
    own.o = stores ? (float *)(void *)o : e->o;
    run_backward_to(kernels, &own, to[1], to[2]);
    for (size_t a = 0; a < 3; a++) {
        for (size_t i = 0; i < counts[a]; i++) {
            if (want[a][i] == UNTOUCHED) continue;
            assert_true(got[a][i] == sl_float_of_bf16(sl_bf16_of_float(want[a][i])));
            if (stores) assert_int_equal(stored[a][i], sl_bf16_of_float(want[a][i]));
        }
        release_array(got[a]);
        release_array(stored[a]);
    }
    release_array(want[0]);
    release_array(o);
}

/* Returns whether attention of SHAPE runs on tensor cores. Their error is twice half of a bf16's last bit. */
static bool rounds(const struct sl_kernels *kernels, const struct sl_attention *shape) {
    struct sl_attention many = *shape; /* for few queries they do not store bf16 only */
    many.queries = SL_ATTENTION_FEW + 1;
    return kernels->attention->stores_alone(&many);
}

/* LONGEST: tokens of the documents; 0: a sequence is one. */
static void check_documents(struct numbers *numbers, struct sl_attention shape, float size, size_t longest) {
    struct example e = make(numbers, shape, size);
    const struct sl_attention *s = &e.shape;
    if (longest) e.shape.places = e.places = make_places(numbers, s, longest);
    const size_t wide = e.rows * s->heads * s->width, roped = e.rows * s->heads * s->rope;
    struct oracle oracle = make_oracle(&e);
    const double exact = oracle.error;
    expect_untouched(&e, &oracle);
    FOR_EACH_LEVEL(kernels) {
        const char *name = kernels->name;
        oracle.error = exact + (rounds(kernels, s) ? 0x1p-8 : 0.0);
        run_forward(kernels, &e);
        expect(name, &e, "o", e.o, oracle.o, wide, oracle.error);
        expect(name, &e, "logsum", e.logsum, oracle.logsum, e.rows * s->heads, exact);
        if (rounds(kernels, s)) check_bf16_result(kernels, &e);
        if (s->position || s->key_rows != s->queries || s->keys != SL_F32) continue;
        run_backward(kernels, &e);
        expect(name, &e, "dq", e.dq, oracle.dq, wide, oracle.error);
        expect(name, &e, "dq_rope", e.dq_rope, oracle.dq_rope, roped, oracle.error);
        expect(name, &e, "dk, dv", e.dkv, oracle.dkv, e.key_rows * s->key_stride, oracle.error);
        expect(name, &e, "dk_rope", e.drope, oracle.drope, e.key_rows * s->rope, oracle.error);
        if (!rounds(kernels, s)) continue;
        check_bf16_inputs(kernels, &e);
        for (int inputs = 0; inputs < 2 && kernels->attention->stores_alone(s); inputs++)
            check_bf16_gradients(kernels, &e, inputs);
    }
    release_oracle(&oracle);
    release(&e);
}

static void check(struct numbers *numbers, struct sl_attention shape, float size) {
    check_documents(numbers, shape, size, 0);
}

/* ---- tests ---- */

static struct sl_attention training(size_t sequences, size_t queries, size_t heads, size_t width, size_t rope) {
    return (struct sl_attention){
        .sequences = sequences, .queries = queries, .key_rows = queries, .heads = heads, .width = width, .rope = rope};
}

/* The argument "few": run a third of most sizes; another preset runs all of them in less time. */
static size_t step = 1;
/* The last argument "emulated": no GPU. Kernels for many blocks need only four blocks of queries here, not as many as
 * keep a GPU busy; or there are none. */
static bool emulated;

static void equals_the_oracle(void **state) {
    (void)state;
    struct numbers numbers = {1};
    const size_t queries[] = {1, 2, 5, 16, 31, 32, 33, 63, 64, 65, 97, 131};
    const size_t widths[] = {1, 3, 8, 16, 20, 32, 37, 64}, ropes[] = {0, 1, 8, 16, 22, 32};
    for (size_t i = 0; i < sizeof queries / sizeof *queries; i += step) {
        for (int n = 0; n < 5; n++) {
            const size_t width = widths[next_word(&numbers) % 8], rope = ropes[next_word(&numbers) % 6];
            check(&numbers, training(1 + next_word(&numbers) % 2, queries[i], 1 + next_word(&numbers) % 3, width, rope),
                  1.0f);
        }
    }
    check(&numbers, training(8, 16, 8, 8, 8), 1.0f);
    check(&numbers, training(1, 20, 17, 4, 2), 1.0f);
    check(&numbers, training(1, 257, 1, 32, 16), 1.0f);
    check(&numbers, training(2, 170, 30, 4, 2), 1.0f); /* on GPUs a head's teams have several blocks of keys each */
}

/* Heads of both sizes with kernels for GPUs, smaller heads, and heads of none; whole blocks and ragged ones, which end
 * in each quarter of 64 rows. With "few" each head meets two or three sizes: the ones with a ragged last block, and one
 * of each kind of blocks, in whole rows and in others. */
static void products_of_bf16_equal_the_oracle(void **state) {
    (void)state;
    struct numbers numbers = {14};
    const size_t queries[] = {137, 16, 5, 64, 110, 91, 184},
                 widths[][2] = {{64, 0}, {16, 16}, {64, 16}, {128, 0}, {20, 0}},
                 few[][3] = {{137, 91, 5}, {91, 110}, {91, 110}, {91, 64, 110}, {184, 16}};
    for (size_t i = 0; i < 7; i++) {
        for (size_t w = 0; w < 5; w++) {
            const size_t n = 5 * i + w;
            if (step > 1 && queries[i] != few[w][0] && queries[i] != few[w][1] && queries[i] != few[w][2]) continue;
            struct sl_attention shape = training(1 + n % 2, queries[i], 1 + n % 3, widths[w][0], widths[w][1]);
            shape.products = SL_BF16;
            if (!shape.rope && n / 2 % 2) shape.group = 2, shape.lead = n % 2 ? n % 3 : 3;
            check_documents(&numbers, shape, n % 4 ? 1.0f : 8.0f, w % 2 ? 50 : 0);
            shape.window = w == 3 ? 20 : n % 3 ? 0 : 40;
            check(&numbers, shape, 1.0f);
            shape.position = 20 * w, shape.key_rows = shape.position + queries[i] + w;
            shape.keys = n / 4 % 2 ? SL_BF16 : SL_F32;
            check(&numbers, shape, 1.0f);
        }
    }
}

/* With many blocks, GPUs' warps have two tiles of queries each. */
static void products_of_many_queries_equal_the_oracle(void **state) {
    (void)state;
    struct numbers numbers = {15};
    const size_t queries[] = {200, 131, 256, 129};
    for (size_t i = 0; i < 4; i += step) {
        struct sl_attention shape = training(1, queries[i], 2 + i % 2, 64, 0);
        shape.products = SL_BF16;
        check_documents(&numbers, shape, i ? 1.0f : 4.0f, 0);
        check_documents(&numbers, shape, 1.0f, 50);
        shape.window = i == 3 ? 30 : 70, shape.group = 2, shape.lead = i % 2 * 3;
        check(&numbers, shape, 1.0f);
        shape.position = 40 + i;
        shape.key_rows = shape.position + queries[i] + i;
        shape.keys = i % 2 ? SL_BF16 : SL_F32;
        check(&numbers, shape, 1.0f);
    }
}

/* More columns than stay transposed. */
static void wide_heads_equal_the_oracle(void **state) {
    (void)state;
    struct numbers numbers = {2};
    check(&numbers, training(1, 70, 2, 300, 33), 0.5f);
    check(&numbers, training(1, 70, 1, 20, 260), 0.5f);
    check(&numbers, training(1, 3, 2, 513, 64), 0.5f);
}

static void queries_after_others_see_their_keys(void **state) {
    (void)state;
    struct numbers numbers = {3};
    const size_t queries[] = {1, 2, 4, 5, 17, 40}, positions[] = {0, 1, 30, 63, 64, 100};
    for (size_t i = 0; i < 6; i += step) {
        for (size_t p = 0; p < 6; p++) {
            struct sl_attention shape = training(1 + p % 3, queries[i], 1 + i % 3, 8 + 4 * i, p % 2 ? 6 * i : 0);
            shape.position = positions[p];
            shape.key_rows = positions[p] + queries[i] + next_word(&numbers) % 40;
            check(&numbers, shape, 1.0f);
        }
    }
    for (int n = 0; n < 3; n++) { /* columns that do not fill a vector, or are fewer than a loop takes at once */
        struct sl_attention odd = training(2, 3, 2, n ? 3 : 37, n ? 2 : 5);
        odd.position = 70, odd.key_rows = 75, odd.keys = n == 2 ? SL_BF16 : SL_F32;
        check(&numbers, odd, 1.0f);
    }
}

/* One query, few, and blocks; columns that do not fill a vector, and more than are widened at once. */
static void keys_of_bf16_equal_the_oracle(void **state) {
    (void)state;
    struct numbers numbers = {6};
    const size_t queries[] = {1, 3, 5, 17, 70}, positions[] = {0, 30, 64, 133};
    const size_t widths[][2] = {{8, 0}, {37, 6}, {64, 16}, {5, 130}, {300, 33}};
    for (size_t i = 0; i < 5; i += step) {
        for (size_t p = 0; p < 4; p++) {
            const size_t *columns = widths[(i + p) % 5];
            struct sl_attention shape = training(1 + p % 2, queries[i], 1 + (i + p) % 3, columns[0], columns[1]);
            shape.position = positions[p];
            shape.key_rows = positions[p] + queries[i] + p;
            shape.keys = SL_BF16;
            check(&numbers, shape, columns[0] > 100 ? 0.5f : 1.0f);
        }
    }
}

/* One block of queries (one team has its gradients on GPUs) and several; columns that do not fill a vector. */
static void results_are_left_rounded(void **state) {
    (void)state;
    struct numbers numbers = {17};
    const size_t shapes[][4] = {{31, 2, 37, 5}, {20, 4, 20, 0}, {70, 1, 18, 6}};
    for (size_t i = 0; i < 3; i++) {
        struct sl_attention shape = training(2, shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3]);
        shape.group = i == 1 ? 2 : 0;
        struct example e = make(&numbers, shape, 1.0f);
        FOR_EACH_LEVEL(kernels) {
            for (int stores = 0; stores < 2; stores++) check_rounded(kernels, &e, stores);
        }
        release(&e);
    }
}

/* Whole groups, and groups with first or last heads on other coordinates. */
static void groups_of_heads_share_keys(void **state) {
    (void)state;
    struct numbers numbers = {9};
    const size_t queries[] = {1, 3, 5, 70}, heads[][3] = {{6, 3, 0}, {5, 3, 2}, {4, 4, 3}, {2, 3, 7}, {20, 3, 1}};
    for (size_t i = 0; i < 4; i++) {
        for (size_t h = 0; h < 5; h++) {
            struct sl_attention shape = training(1 + h % 2, queries[i], heads[h][0], h % 2 ? 20 : 64, h == 3 ? 4 : 0);
            shape.group = heads[h][1];
            shape.lead = heads[h][2];
            check(&numbers, shape, 1.0f);
            shape.position = 30 * h;
            shape.key_rows = shape.position + queries[i] + 2;
            shape.keys = h % 2 ? SL_BF16 : SL_F32;
            check(&numbers, shape, 1.0f);
        }
    }
}

/* Short documents, many in a block; long ones, which begin in one block and end in another; and scores that are much
 * larger before a document than in it. */
static void documents_do_not_see_each_other(void **state) {
    (void)state;
    struct numbers numbers = {11};
    const size_t queries[] = {1, 3, 5, 31, 64, 65, 131, 200, 300}, longest[] = {1, 4, 40, 130};
    for (size_t i = 0; i < 9; i += step) {
        for (size_t l = 0; l < 4; l++) {
            const size_t n = 4 * i + l;
            struct sl_attention shape =
                training(1 + l % 2, queries[i], n % 3 ? 2 : 4, 8 + 12 * (n % 4), n % 3 ? 8 * (n % 2) : 0);
            if (n % 3 == 0) shape.group = 2;
            check_documents(&numbers, shape, n % 5 ? 1.0f : 8.0f, longest[l]);
        }
    }
    check_documents(&numbers, training(1, 150, 1, 300, 140), 0.5f, 60);
}

/* Windows of one key, of less than a block, of some blocks, and of all keys; of sequences, of documents, and behind
 * keys in caches, for few queries and many. */
static void windows_end_what_is_seen(void **state) {
    (void)state;
    struct numbers numbers = {12};
    const size_t queries[] = {1, 3, 5, 64, 65, 131, 200, 300}, windows[] = {1, 2, 17, 64, 100, 1000};
    for (size_t i = 0; i < 8; i += step) {
        for (size_t w = 0; w < 6; w++) {
            const size_t n = 6 * i + w;
            struct sl_attention shape =
                training(1 + w % 2, queries[i], n % 3 ? 2 : 4, 8 + 12 * (n % 4), n % 3 ? 8 * (n % 2) : 0);
            if (n % 3 == 0) shape.group = 2;
            shape.window = windows[w];
            check_documents(&numbers, shape, n % 5 ? 1.0f : 8.0f, w % 2 ? 0 : 90);
            shape.position = 20 * w + i;
            shape.key_rows = shape.position + queries[i] + w;
            shape.keys = n % 2 ? SL_BF16 : SL_F32;
            check(&numbers, shape, 1.0f);
        }
    }
}

static void check_part(const struct sl_kernels *kernels, struct example *e, const struct oracle *oracle) {
    const struct sl_attention *s = &e->shape;
    const size_t seen = s->position + s->queries, keys = seen * s->key_stride, shared = seen * s->rope;
    memset(e->dkv, 0, keys * sizeof *e->dkv);
    memset(e->drope, 0, shared * sizeof *e->drope);
    run_forward(kernels, e);
    for (int times = 0; times < 2; times++) run_backward(kernels, e);
    for (size_t i = 0; i < keys; i++) e->dkv[i] /= 2;
    for (size_t i = 0; i < shared; i++) e->drope[i] /= 2;
    expect(kernels->name, e, "dq of a part", e->dq, oracle->dq, e->rows * s->heads * s->width, oracle->error);
    expect(kernels->name, e, "dq_rope", e->dq_rope, oracle->dq_rope, e->rows * s->heads * s->rope, oracle->error);
    expect(kernels->name, e, "dk, dv of a part", e->dkv, oracle->dkv, keys, oracle->error);
    expect(kernels->name, e, "dk_rope of a part", e->drope, oracle->drope, shared, oracle->error);
}

static void a_part_of_the_queries_adds_to_all_keys(void **state) {
    (void)state;
    struct numbers numbers = {14};
    const size_t queries[] = {1, 4, 64, 65, 140}, positions[] = {0, 3, 64, 70, 133, 256};
    for (size_t n = 0; n < 30; n += step) {
        struct sl_attention shape = training(1, queries[n % 5], 4, 8 + 12 * (n % 4), n % 3 ? 8 * (n % 2) : 0);
        shape.position = positions[n % 6], shape.key_rows = shape.position + shape.queries + n % 7;
        shape.group = n % 3 ? 0 : 2, shape.window = n % 4 == 1 ? 1 + 20 * n : 0, shape.adds = true;
        struct example e = make(&numbers, shape, 1.0f);
        if (n % 2) e.shape.places = e.places = make_places(&numbers, &e.shape, 50);
        for (size_t i = 0; n % 2 && i < shape.queries && (size_t)e.places[i] == i; i++)
            e.places[i] += (int32_t)shape.position / 2;
        struct oracle oracle = make_oracle(&e);
        FOR_EACH_LEVEL(kernels)
        if (kernels->attention->takes_parts(&e.shape)) check_part(kernels, &e, &oracle);
        release_oracle(&oracle);
        release(&e);
    }
}

/* A window of all keys excludes none: the bits are the same as without a window. */
static void a_window_of_all_keys_is_none(void **state) {
    (void)state;
    struct numbers numbers = {13};
    const size_t queries[] = {3, 70, 150}, wide = 150 * 2 * 20;
    float *o = array_of(wide, sizeof *o), *dq = array_of(wide, sizeof *dq);
    for (size_t i = 0; i < 3; i++) {
        struct example e = make(&numbers, training(1, queries[i], 2, 20, 0), 1.0f);
        const size_t bytes = queries[i] * 2 * 20 * sizeof *o;
        FOR_EACH_LEVEL(kernels) {
            e.shape.window = 0;
            run_forward(kernels, &e);
            run_backward(kernels, &e);
            memcpy(o, e.o, bytes);
            memcpy(dq, e.dq, bytes);
            e.shape.window = queries[i];
            run_forward(kernels, &e);
            run_backward(kernels, &e);
            assert_memory_equal(o, e.o, bytes);
            assert_memory_equal(dq, e.dq, bytes);
        }
        release(&e);
    }
    free(o);
    free(dq);
}

/* Scores beyond +-100, for which exp overflows; and sequences of equal keys. */
static void large_scores_do_not_overflow(void **state) {
    (void)state;
    struct numbers numbers = {4};
    check(&numbers, training(2, 70, 2, 32, 16), 12.0f);
    check(&numbers, training(2, 3, 2, 32, 0), 12.0f);
    check(&numbers, training(1, 70, 2, 32, 16), 0.0f);
}

/* Queries one after another over caches give the results of all at once. */
static void one_query_at_a_time_equals_all_at_once(void **state) {
    (void)state;
    struct numbers numbers = {5};
    struct example all = make(&numbers, training(1, 90, 3, 20, 12), 1.0f), one = all;
    const size_t wide = 3 * 20, roped = 3 * 12;
    float *row = device_floats(wide), *logsum = device_floats(3);
    FOR_EACH_LEVEL(kernels) {
        run_forward(kernels, &all);
        for (size_t t = 0; t < 90; t++) {
            one.shape.queries = 1;
            one.shape.position = t;
            one.q = all.q + t * wide;
            one.q_rope = all.q_rope + t * roped;
            one.o = row;
            one.logsum = logsum;
            run_forward(kernels, &one);
            for (size_t c = 0; c < wide; c++) expect_close("o", c, row[c], all.o[t * wide + c], 0.0, 2e-6);
            for (size_t h = 0; h < 3; h++) expect_close("logsum", h, logsum[h], all.logsum[h * 90 + t], 2e-6, 2e-6);
        }
    }
    release_array(row);
    release_array(logsum);
    release(&all);
}

/* All queries see the first KEYS rows, and then their own keys of the rest: the two parts together are all keys that
 * they see. */
static void keys_in_two_parts_are_all_keys(void **state) {
    (void)state;
    struct numbers numbers = {8};
    const size_t counts[] = {1, 40, 64, 128}, queries[] = {3, 20, 90};
    for (size_t i = 0; i < 12; i++) {
        const size_t keys = counts[i % 4], rows = queries[i / 4];
        struct sl_attention shape = training(1, rows, 3, 20, i % 2 ? 12 : 0);
        shape.position = keys;
        shape.key_rows = keys + rows;
        struct example all = make(&numbers, shape, 1.0f), first = all, rest = all;
        const size_t wide = rows * 3 * 20;
        first.shape.key_rows = keys;
        rest.shape.position = 0;
        rest.shape.key_rows = rows;
        rest.kv = all.kv + keys * all.shape.key_stride;
        rest.rope = all.rope + keys * shape.rope;
        first.o = device_floats(wide), rest.o = device_floats(wide);
        first.logsum = device_floats(3 * rows), rest.logsum = device_floats(3 * rows);
        FOR_EACH_LEVEL(kernels) {
            run_forward(kernels, &all);
            run_forward(kernels, &first);
            run_forward(kernels, &rest);
            kernels->attention->merge(&shape, first.o, first.logsum, rest.o, rest.logsum);
            for (size_t c = 0; c < wide; c++) expect_close("o", c, rest.o[c], all.o[c], 0.0, 2e-6);
            for (size_t c = 0; c < 3 * rows; c++) expect_close("logsum", c, rest.logsum[c], all.logsum[c], 2e-6, 2e-6);
        }
        release_array(first.o);
        release_array(rest.o);
        release_array(first.logsum);
        release_array(rest.logsum);
        release(&all);
    }
}

/* Columns FIRST and COLS - 1 after it of rows of STRIDE. */
static void copy_columns(size_t rows, const float *from, size_t first, size_t stride, float *to, size_t to_first,
                         size_t to_stride, size_t cols) {
    for (size_t r = 0; r < rows; r++)
        memcpy(to + r * to_stride + to_first, from + r * stride + first, cols * sizeof *to);
}

static void expect_columns(size_t rows, const float *many, size_t first, size_t stride, const float *one,
                           size_t one_first, size_t one_stride, size_t cols) {
    for (size_t r = 0; r < rows; r++)
        assert_memory_equal(many + r * stride + first, one + r * one_stride + one_first, cols * sizeof *one);
}

/* Computes head HEAD of sequence SEQUENCE alone, compares the bits, and adds its dk_rope to SUM [queries, rope]. */
static void check_alone(const struct sl_kernels *kernels, struct numbers *numbers, const struct example *many,
                        size_t sequence, size_t head, float *sum) {
    const struct sl_attention *s = &many->shape;
    const size_t width = s->width, rope = s->rope, n = s->queries, stride = s->heads * width, first = head * width;
    const size_t q = sequence * n * stride, q_rope = sequence * n * s->heads * rope, k = sequence * n * s->key_stride;
    struct sl_attention alone = training(1, n, 1, width, rope);
    alone.products = s->products;
    struct example one = make(numbers, alone, 1.0f);
    const size_t pair = one.shape.key_stride;
    copy_columns(n, many->q + q, first, stride, one.q, 0, width, width);
    copy_columns(n, many->d_o + q, first, stride, one.d_o, 0, width, width);
    copy_columns(n, many->q_rope + q_rope, head * rope, s->heads * rope, one.q_rope, 0, rope, rope);
    copy_columns(n, many->kv + k, first, s->key_stride, one.kv, 0, pair, width);
    copy_columns(n, many->kv + k, stride + first, s->key_stride, one.kv, width, pair, width);
    copy_columns(n, many->rope + sequence * n * rope, 0, rope, one.rope, 0, rope, rope);
    run_forward(kernels, &one);
    run_backward(kernels, &one);
    expect_columns(n, many->o + q, first, stride, one.o, 0, width, width);
    expect_columns(1, many->logsum, head * many->rows + sequence * n, 0, one.logsum, 0, 0, n);
    expect_columns(n, many->dq + q, first, stride, one.dq, 0, width, width);
    expect_columns(n, many->dq_rope + q_rope, head * rope, s->heads * rope, one.dq_rope, 0, rope, rope);
    expect_columns(n, many->dkv + k, first, s->key_stride, one.dkv, 0, pair, width);
    expect_columns(n, many->dkv + k, stride + first, s->key_stride, one.dkv, width, pair, width);
    for (size_t i = 0; i < n * rope; i++) sum[i] = head ? sum[i] + one.drope[i] : one.drope[i];
    release(&one);
}

/* Sequence NUMBER of MANY without the others: the same bits. */
static void check_sequence_alone(const struct sl_kernels *kernels, const struct example *many, size_t number) {
    const struct sl_attention *s = &many->shape;
    const size_t n = s->queries, columns = s->heads * s->width, wide = n * columns;
    const size_t keys = s->key_rows * s->key_stride;
    struct example one = *many;
    one.shape.sequences = 1;
    one.q += number * wide, one.d_o += number * wide, one.kv += number * keys;
    if (one.stored_kv) one.stored_kv += number * keys;
    if (s->places) one.shape.places += number * n;
    one.o = device_floats(wide), one.dq = device_floats(wide), one.logsum = device_floats(n * s->heads);
    one.dkv = random_device_floats(&(struct numbers){1}, keys, UNTOUCHED, UNTOUCHED);
    one.scratch = device_floats(KERNELS(0)->attention->scratch(&one.shape) / sizeof(float)); /* by more teams */
    run_forward(kernels, &one);
    assert_memory_equal(one.o, many->o + number * wide, wide * sizeof *one.o);
    for (size_t h = 0; h < s->heads; h++)
        assert_memory_equal(one.logsum + h * n, many->logsum + h * many->rows + number * n, n * sizeof *one.logsum);
    if (s->key_rows == n && s->keys == SL_F32) {
        run_backward(kernels, &one);
        assert_memory_equal(one.dq, many->dq + number * wide, wide * sizeof *one.dq);
        assert_memory_equal(one.dkv, many->dkv + number * keys, keys * sizeof *one.dkv);
    }
    float *const arrays[] = {one.o, one.dq, one.logsum, one.dkv, one.scratch};
    for (size_t i = 0; i < 5; i++) release_array(arrays[i]);
}

/* Three sequences, each with too few blocks for the kernels for many; LONGEST is as in check_documents. */
static void check_sequences(struct numbers *numbers, struct sl_attention shape, size_t longest) {
    shape.products = SL_BF16;
    struct example many = make(numbers, shape, 2.0f);
    if (longest) many.shape.places = many.places = make_places(numbers, &many.shape, longest);
    FOR_EACH_LEVEL(kernels) {
        const bool trains = shape.key_rows == shape.queries && shape.keys == SL_F32, also = rounds(kernels, &shape);
        run_forward(kernels, &many);
        if (also) check_bf16_result(kernels, &many);
        if (trains) run_backward(kernels, &many);
        for (size_t i = 0; i < shape.sequences; i++) check_sequence_alone(kernels, &many, i);
        if (trains && also) check_bf16_inputs(kernels, &many);
        for (int inputs = 0; inputs < 2 && trains && also; inputs++) check_bf16_gradients(kernels, &many, inputs);
    }
    release(&many);
}

/* As many blocks of queries as a GPU's kernels for many need, in sizes that take little time. If emulated, each
 * sequence of the first shape has enough alone, too, and none of the others has. */
static void many_sequences_have_the_bits_of_each(void **state) {
    (void)state;
    struct numbers numbers = {16};
    struct sl_attention shape = training(3, 131, emulated ? 4 : 44, 64, 0);
    shape.group = shape.heads / 2;
    check_sequences(&numbers, shape, 50);
    shape = training(3, 40, emulated ? 3 : 88, 64, 0);
    shape.window = 30;
    check_sequences(&numbers, shape, 0);
    shape.position = 30;
    shape.key_rows = 71;
    shape.keys = SL_BF16;
    check_sequences(&numbers, shape, 0);
}

/* The last shape has products of bf16: one head alone has too few blocks for the kernels for many. */
static void a_head_alone_has_the_same_bits(void **state) {
    (void)state;
    struct numbers numbers = {6};
    const size_t shapes[][3] = {{1, 24, 8}, {3, 32, 16}, {75, 20, 6}, {64, 64, 0}, {100, 32, 16}, {200, 64, 0}};
    FOR_EACH_LEVEL(kernels) {
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            const size_t n = shapes[i][0], rope = shapes[i][2], sequences = i == 5 ? 1 : 3;
            struct sl_attention shape = training(sequences, n, 5, shapes[i][1], rope);
            if (i == 5) shape.products = SL_BF16;
            struct example many = make(&numbers, shape, 1.0f);
            float *sum = floats(n * rope);
            run_forward(kernels, &many);
            run_backward(kernels, &many);
            for (size_t sequence = 0; sequence < sequences; sequence++) {
                for (size_t head = 0; head < 5; head++) check_alone(kernels, &numbers, &many, sequence, head, sum);
                assert_memory_equal(many.drope + sequence * n * rope, sum, n * rope * sizeof *sum);
            }
            free(sum);
            release(&many);
        }
    }
}

int main(int argc, char **argv) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    if (argc > 1 && !strcmp(argv[1], "few") && !getenv("SL_TEST_LONG")) step = 3;
    emulated = !strcmp(argv[argc - 1], "emulated");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_oracle),
        cmocka_unit_test(products_of_bf16_equal_the_oracle),
        cmocka_unit_test(products_of_many_queries_equal_the_oracle),
        cmocka_unit_test(wide_heads_equal_the_oracle),
        cmocka_unit_test(queries_after_others_see_their_keys),
        cmocka_unit_test(keys_of_bf16_equal_the_oracle),
        cmocka_unit_test(results_are_left_rounded),
        cmocka_unit_test(groups_of_heads_share_keys),
        cmocka_unit_test(documents_do_not_see_each_other),
        cmocka_unit_test(windows_end_what_is_seen),
        cmocka_unit_test(a_part_of_the_queries_adds_to_all_keys),
        cmocka_unit_test(a_window_of_all_keys_is_none),
        cmocka_unit_test(large_scores_do_not_overflow),
        cmocka_unit_test(one_query_at_a_time_equals_all_at_once),
        cmocka_unit_test(keys_in_two_parts_are_all_keys),
        cmocka_unit_test(many_sequences_have_the_bits_of_each),
        cmocka_unit_test(a_head_alone_has_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
