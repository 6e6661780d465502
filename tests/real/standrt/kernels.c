/* Kernels: what compilers have programs register when they start, and launches.
 *
 * A program's images become libraries of the driver when the first of their kernels or variables is wanted. */
#include "standrt.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* One of the program's images. */
struct binary {
    const void *wrapper;
    CUlibrary library;
};

/* A kernel or variable by the address that stands for it on the host. */
struct symbol {
    const void *host;
    const char *name;
    struct binary *binary;
    CUkernel kernel;
    struct symbol *next;
};

enum { BUCKETS = 1 << 16, PENDING_MAX = 32 };

/* Guards the table and what is loaded late. Registration happens while libraries are loaded, by any thread. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct symbol *symbols[BUCKETS];

/* A launch between the two halves into which compilers split it. */
struct pending {
    dim3 grid, block;
    size_t shared_bytes;
    cudaStream_t stream;
};
static __thread struct pending pending[PENDING_MAX];
static __thread unsigned pending_count;

static struct symbol **bucket(const void *host)
{
    size_t address = (size_t)host;
    return &symbols[(address >> 4 ^ address >> 20) % BUCKETS];
}

static void add_symbol(void **binary, const void *host, const char *name)
{
    struct symbol *added = calloc(1, sizeof *added);
    if (!added)
        abort(); /* as the caller can't be told, and a kernel that is missing later tells less */
    added->host = host;
    added->name = name;
    added->binary = (struct binary *)binary;
    pthread_mutex_lock(&lock);
    added->next = *bucket(host);
    *bucket(host) = added;
    pthread_mutex_unlock(&lock);
}

/* The symbol with its library loaded. */
static CUresult find(const void *host, struct symbol **found)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    struct symbol *symbol = *bucket(host);
    while (symbol && symbol->host != host)
        symbol = symbol->next;
    if (symbol && !symbol->binary->library)
        result = DRIVER(cuLibraryLoadData, &symbol->binary->library, symbol->binary->wrapper, NULL, NULL, 0, NULL, NULL, 0);
    pthread_mutex_unlock(&lock);
    *found = symbol;
    return symbol ? result : (CUresult)cudaErrorInvalidDeviceFunction;
}

static CUresult find_kernel(const void *host, CUkernel *kernel)
{
    struct symbol *symbol;
    CUresult result = find(host, &symbol);
    if (result)
        return result;
    pthread_mutex_lock(&lock);
    if (!symbol->kernel)
        result = DRIVER(cuLibraryGetKernel, &symbol->kernel, symbol->binary->library, symbol->name);
    *kernel = symbol->kernel;
    pthread_mutex_unlock(&lock);
    return result;
}

/* The kernel as a function of the current context. */
static CUresult find_function(const void *host, CUfunction *function)
{
    CUkernel kernel;
    CUresult result = find_kernel(host, &kernel);
    return result ? result : DRIVER(cuKernelGetFunction, function, kernel);
}

EXPORT void **__cudaRegisterFatBinary(void *wrapper)
{
    struct binary *binary = calloc(1, sizeof *binary);
    if (!binary)
        abort();
    binary->wrapper = wrapper;
    return (void **)binary;
}

EXPORT void __cudaRegisterFatBinaryEnd(void **binary) { (void)binary; }

/* Called when the process ends or a library is unloaded; the driver ends libraries with the process. */
EXPORT void __cudaUnregisterFatBinary(void **binary) { (void)binary; }

EXPORT void __cudaRegisterFunction(void **binary, const char *host, char *device, const char *name, int threads_max,
                                   void *thread, void *block, void *block_shape, void *grid_shape, int *warp)
{
    (void)device, (void)threads_max, (void)thread, (void)block, (void)block_shape, (void)grid_shape, (void)warp;
    add_symbol(binary, host, name);
}

EXPORT void __cudaRegisterVar(void **binary, char *host, char *device, const char *name, int external, size_t bytes,
                              int constant, int global)
{
    (void)device, (void)external, (void)bytes, (void)constant, (void)global;
    add_symbol(binary, host, name);
}

EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, struct CUstream_st *stream)
{
    if (pending_count == PENDING_MAX)
        return 1;
    pending[pending_count++] = (struct pending){grid, block, shared_bytes, stream};
    return 0;
}

EXPORT cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream)
{
    if (pending_count == 0)
        return answer((CUresult)cudaErrorMissingConfiguration);
    struct pending launch = pending[--pending_count];
    *grid = launch.grid;
    *block = launch.block;
    *shared_bytes = launch.shared_bytes;
    *(cudaStream_t *)stream = launch.stream;
    return cudaSuccess;
}

EXPORT cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host)
{
    NEED_DRIVER();
    return answer(find_kernel(host, (CUkernel *)kernel));
}

/* The driver takes a kernel where it takes a function. */
EXPORT cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
                                      cudaStream_t stream)
{
    IN_CONTEXT(cuLaunchKernel, (CUfunction)kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z,
               (unsigned)shared_bytes, stream, arguments, NULL);
}

EXPORT cudaError_t cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
                                    cudaStream_t stream)
{
    CUkernel kernel;
    NEED_CONTEXT();
    CUresult result = find_kernel(host, &kernel);
    if (result)
        return answer(result);
    return __cudaLaunchKernel((cudaKernel_t)kernel, grid, block, arguments, shared_bytes, stream);
}

EXPORT cudaError_t cudaLaunchCooperativeKernel(const void *host, dim3 grid, dim3 block, void **arguments,
                                               size_t shared_bytes, cudaStream_t stream)
{
    CUfunction function;
    NEED_CONTEXT();
    CUresult result = find_function(host, &function);
    if (result)
        return answer(result);
    return answer(DRIVER(cuLaunchCooperativeKernel, function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                         (unsigned)shared_bytes, stream, arguments));
}

_Static_assert(sizeof(cudaLaunchAttribute) == sizeof(CUlaunchAttribute), "one layout under two names");

EXPORT cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *wanted, const void *host, void **arguments)
{
    CUfunction function;
    NEED_CONTEXT();
    CUresult result = find_function(host, &function);
    if (result)
        return answer(result);
    CUlaunchConfig launch = {
        .gridDimX = wanted->gridDim.x,
        .gridDimY = wanted->gridDim.y,
        .gridDimZ = wanted->gridDim.z,
        .blockDimX = wanted->blockDim.x,
        .blockDimY = wanted->blockDim.y,
        .blockDimZ = wanted->blockDim.z,
        .sharedMemBytes = (unsigned)wanted->dynamicSmemBytes,
        .hStream = wanted->stream,
        .attrs = (CUlaunchAttribute *)wanted->attrs,
        .numAttrs = wanted->numAttrs,
    };
    return answer(DRIVER(cuLaunchKernelEx, &launch, function, arguments, NULL));
}

static int function_attribute(CUfunction function, CUfunction_attribute which)
{
    int value = 0;
    return DRIVER(cuFuncGetAttribute, &value, which, function) ? 0 : value;
}

EXPORT cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *host)
{
    CUfunction function;
    NEED_CONTEXT();
    CUresult result = find_function(host, &function);
    if (result)
        return answer(result);
    memset(attributes, 0, sizeof *attributes);
#define FILL(field, name) attributes->field = function_attribute(function, CU_FUNC_ATTRIBUTE_##name);
    FILL(sharedSizeBytes, SHARED_SIZE_BYTES)
    FILL(constSizeBytes, CONST_SIZE_BYTES)
    FILL(localSizeBytes, LOCAL_SIZE_BYTES)
    FILL(maxThreadsPerBlock, MAX_THREADS_PER_BLOCK)
    FILL(numRegs, NUM_REGS)
    FILL(ptxVersion, PTX_VERSION)
    FILL(binaryVersion, BINARY_VERSION)
    FILL(cacheModeCA, CACHE_MODE_CA)
    FILL(maxDynamicSharedSizeBytes, MAX_DYNAMIC_SHARED_SIZE_BYTES)
    FILL(preferredShmemCarveout, PREFERRED_SHARED_MEMORY_CARVEOUT)
#undef FILL
    return cudaSuccess;
}

EXPORT cudaError_t cudaFuncSetAttribute(const void *host, enum cudaFuncAttribute which, int value)
{
    CUfunction function;
    NEED_CONTEXT();
    CUresult result = find_function(host, &function);
    return answer(result ? result : DRIVER(cuFuncSetAttribute, function, (CUfunction_attribute)which, value));
}

EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *host, int threads,
                                                                          size_t shared_bytes, unsigned flags)
{
    CUfunction function;
    NEED_CONTEXT();
    CUresult result = find_function(host, &function);
    if (result)
        return answer(result);
    return answer(DRIVER(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, blocks, function, threads, shared_bytes,
                         flags));
}

EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *host, int threads,
                                                                 size_t shared_bytes)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, host, threads, shared_bytes, 0);
}

EXPORT cudaError_t cudaGetSymbolAddress(void **address, const void *host)
{
    struct symbol *symbol;
    size_t bytes;
    NEED_CONTEXT();
    CUresult result = find(host, &symbol);
    if (result == (CUresult)cudaErrorInvalidDeviceFunction)
        return answer((CUresult)cudaErrorInvalidSymbol);
    if (result)
        return answer(result);
    return answer(DRIVER(cuLibraryGetGlobal, (CUdeviceptr *)address, &bytes, symbol->binary->library, symbol->name));
}

EXPORT cudaError_t cudaMemcpyToSymbol(const void *host, const void *from, size_t bytes, size_t offset,
                                      enum cudaMemcpyKind kind)
{
    void *address;
    cudaError_t error = cudaGetSymbolAddress(&address, host);
    return error ? error : cudaMemcpy((char *)address + offset, from, bytes, kind);
}
