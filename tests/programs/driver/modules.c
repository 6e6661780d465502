/* Modules, libraries and launches: images that are and are not, names that are and are not in them, and what a launch refuses. */
#include "driver.h"

static const char *ptx =
    ".version 7.0\n.target sm_70\n.address_size 64\n.visible .global .align 4 .b8 table[4096];\n"
    ".visible .entry spin_5us(.param .u64 p0)\n{\n    ret;\n}\n.visible .entry other()\n.maxntid 64, 1, 1\n{\n    ret;\n}\n";

static void images(void) {
    CUmodule module = NULL;
    CUfunction function;
    CUdeviceptr global = 0;
    size_t bytes = 0;
    is("junk is no image", cuModuleLoadData(&module, "\1\2 junk"), INVALID_IMAGE);
    is("PTX is one", cuModuleLoadData(&module, ptx), SUCCESS);
    is("its function", cuModuleGetFunction(&function, module, "spin_5us"), SUCCESS);
    is("not another", cuModuleGetFunction(&function, module, "no_such"), NOT_FOUND);
    is("its variable", cuModuleGetGlobal_v2(&global, &bytes, module, "table"), SUCCESS);
    is("of its size", (long long)bytes, 4096);
    is("no other variable", cuModuleGetGlobal_v2(&global, &bytes, module, "no_such"), NOT_FOUND);
    is("unloaded", cuModuleUnload(module), SUCCESS);
    is("its function is gone with it", launch(function, NULL), INVALID_HANDLE);
}

static void libraries(void) {
    CUlibrary library;
    CUkernel kernel_handle;
    CUfunction function;
    is("a library", cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0), SUCCESS);
    is("its kernel", cuLibraryGetKernel(&kernel_handle, library, "other"), SUCCESS);
    is("not another", cuLibraryGetKernel(&kernel_handle, library, "no_such"), NOT_FOUND);
    NEED(cuLibraryGetKernel(&kernel_handle, library, "spin_5us"));
    is("the kernel's function", cuKernelGetFunction(&function, kernel_handle), SUCCESS);
    void *null = NULL, *parameters[] = {&null};
    is("it is launched", cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL), SUCCESS);
    is("so is the kernel itself", cuLaunchKernel((CUfunction)kernel_handle, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL), SUCCESS);
    NEED(cuCtxSynchronize());
    is("unloaded", cuLibraryUnload(library), SUCCESS);
}

static void launches(void) {
    enum { MAX_DYNAMIC_SHARED = 8, MAX_THREADS = 0 };
    CUfunction function = kernel("spin_0us");
    int threads = 0;
    is("a launch", cuLaunchKernel(function, 4, 4, 4, 8, 8, 4, 1024, NULL, NULL, NULL), SUCCESS);
    is("no blocks", cuLaunchKernel(function, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), INVALID_VALUE);
    is("too many threads", cuLaunchKernel(function, 1, 1, 1, 1025, 1, 1, 0, NULL, NULL, NULL), INVALID_VALUE);
    is("too large a grid", cuLaunchKernel(function, 1, 65536, 1, 1, 1, 1, 0, NULL, NULL, NULL), INVALID_VALUE);
    is("more shared memory than allowed", cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 49153, NULL, NULL, NULL), INVALID_VALUE);
    is("it can be allowed", cuFuncSetAttribute(function, MAX_DYNAMIC_SHARED, 65536), SUCCESS);
    is("and is then", cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 49153, NULL, NULL, NULL), SUCCESS);
    is("no function", cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), INVALID_HANDLE);
    is("no stream", launch(function, (CUstream)0x5550), INVALID_HANDLE);
    is("an attribute", cuFuncGetAttribute(&threads, MAX_THREADS, function), SUCCESS);
    is("is the device's", threads, 1024);
    CUlaunchConfig config = {2, 1, 1, 32, 1, 1, 0, NULL, NULL, 0};
    is("a launch by its configuration", cuLaunchKernelEx(&config, function, NULL, NULL), SUCCESS);
    is("a cooperative launch", cuLaunchCooperativeKernel(function, 2, 1, 1, 32, 1, 1, 0, NULL, NULL), SUCCESS);
    is("and one too large for the device", cuLaunchCooperativeKernel(function, 1 << 20, 1, 1, 1024, 1, 1, 0, NULL, NULL), COOPERATIVE_TOO_LARGE);
    NEED(cuCtxSynchronize());
}

int main(void) {
    begin();
    images();
    libraries();
    launches();
    return verdict();
}
