/* What works before cuInit, what cuInit takes, and what devices tell of themselves. */
#include "driver.h"

static void before(void) {
    int number = -7, status = 77;
    size_t bytes = 7;
    void *pointer = NULL;
    const char *text = NULL;
    CUdevice device = -7;
    is("the count needs cuInit", cuDeviceGetCount(&number), NOT_INITIALIZED);
    is("its output is untouched", number, -7);
    is("a device needs cuInit", cuDeviceGet(&device, 0), NOT_INITIALIZED);
    is("memory needs cuInit", cuMemGetInfo_v2(&bytes, &bytes), NOT_INITIALIZED);
    is("a context needs cuInit", cuCtxGetCurrent(&pointer), NOT_INITIALIZED);
    is("bad arguments do not matter before cuInit", cuDeviceGetCount(NULL), NOT_INITIALIZED);
    is("the version works", cuDriverGetVersion(&number), SUCCESS);
    HOLDS("the version is one", number >= 11000);
    is("names of errors work", cuGetErrorName(2, &text), SUCCESS);
    is("and are right", strcmp(text, "CUDA_ERROR_OUT_OF_MEMORY"), 0);
    is("the resolver works", cuGetProcAddress_v2("cuMemAlloc", &pointer, 12000, 0, &status), SUCCESS);
    HOLDS("and finds", pointer != NULL && status == 0);
}

static void start(void) {
    int number = 0;
    is("flags of cuInit must be zero", cuInit(1), INVALID_VALUE);
    is("a refused cuInit starts nothing", cuDeviceGetCount(&number), NOT_INITIALIZED);
    is("cuInit", cuInit(0), SUCCESS);
    is("cuInit again", cuInit(0), SUCCESS);
    is("devices", cuDeviceGetCount(&number), SUCCESS);
    is("one device", number, 1);
    is("a null output is refused", cuDeviceGetCount(NULL), INVALID_VALUE);
}

static void devices(void) {
    CUdevice device = -1, same = -1;
    char name[64], bus[32], uuid[16], other[16];
    int value, major, minor, zero = 0;
    size_t total = 0, old_total = 0;
    is("the first device", cuDeviceGet(&device, 0), SUCCESS);
    is("no second", cuDeviceGet(&same, 1), INVALID_DEVICE);
    is("no device below zero", cuDeviceGet(&same, -1), INVALID_DEVICE);
    is("name", cuDeviceGetName(name, sizeof name, device), SUCCESS);
    is("the name is NVIDIA's", strncmp(name, "NVIDIA ", 7), 0);
    is("a short buffer gets the beginning", cuDeviceGetName(bus, 7, device), SUCCESS);
    is("ended by a zero", strcmp(bus, "NVIDIA"), 0);
    is("bus", cuDeviceGetPCIBusId(bus, sizeof bus, device), SUCCESS);
    is("the device by its bus", cuDeviceGetByPCIBusId(&same, bus), SUCCESS);
    is("is the same", same, device);
    is("a bus without a device", cuDeviceGetByPCIBusId(&same, "0000:77:00.0"), INVALID_DEVICE);
    is("no bus at all", cuDeviceGetByPCIBusId(&same, "junk"), INVALID_VALUE);
    is("uuid", cuDeviceGetUuid_v2((unsigned char *)uuid, device), SUCCESS);
    is("uuid, first form", cuDeviceGetUuid((CUuuid *)other, device), SUCCESS);
    is("both are equal", memcmp(uuid, other, sizeof uuid), 0);
    is("total", cuDeviceTotalMem_v2(&total, device), SUCCESS);
    HOLDS("the total is that of a device", total > 8 * GIB);
    is("a null total is refused", cuDeviceTotalMem_v2(NULL, device), INVALID_VALUE);
    is("the total of no device", cuDeviceTotalMem_v2(&old_total, 9), INVALID_DEVICE);
    for (int attribute = 1; attribute < 140; attribute++) zero += cuDeviceGetAttribute(&value, attribute, device) != SUCCESS;
    is("every attribute answers", zero, 0);
    is("attribute 0 is none", cuDeviceGetAttribute(&value, 0, device), INVALID_VALUE);
    is("nor is 4711", cuDeviceGetAttribute(&value, 4711, device), INVALID_VALUE);
    is("warp size", cuDeviceGetAttribute(&value, 10, device), SUCCESS);
    is("is 32", value, 32);
    is("capability", cuDeviceComputeCapability(&major, &minor, device), SUCCESS);
    NEED(cuDeviceGetAttribute(&value, 75, device));
    is("the capability is the attribute's", major, value);
    NEED(cuDeviceGetAttribute(&value, 41, device));
    is("addressing is unified", value, 1);
    NEED(cuDeviceGetAttribute(&value, 115, device));
    is("there are pools", value, 1);
    NEED(cuDeviceGetAttribute(&value, 102, device));
    is("there is virtual memory management", value, 1);
}

static void errors(void) {
    const char *text = "";
    static const struct { int code; const char *name; } rows[] = {
        {0, "CUDA_SUCCESS"}, {1, "CUDA_ERROR_INVALID_VALUE"}, {3, "CUDA_ERROR_NOT_INITIALIZED"}, {100, "CUDA_ERROR_NO_DEVICE"},
        {201, "CUDA_ERROR_INVALID_CONTEXT"}, {400, "CUDA_ERROR_INVALID_HANDLE"}, {600, "CUDA_ERROR_NOT_READY"},
        {719, "CUDA_ERROR_LAUNCH_FAILED"}, {801, "CUDA_ERROR_NOT_SUPPORTED"}, {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"}, {999, "CUDA_ERROR_UNKNOWN"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        NEED(cuGetErrorName(rows[i].code, &text));
        is(rows[i].name, strcmp(text, rows[i].name), 0);
        NEED(cuGetErrorString(rows[i].code, &text));
        HOLDS("and it has a text", text && *text);
    }
    is("an unknown code", cuGetErrorName(12345, &text), INVALID_VALUE);
    HOLDS("has a null name", text == NULL);
    is("and no text", cuGetErrorString(12345, &text), INVALID_VALUE);
    HOLDS("which is null too", text == NULL);
}

/* What is not modelled says so; nothing pretends. */
static void unmodelled(void) {
    is("a callback for logs is not modelled", cuLogsRegisterCallback(NULL, NULL, NULL), NOT_SUPPORTED);
}

int main(void) {
    before();
    start();
    devices();
    errors();
    unmodelled();
    return verdict();
}
