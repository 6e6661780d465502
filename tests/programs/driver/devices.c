/* What this process sees of the machine: `devices` prints a line a device, or the code that cuInit gave; `devices nvml` what
 * NVML shows, with the processes on each and how busy it is. Nothing is checked here; the test compares. */
#include "driver.h"
#include <dlfcn.h>

static void print_uuid(const unsigned char *uuid) {
    for (int i = 0; i < 16; i++) printf("%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : i ? "" : "GPU-", uuid[i]);
}

static int by_cuda(void) {
    int count = 0, code = cuInit(0);
    if (code) return printf("init %d\n", code), 0;
    NEED(cuDeviceGetCount(&count));
    for (int i = 0; i < count; i++) {
        CUdevice device;
        char bus[32], name[96];
        unsigned char uuid[16];
        size_t total;
        int processors;
        NEED(cuDeviceGet(&device, i));
        NEED(cuDeviceGetPCIBusId(bus, sizeof bus, device));
        NEED(cuDeviceGetName(name, sizeof name, device));
        NEED(cuDeviceGetUuid_v2(uuid, device));
        NEED(cuDeviceTotalMem_v2(&total, device));
        NEED(cuDeviceGetAttribute(&processors, 16, device));
        printf("device %d|%s|%s|", device, bus, name);
        print_uuid(uuid);
        printf("|%zu|%d\n", total, processors);
    }
    return 0;
}

typedef struct { unsigned pid; unsigned long long used; unsigned gpu, compute; } process;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char text[32]; } pci;
typedef struct { unsigned long long total, free, used; } memory;
typedef struct { unsigned gpu, memory; } busy;

static int by_nvml(void) {
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!nvml) return fprintf(stderr, "%s\n", dlerror()), 70;
#define GET(name, parameters) int(*name) parameters = NULL; *(void **)&name = dlsym(nvml, #name)
    GET(nvmlInit_v2, (void));
    GET(nvmlDeviceGetCount_v2, (unsigned *));
    GET(nvmlDeviceGetHandleByIndex_v2, (unsigned, void **));
    GET(nvmlDeviceGetUUID, (void *, char *, unsigned));
    GET(nvmlDeviceGetName, (void *, char *, unsigned));
    GET(nvmlDeviceGetPciInfo_v3, (void *, pci *));
    GET(nvmlDeviceGetMemoryInfo, (void *, memory *));
    GET(nvmlDeviceGetUtilizationRates, (void *, busy *));
    GET(nvmlDeviceGetComputeRunningProcesses_v3, (void *, unsigned *, process *));
    unsigned count = 0;
    int code = nvmlInit_v2();
    if (code) return printf("init %d\n", code), 0;
    NEED(nvmlDeviceGetCount_v2(&count));
    for (unsigned i = 0; i < count; i++) {
        void *device;
        char uuid[96], name[96];
        pci where;
        memory bytes;
        busy rates;
        process all[64];
        unsigned found = 64;
        NEED(nvmlDeviceGetHandleByIndex_v2(i, &device));
        NEED(nvmlDeviceGetUUID(device, uuid, sizeof uuid));
        NEED(nvmlDeviceGetName(device, name, sizeof name));
        NEED(nvmlDeviceGetPciInfo_v3(device, &where));
        NEED(nvmlDeviceGetMemoryInfo(device, &bytes));
        NEED(nvmlDeviceGetUtilizationRates(device, &rates));
        NEED(nvmlDeviceGetComputeRunningProcesses_v3(device, &found, all));
        printf("device %u|%s|%s|%s|%llu|%llu|%u\n", i, where.text, name, uuid, bytes.total, bytes.used, rates.gpu);
        for (unsigned p = 0; p < found; p++) printf("process %u|%u|%llu\n", i, all[p].pid, all[p].used);
    }
    return 0;
}

int main(int argc, char **argv) { return argc > 1 && !strcmp(argv[1], "nvml") ? by_nvml() : by_cuda(); }
