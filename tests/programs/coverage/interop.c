/* Calls that the simulated driver doesn't know: other graphics APIs, mostly. Their code passes, their outputs are as they were,
 * nothing is charged. */
#include "coverage.h"

#define OUTPUTS uint64_t out[2] = {POISON, POISON}
#define UNKNOWN(...) \
    begin(); \
    is_unknown(CALL(__VA_ARGS__)); \
    at("nothing is charged", 0, CTX)
#define UNKNOWN_AND_UNTOUCHED(...) \
    OUTPUTS; \
    UNKNOWN(__VA_ARGS__); \
    is_untouched("the outputs are as they were", out, sizeof out)

WHOLE(cuEventCreateFromEGLSync) { UNKNOWN_AND_UNTOUCHED((void *, void *, unsigned), out, NULL, 0); }
WHOLE(cuGLRegisterBufferObject) { UNKNOWN((unsigned), 1); }
WHOLE(cuGLUnregisterBufferObject) { UNKNOWN((unsigned), 1); }
WHOLE(cuGLMapBufferObject) { UNKNOWN_AND_UNTOUCHED((void *, void *, unsigned), out, out + 1, 1); }
WHOLE(cuGLMapBufferObject_v2) { UNKNOWN_AND_UNTOUCHED((void *, void *, unsigned), out, out + 1, 1); }
WHOLE(cuGLMapBufferObjectAsync) { UNKNOWN_AND_UNTOUCHED((void *, void *, unsigned, CUstream), out, out + 1, 1, NULL); }
WHOLE(cuGLMapBufferObjectAsync_v2) { UNKNOWN_AND_UNTOUCHED((void *, void *, unsigned, CUstream), out, out + 1, 1, NULL); }
WHOLE(cuGLUnmapBufferObject) { UNKNOWN((unsigned), 1); }
WHOLE(cuGLUnmapBufferObjectAsync) { UNKNOWN((unsigned, CUstream), 1, NULL); }
WHOLE(cuGLGetDevices) { UNKNOWN_AND_UNTOUCHED((void *, void *, unsigned, int), out, out + 1, 1, 1); }
WHOLE(cuGLGetDevices_v2) { UNKNOWN_AND_UNTOUCHED((void *, void *, unsigned, int), out, out + 1, 1, 1); }
WHOLE(cuGraphicsEGLRegisterImage) { UNKNOWN_AND_UNTOUCHED((void *, void *, unsigned), out, NULL, 0); }
WHOLE(cuGraphicsGLRegisterBuffer) { UNKNOWN_AND_UNTOUCHED((void *, unsigned, unsigned), out, 1, 0); }
WHOLE(cuGraphicsGLRegisterImage) { UNKNOWN_AND_UNTOUCHED((void *, unsigned, unsigned, unsigned), out, 1, 1, 0); }
WHOLE(cuGraphicsVDPAURegisterOutputSurface) { UNKNOWN_AND_UNTOUCHED((void *, unsigned, unsigned), out, 1, 0); }
WHOLE(cuGraphicsVDPAURegisterVideoSurface) { UNKNOWN_AND_UNTOUCHED((void *, unsigned, unsigned), out, 1, 0); }
WHOLE(cuGraphicsUnregisterResource) { UNKNOWN((void *), nobody()); }
WHOLE(cuGraphicsMapResources) { UNKNOWN_AND_UNTOUCHED((unsigned, void *, CUstream), 1, out, NULL); }
WHOLE(cuGraphicsUnmapResources) { UNKNOWN_AND_UNTOUCHED((unsigned, void *, CUstream), 1, out, NULL); }
WHOLE(cuVDPAUGetDevice) { UNKNOWN_AND_UNTOUCHED((void *, unsigned, void *), out, 0, NULL); }

static CUresult gl(void *out) { return CALL((void *, unsigned, CUdevice), out, 0, 0); }
static CUresult vdpau(void *out) { return CALL((void *, unsigned, CUdevice, unsigned, void *), out, 0, 0, 0, NULL); }

static void context_of(CUresult (*create)(void *)) {
    OUTPUTS;
    begin();
    is_unknown(create(out));
    is_untouched("the outputs are as they were", out, sizeof out);
    at("nothing is charged", 0, CTX);
}

/* What a context costs is known by then: one that doesn't fit is refused, and the driver isn't asked. */
static void context_within(CUresult (*create)(void *)) {
    OUTPUTS;
    begin();
    CUdeviceptr filler = fill(100 * MIB);
    is("a context that does not fit", create(out), OUT_OF_MEMORY);
    is_untouched("the outputs are as they were", out, sizeof out);
    at("nothing is charged", QUOTA - CTX - 100 * MIB, CTX);
    NEED(cuMemFree_v2(filler));
    is_unknown(create(out));
    at("nothing is kept", 0, CTX);
}

WHOLE(cuGLCtxCreate) { context_of(gl); }
WHOLE(cuGLCtxCreate_v2) { context_of(gl); }
WHOLE(cuVDPAUCtxCreate) { context_of(vdpau); }
WHOLE(cuVDPAUCtxCreate_v2) { context_of(vdpau); }
PART(cuGLCtxCreate) { context_within(gl); }
PART(cuGLCtxCreate_v2) { context_within(gl); }
PART(cuVDPAUCtxCreate) { context_within(vdpau); }
PART(cuVDPAUCtxCreate_v2) { context_within(vdpau); }

WHOLE(cuStreamBeginCaptureToCig) { UNKNOWN((CUstream, void *), NULL, NULL); }
WHOLE(cuStreamEndCaptureToCig) { UNKNOWN((CUstream), NULL); }
WHOLE(cuStreamBeginRecaptureToGraph) { UNKNOWN((CUstream, int, CUgraph, void *, void *), NULL, 0, NULL, NULL, NULL); }
