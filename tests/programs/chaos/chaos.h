/* Random driver calls from a seed: what the tests of the books and of transparency run. chaos.c says how it is used. */
#ifndef CHAOS_H
#define CHAOS_H
#define _GNU_SOURCE
#include "../driver/driver.h"
#include <stdarg.h>

#define UNTOUCHED 0x5a5a5a5a5a5a5a5aull
enum kind { BLOCK, POOLED, POOL, PHYSICAL, MAPPING, ARRAY, MIPMAP, MODULE, LIBRARY, CONTEXT, STREAM, EVENT, GRAPH, EXEC, LEFT, KINDS };
enum { DEVICES = 2, ROOM = 10, BLOCKS_MAX = 3, LINE_MAX = 512, THREADS_MAX = 8 };

/* Something that the program holds. */
struct thing {
    uint64_t handle;
    size_t size;
    /* The context in which it was made. */
    void *context;
    /* Of a mapping: pieces of it that are mapped. Of physical memory: whether it can be exported. Of a graph: whether it allocates. */
    int parts;
    /* Addresses that a launch of the graph leaves behind. */
    uint64_t blocks[BLOCKS_MAX];
};

struct shelf {
    struct thing things[ROOM];
    int count;
};

/* One thread of the program. */
struct actor {
    uint64_t random;
    long operation;
    int number;
    /* How often it has retained each primary context. */
    int retained[DEVICES];
    /* The stream that it captures, and what the graph will leave behind. */
    CUstream capturing;
    uint64_t recorded[BLOCKS_MAX];
    struct shelf shelves[KINDS];
    char line[LINE_MAX];
    size_t line_length;
};

struct options {
    uint64_t seed;
    long operations, quiet;
    int compares, tells, variables, threads, process, processes;
    const char *folder;
};
extern struct options options;
extern struct actor actors[THREADS_MAX];
/* Primary contexts as the driver named them. */
extern void *primaries[DEVICES];
/* Held for reading by every operation, for writing while a context ends that others use: programs must not do that at once. */
extern pthread_rwlock_t shared_contexts;

/* quiet.c */
void look_for_the_last_time(void);

/* draw.c */
uint64_t draw(struct actor *a);
int below(struct actor *a, int limit);
int one_in(struct actor *a, int chances);
void begin_operation(struct actor *a);
size_t some_size(struct actor *a);
int some_device(struct actor *a);
CUstream some_stream(struct actor *a);
/* The place for an output, now and then none. */
void *place(struct actor *a, void *out);
/* A handle, now and then one that is none. */
uint64_t spoilt(struct actor *a, uint64_t handle);

/* shelf.c */
void *here(void);
struct thing *keep(struct actor *a, enum kind kind, uint64_t handle, size_t size);
struct thing *some(struct actor *a, enum kind kind);
uint64_t some_handle(struct actor *a, enum kind kind);
void drop(struct actor *a, enum kind kind, struct thing *thing);
int is_full(struct actor *a, enum kind kind);
void context_is_gone(struct actor *a, void *context);

/* tell.c */
CUresult tell(struct actor *a, const char *function, CUresult code);
void put_made(struct actor *a, uint64_t handle);
void put_known(struct actor *a, uint64_t handle);
/* What the call was about. */
void put_subject(struct actor *a, uint64_t handle);
void put_number(struct actor *a, uint64_t number);
/* For what a look-up gives: only whether there is something. */
void put_found(struct actor *a, void *found);
void forget_name(uint64_t handle);
void end_line(struct actor *a);
/* A call, told with its answer; what follows adds its outputs. */
#define CALL(actor, function, ...) tell(actor, #function, function(__VA_ARGS__))
#define CALL0(actor, function) tell(actor, #function, function())

/* The operations, one file a family. */
typedef void operation(struct actor *a);
operation linear, pitched, managed, legacy, release, look, touch, info;
operation async, from_pool, make_pool, end_pool, set_pool, trim_pool, set_pool_attribute, get_pool_attribute;
operation create, release_physical, map, unmap, retain, share_with_self, offer;
operation array, array3d, mipmap, end_array, end_mipmap;
operation load, unload, load_library, unload_library, look_up, look_up_in_library, launch_kernel;
operation new_context, end_context, switch_context, push_context, pop_context, retain_primary, release_primary, reset_primary,
    set_limit, get_limit;
operation synchronise, new_stream, end_stream, event, ask_device, resolve;
operation build_graph, capture, instantiate, launch_graph, upload_graph, end_exec, end_graph, trim_graphs;

/* How objects end, once their operation or the end of the program wants it; true when they are gone. */
int free_pointer(struct actor *a, enum kind kind, struct thing *thing);
int end_mapping(struct actor *a, struct thing *thing);
void end_kind(struct actor *a, enum kind kind);
void release_one_primary(struct actor *a, int device);

/* sharing.c */
void meet_peers(void);
void send_offers(void);
void receive_offers(struct actor *a);

/* steps.c */
void leave_out(const char *names);
void step(struct actor *a);
void step_inside_capture(struct actor *a);

/* quiet.c */
void settle(struct actor *actors, int count);
void drain(struct actor *a);
void end_contexts(struct actor *a);

/* Functions that the other programs don't use. */
CUresult cuCtxAttach(CUcontext *, unsigned);
CUresult cuCtxCreate(CUcontext *, unsigned, CUdevice);
CUresult cuCtxCreate_v4(CUcontext *, void *, unsigned, CUdevice);
CUresult cuCtxDetach(CUcontext);
CUresult cuDeviceSetGraphMemAttribute(CUdevice, int, void *);
CUresult cuDeviceTotalMem(unsigned *, CUdevice);
CUresult cuGetProcAddress(const char *, void **, int, uint64_t);
CUresult cuGraphAddMemFreeNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUdeviceptr);
CUresult cuGraphInstantiate_v2(CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t);
CUresult cuGraphLaunch_ptsz(CUgraphExec, CUstream);
CUresult cuGraphUpload_ptsz(CUgraphExec, CUstream);
CUresult cuLaunchKernel_ptsz(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);
CUresult cuMemAllocAsync_ptsz(CUdeviceptr *, size_t, CUstream);
CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *, size_t, CUmemoryPool, CUstream);
CUresult cuMemAllocPitch(unsigned *, unsigned *, unsigned, unsigned, unsigned);
CUresult cuMemFreeAsync_ptsz(CUdeviceptr, CUstream);
CUresult cuModuleLoadDataEx(CUmodule *, const void *, unsigned, int *, void **);
CUresult cuStreamQuery_ptsz(CUstream);

#endif
