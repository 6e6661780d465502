/* The ways to launch, and what they need. */
#include "busy.h"

typedef struct {
    CUfunction function;
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    CUstream stream;
    void **parameters;
} CUDA_LAUNCH_PARAMS;
CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *, unsigned, unsigned);
CUresult cuLaunchKernel_ptsz(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);
CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *, CUfunction, void **, void **);
CUresult cuLaunchCooperativeKernel_ptsz(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **);
CUresult cuGraphLaunch_ptsz(CUgraphExec, CUstream);
CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr, CUdeviceptr, size_t, CUstream);
CUresult cuMemsetD8Async_ptsz(CUdeviceptr, unsigned char, size_t, CUstream);

/* The same launch on all devices, for the calls that take a list. */
static CUDA_LAUNCH_PARAMS everywhere[DEVICES_MAX];

CUcontext use_device(int device) {
    CUcontext context;
    NEED(cuDevicePrimaryCtxRetain(&context, device));
    NEED(cuCtxSetCurrent(context));
    return context;
}

CUfunction function_named(const char *name) {
    char image[512];
    CUmodule module;
    CUfunction function;
    snprintf(image, sizeof image, ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry %s() { ret; }\n", name);
    NEED(cuModuleLoadData(&module, image));
    NEED(cuModuleGetFunction(&function, module, name));
    return function;
}

static void open_graph(struct lane *lane) {
    CUstream stream;
    CUgraph graph;
    NEED(cuStreamCreate(&stream, 1));
    NEED(cuStreamBeginCapture_v2(stream, 1));
    for (int i = 0; i < options.nodes; i++) NEED(launch(lane->function, stream));
    NEED(cuStreamEndCapture(stream, &graph));
    NEED(cuGraphInstantiateWithFlags(&lane->graph, graph, 0));
    NEED(cuGraphDestroy(graph));
    NEED(cuStreamDestroy_v2(stream));
}

static void open_everywhere(void) {
    for (int i = 0; i < options.device_count; i++) {
        use_device(options.devices[i]);
        CUstream stream;
        NEED(cuStreamCreate(&stream, 1));
        everywhere[i] = (CUDA_LAUNCH_PARAMS){function_named(options.kernel), 1, 1, 1, 1, 1, 1, 0, stream, NULL};
    }
}

void open_lane(struct lane *lane) {
    if (options.launch == MULTI) open_everywhere();
    lane->context = use_device(options.device);
    lane->function = function_named(options.kernel);
    for (int i = 0; i < options.streams; i++) {
        if (options.stream == OWN) NEED(cuStreamCreate(&lane->streams[i], 1));
        else lane->streams[i] = NULL;
    }
    if (options.launch == GRAPH) open_graph(lane);
    if (options.launch == GRID) NEED(cuFuncSetBlockShape(lane->function, 1, 1, 1));
    if (options.launch == COPIES || options.launch == MEMSETS) {
        NEED(cuMemAlloc_v2(&lane->from, options.bytes));
        NEED(cuMemAlloc_v2(&lane->to, options.bytes));
    }
}

static CUresult launch_own(struct lane *lane, CUstream stream) {
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, stream, NULL, 0};
    switch (options.launch) {
    case EX: return cuLaunchKernelEx(&config, lane->function, NULL, NULL);
    case COOP: return cuLaunchCooperativeKernel(lane->function, 1, 1, 1, 1, 1, 1, 0, stream, NULL);
    case MULTI: return cuLaunchCooperativeKernelMultiDevice(everywhere, options.device_count, 0);
    case GRID: return cuLaunchGridAsync(lane->function, 1, 1, stream);
    case GRAPH: return cuGraphLaunch(lane->graph, stream);
    case COPIES: return cuMemcpyDtoDAsync_v2(lane->to, lane->from, options.bytes, stream);
    case MEMSETS: return cuMemsetD8Async(lane->to, 1, options.bytes, stream);
    default: return launch(lane->function, stream);
    }
}

/* The same by the names that programs with per-thread default streams call. */
static CUresult launch_ptds(struct lane *lane) {
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, NULL, NULL, 0};
    switch (options.launch) {
    case EX: return cuLaunchKernelEx_ptsz(&config, lane->function, NULL, NULL);
    case COOP: return cuLaunchCooperativeKernel_ptsz(lane->function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL);
    case GRAPH: return cuGraphLaunch_ptsz(lane->graph, NULL);
    case COPIES: return cuMemcpyDtoDAsync_v2_ptsz(lane->to, lane->from, options.bytes, NULL);
    case MEMSETS: return cuMemsetD8Async_ptsz(lane->to, 1, options.bytes, NULL);
    default: return cuLaunchKernel_ptsz(lane->function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    }
}

CUresult launch_in(struct lane *lane) {
    if (options.stream == PTDS) return launch_ptds(lane);
    CUstream stream = lane->streams[lane->next];
    lane->next = (lane->next + 1) % options.streams;
    return launch_own(lane, stream);
}

CUresult finish(struct lane *lane) {
    CUresult code = 0;
    if (options.stream == PTDS) return cuStreamSynchronize_ptsz(NULL);
    if (options.launch == MULTI) {
        for (int i = 0; i < options.device_count && !code; i++) code = cuStreamSynchronize(everywhere[i].stream);
        return code;
    }
    for (int i = 0; i < options.streams && !code; i++) code = cuStreamSynchronize(lane->streams[i]);
    return code;
}
