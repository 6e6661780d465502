/* Launches of kernels and graphs, and what else a stream is given that takes no time on the device. */
#include "launches.h"

PACED(cuLaunchKernel) {
    return CALL((CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **),
                nothing, 2, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
}
PACED(cuLaunchKernelEx) {
    CUlaunchConfig shape = {2, 1, 1, 32, 1, 1, 0, stream, NULL, 0};
    return CALL((const CUlaunchConfig *, CUfunction, void **, void **), &shape, nothing, NULL, NULL);
}
PACED(cuLaunchCooperativeKernel) {
    return CALL((CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **), nothing, 2, 1,
                1, 32, 1, 1, 0, stream, NULL);
}
PACED(cuLaunch) { return CALL((CUfunction), nothing); }
PACED(cuLaunchGrid) { return CALL((CUfunction, int, int), nothing, 2, 2); }
PACED(cuLaunchGridAsync) { return CALL((CUfunction, int, int, CUstream), nothing, 2, 2, stream); }

typedef struct {
    CUfunction function;
    unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    CUstream hStream;
    void **kernelParams;
} CUDA_LAUNCH_PARAMS;

/* A piece of work on each device: the reader adds them up. */
LAUNCH(cuLaunchCooperativeKernelMultiDevice, PACED_ON_BOTH) {
    static CUfunction other;
    static CUstream other_stream;
    if (!other) {
        CUmodule module;
        NEED(cuCtxSetCurrent(there_context));
        NEED(cuModuleLoadData(&module, "fake"));
        NEED(cuModuleGetFunction(&other, module, "spin_0us"));
        other_stream = stream_of_its_own();
        NEED(cuCtxSetCurrent(here_context));
    }
    CUDA_LAUNCH_PARAMS each[2] = {
        {nothing, 2, 1, 1, 32, 1, 1, 0, stream, NULL},
        {other, 2, 1, 1, 32, 1, 1, 0, other_stream, NULL},
    };
    return CALL((CUDA_LAUNCH_PARAMS *, unsigned, unsigned), each, 2, 0);
}

PACED(cuGraphLaunch) {
    static CUgraphExec instance;
    if (!instance) {
        CUgraph graph;
        CUgraphNode node;
        CUDA_KERNEL_NODE_PARAMS wanted = {nothing, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL, NULL};
        NEED(cuGraphCreate(&graph, 0));
        for (int i = 0; i < 3; i++) NEED(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &wanted));
        NEED(cuGraphInstantiateWithFlags(&instance, graph, 0));
    }
    return CALL((CUgraphExec, CUstream), instance, stream);
}

static void on_the_host(void *unused) { (void)unused; }
static void after_the_stream(CUstream of, CUresult code, void *unused) { (void)of, (void)code, (void)unused; }

PASSED(cuLaunchHostFunc) { return CALL((CUstream, CUhostFn, void *), stream, on_the_host, NULL); }
PASSED(cuLaunchHostFunc_v2) { return CALL((CUstream, CUhostFn, void *, unsigned), stream, on_the_host, NULL, 0); }
PASSED(cuStreamAddCallback) {
    return CALL((CUstream, void (*)(CUstream, CUresult, void *), void *, unsigned), stream, after_the_stream, NULL, 0);
}

/* Nobody is waited for: the word is 0 already. */
#define WORD(symbol, word) \
    PASSED(symbol) { return CALL((CUstream, CUdeviceptr, word, unsigned), stream, one, 0, 0); }
WORD(cuStreamWaitValue32, uint32_t)
WORD(cuStreamWaitValue32_v2, uint32_t)
WORD(cuStreamWaitValue64, uint64_t)
WORD(cuStreamWaitValue64_v2, uint64_t)
WORD(cuStreamWriteValue32, uint32_t)
WORD(cuStreamWriteValue32_v2, uint32_t)
WORD(cuStreamWriteValue64, uint64_t)
WORD(cuStreamWriteValue64_v2, uint64_t)

typedef struct { int operation; CUdeviceptr address; uint64_t value; unsigned flags; CUdeviceptr alias; uint64_t pad; } word_operation;

static CUresult words(void) {
    word_operation write = {2, one, 0, 0, 0, 0};
    return CALL((CUstream, unsigned, word_operation *, unsigned), stream, 1, &write, 0);
}
PASSED(cuStreamBatchMemOp) { return words(); }
PASSED(cuStreamBatchMemOp_v2) { return words(); }

static CUresult semaphores(void) { return CALL((void **, void *, unsigned, CUstream), NULL, NULL, 0, stream); }
PASSED(cuSignalExternalSemaphoresAsync) { return semaphores(); }
PASSED(cuWaitExternalSemaphoresAsync) { return semaphores(); }
