/* driver.h - declarations shared by the parts of the fake CUDA's driver. */
#ifndef FAKE_DRIVER_H
#define FAKE_DRIVER_H

#include <stdbool.h>

#define FAKE_DRIVER()                                                                                                  \
    fake_record("call %s", __func__);                                                                                  \
    if (fake_fails(__func__)) return CUDA_ERROR_UNKNOWN

#include "cuda.h"

/* In MADE, NODE gets ARGUMENT of as many BYTES as it has, and LINE in the account. False: MADE has no such node. */
bool fake_graph_change(CUgraphExec made, CUgraphNode node, void (*work)(void *), const void *argument, size_t bytes,
                       const char *line);

#endif
