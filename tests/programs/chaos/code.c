/* Modules and libraries, what is looked up in them, and kernels. */
#include "chaos.h"

static const char plain[] = ".version 8.0\n.target sm_70\n.address_size 64\n.visible .entry spin_0us() { ret; }\n";
static const char text[] =
    ".version 8.0\n.target sm_70\n.address_size 64\n.visible .global .align 4 .b8 table[70000];\n"
    ".visible .global .align 4 .b8 large[3000000];\n.visible .global .attribute(.managed) .align 4 .b8 both[4096];\n"
    ".visible .entry spin_0us() { ret; }\n";

/* An image of that many pages of code; every name is in it. */
static const char *some_image(struct actor *a) {
    enum { BYTES = 5 << 20 };
    static char image[BYTES];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (!image[0]) {
        memset(image, ' ', BYTES - 1);
        for (int at = 0; at < BYTES - 8; at += 1 << 20) memcpy(image + at, "fake", 4);
    }
    pthread_mutex_unlock(&lock);
    switch (below(a, 8)) {
    case 0: return "no image";
    case 1: return "\1\2\3\4";
    case 2: case 3: return options.variables ? text : plain;
    case 4: return image + ((size_t)below(a, 5) << 20);
    default: return options.variables ? "fake" : plain;
    }
}

static int has_room(struct actor *a, enum kind kind) {
    if (is_full(a, kind)) kind == MODULE ? unload(a) : unload_library(a);
    return !is_full(a, kind);
}

void load(struct actor *a) {
    CUmodule module = (CUmodule)UNTOUCHED;
    const char *image = some_image(a);
    CUresult code;
    if (!has_room(a, MODULE)) return;
    if (one_in(a, 3)) code = CALL(a, cuModuleLoadDataEx, place(a, &module), image, 0, NULL, NULL);
    else if (one_in(a, 20)) code = CALL(a, cuModuleLoad, place(a, &module), "/nonexistent/image");
    else code = CALL(a, cuModuleLoadData, place(a, &module), one_in(a, 60) ? NULL : image);
    put_made(a, (uint64_t)module);
    if (!code && module != (CUmodule)UNTOUCHED) keep(a, MODULE, (uint64_t)module, 0);
}

void unload(struct actor *a) {
    struct thing *module = some(a, MODULE);
    uint64_t handle = spoilt(a, module ? module->handle : 0);
    CUresult code = CALL(a, cuModuleUnload, (CUmodule)handle);
    put_subject(a, handle);
    if (module && handle == module->handle && (code == SUCCESS || code == INVALID_HANDLE)) drop(a, MODULE, module);
    if (!code && options.threads == 1 && one_in(a, 8)) CALL(a, cuModuleUnload, (CUmodule)handle);
}

void load_library(struct actor *a) {
    CUlibrary library = (CUlibrary)UNTOUCHED;
    const char *image = some_image(a);
    if (!has_room(a, LIBRARY)) return;
    CUresult code = CALL(a, cuLibraryLoadData, place(a, &library), one_in(a, 60) ? NULL : image, NULL, NULL, 0, NULL, NULL, 0);
    put_made(a, (uint64_t)library);
    if (!code && library != (CUlibrary)UNTOUCHED) keep(a, LIBRARY, (uint64_t)library, 0);
}

void unload_library(struct actor *a) {
    struct thing *library = some(a, LIBRARY);
    uint64_t handle = spoilt(a, library ? library->handle : 0);
    CUresult code = CALL(a, cuLibraryUnload, (CUlibrary)handle);
    put_subject(a, handle);
    if (library && handle == library->handle && (code == SUCCESS || code == INVALID_HANDLE)) drop(a, LIBRARY, library);
}

static const char *some_name(struct actor *a) {
    static const char *const names[] = {"spin_0us", "spin_0us", "table", "large", "both", "nothing", ""};
    return names[below(a, 7)];
}

void look_up(struct actor *a) {
    CUfunction function = (CUfunction)UNTOUCHED;
    CUmodule module = (CUmodule)spoilt(a, some_handle(a, MODULE));
    CUdeviceptr at = UNTOUCHED;
    size_t bytes = UNTOUCHED;
    const char *name = some_name(a);
    if (one_in(a, 2) || !options.variables) {
        CALL(a, cuModuleGetFunction, place(a, &function), module, one_in(a, 60) ? NULL : name);
        put_found(a, function);
        return;
    }
    CALL(a, cuModuleGetGlobal_v2, place(a, &at), place(a, &bytes), module, name);
    put_found(a, (void *)at);
    put_number(a, bytes);
}

void look_up_in_library(struct actor *a) {
    CUlibrary library = (CUlibrary)spoilt(a, some_handle(a, LIBRARY));
    CUkernel kernel = (CUkernel)UNTOUCHED;
    CUfunction function = (CUfunction)UNTOUCHED;
    CUmodule module = (CUmodule)UNTOUCHED;
    CUdeviceptr at = UNTOUCHED;
    size_t bytes = UNTOUCHED;
    const char *name = some_name(a);
    switch (below(a, options.variables ? 4 : 2)) {
    case 0:
        if (CALL(a, cuLibraryGetKernel, place(a, &kernel), library, name) || kernel == (CUkernel)UNTOUCHED) return;
        CALL(a, cuKernelGetFunction, place(a, &function), kernel);
        break;
    case 1: CALL(a, cuLibraryGetModule, place(a, &module), library); break;
    case 2: CALL(a, cuLibraryGetGlobal, place(a, &at), place(a, &bytes), library, name); break;
    default: CALL(a, cuLibraryGetManaged, place(a, &at), place(a, &bytes), library, name); break;
    }
    put_found(a, kernel);
    put_found(a, function);
    put_found(a, module);
    put_found(a, (void *)at);
    put_number(a, bytes);
}

void launch_kernel(struct actor *a) {
    CUmodule module = (CUmodule)some_handle(a, MODULE);
    CUfunction function = (CUfunction)UNTOUCHED;
    CUstream stream = some_stream(a);
    /* Where runs are compared, nothing may depend on how long work takes. */
    const char *name = options.compares || !one_in(a, 4) ? "spin_0us" : "spin_30us";
    CALL(a, cuModuleGetFunction, &function, module, name);
    put_found(a, function);
    function = (CUfunction)spoilt(a, (uint64_t)function);
    if (one_in(a, 3)) CALL(a, cuLaunchKernel_ptsz, function, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
    else CALL(a, cuLaunchKernel, function, 1, 1, 1, (unsigned)below(a, 1100), 1, 1, 0, stream, NULL, NULL);
}
