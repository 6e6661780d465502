/* Multicast over two devices: what is bound lives until it is unbound or the object is gone, and the object takes nothing. */
#include "driver.h"
#include "descriptors.h"
#include <sys/wait.h>

static size_t start;
static long long taken(void) { return (long long)(start - free_bytes()); }
static CUmemAllocationProp on_first = {1, 0, {1, 0}, NULL, {0, 0, 0, {0}}}, on_second = {1, 0, {1, 1}, NULL, {0, 0, 0, {0}}};
static const CUmemAccessDesc read_write = {{1, 0}, 3};
static const CUmulticastObjectProp both = {2, 64 * MIB, 0, 0};

static CUmemGenericAllocationHandle memory(const CUmemAllocationProp *where, size_t size) {
    CUmemGenericAllocationHandle handle;
    NEED(cuMemCreate(&handle, size, where, 0));
    return handle;
}

static void refused(void) {
    CUmemGenericAllocationHandle object = 77;
    CUmulticastObjectProp nobody = both, many = both, flags = both, fabric = both, odd = both, nothing = both;
    size_t least = 0;
    int supported = 0;
    nobody.numDevices = 0, many.numDevices = 3, flags.flags = 1, fabric.handleTypes = 8, odd.size += 4096, nothing.size = 0;
    NEED(cuDeviceGetAttribute(&supported, 132, 0));
    is("the device has multicast", supported, 1);
    NEED(cuMulticastGetGranularity(&least, &both, 0));
    is("granularity", (long long)least, 2 * MIB);
    NEED(cuMulticastGetGranularity(&least, &both, 1));
    is("no third granularity", cuMulticastGetGranularity(&least, &both, 2), INVALID_VALUE);
    is("a granularity of nothing", cuMulticastGetGranularity(&least, NULL, 0), INVALID_VALUE);
    is("no output", cuMulticastGetGranularity(NULL, &both, 0), INVALID_VALUE);
    is("a team of none", cuMulticastCreate(&object, &nobody), INVALID_VALUE);
    is("of more devices than there are", cuMulticastCreate(&object, &many), INVALID_VALUE);
    is("flags", cuMulticastCreate(&object, &flags), INVALID_VALUE);
    is("handles that there are not", cuMulticastCreate(&object, &fabric), NOT_SUPPORTED);
    is("sizes are multiples of the granularity", cuMulticastCreate(&object, &odd), INVALID_VALUE);
    is("an object of nothing", cuMulticastCreate(&object, &nothing), INVALID_VALUE);
    is("no properties", cuMulticastCreate(&object, NULL), INVALID_VALUE);
    is("no output for an object", cuMulticastCreate(NULL, &both), INVALID_VALUE);
    is("failed calls leave the output alone", (long long)object, 77);
    is("no such object", cuMulticastAddDevice(0x1234, 0), INVALID_VALUE);
}

static CUmemGenericAllocationHandle team(void) {
    CUmemGenericAllocationHandle object;
    NEED(cuMulticastCreate(&object, &both));
    NEED(cuMulticastAddDevice(object, 0));
    NEED(cuMulticastAddDevice(object, 1));
    return object;
}

static void teams(void) {
    CUmemGenericAllocationHandle object, first = memory(&on_first, 4 * MIB);
    CUdeviceptr space;
    NEED(cuMemAddressReserve(&space, 64 * MIB, 0, 0, 0));
    NEED(cuMulticastCreate(&object, &both));
    is("an object takes no memory", taken(), 4 * MIB);
    is("memory is no object", cuMulticastAddDevice(first, 0), INVALID_VALUE);
    is("no such device", cuMulticastAddDevice(object, 2), INVALID_DEVICE);
    NEED(cuMulticastAddDevice(object, 0));
    is("added twice", cuMulticastAddDevice(object, 0), INVALID_VALUE);
    is("bound before the team is complete", cuMulticastBindMem(object, 0, first, 0, 4 * MIB, 0), INVALID_VALUE);
    is("or mapped", cuMemMap(space, 64 * MIB, 0, object, 0), INVALID_VALUE);
    NEED(cuMulticastAddDevice(object, 1));
    is("bound afterwards", cuMulticastBindMem(object, 0, first, 0, 4 * MIB, 0), SUCCESS);
    NEED(cuMemRelease(object));
    NEED(cuMemRelease(first));
    is("nothing is left", taken(), 0);
    NEED(cuMemAddressFree(space, 64 * MIB));
}

static void places(void) {
    CUmemGenericAllocationHandle object = team(), other = team(), first = memory(&on_first, 8 * MIB), second = memory(&on_second, 8 * MIB);
    is("no such memory", cuMulticastBindMem(object, 0, 0x1234, 0, 2 * MIB, 0), INVALID_VALUE);
    is("an object is not bound", cuMulticastBindMem(object, 0, other, 0, 2 * MIB, 0), INVALID_VALUE);
    is("nor to memory", cuMulticastBindMem(first, 0, first, 0, 2 * MIB, 0), INVALID_VALUE);
    is("bound with flags", cuMulticastBindMem(object, 0, first, 0, 2 * MIB, 1), INVALID_VALUE);
    is("nothing bound", cuMulticastBindMem(object, 0, first, 0, 0, 0), INVALID_VALUE);
    is("between two pages", cuMulticastBindMem(object, MIB, first, 0, 2 * MIB, 0), INVALID_VALUE);
    is("memory between two pages", cuMulticastBindMem(object, 0, first, MIB, 2 * MIB, 0), INVALID_VALUE);
    is("beyond the object", cuMulticastBindMem(object, 62 * MIB, first, 0, 4 * MIB, 0), INVALID_VALUE);
    is("beyond the memory", cuMulticastBindMem(object, 0, first, 6 * MIB, 4 * MIB, 0), INVALID_VALUE);
    is("beyond everything", cuMulticastBindMem(object, (size_t)0 - 2 * MIB, first, 0, 4 * MIB, 0), INVALID_VALUE);
    is("on another device", cuMulticastBindMem_v2(object, 1, 0, first, 0, 2 * MIB, 0), INVALID_VALUE);
    is("on none", cuMulticastBindMem_v2(object, 7, 0, first, 0, 2 * MIB, 0), INVALID_DEVICE);
    is("bound", cuMulticastBindMem(object, 4 * MIB, first, 2 * MIB, 4 * MIB, 0), SUCCESS);
    is("bound there already", cuMulticastBindMem(object, 6 * MIB, first, 0, 4 * MIB, 0), INVALID_VALUE);
    is("each device has its own", cuMulticastBindMem_v2(object, 1, 4 * MIB, second, 0, 4 * MIB, 0), SUCCESS);
    is("unbound elsewhere", cuMulticastUnbind(object, 0, 16 * MIB, 4 * MIB), INVALID_VALUE);
    is("unbound in part", cuMulticastUnbind(object, 0, 4 * MIB, 2 * MIB), INVALID_VALUE);
    is("unbound of no device", cuMulticastUnbind(object, 7, 4 * MIB, 4 * MIB), INVALID_DEVICE);
    is("unbound of memory", cuMulticastUnbind(first, 0, 4 * MIB, 4 * MIB), INVALID_VALUE);
    NEED(cuMulticastUnbind(object, 0, 4 * MIB, 4 * MIB));
    is("unbound twice", cuMulticastUnbind(object, 0, 4 * MIB, 4 * MIB), INVALID_VALUE);
    NEED(cuMulticastUnbind(object, 1, 4 * MIB, 4 * MIB));
    NEED(cuMemRelease(object));
    NEED(cuMemRelease(other));
    is("released twice", cuMemRelease(object), INVALID_VALUE);
    NEED(cuMemRelease(first));
    NEED(cuMemRelease(second));
    is("all is back", taken(), 0);
}

static void lives(void) {
    CUmemGenericAllocationHandle object = team(), first = memory(&on_first, 4 * MIB);
    CUdeviceptr space, block, mapped;
    NEED(cuMemAddressReserve(&space, 128 * MIB, 0, 0, 0));
    NEED(cuMulticastBindMem(object, 0, first, 0, 4 * MIB, 0));
    NEED(cuMemRelease(first));
    is("bound memory lives without a handle", taken(), 4 * MIB);
    NEED(cuMulticastUnbind(object, 0, 0, 4 * MIB));
    is("until it is unbound", taken(), 0);
    first = memory(&on_first, 4 * MIB);
    mapped = space + 64 * MIB;
    NEED(cuMemMap(mapped, 4 * MIB, 0, first, 0));
    NEED(cuMemSetAccess(mapped, 4 * MIB, &read_write, 1));
    NEED(cuMemAlloc_v2(&block, 4 * MIB));
    is("a block is not bound", cuMulticastBindAddr(object, 0, block, 4 * MIB, 0), INVALID_VALUE);
    is("nor what is no memory", cuMulticastBindAddr(object, 0, space, 4 * MIB, 0), INVALID_VALUE);
    is("nor more than is mapped", cuMulticastBindAddr(object, 0, mapped, 8 * MIB, 0), INVALID_VALUE);
    is("nor by another device", cuMulticastBindAddr_v2(object, 1, 0, mapped, 4 * MIB, 0), INVALID_VALUE);
    NEED(cuMemFree_v2(block));
    NEED(cuMulticastBindAddr(object, 0, mapped, 2 * MIB, 0));
    NEED(cuMulticastBindAddr_v2(object, 0, 2 * MIB, mapped + 2 * MIB, 2 * MIB, 0));
    NEED(cuMemUnmap(mapped, 4 * MIB));
    NEED(cuMemRelease(first));
    is("bound by its address it lives, too", taken(), 4 * MIB);
    NEED(cuMemMap(space, 64 * MIB, 0, object, 0));
    NEED(cuMemSetAccess(space, 64 * MIB, &read_write, 1));
    NEED(cuMemsetD8_v2(space, 1, 4 * MIB));
    is("an object's mapping takes nothing", taken(), 4 * MIB);
    NEED(cuMemRelease(object));
    is("a mapped object lives, and what is bound to it", taken(), 4 * MIB);
    NEED(cuMemUnmap(space, 64 * MIB));
    is("until it is unmapped", taken(), 0);
    NEED(cuMemAddressFree(space, 128 * MIB));
}

static void shared(void) {
    CUmulticastObjectProp exportable = both;
    CUmemAllocationProp exportable_memory = on_first;
    CUmemGenericAllocationHandle object, same, own = memory(&on_first, 2 * MIB), first;
    int file = -1;
    exportable.handleTypes = 1, exportable.numDevices = 1, exportable_memory.requestedHandleTypes = 1;
    first = memory(&exportable_memory, 2 * MIB);
    NEED(cuMulticastCreate(&object, &exportable));
    NEED(cuMemExportToShareableHandle(&file, object, 1, 0));
    NEED(cuMemImportFromShareableHandle(&same, (void *)(uintptr_t)file, 1));
    is("imported at home it is the same", (long long)same, (long long)object);
    NEED(cuMulticastAddDevice(same, 0));
    is("a complete team takes no more", cuMulticastAddDevice(object, 1), INVALID_VALUE);
    is("an object for others takes memory for others", cuMulticastBindMem(object, 0, own, 0, 2 * MIB, 0), INVALID_VALUE);
    NEED(cuMulticastBindMem(object, 0, first, 0, 2 * MIB, 0));
    NEED(cuMemRelease(own));
    NEED(cuMemRelease(first));
    NEED(cuMemRelease(same));
    is("one reference holds all", taken(), 2 * MIB);
    NEED(cuMemRelease(object));
    close(file);
    is("the last gives it back", taken(), 0);
}

static int line;

static void say(void) { if (write(line, "x", 1) != 1) exit(75); }
static void hear(void) { char x; if (read(line, &x, 1) != 1) exit(76); }

/* Adds the second device to an object of the parent's, and binds memory of it. */
static int child(void) {
    CUmemGenericAllocationHandle object, own;
    CUmemAllocationProp exportable = on_second;
    CUcontext context;
    exportable.requestedHandleTypes = 1;
    int file = get_file(line);
    NEED(cuInit(0));
    NEED(cuDevicePrimaryCtxRetain(&context, 1));
    NEED(cuCtxSetCurrent(context));
    NEED(cuMemImportFromShareableHandle(&object, (void *)(uintptr_t)file, 1));
    close(file);
    own = memory(&exportable, 2 * MIB);
    usleep(50000);
    NEED(cuMulticastAddDevice(object, 1));
    NEED(cuMulticastBindMem(object, 0, own, 0, 2 * MIB, 0));
    say();
    hear();
    NEED(cuMemRelease(own));
    NEED(cuMemRelease(object));
    return 0;
}

static void between_processes(pid_t pid) {
    CUmulticastObjectProp exportable = both;
    CUmemAllocationProp exportable_memory = on_first;
    CUmemGenericAllocationHandle object, first;
    int file = -1, status = -1;
    exportable.handleTypes = 1, exportable_memory.requestedHandleTypes = 1;
    first = memory(&exportable_memory, 2 * MIB);
    NEED(cuMulticastCreate(&object, &exportable));
    NEED(cuMulticastAddDevice(object, 0));
    NEED(cuMemExportToShareableHandle(&file, object, 1, 0));
    give_file(line, file);
    is("a binding waits for the devices of others", cuMulticastBindMem(object, 0, first, 0, 2 * MIB, 0), SUCCESS);
    hear();
    is("they were added", cuMulticastAddDevice(object, 1), INVALID_VALUE);
    NEED(cuMulticastUnbind(object, 0, 0, 2 * MIB));
    NEED(cuMemRelease(first));
    is("each holds its own memory", taken(), 0);
    NEED(cuMemRelease(object));
    say();
    waitpid(pid, &status, 0);
    is("the other process found all as it should be", status, 0);
}

int main(void) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return 70;
    pid_t pid = fork();
    line = ends[pid != 0];
    close(ends[pid == 0]);
    if (!pid) return child();
    begin();
    start = free_bytes();
    refused();
    teams();
    places();
    lives();
    shared();
    between_processes(pid);
    return verdict();
}
