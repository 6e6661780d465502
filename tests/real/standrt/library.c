/* Libraries that programs load by hand: the driver's, under the runtime's names. */
#include "standrt.h"

EXPORT cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code, enum cudaJitOption *jit_options,
                                       void **jit_values, unsigned jit_count, enum cudaLibraryOption *options,
                                       void **values, unsigned count)
{
    IN_CONTEXT(cuLibraryLoadData, library, code, (CUjit_option *)jit_options, jit_values, jit_count,
               (CUlibraryOption *)options, values, count);
}

EXPORT cudaError_t cudaLibraryLoadFromFile(cudaLibrary_t *library, const char *file, enum cudaJitOption *jit_options,
                                           void **jit_values, unsigned jit_count, enum cudaLibraryOption *options,
                                           void **values, unsigned count)
{
    IN_CONTEXT(cuLibraryLoadFromFile, library, file, (CUjit_option *)jit_options, jit_values, jit_count,
               (CUlibraryOption *)options, values, count);
}

EXPORT cudaError_t cudaLibraryUnload(cudaLibrary_t library) { IN_CONTEXT(cuLibraryUnload, library); }

EXPORT cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library, const char *name)
{
    IN_CONTEXT(cuLibraryGetKernel, kernel, library, name);
}

EXPORT cudaError_t cudaLibraryGetKernelCount(unsigned *count, cudaLibrary_t library)
{
    IN_CONTEXT(cuLibraryGetKernelCount, count, library);
}

EXPORT cudaError_t cudaLibraryGetGlobal(void **address, size_t *bytes, cudaLibrary_t library, const char *name)
{
    IN_CONTEXT(cuLibraryGetGlobal, (CUdeviceptr *)address, bytes, library, name);
}

EXPORT cudaError_t cudaLibraryGetManaged(void **address, size_t *bytes, cudaLibrary_t library, const char *name)
{
    IN_CONTEXT(cuLibraryGetManaged, (CUdeviceptr *)address, bytes, library, name);
}

EXPORT cudaError_t cudaLibraryGetUnifiedFunction(void **function, cudaLibrary_t library, const char *name)
{
    IN_CONTEXT(cuLibraryGetUnifiedFunction, function, library, name);
}

EXPORT cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, enum cudaFuncAttribute which, int value,
                                                   int device)
{
    IN_CONTEXT(cuKernelSetAttribute, (CUfunction_attribute)which, value, kernel, device);
}
