/* A program that has nothing to do with CUDA. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    const char *preload = getenv("LD_PRELOAD");
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    int mapped = 0, threads = 0;
    while (maps && fgets(line, sizeof line, maps)) mapped |= strstr(line, "libgpuquota.so") != NULL;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status)) sscanf(line, "Threads: %d", &threads);
    printf("preloaded %d mapped %d threads %d\n", preload != NULL, mapped, threads);
    return argc > 1 ? atoi(argv[1]) : 0;
}
