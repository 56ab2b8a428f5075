/* test_device.c - the build's device: its memory, copies and queue, and its messages if there is no device. */
#include "tests/rigs/numbers.h"

#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "spmd/device/device.h"

enum { COUNT = 5000, BYTES = COUNT * sizeof(int32_t) };

static void fill(int32_t *values, int32_t first) {
    for (int i = 0; i < COUNT; i++) values[i] = first + i;
}

static void expect(const int32_t *values, int32_t first) {
    for (int i = 0; i < COUNT; i++) assert_int_equal(values[i], first + i);
}

static void settled(void) {
    struct sl_error error = {0};
    if (sl_device.settle(&error)) fail_msg("%s", error.message);
}

/* Expects numbers from FIRST on at MEMORY, on the device or the host. */
static void expect_at(const void *memory, int32_t first) {
    static int32_t host[COUNT];
    memset(host, 0, sizeof host);
    sl_device.copy(host, memory, BYTES);
    expect(host, first);
    settled();
}

static void takes_zeroed_aligned_memory(void **state) {
    (void)state;
    const size_t sizes[] = {1, 3, 64, 65, 4096, 1 << 20, (4 << 20) + 1};
    for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) { /* the second time it has been used */
        const size_t bytes = sizes[i / 2];
        unsigned char *memory = sl_device.take(bytes), *host = array_of(bytes, 1), *ones = array_of(bytes, 1);
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % SL_CACHE_LINE, 0);
        memset(host, 0x55, bytes);
        memset(ones, 0xff, bytes);
        sl_device.copy(host, memory, bytes);
        for (size_t b = 0; b < bytes; b++) assert_int_equal(host[b], 0);
        sl_device.copy(memory, ones, bytes);
        sl_device.copy(host, memory, bytes);
        assert_memory_equal(host, ones, bytes);
        sl_device.give(memory);
        free(host);
        free(ones);
    }
    sl_device.give(NULL);
    settled();
}

static void refuses_more_than_there_is(void **state) {
    (void)state;
    assert_null(sl_device.take(PTRDIFF_MAX));
    assert_null(sl_device.take(SIZE_MAX - 1));
    settled(); /* the queue has no failure */
}

static void copies_in_all_directions(void **state) {
    (void)state;
    int32_t *host = array_of(COUNT, sizeof(int32_t)), *pinned = sl_device.take_host(BYTES);
    int32_t *one = sl_device.take(BYTES), *other = sl_device.take(BYTES);
    assert_non_null(pinned);
    assert_int_equal(pinned[0] | pinned[COUNT - 1], 0);
    fill(host, 100);
    sl_device.copy(one, host, BYTES);
    fill(host, 0); /* it may be used again */
    sl_device.copy(other, one, BYTES);
    sl_device.copy(pinned, other, BYTES);
    expect(pinned, 100);
    fill(pinned, 200);
    sl_device.copy(one, pinned, BYTES);
    sl_device.copy(other + COUNT / 2, one, BYTES / 2); /* after all work in the queue */
    settled();
    fill(pinned, 0); /* not before */
    expect_at(one, 200);
    sl_device.copy(host, other + COUNT / 2, BYTES / 2);
    for (int i = 0; i < COUNT / 2; i++) assert_int_equal(host[i], 200 + i);
    sl_device.copy(pinned, host, BYTES / 2);
    assert_memory_equal(pinned, host, BYTES / 2);
    sl_device.zero(one, BYTES);
    sl_device.copy(host, one, BYTES);
    for (int i = 0; i < COUNT; i++) assert_int_equal(host[i], 0);
    fill(host, 1);
    sl_device.zero(host, BYTES); /* of the host's */
    for (int i = 0; i < COUNT; i++) assert_int_equal(host[i], 0);
    sl_device.copy(one, host, 0);
    sl_device.zero(one, 0);
    sl_device.give(one);
    sl_device.give(other);
    sl_device.give_host(pinned);
    sl_device.give_host(NULL);
    free(host);
    settled();
}

/* Rows with gaps, in the device's memory and in the host's; the gaps stay unchanged. */
static void copies_rows(void **state) {
    (void)state;
    enum { ROWS = 50, ROW = 60, TO = 75, FROM = 100 };
    int32_t *host = array_of(COUNT, sizeof *host), *back = array_of(COUNT, sizeof *back);
    int32_t *one = sl_device.take(BYTES), *other = sl_device.take(BYTES);
    fill(host, 0);
    sl_device.copy(one, host, BYTES);
    sl_device.copy_rows(ROWS, ROW * 4, other, TO * 4, one + 7, FROM * 4 - 8);
    sl_device.copy(back, other, BYTES);
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < TO; column++)
            assert_int_equal(back[row * TO + column], column < ROW ? 7 + row * (FROM - 2) + column : 0);
    sl_device.copy_rows(ROWS, ROW * 4, one, TO * 4, host + 1, FROM * 4 - 4); /* from the host's, and to it */
    memset(back, 0, BYTES);
    sl_device.copy_rows(ROWS, ROW * 4, back, FROM * 4, one, TO * 4);
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < FROM; column++)
            assert_int_equal(back[row * FROM + column], column < ROW ? 1 + row * (FROM - 1) + column : 0);
    sl_device.give(one);
    sl_device.give(other);
    free(host);
    free(back);
    settled();
}

/* More constants than there is room for: they are overwritten only after the queue's work has read them. */
static void constants_are_what_they_were(void **state) {
    (void)state;
    enum { LISTS = 40, LONG = SL_MOST_CONSTANT / sizeof(int32_t) };
    int32_t *list = array_of(LONG, sizeof *list), *host = array_of(LISTS * (size_t)LONG, sizeof *host);
    int32_t *all = sl_device.take(LISTS * (size_t)SL_MOST_CONSTANT);
    for (int i = 0; i < LISTS; i++) {
        for (int j = 0; j < LONG; j++) list[j] = i + j;
        const void *there = sl_device.constant(list, SL_MOST_CONSTANT);
        sl_device.copy(all + (size_t)i * LONG, there, SL_MOST_CONSTANT);
        assert_true(sl_device.shares_memory || sl_device.reaches(there));
        assert_true(there == sl_device.constant(list, SL_MOST_CONSTANT)); /* found, not copied */
        assert_true(sl_device.shares_memory || there != sl_device.constant(list, sizeof *list));
        memset(list, 0xff, SL_MOST_CONSTANT); /* the caller may use it again */
    }
    sl_device.copy(host, all, LISTS * (size_t)SL_MOST_CONSTANT);
    for (int i = 0; i < LISTS; i++)
        for (int j = 0; j < LONG; j++) assert_int_equal(host[(size_t)i * LONG + j], i + j);
    sl_device.give(all);
    free(list);
    free(host);
    settled();
}

/* Each copy overwrites the one before: the last one wins. */
static void keeps_the_order(void **state) {
    (void)state;
    enum { ROUNDS = 20 };
    int32_t *pinned = sl_device.take_host(ROUNDS * BYTES), *memory = sl_device.take(BYTES);
    for (int round = 0; round < ROUNDS; round++) {
        fill(pinned + round * COUNT, round);
        sl_device.zero(memory, BYTES);
        sl_device.copy(memory, pinned + round * COUNT, BYTES);
    }
    expect_at(memory, ROUNDS - 1);
    sl_device.give(memory);
    sl_device.give_host(pinned);
}

static void tells_what_it_reaches(void **state) {
    (void)state;
    int32_t *memory = sl_device.take(BYTES), *host = array_of(COUNT, sizeof *host);
    assert_int_equal(sl_device.reaches(memory), sl_device.count() > 0);
    assert_int_equal(sl_device.reaches(memory + COUNT - 1), sl_device.count() > 0);
    if (!sl_device.shares_memory) assert_false(sl_device.reaches(host));
    assert_false(sl_device.reaches(NULL));
    sl_device.give(memory);
    free(host);
    settled();
}

struct relay {
    int device;
    int32_t *from, *to;
    void *before, *after;
};

/* Copies on a queue of its own, behind the mark before it. */
static void *pass_on(void *argument) {
    struct relay *relay = argument;
    void *queue = NULL;
    struct sl_error error = {0};
    if (sl_device.open(relay->device, &queue, &error)) return NULL;
    sl_device.follow(relay->before);
    sl_device.copy(relay->to, relay->from, BYTES);
    if (sl_device.mark(&relay->after, &error)) return NULL;
    sl_device.close();
    return relay;
}

/* Data go from one queue through another one and back. The host waits only at the end. */
static void queues_follow_each_other(void **state) {
    (void)state;
    enum { ROUNDS = 20 };
    int32_t *pinned = sl_device.take_host(ROUNDS * BYTES), *one = sl_device.take(BYTES), *other = sl_device.take(BYTES);
    struct relay relay = {sl_device.count() > 1 ? 1 : 0, one, other, NULL, NULL};
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t thread;
        void *passed;
        fill(pinned + round * COUNT, round);
        sl_device.copy(one, pinned + round * COUNT, BYTES);
        assert_int_equal(sl_device.mark(&relay.before, NULL), SL_OK); /* again and again the same */
        assert_int_equal(pthread_create(&thread, NULL, pass_on, &relay), 0);
        pthread_join(thread, &passed);
        assert_ptr_equal(passed, &relay);
        sl_device.follow(relay.after);
        sl_device.zero(one, BYTES);
        expect_at(other, round);
    }
    sl_device.await(relay.after);
    sl_device.follow(NULL);
    sl_device.await(NULL);
    sl_device.free_mark(relay.before);
    sl_device.free_mark(relay.after);
    sl_device.free_mark(NULL);
    sl_device.give(one);
    sl_device.give(other);
    sl_device.give_host(pinned);
    settled();
}

struct worker {
    pthread_t thread;
    int device, status;
    int32_t *memory, *others;
    bool same;
    struct sl_error error;
};

/* On a device of its own: fills its memory, and copies memory that another thread has filled, maybe on another
 * device. */
static void *work(void *argument) {
    struct worker *worker = argument;
    void *queue = NULL;
    worker->status = sl_device.open(worker->device, &queue, &worker->error);
    if (worker->status) return NULL;
    static _Thread_local int32_t host[COUNT], back[COUNT];
    fill(host, 7);
    worker->memory = sl_device.take(BYTES);
    sl_device.copy(worker->memory, worker->others, BYTES);
    sl_device.copy(back, worker->memory, BYTES);
    sl_device.copy(worker->memory, host, BYTES);
    fill(host, 0);
    worker->same = back[0] == 3 && back[COUNT - 1] == 3 + COUNT - 1;
    worker->status = sl_device.settle(&worker->error);
    sl_device.give(worker->others); /* taken by another thread */
    sl_device.close();
    return NULL;
}

static void threads_have_their_own_queues(void **state) {
    (void)state;
    enum { THREADS = 4 };
    struct worker worker[THREADS];
    static int32_t host[COUNT];
    const int devices = sl_device.count();
    for (int t = 0; t < THREADS; t++) {
        worker[t] = (struct worker){.device = devices ? t % devices : -1, .others = sl_device.take(BYTES)};
        fill(host, 3);
        sl_device.copy(worker[t].others, host, BYTES);
        settled();
        assert_int_equal(pthread_create(&worker[t].thread, NULL, work, &worker[t]), 0);
    }
    for (int t = 0; t < THREADS; t++) {
        pthread_join(worker[t].thread, NULL);
        if (worker[t].status) fail_msg("%s", worker[t].error.message);
        assert_true(worker[t].same);
        expect_at(worker[t].memory, 7);
        sl_device.give(worker[t].memory);
    }
    settled();
}

static void opens_again(void **state) {
    (void)state;
    struct sl_error error = {0};
    void *queue = NULL, *again = NULL;
    const int devices = sl_device.count();
    for (int device = 0; device < devices; device++) {
        assert_int_equal(sl_device.open(device, &queue, &error), SL_OK);
        assert_int_equal(sl_device.open(device, &again, &error), SL_OK);
        assert_ptr_equal(queue, again);
        int32_t *memory = sl_device.take(BYTES);
        assert_true(sl_device.reaches(memory));
        sl_device.give(memory);
    }
    sl_device.close();
    sl_device.close();
    settled();
}

static void knows_distances(void **state) {
    (void)state;
    const int devices = sl_device.count();
    for (int one = 0; one < devices; one++) {
        for (int other = 0; other < devices; other++)
            assert_int_equal(sl_device.distance(one, other) == 0, one == other);
    }
}

/* The tests below need x86_64 devices. Their runtime loads code from files and does not remove them. */

static int count_images(struct dl_phdr_info *object, size_t size, void *count) {
    (void)size;
    if (strncmp(object->dlpi_name, "/tmp/tmpfile_", strlen("/tmp/tmpfile_"))) return 0;
    if (!access(object->dlpi_name, F_OK)) fail_msg("%s is there", object->dlpi_name);
    ++*(int *)count;
    return 0;
}

static void leaves_no_files(void **state) {
    (void)state;
    struct sl_error error = {0};
    void *queue = NULL;
    int images = 0;
    for (int device = 0; device < sl_device.count(); device++) {
        assert_int_equal(sl_device.open(device, &queue, &error), SL_OK);
        dl_iterate_phdr(count_images, &images);
    }
    sl_device.close();
    assert_true(images >= sl_device.count());
}

/* The tests below need the fake CUDA, which fails to order. */

static void expect_failure(const char *text) {
    struct sl_error error = {0};
    assert_int_equal(sl_device.settle(&error), SL_FAILED);
    assert_int_equal(error.status, SL_FAILED);
    if (!strstr(error.message, text)) fail_msg("%s", error.message);
}

static void settle_tells_what_failed(void **state) {
    (void)state;
    static int32_t host[COUNT];
    int32_t *memory = sl_device.take(BYTES);
    setenv("FAKE_CUDA_FAIL", "cudaMemcpyAsync@2", 1);
    sl_device.copy(memory, host, BYTES);
    settled();
    sl_device.copy(memory, host, BYTES);
    assert_int_equal(sl_device.settle(NULL), SL_FAILED); /* and reports it again */
    expect_failure("device 0: cudaMemcpyAsync: unknown error");
    settled(); /* it has been reported */
    setenv("FAKE_CUDA_FAIL", "cudaMalloc@1", 1);
    assert_null(sl_device.take(BYTES));
    expect_failure("cudaMalloc");
    sl_device.give(memory);
    unsetenv("FAKE_CUDA_FAIL");
}

static void *fail_at_work(void *argument) {
    struct worker *worker = argument;
    void *queue;
    sl_device.open(worker->device, &queue, NULL);
    sl_device.zero(worker->memory, BYTES);
    worker->status = sl_device.settle(&worker->error);
    sl_device.close();
    return NULL;
}

/* Work that is enqueued without an error and fails later: the next wait reports it. In a thread, because its queue is
 * unusable afterwards. */
static void settle_tells_what_failed_later(void **state) {
    (void)state;
    struct worker worker = {.device = 1, .memory = sl_device.take(BYTES)};
    setenv("FAKE_CUDA_FAIL", "work@1", 1);
    assert_int_equal(pthread_create(&worker.thread, NULL, fail_at_work, &worker), 0);
    pthread_join(worker.thread, NULL);
    unsetenv("FAKE_CUDA_FAIL");
    assert_int_equal(worker.status, SL_FAILED);
    assert_string_equal(worker.error.message, "device 1: cudaStreamSynchronize: unspecified launch failure");
    sl_device.give(worker.memory);
    settled();
}

static void check_tells_why_not(void **state) {
    (void)state;
    struct sl_error error = {0};
    assert_int_equal(sl_device.check(&error), SL_OK);
    setenv("FAKE_CUDA_DEVICES", "0", 1);
    assert_int_equal(sl_device.check(&error), SL_BAD_INPUT);
    assert_string_equal(error.message, "no NVIDIA GPU to compute on (no CUDA-capable device is detected): use a build "
                                       "of the preset host or offload");
    assert_int_equal(sl_device.count(), 0);
    unsetenv("FAKE_CUDA_DEVICES");
    void *queue = NULL;
    assert_int_equal(sl_device.open(99, &queue, &error), SL_FAILED);
    assert_string_equal(error.message, "device 99: cudaSetDevice: invalid device ordinal");
}

static void takes_managed_memory(void **state) {
    (void)state;
    setenv("SHARDLOOP_MEMORY", "managed", 1);
    int32_t *memory = sl_device.take(BYTES);
    unsetenv("SHARDLOOP_MEMORY");
    assert_true(sl_device.reaches(memory));
    fill(memory, 5); /* by the host */
    expect_at(memory, 5);
    sl_device.give(memory);
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    struct sl_error error = {0};
    if (sl_device.check(&error)) return printf("1..0 # SKIP %s\n", error.message) < 0;
    const bool offloads = sl_device.offloads(), fake = !strcmp(sl_device.name, "cuda") && !offloads;
    printf("# %s, %d devices%s\n", sl_device.name, sl_device.count(), offloads ? ", target regions run there" : "");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_zeroed_aligned_memory),
        cmocka_unit_test(refuses_more_than_there_is),
        cmocka_unit_test(copies_in_all_directions),
        cmocka_unit_test(copies_rows),
        cmocka_unit_test(constants_are_what_they_were),
        cmocka_unit_test(keeps_the_order),
        cmocka_unit_test(queues_follow_each_other),
        cmocka_unit_test(tells_what_it_reaches),
        cmocka_unit_test(threads_have_their_own_queues),
        cmocka_unit_test(opens_again),
        cmocka_unit_test(knows_distances),
    };
    const struct CMUnitTest of_files[] = {cmocka_unit_test(leaves_no_files)};
    const struct CMUnitTest fakes[] = {
        cmocka_unit_test(settle_tells_what_failed),
        cmocka_unit_test(settle_tells_what_failed_later),
        cmocka_unit_test(check_tells_why_not),
        cmocka_unit_test(takes_managed_memory),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (!strcmp(sl_device.name, "offload")) failed += cmocka_run_group_tests(of_files, NULL, NULL);
    return fake ? failed + cmocka_run_group_tests(fakes, NULL, NULL) : failed;
}
