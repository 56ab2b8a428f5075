/* predict.c - plans each rank, converts its work to seconds, and simulates the schedule. */
#include "drivers/tools/search/predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/paper.h"
#include "drivers/tools/search/links.h"
#include "spmd/schedule/simulate.h"

/* Plan of a rank. */
struct rank {
    struct sl_budget budget;
    struct sl_load load;
    double *summed;  /* [loops] floats of gradients summed over replicas, counted each time */
    double *trained; /* [loops] floats of their parameters, gathered if each replica updates a part */
    double *updated; /* [loops] floats of parameters updated by this coordinate */
    double *halved;  /* [loops] part of `trained` gathered as bf16 */
    bool reads;      /* the optimizer reads other replicas' gradients in place, and they read its values: no data are
                      * moved */
    double sums;     /* ms of its sums over replicas and gathers, if they are work of shared cores */
};

/* Bytes that a place uses before it uses the same bytes again: the fewer, the likelier they are still in a cache. */
enum span {
    SPAN_MICROBATCH, /* for weights: those of all its stages, and a microbatch's saved activations; */
    SPAN_WINDOW,     /* for saved activations and gradients: all microbatches in flight, too; */
    SPAN_STEP,       /* for the optimizer: everything */
    SPANS
};

struct prediction {
    struct sl_job *job;
    const struct sl_machine *machine;
    struct sl_group_links links;
    struct rank *rank;                    /* [ranks] */
    double pace;                          /* time on the slowest place, relative to the rates */
    double used[SPANS];                   /* bytes that a place uses before it uses the same ones again */
    const struct sl_machine_turns *turns; /* if coordinates share cores; otherwise NULL */
    struct sl_stage_costs *stage;
    struct sl_prediction *result;
};

/* ---- planning ---- */

struct planning {
    struct sl_job *job;
    struct rank *rank;
};

static void count_parameters(struct rank *rank, const struct sl_job *job, const struct sl_parameters *parameters) {
    rank->reads = parameters->one_copy && !parameters->values_only && job->options->clip == 0;
    for (int r = 0; r < parameters->ranges; r++) {
        const struct sl_range *range = &parameters->range[r];
        const int loop = range->loop; /* loop of tied parameters: the first one's */
        if (sl_range_is_frozen(parameters, r)) continue;
        if (range->room) rank->reads = false; /* gradients are freed early */
        if (!sl_range_is_sharded(parameters, r)) {
            rank->trained[loop] += (double)range->used;
            rank->summed[loop] += (double)range->used * sl_range_sums(parameters, r);
        }
        if (range->own_floats) rank->halved[loop] += (double)range->used;
        rank->updated[loop] += (double)range->shard_count;
    }
}

static int program(struct sl_spmd *self, void *arg) {
    const struct planning *planning = arg;
    struct sl_worker worker;
    planning->job->load = &planning->rank->load;
    int status = sl_worker_plan(&worker, self, planning->job);
    if (status == SL_OK) status = sl_worker_plan_bytes(&worker, &planning->rank->budget);
    if (status == SL_OK) count_parameters(planning->rank, planning->job, sl_trainer_parameters(worker.trainer));
    sl_worker_close(&worker);
    planning->job->load = NULL;
    return status;
}

/* Returns the coordinate of RANK that is first along all other axes. */
static int coordinate_of(const struct sl_job *job, int rank) {
    const int axis = sl_mesh_find_axis(&job->mesh, sl_job_axis(job, SL_JOB_PIPE));
    return sl_mesh_neighbour(&job->mesh, 0, axis, rank);
}

static int no_memory(struct sl_error *error) { return sl_error_set(error, SL_FAILED, "no memory to predict a step"); }

static int plan_rank(struct prediction *p, const struct sl_engine *like, int number, struct sl_error *error) {
    const size_t loops = (size_t)p->job->schedule.loops;
    struct rank *rank = &p->rank[number];
    struct planning planning = {p->job, rank};
    rank->summed = calloc(loops, sizeof *rank->summed);
    rank->trained = calloc(loops, sizeof *rank->trained);
    rank->updated = calloc(loops, sizeof *rank->updated);
    rank->halved = calloc(loops, sizeof *rank->halved);
    if (!rank->summed || !rank->trained || !rank->updated || !rank->halved || sl_load_open(&rank->load, (int)loops))
        return no_memory(error);
    SL_TRY(sl_paper_run(&p->job->mesh, like, coordinate_of(p->job, number), program, &planning, error));
    return rank->load.failed ? no_memory(error) : SL_OK;
}

static void close_ranks(struct prediction *p) {
    for (int r = 0; p->rank && r < p->job->ranks; r++) {
        sl_load_close(&p->rank[r].load);
        free(p->rank[r].summed);
        free(p->rank[r].trained);
        free(p->rank[r].updated);
        free(p->rank[r].halved);
    }
    sl_links_free(&p->links);
    free(p->rank);
    free(p->stage);
}

/* ---- seconds ---- */

static const enum sl_machine_kernel kernel_of[SL_LOAD_KERNELS] = {[SL_LOAD_MOVES] = SL_MACHINE_MOVES,
                                                                  [SL_LOAD_NORMS] = SL_MACHINE_NORMS,
                                                                  [SL_LOAD_GELU] = SL_MACHINE_GELU,
                                                                  [SL_LOAD_SOFTMAX] = SL_MACHINE_SOFTMAX,
                                                                  [SL_LOAD_DROPOUT] = SL_MACHINE_DROPOUT};

/* Returns the time of a product: its own, combined with the time to read its weights, or to update their gradients.
 * Each hides a part of the other. */
static double product(const struct prediction *p, const struct sl_load_product *x) {
    const double size = x->type == SL_BF16 ? 2 : 4, inner = size * x->n * x->k;
    const double gradient = size * x->m * x->k + inner + 8.0 * x->m * x->n;
    const double moved = x->a_transposed ? sl_machine_moved(p->machine, gradient, p->used[SPAN_WINDOW])
                                         : sl_machine_moved(p->machine, inner, p->used[SPAN_MICROBATCH]);
    return hypot(sl_machine_product(p->machine, x->type, x->m, x->n, x->k, x->a_transposed, x->b_transposed), moved);
}

/* Returns the time of a kernel, including saved data from memory. Kernels other than moves read an element and write
 * one. */
static double kernel(const struct prediction *p, enum sl_machine_kernel kind, double elements) {
    return hypot(sl_machine_kernels(p->machine, kind, elements),
                 sl_machine_moved(p->machine, (kind == SL_MACHINE_MOVES ? 4 : 8) * elements, p->used[SPAN_WINDOW]));
}

/* Returns the time of AdamW: it reads a parameter, GRADIENTS gradients of it, and two moments, and writes all but
 * the gradients. */
static double update(const struct prediction *p, double parameters, int gradients) {
    return hypot(sl_machine_kernels(p->machine, SL_MACHINE_OPTIMIZER, parameters),
                 sl_machine_moved(p->machine, (6.0 + gradients) * sizeof(float) * parameters, p->used[SPAN_STEP]));
}

/* Adds the time of a call over AXES to SECONDS, by link. */
static void add_call(const struct prediction *p, const char *axes, enum sl_operation operation, int members,
                     double bytes, const struct sl_machine_turns *turns, double *seconds) {
    const enum sl_link link = sl_links_slowest(&p->links, axes);
    const int *node = sl_links_nodes(&p->links, axes, members);
    if (members < 2) return;
    if (node)
        sl_machine_call_over_nodes(p->machine, operation, members, node, bytes, seconds);
    else
        seconds[link] += sl_machine_collective(p->machine, turns, link, operation, members, bytes);
}

/* Returns the time of a call over AXES, of members with so much SPAN. */
static double collective(const struct prediction *p, const char *axes, enum sl_operation operation, int members,
                         double bytes, enum span span) {
    const struct sl_machine_turns *turns = span == SPAN_WINDOW ? p->turns : NULL; /* whole arrays are not cut */
    double seconds[SL_LINKS] = {0}, all = 0;
    add_call(p, axes, operation, members, bytes, turns, seconds);
    for (int link = 0; link < SL_LINKS; link++) all += seconds[link];
    return all + sl_machine_moved(p->machine, sl_machine_touched(operation, members, bytes), p->used[span]);
}

/* Returns the seconds of one microbatch on a core or device of its own; adds their parts to SHARE [SL_SHARES]. */
static double seconds_of(const struct prediction *p, const struct sl_load_work *work, double *share) {
    const struct sl_machine *machine = p->machine;
    double products = 0, kernels = 0, calls = 0;
    for (int i = 0; i < work->products; i++) products += work->product[i].count * product(p, &work->product[i]);
    for (int k = 0; k < SL_LOAD_KERNELS; k++) kernels += kernel(p, kernel_of[k], work->floats[k]);
    for (int i = 0; i < work->calls; i++) {
        const struct sl_load_call *call = &work->call[i];
        const int members = call->members;
        const double turn = p->turns ? sl_machine_turn(p->turns, members) : 0;
        calls += call->count * (turn + collective(p, call->axes, call->operation, members, call->bytes, SPAN_WINDOW));
    }
    const double attention = p->pace * sl_machine_attention(machine, work->attention);
    products *= p->pace;
    kernels *= p->pace;
    share[SL_SHARE_PRODUCTS] += products;
    share[SL_SHARE_ATTENTION] += attention;
    share[SL_SHARE_KERNELS] += kernels;
    share[SL_SHARE_CALLS] += calls;
    return products + attention + kernels + calls;
}

/* Returns the time to sum the loop's gradients over replicas, and to gather its values if each replica updates a part;
 * preceded, with two copies of the model, by the sum over copies. */
static double reduction(const struct prediction *p, const struct rank *rank, int loop) {
    const char *axes = p->job->replica_axes;
    const int replicas = p->job->replicas;
    const double bytes = sizeof(float) * rank->summed[loop];
    const double gathered = sizeof(float) * rank->trained[loop] - sizeof(uint16_t) * rank->halved[loop];
    const double copies = p->job->schedule.copies > 1 && bytes > 0
                              ? collective(p, sl_job_axis(p->job, SL_JOB_PIPE), SL_PSUM, 2, bytes, SPAN_STEP)
                              : 0;
    if (replicas == 1 || bytes == 0) return copies;
    if (rank->reads) return copies + sl_machine_message(p->machine, sl_links_slowest(&p->links, axes), 0);
    if (!p->job->options->zero) return copies + collective(p, axes, SL_PSUM, replicas, bytes, SPAN_STEP);
    return copies + collective(p, axes, SL_PSUM_SCATTER, replicas, bytes, SPAN_STEP) +
           collective(p, axes, SL_ALL_GATHER, replicas, gathered, SPAN_STEP);
}

/* Returns the costs of the stage in RANK's LOOP. */
static struct sl_stage_costs costs_of(const struct prediction *p, int rank, int loop, double *share) {
    const struct sl_load_loop *of = &p->rank[rank].load.loop[loop];
    const double action = sl_machine_action(p->machine), updated = p->rank[rank].updated[loop];
    const char *axes = p->job->replica_axes;
    const int replicas = p->job->replicas;
    const bool far = p->job->options->offload & SL_OFFLOAD_OPTIMIZER; /* its state is read and written back */
    const double moved = far ? 2 * sizeof(float) * updated * sl_optimizer_states(&p->job->optimizer) : 0;
    const double optimizer = p->pace * update(p, updated, p->rank[rank].reads ? replicas : 1);
    return (struct sl_stage_costs){
        .forward = 1e3 * (seconds_of(p, &of->part[SL_LOAD_FORWARD], share) + action),
        .input_gradient = 1e3 * (seconds_of(p, &of->part[SL_LOAD_INPUT], share) + action),
        .weight_gradient = 1e3 * seconds_of(p, &of->part[SL_LOAD_WEIGHT], share),
        .reduce = 1e3 * reduction(p, &p->rank[rank], loop),
        .optimizer = 1e3 * (optimizer + sl_machine_far(p->machine, moved)),
        .unshard = of->gathered > 0 && replicas > 1
                       ? 1e3 * collective(p, axes, SL_ALL_GATHER, replicas, of->gathered, SPAN_WINDOW)
                       : 0};
}

/* ---- traffic ---- */

/* Returns the bytes a member sends in a call of BYTES, with the algorithms that send least. */
static double sent(enum sl_operation operation, int members, double bytes) {
    const double part = bytes * (members - 1) / members;
    return operation == SL_PPERMUTE ? bytes : operation == SL_PSUM ? 2 * part : part;
}

/* Bytes and seconds of a coordinate's step, by link. */
struct traffic {
    double bytes[SL_LINKS], seconds[SL_LINKS];
};

/* Adds the bytes and seconds of TIMES calls. MOVES: the call moves its data; otherwise members read them in place. */
static void count_call(const struct prediction *p, struct traffic *traffic, const char *axes,
                       enum sl_operation operation, int members, double bytes, double times, bool moves) {
    double seconds[SL_LINKS] = {0};
    if (bytes <= 0 || times <= 0) return;
    traffic->bytes[sl_links_slowest(&p->links, axes)] += times * sent(operation, members, bytes);
    if (moves) add_call(p, axes, operation, members, bytes, p->turns, seconds);
    for (int link = 0; link < SL_LINKS; link++) traffic->seconds[link] += times * seconds[link];
}

/* Counts the stages on other ranks to which RANK's stages send activations or gradients. */
static int neighbours(const struct sl_job *job, int rank) {
    const struct sl_schedule *schedule = &job->schedule;
    int count = 0;
    for (int loop = 0; loop < schedule->loops; loop++) {
        const int stage = sl_schedule_stage(schedule, rank, loop);
        count += !sl_schedule_is_first(schedule, stage) && sl_schedule_rank_of(schedule, stage - 1) != rank;
        count += !sl_schedule_is_last(schedule, stage) && sl_schedule_rank_of(schedule, stage + 1) != rank;
    }
    return count;
}

static void count_traffic(struct prediction *p, int number) {
    const struct sl_job *job = p->job;
    const struct rank *rank = &p->rank[number];
    const struct sl_load *load = &rank->load;
    const char *axes = job->replica_axes, *pipe = sl_job_axis(job, SL_JOB_PIPE);
    const int copies = job->schedule.copies, microbatches = job->schedule.microbatches / copies * job->passes;
    const int replicas = job->replicas;
    struct traffic all = {0};
    for (int l = 0; l < load->loops; l++) {
        const double summed = sizeof(float) * rank->summed[l];
        const double gathered = sizeof(float) * rank->trained[l] - sizeof(uint16_t) * rank->halved[l];
        for (int part = 0; part < SL_LOAD_PARTS; part++) {
            const struct sl_load_work *work = &load->loop[l].part[part];
            for (int i = 0; i < work->calls; i++) {
                const struct sl_load_call *call = &work->call[i];
                count_call(p, &all, call->axes, call->operation, call->members, call->bytes, microbatches * call->count,
                           true);
            }
        }
        if (copies > 1) count_call(p, &all, pipe, SL_PSUM, copies, summed, 1, true);
        if (replicas == 1) continue;
        count_call(p, &all, axes, SL_PSUM_SCATTER, replicas, summed, 1, !rank->reads);
        count_call(p, &all, axes, SL_ALL_GATHER, replicas, gathered, 1, !rank->reads);
        count_call(p, &all, axes, SL_ALL_GATHER, replicas, load->loop[l].gathered, 2, true);
    }
    const enum sl_link link = sl_links_slowest(&p->links, pipe);
    const double messages = microbatches * neighbours(job, number);
    all.bytes[link] += messages * load->handed;
    all.seconds[link] += messages * sl_machine_message(p->machine, link, load->handed);
    for (int i = 0; i < SL_LINKS; i++) {
        p->result->traffic[i] = fmax(p->result->traffic[i], all.bytes[i]);
        p->result->link_ms[i] = fmax(p->result->link_ms[i], 1e3 * all.seconds[i]);
    }
}

/* ---- the step ---- */

static void take_largest(struct prediction *p) {
    for (int r = 0; r < p->job->ranks; r++) {
        const double bytes = (double)sl_budget_total(&p->rank[r].budget);
        if (r > 0 && bytes <= p->result->bytes) continue;
        p->result->bytes = bytes;
        p->result->budget = p->rank[r].budget;
    }
}

/* Adds the bytes of a rank's coordinate, with weight SHARE. */
static void add_used(struct prediction *p, const struct sl_budget *budget, double share) {
    const double values = (double)budget->bytes[SL_MEMORY_PARAMETERS], kept = (double)sl_budget_activations(budget);
    const double gradients = (double)budget->bytes[SL_MEMORY_GRADIENTS];
    p->used[SPAN_MICROBATCH] += share * (values + kept / p->job->schedule.microbatches);
    p->used[SPAN_WINDOW] += share * (values + gradients + kept);
    p->used[SPAN_STEP] += share * (double)sl_budget_total(budget);
}

/* Finds the bytes used by all coordinates sharing a place, or by its only one. */
static void find_used(struct prediction *p) {
    const int cores = sl_machine_sharing(p->machine, p->job->mesh.size), ranks = p->job->ranks;
    const double coordinates = (double)p->job->mesh.size / (cores ? cores : p->job->mesh.size); /* per place */
    for (int r = 0; r < ranks; r++) add_used(p, &p->rank[r].budget, coordinates / ranks);
    const bool tied = sl_machine_ties(p->machine, p->job->mesh.size, p->job->data);
    if (cores) {
        p->turns = tied ? &p->machine->tied : &p->machine->roaming;
        p->pace /= 1 - p->turns->idle;
    }
    p->result->sharers = coordinates;
}

/* Adds sums and gathers to the work of shared cores. */
static void share_cores(struct prediction *p) {
    if (!sl_machine_sharing(p->machine, p->job->mesh.size)) return;
    for (int s = 0; s < sl_schedule_stages(&p->job->schedule); s++) {
        p->rank[sl_schedule_rank_of(&p->job->schedule, s)].sums += p->stage[s].reduce;
        p->stage[s].optimizer += p->stage[s].reduce;
        p->stage[s].reduce = 0;
    }
}

static void make_costs(struct prediction *p) {
    const struct sl_schedule *schedule = &p->job->schedule;
    const double passes = p->job->passes, steps = passes * schedule->microbatches / schedule->copies;
    double most = -1;
    for (int rank = 0; rank < p->job->ranks; rank++) {
        double share[SL_SHARES] = {0}, all = 0;
        for (int loop = 0; loop < schedule->loops; loop++)
            p->stage[sl_schedule_stage(schedule, rank, loop)] = costs_of(p, rank, loop, share);
        for (int i = 0; i < SL_SHARES; i++) all += share[i];
        if (all <= most) continue;
        most = all;
        for (int i = 0; i < SL_SHARES; i++) p->result->share_ms[i] = 1e3 * steps * share[i];
    }
}

static void tell_stages(struct prediction *p) {
    const struct sl_job *job = p->job;
    const int stages = sl_schedule_depth(&job->schedule); /* a second copy of the model has the same ones */
    const double times = (double)job->schedule.microbatches / job->schedule.copies * job->passes;
    if (stages > SL_PREDICTED_STAGES) return;
    p->result->stages = stages;
    for (int s = 0; s < stages; s++)
        p->result->stage_ms[s] =
            times * (p->stage[s].forward + p->stage[s].input_gradient + p->stage[s].weight_gradient);
}

/* Returns the seconds by which a rank's next work is delayed after it has waited. An untied coordinate that waits
 * stays awake for a while, and occupies a core that coordinates waiting for other cores cannot use. */
static double turn_of(const struct prediction *p) {
    const int cores = sl_machine_sharing(p->machine, p->job->mesh.size);
    if (!p->turns) return 0;
    const double elsewhere = p->turns == &p->machine->roaming ? (cores - 1.0) / cores : 0;
    return p->turns->message + elsewhere * p->machine->waits.awake;
}

/* Returns the idle time in a pass: the pass's time less the work of all coordinates of a place, if places are
 * shared. */
static double idle_time(const struct prediction *p, const struct sl_simulation *simulation) {
    const double replicas = (double)p->job->mesh.size / p->job->ranks;
    double busy = 0;
    if (!p->turns) return simulation->span * simulation->bubble;
    for (int r = 0; r < simulation->ranks; r++) busy += simulation->rank[r].busy;
    return fmax(0, simulation->span - busy * replicas * p->result->sharers / p->job->mesh.size);
}

/* Simulates the step. All passes but the last end without sums and without the optimizer. */
static int simulate(struct prediction *p, struct sl_error *error) {
    const struct sl_job *job = p->job;
    const enum sl_link link = sl_links_slowest(&p->links, sl_job_axis(job, SL_JOB_PIPE));
    const struct sl_machine_waits *waits = &p->machine->waits;
    struct sl_costs costs = {.count = sl_schedule_stages(&job->schedule),
                             .stage = p->stage,
                             .communication = 1e3 * sl_machine_message(p->machine, link, p->rank[0].load.handed),
                             .overlap = job->options->overlap,
                             .group = job->wgrad_group,
                             .cores = sl_machine_sharing(p->machine, p->job->mesh.size),
                             .coordinates = p->job->mesh.size,
                             .awake = 1e3 * waits->awake,
                             .wake = 1e3 * waits->wake,
                             .nap = 1e3 * waits->nap,
                             .notify = 1e3 * waits->notify,
                             .turn = 1e3 * turn_of(p),
                             .spread = waits->spread};
    struct sl_simulation simulation = {0};
    struct sl_prediction *result = p->result;
    SL_TRY(sl_schedule_time(&job->schedule, &costs, &simulation, error));
    result->pipeline_ms = simulation.span * job->passes;
    result->ms = result->pipeline_ms + simulation.step - simulation.span;
    result->bubble = simulation.bubble;
    result->idle_ms = idle_time(p, &simulation) * job->passes;
    for (int r = 0; r < simulation.ranks; r++) {
        const double sums = p->rank[r].sums;
        result->optimizer_ms = fmax(result->optimizer_ms, simulation.rank[r].optimizer - sums);
        result->reduce_ms = fmax(result->reduce_ms, p->turns ? sums : simulation.rank[r].reducing);
    }
    sl_simulation_free(&simulation);
    return SL_OK;
}

static int predict(struct prediction *p, const struct sl_engine *like, struct sl_error *error) {
    struct sl_job *job = p->job;
    p->rank = calloc((size_t)job->ranks, sizeof *p->rank);
    p->stage = calloc((size_t)sl_schedule_stages(&job->schedule), sizeof *p->stage);
    if (!p->rank || !p->stage) return no_memory(error);
    for (int rank = 0; rank < job->ranks; rank++) SL_TRY(plan_rank(p, like, rank, error));
    take_largest(p);
    SL_TRY(sl_links_find(&p->links, job, p->machine, !strcmp(like->table->name, "mpi"), error));
    find_used(p);
    for (int rank = 0; rank < job->ranks; rank++) count_traffic(p, rank);
    make_costs(p);
    share_cores(p);
    tell_stages(p);
    return simulate(p, error);
}

int sl_predict(struct sl_job *job, const struct sl_engine *like, const struct sl_machine *machine,
               struct sl_prediction *result, struct sl_error *error) {
    struct prediction p = {.job = job,
                           .machine = machine,
                           .pace = 1 / sl_machine_speed(machine, job->mesh.size, job->data),
                           .result = result};
    *result = (struct sl_prediction){0};
    const int status = predict(&p, like, error);
    close_ranks(&p);
    return status;
}
