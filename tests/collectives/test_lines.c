/* test_lines.c - lines, by which the hosts of an engine built on another one meet: counts, messages, and verdicts on
 * waits for counts that never come. */
#include "tests/rigs/run_on.h"

enum { ROUNDS = 300, KEPT = 2 };

struct note {
    int64_t round, rank;
};

/* A line of all coordinates. */
struct own {
    const struct sl_engine_table *table;
    struct sl_group world;
    struct sl_engine_line line;
};

static int open_own(struct sl_spmd *self, struct own *own, int64_t number) {
    own->table = self->engine->table;
    SL_TRY(sl_group_axes(self, "*", &own->world));
    own->line =
        (struct sl_engine_line){.group = &own->world, .number = number, .bytes = sizeof(struct note), .kept = KEPT};
    CHECK(self, !own->table->line_open(self, &own->line));
    return own->table->enter(self, "meeting", "on a line", "test_lines.c:1");
}

static int hear(struct sl_spmd *self, struct own *own, int from, uint32_t count) {
    SL_TRY(own->table->line_hear(self, &own->line, from, count, true));
    CHECK(self, own->table->line_heard(&own->line, from, count));
    const struct note *note = own->table->line_message(&own->line, from, count);
    CHECK(self, note->round == count && note->rank == from);
    return SL_OK;
}

/* Tells the counts from BEGIN to END, each when all have told the one before. */
static int tell_rounds(struct sl_spmd *self, struct own *own, uint32_t begin, uint32_t end) {
    const int rank = own->world.rank;
    for (uint32_t count = begin; count <= end; count++) {
        own->table->line_tell(self, &own->line, count, &(struct note){count, rank}, NULL);
        for (int i = 0; i < own->world.size; i++)
            if (i != rank) SL_TRY(hear(self, own, i, count));
    }
    for (int i = 0; i < own->world.size; i++) CHECK(self, !own->table->line_heard(&own->line, i, end + 1) || i == rank);
    return SL_OK;
}

/* Two lines of the same members are apart. */
static int rounds_program(struct sl_spmd *self, void *arg) {
    struct own one, other;
    (void)arg;
    SL_TRY(open_own(self, &one, 3));
    SL_TRY(open_own(self, &other, 5));
    SL_TRY(tell_rounds(self, &one, 1, ROUNDS));
    SL_TRY(tell_rounds(self, &other, 1, 3));
    SL_TRY(tell_rounds(self, &one, ROUNDS + 1, ROUNDS + 3));
    SL_TRY(one.table->line_close(self, &one.line));
    SL_TRY(tell_rounds(self, &other, 4, ROUNDS));
    return SL_OK;
}

static void test_rounds(void **state) {
    static const char *const meshes[] = {"x=1", "x=2", "x=3", "y=2,x=4"};
    (void)state;
    for (int m = 0; m < 4; m++) expect_ok(meshes[m], rounds_program, NULL);
}

/* Counts without messages; some counts are left out, and some are told only to the last coordinate. */
static int some_program(struct sl_spmd *self, void *arg) {
    struct own own;
    (void)arg;
    SL_TRY(open_own(self, &own, 0));
    const int rank = own.world.rank, last = own.world.size - 1;
    const bool to[3] = {false, false, true};
    for (uint32_t count = 10; count < 1000 && rank != last; count += 7)
        own.table->line_tell(self, &own.line, count, NULL, to);
    for (uint32_t count = 1; count < 990 && rank == last; count++)
        SL_TRY(own.table->line_hear(self, &own.line, (int)count % last, count, true));
    if (rank == last) own.table->line_tell(self, &own.line, 1, NULL, NULL);
    if (rank != last) SL_TRY(own.table->line_hear(self, &own.line, last, 1, true));
    if (rank == 0 && self->engine->table->apart) CHECK(self, !own.table->line_heard(&own.line, 1, 1));
    return SL_OK;
}

static void test_some(void **state) {
    (void)state;
    expect_ok("x=3", some_program, NULL);
}

/* A first count is heard without a call of line_hear. */
static int first_program(struct sl_spmd *self, void *arg) {
    struct own own;
    (void)arg;
    SL_TRY(open_own(self, &own, 1));
    const int rank = own.world.rank;
    own.table->line_tell(self, &own.line, 1, &(struct note){1, rank}, NULL);
    while (!own.table->line_heard(&own.line, !rank, 1)) SL_TRY(sl_progress(self));
    return hear(self, &own, !rank, 1);
}

static void test_first(void **state) {
    (void)state;
    expect_ok("x=2", first_program, NULL);
}

/* Counts that all tell to all: of many members they may come by way of others, which also wait for other lines. */
static int all_program(struct sl_spmd *self, void *arg) {
    struct own one, other;
    (void)arg;
    SL_TRY(open_own(self, &one, 3));
    SL_TRY(open_own(self, &other, 5));
    const struct sl_engine_table *table = one.table;
    for (uint32_t count = 1; count <= ROUNDS; count++) {
        table->line_tell(self, &one.line, count, NULL, NULL);
        table->line_tell(self, &other.line, count, NULL, NULL);
        SL_TRY(table->line_hear(self, &other.line, SL_ALL_MEMBERS, count, true));
        CHECK(self, table->line_heard(&other.line, SL_ALL_MEMBERS, count));
        SL_TRY(table->line_hear(self, &one.line, SL_ALL_MEMBERS, count, true));
        CHECK(self, table->line_heard(&one.line, SL_ALL_MEMBERS, count));
    }
    CHECK(self, one.world.size == 1 || !table->line_heard(&one.line, SL_ALL_MEMBERS, ROUNDS + 1));
    SL_TRY(table->line_close(self, &one.line));
    return table->line_close(self, &other.line);
}

/* Member 0 hears all, then returns; the others wait for its next count. */
static int deserted_program(struct sl_spmd *self, void *arg) {
    struct own own;
    (void)arg;
    SL_TRY(open_own(self, &own, 2));
    own.table->line_tell(self, &own.line, 1, NULL, NULL);
    SL_TRY(own.table->line_hear(self, &own.line, SL_ALL_MEMBERS, 1, true));
    if (own.world.rank == 0) return SL_OK;
    own.table->line_tell(self, &own.line, 2, NULL, NULL);
    return own.table->line_hear(self, &own.line, SL_ALL_MEMBERS, 2, true);
}

static void test_all(void **state) {
    static const char *const meshes[] = {"x=1", "x=2", "x=8", "x=9", "x=12"};
    (void)state;
    for (int m = 0; m < 5; m++) expect_ok(meshes[m], all_program, NULL);
    for (int m = 1; m < 5; m++)
        EXPECT_VERDICT(
            ((struct test_run){.mesh = meshes[m]}), deserted_program, SL_FAILED,
            "coordinate 0 (x=0) returned after meeting on a line at test_lines.c:1 while others wait for it:");
}

enum vain { ONESELF, EACH_OTHER, RETURNED, ENDED, KINDS };

static int vain_program(struct sl_spmd *self, void *arg) {
    const enum vain vain = *(enum vain *)arg;
    const struct sl_error verdict = {SL_FAILED, "this is how it ends"};
    struct own own;
    SL_TRY(open_own(self, &own, 2));
    own.table->line_tell(self, &own.line, 1, &(struct note){1, own.world.rank}, NULL);
    if (vain == ENDED && self->coordinate == 0) own.table->end(self, &verdict, -1);
    if (vain == ONESELF && self->coordinate == 0) return SL_OK;
    if (vain == RETURNED && self->coordinate == 0) return SL_OK;
    const int peer = vain == ONESELF ? own.world.rank : !own.world.rank;
    return own.table->line_hear(self, &own.line, peer, 2, true);
}

static void test_waits_in_vain(void **state) {
    static const char *const text[KINDS] = {
        [ONESELF] =
            "deadlock: 1 coordinate waits for itself:\n  coordinate 1 (x=1) waits for coordinate 1 in meeting on",
        [EACH_OTHER] = "deadlock: 2 coordinates wait for one another:",
        [RETURNED] = "coordinate 0 (x=0) returned after meeting on a line at test_lines.c:1 while others wait for it:",
        [ENDED] = "this is how it ends",
    };
    (void)state;
    for (enum vain vain = ONESELF; vain < KINDS; vain++)
        EXPECT_VERDICT(((struct test_run){.mesh = "x=2", .arg = &vain}), vain_program, SL_FAILED, text[vain]);
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounds), cmocka_unit_test(test_some),          cmocka_unit_test(test_first),
        cmocka_unit_test(test_all),    cmocka_unit_test(test_waits_in_vain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
