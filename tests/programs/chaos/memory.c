/* Linear, pitched and managed memory, and how pointers are freed. */
#include "chaos.h"

static void made(struct actor *a, CUresult code, uint64_t at, size_t bytes) {
    put_made(a, at);
    if (!code && at != UNTOUCHED) keep(a, BLOCK, at, bytes);
}

void linear(struct actor *a) {
    CUdeviceptr at = UNTOUCHED;
    size_t bytes = some_size(a);
    if (is_full(a, BLOCK)) release(a);
    if (is_full(a, BLOCK)) return;
    CUresult code = CALL(a, cuMemAlloc_v2, place(a, &at), bytes);
    made(a, code, at, bytes);
}

void pitched(struct actor *a) {
    static const unsigned elements[] = {4, 8, 16, 16, 3};
    CUdeviceptr at = UNTOUCHED;
    size_t pitch = UNTOUCHED, bytes = some_size(a), width = draw(a) % 9000;
    unsigned element = elements[below(a, 5)];
    if (is_full(a, BLOCK)) release(a);
    if (is_full(a, BLOCK)) return;
    CUresult code = CALL(a, cuMemAllocPitch_v2, place(a, &at), place(a, &pitch), width, bytes / (width + 1), element);
    put_number(a, pitch);
    made(a, code, at, bytes);
}

void managed(struct actor *a) {
    static const unsigned flags[] = {1, 1, 1, 2, 4, 0, 9};
    CUdeviceptr at = UNTOUCHED;
    size_t bytes = some_size(a);
    if (is_full(a, BLOCK)) release(a);
    if (is_full(a, BLOCK)) return;
    CUresult code = CALL(a, cuMemAllocManaged, place(a, &at), bytes, flags[below(a, 7)]);
    made(a, code, at, bytes);
}

/* The first API, with pointers of 32 bits. */
void legacy(struct actor *a) {
    unsigned at = 0x5a5a5a5a, pitch = 0;
    size_t bytes = some_size(a);
    CUresult code;
    if (is_full(a, BLOCK)) release(a);
    if (is_full(a, BLOCK)) return;
    if (one_in(a, 3)) code = CALL(a, cuMemAllocPitch, place(a, &at), &pitch, 700, (unsigned)bytes / 700, 4);
    else code = CALL(a, cuMemAlloc, place(a, &at), (unsigned)bytes);
    if (at != 0x5a5a5a5a) made(a, code, at, bytes);
}

static CUresult free_once(struct actor *a, uint64_t at, int how, CUstream stream) {
    switch (how) {
    case 0: return CALL(a, cuMemFreeAsync, at, stream);
    case 1: return CALL(a, cuMemFreeAsync_ptsz, at, stream);
    case 2: if (at >> 32 == 0) return CALL(a, cuMemFree, (unsigned)at); /* fall through */
    default: return CALL(a, cuMemFree_v2, at);
    }
}

/* Memory of a pool may have gone with its context, and a graph's may be there now: a captured graph that frees that would be the
 * only one that may, and is perhaps never launched. */
static int is_of_a_pool(uint64_t at) {
    uint64_t pool = 0;
    return !cuPointerGetAttribute(&pool, 17, at) && pool;
}

/* By any function that may free a pointer, whatever allocated it. */
int free_pointer(struct actor *a, enum kind kind, struct thing *thing) {
    int how = below(a, kind == POOLED ? 4 : 6);
    CUstream stream = some_stream(a);
    uint64_t handle = thing->handle, at = spoilt(a, handle);
    if (a->capturing && (kind == LEFT || (kind == POOLED && !is_of_a_pool(at)))) return 0;
    CUresult code = free_once(a, at, how, stream);
    put_subject(a, at);
    /* In a capture a free is recorded or refused, and the memory stays. */
    int gone = at == handle && (code == SUCCESS || (code == INVALID_VALUE && !a->capturing));
    if (code == SUCCESS && a->capturing && stream == a->capturing && how < 2) gone = 0;
    if (gone) drop(a, kind, thing);
    /* Twice: no other thread may have got the address meanwhile. */
    if (gone && options.threads == 1 && one_in(a, 8)) free_once(a, handle, below(a, 4), NULL);
    return gone;
}

void release(struct actor *a) {
    static const enum kind kinds[] = {BLOCK, BLOCK, POOLED, LEFT};
    enum kind kind = kinds[below(a, 4)];
    if (!a->shelves[kind].count) kind = BLOCK;
    struct thing *thing = some(a, kind);
    if (thing) free_pointer(a, kind, thing);
    else free_once(a, spoilt(a, 0), below(a, 4), some_stream(a));
}

void look(struct actor *a) {
    static const int attributes[] = {2, 8, 9, 12, 17, 99};
    struct thing *thing = some(a, one_in(a, 2) ? BLOCK : POOLED);
    uint64_t at = spoilt(a, thing ? thing->handle : 0), base = UNTOUCHED;
    size_t bytes = UNTOUCHED;
    int attribute = attributes[below(a, 6)];
    uint64_t value = 0;
    CALL(a, cuMemGetAddressRange_v2, place(a, &base), place(a, &bytes), at + (thing ? thing->size / 2 : 0));
    put_known(a, base);
    put_number(a, bytes);
    CALL(a, cuPointerGetAttribute, place(a, &value), attribute, at);
    if (attribute == 17) put_found(a, (void *)value);
    else put_number(a, value);
}

void touch(struct actor *a) {
    struct thing *thing = some(a, one_in(a, 3) ? POOLED : BLOCK);
    uint64_t at = spoilt(a, thing ? thing->handle : 0);
    size_t bytes = thing && thing->size < 64 ? thing->size : 64;
    unsigned char back[64] = {0};
    CUresult code = CALL(a, cuMemsetD8_v2, at, (unsigned char)a->operation, bytes);
    if (!code) CALL(a, cuMemcpyDtoH_v2, back, at, bytes);
    if (!code) put_number(a, back[bytes ? bytes - 1 : 0]);
}

void info(struct actor *a) {
    size_t free = UNTOUCHED, total = UNTOUCHED;
    unsigned free_32 = 0, total_32 = 0;
    int device = some_device(a);
    switch (below(a, 6)) {
    case 0: CALL(a, cuMemGetInfo, place(a, &free_32), place(a, &total_32)); break;
    case 1: CALL(a, cuDeviceTotalMem_v2, place(a, &total), device); break;
    case 2: CALL(a, cuDeviceTotalMem, place(a, &total_32), device); break;
    default: CALL(a, cuMemGetInfo_v2, place(a, &free), place(a, &total)); break;
    }
    put_number(a, free);
    put_number(a, total);
    put_number(a, free_32);
    put_number(a, total_32);
}
