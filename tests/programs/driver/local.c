/* Local memory of kernels: a context makes room for the most that a launch has needed, and keeps it until it ends. */
#include "driver.h"

/* What a byte more of a thread costs: multiprocessors times their threads. */
enum { THREADS = 108 * 2048, USUAL = 1024, OVERHEAD = 512 };
static size_t start;
static long long taken(void) { return (long long)(start - free_bytes()); }

static const char text[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry flat() { ret; }\n"
    ".visible .entry shallow() { .local .align 4 .b8 depot[1000]; ret; }\n"
    ".visible .entry deep() { .local .align 16 .b8 depot[4096]; ret; }\n"
    ".visible .entry deeper() { .local .align 16 .b8 depot[4096]; { .local .b32 more[1024]; } ret; }\n"
    ".visible .entry bottomless() { .local .align 16 .b8 depot[1048576]; ret; }\n"
    ".visible .entry large() { .local .align 16 .b8 depot[524288]; ret; }\n";

/* The smallest cubin with one kernel, `deep`, of 4096 bytes a thread: sections without a name, of names, of symbols, the
 * kernel's code and facts, and the facts of all functions, which tell the local memory. */
static struct {
    struct { unsigned char magic[16]; uint16_t type, machine; uint32_t version; uint64_t entry, programs, sections; uint32_t flags;
        uint16_t bytes, program_bytes, program_count, section_bytes, section_count, names; } header;
    struct { uint32_t name, type; uint64_t flags, at, offset, size; uint32_t link, info; uint64_t align, entry_bytes; } sections[6];
    char names[64];
    struct { uint32_t name; unsigned char info, other; uint16_t section; uint64_t value, size; } symbols[2];
    unsigned char code[16];
    struct { unsigned char format, kind; uint16_t bytes; uint32_t symbol, value; } frame;
} cubin = {
    {{0x7f, 'E', 'L', 'F', 2, 1, 1}, 2, 190, 1, 0, 0, 0, 0, 64, 0, 0, 64, 6, 1},
    {{0}, {1, 3, 0, 0, 0, 64, 0, 0, 1, 0}, {8, 2, 0, 0, 0, 48, 1, 1, 8, 24}, {16, 1, 6, 0, 0, 16, 0, 0, 16, 0},
        {27, 0x70000000, 0, 0, 0, 0, 2, 3, 4, 0}, {41, 0x70000000, 0, 0, 0, 12, 2, 0, 4, 0}},
    "\0.names\0.symtab\0.text.deep\0.nv.info.deep\0.nv.info", {{0}, {22, 0x12, 0, 3, 0, 16}}, {0}, {4, 0x11, 8, 1, 4096}
};

static void assembled(void) {
    const char *start_of_file = (const char *)&cubin;
    cubin.header.sections = (uint64_t)((const char *)cubin.sections - start_of_file);
    cubin.sections[1].offset = (uint64_t)((const char *)cubin.names - start_of_file);
    cubin.sections[2].offset = (uint64_t)((const char *)cubin.symbols - start_of_file);
    cubin.sections[3].offset = cubin.sections[4].offset = (uint64_t)((const char *)cubin.code - start_of_file);
    cubin.sections[5].offset = (uint64_t)((const char *)&cubin.frame - start_of_file);
}

static long long room(long long bytes) { return (bytes - USUAL) * THREADS; }

static CUfunction of(CUmodule module, const char *name) {
    CUfunction function;
    NEED(cuModuleGetFunction(&function, module, name));
    return function;
}

static void grows(CUmodule module) {
    int bytes = 0;
    NEED(cuFuncGetAttribute(&bytes, 3, of(module, "deeper")));
    is("a kernel tells what it needs", bytes, 8192);
    is("one without", launch(of(module, "flat"), NULL), SUCCESS);
    is("one with little", launch(of(module, "shallow"), NULL), SUCCESS);
    is("there is room for that", taken(), 0);
    is("one with more", launch(of(module, "deep"), NULL), SUCCESS);
    is("makes the context grow", taken(), room(4096));
    is("again", launch(of(module, "deep"), NULL), SUCCESS);
    is("once", taken(), room(4096));
    is("still more", launch(of(module, "deeper"), NULL), SUCCESS);
    is("and further", taken(), room(8192));
    is("less", launch(of(module, "deep"), NULL), SUCCESS);
    is("and not back", taken(), room(8192));
}

static void stacks(CUmodule module) {
    size_t value = 0;
    NEED(cuCtxGetLimit(&value, 0));
    is("the stack's limit stays", (long long)value, 1024);
    NEED(cuCtxSetLimit(0, 4096));
    is("a stack that there is room for", taken(), room(8192));
    NEED(cuCtxSetLimit(0, 16384));
    is("a deeper one", taken(), room(16384));
    NEED(launch(of(module, "deeper"), NULL));
    is("which a kernel uses", taken(), room(16384));
    NEED(cuCtxSetLimit(0, 1024));
    is("kernels keep what they needed", taken(), room(8192));
}

static void graphs(CUmodule module) {
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    NEED(cuStreamCreate(&stream, 1));
    NEED(cuStreamBeginCapture_v2(stream, 0));
    is("captured", launch(of(module, "deep"), stream), SUCCESS);
    NEED(cuStreamEndCapture(stream, &graph));
    is("nothing runs yet", taken(), 0);
    NEED(cuGraphInstantiateWithFlags(&exec, graph, 0));
    NEED(cuGraphLaunch(exec, stream));
    is("a graph's kernel makes the context grow", taken(), room(4096));
    NEED(cuStreamSynchronize(stream));
    NEED(cuGraphExecDestroy(exec));
    NEED(cuGraphDestroy(graph));
    NEED(cuStreamDestroy_v2(stream));
}

static void refused(CUmodule module) {
    CUdeviceptr block;
    is("more than a thread can have", launch(of(module, "bottomless"), NULL), INVALID_RESOURCES);
    is("more than the device has left", launch(of(module, "large"), NULL), OUT_OF_MEMORY);
    is("took nothing", taken(), 0);
    NEED(cuMemAlloc_v2(&block, free_bytes() - 128 * MIB));
    long long before = taken();
    is("no room for a kernel", launch(of(module, "deep"), NULL), OUT_OF_MEMORY);
    is("changes nothing", taken(), before);
    is("others run", launch(of(module, "shallow"), NULL), SUCCESS);
    NEED(cuMemFree_v2(block));
    is("with room it runs", launch(of(module, "deep"), NULL), SUCCESS);
    is("and takes it", taken(), room(4096));
}

static void of_a_cubin(void) {
    CUmodule module;
    int bytes = 0;
    assembled();
    NEED(cuModuleLoadData(&module, &cubin));
    start = free_bytes();
    NEED(cuFuncGetAttribute(&bytes, 3, of(module, "deep")));
    is("a cubin tells it, too", bytes, 4096);
    is("its kernel runs", launch(of(module, "deep"), NULL), SUCCESS);
    is("and makes the context grow", taken(), room(4096));
}

/* A context of its own, with the module loaded and nothing else. */
static CUmodule loaded(CUcontext *context) {
    CUmodule module;
    NEED(cuCtxCreate_v2(context, 0, 0));
    NEED(cuModuleLoadData(&module, text));
    start = free_bytes();
    return module;
}

int main(void) {
    CUcontext context;
    CUmodule module;
    begin();
    size_t at_first = free_bytes();
    module = loaded(&context);
    grows(module);
    stacks(module);
    NEED(cuCtxDestroy_v2(context));
    is("a context gives everything back", (long long)(at_first - free_bytes()), 0);
    module = loaded(&context);
    graphs(module);
    NEED(cuCtxDestroy_v2(context));
    loaded(&context);
    of_a_cubin();
    NEED(cuCtxDestroy_v2(context));
    module = loaded(&context);
    refused(module);
    NEED(cuCtxDestroy_v2(context));
    is("all is back", (long long)(at_first - free_bytes()), 0);
    return verdict();
}
