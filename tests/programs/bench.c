/* Nanoseconds a call, median of several rounds: `bench WHAT [LIVE]`; LIVE blocks are kept allocated meanwhile. */
#include "doors.h"
#include <time.h>

enum { ROUNDS = 15 };

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void *function;
static int (*resolve)(const char *, void **, int, uint64_t, int *);

static int once(const char *what) {
    CUdeviceptr at;
    size_t free, total;
    void *found;
    int status;
    if (!strcmp(what, "launch")) return p_cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
    if (!strcmp(what, "pair")) return p_cuMemAlloc_v2(&at, 4096) || p_cuMemFree_v2(at);
    if (!strcmp(what, "pair-large")) return p_cuMemAlloc_v2(&at, 4 << 20) || p_cuMemFree_v2(at);
    if (!strcmp(what, "info")) return p_cuMemGetInfo_v2(&free, &total);
    return resolve("cuMemAlloc", &found, 12000, 0, &status);
}

int main(int argc, char **argv) {
    if (argc < 2) return 64;
    void *context, *module;
    CUdeviceptr at;
    open_door("dlopen:libcuda.so.1");
    *(void **)&resolve = dlsym(driver, "cuGetProcAddress_v2");
    const char *image = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry spin_0us() { ret; }\n";
    if (p_cuInit(0) || p_cuCtxCreate_v2(&context, 0, 0)) return 70;
    if (p_cuModuleLoadData(&module, image) || p_cuModuleGetFunction(&function, module, "spin_0us")) return 71;
    for (long live = argc > 2 ? atol(argv[2]) : 0; live > 0; live--)
        if (p_cuMemAlloc_v2(&at, 512)) return 72;
    long calls = !strcmp(argv[1], "pair-large") ? 20000 : 200000;
    double rounds[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        double start = now_ns();
        for (long i = 0; i < calls; i++)
            if (once(argv[1])) return 73;
        rounds[round] = (now_ns() - start) / (double)calls;
    }
    qsort(rounds, ROUNDS, sizeof *rounds, by_value);
    printf("%.1f\n", rounds[ROUNDS / 2]);
    return 0;
}
