/* Memory of another API, which a descriptor stands for. It is device memory, so that it counts. */
#define _GNU_SOURCE
#include "coverage.h"
#include <fcntl.h>
#include <sys/mman.h>

static CUDA_EXTERNAL_MEMORY_HANDLE_DESC description_of(size_t bytes) {
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC wanted;
    memset(&wanted, 0, sizeof wanted);
    wanted.type = 1, wanted.size = bytes;
    wanted.handle.fd = memfd_create("external", 0);
    if (wanted.handle.fd < 0 || ftruncate(wanted.handle.fd, (off_t)bytes)) exit(77);
    return wanted;
}

static void *imported(size_t bytes) {
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC wanted = description_of(bytes);
    void *external;
    NEED(cuImportExternalMemory(&external, &wanted));
    return external;
}

WHOLE(cuImportExternalMemory) {
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC wanted, wrong;
    void *external = NULL, *none = (void *)(uintptr_t)POISON;
    begin();
    wanted = wrong = description_of(8 * MIB);
    wrong.size = 0;
    tell("nothing", CALL((void **, const void *), &none, &wrong));
    wrong = wanted, wrong.type = 3;
    tell("of another kind", CALL((void **, const void *), &none, &wrong));
    wrong = wanted, wrong.handle.fd = 999;
    tell("no descriptor", CALL((void **, const void *), &none, &wrong));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    at("and cost nothing", 0, CTX);
    is("imported", CALL((void **, const void *), &external, &wanted), SUCCESS);
    settle();
    at("it counts", 0, CTX + 8 * MIB);
    NEED(cuDestroyExternalMemory(external));
    settle();
    at("until it goes", 0, CTX);
}

/* The descriptor becomes the driver's when the import succeeds; after a refusal it is still the program's. */
PART(cuImportExternalMemory) {
    void *external = (void *)(uintptr_t)POISON;
    begin();
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC wanted = description_of(8 * MIB);
    CUdeviceptr filler = fill(4 * MIB);
    is("more than is left", CALL((void **, const void *), &external, &wanted), OUT_OF_MEMORY);
    is_untouched("a refusal leaves the output alone", &external, sizeof external);
    HOLDS("and the descriptor open", fcntl(wanted.handle.fd, F_GETFD) >= 0);
    at("nothing is imported", QUOTA - CTX - 4 * MIB, CTX);
    NEED(cuMemFree_v2(filler));
    is("the same call again", CALL((void **, const void *), &external, &wanted), SUCCESS);
    at("is granted", 0, CTX + 8 * MIB);
}

WHOLE(cuExternalMemoryGetMappedBuffer) {
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC part = {4096, 1000, 0, {0}}, beyond = {0, 16 * MIB, 0, {0}};
    CUdeviceptr address = 0, none = POISON;
    unsigned word = 0;
    begin();
    void *external = imported(8 * MIB);
    is("a buffer", CALL((CUdeviceptr *, void *, const void *), &address, external, &part), SUCCESS);
    NEED(cuMemsetD32_v2(address, 0x1234, 16));
    NEED(cuMemcpyDtoH_v2(&word, address, 4));
    is("is memory", word, 0x1234);
    tell("beyond the end", CALL((CUdeviceptr *, void *, const void *), &none, external, &beyond));
    tell("of nothing", CALL((CUdeviceptr *, void *, const void *), &none, nobody(), &part));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    settle();
    at("takes no more than its memory", 0, CTX + 8 * MIB);
    NEED(cuDestroyExternalMemory(external));
    settle();
    at("which it keeps", 0, CTX + 8 * MIB);
    is("until it is freed", cuMemFree_v2(address), SUCCESS);
    settle();
    at("then that goes", 0, CTX);
}

WHOLE(cuExternalMemoryGetMappedMipmappedArray) {
    CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC part, beyond;
    CUmipmappedArray mipmap = NULL, none = (CUmipmappedArray)(uintptr_t)POISON;
    memset(&part, 0, sizeof part);
    part.arrayDesc.Width = part.arrayDesc.Height = 1024, part.arrayDesc.Format = 0x20, part.arrayDesc.NumChannels = 1, part.numLevels = 2;
    beyond = part, beyond.offset = 7 * MIB;
    begin();
    void *external = imported(8 * MIB);
    is("an array", CALL((CUmipmappedArray *, void *, const void *), &mipmap, external, &part), SUCCESS);
    tell("beyond the end", CALL((CUmipmappedArray *, void *, const void *), &none, external, &beyond));
    tell("of nothing", CALL((CUmipmappedArray *, void *, const void *), &none, nobody(), &part));
    is_untouched("failed calls leave the output alone", &none, sizeof none);
    settle();
    at("takes no more than its memory", 0, CTX + 8 * MIB);
    NEED(cuDestroyExternalMemory(external));
    settle();
    at("which it keeps", 0, CTX + 8 * MIB);
    is("until it is destroyed", cuMipmappedArrayDestroy(mipmap), SUCCESS);
    settle();
    at("then that goes", 0, CTX);
}

WHOLE(cuDestroyExternalMemory) {
    begin();
    void *external = imported(8 * MIB);
    settle();
    at("imported", 0, CTX + 8 * MIB);
    is("it goes", CALL((void *), external), SUCCESS);
    tell("twice", CALL((void *), external));
    tell("null", CALL((void *), NULL));
    settle();
    at("with its memory", 0, CTX);
}
