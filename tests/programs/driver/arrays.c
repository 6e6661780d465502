/* Arrays and mipmaps: counted by their format, copied truly, and opaque to everything that takes pointers. */
#include "driver.h"

enum { FLOAT = 0x20, UINT8 = 1 };
static unsigned char source[1000 * 500], target[sizeof source];
static size_t start;
static long long taken(void) { return (long long)(start - free_bytes()); }

static void flat(void) {
    CUDA_ARRAY_DESCRIPTOR shape = {1000, 1000, FLOAT, 4}, told;
    CUDA_MEMCPY2D copy;
    CUarray array = NULL;
    NEED(cuArrayCreate_v2(&array, &shape));
    is("an array of 16 bytes a point is counted", taken(), 16 * MIB);
    NEED(cuArrayGetDescriptor_v2(&told, array));
    HOLDS("it tells its shape", told.Width == 1000 && told.Height == 1000 && told.Format == FLOAT && told.NumChannels == 4);
    memset(&copy, 0, sizeof copy);
    copy.srcMemoryType = FROM_HOST, copy.srcHost = source, copy.srcPitch = 1000;
    copy.dstMemoryType = ON_ARRAY, copy.dstArray = array, copy.dstXInBytes = 16, copy.dstY = 3;
    copy.WidthInBytes = 1000, copy.Height = 500;
    NEED(cuMemcpy2D_v2(&copy));
    memset(&copy, 0, sizeof copy);
    copy.srcMemoryType = ON_ARRAY, copy.srcArray = array, copy.srcXInBytes = 16, copy.srcY = 3;
    copy.dstMemoryType = FROM_HOST, copy.dstHost = target, copy.dstPitch = 1000;
    copy.WidthInBytes = 1000, copy.Height = 500;
    NEED(cuMemcpy2D_v2(&copy));
    is("a round trip", memcmp(source, target, sizeof source), 0);
    copy.Height = 1000;
    is("rows beyond the array", cuMemcpy2D_v2(&copy), INVALID_VALUE);
    is("an array is not memory by pointer", cuMemFree_v2((CUdeviceptr)(uintptr_t)array), INVALID_VALUE);
    NEED(cuArrayDestroy(array));
    is("all is back", taken(), 0);
    is("destroyed twice", cuArrayDestroy(array), INVALID_HANDLE);
    is("a destroyed one has no shape", cuArrayGetDescriptor_v2(&told, array), INVALID_HANDLE);
    is("nor is it copied from", cuMemcpy2D_v2(&copy), INVALID_HANDLE);
}

static void line(void) {
    CUDA_ARRAY_DESCRIPTOR shape = {4096, 0, UINT8, 1};
    CUarray array = NULL;
    CUdeviceptr block;
    NEED(cuArrayCreate_v2(&array, &shape));
    NEED(cuMemcpyHtoA_v2(array, 100, source, 1000));
    NEED(cuMemAlloc_v2(&block, 4096));
    NEED(cuMemcpyAtoD_v2(block, array, 100, 1000));
    NEED(cuMemcpyDtoH_v2(target, block, 1000));
    is("host, array, device, host", memcmp(source, target, 1000), 0);
    NEED(cuMemcpyDtoA_v2(array, 0, block + 1, 10));
    NEED(cuMemcpyAtoH_v2(target, array, 0, 10));
    is("device to array to host", memcmp(source + 1, target, 10), 0);
    is("beyond its end", cuMemcpyHtoA_v2(array, 4090, source, 10), INVALID_VALUE);
    NEED(cuMemFree_v2(block));
    NEED(cuArrayDestroy(array));
}

static void deep(void) {
    CUDA_ARRAY3D_DESCRIPTOR shape = {64, 32, 8, UINT8, 1, 0}, told;
    CUDA_MEMCPY3D copy;
    CUarray array = NULL;
    NEED(cuArray3DCreate_v2(&array, &shape));
    NEED(cuArray3DGetDescriptor_v2(&told, array));
    HOLDS("three dimensions", told.Width == 64 && told.Height == 32 && told.Depth == 8);
    memset(&copy, 0, sizeof copy);
    copy.srcMemoryType = FROM_HOST, copy.srcHost = source, copy.srcPitch = 64, copy.srcHeight = 32;
    copy.dstMemoryType = ON_ARRAY, copy.dstArray = array;
    copy.WidthInBytes = 64, copy.Height = 32, copy.Depth = 8;
    NEED(cuMemcpy3D_v2(&copy));
    memset(&copy, 0, sizeof copy);
    copy.srcMemoryType = ON_ARRAY, copy.srcArray = array, copy.srcXInBytes = 8, copy.srcY = 4, copy.srcZ = 2;
    copy.dstMemoryType = FROM_HOST, copy.dstHost = target, copy.dstPitch = 16, copy.dstHeight = 4;
    copy.WidthInBytes = 16, copy.Height = 4, copy.Depth = 3;
    NEED(cuMemcpy3D_v2(&copy));
    HOLDS("a box out of it", target[0] == source[(2 * 32 + 4) * 64 + 8] && !memcmp(target + 64 + 16, source + (3 * 32 + 5) * 64 + 8, 16));
    NEED(cuArrayDestroy(array));
}

static void refused(void) {
    CUarray array = &array;
    CUDA_ARRAY_DESCRIPTOR three = {16, 16, FLOAT, 3}, none = {0, 16, FLOAT, 1}, format = {16, 16, 0x77, 1}, huge = {131072, 65536, FLOAT, 4};
    is("three channels", cuArrayCreate_v2(&array, &three), INVALID_VALUE);
    is("no width", cuArrayCreate_v2(&array, &none), INVALID_VALUE);
    is("no such format", cuArrayCreate_v2(&array, &format), INVALID_VALUE);
    HOLDS("more than the device", cuArrayCreate_v2(&array, &huge) != SUCCESS);
    HOLDS("failed calls leave the output alone", array == (void *)&array);
    is("no output", cuArrayCreate_v2(NULL, &format), INVALID_VALUE);
    is("an invented array", cuArrayDestroy((CUarray)(uintptr_t)0x1234), INVALID_HANDLE);
}

static void mipmaps(void) {
    CUDA_ARRAY3D_DESCRIPTOR shape = {64, 64, 0, FLOAT, 1, 0};
    CUDA_ARRAY_DESCRIPTOR told;
    CUmipmappedArray mipmap = NULL;
    CUarray level = NULL;
    NEED(cuMipmappedArrayCreate(&mipmap, &shape, 7));
    HOLDS("a mipmap is counted", taken() > 0);
    NEED(cuMipmappedArrayGetLevel(&level, mipmap, 6));
    NEED(cuArrayGetDescriptor_v2(&told, level));
    is("the seventh level is one point wide", (long long)told.Width, 1);
    is("there is no eighth", cuMipmappedArrayGetLevel(&level, mipmap, 7), INVALID_VALUE);
    HOLDS("a level is not destroyed alone", cuArrayDestroy(level) != SUCCESS);
    NEED(cuMipmappedArrayDestroy(mipmap));
    is("levels go with their mipmap", cuArrayGetDescriptor_v2(&told, level), INVALID_HANDLE);
    is("and all memory", taken(), 0);
}

int main(void) {
    begin();
    for (size_t i = 0; i < sizeof source; i++) source[i] = (unsigned char)(i * 31 + i / 1000);
    start = free_bytes();
    flat();
    line();
    deep();
    refused();
    mipmaps();
    return verdict();
}
