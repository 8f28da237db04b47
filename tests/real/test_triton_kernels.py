"""The Triton kernels of examples/real in Triton's interpreter, which needs no GPU:

    pip install triton
    TRITON_INTERPRET=1 pytest tests/real/test_triton_kernels.py

Triton reads that variable when it is imported, and PyTorch imports it: no test could set it in time.
"""

import os
from itertools import product

import pytest

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs TRITON_INTERPRET=1 and Triton (pip install triton)", allow_module_level=True)
torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from examples.real import triton_kernels  # noqa: E402


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
