/* Arrays and mipmaps: charged by their format. Sparse ones own nothing. */
#include "coverage.h"

enum { BYTE = 1, FLOAT = 0x20, BC1 = 145, LAYERED = 1, SPARSE = 0x40, DEFERRED = 0x80 };
typedef struct { unsigned Width, Height; int Format; unsigned NumChannels; } flat_short;
typedef struct { unsigned Width, Height, Depth; int Format; unsigned NumChannels, Flags; } deep_short;
typedef struct { size_t width, height, depth; int format; unsigned channels, flags; } shape;

static CUresult flat(CUarray *out, const shape *s) {
    CUDA_ARRAY_DESCRIPTOR wanted = {s->width, s->height, s->format, s->channels};
    return CALL((CUarray *, const CUDA_ARRAY_DESCRIPTOR *), out, &wanted);
}

static CUresult flat_first(CUarray *out, const shape *s) {
    flat_short wanted = {(unsigned)s->width, (unsigned)s->height, s->format, s->channels};
    return CALL((CUarray *, const flat_short *), out, &wanted);
}

static CUresult deep(CUarray *out, const shape *s) {
    CUDA_ARRAY3D_DESCRIPTOR wanted = {s->width, s->height, s->depth, s->format, s->channels, s->flags};
    return CALL((CUarray *, const CUDA_ARRAY3D_DESCRIPTOR *), out, &wanted);
}

static CUresult deep_first(CUarray *out, const shape *s) {
    deep_short wanted = {(unsigned)s->width, (unsigned)s->height, (unsigned)s->depth, s->format, s->channels, s->flags};
    return CALL((CUarray *, const deep_short *), out, &wanted);
}

static void made(CUresult (*create)(CUarray *, const shape *), int is_deep) {
    static const shape wide = {1000, 1000, 0, FLOAT, 4, 0}, line = {100000, 0, 0, FLOAT, 4, 0}, packed = {4096, 4096, 0, BC1, 4, 0},
        cube = {100, 100, 100, BYTE, 4, 0}, layers = {512, 512, 10, FLOAT, 1, LAYERED}, sparse = {1024, 1024, 0, FLOAT, 1, SPARSE},
        deferred = {1024, 1024, 0, FLOAT, 1, DEFERRED}, no_width = {0, 10, 0, FLOAT, 1, 0}, no_format = {100, 100, 0, 99, 1, 0},
        three = {100, 100, 0, FLOAT, 3, 0};
    CUarray array[7], none = (CUarray)(uintptr_t)POISON;
    begin();
    is("16,000,000 bytes", create(&array[0], &wide), SUCCESS);
    at("eight pages", 16 * MIB, CTX);
    is("1,600,000 bytes in a line", create(&array[1], &line), SUCCESS);
    at("one more", 18 * MIB, CTX);
    is("blocks of 8 bytes for 16 elements", create(&array[2], &packed), SUCCESS);
    at("8 MiB more", 26 * MIB, CTX);
    tell("no width", create(&none, &no_width));
    tell("no such format", create(&none, &no_format));
    tell("three channels", create(&none, &three));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    tell("no output", create(NULL, &wide));
    tell("no description", CALL((CUarray *, const void *), &none, NULL));
    at("and cost nothing", 26 * MIB, CTX);
    if (is_deep) {
        is("a cube", create(&array[3], &cube), SUCCESS);
        is("layers", create(&array[4], &layers), SUCCESS);
        at("depth counts", 26 * MIB + 4 * MIB + 10 * MIB, CTX);
        is("a sparse array", create(&array[5], &sparse), SUCCESS);
        is("one for later", create(&array[6], &deferred), SUCCESS);
        at("own nothing", 40 * MIB, CTX);
    }
    for (int i = 0; i < (is_deep ? 7 : 3); i++) NEED(cuArrayDestroy(array[i]));
    at("all is back", 0, CTX);
}

WHOLE(cuArrayCreate_v2) { made(flat, 0); }
WHOLE(cuArrayCreate) { made(flat_first, 0); }
WHOLE(cuArray3DCreate_v2) { made(deep, 1); }
WHOLE(cuArray3DCreate) { made(deep_first, 1); }

static shape of_bytes(size_t bytes) { return (shape){1024, bytes / 4096, 0, FLOAT, 1, 0}; }

#define ATTEMPT(create) \
    static CUresult attempt_##create(uint64_t *out, size_t bytes) { \
        shape wanted = of_bytes(bytes); \
        return create((CUarray *)out, &wanted); \
    }
ATTEMPT(flat)
ATTEMPT(flat_first)
ATTEMPT(deep)
ATTEMPT(deep_first)
PART(cuArrayCreate_v2) { refused_then_granted(attempt_flat, 8 * MIB); }
PART(cuArrayCreate) { refused_then_granted(attempt_flat_first, 8 * MIB); }
PART(cuArray3DCreate_v2) { refused_then_granted(attempt_deep, 8 * MIB); }
PART(cuArray3DCreate) { refused_then_granted(attempt_deep_first, 8 * MIB); }

static CUresult mipmap(CUmipmappedArray *out, const shape *s, unsigned levels) {
    CUDA_ARRAY3D_DESCRIPTOR wanted = {s->width, s->height, s->depth, s->format, s->channels, s->flags};
    return CALL((CUmipmappedArray *, const CUDA_ARRAY3D_DESCRIPTOR *, unsigned), out, &wanted, levels);
}

/* Each level is a quarter of the one before; layers are not halved. */
WHOLE(cuMipmappedArrayCreate) {
    static const shape wide = {2048, 1024, 0, FLOAT, 1, 0}, layers = {1024, 1024, 3, FLOAT, 1, LAYERED},
        sparse = {2048, 1024, 0, FLOAT, 1, SPARSE};
    CUmipmappedArray one, two, three, none = (CUmipmappedArray)(uintptr_t)POISON;
    begin();
    is("three levels", mipmap(&one, &wide, 3), SUCCESS);
    at("8 + 2 + 0.5 MiB", 12 * MIB, CTX);
    is("two levels of three layers", mipmap(&two, &layers, 2), SUCCESS);
    at("3 times 4 + 1 MiB", 12 * MIB + 16 * MIB, CTX);
    is("a sparse one", mipmap(&three, &sparse, 3), SUCCESS);
    at("owns nothing", 28 * MIB, CTX);
    tell("no levels", mipmap(&none, &wide, 0));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    at("and cost nothing", 28 * MIB, CTX);
    NEED(cuMipmappedArrayDestroy(one));
    NEED(cuMipmappedArrayDestroy(two));
    NEED(cuMipmappedArrayDestroy(three));
    at("all is back", 0, CTX);
}

static CUresult one_level(uint64_t *out, size_t bytes) {
    shape wanted = of_bytes(bytes);
    return mipmap((CUmipmappedArray *)out, &wanted, 1);
}
PART(cuMipmappedArrayCreate) { refused_then_granted(one_level, 8 * MIB); }

WHOLE(cuArrayDestroy) {
    CUDA_ARRAY_DESCRIPTOR wanted = {1024, 2048, FLOAT, 1};
    CUarray one, two;
    begin();
    NEED(cuArrayCreate_v2(&one, &wanted));
    NEED(cuArrayCreate_v2(&two, &wanted));
    at("two arrays", 16 * MIB, CTX);
    is("one goes", CALL((CUarray), one), SUCCESS);
    at("with its memory", 8 * MIB, CTX);
    tell("twice", CALL((CUarray), one));
    tell("null", CALL((CUarray), NULL));
    tell("no array", CALL((CUarray), nobody()));
    at("what is not destroyed stays charged", 8 * MIB, CTX);
    is("the other goes", CALL((CUarray), two), SUCCESS);
    at("all is back", 0, CTX);
}

WHOLE(cuMipmappedArrayDestroy) {
    CUDA_ARRAY3D_DESCRIPTOR wanted = {1024, 2048, 0, FLOAT, 1, 0};
    CUmipmappedArray one;
    CUarray level;
    begin();
    NEED(cuMipmappedArrayCreate(&one, &wanted, 2));
    at("two levels", 10 * MIB, CTX);
    NEED(cuMipmappedArrayGetLevel(&level, one, 1));
    is("both go", CALL((CUmipmappedArray), one), SUCCESS);
    at("with their memory", 0, CTX);
    tell("twice", CALL((CUmipmappedArray), one));
    tell("null", CALL((CUmipmappedArray), NULL));
    tell("no array", CALL((CUmipmappedArray), nobody()));
    at("nothing more", 0, CTX);
}
