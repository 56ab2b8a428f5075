/* saving_report.c - prints the time that a run's saves took between its steps. */
#include "drivers/training/reports/saving_report.h"

#include <stdio.h>

#include "drivers/common/metrics.h"

/* Describes the time taken by background saving between steps; NULL without memory. */
static json_t *describe_snapshots(const struct sl_snapshot_account *of) {
    return json_pack("{sI sI so so so}", "count", (json_int_t)of->copies, "bytes", (json_int_t)of->bytes, "copy_ms",
                     sl_json_real(1e3 * of->copied / (double)of->copies), "bytes_per_second",
                     sl_json_real((double)of->bytes * (double)of->copies / of->copied), "waited_ms",
                     sl_json_real(1e3 * of->waited));
}

static void print_snapshots(const struct sl_snapshot_account *of) {
    if (!of->copies) return;
    printf(
        "saved in the background: %lld copies of %.1f MB, each in %.2f ms (%.2f GB/s); %.1f ms of waiting for writes\n",
        (long long)of->copies, (double)of->bytes / 1e6, 1e3 * of->copied / (double)of->copies,
        (double)of->bytes * (double)of->copies / of->copied / 1e9, 1e3 * of->waited);
}

/* The account of coordinate 0. */
static json_t *describe_protection(const struct sl_protection_account *of) {
    json_t *object = json_pack("{sI sI so}", "count", (json_int_t)of->steps, "bytes", (json_int_t)of->bytes, "ms",
                               sl_json_real(1e3 * of->seconds / (double)of->steps));
    if (of->sent) json_object_set_new(object, "sent", json_integer((json_int_t)of->sent));
    return object;
}

void sl_saving_describe(const struct sl_checkpoints *c, json_t *object) {
    if (c->options.async) {
        const struct sl_snapshot_account account = sl_snapshot_account(c->snapshot);
        json_object_set_new(object, "snapshots", describe_snapshots(&account));
    }
    if (!c->protection) return;
    const struct sl_protection_account account = sl_protection_account(c->protection, 0);
    if (account.steps) json_object_set_new(object, "protected", describe_protection(&account));
}

void sl_saving_print(const struct sl_checkpoints *c) {
    if (c->options.async) {
        const struct sl_snapshot_account account = sl_snapshot_account(c->snapshot);
        print_snapshots(&account);
    }
    if (!c->protection) return;
    const struct sl_protection_account account = sl_protection_account(c->protection, 0);
    if (account.steps)
        printf("kept in memory: %lld steps; coordinate 0's part of each, %.1f MB, took %.2f ms\n",
               (long long)account.steps, 1e-6 * (double)account.bytes, 1e3 * account.seconds / (double)account.steps);
}
