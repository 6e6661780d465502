/* Copies by address, within devices and over the bus, and to and from arrays. */
#include "launches.h"

/* The first API had addresses and sizes of 32 bits; its calls are those without a number. */
#define FIRST (unsigned)bytes

PACED(cuMemcpy) { return CALL((CUdeviceptr, CUdeviceptr, size_t), two, one, bytes); }
PACED(cuMemcpyAsync) { return CALL((CUdeviceptr, CUdeviceptr, size_t, CUstream), two, one, bytes, stream); }
PACED(cuMemcpyDtoD) { return CALL((unsigned, unsigned, unsigned), two, one, FIRST); }
PACED(cuMemcpyDtoD_v2) { return CALL((CUdeviceptr, CUdeviceptr, size_t), two, one, bytes); }
PACED(cuMemcpyDtoDAsync) { return CALL((unsigned, unsigned, unsigned, CUstream), two, one, FIRST, stream); }
PACED(cuMemcpyDtoDAsync_v2) { return CALL((CUdeviceptr, CUdeviceptr, size_t, CUstream), two, one, bytes, stream); }
PACED(cuMemcpyPeer) {
    return CALL((CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t), there, there_context, one, here_context, bytes);
}
PACED(cuMemcpyPeerAsync) {
    return CALL((CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream), there, there_context, one, here_context,
                bytes, stream);
}

PACED_LARGE(cuMemcpyHtoD) { return CALL((unsigned, const void *, unsigned), one, host, FIRST); }
PACED_LARGE(cuMemcpyHtoD_v2) { return CALL((CUdeviceptr, const void *, size_t), one, host, bytes); }
PACED_LARGE(cuMemcpyHtoDAsync) { return CALL((unsigned, const void *, unsigned, CUstream), one, host, FIRST, stream); }
PACED_LARGE(cuMemcpyHtoDAsync_v2) { return CALL((CUdeviceptr, const void *, size_t, CUstream), one, host, bytes, stream); }
PACED_LARGE(cuMemcpyDtoH) { return CALL((void *, unsigned, unsigned), host, one, FIRST); }
PACED_LARGE(cuMemcpyDtoH_v2) { return CALL((void *, CUdeviceptr, size_t), host, one, bytes); }
PACED_LARGE(cuMemcpyDtoHAsync) { return CALL((void *, unsigned, unsigned, CUstream), host, one, FIRST, stream); }
PACED_LARGE(cuMemcpyDtoHAsync_v2) { return CALL((void *, CUdeviceptr, size_t, CUstream), host, one, bytes, stream); }

PACED(cuMemcpyAtoA) { return CALL((CUarray, unsigned, CUarray, unsigned, unsigned), row, 0, other_row, 0, FIRST); }
PACED(cuMemcpyAtoA_v2) { return CALL((CUarray, size_t, CUarray, size_t, size_t), row, 0, other_row, 0, bytes); }
PACED(cuMemcpyAtoD) { return CALL((unsigned, CUarray, unsigned, unsigned), one, row, 0, FIRST); }
PACED(cuMemcpyAtoD_v2) { return CALL((CUdeviceptr, CUarray, size_t, size_t), one, row, 0, bytes); }
PACED(cuMemcpyDtoA) { return CALL((CUarray, unsigned, unsigned, unsigned), row, 0, one, FIRST); }
PACED(cuMemcpyDtoA_v2) { return CALL((CUarray, size_t, CUdeviceptr, size_t), row, 0, one, bytes); }
SMALL_ONLY(cuMemcpyAtoH) { return CALL((void *, CUarray, unsigned, unsigned), host, row, 0, FIRST); }
SMALL_ONLY(cuMemcpyAtoH_v2) { return CALL((void *, CUarray, size_t, size_t), host, row, 0, bytes); }
SMALL_ONLY(cuMemcpyAtoHAsync) { return CALL((void *, CUarray, unsigned, unsigned, CUstream), host, row, 0, FIRST, stream); }
SMALL_ONLY(cuMemcpyAtoHAsync_v2) { return CALL((void *, CUarray, size_t, size_t, CUstream), host, row, 0, bytes, stream); }
SMALL_ONLY(cuMemcpyHtoA) { return CALL((CUarray, unsigned, const void *, unsigned), row, 0, host, FIRST); }
SMALL_ONLY(cuMemcpyHtoA_v2) { return CALL((CUarray, size_t, const void *, size_t), row, 0, host, bytes); }
SMALL_ONLY(cuMemcpyHtoAAsync) {
    return CALL((CUarray, unsigned, const void *, unsigned, CUstream), row, 0, host, FIRST, stream);
}
SMALL_ONLY(cuMemcpyHtoAAsync_v2) { return CALL((CUarray, size_t, const void *, size_t, CUstream), row, 0, host, bytes, stream); }
