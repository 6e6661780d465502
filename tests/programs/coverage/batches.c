/* Many copies in one call, and work on managed and on compressed memory. */
#include "launches.h"

typedef struct { int srcAccessOrder; CUmemLocation srcLocHint, dstLocHint; unsigned flags; } CUmemcpyAttributes;
typedef struct {
    int type;
    union { struct { CUdeviceptr ptr; size_t rowLength, layerHeight; CUmemLocation locHint; } ptr; size_t words[4]; } op;
} CUmemcpy3DOperand;
typedef struct { CUmemcpy3DOperand src, dst; size_t extent[3]; int srcAccessOrder; unsigned flags; } CUDA_MEMCPY3D_BATCH_OP;
typedef struct {
    size_t srcNumBytes, dstNumBytes; uint32_t *dstActBytes; const void *src; void *dst; int algo; unsigned char padding[20];
} CUmemDecompressParams;
typedef struct { int type; CUdeviceptr ptr; CUmemLocation locHint; } CUfabricCpyOperand;
typedef struct { CUfabricCpyOperand src, dst; size_t size; unsigned flags; } CUDA_FABRIC_COPY_BATCH_OP;

static CUmemcpyAttributes attributes = {1, {0, 0}, {0, 0}, 0};
static size_t first;

#define PARTS CUdeviceptr to[2] = {two, two + bytes / 2}, from[2] = {one, one + bytes / 2}; size_t sizes[2] = {bytes / 2, bytes / 2}

PACED(cuMemcpyBatchAsync) {
    PARTS;
    size_t failed;
    return CALL((CUdeviceptr *, CUdeviceptr *, size_t *, size_t, CUmemcpyAttributes *, size_t *, size_t, size_t *, CUstream), to,
                from, sizes, 2, &attributes, &first, 1, &failed, stream);
}
PACED(cuMemcpyBatchAsync_v2) {
    PARTS;
    return CALL((CUdeviceptr *, CUdeviceptr *, size_t *, size_t, CUmemcpyAttributes *, size_t *, size_t, CUstream), to, from, sizes,
                2, &attributes, &first, 1, stream);
}
PACED(cuMemcpyWithAttributesAsync) {
    return CALL((CUdeviceptr, CUdeviceptr, size_t, CUmemcpyAttributes *, CUstream), two, one, bytes, &attributes, stream);
}

static CUDA_MEMCPY3D_BATCH_OP cube(void) {
    CUDA_MEMCPY3D_BATCH_OP copy;
    memset(&copy, 0, sizeof copy);
    copy.src.type = copy.dst.type = 1, copy.srcAccessOrder = 1;
    copy.src.op.ptr.ptr = one, copy.dst.op.ptr.ptr = two;
    copy.extent[0] = bytes, copy.extent[1] = copy.extent[2] = 1;
    return copy;
}
PACED(cuMemcpy3DBatchAsync) {
    CUDA_MEMCPY3D_BATCH_OP copies[2] = {cube(), cube()};
    size_t failed;
    return CALL((size_t, CUDA_MEMCPY3D_BATCH_OP *, size_t *, unsigned long long, CUstream), 2, copies, &failed, 0, stream);
}
PACED(cuMemcpy3DBatchAsync_v2) {
    CUDA_MEMCPY3D_BATCH_OP copies[2] = {cube(), cube()};
    return CALL((size_t, CUDA_MEMCPY3D_BATCH_OP *, unsigned long long, CUstream), 2, copies, 0, stream);
}
PACED(cuMemcpy3DWithAttributesAsync) {
    CUDA_MEMCPY3D_BATCH_OP copy = cube();
    return CALL((CUDA_MEMCPY3D_BATCH_OP *, unsigned long long, CUstream), &copy, 0, stream);
}
PACED(cuFabricCpyBatchAsync) {
    CUDA_FABRIC_COPY_BATCH_OP copy = {{1, one, {0, 0}}, {1, two, {0, 0}}, bytes, 0};
    return CALL((size_t, CUDA_FABRIC_COPY_BATCH_OP *, unsigned long long, CUstream), 1, &copy, 0, stream);
}

PACED(cuMemPrefetchAsync) { return CALL((CUdeviceptr, size_t, int, CUstream), managed, bytes, 0, stream); }
PACED(cuMemPrefetchAsync_v2) {
    CUmemLocation device = {1, 0};
    return CALL((CUdeviceptr, size_t, CUmemLocation, unsigned, CUstream), managed, bytes, device, 0, stream);
}

static CUresult prefetched(void) {
    CUmemLocation device = {1, 0};
    CUdeviceptr from[2] = {managed, managed + bytes};
    size_t sizes[2] = {bytes, bytes};
    return CALL((CUdeviceptr *, size_t *, size_t, CUmemLocation *, size_t *, size_t, unsigned long long, CUstream), from, sizes, 2,
                &device, &first, 1, 0, stream);
}
PACED(cuMemPrefetchBatchAsync) { return prefetched(); }
PACED(cuMemDiscardAndPrefetchBatchAsync) { return prefetched(); }
PACED(cuMemDiscardBatchAsync) {
    return CALL((CUdeviceptr *, size_t *, size_t, unsigned long long, CUstream), &managed, &bytes, 1, 0, stream);
}
PACED(cuMemBatchDecompressAsync) {
    CUmemDecompressParams part;
    size_t failed;
    memset(&part, 0, sizeof part);
    part.srcNumBytes = bytes, part.dstNumBytes = 2 * bytes, part.algo = 1;
    return CALL((CUmemDecompressParams *, size_t, unsigned, size_t *, CUstream), &part, 1, 0, &failed, stream);
}
