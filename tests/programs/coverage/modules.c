/* Modules and libraries: what their code and variables take is measured, at once or at the next synchronisation. */
#define _GNU_SOURCE
#include "coverage.h"
#include <sys/mman.h>

/* 5 MiB, 1 KiB and 3 MiB of managed memory, and a page of code. */
static const char text[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
    ".visible .global .align 4 .b8 large[5242880];\n.visible .global .align 4 .b8 small[1024];\n"
    ".visible .global .attribute(.managed) .align 4 .b8 both[3145728];\n"
    ".visible .entry quick() { ret; }\n";
#define IMAGE (6 * MIB + 2 * MIB + 4 * MIB + CODE)

/* The image as a file, gone with the process. */
static const char *image_file(void) {
    static char path[32];
    int file = memfd_create("image", 0);
    if (file < 0 || write(file, text, sizeof text - 1) != sizeof text - 1) exit(76);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    return path;
}

static CUresult from_data(CUmodule *out, const void *image) { return CALL((CUmodule *, const void *), out, image); }
static CUresult with_options(CUmodule *out, const void *image) {
    return CALL((CUmodule *, const void *, unsigned, int *, void **), out, image, 0, NULL, NULL);
}
static CUresult from_file(CUmodule *out, const void *image) {
    if (!image || image != (const void *)text) return CALL((CUmodule *, const char *), out, image ? "/nonexistent/image" : NULL);
    return CALL((CUmodule *, const char *), out, image_file());
}

static void loaded(CUresult (*load)(CUmodule *, const void *)) {
    CUmodule one = NULL, none = (CUmodule)(uintptr_t)POISON;
    CUdeviceptr address;
    size_t bytes = 0;
    begin();
    is("an image", load(&one, text), SUCCESS);
    at("takes code and variables", 0, CTX + IMAGE);
    NEED(cuModuleGetGlobal_v2(&address, &bytes, one, "large"));
    is("they are there", (long long)bytes, 5 * MIB);
    tell("no image", load(&none, "\1\2nonsense"));
    tell("null", load(&none, NULL));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    tell("no output", load(NULL, text));
    at("and cost nothing", 0, CTX + IMAGE);
    NEED(cuModuleUnload(one));
    at("all is back", 0, CTX);
}

WHOLE(cuModuleLoad) { loaded(from_file); }
WHOLE(cuModuleLoadData) {
    loaded(from_data);
    CUmodule one;
    NEED(from_data(&one, text));
    CUdeviceptr small = block(1000);
    at("a small block shares no page with a small variable", 2 * MIB, CTX + IMAGE);
    NEED(cuMemFree_v2(small));
    at("which keeps its own", 0, CTX + IMAGE);
}
WHOLE(cuModuleLoadDataEx) { loaded(with_options); }
WHOLE(cuModuleLoadFatBinary) { loaded(from_data); }

static void bounded(CUresult (*load)(CUmodule *, const void *)) {
    CUmodule one = (CUmodule)(uintptr_t)POISON;
    begin();
    CUdeviceptr filler = fill(8 * MIB);
    is("more than is left", load(&one, text), OUT_OF_MEMORY);
    is_untouched("a refusal leaves the output alone", &one, sizeof one);
    at("nothing is loaded", QUOTA - CTX - 8 * MIB, CTX);
    NEED(cuMemFree_v2(filler));
    is("the same call again", load(&one, text), SUCCESS);
    at("is granted", 0, CTX + IMAGE);
}

PART(cuModuleLoad) { bounded(from_file); }
PART(cuModuleLoadData) { bounded(from_data); }
PART(cuModuleLoadDataEx) { bounded(with_options); }
PART(cuModuleLoadFatBinary) { bounded(from_data); }

WHOLE(cuModuleUnload) {
    CUmodule one, two;
    CUlibrary library;
    begin();
    NEED(cuModuleLoadData(&one, text));
    NEED(cuModuleLoadData(&two, "fake"));
    NEED(cuLibraryLoadData(&library, "fake", NULL, NULL, 0, NULL, NULL, 0));
    at("code shares pages", 0, CTX + IMAGE);
    is("one goes", CALL((CUmodule), one), SUCCESS);
    at("with its variables", 0, CTX + CODE);
    tell("twice", CALL((CUmodule), one));
    tell("null", CALL((CUmodule), NULL));
    tell("none", CALL((CUmodule), nobody()));
    NEED(cuLibraryGetModule(&one, library));
    tell("a library's", CALL((CUmodule), one));
    settle();
    at("what is not unloaded stays charged", 0, CTX + CODE);
    NEED(cuLibraryUnload(library));
    is("the other goes", CALL((CUmodule), two), SUCCESS);
    at("all is back", 0, CTX);
}

/* A look-up may be what loads: whatever came unseen is booked at the next synchronisation. */
WHOLE(cuModuleGetFunction) {
    CUfunction found = NULL, none = (CUfunction)(uintptr_t)POISON;
    begin();
    CUmodule module = load_grower();
    is("a function", CALL((CUfunction *, CUmodule, const char *), &found, module, "grower"), SUCCESS);
    NEED(launch(found, NULL));
    tell("no such function", CALL((CUfunction *, CUmodule, const char *), &none, module, "nosuch"));
    tell("of no module", CALL((CUfunction *, CUmodule, const char *), &none, nobody(), "grower"));
    tell("no name", CALL((CUfunction *, CUmodule, const char *), &none, module, NULL));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    tell("no output", CALL((CUfunction *, CUmodule, const char *), NULL, module, "grower"));
    settle();
    at("what its launch took is booked", 0, CTX + CODE + UNSEEN);
}

/* Of a module or a library. */
static CUresult variable(CUdeviceptr *out, size_t *bytes, void *holder, const char *name) {
    return CALL((CUdeviceptr *, size_t *, void *, const char *), out, bytes, holder, name);
}

WHOLE(cuModuleGetGlobal_v2) {
    CUmodule open, module;
    uint64_t address = 0, none = POISON;
    size_t bytes = 0, no_size = POISON;
    begin();
    NEED(cuModuleLoadData(&open, "fake"));
    NEED(cuModuleLoadData(&module, text));
    settle();
    at("two modules", 0, CTX + IMAGE);
    is("a variable", variable(&address, &bytes, module, "both"), SUCCESS);
    is("has its size", (long long)bytes, 3 * MIB);
    is("its size alone", variable(NULL, &bytes, module, "large"), SUCCESS);
    is("its address alone", variable(&address, NULL, module, "large"), SUCCESS);
    tell("no such variable", variable(&none, &no_size, module, "nosuch"));
    tell("of no module", variable(&none, &no_size, nobody(), "both"));
    tell("neither", variable(NULL, NULL, module, "both"));
    is_untouched("failed calls leave the address alone", &none, sizeof none);
    is_untouched("and the size", &no_size, sizeof no_size);
    for (int i = 0; i < 40; i++) {
        char name[16];
        snprintf(name, sizeof name, "v%d", i);
        NEED(variable(&address, &bytes, open, name));
    }
    settle();
    at("variables that are made when asked for", 0, CTX + IMAGE + 2 * MIB);
    NEED(cuModuleUnload(open));
    NEED(cuModuleUnload(module));
    at("all is back", 0, CTX);
}

static CUresult variable_short(unsigned *out, unsigned *bytes, CUmodule module, const char *name) {
    return CALL((unsigned *, unsigned *, CUmodule, const char *), out, bytes, module, name);
}

/* Variables of these contexts have no 32-bit address. */
WHOLE(cuModuleGetGlobal) {
    unsigned address = (unsigned)POISON, bytes = (unsigned)POISON;
    CUmodule module;
    begin();
    NEED(cuModuleLoadData(&module, text));
    tell("a variable", variable_short(&address, &bytes, module, "small"));
    tell("no such variable", variable_short(&address, &bytes, module, "nosuch"));
    tell("of no module", variable_short(&address, &bytes, nobody(), "small"));
    is_untouched("failed calls leave the address alone", &address, sizeof address);
    is_untouched("and the size", &bytes, sizeof bytes);
    settle();
    at("one module", 0, CTX + IMAGE);
}

WHOLE(cuFuncLoad) {
    CUfunction function;
    begin();
    CUmodule module = load_grower();
    NEED(cuModuleGetFunction(&function, module, "grower"));
    grow_unseen(module);
    is("a function", CALL((CUfunction), function), SUCCESS);
    tell("none", CALL((CUfunction), nobody()));
    settle();
    at("what came unseen is booked", 0, CTX + CODE + UNSEEN);
}

static CUlibrary library_of(const char *image) {
    CUlibrary library;
    NEED(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
    return library;
}

static CUresult library_from_data(CUlibrary *out, const void *image) {
    return CALL((CUlibrary *, const void *, int *, void **, unsigned, int *, void **, unsigned), out, image, NULL, NULL, 0, NULL, NULL, 0);
}
static CUresult library_from_file(CUlibrary *out, const void *image) {
    const char *path = image == (const void *)text ? image_file() : image ? "/nonexistent/image" : NULL;
    typedef CUresult (*function)(CUlibrary *, const char *, int *, void **, unsigned, int *, void **, unsigned);
    return ((function)tested)(out, path, NULL, NULL, 0, NULL, NULL, 0);
}

/* A library is in no context until one asks for it; then in that one. */
static void library_loaded(CUresult (*load)(CUlibrary *, const void *)) {
    CUlibrary one = NULL, none = (CUlibrary)(uintptr_t)POISON;
    CUmodule module;
    begin();
    CUmodule grower = load_grower();
    grow_unseen(grower);
    is("a library", load(&one, text), SUCCESS);
    at("what came unseen is booked", 0, CTX + CODE + UNSEEN);
    tell("no image", load(&none, "\1\2nonsense"));
    tell("null", load(&none, NULL));
    tell("no output", load(NULL, text));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    NEED(cuLibraryGetModule(&module, one));
    settle();
    at("its module takes memory", 0, CTX + UNSEEN + IMAGE);
    NEED(cuLibraryUnload(one));
    at("and gives it back", 0, CTX + CODE + UNSEEN);
}

WHOLE(cuLibraryLoadData) { library_loaded(library_from_data); }
WHOLE(cuLibraryLoadFromFile) { library_loaded(library_from_file); }

WHOLE(cuLibraryUnload) {
    CUmodule module;
    begin();
    CUlibrary one = library_of(text), two = library_of("fake");
    NEED(cuLibraryGetModule(&module, one));
    NEED(cuLibraryGetModule(&module, two));
    settle();
    at("two libraries", 0, CTX + IMAGE);
    is("one goes", CALL((CUlibrary), one), SUCCESS);
    at("with its module", 0, CTX + CODE);
    tell("twice", CALL((CUlibrary), one));
    tell("null", CALL((CUlibrary), NULL));
    is("the other goes", CALL((CUlibrary), two), SUCCESS);
    at("all is back", 0, CTX);
}

WHOLE(cuKernelGetFunction) {
    CUfunction found = NULL, none = (CUfunction)(uintptr_t)POISON;
    CUkernel kernel;
    begin();
    CUlibrary library = library_of(text);
    NEED(cuLibraryGetKernel(&kernel, library, "quick"));
    settle();
    at("a kernel is in no context", 0, CTX);
    is("its function", CALL((CUfunction *, CUkernel), &found, kernel), SUCCESS);
    NEED(launch(found, NULL));
    tell("of nothing", CALL((CUfunction *, CUkernel), &none, nobody()));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    settle();
    at("loads the library here", 0, CTX + IMAGE);
}

WHOLE(cuLibraryGetModule) {
    CUmodule found = NULL, none = (CUmodule)(uintptr_t)POISON;
    begin();
    CUlibrary library = library_of(text);
    settle();
    at("a library is in no context", 0, CTX);
    is("a library's module", CALL((CUmodule *, CUlibrary), &found, library), SUCCESS);
    tell("of nothing", CALL((CUmodule *, CUlibrary), &none, nobody()));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    settle();
    at("loads the library here", 0, CTX + IMAGE);
}

static void variable_of_a_library(const char *name, size_t size) {
    uint64_t address = 0, none = POISON;
    size_t bytes = 0, no_size = POISON;
    begin();
    CUlibrary library = library_of(text);
    settle();
    at("a library is in no context", 0, CTX);
    is("a variable", variable(&address, &bytes, library, name), SUCCESS);
    is("has its size", (long long)bytes, (long long)size);
    tell("no such variable", variable(&none, &no_size, library, "nosuch"));
    tell("of no library", variable(&none, &no_size, nobody(), name));
    is_untouched("failed calls leave the address alone", &none, sizeof none);
    is_untouched("and the size", &no_size, sizeof no_size);
    settle();
    at("loads the library here", 0, CTX + IMAGE);
}

WHOLE(cuLibraryGetGlobal) { variable_of_a_library("large", 5 * MIB); }
WHOLE(cuLibraryGetManaged) { variable_of_a_library("both", 3 * MIB); }

/* What a look-up loads can't be refused by then: it is booked, fit or not, and new memory waits until use has fallen. */
static void loads_beyond(CUresult (*look_up)(CUlibrary)) {
    CUdeviceptr none = POISON;
    begin();
    CUlibrary library = library_of(text);
    settle();
    CUdeviceptr filler = fill(4 * MIB);
    is("a look-up at a full quota", look_up(library), SUCCESS);
    settle();
    at("what it loaded is booked", QUOTA - CTX - 4 * MIB, CTX + IMAGE);
    is("nothing is free", (long long)free_bytes(), 0);
    is("nor granted", cuMemAlloc_v2(&none, 2 * MIB), OUT_OF_MEMORY);
    NEED(cuMemFree_v2(filler));
    is("until something is freed", cuMemAlloc_v2(&none, 2 * MIB), SUCCESS);
    at("as much as there is", 2 * MIB, CTX + IMAGE);
}

static CUresult looks_for_module(CUlibrary library) {
    CUmodule module;
    return CALL((CUmodule *, CUlibrary), &module, library);
}
static CUresult looks_for_variable(CUlibrary library) {
    CUdeviceptr address;
    size_t bytes;
    return variable(&address, &bytes, library, "both");
}
static CUresult looks_for_function(CUlibrary library) {
    CUfunction function;
    CUkernel kernel;
    NEED(cuLibraryGetKernel(&kernel, library, "quick"));
    return CALL((CUfunction *, CUkernel), &function, kernel);
}
PART(cuLibraryGetModule) { loads_beyond(looks_for_module); }
PART(cuLibraryGetGlobal) { loads_beyond(looks_for_variable); }
PART(cuLibraryGetManaged) { loads_beyond(looks_for_variable); }
PART(cuKernelGetFunction) { loads_beyond(looks_for_function); }

WHOLE(cuLibraryGetUnifiedFunction) {
    void *found = NULL, *none = (void *)(uintptr_t)POISON;
    begin();
    CUlibrary open = library_of("fake"), closed = library_of(text);
    CUmodule module = load_grower();
    grow_unseen(module);
    is("a function for host and device", CALL((void **, CUlibrary, const char *), &found, open, "both_sides"), SUCCESS);
    HOLDS("has an address", found != NULL);
    tell("no such function", CALL((void **, CUlibrary, const char *), &none, closed, "quick"));
    tell("of no library", CALL((void **, CUlibrary, const char *), &none, nobody(), "quick"));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    settle();
    at("what came unseen is booked", 0, CTX + CODE + UNSEEN);
}
