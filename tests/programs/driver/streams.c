/* Streams: work in order, the rules of the default streams, host functions, values in memory. */
#include "driver.h"

static volatile int seen;
static pthread_t ran_on;
static CUstream watched;
static CUresult inside[3];

static void note(void *value) {
    ran_on = pthread_self();
    seen = *(int *)value;
}

/* A host function that runs once it is let go. */
static void noted_later(CUstream stream, int *value) {
    hold(stream);
    NEED(cuLaunchHostFunc(stream, note, value));
}

static void calls_the_driver(void *unused) {
    (void)unused;
    inside[0] = cuStreamSynchronize(watched);
    inside[1] = cuCtxSynchronize();
    inside[2] = cuStreamQuery(NULL);
}

static void called_back(CUstream stream, CUresult status, void *value) { *(int *)value = stream == watched && status == 0 ? 7 : -1; }

static void properties(CUcontext context, CUstream plain, CUstream urgent) {
    CUcontext owner = NULL;
    CUdevice device = -1;
    CUlaunchAttributeValue policy;
    int priority = 7;
    unsigned flags = 7;
    unsigned long long id = 0, other = 0;
    CUstream none = &none;
    NEED(cuStreamGetPriority(urgent, &priority));
    is("priority", priority, -3);
    NEED(cuStreamGetFlags(urgent, &flags));
    is("flags", flags, 1);
    NEED(cuStreamGetCtx(plain, &owner));
    HOLDS("context", owner == context);
    NEED(cuStreamGetDevice(plain, &device));
    is("device", device, 0);
    NEED(cuStreamGetId(plain, &id));
    NEED(cuStreamGetId(urgent, &other));
    HOLDS("ids differ", id != other);
    memset(&policy, 0, sizeof policy);
    policy.syncPolicy = 2;
    NEED(cuStreamSetAttribute(plain, 3, &policy));
    memset(&policy, 0, sizeof policy);
    NEED(cuStreamGetAttribute(plain, 3, &policy));
    is("an attribute is kept", policy.syncPolicy, 2);
    is("unknown flags", cuStreamCreate(&none, 8), INVALID_VALUE);
    is("no output", cuStreamCreate(NULL, 0), INVALID_VALUE);
    HOLDS("a failed call leaves the output alone", none == (void *)&none);
    is("an invented stream", cuStreamQuery((CUstream)(uintptr_t)0x5555), INVALID_HANDLE);
}

static void order(CUstream plain, CUstream urgent) {
    int value = 42;
    seen = 0;
    noted_later(plain, &value);
    is("a host function runs later", seen, 0);
    is("the stream is busy", cuStreamQuery(plain), NOT_READY);
    is("another one is not", cuStreamQuery(urgent), SUCCESS);
    let_go();
    NEED(cuStreamSynchronize(plain));
    is("it has run", seen, 42);
    HOLDS("on a thread of the driver's", !pthread_equal(ran_on, pthread_self()));
    watched = plain;
    hold(plain);
    NEED(cuLaunchHostFunc(plain, calls_the_driver, NULL));
    let_go();
    NEED(cuStreamSynchronize(plain));
    HOLDS("it may not call the driver", inside[0] == NOT_PERMITTED && inside[1] == NOT_PERMITTED && inside[2] == NOT_PERMITTED);
    value = 0;
    NEED(cuStreamAddCallback(plain, called_back, &value, 0));
    NEED(cuStreamSynchronize(plain));
    is("a callback is told its stream", value, 7);
}

static void default_streams(CUstream plain, CUstream apart) {
    CUfunction quick = kernel("spin_0us");
    int value = 1;
    seen = 0;
    noted_later(plain, &value);
    NEED(launch(quick, NULL));
    is("the legacy stream waits for blocking ones", cuStreamQuery(NULL), NOT_READY);
    let_go();
    NEED(cuStreamSynchronize(NULL));
    is("they are done before it is", seen, 1);
    value = 2;
    noted_later(NULL, &value);
    NEED(launch(quick, plain));
    is("blocking streams wait for it", cuStreamQuery(plain), NOT_READY);
    is("others do not", cuStreamQuery(apart), SUCCESS);
    let_go();
    NEED(cuStreamSynchronize(plain));
    is("it is done before they are", seen, 2);
    value = 3, seen = 0;
    noted_later(apart, &value);
    NEED(cuStreamSynchronize(NULL));
    is("it does not wait for those apart", seen, 0);
    let_go();
    NEED(cuCtxSynchronize());
    is("the context waits for all", seen, 3);
    CUstream legacy = (CUstream)(uintptr_t)1, per_thread = (CUstream)(uintptr_t)2;
    gate_is_open = 0;
    NEED(cuLaunchHostFunc_ptsz(NULL, wait_at_the_gate, NULL));
    is("a per-thread name means the thread's own stream", cuStreamQuery(per_thread), NOT_READY);
    is("for which the legacy one waits", cuStreamQuery(legacy), NOT_READY);
    let_go();
    NEED(cuStreamSynchronize_ptsz(NULL));
    is("both are done", cuStreamQuery(legacy), SUCCESS);
}

static void values(CUstream waiting, CUstream writing) {
    CUdeviceptr word;
    unsigned out = 0;
    NEED(cuMemAlloc_v2(&word, 4096));
    NEED(cuMemsetD8_v2(word, 0, 4096));
    NEED(cuStreamWaitValue32_v2(waiting, word, 5, 0));
    NEED(launch(kernel("spin_0us"), waiting));
    usleep(5000);
    is("a stream waits for a value", cuStreamQuery(waiting), NOT_READY);
    NEED(cuStreamWriteValue32_v2(writing, word, 6, 0));
    NEED(cuStreamSynchronize(waiting));
    NEED(cuMemcpyDtoH_v2(&out, word, sizeof out));
    is("that another one writes", out, 6);
    is("a word off its boundary", cuStreamWriteValue32_v2(writing, word + 2, 6, 0), INVALID_VALUE);
    NEED(cuMemFree_v2(word));
}

static void copies(CUstream stream) {
    unsigned *pinned = NULL;
    int value = 9;
    CUdeviceptr word;
    NEED(cuMemAlloc_v2(&word, 4096));
    NEED(cuMemHostAlloc((void **)&pinned, 4096, 0));
    pinned[0] = 77, pinned[2] = 0;
    noted_later(stream, &value);
    NEED(cuMemcpyHtoDAsync_v2(word, pinned, 4, stream));
    NEED(cuMemcpyDtoHAsync_v2(pinned + 2, word, 4, stream));
    is("a copy waits its turn", pinned[2], 0);
    let_go();
    NEED(cuStreamSynchronize(stream));
    is("and comes", pinned[2], 77);
    NEED(cuMemFreeHost(pinned));
    NEED(cuMemFree_v2(word));
}

static void ends(CUstream plain) {
    int value = 11;
    noted_later(plain, &value);
    NEED(cuStreamDestroy_v2(plain));
    is("a destroyed stream has no handle", cuStreamQuery(plain), INVALID_HANDLE);
    let_go();
    NEED(cuCtxSynchronize());
    is("but its work is done", seen, 11);
    is("destroyed twice", cuStreamDestroy_v2(plain), INVALID_HANDLE);
    HOLDS("the default stream is not destroyed", cuStreamDestroy_v2(NULL) != SUCCESS);
}

int main(void) {
    CUstream plain, urgent;
    CUcontext context = begin();
    NEED(cuStreamCreate(&plain, 0));
    NEED(cuStreamCreateWithPriority(&urgent, 1, -3));
    properties(context, plain, urgent);
    order(plain, urgent);
    default_streams(plain, urgent);
    values(plain, urgent);
    copies(plain);
    ends(plain);
    return verdict();
}
