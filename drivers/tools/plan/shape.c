/* shape.c - finds a model's shape from its number of parameters. */
#include <math.h>

#include "drivers/tools/plan/plan.h"

/* Returns the distance of the job's shape from published models of its size: 128 columns per layer, 128 per head. */
static double oddness(struct plan_job job) {
    const double parameters = job.parameters, width = (double)job.hidden / job.heads;
    job.parameters = 0;
    return fabs(log(plan_count_parameters(&job) / parameters)) + fabs(log(job.hidden / (128.0 * job.layers))) +
           fabs(log(width / 128)) / 8;
}

/* Returns the number of layers that gives a job of its hidden size the wanted number of parameters. */
static int layers_for(const struct plan_job *job) {
    struct plan_job one = *job, two = *job;
    one.parameters = two.parameters = 0;
    one.layers = 1, two.layers = 2;
    const double each = plan_count_parameters(&two) - plan_count_parameters(&one);
    const double layers = round(1 + (job->parameters - plan_count_parameters(&one)) / each);
    return (int)fmin(fmax(layers, job->stages), 65536);
}

void plan_shape(struct plan_job *job, bool layers, bool hidden, bool heads) {
    enum { LEAST_WIDTH = 16, MOST_WIDTH = 256, MOST_COLUMNS = 1048576 };
    struct plan_job best = *job;
    double least = (double)INFINITY;
    if (!(job->parameters > 0) || (layers && hidden && heads)) return;
    for (int width = LEAST_WIDTH; width <= MOST_WIDTH; width *= 2)
        for (int count = job->tensor; count <= 65536 && count <= MOST_COLUMNS / width; count += job->tensor) {
            struct plan_job one = *job;
            if (!heads) one.heads = count;
            if (!hidden) one.hidden = one.heads * width;
            if (one.hidden % one.heads || one.hidden > MOST_COLUMNS) continue;
            if (!layers) one.layers = layers_for(&one);
            const double odd = oddness(one);
            if (odd < least) least = odd, best = one;
        }
    *job = best;
}
