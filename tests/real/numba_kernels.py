"""numba-cuda: kernels written in Python, compiled by NVIDIA's NVVM and nvJitLink."""

import numpy
from checks import FAR_ABOVE_THE_QUOTA, LARGE, QUOTA, claim, driver_was_not_asked, equal, finish, holds, journal
from numba import cuda
from numba.cuda.cudadrv.driver import CudaAPIError

OUT_OF_MEMORY = 2


@cuda.jit
def add_one(values):
    place = cuda.grid(1)
    if place < values.size:
        values[place] += 1


def refused(bytes_asked: int) -> None:
    """An array of this size must raise what numba's users know as out of memory."""
    try:
        cuda.device_array(bytes_asked, dtype=numpy.uint8)
    except CudaAPIError as error:
        equal(int(error.code), OUT_OF_MEMORY, "CudaAPIError.code")
        holds("CUDA_ERROR_OUT_OF_MEMORY" in str(error), f"the message is {error}")
        driver_was_not_asked("cuMemAlloc_v2", bytes_asked)
    else:
        raise AssertionError(f"{bytes_asked} bytes were granted")


@claim("the context's memory is the quota")
def _() -> None:
    holds(cuda.is_available(), "cuda.is_available() is False")
    free, total = cuda.current_context().get_memory_info()
    equal(total, QUOTA, "get_memory_info().total")
    holds(LARGE <= free <= QUOTA, f"get_memory_info().free is {free}")


@claim("arrays come back as they were sent")
def _() -> None:
    sent = numpy.random.default_rng(7).random(1 << 20)
    holds(numpy.array_equal(cuda.to_device(sent).copy_to_host(), sent), "to_device, copy_to_host changed the array")
    pinned = cuda.pinned_array(4096, dtype=numpy.int64)
    pinned[:] = numpy.arange(4096)
    holds(numpy.array_equal(cuda.to_device(pinned).copy_to_host(), pinned), "a pinned array came back changed")


@claim("above the quota it raises CudaAPIError 2, and the driver isn't asked")
def _() -> None:
    refused(FAR_ABOVE_THE_QUOTA)
    held = cuda.device_array(LARGE, dtype=numpy.uint8)
    equal(held.nbytes, LARGE, "the array that fits")
    refused(LARGE + 1)


@claim("a deleted array makes room for the next")
def _() -> None:
    for _round in range(3):
        held = cuda.device_array(LARGE, dtype=numpy.uint8)
        del held
        cuda.current_context().deallocations.clear()


@claim("a kernel is compiled and launched")
def _() -> None:
    values = cuda.to_device(numpy.zeros(65536, dtype=numpy.float32))
    add_one[256, 256](values)
    cuda.synchronize()
    launches = journal("cuLaunchKernel", "cuLaunchKernelEx")
    equal([call["result"] for call in launches], [0], "the driver's answers to launches")


@claim("streams and events order its work")
def _() -> None:
    stream, begin, end = cuda.stream(), cuda.event(), cuda.event()
    values = cuda.to_device(numpy.zeros(65536, dtype=numpy.float32), stream=stream)
    begin.record(stream)
    add_one[256, 256, stream](values)
    end.record(stream)
    stream.synchronize()
    holds(begin.elapsed_time(end) > 0, "no time passed between two events around a kernel")


finish()
