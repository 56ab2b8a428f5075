/* measure_command.c - `plan measure`: measures this machine's rates, for predictions elsewhere and later. */
#include "drivers/tools/machine/measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/engines.h"
#include "collectives/launcher.h"
#include "drivers/common/options.h"
#include "drivers/tools/machine/machine_file.h"
#include "drivers/tools/plan/plan.h"

struct config {
    const char *save, *engine;
    bool brief;
};

#define FIELD(name) offsetof(struct config, name)

static const struct sl_option table[] = {
    {"save", SL_OPTION_TEXT, FIELD(save), .value = "FILE", .path = SL_PATH_STREAM,
     .help = "write the machine to FILE, for --machine"},
    {"engine", SL_OPTION_TEXT, FIELD(engine), .value = "NAME",
     .help = "whose links are measured: local, between threads; mpi, between the processes that mpirun has started"},
    {"brief", SL_OPTION_FLAG, FIELD(brief), .help = "measure for a second instead of ten"},
    {0},
};

/* Orders rates, for the best and the median of a type's products. */
static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_products(const struct sl_machine *machine, enum sl_dtype type, const char *name) {
    double rate[SL_MACHINE_PRODUCTS];
    int count = 0;
    for (int i = 0; i < machine->products; i++)
        if (machine->product[i].type == type) rate[count++] = machine->product[i].gflops;
    if (!count) return;
    qsort(rate, (size_t)count, sizeof *rate, compare);
    printf("%-24s %8.1f GFLOP/s, %.1f in the middle of %d shapes\n", name, rate[count - 1], rate[count / 2], count);
}

static void print_turns(const char *name, const struct sl_machine_turns *turns) {
    printf("%-24s %8.2f us a hand-over; a call of", name, 1e6 * turns->message);
    for (int i = 0; i < turns->groups; i++)
        printf("%s %d %.2f", i ? "," : "", turns->group[i].members, 1e6 * turns->group[i].call);
    printf(" us\n");
}

/* Prints the places' speeds if they differ. */
static void print_speeds(const struct sl_machine_nodes *nodes) {
    const char *name = "places, beside the first";
    for (int i = 0; i < nodes->places && i < SL_MACHINE_SPEEDS && nodes->speeds[i] > 0; i++, name = "")
        printf("%-24s %8.3f of its rates\n", name, nodes->speeds[i]);
}

static void print(const struct sl_machine *machine) {
    int places = 0, nodes = 0;
    for (int k = 0; k < machine->kinds; k++) {
        places += machine->nodes[k].count * machine->nodes[k].places;
        nodes += machine->nodes[k].count;
    }
    printf("%d places on %d node%s, each of which reaches, with all of them at work:\n", places, nodes,
           nodes == 1 ? "" : "s");
    print_speeds(&machine->nodes[0]);
    print_products(machine, SL_F32, "products of float32");
    print_products(machine, SL_BF16, "products of bf16");
    printf("%-24s %8.1f GFLOP/s\n", "attention", 2e-9 * machine->attention);
    for (int k = 0; k < SL_MACHINE_KERNELS; k++)
        printf("%-24s %8.2f 1e9 elements a second\n", sl_machine_kernel_name[k], 1e-9 / machine->kernel[k]);
    const struct sl_machine_waits *waits = &machine->waits;
    for (int i = 0; i < machine->sizes; i++)
        printf("%-24s %8.2f GB/s\n", i ? "" : "memory, going over", 1e-9 * machine->memory[i].bandwidth);
    for (int l = 0; l < SL_LINKS; l++)
        printf("messages, %-14s %8.2f us, %.2f GB/s\n", sl_link_name[l], 1e6 * machine->latency[l],
               1e-9 * machine->bandwidth[l]);
    printf("%-24s %8.2f us, %.2f us of the sender's; %.2f us after a nap; waits vary by %.1f %%\n", "waking a sleeper",
           1e6 * waits->wake, 1e6 * waits->notify, 1e6 * waits->nap, 100 * waits->spread);
    print_turns("cores with whole replicas", &machine->tied);
    print_turns("cores that are shared", &machine->roaming);
}

static int measure(const struct config *config, struct sl_error *error) {
    struct sl_machine *machine = calloc(1, sizeof *machine);
    const struct sl_measurement measurement = {.brief = config->brief};
    struct sl_engine engine;
    if (!machine) return sl_error_set(error, SL_FAILED, "no memory to measure this machine");
    int status = sl_engine_open(&engine, config->engine, error);
    if (status == SL_OK) status = sl_machine_measure(machine, &engine, &measurement, error);
    const bool speaks = status == SL_OK && sl_speaks(&engine);
    if (speaks) print(machine);
    if (speaks && config->save) status = sl_machine_write(machine, config->save, error);
    free(machine);
    return status;
}

int plan_measure(int argc, char **argv) {
    const bool launched = sl_launch_of_process().processes > 1;
    struct config config = {.engine = launched ? "mpi" : "local"};
    struct sl_error error = {0};
    struct sl_options options = {.program = "plan measure",
                                 .summary = "Measures this machine: products, kernels, messages between its cores.",
                                 .section = SL_SECTIONS({"Measurement", table, &config})};
    int status = sl_options_parse(&options, argc, argv);
    if (status == SL_OK && !options.answered) status = sl_options_finish(&options, measure(&config, &error), &error);
    sl_options_free(&options);
    return status;
}
