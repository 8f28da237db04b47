"""The Triton kernels of src/rasp_lab/real in Triton's interpreter, which needs no GPU:

    pip install triton
    TRITON_INTERPRET=1 pytest tests/lab/real/test_triton_kernels.py

Triton reads that variable when it is imported, and PyTorch imports it: no test could set it in time.
"""

import os
from itertools import product

import pytest

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs TRITON_INTERPRET=1 and Triton (pip install triton)", allow_module_level=True)
torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from rasp_lab.real import triton_kernels  # noqa: E402


@pytest.mark.parametrize(
    ("tokens", "tiles", "group"), [*product([1, 70], [(16, 32, 32), (32, 64, 64)], [1, 4]), (150, (32, 32, 32), 2)]
)
def test_matmul(tokens, tiles, group):
    torch.manual_seed(0)
    x, weight = torch.randn(tokens, 64).half(), torch.randn(64, 128).half() / 8.0
    y = torch.full((tokens, 128), torch.nan).half()
    tile = dict(zip(("tile_m", "tile_n", "tile_k"), tiles, strict=True))
    triton_kernels.matmul(x, weight, y, {**tile, "group": group, "warps": 4, "stages": 2})
    assert torch.allclose(y.float(), x.float() @ weight.float(), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(("queries", "keys"), [(1, 40), (7, 50), (33, 33)])
@pytest.mark.parametrize("tiles", [(16, 16), (32, 16), (16, 64)])
def test_attention(queries, keys, tiles):
    """Against PyTorch's own, with keys and values repeated for the heads that share them."""
    torch.manual_seed(0)
    sharing, width = 4, 16
    q = torch.randn(2, queries, sharing, width).half()  # a head after another for each query: as the kernel wants it
    k, v = torch.randn(2, keys, width).half(), torch.randn(2, keys, width).half()
    out = torch.full((2, queries * sharing, width), torch.nan).half()
    triton_kernels.attention(
        q.flatten(1, 2), k, v, out, {"tile_q": tiles[0], "tile_k": tiles[1], "warps": 4, "stages": 2}, sharing
    )
    may_see = torch.arange(keys) <= torch.arange(queries)[:, None] + keys - queries
    expected = torch.nn.functional.scaled_dot_product_attention(
        q.float().transpose(1, 2), k.float()[:, None], v.float()[:, None], may_see
    ).transpose(1, 2)
    assert torch.allclose(out.float(), expected.flatten(1, 2), rtol=1e-2, atol=1e-2)
    assert torch.allclose(out.float(), triton_kernels.reference_attention(q.flatten(1, 2), k, v, sharing), atol=1e-2)


@pytest.fixture
def gpu(monkeypatch):
    """What stands for a GPU: CPU tensors, a small model, and a clock that counts launches."""
    clock = []
    small = {"DEVICE": "cpu", "INPUTS": 64, "OUTPUTS": 128, "HEADS": 2, "WIDTH": 16, "FLAT": 1 << 15}
    for name, value in small.items():
        monkeypatch.setattr(triton_kernels, name, value)
    for name in ("matmul", "attention"):
        launch = getattr(triton_kernels, name)
        monkeypatch.setattr(triton_kernels, name, lambda *a, launch=launch: (clock.append(a[1]), launch(*a)))
    monkeypatch.setattr(torch.cuda, "_sleep", lambda _: None)
    monkeypatch.setattr(torch.cuda, "Event", lambda **_: Event(clock))
    return clock


class Event:
    def __init__(self, clock):
        self.clock = clock

    def record(self):
        self.at = len(self.clock)

    def synchronize(self):
        pass

    def elapsed_time(self, later):
        return later.at - self.at


PARAMS = {
    "matmul": {"tile_m": 64, "tile_n": 64, "tile_k": 64, "group": 2, "warps": 4, "stages": 2},
    "attention": {"tile_q": 64, "tile_k": 64, "warps": 4, "stages": 2},
}
SHAPES = {"matmul": {"tokens": 130}, "attention": {"requests": 1, "queries": 20, "keys": 30}}


@pytest.mark.parametrize("kernel", ["matmul", "attention"])
def test_results_are_checked_and_launches_timed(gpu, kernel):
    found = triton_kernels.Gpu(kernel, [SHAPES[kernel]])
    assert found.fault(PARAMS[kernel]) is None
    gpu.clear()
    assert found.time(PARAMS[kernel], SHAPES[kernel], 3) == 3.0  # without the one that warms up
    assert len({other.data_ptr() for other in gpu[1:]}) == 3  # weights or keys: those of another layer each time


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("kernel", ["matmul", "attention"])
def test_a_program_that_is_wrong_or_too_large_is_told(kernel, monkeypatch):
    found = triton_kernels.Gpu(kernel, [SHAPES[kernel]])
    monkeypatch.setattr(triton_kernels, kernel, lambda *given: given[-2].zero_())  # what it writes to
    assert found.fault(PARAMS[kernel]) == "wrong result"

    def too_large(*_):
        raise triton_kernels.triton.OutOfResources(300_000, 232_448, "shared memory")

    monkeypatch.setattr(triton_kernels, kernel, too_large)
    assert "shared memory" in found.fault(PARAMS[kernel])
