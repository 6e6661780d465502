/* Stands behind the shim for what the simulated driver lacks, and says that it was done. */
#define SUCCEEDS(name) \
    int name(void); \
    int name##_ptsz(void); \
    int name(void) { return 0; } \
    int name##_ptsz(void) { return 0; }
SUCCEEDS(cuFabricCpyBatchAsync)
SUCCEEDS(cuMemBatchDecompressAsync)
SUCCEEDS(cuMemDiscardAndPrefetchBatchAsync)
SUCCEEDS(cuMemDiscardBatchAsync)
SUCCEEDS(cuMemPrefetchBatchAsync)
SUCCEEDS(cuMemcpy3DBatchAsync)
SUCCEEDS(cuMemcpy3DBatchAsync_v2)
SUCCEEDS(cuMemcpy3DWithAttributesAsync)
SUCCEEDS(cuSignalExternalSemaphoresAsync)
SUCCEEDS(cuWaitExternalSemaphoresAsync)
