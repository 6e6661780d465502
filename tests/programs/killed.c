/* Allocates and frees at full speed until it is killed: `killed DOOR SEED REPORT INDEX`.
 *
 * REPORT is a file of 64-byte records, one a process: calls, refusals, answers that are neither, and the longest time
 * in nanoseconds that one call has *slept*: waited for somebody else, not for a processor. Then the last other answer, and
 * what slept longest: the kind, 10 more for a free, 100 more with a synchronisation. */
#include "doors.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { HELD_MAX = 24, LOOK_NS = 20000000 };
struct report { uint64_t calls, refused, wrong, slept_ns, last_wrong, slept_in, unused[2]; };

static uint64_t state;
static unsigned next(unsigned below) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(state >> 33) % below;
}

static uint64_t now_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* What this thread has run, and has waited for a processor, since it began. */
static uint64_t busy_ns(void) {
    static int file = -1;
    char text[96];
    unsigned long long ran = 0, waited = 0;
    if (file < 0) file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? -1 : pread(file, text, sizeof text - 1, 0);
    if (length <= 0) return 0;
    text[length] = 0;
    sscanf(text, "%llu %llu", &ran, &waited);
    return ran + waited;
}

struct held { int kind; CUdeviceptr address; uint64_t handle; };

static CUresult take(struct held *held) {
    CUmemAllocationProp prop = {1, 0, {1, 0}, NULL, {0, 0, 0, {0}}};
    CUDA_ARRAY_DESCRIPTOR flat = {4096, 1 + next(4096), 0x20, 1};
    size_t bytes = 1 + next(48u << 20);
    held->kind = (int)next(5);
    switch (held->kind) {
    case 0: return p_cuMemAlloc_v2(&held->address, bytes);
    case 1: return p_cuMemAlloc_v2(&held->address, 1 + bytes % (1 << 20));
    case 2: return p_cuMemAllocAsync(&held->address, bytes, NULL);
    case 3: return p_cuMemCreate(&held->handle, (bytes + (2 << 20) - 1) & ~(size_t)((2 << 20) - 1), &prop, 0);
    default: return p_cuArrayCreate_v2((void **)&held->handle, &flat);
    }
}

static CUresult give(struct held *held) {
    switch (held->kind) {
    case 2: return p_cuMemFreeAsync(held->address, NULL);
    case 3: return p_cuMemRelease(held->handle);
    case 4: return p_cuArrayDestroy((void *)held->handle);
    default: return p_cuMemFree_v2(held->address);
    }
}

int main(int argc, char **argv) {
    if (argc < 5) return 64;
    static struct held held[HELD_MAX];
    static int is_held[HELD_MAX];
    void *context;
    state = strtoull(argv[2], NULL, 10);
    int file = open(argv[3], O_RDWR | O_CLOEXEC);
    struct report *reports = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (reports == MAP_FAILED) return 71;
    struct report *report = &reports[atoi(argv[4])];
    open_door(argv[1]);
    CUresult code = p_cuInit(0);
    if (!code) code = p_cuCtxCreate_v2(&context, 0, 0);
    /* A context that doesn't fit is refused like anything else. */
    if (code == 2) { __atomic_fetch_add(&report->refused, 1, __ATOMIC_RELAXED); for (;;) pause(); }
    if (code) { report->wrong++; report->last_wrong = (uint64_t)code; return 70; }
    for (;;) {
        unsigned at = next(HELD_MAX);
        uint64_t busy = busy_ns(), begun = now_ns(CLOCK_MONOTONIC);
        code = is_held[at] ? give(&held[at]) : take(&held[at]);
        int did = held[at].kind + (is_held[at] ? 10 : 0);
        if (next(64) == 0) { p_cuCtxSynchronize(); did += 100; }
        uint64_t wall = now_ns(CLOCK_MONOTONIC) - begun;
        if (wall > LOOK_NS) {
            uint64_t slept = wall - (busy_ns() - busy);
            if (slept < wall && slept > report->slept_ns) { report->slept_ns = slept; report->slept_in = (uint64_t)did; }
        }
        is_held[at] = !is_held[at] && !code;
        __atomic_fetch_add(code == 2 ? &report->refused : code ? &report->wrong : &report->calls, 1, __ATOMIC_RELAXED);
        if (code && code != 2) report->last_wrong = (uint64_t)code;
    }
}
