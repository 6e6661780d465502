/* Jobs that launch as fast as they may, and those that use the device now and then. */
#include "busy.h"

static long launched[THREADS_MAX];
static long long begun_ns, end_ns;
static int open_lanes;

/* Launches after which a thread waits; 0 for never. */
static long launches_per_wait(void) {
    if (!strcmp(options.mode, "sync")) return 1;
    if (options.iter_launches) return options.iter_launches;
    long long each_ns = told_ns(options.kernel) * (options.launch == GRAPH ? options.nodes : 1);
    if (!options.iter_ns || !each_ns) return 0;
    return options.iter_ns > each_ns ? options.iter_ns / each_ns : 1;
}

static void *run_thread(void *argument) {
    struct lane lane = {0};
    long *mine = argument, waits_after = launches_per_wait();
    open_lane(&lane);
    /* All threads begin together, when the first has said that it is ready. */
    __atomic_fetch_add(&open_lanes, 1, __ATOMIC_ACQ_REL);
    while (mine != launched && !__atomic_load_n(&begun_ns, __ATOMIC_ACQUIRE)) usleep(200);
    if (mine == launched) {
        while (__atomic_load_n(&open_lanes, __ATOMIC_ACQUIRE) < options.threads) usleep(200);
        be_ready();
        long long now = now_ns();
        end_ns = options.run_ns ? now + options.run_ns : 0;
        __atomic_store_n(&begun_ns, now, __ATOMIC_RELEASE);
    }
    while ((!options.count || *mine < options.count) && (!end_ns || now_ns() < end_ns)) {
        if (failed(launch_in(&lane))) return NULL;
        ++*mine;
        if (waits_after && *mine % waits_after == 0) {
            if (failed(finish(&lane))) return NULL;
            if (options.gap_ns) rest_until(now_ns() + options.gap_ns);
        }
    }
    return NULL;
}

void saturate(void) {
    pthread_t threads[THREADS_MAX];
    long total = 0;
    for (int i = 1; i < options.threads; i++) pthread_create(&threads[i], NULL, run_thread, &launched[i]);
    run_thread(&launched[0]);
    for (int i = 1; i < options.threads; i++) pthread_join(threads[i], NULL);
    long long stopped_ns = now_ns();
    use_device(options.device);
    failed(cuCtxSynchronize());
    for (int i = 0; i < options.threads; i++) total += launched[i];
    printf("launched=%ld completed=%ld launch_ns=%lld wall_ns=%lld code=%d\n", total, first_failure() ? 0 : total,
        stopped_ns - begun_ns, now_ns() - begun_ns, first_failure());
}

void alternate(void) {
    struct lane lane = {0};
    open_lane(&lane);
    long long each_ns = told_ns(options.kernel);
    long each = each_ns ? options.gpu_ns / each_ns : 1, rounds = options.count ? options.count : 10, total = 0;
    be_ready();
    long long begun = now_ns();
    for (long round = 0; round < rounds && !first_failure(); round++) {
        rest_until(now_ns() + options.cpu_ns);
        for (long i = 0; i < each && !failed(launch_in(&lane)); i++) total++;
        failed(finish(&lane));
    }
    printf("launched=%ld rounds=%ld wall_ns=%lld code=%d\n", total, rounds, now_ns() - begun, first_failure());
}
