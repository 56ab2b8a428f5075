/* test_context_devices.c - sequences divided over the axis "context" on the build's device: losses and gradients equal
 * those of one coordinate, and layouts that devices do not take are refused. */
#include "tests/layers/models/context_job.h"

/* Devices with their own memory: by gathered keys, by heads and by latents, with documents and experts, sharded kernels
 * and recomputation. */
static void devices_have_the_numbers_of_one_coordinate(void **state) {
    (void)state;
    static struct job (*const makes[])(const char *mesh) = {in_documents, grouped, of_experts};
    static const enum sl_context_way ways[] = {SL_CONTEXT_BY_LATENTS, SL_CONTEXT_BY_HEADS, SL_CONTEXT_BY_GATHER};
    for (int k = 0; k < 3; k++) {
        struct job want = makes[k]("data=1,pipe=1,tensor=1");
        run_job(&want);
        for (int i = 0; i < 2; i++) {
            struct job job = makes[k](i ? "data=1,context=2,pipe=1,tensor=2" : "data=1,pipe=1,context=2");
            job.context_by = i ? ways[k] : SL_CONTEXT_BY_GATHER;
            job.model.fsdp = i;
            job.model.recomputation = i ? SL_RECOMPUTE_FULL : 0;
            compare(job, &want, "on a device", 1e-6, 4e-6);
        }
        free_job(&want);
    }
}

static void devices_refuse_rings_leaves_and_dropout(void **state) {
    (void)state;
    struct job job = latent("data=1,pipe=1,context=2");
    job.context_by = SL_CONTEXT_BY_RING;
    refuse(job, "only without a ring, without --exact");
    refuse(with_leaves(latent("data=1,pipe=1,context=2"), false), "only without a ring, without --exact");
    if (sl_kernels_select()->draws_dropout)
        refuse(dropping("data=1,pipe=1,context=2"), "draws words for whole sequences");
}

/* Where the host computes, nothing is refused. */
int main(int argc, char **argv) {
    const struct CMUnitTest host[] = {cmocka_unit_test(devices_have_the_numbers_of_one_coordinate)};
    const struct CMUnitTest devices[] = {
        cmocka_unit_test(devices_have_the_numbers_of_one_coordinate),
        cmocka_unit_test(devices_refuse_rings_leaves_and_dropout),
    };
    begin_tests(argc, argv);
    return sl_device.shares_memory ? cmocka_run_group_tests(host, NULL, NULL)
                                   : cmocka_run_group_tests(devices, NULL, NULL);
}
