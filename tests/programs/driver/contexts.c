/* Contexts: primary and own, the thread's stack, what they cost, what is left when they go. */
#include "driver.h"

static size_t cost;

static void primary(CUcontext *out) {
    CUcontext context = NULL, again = NULL;
    unsigned flags = 7;
    int active = 7;
    size_t free = 0, total = 0, device_total = 0;
    is("no context is current", cuCtxGetCurrent(&context), SUCCESS);
    HOLDS("it is null", context == NULL);
    is("memory needs a context", cuMemGetInfo_v2(&free, &total), INVALID_CONTEXT);
    is("state", cuDevicePrimaryCtxGetState(0, &flags, &active), SUCCESS);
    is("not active", active, 0);
    is("not retained", cuDevicePrimaryCtxRelease_v2(0), INVALID_CONTEXT);
    NEED(cuDevicePrimaryCtxRetain(&context, 0));
    NEED(cuDevicePrimaryCtxRetain(&again, 0));
    HOLDS("retained twice it is the same", context == again);
    is("retaining makes nothing current", cuCtxGetCurrent(&again), SUCCESS);
    HOLDS("still null", again == NULL);
    NEED(cuCtxSetCurrent(context));
    NEED(cuDevicePrimaryCtxGetState(0, &flags, &active));
    is("active", active, 1);
    NEED(cuMemGetInfo_v2(&free, &total));
    NEED(cuDeviceTotalMem_v2(&device_total, 0));
    is("the total is the device's", (long long)total, (long long)device_total);
    cost = total - free;
    HOLDS("a context takes memory", cost >= 100 * MIB && cost <= GIB);
    is("outputs may be null", cuMemGetInfo_v2(NULL, NULL), SUCCESS);
    is("a primary context is not destroyed", cuCtxDestroy_v2(context), INVALID_CONTEXT);
    is("release of the first reference", cuDevicePrimaryCtxRelease_v2(0), SUCCESS);
    is("it stays while one is left", cuCtxSynchronize(), SUCCESS);
    *out = context;
}

static void own(CUcontext primary) {
    CUcontext context = NULL, top = NULL;
    CUdeviceptr block;
    CUdevice device = -1;
    unsigned version = 0, flags = 77;
    unsigned long long id = 0, other = 0;
    size_t before = free_bytes();
    is("unknown flags", cuCtxCreate_v2(&context, 0x1000, 0), INVALID_VALUE);
    is("no such device", cuCtxCreate_v2(&context, 0, 7), INVALID_DEVICE);
    is("no output", cuCtxCreate_v2(NULL, 0, 0), INVALID_VALUE);
    NEED(cuCtxCreate_v2(&context, 4, 0));
    is("a second context costs as much", (long long)(before - free_bytes()), (long long)cost);
    NEED(cuCtxGetCurrent(&top));
    HOLDS("it is current", top == context);
    NEED(cuCtxGetDevice(&device));
    is("on the device", device, 0);
    NEED(cuCtxGetApiVersion(context, &version));
    HOLDS("it has a version", version >= 3010);
    NEED(cuCtxGetFlags(&flags));
    is("and its flags", flags & 7, 4);
    NEED(cuCtxGetId(context, &id));
    NEED(cuCtxGetId(primary, &other));
    HOLDS("ids differ", id != other);
    NEED(cuMemAlloc_v2(&block, 10 * MIB));
    NEED(cuCtxPopCurrent_v2(&top));
    HOLDS("popped", top == context);
    NEED(cuCtxGetCurrent(&top));
    HOLDS("the primary one is below", top == primary);
    NEED(cuCtxPushCurrent_v2(context));
    is("a context goes with its memory", cuCtxDestroy_v2(context), SUCCESS);
    NEED(cuCtxGetCurrent(&top));
    HOLDS("destroying the current one pops it", top == primary);
    is("all is given back", (long long)free_bytes(), (long long)before);
    is("destroyed twice", cuCtxDestroy_v2(context), INVALID_CONTEXT);
    is("a destroyed one is not made current", cuCtxSetCurrent(context), INVALID_CONTEXT);
    is("nor an invented one", cuCtxSetCurrent((CUcontext)(uintptr_t)0x1234), INVALID_CONTEXT);
    is("nor pushed", cuCtxPushCurrent_v2((CUcontext)(uintptr_t)0x1234), INVALID_CONTEXT);
    is("nor destroyed", cuCtxDestroy_v2((CUcontext)(uintptr_t)0x1234), INVALID_CONTEXT);
    is("the block went with it", cuMemFree_v2(block), INVALID_VALUE);
}

static void limits(void) {
    size_t value = 0, before = free_bytes();
    int least = 7, greatest = 7;
    NEED(cuCtxGetLimit(&value, 0));
    is("the stack is 1 KiB", (long long)value, 1024);
    is("a deeper stack", cuCtxSetLimit(0, 2048), SUCCESS);
    HOLDS("takes memory of the device", free_bytes() < before);
    is("the usual stack again", cuCtxSetLimit(0, 1024), SUCCESS);
    is("gives it back", (long long)free_bytes(), (long long)before);
    is("an unknown limit", cuCtxGetLimit(&value, 99), INVALID_VALUE);
    is("nor can it be set", cuCtxSetLimit(99, 1), INVALID_VALUE);
    NEED(cuCtxGetStreamPriorityRange(&least, &greatest));
    HOLDS("priorities go from 0 downwards", least == 0 && greatest < 0);
}

static void *in_another_thread(void *context) {
    CUcontext top = context;
    CUdeviceptr block;
    NEED(cuCtxGetCurrent(&top));
    HOLDS("a thread begins without a context", top == NULL);
    is("and cannot allocate", cuMemAlloc_v2(&block, 512), INVALID_CONTEXT);
    is("nor synchronise", cuCtxSynchronize(), INVALID_CONTEXT);
    is("an empty stack has nothing to pop", cuCtxPopCurrent_v2(&top), INVALID_CONTEXT);
    NEED(cuCtxSetCurrent(context));
    is("with a context it allocates", cuMemAlloc_v2(&block, 512), SUCCESS);
    is("and frees", cuMemFree_v2(block), SUCCESS);
    is("null takes the context away", cuCtxSetCurrent(NULL), SUCCESS);
    NEED(cuCtxGetCurrent(&top));
    HOLDS("none again", top == NULL);
    return NULL;
}

static void reset(CUcontext context) {
    CUcontext again = NULL;
    CUdeviceptr block;
    unsigned flags;
    int active = 7;
    size_t before = free_bytes();
    NEED(cuMemAlloc_v2(&block, 100 * MIB));
    is("reset", cuDevicePrimaryCtxReset_v2(0), SUCCESS);
    is("a reset context is destroyed", cuMemAlloc_v2(&block, 512), CONTEXT_DESTROYED);
    NEED(cuDevicePrimaryCtxGetState(0, &flags, &active));
    is("and not active", active, 0);
    NEED(cuDevicePrimaryCtxRetain(&again, 0));
    HOLDS("retained anew it has its handle", again == context);
    is("its memory is back", (long long)free_bytes(), (long long)before);
    is("it allocates where it is current", cuMemAlloc_v2(&block, 512), SUCCESS);
    is("flags of an active one", cuDevicePrimaryCtxSetFlags_v2(0, 1), SUCCESS);
    NEED(cuDevicePrimaryCtxGetState(0, &flags, &active));
    is("are set", flags & 7, 1);
}

int main(void) {
    CUcontext context;
    pthread_t thread;
    NEED(cuInit(0));
    primary(&context);
    own(context);
    limits();
    if (pthread_create(&thread, NULL, in_another_thread, context)) return 70;
    pthread_join(thread, NULL);
    reset(context);
    return verdict();
}
