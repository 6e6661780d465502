/* Calls every function named on stdin with nothing but zeros, each in a process of its own, and prints `NAME CODE`, or
 * `NAME signal N` if that process died of it. `zeros MODE`: `bare` calls before cuInit, `init` after it, `context` with the
 * primary context current. */
#include "driver.h"
#include <dlfcn.h>
#include <sys/wait.h>

typedef long long word;
typedef CUresult (*function)(word, word, word, word, word, word, word, word, word, word, word, word);

int main(int argc, char **argv) {
    char name[96];
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver || argc != 2) return 64;
    while (scanf("%95s", name) == 1) {
        int status = 0, ends[2], code = -1;
        function call = NULL;
        *(void **)&call = dlsym(driver, name);
        if (pipe(ends)) return 70;
        fflush(stdout);
        pid_t pid = fork();
        if (!pid) {
            CUcontext context;
            alarm(10);
            if (strcmp(argv[1], "bare")) NEED(cuInit(0));
            if (!strcmp(argv[1], "context")) {
                NEED(cuDevicePrimaryCtxRetain(&context, 0));
                NEED(cuCtxSetCurrent(context));
            }
            code = call ? call(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) : -2;
            _exit(write(ends[1], &code, sizeof code) == sizeof code ? 0 : 1);
        }
        close(ends[1]);
        ssize_t got = read(ends[0], &code, sizeof code);
        close(ends[0]);
        waitpid(pid, &status, 0);
        if (WIFSIGNALED(status)) printf("%s signal %d\n", name, WTERMSIG(status));
        else if (got != sizeof code) printf("%s status %d\n", name, WEXITSTATUS(status));
        else printf("%s %d\n", name, code);
    }
    return 0;
}
