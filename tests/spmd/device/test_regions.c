/* test_regions.c - target regions as launches in the thread's queue (spmd/device/cuda/regions.c), on threads in place
 * of GPUs: clang's regions in libraries with images for this machine, and a handmade image. The paths of the libraries
 * are arguments: two that differ in a factor only, and the image. */
#include "tests/rigs/numbers.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "spmd/device/cuda/cuda.h"
#include "spmd/device/device.h"
#include "spmd/device/cuda/libomptarget.h"
#include "tests/spmd/device/regions_image.h"
#include "tests/spmd/device/regions_library.h"

enum { COUNT = 3000, ROUNDS = 3000 };

static char *const *paths;

struct library {
    void *handle;
    void (*scale)(int n, float *x);
    void (*scale_in_three_teams)(int n, float *x);
    void (*scale_alone)(int n, float *x);
    void (*scale_in_one_team)(int n, float *x);
    double (*sum)(int n, const float *x);
    void (*add_terms)(int n, struct terms terms, float *x);
    void (*add_many)(int n, const struct many *many, float *x);
    void (*map_region)(int n, float *x);
};

static struct library open_library(const char *path) {
    struct library l = {.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL)};
    if (!l.handle) fail_msg("%s", dlerror());
    *(void **)&l.scale = dlsym(l.handle, "scale");
    *(void **)&l.scale_in_three_teams = dlsym(l.handle, "scale_in_three_teams");
    *(void **)&l.scale_alone = dlsym(l.handle, "scale_alone");
    *(void **)&l.scale_in_one_team = dlsym(l.handle, "scale_in_one_team");
    *(void **)&l.sum = dlsym(l.handle, "sum");
    *(void **)&l.add_terms = dlsym(l.handle, "add_terms");
    *(void **)&l.add_many = dlsym(l.handle, "add_many");
    *(void **)&l.map_region = dlsym(l.handle, "map_region");
    assert_true(l.scale && l.scale_in_three_teams && l.scale_alone && l.scale_in_one_team && l.sum && l.add_terms &&
                l.add_many && l.map_region);
    return l;
}

static void settled(void) {
    struct sl_error error = {0};
    if (sl_device.settle(&error)) fail_msg("%s", error.message);
}

static float *ones(void) {
    static float host[COUNT];
    float *x = sl_device.take(sizeof host);
    for (int i = 0; i < COUNT; i++) host[i] = 1;
    assert_non_null(x);
    sl_device.copy(x, host, sizeof host);
    return x;
}

/* X has VALUE everywhere. */
static void expect_all(float *x, float value) {
    static float host[COUNT];
    sl_device.copy(host, x, sizeof host);
    for (int i = 0; i < COUNT; i++) assert_true(host[i] == value);
    settled();
}

/* ---- holding the queue ---- */

static atomic_bool held;

static void hold(void *argument) {
    (void)argument;
    while (atomic_load(&held)) usleep(100);
}

static void hold_queue(void) {
    atomic_store(&held, true);
    assert_int_equal(cudaLaunchHostFunc(sl_cuda_queue()->stream, hold, NULL), 0);
    sl_cuda_queue()->busy = true;
}

static void regions_are_not_waited_for(void **state) {
    (void)state;
    const struct library library = open_library(paths[0]);
    float *x = ones();
    struct terms terms = {{10, 10, 10, 10, 10}};
    hold_queue();
    library.scale(COUNT, x); /* would never return if it waited */
    library.add_terms(COUNT, terms, x);
    memset(&terms, 0, sizeof terms);
    library.scale_in_three_teams(COUNT, x);
    assert_true(sl_cuda_queue()->busy);
    atomic_store(&held, false);
    expect_all(x, 24);
    sl_device.give(x);
}

static void regions_keep_the_order_of_the_queue(void **state) {
    (void)state;
    const struct library library = open_library(paths[0]);
    float *x = sl_device.take(COUNT * sizeof *x), *y = ones();
    for (int round = 0; round < 30; round++) {
        sl_device.zero(x, COUNT * sizeof *x);
        library.add_terms(COUNT, (struct terms){{1, 1, 1, 1, 1}}, x);
        library.scale(COUNT, x);
        sl_device.copy(y, x, COUNT * sizeof *x);
        library.scale(COUNT, y);
        sl_device.zero(x, COUNT * sizeof *x);
    }
    expect_all(y, 4);
    sl_device.give(x);
    sl_device.give(y);
}

static void sums_come_back(void **state) {
    (void)state;
    const struct library library = open_library(paths[0]);
    float *x = ones();
    for (int round = 0; round < 20; round++) {
        library.scale(COUNT, x);
        assert_true(library.sum(COUNT, x) == COUNT * (double)(2 << round));
    }
    sl_device.give(x);
    settled();
}

/* More than the ring holds, while nothing of it has been read. */
static void what_is_mapped_stays_until_it_is_read(void **state) {
    (void)state;
    const struct library library = open_library(paths[0]);
    float *x = ones(), expected = 1;
    for (int round = 0; round < ROUNDS; round++) {
        const float term = (float)(round % 3);
        library.add_terms(COUNT, (struct terms){{term, term, term, term, term}}, x);
        expected += term;
    }
    expect_all(x, expected);
    sl_device.give(x);
}

static void libraries_may_have_kernels_of_one_name(void **state) {
    (void)state;
    float *x = ones();
    const struct library one = open_library(paths[0]), other = open_library(paths[1]); /* the device is open */
    one.scale(COUNT, x);
    other.scale(COUNT, x);
    one.scale(COUNT, x);
    expect_all(x, 12);
    dlclose(other.handle);
    one.scale(COUNT, x);
    const struct library again = open_library(paths[1]);
    again.scale(COUNT, x);
    expect_all(x, 72);
    sl_device.give(x);
}

/* ---- threads ---- */

static atomic_int wrong;

static void *work(void *argument) {
    const struct library *library = argument;
    static atomic_int threads;
    void *queue;
    float host[100], *x;
    if (sl_device.open(atomic_fetch_add(&threads, 1) % 2, &queue, NULL)) atomic_store(&wrong, 1);
    x = sl_device.take(sizeof host);
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < 100; i++) host[i] = (float)i;
        sl_device.copy(x, host, sizeof host);
        library->scale(100, x);
        if (library->sum(100, x) != 9900) atomic_store(&wrong, 1);
    }
    sl_device.give(x);
    if (sl_device.settle(NULL)) atomic_store(&wrong, 1);
    sl_device.close();
    return NULL;
}

static void threads_have_queues_and_sums_of_their_own(void **state) {
    (void)state;
    enum { THREADS = 4 };
    struct library library = open_library(paths[0]);
    pthread_t thread[THREADS];
    for (int t = 0; t < THREADS; t++) assert_int_equal(pthread_create(&thread[t], NULL, work, &library), 0);
    for (int t = 0; t < THREADS; t++) pthread_join(thread[t], NULL);
    assert_int_equal(wrong, 0);
}

/* ---- an image made by hand ---- */

void __tgt_register_lib(struct sl_omp_binary *binary);
void __tgt_unregister_lib(struct sl_omp_binary *binary);
int __tgt_target_kernel(void *place, int64_t device, int32_t teams, int32_t threads, void *region,
                        struct sl_omp_arguments *arguments);

static char *read_image(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *bytes = (size_t)ftell(file);
    rewind(file);
    char *image = array_of(*bytes, 1);
    assert_int_equal(fread(image, 1, *bytes, file), *bytes);
    fclose(file);
    return image;
}

/* The last launch of NAME in the account. */
static void expect_launch(const char *name, unsigned blocks, unsigned threads) {
    char line[2000], kernel[500];
    unsigned grid = 0, block = 0, g, b;
    FILE *file = fopen(getenv("FAKE_CUDA_RECORD"), "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%*s launch %499s %u %u", kernel, &g, &b) == 3 && strstr(kernel, name)) grid = g, block = b;
    }
    fclose(file);
    assert_int_equal(grid, blocks);
    assert_int_equal(block, threads);
}

struct by_hand {
    char region;
    struct sl_omp_entry entry[2];
    struct sl_omp_image image;
    struct sl_omp_binary binary;
};

static void make_binary(struct by_hand *made, char *name, const char *image, size_t bytes) {
    made->entry[0] = (struct sl_omp_entry){.address = &made->region, .name = name};
    made->entry[1] = (struct sl_omp_entry){.address = &made->region, .name = name, .size = 8}; /* a variable */
    made->image = (struct sl_omp_image){image, image + bytes, made->entry, made->entry + 2};
    made->binary = (struct sl_omp_binary){1, &made->image, made->entry, made->entry + 2};
}

static void launch_teams(struct by_hand *made, struct launched *launched, uint64_t number, uint64_t trips,
                         uint32_t teams, uint32_t threads) {
    void *bases[] = {launched, (void *)(uintptr_t)number};
    int64_t sizes[] = {0, 8}, types[] = {SL_OMP_PARAMETER | SL_OMP_LITERAL, SL_OMP_PARAMETER | SL_OMP_LITERAL};
    struct sl_omp_arguments arguments = {.version = SL_OMP_ARGUMENTS_VERSION,
                                         .count = 2,
                                         .bases = bases,
                                         .pointers = bases,
                                         .sizes = sizes,
                                         .types = types,
                                         .trips = trips,
                                         .teams = {teams},
                                         .threads = {threads}};
    assert_int_equal(__tgt_target_kernel(NULL, -1, 0, 0, &made->region, &arguments), 0);
}

static void launch_by_hand(struct by_hand *made, struct launched *launched, uint64_t number, uint64_t trips,
                           uint32_t threads) {
    launch_teams(made, launched, number, trips, 0, threads);
}

/* A kernel finds its counters at zero after any earlier kernel. */
static void a_kernel_gets_what_its_sums_need(void **state) {
    (void)state;
    struct by_hand made;
    size_t bytes;
    char *image = read_image(paths[2], &bytes);
    make_binary(&made, "by_hand", image, bytes);
    __tgt_register_lib(&made.binary);
    struct launched *device = sl_device.take(sizeof *device), host;
    for (uint64_t number = 1; number < 4; number++) {
        launch_by_hand(&made, device, number, 5, 0);
        sl_device.copy(&host, device, sizeof host);
        settled();
        assert_true(host.arrived == 0 && host.round == 0 && host.reduction && host.number == number);
        assert_true(sl_device.reaches(host.reduction) &&
                    sl_device.reaches((char *)host.reduction + BY_HAND_REDUCTION - 1));
    }
    expect_launch("by_hand", 5, 96); /* a block per iteration; at most the kernel's number of threads */
    launch_by_hand(&made, device, 1, 1000000, 32);
    expect_launch("by_hand", 3200, 64); /* and a warp for the sequential part */
    settled();
    __tgt_unregister_lib(&made.binary);
    sl_device.give(device);
    free(image);
}

static void launches_have_128_threads(void **state) {
    (void)state;
    const struct library library = open_library(paths[0]);
    float *x = ones();
    library.scale(COUNT, x);
    expect_launch("_scale_l", (COUNT + 127) / 128, 128);
    library.scale(1, x);
    expect_launch("_scale_l", 1, 128);
    library.scale(0, x);
    settled();
    library.scale_in_three_teams(COUNT, x);
    expect_launch("_scale_in_three_teams_l", 3, 64);
    sl_device.give(x);
    settled();
}

/* For a region without a teams construct, clang's number of teams is 2^32 - 1. */
static void regions_without_teams_have_one_block(void **state) {
    (void)state;
    const struct library library = open_library(paths[0]);
    float *x = ones();
    library.scale_alone(COUNT, x);
    settled();
    expect_launch("_scale_alone_l", 1, 128);
    library.scale_in_one_team(COUNT, x);
    settled();
    expect_launch("_scale_in_one_team_l", 1, 128);
    expect_all(x, 4);
    sl_device.give(x);
}

/* Whatever a region asks for, a driver takes: it refuses a grid of more than 2^31 - 1 blocks, or a block of more than
 * 1,024 threads. */
static void launches_keep_to_the_drivers_limits(void **state) {
    (void)state;
    struct by_hand made;
    size_t bytes;
    char *image = read_image(paths[2], &bytes);
    make_binary(&made, "without_environment", image, bytes);
    __tgt_register_lib(&made.binary);
    const struct {
        uint32_t teams, threads, blocks, of;
    } cases[] = {
        {UINT32_MAX, 0, 1, 128},
        {UINT32_MAX, UINT32_MAX, 1, 1024},
        {UINT32_MAX - 1, 32, INT32_MAX, 32},
        {1u << 31, 1024, INT32_MAX, 1024},
        {7, 5000, 7, 1024},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        launch_teams(&made, NULL, 0, 1, cases[i].teams, cases[i].threads);
        settled();
        expect_launch("without_environment", cases[i].blocks, cases[i].of);
    }
    __tgt_unregister_lib(&made.binary);
    free(image);
}

/* ---- failures ---- */

static void expect_failure(const char *text) {
    struct sl_error error = {0};
    assert_int_equal(sl_device.settle(&error), SL_FAILED);
    if (!strstr(error.message, text)) fail_msg("%s, not %s", error.message, text);
    settled(); /* it has been reported */
}

static void failures_are_the_queues(void **state) {
    (void)state;
    const struct library library = open_library(paths[0]);
    static struct many many;
    float *x = ones();
    setenv("FAKE_CUDA_FAIL", "cuLaunchKernel@1", 1);
    library.scale(COUNT, x);
    unsetenv("FAKE_CUDA_FAIL");
    expect_failure("device 0: cuLaunchKernel: ");
    library.add_many(COUNT, &many, x);
    expect_failure("maps more than 64 KB: copy that with sl_device.copy");
    library.map_region(COUNT, x);
    expect_failure("device 0: target data: there is no table of mapped memory: take it with sl_device.take");
    struct by_hand made;
    make_binary(&made, "by_hand", NULL, 0); /* never registered */
    launch_by_hand(&made, NULL, 0, 1, 0);
    expect_failure("it is in none of the program's images");
    expect_all(x, 1); /* nothing has run */
    sl_device.give(x);
}

static void *open_and_fail(void *argument) {
    struct sl_error *error = argument;
    void *queue;
    const int status = sl_device.open(2, &queue, error);
    sl_device.close();
    return status ? error : NULL;
}

static void opening_tells_what_is_missing(void **state) {
    (void)state;
    const struct {
        const char *fail, *text;
    } cases[] = {
        {"cuMemAlloc_v2@1", "device 2: cuMemAlloc: memory of target regions: unknown error"},
        {"cudaMemcpyAsync@1", "device 2: cudaMemcpyAsync: unknown error"},
        {"cuMemAlloc_v2@2", "device 2: cuMemAlloc: memory of constants: unknown error"},
    };
    setenv("FAKE_CUDA_DEVICES", "3", 1); /* device 2 has no closed queue, whose memory would be used again */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sl_error error = {0};
        pthread_t thread;
        void *failed;
        setenv("FAKE_CUDA_FAIL", cases[i].fail, 1);
        assert_int_equal(pthread_create(&thread, NULL, open_and_fail, &error), 0);
        pthread_join(thread, &failed);
        unsetenv("FAKE_CUDA_FAIL");
        assert_non_null(failed);
        if (!strstr(error.message, cases[i].text)) fail_msg("%s", error.message);
    }
    unsetenv("FAKE_CUDA_DEVICES");
}

/* Late images are loaded at their first launch: their failures are the queue's, too. */
static void images_that_do_not_fit_are_told(void **state) {
    (void)state;
    struct by_hand made;
    size_t bytes;
    char *image = read_image(paths[2], &bytes);
    make_binary(&made, "unknown_kernel", image, bytes);
    __tgt_register_lib(&made.binary);
    launch_by_hand(&made, NULL, 0, 1, 0);
    expect_failure("device 0: cuModuleGetFunction: unknown_kernel: named symbol not found");
    __tgt_unregister_lib(&made.binary);

    static char garbage[64] = "no image";
    make_binary(&made, "by_hand", garbage, sizeof garbage);
    __tgt_register_lib(&made.binary);
    launch_by_hand(&made, NULL, 0, 1, 0);
    expect_failure("device 0: cuModuleLoadData: the device takes none of the program's images");
    __tgt_unregister_lib(&made.binary);

    struct sl_error error = {0};
    static const unsigned char abi[] = {7, 8}; /* CUDA 12's and CUDA 13's way to say sm_90 */
    for (int i = 0; i < 2; i++) {
        garbage[8] = (char)abi[i];
        garbage[48] = i ? 0 : 90;
        garbage[49] = i ? 90 : 0;
        __tgt_register_lib(&made.binary);
        assert_int_equal(sl_device.check(&error), SL_OK);
        setenv("FAKE_CUDA_ARCHITECTURE", "80", 1);
        assert_int_equal(sl_device.check(&error), SL_BAD_INPUT);
        unsetenv("FAKE_CUDA_ARCHITECTURE");
        assert_non_null(strstr(error.message, "device 0 is an NVIDIA GPU of sm_80, and this build has code for "));
        __tgt_unregister_lib(&made.binary);
    }
    free(image);
}

static void regions_are_waited_for_where_the_host_looks(void **state) {
    (void)state;
    const struct library library = open_library(paths[0]);
    sl_device.close();
    setenv("SHARDLOOP_MEMORY", "managed", 1);
    float *x = ones();
    library.scale(COUNT, x);
    for (int i = 0; i < COUNT; i++) assert_true(x[i] == 2);
    unsetenv("SHARDLOOP_MEMORY");
    sl_device.give(x);
    settled();
    sl_device.close();
}

int main(int count, char **arguments) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    if (count != 4) return printf("Bail out! the paths of two libraries and an image are missing\n") > 0;
    paths = arguments + 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regions_are_not_waited_for),
        cmocka_unit_test(regions_keep_the_order_of_the_queue),
        cmocka_unit_test(sums_come_back),
        cmocka_unit_test(what_is_mapped_stays_until_it_is_read),
        cmocka_unit_test(libraries_may_have_kernels_of_one_name),
        cmocka_unit_test(threads_have_queues_and_sums_of_their_own),
        cmocka_unit_test(a_kernel_gets_what_its_sums_need),
        cmocka_unit_test(launches_have_128_threads),
        cmocka_unit_test(regions_without_teams_have_one_block),
        cmocka_unit_test(launches_keep_to_the_drivers_limits),
        cmocka_unit_test(failures_are_the_queues),
        cmocka_unit_test(opening_tells_what_is_missing),
        cmocka_unit_test(images_that_do_not_fit_are_told),
        cmocka_unit_test(regions_are_waited_for_where_the_host_looks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
