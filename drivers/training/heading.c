/* heading.c - mesh, schedule, data, and a warning about times. */
#include "drivers/training/heading.h"

#include <string.h>

#include "drivers/speed/cores.h"

/* "mesh data=2,pipe=2,tensor=2 on 4 cores: 2 replicas, each a pipeline of 2 ranks, each rank 2 coordinates" */
static void print_mesh(FILE *stream, const struct sl_job *job) {
    char mesh[200];
    const int others = job->mesh.size / (job->data * job->ranks);
    fprintf(stream, "mesh %s", sl_mesh_print(&job->mesh, mesh, sizeof mesh));
    if (job->cores > 0) fprintf(stream, " on %d core%s", job->cores, job->cores == 1 ? "" : "s");
    fputs(": ", stream);
    if (job->data > 1) fprintf(stream, "%d replicas of the whole model, each ", job->data);
    if (job->ranks > 1)
        fprintf(stream, "a pipeline of %d ranks%s", job->ranks, others > 1 ? ", each rank " : "");
    else
        fputs(job->data > 1 ? "without a pipeline on " : "the whole model without a pipeline on ", stream);
    if (others > 1 || job->ranks == 1) fprintf(stream, "%d coordinate%s", others, others == 1 ? "" : "s");
    if (job->parts > 1) fprintf(stream, ", each with 2 of a sequence's %d blocks", 2 * job->parts);
    fputc('\n', stream);
}

/* Prints the schedule's name as the user gave it, followed by the schedule it is an alias of. */
static void print_schedule(FILE *stream, const struct sl_job *job) {
    const char *asked = job->options->schedule_file ? NULL : job->options->schedule, *name = job->schedule.name;
    if (asked && strcmp(asked, name) != 0)
        fprintf(stream, "schedule %s (%s)", asked, name);
    else
        fprintf(stream, "schedule %s", name);
}

static void print_work(FILE *stream, const struct sl_job *job, const struct sl_heading *heading) {
    const struct sl_schedule *schedule = &job->schedule;
    const int passes = job->passes, samples = job->pass / schedule->microbatches;
    const int letters =
        (int)strlen(job->type->samples) - (samples == 1); /* length of "rows", "sequences", or of the singular */
    print_schedule(stream, job);
    if (schedule->loops > 1) fprintf(stream, ", %d loops", schedule->loops);
    fprintf(stream, ", %d microbatch%s of %d %.*s", schedule->microbatches, schedule->microbatches == 1 ? "" : "es",
            samples, letters, job->type->samples);
    if (passes > 1) fprintf(stream, " in each of %d passes", passes);
    if (job->exact) fprintf(stream, ", %d leaves", job->exact);
    if (job->leaves > 1) fprintf(stream, ", %d along %s", job->leaves, job->type->leaf_axis);
    if (job->context_leaves) fprintf(stream, ", %d along %s", job->context_leaves, job->type->context_axis);
    if (*heading->data) fprintf(stream, "; data: %s", heading->data);
    if (*heading->numbers) fprintf(stream, "; random numbers: %s", heading->numbers);
    fputc('\n', stream);
}

void sl_heading_parameters(FILE *stream, const struct sl_heading *heading) {
    if (heading->parameters > 0) fprintf(stream, "model of %.0f parameters", heading->parameters);
    if (heading->trained > 0) fprintf(stream, ", of which %.0f train", heading->trained);
    if (heading->adapters > 0) fprintf(stream, ", and adapters of %.0f, which train in their place", heading->adapters);
    if (heading->parameters > 0 && heading->remark) fprintf(stream, "; %s", heading->remark);
    if (heading->parameters > 0) fputc('\n', stream);
}

static void print_times(FILE *stream, const struct sl_job *job) {
    char shared[100];
    sl_cores_describe(job->mesh.size, job->cores, shared, sizeof shared);
    const bool replicas = job->ranks == 1 && job->data > 1;
    if (replicas) fprintf(stream, "ms are those of %d replicas together, not of one device", job->data);
    if (replicas && *shared) fputs("; ", stream);
    fputs(shared, stream);
    if (replicas || *shared) fputc('\n', stream);
}

void sl_heading_print(FILE *stream, const struct sl_job *job, const struct sl_heading *heading) {
    print_mesh(stream, job);
    print_work(stream, job, heading);
    sl_heading_parameters(stream, heading);
    print_times(stream, job);
}
