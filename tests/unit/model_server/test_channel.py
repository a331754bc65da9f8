"""Frames between the two processes."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from punctual_model_server.engine.channel import (
    ChannelClosedError,
    EngineChannel,
    FrameReader,
    pack,
)
from punctual_model_server.engine.protocol import Cancel
from support.model_server import submit


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, EngineChannel]]:
    front, engine = socket.socketpair()
    with front, engine:
        yield front, EngineChannel(engine)


@settings(deadline=None)
@given(st.lists(st.integers()), st.lists(st.integers(1, 50), min_size=1))
def test_messages_come_whole_however_the_bytes_are_cut(numbers: list[int], cuts: list[int]) -> None:
    data = b"".join(pack(number) for number in numbers)
    reader = FrameReader()
    got: list[object] = []
    while data:
        size = cuts[len(got) % len(cuts)]
        got += reader.feed(data[:size])
        data = data[size:]
    assert got == numbers


def test_nothing_there_is_an_empty_list(pair: tuple[socket.socket, EngineChannel]) -> None:
    assert pair[1].receive(0) == []


def test_everything_there_is_read_at_once(pair: tuple[socket.socket, EngineChannel]) -> None:
    front, channel = pair
    front.sendall(pack(submit(1, prompt=[1] * 1000)) + pack(Cancel(1)))
    assert channel.receive(1.0) == [submit(1, prompt=[1] * 1000), Cancel(1)]


def test_the_engine_notices_that_the_front_is_gone(
    pair: tuple[socket.socket, EngineChannel],
) -> None:
    front, channel = pair
    front.close()
    with pytest.raises(ChannelClosedError):
        channel.receive(1.0)
    with pytest.raises(ChannelClosedError):
        channel.send(Cancel(1))
