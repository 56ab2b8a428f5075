/* test_journal.c - journals: the run's bits are unchanged, hashes equal those of whole arrays in every layout, a killed
 * run's journal can be read and continued, damage is refused, and a step allocates nothing. */
#include "tests/rigs/allocations.h"
#include "tests/rigs/folder.h"
#include "tests/rigs/transformer_job.h"

/* ---- runs ---- */

struct request {
    char folder[FOLDER];
    int every, first, end; /* steps to take */
    bool resumes;
    long allocated; /* by all coordinates, from the second step on */
};

static int record(struct worker *worker) {
    struct job *job = worker->job;
    struct request *request = job->user;
    struct sl_journal *journal = NULL;
    const struct sl_journal_options options = {
        .directory = request->folder, .every = request->every, .resumes = request->resumes};
    sl_trainer_set_steps(worker->trainer, request->first);
    int status = sl_trainer_open_journal(worker->trainer, &worker->model, &options, &journal);
    if (status == SL_OK) status = train_steps(worker, request->first, request->first + 1);
    if (status == SL_OK) status = sl_barrier(worker->self, sl_trainer_world(worker->trainer));
    const long before = allocations;
    if (status == SL_OK) status = train_steps(worker, request->first + 1, request->end);
    if (status == SL_OK) status = sl_barrier(worker->self, sl_trainer_world(worker->trainer));
    if (worker->self->coordinate == 0) request->allocated = allocations - before;
    if (status == SL_OK) status = sl_barrier(worker->self, sl_trainer_world(worker->trainer));
    sl_trainer_set_journal(worker->trainer, NULL);
    if (status == SL_OK) status = sl_trainer_export(worker->trainer, false, &job->values);
    if (status == SL_OK) status = sl_trainer_export(worker->trainer, true, &job->gradients);
    sl_journal_close(journal);
    return status;
}

static int plain(struct worker *worker) {
    struct job *job = worker->job;
    SL_TRY(train_steps(worker, 0, job->steps));
    SL_TRY(sl_trainer_export(worker->trainer, false, &job->values));
    return sl_trainer_export(worker->trainer, true, &job->gradients);
}

static void begin(struct request *request, int steps) {
    *request = (struct request){.end = steps};
    assert_true(make_folder(request->folder, "journal"));
}

static void path_of(const struct request *request, int coordinate, char path[SL_MAX_PATH]) {
    assert_int_equal(sl_journal_name(request->folder, coordinate, path, NULL), SL_OK);
}

static void end(const struct request *request) {
    char path[SL_MAX_PATH];
    for (int c = 0; c < MOST_COORDINATES; c++) {
        path_of(request, c, path);
        unlink(path);
    }
    rmdir(request->folder);
}

/* ---- reading ---- */

static void open_file(const struct request *request, int coordinate, struct sl_journal_file *file) {
    struct sl_error error = {0};
    char path[SL_MAX_PATH];
    path_of(request, coordinate, path);
    if (sl_journal_file_open(file, path, &error)) fail_msg("%s", error.message);
}

/* Reads up to STEP. */
static void read_step(struct sl_journal_file *file, int64_t step) {
    struct sl_error error = {0};
    bool more = true;
    while (file->step != step) {
        if (sl_journal_next(file, &more, &error)) fail_msg("%s", error.message);
        if (!more) fail_msg("%s has no step %lld", file->path, (long long)step);
    }
}

/* Returns the sum of all coordinates' hashes of parts of the tensor NAME. FILES are at that step. */
static uint64_t total_of(const struct sl_journal_file *files, int coordinates, enum sl_journal_kind kind,
                         const char *name) {
    uint64_t total = 0;
    int found = 0;
    for (int c = 0; c < coordinates; c++) {
        const struct sl_journal_file *file = &files[c];
        for (int r = 0; r < file->count; r++) {
            const struct sl_journal_record *record = &file->record[r];
            if (record->kind != kind || strcmp(file->tensor[record->item].name, name) != 0) continue;
            if (!file->tensor[record->item].counts) continue;
            total += record->hash;
            found++;
        }
    }
    if (!found) fail_msg("nothing of %s", name);
    return total;
}

/* Exported gradients are means over data, a power of two. */
static void expect_hashes(const char *what, const struct request *request, const struct job *job, int64_t step,
                          enum sl_journal_kind kind, const struct sl_store *store, float factor) {
    struct sl_journal_file files[MOST_COORDINATES];
    const int coordinates = coordinates_of(job->mesh);
    struct sl_places places;
    sl_places_open(&places);
    for (int c = 0; c < coordinates; c++) {
        open_file(request, c, &files[c]);
        read_step(&files[c], step);
    }
    for (int i = 0; i < store->count; i += 1 + i % 3) { /* all kinds of them, and not all */
        const struct sl_tensor *tensor = &store->tensor[i];
        const size_t count = sl_array_elements(&tensor->array);
        float *scaled = malloc((count + 1) * sizeof *scaled);
        assert_non_null(scaled);
        for (size_t e = 0; e < count; e++) scaled[e] = factor * ((const float *)tensor->array.data)[e];
        const uint64_t wanted = sl_places_hash(&places, 0, scaled, count);
        free(scaled);
        if (total_of(files, coordinates, kind, tensor->name) != wanted)
            fail_msg("%s: %s: another hash, of kind %d", what, tensor->name, (int)kind);
    }
    for (int c = 0; c < coordinates; c++) sl_journal_file_close(&files[c]);
}

/* ---- tests ---- */

static void hashes_are_those_of_whole_arrays(void **state) {
    (void)state;
    static const struct {
        const char *mesh, *schedule;
        int loops, zero, accumulate;
        bool fsdp, bf16;
        float clip;
        bool sgd; /* it makes no hash itself */
    } cases[] = {
        {"data=1,pipe=1,tensor=1", "gpipe", 1, 1, 0, false, false, 0, false},
        {"data=2,pipe=2,tensor=2", "1f1b", 1, 1, 0, false, false, 0, false},
        {"data=2,pipe=2,tensor=2", "1f1b", 1, 0, 0, true, false, 1e-2f, false},
        {"data=2,pipe=2,tensor=1", "looped-bfs", 2, 2, 0, false, false, 0, false},
        {"data=4,pipe=1,tensor=2", "gpipe", 1, 1, 2, true, true, 0, false},
        {"data=4,pipe=2,tensor=1", "1f1b", 1, 1, 0, false, true, 0, false},
        {"tensor=4,pipe=2,data=1", "zbv", 2, 1, 0, false, false, 0, false},
        {"data=2,pipe=2,tensor=2", "1f1b", 1, 1, 0, false, false, 0, true},
        {"data=4,pipe=1,tensor=2", "gpipe", 1, 1, 0, true, false, 0, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (test_runs_few && i % 3 != 1) continue; /* of each kind of shard and of optimizer one */
        struct job jobs[2];
        struct request request;
        for (int journal = 0; journal < 2; journal++) {
            jobs[journal] = small_job(cases[i].mesh);
            struct job *job = &jobs[journal];
            job->schedule = cases[i].schedule;
            job->loops = cases[i].loops;
            job->shared_out = cases[i].zero;
            job->accumulate = cases[i].accumulate;
            job->model.fsdp = cases[i].fsdp;
            job->storage = cases[i].bf16 ? SL_BF16 : SL_F32;
            job->clip = cases[i].clip;
            if (cases[i].sgd) job->optimizer = sl_sgd_defaults(1e-2f);
            job->program = journal ? record : plain;
            job->user = &request;
            if (journal) begin(&request, job->steps);
            run_job(job);
        }
        char what[80];
        snprintf(what, sizeof what, "%s, case %zu", cases[i].mesh, i);
        expect_same_bits(what, &jobs[1], &jobs[0]);
        const int64_t last = jobs[1].steps - 1;
        expect_hashes(what, &request, &jobs[1], last, SL_JOURNAL_VALUE, &jobs[1].values, 1.0f);
        expect_hashes(what, &request, &jobs[1], last, SL_JOURNAL_GRADIENT, &jobs[1].gradients,
                      (float)size_along(cases[i].mesh, "data"));
        end(&request);
        free_job(&jobs[0]);
        free_job(&jobs[1]);
    }
}

/* Rows from any place on, and shards along each dim, of several segments, too; from any element on. */
static void a_device_makes_the_hosts_hashes(void **state) {
    (void)state;
    enum { MOST = 3000, NUMBERS = 3 };
    static const struct {
        const char *spec;
        size_t shape[3];
    } cases[] = {{"-,model", {24, 20, 1}},     {"model,-", {24, 20, 1}},       {"-,model*2", {24, 20, 1}},
                 {"data,-,model", {4, 6, 20}}, {"model*2,data,-", {8, 10, 3}}, {"-,-,-", {2, 3, 5}}};
    struct sl_spmd self = {0};
    struct sl_places places;
    struct sl_hashes *hashes;
    struct sl_mesh mesh;
    assert_int_equal(sl_hashes_open(&hashes, &self, NUMBERS), SL_OK);
    const size_t bytes = sl_device.shares_memory ? 0 : 256 * 4 + NUMBERS * (128 + 2) * 8;
    assert_int_equal(sl_hashes_bytes(NUMBERS), bytes);
    assert_int_equal(self.held.bytes[SL_MEMORY_RUNTIME], bytes);
    if (sl_device.shares_memory) {
        assert_null(hashes);
        return;
    }
    assert_int_equal(sl_mesh_parse(&mesh, "data=2,model=2", NULL), SL_OK);
    sl_places_open(&places);
    float host[MOST], *device = sl_device.take(sizeof host);
    for (int i = 0; i < MOST; i++) host[i] = (float)i * 0.37f - 100;
    sl_device.copy(device, host, sizeof host);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct sl_spec spec;
        assert_int_equal(sl_spec_parse(&spec, cases[c].spec, NULL), SL_OK);
        for (int coordinate = 0; coordinate < 4; coordinate++) {
            const int dims = spec.dims;
            const struct sl_shard shard = sl_spec_shard(&spec, &mesh, coordinate, dims, cases[c].shape);
            const size_t elements = sl_shard_elements(&shard), first = c * 7 % 11;
            uint64_t whole = 0, part = 0;
            for (size_t i = 0; i < elements; i++) {
                const uint64_t hash = sl_places_hash(&places, sl_shard_global_index(&shard, i), host + i, 1);
                whole += hash;
                if (i >= first && i < elements - 3) part += hash;
            }
            sl_hashes_add_shard(hashes, 0, &shard, 0, elements, device);
            sl_hashes_add_shard(hashes, 2, &shard, first, elements - 3 - first, device + first);
            sl_hashes_add(hashes, 1, 1000 * c, MOST, SL_F32, device);
            sl_hashes_add(hashes, 1, 77, MOST, SL_BF16, device);
            sl_hashes_bring(hashes);
            assert_int_equal(sl_device.settle(NULL), SL_OK);
            assert_true(sl_hashes_at(hashes, 0) == whole && sl_hashes_at(hashes, 2) == part);
            assert_true(sl_hashes_at(hashes, 1) == sl_places_hash(&places, 1000 * c, host, MOST) +
                                                       sl_places_hash_bf16(&places, 77, (const void *)host, MOST));
        }
    }
    sl_device.give(device);
    sl_hashes_close(hashes);
}

/* Runs a job of 2 x 2 coordinates and records steps [FIRST, END). */
static int record_steps(struct request *request, int first, int last, bool resumes, struct sl_error *error) {
    struct job job = small_job("data=2,pipe=2,tensor=1");
    job.program = record;
    job.user = request;
    request->first = first;
    request->end = last;
    request->resumes = resumes;
    const int status = try_job(&job, error);
    free_job(&job);
    return status;
}

static void a_step_allocates_nothing(void **state) {
    (void)state;
    struct request request;
    struct sl_error error = {0};
    begin(&request, 6);
    const long before = allocations;
    if (record_steps(&request, 0, 6, false, &error)) fail_msg("%s", error.message);
    assert_true(allocations > before); /* the count does count */
    if (sl_device.shares_memory) assert_int_equal(request.allocated, 0);
    end(&request);
}

static int count_steps(const struct request *request, int coordinate, int64_t *last) {
    struct sl_journal_file file;
    struct sl_error error = {0};
    bool more = true;
    int steps = 0;
    open_file(request, coordinate, &file);
    while (more) {
        if (sl_journal_next(&file, &more, &error)) fail_msg("%s", error.message);
        steps += more;
        if (more) *last = file.step;
    }
    sl_journal_file_close(&file);
    return steps;
}

static void some_steps_are_left_out(void **state) {
    (void)state;
    struct request request;
    struct sl_error error = {0};
    int64_t last;
    begin(&request, 6);
    request.every = 2;
    if (record_steps(&request, 0, 6, false, &error)) fail_msg("%s", error.message);
    assert_int_equal(count_steps(&request, 3, &last), 4); /* the values before the first one, 0, 2, 4 */
    assert_int_equal(last, 4);
    end(&request);
}

/* A resumed run cuts records beyond its steps; values replace the cut ones. */
static void a_run_goes_on(void **state) {
    (void)state;
    struct request request;
    struct sl_error error = {0};
    struct sl_journal_file file;
    int64_t last;
    begin(&request, 5);
    if (record_steps(&request, 0, 5, false, &error)) fail_msg("%s", error.message);
    assert_int_equal(count_steps(&request, 1, &last), 6);
    if (record_steps(&request, 2, 4, true, &error)) fail_msg("%s", error.message);
    assert_int_equal(count_steps(&request, 1, &last), 5);
    assert_int_equal(last, 3);
    open_file(&request, 1, &file);
    read_step(&file, 1);
    int values = 0, others = 0, parts = 0;
    for (int i = 0; i < file.count; i++) {
        values += file.record[i].kind == SL_JOURNAL_VALUE;
        others += file.record[i].kind != SL_JOURNAL_VALUE;
    }
    for (int i = 0; i < file.tensors; i++) parts += file.tensor[i].elements > 0;
    assert_int_equal(values, parts);
    assert_true(others > parts); /* gradients, rows, the loss */
    sl_journal_file_close(&file);

    struct job other = small_job("data=4,pipe=1,tensor=1");
    other.program = record;
    other.user = &request;
    assert_int_equal(try_job(&other, &error), SL_BAD_INPUT);
    if (!strstr(error.message, "the journal is that of another layout or model")) fail_msg("%s", error.message);
    assert_int_equal(count_steps(&request, 1, &last), 5);
    free_job(&other);
    end(&request);
}

/* ---- incomplete files ---- */

static char *read_all(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    char *bytes = malloc(*size + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *size, file), *size);
    fclose(file);
    return bytes;
}

static void write_all(const char *path, const char *bytes, size_t size) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    fclose(file);
}

/* All steps of the file; -1: it is refused, with a line. */
static int steps_of(const char *path) {
    struct sl_journal_file file;
    struct sl_error error = {0};
    bool more = true;
    int steps = 0, status = sl_journal_file_open(&file, path, &error);
    while (status == SL_OK && more) {
        status = sl_journal_next(&file, &more, &error);
        steps += status == SL_OK && more;
    }
    sl_journal_file_close(&file);
    if (status) assert_non_null(strstr(error.message, path));
    return status ? -1 : steps;
}

/* Returns COORDINATE's file PATH after two steps: SIZE bytes, with a head of HEAD bytes. The caller frees it. */
static char *record_two(struct request *request, int coordinate, char path[SL_MAX_PATH], size_t *size, size_t *head) {
    struct sl_error error = {0};
    begin(request, 2);
    if (record_steps(request, 0, 2, false, &error)) fail_msg("%s", error.message);
    path_of(request, coordinate, path);
    char *bytes = read_all(path, size);
    *head = (size_t)((char *)memchr(bytes, '\n', *size) - bytes) + 1;
    return bytes;
}

static void whole_steps_are_left_by_a_kill(void **state) {
    (void)state;
    struct request request;
    struct sl_error error = {0};
    char path[SL_MAX_PATH];
    size_t size, head;
    char *bytes = record_two(&request, 0, path, &size, &head);
    int most = 0;
    for (size_t cut = head; cut <= size; cut += TEST_WATCHES_THREADS || test_runs_few ? 997 : 1 + cut % 7) {
        write_all(path, bytes, cut);
        const int steps = steps_of(path);
        assert_in_range(steps, most, 3);
        most = steps;
    }
    write_all(path, bytes, size);
    assert_int_equal(steps_of(path), 3);
    write_all(path, bytes, size - 1); /* and the run continues after it */
    if (record_steps(&request, 1, 3, true, &error)) fail_msg("%s", error.message);
    assert_int_equal(steps_of(path), 4);
    write_all(path, bytes, head - 1);
    assert_int_equal(steps_of(path), -1);
    free(bytes);
    end(&request);
}

static void damage_is_refused(void **state) {
    (void)state;
    struct request request;
    char path[SL_MAX_PATH];
    size_t size, head;
    char *bytes = record_two(&request, 2, path, &size, &head);
    for (size_t at = head; at < size; at += TEST_WATCHES_THREADS || test_runs_few ? 997 : 61) {
        bytes[at] ^= 4;
        write_all(path, bytes, size);
        assert_int_equal(steps_of(path), -1);
        bytes[at] ^= 4;
    }
    free(bytes);
    end(&request);
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hashes_are_those_of_whole_arrays),
        cmocka_unit_test(a_device_makes_the_hosts_hashes),
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(some_steps_are_left_out),
        cmocka_unit_test(a_run_goes_on),
        cmocka_unit_test(whole_steps_are_left_by_a_kill),
        cmocka_unit_test(damage_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
