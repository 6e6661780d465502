/* Points at which nothing is under way, and the end, at which nothing is left. */
#include "chaos.h"

/* A call that may have been made to fail is made again. */
#define INSIST(call) do { for (int tries = 0; (call) && tries < 3; tries++) { } } while (0)

static void settle_context(CUcontext context) {
    size_t free, total;
    CUcontext popped;
    if (cuCtxPushCurrent_v2(context)) return;
    INSIST(cuCtxSynchronize());
    /* Also where the driver looks for what others have let go. */
    INSIST(cuMemGetInfo_v2(&free, &total));
    INSIST(cuCtxPopCurrent_v2(&popped));
}

static void settle_all(struct actor *actors, int count) {
    for (int at = 0; at < count; at++)
        for (int own = 0; own < actors[at].shelves[CONTEXT].count; own++)
            settle_context((CUcontext)actors[at].shelves[CONTEXT].things[own].handle);
    for (int device = 0; device < DEVICES; device++) {
        unsigned flags;
        int active = 0;
        INSIST(cuDevicePrimaryCtxGetState(device, &flags, &active));
        if (active) settle_context(primaries[device]);
    }
    /* For who has no context: a call that frees nothing. */
    INSIST(cuMemFree_v2(0));
}

/* Everything is synchronised, twice: what is measured at most every 20 ms is measured at the second time. */
void settle(struct actor *actors, int count) {
    settle_all(actors, count);
    usleep(25000);
    settle_all(actors, count);
}

/* Tries to end each thing of a kind; what fails although nothing is wrong with it has been made to. */
void end_kind(struct actor *a, enum kind kind) {
    for (int tries = 0; a->shelves[kind].count && tries < 40 * ROOM; tries++) {
        begin_operation(a);
        struct thing *thing = some(a, kind);
        switch (kind) {
        case BLOCK: case POOLED: case LEFT: free_pointer(a, kind, thing); break;
        case POOL: end_pool(a); break;
        case PHYSICAL: release_physical(a); break;
        case MAPPING: end_mapping(a, thing); break;
        case ARRAY: end_array(a); break;
        case MIPMAP: end_mipmap(a); break;
        case MODULE: unload(a); break;
        case LIBRARY: unload_library(a); break;
        case STREAM: end_stream(a); break;
        case GRAPH: end_graph(a); break;
        case EXEC: end_exec(a); break;
        case CONTEXT: end_context(a); break;
        case EVENT: cuEventDestroy_v2((CUevent)thing->handle); drop(a, EVENT, thing); break;
        case KINDS: break;
        }
    }
    end_line(a);
    if (a->shelves[kind].count) fprintf(stderr, "chaos: %d of kind %d can't be ended\n", a->shelves[kind].count, kind);
}

/* Everything but the contexts. */
void drain(struct actor *a) {
    static const enum kind order[] = {EXEC, GRAPH, BLOCK, POOLED, LEFT, POOL, MAPPING, PHYSICAL, ARRAY, MIPMAP, MODULE, LIBRARY, EVENT, STREAM};
    for (size_t at = 0; at < sizeof order / sizeof *order; at++) {
        /* What was freed in streams is free before the pools go. */
        if (order[at] == POOL) settle_all(a, 1);
        end_kind(a, order[at]);
    }
    for (int device = 0; device < DEVICES; device++) {
        CUmemoryPool pool = NULL;
        INSIST(cuDeviceGetDefaultMemPool(&pool, device));
        INSIST(cuMemPoolTrimTo(pool, 0));
        INSIST(cuDeviceGraphMemTrim(device));
    }
}

void end_contexts(struct actor *a) {
    CUcontext popped;
    pthread_rwlock_rdlock(&shared_contexts);
    end_kind(a, CONTEXT);
    for (int device = 0; device < DEVICES; device++)
        for (int tries = 0; a->retained[device] && tries < 10000; tries++) release_one_primary(a, device);
    pthread_rwlock_unlock(&shared_contexts);
    while (!cuCtxPopCurrent_v2(&popped)) { }
    end_line(a);
}

/* What pools keep although nothing is allocated from them: the last look at each device, with a context of its own. Calls that
 * were made to fail are made again. */
void look_for_the_last_time(void) {
    for (int device = 0; device < DEVICES; device++) {
        CUcontext context;
        CUmemoryPool pool;
        INSIST(cuDevicePrimaryCtxRetain(&context, device));
        INSIST(cuCtxSetCurrent(context));
        INSIST(cuCtxSynchronize());
        if (!cuDeviceGetDefaultMemPool(&pool, device)) INSIST(cuMemPoolTrimTo(pool, 0));
        INSIST(cuDeviceGraphMemTrim(device));
        settle_context(context);
        INSIST(cuCtxSetCurrent(NULL));
        INSIST(cuDevicePrimaryCtxRelease_v2(device));
    }
}
