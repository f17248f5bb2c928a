"""The device of a process: only one that can be used, however it is named."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from textspace.errors import TextspaceError
from textspace.train.processes import Processes


@pytest.mark.parametrize("device", ["cpu", "cpu:0", torch.device("cpu")])
def test_a_device_may_be_named_or_given(device: Any) -> None:
    assert Processes(device).device.type == "cpu"


@pytest.mark.parametrize(
    "device", ["meta", "vulkan", "xla", "hpu", "ipu", "abacus", "", "cpu:x", torch.device("meta"), 1.5]
)
def test_a_device_that_cannot_be_used_is_one_sentence(device: Any) -> None:
    with pytest.raises(TextspaceError) as told:
        Processes(device)
    assert str(told.value) == f"there is no device {str(device)!r}: use cpu, cuda or cuda:1"


@pytest.mark.parametrize("device", ["mps", "xpu"])
def test_a_device_of_other_makers_is_used_where_there_is_one(device: str) -> None:
    try:
        torch.zeros(1, device=device)
    except Exception:
        with pytest.raises(TextspaceError, match=f"there is no device '{device}'"):
            Processes(device)
    else:
        assert Processes(device).device.type == device


def test_a_gpu_beyond_the_last_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    assert [str(Processes(device).device) for device in ("cuda", "cuda:1", torch.device("cuda", 1))] == [
        "cuda",
        "cuda:1",
        "cuda:1",
    ]
    with pytest.raises(TextspaceError, match="there is no device 'cuda:2'"):
        Processes("cuda:2")
