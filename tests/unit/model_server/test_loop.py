"""Continuous batching on a clock that the tests move."""

from __future__ import annotations

import pytest

from punctual_model_server.engine.loop import EngineLoop
from punctual_model_server.engine.protocol import NO_TOKEN, Calibration, Cancel, Step
from support.model_server import CountingRunner, ManualClock, events_of, starts_of, submit


class Bench:
    """A loop with its runner, its inbox and everything it said."""

    def __init__(self, slots: int = 2) -> None:
        self.clock = ManualClock()
        self.runner = CountingRunner(self.clock, slots)
        self.inbox: list[object] = []
        self.said: list[Step] = []
        self.loop = EngineLoop(self.runner, self.receive, self.said.append, self.clock)

    def receive(self, timeout: float) -> list[object]:
        del timeout
        messages, self.inbox = self.inbox, []
        return messages

    def run(self) -> None:
        while self.loop.turn():
            pass

    def tokens(self, rid: int) -> list[int]:
        return [e.token for e in events_of(self.said)[rid] if e.token != NO_TOKEN]

    def finish(self, rid: int) -> str | None:
        return events_of(self.said)[rid][-1].finish


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_each_request_gets_its_own_tokens_while_others_join_and_leave(bench: Bench) -> None:
    lengths = {1: 5, 2: 2, 3: 4, 4: 1, 5: 3}
    bench.inbox = [submit(rid, length) for rid, length in lengths.items()]
    bench.run()
    for rid, length in lengths.items():
        assert bench.tokens(rid) == [rid * 100 + i + 1 for i in range(length)]
        assert bench.finish(rid) == "length"


def test_requests_start_first_come_first_served(bench: Bench) -> None:
    bench.inbox = [submit(rid, 2) for rid in (1, 2, 3, 4)]
    bench.run()
    assert [start.rid for start in starts_of(bench.said)] == [1, 2, 3, 4]


def test_never_more_than_the_slots_run_at_once(bench: Bench) -> None:
    bench.inbox = [submit(rid, 4) for rid in range(1, 8)]
    bench.run()
    assert max(bench.runner.batches) == 2


def test_one_slot_runs_one_request_at_a_time() -> None:
    bench = Bench(slots=1)
    bench.inbox = [submit(1, 3), submit(2, 3)]
    bench.run()
    assert bench.runner.batches == [1, 1, 1, 1]
    assert bench.clock.now == 100.0 + 2 * (3.0 + 2 * 1.0)


def test_the_prefill_yields_the_first_token_in_a_message_of_its_own(bench: Bench) -> None:
    bench.inbox = [submit(1, 2), submit(2, 2)]
    bench.run()
    assert [[e.rid for e in step.events] for step in bench.said] == [[1], [2], [1, 2]]


def test_a_start_tells_how_long_the_request_waited_and_was_read(bench: Bench) -> None:
    bench.inbox = [submit(1, 1), submit(2, 1)]
    bench.run()
    assert [(s.queue_seconds, s.prefill_seconds) for s in starts_of(bench.said)] == [(0, 3), (3, 3)]


def test_a_cancelled_running_request_takes_no_further_step(bench: Bench) -> None:
    bench.inbox = [submit(1, 50)]
    bench.loop.turn()
    bench.inbox = [Cancel(1)]
    assert not bench.loop.turn()
    assert bench.runner.batches == [1]
    assert bench.finish(1) == "cancelled"


def test_a_cancelled_waiting_request_is_never_read(bench: Bench) -> None:
    bench.inbox = [submit(1, 5), submit(2, 5), submit(3, 5), Cancel(3)]
    bench.run()
    assert bench.finish(3) == "cancelled"
    assert [prompt[0] for prompt in bench.runner.prefilled] == [100, 200]


def test_a_cancel_closes_the_gap_without_mixing_the_others_up() -> None:
    bench = Bench(slots=3)
    bench.inbox = [submit(1, 9), submit(2, 9), submit(3, 9)]
    bench.loop.turn()
    bench.inbox = [Cancel(1)]
    bench.run()
    assert bench.tokens(2) == list(range(201, 210))
    assert bench.tokens(3) == list(range(301, 310))


def test_a_cancel_of_an_unknown_request_changes_nothing(bench: Bench) -> None:
    bench.inbox = [Cancel(77), submit(1, 2)]
    bench.run()
    assert bench.finish(1) == "length"
    assert list(events_of(bench.said)) == [1]


def test_a_running_request_is_cut_on_the_first_token_past_its_deadline(bench: Bench) -> None:
    bench.inbox = [submit(1, 50, remaining=5.5)]
    bench.run()
    assert len(bench.tokens(1)) == 4
    assert bench.finish(1) == "deadline"
    assert events_of(bench.said)[1][-1].token != NO_TOKEN


def test_the_last_token_at_the_deadline_is_a_whole_answer(bench: Bench) -> None:
    bench.inbox = [submit(1, 3, remaining=5.0)]
    bench.run()
    assert bench.finish(1) == "length"


def test_a_waiting_request_past_its_deadline_is_dropped_unread() -> None:
    bench = Bench(slots=1)
    bench.inbox = [submit(1, 5), submit(2, 5, remaining=2.0)]
    bench.run()
    assert events_of(bench.said)[2] == [(2, NO_TOKEN, "deadline")]
    assert len(bench.runner.prefilled) == 1


def test_a_first_token_deadline_no_longer_counts_after_the_first_token(bench: Bench) -> None:
    bench.inbox = [submit(1, 20, remaining=4.0, first_token_only=True)]
    bench.run()
    assert bench.finish(1) == "length"


def test_the_end_token_ends_the_answer_unless_it_is_to_be_ignored(bench: Bench) -> None:
    bench.inbox = [
        submit(1, 20, prompt=[996], ignore_eos=False),
        submit(2, 20, prompt=[996], ignore_eos=True),
    ]
    bench.run()
    assert bench.tokens(1) == [997, 998, 999]
    assert bench.finish(1) == "stop"
    assert len(bench.tokens(2)) == 20


def test_a_long_prefill_is_given_up_between_chunks_when_the_client_left(bench: Bench) -> None:
    bench.runner.chunks = 3
    replies: list[list[object]] = [[submit(1, 5)], [], [Cancel(1)]]
    bench.loop = EngineLoop(
        bench.runner, lambda _: replies.pop(0) if replies else [], bench.said.append, bench.clock
    )
    bench.run()
    assert bench.finish(1) == "cancelled"
    assert not bench.runner.prefilled
    assert not bench.loop.running


def test_a_long_prefill_is_given_up_at_the_deadline_and_heard_of_meanwhile(bench: Bench) -> None:
    bench.runner.chunks = 3
    bench.inbox = [submit(1, 5, remaining=1.5)]
    bench.run()
    assert bench.finish(1) == "deadline"
    assert bench.clock.now == 102.0
    assert len([step for step in bench.said if not step.events]) == 2


def test_messages_are_numbered_without_gaps(bench: Bench) -> None:
    bench.inbox = [submit(rid, 3) for rid in (1, 2, 3)]
    bench.run()
    bench.loop.heartbeat()
    assert [step.seq for step in bench.said] == list(range(1, len(bench.said) + 1))


def test_the_ratio_follows_an_engine_that_is_slower_than_calibrated(bench: Bench) -> None:
    bench.loop.calibration = Calibration((0.5, 0.5), 1.5, 0.0, 0.0)
    bench.inbox = [submit(1, 60)]
    bench.run()
    assert bench.said[-1].ratio == pytest.approx(2.0, abs=0.01)


def test_idle_time_is_no_work_for_the_ratio(bench: Bench) -> None:
    bench.loop.calibration = Calibration((1.0, 1.0), 3.0, 0.0, 0.0)
    turns = [[submit(1, 3)], [], [], [submit(2, 3)]]

    def receive(timeout: float) -> list[object]:
        if bench.loop.running or bench.loop.waiting:
            return []
        bench.clock.sleep(1000.0 if timeout else 0.0)
        if not turns:
            raise ConnectionError
        return list(turns.pop(0))

    loop = EngineLoop(bench.runner, receive, bench.said.append, bench.clock)
    loop.calibration = bench.loop.calibration
    bench.loop = loop
    with pytest.raises(ConnectionError):
        loop.run_forever()
    assert bench.finish(2) == "length"
    assert loop.speed.value == pytest.approx(1.0)
