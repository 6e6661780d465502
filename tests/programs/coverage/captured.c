/* Captures under a compute cap: what is captured is not run, so that it neither counts nor waits, and no call of ours may spoil
 * the capture, also while another thread is paced. The graph then counts as a whole, each time it is launched. */
#include "launches.h"

enum { GLOBAL, THREAD_LOCAL, RELAXED, LAUNCHES = 20, REPLAYS = 5, OTHERS = 40 };
static const char *const modes[] = {"global", "thread-local", "relaxed"};
static volatile int is_captured;

/* Work in a stream that nobody captures, for as long as the capture lasts, and synchronisation of it by query. */
static void *beside(void *unused) {
    CUstream apart;
    CUresult code = cuCtxSetCurrent(here_context);
    if (!code) code = cuStreamCreate(&apart, 1);
    is_captured = 1;
    for (int i = 0; i < OTHERS && !code; i++) code = launch(kernel("spin_100us"), apart);
    return (void *)(intptr_t)code + (unused != NULL);
}

static CUgraphExec captured(int mode) {
    CUgraph graph = NULL;
    CUgraphExec instance;
    CUstream to = per_thread ? (CUstream)2 : stream;
    int failed = 0;
    NEED(cuStreamBeginCapture_v2(to, mode));
    for (int i = 0; i < LAUNCHES; i++) {
        failed += CALL((CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **),
                       nothing, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL) != SUCCESS;
        failed += cuMemsetD8Async(one, 1, SMALL, to) != SUCCESS;
        failed += cuMemcpyDtoDAsync_v2(two, one, SMALL, to) != SUCCESS;
    }
    failed += cuMemcpyAsync(two, one, LARGE, to) != SUCCESS;
    failed += cuMemcpyHtoDAsync_v2(one, host, LARGE, to) != SUCCESS;
    is("everything is captured", failed, 0);
    is("the capture is not spoilt", cuStreamEndCapture(to, &graph), SUCCESS);
    NEED(cuGraphInstantiateWithFlags(&instance, graph, 0));
    return instance;
}

/* Without a neighbour: captures in all modes while the tenant is in debt, and then launches of the graph. */
static void alone(int mode) {
    printf("ok %s\n", modes[mode]);
    run_into_debt();
    CUgraphExec instance = captured(mode);
    look("waited", 0);
    look("debt", 0);
    NEED(cuGraphLaunch(instance, stream));
    look("waited", has_waited());
    NEED(cuCtxSynchronize());
    look("from", 0);
    for (int i = 0; i < REPLAYS; i++) NEED(cuGraphLaunch(instance, per_thread ? (CUstream)2 : stream));
    NEED(cuCtxSynchronize());
    look("counted", REPLAYS);
    NEED(cuGraphExecDestroy(instance));
}

static void beside_another(int mode) {
    pthread_t other;
    void *code = NULL;
    is_captured = 0;
    kernel("spin_100us");
    if (pthread_create(&other, NULL, beside, NULL)) exit(70);
    while (!is_captured) usleep(100);
    for (int i = 0; i < 10; i++) NEED(cuGraphExecDestroy(captured(mode)));
    pthread_join(other, &code);
    is("the other thread's launches succeed", (intptr_t)code, SUCCESS);
    NEED(cuCtxSynchronize());
}

int run_captured(void) {
    NEED(cuInit(0));
    set_up_launches();
    for (int mode = GLOBAL; mode <= RELAXED; mode++) {
        alone(mode);
        beside_another(mode);
    }
    puts("done");
    return verdict();
}
