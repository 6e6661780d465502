/* Presses on a device's memory, counting what fails.
 *
 *   pressure churn GIB COUNT    allocates and frees so much COUNT times, by all of it and in pieces, each checked by a copy
 *   pressure use GIB            holds so much in pieces of 1 GiB and runs kernels over it until stdin ends
 *   pressure captured           stream-ordered memory comes and goes while another stream is captured, which goes on
 *   pressure kinds              what a managed pointer is and isn't, beside one that was asked for as linear memory
 *
 * Prints "ready" once it holds what it wants, and at its end "calls N failed M last CODE". */
#include "doors.h"
#include <poll.h>
#include <unistd.h>

extern CUresult cuIpcGetMemHandle(void *handle, uint64_t pointer);
extern CUresult cuPointerGetAttribute(void *data, int attribute, uint64_t pointer);
extern CUresult cuMemGetAddressRange_v2(uint64_t *base, size_t *size, uint64_t pointer);

enum { GIB = 1 << 30, PIECES_MAX = 256 };
static unsigned long calls, failed;
static CUresult last;

static CUresult note(CUresult code) {
    calls++;
    if (code) failed++, last = code;
    return code;
}

static void copy(uint64_t pointer, unsigned long round) {
    unsigned long out = round * 2654435761u, back = 0;
    if (note(p_cuMemcpyHtoD_v2(pointer, &out, sizeof out))) return;
    if (!note(p_cuMemcpyDtoH_v2(&back, pointer, sizeof back)) && back != out) failed++, last = 9999;
}

static void churn(size_t bytes, unsigned long count) {
    uint64_t pieces[PIECES_MAX];
    for (unsigned long round = 0; round < count; round++) {
        int many = round % 2 ? 8 : 1, got = 0;
        while (got < many && !note(p_cuMemAlloc_v2(&pieces[got], bytes / many))) got++;
        if (got) copy(pieces[got - 1], round);
        while (got) note(p_cuMemFree_v2(pieces[--got]));
    }
}

static int goes_on(void) {
    struct pollfd in = {0, POLLIN | POLLHUP, 0};
    return poll(&in, 1, 0) == 0;
}

static void use(int gib) {
    static const char image[] =
        ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry spin_100us() { ret; }\n";
    uint64_t pieces[PIECES_MAX];
    void *module = NULL, *function = NULL;
    for (int i = 0; i < gib; i++) note(p_cuMemAlloc_v2(&pieces[i], GIB));
    note(p_cuModuleLoadData(&module, image));
    note(p_cuModuleGetFunction(&function, module, "spin_100us"));
    printf("ready\n");
    fflush(stdout);
    for (unsigned long round = 0; goes_on(); round++) {
        note(p_cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
        note(p_cuCtxSynchronize());
        copy(pieces[round % gib], round);
    }
    for (int i = 0; i < gib; i++) note(p_cuMemFree_v2(pieces[i]));
}

static void kinds(void) {
    char handle[64];
    uint64_t pointer = 0, base = 0;
    size_t size = 0;
    unsigned type = 0, managed = 0;
    printf("alloc %d\n", p_cuMemAlloc_v2(&pointer, 64 << 20));
    printf("ipc %d\n", cuIpcGetMemHandle(handle, pointer));
    printf("ipc %d\n", cuIpcGetMemHandle(handle, pointer));
    CUresult code = cuPointerGetAttribute(&type, 2, pointer);
    printf("type %d %u\n", code, type);
    code = cuPointerGetAttribute(&managed, 8, pointer);
    printf("managed %d %u\n", code, managed);
    code = cuMemGetAddressRange_v2(&base, &size, pointer + 4096);
    printf("range %d %d %zu\n", code, base == pointer, size);
    copy(pointer, 1);
    printf("copies %lu\n", failed);
}

extern CUresult cuStreamBeginCapture_v2(void *stream, int mode);
extern CUresult cuStreamEndCapture(void *stream, void **graph);
extern CUresult cuStreamCreate(void **stream, unsigned flags);

static void captured(void) {
    void *capturing = NULL, *other = NULL, *graph = NULL;
    uint64_t pointer = 0;
    note(cuStreamCreate(&capturing, 1));
    note(cuStreamCreate(&other, 1));
    note(cuStreamBeginCapture_v2(capturing, 0));
    printf("alloc %d\n", note(p_cuMemAllocAsync(&pointer, (size_t)1 << 30, other)));
    printf("free %d\n", note(p_cuMemFreeAsync(pointer, other)));
    printf("end %d\n", note(cuStreamEndCapture(capturing, &graph)));
}

int main(int argc, char **argv) {
    void *context;
    open_door("linked");
    if (argc < 2 || note(p_cuInit(0)) || note(p_cuCtxCreate_v2(&context, 0, 0))) return 64;
    if (!strcmp(argv[1], "churn")) {
        printf("ready\n");
        fflush(stdout);
        churn((size_t)(atof(argv[2]) * GIB), strtoul(argv[3], NULL, 10));
    } else if (!strcmp(argv[1], "use")) use(atoi(argv[2]));
    else if (!strcmp(argv[1], "captured")) captured();
    else kinds();
    printf("calls %lu failed %lu last %d\n", calls, failed, last);
    return 0;
}
