/* Logical endpoints: numbers that are reserved, made to stand for devices, and hold the memory bound to them. They need a driver
 * of CUDA 13.3. */
#include "driver.h"

enum { UNICAST = 1, MULTICAST };
static size_t start;
static uint32_t first;
static long long taken(void) { return (long long)(start - free_bytes()); }
static CUmemAllocationProp on_first = {1, 0, {1, 0}, NULL, {0, 0, 0, {0}}}, on_second = {1, 0, {1, 1}, NULL, {0, 0, 0, {0}}};
static const CUlogicalEndpointProp own = {UNICAST, 0, 64 * MIB, 0, 0}, both = {MULTICAST, 2, 64 * MIB, 0, 0};

static CUmemGenericAllocationHandle memory(const CUmemAllocationProp *where, size_t size) {
    CUmemGenericAllocationHandle handle;
    NEED(cuMemCreate(&handle, size, where, 0));
    return handle;
}

static int ready(uint32_t id, unsigned count) {
    int status = -1;
    NEED(cuLogicalEndpointQuery(id, count, &status));
    return status != 0;
}

static void refused(void) {
    CUlogicalEndpointProp none = own, nobody = both, many = both, nowhere = own, odd = own, huge = own, fabric = own, flags = own;
    uint64_t alignment = 0, most = 0;
    uint32_t beside[2] = {77, 77};
    int status = 77;
    none.type = 0, nobody.member = 0, many.member = 3, nowhere.member = 7, odd.size += 4096, huge.size = 1ull << 60;
    fabric.ipcHandleTypes = 1, flags.flags = 8;
    is("no numbers", cuLogicalEndpointIdReserve(&first, 0), INVALID_VALUE);
    is("more than there are", cuLogicalEndpointIdReserve(&first, 4000000000u), OUT_OF_MEMORY);
    is("no output", cuLogicalEndpointIdReserve(NULL, 1), INVALID_VALUE);
    NEED(cuLogicalEndpointIdReserve(beside, 1));
    HOLDS("a number has 32 bits", beside[0] != 77 && beside[1] == 77);
    NEED(cuLogicalEndpointIdRelease(beside[0], 1));
    is("released twice", cuLogicalEndpointIdRelease(beside[0], 1), INVALID_VALUE);
    NEED(cuLogicalEndpointIdReserve(&first, 2));
    NEED(cuLogicalEndpointGetLimits(&alignment, &most, &own));
    HOLDS("limits", alignment == 2 * MIB && most >= 64 * MIB);
    is("limits of nothing", cuLogicalEndpointGetLimits(&alignment, &most, NULL), INVALID_VALUE);
    is("no output for limits", cuLogicalEndpointGetLimits(&alignment, NULL, &own), INVALID_VALUE);
    is("a number that is not reserved", cuLogicalEndpointCreate(first + 2, &own), INVALID_VALUE);
    is("no type", cuLogicalEndpointCreate(first, &none), INVALID_VALUE);
    is("no devices", cuLogicalEndpointCreate(first, &nobody), INVALID_VALUE);
    is("more than there are", cuLogicalEndpointCreate(first, &many), INVALID_VALUE);
    is("an owner that is not there", cuLogicalEndpointCreate(first, &nowhere), INVALID_DEVICE);
    is("between two pages", cuLogicalEndpointCreate(first, &odd), INVALID_VALUE);
    is("beyond the limit", cuLogicalEndpointCreate(first, &huge), INVALID_VALUE);
    is("for other nodes", cuLogicalEndpointCreate(first, &fabric), NOT_SUPPORTED);
    is("flags", cuLogicalEndpointCreate(first, &flags), INVALID_VALUE);
    is("no properties", cuLogicalEndpointCreate(first, NULL), INVALID_VALUE);
    is("nothing is there to add to", cuLogicalEndpointAddDevice(first, 0), INVALID_VALUE);
    is("nothing is destroyed", cuLogicalEndpointDestroy(first), INVALID_VALUE);
    is("a number that stands for nothing is not ready", ready(first, 2), 0);
    is("one that is not reserved", cuLogicalEndpointQuery(first + 1, 2, &status), INVALID_VALUE);
    is("nothing from elsewhere", cuLogicalEndpointImport(first, beside, 1), NOT_SUPPORTED);
}

static void unicast(void) {
    CUmemGenericAllocationHandle here = memory(&on_first, 4 * MIB), there = memory(&on_second, 4 * MIB);
    NEED(cuLogicalEndpointCreate(first, &own));
    is("made twice", cuLogicalEndpointCreate(first, &own), INVALID_VALUE);
    is("its number is in use", cuLogicalEndpointIdRelease(first, 2), INVALID_VALUE);
    is("it has its device", cuLogicalEndpointAddDevice(first, 1), INVALID_VALUE);
    is("bound before it is asked for", cuLogicalEndpointBindMem(first, 0, 0, here, 0, 4 * MIB, 0), INVALID_VALUE);
    is("it is ready", ready(first, 1), 1);
    is("the other is not", ready(first, 2), 0);
    is("it is not exported", cuLogicalEndpointExport(&here, first, 1), INVALID_VALUE);
    is("of another device", cuLogicalEndpointBindMem(first, 1, 0, there, 0, 4 * MIB, 0), INVALID_DEVICE);
    is("for another device", cuLogicalEndpointBindMem(first, 1, 0, here, 0, 4 * MIB, 0), INVALID_VALUE);
    is("beyond its end", cuLogicalEndpointBindMem(first, 0, 64 * MIB, here, 0, 4 * MIB, 0), INVALID_VALUE);
    is("bound", cuLogicalEndpointBindMem(first, 0, 2 * MIB, here, 0, 4 * MIB, 0), SUCCESS);
    is("bound there already", cuLogicalEndpointBindMem(first, 0, 4 * MIB, here, 0, 4 * MIB, 0), INVALID_VALUE);
    NEED(cuMemRelease(here));
    NEED(cuMemRelease(there));
    is("bound memory lives", taken(), 4 * MIB);
    is("unbound in part", cuLogicalEndpointUnbind(first, 0, 2 * MIB, 2 * MIB), INVALID_VALUE);
    NEED(cuLogicalEndpointUnbind(first, 0, 0, 8 * MIB));
    is("until it is unbound", taken(), 0);
    is("unbound twice", cuLogicalEndpointUnbind(first, 0, 0, 8 * MIB), INVALID_VALUE);
    NEED(cuLogicalEndpointDestroy(first));
}

static void multicast(void) {
    static const CUmemAccessDesc read_write = {{1, 0}, 3};
    CUmemGenericAllocationHandle here = memory(&on_first, 4 * MIB);
    CUdeviceptr space;
    NEED(cuMemAddressReserve(&space, 4 * MIB, 0, 0, 0));
    NEED(cuMemMap(space, 4 * MIB, 0, here, 0));
    NEED(cuMemSetAccess(space, 4 * MIB, &read_write, 1));
    NEED(cuLogicalEndpointCreate(first + 1, &both));
    NEED(cuLogicalEndpointAddDevice(first + 1, 0));
    is("added twice", cuLogicalEndpointAddDevice(first + 1, 0), INVALID_VALUE);
    is("not ready without the second", ready(first + 1, 1), 0);
    NEED(cuLogicalEndpointAddDevice(first + 1, 1));
    is("ready with it", ready(first + 1, 1), 1);
    is("bound by its address", cuLogicalEndpointBindAddr(first + 1, 0, 0, (void *)(uintptr_t)space, 4 * MIB, 0), SUCCESS);
    NEED(cuMemUnmap(space, 4 * MIB));
    NEED(cuMemRelease(here));
    is("it lives", taken(), 4 * MIB);
    NEED(cuLogicalEndpointDestroy(first + 1));
    is("until its endpoint is destroyed", taken(), 0);
    NEED(cuLogicalEndpointIdRelease(first, 2));
    NEED(cuMemAddressFree(space, 4 * MIB));
}

int main(void) {
    begin();
    start = free_bytes();
    refused();
    unicast();
    multicast();
    return verdict();
}
