/* test_reader_faults.c - every reader of files, with the seeds of its harness: each call that takes memory or reads
 * fails, one after another. A reader then does without it, or reports it in one line, and frees its memory: the
 * sanitizers see leaks. Without a fault it has the result that it had before. */
#include "tests/faults/part_files.h"
#include "tests/rigs/changes.h"
#include "tests/rigs/faults.h"
#include "tests/rigs/folder.h"

#include <dirent.h>
#include <jansson.h>

#include "collectives/signatures.h"
#include "drivers/classifier/idx.h"
#include "drivers/common/identity.h"
#include "drivers/common/options.h"
#include "drivers/tools/machine/machine_file.h"
#include "drivers/schedule/trace_means.h"
#include "drivers/schedule/costs.h"
#include "drivers/schedule/measured.h"
#include "drivers/tools/text/chats.h"
#include "drivers/tools/text/choices.h"
#include "drivers/tools/text/documents.h"
#include "layers/records/journal/journal_file.h"
#include "layers/models/published/published.h"
#include "layers/formats/tokens/prompts.h"
#include "layers/formats/stores/safetensors.h"
#include "layers/formats/tokens/tokens.h"
#include "layers/formats/tokenizers/tokenizer.h"
#include "layers/training/checkpoint.h"
#include "spmd/schedule/csv.h"
#include "spmd/signature.h"

static char folder[FOLDER], path[FOLDER + 30];
static struct sl_tokenizer *words; /* opened once, without faults */

/* Memory for JSON that is written may be missing, too. Not for JSON that is read: if a text's buffer cannot grow,
 * jansson 2.14 writes beyond it. */
static bool writes_json;

static void *take_for_json(size_t size) { return writes_json ? __wrap_malloc(size) : __real_malloc(size); }

/* ---- readers: each opens PATH, whose harness's bytes before it are HEAD, and closes it again ---- */

typedef int reader(const uint8_t *head, struct sl_error *error);

static int read_chats(const uint8_t *head, struct sl_error *error) {
    struct sl_chats chats = {0};
    const struct sl_chat_text text = {.template = head[0] & 128 ? SL_CHAT_LLAMA3 : SL_CHAT_BY_TOKENIZER,
                                      .sequence = 64};
    const int status = sl_chats_read(&chats, path, &text, error);
    sl_chats_free(&chats);
    return status;
}

static int read_choices(const uint8_t *head, struct sl_error *error) {
    struct sl_choices choices = {0};
    const struct sl_choice_text text = {.between = head[0] & 16 ? " " : "", .sequence = 16};
    const int status = sl_choices_read(&choices, path, &text, error);
    sl_choices_free(&choices);
    return status;
}

/* With a tokenizer that puts a token before each text. */
static int read_choices_of_tokens(const uint8_t *head, struct sl_error *error) {
    struct sl_choices choices = {0};
    const struct sl_choice_text text = {.tokenizer = words, .between = "", .sequence = 16};
    (void)head;
    const int status = sl_choices_read(&choices, path, &text, error);
    sl_choices_free(&choices);
    return status;
}

static int read_csv(const uint8_t *head, struct sl_error *error) {
    struct sl_schedule schedule;
    (void)head;
    SL_TRY(sl_schedule_read_csv(&schedule, path, error));
    sl_schedule_free(&schedule);
    return SL_OK;
}

static int read_documents(const uint8_t *head, struct sl_error *error) {
    struct sl_token_file file = {.path = path};
    struct sl_document_lines lines = {.file = &file};
    struct sl_document document;
    int status = sl_document_lines_open(&file, error);
    (void)head;
    while (status == SL_OK && sl_document_next_line(&lines, &document)) {
        const char *text;
        char *owned;
        size_t bytes;
        status = sl_document_text(&document, "text", &text, &bytes, &owned, error);
        free(owned);
    }
    sl_contents_close(&file.contents);
    return status;
}

static int read_idx(const uint8_t *head, struct sl_error *error) {
    struct classifier_idx idx;
    const int status = classifier_idx_read(&idx, folder, "file", 1 + head[0] % CLASSIFIER_IDX_DIMS, error);
    free(idx.data);
    return status;
}

static int read_journal(const uint8_t *head, struct sl_error *error) {
    static struct sl_journal_file file;
    bool more = true;
    int status = sl_journal_file_open(&file, path, error);
    (void)head;
    while (status == SL_OK && more) status = sl_journal_next(&file, &more, error);
    sl_journal_file_close(&file);
    return status;
}

static int read_machine(const uint8_t *head, struct sl_error *error) {
    static struct sl_machine machine;
    (void)head;
    SL_TRY(sl_machine_read(&machine, path, error));
    writes_json = true;
    const int status = sl_machine_write(&machine, "/dev/null", error);
    writes_json = false;
    return status;
}

static int read_prompts(const uint8_t *head, struct sl_error *error) {
    struct sl_prompts prompts = {0};
    (void)head;
    const int status = sl_prompts_read(&prompts, path, 256, error);
    sl_prompts_free(&prompts);
    return status;
}

static int read_published(const uint8_t *head, struct sl_error *error) {
    static struct sl_published published;
    if (head[0] % 2) return SL_OK; /* a folder */
    const int status = sl_published_open(&published, path, error);
    sl_published_close(&published);
    return status;
}

static int read_folder(const uint8_t *head, struct sl_error *error) {
    static struct sl_published published;
    (void)head;
    const int status = sl_published_open(&published, SL_TEST_DATA "/published/llama", error);
    sl_published_close(&published);
    return status;
}

static int read_safetensors(const uint8_t *head, struct sl_error *error) {
    struct sl_store read = {0}, mapped = {0};
    (void)head;
    int status = sl_safetensors_read(&read, path, error);
    if (status == SL_OK) status = sl_safetensors_map(&mapped, path, error);
    if (status == SL_OK) status = sl_safetensors_verify(&mapped, NULL, NULL, error);
    sl_store_free(&read);
    sl_store_free(&mapped);
    return status;
}

static int read_checkpoint(const uint8_t *head, struct sl_error *error) {
    static const struct sl_setting settings[] = {{"model", "small"}, {"layers", "4"}, {NULL, ""}};
    struct sl_checkpoint about;
    char latest[SL_MAX_PATH];
    (void)head;
    int status = sl_checkpoint_check(path, settings, NULL, &about, error);
    if (status == SL_OK) status = sl_checkpoint_latest(folder, latest, NULL, error);
    return status;
}

static int write_parts(const uint8_t *head, struct sl_error *error) {
    (void)head;
    writes_json = true;
    const int status = write_index(path, error);
    const bool on = faults.on;
    writes_json = faults.on = false;
    if (status == SL_OK) { /* a file written while something failed is whole */
        char *is = read_text(path), *was = read_text(index_path);
        assert_string_equal(is, was);
        free(is);
        free(was);
    }
    faults.on = on;
    return status;
}

static int read_parts(const uint8_t *head, struct sl_error *error) {
    (void)head;
    return read_index(error);
}

static int read_tokenizer(const uint8_t *head, struct sl_error *error) {
    struct sl_tokenizer *tokenizer;
    struct sl_encoder *encoder = NULL;
    struct sl_token_list list = {0};
    const char *pattern = head[0] % 8 < 4 ? sl_tokenizer_pattern(head[0] % 8) : NULL;
    SL_TRY(sl_tokenizer_open(&tokenizer, path, pattern, error));
    int status = sl_encoder_open(&encoder, tokenizer, error);
    if (status == SL_OK) status = sl_encode(encoder, "the fox 12", 10, true, &list, error);
    sl_token_list_free(&list);
    sl_encoder_close(encoder);
    sl_tokenizer_close(tokenizer);
    return status;
}

static int read_tokens(const uint8_t *head, struct sl_error *error) {
    struct sl_tokens tokens;
    (void)head;
    SL_TRY(sl_tokens_open(&tokens, path, NULL, 0.1, 4, error));
    sl_tokens_close(&tokens);
    return SL_OK;
}

/* A folder of files, of which some are packed. */
static int read_directory(const uint8_t *head, struct sl_error *error) {
    struct sl_tokens tokens;
    (void)head;
    SL_TRY(sl_tokens_open(&tokens, folder, NULL, 0.1, 4, error));
    sl_tokens_close(&tokens);
    return SL_OK;
}

static int read_costs(const uint8_t *head, struct sl_error *error) {
    struct sl_costs costs = {0};
    struct sl_stage_costs stage[4] = {{0}};
    double kept[4];
    (void)head;
    return schedule_costs_read(&costs, stage, kept, 4, path, error);
}

/* A step of a run by two ranks, as it was measured. */
static int read_trace(const uint8_t *head, struct sl_error *error) {
    struct sl_schedule schedule;
    struct schedule_trace trace;
    struct schedule_measured_step step = {0};
    (void)head;
    SL_TRY(sl_schedule_make(&schedule, "gpipe", 2, 1, 1, error));
    int status = schedule_trace_read(&trace, path, error);
    if (status == SL_OK && trace.count) status = schedule_measured_step_find(&step, &trace, &schedule, error);
    schedule_measured_step_free(&step);
    schedule_trace_free(&trace);
    sl_schedule_free(&schedule);
    return status;
}

static int sign_tokens(const uint8_t *head, struct sl_error *error) {
    struct sl_signature signature = {0};
    struct sl_tokens tokens;
    (void)head;
    SL_TRY(sl_tokens_open(&tokens, path, NULL, 0.1, 4, error));
    const int status = sl_sign_tokens(&signature, "data", &tokens, error);
    sl_tokens_close(&tokens);
    sl_signature_free(&signature);
    return status;
}

static int sign_file(const uint8_t *head, struct sl_error *error) {
    struct sl_signature signature = {0};
    (void)head;
    const int status = sl_sign_file(&signature, "data", path, error);
    sl_signature_free(&signature);
    return status;
}

/* Without memory to compare them, the verdict says that they differ. */
static int compare_signatures(const uint8_t *head, struct sl_error *error) {
    struct sl_mesh mesh;
    struct sl_signature one = {0}, other = {0};
    struct sl_error verdict = {0};
    (void)head;
    int status = sl_mesh_parse(&mesh, "data=2", error);
    if (!sl_signature_add(&one, "--lr", "1") || !sl_signature_add(&other, "--lr", "2"))
        status = sl_error_set(error, SL_FAILED, "no memory");
    const struct sl_signed theirs[] = {{one.bytes, one.size}, {other.bytes, other.size}};
    if (status == SL_OK) {
        sl_verdict_signatures(&verdict, &mesh, 2, theirs);
        assert_non_null(strstr(verdict.message, faults.fell ? "signatures differ" : "--lr is 1 at"));
    }
    sl_signature_free(&one);
    sl_signature_free(&other);
    return status;
}

static int write_safetensors(const uint8_t *head, struct sl_error *error) {
    const size_t shape[] = {3, 5};
    struct sl_store store = {.checksums = true};
    (void)head;
    int status = sl_store_set_note(&store, "step", "3") ? sl_error_set(error, SL_FAILED, "no memory") : SL_OK;
    if (status == SL_OK && !sl_store_add(&store, "kernel", SL_F32, 2, shape))
        status = sl_error_set(error, SL_FAILED, "no memory");
    writes_json = true;
    if (status == SL_OK) status = sl_safetensors_write(&store, path, error);
    writes_json = false;
    sl_store_free(&store);
    return status;
}

static int map_safetensors(const uint8_t *head, struct sl_error *error) {
    const size_t shape[] = {3, 5};
    struct sl_store store = {.checksums = true};
    (void)head;
    int status =
        sl_store_declare(&store, "kernel", SL_F32, 2, shape) ? SL_OK : sl_error_set(error, SL_FAILED, "no memory");
    writes_json = true;
    if (status == SL_OK) status = sl_safetensors_create(&store, path, error);
    writes_json = false;
    if (status == SL_OK) status = sl_safetensors_commit(&store, NULL, NULL, error);
    sl_store_free(&store);
    return status;
}

struct config {
    int count, way;
    const char *text, *file;
};

/* Parses a command line whose words come from a file, too; its output on stderr is its line. */
static int parse_options(const uint8_t *head, struct sl_error *error) {
    static const struct sl_option table[] = {
        {"count", SL_OPTION_INTEGER, offsetof(struct config, count), .min = 1, .max = 9, .alias = "number", .help = "N",
         .keep = SL_KEPT_SIZE},
        {"text", SL_OPTION_TEXT, offsetof(struct config, text), .value = "TEXT", .help = "a text", .keep = SL_KEPT_RUN},
        {"file", SL_OPTION_TEXT, offsetof(struct config, file), .value = "PATH", .prefix = "of:", .path = SL_PATH_DATA,
         .help = "a file", .keep = SL_KEPT_DATA},
        {"way", SL_OPTION_CHOICE, offsetof(struct config, way), .value = "no|one", .plain = "one", .help = "a choice"},
        {0}};
    struct config config = {.count = 3};
    struct sl_options options = {.program = "test", .section = SL_SECTIONS({"All", table, &config})};
    char at[sizeof path + 1], line[sizeof error->message] = "";
    char *words[] = {"test", at, "--number", "4", "--text=a b", "--way", "one", NULL};
    (void)head;
    snprintf(at, sizeof at, "@%s", path);
    FILE *const err = stderr, *const memory = fmemopen(line, sizeof line, "w");
    assert_non_null(memory);
    stderr = memory;
    int status = sl_options_parse(&options, 7, words);
    stderr = err;
    fclose(memory);
    line[strcspn(line, "\n")] = 0;
    if (status) {
        sl_error_set(error, status, "%s", line);
    } else {
        struct sl_signature signature = {0};
        struct sl_store notes = {0};
        config.file = path;
        status = sl_options_sign(&signature, options.section, error);
        if (status == SL_OK) status = sl_describe_options(&options, &notes, error);
        options.adoption.notes = notes;
        options.adoption.resumes = true;
        if (status == SL_OK) status = sl_adopt_notes(&options, error);
        sl_signature_free(&signature);
    }
    sl_options_free(&options);
    return status;
}

/* ---- all of them ---- */

static char large[2 * SL_MOST_COPIED];

static const struct subject {
    const char *name, *seeds; /* a folder of tests/fuzz/seeds; NULL: TEXT is the file */
    size_t head;              /* bytes of a seed before the file */
    reader *read;
    const char *text;
    const char *file; /* its name; NULL: file */
} subjects[] = {
    {"chats", "chats", 1, read_chats, NULL, NULL},
    {"choices", "choices", 1, read_choices, NULL, NULL},
    {"schedules", "csv", 2, read_csv, NULL, NULL},
    {"documents", "documents", 0, read_documents, NULL, NULL},
    {"idx", "idx", 1, read_idx, NULL, NULL},
    {"journals", "journal", 1, read_journal, NULL, NULL},
    {"machines", "machine", 0, read_machine, NULL, NULL},
    {"prompts", "prompts", 1, read_prompts, NULL, NULL},
    {"published GGUF", "published", 1, read_published, NULL, NULL},
    {"published folder", NULL, 0, read_folder, "", NULL},
    {"safetensors", "safetensors", 0, read_safetensors, NULL, NULL},
    {"checkpoints", "checkpoint", 1, read_checkpoint, NULL, "step-00000002.safetensors"},
    {"parts", NULL, 0, read_parts, "", NULL},
    {"parts that are written", NULL, 0, write_parts, "before", NULL},
    {"tokenizers", "tokenizer", 2, read_tokenizer, NULL, NULL},
    {"tokens", "tokens", 3, read_tokens, NULL, NULL},
    {"directories of tokens", "tokens", 3, read_directory, NULL, NULL},
    {"costs", NULL, 0, read_costs, "{\"forward\":[1,2,3,4],\"kept\":[1,2,3,4]}", NULL},
    {"questions of tokens", NULL, 0, read_choices_of_tokens,
     "{\"prompt\": \"\", \"choices\": [\"one\", \"two\"], \"answer\": 1}\n", NULL},
    {"traces", "trace", 2, read_trace, NULL, NULL},
    {"tokens that are signed", "tokens", 3, sign_tokens, NULL, NULL},
    {"files that are signed", NULL, 0, sign_file, "some text", NULL},
    {"signatures", NULL, 0, compare_signatures, "", NULL},
    {"options", NULL, 0, parse_options, "--count 5\n--text 'c d'\n", NULL},
    {"a text that is mapped", NULL, 0, read_tokens, large, NULL},
    {"safetensors that are written", NULL, 0, write_safetensors, "before", NULL},
    {"safetensors that are mapped and written", NULL, 0, map_safetensors, "before", NULL},
};

struct trial {
    const struct subject *subject;
    const uint8_t *head;
    int whole; /* the status without faults */
};

static void try(enum faults_way way, long nth, void *arg) {
    struct trial *trial = arg;
    struct sl_error error = {0};
    faults_begin(way, nth);
    const int status = trial->subject->read(trial->head, &error);
    faults_end();
    if (!nth) trial->whole = status;
    if (!faults.fell && status != trial->whole)
        fail_msg("%s: status %d, then %d: %s", trial->subject->name, trial->whole, status, error.message);
    if (status == SL_OK) return;
    if ((status != SL_BAD_INPUT && status != SL_FAILED) || error.status != status || !error.message[0])
        fail_msg("%s, call %ld: status %d: %s", trial->subject->name, nth, status, error.message);
    for (const char *c = error.message; *c; c++)
        if ((unsigned char)*c < ' ') fail_msg("%s, call %ld: %s", trial->subject->name, nth, error.message);
}

static long try_file(const struct subject *subject, const uint8_t *bytes, size_t count) {
    struct trial trial = {.subject = subject, .head = bytes};
    if (count < subject->head) return 0;
    snprintf(path, sizeof path, "%s/%s", folder, subject->file ? subject->file : "file");
    write_file(path, bytes + subject->head, count - subject->head);
    const long fell = faults_series(try, &trial);
    unlink(path);
    return fell;
}

static long try_seeds(const struct subject *subject) {
    enum { MOST = 1 << 16 };
    static uint8_t bytes[MOST];
    char name[300];
    long fell = 0;
    snprintf(name, sizeof name, "tests/fuzz/seeds/%s", subject->seeds);
    DIR *directory = opendir(name);
    assert_non_null(directory);
    for (const struct dirent *entry; (entry = readdir(directory));) {
        if (entry->d_name[0] == '.') continue;
        snprintf(name, sizeof name, "tests/fuzz/seeds/%.40s/%.200s", subject->seeds, entry->d_name);
        FILE *file = fopen(name, "rb");
        assert_non_null(file);
        const size_t count = fread(bytes, 1, MOST, file);
        fclose(file);
        fell += try_file(subject, bytes, count);
    }
    closedir(directory);
    return fell;
}

static void test_subject(void **state) {
    const struct subject *subject = *state;
    const long fell =
        subject->seeds ? try_seeds(subject) : try_file(subject, (const uint8_t *)subject->text, strlen(subject->text));
    print_message("# %s: %ld calls failed\n", subject->name, fell);
    assert_true(fell > 0);
}

static int make_files(void **state) {
    (void)state;
    memset(large, 'a', sizeof large - 1);
    json_set_alloc_funcs(take_for_json, free);
    if (sl_tokenizer_open(&words, SL_TEST_DATA "/tokenizers/gpt2.json", NULL, NULL)) return -1;
    return make_folder(folder, "test_reader_faults") && make_parts(folder) ? 0 : -1;
}

static int remove_files(void **state) {
    (void)state;
    sl_tokenizer_close(words);
    remove_parts();
    return rmdir(folder); /* no temporary file is left there */
}

int main(void) {
    enum { SUBJECTS = sizeof subjects / sizeof *subjects };
    struct CMUnitTest tests[SUBJECTS];
    for (int i = 0; i < SUBJECTS; i++)
        tests[i] = (struct CMUnitTest){
            .name = subjects[i].name, .test_func = test_subject, .initial_state = (void *)(uintptr_t)&subjects[i]};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    cmocka_set_test_filter(getenv("SL_TEST_FILTER"));
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
