/* One scenario for each driver function whose call matters to a quota: by its exported name without the per-thread suffix.
 *
 *   coverage list             the scenarios there are, a line each
 *   coverage whole SYMBOL     the scenario of a symbol, with all of the device
 *   coverage part SYMBOL      what it is to do under a quota of QUOTA
 *   coverage launch SYMBOL    see launches.h
 *
 * The function under test is `tested`, looked up by its exact name; everything else is set up with ordinary calls. Lines are
 * claims (`ok`, `FAIL`), answers to be compared with those of a run without the shim, and quiet points: then the reader compares
 * what the program says it should hold, what it is charged and what it does hold, and lets it go on by a line. */
#ifndef COVERAGE_H
#define COVERAGE_H
#include "../driver/driver.h"

/* The reader knows these numbers, too: quota, and what a context costs. */
#define QUOTA GIB
#define CTX (300 * MIB)
#define POISON 0x5a5a5a5a5a5a5a5aull

/* The function under test, and whether its default stream is the thread's own. */
extern void *tested;
extern int per_thread;
#define CALL(parameters, ...) (((CUresult(*) parameters)tested)(__VA_ARGS__))

void enter_scenario(const char *symbol, int is_part, void (*run)(void));
#define ENTER(symbol, part, name) \
    static void name##symbol(void); \
    __attribute__((constructor)) static void enter_##name##symbol(void) { enter_scenario(#symbol, part, name##symbol); } \
    static void name##symbol(void)
#define WHOLE(symbol) ENTER(symbol, 0, whole_)
#define PART(symbol) ENTER(symbol, 1, part_)

/* An answer that is to be the driver's own. */
void tell(const char *what, long long answer);

/* A quiet point: the first device, or both. `asked` is what calls asked for by size, `measured` what they took beside that. */
void at(const char *where, size_t asked, size_t measured);
void at_both(const char *where, size_t asked, size_t measured, size_t asked_second, size_t measured_second);

/* Asks for the measurement that is made at most every 20 ms, at a synchronisation. */
void settle(void);

/* The calls of functions that the simulated driver doesn't know: the code passes, the outputs are as they were. */
void is_unknown(CUresult code);
void is_untouched(const char *claim, const void *out, size_t size);

/* Under the quota: a block of all that is left but `left` bytes. */
CUdeviceptr fill(size_t left);

/* An allocation of 8 MiB, 4 MiB and so on: refused with nothing left, granted after something is freed. `granted` is what an
 * allocation of 8 MiB adds. */
typedef CUresult (*attempt)(uint64_t *out, size_t bytes);
void refused_then_granted(attempt allocate, size_t granted);

/* Memory that no call tells of, until somebody looks: a launch that needs UNSEEN more for the stacks of its threads. */
#define UNSEEN (66 * MIB)
#define CODE (2 * MIB)
CUmodule load_grower(void);
void grow_unseen(CUmodule module);

/* Another process, forked before anybody uses CUDA; they take turns, and it says nothing but what fails. */
pid_t with_other(void (*other)(void));
void give(const void *bytes, size_t size);
void get(void *bytes, size_t size);
void your_turn(void);
void wait_turn(void);
void give_file(int file);
int get_file(void);
void other_ends(pid_t pid);


static inline CUdeviceptr block(size_t bytes) {
    CUdeviceptr address;
    NEED(cuMemAlloc_v2(&address, bytes));
    return address;
}

static inline CUstream stream_of_its_own(void) {
    CUstream stream;
    NEED(cuStreamCreate(&stream, 1));
    return stream;
}

/* Physical memory of a device, which may be shared by descriptor. */
static inline CUmemGenericAllocationHandle physical(size_t bytes, int device) {
    CUmemAllocationProp where = {1, 1, {1, device}, NULL, {0, 0, 0, {0}}};
    CUmemGenericAllocationHandle handle;
    NEED(cuMemCreate(&handle, bytes, &where, 0));
    return handle;
}

static inline CUdeviceptr reserved(size_t bytes) {
    CUdeviceptr address;
    NEED(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    return address;
}

static inline CUcontext on(int device) {
    CUcontext context;
    NEED(cuDevicePrimaryCtxRetain(&context, device));
    NEED(cuCtxSetCurrent(context));
    return context;
}

/* On the second device, where it is not known yet what a context costs: too little is left for one. */
#define LITTLE (100 * MIB)
static inline void leave_little(void) { physical(QUOTA - LITTLE, 1); }

static inline void *nobody(void) { return (void *)(uintptr_t)0x1234; }
#endif
