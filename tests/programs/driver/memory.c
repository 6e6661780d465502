/* Memory by pointer: how blocks are counted, what is refused, host and managed memory, what is known of a pointer. */
#include "driver.h"

static size_t start;
static long long taken(void) { return (long long)(start - free_bytes()); }

static void linear(void) {
    CUdeviceptr block = 0x1234, small[8], large, base = 0;
    size_t size = 0, free, total;
    NEED(cuMemGetInfo_v2(&free, &total));
    is("nothing is not allocated", cuMemAlloc_v2(&block, 0), INVALID_VALUE);
    is("more than the device", cuMemAlloc_v2(&block, total), OUT_OF_MEMORY);
    is("more than a word can say", cuMemAlloc_v2(&block, (size_t)-1), OUT_OF_MEMORY);
    is("failed calls leave the output alone", (long long)block, 0x1234);
    is("no output", cuMemAlloc_v2(NULL, 512), INVALID_VALUE);
    NEED(cuMemAlloc_v2(&block, 100));
    is("the first small block takes a page", taken(), 2 * MIB);
    is("it is aligned", block % 256, 0);
    for (int i = 0; i < 8; i++) NEED(cuMemAlloc_v2(&small[i], 256 * KIB));
    is("small blocks share pages", taken(), 4 * MIB);
    for (int i = 0; i < 8; i++) NEED(cuMemFree_v2(small[i]));
    is("and give them back", taken(), 2 * MIB);
    NEED(cuMemAlloc_v2(&large, MIB + 1));
    is("a large block has pages of its own", taken(), 4 * MIB);
    is("and begins at one", large % (2 * MIB), 0);
    is("a range is found from within", cuMemGetAddressRange_v2(&base, &size, large + 5000), SUCCESS);
    HOLDS("it is the block", base == large && size == MIB + 1);
    is("an unknown address has none", cuMemGetAddressRange_v2(&base, &size, 0x10), NOT_FOUND);
    is("the middle of a block is not freed", cuMemFree_v2(block + 4), INVALID_VALUE);
    NEED(cuMemFree_v2(large));
    NEED(cuMemFree_v2(block));
    is("all is back", taken(), 0);
    is("freed twice", cuMemFree_v2(block), INVALID_VALUE);
    is("null may be freed", cuMemFree_v2(0), SUCCESS);
    is("an unknown address is not freed", cuMemFree_v2(0x777), INVALID_VALUE);
}

static void pitched(void) {
    CUdeviceptr block = 0;
    size_t pitch = 7;
    is("element size five", cuMemAllocPitch_v2(&block, &pitch, 1000, 1000, 5), INVALID_VALUE);
    is("leaves the pitch alone", (long long)pitch, 7);
    NEED(cuMemAllocPitch_v2(&block, &pitch, 1000, 1000, 4));
    HOLDS("rows are aligned", pitch >= 1000 && pitch % 512 == 0);
    is("no height", cuMemAllocPitch_v2(&block, &pitch, 1000, 0, 4), INVALID_VALUE);
    NEED(cuMemFree_v2(block));
}

/* The first form has 32-bit addresses. */
static void first_form(void) {
    unsigned low = 0, bytes = 0;
    unsigned free = 0, total = 0;
    is("a block below 4 GiB", cuMemAlloc(&low, 1000), SUCCESS);
    HOLDS("has an address", low != 0);
    is("its range", cuMemGetAddressRange(&low, &bytes, low), SUCCESS);
    is("is what was asked", bytes, 1000);
    is("it is freed", cuMemFree(low), SUCCESS);
    is("information in 32 bits", cuMemGetInfo(&free, &total), SUCCESS);
    is("all is back after that", taken(), 0);
}

static void host(void) {
    void *block = NULL, *own = aligned_alloc(4096, MIB);
    CUdeviceptr device = 0;
    unsigned flags = 0;
    if (!own) exit(71);
    NEED(cuMemHostAlloc(&block, 4097, 2));
    memset(block, 3, 4097);
    is("pinned memory has a device address", cuMemHostGetDevicePointer_v2(&device, block, 0), SUCCESS);
    HOLDS("the same one", device == (CUdeviceptr)(uintptr_t)block);
    NEED(cuMemHostGetFlags(&flags, block));
    is("and its flags", flags & 2, 2);
    is("it is not freed as device memory", cuMemFree_v2(device), INVALID_VALUE);
    is("it takes nothing of the device", taken(), 0);
    NEED(cuMemFreeHost(block));
    is("freed twice as host memory", cuMemFreeHost(block), INVALID_VALUE);
    is("register", cuMemHostRegister_v2(own, MIB, 0), SUCCESS);
    is("registered already", cuMemHostRegister_v2(own, MIB, 0), HOST_REGISTERED);
    is("unregister", cuMemHostUnregister(own), SUCCESS);
    is("not registered", cuMemHostUnregister(own), HOST_NOT_REGISTERED);
    free(own);
}

static void managed(void) {
    CUdeviceptr block = 0;
    CUmemLocation device = {1, 0};
    int is_managed = 0, advised = 7;
    is("managed memory needs an attachment", cuMemAllocManaged(&block, 1000, 0), INVALID_VALUE);
    NEED(cuMemAllocManaged(&block, 1000, 1));
    is("managed memory is counted", taken(), 2 * MIB);
    *(volatile char *)(uintptr_t)block = 4;
    NEED(cuPointerGetAttribute(&is_managed, 8, block));
    is("it says that it is managed", is_managed, 1);
    is("advice", cuMemAdvise_v2(block, 1000, 1, device), SUCCESS);
    NEED(cuMemRangeGetAttribute(&advised, 4, 1, block, 1000));
    is("is remembered", advised, 1);
    is("prefetch", cuMemPrefetchAsync_v2(block, 1000, device, 0, NULL), SUCCESS);
    NEED(cuMemFree_v2(block));
    is("all managed memory is back", taken(), 0);
}

static void pointers(CUcontext context) {
    static int plain;
    unsigned type = 9;
    int ordinal = 9, attributes[] = {2, 9, 3};
    void *address = &plain;
    void *outputs[] = {&type, &ordinal, &address};
    CUcontext owner = NULL;
    CUdeviceptr block, unknown = (CUdeviceptr)(uintptr_t)&plain;
    is("several attributes of an unknown pointer", cuPointerGetAttributes(3, attributes, outputs, unknown), SUCCESS);
    HOLDS("are zeros", type == 0 && address == NULL);
    is("and no device", ordinal, -2);
    is("one attribute of it is refused", cuPointerGetAttribute(&type, 2, unknown), INVALID_VALUE);
    NEED(cuMemAlloc_v2(&block, 1000));
    NEED(cuPointerGetAttributes(3, attributes, outputs, block + 10));
    is("device memory", type, ON_DEVICE);
    is("of the device", ordinal, 0);
    HOLDS("at its address", address == (void *)(uintptr_t)(block + 10));
    NEED(cuPointerGetAttribute(&owner, 1, block));
    HOLDS("of the context", owner == context);
    NEED(cuMemFree_v2(block));
    is("a freed pointer is unknown", cuPointerGetAttribute(&type, 2, block), INVALID_VALUE);
}

/* Memory of another interface: counted while it lives, and so do its mappings. */
static void external(void) {
    char text[8] = "";
    void *memory = NULL;
    CUdeviceptr mapped = 0;
    CUmipmappedArray mipmap = NULL, none = NULL;
    CUarray level;
    CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC levels = {MIB, {512, 512, 0, 0x20, 1, 0}, 10, {0}};
    FILE *file = tmpfile();
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC described = {1, {0}, 3 * MIB, 0, {0}};
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer = {5000, 100, 0, {0}};
    if (!file || ftruncate(fileno(file), 3 * MIB) || pwrite(fileno(file), "vulkan", 7, 5000) != 7) exit(72);
    described.handle.fd = dup(fileno(file));
    NEED(cuImportExternalMemory(&memory, &described));
    is("imported memory is counted", taken(), 4 * MIB);
    NEED(cuExternalMemoryGetMappedBuffer(&mapped, memory, &buffer));
    NEED(cuMemcpyDtoH_v2(text, mapped, 7));
    is("its bytes are there", strcmp(text, "vulkan"), 0);
    is("a mipmap in it", cuExternalMemoryGetMappedMipmappedArray(&mipmap, memory, &levels), SUCCESS);
    is("takes nothing more", taken(), 4 * MIB);
    levels.offset = 3 * MIB;
    is("beyond the memory", cuExternalMemoryGetMappedMipmappedArray(&none, memory, &levels), INVALID_VALUE);
    levels.offset = 0, levels.numLevels = 0;
    is("no levels", cuExternalMemoryGetMappedMipmappedArray(&none, memory, &levels), INVALID_VALUE);
    levels.numLevels = 11;
    is("more than it has", cuExternalMemoryGetMappedMipmappedArray(&none, memory, &levels), INVALID_VALUE);
    is("no description", cuExternalMemoryGetMappedMipmappedArray(&none, memory, NULL), INVALID_VALUE);
    levels.numLevels = 10;
    is("no output", cuExternalMemoryGetMappedMipmappedArray(NULL, memory, &levels), INVALID_VALUE);
    NEED(cuDestroyExternalMemory(memory));
    is("destroyed twice", cuDestroyExternalMemory(memory), INVALID_HANDLE);
    is("its parts keep it", taken(), 4 * MIB);
    NEED(cuMipmappedArrayGetLevel(&level, mipmap, 9));
    NEED(cuMemFree_v2(mapped));
    is("a mipmap keeps it, too", taken(), 4 * MIB);
    NEED(cuMipmappedArrayDestroy(mipmap));
    is("no memory to map", cuExternalMemoryGetMappedMipmappedArray(&none, memory, &levels), INVALID_HANDLE);
    is("all external memory is back", taken(), 0);
    fclose(file);
}

int main(void) {
    CUcontext context = begin();
    start = free_bytes();
    linear();
    pitched();
    first_form();
    host();
    managed();
    pointers(context);
    external();
    return verdict();
}
