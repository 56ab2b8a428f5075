/* test_missing_fields.c - omissions of a user's program end in a line that names them and the coordinate: fields of the
 * trainer's, the pipeline's and the optimizer's options, of the model, of a module's type and of the batch. */
#include <math.h>

#include "tests/rigs/run_on.h"

#include "layers/modules/modules.h"
#include "layers/training/trainer.h"

enum { IN = 3, HIDDEN = 6, OUT = 2, ROWS = 4, MICROBATCHES = 2, BATCH = ROWS * MICROBATCHES };

/* ---- a module of a user's own ---- */

static void multiply(const struct sl_context *context, size_t n, const float *a, const float *b, float *y) {
    context->kernels->operands->multiply(n, sl_rows_f32(a), sl_rows_f32(b), sl_out_f32(y));
}

static int square(const struct sl_module *module, struct sl_context *context, struct sl_given x, struct sl_result *y) {
    multiply(context, (size_t)context->rows * (size_t)module->in, x.floats, x.floats, y->floats);
    return SL_OK;
}
/* Reads x, and so does not come back if it is NULL. */
static int square_back(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                       struct sl_given dy, struct sl_result *dx) {
    if (dx) multiply(context, (size_t)context->rows * (size_t)module->in, x.floats, dy.floats, dx->floats);
    return SL_OK;
}
static int read_gradient(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                         struct sl_given dy) {
    float *unread = sl_gradient(module, context, 0);
    multiply(context, (size_t)module->in, x.floats, dy.floats, unread);
    return SL_OK;
}

static const struct sl_module_type squares = {.name = "squares", .forward = square, .backward_input = square_back};
static const struct sl_module_type without_backward = {.name = "oneway", .forward = square};
static const struct sl_module_type without_forward = {.name = "absent"};

static int plan_scale(struct sl_module *module, struct sl_plan *plan) {
    const size_t shape[] = {(size_t)module->in};
    return sl_plan_parameter(plan, "scale", SL_INIT_ONES, 0, 1, shape);
}
static int plan_scale_twice(struct sl_module *module, struct sl_plan *plan) {
    SL_TRY(plan_scale(module, plan));
    return plan_scale(module, plan);
}
static int plan_two(struct sl_module *module, struct sl_plan *plan) {
    const size_t shape[] = {(size_t)module->in};
    SL_TRY(plan_scale(module, plan));
    return sl_plan_parameter(plan, "shift", SL_INIT_ZEROS, 0, 1, shape);
}
static int fail_silently(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                         struct sl_result *y) {
    return (void)module, (void)context, (void)x, (void)y, SL_BAD_INPUT;
}
static const struct sl_module_type silent = {.name = "silent", .forward = fail_silently, .backward_input = square_back};
static const struct sl_module_type unweighed = {
    .name = "unweighed", .plan = plan_scale, .forward = square, .backward_input = square_back};
static const struct sl_module_type small = {
    .name = "small", .forward = square, .backward_input = square_back, .bytes = 4};
static const struct sl_module_type has_two = {.name = "two",
                                              .plan = plan_two,
                                              .forward = square,
                                              .backward_input = square_back,
                                              .backward_weight = read_gradient};
static const struct sl_module_type scales_twice = {.name = "scales",
                                                   .plan = plan_scale_twice,
                                                   .forward = square,
                                                   .backward_input = square_back,
                                                   .backward_weight = read_gradient};

/* A module around another, which does not request its child's saved arrays. */
static int plan_around(struct sl_module *module, struct sl_plan *plan) {
    module->x.lasts = SL_UNTIL_RETURN;
    return sl_module_plan(module->child[0], plan);
}
static int plan_around_input(struct sl_module *module, struct sl_plan *plan) {
    module->y.lasts = SL_UNTIL_RETURN;
    return sl_module_plan(module->child[0], plan);
}
static int around(const struct sl_module *module, struct sl_context *context, struct sl_given x, struct sl_result *y) {
    return sl_module_forward(module->child[0], context, x, y);
}
static int around_back(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                       struct sl_given dy, struct sl_result *dx) {
    return sl_module_backward_input(module->child[0], context, x, dy, dx);
}
static int around_weight(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                         struct sl_given dy) {
    return sl_module_backward_weight(module->child[0], context, x, dy);
}
static const struct sl_module_type wraps = {.name = "wraps",
                                            .plan = plan_around,
                                            .forward = around,
                                            .backward_input = around_back,
                                            .backward_weight = around_weight};
static const struct sl_module_type wraps_input = {.name = "wraps",
                                                  .plan = plan_around_input,
                                                  .forward = around,
                                                  .backward_input = around_back,
                                                  .backward_weight = around_weight};

/* ---- a run with one omission ---- */

struct trial {
    struct sl_schedule schedule;
    struct sl_trainer_options options;
    struct sl_model model, *given;
    struct sl_module *stage[1];
    const struct sl_module_type *type, *end; /* of the stage's last module; of the loss; NULL: the usual ones */
    const char *name;                        /* the last stage's; NULL: the usual one */
    struct sl_batch batch;
    bool bare;      /* a pipeline without a trainer */
    bool evaluates; /* instead of a step */
    bool hurries;   /* leaves out the calls between planning and the next call */
    bool forgets_layout, forgets_memory, forgets_weight;
};

struct fault {
    const char *text;
    void (*make)(struct trial *trial);
    bool trainers; /* only a trainer has the field */
};

static void keep_values(const struct sl_optimizer_options *options, const struct sl_kernels *kernels,
                        const struct sl_optimizer_run *run) {
    (void)options, (void)kernels, (void)run;
}
static const struct sl_optimizer doubled = {
    .name = "doubled", .state = {"velocity", "velocity"}, .update = keep_values};

static struct sl_schedule unlowered, empty;
static float some_inputs[BATCH * IN], some_targets[BATCH * OUT];

static int plan_bare(struct sl_spmd *self, struct trial *trial) {
    struct sl_parameters parameters;
    struct sl_pipeline *pipeline = NULL;
    if (sl_parameters_open(&parameters, 1)) return SL_FAILED;
    int status = sl_pipeline_plan(&pipeline, self, &trial->options.pipeline, trial->given, &parameters);
    if (status == SL_OK && trial->hurries) status = sl_pipeline_open(pipeline);
    if (status == SL_OK && trial->forgets_layout) status = sl_parameters_take(&parameters, &self->error);
    if (status == SL_OK && trial->forgets_memory) status = sl_parameters_initialize(&parameters, self, NULL);
    struct sl_pipeline_step weightless = {.batch = trial->batch};
    if (status == SL_OK && trial->forgets_weight) status = sl_pipeline_train(pipeline, &weightless);
    sl_pipeline_close(pipeline);
    sl_parameters_close(&parameters);
    return status;
}

static int take_step(struct sl_spmd *self, struct trial *trial) {
    struct sl_trainer *trainer = NULL;
    struct sl_metrics metrics;
    bool stop = false;
    int status = sl_trainer_plan(&trainer, self, &trial->options, trial->given);
    if (status == SL_OK && !trial->hurries) status = sl_trainer_open(trainer, NULL);
    if (status == SL_OK)
        status = trial->evaluates ? sl_trainer_evaluate(trainer, &trial->batch, &metrics)
                                  : sl_trainer_step(trainer, &trial->batch, &metrics, &stop);
    sl_trainer_close(trainer);
    return status;
}

static struct sl_module *build_stage(const struct sl_module_type *type, bool last, const char *name) {
    const int columns = last ? OUT : HIDDEN;
    const bool has_child = type == &wraps || type == &wraps_input;
    struct sl_module *dense = has_child ? sl_dense("dense", columns, columns) : NULL;
    if (has_child)
        return sl_sequential("back", 2,
                             (struct sl_module *[]){sl_dense("first", HIDDEN, columns),
                                                    sl_module_new_parent(type, "own", columns, columns, 1, &dense)});
    return sl_sequential(name   ? name
                         : last ? "back"
                                : "front",
                         2,
                         (struct sl_module *[]){sl_dense("dense", last ? HIDDEN : IN, columns),
                                                sl_module_new(type ? type : &squares, "own", columns, columns)});
}

struct mistake {
    const struct fault *fault; /* NULL: none */
    struct sl_schedule schedule;
    bool bare;
};

/* Only coordinate 1, with the last stage, has the fault. */
static int program(struct sl_spmd *self, void *arg) {
    const struct mistake *mistake = arg;
    const bool last = sl_axis_index(self, "model") == 1;
    struct trial trial = {.options = {.pipeline = {.axis = "model",
                                                   .schedule = &mistake->schedule,
                                                   .gemm = sl_gemm_find("reference", &self->error),
                                                   .rows = ROWS,
                                                   .wgrad_group = MICROBATCHES},
                                      .data_axis = "data",
                                      .optimizer = sl_sgd_defaults(0.1f)},
                          .batch = {.rows = BATCH, .inputs = some_inputs, .targets = some_targets}};
    trial.model = (struct sl_model){.loops = 1, .stage = trial.stage};
    trial.given = &trial.model;
    const bool wrong = mistake->fault && self->coordinate == 1;
    if (wrong) mistake->fault->make(&trial);
    struct sl_module *stage = build_stage(trial.type, last, trial.name);
    struct sl_module *loss = last ? sl_mean_squared_error(OUT) : NULL;
    if (trial.end == &without_forward) {
        sl_module_free(loss);
        loss = sl_module_new(trial.end, "", OUT, OUT);
    }
    trial.stage[0] = stage;
    trial.model.loss = loss;
    if (wrong) mistake->fault->make(&trial);
    const int status = mistake->bare ? plan_bare(self, &trial) : take_step(self, &trial);
    sl_module_free(stage);
    sl_module_free(loss);
    return status;
}

/* ---- the faults ---- */

#define FAULT(NAME, STATEMENT)                                                                                         \
    static void NAME(struct trial *t) { STATEMENT; }
FAULT(no_axis, t->options.pipeline.axis = NULL)
FAULT(no_schedule, t->options.pipeline.schedule = NULL)
FAULT(empty_schedule, t->options.pipeline.schedule = &empty)
FAULT(not_lowered, t->options.pipeline.schedule = &unlowered)
FAULT(no_gemm, t->options.pipeline.gemm = NULL)
FAULT(no_rows, t->options.pipeline.rows = 0)
FAULT(negative_rows, t->options.pipeline.rows = -4)
FAULT(many_rows, t->options.pipeline.rows = 1 << 30)
FAULT(no_group, t->options.pipeline.wgrad_group = 0)
FAULT(torn_sequences, t->options.pipeline.sequence = 3)
FAULT(no_model, t->given = NULL)
FAULT(no_stages, t->model.stage = NULL)
FAULT(no_stage, t->stage[0] = NULL)
FAULT(no_loss, t->model.loss = NULL)
FAULT(no_loops, t->model.loops = 0)
FAULT(no_child_input, t->type = &wraps)
FAULT(no_child_gradient, t->type = &wraps_input)
FAULT(no_backward, t->type = &without_backward)
FAULT(no_forward, t->type = &without_forward)
FAULT(no_forward_of_loss, t->end = &without_forward)
FAULT(same_stage, t->name = "front")
FAULT(same_name, t->type = &scales_twice)
FAULT(no_data_axis, t->options.data_axis = NULL)
FAULT(one_axis, t->options.data_axis = "model")
FAULT(listed_axis, t->options.data_axis = "data,model")
FAULT(absent_axis, t->options.data_axis = "data,rows")
FAULT(listed_leaves, t->options.data_axis = "data,rows"; t->options.exact = 2)
FAULT(wrong_data_axis, t->options.data_axis = "dta")
FAULT(no_line, t->type = &silent)
FAULT(no_weights, t->type = &unweighed)
FAULT(part_frozen, t->type = &has_two; t->options.freeze = "*.none,back.own.sc*")
FAULT(small_struct, t->type = &small)
FAULT(same_states, t->options.optimizer.method = &doubled)
FAULT(no_layout, t->forgets_layout = true)
FAULT(no_memory, t->forgets_memory = true)
FAULT(no_weight, t->forgets_weight = true)
FAULT(no_method, t->options.optimizer.method = NULL)
FAULT(no_clip, t->options.clip = NAN)
FAULT(no_passes, t->options.accumulate = -1)
FAULT(no_leaves, t->options.exact = -1)
FAULT(odd_leaves, t->options.pipeline.leaf_axis = "tensor"; t->options.pipeline.leaves = 3)
FAULT(no_folder, t->options.offload_optimizer = true)
FAULT(many_passes, t->options.accumulate = 1 << 28)
FAULT(no_batch_rows, t->batch.rows = 0)
FAULT(few_batch_rows, t->batch.rows = BATCH - 1)
FAULT(few_rows_to_evaluate, t->evaluates = true; t->batch.rows = 2 * BATCH)
FAULT(hurry, t->hurries = true)
FAULT(no_targets, t->batch.targets = NULL)

static const struct fault faults[] = {
    {"option axis is NULL: it must be the name of the axis", no_axis, false},
    {"option schedule is NULL: it must be a schedule that", no_schedule, false},
    {"schedule is empty: make it by sl_schedule_make", empty_schedule, false},
    {"schedule gpipe has not been lowered: call sl_schedule_lower", not_lowered, false},
    {"option gemm is NULL: it must be what sl_gemm_find has found", no_gemm, false},
    {"option rows is 0: it must be", no_rows, false},
    {"option rows is -4: it must be", negative_rows, false},
    {"the pipeline's batch has 2147483648 rows (rows 1073741824 x microbatches 2): at most 2147483647", many_rows,
     false},
    {"option wgrad_group is 0: it must be", no_group, false},
    {"option sequence is 3: it must divide the 4 rows", torn_sequences, false},
    {"the model is NULL", no_model, false},
    {"the model's field stage is NULL", no_stages, false},
    {"the model has no stage for loop 0", no_stage, false},
    {"the model with the last stage has no loss", no_loss, false},
    {"has 1 loops, the model has 0", no_loops, false},
    {"back.own.unweighed: it has parameters, but its type has no backward_weight", no_weights, false},
    {"back.own.small: its type has bytes 4", small_struct, false},
    {"module type oneway has no backward_input", no_backward, false},
    {"module type absent has no forward", no_forward, false},
    {"module type absent has no forward", no_forward_of_loss, false},
    {"parameter front.dense.kernel is declared by stages of ranks 0 and 1", same_stage, false},
    {"parameter back.own.scale is declared twice", same_name, false},
    {"option data_axis is NULL: it must be the name of the axis", no_data_axis, true},
    {"option data_axis \"model\" has the pipeline's option axis \"model\"", one_axis, true},
    {"option data_axis \"data,model\" has the pipeline's option axis \"model\"", listed_axis, true},
    {"module type dense was given no x in backward: the module around it must set x.lasts as", no_child_input, true},
    {"module type dense was given no dy in backward: the module around it must set y.lasts as", no_child_gradient,
     true},
    {"no optimizer was chosen (its method is NULL)", no_method, true},
    {"back.own.two: a part of its parameters is frozen, and its type cannot leave a part out", part_frozen, true},
    {"optimizer doubled: two of its states have the name velocity", same_states, true},
    {"option clip is nan", no_clip, true},
    {"option accumulate is -1", no_passes, true},
    {"option exact is -1: it must be 0, or so many leaves", no_leaves, true},
    {"option exact is 2: leaves lie along one axis, and data_axis is \"data,rows\"", listed_leaves, true},
    {"option leaves is 3: it must be 1, 2, 4, ..., at most 1048576, and a multiple of the 1 coordinates", odd_leaves,
     true},
    {"option offload_directory is NULL: it must be the folder", no_folder, true},
    {"the batch has 2147483648 rows (8 in a pass x passes 268435456): at most 2147483647", many_passes, true},
    {"the batch has 0 rows (its field rows), but a step takes 8", no_batch_rows, true},
    {"the batch has 7 rows (its field rows), but a step takes 8: rows 4 x microbatches 2 x passes 1", few_batch_rows,
     true},
    {"the batch has 16 rows (its field rows), but the pipeline takes 8", few_rows_to_evaluate, true},
    {"the pipeline has not been opened: sl_pipeline_open, or sl_trainer_open", hurry, true},
    {"the batch has no targets, which the loss", no_targets, true},
    {"step 0 failed", no_line, true},
};

static struct sl_schedule make(bool lower) {
    struct sl_schedule schedule;
    struct sl_error error = {0};
    if (sl_schedule_make(&schedule, "gpipe", 2, 1, MICROBATCHES, &error)) fail_msg("%s", error.message);
    if (lower && sl_schedule_lower(&schedule, &error)) fail_msg("%s", error.message);
    return schedule;
}

static void what_is_complete_runs(void **state) {
    static const struct fault absent = {"", absent_axis, true}; /* the mesh has no axis "rows" */
    struct mistake none = {.schedule = make(true)}, longer = {.fault = &absent, .schedule = none.schedule};
    (void)state;
    expect_ok("model=2", program, &none);
    expect_ok("data=2,model=2", program, &none);
    expect_ok("data=2,model=2", program, &longer);
    none.bare = true;
    expect_ok("model=2", program, &none);
    sl_schedule_free(&none.schedule);
}

static void what_is_missing_is_named(void **state) {
    (void)state;
    unlowered = make(false);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        for (int bare = 0; bare < 2 - faults[i].trainers; bare++) {
            struct mistake mistake = {.fault = &faults[i], .schedule = make(true), .bare = bare};
            EXPECT_VERDICT(((struct test_run){.mesh = "model=2", .arg = &mistake}), program, SL_BAD_INPUT,
                           faults[i].text, "coordinate 1 (model=1)");
            sl_schedule_free(&mistake.schedule);
        }
    }
    sl_schedule_free(&unlowered);
}

/* The replicas would each be trained on their own. */
static void every_axis_is_used(void **state) {
    static const struct fault mistaken = {"", wrong_data_axis, true};
    struct mistake mistake = {.fault = &mistaken, .schedule = make(true)};
    (void)state;
    EXPECT_VERDICT(((struct test_run){.mesh = "data=2,model=2", .arg = &mistake}), program, SL_BAD_INPUT,
                   "nothing uses the mesh's axis \"data\": the trainer's option data_axis is \"dta\"",
                   "coordinate 1 (data=0, model=1)");
    sl_schedule_free(&mistake.schedule);
}

static void memory_comes_before_the_pipeline_is_opened(void **state) {
    static const struct fault hurried = {"", hurry, false};
    struct mistake mistake = {.fault = &hurried, .schedule = make(true), .bare = true};
    (void)state;
    EXPECT_VERDICT(((struct test_run){.mesh = "model=2", .arg = &mistake}), program, SL_BAD_INPUT,
                   "the parameters have no memory: sl_parameters_layout and sl_parameters_take come before",
                   "coordinate 1 (model=1)");
    sl_schedule_free(&mistake.schedule);
}

static void calls_of_a_loop_have_an_order(void **state) {
    static const struct fault own[] = {
        {"the parameters have no layout: sl_parameters_layout comes before sl_parameters_take", no_layout, false},
        {"the parameters have no memory: sl_parameters_take comes before sl_parameters_initialize", no_memory, false},
        {"the step's weight is 0 (its field weight)", no_weight, false},
    };
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct mistake mistake = {.fault = &own[i], .schedule = make(true), .bare = true};
        EXPECT_VERDICT(((struct test_run){.mesh = "model=2", .arg = &mistake}), program, SL_BAD_INPUT, own[i].text,
                       "coordinate 1 (model=1)");
        sl_schedule_free(&mistake.schedule);
    }
    assert_int_equal(sl_trainer_open(NULL, NULL), SL_BAD_INPUT);
    assert_int_equal(sl_pipeline_open(NULL), SL_BAD_INPUT);
}

static void a_schedule_is_lowered_once(void **state) {
    struct sl_schedule schedule = make(true);
    const int count = schedule.rank[0].count;
    (void)state;
    assert_int_equal(sl_schedule_lower(&schedule, NULL), SL_OK);
    assert_int_equal(schedule.rank[0].count, count);
    sl_schedule_free(&schedule);
}

static void a_module_may_have_no_name(void **state) {
    struct sl_module *module = sl_module_new(&squares, NULL, IN, IN);
    (void)state;
    assert_non_null(module);
    assert_string_equal(module->name, "");
    sl_module_free(module);
}

/* ---- missing parts of batches ---- */

struct reader {
    unsigned reads;
    const char *text;
};

static int end(const struct sl_module *module, struct sl_context *context, struct sl_given x, struct sl_result *y) {
    context->kernels->fill((size_t)context->rows * (size_t)module->in, 0.0f, y->floats);
    context->metrics->rows += context->rows;
    return (void)x, SL_OK;
}

static int read_batch(struct sl_spmd *self, void *arg) {
    const struct reader *reader = arg;
    const struct sl_module_type type = {.name = "end", .forward = end, .reads = reader->reads};
    struct sl_schedule schedule;
    SL_TRY(sl_schedule_make(&schedule, "gpipe", 1, 1, MICROBATCHES, &self->error));
    SL_TRY(sl_schedule_lower(&schedule, &self->error));
    struct sl_module *stage = sl_dense("dense", IN, OUT);
    struct sl_model model = {.loops = 1, .stage = &stage, .loss = sl_module_new(&type, "", OUT, OUT)};
    struct trial trial = {.options = {.pipeline = {.axis = "model",
                                                   .schedule = &schedule,
                                                   .gemm = sl_gemm_find("reference", &self->error),
                                                   .rows = ROWS,
                                                   .wgrad_group = 1},
                                      .data_axis = "data",
                                      .optimizer = sl_sgd_defaults(0.1f)},
                          .given = &model,
                          .batch = {.rows = BATCH, .inputs = reader->reads ? some_inputs : NULL}};
    const int status = take_step(self, &trial);
    sl_module_free(stage);
    sl_module_free(model.loss);
    sl_schedule_free(&schedule);
    return status;
}

static void arrays_that_are_read_are_asked_for(void **state) {
    (void)state;
    struct reader readers[] = {{0, "the batch has no inputs, which the first stage"},
                               {SL_READS_LABELS, "the batch has no labels, which the loss"},
                               {SL_READS_TARGETS, "the batch has no targets, which the loss"},
                               {SL_READS_TOKENS, "the batch has no tokens"}};
    for (int i = 0; i < 4; i++)
        EXPECT_VERDICT(((struct test_run){.mesh = "data=1", .arg = &readers[i]}), read_batch, SL_BAD_INPUT,
                       readers[i].text);
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_complete_runs),
        cmocka_unit_test(what_is_missing_is_named),
        cmocka_unit_test(every_axis_is_used),
        cmocka_unit_test(memory_comes_before_the_pipeline_is_opened),
        cmocka_unit_test(calls_of_a_loop_have_an_order),
        cmocka_unit_test(a_schedule_is_lowered_once),
        cmocka_unit_test(a_module_may_have_no_name),
        cmocka_unit_test(arrays_that_are_read_are_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
