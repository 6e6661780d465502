"""NVML through NVIDIA's two Python packages: what monitoring in a container sees is the quota too."""

import os

import pynvml
from checks import LARGE, QUOTA, claim, equal, finish, holds
from cuda.bindings import driver, nvml


def answer(result: tuple):
    """What a driver call returned beside its status, which must be success."""
    status, *values = result
    holds(int(status) == 0, f"the call answered {status!r}")
    return values[0] if len(values) == 1 else values


answer(driver.cuInit(0))
answer(driver.cuCtxSetCurrent(answer(driver.cuDevicePrimaryCtxRetain(answer(driver.cuDeviceGet(0))))))
pynvml.nvmlInit()
HANDLE = pynvml.nvmlDeviceGetHandleByIndex(0)


def agrees(used: int, free: int, total: int) -> None:
    """NVML's numbers must be those of cuMemGetInfo."""
    driver_free, _ = answer(driver.cuMemGetInfo())
    equal(total, QUOTA, "NVML's total")
    equal(free, driver_free, "NVML's free memory, beside cuMemGetInfo's")
    equal(used, QUOTA - driver_free, "NVML's used memory")


@claim("nvidia-ml-py sees the quota as the size of the device, and what is used of it")
def _() -> None:
    idle = pynvml.nvmlDeviceGetMemoryInfo(HANDLE)
    agrees(idle.used, idle.free, idle.total)
    address = answer(driver.cuMemAlloc(LARGE))
    busy = pynvml.nvmlDeviceGetMemoryInfo(HANDLE)
    agrees(busy.used, busy.free, busy.total)
    equal(busy.used - idle.used, LARGE, "what NVML's used memory grew by")
    answer(driver.cuMemFree(address))


@claim("nvidia-ml-py sees the same by the second version of the call")
def _() -> None:
    info = pynvml.nvmlDeviceGetMemoryInfo(HANDLE, version=pynvml.nvmlMemory_v2)
    agrees(info.used + info.reserved, info.free, info.total)


@claim("cuda-bindings' NVML sees the same")
def _() -> None:
    nvml.init_v2()
    info = nvml.device_get_memory_info_v2(nvml.device_get_handle_by_index_v2(0))
    agrees(info.used + info.reserved, info.free, info.total)


@claim("NVML and the driver mean the same device by a UUID")
def _() -> None:
    uuid = answer(driver.cuDeviceGetUuid(answer(driver.cuDeviceGet(0)))).bytes.hex()
    seen = pynvml.nvmlDeviceGetUUID(HANDLE)
    equal(seen.removeprefix("GPU-").replace("-", ""), uuid, "NVML's UUID")


@claim("the device's list of compute processes is this process, with what it holds")
def _() -> None:
    address = answer(driver.cuMemAlloc(LARGE))
    listed = [(process.pid, process.usedGpuMemory) for process in pynvml.nvmlDeviceGetComputeRunningProcesses(HANDLE)]
    answer(driver.cuMemFree(address))
    equal([pid for pid, _ in listed], [os.getpid()], "the list")
    holds(LARGE <= listed[0][1] <= QUOTA, f"the list says {listed[0][1]} bytes")


finish()
