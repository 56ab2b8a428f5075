/* kernels_device.c - the one table of kernels in builds for devices: target regions are identified by their place in
 * the source, so a program can contain the source only once. */
#include "layers/kernels/kernels.h"

const struct sl_kernels *sl_kernels_available(int i) { return i == 0 ? &sl_kernels_device : NULL; }

const struct sl_kernels *sl_kernels_select(void) { return &sl_kernels_device; }
