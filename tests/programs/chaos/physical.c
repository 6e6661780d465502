/* Physical memory by handle: made, mapped, unmapped, retained, released, shared. */
#include "chaos.h"

enum { EXPORTABLE = 1, FILE_DESCRIPTOR = 1 };

static int has_room(struct actor *a) {
    if (is_full(a, PHYSICAL)) release_physical(a);
    return !is_full(a, PHYSICAL);
}

static void made(struct actor *a, CUresult code, uint64_t handle, size_t bytes, int parts) {
    put_made(a, handle);
    if (!code && handle != UNTOUCHED) keep(a, PHYSICAL, handle, bytes)->parts = parts;
}

/* Whole pages mostly; the driver refuses the rest. */
static size_t some_pages(struct actor *a) {
    size_t bytes = some_size(a);
    return one_in(a, 12) ? bytes : (bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
}

void create(struct actor *a) {
    CUmemGenericAllocationHandle handle = UNTOUCHED;
    int exportable = one_in(a, 3), type = one_in(a, 40) ? 0 : 1;
    CUmemAllocationProp wanted = {type, exportable, {one_in(a, 20) ? 2 : 1, some_device(a)}, NULL, {0, 0, 0, {0}}};
    size_t bytes = some_pages(a), granularity = UNTOUCHED;
    unsigned long long flags = one_in(a, 60);
    if (!has_room(a)) return;
    if (one_in(a, 8)) {
        CALL(a, cuMemGetAllocationGranularity, place(a, &granularity), &wanted, 0);
        put_number(a, granularity);
    }
    CUresult code = CALL(a, cuMemCreate, place(a, &handle), bytes, one_in(a, 60) ? NULL : &wanted, flags);
    made(a, code, handle, bytes, exportable);
}

void release_physical(struct actor *a) {
    struct thing *thing = some(a, PHYSICAL);
    uint64_t handle = spoilt(a, thing ? thing->handle : 0);
    CUresult code = CALL(a, cuMemRelease, handle);
    put_subject(a, handle);
    if (thing && handle == thing->handle && (code == SUCCESS || code == INVALID_VALUE)) drop(a, PHYSICAL, thing);
}

/* One range, in which the same memory, or that of two handles, is mapped once or twice. */
void map(struct actor *a) {
    struct thing *first = some(a, PHYSICAL), *second = some(a, PHYSICAL);
    CUdeviceptr at = UNTOUCHED;
    CUmemAccessDesc access = {{1, some_device(a)}, one_in(a, 40) ? 2 : 3};
    int parts = first && second && first->size == second->size && one_in(a, 2) ? 2 : 1;
    size_t bytes = first ? first->size : 2 * MIB;
    if (is_full(a, MAPPING)) return unmap(a);
    if (CALL(a, cuMemAddressReserve, place(a, &at), bytes * (size_t)parts, 0, 0, one_in(a, 60)) || at == UNTOUCHED) return;
    put_made(a, at);
    struct thing *range = keep(a, MAPPING, at, bytes * (size_t)parts);
    for (int part = 0; part < parts; part++) {
        struct thing *physical = part ? second : first;
        uint64_t handle = spoilt(a, physical ? physical->handle : 0);
        size_t offset = one_in(a, 60) ? 512 : 0;
        if (!CALL(a, cuMemMap, at + (size_t)part * bytes, bytes, offset, handle, 0)) range->parts++;
        put_subject(a, handle);
    }
    CALL(a, cuMemSetAccess, at, bytes * (size_t)parts, &access, 1);
}

int end_mapping(struct actor *a, struct thing *range) {
    size_t bytes = range->size;
    if (one_in(a, 30)) CALL(a, cuMemUnmap, range->handle, bytes + 2 * MIB);
    if (range->parts == 1 && !CALL(a, cuMemUnmap, range->handle, bytes)) range->parts = 0;
    else if (range->parts == 1 && !CALL(a, cuMemUnmap, range->handle, bytes / 2)) range->parts = 0;
    else if (range->parts == 1 && !CALL(a, cuMemUnmap, range->handle + bytes / 2, bytes / 2)) range->parts = 0;
    if (range->parts == 2 && !CALL(a, cuMemUnmap, range->handle, bytes)) range->parts = 0;
    put_subject(a, range->handle);
    if (range->parts || CALL(a, cuMemAddressFree, range->handle, bytes)) return 0;
    drop(a, MAPPING, range);
    return 1;
}

void unmap(struct actor *a) {
    struct thing *range = some(a, MAPPING);
    if (range) end_mapping(a, range);
    else CALL(a, cuMemUnmap, spoilt(a, 0), 2 * MIB);
}

void retain(struct actor *a) {
    struct thing *range = some(a, MAPPING);
    CUmemGenericAllocationHandle handle = UNTOUCHED;
    uint64_t at = spoilt(a, range ? range->handle : 0);
    if (!has_room(a)) return;
    CUresult code = CALL(a, cuMemRetainAllocationHandle, place(a, &handle), (void *)at);
    put_known(a, handle);
    put_subject(a, at);
    if (!code && handle != UNTOUCHED) keep(a, PHYSICAL, handle, range ? range->size : 0);
}

/* Exported and imported by the same process: one more reference. */
void share_with_self(struct actor *a) {
    struct thing *thing = some(a, PHYSICAL);
    CUmemGenericAllocationHandle handle = UNTOUCHED;
    uint64_t shared = spoilt(a, thing ? thing->handle : 0);
    int file = -1, kind = one_in(a, 40) ? 8 : FILE_DESCRIPTOR;
    size_t bytes = thing ? thing->size : 0;
    if (!has_room(a)) return;
    if (CALL(a, cuMemExportToShareableHandle, place(a, &file), shared, kind, one_in(a, 60)) || file < 0) return;
    CUresult code = CALL(a, cuMemImportFromShareableHandle, place(a, &handle), (void *)(uintptr_t)file, kind);
    put_known(a, handle);
    if (!code && handle != UNTOUCHED) keep(a, PHYSICAL, handle, bytes)->parts = EXPORTABLE;
    close(file);
}
