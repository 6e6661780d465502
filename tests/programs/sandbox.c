/* Runs a program under a filter of system calls.
 *
 *   sandbox learn FILE PROGRAM ARGUMENT...     lets all of them through, and writes each with the path it names, if it does
 *   sandbox only N,N,... PROGRAM ARGUMENT...   ends it with SIGSYS at any other number than these
 *
 * The program is preloaded with what SANDBOX_PRELOAD names. The status is the program's, 128 and the signal where it was ended
 * by one, or 77 where the kernel has no such filters for us. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NUMBERS_MAX = 400, UNABLE = 77 };

static int execute(char **line) {
    const char *preload = getenv("SANDBOX_PRELOAD");
    if (preload) setenv("LD_PRELOAD", preload, 1);
    unsetenv("SANDBOX_PRELOAD");
    execv(line[0], line);
    return 127;
}

static int install(struct sock_filter *filter, size_t length, unsigned flags) {
    struct sock_fprog program = {(unsigned short)length, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return -1;
    return (int)syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}

static int only(char *list, char **line) {
    static struct sock_filter filter[2 * NUMBERS_MAX + 2];
    size_t length = 0;
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (char *number = strtok(list, ","); number && length < 2 * NUMBERS_MAX; number = strtok(NULL, ",")) {
        filter[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)atoi(number), 0, 1);
        filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    pid_t child = fork();
    if (child == 0) {
        if (install(filter, length, 0)) _exit(UNABLE);
        _exit(execute(line));
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Which argument is a path; -1 for calls without one. */
static int path_of(int number) {
    switch (number) {
#ifdef __NR_open
    case __NR_open: case __NR_stat: case __NR_lstat: case __NR_access: case __NR_readlink: case __NR_unlink:
    case __NR_mkdir: case __NR_rename: case __NR_chmod: case __NR_creat:
#endif
    case __NR_execve: case __NR_chdir: case __NR_statfs:
        return 0;
    case __NR_openat: case __NR_newfstatat: case __NR_statx: case __NR_faccessat: case __NR_readlinkat: case __NR_unlinkat:
    case __NR_mkdirat: case __NR_fchmodat: case __NR_execveat: case __NR_inotify_add_watch:
#ifdef __NR_faccessat2
    case __NR_faccessat2:
#endif
#ifdef __NR_openat2
    case __NR_openat2:
#endif
        return 1;
    default:
        return -1;
    }
}

/* What the call names: a path, or the name of a socket. */
static void name(const struct seccomp_notif *call, char *text, size_t room) {
    int argument = path_of(call->data.nr), connects = call->data.nr == __NR_connect;
    struct sockaddr_un address = {0};
    char place[64], *to = connects ? (char *)&address : text;
    size_t length = connects ? sizeof address : room - 1;
    text[0] = 0;
    if (argument < 0 && !connects) return;
    snprintf(place, sizeof place, "/proc/%u/mem", call->pid);
    int memory = open(place, O_RDONLY | O_CLOEXEC);
    /* What follows it may not be mapped: as much as there is of it. */
    ssize_t got = -1;
    off_t at = (off_t)call->data.args[connects ? 1 : argument];
    for (; memory >= 0 && length > 0 && got < 0; length /= 2) got = pread(memory, to, length, at);
    if (memory >= 0) close(memory);
    if (!connects) text[got > 0 ? got : 0] = 0;
    else if (got > 2 && address.sun_family == AF_UNIX)
        snprintf(text, room, "%s%s", address.sun_path[0] ? "" : "@", address.sun_path + !address.sun_path[0]);
    for (char *c = text; *c; c++)
        if (*c == '\n') *c = '?';
}

/* Lets one call through, and writes it down. */
static int serve(int listener, FILE *out) {
    struct seccomp_notif call;
    memset(&call, 0, sizeof call);
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call)) return errno == EINTR || errno == ENOENT ? 0 : -1;
    char text[4096];
    name(&call, text, sizeof text);
    struct seccomp_notif_resp answer = {call.id, 0, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE};
    fprintf(out, "%d %s\n", call.data.nr, text);
    fflush(out);
    return ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer) && errno != ENOENT ? -1 : 0;
}

static int learn(const char *file, char **line) {
    struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
    FILE *out = fopen(file, "we");
    volatile int *word = mmap(NULL, sizeof *word, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!out || word == MAP_FAILED) return UNABLE;
    /* With the same descriptors, so that the filter's is here, too: from then on the child is in our hands. */
    pid_t child = (pid_t)syscall(__NR_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        int listener = install(&all, 1, SECCOMP_FILTER_FLAG_NEW_LISTENER);
        *word = listener < 0 ? -1 : listener + 1;
        if (listener < 0) _exit(UNABLE);
        _exit(execute(line));
    }
    while (*word == 0) sched_yield();
    int listener = *word - 1, status = 0;
    for (;;) {
        struct pollfd ready = {listener, POLLIN, 0};
        if (listener >= 0 && poll(&ready, 1, 20) > 0 && (ready.revents & POLLIN) && serve(listener, out)) {
            /* Nobody answers the calls any more: they fail. */
            close(listener);
            listener = -1;
        }
        if (waitpid(child, &status, listener >= 0 ? WNOHANG : 0) == child) break;
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int main(int argc, char **argv) {
    if (argc < 4) return 64;
    return strcmp(argv[1], "learn") ? only(argv[2], argv + 3) : learn(argv[2], argv + 3);
}
