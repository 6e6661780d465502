/* gpuquota: what a program can rely on when it runs under a quota.
 *
 * A program needs nothing from here to run under gpuquota. The driver's own calls tell it what it has:
 * cuMemGetInfo and cuDeviceTotalMem (and NVML) show the quota as the size of the device, and an allocation
 * beyond it fails with CUDA_ERROR_OUT_OF_MEMORY, as on a smaller device. The names below are for programs and scripts that
 * set quotas for others; the functions, for programs that want to save their state before they make room for another job. */
#ifndef GPUQUOTA_H
#define GPUQUOTA_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Settings, read from the environment at the first driver call of a process. */
#define GPUQUOTA_MEMORY "GPUQUOTA_MEMORY"       /* most memory, on every device: "4GiB", "50%" */
#define GPUQUOTA_COMPUTE "GPUQUOTA_COMPUTE"     /* most compute, in percent: "30" */
#define GPUQUOTA_GUARANTEE "GPUQUOTA_GUARANTEE" /* least compute, in percent */
#define GPUQUOTA_WEIGHT "GPUQUOTA_WEIGHT"       /* 1 to 10000 */
#define GPUQUOTA_PRIORITY "GPUQUOTA_PRIORITY"   /* "batch", "normal" or "high" */
#define GPUQUOTA_TENANT "GPUQUOTA_TENANT"       /* processes with one name share one quota */
#define GPUQUOTA_SOCKET "GPUQUOTA_SOCKET"       /* the daemon's socket */
#define GPUQUOTA_MODE "GPUQUOTA_MODE"           /* "enforce", "observe" or "off" */

/* Where the node's daemon listens when GPUQUOTA_SOCKET is not set. */
#define GPUQUOTA_DEFAULT_SOCKET "/run/gpuquota/gpuquota.sock"

/* Exit status of `gpuquota run` when it fails itself; otherwise the command's own. */
#define GPUQUOTA_EXIT_FAILED 125
#define GPUQUOTA_EXIT_NOT_EXECUTABLE 126
#define GPUQUOTA_EXIT_NOT_FOUND 127

/* Functions of the library. A program that runs without it finds none of them: declared weak, as here, they are then null, so
 * that it need not be linked to anything:
 *
 *     if (gpuquota_on_notice) gpuquota_on_notice(make_room, 0);
 *
 * Where weak declarations can't be had, look them up: dlsym(RTLD_DEFAULT, "gpuquota_on_notice"); in Python,
 * ctypes.CDLL(None).gpuquota_on_notice. All of them may be called from any thread at any time. */
#if defined(__GNUC__)
#define GPUQUOTA_WEAK __attribute__((weak))
#else
#define GPUQUOTA_WEAK
#endif

/* Answers. */
#define GPUQUOTA_OK 0
#define GPUQUOTA_UNMANAGED 1 /* there is no quota, or no daemon: no notice will come */
#define GPUQUOTA_NOT_READY 2 /* CUDA is not initialised, or there is no notice to be ready for */
#define GPUQUOTA_INVALID 3   /* no such device, or an argument that can't be */
#define GPUQUOTA_LATER 4     /* the daemon doesn't answer now; the next one will be told */

/* What has happened. */
#define GPUQUOTA_NOTICE 1      /* the job has to make room: grace_ms are left until the action */
#define GPUQUOTA_INTERRUPTED 2 /* the grace is over: kernels wait, and what is not in use is lent to others */
#define GPUQUOTA_RESUMED 3     /* everything is as it was before the notice; also when that was withdrawn */

/* Why. */
#define GPUQUOTA_PREEMPTED 1 /* a job of a higher class needs the room */
#define GPUQUOTA_ASKED 2     /* an administrator wants it */
#define GPUQUOTA_RECLAIMED 3 /* what was borrowed is wanted back */

/* What follows the grace. */
#define GPUQUOTA_PAUSE 1      /* kernels wait; memory stays, and the quota is lowered to what is in use then */
#define GPUQUOTA_CHECKPOINT 2 /* the driver takes the memory to the host, and brings it back */
#define GPUQUOTA_TERMINATE 3  /* SIGTERM, and ten seconds later SIGKILL */

/* No cap. */
#define GPUQUOTA_NO_CAP ((size_t)-1)

/* A notice. Members may be added at the end; size says how many bytes there are. */
struct gpuquota_notice {
    size_t size;
    int event;         /* GPUQUOTA_NOTICE, GPUQUOTA_INTERRUPTED or GPUQUOTA_RESUMED */
    int reason;        /* GPUQUOTA_PREEMPTED, ... */
    int action;        /* GPUQUOTA_PAUSE, ... */
    unsigned grace_ms; /* what is left of the grace; 0 but for GPUQUOTA_NOTICE */
};

/* The quota on one device. Set size to sizeof(struct gpuquota_quota); members beyond it are not written. */
struct gpuquota_quota {
    size_t size;
    size_t memory_quota;        /* bytes, or GPUQUOTA_NO_CAP */
    size_t memory_used;         /* bytes, by all processes that share the quota */
    unsigned compute_cap;       /* hundredths of a percent of the device's time; 10000 for all of it */
    unsigned compute_guarantee; /* the same; 0 for none */
    unsigned weight;            /* 1 to 10000 */
    int priority;               /* 0 batch, 1 normal, 2 high */
    int state;                  /* 0 running, or GPUQUOTA_NOTICE or GPUQUOTA_INTERRUPTED */
    unsigned grace_ms;          /* what is left of the grace; 0 but for GPUQUOTA_NOTICE */
};

typedef void (*gpuquota_notice_fn)(const struct gpuquota_notice *notice, void *data);

/* The version of these functions: GPUQUOTA_API_VERSION of the header that the library was built with. */
#define GPUQUOTA_API_VERSION 1
int gpuquota_version(void) GPUQUOTA_WEAK;

/* Fills in the quota on CUDA's device. GPUQUOTA_OK, GPUQUOTA_UNMANAGED, GPUQUOTA_NOT_READY or GPUQUOTA_INVALID. */
int gpuquota_quota(int device, struct gpuquota_quota *quota) GPUQUOTA_WEAK;

/* Has callback hear of notices, in place of any other; null: nobody does. It runs on a thread of the library that exists only
 * while there is a callback and a daemon, with all signals blocked, and may call CUDA (make a context current first). What it
 * doesn't hear while it runs it hears after, the last event only. A forked child has no callback. One that is running when it
 * is replaced goes on to its end. */
int gpuquota_on_notice(gpuquota_notice_fn callback, void *data) GPUQUOTA_WEAK;

/* Says that the program has done what it wanted to before it is interrupted, such as to free memory: the rest of the grace is
 * not waited for, once all processes of the job that have a callback have said so. GPUQUOTA_OK, GPUQUOTA_NOT_READY when there
 * is no notice, or GPUQUOTA_LATER. */
int gpuquota_ready(void) GPUQUOTA_WEAK;

#ifdef __cplusplus
}
#endif

#endif
