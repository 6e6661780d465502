/* Two devices: each with memory, contexts and a clock of its own; what goes between them. */
#include "driver.h"

static CUcontext contexts[2];

static void on(int device) { NEED(cuCtxSetCurrent(contexts[device])); }

static void apart(void) {
    CUdeviceptr block;
    size_t before[2];
    CUdevice device = -1;
    for (int i = 0; i < 2; i++) on(i), before[i] = free_bytes();
    NEED(cuMemAlloc_v2(&block, 64 * MIB));
    is("memory is taken of the current device", (long long)(before[1] - free_bytes()), 64 * MIB);
    on(0);
    is("not of the other", (long long)free_bytes(), (long long)before[0]);
    NEED(cuPointerGetAttribute(&device, 9, block));
    is("a pointer knows its device", device, 1);
    is("and is freed from anywhere", cuMemFree_v2(block), SUCCESS);
    on(1);
    is("where it was", (long long)free_bytes(), (long long)before[1]);
}

static void reach(void) {
    int can = 0;
    NEED(cuDeviceCanAccessPeer(&can, 0, 1));
    is("these devices reach one another", can, 1);
    NEED(cuDeviceCanAccessPeer(&can, 0, 0));
    is("none is its own peer", can, 0);
    is("no such peer", cuDeviceCanAccessPeer(&can, 0, 7), INVALID_DEVICE);
    on(0);
    is("access", cuCtxEnablePeerAccess(contexts[1], 0), SUCCESS);
    is("access already", cuCtxEnablePeerAccess(contexts[1], 0), PEER_ENABLED);
    is("flags", cuCtxEnablePeerAccess(contexts[1], 1), INVALID_VALUE);
    is("none any more", cuCtxDisablePeerAccess(contexts[1]), SUCCESS);
    is("none already", cuCtxDisablePeerAccess(contexts[1]), PEER_NOT_ENABLED);
}

static void copies(void) {
    char text[16] = "";
    CUdeviceptr here, there;
    on(0);
    NEED(cuMemAlloc_v2(&here, 4096));
    on(1);
    NEED(cuMemAlloc_v2(&there, 4096));
    NEED(cuMemcpyHtoD_v2(there, "from there", 11));
    NEED(cuMemcpyPeer(here, contexts[0], there, contexts[1], 11));
    NEED(cuMemcpyDtoH_v2(text, here, 11));
    is("a copy between contexts", strcmp(text, "from there"), 0);
    NEED(cuMemcpyHtoD_v2(here, "from here", 10));
    NEED(cuMemcpyPeerAsync(there, contexts[1], here, contexts[0], 10, NULL));
    NEED(cuStreamSynchronize(NULL));
    NEED(cuMemcpyDtoH_v2(text, there, 10));
    is("and in stream order", strcmp(text, "from here"), 0);
    is("no context", cuMemcpyPeer(here, (CUcontext)(uintptr_t)0x1234, there, contexts[1], 4), INVALID_CONTEXT);
    NEED(cuMemFree_v2(here));
    NEED(cuMemFree_v2(there));
}

static void streams(void) {
    CUstream one, two;
    CUevent event;
    CUfunction quick;
    CUmodule module;
    on(0);
    CUfunction foreign = kernel("spin_0us");
    NEED(cuStreamCreate(&one, 1));
    NEED(cuEventCreate(&event, 2));
    on(1);
    NEED(cuModuleLoadData(&module, "fake"));
    NEED(cuModuleGetFunction(&quick, module, "spin_0us"));
    NEED(cuStreamCreate(&two, 1));
    is("a function of another context", launch(foreign, two), INVALID_HANDLE);
    is("an event of another context is not recorded", cuEventRecord(event, two), INVALID_HANDLE);
    hold(one);
    NEED(cuEventRecord(event, one));
    NEED(cuStreamWaitEvent(two, event, 0));
    NEED(launch(quick, two));
    is("but waited for", cuStreamQuery(two), NOT_READY);
    let_go();
    NEED(cuStreamSynchronize(two));
    is("it is done first", cuEventQuery(event), SUCCESS);
}

static void clocks(void) {
    CUmodule module;
    CUfunction quick;
    CUstream busy;
    on(0);
    NEED(cuStreamCreate(&busy, 1));
    NEED(launch(kernel("k_5000ms"), busy));
    on(1);
    NEED(cuModuleLoadData(&module, "fake"));
    NEED(cuModuleGetFunction(&quick, module, "spin_20ms"));
    double begun = now_ms();
    NEED(launch(quick, NULL));
    NEED(cuCtxSynchronize());
    HOLDS("a kernel takes its time on its device", now_ms() - begun >= 19.9);
    is("while the other device is busy with another", cuStreamQuery(busy), NOT_READY);
}

static void physical(void) {
    CUmemAllocationProp there = {1, 0, {1, 1}, NULL, {0, 0, 0, {0}}};
    CUmemAccessDesc both[2] = {{{1, 0}, 3}, {{1, 1}, 3}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr space;
    char text[8] = "";
    on(1);
    size_t before = free_bytes();
    on(0);
    NEED(cuMemCreate(&handle, 32 * MIB, &there, 0));
    NEED(cuMemAddressReserve(&space, 32 * MIB, 0, 0, 0));
    NEED(cuMemMap(space, 32 * MIB, 0, handle, 0));
    NEED(cuMemSetAccess(space, 32 * MIB, both, 2));
    NEED(cuMemRelease(handle));
    NEED(cuMemcpyHtoD_v2(space, "mapped", 7));
    on(1);
    NEED(cuMemcpyDtoH_v2(text, space, 7));
    is("physical memory is where it was asked for, and used by both", strcmp(text, "mapped"), 0);
    is("it is that device's", (long long)(before - free_bytes()), 32 * MIB);
    NEED(cuMemUnmap(space, 32 * MIB));
    NEED(cuMemAddressFree(space, 32 * MIB));
    is("until it is unmapped", (long long)free_bytes(), (long long)before);
}

int main(void) {
    NEED(cuInit(0));
    for (int i = 0; i < 2; i++) NEED(cuDevicePrimaryCtxRetain(&contexts[i], i));
    HOLDS("each device has a context", contexts[0] != contexts[1]);
    apart();
    reach();
    copies();
    streams();
    physical();
    clocks();
    return verdict();
}
