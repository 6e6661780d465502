/* Private tables, context-local storage, textures and parts of a device: what runtimes need of them. */
#include "driver.h"

static int destructed;
static void destructor(CUcontext context, void *key, void *value) {
    (void)context, (void)key;
    destructed += (int)(intptr_t)value;
}

static CUresult table(const char *hex, const void **out) {
    unsigned char id[16];
    for (int i = 0; i < 16; i++) {
        unsigned byte;
        if (sscanf(hex + 2 * i, "%2x", &byte) != 1) exit(71);
        id[i] = (unsigned char)byte;
    }
    return cuGetExportTable(out, (const CUuuid *)id);
}

/* The driver's own proof of identity is never given, so runtimes that ask for it find no table. */
static void offered(CUcontext context) {
    const void *at = NULL;
    CUcontext same = NULL;
    is("an unknown table", table("00112233445566778899aabbccddeeff", &at), INVALID_VALUE);
    is("the table of the handshake", table("d4082055bde6704b8d34ba123c66e1f2", &at), INVALID_VALUE);
    NEED(table("6bd5fb6c5bf4e74a8987d93912fd9df9", &at));
    is("the runtime's table tells its size", (long long)*(const size_t *)at, 104);
    CUresult (*primary)(CUcontext *, CUdevice) = ((CUresult(*const *)(CUcontext *, CUdevice))at)[2];
    NEED(primary(&same, 0));
    HOLDS("it knows the primary context", same == context);
}

static void storage(CUcontext context) {
    const void *at = NULL;
    void *value = NULL;
    int key;
    NEED(table("c693336e1121df11a8c368f355d89593", &at));
    typedef CUresult (*put_function)(CUcontext, void *, void *, void (*)(CUcontext, void *, void *));
    put_function put = ((const put_function *)at)[0];
    CUresult (*get)(void **, CUcontext, void *) = ((CUresult(*const *)(void **, CUcontext, void *))at)[2];
    is("nothing is stored", get(&value, NULL, &key), INVALID_HANDLE);
    NEED(put(NULL, &key, (void *)(intptr_t)7, destructor));
    NEED(get(&value, context, &key));
    is("what was put is there", (long long)(intptr_t)value, 7);
}

static void textures(void) {
    CUDA_RESOURCE_DESC resource, told;
    CUDA_TEXTURE_DESC how;
    CUtexObject texture = 0;
    CUtexref reference;
    CUdeviceptr block;
    size_t offset = 7;
    int format = 0, channels = 0;
    NEED(cuMemAlloc_v2(&block, 65536));
    memset(&resource, 0, sizeof resource);
    memset(&how, 0, sizeof how);
    resource.resType = 2;
    resource.res.linear.devPtr = block, resource.res.linear.format = 0x20;
    resource.res.linear.numChannels = 1, resource.res.linear.sizeInBytes = 65536;
    NEED(cuTexObjectCreate(&texture, &resource, &how, NULL));
    NEED(cuTexObjectGetResourceDesc(&told, texture));
    HOLDS("a texture tells its memory", told.res.linear.devPtr == block);
    NEED(cuTexObjectDestroy(texture));
    is("destroyed twice", cuTexObjectDestroy(texture), INVALID_VALUE);
    resource.res.linear.devPtr = 0x10;
    is("a texture of no memory", cuTexObjectCreate(&texture, &resource, &how, NULL), INVALID_VALUE);
    NEED(cuTexRefCreate(&reference));
    NEED(cuTexRefSetFormat(reference, 0x20, 4));
    NEED(cuTexRefGetFormat(&format, &channels, reference));
    HOLDS("a reference keeps its format", format == 0x20 && channels == 4);
    NEED(cuTexRefSetAddress_v2(&offset, reference, block, 256));
    is("and its address", (long long)offset, 0);
    NEED(cuTexRefDestroy(reference));
    is("a destroyed reference", cuTexRefDestroy(reference), INVALID_HANDLE);
    NEED(cuMemFree_v2(block));
}

static void parts(void) {
    CUdevResource whole, split[4], rest;
    CUdevResourceDesc description;
    CUgreenCtx green, same = NULL;
    CUstream stream;
    CUevent event;
    unsigned count = 2;
    NEED(cuDeviceGetDevResource(0, &whole, 1));
    HOLDS("a device has multiprocessors", whole.sm.smCount > 32);
    NEED(cuDevSmResourceSplitByCount(split, &count, &whole, &rest, 0, 16));
    HOLDS("which are divided", count == 2 && split[0].sm.smCount == 16 && rest.sm.smCount == whole.sm.smCount - 32);
    NEED(cuDevResourceGenerateDesc(&description, split, 1));
    NEED(cuGreenCtxCreate(&green, description, 0, 1));
    NEED(cuGreenCtxStreamCreate(&stream, green, 1, 0));
    NEED(cuStreamGetGreenCtx(stream, &same));
    HOLDS("a stream on a part of them", same == green);
    NEED(cuEventCreate(&event, 2));
    hold(stream);
    NEED(cuGreenCtxRecordEvent(green, event));
    is("an event of all its work", cuEventQuery(event), NOT_READY);
    let_go();
    NEED(cuEventSynchronize(event));
    is("all is done", cuStreamQuery(stream), SUCCESS);
    NEED(cuGreenCtxDestroy(green));
}

static void groups(void) {
    CUdevResource whole, split[2], rest;
    CU_DEV_SM_RESOURCE_GROUP_PARAMS params[2];
    memset(params, 0, sizeof params);
    NEED(cuDeviceGetDevResource(0, &whole, 1));
    unsigned all = whole.sm.smCount;
    params[0].smCount = 16;
    is("groups as they are described", cuDevSmResourceSplit(split, 2, &whole, &rest, 0, params), SUCCESS);
    HOLDS("the second gets the rest", split[0].sm.smCount == 16 && split[1].sm.smCount == all - 16 && params[1].smCount == all - 16);
    is("nothing remains", rest.type, 0);
    params[1].smCount = 8;
    is("two small groups", cuDevSmResourceSplit(split, 2, &whole, &rest, 0, params), SUCCESS);
    HOLDS("leave a remainder", rest.type == 1 && rest.sm.smCount == all - 24);
    params[0].smCount = 0;
    is("sizes are found without making groups", cuDevSmResourceSplit(NULL, 1, &whole, NULL, 0, params), SUCCESS);
    is("all of them", params[0].smCount, all);
    is("no groups", cuDevSmResourceSplit(split, 0, &whole, &rest, 0, params), INVALID_VALUE);
    is("no descriptions", cuDevSmResourceSplit(split, 1, &whole, &rest, 0, NULL), INVALID_VALUE);
    is("nothing to divide", cuDevSmResourceSplit(split, 1, NULL, &rest, 0, params), INVALID_VALUE);
    is("flags", cuDevSmResourceSplit(split, 1, &whole, &rest, 1, params), INVALID_VALUE);
    params[0].smCount = 15;
    is("an odd group", cuDevSmResourceSplit(split, 1, &whole, &rest, 0, params), INVALID_VALUE);
    params[0].smCount = all + 2;
    is("more than there are", cuDevSmResourceSplit(split, 1, &whole, &rest, 0, params), INVALID_VALUE);
    params[0].smCount = params[1].smCount = all - 2;
    is("more than are left", cuDevSmResourceSplit(split, 2, &whole, &rest, 0, params), 915);
    whole.type = 0;
    is("no multiprocessors", cuDevSmResourceSplit(split, 1, &whole, &rest, 0, params), 914);
}

static void told(void *info, void *argument, void *callback) { (void)info, (void)argument, (void)callback; }

static void notifications(void) {
    void *callback = NULL;
    is("somebody wants to be told", cuDeviceRegisterAsyncNotification(0, told, NULL, &callback), SUCCESS);
    is("of no device", cuDeviceRegisterAsyncNotification(7, told, NULL, &callback), INVALID_DEVICE);
    is("by no function", cuDeviceRegisterAsyncNotification(0, NULL, NULL, &callback), INVALID_VALUE);
    is("without an output", cuDeviceRegisterAsyncNotification(0, told, NULL, NULL), INVALID_VALUE);
    is("no longer", cuDeviceUnregisterAsyncNotification(0, callback), SUCCESS);
    is("not twice", cuDeviceUnregisterAsyncNotification(0, callback), INVALID_VALUE);
}

int main(void) {
    CUcontext context = begin();
    offered(context);
    storage(context);
    textures();
    parts();
    groups();
    notifications();
    is("a destructor waits", destructed, 0);
    NEED(cuDevicePrimaryCtxReset_v2(0));
    is("until its context goes", destructed, 7);
    return verdict();
}
