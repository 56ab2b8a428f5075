/* driver.c - looks up the driver's functions, by name and interface version. */
#include "spmd/device/cuda/driver.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct sl_cuda_driver driver;
static pthread_once_t driver_once = PTHREAD_ONCE_INIT;
static const char *driver_lacks; /* the first function it lacks */

enum { DRIVER_VERSION = 12000 }; /* version of the functions' interfaces */

static void find_driver(void) {
    const struct {
        void *to;
        const char *name;
    } functions[] = {
        {&driver.module_load, "cuModuleLoadData"},
        {&driver.module_unload, "cuModuleUnload"},
        {&driver.module_function, "cuModuleGetFunction"},
        {&driver.module_global, "cuModuleGetGlobal"},
        {&driver.allocate, "cuMemAlloc"},
        {&driver.free, "cuMemFree"},
        {&driver.launch, "cuLaunchKernel"},
        {&driver.error_text, "cuGetErrorString"},
        {&driver.begin_capture, "cuStreamBeginCapture"},
        {&driver.end_capture, "cuStreamEndCapture"},
        {&driver.capture_info, "cuStreamGetCaptureInfo"},
        {&driver.graph_make, "cuGraphInstantiateWithFlags"},
        {&driver.graph_set_kernel, "cuGraphExecKernelNodeSetParams"},
        {&driver.graph_launch, "cuGraphLaunch"},
        {&driver.graph_free_made, "cuGraphExecDestroy"},
        {&driver.graph_free, "cuGraphDestroy"},
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *function = NULL;
        enum cudaDriverEntryPointQueryResult found;
        if (cudaGetDriverEntryPointByVersion(functions[i].name, &function, DRIVER_VERSION, cudaEnableDefault, &found) ||
            found != cudaDriverEntryPointSuccess) {
            cudaGetLastError();
            driver_lacks = functions[i].name;
            return;
        }
        memcpy(functions[i].to, &function, sizeof function);
    }
}

const struct sl_cuda_driver *sl_cuda_driver(struct sl_cuda_queue *queue) {
    pthread_once(&driver_once, find_driver);
    if (!driver_lacks) return &driver;
    sl_cuda_fail(queue, driver_lacks, "NVIDIA's driver does not have it: a newer one is needed");
    return NULL;
}

bool sl_cuda_drove(struct sl_cuda_queue *queue, const char *function, const char *what, CUresult status) {
    const char *text = NULL;
    char why[300];
    if (status == CUDA_SUCCESS) return true;
    if (driver.error_text(status, &text) || !text) text = "unknown error";
    snprintf(why, sizeof why, "%s: %s", what, text);
    sl_cuda_fail(queue, function, why);
    return false;
}

bool sl_cuda_launch(struct sl_cuda_queue *queue, const struct sl_kernel_launch *launch) {
    size_t bytes = launch->count * sizeof *launch->parameter;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, (void *)launch->parameter, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    const CUresult status = sl_cuda_driver(queue)->launch(launch->function, launch->blocks, 1, 1, launch->threads, 1, 1,
                                                          launch->shared, queue->stream, NULL, extra);
    return sl_cuda_drove(queue, "cuLaunchKernel", launch->name, status);
}
