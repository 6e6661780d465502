/* Looks functions up where few programs do: while the program is still being bound (an ifunc's resolver), before `main`, as
 * threads end (keys and thread-local destructors) and as the process ends. `early LIBRARIES...`: all are opened first. With
 * EARLY_ALLOCATES in its environment, it then allocates.
 * It gives itself a time by SIGALRM, which ends it: who hangs has no end of its own. Prints how many look-ups gave what they
 * should. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROUNDS = 1000, THREADS = 8, SECONDS = 60 };

static long right, wrong;

/* One name that libc has, one that nobody has, and one that the driver may have. */
static void look(void) {
    for (int round = 0; round < ROUNDS; round++) {
        int known = dlsym(RTLD_DEFAULT, "qsort") != NULL, unknown = dlsym(RTLD_DEFAULT, "cuNobodyHasThis") == NULL;
        (void)dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
        __atomic_fetch_add(known && unknown ? &right : &wrong, 1, __ATOMIC_RELAXED);
    }
}

static int answer(void) { return 42; }

#if defined(__x86_64__) || defined(__aarch64__)
/* Through the table of addresses: what is called lazily can't be, yet. */
typedef int (*answer_function)(void);
extern void *dlsym(void *, const char *) __attribute__((noplt));
extern unsigned alarm(unsigned) __attribute__((noplt));

static __attribute__((optimize("no-stack-protector"))) answer_function resolve(void) {
    alarm(SECONDS);
    look();
    return answer;
}

int chosen(void) __attribute__((ifunc("resolve")));
#else
static int chosen(void) { return answer(); }
#endif

__attribute__((constructor)) static void before_main(void) {
    alarm(SECONDS);
    look();
}

static pthread_key_t key;
extern int __cxa_thread_atexit_impl(void (*)(void *), void *, void *);
extern void *__dso_handle;

static void at_the_end(void *nothing) {
    (void)nothing;
    look();
}

static void *work(void *number) {
    pthread_setspecific(key, number);
    __cxa_thread_atexit_impl(at_the_end, number, &__dso_handle);
    if ((long)number % 2) look();
    return NULL;
}

/* Allocates 100 MiB, and 2 GiB. */
static void allocate(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
    if (!driver) return;
    int (*init)(unsigned) = NULL, (*create)(void **, unsigned, int) = NULL, (*take)(unsigned long *, size_t) = NULL;
    *(void **)&init = dlsym(driver, "cuInit");
    *(void **)&create = dlsym(driver, "cuCtxCreate_v2");
    *(void **)&take = dlsym(driver, "cuMemAlloc_v2");
    unsigned long address;
    printf("init %d\n", init(0) || create(&context, 0, 0));
    printf("small %d\n", take(&address, 100ul << 20));
    printf("large %d\n", take(&address, 2ul << 30));
}

__attribute__((destructor)) static void after_main(void) {
    look();
    printf("right %ld wrong %ld\n", right, wrong);
    fflush(stdout);
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    for (int at = 1; at < argc; at++)
        if (!dlopen(argv[at], RTLD_NOW)) return 66;
    printf("chosen %d before %ld\n", chosen(), right);
    if (getenv("EARLY_ALLOCATES")) allocate();
    if (pthread_key_create(&key, at_the_end)) return 71;
    for (long at = 0; at < THREADS; at++)
        if (pthread_create(&threads[at], NULL, work, (void *)(at + 1))) return 71;
    for (int at = 0; at < THREADS; at++) pthread_join(threads[at], NULL);
    return 0;
}
