/* Streams, events, capture and graphs. */
#include "standrt.h"

EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    IN_CONTEXT(cuStreamCreate, stream, flags);
}

EXPORT cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    IN_CONTEXT(cuStreamCreateWithPriority, stream, flags, priority);
}

EXPORT cudaError_t cudaStreamDestroy(cudaStream_t stream) { IN_CONTEXT(cuStreamDestroy, stream); }

EXPORT cudaError_t cudaStreamQuery(cudaStream_t stream) { IN_CONTEXT(cuStreamQuery, stream); }

EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t stream) { IN_CONTEXT(cuStreamSynchronize, stream); }

EXPORT cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority)
{
    IN_CONTEXT(cuStreamGetPriority, stream, priority);
}

EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    IN_CONTEXT(cuStreamWaitEvent, stream, event, flags);
}

/* The two callback types differ in the status' name only. */
EXPORT cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void *data, unsigned flags)
{
    IN_CONTEXT(cuStreamAddCallback, stream, (CUstreamCallback)(void *)callback, data, flags);
}

EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data)
{
    IN_CONTEXT(cuLaunchHostFunc, stream, function, data);
}

EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    IN_CONTEXT(cuEventCreate, event, flags);
}

EXPORT cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event) { IN_CONTEXT(cuEventDestroy, event); }

EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { IN_CONTEXT(cuEventRecord, event, stream); }

EXPORT cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
    IN_CONTEXT(cuEventRecordWithFlags, event, stream, flags);
}

EXPORT cudaError_t cudaEventQuery(cudaEvent_t event) { IN_CONTEXT(cuEventQuery, event); }

EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t event) { IN_CONTEXT(cuEventSynchronize, event); }

EXPORT cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end)
{
    IN_CONTEXT(cuEventElapsedTime, milliseconds, begin, end);
}

EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    IN_CONTEXT(cuStreamBeginCapture, stream, (CUstreamCaptureMode)mode);
}

_Static_assert(sizeof(cudaGraphEdgeData) == sizeof(CUgraphEdgeData), "one layout under two names");

EXPORT cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t *after,
                                                 const cudaGraphEdgeData *edges, size_t count,
                                                 enum cudaStreamCaptureMode mode)
{
    IN_CONTEXT(cuStreamBeginCaptureToGraph, stream, graph, after, (const CUgraphEdgeData *)edges, count,
               (CUstreamCaptureMode)mode);
}

EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    IN_CONTEXT(cuStreamEndCapture, stream, graph);
}

EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    IN_CONTEXT(cuStreamIsCapturing, stream, (CUstreamCaptureStatus *)status);
}

EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                            unsigned long long *id, cudaGraph_t *graph, const cudaGraphNode_t **after,
                                            const cudaGraphEdgeData **edges, size_t *count)
{
    IN_CONTEXT(cuStreamGetCaptureInfo, stream, (CUstreamCaptureStatus *)status, (cuuint64_t *)id, graph, after,
               (const CUgraphEdgeData **)edges, count);
}

EXPORT cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t *after,
                                                       const cudaGraphEdgeData *edges, size_t count, unsigned flags)
{
    IN_CONTEXT(cuStreamUpdateCaptureDependencies, stream, after, (const CUgraphEdgeData *)edges, count, flags);
}

EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    NEED_DRIVER();
    return answer(DRIVER(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode *)mode));
}

EXPORT cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *ready, cudaGraph_t graph, unsigned long long flags)
{
    IN_CONTEXT(cuGraphInstantiateWithFlags, ready, graph, flags);
}

EXPORT cudaError_t cudaGraphInstantiate(cudaGraphExec_t *ready, cudaGraph_t graph, unsigned long long flags)
{
    return cudaGraphInstantiateWithFlags(ready, graph, flags);
}

EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t ready, cudaStream_t stream)
{
    IN_CONTEXT(cuGraphLaunch, ready, stream);
}

EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t graph) { IN_CONTEXT(cuGraphDestroy, graph); }

EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t ready) { IN_CONTEXT(cuGraphExecDestroy, ready); }

EXPORT cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    IN_CONTEXT(cuGraphGetNodes, graph, nodes, count);
}

EXPORT cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *after, cudaGraphEdgeData *edges,
                                                size_t *count)
{
    IN_CONTEXT(cuGraphNodeGetDependencies, node, after, (CUgraphEdgeData *)edges, count);
}

EXPORT cudaError_t cudaUserObjectCreate(cudaUserObject_t *object, void *pointer, cudaHostFn_t destroy, unsigned references,
                                        unsigned flags)
{
    IN_CONTEXT(cuUserObjectCreate, object, pointer, destroy, references, flags);
}

EXPORT cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned references)
{
    IN_CONTEXT(cuUserObjectRelease, object, references);
}

EXPORT cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned references,
                                             unsigned flags)
{
    IN_CONTEXT(cuGraphRetainUserObject, graph, object, references, flags);
}

/* Nodes are described in the runtime's own terms, kernels by functions of the host: not translated here. */
EXPORT cudaError_t cudaGraphAddNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *after,
                                    const cudaGraphEdgeData *edges, size_t count, struct cudaGraphNodeParams *what)
{
    (void)node, (void)graph, (void)after, (void)edges, (void)count, (void)what;
    return answer(CUDA_ERROR_NOT_SUPPORTED);
}

EXPORT cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle *handle, cudaGraph_t graph,
                                                    unsigned initial, unsigned flags)
{
    (void)handle, (void)graph, (void)initial, (void)flags;
    return answer(CUDA_ERROR_NOT_SUPPORTED);
}
