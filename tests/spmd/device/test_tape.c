/* test_tape.c - steps as graphs (spmd/device/cuda/tape.c), on threads in place of GPUs: a step's results are the same
 * with and without graphs, even if steps change. The path of a library with regions is the argument. */
#include "tests/rigs/numbers.h"

#include <dlfcn.h>
#include <stdio.h>

#include "spmd/device/cuda/cuda.h"
#include "spmd/device/device.h"

enum { COUNT = 500, CALLS = 12, MOST_STEPS = 20 };

static const char *path;
static void (*scale)(int n, float *x); /* regions_library.c, by 2 */
static float *x, *y;                   /* on the device */

static void settled(void) {
    struct sl_error error = {0};
    if (sl_device.settle(&error)) fail_msg("%s", error.message);
}

static int open_all(void **state) {
    (void)state;
    static float host[COUNT];
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return printf("# %s\n", dlerror());
    *(void **)&scale = dlsym(library, "scale");
    for (int i = 0; i < COUNT; i++) host[i] = 1;
    x = sl_device.take(sizeof host);
    y = sl_device.take(sizeof host);
    sl_device.copy(x, host, sizeof host);
    sl_device.copy(y, host, sizeof host);
    return !x || !y || !scale || sl_device.settle(NULL);
}

static int close_all(void **state) {
    (void)state;
    sl_device.give(x);
    sl_device.give(y);
    sl_device.close();
    return 0;
}

/* A step, from the host's side. */
struct step {
    int n;       /* elements to double */
    int extra;   /* calls beside the CALLS of every step; less than 0: so many fewer */
    int waits;   /* the call before which the host waits; 0: none */
    bool swaps;  /* x and y change places */
    float *here; /* [2, COUNT]: expected x and y */
};

static void take_step(const struct step *step, const void *owner, enum sl_graphs graphs) {
    float *one = step->swaps ? y : x, *other = step->swaps ? x : y;
    float *first = step->here + (step->swaps ? COUNT : 0), *second = step->here + (step->swaps ? 0 : COUNT);
    sl_device.begin_step(owner, graphs);
    for (int i = 0; i < CALLS + step->extra; i++) {
        if (step->waits && i == step->waits) settled();
        if (i % 4 == 3) {
            sl_device.copy(other, one, sizeof(float) * 10);
            memcpy(second, first, sizeof(float) * 10);
        } else if (i % 4 == 2) {
            sl_device.zero(other + 20, sizeof(float));
            second[20] = 0;
        } else {
            scale(step->n, one);
            for (int k = 0; k < step->n; k++) first[k] *= 2;
        }
    }
    sl_device.end_step();
}

/* Takes COUNT steps from ones and checks x and y. */
static struct sl_graph_report take_steps(int count, const struct step *given, const void *owner,
                                         enum sl_graphs graphs) {
    static float here[2 * COUNT], there[2 * COUNT];
    struct sl_graph_report report;
    for (int i = 0; i < 2 * COUNT; i++) here[i] = 1;
    sl_device.copy(x, here, sizeof(float) * COUNT);
    sl_device.copy(y, here, sizeof(float) * COUNT);
    for (int s = 0; s < count; s++) {
        struct step step = given[s];
        step.here = here;
        take_step(&step, owner, graphs);
    }
    sl_device.copy(there, x, sizeof(float) * COUNT);
    sl_device.copy(there + COUNT, y, sizeof(float) * COUNT);
    settled();
    for (int i = 0; i < 2 * COUNT; i++)
        if (there[i] != here[i]) fail_msg("element %d is %g, not %g", i, (double)there[i], (double)here[i]);
    sl_device.report_graphs(&report);
    return report;
}

static void steps_become_graphs(void **state) {
    (void)state;
    const struct step steps[6] = {{.n = 7}, {.n = 7}, {.n = 7}, {.n = 7}, {.n = 7}, {.n = 7}};
    const struct sl_graph_report report = take_steps(6, steps, "one", SL_GRAPHS_AUTO);
    assert_int_equal(report.steps, 6);
    assert_int_equal(report.replayed, 4); /* the third one is captured */
    assert_int_equal(report.calls, CALLS);
    assert_int_equal(report.graphs, 1);
    assert_int_equal(report.kept, CALLS);
    assert_int_equal(report.changed, 0);
    assert_string_equal(report.why, "");
}

static void kernels_get_new_numbers(void **state) {
    (void)state;
    struct step steps[8] = {{.n = 3}, {.n = 5}, {.n = 7}, {.n = 400}, {.n = 400}, {.n = 2}, {.n = 9}, {.n = 1}};
    struct sl_graph_report report = take_steps(8, steps, "numbers", SL_GRAPHS_AUTO);
    assert_int_equal(report.replayed, 6);
    assert_int_equal(report.changed, CALLS / 2); /* of the last step: all but copies and fills */
    report = take_steps(5, steps, "fewer", SL_GRAPHS_AUTO);
    assert_int_equal(report.changed, 0); /* the fifth is as the fourth */
}

static void waits_divide_a_step(void **state) {
    (void)state;
    struct step steps[6] = {{.n = 3, .waits = 5}, {.n = 5, .waits = 5}, {.n = 7, .waits = 5},
                            {.n = 9, .waits = 5}, {.n = 4, .waits = 5}, {.n = 2, .waits = 5}};
    struct sl_graph_report report = take_steps(6, steps, "waits", SL_GRAPHS_ON);
    assert_int_equal(report.replayed, 4);
    assert_int_equal(report.graphs, 2);
    assert_int_equal(report.kept, CALLS);
    /* Seven and five calls are not worth a graph each. */
    report = take_steps(6, steps, "few", SL_GRAPHS_AUTO);
    assert_int_equal(report.replayed, 4);
    assert_int_equal(report.parted, 0);
    assert_int_equal(report.graphs, 0);
    /* A new wait divides the step once. */
    for (int s = 0; s < 6; s++) steps[s].waits = s == 4 ? 6 : 0;
    report = take_steps(5, steps, "once", SL_GRAPHS_ON);
    assert_int_equal(report.replayed, 3);
    assert_int_equal(report.parted, 1);
    assert_int_equal(report.graphs, 0);
    report = take_steps(1, steps, "once", SL_GRAPHS_ON);
    assert_int_equal(report.parted, 1);
    assert_int_equal(report.graphs, 1);
}

/* Addresses of copies and fills do not change in a graph. */
static void other_steps_are_taken_call_by_call(void **state) {
    (void)state;
    struct step steps[MOST_STEPS] = {{0}};
    for (int s = 0; s < MOST_STEPS; s++) steps[s].n = s + 1;
    steps[4].extra = 2;
    struct sl_graph_report report = take_steps(6, steps, "more", SL_GRAPHS_AUTO);
    assert_int_equal(report.replayed, 3);
    assert_non_null(strstr(report.why, "call 12 of the step was none, and is "));
    assert_non_null(strstr(report.why, "_scale_l"));
    steps[4].extra = -3;
    report = take_steps(6, steps, "less", SL_GRAPHS_AUTO);
    assert_int_equal(report.replayed, 3);
    assert_string_equal(report.why, "the step had 12 calls, and has 9");
    steps[4].extra = 0;
    steps[4].swaps = true;
    report = take_steps(6, steps, "swap", SL_GRAPHS_AUTO);
    assert_int_equal(report.replayed, 3);
    assert_non_null(
        strstr(report.why, "call 2 of the step was a product, copy or fill, and is a product, copy or fill"));
    /* Two in turn, and the steps from then on are learned: 7 and 8, and 9 is a graph. */
    for (int s = 5; s < 10; s++) steps[s].swaps = true;
    report = take_steps(10, steps, "turn", SL_GRAPHS_AUTO);
    assert_int_equal(report.replayed, 4);
    /* Every second step is another one: it stays so. */
    for (int s = 0; s < MOST_STEPS; s++) steps[s].swaps = s > 3 && s % 2;
    report = take_steps(MOST_STEPS, steps, "second", SL_GRAPHS_AUTO);
    assert_int_equal(report.replayed, 10);
    /* The first three are never alike: 4 and 5 are, and 6 is a graph. */
    for (int s = 0; s < MOST_STEPS; s++) steps[s].swaps = s == 1, steps[s].extra = s == 2;
    report = take_steps(7, steps, "first", SL_GRAPHS_AUTO);
    assert_int_equal(report.replayed, 2);
}

/* Several kinds of steps, some of which use two arrays in turn. */
static void steps_of_several_kinds_take_turns(void **state) {
    (void)state;
    struct step steps[MOST_STEPS];
    for (int s = 0; s < MOST_STEPS; s++) steps[s] = (struct step){.n = s + 1, .swaps = s % 2};
    struct sl_graph_report report = take_steps(MOST_STEPS, steps, "two", SL_GRAPHS_AUTO);
    assert_int_equal(report.replayed,
                     MOST_STEPS - 9); /* five are not alike, two are noted again, and two are checked */
    assert_int_equal(report.changed, CALLS / 2);
    assert_string_equal(report.why, "");
    for (int s = 0; s < MOST_STEPS; s++) steps[s].swaps = s % 3 == 1, steps[s].extra = s % 3 == 2;
    report = take_steps(MOST_STEPS, steps, "three", SL_GRAPHS_AUTO);
    assert_int_equal(report.replayed, MOST_STEPS - 17);
    assert_int_equal(report.graphs, 1);
}

static void steps_that_never_come_again_are_given_up(void **state) {
    (void)state;
    enum { STEPS = 60 };
    static struct step steps[STEPS];
    for (int s = 0; s < STEPS; s++) steps[s] = (struct step){.n = 2, .swaps = s / 5 % 2};
    const struct sl_graph_report report = take_steps(STEPS, steps, "never", SL_GRAPHS_AUTO);
    assert_int_equal(report.steps, STEPS);
    assert_true(report.replayed > 0 && report.replayed < STEPS / 2);
}

static void what_is_refused_is_taken_call_by_call(void **state) {
    (void)state;
    static const char *const functions[][2] = {
        {"cuStreamBeginCapture_v2@1", "cuStreamBeginCapture: a graph of the step: unknown error"},
        {"cuStreamGetCaptureInfo_v2@2", "cuStreamGetCaptureInfo: a graph of the step: unknown error"},
        {"cuLaunchKernel@15", "cuLaunchKernel: "},
        {"cudaMemcpyAsync@11", "cudaMemcpyAsync: unknown error"},
        {"cuStreamEndCapture@1", "cuStreamEndCapture: a graph of the step: unknown error"},
        {"cuGraphInstantiateWithFlags@1", "cuGraphInstantiate: a graph of the step: unknown error"},
        {"cuGraphLaunch@2", "cuGraphLaunch: a graph of the step: unknown error"},
        {"cuGraphExecKernelNodeSetParams_v2@4", "cuGraphExecKernelNodeSetParams: "},
    };
    const struct step steps[6] = {{.n = 3}, {.n = 5}, {.n = 7}, {.n = 400}, {.n = 400}, {.n = 2}};
    for (size_t f = 0; f < sizeof functions / sizeof *functions; f++) {
        setenv("FAKE_CUDA_FAIL", functions[f][0], 1);
        const struct sl_graph_report report = take_steps(6, steps, functions[f], SL_GRAPHS_AUTO);
        unsetenv("FAKE_CUDA_FAIL");
        assert_true(report.replayed < 4);
        if (!strstr(report.why, functions[f][1])) fail_msg("%s: \"%s\"", functions[f][0], report.why);
    }
}

static void what_must_be_graphs_fails(void **state) {
    (void)state;
    static float here[2 * COUNT];
    struct sl_error error = {0};
    const struct step step = {.n = 3, .here = here};
    setenv("FAKE_CUDA_FAIL", "cuStreamBeginCapture_v2@1", 1);
    for (int s = 0; s < 3; s++) take_step(&step, "must", SL_GRAPHS_ON);
    unsetenv("FAKE_CUDA_FAIL");
    assert_int_equal(sl_device.settle(&error), SL_FAILED);
    assert_string_equal(error.message, "device 0: cuStreamBeginCapture: a graph of the step: unknown error");
    settled();
}

/* Marks, and waits of other streams, come behind all earlier work. */
static void marks_come_behind_what_waits(void **state) {
    (void)state;
    static float here[2 * COUNT];
    float *host = sl_device.take_host(sizeof(float));
    const struct step step = {.n = 1, .here = here};
    void *mark = NULL;
    for (int s = 0; s < 5; s++) {
        const float one = 1;
        sl_device.copy(x, &one, sizeof one);
        sl_device.begin_step("marks", SL_GRAPHS_ON);
        for (int i = 0; i < 10; i++) scale(1, x);
        assert_int_equal(sl_device.mark(&mark, NULL), SL_OK);
        scale(1, x);
        sl_device.copy_aside(host, x, sizeof *host);
        sl_device.await_aside();
        scale(1, x);
        sl_device.end_step();
        sl_device.await(mark);
        settled();
        assert_true(*host == 2048);
    }
    sl_device.free_mark(mark);
    sl_device.give_host(host);
    take_step(&step, "marks", SL_GRAPHS_OFF); /* none of it */
    settled();
}

/* ---- a second stream, as engine nccl has ---- */

static struct {
    cudaStream_t stream;
    cudaEvent_t before, behind;
    float *copy; /* copy of x, made by this stream */
    bool open;
    int settled;
} other;

static bool begin_other(struct sl_cuda_queue *queue, const void *argument) {
    (void)argument;
    other.open = SL_CUDA(queue, cudaEventRecord(other.before, queue->stream)) &&
                 SL_CUDA(queue, cudaStreamWaitEvent(other.stream, other.before, 0)) &&
                 SL_CUDA(queue, cudaMemcpyAsync(other.copy, x, COUNT * sizeof *x, cudaMemcpyDefault, other.stream)) &&
                 SL_CUDA(queue, cudaEventRecord(other.behind, other.stream));
    return other.open;
}

static bool end_other(struct sl_cuda_queue *queue, const void *argument) {
    (void)argument;
    const bool waits = other.open;
    other.open = false;
    return !waits || SL_CUDA(queue, cudaStreamWaitEvent(queue->stream, other.behind, 0));
}

static void join_other(void *owner, bool lost) {
    assert_ptr_equal(owner, &other);
    if (lost) other.open = false;
    end_other(sl_cuda_queue(), NULL);
}

static void settle_other(void *owner) {
    join_other(owner, false);
    other.settled++;
}

/* The other stream copies x while y is doubled; y becomes the copy. WAITS: the host waits in between. */
static void branch(const char *owner, bool waits, enum sl_graphs graphs) {
    struct sl_cuda_queue *queue = sl_cuda_queue();
    const int nothing = 0;
    sl_device.begin_step(owner, graphs);
    for (int i = 0; i < 4; i++) scale(COUNT, x);
    sl_cuda_enqueue(queue, begin_other, &nothing, sizeof nothing);
    for (int i = 0; i < 8; i++) scale(COUNT, y);
    if (sl_cuda_course(queue) == SL_CUDA_LATER) queue->owes = true;
    if (waits) settled();
    sl_cuda_enqueue(queue, end_other, &nothing, sizeof nothing);
    sl_device.copy(y, other.copy, COUNT * sizeof *y);
    for (int i = 0; i < 8; i++) scale(COUNT, y);
    sl_device.end_step();
}

static struct sl_graph_report branches(const char *owner, bool waits, enum sl_graphs graphs) {
    static float here[COUNT];
    struct sl_graph_report report;
    for (int i = 0; i < COUNT; i++) here[i] = 1;
    sl_device.copy(x, here, sizeof here);
    other.settled = 0;
    for (int s = 1; s <= 5; s++) {
        branch(owner, waits, graphs);
        sl_device.copy(here, y, sizeof here);
        settled();
        for (int i = 0; i < COUNT; i++)
            if (here[i] != ldexpf(1, 4 * s + 8)) fail_msg("step %d: element %d is %g", s, i, (double)here[i]);
    }
    sl_device.report_graphs(&report);
    sl_cuda_forget(sl_cuda_queue());
    return report;
}

static void open_other(const struct sl_cuda_branches *table) {
    struct sl_cuda_queue *queue = sl_cuda_queue();
    setenv("FAKE_CUDA_DELAY_US", "3000", 1);
    assert_true(SL_CUDA(queue, cudaStreamCreateWithFlags(&other.stream, cudaStreamNonBlocking)) &&
                SL_CUDA(queue, cudaEventCreate(&other.before)) && SL_CUDA(queue, cudaEventCreate(&other.behind)));
    other.copy = sl_device.take(COUNT * sizeof *other.copy);
    sl_cuda_branch(queue, table, &other);
}

static void close_other(void) {
    sl_cuda_branch(sl_cuda_queue(), NULL, NULL);
    sl_device.begin_step("another", SL_GRAPHS_OFF);
    sl_device.end_step();
    unsetenv("FAKE_CUDA_DELAY_US");
    sl_device.give(other.copy);
    cudaStreamDestroy(other.stream);
    cudaEventDestroy(other.before);
    cudaEventDestroy(other.behind);
}

static void other_streams_are_parts_of_graphs(void **state) {
    (void)state;
    static const struct sl_cuda_branches table = {
        .begin = begin_other, .end = end_other, .join = join_other, .settle = settle_other};
    open_other(&table);
    struct sl_graph_report report = branches("a branch", false, SL_GRAPHS_ON);
    assert_int_equal(report.replayed, 3);
    assert_int_equal(report.graphs, 1);
    assert_int_equal(report.kept, 4 + 1 + 8 + 2 + 8);
    assert_int_equal(other.settled, 3); /* at the end of each */
    report = branches("a wait", true, SL_GRAPHS_ON);
    assert_int_equal(report.replayed, 3);
    assert_int_equal(report.graphs, 2);
    assert_int_equal(other.settled, 3);               /* at the wait */
    setenv("FAKE_CUDA_FAIL", "cuLaunchKernel@47", 1); /* while it is captured, and at work */
    report = branches("a lost one", false, SL_GRAPHS_AUTO);
    unsetenv("FAKE_CUDA_FAIL");
    assert_non_null(strstr(report.why, "cuLaunchKernel"));
    close_other();
}

static bool rest(struct sl_cuda_queue *queue, const void *argument) {
    (void)queue, (void)argument;
    return true;
}

/* The other stream sends x; the later work is one piece up to the rest, if there is one. WAITS: the host waits in
 * between. */
static struct sl_graph_report messages(const char *owner, bool waits, bool rests) {
    enum { MANY = 700 };
    struct sl_cuda_queue *queue = sl_cuda_queue();
    struct sl_graph_report report;
    const int nothing = 0;
    for (int s = 0; s < 5; s++) {
        sl_device.begin_step(owner, SL_GRAPHS_ON);
        for (int i = 0; i < 100; i++) scale(1, y);
        sl_cuda_enqueue(queue, begin_other, &nothing, sizeof nothing);
        for (int i = 0; i < MANY; i++) scale(1, y);
        if (waits) settled();
        scale(1, y);
        if (rests) sl_cuda_enqueue(queue, rest, &nothing, sizeof nothing);
        settled();
        for (int i = 0; i < 10; i++) scale(1, y);
        sl_device.end_step();
        settled();
    }
    sl_device.report_graphs(&report);
    sl_cuda_forget(queue);
    return report;
}

static void a_graph_does_not_end_while_messages_are_on_their_way(void **state) {
    (void)state;
    static const struct sl_cuda_branches table = {
        .begin = rest, .end = end_other, .post = begin_other, .rest = rest, .join = join_other, .settle = settle_other};
    open_other(&table);
    struct sl_graph_report report = messages("a rest", false, true);
    assert_int_equal(report.replayed, 3);
    assert_int_equal(report.graphs, 4); /* of 32 calls, 64, all up to the rest, and 10 */
    assert_int_equal(report.kept, 100 + 1 + 700 + 1 + 1 + 10);
    report = messages("no rest", false, false);
    assert_int_equal(report.graphs, 0);
    assert_string_equal(report.why, "messages are on their way where a graph would end (sl_channels_rest)");
    report = messages("a wait", true, true);
    assert_int_equal(report.graphs, 0);
    close_other();
}

int main(int count, char **arguments) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    if (count != 2) return printf("Bail out! the path of a library is missing\n") > 0;
    path = arguments[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_become_graphs),
        cmocka_unit_test(kernels_get_new_numbers),
        cmocka_unit_test(waits_divide_a_step),
        cmocka_unit_test(other_steps_are_taken_call_by_call),
        cmocka_unit_test(steps_of_several_kinds_take_turns),
        cmocka_unit_test(steps_that_never_come_again_are_given_up),
        cmocka_unit_test(what_is_refused_is_taken_call_by_call),
        cmocka_unit_test(what_must_be_graphs_fails),
        cmocka_unit_test(marks_come_behind_what_waits),
        cmocka_unit_test(other_streams_are_parts_of_graphs),
        cmocka_unit_test(a_graph_does_not_end_while_messages_are_on_their_way),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
