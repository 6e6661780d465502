/* Another interposer of the driver, as profilers are: counts allocations and forwards to the next. With
 * DLSYM, it also wraps dlsym. Tells at exit. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

static int allocations, lookups;

int cuMemAlloc_v2(uint64_t *out, size_t bytes) {
    static int (*next)(uint64_t *, size_t);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    allocations++;
    return next ? next(out, bytes) : 999;
}

#ifdef WRAP_DLSYM
void *dlsym(void *handle, const char *name) {
    static void *(*next)(void *, const char *);
    if (!next) *(void **)&next = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    if (!next) *(void **)&next = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    lookups++;
    return next(handle, name);
}
#endif

__attribute__((destructor)) static void tell(void) { fprintf(stderr, "traced %d lookups %d\n", allocations, lookups > 0); }
