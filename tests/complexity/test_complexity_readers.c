/* test_complexity_readers.c - files, directories and command lines are read in a time that grows as they do. */
#include "tests/rigs/complexity.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "drivers/classifier/idx.h"
#include "drivers/common/metrics.h"
#include "drivers/common/options.h"
#include "drivers/tools/report/runs/run.h"
#include "drivers/schedule/measured.h"
#include "drivers/speed/peak.h"
#include "drivers/schedule/costs.h"
#include "layers/formats/tokens/prompts.h"
#include "layers/formats/stores/safetensors.h"
#include "layers/formats/tokens/tokens.h"
#include "layers/training/checkpoint.h"
#include "spmd/schedule/csv.h"

/* ---- the file to read ---- */

/* The file that the last preparation wrote; it lies in memory. */
static char path[64];
static int descriptor;

static FILE *begin_file(void) {
    const int copy = ftruncate(descriptor, 0) ? -1 : dup(descriptor);
    FILE *file = copy >= 0 && lseek(copy, 0, SEEK_SET) == 0 ? fdopen(copy, "wb") : NULL;
    assert_non_null(file);
    return file;
}

static char directory[] = "/tmp/test_complexity.XXXXXX";
static int files; /* in it */
static const char *files_called = "";

static void file_name(int i, const char *format, char *name, size_t size) {
    snprintf(name, size, "%s/", directory);
    snprintf(name + strlen(name), size - strlen(name), format, i);
}

static void remove_files(void) {
    char name[128];
    for (; files > 0; files--) {
        file_name(files - 1, files_called, name, sizeof name);
        unlink(name);
        *strrchr(name, '/') = 0;
        rmdir(name); /* one of the files', or not empty yet */
    }
    mkdir(directory, 0700);
}

/* N files, called by FORMAT, which may have a directory for each, with a few bytes each. */
static void write_files(const char *format, int n) {
    char name[128];
    remove_files();
    files_called = format;
    for (; files < n; files++) {
        file_name(files, format, name, sizeof name);
        char *const slash = strrchr(name, '/');
        *slash = 0;
        mkdir(name, 0700);
        *slash = '/';
        FILE *file = fopen(name, "wb");
        assert_non_null(file);
        fputs("a text", file);
        fclose(file);
    }
}

/* ---- safetensors ---- */

/* Writes a file whose header FILL prints for a size of N, with BYTES of data. */
static void write_safetensors(void (*fill)(FILE *header, int n), int n, size_t bytes) {
    char *header;
    size_t length;
    FILE *text = open_memstream(&header, &length);
    assert_non_null(text);
    fill(text, n);
    fclose(text);
    const uint64_t prefix = length;
    FILE *file = begin_file();
    fwrite(&prefix, sizeof prefix, 1, file);
    fwrite(header, 1, length, file);
    for (size_t i = 0; i < bytes; i++) fputc(0, file);
    assert_int_equal(fclose(file), 0);
    free(header);
}

static void print_tensors(FILE *header, int n) {
    for (int i = 0; i < n; i++)
        fprintf(header, "%s\"tensor.%07d\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[%d,%d]}", i ? "," : "{",
                i * 7919 % n, 4 * i, 4 * i + 4);
    fputc('}', header);
}

static void print_notes(FILE *header, int n) {
    for (int i = 0; i < n; i++)
        fprintf(header, "%s\"key.%07d\":\"%d\"", i ? "," : "{\"__metadata__\":{", i * 7919 % n, i);
    fputs("}}", header);
}

static void prepare_tensors(const struct complexity_row *row, int n) {
    (void)row;
    write_safetensors(print_tensors, n, 4 * (size_t)n);
}

static void prepare_notes(const struct complexity_row *row, int n) {
    (void)row;
    write_safetensors(print_notes, n, 0);
}

static void read_safetensors(const struct complexity_row *row, int n) {
    (void)row;
    struct sl_store store = {0};
    struct sl_error error = {0};
    if (sl_safetensors_read(&store, path, &error)) fail_msg("%s", error.message);
    assert_int_equal(store.count + store.notes, n);
    sl_store_free(&store);
}

/* ---- directories ---- */

static void prepare_checkpoints(const struct complexity_row *row, int n) {
    (void)row;
    write_files("step-%08d.safetensors", n);
}

static void find_checkpoints(const struct complexity_row *row, int n) {
    (void)row;
    char latest[SL_MAX_PATH];
    struct sl_error error = {0};
    assert_true(sl_checkpoint_last_step(directory) < n);
    assert_int_equal(sl_checkpoint_latest(directory, latest, NULL, &error), SL_BAD_INPUT); /* none is whole */
}

static void prepare_texts(const struct complexity_row *row, int n) { write_files(row->about, n); }

static void read_texts(const struct complexity_row *row, int n) {
    (void)row;
    struct sl_tokens tokens;
    struct sl_error error = {0};
    int32_t inputs[256], labels[256];
    if (sl_tokens_open(&tokens, directory, NULL, 0.5, 2, &error)) fail_msg("%s", error.message);
    assert_int_equal(tokens.files, n);
    for (int i = 0; i < n; i++)
        assert_int_equal(sl_tokens_fetch(&tokens, false, 1, i, 1, 2, inputs, labels, &error), SL_OK);
    sl_tokens_close(&tokens);
}

/* ---- tokens in one file ---- */

static void prepare_shard(const struct complexity_row *row, int n) {
    (void)row;
    const int32_t header[256] = {20240520, 1, n};
    FILE *file = begin_file();
    fwrite(header, sizeof header, 1, file);
    for (int i = 0; i < n; i++) fwrite(&(uint16_t){(uint16_t)(i % 50000)}, 2, 1, file);
    assert_int_equal(fclose(file), 0);
}

static void prepare_packed(const struct complexity_row *row, int n) {
    (void)row;
    assert_int_equal(ftruncate(descriptor, 0), 0);
    gzFile file = gzopen(path, "wb1");
    assert_non_null(file);
    for (int i = 0; i < n; i++) gzputc(file, 'a' + (i * 7919 >> 5) % 25);
    assert_int_equal(gzclose(file), Z_OK);
}

static void print_rows(FILE *header, int n) {
    fprintf(header, "{\"tokens\":{\"dtype\":\"I32\",\"shape\":[%d,9],\"data_offsets\":[0,%d]}}", n, 36 * n);
}

static void prepare_rows(const struct complexity_row *row, int n) {
    (void)row;
    write_safetensors(print_rows, n, 36 * (size_t)n);
}

static void read_tokens(const struct complexity_row *row, int n) {
    struct sl_tokens tokens;
    struct sl_error error = {0};
    int32_t inputs[8], labels[8];
    if (sl_tokens_open(&tokens, path, NULL, 0, 8, &error)) fail_msg("%s", error.message);
    for (int i = 0; i < n / row->argument; i++)
        assert_int_equal(sl_tokens_fetch(&tokens, false, 1, i, 1, 8, inputs, labels, &error), SL_OK);
    sl_tokens_close(&tokens);
}

/* ---- IDX ---- */

static void prepare_idx(const struct complexity_row *row, int n) {
    const uint8_t header[8] = {0, 0, 8, 1, (uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n};
    assert_int_equal(ftruncate(descriptor, 0), 0);
    gzFile file = gzopen(path, row->argument ? "wb1" : "wbT");
    assert_non_null(file);
    gzwrite(file, header, sizeof header);
    for (int i = 0; i < n; i++) gzputc(file, i * 7919 >> 5 & 255);
    assert_int_equal(gzclose(file), Z_OK);
}

static void read_idx(const struct complexity_row *row, int n) {
    (void)row;
    struct classifier_idx idx;
    struct sl_error error = {0};
    if (classifier_idx_read(&idx, "/proc/self/fd", strrchr(path, '/') + 1, 1, &error)) fail_msg("%s", error.message);
    assert_int_equal(idx.shape[0], n);
    free(idx.data);
}

/* ---- schedules as CSV ---- */

/* A rank a line, with one stage and one microbatch. */
static void prepare_lines(const struct complexity_row *row, int n) {
    (void)row;
    FILE *file = begin_file();
    for (int i = 0; i < n; i++) fprintf(file, "%dF0,%dB0\n", i, i);
    assert_int_equal(fclose(file), 0);
}

static void prepare_wide_line(const struct complexity_row *row, int n) {
    (void)row;
    FILE *file = begin_file();
    for (int i = 0; i < n; i++) fprintf(file, "%s0F%d,,,0B%d", i ? "," : "", i, i);
    assert_int_equal(fclose(file), 0);
}

/* The first rank does the same again and again, while many others wait for its last action. */
static void prepare_duplicates(const struct complexity_row *row, int n) {
    (void)row;
    FILE *file = begin_file();
    for (int i = 0; i < n; i++) fputs("0F0,", file);
    fputs("0F1,0B0\n", file);
    for (int r = 1; r < n / 8; r++) fprintf(file, "%dF1\n", r);
    assert_int_equal(fclose(file), 0);
}

/* All stages on one line, the last one first. */
static void prepare_stages(const struct complexity_row *row, int n) {
    (void)row;
    FILE *file = begin_file();
    for (int i = n - 1; i >= 0; i--) fprintf(file, "%s%dF0", i < n - 1 ? "," : "", i);
    assert_int_equal(fclose(file), 0);
}

/* ARGUMENT is the status of reading it. */
static void read_csv(const struct complexity_row *row, int n) {
    (void)n;
    struct sl_schedule schedule;
    struct sl_error error = {0};
    const int status = sl_schedule_read_csv(&schedule, path, &error);
    if (status != row->argument) fail_msg("%d: %s", status, error.message);
    if (status == SL_OK) sl_schedule_free(&schedule);
}

/* ---- costs and traces ---- */

static void prepare_costs(const struct complexity_row *row, int n) {
    (void)row;
    FILE *file = begin_file();
    fputs("{\"forward\":[1", file);
    for (int i = 1; i < n; i++) fprintf(file, ",%d.5", i % 100);
    fputs("]}", file);
    assert_int_equal(fclose(file), 0);
}

static void read_costs(const struct complexity_row *row, int n) {
    (void)row;
    struct sl_costs costs = {0};
    struct sl_error error = {0};
    struct sl_stage_costs *stage = calloc((size_t)n, sizeof *stage);
    assert_non_null(stage);
    if (schedule_costs_read(&costs, stage, NULL, n, path, &error)) fail_msg("%s", error.message);
    free(stage);
}

static void event(FILE *file, const char *name, const char *category, double begin, double length, int step,
                  int stage) {
    fprintf(file,
            "{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%.1f,\"dur\":%.1f,\"args\":{\"step\":%d,\"rank\":0,"
            "\"loop\":0,\"data\":0,\"stage\":%d,\"microbatch\":0,\"count\":1}},\n",
            name, category, begin, length, step, stage);
}

/* Steps of one rank, ARGUMENT of them or one for each of N; and as many reductions and pauses as N says. */
static void prepare_trace(const struct complexity_row *row, int n) {
    const int steps = row->argument ? row->argument : n;
    FILE *file = begin_file();
    fputs("{\"traceEvents\":[", file);
    for (int s = 0; s < steps; s++) {
        const double at = 100.0 * s;
        event(file, "0F0", "compute", at, 10, s + 1, 0);
        event(file, "0B0", "compute", at + 20, 10, s + 1, 0);
        event(file, "0I0", "other", at + 20, 10, s + 1, 0);
        for (int i = 0; i < n / steps; i++) {
            event(file, "reduce", "reduce", at + 30 + i, 5, s + 1, 0);
            event(file, "waiting", "waiting", at + 30 + i, 0.5, s + 1, 0);
        }
    }
    fputs("{\"ph\":\"M\"}]}", file);
    assert_int_equal(fclose(file), 0);
}

static void read_trace(const struct complexity_row *row, int n) {
    (void)row, (void)n;
    struct schedule_trace trace;
    struct sl_error error = {0};
    if (schedule_trace_read(&trace, path, &error)) fail_msg("%s", error.message);
    schedule_trace_free(&trace);
}

static struct schedule_trace trace; /* that is measured; whole already, so that it stays as it is */

static void prepare_comparison(const struct complexity_row *row, int n) {
    struct sl_error error = {0};
    prepare_trace(row, n);
    schedule_trace_free(&trace);
    if (schedule_trace_read(&trace, path, &error)) fail_msg("%s", error.message);
}

static void compare(const struct complexity_row *row, int n) {
    struct schedule_measurement measurement;
    struct sl_schedule schedule;
    struct sl_stage_costs stage;
    struct sl_costs costs = {.count = 1, .stage = &stage};
    struct sl_error error = {0};
    if (sl_schedule_make(&schedule, "gpipe", 1, 1, 1, &error) ||
        schedule_trace_measure(&trace, &schedule, &costs, &stage, &measurement, &error))
        fail_msg("%s", error.message);
    assert_int_equal(measurement.steps, row->argument ? row->argument : n);
    struct schedule_measured_step step;
    if (schedule_measured_step_find(&step, &trace, &schedule, &error)) fail_msg("%s", error.message);
    schedule_measured_step_free(&step);
    schedule_measurement_free(&measurement);
    sl_schedule_free(&schedule);
}

/* ---- peaks of machines ---- */

static void prepare_peaks(const struct complexity_row *row, int n) {
    (void)row;
    FILE *file = begin_file();
    fputs("{\"peaks\":[", file);
    for (int i = 0; i < n; i++)
        fprintf(file,
                "%s{\"host\":\"h%d\",\"processor\":\"p\",\"library\":\"l\",\"precision\":\"f32\",\"cores\":2,"
                "\"flops_per_second\":1e9,\"date\":\"2001-02-03\"}",
                i ? "," : "", i);
    fputs("]}", file);
    assert_int_equal(fclose(file), 0);
}

static void read_peaks(const struct complexity_row *row, int n) {
    (void)row;
    struct sl_peak_key key = {.processor = "p", .library = "l", .precision = "f32", .cores = 2, .usable = -1};
    struct sl_peak peak;
    struct sl_error error = {0};
    snprintf(key.host, sizeof key.host, "h%d", n - 1);
    if (sl_peak_read(path, &key, &peak, &error)) fail_msg("%s", error.message);
    assert_true(peak.flops == 1e9);
}

/* ---- metrics of a run that goes on ---- */

static void prepare_metrics(const struct complexity_row *row, int n) {
    (void)row;
    FILE *file = begin_file();
    for (int i = 0; i < n; i++) fprintf(file, "{\"step\":%d,\"loss\":0.5}\n", i);
    assert_int_equal(fclose(file), 0);
}

static void open_metrics(const struct complexity_row *row, int n) {
    (void)row;
    struct sl_metrics_file file;
    struct sl_error error = {0};
    if (sl_metrics_open(&file, path, n, &error) || sl_metrics_close(&file, &error)) fail_msg("%s", error.message);
}

/* ---- metrics that are read ---- */

/* A line a step; if ARGUMENT is set, every step comes a second time, from the last one back. */
static void prepare_run(const struct complexity_row *row, int n) {
    FILE *file = begin_file();
    for (int i = 0; i < n; i++) fprintf(file, "{\"step\":%d,\"loss\":%d.5,\"ms\":4}\n", i, i % 100);
    for (int i = n - 1; row->argument && i >= 0; i--) fprintf(file, "{\"step\":%d,\"loss\":1,\"ms\":3}\n", i);
    assert_int_equal(fclose(file), 0);
}

static void read_run(const struct complexity_row *row, int n) {
    (void)row;
    struct report_run run = {.name = strdup("run"), .metrics = strdup(path)};
    struct sl_error error = {0};
    if (report_run_read(&run, &error)) fail_msg("%s", error.message);
    assert_int_equal(report_run_steps(&run), n);
    report_run_free(&run);
}

/* ---- command lines, meshes, specs ---- */

static void prepare_words(const struct complexity_row *row, int n) {
    (void)row;
    FILE *file = begin_file();
    for (int i = 0; i < n; i++) fprintf(file, "--count=%d # a comment\n", i);
    assert_int_equal(fclose(file), 0);
}

static void read_words(const struct complexity_row *row, int n) {
    (void)row;
    int value = 0;
    static const struct sl_option table[] = {{"count", SL_OPTION_INTEGER, 0, .min = 0, .max = 1e6, .help = "a number"},
                                             {0}};
    char argument[80];
    snprintf(argument, sizeof argument, "@%s", path);
    char *argv[] = {"complexity", argument, NULL};
    struct sl_options options = {
        .program = "complexity", .summary = "", .section = SL_SECTIONS({"All", table, &value})};
    assert_int_equal(sl_options_parse(&options, 2, argv), SL_OK);
    assert_int_equal(value, n - 1);
    sl_options_free(&options);
}

static char *text;

/* The text in ABOUT again and again. */
static void prepare_text(const struct complexity_row *row, int n) {
    const size_t length = strlen(row->about);
    free(text);
    text = malloc((size_t)n * length + 1);
    assert_non_null(text);
    for (int i = 0; i < n; i++) memcpy(text + (size_t)i * length, row->about, length);
    text[(size_t)n * length] = 0;
}

static void read_mesh_and_spec(const struct complexity_row *row, int n) {
    (void)row, (void)n;
    struct sl_mesh mesh;
    struct sl_spec spec;
    struct sl_error error = {0};
    assert_int_equal(sl_mesh_parse(&mesh, text, &error), SL_BAD_INPUT);
    assert_int_equal(sl_spec_parse(&spec, text, &error), SL_BAD_INPUT);
}

/* ---- rows ---- */

static void read_prompts(const struct complexity_row *row, int n) {
    (void)row;
    struct sl_prompts prompts = {0};
    assert_int_equal(sl_prompts_read(&prompts, path, 256, NULL), SL_OK);
    assert_int_equal(prompts.count, n);
    sl_prompts_free(&prompts);
}

static struct complexity_row rows[] = {
    {"safetensors: tensors", 256, prepare_tensors, read_safetensors, NULL, 0},
    {"safetensors: notes", 400, prepare_notes, read_safetensors, NULL, 0},
    {"a directory of checkpoints: files", 100, prepare_checkpoints, find_checkpoints, NULL, 0},
    {"tokens: files of a directory", 100, prepare_texts, read_texts, "%07d.txt", 0},
    {"tokens: files in directories", 100, prepare_texts, read_texts, "%07d/text", 0},
    {"tokens: packed bytes", 1 << 18, prepare_packed, read_tokens, NULL, 64},
    {"tokens: a shard", 4000, prepare_shard, read_tokens, NULL, 8},
    {"tokens: rows", 1000, prepare_rows, read_tokens, NULL, 1},
    {"IDX: bytes", 1 << 16, prepare_idx, read_idx, NULL, 0},
    {"IDX: compressed bytes", 1 << 16, prepare_idx, read_idx, NULL, 1},
    {"CSV: lines", 250, prepare_lines, read_csv, NULL, SL_OK},
    {"CSV: cells of a line", 1000, prepare_wide_line, read_csv, NULL, SL_OK},
    {"CSV: the same cell again", 4000, prepare_duplicates, read_csv, NULL, SL_BAD_INPUT},
    {"CSV: stages of a line", 1000, prepare_stages, read_csv, NULL, SL_BAD_INPUT},
    {"--prompts: lines", 1000, prepare_words, read_prompts, NULL, 0},
    {"--costs: numbers", 1000, prepare_costs, read_costs, NULL, 0},
    {"--compare: events that are read", 128, prepare_trace, read_trace, NULL, 1},
    {"--compare: steps", 128, prepare_comparison, compare, NULL, 0},
    {"--compare: events of a step", 128, prepare_comparison, compare, NULL, 1},
    {"--compare: events of four steps", 128, prepare_comparison, compare, NULL, 4},
    {"peaks: machines", 200, prepare_peaks, read_peaks, NULL, 0},
    {"--metrics: lines of a run that goes on", 1000, prepare_metrics, open_metrics, NULL, 0},
    {"report: steps", 1000, prepare_run, read_run, NULL, 0},
    {"report: steps of a resumed run", 1000, prepare_run, read_run, NULL, 1},
    {"options: words of a file", 250, prepare_words, read_words, NULL, 0},
    {"meshes and specs: letters", 10000, prepare_text, read_mesh_and_spec, "a", 0},
    {"meshes and specs: axes", 10000, prepare_text, read_mesh_and_spec, "a=1,", 0},
    {"meshes and specs: joined axes", 10000, prepare_text, read_mesh_and_spec, "a+", 0},
    {"meshes and specs: digits", 10000, prepare_text, read_mesh_and_spec, "1", 0},
};

int main(void) {
    descriptor = memfd_create("complexity", 0);
    if (descriptor < 0 || !mkdtemp(directory)) return 1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    const int failed = complexity_run("readers", rows, sizeof rows / sizeof *rows);
    remove_files();
    rmdir(directory);
    schedule_trace_free(&trace);
    free(text);
    return failed;
}
