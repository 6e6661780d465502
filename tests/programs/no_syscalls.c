/* Allocates, frees and asks for what is free 200,000 times, with every system call but the last two forbidden to it:
 * `no_syscalls forbid`; without the word, nothing is forbidden. With a second word, it launches as often instead. One that somebody makes all the same ends it with SIGSYS. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int forbid(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_write, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_exit_group, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

typedef int launch_function(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

static int launch_often(launch_function *launch, int forbids) {
    static const char text[] = "launched 200000\n";
    if (!launch || launch((void *)1, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL)) return 75;
    if (forbids && forbid()) return 77;
    for (int round = 0; round < 200000; round++)
        if (launch((void *)1, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL)) return 76;
    if (write(1, text, sizeof text - 1) != sizeof text - 1) return 74;
    syscall(__NR_exit_group, 0);
    return 0;
}

int main(int argc, char **argv) {
    int forbids = argc > 1 && !strcmp(argv[1], "forbid");
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return 70;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
    int (*create)(void **, unsigned, int) = (int (*)(void **, unsigned, int))dlsym(driver, "cuCtxCreate_v2");
    int (*take)(uint64_t *, size_t) = (int (*)(uint64_t *, size_t))dlsym(driver, "cuMemAlloc_v2");
    int (*give)(uint64_t) = (int (*)(uint64_t))dlsym(driver, "cuMemFree_v2");
    int (*info)(size_t *, size_t *) = (int (*)(size_t *, size_t *))dlsym(driver, "cuMemGetInfo_v2");
    void *context;
    uint64_t kept, address;
    size_t free_bytes = 0, total = 0;
    if (init(0) || create(&context, 0, 0) || take(&kept, 1 << 20)) return 71;
    if (argc > 2) return launch_often((launch_function *)dlsym(driver, "cuLaunchKernel"), forbids);
    /* The first round may ask for stock, and the tables may grow. */
    for (int round = 0; round < 100; round++)
        if (take(&address, 4096) || give(address) || info(&free_bytes, &total)) return 72;
    if (forbids && forbid()) return 77;
    for (int round = 0; round < 200000; round++)
        if (take(&address, 1 + (size_t)round % (2 << 20)) || give(address) || info(&free_bytes, &total)) return 73;
    char text[64];
    int length = snprintf(text, sizeof text, "free %zu of %zu\n", free_bytes, total);
    if (write(1, text, (size_t)length) != length) return 74;
    syscall(__NR_exit_group, 0);
}
