/* Kernels: which launches are refused, how long they take, every form of launching. */
#include "driver.h"

static CUresult shaped(CUfunction f, unsigned grid_x, unsigned grid_y, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes) {
    return cuLaunchKernel(f, grid_x, grid_y, 1, block_x, block_y, block_z, shared_bytes, NULL, NULL, NULL);
}

static void refused(CUfunction f) {
    is("a kernel", shaped(f, 1, 1, 1, 1, 1, 0), SUCCESS);
    is("a large one", shaped(f, 2147483647, 65535, 1024, 1, 1, 0), SUCCESS);
    is("no grid", shaped(f, 0, 1, 1, 1, 1, 0), INVALID_VALUE);
    is("no block", shaped(f, 1, 1, 0, 1, 1, 0), INVALID_VALUE);
    is("more threads than a block has", shaped(f, 1, 1, 1025, 1, 1, 0), INVALID_VALUE);
    is("more in two dimensions", shaped(f, 1, 1, 64, 64, 1, 0), INVALID_VALUE);
    is("a grid too high", shaped(f, 1, 65536, 1, 1, 1, 0), INVALID_VALUE);
    is("a block too deep", shaped(f, 1, 1, 1, 1, 65, 0), INVALID_VALUE);
    is("more shared memory than was asked for", shaped(f, 1, 1, 1, 1, 1, 49153), INVALID_VALUE);
    is("more may be asked for", cuFuncSetAttribute(f, 8, 100000), SUCCESS);
    is("and used", shaped(f, 1, 1, 1, 1, 1, 100000), SUCCESS);
    is("but not without end", cuFuncSetAttribute(f, 8, 10000000), INVALID_VALUE);
    is("an invented function", shaped((CUfunction)(uintptr_t)0x1234, 1, 1, 1, 1, 1, 0), INVALID_HANDLE);
    is("an invented stream", launch(f, (CUstream)(uintptr_t)0x5555), INVALID_HANDLE);
}

static void busy(CUfunction slow) {
    CUstream stream, other;
    NEED(cuStreamCreate(&stream, 1));
    NEED(cuStreamCreate(&other, 1));
    double begun = now_ms();
    NEED(launch(slow, stream));
    NEED(cuStreamSynchronize(stream));
    HOLDS("twenty milliseconds", now_ms() - begun >= 19.9);
    is("then it is done", cuStreamQuery(stream), SUCCESS);
    begun = now_ms();
    NEED(launch(slow, stream));
    NEED(launch(slow, other));
    NEED(cuCtxSynchronize());
    HOLDS("two streams share one device", now_ms() - begun >= 39.8);
    NEED(launch(kernel("k_2000ms"), stream));
    is("a launch does not wait", cuStreamQuery(stream), NOT_READY);
    NEED(cuStreamDestroy_v2(stream));
    NEED(cuStreamDestroy_v2(other));
}

/* The driver takes a thousand launches ahead of the device and then lets the program wait. */
static void bounded(CUstream stream) {
    CUfunction f = kernel("k_100us");
    double begun = now_ms();
    for (int i = 0; i < 1524; i++) NEED(launch(f, stream));
    HOLDS("the queue is bounded", now_ms() - begun >= 49);
    NEED(cuStreamSynchronize(stream));
    HOLDS("and every kernel runs", now_ms() - begun >= 152);
}

static void extended(CUfunction f, CUstream stream) {
    CUlaunchAttribute attribute;
    CUlaunchConfig config;
    memset(&config, 0, sizeof config);
    memset(&attribute, 0, sizeof attribute);
    config.gridDimX = config.gridDimY = config.gridDimZ = config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    config.hStream = stream;
    is("a launch with attributes, none given", cuLaunchKernelEx(&config, f, NULL, NULL), SUCCESS);
    attribute.id = 2, attribute.value.cooperative = 1;
    config.attrs = &attribute, config.numAttrs = 1;
    is("cooperative by attribute", cuLaunchKernelEx(&config, f, NULL, NULL), SUCCESS);
    config.blockDimX = 0;
    is("no block with attributes", cuLaunchKernelEx(&config, f, NULL, NULL), INVALID_VALUE);
    is("no configuration", cuLaunchKernelEx(NULL, f, NULL, NULL), INVALID_VALUE);
    is("cooperative", cuLaunchCooperativeKernel(f, 10, 1, 1, 128, 1, 1, 0, stream, NULL), SUCCESS);
    is("more blocks than run at once", cuLaunchCooperativeKernel(f, 1000000, 1, 1, 128, 1, 1, 0, stream, NULL), COOPERATIVE_TOO_LARGE);
}

static void classic(CUfunction f, CUstream stream) {
    is("shape", cuFuncSetBlockShape(f, 32, 1, 1), SUCCESS);
    is("parameters", cuParamSetSize(f, 4), SUCCESS);
    is("one of them", cuParamSeti(f, 0, 1), SUCCESS);
    is("a grid", cuLaunchGrid(f, 2, 2), SUCCESS);
    is("a single block", cuLaunch(f), SUCCESS);
    is("on a stream", cuLaunchGridAsync(f, 1, 1, stream), SUCCESS);
    is("no grid in the old form", cuLaunchGrid(f, 0, 1), INVALID_VALUE);
}

static size_t shared_bytes(int block) { return (size_t)block * 64; }

static void occupancy(CUfunction f) {
    int blocks = 0, more = 0, grid = 0, block = 0;
    size_t bytes = 0;
    NEED(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 1024, 0));
    is("two full blocks of 1024 threads", blocks, 2);
    NEED(cuOccupancyMaxActiveBlocksPerMultiprocessor(&more, f, 128, 0));
    HOLDS("more of fewer threads", more > blocks);
    NEED(cuOccupancyMaxPotentialBlockSize(&grid, &block, f, NULL, 0, 0));
    HOLDS("the best block", block > 0 && block <= 1024 && block % 32 == 0 && grid > 0);
    NEED(cuOccupancyMaxPotentialBlockSize(&grid, &block, f, shared_bytes, 0, 0));
    HOLDS("the best block with shared memory", block > 0 && block <= 1024);
    NEED(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, f, 2, 256));
    HOLDS("shared memory that is left", bytes > 0);
    is("no threads", cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 0, 0), INVALID_VALUE);
}

static void *without_a_context(void *f) {
    is("a thread without a context does not launch", launch(f, NULL), INVALID_CONTEXT);
    return NULL;
}

int main(void) {
    CUstream stream;
    pthread_t thread;
    begin();
    CUfunction quick = kernel("spin_0us");
    NEED(cuStreamCreate(&stream, 1));
    refused(quick);
    bounded(stream);
    extended(quick, stream);
    classic(quick, stream);
    occupancy(quick);
    if (pthread_create(&thread, NULL, without_a_context, quick)) return 70;
    pthread_join(thread, NULL);
    busy(kernel("spin_20ms"));
    return verdict();
}
