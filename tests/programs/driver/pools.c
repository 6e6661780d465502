/* Stream-ordered memory: pools grow in steps, keep what the threshold says, and are shared by descriptor. */
#include "driver.h"

enum { RELEASE_THRESHOLD = 4, RESERVED = 5, RESERVED_HIGH = 6, USED = 7 };
static size_t start;
static long long taken(void) { return (long long)(start - free_bytes()); }
static char data[1000];

static uint64_t attribute(CUmemoryPool pool, int which) {
    uint64_t value = 0;
    NEED(cuMemPoolGetAttribute(pool, which, &value));
    return value;
}

static void default_pool(CUmemoryPool pool) {
    CUdeviceptr block = 0x1234, other;
    uint64_t threshold = ~0ull;
    NEED(cuMemAllocAsync(&block, 12, NULL));
    is("the first block makes a pool grow by a step", taken(), 32 * MIB);
    is("it counts what it handed out", (long long)attribute(pool, USED), 512);
    is("and what it holds", (long long)attribute(pool, RESERVED), 32 * MIB);
    NEED(cuMemAllocAsync(&other, MIB, NULL));
    is("a second block fits into the step", taken(), 32 * MIB);
    NEED(cuMemcpyHtoD_v2(block, data, 12));
    NEED(cuMemFreeAsync(other, NULL));
    NEED(cuMemFreeAsync(block, NULL));
    is("freed twice", cuMemFreeAsync(block, NULL), INVALID_VALUE);
    is("freed memory stays with the pool", taken(), 32 * MIB);
    NEED(cuCtxSynchronize());
    is("until the next synchronisation", taken(), 0);
    NEED(cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, &threshold));
    NEED(cuMemAllocAsync(&block, 100 * MIB, NULL));
    NEED(cuMemFreeAsync(block, NULL));
    NEED(cuCtxSynchronize());
    is("under the threshold it stays longer", taken(), 128 * MIB);
    is("the most it ever held", (long long)attribute(pool, RESERVED_HIGH), 128 * MIB);
    NEED(cuMemAllocAsync(&block, 90 * MIB, NULL));
    is("and is used again", taken(), 128 * MIB);
    NEED(cuMemPoolTrimTo(pool, 0));
    is("what is in use is not trimmed", (long long)attribute(pool, USED), 90 * MIB);
    NEED(cuMemFree_v2(block));
    NEED(cuMemPoolTrimTo(pool, 0));
    is("trimmed", taken(), 0);
    threshold = 0;
    NEED(cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, &threshold));
}

static void refused(CUmemoryPool pool) {
    CUdeviceptr block = 0x1234;
    uint64_t value = 0;
    size_t free, total;
    NEED(cuMemGetInfo_v2(&free, &total));
    is("more than the device", cuMemAllocAsync(&block, total, NULL), OUT_OF_MEMORY);
    is("nothing", cuMemAllocAsync(&block, 0, NULL), INVALID_VALUE);
    is("failed calls leave the output alone", (long long)block, 0x1234);
    is("no pool", cuMemAllocFromPoolAsync(&block, 512, (CUmemoryPool)(uintptr_t)0x1234, NULL), INVALID_VALUE);
    is("no stream", cuMemAllocAsync(&block, 512, (CUstream)(uintptr_t)0x5555), INVALID_HANDLE);
    is("no such attribute", cuMemPoolGetAttribute(pool, 77, &value), INVALID_VALUE);
    is("what is held is not set", cuMemPoolSetAttribute(pool, RESERVED, &value), INVALID_VALUE);
    is("the default pool is not destroyed", cuMemPoolDestroy(pool), INVALID_VALUE);
    NEED(cuMemAlloc_v2(&block, 512));
    is("ordinary memory is freed in stream order", cuMemFreeAsync(block, NULL), SUCCESS);
    NEED(cuCtxSynchronize());
}

static void own_pool(CUmemoryPool standard) {
    CUmemPoolProps properties;
    CUmemoryPool pool, current, imported;
    CUdeviceptr block, same, other;
    CUmemPoolPtrExportData exported;
    char copy[sizeof data];
    int file = -1;
    memset(&properties, 0, sizeof properties);
    properties.allocType = 1, properties.location.type = 1, properties.handleTypes = 1;
    NEED(cuMemPoolCreate(&pool, &properties));
    is("an empty pool takes nothing", taken(), 0);
    NEED(cuDeviceSetMemPool(0, pool));
    NEED(cuDeviceGetMemPool(&current, 0));
    HOLDS("a device's pool can be chosen", current == pool);
    NEED(cuMemAllocAsync(&block, sizeof data, NULL));
    is("it is allocated from", (long long)attribute(pool, USED), 1024);
    NEED(cuDeviceSetMemPool(0, standard));
    NEED(cuMemcpyHtoD_v2(block, data, sizeof data));
    NEED(cuMemPoolExportToShareableHandle(&file, pool, 1, 0));
    NEED(cuMemPoolExportPointer(&exported, block));
    NEED(cuMemPoolImportFromShareableHandle(&imported, (void *)(uintptr_t)file, 1, 0));
    NEED(cuMemPoolImportPointer(&same, imported, &exported));
    NEED(cuMemcpyDtoH_v2(copy, same, sizeof copy));
    is("an imported pointer is the same memory", memcmp(copy, data, sizeof data), 0);
    is("an imported pool does not allocate", cuMemAllocFromPoolAsync(&other, 512, imported, NULL), INVALID_VALUE);
    NEED(cuMemFree_v2(same));
    NEED(cuMemPoolDestroy(imported));
    close(file);
    NEED(cuMemPoolDestroy(pool));
    is("destroyed twice", cuMemPoolDestroy(pool), INVALID_VALUE);
    is("a destroyed pool lives as long as its blocks", taken(), 32 * MIB);
    NEED(cuMemFree_v2(block));
    is("then it is gone", taken(), 0);
}

/* What is freed on a stream is in use until the stream comes there. */
static void ordered(CUmemoryPool pool) {
    CUstream one, two;
    CUdeviceptr first, second;
    NEED(cuStreamCreate(&one, 1));
    NEED(cuStreamCreate(&two, 1));
    NEED(cuMemAllocAsync(&first, MIB, one));
    hold(one);
    NEED(cuMemFreeAsync(first, one));
    NEED(cuMemAllocAsync(&second, 1000, two));
    HOLDS("a block is not given to another stream before it is free", second != first);
    is("a synchronised stream", cuStreamSynchronize(two), SUCCESS);
    is("does not free what another one still uses", taken(), 32 * MIB);
    NEED(cuMemFreeAsync(second, two));
    let_go();
    NEED(cuStreamSynchronize(one));
    NEED(cuStreamSynchronize(two));
    is("all is back", (long long)attribute(pool, RESERVED), 0);
}

int main(void) {
    CUmemoryPool pool, same;
    begin();
    for (size_t i = 0; i < sizeof data; i++) data[i] = (char)(i + 1);
    start = free_bytes();
    NEED(cuDeviceGetDefaultMemPool(&pool, 0));
    NEED(cuDeviceGetMemPool(&same, 0));
    HOLDS("the default pool is the device's", pool == same);
    default_pool(pool);
    refused(pool);
    own_pool(pool);
    ordered(pool);
    return verdict();
}
