/* `spin KERNEL COUNT` launches a kernel so often, once a line has come on stdin, and tells on the machine's clock when it began
 * and when the device was done, in nanoseconds. */
#include "driver.h"

static long long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

int main(int argc, char **argv) {
    if (argc != 3) return 64;
    char line[16];
    CUstream stream;
    begin();
    CUfunction function = kernel(argv[1]);
    NEED(cuStreamCreate(&stream, 1));
    printf("ready\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 65;
    long long begun = now_ns();
    for (int i = 0; i < atoi(argv[2]); i++) NEED(launch(function, stream));
    NEED(cuStreamSynchronize(stream));
    printf("times 0 %lld %lld\n", begun, now_ns());
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 0;
    return 0;
}
