/* Memory in the order of streams, and the pools it comes from. */
#include "chaos.h"

static CUmemoryPool default_pool(int device) {
    CUmemoryPool pool = NULL;
    return cuDeviceGetDefaultMemPool(&pool, device) ? NULL : pool;
}

/* One of ours or a device's own. */
static CUmemoryPool any_pool(struct actor *a) {
    struct thing *pool = some(a, POOL);
    int device = below(a, DEVICES), own = one_in(a, 3);
    uint64_t handle = pool && !own ? pool->handle : (uint64_t)default_pool(device);
    return (CUmemoryPool)spoilt(a, handle);
}

static void made(struct actor *a, CUresult code, uint64_t at, size_t bytes, CUstream stream) {
    put_made(a, at);
    if (code || at == UNTOUCHED) return;
    if (!a->capturing || stream != a->capturing) {
        keep(a, POOLED, at, bytes);
        return;
    }
    /* What is captured becomes the graph's. */
    for (int block = 0; block < BLOCKS_MAX; block++) {
        if (a->recorded[block]) continue;
        a->recorded[block] = at;
        return;
    }
    CALL(a, cuMemFreeAsync, at, stream);
}

static int has_room(struct actor *a) {
    if (is_full(a, POOLED)) free_pointer(a, POOLED, some(a, POOLED));
    return !is_full(a, POOLED);
}

void async(struct actor *a) {
    CUdeviceptr at = UNTOUCHED;
    size_t bytes = some_size(a);
    CUstream stream = some_stream(a);
    if (!has_room(a)) return;
    CUresult code;
    if (one_in(a, 3)) code = CALL(a, cuMemAllocAsync_ptsz, place(a, &at), bytes, stream);
    else code = CALL(a, cuMemAllocAsync, place(a, &at), bytes, stream);
    made(a, code, at, bytes, stream);
}

void from_pool(struct actor *a) {
    CUdeviceptr at = UNTOUCHED;
    size_t bytes = some_size(a);
    CUstream stream = some_stream(a);
    CUmemoryPool pool = any_pool(a);
    CUresult code;
    if (!has_room(a)) return;
    if (one_in(a, 3)) code = CALL(a, cuMemAllocFromPoolAsync_ptsz, place(a, &at), bytes, pool, stream);
    else code = CALL(a, cuMemAllocFromPoolAsync, place(a, &at), bytes, pool, stream);
    put_subject(a, (uint64_t)pool);
    made(a, code, at, bytes, stream);
}

void make_pool(struct actor *a) {
    CUmemoryPool pool = (CUmemoryPool)UNTOUCHED;
    CUmemPoolProps properties;
    memset(&properties, 0, sizeof properties);
    properties.allocType = one_in(a, 40) ? 0 : 1;
    properties.handleTypes = one_in(a, 20) ? 1 : 0;
    properties.location = (CUmemLocation){one_in(a, 40) ? 2 : 1, some_device(a)};
    properties.maxSize = one_in(a, 4) ? 48 * MIB : 0;
    if (is_full(a, POOL)) return;
    CUresult code = CALL(a, cuMemPoolCreate, place(a, &pool), &properties);
    put_made(a, (uint64_t)pool);
    if (!code && pool != (CUmemoryPool)UNTOUCHED) keep(a, POOL, (uint64_t)pool, 0);
}

/* Also with memory that is still allocated from it. */
void end_pool(struct actor *a) {
    struct thing *pool = some(a, POOL);
    uint64_t handle = spoilt(a, pool ? pool->handle : 0);
    CUresult code = CALL(a, cuMemPoolDestroy, (CUmemoryPool)handle);
    put_subject(a, handle);
    if (pool && handle == pool->handle && (code == SUCCESS || code == INVALID_VALUE)) drop(a, POOL, pool);
}

void set_pool(struct actor *a) {
    CUmemoryPool pool = any_pool(a), current = (CUmemoryPool)UNTOUCHED;
    int device = some_device(a);
    CALL(a, cuDeviceSetMemPool, device, pool);
    CALL(a, cuDeviceGetMemPool, place(a, &current), device);
    put_known(a, (uint64_t)current);
}

void trim_pool(struct actor *a) {
    size_t keep_bytes = one_in(a, 2) ? 0 : some_size(a);
    CUmemoryPool pool = any_pool(a);
    CALL(a, cuMemPoolTrimTo, pool, keep_bytes);
    put_subject(a, (uint64_t)pool);
}

void set_pool_attribute(struct actor *a) {
    static const uint64_t thresholds[] = {0, 0, 1, 32 * MIB, 100 * MIB, UINT64_MAX};
    static const int attributes[] = {1, 2, 3, 4, 4, 4, 4, 4, 5, 6, 8, 99};
    uint64_t value = thresholds[below(a, 6)];
    int attribute = attributes[below(a, 12)];
    CUmemoryPool pool = any_pool(a);
    CALL(a, cuMemPoolSetAttribute, pool, attribute, place(a, &value));
    put_subject(a, (uint64_t)pool);
}

void get_pool_attribute(struct actor *a) {
    uint64_t value = 0;
    int attribute = below(a, 16);
    CUmemoryPool pool = any_pool(a);
    CALL(a, cuMemPoolGetAttribute, pool, attribute, place(a, &value));
    put_number(a, value);
}
