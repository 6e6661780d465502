/* A program on a CUDA runtime library: runtime NAME LIBRARY [refused].
 *
 * It runs under the shim with a quota of 1 GiB and prints a line for each claim. With `refused`, the library is one of
 * NVIDIA's from 11.2 on, which work with NVIDIA's own driver only: then all that is claimed is how it ends. */
#define _GNU_SOURCE
#include "runtime.h"
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t QUOTA = 1ul << 30, LARGE = 600ul << 20;
static const char *name;
static int failures;

static void claim(const char *text, int holds)
{
    printf("%s %s: %s\n", holds ? "ok   " : "FAIL ", name, text);
    failures += !holds;
}

/* Says what went wrong beside the claim that fails by it. */
static int answered(status seen, status expected, const char *call)
{
    if (seen != expected)
        fprintf(stderr, "%s answered %d (%s), where %d is right\n", call, seen, cudaGetErrorName(seen), expected);
    return seen == expected;
}
#define OK(call) answered(call, 0, #call)
#define OUT_OF_MEMORY(call) answered(call, MEMORY_ALLOCATION, #call)

static size_t free_bytes(void)
{
    size_t available = 0, total = 0;
    OK(cudaMemGetInfo(&available, &total));
    return available;
}

/* How many calls of a function with an argument of this value the driver got; any value for 0. */
static unsigned driver_calls(const char *function, size_t value)
{
    char line[4096], wanted[64], argument[64];
    unsigned calls = 0;
    FILE *journal = fopen(getenv("FAKE_CUDA_JOURNAL"), "r");
    snprintf(wanted, sizeof wanted, "\"function\":\"%s\"", function);
    snprintf(argument, sizeof argument, ":%zu", value);
    while (journal && fgets(line, sizeof line, journal))
        calls += strstr(line, wanted) && (!value || strstr(line, argument));
    if (journal)
        fclose(journal);
    return calls;
}

static int round_trip(void *address)
{
    static unsigned char sent[1 << 20], received[1 << 20];
    for (size_t i = 0; i < sizeof sent; i++)
        sent[i] = (unsigned char)(i * 2654435761u >> 13);
    return OK(cudaMemcpy(address, sent, sizeof sent, HOST_TO_DEVICE)) &&
           OK(cudaMemcpy(received, address, sizeof received, DEVICE_TO_HOST)) &&
           memcmp(sent, received, sizeof sent) == 0;
}

static void sizes(void)
{
    static unsigned char properties[PROPERTIES_BYTES_MAX];
    size_t seen = 0, available = 0, total = 0;
    int holds = OK(cudaGetDeviceProperties(properties, 0));
    memcpy(&seen, properties + TOTAL_GLOBAL_MEM_OFFSET, sizeof seen);
    claim("the device's totalGlobalMem is the quota", holds && seen == QUOTA);
    holds = OK(cudaMemGetInfo(&available, &total));
    claim("cudaMemGetInfo's total is the quota", holds && total == QUOTA && available >= LARGE && available <= QUOTA);
}

static void linear(void)
{
    void *address = NULL, *second = NULL;
    size_t before = free_bytes();
    int holds = OK(cudaMalloc(&address, LARGE)) && free_bytes() == before - LARGE;
    claim("600 MiB are allocated and seen as used", holds);
    holds = OUT_OF_MEMORY(cudaMalloc(&second, LARGE)) && !strcmp(cudaGetErrorName(2), "cudaErrorMemoryAllocation") &&
            !strcmp(cudaGetErrorString(2), "out of memory");
    claim("600 MiB more are cudaErrorMemoryAllocation, \"out of memory\"", holds);
    claim("the driver was not asked for them", driver_calls("cuMemAlloc_v2", LARGE) == 1);
    claim("the error is the last one once, and then gone",
          OUT_OF_MEMORY(cudaGetLastError()) && OK(cudaGetLastError()) && OK(cudaDeviceSynchronize()));
    claim("data comes back as it was sent", round_trip(address));
    claim("freed memory is free again", OK(cudaFree(address)) && free_bytes() == before);
}

static void managed(void)
{
    void *address = NULL, *second = NULL;
    int holds = OK(cudaMallocManaged(&address, LARGE, ATTACH_GLOBAL)) &&
                OUT_OF_MEMORY(cudaMallocManaged(&second, LARGE, ATTACH_GLOBAL)) && round_trip(address);
    if (address)
        memset(address, 1, 4096);
    claim("managed memory is counted too", OK(cudaFree(address)) && holds);
    cudaGetLastError();
}

static void shaped(void)
{
    static const int bytes[5] = {8, 0, 0, 0, 1}; /* a channel of eight unsigned bits */
    void *rows = NULL, *more = NULL;
    handle array = NULL, other = NULL;
    size_t pitch = 0, before = free_bytes();
    int holds = OK(cudaMallocPitch(&rows, &pitch, 1000, 600 << 10)) && pitch >= 1000 &&
                free_bytes() <= before - pitch * (600 << 10) &&
                OUT_OF_MEMORY(cudaMallocPitch(&more, &pitch, 1000, 600 << 10)) && round_trip(rows);
    claim("rows with a pitch are counted, padding included", OK(cudaFree(rows)) && holds && free_bytes() == before);
    holds = OK(cudaMallocArray(&array, bytes, 32768, 19200, 0)) &&
            OUT_OF_MEMORY(cudaMallocArray(&other, bytes, 32768, 19200, 0));
    claim("arrays are counted", OK(cudaFreeArray(array)) && holds && free_bytes() == before);
    cudaGetLastError();
}

/* Memory of the host is nobody's quota. */
static void host(void)
{
    void *address = NULL;
    size_t before = free_bytes();
    int holds = OK(cudaHostAlloc(&address, LARGE, 0)) && free_bytes() == before;
    claim("pinned host memory is not counted", OK(cudaFreeHost(address)) && holds);
}

static void streams(void)
{
    handle stream = NULL, begin = NULL, end = NULL, graph = NULL, ready = NULL;
    void *address = NULL;
    unsigned char seen[16] = {0};
    float milliseconds = -1;
    int holds = OK(cudaStreamCreate(&stream)) && OK(cudaEventCreate(&begin)) && OK(cudaEventCreate(&end)) &&
                OK(cudaMalloc(&address, 4096)) && OK(cudaMemset(address, 0, 4096)) && OK(cudaEventRecord(begin, stream)) &&
                OK(cudaMemsetAsync(address, 7, 4096, stream)) && OK(cudaEventRecord(end, stream)) &&
                OK(cudaStreamSynchronize(stream)) && OK(cudaMemcpy(seen, address, sizeof seen, DEVICE_TO_HOST)) &&
                OK(cudaEventElapsedTime(&milliseconds, begin, end)) && seen[15] == 7 && milliseconds >= 0;
    claim("a stream does its work between two events", holds);
    holds = OK(cudaStreamBeginCapture(stream, CAPTURE_GLOBAL)) && OK(cudaMemsetAsync(address, 9, 4096, stream)) &&
            OK(cudaStreamEndCapture(stream, &graph)) && OK(cudaGraphInstantiate(&ready, graph, 0, 0, 0)) &&
            OK(cudaGraphLaunch(ready, stream)) && OK(cudaStreamSynchronize(stream)) &&
            OK(cudaMemcpy(seen, address, sizeof seen, DEVICE_TO_HOST)) && seen[15] == 9;
    claim("a captured graph does its work when launched", holds);
    OK(cudaGraphExecDestroy(ready));
    OK(cudaGraphDestroy(graph));
    OK(cudaFree(address));
    OK(cudaEventDestroy(begin));
    OK(cudaEventDestroy(end));
    OK(cudaStreamDestroy(stream));
}

/* A fatbinary as a compiler would have left it, with one PTX text. */
static const void *fatbinary(void)
{
    static const char ptx[] =
        ".version 6.5\n.target sm_30\n.address_size 64\n.visible .entry nothing() { ret; }\n";
    static struct {
        uint32_t magic;
        uint16_t version, header_bytes;
        uint64_t bytes;
        struct {
            uint16_t kind, version;
            uint32_t header_bytes;
            uint64_t bytes;
            uint32_t packed_bytes, reserved;
            uint16_t minor, major;
            uint32_t target, name_offset, name_bytes;
            uint64_t flags, zero, unpacked_bytes;
        } member;
        char text[128];
    } image = {.magic = 0xba55ed50, .version = 1, .header_bytes = 16, .bytes = sizeof image - 16};
    enum { KIND_PTX = 1, MEMBER_VERSION = 0x101, FLAGS_64_BIT_LINUX = 0x11, SM = 30 };
    image.member.kind = KIND_PTX;
    image.member.version = MEMBER_VERSION;
    image.member.header_bytes = sizeof image.member;
    image.member.bytes = sizeof image.text;
    image.member.major = 6;
    image.member.minor = 5;
    image.member.target = SM;
    image.member.flags = FLAGS_64_BIT_LINUX;
    memcpy(image.text, ptx, sizeof ptx);
    return &image;
}

static char nothing; /* stands for the kernel's function on the host, of which only the address matters */

static void register_kernel(void)
{
    static struct fat_wrapper wrapper = {.magic = 0x466243b1, .version = 1};
    wrapper.fatbinary = fatbinary();
    void **module = __cudaRegisterFatBinary(&wrapper);
    __cudaRegisterFunction(module, &nothing, "nothing", "nothing", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFatBinaryEnd(module);
}

static void kernel(void)
{
    struct dimensions grid = {4, 1, 1}, block = {256, 1, 1};
    int holds = OK(cudaLaunchKernel(&nothing, grid, block, NULL, 0, NULL)) && OK(cudaDeviceSynchronize());
    claim("a kernel is launched", holds && driver_calls("cuLaunchKernel", 0) == 1);
    block.x = 4096;
    holds = cudaLaunchKernel(&nothing, grid, block, NULL, 0, NULL) != 0;
    claim("a launch with too large a block is refused by the driver", holds && cudaGetLastError() != 0);
}

/* NVIDIA's runtimes from 11.2 on have the driver prove that it is NVIDIA's, which the simulated one is not and does not
 * claim. Before they ask, they have looked up everything that they will call. */
static void refused(void)
{
    int count = 0;
    claim("it ends with an error, as it takes NVIDIA's own driver only", cudaGetDeviceCount(&count) != 0);
    claim("it has looked up the whole driver before that", driver_calls("cuGetProcAddress_v2", 0) > 400);
}

int main(int count, char **arguments)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    void *library = count >= 3 ? dlopen(arguments[2], RTLD_NOW) : NULL;
    if (!library) {
        fprintf(stderr, "usage: runtime NAME LIBRARY [refused]: %s\n", count >= 3 ? dlerror() : "arguments are missing");
        return 2;
    }
    name = arguments[1];
#define LOOK_UP(result, function, parameters) \
    if (!(function = (result(*) parameters)dlsym(library, #function))) { \
        fprintf(stderr, "%s has no %s\n", arguments[2], #function); \
        return 2; \
    }
    RUNTIME_FUNCTIONS(LOOK_UP)
    if (count > 3 && !strcmp(arguments[3], "refused")) {
        refused();
        return failures != 0;
    }
    register_kernel();
    int devices = 0;
    claim("there is one device", OK(cudaGetDeviceCount(&devices)) && devices == 1 && OK(cudaSetDevice(0)));
    sizes();
    linear();
    managed();
    shaped();
    host();
    streams();
    kernel();
    claim("a reset gives everything back", OK(cudaDeviceReset()) && free_bytes() >= LARGE);
    return failures != 0;
}
