/* Meets a driver that lacks much and has something new: prints what is found and what calls answer. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

extern int cuMemCreate(void *, size_t, const void *, unsigned long long);
extern int cuStreamSynchronize(void *);

int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *found = NULL;
    if (!driver) return 70;
    int (*init)(unsigned) = NULL, (*future)(int) = NULL, (*resolve)(const char *, void **, int, uint64_t) = NULL;
    *(void **)&init = dlsym(driver, "cuInit");
    printf("init %d\n", init(0));
    printf("absent %d %d\n", dlsym(driver, "cuGetProcAddress_v2") == NULL, dlsym(driver, "cuMemCreate") == NULL);
    *(void **)&resolve = dlsym(driver, "cuGetProcAddress");
    int code = resolve("cuFutureFunction", &found, 99000, 0);
    *(void **)&future = found;
    printf("future %d %d\n", code, future ? future(41) : -1);
    code = resolve("cuNoSuchFunction", &found, 99000, 0);
    printf("unknown %d %d\n", code, found == (void *)future);
    *(void **)&future = dlsym(driver, "cuFutureFunction");
    printf("by-name %d\n", future ? future(1) : -1);
    /* Linked, and the driver lacks them: an answer, not a crash. */
    printf("linked-absent %d %d\n", cuMemCreate(NULL, 0, NULL, 0), cuStreamSynchronize(NULL));
    return 0;
}
