/* Memory shared between processes: by descriptor, by IPC handle, by pool; each is counted as long as somebody holds it.
 *
 * The parent forks before it uses CUDA, so that both are processes of their own right. They take turns through a socket;
 * the child tells its failures by its status, so that only one of them prints. */
#include "driver.h"
#include "descriptors.h"
#include <sys/wait.h>

static int line;
static size_t start;
static CUmemAllocationProp on_device = {1, 1, {1, 0}, NULL, {0, 0, 0, {0}}};
static const CUmemAccessDesc read_write = {{1, 0}, 3};
static long long taken(void) { return (long long)(start - free_bytes()); }

static void give(const void *bytes, size_t size) {
    if (write(line, bytes, size) != (ssize_t)size) exit(71);
}

static void get(void *bytes, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t some = read(line, (char *)bytes + done, size - done);
        if (some <= 0) exit(72);
        done += (size_t)some;
    }
}

static void your_turn(void) { give("x", 1); }
static void wait_turn(void) { char x; get(&x, 1); }

static CUdeviceptr mapped(CUmemGenericAllocationHandle handle, size_t size) {
    CUdeviceptr at;
    NEED(cuMemAddressReserve(&at, size, 0, 0, 0));
    NEED(cuMemMap(at, size, 0, handle, 0));
    NEED(cuMemSetAccess(at, size, &read_write, 1));
    return at;
}

static void parent(void) {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at, block, other = 0;
    CUmemPoolProps properties;
    CUmemPoolPtrExportData exported;
    CUmemoryPool pool;
    CUipcMemHandle ipc;
    char text[16] = "";
    int file;
    NEED(cuMemCreate(&handle, 64 * MIB, &on_device, 0));
    at = mapped(handle, 64 * MIB);
    NEED(cuMemcpyHtoD_v2(at + MIB, "to the child", 13));
    NEED(cuMemExportToShareableHandle(&file, handle, 1, 0));
    give_file(line, file);
    wait_turn();
    is("shared memory is counted once", taken(), 64 * MIB);
    NEED(cuMemcpyDtoH_v2(text, at, 16));
    is("what the other wrote is read", strcmp(text, "to the parent"), 0);
    NEED(cuMemUnmap(at, 64 * MIB));
    NEED(cuMemRelease(handle));
    is("the other holds it", taken(), 64 * MIB);
    your_turn();
    wait_turn();
    is("nobody holds it", taken(), 0);
    NEED(cuMemAlloc_v2(&block, 8 * MIB));
    NEED(cuMemcpyHtoD_v2(block + 5000, "by handle", 10));
    NEED(cuIpcGetMemHandle(&ipc, block));
    is("a handle is not for its own process", cuIpcOpenMemHandle_v2(&other, ipc, 1), INVALID_CONTEXT);
    give(&ipc, sizeof ipc);
    wait_turn();
    NEED(cuMemcpyDtoH_v2(text, block, 16));
    is("written by handle", strcmp(text, "handled"), 0);
    is("still counted once", taken(), 8 * MIB);
    NEED(cuMemFree_v2(block));
    is("its owner frees it", taken(), 0);
    memset(&properties, 0, sizeof properties);
    properties.allocType = 1, properties.location.type = 1, properties.handleTypes = 1;
    NEED(cuMemPoolCreate(&pool, &properties));
    NEED(cuMemAllocFromPoolAsync(&block, 3 * MIB, pool, NULL));
    NEED(cuMemcpyHtoD_v2(block + 100, "pooled", 7));
    NEED(cuMemPoolExportToShareableHandle(&file, pool, 1, 0));
    NEED(cuMemPoolExportPointer(&exported, block));
    give_file(line, file);
    give(&exported, sizeof exported);
    wait_turn();
    NEED(cuMemcpyDtoH_v2(text, block, 16));
    is("written through a pool", strcmp(text, "pooled back"), 0);
    is("a pool is counted once", taken(), 32 * MIB);
    NEED(cuMemFree_v2(block));
    NEED(cuMemPoolDestroy(pool));
    is("the pool is gone", taken(), 0);
    your_turn();
}

/* Steps of the child exit with 1 and a line at the first that fails. */
static void child(void) {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at, same;
    CUmemPoolPtrExportData exported;
    CUmemoryPool pool;
    CUipcMemHandle ipc;
    char text[16] = "";
    int file = get_file(line);
    NEED(cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)file, 1));
    close(file);
    at = mapped(handle, 64 * MIB);
    NEED(cuMemcpyDtoH_v2(text, at + MIB, 13));
    NEED(strcmp(text, "to the child"));
    NEED(cuMemcpyHtoD_v2(at, "to the parent", 14));
    your_turn();
    wait_turn();
    NEED(cuMemRelease(handle));
    NEED(cuMemUnmap(at, 64 * MIB));
    NEED(cuMemAddressFree(at, 64 * MIB));
    your_turn();
    get(&ipc, sizeof ipc);
    NEED(cuIpcOpenMemHandle_v2(&at, ipc, 1));
    NEED(cuIpcOpenMemHandle_v2(&same, ipc, 1));
    NEED(at != same);
    NEED(cuMemcpyDtoH_v2(text, at + 5000, 10));
    NEED(strcmp(text, "by handle"));
    NEED(cuMemFree_v2(at) != INVALID_VALUE);
    NEED(cuMemcpyHtoD_v2(at, "handled", 8));
    NEED(cuIpcCloseMemHandle(at));
    NEED(cuIpcCloseMemHandle(at));
    NEED(cuIpcCloseMemHandle(at) != INVALID_VALUE);
    your_turn();
    file = get_file(line);
    NEED(cuMemPoolImportFromShareableHandle(&pool, (void *)(uintptr_t)file, 1, 0));
    close(file);
    get(&exported, sizeof exported);
    NEED(cuMemPoolImportPointer(&at, pool, &exported));
    NEED(cuMemcpyDtoH_v2(text, at + 100, 7));
    NEED(strcmp(text, "pooled"));
    NEED(cuMemcpyHtoD_v2(at, "pooled back", 12));
    NEED(cuMemFreeAsync(at, NULL));
    NEED(cuCtxSynchronize());
    NEED(cuMemPoolDestroy(pool));
    your_turn();
    wait_turn();
}

int main(void) {
    int ends[2], status = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return 70;
    pid_t pid = fork();
    line = ends[pid != 0];
    close(ends[pid == 0]);
    begin();
    your_turn();
    wait_turn();
    start = free_bytes();
    your_turn();
    wait_turn();
    if (!pid) {
        child();
        return 0;
    }
    parent();
    waitpid(pid, &status, 0);
    is("the other process found all as it should be", status, 0);
    return verdict();
}
