/* custom_schedule.c - an example to copy: your own pipeline schedule. It teaches that a schedule is a table.
 *
 * The table below sends two microbatches through all stages and back before the next two begin. It has only compute
 * actions, rank by rank in order; the library adds the messages, proves that there is no deadlock, and draws the table.
 * A small classifier then trains under it and under gpipe: the losses are the same to the last bit, because every
 * schedule sums gradients in the order of the microbatches. */
#include <shardloop/shardloop.h>
#include <stdio.h>

enum { INPUTS = 2, HIDDEN = 16, CLASSES = 2, BATCH = 64, STAGES = 4, MICROBATCHES = 8, STEPS = 50 };

/* ---- the schedule ---- */

static int make_in_pairs(struct sl_schedule *schedule, struct sl_error *error) {
    SL_TRY(sl_schedule_open(schedule, "in-pairs", STAGES, 1, MICROBATCHES, error));
    sl_schedule_place_stages(schedule, SL_RING);
    for (int m = 0; m < MICROBATCHES; m += 2) {
        for (int s = 0; s < STAGES; s++)
            for (int i = m; i < m + 2; i++) SL_TRY(sl_schedule_compute(schedule, SL_FORWARD, s, i, false));
        for (int s = STAGES - 1; s >= 0; s--)
            for (int i = m; i < m + 2; i++) SL_TRY(sl_schedule_compute(schedule, SL_BACKWARD, s, i, false));
    }
    return sl_schedule_clock(schedule, error); /* computes when each action runs */
}

/* ---- the run: the same program at every coordinate ---- */

struct run {
    struct sl_schedule schedule;
    float inputs[BATCH * INPUTS];
    int32_t labels[BATCH];
    float loss; /* of the last step */
};

static int program(struct sl_spmd *self, void *arg) {
    struct run *run = arg;
    const int rank = sl_axis_index(self, "model");
    const bool last = rank == STAGES - 1;
    static const char *const name[STAGES] = {"stage0", "stage1", "stage2", "stage3"};
    struct sl_module *part[] = {sl_dense("dense", rank ? HIDDEN : INPUTS, last ? CLASSES : HIDDEN),
                                last ? NULL : sl_gelu(HIDDEN)};
    struct sl_module *stage = sl_sequential(name[rank], last ? 1 : 2, part);
    struct sl_model model = {.loops = 1, .stage = &stage, .loss = last ? sl_softmax_cross_entropy(CLASSES) : NULL};
    const struct sl_trainer_options options = {.pipeline = {.axis = "model",
                                                            .schedule = &run->schedule,
                                                            .gemm = sl_gemm_find(NULL, &self->error),
                                                            .rows = BATCH / MICROBATCHES,
                                                            .wgrad_group = 1},
                                               .data_axis = "data",
                                               .optimizer = sl_adamw_defaults(1e-2f),
                                               .seed = 42};
    const struct sl_batch batch = {.rows = BATCH, .inputs = run->inputs, .labels = run->labels};
    struct sl_trainer *trainer = NULL;
    struct sl_metrics metrics = {0};
    bool stop = false;
    int status = sl_trainer_plan(&trainer, self, &options, &model);
    if (status == SL_OK) status = sl_trainer_open(trainer, NULL);
    for (int step = 0; status == SL_OK && step < STEPS; step++)
        status = sl_trainer_step(trainer, &batch, &metrics, &stop);
    if (self->coordinate == 0) run->loss = (float)(metrics.loss / metrics.rows);
    sl_trainer_close(trainer);
    sl_module_free(stage);
    sl_module_free(model.loss);
    return status;
}

/* Trains under the run's schedule: lowers, checks and frees it. */
static int train(struct run *run, const struct sl_mesh *mesh, struct sl_error *error) {
    struct sl_engine engine = {0};
    int slots = 0, kept[STAGES];
    int status = sl_schedule_lower(&run->schedule, error); /* adds sends, receives and reductions */
    if (status == SL_OK) status = sl_schedule_slots(&run->schedule, 1, &slots, error);
    if (status == SL_OK) status = sl_schedule_check(&run->schedule, slots, 1, kept, error);
    if (status == SL_OK) status = sl_engine_open(&engine, "local", error);
    engine.checked = true; /* a wrong call of the program ends with a verdict (docs/engines.md) */
    engine.error = error;
    if (status == SL_OK) status = sl_run(mesh, &engine, program, run);
    if (status == SL_OK)
        printf("%-8s  rank 0 keeps %d microbatches  loss %.9g\n", run->schedule.name, kept[0], run->loss);
    sl_schedule_free(&run->schedule);
    return status;
}

int main(void) {
    static struct run run;
    struct sl_error error = {0};
    struct sl_mesh mesh;
    sl_random_normal(sl_key_of_seed(7), BATCH * INPUTS, run.inputs);
    for (int i = 0; i < BATCH; i++) run.labels[i] = run.inputs[2 * i] * run.inputs[2 * i + 1] > 0;
    int status = sl_mesh_parse(&mesh, "data=1,model=4", &error);
    if (status == SL_OK) status = make_in_pairs(&run.schedule, &error);
    if (status == SL_OK) status = sl_schedule_print_table(&run.schedule, stdout);
    if (status == SL_OK) status = train(&run, &mesh, &error);
    const float loss = run.loss;
    if (status == SL_OK) status = sl_schedule_make(&run.schedule, "gpipe", STAGES, 1, MICROBATCHES, &error);
    if (status == SL_OK) status = train(&run, &mesh, &error);
    if (status) return fprintf(stderr, "custom_schedule: %s\n", error.message), status;
    printf("%s\n", loss == run.loss ? "equal" : "not equal");
    return loss != run.loss;
}
