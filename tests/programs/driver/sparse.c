/* Sparse arrays: they own nothing, and hold the memory that is mapped to their tiles. */
#include "driver.h"

enum { FLOAT = 0x20, SPARSE = 0x40, DEFERRED = 0x80, ARRAY = 0, MIPMAPPED = 1, MAP = 1, UNMAP = 2 };
static size_t start;
static long long taken(void) { return (long long)(start - free_bytes()); }
static const CUmemAllocationProp for_tiles = {1, 0, {1, 0}, NULL, {0, 0, 1, {0}}}, for_anything = {1, 0, {1, 0}, NULL, {0, 0, 0, {0}}};

static CUmemGenericAllocationHandle memory(const CUmemAllocationProp *kind, size_t size) {
    CUmemGenericAllocationHandle handle;
    NEED(cuMemCreate(&handle, size, kind, 0));
    return handle;
}

/* The operation on some tiles of a level. */
static CUarrayMapInfo tiles(int kind, void *resource, unsigned level, unsigned x, unsigned y, unsigned width, unsigned height) {
    CUarrayMapInfo info;
    memset(&info, 0, sizeof info);
    info.resourceType = kind, info.resource = resource;
    info.subresource.sparseLevel.level = level;
    info.subresource.sparseLevel.offsetX = x, info.subresource.sparseLevel.offsetY = y;
    info.subresource.sparseLevel.extentWidth = width, info.subresource.sparseLevel.extentHeight = height;
    info.subresource.sparseLevel.extentDepth = 1;
    info.memOperationType = UNMAP, info.deviceBitMask = 1;
    return info;
}

static CUresult mapped(CUarrayMapInfo info, CUmemGenericAllocationHandle handle, size_t offset) {
    info.memOperationType = MAP, info.memHandle = handle, info.offset = offset;
    return cuMemMapArrayAsync(&info, 1, NULL);
}

static CUresult unmapped(CUarrayMapInfo info) { return cuMemMapArrayAsync(&info, 1, NULL); }

static void flat(void) {
    CUDA_ARRAY3D_DESCRIPTOR shape = {1000, 1000, 0, FLOAT, 1, SPARSE};
    CUDA_ARRAY_SPARSE_PROPERTIES told;
    CUarray array;
    NEED(cuArray3DCreate_v2(&array, &shape));
    is("a sparse array takes nothing", taken(), 0);
    NEED(cuArrayGetSparseProperties(&told, array));
    HOLDS("tiles of 64 KiB", told.tileWidth == 128 && told.tileHeight == 128 && told.tileDepth == 1);
    HOLDS("an array has no tail", told.miptailSize == 0 && told.miptailFirstLevel == 0);
    is("no output", cuArrayGetSparseProperties(NULL, array), INVALID_VALUE);
    CUmemGenericAllocationHandle first = memory(&for_tiles, 2 * MIB), second = memory(&for_tiles, 4 * MIB);
    is("one tile", mapped(tiles(ARRAY, array, 0, 128, 0, 128, 128), first, 65536), SUCCESS);
    is("up to the edge", mapped(tiles(ARRAY, array, 0, 896, 896, 104, 104), first, 0), SUCCESS);
    is("a row of tiles", mapped(tiles(ARRAY, array, 0, 0, 128, 1000, 128), second, 0), SUCCESS);
    NEED(cuMemRelease(first));
    NEED(cuMemRelease(second));
    is("mapped memory lives without a handle", taken(), 6 * MIB);
    is("a tile is unmapped", unmapped(tiles(ARRAY, array, 0, 128, 0, 128, 128)), SUCCESS);
    is("another tile holds the memory", taken(), 6 * MIB);
    is("mapped to nothing", mapped(tiles(ARRAY, array, 0, 896, 896, 104, 104), 0, 0), SUCCESS);
    is("the last tile gives it back", taken(), 4 * MIB);
    first = memory(&for_tiles, 2 * MIB);
    for (unsigned x = 0; x < 1000; x += 128) NEED(mapped(tiles(ARRAY, array, 0, x, 128, x < 896 ? 128 : 104, 128), first, 0));
    is("what is mapped over is given back", taken(), 2 * MIB);
    NEED(cuMemRelease(first));
    NEED(cuArrayDestroy(array));
    is("an array gives back what it holds", taken(), 0);
    is("a destroyed one is not mapped", unmapped(tiles(ARRAY, array, 0, 0, 0, 128, 128)), INVALID_HANDLE);
    is("nor has it tiles", cuArrayGetSparseProperties(&told, array), INVALID_HANDLE);
}

static void refused(void) {
    CUDA_ARRAY3D_DESCRIPTOR shape = {1024, 1024, 0, FLOAT, 1, SPARSE}, plain_shape = {1024, 1024, 0, FLOAT, 1, 0};
    CUDA_ARRAY_SPARSE_PROPERTIES told;
    CUarray array, plain;
    NEED(cuArray3DCreate_v2(&array, &shape));
    NEED(cuArray3DCreate_v2(&plain, &plain_shape));
    long long before = taken();
    CUmemGenericAllocationHandle pool = memory(&for_tiles, 2 * MIB), other = memory(&for_anything, 2 * MIB);
    CUarrayMapInfo good = tiles(ARRAY, array, 0, 0, 0, 128, 128), bad = good;
    is("an ordinary array", mapped(tiles(ARRAY, plain, 0, 0, 0, 128, 128), pool, 0), INVALID_VALUE);
    is("has no tiles", cuArrayGetSparseProperties(&told, plain), INVALID_VALUE);
    is("no such array", mapped(tiles(ARRAY, (void *)(uintptr_t)0x1234, 0, 0, 0, 128, 128), pool, 0), INVALID_HANDLE);
    is("an array is no mipmap", mapped(tiles(MIPMAPPED, array, 0, 0, 0, 128, 128), pool, 0), INVALID_HANDLE);
    is("nor anything else", mapped(tiles(2, array, 0, 0, 0, 128, 128), pool, 0), INVALID_VALUE);
    is("between two tiles", mapped(tiles(ARRAY, array, 0, 64, 0, 128, 128), pool, 0), INVALID_VALUE);
    is("half a tile", mapped(tiles(ARRAY, array, 0, 0, 0, 64, 128), pool, 0), INVALID_VALUE);
    is("no tile", mapped(tiles(ARRAY, array, 0, 0, 0, 0, 128), pool, 0), INVALID_VALUE);
    is("beyond the array", mapped(tiles(ARRAY, array, 0, 1024, 0, 128, 128), pool, 0), INVALID_VALUE);
    is("a level of an array", mapped(tiles(ARRAY, array, 1, 0, 0, 128, 128), pool, 0), INVALID_VALUE);
    is("more than there is memory", mapped(tiles(ARRAY, array, 0, 0, 0, 1024, 1024), pool, 0), INVALID_VALUE);
    is("memory beyond the end", mapped(good, pool, 2 * MIB), INVALID_VALUE);
    is("memory between two tiles", mapped(good, pool, 100), INVALID_VALUE);
    is("memory not made for tiles", mapped(good, other, 0), INVALID_VALUE);
    is("no such memory", mapped(good, 0x1234, 0), INVALID_VALUE);
    bad.memHandle = pool;
    is("unmapped from memory", unmapped(bad), INVALID_VALUE);
    bad = good, bad.deviceBitMask = 0;
    is("on no device", mapped(bad, pool, 0), INVALID_VALUE);
    bad.deviceBitMask = 3;
    is("on two", mapped(bad, pool, 0), INVALID_VALUE);
    bad = good, bad.flags = 1;
    is("flags", mapped(bad, pool, 0), INVALID_VALUE);
    bad = good, bad.memHandleType = 1;
    is("another kind of handle", mapped(bad, pool, 0), INVALID_VALUE);
    bad = good, bad.subresourceType = 1;
    is("the tail of an array", mapped(bad, pool, 0), INVALID_VALUE);
    bad = good, bad.memOperationType = 3;
    is("another operation", unmapped(bad), INVALID_VALUE);
    is("no list", cuMemMapArrayAsync(NULL, 1, NULL), INVALID_VALUE);
    is("no such stream", cuMemMapArrayAsync(&good, 1, (CUstream)(uintptr_t)0x5555), INVALID_HANDLE);
    NEED(cuMemRelease(pool));
    NEED(cuMemRelease(other));
    is("nothing was mapped", taken(), before);
    NEED(cuArrayDestroy(array));
    NEED(cuArrayDestroy(plain));
}

static void levels(void) {
    CUDA_ARRAY3D_DESCRIPTOR shape = {512, 512, 0, FLOAT, 1, SPARSE};
    CUDA_ARRAY_SPARSE_PROPERTIES told;
    CUmipmappedArray mipmap;
    CUarray level;
    NEED(cuMipmappedArrayCreate(&mipmap, &shape, 10));
    NEED(cuMipmappedArrayGetSparseProperties(&told, mipmap));
    HOLDS("the tail begins below a tile", told.miptailFirstLevel == 3 && told.miptailSize == 65536 && told.tileWidth == 128);
    NEED(cuMipmappedArrayGetLevel(&level, mipmap, 1));
    is("a level alone has no tiles", cuArrayGetSparseProperties(&told, level), INVALID_VALUE);
    CUmemGenericAllocationHandle pool = memory(&for_tiles, 2 * MIB), tail_pool = memory(&for_tiles, 2 * MIB);
    is("nor is it mapped", mapped(tiles(ARRAY, level, 0, 0, 0, 128, 128), pool, 0), INVALID_VALUE);
    CUarrayMapInfo tail = tiles(MIPMAPPED, mipmap, 0, 0, 0, 0, 0);
    memset(&tail.subresource, 0, sizeof tail.subresource);
    tail.subresourceType = 1, tail.subresource.miptail.size = 65536;
    is("a level of a mipmap", mapped(tiles(MIPMAPPED, mipmap, 1, 0, 0, 256, 256), pool, 0), SUCCESS);
    is("a level of the tail", mapped(tiles(MIPMAPPED, mipmap, 3, 0, 0, 64, 64), pool, 0), INVALID_VALUE);
    is("the tail", mapped(tail, tail_pool, 0), SUCCESS);
    tail.subresource.miptail.offset = 65536;
    is("beyond the tail", mapped(tail, tail_pool, 0), INVALID_VALUE);
    tail.subresource.miptail.offset = 0, tail.subresource.miptail.layer = 1;
    is("another layer", mapped(tail, tail_pool, 0), INVALID_VALUE);
    NEED(cuMemRelease(pool));
    NEED(cuMemRelease(tail_pool));
    is("both are held", taken(), 4 * MIB);
    tail.subresource.miptail.layer = 0;
    is("the tail is unmapped", unmapped(tail), SUCCESS);
    is("one is held", taken(), 2 * MIB);
    NEED(cuMipmappedArrayDestroy(mipmap));
    is("none is left", taken(), 0);
}

static void deferred(void) {
    CUDA_ARRAY3D_DESCRIPTOR shape = {512, 512, 0, FLOAT, 1, DEFERRED};
    CUDA_ARRAY_SPARSE_PROPERTIES told;
    CUarray array;
    NEED(cuArray3DCreate_v2(&array, &shape));
    is("deferred mapping takes nothing", taken(), 0);
    is("and has no tiles", cuArrayGetSparseProperties(&told, array), INVALID_VALUE);
    CUmemGenericAllocationHandle whole = memory(&for_anything, 2 * MIB);
    is("too little of the memory", mapped(tiles(ARRAY, array, 0, 0, 0, 0, 0), whole, 2 * MIB - 65536), INVALID_VALUE);
    is("mapped as a whole", mapped(tiles(ARRAY, array, 0, 0, 0, 0, 0), whole, 0), SUCCESS);
    NEED(cuMemRelease(whole));
    is("it holds its memory", taken(), 2 * MIB);
    NEED(cuArrayDestroy(array));
    is("and gives it back", taken(), 0);
}

static void ordered(void) {
    CUDA_ARRAY3D_DESCRIPTOR shape = {128, 128, 64, FLOAT, 1, SPARSE};
    CUDA_ARRAY_SPARSE_PROPERTIES told;
    CUarray array;
    CUstream stream;
    CUgraph graph;
    NEED(cuStreamCreate(&stream, 1));
    NEED(cuArray3DCreate_v2(&array, &shape));
    NEED(cuArrayGetSparseProperties(&told, array));
    HOLDS("tiles have a depth", told.tileWidth == 32 && told.tileHeight == 32 && told.tileDepth == 16);
    CUmemGenericAllocationHandle pool = memory(&for_tiles, 2 * MIB);
    CUarrayMapInfo info = tiles(ARRAY, array, 0, 32, 64, 32, 32);
    info.subresource.sparseLevel.offsetZ = 48, info.subresource.sparseLevel.extentDepth = 16;
    NEED(mapped(info, pool, 0));
    NEED(cuMemRelease(pool));
    NEED(cuStreamBeginCapture_v2(stream, 0));
    is("mappings are not captured", cuMemMapArrayAsync(&info, 1, stream), CAPTURE_UNSUPPORTED);
    cuStreamEndCapture(stream, &graph);
    hold(stream);
    NEED(cuMemMapArrayAsync(&info, 1, stream));
    is("a stream maps when it gets there", taken(), 2 * MIB);
    let_go();
    NEED(cuStreamSynchronize(stream));
    is("and not before", taken(), 0);
    NEED(cuArrayDestroy(array));
    NEED(cuStreamDestroy_v2(stream));
}

int main(void) {
    begin();
    NEED(launch(kernel("spin_0us"), NULL));
    start = free_bytes();
    flat();
    refused();
    levels();
    deferred();
    ordered();
    return verdict();
}
