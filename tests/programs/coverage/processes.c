/* Memory that crosses processes: charged once, to whom the driver counts it. */
#include "coverage.h"

static const CUmemAccessDesc read_write = {{1, 0}, 3};

static CUdeviceptr mapped(CUmemGenericAllocationHandle handle, size_t size) {
    CUdeviceptr space = reserved(size);
    NEED(cuMemMap(space, size, 0, handle, 0));
    NEED(cuMemSetAccess(space, size, &read_write, 1));
    return space;
}

/* Gives a handle to a block of 8 MiB, and frees it when told to. */
static void ipc_exporter(void) {
    CUipcMemHandle handle;
    begin();
    CUdeviceptr address = block(8 * MIB);
    NEED(cuMemcpyHtoD_v2(address + 4096, "by handle", 10));
    NEED(cuIpcGetMemHandle(&handle, address));
    give(&handle, sizeof handle);
    wait_turn();
    NEED(cuMemFree_v2(address));
    your_turn();
    wait_turn();
}

static CUresult opened(CUdeviceptr *out, CUipcMemHandle handle) { return CALL((CUdeviceptr *, CUipcMemHandle, unsigned), out, handle, 1); }

static void opens(void) {
    CUipcMemHandle handle, wrong;
    CUdeviceptr address = 0, same = 0, none = POISON;
    char text[10] = "";
    pid_t other = with_other(ipc_exporter);
    begin();
    get(&handle, sizeof handle);
    memset(&wrong, 0, sizeof wrong);
    at("the exporter is charged", 0, CTX);
    is("opened", opened(&address, handle), SUCCESS);
    is("twice", opened(&same, handle), SUCCESS);
    HOLDS("it is the same", same == address);
    NEED(cuMemcpyDtoH_v2(text, address + 4096, 10));
    is("the other's memory", strcmp(text, "by handle"), 0);
    at("is charged there alone", 0, CTX);
    tell("no handle", opened(&none, wrong));
    tell("flags", CALL((CUdeviceptr *, CUipcMemHandle, unsigned), &none, handle, 7));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    tell("freed", cuMemFree_v2(address));
    at("that changes nothing", 0, CTX);
    NEED(cuIpcCloseMemHandle(address));
    NEED(cuIpcCloseMemHandle(address));
    your_turn();
    wait_turn();
    at("nor does the end of it", 0, CTX);
    your_turn();
    other_ends(other);
}

WHOLE(cuIpcOpenMemHandle) { opens(); }
WHOLE(cuIpcOpenMemHandle_v2) { opens(); }

/* An import is not charged, however full the quota. */
static void opens_at_a_full_quota(void) {
    CUipcMemHandle handle;
    CUdeviceptr address = 0;
    pid_t other = with_other(ipc_exporter);
    begin();
    get(&handle, sizeof handle);
    fill(0);
    is("opened at a full quota", opened(&address, handle), SUCCESS);
    at("the exporter is charged", QUOTA - 2 * CTX - 8 * MIB, CTX);
    your_turn();
    wait_turn();
    your_turn();
    other_ends(other);
}

PART(cuIpcOpenMemHandle) { opens_at_a_full_quota(); }
PART(cuIpcOpenMemHandle_v2) { opens_at_a_full_quota(); }

WHOLE(cuIpcCloseMemHandle) {
    CUipcMemHandle handle;
    CUdeviceptr address;
    pid_t other = with_other(ipc_exporter);
    begin();
    get(&handle, sizeof handle);
    NEED(cuIpcOpenMemHandle_v2(&address, handle, 1));
    is("closed", CALL((CUdeviceptr), address), SUCCESS);
    tell("twice", CALL((CUdeviceptr), address));
    tell("memory of one's own", CALL((CUdeviceptr), block(2 * MIB)));
    at("nothing is given back", 2 * MIB, CTX);
    your_turn();
    wait_turn();
    your_turn();
    other_ends(other);
}

static void ipc_importer(void) {
    CUipcMemHandle handle;
    CUdeviceptr address;
    begin();
    your_turn();
    get(&handle, sizeof handle);
    NEED(cuIpcOpenMemHandle_v2(&address, handle, 1));
    your_turn();
    wait_turn();
    NEED(cuIpcCloseMemHandle(address));
    your_turn();
    wait_turn();
}

WHOLE(cuIpcGetMemHandle) {
    CUipcMemHandle handle, none;
    memset(&none, POISON & 0xff, sizeof none);
    pid_t other = with_other(ipc_importer);
    begin();
    wait_turn();
    CUdeviceptr address = block(8 * MIB);
    is("a handle", CALL((CUipcMemHandle *, CUdeviceptr), &handle, address), SUCCESS);
    tell("of nothing", CALL((CUipcMemHandle *, CUdeviceptr), &none, 0x1234));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    tell("no output", CALL((CUipcMemHandle *, CUdeviceptr), NULL, address));
    at("costs nothing", 8 * MIB, CTX);
    give(&handle, sizeof handle);
    wait_turn();
    at("nor does it when the other opens it", 8 * MIB, CTX);
    your_turn();
    wait_turn();
    NEED(cuMemFree_v2(address));
    at("freed it is gone", 0, CTX);
    your_turn();
    other_ends(other);
}

/* Gives physical memory away, lets go of it, then looks whether it is gone. */
static void descriptor_exporter(void) {
    int file;
    begin();
    CUmemGenericAllocationHandle handle = physical(64 * MIB, 0);
    NEED(cuMemExportToShareableHandle(&file, handle, 1, 0));
    give_file(file);
    wait_turn();
    NEED(cuMemRelease(handle));
    your_turn();
    wait_turn();
    free_bytes();
    your_turn();
    wait_turn();
}

PART(cuMemImportFromShareableHandle) {
    uint64_t handle = 0;
    pid_t other = with_other(descriptor_exporter);
    begin();
    int file = get_file();
    fill(0);
    is("imported at a full quota", CALL((uint64_t *, void *, int), &handle, (void *)(uintptr_t)file, 1), SUCCESS);
    close(file);
    CUdeviceptr space = mapped(handle, 64 * MIB);
    at("the exporter is charged", QUOTA - 2 * CTX - 64 * MIB, CTX);
    your_turn();
    wait_turn();
    at("also when it has let go", QUOTA - 2 * CTX - 64 * MIB, CTX);
    NEED(cuMemRelease(handle));
    NEED(cuMemUnmap(space, 64 * MIB));
    your_turn();
    wait_turn();
    is("then the quota is free", (long long)free_bytes(), 64 * MIB);
    at("by as much", QUOTA - 2 * CTX - 64 * MIB, CTX);
    your_turn();
    other_ends(other);
}

/* The exporter ends and leaves its memory to whoever holds it. */
static void exporter_that_ends(void) {
    int file;
    begin();
    NEED(cuMemExportToShareableHandle(&file, physical(64 * MIB, 0), 1, 0));
    give_file(file);
    wait_turn();
}

static void inherits(void) {
    uint64_t handle;
    pid_t other = with_other(exporter_that_ends);
    begin();
    int file = get_file();
    NEED(CALL((uint64_t *, void *, int), &handle, (void *)(uintptr_t)file, 1));
    close(file);
    at("the exporter is charged", 0, CTX);
    your_turn();
    other_ends(other);
    free_bytes();
    settle();
    at("its heir is", 0, CTX + 64 * MIB);
    NEED(cuMemRelease(handle));
    free_bytes();
    settle();
    at("until it lets go", 0, CTX);
}

WHOLE(cuMemImportFromShareableHandle) {
    int file = -1;
    uint64_t same = 0, none = POISON;
    inherits();
    CUmemGenericAllocationHandle one = physical(4 * MIB, 0);
    NEED(cuMemExportToShareableHandle(&file, one, 1, 0));
    is("at home", CALL((uint64_t *, void *, int), &same, (void *)(uintptr_t)file, 1), SUCCESS);
    HOLDS("it is the same memory", same == one);
    close(file);
    at("and takes nothing", 4 * MIB, CTX);
    tell("no descriptor", CALL((uint64_t *, void *, int), &none, (void *)(uintptr_t)999, 1));
    tell("of another kind", CALL((uint64_t *, void *, int), &none, (void *)(uintptr_t)file, 8));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    NEED(cuMemRelease(one));
    at("a reference keeps it", 4 * MIB, CTX);
    NEED(cuMemRelease(same));
    at("and nothing else", 0, CTX);
}
