"""Connections to clusters that do pieces of work: see `engines`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from typing import Any

from evalstats_plugin.errors import DesignError

_PACKAGE = "evalstats-plugin"
_ANSWER = 8.0
"""Seconds within which a scheduler says that it is one: Dask tries for 30, or waits for ever."""
_PATIENCE = 10
"""Seconds to wait for the first worker of a cluster."""


@contextmanager
def on_dask(address: str | None) -> Generator[None, None, None]:
    """Connect to the Dask scheduler at an address; None starts a cluster here.

    Raises
    ------
    DesignError
        Where nobody answers, or there are no workers, or some with another version of ours.
    """
    distributed: Any = import_module("distributed")
    if address is not None:
        _check_answer(distributed, address)
    try:
        client = distributed.Client(address, set_as_default=True)
    except (OSError, ValueError) as error:
        raise _nobody(address, error) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=_PATIENCE)
            check_versions(client.run(version, _PACKAGE))
        except TimeoutError as error:
            msg = f"the Dask scheduler at {address} has no workers: start some, dask worker ADDRESS"
            raise DesignError(msg) from error
        except ImportError as error:
            msg = f"the workers of {address} have no {_PACKAGE}: install it there ({error})"
            raise DesignError(msg) from error
        yield


def _check_answer(distributed: Any, address: str) -> None:
    """Raise where no Dask scheduler answers soon."""
    # Not at the top: commands that use no cluster start without it.
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    async def ask() -> None:
        security = distributed.Security().get_connection_args("client")
        # The greetings are part of it, for which a client would wait without end.
        comm = await distributed.comm.connect(address, timeout=_ANSWER, **security)
        comm.abort()

    def within_time() -> None:
        asyncio.run(asyncio.wait_for(ask(), _ANSWER))

    # In another thread, as this one may have a loop of its own that runs (notebooks).
    with ThreadPoolExecutor(1) as thread:
        try:
            thread.submit(within_time).result()
        except TimeoutError as error:
            raise _nobody(address, f"nothing was said in {_ANSWER:g} s") from error
        except Exception as error:
            # Who answers may speak another language, out of which anything can be read.
            raise _nobody(address, error) from error


def _nobody(address: str | None, why: object) -> DesignError:
    msg = (
        f"no Dask scheduler answers at {address} ({why}), expected the address that "
        "'dask scheduler' shows when it starts, such as tcp://host:8786"
    )
    return DesignError(msg)


@contextmanager
def on_ray(address: str | None) -> Generator[None, None, None]:
    """Connect to a Ray cluster; None starts one here. One that is connected already stays so.

    Raises
    ------
    DesignError
        Where nobody answers.
    """
    ray: Any = import_module("ray")
    ours = not ray.is_initialized()
    if ours:
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, ValueError) as error:
            msg = f"no Ray cluster answers at {address}: {error}"
            raise DesignError(msg) from error
    try:
        yield
    finally:
        if ours:
            ray.shutdown()


def check_versions(found: dict[str, str]) -> None:
    """Raise where another version of the package would do the work."""
    own = version(_PACKAGE)
    for worker, theirs in found.items():
        if theirs != own:
            msg = f"{worker} has {_PACKAGE} {theirs}, here it is {own}: install the same"
            raise DesignError(msg)
