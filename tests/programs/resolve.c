/* Prints what the driver's resolver answers: `resolve FORM VERSION...` reads names on stdin and asks for each at each version
 * with flags 0, 1 and 2, by form v1 or v2. A line is `NAME VERSION FLAGS CODE STATUS SYMBOL`; the symbol is found
 * by comparing with what dlsym gives for the names on the command line's last file. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SYMBOLS_MAX = 2000 };
static struct { char name[96]; void *at; } symbols[SYMBOLS_MAX];
static int count;

static const char *name_of(void *at, const char *base) {
    const char *found = at ? "?" : "-";
    size_t length = strlen(base);
    for (int i = 0; at && i < count; i++)
        if (symbols[i].at == at) {
            found = symbols[i].name;
            if (!strncmp(found, base, length)) break;
        }
    return found;
}

int main(int argc, char **argv) {
    if (argc < 4) return 64;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) { fprintf(stderr, "%s\n", dlerror()); return 70; }
    FILE *list = fopen(argv[1], "r");
    if (!list) return 66;
    while (count < SYMBOLS_MAX && fscanf(list, "%95s", symbols[count].name) == 1) {
        symbols[count].at = dlsym(driver, symbols[count].name);
        count++;
    }
    int (*v1)(const char *, void **, int, uint64_t) = NULL;
    int (*v2)(const char *, void **, int, uint64_t, int *) = NULL;
    *(void **)&v1 = dlsym(driver, "cuGetProcAddress");
    *(void **)&v2 = dlsym(driver, "cuGetProcAddress_v2");
    int second = !strcmp(argv[2], "v2");
    if (second ? !v2 : !v1) { printf("absent\n"); return 0; }
    char name[96];
    while (scanf("%95s", name) == 1)
        for (int i = 3; i < argc; i++)
            for (int flags = 0; flags <= 4; flags += flags == 2 ? 2 : 1) {
                void *untouched = (void *)(uintptr_t)0x5a5a, *at = untouched;
                int status = 77, version = atoi(argv[i]);
                int code = second ? v2(name, &at, version, (uint64_t)flags, &status) : v1(name, &at, version, (uint64_t)flags);
                printf("%s %d %d %d %d %s\n", name, version, flags, code, status, at == untouched ? "untouched" : name_of(at, name));
            }
    return 0;
}
