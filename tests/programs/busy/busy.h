/* A job as the tests of compute sharing need it: it keeps a device busy in one of the ways in which programs do, and tells
 * what it did. Words of the form NAME=VALUE say how:
 *
 *   mode=async      launches and never waits but where the driver makes it wait (the default)
 *   mode=sync       waits for each launch
 *   mode=requests   answers requests that come at rate=20 a second, whether it keeps up or not: kernels=40 launches each;
 *                   arrivals=poisson or periodic, by seed=1
 *   mode=rank       one rank of a collective on each of devices=0,1: rounds=1000 of computes=2 launches of compute=NAME,
 *                   then one of kernel=ring_meet4_50us, and a wait
 *   mode=batch      cpu=400ms away from the device, then gpu=400ms of work on it, count=10 times
 *   launch=kernel|ex|coop|multi|grid|graph|copies|memsets     by which function (multi: on all devices=…)
 *   stream=own|legacy|ptds   streams=N in turn   threads=N, each with its own streams
 *   kernel=spin_200us   nodes=10 of a graph   bytes=64M of a copy   device=0
 *   iter=100ms or iter=500   waits after so much work (by the kernel's name) or so many launches; gap=3ms of rest then
 *   seconds=10 or count=1000   how long; for ever when neither is given
 *   wait            begins when a line comes on stdin
 *
 * Short forms: mode=ex, graph, coop, multi, grid, copies, memsets, ptds, legacy, streams:4, threads:4 are asynchronous in
 * that way; mode=long is one kernel.
 *
 * It prints `pid` and its own, and `ready` once all is set up, and one line of NAME=VALUE at its end; its status is 1 when a call failed, and the
 * line says `code`. All times are of CLOCK_MONOTONIC. */
#ifndef BUSY_H
#define BUSY_H
#include "../driver/driver.h"

enum { STREAMS_MAX = 64, THREADS_MAX = 64, DEVICES_MAX = 16, REQUESTS_MAX = 1 << 20 };
enum stream_kind { OWN, LEGACY, PTDS };
enum launch_kind { KERNEL, EX, COOP, MULTI, GRID, GRAPH, COPIES, MEMSETS };

struct options {
    const char *mode, *kernel, *compute, *arrivals;
    enum launch_kind launch;
    enum stream_kind stream;
    int streams, threads, nodes, device, kernels, computes, seed, wait;
    int devices[DEVICES_MAX], device_count;
    double rate;
    size_t bytes;
    long iter_launches, count, rounds;
    long long iter_ns, gap_ns, cpu_ns, gpu_ns, run_ns;
};
extern struct options options;

/* What one thread launches into. */
struct lane {
    CUcontext context;
    CUfunction function;
    CUstream streams[STREAMS_MAX];
    CUgraphExec graph;
    CUdeviceptr from, to;
    int next;
};

/* The context of a device, current in this thread. */
CUcontext use_device(int device);
/* A function of this name, in the current context. */
CUfunction function_named(const char *name);
void open_lane(struct lane *lane);
/* One launch into the lane's next stream, as the options say. */
CUresult launch_in(struct lane *lane);
/* Waits for all that was launched into the lane. */
CUresult finish(struct lane *lane);
/* The code of the first failed call, for the last line; 0 while there is none. */
int failed(CUresult code);
int first_failure(void);

long long now_ns(void);
void rest_until(long long at_ns);
/* What a kernel of this name takes, 0 when the name doesn't tell. */
long long told_ns(const char *kernel);
/* Says `ready`, and waits for a line if asked to. */
void be_ready(void);

void saturate(void);
void answer_requests(void);
void take_part(void);
void alternate(void);
#endif
