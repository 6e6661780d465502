/* Reaching the driver, devices and their primary contexts. */
#define _GNU_SOURCE
#include "standrt.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

enum { DEVICES_MAX = 64, NEEDS_DRIVER = 13000 };

typedef CUresult (*look_up)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

struct driver driver;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static CUresult started;
static look_up get_proc_address;
static int device_count;

static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;
static CUcontext contexts[DEVICES_MAX];

static __thread int chosen_device;
static __thread cudaError_t last_error;

static void *address_of(const char *name, int version)
{
    CUdriverProcAddressQueryResult found;
    void *address = NULL;
    return get_proc_address(name, &address, version, CU_GET_PROC_ADDRESS_DEFAULT, &found) ? NULL : address;
}

static void start_once(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    int version = 0;
    started = (CUresult)cudaErrorInsufficientDriver;
    if (!library || !(get_proc_address = (look_up)dlsym(library, "cuGetProcAddress_v2")))
        return;
#define LOOK_UP(name, version) driver.name = (__typeof__(driver.name))address_of(#name, version);
    DRIVER_FUNCTIONS(LOOK_UP)
#undef LOOK_UP
    if (DRIVER(cuDriverGetVersion, &version) || version < NEEDS_DRIVER)
        return;
    started = DRIVER(cuInit, 0);
    if (!started)
        started = DRIVER(cuDeviceGetCount, &device_count);
    if (device_count > DEVICES_MAX)
        device_count = DEVICES_MAX;
}

CUresult start(void)
{
    pthread_once(&once, start_once);
    return started;
}

static CUresult make_current(int device)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&contexts_lock);
    if (!contexts[device])
        result = DRIVER(cuDevicePrimaryCtxRetain, &contexts[device], device);
    CUcontext context = contexts[device];
    pthread_mutex_unlock(&contexts_lock);
    return result ? result : DRIVER(cuCtxSetCurrent, context);
}

CUresult enter(void)
{
    CUcontext current = NULL;
    CUresult result = start();
    if (result)
        return result;
    return !DRIVER(cuCtxGetCurrent, &current) && current ? CUDA_SUCCESS : make_current(chosen_device);
}

cudaError_t answer(CUresult result)
{
    cudaError_t error = (cudaError_t)result;
    if (error && error != cudaErrorNotReady)
        last_error = error;
    return error;
}

int attribute(CUdevice_attribute which, int device)
{
    int value = 0;
    return DRIVER(cuDeviceGetAttribute, &value, which, device) ? 0 : value;
}

EXPORT cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

EXPORT cudaError_t cudaPeekAtLastError(void) { return last_error; }

EXPORT cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

EXPORT cudaError_t cudaDriverGetVersion(int *version)
{
    start();
    *version = 0;
    return driver.cuDriverGetVersion ? answer(driver.cuDriverGetVersion(version)) : cudaSuccess;
}

EXPORT cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version,
                                                    unsigned long long flags,
                                                    enum cudaDriverEntryPointQueryResult *found)
{
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    NEED_DRIVER();
    CUresult result = get_proc_address(symbol, function, (int)version, flags, &status);
    if (found)
        *found = (enum cudaDriverEntryPointQueryResult)status;
    return answer(result);
}

EXPORT cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 0;
    NEED_DRIVER();
    *count = device_count;
    return cudaSuccess;
}

EXPORT cudaError_t cudaSetDevice(int device)
{
    NEED_DRIVER();
    if (device < 0 || device >= device_count)
        return answer(CUDA_ERROR_INVALID_DEVICE);
    CUresult result = make_current(device);
    if (!result)
        chosen_device = device;
    return answer(result);
}

EXPORT cudaError_t cudaGetDevice(int *device)
{
    CUcontext current = NULL;
    NEED_DRIVER();
    *device = chosen_device;
    if (!DRIVER(cuCtxGetCurrent, &current) && current)
        return answer(DRIVER(cuCtxGetDevice, device));
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceSynchronize(void) { IN_CONTEXT(cuCtxSynchronize); }

/* Ends the device's context; the next call makes another. */
EXPORT cudaError_t cudaDeviceReset(void)
{
    NEED_DRIVER();
    pthread_mutex_lock(&contexts_lock);
    CUresult result = DRIVER(cuDevicePrimaryCtxReset, chosen_device);
    if (contexts[chosen_device])
        (void)DRIVER(cuDevicePrimaryCtxRelease, chosen_device);
    contexts[chosen_device] = NULL;
    pthread_mutex_unlock(&contexts_lock);
    (void)DRIVER(cuCtxSetCurrent, NULL);
    return answer(result);
}

EXPORT cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr which, int device)
{
    NEED_DRIVER();
    return answer(DRIVER(cuDeviceGetAttribute, value, (CUdevice_attribute)which, device));
}

EXPORT cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int device)
{
    NEED_DRIVER();
    return answer(DRIVER(cuDeviceGetPCIBusId, text, length, device));
}

EXPORT cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    NEED_DRIVER();
    return answer(DRIVER(cuDeviceCanAccessPeer, can, device, peer));
}

EXPORT cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    CUcontext context = NULL;
    NEED_CONTEXT();
    if (peer < 0 || peer >= device_count)
        return answer(CUDA_ERROR_INVALID_DEVICE);
    pthread_mutex_lock(&contexts_lock);
    CUresult result = contexts[peer] ? CUDA_SUCCESS : DRIVER(cuDevicePrimaryCtxRetain, &contexts[peer], peer);
    context = contexts[peer];
    pthread_mutex_unlock(&contexts_lock);
    return answer(result ? result : DRIVER(cuCtxEnablePeerAccess, context, flags));
}

EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    IN_CONTEXT(cuCtxGetStreamPriorityRange, least, greatest);
}

EXPORT cudaError_t cudaProfilerStart(void) { IN_CONTEXT(cuProfilerStart); }

EXPORT cudaError_t cudaProfilerStop(void) { IN_CONTEXT(cuProfilerStop); }
