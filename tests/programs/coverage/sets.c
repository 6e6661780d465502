/* Memsets, of one row and of many. */
#include "launches.h"

#define FILL(bits, value) \
    PACED(cuMemsetD##bits) { return CALL((unsigned, value, unsigned), one, 1, 1024); } \
    PACED(cuMemsetD##bits##_v2) { return CALL((CUdeviceptr, value, size_t), one, 1, 1024); } \
    PACED(cuMemsetD##bits##Async) { return CALL((CUdeviceptr, value, size_t, CUstream), one, 1, 1024, stream); } \
    PACED(cuMemsetD2D##bits) { return CALL((unsigned, unsigned, value, unsigned, unsigned), one, 512, 1, 64, 8); } \
    PACED(cuMemsetD2D##bits##_v2) { return CALL((CUdeviceptr, size_t, value, size_t, size_t), one, 512, 1, 64, 8); } \
    PACED(cuMemsetD2D##bits##Async) { \
        return CALL((CUdeviceptr, size_t, value, size_t, size_t, CUstream), one, 512, 1, 64, 8, stream); \
    }
FILL(8, unsigned char)
FILL(16, unsigned short)
FILL(32, unsigned)
