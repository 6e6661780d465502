/* Contexts of all kinds, which of them is current, and their limits. */
#include "chaos.h"

void *primaries[DEVICES];
pthread_rwlock_t shared_contexts = PTHREAD_RWLOCK_INITIALIZER;
enum { OWN_MAX = 3 };

void new_context(struct actor *a) {
    static const unsigned flags[] = {0, 0, 0, 1, 2, 4, 8, 3, 0x1000};
    CUcontext context = (CUcontext)UNTOUCHED;
    CUdevice device = some_device(a);
    unsigned flag = flags[below(a, 9)];
    CUresult code;
    if (a->shelves[CONTEXT].count >= OWN_MAX) return end_context(a);
    if (one_in(a, 3)) code = CALL(a, cuCtxCreate_v4, place(a, &context), NULL, flag, device);
    else if (one_in(a, 4)) code = CALL(a, cuCtxCreate, place(a, &context), flag, device);
    else code = CALL(a, cuCtxCreate_v2, place(a, &context), flag, device);
    put_made(a, (uint64_t)context);
    if (!code && context != (CUcontext)UNTOUCHED) keep(a, CONTEXT, (uint64_t)context, 0);
}

void end_context(struct actor *a) {
    struct thing *context = some(a, CONTEXT);
    uint64_t handle = spoilt(a, context ? context->handle : 0);
    CUresult code = CALL(a, cuCtxDestroy_v2, (CUcontext)handle);
    if (!context || handle != context->handle || (code != SUCCESS && code != INVALID_CONTEXT)) return;
    drop(a, CONTEXT, context);
    context_is_gone(a, (void *)handle);
    if (one_in(a, 8)) CALL(a, cuCtxDestroy_v2, (CUcontext)handle);
}

static CUcontext some_context(struct actor *a) {
    int device = below(a, DEVICES), own = one_in(a, 2);
    struct thing *context = some(a, CONTEXT);
    return context && own ? (CUcontext)context->handle : a->retained[device] ? primaries[device] : NULL;
}

void switch_context(struct actor *a) {
    CUcontext context = (CUcontext)spoilt(a, (uint64_t)some_context(a)), current = (CUcontext)UNTOUCHED;
    CUdevice device = -7;
    CALL(a, cuCtxSetCurrent, context);
    CALL(a, cuCtxGetCurrent, place(a, &current));
    put_known(a, (uint64_t)current);
    CALL(a, cuCtxGetDevice, place(a, &device));
    put_number(a, (unsigned)device);
}

void push_context(struct actor *a) { CALL(a, cuCtxPushCurrent_v2, (CUcontext)spoilt(a, (uint64_t)some_context(a))); }

void pop_context(struct actor *a) {
    CUcontext popped = (CUcontext)UNTOUCHED;
    CALL(a, cuCtxPopCurrent_v2, place(a, &popped));
    put_known(a, (uint64_t)popped);
}

void retain_primary(struct actor *a) {
    CUcontext context = (CUcontext)UNTOUCHED;
    CUdevice device = some_device(a);
    unsigned flags = 77;
    int active = 77;
    CUresult code = CALL(a, cuDevicePrimaryCtxRetain, place(a, &context), device);
    put_known(a, (uint64_t)context);
    if (!code && context != (CUcontext)UNTOUCHED) {
        a->retained[device]++;
        primaries[device] = context;
    }
    CALL(a, cuDevicePrimaryCtxGetState, device, place(a, &flags), place(a, &active));
    put_number(a, flags);
    put_number(a, (unsigned)active);
}

/* Alone, with all that follows from it: no other thread may use what ends with the context, or a new thing at its address. */
static void begin_alone(void) {
    pthread_rwlock_unlock(&shared_contexts);
    pthread_rwlock_wrlock(&shared_contexts);
}

static void end_alone(int device) {
    unsigned flags;
    int active = 1;
    if (device >= 0 && device < DEVICES && !cuDevicePrimaryCtxGetState(device, &flags, &active) && !active)
        for (int at = 0; at < options.threads; at++) context_is_gone(&actors[at], primaries[device]);
    pthread_rwlock_unlock(&shared_contexts);
    pthread_rwlock_rdlock(&shared_contexts);
}

void release_one_primary(struct actor *a, int device) {
    begin_alone();
    CUresult code = CALL(a, cuDevicePrimaryCtxRelease_v2, device);
    end_alone(device);
    if (device < 0 || device >= DEVICES) return;
    if (!code || code == INVALID_CONTEXT) a->retained[device] -= a->retained[device] > 0;
}

/* Never more often than it was retained by this thread, but for a mistake now and then. */
void release_primary(struct actor *a) {
    CUdevice device = some_device(a);
    int mistake = one_in(a, 40) && options.threads == 1;
    if (mistake || device < 0 || device >= DEVICES || a->retained[device]) release_one_primary(a, device);
}

void reset_primary(struct actor *a) {
    CUdevice device = some_device(a);
    begin_alone();
    CALL(a, cuDevicePrimaryCtxReset_v2, device);
    end_alone(device);
}

void set_limit(struct actor *a) {
    static const size_t values[] = {0, 1024, 1100, 1536, 2048, 1 << 20, 8 << 20, 12 << 20, 17 << 20, 64, (size_t)1 << 40};
    int limit = below(a, 9) - 1;
    CALL(a, cuCtxSetLimit, limit, values[below(a, 11)]);
}

void get_limit(struct actor *a) {
    size_t value = UNTOUCHED;
    int limit = below(a, 12) - 1;
    unsigned version = 0;
    CALL(a, cuCtxGetLimit, place(a, &value), limit);
    put_number(a, value);
    CALL(a, cuCtxGetApiVersion, NULL, place(a, &version));
    put_number(a, version);
    if (one_in(a, 4)) {
        CUcontext context = (CUcontext)UNTOUCHED;
        CALL(a, cuCtxAttach, place(a, &context), (unsigned)one_in(a, 9));
        put_known(a, (uint64_t)context);
        CALL(a, cuCtxDetach, context);
    }
}
