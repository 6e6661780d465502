/* Copies and fills are real: every form moves the bytes it says, and no others. */
#include "driver.h"

enum { BYTES = 1 << 16, PITCH = 512 };
static unsigned char source[BYTES], target[BYTES];

static void flat(CUdeviceptr a, CUdeviceptr b) {
    unsigned char *pinned = NULL;
    NEED(cuMemcpyHtoD_v2(a, source, BYTES));
    NEED(cuMemcpyDtoD_v2(b, a, BYTES));
    NEED(cuMemcpyDtoH_v2(target, b, BYTES));
    is("a round trip", memcmp(source, target, BYTES), 0);
    NEED(cuMemcpy(a, b + 100, 1000));
    NEED(cuMemcpyDtoH_v2(target, a, 1001));
    HOLDS("the form without directions", !memcmp(target, source + 100, 1000) && target[1000] == source[1000]);
    NEED(cuMemcpyHtoD_v2(a, source, BYTES));
    NEED(cuMemHostAlloc((void **)&pinned, BYTES, 0));
    memcpy(pinned, source, BYTES);
    NEED(cuMemsetD8_v2(b, 0, BYTES));
    NEED(cuMemcpyHtoDAsync_v2(b, pinned, BYTES, NULL));
    NEED(cuMemcpyDtoDAsync_v2(b + 8, a, 8, NULL));
    NEED(cuMemcpyDtoHAsync_v2(pinned, b, BYTES, NULL));
    NEED(cuStreamSynchronize(NULL));
    HOLDS("asynchronous copies keep their order", !memcmp(pinned + 8, source, 8) && !memcmp(pinned + 16, source + 16, 100));
    NEED(cuMemcpyAsync(a, (CUdeviceptr)(uintptr_t)pinned, 16, NULL));
    NEED(cuStreamSynchronize(NULL));
    NEED(cuMemcpyDtoH_v2(target, a, 16));
    is("from pinned memory without directions", memcmp(target, pinned, 16), 0);
    NEED(cuMemFreeHost(pinned));
}

static void refused(CUdeviceptr a) {
    CUdeviceptr gone, lone;
    NEED(cuMemAlloc_v2(&lone, 3 * MIB));
    NEED(cuMemAlloc_v2(&gone, 512));
    NEED(cuMemFree_v2(gone));
    is("one byte too far", cuMemcpyHtoD_v2(lone + 3 * MIB - 4, source, 5), INVALID_VALUE);
    is("no such address", cuMemcpyHtoD_v2(0x10, source, 4), INVALID_VALUE);
    is("null", cuMemcpyDtoH_v2(target, 0, 4), INVALID_VALUE);
    is("freed memory", cuMemcpyHtoD_v2(gone, source, 4), INVALID_VALUE);
    is("fill too far", cuMemsetD8_v2(lone + 1, 0, 3 * MIB), INVALID_VALUE);
    is("a fill of words off their boundary", cuMemsetD32_v2(a + 2, 0, 1), INVALID_VALUE);
    is("a fill of half-words off theirs", cuMemsetD16_v2(a + 1, 0, 1), INVALID_VALUE);
    is("a copy of nothing", cuMemcpyHtoD_v2(a, source, 0), SUCCESS);
    NEED(cuMemFree_v2(lone));
}

static void fills(CUdeviceptr a) {
    unsigned words[4] = {0};
    unsigned short halves[4] = {0};
    NEED(cuMemsetD32_v2(a, 0xdeadbeef, 4));
    NEED(cuMemcpyDtoH_v2(words, a, sizeof words));
    HOLDS("words", words[0] == 0xdeadbeef && words[3] == 0xdeadbeef);
    NEED(cuMemsetD16_v2(a, 0x1234, 3));
    NEED(cuMemcpyDtoH_v2(halves, a, sizeof halves));
    HOLDS("half-words and no further", halves[2] == 0x1234 && halves[3] == 0xdead);
    NEED(cuMemsetD8_v2(a, 0, BYTES));
    NEED(cuMemsetD2D8_v2(a, PITCH, 7, 10, 5));
    NEED(cuMemcpyDtoH_v2(target, a, PITCH * 5));
    HOLDS("rows", target[9] == 7 && target[10] == 0 && target[PITCH * 4 + 9] == 7 && target[PITCH - 1] == 0);
    NEED(cuMemsetD2D32_v2(a, PITCH, 0x01020304, 2, 2));
    NEED(cuMemcpyDtoH_v2(target, a, PITCH * 2));
    HOLDS("rows of words", target[PITCH + 7] == 1 && target[PITCH + 8] == 7);
    NEED(cuMemsetD8Async(a, 9, 100, NULL));
    NEED(cuMemsetD32Async(a + 4, 0x0a0a0a0a, 1, NULL));
    NEED(cuStreamSynchronize(NULL));
    NEED(cuMemcpyDtoH_v2(target, a, 101));
    HOLDS("asynchronous fills keep their order", target[3] == 9 && target[4] == 10 && target[8] == 9 && target[99] == 9);
}

static void rows(CUdeviceptr a) {
    CUDA_MEMCPY2D in, out;
    memset(&in, 0, sizeof in);
    in.srcMemoryType = FROM_HOST, in.srcHost = source, in.srcPitch = 100, in.srcXInBytes = 4, in.srcY = 1;
    in.dstMemoryType = ON_DEVICE, in.dstDevice = a, in.dstPitch = PITCH, in.dstXInBytes = 8, in.dstY = 2;
    in.WidthInBytes = 50, in.Height = 20;
    NEED(cuMemsetD8_v2(a, 0, BYTES));
    NEED(cuMemcpy2D_v2(&in));
    NEED(cuMemcpyDtoH_v2(target, a, BYTES));
    int wrong = 0;
    for (int y = 0; y < 20; y++) wrong += memcmp(target + (size_t)(y + 2) * PITCH + 8, source + (size_t)(y + 1) * 100 + 4, 50) != 0;
    is("rows arrive", wrong, 0);
    HOLDS("and nothing between them", target[2 * PITCH + 7] == 0 && target[2 * PITCH + 58] == 0);
    memset(&out, 0, sizeof out);
    out.srcMemoryType = ON_DEVICE, out.srcDevice = a, out.srcPitch = PITCH, out.srcXInBytes = 8, out.srcY = 2;
    out.dstMemoryType = FROM_HOST, out.dstHost = target, out.dstPitch = 50;
    out.WidthInBytes = 50, out.Height = 20;
    memset(target, 0, BYTES);
    NEED(cuMemcpy2DUnaligned_v2(&out));
    is("and come back", memcmp(target + 50, source + 204, 50), 0);
    in.dstPitch = 40;
    is("a pitch below the width", cuMemcpy2D_v2(&in), INVALID_VALUE);
    in.dstPitch = PITCH, in.Height = 1000;
    is("rows beyond the block", cuMemcpy2D_v2(&in), INVALID_VALUE);
    in.Height = 20, in.srcMemoryType = 77;
    is("memory of no kind", cuMemcpy2D_v2(&in), INVALID_VALUE);
}

static void boxes(CUdeviceptr a) {
    CUDA_MEMCPY3D box;
    memset(&box, 0, sizeof box);
    box.srcMemoryType = FROM_HOST, box.srcHost = source, box.srcPitch = 32, box.srcHeight = 8;
    box.dstMemoryType = ON_DEVICE, box.dstDevice = a, box.dstPitch = 64, box.dstHeight = 16, box.dstZ = 1;
    box.WidthInBytes = 16, box.Height = 4, box.Depth = 3;
    NEED(cuMemsetD8_v2(a, 0, BYTES));
    NEED(cuMemcpy3D_v2(&box));
    NEED(cuMemcpyDtoH_v2(target, a, BYTES));
    int wrong = 0;
    for (size_t z = 0; z < 3; z++)
        for (size_t y = 0; y < 4; y++) wrong += memcmp(target + (z + 1) * 64 * 16 + y * 64, source + z * 32 * 8 + y * 32, 16) != 0;
    is("a box arrives", wrong, 0);
    box.Depth = 1000;
    is("a box beyond the block", cuMemcpy3D_v2(&box), INVALID_VALUE);
}

/* A copy waits for the work before it: legacy stream and blocking streams wait for each other. */
static void ordered(CUdeviceptr a) {
    CUstream blocking, other;
    CUfunction spin = kernel("spin_20ms");
    NEED(cuStreamCreate(&blocking, 0));
    NEED(cuStreamCreate(&other, 1));
    double begun = now_ms();
    NEED(launch(spin, NULL));
    NEED(cuMemcpyHtoD_v2(a, source, 100));
    HOLDS("a copy waits for the legacy stream", now_ms() - begun >= 19.9);
    begun = now_ms();
    NEED(launch(spin, blocking));
    NEED(cuMemcpyDtoH_v2(target, a, 100));
    HOLDS("and for blocking streams", now_ms() - begun >= 19.9);
    hold(other);
    NEED(cuMemcpyDtoH_v2(target, a, 100));
    is("but not for others", cuStreamQuery(other), NOT_READY);
    let_go();
    NEED(cuStreamDestroy_v2(blocking));
}

int main(void) {
    CUdeviceptr a, b;
    begin();
    for (int i = 0; i < BYTES; i++) source[i] = (unsigned char)(i * 7 + i / 256 + 1);
    NEED(cuMemAlloc_v2(&a, BYTES));
    NEED(cuMemAlloc_v2(&b, BYTES));
    flat(a, b);
    refused(a);
    fills(a);
    rows(a);
    boxes(a);
    ordered(a);
    return verdict();
}
