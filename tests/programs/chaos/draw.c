/* What is drawn: numbers, sizes, devices, streams, and what is wrong with a call. */
#include "chaos.h"

static uint64_t mixed(uint64_t value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
    return value ^ (value >> 31);
}

uint64_t draw(struct actor *a) { return mixed(a->random += 0x9e3779b97f4a7c15ull); }

int below(struct actor *a, int limit) { return limit > 0 ? (int)(draw(a) % (unsigned)limit) : 0; }

int one_in(struct actor *a, int chances) { return below(a, chances) == 0; }

void begin_operation(struct actor *a) {
    uint64_t who = (uint64_t)options.process << 8 | (unsigned)a->number;
    a->operation++;
    a->random = mixed(mixed(mixed(options.seed) + who) + (uint64_t)a->operation);
}

/* Mostly what fits; edges of pages and steps; now and then nothing, or more than there is. */
size_t some_size(struct actor *a) {
    static const size_t edges[] = {1, 511, 512, 513, MIB - 1, MIB, MIB + 1, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 32 * MIB, 32 * MIB + 1};
    uint64_t any = draw(a);
    switch (below(a, 20)) {
    case 0: return 0;
    /* What no word can count: refused, or passed on, without touching a pool. */
    case 1: return options.compares ? (size_t)1 << 62 : (size_t)1 << (33 + any % 31);
    case 2: case 3: case 4: return edges[any % (sizeof edges / sizeof *edges)];
    case 5: case 6: case 7: case 8: case 9: case 10: case 11: case 12: return any % MIB + 1;
    case 13: return any % (40 * MIB) + 1;
    default: return any % (5 * MIB) + 1;
    }
}

int some_device(struct actor *a) {
    static const int wrong[] = {-1, 2, 99, 0x7fffffff};
    return one_in(a, 50) ? wrong[below(a, 4)] : below(a, DEVICES);
}

CUstream some_stream(struct actor *a) {
    int which = below(a, 10);
    struct thing *stream = some(a, STREAM);
    if (one_in(a, 60)) return (CUstream)(uintptr_t)spoilt(a, 16);
    if (which == 0) return (CUstream)1;
    if (which == 1) return (CUstream)2;
    return stream && which < 7 ? (CUstream)stream->handle : NULL;
}

void *place(struct actor *a, void *out) { return one_in(a, 60) ? NULL : out; }

uint64_t spoilt(struct actor *a, uint64_t handle) {
    if (!one_in(a, 50)) return handle;
    switch (below(a, 5)) {
    case 0: return 0;
    case 1: return 16;
    case 2: return UNTOUCHED;
    case 3: return handle + 1;
    /* An event is never what another kind's call wants. Where another thread may have ended it, its address may be anything by now. */
    default: return options.threads == 1 ? some_handle(a, EVENT) : 1;
    }
}
