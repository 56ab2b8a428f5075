/* test_generate_ends.c - sequences that end before their length: their tokens up to the end are unchanged, in every
 * layout, and they delay no others. */
#include "tests/rigs/transformer_job.h"

enum { SEQUENCES = 8, PROMPT = 3, LENGTH = 48, ROUNDS = 16 };

struct trial {
    struct continuation made;
    int32_t prompts[SEQUENCES * LENGTH];
    int divisor; /* its multiples end a sequence; 0: none */
    /* Counts of coordinate 0's callbacks. */
    int told, wrong;
    int next[SEQUENCES]; /* position of each sequence */
};

static bool ends(void *arg, const int32_t *tokens, int prompt, int count) {
    const struct trial *trial = arg;
    return count > prompt && trial->divisor && tokens[count - 1] % trial->divisor == 0;
}

/* Each token once, in order. */
static void tell(void *arg, int sequence, const int32_t *tokens, int position) {
    struct trial *trial = arg;
    if (trial->next[sequence] && trial->next[sequence] != position) trial->wrong++;
    if (tokens[position] < 0) trial->wrong++;
    trial->next[sequence] = position + 1;
    trial->told++;
}

static int continue_only(struct worker *worker) {
    struct trial *trial = worker->job->user;
    return continue_prompts(worker, &trial->made);
}

static void run_trial(struct job job, struct trial *trial, const struct trial *like) {
    *trial = *like;
    trial->made.prompts = trial->prompts;
    trial->made.arg = trial;
    job.user = trial;
    job.program = continue_only;
    job.model.positions = LENGTH;
    run_job(&job);
    free_job(&job);
}

/* Prompts have one length, or with LENGTHS several. */
static struct trial *new_trial(const int *lengths) {
    struct trial *trial = calloc(1, sizeof *trial);
    uint64_t state = 3;
    assert_non_null(trial);
    for (int i = 0; i < SEQUENCES * LENGTH; i++) trial->prompts[i] = pick(&state, 40);
    trial->made = (struct continuation){.sequences = SEQUENCES,
                                        .prompt = lengths ? LENGTH : PROMPT,
                                        .lengths = lengths,
                                        .length = LENGTH,
                                        .sampling = {2, 0, 1}};
    return trial;
}

/* Returns the expected length of sequence S, from TOKENS of a run without ends. */
static int wanted_length(const struct trial *trial, const int32_t *tokens, int s) {
    const int prompt = trial->made.lengths ? trial->made.lengths[s] : PROMPT;
    for (int i = prompt; i < LENGTH; i++)
        if (trial->divisor && tokens[s * LENGTH + i] % trial->divisor == 0) return i + 1;
    return LENGTH;
}

/* Returns the number of tokens that the first replica has generated. */
static int expect_ends(const char *mesh, const struct trial *got, const int32_t *want) {
    const int own = SEQUENCES / size_along(mesh, "data");
    struct sl_mesh parsed;
    int made = 0;
    assert_int_equal(sl_mesh_parse(&parsed, mesh, NULL), SL_OK);
    for (int c = 0; c < parsed.size; c++) {
        const int first = own * sl_mesh_index(&parsed, c, sl_mesh_find_axis(&parsed, "data"));
        for (int i = 0; i < own; i++) {
            const int length = wanted_length(got, want, first + i);
            if (got->made.ended[c][i] != length)
                fail_msg("%s: coordinate %d: sequence %d has %d tokens, not %d", mesh, c, first + i,
                         got->made.ended[c][i], length);
            assert_memory_equal(got->made.tokens[c] + i * LENGTH, want + (first + i) * LENGTH,
                                (size_t)length * sizeof *want);
            if (c == 0) made += length - (got->made.lengths ? got->made.lengths[i] : PROMPT);
        }
    }
    return made;
}

static void end_everywhere(const int *lengths, int divisor) {
    struct trial *trial = new_trial(lengths), *whole = new_trial(lengths), *other = new_trial(lengths);
    int number = 0;
    trial->divisor = divisor;
    run_trial(small_job("data=1,pipe=1,tensor=1"), whole, trial);
    trial->made.ends = ends;
    trial->made.told = tell;
    for (int size = 1; size <= 8; size *= 2) {
        char mesh[MAX_LAYOUTS][LAYOUT];
        const int layouts = list_layouts(size, mesh);
        for (int i = 0; i < layouts; i++, number++) {
            const int own = SEQUENCES / size_along(mesh[i], "data");
            if (size > 1 && number % (test_is_small ? 3 : getenv("SL_TEST_LONG") ? 1 : 2)) continue;
            trial->made.groups = 1 + number % 2 < own ? 1 + number % 2 : own;
            trial->made.in_flight = number % 3 == 1 ? 0 : trial->made.groups + (own - trial->made.groups) / 2;
            run_trial(small_job(mesh[i]), other, trial);
            if (!has_results()) continue;
            const int made = expect_ends(mesh[i], other, whole->made.tokens[0]);
            assert_int_equal(other->wrong, 0);
            /* One coordinate generates no superfluous token; several do until they meet, and replicas wait for each
             * other. */
            if (size == 1 && other->told != made) fail_msg("%d tokens were told, %d made", other->told, made);
            assert_in_range(other->told, made, size_along(mesh[i], "data") > 1 ? own * LENGTH : made + own * ROUNDS);
        }
    }
    free(trial);
    free(whole);
    free(other);
}

static void prompts_of_one_length(void **state) {
    (void)state;
    end_everywhere(NULL, 7);
}

static void prompts_of_several_lengths(void **state) {
    (void)state;
    static const int lengths[SEQUENCES] = {36, 1, 4, 33, 2, 12, LENGTH - 1, LENGTH};
    end_everywhere(lengths, 9);
}

/* Even the first token. */
static void all_end_at_once(void **state) {
    (void)state;
    end_everywhere(NULL, 1);
}

static void nobody_ends(void **state) {
    (void)state;
    end_everywhere(NULL, 0);
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_of_one_length),
        cmocka_unit_test(prompts_of_several_lengths),
        cmocka_unit_test(all_end_at_once),
        cmocka_unit_test(nobody_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
