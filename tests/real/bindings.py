"""NVIDIA's Python bindings of the driver API (cuda-bindings), with their NVRTC."""

import ctypes
import os

from checks import FAR_ABOVE_THE_QUOTA, LARGE, MIB, QUOTA, claim, driver_was_not_asked, equal, finish, holds, journal
from cuda.bindings import driver, nvrtc

OUT_OF_MEMORY = driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY

PTX = b"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry written_by_hand() { ret; }
\0"""

SOURCE = b"""
extern "C" __global__ void compiled(float *values, float factor, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] *= factor;
}
"""


def answer(result: tuple):
    """What a call returned beside its status, which must be success."""
    status, *values = result
    holds(int(status) == 0, f"the call answered {status!r}")
    return values[0] if len(values) == 1 else values


def memory() -> tuple[int, int]:
    """Free and total bytes."""
    free, total = answer(driver.cuMemGetInfo())
    return free, total


def round_trip(address) -> None:
    """Writes a pattern to device memory and reads it back."""
    sent = os.urandom(1 * MIB)
    received = bytearray(len(sent))
    answer(driver.cuMemcpyHtoD(address, sent, len(sent)))
    answer(driver.cuMemcpyDtoH(received, address, len(received)))
    holds(bytes(received) == sent, "what came back differs from what was sent")


answer(driver.cuInit(0))
DEVICE = answer(driver.cuDeviceGet(0))
answer(driver.cuCtxSetCurrent(answer(driver.cuDevicePrimaryCtxRetain(DEVICE))))
STREAM = answer(driver.cuStreamCreate(0))


@claim("the device is as large as the quota")
def _() -> None:
    equal(answer(driver.cuDeviceTotalMem(DEVICE)), QUOTA, "cuDeviceTotalMem")
    free, total = memory()
    equal(total, QUOTA, "cuMemGetInfo's total")
    holds(LARGE <= free <= QUOTA, f"cuMemGetInfo's free: {free}")


@claim("linear memory: data comes back, 600 MiB twice are out of memory, freed bytes are free again")
def _() -> None:
    before, _ = memory()
    address = answer(driver.cuMemAlloc(LARGE))
    equal(memory()[0], before - LARGE, "free memory with 600 MiB allocated")
    equal(driver.cuMemAlloc(LARGE + MIB)[0], OUT_OF_MEMORY, "601 MiB more")
    driver_was_not_asked("cuMemAlloc_v2", LARGE + MIB)
    round_trip(address)
    answer(driver.cuMemFree(address))
    equal(memory()[0], before, "free memory after cuMemFree")


@claim("managed memory: data comes back, 600 MiB twice are out of memory, freed bytes are free again")
def _() -> None:
    before, _ = memory()
    flags = driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL
    address = answer(driver.cuMemAllocManaged(LARGE, flags))
    equal(driver.cuMemAllocManaged(LARGE, flags)[0], OUT_OF_MEMORY, "600 MiB more")
    round_trip(address)
    answer(driver.cuMemFree(address))
    equal(memory()[0], before, "free memory after cuMemFree")


@claim("stream-ordered memory: data comes back, 600 MiB twice are out of memory, a trimmed pool gives all back")
def _() -> None:
    before, _ = memory()
    address = answer(driver.cuMemAllocAsync(LARGE, STREAM))
    equal(driver.cuMemAllocAsync(LARGE, STREAM)[0], OUT_OF_MEMORY, "600 MiB more")
    round_trip(address)
    answer(driver.cuMemFreeAsync(address, STREAM))
    answer(driver.cuStreamSynchronize(STREAM))
    answer(driver.cuMemPoolTrimTo(answer(driver.cuDeviceGetDefaultMemPool(DEVICE)), 0))
    equal(memory()[0], before, "free memory after cuMemFreeAsync")


@claim("memory mapped by the program: data comes back, 600 MiB twice are out of memory, unmapped bytes are free again")
def _() -> None:
    before, _ = memory()
    wanted = driver.CUmemAllocationProp()
    wanted.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.location.id = int(DEVICE)
    access = driver.CUmemAccessDesc()
    access.location = wanted.location
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    handle = answer(driver.cuMemCreate(LARGE, wanted, 0))
    equal(driver.cuMemCreate(LARGE, wanted, 0)[0], OUT_OF_MEMORY, "600 MiB more")
    address = answer(driver.cuMemAddressReserve(LARGE, 0, 0, 0))
    answer(driver.cuMemMap(address, LARGE, 0, handle, 0))
    answer(driver.cuMemSetAccess(address, LARGE, [access], 1))
    round_trip(address)
    answer(driver.cuMemRelease(handle))
    equal(memory()[0], before - LARGE, "free memory while released memory is still mapped")
    answer(driver.cuMemUnmap(address, LARGE))
    answer(driver.cuMemAddressFree(address, LARGE))
    equal(memory()[0], before, "free memory after cuMemUnmap")


@claim("a refusal is not remembered: the context goes on working")
def _() -> None:
    equal(driver.cuMemAlloc(FAR_ABOVE_THE_QUOTA)[0], OUT_OF_MEMORY, "100 GiB")
    answer(driver.cuCtxSynchronize())
    address = answer(driver.cuMemAlloc(LARGE))
    round_trip(address)
    answer(driver.cuMemFree(address))


def launch(image: bytes, name: bytes, arguments) -> None:
    """Loads an image and launches one of its functions; the driver must have got that launch."""
    before = len(journal("cuLaunchKernel"))
    module = answer(driver.cuModuleLoadData(image))
    function = answer(driver.cuModuleGetFunction(module, name))
    answer(driver.cuLaunchKernel(function, 4, 1, 1, 256, 1, 1, 0, STREAM, arguments, 0))
    answer(driver.cuStreamSynchronize(STREAM))
    answer(driver.cuModuleUnload(module))
    launches = journal("cuLaunchKernel")
    equal(len(launches) - before, 1, "launches that reached the driver")
    equal(launches[-1]["result"], 0, "the driver's answer to the launch")


@claim("a kernel from PTX is launched")
def _() -> None:
    launch(PTX, b"written_by_hand", 0)


@claim("a kernel compiled by NVRTC is launched")
def _() -> None:
    program = answer(nvrtc.nvrtcCreateProgram(SOURCE, b"compiled.cu", 0, [], []))
    answer(nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_90"]))
    ptx = b" " * answer(nvrtc.nvrtcGetPTXSize(program))
    answer(nvrtc.nvrtcGetPTX(program, ptx))
    values = answer(driver.cuMemAlloc(4096))
    launch(ptx, b"compiled", ((values, 2.0, 1024), (None, ctypes.c_float, ctypes.c_int)))
    answer(driver.cuMemFree(values))


@claim("a function that the image lacks is not found")
def _() -> None:
    module = answer(driver.cuModuleLoadData(PTX))
    equal(driver.cuModuleGetFunction(module, b"absent")[0], driver.CUresult.CUDA_ERROR_NOT_FOUND, "an unknown name")
    answer(driver.cuModuleUnload(module))


finish()
