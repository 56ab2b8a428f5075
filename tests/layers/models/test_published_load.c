/* test_published_load.c - loading of published models: parameters have the same values in every layout; values that do
 * not fit the model's parameters, and lack of memory, end the load with a line. */
#include "tests/rigs/changes.h"
#include "tests/rigs/folder.h"
#include "tests/rigs/transformer_job.h"

#include "layers/models/published/published.h"

static char folder[FOLDER], config[FOLDER + 30], model[FOLDER + 30];

/* ---- memory ---- */

static _Atomic int allocations_left = -1; /* of this program's own objects; -1: any number */

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size) {
    if (allocations_left == 0) return NULL;
    if (allocations_left > 0) allocations_left--;
    return __real_malloc(size);
}

/* ---- loading ---- */

/* A job's published model. */
struct load {
    struct sl_published published;
    char path[300];  /* outlives the run */
    int allocations; /* successful allocations before one fails; -1: all succeed */
};

static int load_values(struct worker *worker) {
    struct sl_spmd *self = worker->self;
    const struct load *from = worker->job->user;
    struct sl_group world;
    SL_TRY(sl_group_axes(self, "*", &world));
    allocations_left = from->allocations;
    const int status = sl_published_load(&from->published, self, &world, sl_trainer_parameters(worker->trainer));
    allocations_left = -1;
    SL_TRY(status);
    SL_TRY(sl_trainer_export(worker->trainer, false, &worker->job->values));
    return sl_group_close(self, &world);
}

static struct job job_of(struct load *load, const char *family, const char *mesh) {
    struct job job = small_job(mesh);
    struct sl_error error = {0};
    *load = (struct load){.allocations = -1};
    snprintf(load->path, sizeof load->path, SL_TEST_DATA "/published/%s", family);
    if (sl_published_open(&load->published, load->path, &error)) fail_msg("%s", error.message);
    job.model = load->published.transformer;
    job.model.layers_per_block = 1;
    job.model.positions = job.sequence;
    job.program = load_values;
    job.user = load;
    return job;
}

static const struct layout {
    const char *mesh;
    enum sl_dtype precision, storage;
    bool apart; /* each replica updates only its own shard */
    bool forward_only, fsdp, adapters;
} layouts[] = {
    {"data=2,pipe=1,tensor=1", SL_F32, SL_F32, false, false, false, false},
    {"data=2,pipe=2,tensor=1", SL_F32, SL_F32, true, false, false, false},
    {"data=2,pipe=1,tensor=2", SL_F32, SL_F32, true, false, true, false},
    {"data=2,pipe=1,tensor=1", SL_BF16, SL_BF16, true, false, false, false},
    {"data=1,pipe=2,tensor=2", SL_BF16, SL_BF16, true, false, false, false},
    {"data=1,pipe=2,tensor=1", SL_BF16, SL_BF16, true, true, false, false},
    {"data=1,pipe=1,tensor=2", SL_F32, SL_F32, true, false, false, true},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

/* The published values are bf16: none is rounded, wherever it is held. */
static void all_layouts_hold_the_same_values(void **state) {
    static const char *const families[] = {"llama", "gpt2"};
    (void)state;
    for (int f = 0; f < 2; f++) {
        struct load load;
        struct job want = job_of(&load, families[f], "data=1,pipe=1,tensor=1");
        run_job(&want);
        if (has_results()) assert_true(want.values.count > 10);
        for (int i = 0; i < LAYOUTS; i++) {
            const struct layout *layout = &layouts[i];
            struct job job = want;
            job.table = (struct sl_schedule){0};
            job.values = (struct sl_store){0};
            job.mesh = layout->mesh;
            job.precision = layout->precision;
            job.storage = layout->storage;
            job.shared_out = layout->apart;
            job.forward_only = layout->forward_only;
            job.model.fsdp = layout->fsdp;
            if (layout->adapters) job.model.lora = (struct sl_lora){2, 4}, job.adapters = "*.lora_?.kernel";
            run_job(&job);
            for (int t = 0; t < want.values.count && has_results(); t++) {
                const struct sl_tensor *tensor = &want.values.tensor[t];
                if (memcmp(tensor->array.data, same_tensor(&job.values, tensor)->array.data, sl_tensor_bytes(tensor)))
                    fail_msg("%s, layout %d: other values of %s", families[f], i, tensor->name);
            }
            free_job(&job);
        }
        free_job(&want);
        sl_published_close(&load.published);
    }
}

/* ---- failures ---- */

static void expect_failure(struct job *job, int status, const char *line) {
    struct sl_error error = {0};
    assert_int_equal(try_job(job, &error), status);
    if (!strstr(error.message, line)) fail_msg("\"%s\" is not in: %s", line, error.message);
    free_job(job);
}

static void memory_is_missing(void **state) {
    (void)state;
    for (int allocations = 0; allocations < 2; allocations++) {
        struct load load;
        struct job job = job_of(&load, "llama", "data=1,pipe=1,tensor=1");
        load.allocations = allocations;
        expect_failure(&job, SL_FAILED, "no memory to read ");
        sl_published_close(&load.published);
    }
}

/* A model with other parameters than the published one. */
static void parameters_of_another_model(void **state) {
    (void)state;
    struct load load;
    struct job job = job_of(&load, "llama", "data=1,pipe=1,tensor=1"), other = small_job(job.mesh);
    other.model.vocabulary = job.model.vocabulary;
    other.model.dimension = job.model.dimension;
    other.model.heads = 2;
    job.model = other.model;
    expect_failure(&job, SL_BAD_INPUT, "it has no parameter blocks.0.layers.0.");
    sl_published_close(&load.published);
}

/* ---- files ---- */

/* Copies FAMILY to the folder with a change of its tensors. */
static void copy_family(const char *family, void (*change)(struct sl_store *store)) {
    char path[300];
    struct sl_store store = {0};
    struct sl_error error = {0};
    snprintf(path, sizeof path, SL_TEST_DATA "/published/%s/config.json", family);
    char *text = read_text(path);
    write_file(config, text, strlen(text));
    free(text);
    snprintf(path, sizeof path, SL_TEST_DATA "/published/%s/model.safetensors", family);
    if (sl_safetensors_read(&store, path, &error)) fail_msg("%s", error.message);
    change(&store);
    if (sl_safetensors_write(&store, model, &error)) fail_msg("%s", error.message);
    sl_store_free(&store);
}

static void leave_out_beginnings(struct sl_store *store) {
    static const char beginning[] = "transformer.";
    const size_t count = sizeof beginning - 1;
    for (int i = 0; i < store->count; i++) {
        char *name = store->tensor[i].name;
        if (!strncmp(name, beginning, count)) memmove(name, name + count, strlen(name + count) + 1);
    }
}

static void rename_tensor(struct sl_store *store, const char *end) {
    for (int i = 0; i < store->count; i++) {
        char *name = store->tensor[i].name;
        if (strlen(name) >= strlen(end) && !strcmp(name + strlen(name) - strlen(end), end)) name[0] = 'x';
    }
}

static void rename_last_shift(struct sl_store *store) { rename_tensor(store, "ln_f.bias"); }

static void make_norm_a_table(struct sl_store *store) {
    for (int i = 0; i < store->count; i++) {
        struct sl_array *array = &store->tensor[i].array;
        if (!strcmp(store->tensor[i].name, "model.norm.weight")) array->dims = 2, array->shape[1] = 1;
    }
}

static void turn_kernels(struct sl_store *store) {
    for (int i = 0; i < store->count; i++) {
        struct sl_array *array = &store->tensor[i].array;
        if (!strstr(store->tensor[i].name, "up_proj")) continue;
        const size_t rows = array->shape[0];
        array->shape[0] = array->shape[1];
        array->shape[1] = rows;
    }
}

static void swap_columns(struct sl_store *store) {
    for (int i = 0; i < store->count; i++) {
        struct sl_array *array = &store->tensor[i].array;
        if (!strstr(store->tensor[i].name, "up_proj")) continue;
        array->shape[0] *= array->shape[1];
        array->shape[1] = 1;
    }
}

static void folders(void **state) {
    (void)state;
    static const struct {
        const char *family;
        void (*change)(struct sl_store *store);
        const char *line; /* NULL: it is read */
    } row[] = {
        {"gpt2", leave_out_beginnings, NULL},
        {"gpt2", rename_last_shift, "ln_f.bias is missing"},
        {"llama", make_norm_a_table, "tensor model.norm.weight is [24, 1], and its sizes say [24, 1]"},
        {"llama", turn_kernels, "up_proj.weight is ["},
        {"llama", swap_columns, "up_proj.weight is ["},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct sl_published published;
        struct sl_error error = {0};
        copy_family(row[i].family, row[i].change);
        const int status = sl_published_open(&published, folder, &error);
        expect_line(row[i].family, status, &error, row[i].line);
        sl_published_close(&published);
    }
}

static int make_files(void **state) {
    (void)state;
    if (!make_folder(folder, "test_published_load")) return -1;
    snprintf(config, sizeof config, "%s/config.json", folder);
    snprintf(model, sizeof model, "%s/model.safetensors", folder);
    return 0;
}

static int remove_files(void **state) {
    (void)state;
    unlink(config);
    unlink(model);
    return rmdir(folder);
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_layouts_hold_the_same_values),
        cmocka_unit_test(memory_is_missing),
        cmocka_unit_test(parameters_of_another_model),
        cmocka_unit_test(folders),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
