/* test_never_back.c - the verdict of a run in which a coordinate never returns: it is printed, and the process ends if
 * the engine has a grace period. Child processes run it, with stderr in a file. */
#include "tests/rigs/run_on.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct child {
    double grace;
    bool others_wait; /* otherwise they return at once */
    bool has_error;   /* the engine */
};

static void sleep_ms(int ms) {
    const struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

/* Coordinate 1 is in an endless loop. */
static int program(struct sl_spmd *self, void *arg) {
    const struct child *child = arg;
    struct sl_group world;
    SL_TRY(sl_group_axes(self, "x", &world));
    if (self->coordinate == 1)
        for (;;) sleep_ms(1000);
    return child->others_wait ? sl_call(self, "wait.c:7", sl_describe_barrier(&world)) : SL_OK;
}

static void run_child(const struct child *child, FILE *file) {
    struct sl_mesh mesh;
    struct sl_engine engine;
    struct sl_error error = {0};
    dup2(fileno(file), STDERR_FILENO);
    if (sl_mesh_parse(&mesh, "x=3", NULL) || sl_engine_open_within(&engine, "local", 0.3, NULL)) _exit(99);
    engine.grace = child->grace;
    engine.error = child->has_error ? &error : NULL;
    sl_run(&mesh, &engine, program, (void *)child);
    _exit(98);
}

/* Runs the child. TEXT receives its stderr. Returns its status, or -1 if it has not ended within SECONDS. */
static int status_of(struct child child, double seconds, char text[2000]) {
    FILE *file = tmpfile();
    assert_non_null(file);
    const pid_t pid = fork();
    if (pid == 0) run_child(&child, file);
    const double end = sl_now() + seconds;
    int status;
    pid_t ended = 0;
    while (!(ended = waitpid(pid, &status, WNOHANG)) && sl_now() < end) sleep_ms(10);
    if (!ended) {
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
    }
    rewind(file);
    text[fread(text, 1, 1999, file)] = 0;
    fclose(file);
    return ended && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void expect_told(const char *text, const char *end) {
    static const char *const beginning = "shardloop: coordinate 1 (x=1) is absent: no sign of it for 0.3 s, ";
    static const char *const wait = "\n  coordinate 0 (x=0) waits for coordinate 1 in barrier over \"x\" at wait.c:7\n";
    char last[200];
    snprintf(last, sizeof last, "\nshardloop: the run has ended, and coordinate 1 (x=1) has not returned from the %s\n",
             end);
    assert_memory_equal(text, beginning, strlen(beginning));
    assert_non_null(strstr(text, wait));
    const char *found = strstr(text, last);
    assert_non_null(found);
    assert_string_equal(TEST_WATCHES_THREADS ? last : found, last); /* it reports threads that were not joined */
}

static void told_and_ended(void **state) {
    (void)state;
    char text[2000];
    for (int has_error = 0; has_error < 2; has_error++) {
        const struct child child = {.grace = 0.2, .others_wait = true, .has_error = has_error};
        assert_int_equal(status_of(child, 60, text), SL_FAILED);
        expect_told(text, "program: the process ends in 0.2 s");
    }
}

static void told_and_waited_for(void **state) {
    (void)state;
    char text[2000];
    assert_int_equal(status_of((struct child){.others_wait = true}, 5, text), -1);
    expect_told(text, "program: sl_run returns when it does");
}

/* A coordinate that computes for long is not reported while no other waits. */
static void left_alone(void **state) {
    (void)state;
    char text[2000];
    assert_int_equal(status_of((struct child){.grace = 0.2}, 3, text), -1);
    assert_string_equal(text, "");
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(told_and_ended),
        cmocka_unit_test(told_and_waited_for),
        cmocka_unit_test(left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
