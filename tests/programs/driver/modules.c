/* Modules, libraries, the linker: images, the names in them, what they take, what is left when they go. */
#include "driver.h"

static const char text[] =
    "// comment .entry none(\n.version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .global .align 4 .b8 table[1024] = {1,2,3};\n.global .align 8 .u64 counter;\n.const .align 4 .f32 coefficients[16];\n"
    ".extern .global .b8 elsewhere[];\n.visible .global .attribute(.managed) .align 4 .b8 both[4096];\n"
    ".visible .entry add(\n .param .u64 .ptr .global .align 16 add_0,\n .param .u32 add_1,\n .param .align 16 .b8 add_2[48],\n .param .f64 add_3\n)\n"
    ".maxntid 256, 1, 1\n{\n .shared .align 4 .b8 tile[2048];\n { .reg .pred p; }\n ret;\n}\n"
    ".visible .entry spin_0us() { ret; }\n.func (.param .b32 x) helper() { ret; }\n";

static size_t start;
static long long taken(void) { return (long long)(start - free_bytes()); }

static void names(CUmodule module, CUfunction add) {
    CUfunction function = &function, listed[2];
    CUmodule owner = NULL;
    const char *name = "";
    unsigned count = 0;
    is("no such function", cuModuleGetFunction(&function, module, "nosuch"), NOT_FOUND);
    is("a comment is none", cuModuleGetFunction(&function, module, "none"), NOT_FOUND);
    is("a device function is none", cuModuleGetFunction(&function, module, "helper"), NOT_FOUND);
    is("no name", cuModuleGetFunction(&function, module, NULL), INVALID_VALUE);
    HOLDS("failed calls leave the output alone", function == (void *)&function);
    NEED(cuModuleGetFunctionCount(&count, module));
    is("two functions", count, 2);
    NEED(cuModuleEnumerateFunctions(listed, 2, module));
    HOLDS("the first is add", listed[0] == add);
    NEED(cuFuncGetName(&name, add));
    is("it knows its name", strcmp(name, "add"), 0);
    NEED(cuFuncGetModule(&owner, add));
    HOLDS("and its module", owner == module);
}

static void globals(CUmodule module) {
    static const struct { const char *name; size_t bytes; } rows[] = {{"table", 1024}, {"counter", 8}, {"coefficients", 64}, {"both", 4096}};
    CUdeviceptr at = 0;
    size_t bytes = 0;
    unsigned out = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        NEED(cuModuleGetGlobal_v2(&at, &bytes, module, rows[i].name));
        is(rows[i].name, (long long)bytes, (long long)rows[i].bytes);
        NEED(cuMemsetD32_v2(at, 7, 2));
        NEED(cuMemcpyDtoH_v2(&out, at + 4, 4));
        is("is memory", out, 7);
    }
    NEED(cuModuleGetGlobal_v2(&at, &bytes, module, "table"));
    is("a global is not freed by pointer", cuMemFree_v2(at), INVALID_VALUE);
    is("what is elsewhere is not here", cuModuleGetGlobal_v2(&at, &bytes, module, "elsewhere"), NOT_FOUND);
}

static void parameters(CUfunction add) {
    static const struct { size_t offset, bytes; } rows[] = {{0, 8}, {8, 4}, {16, 48}, {64, 8}};
    size_t offset, bytes;
    int wrong = 0, value = 0;
    for (size_t i = 0; i < 4; i++) {
        NEED(cuFuncGetParamInfo(add, i, &offset, &bytes));
        wrong += offset != rows[i].offset || bytes != rows[i].bytes;
    }
    is("parameters lie where they should", wrong, 0);
    is("there are four", cuFuncGetParamInfo(add, 4, &offset, &bytes), INVALID_VALUE);
    NEED(cuFuncGetAttribute(&value, 0, add));
    is("threads of a block", value, 256);
    NEED(cuFuncGetAttribute(&value, 1, add));
    is("shared memory", value, 2048);
    is("no such attribute", cuFuncGetAttribute(&value, 99, add), INVALID_VALUE);
}

static void launches(CUfunction add) {
    uint64_t first = 0;
    unsigned second = 0;
    double fourth = 0;
    char third[48], packed[72];
    size_t size = sizeof packed;
    void *arguments[] = {&first, &second, third, &fourth};
    void *extra[] = {(void *)(uintptr_t)1, packed, (void *)(uintptr_t)2, &size, NULL};
    is("with arguments", cuLaunchKernel(add, 1, 1, 1, 256, 1, 1, 0, NULL, arguments, NULL), SUCCESS);
    is("without", cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), INVALID_VALUE);
    is("packed", cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra), SUCCESS);
    is("both ways", cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, extra), INVALID_VALUE);
    is("more threads than it was made for", cuLaunchKernel(add, 1, 1, 1, 257, 1, 1, 0, NULL, arguments, NULL), INVALID_RESOURCES);
    is("all the shared memory that is left", cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 47104, NULL, arguments, NULL), SUCCESS);
    is("one byte more", cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 47105, NULL, arguments, NULL), INVALID_VALUE);
}

static void libraries(void) {
    CUlibrary library, open;
    void *unified = NULL;
    CUkernel kernel, none;
    CUfunction function;
    CUmodule module;
    CUdeviceptr at;
    const char *name = "";
    size_t bytes = 0;
    unsigned count = 0;
    int value = 0;
    NEED(cuLibraryLoadData(&library, text, NULL, NULL, 0, NULL, NULL, 0));
    NEED(cuLibraryGetKernel(&kernel, library, "spin_0us"));
    is("no such kernel", cuLibraryGetKernel(&none, library, "nosuch"), NOT_FOUND);
    NEED(cuLibraryGetKernelCount(&count, library));
    is("two kernels", count, 2);
    NEED(cuKernelGetName(&name, kernel));
    is("its name", strcmp(name, "spin_0us"), 0);
    NEED(cuKernelGetFunction(&function, kernel));
    is("a kernel's function is launched", launch(function, NULL), SUCCESS);
    is("and the kernel itself", launch((CUfunction)kernel, NULL), SUCCESS);
    NEED(cuLibraryGetGlobal(&at, &bytes, library, "table"));
    is("a library's global", (long long)bytes, 1024);
    is("is not managed", cuLibraryGetManaged(&at, &bytes, library, "table"), NOT_FOUND);
    is("this one is", cuLibraryGetManaged(&at, &bytes, library, "both"), SUCCESS);
    is("a text has no unified functions", cuLibraryGetUnifiedFunction(&unified, library, "add"), NOT_FOUND);
    is("no output", cuLibraryGetUnifiedFunction(NULL, library, "add"), INVALID_VALUE);
    is("no name", cuLibraryGetUnifiedFunction(&unified, library, NULL), INVALID_VALUE);
    NEED(cuLibraryLoadData(&open, "fake", NULL, NULL, 0, NULL, NULL, 0));
    is("an image of any name has", cuLibraryGetUnifiedFunction(&unified, open, "both_sides"), SUCCESS);
    HOLDS("with an address", unified != NULL);
    NEED(cuLibraryUnload(open));
    is("no library has none", cuLibraryGetUnifiedFunction(&unified, open, "both_sides"), INVALID_HANDLE);
    NEED(cuLibraryGetModule(&module, library));
    is("a library's module is not unloaded", cuModuleUnload(module), NOT_PERMITTED);
    NEED(cuKernelSetAttribute(8, 60000, kernel, 0));
    NEED(cuFuncGetAttribute(&value, 8, function));
    is("a kernel's attribute is its function's", value, 60000);
    NEED(cuLibraryUnload(library));
    is("its functions go with a library", launch(function, NULL), INVALID_HANDLE);
    is("and its kernels", launch((CUfunction)kernel, NULL), INVALID_HANDLE);
    is("unloaded twice", cuLibraryUnload(library), INVALID_HANDLE);
}

static void linked(void) {
    CUlinkState state;
    CUmodule module;
    CUfunction function;
    void *image = NULL;
    size_t bytes = 0;
    NEED(cuLinkCreate_v2(0, NULL, NULL, &state));
    NEED(cuLinkAddData_v2(state, 1, (void *)(uintptr_t)text, sizeof text, "text", 0, NULL, NULL));
    NEED(cuLinkComplete(state, &image, &bytes));
    NEED(cuModuleLoadData(&module, image));
    is("a linked image has the function", cuModuleGetFunction(&function, module, "add"), SUCCESS);
    NEED(cuLinkDestroy(state));
    NEED(cuModuleUnload(module));
}

int main(void) {
    CUmodule module = &module;
    CUfunction add, quick;
    begin();
    start = free_bytes();
    is("no image", cuModuleLoadData(&module, "\1\2nonsense"), INVALID_IMAGE);
    is("no image that is text", cuModuleLoadData(&module, "hello world"), INVALID_IMAGE);
    is("no file", cuModuleLoad(&module, "/nonexistent/image"), 301);
    HOLDS("nothing is loaded", module == (void *)&module && taken() == 0);
    NEED(cuModuleLoadData(&module, text));
    HOLDS("a module takes memory", taken() > 0);
    NEED(cuModuleGetFunction(&add, module, "add"));
    NEED(cuModuleGetFunction(&quick, module, "spin_0us"));
    names(module, add);
    globals(module);
    parameters(add);
    launches(add);
    libraries();
    linked();
    NEED(cuModuleUnload(module));
    is("all is given back", taken(), 0);
    is("its functions go with a module", launch(quick, NULL), INVALID_HANDLE);
    is("unloaded twice", cuModuleUnload(module), INVALID_HANDLE);
    return verdict();
}
