/* Tells what a driver may lack: stream priorities, NVML's list of processes, its samples of their utilisation. */
#include "driver.h"
#include <dlfcn.h>

CUresult cuCtxGetStreamPriorityRange(int *, int *);
CUresult cuDeviceGetAttribute(int *, int, CUdevice);

struct process { unsigned pid; unsigned long long bytes; unsigned instances[2]; };
struct sample { unsigned pid; unsigned long long at; unsigned sm, memory, encoder, decoder; };

int main(void) {
    enum { ROOM = 16, PRIORITIES_SUPPORTED = 78 };
    int least = 1, greatest = 1, supported = -1;
    begin();
    NEED(cuCtxGetStreamPriorityRange(&least, &greatest));
    NEED(cuDeviceGetAttribute(&supported, PRIORITIES_SUPPORTED, 0));
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW), *device;
    if (!nvml) return 70;
    int (*start)(void), (*by_index)(unsigned, void **), (*list)(void *, unsigned *, struct process *);
    int (*samples)(void *, struct sample *, unsigned *, unsigned long long);
    *(void **)&start = dlsym(nvml, "nvmlInit_v2");
    *(void **)&by_index = dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2");
    *(void **)&list = dlsym(nvml, "nvmlDeviceGetComputeRunningProcesses_v3");
    *(void **)&samples = dlsym(nvml, "nvmlDeviceGetProcessUtilization");
    NEED(start());
    NEED(by_index(0, &device));
    struct process processes[ROOM];
    struct sample got[ROOM];
    unsigned count = ROOM, busy = ROOM, others = 0;
    int sane = 1;
    NEED(list(device, &count, processes));
    /* This program's own context is not what is asked about. */
    for (unsigned i = 0; i < count; i++) others += processes[i].pid != (unsigned)getpid();
    int code = samples(device, got, &busy, 0);
    for (unsigned i = 0; i < busy; i++) sane = sane && got[i].sm <= 100;
    printf("priorities %d %d, supported %d; processes %u; samples %d %u, sane %d\n", least, greatest, supported, others, code, busy, sane);
    return 0;
}
