"""`LoadsAhead`: which of vLLM's requests may load before they run, so that each of them can run at last.

    looked up --may load--> loads --> has loaded, and waits for room to compute the rest --> runs
              [------------------ holds pages, and cannot be preempted -----------------]

vLLM loads for as many requests as find room beside the pages that the others still need. For windows it counts too few
of these: of those that a request passes while its rest is computed, it subtracts the pages that the loaded part has
passed. If all that have loaded need more room than is left, and nothing runs, none of them ever runs.

So all that load ahead must fit into the device together, each with all pages that it will hold, or there is only one.
A request that finds no room is asked again in the next step, and none that is asked after it is let past.
"""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from octavo.specs import ceil_div
from octavo.vllm_plugin.ranks import DeviceReport

R = TypeVar("R", bound=Hashable)


class LoadsAhead(Generic[R]):
    """The requests that hold pages and do not run yet, oldest first."""

    def __init__(self, device: DeviceReport | None) -> None:
        """`device`: None if it is not known. Then all may load."""
        self._device = device
        self._pages: dict[R, int] = {}
        """Request -> the most pages that it will hold."""
        self._put_off: R | None = None
        """The first request of this step that found no room."""

    def may_load(self, request: R, num_tokens: int) -> bool:
        """Whether a request that holds no pages may load now."""
        self._pages.pop(request, None)  # its load has failed, or it was preempted
        if self._put_off is None and not self._fits(num_tokens):
            self._put_off = request
        return self._put_off is None

    def begins(self, request: R, num_tokens: int) -> None:
        """The request has pages, and its load begins."""
        self._pages[request] = self._most_pages(num_tokens)

    def end_step(self, waits_with_pages: Callable[[R], bool]) -> None:
        """`waits_with_pages`: whether a request still holds pages and does not run."""
        self._put_off = None
        self._pages = {request: pages for request, pages in self._pages.items() if waits_with_pages(request)}

    def _fits(self, num_tokens: int) -> bool:
        if self._device is None or not self._pages:
            return True
        return sum(self._pages.values()) + self._most_pages(num_tokens) <= self._device.num_pages

    def _most_pages(self, num_tokens: int) -> int:
        if self._device is None:
            return 0
        end = num_tokens + self._device.tokens_ahead
        return sum(min(ceil_div(end, group.tokens_per_page), group.most_pages) for group in self._device.groups)
