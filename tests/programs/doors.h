/* The ways by which a program gets at the driver: "linked", "dlopen:NAME", "deepbind:NAME", "default", "proc:VERSION"
 * and "proc_v1:VERSION" (cuGetProcAddress), each ",ptsz" for the per-thread stream names. */
#ifndef DOORS_H
#define DOORS_H
#define _GNU_SOURCE
#include "cuda_api.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DECLARE(symbol, base, version, parameters) static CUresult (*p_##symbol) parameters;
FUNCTIONS(DECLARE)
#ifdef LINKED
#define EXTERN(symbol, base, version, parameters) extern CUresult symbol parameters;
FUNCTIONS(EXTERN)
#endif

static void *driver;
static int per_thread, proc_version;
static CUresult (*proc_v1)(const char *, void **, int, uint64_t);
static CUresult (*proc_v2)(const char *, void **, int, uint64_t, int *);

static void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, dlerror());
    exit(70);
}

static void *look_up(const char *symbol, const char *base, int version) {
    void *found = NULL;
    if (proc_v1 || proc_v2) {
        int asked = version > proc_version ? proc_version : version;
        uint64_t flags = per_thread ? 2 : 0;
        /* A lane's own version may be newer than the symbol's: ask with the program's own. */
        if (per_thread) asked = proc_version;
        CUresult code = proc_v1 ? proc_v1(base, &found, asked, flags) : proc_v2(base, &found, asked, flags, NULL);
        return code ? NULL : found;
    }
    if (per_thread) {
        char name[96];
        snprintf(name, sizeof name, "%s_ptsz", symbol);
        found = dlsym(driver, name);
        if (!found) {
            snprintf(name, sizeof name, "%s_ptds", symbol);
            found = dlsym(driver, name);
        }
    }
    return found ? found : dlsym(driver, symbol);
}

static void open_door(const char *door) {
    char kind[256];
    snprintf(kind, sizeof kind, "%s", door);
    char *lane = strchr(kind, ',');
    if (lane) { *lane = 0; per_thread = !strcmp(lane + 1, "ptsz"); }
    char *argument = strchr(kind, ':');
    if (argument) *argument++ = 0;
    if (!strcmp(kind, "linked")) {
#ifdef LINKED
#define TAKE(symbol, base, version, parameters) p_##symbol = symbol;
        FUNCTIONS(TAKE)
        return;
#else
        die("this program is not linked to the driver");
#endif
    }
    if (!strcmp(kind, "default")) driver = RTLD_DEFAULT;
    else if (!strcmp(kind, "dlopen")) driver = dlopen(argument, RTLD_NOW);
    else if (!strcmp(kind, "deepbind")) driver = dlopen(argument, RTLD_NOW | RTLD_DEEPBIND | RTLD_LOCAL);
    else driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver && strcmp(kind, "default")) die(door);
    if (!strcmp(kind, "proc")) { proc_version = atoi(argument); *(void **)&proc_v2 = dlsym(driver, "cuGetProcAddress_v2"); if (!proc_v2) die(door); }
    if (!strcmp(kind, "proc_v1")) { proc_version = atoi(argument); *(void **)&proc_v1 = dlsym(driver, "cuGetProcAddress"); if (!proc_v1) die(door); }
#define FIND(symbol, base, version, parameters) *(void **)&p_##symbol = look_up(#symbol, base, version);
    FUNCTIONS(FIND)
}
#endif
