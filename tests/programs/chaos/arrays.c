/* Arrays of two and three dimensions, and mipmapped ones. */
#include "chaos.h"

/* Formats of one, two and four bytes, half a float, a compressed one, and one that there is not. */
static const int formats[] = {1, 3, 0x20, 0x20, 0x10, 145, 77};
static const unsigned channels[] = {1, 1, 2, 4, 4, 3};

static CUDA_ARRAY3D_DESCRIPTOR some_shape(struct actor *a) {
    static const unsigned flags[] = {0, 0, 0, 0, 1, 2, 0x40, 0x1000};
    CUDA_ARRAY3D_DESCRIPTOR shape = {draw(a) % 1500, draw(a) % 1200, draw(a) % 5, formats[below(a, 7)], channels[below(a, 6)], flags[below(a, 8)]};
    if (one_in(a, 5)) shape.Height = 0;
    if (one_in(a, 40)) shape.Width = 1 << 20;
    return shape;
}

static int has_room(struct actor *a, enum kind kind) {
    if (is_full(a, kind)) kind == ARRAY ? end_array(a) : end_mipmap(a);
    return !is_full(a, kind);
}

static void made(struct actor *a, CUresult code, enum kind kind, void *handle) {
    put_made(a, (uint64_t)handle);
    if (!code && handle != (void *)UNTOUCHED) keep(a, kind, (uint64_t)handle, 0);
}

void array(struct actor *a) {
    CUarray handle = (CUarray)UNTOUCHED;
    CUDA_ARRAY3D_DESCRIPTOR shape = some_shape(a);
    CUDA_ARRAY_DESCRIPTOR flat = {shape.Width, shape.Height, shape.Format, shape.NumChannels}, told = {0, 0, 0, 0};
    if (!has_room(a, ARRAY)) return;
    CUresult code = CALL(a, cuArrayCreate_v2, place(a, &handle), one_in(a, 60) ? NULL : &flat);
    made(a, code, ARRAY, handle);
    if (!one_in(a, 4)) return;
    CALL(a, cuArrayGetDescriptor_v2, place(a, &told), handle == (CUarray)UNTOUCHED ? NULL : handle);
    put_number(a, told.Width);
    put_number(a, told.Height);
}

void array3d(struct actor *a) {
    CUarray handle = (CUarray)UNTOUCHED;
    CUDA_ARRAY3D_DESCRIPTOR shape = some_shape(a);
    if (!has_room(a, ARRAY)) return;
    CUresult code = CALL(a, cuArray3DCreate_v2, place(a, &handle), one_in(a, 60) ? NULL : &shape);
    made(a, code, ARRAY, handle);
}

void mipmap(struct actor *a) {
    CUmipmappedArray handle = (CUmipmappedArray)UNTOUCHED;
    CUarray level = (CUarray)UNTOUCHED;
    CUDA_ARRAY3D_DESCRIPTOR shape = some_shape(a);
    unsigned levels = (unsigned)below(a, 14);
    if (!has_room(a, MIPMAP)) return;
    CUresult code = CALL(a, cuMipmappedArrayCreate, place(a, &handle), one_in(a, 60) ? NULL : &shape, levels);
    made(a, code, MIPMAP, handle);
    if (code || handle == (CUmipmappedArray)UNTOUCHED || !one_in(a, 4)) return;
    if (CALL(a, cuMipmappedArrayGetLevel, place(a, &level), handle, (unsigned)below(a, 4))) return;
    put_made(a, (uint64_t)level);
    if (one_in(a, 2)) CALL(a, cuArrayDestroy, level);
}

static void end(struct actor *a, enum kind kind, CUresult (*destroy)(void *), const char *name) {
    struct thing *thing = some(a, kind);
    uint64_t handle = spoilt(a, thing ? thing->handle : 0);
    CUresult code = tell(a, name, destroy((void *)handle));
    if (thing && handle == thing->handle && (code == SUCCESS || code == INVALID_HANDLE)) drop(a, kind, thing);
    if (!code && options.threads == 1 && one_in(a, 8)) tell(a, name, destroy((void *)handle));
}

void end_array(struct actor *a) { end(a, ARRAY, cuArrayDestroy, "cuArrayDestroy"); }

void end_mipmap(struct actor *a) { end(a, MIPMAP, cuMipmappedArrayDestroy, "cuMipmappedArrayDestroy"); }
