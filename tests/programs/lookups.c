/* Looks names up in every way that has gone wrong in some interposer, and prints where each address lies. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static void show(const char *what, void *at) {
    Dl_info info;
    const char *file = "-";
    if (at && dladdr(at, &info) && info.dli_fname) {
        file = strrchr(info.dli_fname, '/');
        file = file ? file + 1 : info.dli_fname;
    }
    printf("%s %s%s\n", what, file, !at && dlerror() ? " error" : "");
}

/* Names that begin like the driver's and are not. */
int curl_easy_init(void) { return 1; }
int cublasCreate_v2(void) { return 2; }
int cuMyOwnFunction(void) { return 3; }

int main(int argc, char **argv) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    show("curl", dlsym(RTLD_DEFAULT, "curl_easy_init"));
    show("cublas", dlsym(RTLD_DEFAULT, "cublasCreate_v2"));
    show("own", dlsym(RTLD_DEFAULT, "cuMyOwnFunction"));
    show("getpid", dlsym(RTLD_NEXT, "getpid"));
    show("getpid-again", dlsym(RTLD_NEXT, "getpid"));
    show("missing", dlsym(RTLD_DEFAULT, "cuNoSuchFunction"));
    show("versioned", dlvsym(RTLD_DEFAULT, "getpid", "GLIBC_2.2.5"));
    show("versioned-missing", dlvsym(RTLD_DEFAULT, "getpid", "NO_SUCH_VERSION"));
    if (driver) {
        show("alloc", dlsym(driver, "cuMemAlloc_v2"));
        show("launch", dlsym(driver, "cuLaunchKernel"));
        show("driver-missing", dlsym(driver, "cuNoSuchFunction"));
        show("future", dlsym(driver, "cuFutureFunction"));
        show("dlvsym-alloc", dlvsym(driver, "cuMemAlloc_v2", "DRIVER_1"));
        show("dlvsym-wrong", dlvsym(driver, "cuMemAlloc_v2", "DRIVER_9"));
    }
    for (int i = 1; i < argc; i++) {
        void *library = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
        if (!library) { printf("%s %s\n", argv[i], dlerror()); continue; }
        if (dlsym(library, "cuInit")) {
            show("driver-dlvsym-alloc", dlvsym(library, "cuMemAlloc_v2", "DRIVER_1"));
            show("driver-dlvsym-wrong", dlvsym(library, "cuMemAlloc_v2", "DRIVER_9"));
        }
        const char *(*tell)(void) = NULL;
        *(void **)&tell = dlsym(library, "tell");
        if (tell) printf("tell %s\n", tell());
    }
    return 0;
}
