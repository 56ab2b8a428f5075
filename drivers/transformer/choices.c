/* choices.c - questions with several answers: finds the likeliest choice, in total and per byte.
 *
 * A pass through the pipeline has one choice per replica: so the loss of a pass is the loss of a choice, and its
 * rows are computed alike in every layout. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "drivers/common/metrics.h"
#include "drivers/training/memory_check.h"
#include "drivers/transformer/transformer.h"

/* ---- options ---- */

const struct sl_option transformer_choice_table[] = {
    {"choices", SL_OPTION_TEXT, offsetof(struct transformer_config, questions), .value = "FILE", .path = SL_PATH_TEXT,
     .keep = SL_KEPT_FREE, .read = "!chat",
     .help = "in place of data, questions to answer by choosing the likeliest text: each line of FILE is an object of "
             "JSON with \"prompt\" (or \"context\"), \"choices\" (texts) and \"answer\" (the number of the right one, "
             "from 0)"},
    {"target-delimiter", SL_OPTION_TEXT, offsetof(struct transformer_config, between), .value = "TEXT",
     .keep = SL_KEPT_FREE, .read = "choices&!bare-choices",
     .help = "with --choices: what stands between a prompt and a choice"},
    {"bare-choices", SL_OPTION_FLAG, offsetof(struct transformer_config, bare_choices), .read = "choices",
     .help = "with --choices: nothing stands between them"},
    {0},
};

/* ---- before the run ---- */

int transformer_read_choices(struct transformer_job *job, struct transformer_config *config, const struct sl_mesh *mesh,
                             struct sl_error *error) {
    job->config = config;
    job->model.vocabulary = config->vocabulary;
    SL_TRY(transformer_open_tokenizer(job, true, error));
    if (!config->vocabulary) config->vocabulary = job->tokenizer ? sl_tokenizer_vocabulary(job->tokenizer) : 256;
    const int blocks = transformer_shortest_sequence(mesh);
    const struct sl_choice_text text = {.tokenizer = job->tokenizer,
                                        .between = config->bare_choices ? "" : config->between,
                                        .special = config->special,
                                        .sequence = config->sequence,
                                        .vocabulary = config->vocabulary};
    SL_TRY(sl_choices_read(&job->choices, config->questions, &text, error));
    job->choice_scores = calloc((size_t)job->choices.samples.count, sizeof *job->choice_scores);
    if (!job->choice_scores) return sl_error_set(error, SL_FAILED, "no memory for the choices' scores");
    const int longest = job->choices.samples.longest;
    config->sequence = (longest + blocks - 1) / blocks * blocks; /* padded, also beyond --sequence */
    config->capacity *= (double)longest / config->sequence;      /* padding gives experts no slots */
    config->training.batch = sl_mesh_axis_size(mesh, sl_data_axis);
    config->training.microbatches = 1;
    return SL_OK;
}

/* ---- every coordinate ---- */

/* Bytes for all choices, twice: a coordinate's own sums, and the sums over coordinates. */
static size_t room_of(const struct transformer_job *job) {
    return 2 * (size_t)job->choices.samples.count * sizeof(struct sl_metrics);
}

void transformer_plan_choices(const struct transformer_job *job, struct sl_budget *budget) {
    sl_budget_add(budget, SL_MEMORY_RUNTIME, room_of(job));
}

static int stream(struct sl_worker *worker, struct transformer_watch *watch, struct sl_metrics *own) {
    const int64_t count = transformer_job_of(worker)->choices.samples.count, batch = worker->job->data;
    const int64_t mine = sl_axis_index(worker->self, sl_data_axis);
    struct sl_metrics nobody = {0};
    for (int64_t first = 0; first < count; first += batch) {
        struct sl_batch samples;
        SL_TRY(transformer_fetch(worker, true, first, &samples));
        struct sl_metrics *sums = first + mine < count ? &own[first + mine] : &nobody;
        SL_TRY(sl_trainer_stream(worker->trainer, &samples, transformer_trace_of(watch), sums));
        transformer_watch_pass(watch);
    }
    return SL_OK;
}

/* Sums in parts, with the result on each coordinate. */
static int sum(struct sl_worker *worker, const struct sl_metrics *own, struct sl_metrics *sums) {
    enum { PART = 1024 };
    const size_t count = (size_t)transformer_job_of(worker)->choices.samples.count;
    for (size_t i = 0; i < count; i += PART)
        SL_TRY(sl_trainer_sum(worker->trainer, count - i < PART ? count - i : PART, own + i, sums + i));
    return SL_OK;
}

/* Writes the scores, on one coordinate. */
static int note_scores(struct sl_worker *worker, const struct sl_metrics *sums) {
    struct transformer_job *job = transformer_job_of(worker);
    const struct sl_choices *choices = &job->choices;
    if (worker->self->coordinate) return SL_OK;
    for (int64_t q = 0; q < choices->count; q++) {
        const struct sl_question *question = &choices->question[q];
        for (int64_t i = question->first; i < question->first + question->choices; i++) {
            job->choice_scores[i] = -sums[i].loss;
            if (!isfinite(sums[i].loss))
                return sl_fail(worker->self, SL_FAILED, "--choices %s: line %lld: the score of choice %d is not finite",
                               job->config->questions, question->line, (int)(i - question->first));
        }
    }
    return SL_OK;
}

int transformer_score_choices(struct sl_worker *worker, struct transformer_watch *watch) {
    const struct transformer_job *job = transformer_job_of(worker);
    const size_t count = (size_t)job->choices.samples.count;
    struct sl_metrics *own = calloc(2 * count, sizeof *own);
    if (!own) return sl_fail(worker->self, SL_FAILED, "no memory for the scores of %zu choices", count);
    sl_budget_add(&worker->self->held, SL_MEMORY_RUNTIME, room_of(job));
    int status = stream(worker, watch, own);
    if (status == SL_OK) status = sum(worker, own, own + count);
    if (status == SL_OK) status = note_scores(worker, own + count);
    free(own);
    return status;
}

/* ---- report ---- */

/* Returns the first choice with the largest score; PER_BYTE: with the largest score per byte. */
static int choose(const struct transformer_job *job, const struct sl_question *question, bool per_byte) {
    const double *score = job->choice_scores + question->first, *bytes = job->choices.bytes + question->first;
    int best = 0;
    for (int i = 1; i < question->choices; i++)
        if (per_byte ? score[i] / bytes[i] > score[best] / bytes[best] : score[i] > score[best]) best = i;
    return best;
}

/* Returns the share of right answers. */
static double accuracy(const struct transformer_job *job, bool per_byte) {
    int64_t right = 0;
    for (int64_t q = 0; q < job->choices.count; q++)
        right += choose(job, &job->choices.question[q], per_byte) == job->choices.question[q].answer;
    return (double)right / (double)job->choices.count;
}

/* Returns the standard error of a mean of zeros and ones; NaN for a single question. */
static double standard_error(const struct transformer_job *job, double mean) {
    const int64_t count = job->choices.count;
    return count > 1 ? sqrt(mean * (1 - mean) / (double)(count - 1)) : NAN;
}

static double questions_per_second(const struct transformer_job *job) {
    return 1e3 * (double)job->choices.count / job->stream.measured.all;
}

static int print_question(const struct transformer_job *job, const struct sl_question *question,
                          struct sl_error *error) {
    json_t *scores = json_array(), *bytes = json_array();
    for (int64_t i = question->first; i < question->first + question->choices; i++) {
        json_array_append_new(scores, sl_json_real(job->choice_scores[i]));
        json_array_append_new(bytes, json_integer((json_int_t)job->choices.bytes[i]));
    }
    return sl_json_print(stdout, "stdout",
                         json_pack("{sI so so si si si}", "line", (json_int_t)question->line, "scores", scores, "bytes",
                                   bytes, "chosen", choose(job, question, false), "chosen_norm",
                                   choose(job, question, true), "answer", question->answer),
                         error);
}

static int print_json(const struct transformer_job *job, struct sl_error *error) {
    const double plain = accuracy(job, false), norm = accuracy(job, true);
    for (int64_t q = 0; q < job->choices.count; q++) SL_TRY(print_question(job, &job->choices.question[q], error));
    json_t *object = json_pack(
        "{so so so so sI sI sI sI so so so}", "accuracy", sl_json_real(plain), "accuracy_stderr",
        sl_json_real(standard_error(job, plain)), "accuracy_norm", sl_json_real(norm), "accuracy_norm_stderr",
        sl_json_real(standard_error(job, norm)), "questions", (json_int_t)job->choices.count, "choices",
        (json_int_t)job->choices.samples.count, "tokens", (json_int_t)job->choices.samples.scored, "shortened",
        (json_int_t)job->choices.shortened, "questions_per_second", sl_json_real(questions_per_second(job)), "measured",
        transformer_json_times(&job->stream.measured), "simulated", transformer_json_times(&job->stream.simulated));
    json_object_set_new(object, "memory", sl_memory_json(job->training.memory, &job->job.mesh));
    json_object_set_new(object, "processes", sl_memory_json_processes(job->training.memory, &job->job.mesh));
    return sl_json_print(stdout, "stdout", object, error);
}

static void print_accuracy(struct sl_table *table, const char *name, const struct transformer_job *job, bool per_byte) {
    const double share = accuracy(job, per_byte), deviation = standard_error(job, share);
    sl_table_cell(table, "%s", name);
    sl_table_cell(table, "%.4f", share);
    if (isnan(deviation))
        sl_table_cell(table, "-");
    else
        sl_table_cell(table, "%.4f", deviation);
}

int transformer_report_choices(const struct transformer_job *job, struct sl_error *error) {
    static const struct sl_column column[] = {{"chosen by", 12}, {"accuracy", 10}, {"+-", 8}};
    const struct sl_choices *choices = &job->choices;
    struct sl_table table;
    if (job->config->common.json) return print_json(job, error);
    transformer_print_source(job, stdout);
    printf("; --choices %s, %" PRId64 " questions, %" PRId64 " choices, %" PRId64 " tokens scored\n",
           job->config->questions, choices->count, choices->samples.count, choices->samples.scored);
    if (choices->shortened)
        printf("%" PRId64 " choices' prompts were longer than --sequence: their beginnings were left out\n",
               choices->shortened);
    printf("%.3g questions/s; ", questions_per_second(job));
    transformer_print_stream(job);
    sl_memory_print_end(stdout, job->training.memory, &job->job.mesh, false);
    sl_table_begin(&table, stdout, sizeof column / sizeof *column, column);
    print_accuracy(&table, "score", job, false);
    print_accuracy(&table, "score/byte", job, true);
    return SL_OK;
}
