/* Many threads allocate and free at full speed under one quota: `threads DOOR THREADS ROUNDS`. Every call must answer 0 or 2,
 * and at the end everything is free. */
#include "doors.h"
#include <pthread.h>

enum { HELD_MAX = 6 };
static void *context;
static int rounds;
static long granted, refused, wrong;

static unsigned next(unsigned *seed) { return *seed = *seed * 1664525u + 1013904223u; }

static void count(int code) {
    __atomic_fetch_add(code == 0 ? &granted : code == 2 ? &refused : &wrong, 1, __ATOMIC_RELAXED);
}

static void *work(void *argument) {
    unsigned seed = (unsigned)(uintptr_t)argument;
    CUdeviceptr held[HELD_MAX] = {0};
    uint64_t handles[HELD_MAX] = {0};
    p_cuCtxSetCurrent(context);
    for (int round = 0; round < rounds; round++) {
        unsigned at = next(&seed) >> 16, kind = next(&seed) >> 30;
        at %= HELD_MAX;
        if (held[at] && p_cuMemFree_v2(held[at])) count(-1);
        if (handles[at] && p_cuMemRelease(handles[at])) count(-1);
        held[at] = handles[at] = 0;
        size_t bytes = (next(&seed) >> 12) % 40;
        CUmemAllocationProp prop = {1, 0, {1, 0}, NULL, {0, 0, 0, {0}}};
        int code;
        if (kind == 0) code = p_cuMemCreate(&handles[at], (bytes + 2) / 2 * 2 << 20, &prop, 0);
        else if (kind == 1) code = p_cuMemAlloc_v2(&held[at], (bytes + 1) * 1000);
        else if (kind == 2) code = p_cuMemAllocManaged(&held[at], (bytes + 1) << 20, 1);
        else code = p_cuMemAlloc_v2(&held[at], (bytes + 1) << 20);
        if (code) held[at] = handles[at] = 0;
        count(code);
    }
    for (int at = 0; at < HELD_MAX; at++) {
        if (held[at] && p_cuMemFree_v2(held[at])) count(-1);
        if (handles[at] && p_cuMemRelease(handles[at])) count(-1);
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 4) return 64;
    enum { THREADS_MAX = 64 };
    pthread_t threads[THREADS_MAX];
    int n = atoi(argv[2]) < THREADS_MAX ? atoi(argv[2]) : THREADS_MAX;
    size_t free, total;
    rounds = atoi(argv[3]);
    open_door(argv[1]);
    if (p_cuInit(0) || p_cuCtxCreate_v2(&context, 0, 0)) return 70;
    for (int i = 0; i < n; i++) pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)(i + 1));
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
    int code = p_cuMemGetInfo_v2(&free, &total);
    printf("calls 0 %ld %ld %ld\n", granted, refused, wrong);
    printf("info %d %zu %zu\n", code, free, total);
    return 0;
}
