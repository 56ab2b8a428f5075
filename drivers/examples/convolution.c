/* convolution.c - an example to copy: stages with different output widths, connections that skip stages, images sharded
 * by lines, convolutions sharded by channels. It teaches how coordinates share a layer's arrays and exchange the edges.
 *
 * The mesh has the axes data, pipe, rows and tensor, any of which may be left out. A network of convolutions and a head
 * is pipelined over "pipe": --network plain, with ever smaller messages between stages; or residual or u-shaped, in
 * which a layer's result also goes to a later stage, through the stages between (convolution_skips.h). Along "rows"
 * coordinates have bands of lines of the same images, and exchange the lines at the bands' edges; along "tensor" they
 * have parts of the channels: convolution_layers.h. --schedule names the pipeline's schedule, which has two loops if it
 * can and the network has enough blocks. Without a mesh the program trains on random images on several meshes and
 * compares the losses; with a mesh and epochs it trains on Fashion-MNIST. At the end it prints the predicted and the
 * measured time of a step of the last mesh (layers/models/forecast.h). --trace FILE records the activities of the last
 * mesh's coordinates, for Perfetto and shardloop-schedule --compare. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>

#include "convolution_network.h"

/* ---- Fashion-MNIST ---- */

#define DIRECTORY "/usr/share/datasets/fashion-mnist"
#define READ(name) "gzip -dc " DIRECTORY "/" name ".gz 2>/dev/null" /* a shell command */

/* Reads the output of COMMAND, a file in the IDX format: *COUNT times EACH bytes behind a header of HEADER bytes. */
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

enum { COMPARED = 32 }; /* images a step of a comparison */

/* Describes the run, for a trace and a forecast. */
static struct sl_trace_run about(const struct network_run *run, const struct sl_mesh *mesh,
                                 const struct sl_engine *engine) {
    return (struct sl_trace_run){.mesh = mesh,
                                 .pipe_axis = "pipe",
                                 .data_axis = "data",
                                 .schedule = &run->schedule,
                                 .passes = 1,
                                 .wgrad_group = MICROBATCHES,
                                 .overlap = true,
                                 .cores = strcmp(engine->table->name, "local") == 0 ? sl_topology_usable() : 0};
}

static int open_trace(struct network_run *run, const struct sl_trace_run *told, const struct sl_engine *engine,
                      struct sl_error *error) {
    SL_TRY(sl_trace_file_open(run->trace, told, TRACED, error));
    if (run->trace->stream || !sl_speaks(engine)) return SL_OK;
    return sl_trace_file_create(run->trace, "--trace", run->trace->path, error);
}

/* Runs on the mesh LAYOUT over the engine NAME. FORECAST may be NULL. */
static int run_mesh(struct network_run *run, const char *layout, const char *name, struct sl_step_forecast *forecast,
                    struct sl_error *error) {
    struct sl_mesh mesh;
    struct sl_engine engine = {0};
    SL_TRY(sl_mesh_parse(&mesh, layout, error));
    SL_TRY(sl_engine_open(&engine, name, error));
    struct sl_watch *watch = calloc((size_t)mesh.size, sizeof *watch);
    if (!watch) return sl_error_set(error, SL_FAILED, "no memory to watch %d coordinates", mesh.size);
    engine.error = error;
    engine.checked = true; /* a wrong call of the program ends with a verdict (docs/engines.md) */
    int status = network_schedule(run, sl_mesh_axis_size(&mesh, "pipe"), error);
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

/* Stages do not change any bit; bands, channels and replicas change the order of sums, and so their rounding. */
static int compare(struct network_run run, struct sl_trace_file *trace, struct sl_error *error) {
    static const char *const mesh[] = {"data=1,pipe=1,rows=1", "data=1,pipe=3,rows=1", "data=1,pipe=1,rows=2",
                                       "data=1,pipe=1,tensor=2", "data=2,pipe=2,rows=2"};
    const size_t meshes = sizeof mesh / sizeof *mesh;
    double single[MOST_STEPS], difference = 0;
    for (size_t m = 0; m < meshes; m++) { /* checks all meshes before anything is printed */
        struct sl_mesh parsed;
        SL_TRY(sl_mesh_parse(&parsed, mesh[m], error));
        SL_TRY(network_schedule(&run, sl_mesh_axis_size(&parsed, "pipe"), error));
        sl_schedule_free(&run.schedule);
    }
    run.steps = MOST_STEPS;
    run.batch = COMPARED;
    if (trace) SL_TRY(sl_trace_file_create(trace, "--trace", trace->path, error));
    int status = images_draw(&run.train, MOST_STEPS * COMPARED);
    if (status) sl_error_set(error, status, "no memory for images");
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

static int train(struct network_run run, const char *mesh, const char *engine, struct sl_error *error) {
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

/* Reports errors of stdout, such as a full disk. */
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

#define USAGE "convolution: [MESH EPOCHS [ENGINE]] [--trace FILE] [--network N] [--schedule N]\n"

/* Arguments other than options. */
struct words {
    int count;
    const char *word[3]; /* mesh, epochs, engine */
};

/* False if ARGV does not match USAGE, or a network does not exist. */
static bool read_arguments(int argc, char **argv, struct words *words, struct network_run *run,
                           struct sl_trace_file *trace) {
    for (int i = 1; i < argc; i++) {
        const char *value = argv[i][0] == '-' && i + 1 < argc ? argv[i + 1] : NULL;
        if (value && !strcmp(argv[i], "--trace")) {
            trace->path = value;
        } else if (value && !strcmp(argv[i], "--schedule")) {
            run->scheduled = value;
        } else if (value && !strcmp(argv[i], "--network")) {
            run->network = network_find(value);
            if (!run->network) {
                fprintf(stderr, "convolution: --network: \"%s\" is not plain, residual or u-shaped\n", value);
                return false;
            }
        } else if (argv[i][0] == '-' || words->count == 3) {
            break;
        } else {
            words->word[words->count++] = argv[i];
            value = NULL;
        }
        i += value != NULL;
        if (i == argc - 1 && words->count != 1) return true;
    }
    if (argc == 1) return true;
    fputs(USAGE, stderr);
    return false;
}

int main(int argc, char **argv) {
    struct sl_error error = {0};
    struct sl_trace_file trace = {0};
    struct network_run run = {.network = &networks[0], .scheduled = "1f1b", .batch = BATCH};
    struct words words = {.word = {NULL, NULL, "local"}};
    char *end = NULL;
    signal(SIGXFSZ, SIG_IGN); /* so that a file size limit is a write error, too */
    if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
        fputs(USAGE "such as data=1,pipe=2,rows=2 5 local; networks: plain, residual, u-shaped\n", stdout);
        return finish(SL_OK, &error);
    }
    if (!read_arguments(argc, argv, &words, &run, &trace)) return SL_BAD_INPUT;
    const long epochs = words.count ? strtol(words.word[1], &end, 10) : 1;
    if (words.count && (*end || epochs < 1 || epochs > 1000)) {
        fputs(USAGE, stderr);
        return SL_BAD_INPUT;
    }
    run.trace = trace.path ? &trace : NULL;
    run.epochs = words.count ? (int)epochs : 0;
    int status = sl_cpu_level_check(&error); /* checks SHARDLOOP_CPU_LEVEL */
    if (status == SL_OK)
        status = words.count ? train(run, words.word[0], words.word[2], &error) : compare(run, run.trace, &error);
    sl_trace_file_free(&trace);
    return finish(status, &error);
}
