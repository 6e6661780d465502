/* A job that has something to lose when it makes room: takes memory with contents, and hears of notices in the ways it is told.
 *
 *   room WORD...
 *     take=SIZE  allocates and fills;  check  whether the contents are as they were;  drop  frees
 *     hear       registers a callback, which frees the memory, says that it is ready, and takes it again afterwards
 *     listen     the same, but the callback only says what it hears
 *     deaf       registers none again
 *     catch-usr1  catch-term   signal handlers that say so; the latter ends the program after a moment, with status 3
 *     launch     runs a kernel and waits for it;  quota  says what the library says;  ready  says so to the library
 *     fork       a child registers nothing, asks for the quota and ends;  threads  how many there are
 *     say=TEXT  wait (until a line comes on stdin)
 *
 * A line is `WORD CODE [numbers]`; sizes are bytes with M or G. */
#define _GNU_SOURCE
#include "cuda_api.h"
#include "gpuquota.h"
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXTERN(symbol, base, version, parameters) extern CUresult symbol parameters;
FUNCTIONS(EXTERN)
CUresult cuMemcpyHtoD_v2(CUdeviceptr, const void *, size_t);
CUresult cuMemcpyDtoH_v2(void *, CUdeviceptr, size_t);

enum { BLOCK = 1 << 20 };
static void *context;
static CUdeviceptr memory;
static size_t taken;
static unsigned char block[BLOCK], back[BLOCK];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void say(const char *what, int code) {
    printf("%s %d\n", what, code);
    fflush(stdout);
}

static int take(size_t size) {
    int code = cuMemAlloc_v2(&memory, size);
    if (code) return code;
    taken = size;
    for (int i = 0; i < BLOCK; i++) block[i] = (unsigned char)(i * 7 + i / 251);
    code = cuMemcpyHtoD_v2(memory, block, BLOCK);
    return code ? code : cuMemcpyHtoD_v2(memory + size - BLOCK, block, BLOCK);
}

static int same(size_t at) {
    memset(back, 0, BLOCK);
    return !cuMemcpyDtoH_v2(back, memory + at, BLOCK) && !memcmp(back, block, BLOCK);
}

static void heard(const struct gpuquota_notice *notice, void *frees) {
    cuCtxSetCurrent(context);
    pthread_mutex_lock(&lock);
    printf("heard %d %d %d %d\n", notice->event, notice->reason, notice->action, notice->grace_ms > 0);
    if (frees && notice->event == GPUQUOTA_NOTICE) {
        printf("freed %d\n", cuMemFree_v2(memory));
        printf("ready %d\n", gpuquota_ready());
    }
    if (frees && notice->event == GPUQUOTA_RESUMED) printf("again %d\n", take(taken));
    fflush(stdout);
    pthread_mutex_unlock(&lock);
}

static void caught(int number) {
    if (number == SIGALRM) _exit(3);
    /* It takes a moment to end: being asked once more would show. */
    if (number == SIGTERM) alarm(1);
    if (write(1, number == SIGTERM ? "caught-term\n" : "caught-usr1\n", 12)) return;
}

static int launch(void) {
    void *module, *function;
    int code = cuModuleLoadData(&module, ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry spin_1ms() { ret; }\n");
    if (!code) code = cuModuleGetFunction(&function, module, "spin_1ms");
    if (!code) code = cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    return code ? code : cuCtxSynchronize();
}

static void quota(void) {
    struct gpuquota_quota it;
    it.size = sizeof it;
    if (!gpuquota_quota) {
        printf("quota absent\n");
    } else {
        int code = gpuquota_quota(0, &it);
        printf("quota %d", code);
        if (!code) printf(" %zu %zu %u %u %d %d", it.memory_quota, it.memory_used, it.compute_cap, it.weight, it.priority, it.state);
        printf("\n");
    }
    fflush(stdout);
}

static void count_threads(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    for (struct dirent *entry; (entry = readdir(folder));) count += entry->d_name[0] != '.';
    closedir(folder);
    say("threads", count);
}

static void in_a_child(void) {
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        count_threads();
        _exit(gpuquota_ready && gpuquota_ready() == GPUQUOTA_NOT_READY ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    say("fork", status);
}

static void on(int number) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = caught;
    action.sa_flags = SA_RESTART;
    sigaction(number, &action, NULL);
}

static void run(const char *word) {
    char line[64];
    const char *value = strchr(word, '=');
    if (!strncmp(word, "take=", 5)) {
        char *unit;
        double size = strtod(value + 1, &unit);
        int code;
        pthread_mutex_lock(&lock);
        code = take((size_t)(size * (*unit == 'G' ? 1 << 30 : 1 << 20)));
        pthread_mutex_unlock(&lock);
        say(word, code);
    } else if (!strcmp(word, "check")) {
        pthread_mutex_lock(&lock);
        say("check", same(0) && same(taken - BLOCK));
        pthread_mutex_unlock(&lock);
    } else if (!strcmp(word, "drop")) say("drop", cuMemFree_v2(memory));
    else if (!strcmp(word, "hear")) say("hear", gpuquota_on_notice ? gpuquota_on_notice(heard, &lock) : -1);
    else if (!strcmp(word, "listen")) say("listen", gpuquota_on_notice ? gpuquota_on_notice(heard, NULL) : -1);
    else if (!strcmp(word, "deaf")) say("deaf", gpuquota_on_notice ? gpuquota_on_notice(NULL, NULL) : -1);
    else if (!strcmp(word, "ready")) say("ready", gpuquota_ready ? gpuquota_ready() : -1);
    else if (!strcmp(word, "version")) say("version", gpuquota_version ? gpuquota_version() : -1);
    else if (!strcmp(word, "catch-usr1")) on(SIGUSR1);
    else if (!strcmp(word, "catch-term")) on(SIGTERM), on(SIGALRM);
    else if (!strcmp(word, "launch")) say("launch", launch());
    else if (!strcmp(word, "quota")) quota();
    else if (!strcmp(word, "threads")) count_threads();
    else if (!strcmp(word, "fork")) in_a_child();
    else if (!strncmp(word, "say=", 4)) puts(value + 1), fflush(stdout);
    else if (!strcmp(word, "wait")) {
        if (!fgets(line, sizeof line, stdin)) exit(0);
    } else exit(64);
}

int main(int count, char **words) {
    int early = count > 1 && !strcmp(words[1], "early");
    /* Before CUDA is there: the callback is heard all the same. */
    if (early) run("listen"), run("threads");
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 1;
    for (int i = 1 + early; i < count; i++) run(words[i]);
    return 0;
}
