/* Copies with a shape, of two dimensions and of three: from the host, which is paced if large, and within a device. */
#include "launches.h"

enum { WIDTH = 512 };

typedef struct {
    unsigned srcXInBytes, srcY; int srcMemoryType; const void *srcHost; unsigned srcDevice; CUarray srcArray; unsigned srcPitch;
    unsigned dstXInBytes, dstY; int dstMemoryType; void *dstHost; unsigned dstDevice; CUarray dstArray; unsigned dstPitch;
    unsigned WidthInBytes, Height;
} CUDA_MEMCPY2D_v1;
typedef struct {
    unsigned srcXInBytes, srcY, srcZ, srcLOD; int srcMemoryType; const void *srcHost; unsigned srcDevice; CUarray srcArray;
    void *reserved0; unsigned srcPitch, srcHeight;
    unsigned dstXInBytes, dstY, dstZ, dstLOD; int dstMemoryType; void *dstHost; unsigned dstDevice; CUarray dstArray;
    void *reserved1; unsigned dstPitch, dstHeight;
    unsigned WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D_v1;
typedef struct {
    size_t srcXInBytes, srcY, srcZ, srcLOD; int srcMemoryType; const void *srcHost; CUdeviceptr srcDevice; CUarray srcArray;
    CUcontext srcContext; size_t srcPitch, srcHeight;
    size_t dstXInBytes, dstY, dstZ, dstLOD; int dstMemoryType; void *dstHost; CUdeviceptr dstDevice; CUarray dstArray;
    CUcontext dstContext; size_t dstPitch, dstHeight;
    size_t WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D_PEER;

/* Half of it in each of two slices, where there are slices. */
#define FLAT(type, make) \
    static type make(int from) { \
        type copy; \
        memset(&copy, 0, sizeof copy); \
        copy.srcMemoryType = from, copy.dstMemoryType = ON_DEVICE; \
        copy.srcHost = host, copy.srcDevice = two, copy.dstDevice = one; \
        copy.srcPitch = copy.dstPitch = copy.WidthInBytes = WIDTH; \
        copy.Height = (unsigned)(bytes / WIDTH); \
        return copy; \
    }
#define DEEP(type, make) \
    FLAT(type, flat_##make) \
    static type make(int from) { \
        type copy = flat_##make(from); \
        copy.Height /= 2, copy.Depth = 2; \
        copy.srcHeight = copy.dstHeight = copy.Height; \
        return copy; \
    }
FLAT(CUDA_MEMCPY2D_v1, first_rows)
FLAT(CUDA_MEMCPY2D, rows)
DEEP(CUDA_MEMCPY3D_v1, first_slices)
DEEP(CUDA_MEMCPY3D, slices)

#define NOW(symbol, type, make) \
    LAUNCH_AS(bus_, symbol, PACED_IF_LARGE) { type copy = make(FROM_HOST); return CALL((const type *), &copy); } \
    LAUNCH_AS(within_, symbol, PACED_ALWAYS) { type copy = make(ON_DEVICE); return CALL((const type *), &copy); }
#define IN_ORDER(symbol, type, make) \
    LAUNCH_AS(bus_, symbol, PACED_IF_LARGE) { type copy = make(FROM_HOST); return CALL((const type *, CUstream), &copy, stream); } \
    LAUNCH_AS(within_, symbol, PACED_ALWAYS) { type copy = make(ON_DEVICE); return CALL((const type *, CUstream), &copy, stream); }
NOW(cuMemcpy2D, CUDA_MEMCPY2D_v1, first_rows)
NOW(cuMemcpy2D_v2, CUDA_MEMCPY2D, rows)
NOW(cuMemcpy2DUnaligned, CUDA_MEMCPY2D_v1, first_rows)
NOW(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D, rows)
NOW(cuMemcpy3D, CUDA_MEMCPY3D_v1, first_slices)
NOW(cuMemcpy3D_v2, CUDA_MEMCPY3D, slices)
IN_ORDER(cuMemcpy2DAsync, CUDA_MEMCPY2D_v1, first_rows)
IN_ORDER(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, rows)
IN_ORDER(cuMemcpy3DAsync, CUDA_MEMCPY3D_v1, first_slices)
IN_ORDER(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, slices)

static CUDA_MEMCPY3D_PEER across(void) {
    CUDA_MEMCPY3D within = slices(ON_DEVICE);
    CUDA_MEMCPY3D_PEER copy;
    _Static_assert(sizeof within == sizeof copy, "they differ in what was reserved only");
    memcpy(&copy, &within, sizeof copy);
    copy.dstDevice = there, copy.dstContext = there_context, copy.srcContext = here_context;
    return copy;
}
PACED(cuMemcpy3DPeer) { CUDA_MEMCPY3D_PEER copy = across(); return CALL((const CUDA_MEMCPY3D_PEER *), &copy); }
PACED(cuMemcpy3DPeerAsync) {
    CUDA_MEMCPY3D_PEER copy = across();
    return CALL((const CUDA_MEMCPY3D_PEER *, CUstream), &copy, stream);
}
