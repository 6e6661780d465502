/* How long it takes to load a library into a program that has others and runs threads: `loading THREADS LIBRARY OTHERS...`.
 * Prints the microseconds of loading it, and of the first thousand look-ups through it. SIGALRM ends who hangs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int ending;

static double now_us(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

/* Holds the loader's lock and the heap's from time to time, as threads of a program do. */
static void *work(void *nothing) {
    while (!__atomic_load_n(&ending, __ATOMIC_RELAXED)) {
        void *memory = malloc(100000);
        if (!dlsym(RTLD_DEFAULT, "qsort") || !memory) abort();
        free(memory);
        usleep(100);
    }
    return nothing;
}

int main(int argc, char **argv) {
    enum { THREADS_MAX = 16 };
    pthread_t threads[THREADS_MAX];
    int count = argc > 2 ? atoi(argv[1]) : -1;
    if (count < 0 || count > THREADS_MAX) return 64;
    alarm(60);
    for (int at = 3; at < argc; at++)
        if (!dlopen(argv[at], RTLD_NOW)) return 66;
    for (int at = 0; at < count; at++)
        if (pthread_create(&threads[at], NULL, work, NULL)) return 71;
    double begin = now_us();
    void *library = dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL);
    double loaded = now_us();
    if (!library) { printf("%s\n", dlerror()); return 66; }
    void *(*look)(void *, const char *) = NULL;
    *(void **)&look = dlsym(library, "dlsym");
    if (!look) return 65;
    for (int round = 0; round < 1000; round++)
        if (!look(RTLD_DEFAULT, "qsort") || look(RTLD_DEFAULT, "cuNobodyHasThis")) return 67;
    printf("loaded %.0f looked %.0f\n", loaded - begin, now_us() - loaded);
    __atomic_store_n(&ending, 1, __ATOMIC_RELAXED);
    for (int at = 0; at < count; at++) pthread_join(threads[at], NULL);
    return 0;
}
