/* Runs driver calls given as words and prints each with its result: the hands of the tests.
 *
 *   probe DOOR WORD...
 *     init  ctx[=D]  drop  total[=D]  info  sleep=MS  say=TEXT  wait (until a line comes on stdin)
 *     KIND:NAME=SIZE    allocates; KIND is linear pitch managed async pool vmm array array3d mipmap
 *     free:NAME         frees by the kind's own function;  afree:NAME  by cuMemFreeAsync
 *     copy:NAME  checks a round trip of data;  launch=KERNEL;  sync;  trim
 *     device=D   the device of the next contexts and physical allocations
 *
 * Sizes are bytes with K, M or G. A line is `WORD CODE [numbers]`; an allocation also says `touched` when it
 * failed and yet wrote to its outputs. */
#include "doors.h"
#include <time.h>
#include <unistd.h>

#define UNTOUCHED 0x5a5a5a5a5a5a5a5aull
enum { NAMES_MAX = 4096 };
static struct item { char name[32], kind[16]; uint64_t handle, address; size_t size; } items[NAMES_MAX];
static int item_count, device;
static void *context, *pool;

static size_t parse_size(const char *text) {
    char *end;
    double value = strtod(text, &end);
    switch (*end) {
    case 'K': return (size_t)(value * 1024);
    case 'M': return (size_t)(value * 1024 * 1024);
    case 'G': return (size_t)(value * 1024 * 1024 * 1024);
    default: return (size_t)value;
    }
}

static struct item *find(const char *name) {
    for (int i = item_count - 1; i >= 0; i--)
        if (!strcmp(items[i].name, name)) return &items[i];
    fprintf(stderr, "no item %s\n", name);
    exit(64);
}

static CUresult map(struct item *item) {
    CUmemAccessDesc access = {{1, device}, 3};
    CUresult code = p_cuMemAddressReserve(&item->address, item->size, 0, 0, 0);
    if (!code) code = p_cuMemMap(item->address, item->size, 0, item->handle, 0);
    if (!code) code = p_cuMemSetAccess(item->address, item->size, &access, 1);
    return code;
}

static CUresult allocate(struct item *item, int *touched) {
    size_t size = item->size, pitch = UNTOUCHED;
    uint64_t out = UNTOUCHED;
    CUresult code = -1;
    CUmemAllocationProp prop = {1, 0, {1, device}, NULL, {0, 0, 0, {0}}};
    CUDA_ARRAY_DESCRIPTOR flat = {16384, size / 65536, 0x20, 1};
    CUDA_ARRAY3D_DESCRIPTOR deep = {1024, 256, size / (4096 * 256), 0x20, 1, 0};
    CUDA_ARRAY3D_DESCRIPTOR wide = {16384, size / 65536, 0, 0x20, 1, 0};
    if (!strcmp(item->kind, "linear")) code = p_cuMemAlloc_v2(&out, size);
    else if (!strcmp(item->kind, "pitch")) code = p_cuMemAllocPitch_v2(&out, &pitch, 4096, size / 4096, 4);
    else if (!strcmp(item->kind, "managed")) code = p_cuMemAllocManaged(&out, size, 1);
    else if (!strcmp(item->kind, "async")) code = p_cuMemAllocAsync(&out, size, NULL);
    else if (!strcmp(item->kind, "pool")) {
        CUmemPoolProps props;
        memset(&props, 0, sizeof props);
        props.allocType = 1;
        props.location = (CUmemLocation){1, device};
        if (!pool && (code = p_cuMemPoolCreate(&pool, &props))) return code;
        code = p_cuMemAllocFromPoolAsync(&out, size, pool, NULL);
    } else if (!strcmp(item->kind, "vmm")) code = p_cuMemCreate(&out, size, &prop, 0);
    else if (!strcmp(item->kind, "array")) code = p_cuArrayCreate_v2((void **)&out, &flat);
    else if (!strcmp(item->kind, "array3d")) code = p_cuArray3DCreate_v2((void **)&out, &deep);
    else if (!strcmp(item->kind, "mipmap")) code = p_cuMipmappedArrayCreate((void **)&out, &wide, 1);
    *touched = code && (out != UNTOUCHED || pitch != UNTOUCHED);
    item->handle = item->address = out;
    if (!code && !strcmp(item->kind, "vmm")) code = map(item);
    return code;
}

static CUresult release(struct item *item) {
    if (!strcmp(item->kind, "async") || !strcmp(item->kind, "pool")) return p_cuMemFreeAsync(item->address, NULL);
    if (!strcmp(item->kind, "array") || !strcmp(item->kind, "array3d")) return p_cuArrayDestroy((void *)item->handle);
    if (!strcmp(item->kind, "mipmap")) return p_cuMipmappedArrayDestroy((void *)item->handle);
    if (strcmp(item->kind, "vmm")) return p_cuMemFree_v2(item->address);
    CUresult code = p_cuMemRelease(item->handle);
    if (!code) code = p_cuMemUnmap(item->address, item->size);
    if (!code) code = p_cuMemAddressFree(item->address, item->size);
    return code;
}

static CUresult round_trip(struct item *item) {
    enum { BYTES = 1 << 16 };
    static unsigned char out[BYTES], back[BYTES];
    size_t bytes = item->size < BYTES ? item->size : BYTES;
    for (size_t i = 0; i < bytes; i++) out[i] = (unsigned char)(i * 31 + bytes);
    CUresult code = p_cuMemcpyHtoD_v2(item->address, out, bytes);
    if (!code) code = p_cuMemcpyDtoH_v2(back, item->address, bytes);
    return code ? code : memcmp(out, back, bytes) ? 9999 : 0;
}

static CUresult launch(const char *kernel) {
    char image[512];
    void *module, *function;
    snprintf(image, sizeof image, ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry %s() { ret; }\n", kernel);
    CUresult code = p_cuModuleLoadData(&module, image);
    if (!code) code = p_cuModuleGetFunction(&function, module, kernel);
    return code ? code : p_cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
}

static void run(char *word) {
    char shown[128], *value, *name, line[256];
    snprintf(shown, sizeof shown, "%s", word);
    if ((value = strchr(word, '='))) *value++ = 0;
    if ((name = strchr(word, ':'))) *name++ = 0;
    int at = value ? atoi(value) : device;
    size_t a = 0, b = 0;
    if (!strcmp(word, "init")) printf("%s %d\n", shown, p_cuInit(0));
    else if (!strcmp(word, "device")) device = at;
    else if (!strcmp(word, "ctx")) printf("%s %d\n", shown, p_cuCtxCreate_v2(&context, 0, at));
    else if (!strcmp(word, "drop")) printf("%s %d\n", shown, p_cuCtxDestroy_v2(context));
    else if (!strcmp(word, "total")) { CUresult code = p_cuDeviceTotalMem_v2(&a, at); printf("%s %d %zu\n", shown, code, a); }
    else if (!strcmp(word, "info")) { CUresult code = p_cuMemGetInfo_v2(&a, &b); printf("%s %d %zu %zu\n", shown, code, a, b); }
    else if (!strcmp(word, "nullinfo")) printf("%s %d\n", shown, p_cuMemGetInfo_v2(NULL, NULL));
    else if (!strcmp(word, "sync")) printf("%s %d\n", shown, p_cuCtxSynchronize());
    else if (!strcmp(word, "launch")) printf("%s %d\n", shown, launch(value));
    else if (!strcmp(word, "say")) printf("%s\n", value);
    else if (!strcmp(word, "sleep")) nanosleep(&(struct timespec){at / 1000, at % 1000 * 1000000l}, NULL);
    else if (!strcmp(word, "wait")) { if (!fgets(line, sizeof line, stdin)) exit(0); }
    else if (!strcmp(word, "copy")) printf("%s %d\n", shown, round_trip(find(name)));
    else if (!strcmp(word, "free")) printf("%s %d\n", shown, release(find(name)));
    else if (!strcmp(word, "afree")) printf("%s %d\n", shown, p_cuMemFreeAsync(find(name)->address, NULL));
    else if (!strcmp(word, "fork")) { if (!fork()) { printf("child "); } }
    else if (name && value && item_count < NAMES_MAX) {
        struct item *item = &items[item_count++];
        int touched = 0;
        snprintf(item->name, sizeof item->name, "%s", name);
        snprintf(item->kind, sizeof item->kind, "%s", word);
        item->size = parse_size(value);
        CUresult code = allocate(item, &touched);
        printf("%s %d%s\n", shown, code, touched ? " touched" : "");
    } else {
        fprintf(stderr, "what is %s?\n", shown);
        exit(64);
    }
    fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc < 2) return 64;
    open_door(argv[1]);
    for (int i = 2; i < argc; i++) run(argv[i]);
    return 0;
}
