/* Physical memory and its mappings: charged from its creation until no handle, mapping, tile or other holder is left. */
#include "coverage.h"

static CUresult create(uint64_t *out, size_t bytes, CUmemLocation where, int handle_types) {
    CUmemAllocationProp wanted = {1, handle_types, where, NULL, {0, 0, 0, {0}}};
    return CALL((uint64_t *, size_t, const CUmemAllocationProp *, unsigned long long), out, bytes, &wanted, 0);
}

WHOLE(cuMemCreate) {
    CUmemLocation here = {1, 0}, there = {1, 1}, host = {2, 0}, nowhere = {1, 7};
    uint64_t one, two, three, none = POISON;
    begin();
    is("6 MiB", create(&one, 6 * MIB, here, 0), SUCCESS);
    at("three pages", 6 * MIB, CTX);
    is("on another device than the context", create(&two, 4 * MIB, there, 0), SUCCESS);
    at_both("are that device's", 6 * MIB, CTX, 4 * MIB, 0);
    is("on the host", create(&three, 8 * MIB, host, 0), SUCCESS);
    at_both("are nobody's", 6 * MIB, CTX, 4 * MIB, 0);
    tell("nothing", create(&none, 0, here, 0));
    tell("half a page", create(&none, MIB, here, 0));
    tell("more than the device", create(&none, 1024 * GIB, here, 0));
    tell("on no device", create(&none, 2 * MIB, nowhere, 0));
    tell("for other handles", create(&none, 2 * MIB, here, 2));
    tell("of no kind", CALL((uint64_t *, size_t, const void *, unsigned long long), &none, 2 * MIB, NULL, 0));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    tell("no output", create(NULL, 2 * MIB, here, 0));
    at_both("and cost nothing", 6 * MIB, CTX, 4 * MIB, 0);
    NEED(cuMemRelease(one));
    NEED(cuMemRelease(two));
    NEED(cuMemRelease(three));
    at("all is back", 0, CTX);
    NEED(cuCtxSetCurrent(NULL));
    is("without a context", create(&one, 2 * MIB, here, 0), SUCCESS);
    at("as well", 2 * MIB, CTX);
}

static CUresult on_first(uint64_t *out, size_t bytes) {
    CUmemLocation here = {1, 0};
    return create(out, bytes, here, 0);
}
PART(cuMemCreate) { refused_then_granted(on_first, 8 * MIB); }

WHOLE(cuMemRelease) {
    begin();
    CUmemGenericAllocationHandle one = physical(4 * MIB, 0), mapped = physical(2 * MIB, 0), again;
    CUdeviceptr space = reserved(4 * MIB);
    NEED(cuMemMap(space, 2 * MIB, 0, mapped, 0));
    NEED(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)space));
    at("two pieces", 6 * MIB, CTX);
    is("one", CALL((uint64_t), one), SUCCESS);
    at("goes at once", 2 * MIB, CTX);
    tell("twice", CALL((uint64_t), one));
    tell("null", CALL((uint64_t), 0));
    tell("none", CALL((uint64_t), 0x1234));
    at("what is not released stays charged", 2 * MIB, CTX);
    is("one of two references", CALL((uint64_t), mapped), SUCCESS);
    is("the other", CALL((uint64_t), again), SUCCESS);
    at("a mapping keeps it", 2 * MIB, CTX);
    NEED(cuMemUnmap(space, 2 * MIB));
    at("and nothing else", 0, CTX);
}

static CUresult mapped(CUdeviceptr address, size_t bytes, uint64_t handle) {
    return CALL((CUdeviceptr, size_t, size_t, uint64_t, unsigned long long), address, bytes, 0, handle, 0);
}

WHOLE(cuMemMap) {
    begin();
    CUmemGenericAllocationHandle one = physical(4 * MIB, 0), two = physical(2 * MIB, 0);
    CUdeviceptr space = reserved(16 * MIB);
    is("mapped", mapped(space, 4 * MIB, one), SUCCESS);
    is("and elsewhere", mapped(space + 8 * MIB, 4 * MIB, one), SUCCESS);
    at("a mapping takes nothing", 6 * MIB, CTX);
    tell("over another", mapped(space, 2 * MIB, two));
    tell("where nothing is reserved", mapped(4 * MIB, 2 * MIB, two));
    tell("nothing", mapped(space + 4 * MIB, 2 * MIB, 0x1234));
    NEED(cuMemRelease(two));
    at("what was not mapped is not kept", 4 * MIB, CTX);
    NEED(cuMemRelease(one));
    at("two mappings keep it", 4 * MIB, CTX);
    NEED(cuMemUnmap(space, 4 * MIB));
    at("one does", 4 * MIB, CTX);
    NEED(cuMemUnmap(space + 8 * MIB, 4 * MIB));
    at("none does not", 0, CTX);
}

WHOLE(cuMemUnmap) {
    begin();
    CUmemGenericAllocationHandle one = physical(2 * MIB, 0), two = physical(4 * MIB, 0);
    CUdeviceptr space = reserved(6 * MIB);
    NEED(cuMemMap(space, 2 * MIB, 0, one, 0));
    NEED(cuMemMap(space + 2 * MIB, 4 * MIB, 0, two, 0));
    NEED(cuMemRelease(one));
    at("one by mapping, one by handle", 6 * MIB, CTX);
    tell("a part of a mapping", CALL((CUdeviceptr, size_t), space + 2 * MIB, 2 * MIB));
    tell("what is not mapped", CALL((CUdeviceptr, size_t), space + 64 * MIB, 2 * MIB));
    at("that changes nothing", 6 * MIB, CTX);
    is("both mappings", CALL((CUdeviceptr, size_t), space, 6 * MIB), SUCCESS);
    at("the handle keeps one", 4 * MIB, CTX);
    tell("twice", CALL((CUdeviceptr, size_t), space, 6 * MIB));
    NEED(cuMemRelease(two));
    at("all is back", 0, CTX);
}

WHOLE(cuMemRetainAllocationHandle) {
    uint64_t again = 0, none = POISON;
    begin();
    CUmemGenericAllocationHandle one = physical(2 * MIB, 0);
    CUdeviceptr space = reserved(2 * MIB);
    NEED(cuMemMap(space, 2 * MIB, 0, one, 0));
    is("a reference more", CALL((uint64_t *, void *), &again, (void *)(uintptr_t)(space + 4096)), SUCCESS);
    HOLDS("to the same memory", again == one);
    at("takes nothing", 2 * MIB, CTX);
    tell("where nothing is mapped", CALL((uint64_t *, void *), &none, nobody()));
    tell("memory by pointer", CALL((uint64_t *, void *), &none, (void *)(uintptr_t)block(2 * MIB)));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    NEED(cuMemRelease(one));
    NEED(cuMemUnmap(space, 2 * MIB));
    at("it keeps the memory", 4 * MIB, CTX);
    NEED(cuMemRelease(again));
    at("until it is released", 2 * MIB, CTX);
}

static CUresult addresses(uint64_t *out, size_t bytes) {
    return CALL((uint64_t *, size_t, size_t, uint64_t, unsigned long long), out, bytes, 0, 0, 0);
}

WHOLE(cuMemAddressReserve) {
    uint64_t space = 0, none = POISON;
    begin();
    is("addresses", addresses(&space, 64 * GIB), SUCCESS);
    at("are no memory", 0, CTX);
    tell("none", addresses(&none, 0));
    tell("half a page", addresses(&none, MIB));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    NEED(cuMemAddressFree(space, 64 * GIB));
    at("as before", 0, CTX);
}

PART(cuMemAddressReserve) {
    uint64_t space = 0;
    begin();
    fill(0);
    is("addresses beside a full quota", addresses(&space, 64 * GIB), SUCCESS);
    at("are not charged", QUOTA - CTX, CTX);
}

WHOLE(cuMemAddressFree) {
    begin();
    CUmemGenericAllocationHandle one = physical(2 * MIB, 0);
    CUdeviceptr space = reserved(4 * MIB);
    NEED(cuMemMap(space, 2 * MIB, 0, one, 0));
    tell("with something mapped", CALL((CUdeviceptr, size_t), space, 4 * MIB));
    NEED(cuMemUnmap(space, 2 * MIB));
    tell("a part", CALL((CUdeviceptr, size_t), space, 2 * MIB));
    is("all of it", CALL((CUdeviceptr, size_t), space, 4 * MIB), SUCCESS);
    tell("twice", CALL((CUdeviceptr, size_t), space, 4 * MIB));
    at("the memory is not concerned", 2 * MIB, CTX);
}

static CUresult exported(int *out, uint64_t handle, int kind) {
    return CALL((void *, uint64_t, int, unsigned long long), out, handle, kind, 0);
}

/* Who has the descriptor may hold the memory: it stays charged for as long as the driver keeps it. */
WHOLE(cuMemExportToShareableHandle) {
    int file = -1, none = (int)POISON;
    begin();
    CUmemGenericAllocationHandle one = physical(4 * MIB, 0), two = physical(2 * MIB, 0);
    is("a descriptor", exported(&file, one, 1), SUCCESS);
    HOLDS("is one", file >= 0);
    at("takes nothing", 6 * MIB, CTX);
    tell("of another kind", exported(&none, two, 8));
    tell("of nothing", exported(&none, 0x1234, 1));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    NEED(cuMemRelease(two));
    at("what was not exported goes", 4 * MIB, CTX);
    NEED(cuMemRelease(one));
    at("what was lives on in the descriptor", 0, CTX + 4 * MIB);
    close(file);
    free_bytes();
    at("until that is closed", 0, CTX);
    one = physical(4 * MIB, 0);
    NEED(exported(&file, one, 1));
    close(file);
    at("a descriptor that nobody took", 4 * MIB, CTX);
    NEED(cuMemRelease(one));
    at("keeps nothing", 0, CTX);
}

static CUresult range_handle(int *out, CUdeviceptr address, size_t bytes, int kind) {
    return CALL((void *, CUdeviceptr, size_t, int, unsigned long long), out, address, bytes, kind, 0);
}

/* A range's handle is for other drivers, which may hold what it names: what goes after that is measured. */
WHOLE(cuMemGetHandleForAddressRange) {
    int file = -1, none = (int)POISON;
    begin();
    CUmodule module = load_grower();
    CUdeviceptr one = block(4 * MIB), space = reserved(2 * MIB);
    CUmemGenericAllocationHandle two = physical(2 * MIB, 0);
    NEED(cuMemMap(space, 2 * MIB, 0, two, 0));
    is("a block's", range_handle(&file, one, 4 * MIB, 1), SUCCESS);
    is("a mapping's", range_handle(&file, space, 2 * MIB, 1), SUCCESS);
    at("takes nothing", 6 * MIB, CTX + CODE);
    tell("of another kind", range_handle(&none, one, 4 * MIB, 9));
    tell("beyond the block", range_handle(&none, one, 1024 * GIB, 1));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    grow_unseen(module);
    NEED(cuMemFree_v2(one));
    at("the block goes, and what came unseen is booked", 2 * MIB, CTX + CODE + UNSEEN);
    NEED(cuMemUnmap(space, 2 * MIB));
    NEED(cuMemRelease(two));
    at("the mapping goes as well", 0, CTX + CODE + UNSEEN);
}

static CUresult tiled(CUarrayMapInfo *list, CUstream stream) { return CALL((CUarrayMapInfo *, unsigned, CUstream), list, 1, stream); }

/* Tiles hold memory, whoever gives up its handle. */
WHOLE(cuMemMapArrayAsync) {
    CUDA_ARRAY3D_DESCRIPTOR shape = {1024, 1024, 0, 0x20, 1, 0x40};
    CUmemAllocationProp for_tiles = {1, 0, {1, 0}, NULL, {0, 0, 1, {0}}};
    CUmemGenericAllocationHandle one;
    CUarrayMapInfo tile;
    CUarray array;
    begin();
    NEED(cuArray3DCreate_v2(&array, &shape));
    NEED(cuMemCreate(&one, 2 * MIB, &for_tiles, 0));
    at("memory for tiles", 2 * MIB, CTX);
    memset(&tile, 0, sizeof tile);
    tile.resource = array, tile.memOperationType = 1, tile.memHandle = one, tile.deviceBitMask = 1;
    tile.subresource.sparseLevel.extentWidth = 128, tile.subresource.sparseLevel.extentHeight = 128;
    tile.subresource.sparseLevel.extentDepth = 1;
    is("mapped", tiled(&tile, NULL), SUCCESS);
    NEED(cuCtxSynchronize());
    at("takes nothing", 2 * MIB, CTX);
    tell("no list", tiled(NULL, NULL));
    tell("no stream", tiled(&tile, nobody()));
    NEED(cuMemRelease(one));
    settle();
    at("a tile keeps it", 0, CTX + 2 * MIB);
    tile.memOperationType = 2, tile.memHandle = 0;
    is("unmapped", tiled(&tile, NULL), SUCCESS);
    settle();
    at("all is back", 0, CTX);
}
