/* observed.c - begins with typical rates, and scales each until the predicted work is as observed. */
#include "drivers/tools/search/observed.h"

#include "collectives/engines.h"

/* ---- typical rates ---- */

/* Rates of a core, in GFLOP/s: products with few rows are slower. */
static const struct {
    int m, n, k;
    double rate;
} typical[] = {{2, 256, 256, 15},   {8, 256, 256, 40},   {32, 256, 256, 65},    {128, 256, 256, 85},
               {512, 256, 256, 95}, {8, 1024, 1024, 45}, {128, 1024, 1024, 95}, {2048, 1024, 1024, 110}};
enum { TYPICAL = sizeof typical / sizeof *typical };

static void add_products(struct sl_machine *machine, enum sl_dtype type) {
    for (int way = 0; way < 3; way++)
        for (int i = 0; i < TYPICAL; i++) {
            const bool sums_rows = way == 2; /* in a weight gradient k is the number of rows */
            machine->product[machine->products++] =
                (struct sl_machine_product){.type = type,
                                            .m = sums_rows ? typical[i].n : typical[i].m,
                                            .n = typical[i].n,
                                            .k = sums_rows ? typical[i].m : typical[i].k,
                                            .a_transposed = way == 2,
                                            .b_transposed = way == 1,
                                            .gflops = typical[i].rate};
        }
}

/* Begins with a machine for the job. If coordinates have places of their own, or are processes of several hosts, there
 * are as many places as coordinates. */
static void begin(struct sl_machine *machine, const struct sl_job *job, const struct sl_engine *engine) {
    const int coordinates = job->mesh.size;
    const int cores = job->sharing.coordinates >= coordinates ? job->sharing.cores : 0;
    *machine = (struct sl_machine){.name = "this run",
                                   .kinds = 1,
                                   .kernel = {1.0 / 6e9, 1.0 / 2.5e9, 1.0 / 2e9, 1.0 / 1.5e9, 1.0 / 1.5e9, 1.0 / 1e9},
                                   .attention = 25e9,
                                   .far = SL_MACHINE_FAR,
                                   .action = 1e-6,
                                   .waits = {.wake = 30e-6, .nap = 15e-6, .notify = 4e-6, .awake = SL_AWAKE_SECONDS},
                                   .tied = {.message = 10e-6, .call = 10e-6},
                                   .roaming = {.message = 20e-6, .call = 20e-6}};
    machine->nodes[0] = (struct sl_machine_nodes){
        .count = 1, .places = cores > 0 ? cores : coordinates, .shares = cores > 0, .speed = 1};
    for (int link = 0; link < SL_LINKS; link++) {
        machine->latency[link] = 2e-6 + engine->delay;
        machine->bandwidth[link] = 5e9;
    }
    add_products(machine, SL_F32);
    if (job->precision != SL_F32) add_products(machine, job->precision);
}

/* ---- observations ---- */

/* Seconds per step of the coordinate with the most work. */
struct seen {
    double products, kernels, optimizer, communication, other;
};

static struct seen look(const struct sl_profile *profile, int coordinates, int64_t steps) {
    int most = 0;
    for (int c = 1; c < coordinates; c++)
        if (profile[c].seconds[SL_WORK_PRODUCTS] + profile[c].seconds[SL_WORK_KERNELS] >
            profile[most].seconds[SL_WORK_PRODUCTS] + profile[most].seconds[SL_WORK_KERNELS])
            most = c;
    const double *seconds = profile[most].seconds, times = (double)steps;
    return (struct seen){seconds[SL_WORK_PRODUCTS] / times, seconds[SL_WORK_KERNELS] / times,
                         seconds[SL_WORK_OPTIMIZER] / times, seconds[SL_WORK_COMMUNICATION] / times,
                         seconds[SL_WORK_OTHER] / times};
}

/* Returns the factor for times of a kind; 1 if either time is too small to tell. */
static double factor(double seconds, double predicted_ms) {
    const double least = 1e-7;
    return seconds > least && predicted_ms > 1e3 * least ? 1e3 * seconds / predicted_ms : 1;
}

/* Returns the actions per step of the rank with the most actions. */
static double actions_of(const struct sl_job *job) {
    int most = 1;
    for (int r = 0; r < job->schedule.ranks; r++)
        if (job->schedule.rank[r].count > most) most = job->schedule.rank[r].count;
    return (double)most * job->passes;
}

static void scale(struct sl_machine *machine, const struct sl_job *job, const struct seen *seen,
                  const struct sl_prediction *own) {
    const double *share = own->share_ms;
    const double products = factor(seen->products, share[SL_SHARE_PRODUCTS]);
    const double kernels = factor(seen->kernels, share[SL_SHARE_KERNELS] + share[SL_SHARE_ATTENTION]);
    const double calls = share[SL_SHARE_CALLS] > 0 ? factor(seen->communication, share[SL_SHARE_CALLS]) : 1;
    for (int i = 0; i < machine->products; i++) machine->product[i].gflops /= products;
    for (int k = 0; k < SL_MACHINE_KERNELS; k++)
        machine->kernel[k] *= k == SL_MACHINE_OPTIMIZER ? factor(seen->optimizer, own->optimizer_ms) : kernels;
    machine->attention /= kernels;
    for (int link = 0; link < SL_LINKS; link++) {
        machine->latency[link] *= calls;
        machine->bandwidth[link] /= calls;
    }
    machine->tied.call *= calls; /* for groups of any size: there are no typical values */
    machine->roaming.call *= calls;
    machine->action = seen->other / actions_of(job);
}

int sl_observe(struct sl_machine *machine, struct sl_job *job, const struct sl_engine *engine,
               const struct sl_profile *profile, int64_t steps, struct sl_error *error) {
    struct sl_prediction own;
    begin(machine, job, engine);
    if (steps < 1) return SL_OK;
    const struct seen seen = look(profile, job->mesh.size, steps);
    SL_TRY(sl_search_predict(job, engine, machine, &own, error));
    scale(machine, job, &seen, &own);
    return SL_OK;
}
