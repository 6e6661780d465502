/* A driver of another age: it lacks most functions and has one that nobody has heard of. Its symbols have versions,
 * so that dlvsym finds them. */
#include <stdint.h>
#include <string.h>

int cuInit(unsigned flags) { return flags ? 1 : 0; }
int cuDriverGetVersion(int *version) { *version = 11040; return 0; }
int cuMemAlloc_v2(uint64_t *out, size_t bytes) { *out = bytes; return 0; }
int cuFutureFunction(int value) { return value + 1; }

int cuGetProcAddress(const char *name, void **out, int version, uint64_t flags) {
    (void)version;
    (void)flags;
    if (!strcmp(name, "cuFutureFunction")) *out = (void *)cuFutureFunction;
    else if (!strcmp(name, "cuMemAlloc")) *out = (void *)cuMemAlloc_v2;
    else return 500;
    return 0;
}
