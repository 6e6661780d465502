/* Questions: the driver's own answers, but for how much memory there is and how much is free. */
#include "coverage.h"

static CUresult info(size_t *free, size_t *total) { return CALL((size_t *, size_t *), free, total); }

WHOLE(cuMemGetInfo_v2) {
    size_t free = POISON, total = POISON;
    NEED(cuInit(0));
    tell("without a context", info(&free, &total));
    is_untouched("there is nothing free", &free, sizeof free);
    is_untouched("and no total", &total, sizeof total);
    begin();
    is("with one", info(&free, &total), SUCCESS);
    tell("free", (long long)free);
    tell("total", (long long)total);
    tell("null outputs", info(NULL, NULL));
    block(5 * MIB);
    is("free alone", info(&free, NULL), SUCCESS);
    tell("after 6 MiB", (long long)free);
    at("to ask costs nothing", 6 * MIB, CTX);
}

PART(cuMemGetInfo_v2) {
    size_t free = 0, total = 0;
    begin();
    is("a quota", info(&free, &total), SUCCESS);
    is("is the total", (long long)total, QUOTA);
    is("less a context it is free", (long long)free, QUOTA - CTX);
    CUdeviceptr large = block(100 * MIB);
    free = 0, total = 0;
    is("free alone", info(&free, NULL), SUCCESS);
    is("less what is taken", (long long)free, QUOTA - CTX - 100 * MIB);
    is("total alone", info(NULL, &total), SUCCESS);
    is("stays", (long long)total, QUOTA);
    is("null outputs", info(NULL, NULL), SUCCESS);
    at("100 MiB", 100 * MIB, CTX);
    NEED(cuMemFree_v2(large));
    fill(0);
    is("full", info(&free, &total), SUCCESS);
    is("nothing is free", (long long)free, 0);
    at("full", QUOTA - CTX, CTX);
    on(1);
    is("the other device", info(&free, &total), SUCCESS);
    HOLDS("has a quota of its own", free == QUOTA - CTX && total == QUOTA);
}

static CUresult info_short(unsigned *free, unsigned *total) { return CALL((unsigned *, unsigned *), free, total); }

WHOLE(cuMemGetInfo) {
    unsigned free = (unsigned)POISON, total = (unsigned)POISON;
    NEED(cuInit(0));
    tell("without a context", info_short(&free, &total));
    is_untouched("there is nothing free", &free, sizeof free);
    begin();
    is("with one", info_short(&free, &total), SUCCESS);
    tell("free", free);
    tell("total", total);
    tell("null outputs", info_short(NULL, NULL));
    at("to ask costs nothing", 0, CTX);
}

PART(cuMemGetInfo) {
    unsigned free = 0, total = 0;
    begin();
    block(100 * MIB);
    is("a quota", info_short(&free, &total), SUCCESS);
    is("is the total", total, QUOTA);
    is("less what is taken it is free", free, QUOTA - CTX - 100 * MIB);
    is("null outputs", info_short(NULL, NULL), SUCCESS);
    is("free alone", info_short(&free, NULL), SUCCESS);
    is("total alone", info_short(NULL, &total), SUCCESS);
    at("100 MiB", 100 * MIB, CTX);
}

WHOLE(cuDeviceTotalMem_v2) {
    size_t total = POISON;
    tell("before the driver is initialised", CALL((size_t *, CUdevice), &total, 0));
    NEED(cuInit(0));
    tell("of no device", CALL((size_t *, CUdevice), &total, 7));
    is_untouched("failed calls leave the output alone", &total, sizeof total);
    tell("no output", CALL((size_t *, CUdevice), NULL, 0));
    is("a device's", CALL((size_t *, CUdevice), &total, 1), SUCCESS);
    tell("total", (long long)total);
    at("to ask makes no context", 0, 0);
}

PART(cuDeviceTotalMem_v2) {
    size_t total = POISON;
    NEED(cuInit(0));
    is("of no device", CALL((size_t *, CUdevice), &total, 7), INVALID_DEVICE);
    is_untouched("failed calls leave the output alone", &total, sizeof total);
    is("a quota", CALL((size_t *, CUdevice), &total, 0), SUCCESS);
    is("is the total", (long long)total, QUOTA);
    begin();
    block(100 * MIB);
    is("whatever is taken", CALL((size_t *, CUdevice), &total, 0), SUCCESS);
    is("it stays", (long long)total, QUOTA);
    at("100 MiB", 100 * MIB, CTX);
}

WHOLE(cuDeviceTotalMem) {
    unsigned total = (unsigned)POISON;
    NEED(cuInit(0));
    tell("of no device", CALL((unsigned *, CUdevice), &total, 7));
    is_untouched("failed calls leave the output alone", &total, sizeof total);
    is("a device's", CALL((unsigned *, CUdevice), &total, 0), SUCCESS);
    tell("total", total);
    at("to ask makes no context", 0, 0);
}

PART(cuDeviceTotalMem) {
    unsigned total = 0;
    NEED(cuInit(0));
    is("a quota", CALL((unsigned *, CUdevice), &total, 0), SUCCESS);
    is("is the total", total, QUOTA);
    at("to ask makes no context", 0, 0);
}

/* Numbers of a device: the answer for the first, the codes for what there is not. */
#define NUMBER(function, ...) \
    WHOLE(function) { \
        int number = (int)POISON; \
        tell("before the driver is initialised", CALL((int *, int, CUdevice), &number, __VA_ARGS__, 0)); \
        NEED(cuInit(0)); \
        tell("of no device", CALL((int *, int, CUdevice), &number, __VA_ARGS__, 7)); \
        tell("of no kind", CALL((int *, int, CUdevice), &number, 99999, 0)); \
        is_untouched("failed calls leave the output alone", &number, sizeof number); \
        tell("no output", CALL((int *, int, CUdevice), NULL, __VA_ARGS__, 0)); \
        tell("a number", CALL((int *, int, CUdevice), &number, __VA_ARGS__, 0)); \
        tell("is", number); \
        for (int kind = 1; kind < 150; kind++) { \
            number = 0; \
            tell("each", CALL((int *, int, CUdevice), &number, kind, 1)); \
            tell("is", number); \
        } \
        at("to ask makes no context", 0, 0); \
    }
NUMBER(cuDeviceGetAttribute, 16)
NUMBER(cuDeviceGetExecAffinitySupport, 0)

WHOLE(cuDeviceGet) {
    CUdevice device = (CUdevice)POISON;
    tell("before the driver is initialised", CALL((CUdevice *, int), &device, 0));
    NEED(cuInit(0));
    tell("no such device", CALL((CUdevice *, int), &device, 2));
    is_untouched("failed calls leave the output alone", &device, sizeof device);
    is("the second", CALL((CUdevice *, int), &device, 1), SUCCESS);
    tell("is", device);
    at("to ask makes no context", 0, 0);
}

WHOLE(cuDeviceGetCount) {
    int count = (int)POISON;
    tell("before the driver is initialised", CALL((int *), &count));
    is_untouched("failed calls leave the output alone", &count, sizeof count);
    NEED(cuInit(0));
    is("devices", CALL((int *), &count), SUCCESS);
    is("two", count, 2);
    tell("no output", CALL((int *), NULL));
    at("to ask makes no context", 0, 0);
}

WHOLE(cuDeviceGetByPCIBusId) {
    char place[16] = "";
    CUdevice device = (CUdevice)POISON;
    NEED(cuInit(0));
    NEED(cuDeviceGetPCIBusId(place, sizeof place, 1));
    tell("no such place", CALL((CUdevice *, const char *), &device, "0000:ff:1f.0"));
    tell("no place", CALL((CUdevice *, const char *), &device, "nowhere"));
    is_untouched("failed calls leave the output alone", &device, sizeof device);
    is("the second's", CALL((CUdevice *, const char *), &device, place), SUCCESS);
    is("is it", device, 1);
    at("to ask makes no context", 0, 0);
}

#define TEXT(function) \
    WHOLE(function) { \
        char text[64]; \
        memset(text, POISON & 0xff, sizeof text); \
        NEED(cuInit(0)); \
        tell("of no device", CALL((char *, int, CUdevice), text, sizeof text, 7)); \
        tell("no room", CALL((char *, int, CUdevice), text, 0, 0)); \
        is_untouched("failed calls leave the output alone", text, sizeof text); \
        tell("little room", CALL((char *, int, CUdevice), text, 8, 0)); \
        is("a text", CALL((char *, int, CUdevice), text, sizeof text, 1), SUCCESS); \
        printf("it is %s\n", text); \
        at("to ask makes no context", 0, 0); \
    }
TEXT(cuDeviceGetName)
TEXT(cuDeviceGetPCIBusId)

static void identity(void) {
    unsigned char uuid[16];
    memset(uuid, POISON & 0xff, sizeof uuid);
    NEED(cuInit(0));
    tell("of no device", CALL((unsigned char *, CUdevice), uuid, 7));
    is_untouched("failed calls leave the output alone", uuid, sizeof uuid);
    tell("no output", CALL((unsigned char *, CUdevice), NULL, 0));
    is("a device's", CALL((unsigned char *, CUdevice), uuid, 1), SUCCESS);
    for (size_t i = 0; i < sizeof uuid; i++) tell("is", uuid[i]);
    at("to ask makes no context", 0, 0);
}

WHOLE(cuDeviceGetUuid) { identity(); }
WHOLE(cuDeviceGetUuid_v2) { identity(); }

WHOLE(cuDeviceGetLuid) {
    char luid[8];
    unsigned nodes = (unsigned)POISON;
    memset(luid, POISON & 0xff, sizeof luid);
    NEED(cuInit(0));
    tell("of no device", CALL((char *, unsigned *, CUdevice), luid, &nodes, 7));
    is_untouched("failed calls leave the output alone", luid, sizeof luid);
    is_untouched("both", &nodes, sizeof nodes);
    tell("a device's", CALL((char *, unsigned *, CUdevice), luid, &nodes, 0));
    for (size_t i = 0; i < sizeof luid; i++) tell("is", luid[i]);
    tell("nodes", nodes);
    at("to ask makes no context", 0, 0);
}

WHOLE(cuCtxGetLimit) {
    size_t value = POISON;
    NEED(cuInit(0));
    tell("without a context", CALL((size_t *, int), &value, 0));
    begin();
    tell("no such limit", CALL((size_t *, int), &value, 99));
    is_untouched("failed calls leave the output alone", &value, sizeof value);
    tell("no output", CALL((size_t *, int), NULL, 0));
    for (int limit = 0; limit < 11; limit++) {
        value = 0;
        tell("a limit", CALL((size_t *, int), &value, limit));
        tell("is", (long long)value);
    }
    NEED(cuCtxSetLimit(2, 24 * MIB));
    is("the heap's", CALL((size_t *, int), &value, 2), SUCCESS);
    is("is what was set", (long long)value, 24 * MIB);
    at("16 MiB more", 0, CTX + 16 * MIB);
}

WHOLE(cuCtxGetExecAffinity) {
    char affinity[64];
    memset(affinity, POISON & 0xff, sizeof affinity);
    begin();
    tell("multiprocessors", CALL((void *, int), affinity, 0));
    tell("of no kind", CALL((void *, int), affinity, 99));
    is_untouched("failed calls leave the output alone", affinity, sizeof affinity);
    at("nothing is charged", 0, CTX);
}

/* Multiprocessors of a device, a context, a stream, a part of them: as there are, whatever the quota. */
static void tell_resource(const CUdevResource *resource) {
    tell("its kind", resource->type);
    tell("multiprocessors", resource->sm.smCount);
    tell("the least", resource->sm.minSmPartitionSize);
    tell("in units of", resource->sm.smCoscheduledAlignment);
}

static CUgreenCtx part_of(CUdevResource *whole) {
    CUdevResource part[1], rest;
    CUdevResourceDesc description;
    CUgreenCtx green;
    unsigned count = 1;
    NEED(cuDeviceGetDevResource(0, whole, 1));
    NEED(cuDevSmResourceSplitByCount(part, &count, whole, &rest, 0, 16));
    NEED(cuDevResourceGenerateDesc(&description, part, 1));
    NEED(cuGreenCtxCreate(&green, description, 0, 1));
    return green;
}

/* By a handle: a context, a green one, a stream. */
static void resources_of(void *holder, void *missing) {
    CUdevResource resource;
    memset(&resource, POISON & 0xff, sizeof resource);
    tell("of nothing", CALL((void *, CUdevResource *, int), missing, &resource, 1));
    tell("of another kind", CALL((void *, CUdevResource *, int), holder, &resource, 77));
    is_untouched("failed calls leave the output alone", &resource, sizeof resource);
    tell("no output", CALL((void *, CUdevResource *, int), holder, NULL, 1));
    is("a resource", CALL((void *, CUdevResource *, int), holder, &resource, 1), SUCCESS);
    tell_resource(&resource);
    at("to ask costs nothing", 0, CTX);
}

WHOLE(cuCtxGetDevResource) { resources_of(begin(), nobody()); }
WHOLE(cuGreenCtxGetDevResource) {
    CUdevResource whole;
    begin();
    resources_of(part_of(&whole), nobody());
}
WHOLE(cuStreamGetDevResource) {
    CUdevResource whole;
    CUstream stream;
    begin();
    NEED(cuGreenCtxStreamCreate(&stream, part_of(&whole), 1, 0));
    tell("of the default stream", CALL((void *, CUdevResource *, int), NULL, &whole, 1));
    tell_resource(&whole);
    resources_of(stream, nobody());
}

WHOLE(cuDeviceGetDevResource) {
    CUdevResource resource;
    memset(&resource, POISON & 0xff, sizeof resource);
    NEED(cuInit(0));
    tell("of no device", CALL((CUdevice, CUdevResource *, int), 7, &resource, 1));
    tell("of another kind", CALL((CUdevice, CUdevResource *, int), 0, &resource, 77));
    is_untouched("failed calls leave the output alone", &resource, sizeof resource);
    is("a device's", CALL((CUdevice, CUdevResource *, int), 0, &resource, 1), SUCCESS);
    tell_resource(&resource);
    at("to ask makes no context", 0, 0);
}

static CUresult split_by_count(
    CUdevResource *out, unsigned *count, const CUdevResource *whole, CUdevResource *rest, unsigned flags, unsigned least) {
    typedef CUresult (*function)(CUdevResource *, unsigned *, const CUdevResource *, CUdevResource *, unsigned, unsigned);
    return ((function)tested)(out, count, whole, rest, flags, least);
}

WHOLE(cuDevSmResourceSplitByCount) {
    CUdevResource whole, part[4], rest;
    unsigned count = 3;
    NEED(cuInit(0));
    NEED(cuDeviceGetDevResource(0, &whole, 1));
    is("parts", split_by_count(part, &count, &whole, &rest, 0, 20), SUCCESS);
    tell("so many", count);
    tell_resource(&part[0]);
    tell_resource(&rest);
    memset(part, POISON & 0xff, sizeof part);
    tell("flags", split_by_count(part, &count, &whole, &rest, 77, 20));
    tell("more than there are", split_by_count(part, &count, &whole, &rest, 0, 9999));
    is_untouched("failed calls leave the output alone", part, sizeof part);
    at("to ask makes no context", 0, 0);
}

static CUresult split(CUdevResource *out, unsigned count, const CUdevResource *whole, CUdevResource *rest, unsigned flags, void *groups) {
    typedef CUresult (*function)(CUdevResource *, unsigned, const CUdevResource *, CUdevResource *, unsigned, void *);
    return ((function)tested)(out, count, whole, rest, flags, groups);
}

WHOLE(cuDevSmResourceSplit) {
    CU_DEV_SM_RESOURCE_GROUP_PARAMS groups[2];
    CUdevResource whole, part[2], rest;
    memset(groups, 0, sizeof groups);
    groups[0].smCount = 16;
    NEED(cuInit(0));
    NEED(cuDeviceGetDevResource(0, &whole, 1));
    is("parts", split(part, 2, &whole, &rest, 0, groups), SUCCESS);
    tell_resource(&part[0]);
    tell_resource(&part[1]);
    memset(part, POISON & 0xff, sizeof part);
    tell("flags", split(part, 2, &whole, &rest, 1, groups));
    tell("no parts", split(part, 0, &whole, &rest, 0, groups));
    is_untouched("failed calls leave the output alone", part, sizeof part);
    at("to ask makes no context", 0, 0);
}

WHOLE(cuDevResourceGenerateDesc) {
    CUdevResource whole, other;
    CUdevResourceDesc description = NULL, none = (CUdevResourceDesc)(uintptr_t)POISON;
    CUgreenCtx green;
    NEED(cuInit(0));
    NEED(cuDeviceGetDevResource(0, &whole, 1));
    other = whole, other.type = 77;
    is("a description", CALL((CUdevResourceDesc *, CUdevResource *, unsigned), &description, &whole, 1), SUCCESS);
    tell("of another kind", CALL((CUdevResourceDesc *, CUdevResource *, unsigned), &none, &other, 1));
    tell("of nothing", CALL((CUdevResourceDesc *, CUdevResource *, unsigned), &none, NULL, 0));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    at("is no context", 0, 0);
    NEED(cuGreenCtxCreate(&green, description, 0, 1));
    at("until it is used", 0, CTX);
}

/* Occupancy is the hardware's, so that kernels are shaped as without a quota. */
static void shaped(CUresult (*ask)(int *, int *, CUfunction)) {
    int grid = (int)POISON, threads = (int)POISON;
    begin();
    CUfunction function = kernel("spin_0us");
    tell("of nothing", ask(&grid, &threads, nobody()));
    is_untouched("failed calls leave the grid alone", &grid, sizeof grid);
    is_untouched("and the block", &threads, sizeof threads);
    tell("no output", ask(NULL, &threads, function));
    is("the best", ask(&grid, &threads, function), SUCCESS);
    tell("grid", grid);
    tell("block", threads);
    settle();
    at("nothing is charged", 0, CTX + CODE);
}

static CUresult best(int *grid, int *threads, CUfunction function) {
    return CALL((int *, int *, CUfunction, void *, size_t, int), grid, threads, function, NULL, 1024, 0);
}
static CUresult best_with_flags(int *grid, int *threads, CUfunction function) {
    return CALL((int *, int *, CUfunction, void *, size_t, int, unsigned), grid, threads, function, NULL, 1024, 0, 1);
}
WHOLE(cuOccupancyMaxPotentialBlockSize) { shaped(best); }
WHOLE(cuOccupancyMaxPotentialBlockSizeWithFlags) { shaped(best_with_flags); }

static void clusters(void) {
    CUlaunchConfig config;
    int number = (int)POISON;
    memset(&config, 0, sizeof config);
    config.gridDimX = 64, config.gridDimY = config.gridDimZ = 1, config.blockDimX = 256, config.blockDimY = config.blockDimZ = 1;
    begin();
    CUfunction function = kernel("spin_0us");
    tell("of nothing", CALL((int *, CUfunction, const CUlaunchConfig *), &number, nobody(), &config));
    tell("of no shape", CALL((int *, CUfunction, const CUlaunchConfig *), &number, function, NULL));
    is_untouched("failed calls leave the output alone", &number, sizeof number);
    is("clusters", CALL((int *, CUfunction, const CUlaunchConfig *), &number, function, &config), SUCCESS);
    tell("number", number);
    settle();
    at("nothing is charged", 0, CTX + CODE);
}

WHOLE(cuOccupancyMaxActiveClusters) { clusters(); }
WHOLE(cuOccupancyMaxPotentialClusterSize) { clusters(); }
