"""Claims about a real program under the shim: one line for each, and an exit status for all of them.

A script states claims with the decorator `claim`, in the order in which they are to be tried, and ends with
`finish()`. A claim fails by raising; the ones after it are tried all the same.
"""

import json
import os
import sys
from collections.abc import Callable

MIB = 1 << 20
GIB = 1 << 30

QUOTA = GIB
"""What `run` gives each program, as GPUQUOTA_MEMORY=1GiB."""

LARGE = 600 * MIB
"""Fits into the quota once, not twice."""

FAR_ABOVE_THE_QUOTA = 100 * GIB

_claims: list[tuple[str, Callable[[], None]]] = []


def claim(text: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Registers a check under the sentence that it proves."""

    def register(check: Callable[[], None]) -> Callable[[], None]:
        _claims.append((text, check))
        return check

    return register


def equal(seen: object, expected: object, what: str) -> None:
    """Fails unless both are the same."""
    if seen != expected:
        raise AssertionError(f"{what}: {seen!r}, where {expected!r} is right")


def holds(condition: object, otherwise: str) -> None:
    """Fails with a message unless the condition holds."""
    if not condition:
        raise AssertionError(otherwise)


def journal(*functions: str) -> list[dict]:
    """This process' calls of these driver functions, as the simulated driver got them."""
    with open(os.environ["FAKE_CUDA_JOURNAL"], encoding="utf-8") as lines:
        calls = [json.loads(line) for line in lines]
    return [call for call in calls if call["function"] in functions and call["pid"] == os.getpid()]


def driver_was_not_asked(function: str, bytes_asked: int) -> None:
    """Fails if the driver got a request of this size: a refusal must be the quota's own."""
    asked = [call for call in journal(function) if bytes_asked in call["args"].values()]
    holds(not asked, f"{function} of {bytes_asked} bytes reached the driver")


def finish() -> None:
    """Tries all claims, prints a line for each, and ends the process. Its first argument names it in those lines."""
    client, failed = sys.argv[1], 0
    for text, check in _claims:
        try:
            check()
        except Exception as error:  # any failure is one line, and the rest must still be tried
            failed += 1
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            print(f"FAIL  {client}: {text}: {reason}", flush=True)
        else:
            print(f"ok    {client}: {text}", flush=True)
    sys.exit(1 if failed else 0)
