/* test_complexity_machines.c - machines are read, and asked for rates, in a time that grows as they do. */
#include "tests/rigs/complexity.h"

#include <sys/mman.h>
#include <unistd.h>

#include "drivers/tools/machine/machine_file.h"

/* The file that the last preparation wrote; it lies in memory. */
static char path[64];
static int descriptor;
static struct sl_machine machine;

static void prepare(const struct complexity_row *row, int n) {
    (void)row;
    FILE *file = ftruncate(descriptor, 0) ? NULL : fdopen(dup(descriptor), "w");
    assert_non_null(file);
    rewind(file);
    fputs("{\"name\":\"m\",\"nodes\":[{\"places\":2}],\"products\":[", file);
    for (int i = 0; i < n; i++) fprintf(file, "%s[\"f32\",%d,8,8,\"NN\",9.5]", i ? "," : "", i + 1);
    fputs("],\"kernels\":{\"moves\":1,\"norms\":1,\"gelu\":1,\"softmax\":1,\"dropout\":1,\"optimizer\":1},"
          "\"attention_gflops\":1,\"links\":{\"package\":{\"gb_per_s\":1}}}",
          file);
    assert_int_equal(fclose(file), 0);
}

static void read_file(const struct complexity_row *row, int n) {
    (void)row;
    struct sl_error error = {0};
    if (sl_machine_read(&machine, path, &error)) fail_msg("%s", error.message);
    assert_int_equal(machine.products, n);
}

static void prepare_machine(const struct complexity_row *row, int n) {
    prepare(row, n);
    read_file(row, n);
}

static void ask(const struct complexity_row *row, int n) {
    (void)row;
    assert_true(sl_machine_product(&machine, SL_F32, n + 7, 9, 9, false, false) > 0);
}

static struct complexity_row rows[] = {
    {"machines: products that are read", 64, prepare, read_file, NULL, 0},
    {"machines: products that are asked for", 64, prepare_machine, ask, NULL, 0},
};

int main(void) {
    descriptor = memfd_create("complexity", 0);
    if (descriptor < 0) return 1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    return complexity_run("machines", rows, sizeof rows / sizeof *rows);
}
