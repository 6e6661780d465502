/* Pools across processes: the one who made a pool is charged for all of it. */
#include "coverage.h"

#define STEP (32 * MIB)

static CUmemoryPool shareable(void) {
    CUmemPoolProps properties;
    CUmemoryPool pool;
    memset(&properties, 0, sizeof properties);
    properties.allocType = 1, properties.location.type = 1, properties.handleTypes = 1;
    NEED(cuMemPoolCreate(&pool, &properties));
    return pool;
}

static void exporter(void) {
    CUmemPoolPtrExportData exported;
    CUdeviceptr address;
    int file;
    begin();
    CUmemoryPool pool = shareable();
    NEED(cuMemAllocFromPoolAsync(&address, 3 * MIB, pool, NULL));
    NEED(cuMemcpyHtoD_v2(address + 100, "pooled", 7));
    NEED(cuMemPoolExportToShareableHandle(&file, pool, 1, 0));
    NEED(cuMemPoolExportPointer(&exported, address));
    give_file(file);
    give(&exported, sizeof exported);
    wait_turn();
    NEED(cuMemFree_v2(address));
    NEED(cuMemPoolDestroy(pool));
    your_turn();
    wait_turn();
}

WHOLE(cuMemPoolImportFromShareableHandle) {
    CUmemPoolPtrExportData exported;
    CUmemoryPool pool = NULL, none = (CUmemoryPool)(uintptr_t)POISON;
    CUdeviceptr address, refused = POISON;
    char text[8] = "";
    pid_t other = with_other(exporter);
    begin();
    int file = get_file();
    get(&exported, sizeof exported);
    is("a pool of another", CALL((CUmemoryPool *, void *, int, unsigned long long), &pool, (void *)(uintptr_t)file, 1, 0), SUCCESS);
    close(file);
    tell("no descriptor", CALL((CUmemoryPool *, void *, int, unsigned long long), &none, (void *)(uintptr_t)999, 1, 0));
    tell("of another kind", CALL((CUmemoryPool *, void *, int, unsigned long long), &none, (void *)(uintptr_t)file, 8, 0));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    tell("it is not allocated from", cuMemAllocFromPoolAsync(&refused, 1000, pool, NULL));
    NEED(cuMemPoolImportPointer(&address, pool, &exported));
    NEED(cuMemcpyDtoH_v2(text, address + 100, 7));
    is("what is in it is the other's", strcmp(text, "pooled"), 0);
    at("and charged there", 0, CTX);
    NEED(cuMemFreeAsync(address, NULL));
    NEED(cuCtxSynchronize());
    NEED(cuMemPoolDestroy(pool));
    at("nothing is given back", 0, CTX);
    your_turn();
    wait_turn();
    at("but by the other", 0, CTX);
    your_turn();
    other_ends(other);
}

WHOLE(cuMemPoolImportPointer) {
    CUmemPoolPtrExportData exported, wrong;
    CUmemoryPool pool;
    CUdeviceptr address = 0, none = POISON;
    pid_t other = with_other(exporter);
    begin();
    memset(&wrong, 0, sizeof wrong);
    int file = get_file();
    get(&exported, sizeof exported);
    NEED(cuMemPoolImportFromShareableHandle(&pool, (void *)(uintptr_t)file, 1, 0));
    close(file);
    is("a block of another", CALL((CUdeviceptr *, CUmemoryPool, CUmemPoolPtrExportData *), &address, pool, &exported), SUCCESS);
    at("is charged there", 0, CTX);
    tell("of no pool", CALL((CUdeviceptr *, CUmemoryPool, CUmemPoolPtrExportData *), &none, nobody(), &exported));
    tell("nothing", CALL((CUdeviceptr *, CUmemoryPool, CUmemPoolPtrExportData *), &none, pool, &wrong));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    is("it is let go", cuMemFree_v2(address), SUCCESS);
    at("nothing is given back", 0, CTX);
    your_turn();
    wait_turn();
    your_turn();
    other_ends(other);
}

WHOLE(cuMemPoolExportToShareableHandle) {
    CUmemoryPool standard, imported;
    CUdeviceptr address;
    int file = -1, none = (int)POISON;
    begin();
    CUmemoryPool pool = shareable();
    NEED(cuMemAllocFromPoolAsync(&address, 3 * MIB, pool, NULL));
    is("a descriptor", CALL((void *, CUmemoryPool, int, unsigned long long), &file, pool, 1, 0), SUCCESS);
    HOLDS("is one", file >= 0);
    NEED(cuDeviceGetDefaultMemPool(&standard, 0));
    tell("of a pool that is not for that", CALL((void *, CUmemoryPool, int, unsigned long long), &none, standard, 1, 0));
    tell("of another kind", CALL((void *, CUmemoryPool, int, unsigned long long), &none, pool, 8, 0));
    tell("of no pool", CALL((void *, CUmemoryPool, int, unsigned long long), &none, nobody(), 1, 0));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    NEED(cuMemPoolImportFromShareableHandle(&imported, (void *)(uintptr_t)file, 1, 0));
    at("the pool is counted once", STEP, CTX);
    close(file);
    NEED(cuMemFree_v2(address));
    NEED(cuMemPoolTrimTo(pool, 0));
    at("all is back", 0, CTX);
}

WHOLE(cuMemPoolExportPointer) {
    CUmemPoolPtrExportData exported, none;
    CUdeviceptr address;
    memset(&none, POISON & 0xff, sizeof none);
    begin();
    CUmemoryPool pool = shareable();
    NEED(cuMemAllocFromPoolAsync(&address, 3 * MIB, pool, NULL));
    is("a block to be given away", CALL((CUmemPoolPtrExportData *, CUdeviceptr), &exported, address), SUCCESS);
    tell("one that is no pool's", CALL((CUmemPoolPtrExportData *, CUdeviceptr), &none, block(2 * MIB)));
    tell("none", CALL((CUmemPoolPtrExportData *, CUdeviceptr), &none, 0x1234));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    at("costs nothing", STEP + 2 * MIB, CTX);
    NEED(cuMemFreeAsync(address, NULL));
    NEED(cuCtxSynchronize());
    at("and is given back", 2 * MIB, CTX);
}
