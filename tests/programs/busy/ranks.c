/* Ranks of a collective: each computes, then meets the others. */
#include "busy.h"

void take_part(void) {
    CUcontext contexts[DEVICES_MAX];
    CUstream streams[DEVICES_MAX];
    CUfunction meet[DEVICES_MAX], compute[DEVICES_MAX];
    for (int i = 0; i < options.device_count; i++) {
        contexts[i] = use_device(options.devices[i]);
        NEED(cuStreamCreate(&streams[i], 1));
        meet[i] = function_named(options.kernel);
        compute[i] = function_named(options.compute);
    }
    be_ready();
    long long begun = now_ns(), slowest = 0;
    long done = 0;
    while (done < options.rounds && !first_failure()) {
        long long from = now_ns();
        for (int i = 0; i < options.device_count; i++) {
            failed(cuCtxSetCurrent(contexts[i]));
            for (int k = 0; k < options.computes; k++) failed(launch(compute[i], streams[i]));
            failed(launch(meet[i], streams[i]));
        }
        for (int i = 0; i < options.device_count; i++) {
            failed(cuCtxSetCurrent(contexts[i]));
            failed(cuStreamSynchronize(streams[i]));
        }
        long long took = now_ns() - from;
        if (took > slowest) slowest = took;
        done += !first_failure();
    }
    printf("rounds=%ld slowest_us=%lld wall_ns=%lld code=%d\n", done, slowest / 1000, now_ns() - begun, first_failure());
}
