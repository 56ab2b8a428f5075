/* driver_libomptarget.c - the further functions of the fake CUDA's driver that LLVM's OpenMP runtime calls. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "cuda.h"
#include "driver.h"
#include "fake.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wunused-parameter"

static CUresult result_of(cudaError_t error) { return error ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS; }

/* ---- devices and contexts: each device has one context, and the handle is the device's number + 1 ---- */

static CUcontext context_of(int device) { return (CUcontext)(uintptr_t)(device + 1); }
static int device_of(CUcontext context) { return (int)(uintptr_t)context - 1; }

CUresult cuInit(unsigned flags) {
    FAKE_DRIVER();
    return CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int *version) {
    *version = CUDART_VERSION;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int *count) {
    FAKE_DRIVER();
    *count = fake_devices();
    return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice *device, int number) {
    *device = number;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    snprintf(name, (size_t)length, "none");
    return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    *bytes = (size_t)1 << 36;
    return CUDA_SUCCESS;
}
CUresult cuMemGetInfo_v2(size_t *unused, size_t *total) {
    *unused = *total = (size_t)1 << 36;
    return CUDA_SUCCESS;
}

/* Returns the attributes of an H100, by the driver's numbers of attributes; 1 for all others. */
CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    static const int values[][2] = {
        {1, 1024},    /* threads in a block */
        {2, 1024},    /* along x */
        {5, 1 << 30}, /* blocks along x */
        {8, 49152},   /* shared memory in a block */
        {10, 32},     /* lanes of a warp */
        {16, 132},    /* multiprocessors */
        {39, 2048},   /* threads on each */
        {75, 9},      {76, 0},
    };
    *value = 1;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        if (values[i][0] == attribute) *value = values[i][1];
    }
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    *flags = 0;
    *active = 1;
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) { return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    *context = context_of(device);
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) { return CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext context) { return context ? result_of(cudaSetDevice(device_of(context))) : 0; }
CUresult cuCtxGetDevice(CUdevice *device) {
    *device = fake_device();
    return CUDA_SUCCESS;
}
CUresult cuCtxGetLimit(size_t *value, int limit) {
    *value = limit ? 8 << 20 : 1024;
    return CUDA_SUCCESS;
}
CUresult cuCtxSetLimit(int limit, size_t value) { return CUDA_SUCCESS; }
CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
    *can = device != peer;
    return CUDA_SUCCESS;
}
CUresult cuCtxEnablePeerAccess(CUcontext context, unsigned flags) { return CUDA_SUCCESS; }

/* ---- modules ---- */

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, void *options, void **values) {
    return cuModuleLoadData(module, image);
}
CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function) {
    *value = 1024;
    return CUDA_SUCCESS;
}

/* ---- memory ---- */

CUresult cuMemAllocHost_v2(void **memory, size_t bytes) { return result_of(cudaMallocHost(memory, bytes)); }
CUresult cuMemFreeHost(void *memory) { return result_of(cudaFreeHost(memory)); }
CUresult cuMemAllocManaged(CUdeviceptr *memory, size_t bytes, unsigned flags) { return cuMemAlloc_v2(memory, bytes); }
CUresult cuMemAllocAsync(CUdeviceptr *memory, size_t bytes, CUstream stream) { return cuMemAlloc_v2(memory, bytes); }
CUresult cuMemFreeAsync(CUdeviceptr memory, CUstream stream) { return cuMemFree_v2(memory); }

static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return result_of(cudaMemcpyAsync((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes, cudaMemcpyDefault,
                                     (cudaStream_t)stream));
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return copy(to, from, bytes, stream);
}
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return copy((uintptr_t)to, from, bytes, stream);
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    return copy(to, (uintptr_t)from, bytes, stream);
}
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, size_t bytes,
                           CUstream stream) {
    return copy(to, from, bytes, stream);
}
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
    FAKE_DRIVER();
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return CUDA_SUCCESS;
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
    FAKE_DRIVER();
    memcpy((void *)(uintptr_t)to, from, bytes);
    return CUDA_SUCCESS;
}

/* ---- streams and events ---- */

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    return result_of(cudaStreamCreateWithFlags((cudaStream_t *)stream, cudaStreamNonBlocking));
}
CUresult cuStreamDestroy_v2(CUstream stream) { return result_of(cudaStreamDestroy((cudaStream_t)stream)); }
CUresult cuStreamSynchronize(CUstream stream) { return result_of(cudaStreamSynchronize((cudaStream_t)stream)); }
CUresult cuStreamQuery(CUstream stream) {
    return cudaStreamQuery((cudaStream_t)stream) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    return result_of(cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)event, flags));
}
CUresult cuEventCreate(CUevent *event, unsigned flags) { return result_of(cudaEventCreate((cudaEvent_t *)event)); }
CUresult cuEventDestroy(CUevent event) { return result_of(cudaEventDestroy((cudaEvent_t)event)); }
CUresult cuEventRecord(CUevent event, CUstream stream) {
    return result_of(cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream));
}
CUresult cuEventSynchronize(CUevent event) { return result_of(cudaEventSynchronize((cudaEvent_t)event)); }

/* ---- looked up, and never called ---- */

#define FAKE_UNUSED(function)                                                                                          \
    CUresult function(void) {                                                                                          \
        FAKE_DRIVER();                                                                                                 \
        return CUDA_ERROR_UNKNOWN;                                                                                     \
    }
FAKE_UNUSED(cuMemUnmap)
FAKE_UNUSED(cuMemRelease)
FAKE_UNUSED(cuMemAddressFree)
FAKE_UNUSED(cuMemAddressReserve)
FAKE_UNUSED(cuMemMap)
FAKE_UNUSED(cuMemCreate)
FAKE_UNUSED(cuMemSetAccess)
FAKE_UNUSED(cuMemGetAllocationGranularity)
