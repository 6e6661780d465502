/* What NVML shows of every device: `nvml [MIB]` allocates so many MiB by CUDA first; `nvml after MIB` afterwards, twice. */
#include "doors.h"

typedef struct { unsigned long long total, free, used; } memory_v1;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2;
typedef struct { unsigned pid; unsigned long long used; } process_v1;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu, compute; } process_v2;

static void *nvml;
#define GET(name, parameters) int(*name) parameters = NULL; *(void **)&name = dlsym(nvml, #name)

static void processes(void *device, const char *name, int first) {
    int (*list)(void *, unsigned *, void *) = NULL;
    *(void **)&list = dlsym(nvml, name);
    process_v1 old[64];
    process_v2 new[64];
    unsigned count = 64, none = 0;
    int code = list(device, &count, first ? (void *)old : (void *)new);
    printf("%s %d %u", name, code, count);
    for (unsigned i = 0; !code && i < count; i++)
        printf(" %u:%llu", first ? old[i].pid : new[i].pid, first ? old[i].used : new[i].used);
    printf("\n");
    code = list(device, &none, NULL);
    printf("%s-count %d %u\n", name, code, none);
}

int main(int argc, char **argv) {
    int after = argc > 2 && !strcmp(argv[1], "after");
    if (argc > 1 && !after) {
        CUdeviceptr at;
        void *context;
        open_door("dlopen:libcuda.so.1");
        if (p_cuInit(0) || p_cuCtxCreate_v2(&context, 0, 0) || p_cuMemAlloc_v2(&at, (size_t)atoi(argv[1]) << 20)) return 70;
    }
    nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!nvml) die("nvml");
    GET(nvmlInit_v2, (void));
    GET(nvmlDeviceGetCount_v2, (unsigned *));
    GET(nvmlDeviceGetHandleByIndex_v2, (unsigned, void **));
    GET(nvmlDeviceGetHandleByUUID, (const char *, void **));
    GET(nvmlDeviceGetUUID, (void *, char *, unsigned));
    GET(nvmlDeviceGetMemoryInfo, (void *, memory_v1 *));
    GET(nvmlDeviceGetMemoryInfo_v2, (void *, memory_v2 *));
    unsigned count = 0;
    printf("init %d\n", nvmlInit_v2());
    int counted = nvmlDeviceGetCount_v2(&count);
    printf("count %d %u\n", counted, count);
    for (unsigned i = 0; i < count; i++) {
        void *device, *same;
        char uuid[96] = "";
        memory_v1 one = {0, 0, 0};
        memory_v2 two = {(unsigned)sizeof(memory_v2) | 2u << 24, 0, 0, 0, 0}, bad = {1, 0, 0, 0, 0};
        printf("device %d\n", nvmlDeviceGetHandleByIndex_v2(i, &device));
        nvmlDeviceGetUUID(device, uuid, sizeof uuid);
        printf("uuid %s\n", uuid);
        int code = nvmlDeviceGetMemoryInfo(device, &one);
        printf("memory %d %llu %llu %llu\n", code, one.total, one.free, one.used);
        if (nvmlDeviceGetHandleByUUID(uuid, &same)) return 71;
        code = nvmlDeviceGetMemoryInfo_v2(same, &two);
        printf("memory_v2 %d %llu %llu %llu %llu\n", code, two.total, two.reserved, two.free, two.used);
        printf("null %d\n", nvmlDeviceGetMemoryInfo(device, NULL));
        printf("version %d\n", nvmlDeviceGetMemoryInfo_v2(device, &bad));
        processes(device, "nvmlDeviceGetComputeRunningProcesses", 1);
        processes(device, "nvmlDeviceGetComputeRunningProcesses_v2", 0);
        processes(device, "nvmlDeviceGetComputeRunningProcesses_v3", 0);
        processes(device, "nvmlDeviceGetGraphicsRunningProcesses_v3", 0);
    }
    if (after) {
        CUdeviceptr at;
        void *context;
        size_t total = 0, bytes = (size_t)atoi(argv[2]) << 20;
        open_door("dlopen:libcuda.so.1");
        if (p_cuInit(0) || p_cuCtxCreate_v2(&context, 0, 0)) return 70;
        int code = p_cuDeviceTotalMem_v2(&total, 0);
        printf("cuda-total %d %zu\n", code, total);
        printf("cuda-alloc %d\n", p_cuMemAlloc_v2(&at, bytes));
        printf("cuda-again %d\n", p_cuMemAlloc_v2(&at, bytes));
    }
    return 0;
}
