/* One of several libraries with the same function: RTLD_NEXT from here must lead to the one behind. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

const char *whose(void) { return NAME; }

__attribute__((destructor)) static void tell(void) {
    const char *(*next)(void) = NULL;
    *(void **)&next = dlsym(RTLD_NEXT, "whose");
    fprintf(stderr, "%s then %s\n", NAME, next ? next() : "none");
}
