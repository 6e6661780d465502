/* What a thread holds: a few things of each kind. */
#include "chaos.h"

void *here(void) {
    CUcontext context = NULL;
    return cuCtxGetCurrent(&context) ? NULL : context;
}

int is_full(struct actor *a, enum kind kind) { return a->shelves[kind].count == ROOM; }

struct thing *keep(struct actor *a, enum kind kind, uint64_t handle, size_t size) {
    struct shelf *shelf = &a->shelves[kind];
    if (shelf->count == ROOM) {
        fprintf(stderr, "chaos: no room for one more of kind %d\n", kind);
        abort();
    }
    struct thing *thing = &shelf->things[shelf->count++];
    *thing = (struct thing){.handle = handle, .size = size, .context = here()};
    return thing;
}

struct thing *some(struct actor *a, enum kind kind) {
    struct shelf *shelf = &a->shelves[kind];
    /* Drawn in any case, so that what follows doesn't depend on what there is. */
    uint64_t any = draw(a);
    return shelf->count ? &shelf->things[any % (unsigned)shelf->count] : NULL;
}

uint64_t some_handle(struct actor *a, enum kind kind) {
    struct thing *thing = some(a, kind);
    return thing ? thing->handle : 0;
}

void drop(struct actor *a, enum kind kind, struct thing *thing) {
    struct shelf *shelf = &a->shelves[kind];
    uint64_t handle = thing->handle;
    *thing = shelf->things[--shelf->count];
    for (int at = 0; at < shelf->count; at++)
        if (shelf->things[at].handle == handle) return;
    forget_name(handle);
}

/* What ends with a context is forgotten; not what came from pools, which may be gone or not, and is found out when it is freed. */
void context_is_gone(struct actor *a, void *context) {
    static const enum kind owned[] = {BLOCK, ARRAY, MIPMAP, MODULE, STREAM, EVENT};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) {
        struct shelf *shelf = &a->shelves[owned[i]];
        for (int at = shelf->count - 1; at >= 0; at--)
            if (shelf->things[at].context == context) drop(a, owned[i], &shelf->things[at]);
    }
}
