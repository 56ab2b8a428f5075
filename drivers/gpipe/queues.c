/* queues.c - prints a run with queues: the order of outputs, and the utilization of workers. */
#include <stdio.h>

#include "drivers/common/metrics.h"
#include "drivers/gpipe/gpipe.h"

static void print_order(const struct gpipe_run *run, bool backward) {
    bool first = true;
    printf("%s[", backward ? "backward: " : "forward:  ");
    for (int i = 0; i < run->record.tasks; i++) {
        const struct gpipe_place *place = &run->record.order[i];
        if (place->backward != backward) continue;
        printf("%s(%d, %d)", first ? "" : ", ", place->microbatch, place->partition);
        first = false;
    }
    printf("]\n");
}

/* Prints a row of the table: in a round each worker has one task or none. WORKERS as in struct gpipe_queues. */
static void print_counts(struct sl_table *table, const struct gpipe_run *run, int workers) {
    int tasks = 0, rounds = 0, places = 0;
    for (int cycle = 0; cycle < gpipe_cycles(run); cycle++) {
        const struct gpipe_cycle partitions = gpipe_cycle_of(run, cycle);
        const int active = partitions.end - partitions.first, alive = workers ? workers : active;
        const int needed = (active + alive - 1) / alive;
        tasks += 2 * active; /* forward and backward */
        rounds += 2 * needed;
        places += 2 * needed * alive;
    }
    if (workers)
        sl_table_cell(table, "%d", workers);
    else
        sl_table_cell(table, "active");
    sl_table_cell(table, "%d", tasks);
    sl_table_cell(table, "%d", rounds);
    sl_table_cell(table, "%.1f %%", 100.0 * tasks / places);
}

void gpipe_print_queues(const struct gpipe_run *run) {
    static const struct sl_column column[] = {{"workers", 8}, {"tasks", 7}, {"rounds", 8}, {"utilization", 13}};
    const struct gpipe_record *record = &run->record;
    const int workers = run->queues->workers;
    struct sl_table table;
    printf("\nqueues: %d microbatches on %d partitions: tasks in the order in which their outputs came\n\n",
           run->schedule.microbatches, run->partitions);
    print_order(run, false);
    print_order(run, true);
    printf("\nworkers and the rounds of tasks that the cycles take, of which utilization is counted\n\n");
    sl_table_begin(&table, stdout, 4, column);
    print_counts(&table, run, 1);
    if (run->partitions > 1) print_counts(&table, run, run->partitions);
    if (workers > 1 && workers != run->partitions) print_counts(&table, run, workers);
    print_counts(&table, run, 0);
    printf("\n%d tasks in %d attempts; workers: %d started, %d died, %.1f %% of their time at tasks\n", record->tasks,
           record->attempts, record->started, record->died, 100 * record->utilization);
}
