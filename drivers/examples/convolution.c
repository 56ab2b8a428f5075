/* convolution.c - an example to copy: stages that hand over different widths, and images whose lines are sharded. It
 * teaches how coordinates share a layer's arrays and exchange the edges.
 *
 * The mesh has the axes data, pipe and rows, any of which may be left out. A network of two convolutions and a head is
 * pipelined over "pipe"; what its stages hand over shrinks. Along "rows" coordinates have bands of lines of the same
 * images, and exchange the lines at the bands' edges: convolution_layers.h. Without arguments it trains on
 * random images on several meshes and compares the losses; with a mesh and epochs on Fashion-MNIST. At the end stands
 * what a step of the last mesh should have taken beside what it took (layers/models/forecast.h). --trace FILE
 * records what the last mesh's coordinates do when, for Perfetto and shardloop-schedule --compare. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>

#include "convolution_network.h"

/* ---- Fashion-MNIST ---- */

#define DIRECTORY "/usr/share/datasets/fashion-mnist"
#define READ(name) "gzip -dc " DIRECTORY "/" name ".gz 2>/dev/null" /* a command */

/* Reads what COMMAND prints, a file in the IDX format: *COUNT times EACH bytes behind a header of HEADER bytes. */
static int read_idx(const char *command, size_t header, size_t each, uint32_t *count, uint8_t **data,
                    struct sl_error *error) {
    uint8_t begin[16];
    FILE *file = popen(command, "r");
    bool whole = file && fread(begin, 1, header, file) == header;
    *count = whole ? (uint32_t)begin[4] << 24 | (uint32_t)begin[5] << 16 | (uint32_t)begin[6] << 8 | begin[7] : 0;
    whole = whole && *count > 0 && *count <= 1 << 20 && (*data = malloc(*count * each));
    whole = whole && fread(*data, each, *count, file) == *count;
    if (file && pclose(file)) whole = false;
    if (whole) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT,
                        DIRECTORY " does not have the images: install gzip and Debian's package dataset-fashion-mnist");
}

static int read_images(struct images *images, const char *pixels, const char *labels, struct sl_error *error) {
    uint32_t count;
    SL_TRY(read_idx(pixels, 16, PIXELS * PIXELS, &images->count, &images->pixels, error));
    SL_TRY(read_idx(labels, 8, 1, &count, &images->labels, error));
    for (uint32_t i = 0; i < count; i++)
        if (count != images->count || images->labels[i] >= CLASSES)
            return sl_error_set(error, SL_BAD_INPUT, DIRECTORY " has labels that are not those of its images");
    return SL_OK;
}

/* ---- runs ---- */

/* What a trace and a forecast tell of it. */
static struct sl_trace_run about(const struct network_run *run, const struct sl_mesh *mesh,
                                 const struct sl_engine *engine) {
    return (struct sl_trace_run){.mesh = mesh,
                                 .pipe_axis = "pipe",
                                 .data_axis = "data",
                                 .schedule = &run->schedule,
                                 .passes = 1,
                                 .wgrad_group = MICROBATCHES,
                                 .overlap = true,
                                 .cores = engine->table == &sl_engine_local ? sl_topology_usable() : 0};
}

static int open_trace(struct network_run *run, const struct sl_trace_run *told, const struct sl_engine *engine,
                      struct sl_error *error) {
    SL_TRY(sl_trace_file_open(run->trace, told, TRACED, error));
    if (run->trace->stream || !sl_speaks(engine)) return SL_OK;
    return sl_trace_file_create(run->trace, "--trace", run->trace->path, error);
}

/* On the mesh LAYOUT over the engine NAME. FORECAST NULL: nobody asks for it. */
static int run_mesh(struct network_run *run, const char *layout, const char *name, struct sl_step_forecast *forecast,
                    struct sl_error *error) {
    struct sl_mesh mesh;
    struct sl_engine engine = {0};
    SL_TRY(sl_mesh_parse(&mesh, layout, error));
    SL_TRY(sl_engine_open(&engine, name, error));
    struct sl_watch *watch = calloc((size_t)mesh.size, sizeof *watch);
    if (!watch) return sl_error_set(error, SL_FAILED, "no memory to watch %d coordinates", mesh.size);
    engine.error = error;
    engine.checked = true; /* a mistake in one's own calls ends with a verdict (docs/engines.md) */
    int status = sl_schedule_make(&run->schedule, "1f1b", sl_mesh_axis_size(&mesh, "pipe"), 1, MICROBATCHES, error);
    if (status == SL_OK) status = sl_schedule_lower(&run->schedule, error);
    const struct sl_trace_run told = about(run, &mesh, &engine);
    run->watch = forecast ? watch : NULL;
    if (status == SL_OK && run->trace) status = open_trace(run, &told, &engine, error);
    if (status == SL_OK) status = sl_run(&mesh, &engine, network_program, run);
    if (status == SL_OK && forecast && sl_speaks(&engine))
        status = sl_step_forecast_make(forecast, &told, watch, run->watched, error);
    if (status == SL_OK && run->trace && sl_speaks(&engine)) status = sl_trace_file_write(run->trace, error);
    sl_schedule_free(&run->schedule);
    free(watch);
    return status;
}

/* Stages change no bit; bands and replicas change the order of sums, and so their rounding. */
static int compare(struct sl_trace_file *trace, struct sl_error *error) {
    static const char *const mesh[] = {"data=1,pipe=1,rows=1", "data=1,pipe=3,rows=1", "data=1,pipe=1,rows=2",
                                       "data=2,pipe=2,rows=2"};
    struct network_run run = {.steps = MOST_STEPS};
    double single[MOST_STEPS], difference = 0;
    if (trace) SL_TRY(sl_trace_file_create(trace, "--trace", trace->path, error)); /* before anything is printed */
    int status = images_draw(&run.train, MOST_STEPS * BATCH);
    if (status) sl_error_set(error, status, "no memory for images");
    const size_t meshes = sizeof mesh / sizeof *mesh;
    struct sl_step_forecast forecast;
    for (size_t m = 0; status == SL_OK && m < meshes; m++) {
        run.trace = m == meshes - 1 ? trace : NULL;
        status = run_mesh(&run, mesh[m], "local", m == meshes - 1 ? &forecast : NULL, error);
        sl_store_free(&run.gradients);
        if (status) break;
        printf("%s ", mesh[m]);
        for (int step = 0; step < MOST_STEPS; step++) {
            if (m == 0) single[step] = run.loss[step];
            difference = fmax(difference, fabs(run.loss[step] / single[step] - 1));
            printf("  %.7f", run.loss[step]);
        }
        putchar('\n');
    }
    images_free(&run.train);
    if (status) return status;
    printf("largest relative difference %.1e: %s\n", difference, difference < 1e-4 ? "equal" : "not equal");
    sl_step_forecast_print(&forecast, stdout);
    return difference < 1e-4 ? SL_OK : 1;
}

static int train(const char *mesh, int epochs, const char *engine, struct sl_trace_file *trace,
                 struct sl_error *error) {
    struct network_run run = {.epochs = epochs, .trace = trace};
    struct sl_step_forecast forecast = {0};
    int status = read_images(&run.train, READ("train-images-idx3-ubyte"), READ("train-labels-idx1-ubyte"), error);
    if (status == SL_OK)
        status = read_images(&run.test, READ("t10k-images-idx3-ubyte"), READ("t10k-labels-idx1-ubyte"), error);
    if (status == SL_OK) status = run_mesh(&run, mesh, engine, &forecast, error);
    if (status == SL_OK && forecast.ms > 0) sl_step_forecast_print(&forecast, stdout);
    images_free(&run.train);
    images_free(&run.test);
    return status;
}

/* What was printed may have gone to a full disk. */
static int finish(int status, const struct sl_error *error) {
    errno = 0;
    if (error->status) {
        fprintf(stderr, "convolution: %s\n", error->message);
    } else if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "convolution: stdout: %s\n", errno ? strerror(errno) : "could not be written");
        status = SL_FAILED;
    }
    return status;
}

int main(int argc, char **argv) {
    struct sl_error error = {0};
    char *end = NULL;
    const char *traced = argc > 2 && !strcmp(argv[argc - 2], "--trace") ? argv[argc - 1] : NULL;
    argc -= traced ? 2 : 0;
    signal(SIGXFSZ, SIG_IGN); /* a limit on the size of files is an error of the write, too */
    const bool help = argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));
    const long epochs = argc > 2 ? strtol(argv[2], &end, 10) : 0;
    if (help || argc == 2 || argc > 4 || (argc > 2 && (*end || epochs < 1 || epochs > 1000))) {
        fprintf(help ? stdout : stderr, "convolution: an example; it takes no arguments, or MESH EPOCHS [ENGINE]%s",
                help ? ",\nsuch as data=1,pipe=2,rows=2 5 local, and after them --trace FILE\n"
                     : "; and --trace FILE\n");
        return help ? finish(SL_OK, &error) : SL_BAD_INPUT;
    }
    struct sl_trace_file file = {.path = traced}, *trace = traced ? &file : NULL;
    const char *engine = argc > 3 ? argv[3] : "local";
    int status = sl_cpu_level_check(&error); /* of SHARDLOOP_CPU_LEVEL */
    if (status == SL_OK)
        status = argc == 1 ? compare(trace, &error) : train(argv[1], (int)epochs, engine, trace, &error);
    sl_trace_file_free(&file);
    return finish(status, &error);
}
