/* Virtual memory management: addresses, physical memory and mappings, each with a life of its own. */
#include "driver.h"

static size_t start;
static long long taken(void) { return (long long)(start - free_bytes()); }
static CUmemAllocationProp on_device = {1, 0, {1, 0}, NULL, {0, 0, 0, {0}}};
static const CUmemAccessDesc read_write = {{1, 0}, 3};

static void refused(void) {
    CUmemGenericAllocationHandle handle = 77;
    CUmemAllocationProp nowhere = on_device, no_type = on_device;
    size_t least = 0;
    nowhere.location.id = 9;
    no_type.type = 0;
    NEED(cuMemGetAllocationGranularity(&least, &on_device, 0));
    is("granularity", (long long)least, 2 * MIB);
    is("sizes are multiples of it", cuMemCreate(&handle, 100, &on_device, 0), INVALID_VALUE);
    is("nothing is not created", cuMemCreate(&handle, 0, &on_device, 0), INVALID_VALUE);
    is("a device that is not there", cuMemCreate(&handle, 2 * MIB, &nowhere, 0), INVALID_DEVICE);
    is("no type", cuMemCreate(&handle, 2 * MIB, &no_type, 0), INVALID_VALUE);
    is("flags", cuMemCreate(&handle, 2 * MIB, &on_device, 1), INVALID_VALUE);
    is("more than the device", cuMemCreate(&handle, 1024 * GIB, &on_device, 0), OUT_OF_MEMORY);
    is("failed calls leave the output alone", (long long)handle, 77);
    is("no such handle to release", cuMemRelease(0x1234), INVALID_VALUE);
    is("no multicast on this device", cuMulticastCreate(&handle, &(CUmulticastObjectProp){1, 2 * MIB, 0, 0}), NOT_SUPPORTED);
}

static void mapped_twice(void) {
    CUmemGenericAllocationHandle handle, same = 0;
    CUmemAllocationProp told;
    CUdeviceptr space = 0;
    unsigned long long access = 0;
    char text[16] = "";
    NEED(cuMemCreate(&handle, 4 * MIB, &on_device, 0));
    is("physical memory is counted", taken(), 4 * MIB);
    NEED(cuMemAddressReserve(&space, 64 * MIB, 0, 0, 0));
    is("addresses are not", taken(), 4 * MIB);
    NEED(cuMemMap(space, 4 * MIB, 0, handle, 0));
    is("mapped there already", cuMemMap(space, 4 * MIB, 0, handle, 0), INVALID_VALUE);
    NEED(cuMemMap(space + 8 * MIB, 4 * MIB, 0, handle, 0));
    is("mappings are not counted", taken(), 4 * MIB);
    is("a mapping without access is not written", cuMemcpyHtoD_v2(space, "x", 1), INVALID_VALUE);
    NEED(cuMemSetAccess(space, 4 * MIB, &read_write, 1));
    NEED(cuMemSetAccess(space + 8 * MIB, 4 * MIB, &read_write, 1));
    is("access to what is not mapped", cuMemSetAccess(space + 4 * MIB, 4 * MIB, &read_write, 1), INVALID_VALUE);
    NEED(cuMemGetAccess(&access, &read_write.location, space));
    is("access is told", (long long)access, 3);
    NEED(cuMemcpyHtoD_v2(space + 100, "both see it", 12));
    NEED(cuMemcpyDtoH_v2(text, space + 8 * MIB + 100, 12));
    is("two mappings are one memory", strcmp(text, "both see it"), 0);
    NEED(cuMemRelease(handle));
    is("released while mapped it stays", taken(), 4 * MIB);
    is("released twice", cuMemRelease(handle), INVALID_VALUE);
    NEED(cuMemRetainAllocationHandle(&same, (void *)(uintptr_t)space));
    NEED(cuMemGetAllocationPropertiesFromHandle(&told, same));
    HOLDS("its handle is had again from the mapping", told.type == 1 && told.location.id == 0);
    NEED(cuMemUnmap(space, 4 * MIB));
    is("unmapped twice", cuMemUnmap(space, 4 * MIB), INVALID_VALUE);
    is("addresses in use are not freed", cuMemAddressFree(space, 64 * MIB), INVALID_VALUE);
    NEED(cuMemUnmap(space + 8 * MIB, 4 * MIB));
    is("a handle alone holds it", taken(), 4 * MIB);
    NEED(cuMemRelease(same));
    is("the last reference gives it back", taken(), 0);
    is("part of a reservation is not freed", cuMemAddressFree(space, 32 * MIB), INVALID_VALUE);
    NEED(cuMemAddressFree(space, 64 * MIB));
    is("freed twice", cuMemAddressFree(space, 64 * MIB), INVALID_VALUE);
}

/* As growing allocators do: one range of addresses, one piece of memory after another. */
static void growing(void) {
    CUdeviceptr space = 0;
    char text[8] = "";
    int wrong = 0;
    NEED(cuMemAddressReserve(&space, GIB, 0, 0, 0));
    for (size_t i = 0; i < 20; i++) {
        CUmemGenericAllocationHandle piece;
        NEED(cuMemCreate(&piece, 20 * MIB, &on_device, 0));
        NEED(cuMemMap(space + i * 20 * MIB, 20 * MIB, 0, piece, 0));
        NEED(cuMemRelease(piece));
        NEED(cuMemSetAccess(space + i * 20 * MIB, 20 * MIB, &read_write, 1));
    }
    is("twenty pieces", taken(), 400 * MIB);
    NEED(cuMemcpyHtoD_v2(space + 20 * MIB - 4, "across", 7));
    NEED(cuMemcpyDtoH_v2(text, space + 20 * MIB - 4, 7));
    is("a copy crosses from one to the next", strcmp(text, "across"), 0);
    is("but not beyond the last", cuMemcpyHtoD_v2(space + 400 * MIB - 4, "across", 7), INVALID_VALUE);
    wrong += cuMemUnmap(space, 400 * MIB) != SUCCESS;
    is("all are unmapped at once", wrong, 0);
    is("and given back", taken(), 0);
    NEED(cuMemAddressFree(space, GIB));
}

static void shared(void) {
    CUmemGenericAllocationHandle handle, same = 0;
    CUmemAllocationProp exportable = on_device;
    int file = -1;
    exportable.requestedHandleTypes = 1;
    NEED(cuMemCreate(&handle, 4 * MIB, &on_device, 0));
    HOLDS("what was not made for it is not exported", cuMemExportToShareableHandle(&file, handle, 1, 0) != SUCCESS);
    NEED(cuMemRelease(handle));
    NEED(cuMemCreate(&handle, 4 * MIB, &exportable, 0));
    NEED(cuMemExportToShareableHandle(&file, handle, 1, 0));
    HOLDS("a file descriptor", file >= 0);
    NEED(cuMemImportFromShareableHandle(&same, (void *)(uintptr_t)file, 1));
    is("imported at home it is counted once", taken(), 4 * MIB);
    NEED(cuMemRelease(handle));
    is("one reference is left", taken(), 4 * MIB);
    NEED(cuMemRelease(same));
    close(file);
    is("none is left", taken(), 0);
    is("no descriptor", cuMemImportFromShareableHandle(&same, (void *)(uintptr_t)9999, 1), INVALID_VALUE);
}

/* Descriptors for other drivers: of memory as a whole, and nobody here looks into them. */
static void descriptors(void) {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr block, space;
    int file = -1;
    NEED(cuMemAlloc_v2(&block, 4 * MIB));
    is("a descriptor of a block", cuMemGetHandleForAddressRange(&file, block, 4 * MIB, 1, 0), SUCCESS);
    is("is as long", (long long)lseek(file, 0, SEEK_END), 4 * MIB);
    close(file);
    file = -1;
    is("beyond the block", cuMemGetHandleForAddressRange(&file, block, 8 * MIB, 1, 0), INVALID_VALUE);
    is("between two pages", cuMemGetHandleForAddressRange(&file, block + 512, 4096, 1, 0), INVALID_VALUE);
    is("of nothing", cuMemGetHandleForAddressRange(&file, block, 0, 1, 0), INVALID_VALUE);
    is("of another kind", cuMemGetHandleForAddressRange(&file, block, 4096, 2, 0), INVALID_VALUE);
    is("with flags", cuMemGetHandleForAddressRange(&file, block, 4096, 1, 2), INVALID_VALUE);
    is("without an output", cuMemGetHandleForAddressRange(NULL, block, 4096, 1, 0), INVALID_VALUE);
    NEED(cuMemFree_v2(block));
    is("of what was freed", cuMemGetHandleForAddressRange(&file, block, 4096, 1, 0), INVALID_VALUE);
    is("no descriptor was made", file, -1);
    NEED(cuMemCreate(&handle, 4 * MIB, &on_device, 0));
    NEED(cuMemAddressReserve(&space, 8 * MIB, 0, 0, 0));
    NEED(cuMemMap(space, 4 * MIB, 0, handle, 0));
    is("of what is mapped in part", cuMemGetHandleForAddressRange(&file, space, 8 * MIB, 1, 0), INVALID_VALUE);
    is("of what is mapped", cuMemGetHandleForAddressRange(&file, space, 4 * MIB, 1, 0), SUCCESS);
    NEED(cuMemUnmap(space, 4 * MIB));
    NEED(cuMemRelease(handle));
    NEED(cuMemAddressFree(space, 8 * MIB));
    close(file);
}

int main(void) {
    begin();
    start = free_bytes();
    refused();
    mapped_twice();
    growing();
    shared();
    descriptors();
    return verdict();
}
