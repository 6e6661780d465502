/* Streams, events, waiting, and questions about devices. */
#include "chaos.h"

void synchronise(struct actor *a) {
    CUstream stream = some_stream(a);
    switch (below(a, 5)) {
    case 0: CALL0(a, cuCtxSynchronize); break;
    case 1: CALL(a, cuStreamSynchronize_ptsz, stream); break;
    case 2: CALL(a, cuStreamQuery, stream); break;
    case 3: CALL(a, cuStreamQuery_ptsz, stream); break;
    default: CALL(a, cuStreamSynchronize, stream); break;
    }
}

void new_stream(struct actor *a) {
    CUstream stream = (CUstream)UNTOUCHED;
    unsigned flags = one_in(a, 30) ? 6 : (unsigned)below(a, 2);
    CUcontext context = (CUcontext)UNTOUCHED;
    if (is_full(a, STREAM)) return end_stream(a);
    CUresult code = CALL(a, cuStreamCreate, place(a, &stream), flags);
    put_made(a, (uint64_t)stream);
    if (code || stream == (CUstream)UNTOUCHED) return;
    keep(a, STREAM, (uint64_t)stream, 0);
    CALL(a, cuStreamGetCtx, stream, place(a, &context));
    put_known(a, (uint64_t)context);
}

void end_stream(struct actor *a) {
    struct thing *stream = some(a, STREAM);
    uint64_t handle = spoilt(a, stream ? stream->handle : 0);
    if (stream && (CUstream)stream->handle == a->capturing) return;
    CUresult code = CALL(a, cuStreamDestroy_v2, (CUstream)handle);
    if (stream && handle == stream->handle && (code == SUCCESS || code == INVALID_HANDLE)) drop(a, STREAM, stream);
    if (!code && options.threads == 1 && one_in(a, 8)) CALL(a, cuStreamDestroy_v2, (CUstream)handle);
}

void event(struct actor *a) {
    struct thing *known = some(a, EVENT);
    CUevent made = (CUevent)UNTOUCHED;
    CUstream stream = some_stream(a);
    if (!known || (one_in(a, 4) && !is_full(a, EVENT))) {
        CUresult code = CALL(a, cuEventCreate, place(a, &made), one_in(a, 30) ? 99 : 2);
        put_made(a, (uint64_t)made);
        if (!code && made != (CUevent)UNTOUCHED) keep(a, EVENT, (uint64_t)made, 0);
        return;
    }
    CUevent handle = one_in(a, 50) ? (CUevent)16 : (CUevent)known->handle;
    switch (below(a, 6)) {
    case 0: CALL(a, cuEventSynchronize, handle); break;
    case 1: CALL(a, cuEventQuery, handle); break;
    case 2: CALL(a, cuStreamWaitEvent, stream, handle, 0); break;
    case 3:
        if (CALL(a, cuEventDestroy_v2, handle) == SUCCESS) drop(a, EVENT, known);
        break;
    default: CALL(a, cuEventRecord, handle, stream); break;
    }
}

void ask_device(struct actor *a) {
    CUdevice device = some_device(a), got = -7;
    int value = -7, attribute = below(a, 120);
    switch (below(a, 4)) {
    case 0:
        CALL(a, cuDeviceGetCount, place(a, &value));
        break;
    case 1:
        CALL(a, cuDeviceGet, place(a, &got), device);
        break;
    case 2: {
        unsigned char uuid[16] = {0};
        CALL(a, cuDeviceGetUuid_v2, place(a, uuid), device);
        value = uuid[0] + uuid[15];
        break;
    }
    default:
        CALL(a, cuDeviceGetAttribute, place(a, &value), attribute, device);
        break;
    }
    put_number(a, (unsigned)value);
    put_number(a, (unsigned)got);
}

/* Whether there is an address, never which. */
void resolve(struct actor *a) {
    static const char *const names[] = {"cuMemAlloc", "cuMemFree", "cuMemAlloc_v2", "cuLaunchKernel", "cuGraphInstantiate",
                                        "cuCtxCreate", "cuGetProcAddress", "", "cuNothing"};
    static const int versions[] = {1000, 2000, 3020, 7000, 11030, 12000, 13000, 99999};
    const char *name = names[below(a, 9)];
    int version = versions[below(a, 8)], status = -7;
    uint64_t flags = (uint64_t)below(a, 4);
    void *found = (void *)UNTOUCHED;
    if (one_in(a, 3)) CALL(a, cuGetProcAddress, name, &found, version, flags);
    else CALL(a, cuGetProcAddress_v2, name, &found, version, flags, one_in(a, 4) ? NULL : &status);
    put_found(a, found);
    put_number(a, (unsigned)status);
}
