/* gpuquota: what a program can rely on when it runs under a quota.
 *
 * A program needs nothing from here to run under gpuquota. The driver's own calls tell it what it has:
 * cuMemGetInfo and cuDeviceTotalMem (and NVML) show the quota as the size of the device, and an allocation
 * beyond it fails with CUDA_ERROR_OUT_OF_MEMORY, as on a smaller device. These names are for programs and scripts that
 * set quotas for others. */
#ifndef GPUQUOTA_H
#define GPUQUOTA_H

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

#endif
