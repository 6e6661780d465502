/* Calls that came with CUDA 13.4, on a driver that has them. */
#include "driver.h"

static void locations(void) {
    CUmemLocation where[4], first = {1, 0}, host = {2, 0};
    CUdeviceptr block, linear;
    NEED(cuMemAllocManaged(&block, 8 * MIB, 1));
    NEED(cuMemAlloc_v2(&linear, 8 * MIB));
    memset(where, 7, sizeof where);
    NEED(cuMemGetLocationInfo(block, 8 * MIB, 2 * MIB, 0, where));
    is("new memory is nowhere", where[0].type, 0);
    NEED(cuMemPrefetchAsync_v2(block, 8 * MIB, first, 0, NULL));
    NEED(cuMemGetLocationInfo(block, 8 * MIB, 2 * MIB, 65536, where));
    HOLDS("then it is on the device", where[0].type == 1 && where[3].type == 1 && where[3].id == 0);
    NEED(cuMemPrefetchAsync_v2(block, 8 * MIB, host, 0, NULL));
    where[1].type = 77;
    NEED(cuMemGetLocationInfo(block, 5 * MIB, 5 * MIB, MIB, where));
    HOLDS("and then on the host", where[0].type == 2 && where[1].type == 77);
    is("parts of nothing", cuMemGetLocationInfo(block, 8 * MIB, 0, 0, where), INVALID_VALUE);
    is("parts larger than the range", cuMemGetLocationInfo(block, MIB, 2 * MIB, 0, where), INVALID_VALUE);
    is("samples larger than the parts", cuMemGetLocationInfo(block, 8 * MIB, MIB, 2 * MIB, where), INVALID_VALUE);
    is("beyond the block", cuMemGetLocationInfo(block, 16 * MIB, 8 * MIB, 0, where), INVALID_VALUE);
    is("no output", cuMemGetLocationInfo(block, 8 * MIB, 2 * MIB, 0, NULL), INVALID_VALUE);
    is("memory that does not move", cuMemGetLocationInfo(linear, 8 * MIB, 2 * MIB, 0, where), INVALID_VALUE);
    NEED(cuMemFree_v2(block));
    NEED(cuMemFree_v2(linear));
}

static void storage(void) {
    void *place = NULL;
    struct { void *storage; char reserved[56]; } args = {&place, {0}};
    NEED(cuCheckpointProcessLock(getpid(), NULL));
    is("storage of one's own", cuCheckpointProcessCheckpoint(getpid(), &args), NOT_SUPPORTED);
    NEED(cuCheckpointProcessUnlock(getpid(), NULL));
    is("so that nothing is completed", cuCheckpointOperationComplete(NULL), INVALID_VALUE);
    is("by any handle", cuCheckpointOperationComplete(&place), INVALID_VALUE);
}

int main(void) {
    begin();
    locations();
    storage();
    return verdict();
}
