/* Lets the library load on every glibc since 2.17, whatever glibc it was built on.
 *
 * Some functions moved into libc.so.6 in glibc 2.33 and 2.34 and got new version tags there, so a plain
 * reference to them shuts out every older system. Each is defined here, hidden, and found at run time or made
 * from a system call. The build script also links libgcc's unwinder statically, so that libgcc_s is not needed;
 * on new systems that unwinder asks _dl_find_object (glibc 2.35), which is answered here from
 * dl_iterate_phdr. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))

/* In Rust (src/dlsym.rs): the address of a function of libc or its loader, wherever it lies in this version. */
HIDDEN void *gpuquota_in_libc(const char *name);

HIDDEN int fstat(int fd, struct stat *out) { return (int)syscall(SYS_newfstatat, fd, "", out, AT_EMPTY_PATH); }
HIDDEN int stat(const char *path, struct stat *out) { return (int)syscall(SYS_newfstatat, AT_FDCWD, path, out, 0); }
HIDDEN int fstat64(int fd, struct stat64 *out) { return (int)syscall(SYS_newfstatat, fd, "", out, AT_EMPTY_PATH); }
HIDDEN int stat64(const char *path, struct stat64 *out) { return (int)syscall(SYS_newfstatat, AT_FDCWD, path, out, 0); }

/* Only called for thread-local destructors on glibc before 2.18, in programs that have threads. */
HIDDEN int pthread_key_create(pthread_key_t *key, void (*destructor)(void *)) {
    int (*real)(pthread_key_t *, void (*)(void *)) = gpuquota_in_libc("pthread_key_create");
    return real ? real(key, destructor) : EAGAIN;
}
HIDDEN int pthread_key_delete(pthread_key_t key) {
    int (*real)(pthread_key_t) = gpuquota_in_libc("pthread_key_delete");
    return real ? real(key) : EINVAL;
}
HIDDEN int pthread_setspecific(pthread_key_t key, const void *value) {
    int (*real)(pthread_key_t, const void *) = gpuquota_in_libc("pthread_setspecific");
    return real ? real(key, value) : EINVAL;
}
HIDDEN void *pthread_getspecific(pthread_key_t key) {
    void *(*real)(pthread_key_t) = gpuquota_in_libc("pthread_getspecific");
    return real ? real(key) : NULL;
}
HIDDEN void *dlopen(const char *path, int flags) {
    void *(*real)(const char *, int) = gpuquota_in_libc("dlopen");
    return real ? real(path, flags) : NULL;
}

/* What follows is looked for by weak reference, and would tie the library to a new glibc all the same: the linker
 * of many systems writes a weak reference's version down as a hard need. */
HIDDEN int __pthread_key_create(pthread_key_t *key, void (*destructor)(void *)) { return pthread_key_create(key, destructor); }
HIDDEN int pthread_once(pthread_once_t *once, void (*routine)(void)) {
    int (*real)(pthread_once_t *, void (*)(void)) = gpuquota_in_libc("pthread_once");
    return real ? real(once, routine) : EAGAIN;
}
HIDDEN pid_t gettid(void) { return (pid_t)syscall(SYS_gettid); }
HIDDEN int statx(int folder, const char *path, int flags, unsigned int mask, struct statx *out) {
    return (int)syscall(SYS_statx, folder, path, flags, mask, out);
}
HIDDEN ssize_t getrandom(void *out, size_t bytes, unsigned int flags) { return syscall(SYS_getrandom, out, bytes, flags); }
/* Without it (glibc 2.17) a thread's destructors don't run when it ends: ours have nothing to give back. */
HIDDEN int __cxa_thread_atexit_impl(void (*destructor)(void *), void *object, void *library) {
    int (*real)(void (*)(void *), void *, void *) = gpuquota_in_libc("__cxa_thread_atexit_impl");
    return real ? real(destructor, object, library) : 0;
}

/* Registered by name: musl has no function of this name, and a program there must start all the same. */
HIDDEN void gpuquota_after_fork_in_child(void (*child)(void)) {
    int (*real)(void (*)(void), void (*)(void), void (*)(void), void *) = gpuquota_in_libc("__register_atfork");
    if (real) real(NULL, NULL, child, NULL);
}

#ifdef __x86_64__
/* A reference to the loader's own function would make every program need glibc's loader by name. */
HIDDEN void *__tls_get_addr(void *index) {
    static void *(*real)(void *);
    void *(*known)(void *) = __atomic_load_n(&real, __ATOMIC_RELAXED);
    if (!known) {
        known = gpuquota_in_libc("__tls_get_addr");
        __atomic_store_n(&real, known, __ATOMIC_RELAXED);
    }
    return known(index);
}
#endif

#if __GLIBC_PREREQ(2, 35)
struct search {
    ElfW(Addr) address;
    struct dl_find_object *found;
};

static int look(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    struct search *search = data;
    ElfW(Addr) start = (ElfW(Addr))-1, end = 0, frames = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        ElfW(Addr) at = info->dlpi_addr + header->p_vaddr;
        if (header->p_type == PT_LOAD) {
            start = at < start ? at : start;
            end = at + header->p_memsz > end ? at + header->p_memsz : end;
        } else if (header->p_type == PT_GNU_EH_FRAME) {
            frames = at;
        }
    }
    if (search->address < start || search->address >= end || frames == 0)
        return 0;
    search->found->dlfo_flags = 0;
    search->found->dlfo_map_start = (void *)start;
    search->found->dlfo_map_end = (void *)end;
    search->found->dlfo_link_map = NULL;
    search->found->dlfo_eh_frame = (void *)frames;
    return 1;
}

HIDDEN int _dl_find_object(void *address, struct dl_find_object *found) {
    struct search search = {(ElfW(Addr))address, found};
    return dl_iterate_phdr(look, &search) ? 0 : -1;
}
#endif

/* Threads, which moved into libc.so.6 in glibc 2.34. A program that has none on an older system may lack them: then there is
 * no thread. */
HIDDEN int gpuquota_start_thread(void *(*main)(void *), size_t stack_bytes) {
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = gpuquota_in_libc("pthread_create");
    int (*set_stack)(pthread_attr_t *, size_t) = gpuquota_in_libc("pthread_attr_setstacksize");
    pthread_attr_t attributes;
    pthread_t thread;
    if (!create || pthread_attr_init(&attributes)) return 0;
    if (set_stack) set_stack(&attributes, stack_bytes);
    int failed = pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) || create(&thread, &attributes, main, NULL);
    /* Thread-local memory of the program may be too large for a small stack. */
    if (failed && set_stack && !set_stack(&attributes, 8u << 20)) failed = create(&thread, &attributes, main, NULL);
    pthread_attr_destroy(&attributes);
    return !failed;
}
