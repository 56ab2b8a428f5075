/* rig.c - a benchmark's options, its run over the mesh, rounds of steps and of the floor. */
#include "benchmarks/rig.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layers/kernels/kernels.h"
#include "spmd/base/cpu_level.h"
#include "spmd/device/device.h"
#include "spmd/schedule/fuse.h"

/* ---- options ---- */

enum { MAX_OPTIONS = 40, HELP = 2 * MAX_OPTIONS };

static int take_value(struct sl_rig *rig, const struct sl_rig_option *option, const char *value) {
    if (option->set) return option->set(rig, value);
    if (option->integer) return sl_read_integer(option->name, value, 1, option->max, option->integer);
    if (option->real) return sl_read_real(option->name, value, 0, option->most, option->real);
    if (option->flag) *option->flag = true;
    if (option->text) *option->text = value;
    return SL_OK;
}

static int read_options(struct sl_rig *rig, int argc, char **argv, bool *answered) {
    const struct sl_rig_option own[] = {
        {.name = "mesh", .text = &rig->mesh_text},
        {.name = "schedule", .text = &rig->schedule_name},
        {.name = "precision", .text = &rig->precision_name},
        {.name = "storage", .text = &rig->storage_name},
        {.name = "engine", .text = &rig->engine},
        {.name = "fuse", .integer = &rig->fuse, .max = 4096},
        {.name = "steps", .integer = &rig->steps, .max = 1000000},
        {.name = "warmup", .integer = &rig->warmup, .max = 1000000},
        {.name = "rounds", .integer = &rig->rounds, .max = 1000},
        {.name = "floor-seconds", .real = &rig->floor_seconds, .most = 60},
    };
    enum { OWN = sizeof own / sizeof *own };
    const struct sl_rig_option *from[MAX_OPTIONS];
    struct option option[MAX_OPTIONS + 2] = {{"help", no_argument, NULL, HELP}};
    int count = 0;
    for (; count < OWN; count++) from[count] = &own[count];
    for (const struct sl_rig_option *next = rig->options; next->name && count < MAX_OPTIONS; next++)
        from[count++] = next;
    for (int i = 0; i < count; i++)
        option[1 + i] = (struct option){from[i]->name, from[i]->flag ? no_argument : required_argument, NULL, i};
    for (int code; (code = getopt_long(argc, argv, "", option, NULL)) != -1;) {
        if (code == '?') return SL_BAD_INPUT;
        if (code == HELP) {
            fputs(rig->usage, stdout);
            *answered = true;
            return SL_OK;
        }
        SL_TRY(take_value(rig, from[code], optarg));
    }
    if (optind == argc) return SL_OK;
    fprintf(stderr, "%s: \"%.80s\" is no option\n", rig->name, argv[optind]);
    return SL_BAD_INPUT;
}

/* ---- the run ---- */

static int set_storage(struct sl_rig *rig, struct sl_error *error) {
    const char *name = rig->storage_name ? rig->storage_name : "f32";
    rig->storage = strcmp(name, "bf16") ? SL_F32 : SL_BF16;
    if (rig->storage == SL_BF16 || !strcmp(name, "f32")) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "--storage: \"%.80s\" is not f32 or bf16", name);
}

static int set_precision(struct sl_rig *rig, struct sl_error *error) {
    const char *name = rig->precision_name;
    const bool tf32 = !strcmp(name, "tf32");
    rig->precision = strcmp(name, "bf16") ? SL_F32 : SL_BF16;
    if (rig->precision == SL_F32 && !tf32 && strcmp(name, "f32") != 0)
        return sl_error_set(error, SL_BAD_INPUT, "--precision: \"%.80s\" is not f32, tf32 or bf16", name);
    rig->gemm = sl_gemm_find(tf32 ? "cublas-tf32" : NULL, error);
    return rig->gemm ? SL_OK : error->status;
}

/* Chooses runs of microbatches, as the drivers do. */
static int fuse(struct sl_rig *rig, struct sl_error *error) {
    const bool shares = !strcmp(rig->engine, "local") && !strcmp(sl_device.name, "cpu");
    const struct sl_fusing fusing = {
        .rows = rig->rows, .coordinates = rig->mesh.size, .cores = shares ? rig->cores.count : 0};
    bool fused;
    rig->schedule.crowded = sl_schedule_crowds(&rig->schedule, &fusing);
    if (rig->fuse) return sl_schedule_fuse(&rig->schedule, rig->fuse, &fused, error);
    return sl_schedule_fuse_planned(&rig->schedule, &fusing, error);
}

static int prepare(struct sl_rig *rig, struct sl_error *error) {
    SL_TRY(sl_cpu_level_check(error));
    SL_TRY(sl_mesh_parse(&rig->mesh, rig->mesh_text, error));
    SL_TRY(set_precision(rig, error));
    SL_TRY(set_storage(rig, error));
    SL_TRY(rig->prepare(rig, error));
    SL_TRY(fuse(rig, error));
    SL_TRY(sl_schedule_lower(&rig->schedule, error));
    if (rig->rounds > rig->steps) rig->rounds = rig->steps;
    rig->ms = calloc((size_t)rig->steps, sizeof *rig->ms);
    rig->prefill_ms = calloc((size_t)rig->steps, sizeof *rig->prefill_ms);
    rig->round_ms = calloc((size_t)rig->rounds, sizeof *rig->round_ms);
    rig->floors_ms = calloc((size_t)rig->rounds + 1, sizeof *rig->floors_ms);
    if (!rig->ms || !rig->prefill_ms || !rig->round_ms || !rig->floors_ms)
        return sl_error_set(error, SL_FAILED, "no memory for %d steps", rig->steps);
    return SL_OK;
}

static int run_mesh(struct sl_rig *rig, struct sl_engine *engine, struct sl_error *error) {
    SL_TRY(prepare(rig, error));
    SL_TRY(sl_engine_open(engine, rig->engine, error));
    engine->timeout = 3600; /* while the floor is measured, coordinate 0 gives no sign */
    engine->error = error;
    return sl_run(&rig->mesh, engine, rig->program, rig);
}

int sl_rig_main(struct sl_rig *rig, int argc, char **argv) {
    struct sl_engine engine = {0};
    struct sl_error error = {0};
    bool answered = false;
    sl_cores_find(&rig->cores);
    int status = read_options(rig, argc, argv, &answered);
    if (status || answered) return status;
    status = run_mesh(rig, &engine, &error);
    if (status == SL_OK && sl_speaks(&engine)) /* the first of several processes has measured */
        rig->print(rig);
    if (status && (!engine.table || sl_reports(&engine))) fprintf(stderr, "%s: %s\n", rig->name, error.message);
    sl_floor_close(&rig->floor);
    sl_schedule_free(&rig->schedule);
    free(rig->ms);
    free(rig->prefill_ms);
    free(rig->round_ms);
    free(rig->floors_ms);
    return status;
}

/* ---- one coordinate ---- */

/* Takes steps. Their times go to the rig's from FIRST on; if FIRST is negative, they are not saved. */
static int take_steps(struct sl_rig *rig, struct sl_spmd *self, sl_rig_take *take, void *worker, int first, int steps) {
    for (int i = 0; i < steps; i++) {
        struct sl_rig_step step = {0};
        SL_TRY(take(worker, &step));
        if (self->coordinate != 0) continue;
        if (rig->taken++ == 0) rig->first_loss = step.loss;
        if (first < 0) continue;
        rig->ms[first + i] = step.ms;
        rig->prefill_ms[first + i] = step.prefill_ms;
    }
    return SL_OK;
}

/* Returns the number of devices with memory of their own that the mesh computes on. Cores are counted elsewhere. */
static int devices_of(const struct sl_rig *rig) {
    const int count = sl_device.shares_memory ? 0 : sl_device.count();
    return count < rig->mesh.size ? count : rig->mesh.size;
}

static int open_floor(struct sl_rig *rig, sl_rig_tell *tell, struct sl_error *error) {
    rig->peak_bytes = sl_peak_bytes(); /* the steps' own: the floor takes memory, too */
    rig->floor.cores = &rig->cores;
    rig->floor.devices = devices_of(rig);
    rig->floor.precision = rig->precision;
    rig->floor.backend = rig->gemm;
    rig->floor.seconds = rig->floor_seconds;
    tell(rig, &rig->floor);
    return sl_floor_open(&rig->floor, error);
}

/* Measures a step's floor before ROUND. The other coordinates sleep in the barrier meanwhile. */
static int measure_floor(struct sl_rig *rig, struct sl_spmd *self, const struct sl_group *world, sl_rig_tell *tell,
                         int round) {
    SL_TRY(sl_barrier(self, world));
    if (self->coordinate == 0) {
        if (round == 0) SL_TRY(open_floor(rig, tell, &self->error));
        SL_TRY(sl_floor_measure(&rig->floor, &self->error));
        rig->floors_ms[round] = rig->floor_ms(rig, rig->floor.last);
    }
    return sl_barrier(self, world);
}

int sl_rig_measure(struct sl_rig *rig, struct sl_spmd *self, const struct sl_group *world, sl_rig_take *take,
                   sl_rig_tell *tell, void *worker) {
    SL_TRY(take_steps(rig, self, take, worker, -1, rig->warmup));
    for (int round = 0; round < rig->rounds; round++) {
        const int begin = rig->steps * round / rig->rounds, end = rig->steps * (round + 1) / rig->rounds;
        SL_TRY(measure_floor(rig, self, world, tell, round));
        SL_TRY(take_steps(rig, self, take, worker, begin, end - begin));
        if (self->coordinate == 0) rig->round_ms[round] = sl_median(end - begin, rig->ms + begin);
    }
    return measure_floor(rig, self, world, tell, rig->rounds);
}

int sl_rig_train(struct sl_trainer *trainer, const struct sl_batch *batch, struct sl_rig_step *step) {
    struct sl_metrics metrics;
    bool stop = false;
    const double began = sl_now();
    SL_TRY(sl_trainer_step(trainer, batch, &metrics, &stop));
    step->ms = 1e3 * (sl_now() - began);
    step->loss = metrics.loss / metrics.rows;
    return SL_OK;
}

/* ---- the result ---- */

void sl_rig_print_name(const struct sl_rig *rig, const char *benchmark) {
    printf("{\"benchmark\":\"%s\",\"schedule\":\"%s\",\"precision\":\"%s\",\"storage\":\"%s\",\"mesh\":\"%s\","
           "\"threads\":%d,",
           benchmark, rig->schedule_name, rig->precision_name, rig->storage == SL_BF16 ? "bf16" : "f32", rig->mesh_text,
           rig->mesh.size);
    printf("\"kernels\":\"%s\",", sl_kernels_select()->name);
}

static void print_list(const char *name, int count, const double *values) {
    printf("\"%s\":[", name);
    for (int i = 0; i < count; i++) printf("%s%.6g", i ? "," : "", values[i]);
    printf("],");
}

void sl_rig_print_ms(const struct sl_rig *rig, double median, double theory_ms) {
    const double floor_ms = rig->floor_ms(rig, rig->floor.best);
    double *ratio = rig->round_ms;
    for (int i = 0; i < rig->rounds; i++) ratio[i] /= (rig->floors_ms[i] + rig->floors_ms[i + 1]) / 2;
    printf("\"ms\":%.9g,\"ms_min\":%.9g,\"ms_max\":%.9g,\"floor_ms\":%.9g,", median, rig->ms[0],
           rig->ms[rig->steps - 1], floor_ms);
    print_list("ratios", rig->rounds, ratio);
    printf("\"ratio\":%.9g,\"ratio_of_best\":%.9g,", sl_median(rig->rounds, ratio), median / floor_ms);
    if (theory_ms > 0) printf("\"theory_ms\":%.9g,", theory_ms);
    print_list("floors_ms", rig->rounds + 1, rig->floors_ms);
    print_list("samples_ms", rig->steps, rig->ms);
}
