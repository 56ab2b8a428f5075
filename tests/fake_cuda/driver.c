/* driver.c - the fake CUDA's driver, as far as spmd/device/cuda/regions.c uses it: modules, their kernels, launches. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda.h"
#include "driver.h"
#include "fake.h"
#include "image.h"

enum { MOST_PARAMETERS = 64 };

struct CUmod_st {
    struct fake_image *image;
};

struct CUfunc_st {
    char *name;
    void *code;         /* for this machine */
    void *module;       /* the executor's, */
    const void *kernel; /* the kernel in it; NULL: nothing runs */
};

CUresult cuGetErrorString(CUresult error, const char **text) {
    const struct {
        CUresult error;
        const char *text;
    } texts[] = {
        {CUDA_SUCCESS, "no error"},
        {CUDA_ERROR_INVALID_VALUE, "invalid argument"},
        {CUDA_ERROR_OUT_OF_MEMORY, "out of memory"},
        {CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"},
        {CUDA_ERROR_NOT_FOUND, "named symbol not found"},
        {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"},
        {CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"},
        {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"},
    };
    *text = "unknown error";
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (texts[i].error == error) *text = texts[i].text;
    }
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *data) {
    FAKE_DRIVER();
    struct fake_image *image = fake_image_open(data);
    if (!image) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    *module = malloc(sizeof **module);
    (*module)->image = image;
    return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
    FAKE_DRIVER();
    fake_image_close(module->image);
    free(module);
    return CUDA_SUCCESS;
}

/* It lives as long as the process does. */
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    FAKE_DRIVER();
    struct CUfunc_st found = {.module = fake_image_module(module->image)};
    if (!fake_image_function(module->image, name, &found.code)) return CUDA_ERROR_NOT_FOUND;
    if (found.module) found.kernel = fake_executor->find(found.module, name);
    if (found.module && !found.kernel) return CUDA_ERROR_NOT_FOUND;
    found.name = strdup(name);
    *function = malloc(sizeof **function);
    **function = found;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *at, size_t *bytes, CUmodule module, const char *name) {
    FAKE_DRIVER();
    const void *value;
    void *memory = NULL, *executed = fake_image_module(module->image);
    if (executed) memory = fake_executor->variable(executed, name, bytes);
    *at = (uintptr_t)memory;
    if (executed) return memory ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
    if (!fake_image_variable(module->image, name, &value, bytes)) return CUDA_ERROR_NOT_FOUND;
    if (fake_take(&memory, *bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    memset(memory, 0, *bytes);
    if (value) memcpy(memory, value, *bytes);
    *at = (uintptr_t)memory;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *memory, size_t bytes) {
    FAKE_DRIVER();
    void *taken;
    if (fake_take(&taken, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    *memory = (uintptr_t)taken;
    return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr memory) {
    FAKE_DRIVER();
    return cudaFree((void *)(uintptr_t)memory) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

struct launch {
    const struct CUfunc_st *function;
    unsigned blocks, threads, dynamic;
    size_t bytes;
    uint64_t parameter[MOST_PARAMETERS];
};

/* Passes more arguments than a function has parameters; it ignores the rest. */
static void run_kernel(void *argument) {
    const struct launch *launch = argument;
    const uint64_t *p = launch->parameter;
    void (*kernel)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                   uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
    if (launch->function->kernel)
        fake_executor->launch(launch->function->module, launch->function->kernel, launch->blocks, launch->threads,
                              launch->dynamic, p, launch->bytes);
    if (!launch->function->code) return;
    memcpy(&kernel, &launch->function->code, sizeof kernel);
    kernel(p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8], p[9], p[10], p[11], p[12], p[13], p[14], p[15], p[16],
           p[17], p[18], p[19]);
}

enum {
    LONGEST_LINE = MOST_PARAMETERS * 28 + 500,
    MOST_BLOCKS = INT32_MAX,
    MOST_THREADS = 1024,
    MOST_SHARED = 48 << 10
};

/* Returns whether a driver accepts it. */
static bool is_launch(const CUDA_KERNEL_NODE_PARAMS *p) {
    void **extra = p->extra;
    return p->gridDimX && p->gridDimX <= MOST_BLOCKS && p->gridDimY == 1 && p->gridDimZ == 1 && p->blockDimX &&
           p->blockDimX <= MOST_THREADS && p->blockDimY == 1 && p->blockDimZ == 1 && p->sharedMemBytes <= MOST_SHARED &&
           !p->kernelParams && extra && extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER &&
           extra[2] == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[4] == CU_LAUNCH_PARAM_END &&
           *(size_t *)extra[3] <= MOST_PARAMETERS * sizeof(uint64_t);
}

/* Reads a valid launch, and writes its line of the record. */
static bool read_launch(const CUDA_KERNEL_NODE_PARAMS *p, struct launch *launch, char line[LONGEST_LINE]) {
    void **extra = p->extra;
    if (!is_launch(p)) return false;
    const size_t bytes = *(size_t *)extra[3];
    *launch = (struct launch){p->func, p->gridDimX, p->blockDimX, p->sharedMemBytes, bytes, {0}};
    memcpy(launch->parameter, extra[1], bytes);
    *line = 0;
    if (!fake_records()) return true;
    int used = snprintf(line, LONGEST_LINE, "launch %s %u %u", p->func->name, p->gridDimX, p->blockDimX);
    for (size_t i = 0; i < bytes / sizeof *launch->parameter; i++) {
        line[used++] = ' ';
        fake_name(line + used, (size_t)(LONGEST_LINE - used), (void *)(uintptr_t)launch->parameter[i]);
        used += (int)strlen(line + used);
    }
    return true;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **parameters,
                        void **extra) {
    FAKE_DRIVER();
    const CUDA_KERNEL_NODE_PARAMS given = {function, grid_x, grid_y,     grid_z, block_x, block_y,
                                           block_z,  shared, parameters, extra,  NULL,    NULL};
    struct launch launch;
    char line[LONGEST_LINE];
    if (!read_launch(&given, &launch, line)) return CUDA_ERROR_INVALID_VALUE;
    fake_work(stream, "%s", line);
    return fake_enqueue(stream, run_kernel, &launch, sizeof launch) ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS;
}

/* It stays the same kernel. */
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec made, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *kernel) {
    FAKE_DRIVER();
    struct launch launch;
    char line[LONGEST_LINE];
    return read_launch(kernel, &launch, line) && fake_graph_change(made, node, run_kernel, &launch, sizeof launch, line)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                             unsigned long long flags, enum cudaDriverEntryPointQueryResult *found) {
    FAKE_CALL();
    const struct {
        const char *name;
        void *function;
    } functions[] = {
        {"cuGetErrorString", (void *)cuGetErrorString},
        {"cuModuleLoadData", (void *)cuModuleLoadData},
        {"cuModuleUnload", (void *)cuModuleUnload},
        {"cuModuleGetFunction", (void *)cuModuleGetFunction},
        {"cuMemAlloc", (void *)cuMemAlloc_v2},
        {"cuModuleGetGlobal", (void *)cuModuleGetGlobal_v2},
        {"cuMemFree", (void *)cuMemFree_v2},
        {"cuLaunchKernel", (void *)cuLaunchKernel},
        {"cuStreamBeginCapture", (void *)cuStreamBeginCapture_v2},
        {"cuStreamEndCapture", (void *)cuStreamEndCapture},
        {"cuStreamGetCaptureInfo", (void *)cuStreamGetCaptureInfo_v2},
        {"cuGraphInstantiateWithFlags", (void *)cuGraphInstantiateWithFlags},
        {"cuGraphExecKernelNodeSetParams", (void *)cuGraphExecKernelNodeSetParams_v2},
        {"cuGraphLaunch", (void *)cuGraphLaunch},
        {"cuGraphExecDestroy", (void *)cuGraphExecDestroy},
        {"cuGraphDestroy", (void *)cuGraphDestroy},
    };
    *found = version < 12000 || flags ? cudaDriverEntryPointVersionNotSufficent : cudaDriverEntryPointSymbolNotFound;
    for (size_t i = 0; i < sizeof functions / sizeof *functions && version >= 12000; i++) {
        if (strcmp(functions[i].name, name)) continue;
        *function = functions[i].function;
        *found = cudaDriverEntryPointSuccess;
    }
    return cudaSuccess;
}
