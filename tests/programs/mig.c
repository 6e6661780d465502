/* What CUDA and NVML show where devices are divided: `mig [MIB [first]]` takes so many MiB by CUDA, prints what both say, and
 * waits for a line on stdin between the two where it took something; `first` has NVML asked before CUDA, too.
 *
 *   cuda CODE COUNT | seen UUID-OF-THE-DEVICE UUID TOTAL PROCESSORS NAME | alloc CODE | info CODE FREE TOTAL
 *   device INDEX UUID MODE MAX CODE TOTAL FREE USED
 *   instance INDEX UUID CODE TOTAL FREE USED RESERVED GPU-INSTANCE COMPUTE-INSTANCE PARENT
 *   process INDEX|- PID BYTES GPU-INSTANCE COMPUTE-INSTANCE (of the device or instance in the line before) */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern int cuInit(unsigned), cuDeviceGetCount(int *), cuDeviceGet(int *, int), cuDeviceGetName(char *, int, int);
extern int cuDeviceGetUuid(unsigned char *, int), cuDeviceGetUuid_v2(unsigned char *, int);
extern int cuDeviceTotalMem_v2(size_t *, int), cuDeviceGetAttribute(int *, int, int);
extern int cuCtxCreate_v2(void **, unsigned, int), cuMemAlloc_v2(uint64_t *, size_t), cuMemGetInfo_v2(size_t *, size_t *);

typedef struct { unsigned long long total, free, used; } memory_v1;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu, compute; } process;

#define NVML(name, parameters) static int(*name) parameters;
#define GET(name) *(void **)&name = dlsym(nvml, #name); if (!name) return 71
NVML(nvmlInit_v2, (void))
NVML(nvmlShutdown, (void))
NVML(nvmlDeviceGetCount_v2, (unsigned *))
NVML(nvmlDeviceGetHandleByIndex_v2, (unsigned, void **))
NVML(nvmlDeviceGetHandleByUUID, (const char *, void **))
NVML(nvmlDeviceGetUUID, (void *, char *, unsigned))
NVML(nvmlDeviceGetMemoryInfo, (void *, memory_v1 *))
NVML(nvmlDeviceGetMemoryInfo_v2, (void *, memory_v2 *))
NVML(nvmlDeviceGetMigMode, (void *, unsigned *, unsigned *))
NVML(nvmlDeviceGetMaxMigDeviceCount, (void *, unsigned *))
NVML(nvmlDeviceGetMigDeviceHandleByIndex, (void *, unsigned, void **))
NVML(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, (void *, void **))
NVML(nvmlDeviceIsMigDeviceHandle, (void *, unsigned *))
NVML(nvmlDeviceGetGpuInstanceId, (void *, unsigned *))
NVML(nvmlDeviceGetComputeInstanceId, (void *, unsigned *))
NVML(nvmlDeviceGetComputeRunningProcesses_v3, (void *, unsigned *, process *))

static void print_uuid(const unsigned char *uuid) {
    for (int i = 0; i < 16; i++) printf("%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
    printf(" ");
}

static void by_cuda(size_t mib) {
    int count = 0, code = cuInit(0);
    if (!code) code = cuDeviceGetCount(&count);
    printf("cuda %d %d\n", code, count);
    for (int i = 0; i < count; i++) {
        unsigned char device[16], own[16];
        char name[96] = "";
        size_t total = 0;
        int number = 0, processors = 0;
        code = cuDeviceGet(&number, i) | cuDeviceGetUuid(device, number) | cuDeviceGetUuid_v2(own, number);
        code |= cuDeviceGetName(name, sizeof name, number) | cuDeviceTotalMem_v2(&total, number);
        code |= cuDeviceGetAttribute(&processors, 16, number);
        printf("seen ");
        print_uuid(device);
        print_uuid(own);
        printf("%zu %d %s\n", code ? 0 : total, processors, name);
    }
    if (mib && count) {
        uint64_t at;
        void *context;
        size_t total = 0, left = 0;
        code = cuCtxCreate_v2(&context, 0, 0);
        if (!code) code = cuMemAlloc_v2(&at, mib << 20);
        printf("alloc %d\n", code);
        code = cuMemGetInfo_v2(&left, &total);
        printf("info %d %zu %zu\n", code, left, total);
    }
}

static void processes(void *device, int index) {
    process all[64];
    unsigned count = 64;
    if (nvmlDeviceGetComputeRunningProcesses_v3(device, &count, all)) return;
    for (unsigned i = 0; i < count; i++) {
        printf(index < 0 ? "process -" : "process %d", index);
        printf(" %u %llu %d %d\n", all[i].pid, all[i].used, (int)all[i].gpu, (int)all[i].compute);
    }
}

static int instance(void *device, unsigned index) {
    void *at, *same, *parent;
    char uuid[96] = "", of[96] = "";
    unsigned is_one = 0, gpu = 0, compute = 0;
    memory_v1 one = {0, 0, 0};
    memory_v2 two = {(unsigned)sizeof(memory_v2) | 2u << 24, 0, 0, 0, 0};
    if (nvmlDeviceGetMigDeviceHandleByIndex(device, index, &at)) return 0;
    int code = nvmlDeviceGetUUID(at, uuid, sizeof uuid);
    code |= nvmlDeviceGetHandleByUUID(uuid, &same) | nvmlDeviceIsMigDeviceHandle(at, &is_one);
    code |= nvmlDeviceGetGpuInstanceId(at, &gpu) | nvmlDeviceGetComputeInstanceId(at, &compute);
    code |= nvmlDeviceGetDeviceHandleFromMigDeviceHandle(at, &parent) | nvmlDeviceGetUUID(parent, of, sizeof of);
    if (code || same != at || parent != device || is_one != 1) return 72;
    code = nvmlDeviceGetMemoryInfo(at, &one);
    if (nvmlDeviceGetMemoryInfo_v2(at, &two) != code || two.total != one.total || two.free != one.free) return 73;
    printf("instance %u %s %d %llu %llu %llu %llu %u %u %s\n", index, uuid, code, one.total, one.free, one.used, two.reserved, gpu, compute, of);
    processes(at, (int)index);
    return 0;
}

static int by_nvml(void) {
    unsigned count = 0;
    if (nvmlInit_v2() || nvmlDeviceGetCount_v2(&count)) return 74;
    for (unsigned i = 0; i < count; i++) {
        void *device;
        char uuid[96] = "";
        unsigned mode = 0, pending = 0, most = 0, is_one = 9;
        memory_v1 bytes = {0, 0, 0};
        if (nvmlDeviceGetHandleByIndex_v2(i, &device) || nvmlDeviceGetUUID(device, uuid, sizeof uuid)) return 75;
        if (nvmlDeviceIsMigDeviceHandle(device, &is_one) || is_one) return 76;
        nvmlDeviceGetMigMode(device, &mode, &pending);
        if (nvmlDeviceGetMaxMigDeviceCount(device, &most)) return 77;
        int code = nvmlDeviceGetMemoryInfo(device, &bytes);
        printf("device %u %s %u %u %d %llu %llu %llu\n", i, uuid, mode, most, code, bytes.total, bytes.free, bytes.used);
        processes(device, -1);
        for (unsigned k = 0; k < most; k++) {
            code = instance(device, k);
            if (code) return code;
        }
    }
    return nvmlShutdown();
}

int main(int argc, char **argv) {
    char line[16];
    size_t mib = argc > 1 ? (size_t)atoi(argv[1]) : 0;
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!nvml) return 70;
    GET(nvmlInit_v2); GET(nvmlShutdown); GET(nvmlDeviceGetCount_v2); GET(nvmlDeviceGetHandleByIndex_v2);
    GET(nvmlDeviceGetHandleByUUID); GET(nvmlDeviceGetUUID); GET(nvmlDeviceGetMemoryInfo); GET(nvmlDeviceGetMemoryInfo_v2);
    GET(nvmlDeviceGetMigMode); GET(nvmlDeviceGetMaxMigDeviceCount); GET(nvmlDeviceGetMigDeviceHandleByIndex);
    GET(nvmlDeviceGetDeviceHandleFromMigDeviceHandle); GET(nvmlDeviceIsMigDeviceHandle); GET(nvmlDeviceGetGpuInstanceId);
    GET(nvmlDeviceGetComputeInstanceId); GET(nvmlDeviceGetComputeRunningProcesses_v3);
    int code = argc > 2 ? by_nvml() : 0;
    if (code) return code;
    by_cuda(mib);
    if (mib) {
        printf("ready\n");
        fflush(stdout);
        if (!fgets(line, sizeof line, stdin)) return 0;
    }
    code = by_nvml();
    printf("told\n");
    fflush(stdout);
    if (mib && !fgets(line, sizeof line, stdin)) return code;
    return code;
}
