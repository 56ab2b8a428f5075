/* job_schedule.c - the schedule and the batches of a job. */
#include <string.h>

#include "drivers/training/choices/schedule_choice.h"
#include "drivers/transformer/transformer.h"

/* Returns the most microbatches worth having: enough for a pipeline, and either so many that a microbatch's
 * activations stay in a core's cache, or few enough to fill a GPU. */
static int most_microbatches(const struct transformer_job *job) {
    const long long sequences = job->job.pass, enough = job->job.ranks > 1 ? 2 * job->job.ranks : 1;
    const long long tokens = sl_device.shares_memory ? 256 : 8192,
                    parts = sequences * (job->config->sequence / job->job.parts) / tokens;
    return (int)(parts > enough ? parts < sequences ? parts : sequences : enough);
}

/* Adds the head's shares as stages: of the last loop, and, for a table in parts, of the first loop. */
static int spread_head(struct transformer_job *job, const struct sl_schedule_kind *kind, struct sl_error *error) {
    const struct transformer_config *config = job->config;
    const int loops = sl_spread_loops(config->spread_head);
    if (!config->spread_head || job->job.ranks == 1) return SL_OK;
    if (config->vocabulary_parallel && config->spread_head == SL_SPREAD_VOCABULARY)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--spread-head and --vocabulary-parallel: both shard the token table; choose one of them");
    if (config->sample_every)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--spread-head and --sample-every: samples need a head that is not spread");
    if (!config->training.schedule_file && kind->most_loops <= loops)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--spread-head: schedule %s has at most %d loop%s, and the head takes %s: choose "
                            "interleaved-1f1b, interleaved-zb, looped-bfs or looped-dfs",
                            kind->name, kind->most_loops, kind->most_loops == 1 ? "" : "s",
                            loops == 1 ? "one more" : "two more");
    job->model.spread_head = config->spread_head;
    job->job.bare_loops = loops;
    return SL_OK;
}

/* With one loop that schedule is gpipe's; with a spread head it is gpipe of a model with the head's loops added. */
static bool spreads_head(const struct transformer_job *job) { return job->config->spread_head && job->job.ranks > 1; }

static int make_schedule(struct transformer_job *job, struct sl_error *error) {
    const struct sl_training_options *options = job->job.options;
    const struct sl_schedule_kind *kind = sl_schedule_find(options->schedule, error);
    if (!kind) return sl_schedule_suggest(options->schedule, NULL, error);
    if (spreads_head(job) && !strcmp(kind->name, "gpipe")) kind = sl_schedule_find("looped-bfs", error);
    SL_TRY(spread_head(job, kind, error));
    const int loops = (options->loops ? options->loops : kind->least_loops) + job->job.bare_loops;
    const int layers = job->model.blocks * job->model.layers_per_block;
    const int usual = sl_largest_divisor(job->job.pass, most_microbatches(job));
    SL_TRY(sl_job_schedule(&job->job, kind, loops, sl_job_microbatches(&job->job, usual), layers, error));
    job->model.stage_layers = job->job.stage_layers;
    job->model.stage_halves = job->job.stage_halves;
    const int lookers = job->model.spread_head == SL_SPREAD_BATCH ? job->job.ranks : 1;
    const int own = sl_schedule_first_of_copy(&job->job.schedule, 1) / lookers;
    const int group = sl_pipeline_wgrad_group(own > 0 ? own : 1, job->job.rows);
    return sl_job_group(&job->job, sl_job_wgrad_group(&job->job, group), error);
}

/* Fits the job. For generation the pipeline does not run: another one is made over its parameters. */
int transformer_fit(struct transformer_job *job, struct sl_error *error) {
    if (transformer_reads_data(job->command)) SL_TRY(sl_job_share(&job->job, error));
    return make_schedule(job, error);
}
