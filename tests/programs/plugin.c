/* A library that opens its neighbour by name, through its own RUNPATH. */
#include <dlfcn.h>
#include <stddef.h>

const char *tell(void) {
    void *neighbour = dlopen("neighbour.so", RTLD_NOW);
    const char *(*name)(void) = NULL;
    if (neighbour) *(void **)&name = dlsym(neighbour, "neighbour_name");
    return name ? name() : "neighbour not found";
}
