/* A service: requests come when they come, and each is a row of kernels. */
#include "busy.h"
#include <math.h>

static int by_size(const void *a, const void *b) {
    long long x = *(const long long *)a, y = *(const long long *)b;
    return (x > y) - (x < y);
}

static double uniform(unsigned long long *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (double)(*state >> 11) / (double)(1ull << 53);
}

static long long at_permille(const long long *sorted, long count, int permille) {
    return count ? sorted[(count * permille + 999) / 1000 - (count * permille > 0)] / 1000 : 0;
}

void answer_requests(void) {
    struct lane lane = {0};
    unsigned long long random = 0x9e3779b97f4a7c15ull * (unsigned long long)(options.seed * 2 + 1);
    long long *took = malloc(sizeof *took * REQUESTS_MAX), sum = 0;
    long count = 0, wanted = options.count ? options.count : REQUESTS_MAX;
    open_lane(&lane);
    /* Once, so that the first request pays for nothing that later ones don't. */
    if (!failed(launch_in(&lane))) failed(finish(&lane));
    be_ready();
    long long begun = now_ns(), due = begun, end = options.run_ns ? begun + options.run_ns : 0;
    for (int i = 0; i < 8; i++) uniform(&random);
    while (count < wanted && !first_failure()) {
        double gap = strcmp(options.arrivals, "periodic") ? -log(1.0 - uniform(&random)) : 1.0;
        due += (long long)(gap * 1e9 / options.rate);
        if (end && due >= end) break;
        long long arrived = due;
        /* A request that finds nobody at work comes when this wakes up: that a sleep ends late is not the device's doing. */
        if (now_ns() < due) { rest_until(due); arrived = now_ns(); }
        for (int i = 0; i < options.kernels && !failed(launch_in(&lane)); i++) {}
        failed(finish(&lane));
        took[count] = now_ns() - arrived;
        sum += took[count++];
    }
    long long wall = now_ns() - begun;
    qsort(took, (size_t)count, sizeof *took, by_size);
    printf("requests=%ld mean_us=%lld p50_us=%lld p95_us=%lld p99_us=%lld max_us=%lld wall_ns=%lld code=%d\n", count,
        count ? sum / count / 1000 : 0, at_permille(took, count, 500), at_permille(took, count, 950),
        at_permille(took, count, 990), at_permille(took, count, 1000), wall, first_failure());
    free(took);
}
