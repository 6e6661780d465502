"""PyTorch: 1.12.1 on NVIDIA's runtime 10.2, nothing replaced, or 2 on the stand-in runtime, in any allocator mode."""

import torch
from checks import FAR_ABOVE_THE_QUOTA, MIB, QUOTA, claim, equal, finish, holds, journal

PIECE = 128 * MIB
LAUNCHES = ("cuLaunchKernel", "cuLaunchKernelEx")

OutOfMemory = getattr(torch.cuda, "OutOfMemoryError", RuntimeError)
"""The class has existed since 1.13; before, users knew it by its message."""


def array(count: int) -> torch.Tensor:
    """Device memory of so many bytes, with nothing in it."""
    return torch.empty(count, dtype=torch.uint8, device="cuda")


def launches() -> int:
    """How many launches the driver has got; all must have succeeded."""
    calls = journal(*LAUNCHES)
    holds(all(call["result"] == 0 for call in calls), "the driver refused a launch")
    return len(calls)


def out_of_memory(error: RuntimeError) -> None:
    """The message must be the one that users search for, with the quota for the size of the device."""
    text = " ".join(str(error).split())
    holds("out of memory" in text, f"the message is {text}")
    holds("1024.00 MiB" in text or "1.00 GiB" in text, f"the quota is not in the message: {text}")


@claim("the device is as large as the quota")
def _() -> None:
    holds(torch.cuda.is_available(), "torch.cuda.is_available() is False")
    equal(torch.cuda.device_count(), 1, "device_count()")
    equal(torch.cuda.get_device_properties(0).total_memory, QUOTA, "total_memory")
    free, total = torch.cuda.mem_get_info()
    equal(total, QUOTA, "mem_get_info()'s total")
    holds(free <= QUOTA, f"mem_get_info()'s free is {free}")


@claim("tensors come back as they were sent")
def _() -> None:
    sent = torch.randint(-(2**31), 2**31 - 1, (1 << 20,), dtype=torch.int32)
    holds(torch.equal(sent.to("cuda").cpu(), sent), "a tensor came back changed")
    pinned = sent.pin_memory()
    holds(torch.equal(pinned.to("cuda", non_blocking=True).cpu(), sent), "a pinned tensor came back changed")
    copied = sent.to("cuda").clone().cpu()
    holds(torch.equal(copied, sent), "a copy on the device came back changed")


@claim("memory in use is seen as used")
def _() -> None:
    torch.cuda.empty_cache()
    before, _ = torch.cuda.mem_get_info()
    held = array(2 * PIECE)
    during, _ = torch.cuda.mem_get_info()
    holds(before - during >= held.numel(), f"free memory fell from {before} to {during}")


@claim("more than the quota at once is out of memory")
def _() -> None:
    try:
        array(FAR_ABOVE_THE_QUOTA)
    except OutOfMemory as error:
        out_of_memory(error)
    else:
        raise AssertionError("100 GiB were granted")


@claim("it can fill the quota, not more, and gets out of memory then")
def _() -> None:
    torch.cuda.empty_cache()
    # Its context and its code are part of the quota.
    free, _ = torch.cuda.mem_get_info()
    holds(QUOTA // 2 <= free < QUOTA, f"{free} bytes are free before")
    held = []
    try:
        while len(held) * PIECE <= QUOTA:
            held.append(array(PIECE))
    except OutOfMemory as error:
        out_of_memory(error)
    filled = len(held) * PIECE
    holds(free - 2 * PIECE <= filled <= free, f"{filled // MIB} MiB were granted of {free // MIB}")
    del held
    torch.cuda.empty_cache()
    after, _ = torch.cuda.mem_get_info()
    equal(after, free, "bytes free with all tensors deleted")


@claim("deleted tensors make room for the next")
def _() -> None:
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    holds(free >= QUOTA // 2, f"{free} bytes are free with all tensors deleted")
    equal(array(5 * PIECE).numel(), 5 * PIECE, "the next tensor")
    most = torch.cuda.max_memory_allocated()
    holds(0 < most <= QUOTA, f"at most {most} bytes were allocated")


@claim("an elementwise operation is launched")
def _() -> None:
    values = torch.empty(1 << 16, device="cuda")
    before = launches()
    torch.add(values, 1)
    torch.cuda.synchronize()
    equal(launches() - before, 1, "launches that reached the driver")


@claim("streams and events order its work")
def _() -> None:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        begin.record()
        torch.empty(1 << 16, device="cuda").add_(1)
        end.record()
    stream.synchronize()
    holds(begin.elapsed_time(end) > 0, "no time passed between two events around a kernel")


if torch.version.cuda == "10.2":

    @claim("cuBLAS multiplies matrices")
    def _() -> None:
        before = launches()
        torch.mm(torch.empty(64, 64, device="cuda"), torch.empty(64, 64, device="cuda"))
        torch.cuda.synchronize()
        holds(launches() > before, "no launch reached the driver")

else:

    @claim("NVML, by which it reports use, agrees with the driver")
    def _() -> None:
        held = array(PIECE)
        free, total = torch.cuda.mem_get_info()
        equal(torch.cuda.device_memory_used(), total - free, "device_memory_used()")
        del held

    @claim("a captured graph is launched")
    def _() -> None:
        graph, values = torch.cuda.CUDAGraph(), torch.empty(1 << 16, device="cuda")
        with torch.cuda.graph(graph):
            total = values + 1
        graph.replay()
        torch.cuda.synchronize()
        equal([call["result"] for call in journal("cuGraphLaunch")], [0], "the driver's answers to graph launches")
        del total

    @claim("a function compiled by Triton is launched")
    def _() -> None:
        values = torch.zeros(1 << 16, device="cuda")
        before = launches()
        torch.compile(lambda x: (x * 2 + 1).relu())(values)
        torch.cuda.synchronize()
        holds(launches() > before, "no launch reached the driver")


finish()
