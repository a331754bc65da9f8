"""How long an answer will be, learned from those that ended.

`max_tokens` is a bound; callers use some share of it. What share depends on who asks and, often
strongly, on the prompt. So the estimate for a request is the list of shares used by the
`NEIGHBOURS` completed requests of its group (route and tier; maxima of the same power of two) with
the most similar prompt length, out of the last `WINDOW`. No more than half of what is known counts
as similar: in a young group the nearest may be far. Each missing one counts as the whole maximum:
a cold start is the maximum, and twice `NEIGHBOURS` answers end it.

From the list come the mean and the variance of the length (the queue ahead is a sum of such), the
probability that the answer ends within so many tokens (own service), and for a running request
what is left given the tokens it has made: mean and variance over the neighbours that were longer.

Completed answers teach. An answer that was cut off at its deadline says only that it was longer,
and counts as the whole maximum: to leave it out would make long answers look rare. Those that
failed, or whose client left, teach nothing.

A kind of request of which nobody is served any more teaches nothing, so now and then one is let
through: see `scout`. What it teaches takes the place of the oldest of the answers that it was
judged by, where that is outdated: by itself the window would never pass over prompts that nobody
is let through with.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from dataclasses import dataclass
from math import erf, sqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from punctual_admission.ticket import Request

WINDOW = 1000
NEIGHBOURS = 64
OUTDATED = WINDOW // 2
"""An answer before so many others makes room for that of a scout with a similar prompt."""
ENOUGH = 2 * NEIGHBOURS
"""So many answers end a cold start."""
MOST_GROUPS = 256
"""Groups beyond this many share one: their names may come from callers."""
QUANTILES = (0.5, 0.9, 0.99)
"""Of the shares that are shown."""


@dataclass(slots=True)
class OutputLength:
    """The distribution of one answer's length: ascending tokens of equally likely cases."""

    cases: Sequence[float]
    mean: float
    variance: float
    cold: bool = False
    """Whether some of the cases are the maximum for want of better."""
    scouts: bool = False
    """Whether it is no estimate, but the most that a scout can make."""
    stake: float = 0.0
    """Chance that a scout is late."""

    @property
    def median(self) -> float:
        """Half of all answers have at most so many tokens."""
        return self.cases[(len(self.cases) - 1) // 2]

    @property
    def least(self) -> float:
        """The shortest answer to hope for; of one that is not known, a single token."""
        return 1.0 if self.cold else self.cases[0]

    @property
    def longest(self) -> float:
        """The longest answer to expect."""
        return self.cases[-1]

    @classmethod
    def of(cls, cases: Sequence[float]) -> OutputLength:
        """From at least one case, ascending."""
        count = len(cases)
        mean = sum(cases) / count
        return cls(cases, mean, max(sum([c * c for c in cases]) / count - mean * mean, 0.0))

    def chance(self, tokens: float, deviation: float) -> float:
        """Probability that the answer has at most `tokens` tokens, that limit itself being normal
        with the given standard deviation (tokens).
        """
        if deviation <= 0:
            return bisect_right(self.cases, tokens + 1e-9) / len(self.cases)
        scale = 1 / (deviation * sqrt(2))
        likely = [erf((tokens - case) * scale) for case in self.cases]
        return 0.5 + 0.5 * sum(likely) / len(likely)

    def left(self, generated: int) -> tuple[float, float]:
        """Mean and variance of the tokens still to come after `generated`; at least one comes."""
        longer = self.cases[bisect_right(self.cases, generated) :]
        if not longer:
            return 1.0, 0.0
        rest = OutputLength.of(longer)
        return max(rest.mean - generated, 1.0), rest.variance


class OutputLengths:
    """Learns the lengths of all groups."""

    def __init__(self) -> None:
        self._groups: dict[str, _History] = {}

    def estimate(self, request: Request) -> OutputLength:
        """The length of a request, from the most similar ones."""
        known = self._groups.get(self.group(request))
        shares = [] if known is None else known.similar(request.prompt_tokens)
        missing, maximum = NEIGHBOURS - len(shares), request.output_tokens
        cases = [max(share * maximum, 1.0) for share in (*sorted(shares), *[1.0] * missing)]
        length = OutputLength.of(cases)
        length.cold = missing > 0
        return length

    def observe(self, request: Request, tokens: int, *, scout: bool = False) -> None:
        """Learn from an answer that ended with so many tokens, that of a scout or not."""
        group = self.group(request)
        known = self._groups.get(group)
        if known is None:
            known = self._groups[group] = _History()
        if scout and not known.cold:
            known.forget_outdated(request.prompt_tokens)
        known.add(request.prompt_tokens, min(tokens / max(request.output_tokens, 1), 1.0))

    def describe(self) -> list[Learned]:
        """What each group has taught, in the order in which they came."""
        return [known.describe(*group.split(" ", 1)) for group, known in self._groups.items()]

    def group(self, request: Request) -> str:
        """Those that the request learns with."""
        size = request.output_tokens.bit_length()
        group = f"{size} {request.group}"
        if group in self._groups or len(self._groups) < MOST_GROUPS:
            return group
        return f"{size} "


@dataclass(frozen=True, slots=True)
class Learned:
    """What is known of one group."""

    group: str
    """Its name."""
    maximum: int
    """The largest `max_tokens` of the group: maxima from half of it (exclusive) learn together."""
    records: int
    mean: float
    """Share of the maximum that answers use."""
    quantiles: tuple[float, ...]
    """Shares at `QUANTILES`."""


class _History:
    """The last `WINDOW` completed requests of a group, in order of their prompt lengths.

    A record is (prompt tokens, serial number, share): of equal prompts the newest are taken.
    """

    def __init__(self) -> None:
        self._serial = 0
        self._newest: deque[tuple[int, int, float]] = deque()
        self._ordered: list[tuple[int, int, float]] = []

    def add(self, prompt_tokens: int, share: float) -> None:
        """Keep one, forget the oldest."""
        self._serial += 1
        record = (prompt_tokens, self._serial, share)
        self._newest.append(record)
        insort(self._ordered, record)
        if len(self._newest) > WINDOW:
            del self._ordered[bisect_left(self._ordered, self._newest.popleft())]

    @property
    def cold(self) -> bool:
        """Whether less is known than a neighbourhood needs."""
        return len(self._ordered) < ENOUGH

    def forget_outdated(self, prompt_tokens: int) -> None:
        """Forget the oldest of the similar ones (there are some) if `OUTDATED` came after it."""
        oldest = min(self._similar(prompt_tokens), key=_age)
        if self._serial - oldest[1] >= OUTDATED:
            self._newest.remove(oldest)
            self._ordered.remove(oldest)

    def describe(self, size: str, group: str) -> Learned:
        """All records in a few numbers; `size` is that of the maxima in bits."""
        shares = sorted([share for _, _, share in self._ordered])
        last = len(shares) - 1
        return Learned(
            group,
            (1 << int(size)) - 1,
            len(shares),
            sum(shares) / len(shares),
            tuple(shares[round(one * last)] for one in QUANTILES),
        )

    def similar(self, prompt_tokens: int) -> list[float]:
        """Shares of the `NEIGHBOURS` with the most similar prompts, of at most half of all."""
        return [share for _, _, share in self._similar(prompt_tokens)]

    def _similar(self, prompt_tokens: int) -> list[tuple[int, int, float]]:
        ordered = self._ordered
        count = min(NEIGHBOURS, len(ordered) // 2)
        low = high = bisect_left(ordered, (prompt_tokens + 1, 0, 0.0))
        while high - low < count:
            above = ordered[high][0] - prompt_tokens if high < len(ordered) else None
            below = prompt_tokens - ordered[low - 1][0] if low else None
            if below is None or (above is not None and above < below):
                high += 1
            else:
                low -= 1
        return ordered[low:high]


def _age(record: tuple[int, int, float]) -> int:
    return record[1]
