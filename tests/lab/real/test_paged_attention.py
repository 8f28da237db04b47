"""The attention and the model of the inference loop in Triton's interpreter, which needs no GPU:

    pip install triton
    TRITON_INTERPRET=1 pytest tests/lab/real/test_paged_attention.py

Triton reads that variable when it is imported, and PyTorch imports it: no test could set it in time.
"""

import os

import numpy as np
import pytest

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs TRITON_INTERPRET=1 and Triton (pip install triton)", allow_module_level=True)
torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from rasp_lab.real import decoder_model, paged_attention  # noqa: E402
from rasp_lab.real.continuous_batching import Request, Scheduler, serve  # noqa: E402

PARAMS = {"kv_block": 16, "tile_q": 32, "warps": 4, "stages": 2}


@pytest.fixture
def small(monkeypatch):
    """CPU tensors, a small model, short sequences."""
    # The interpreter multiplies the bits of numbers in bfloat16.
    sizes = {
        "DEVICE": "cpu",
        "NUMBERS": torch.float16,
        "LAYERS": 2,
        "MLP": 64,
        "VOCABULARY": 97,
        "MOST_BATCH": 64,
        "KV_HEADS": 2,
        "WIDTH": 16,
    }
    sizes |= {"HEADS": 8, "HIDDEN": 128, "MOST_TOKENS": 160, "CHECKED": ((7, 1), (61, 1), (20, 20), (50, 9))}
    for name, value in sizes.items():
        monkeypatch.setattr(decoder_model, name, value)
    monkeypatch.setattr(paged_attention, "MOST_TOKENS", 160)
    launch = paged_attention.paged_attention
    monkeypatch.setattr(paged_attention, "paged_attention", lambda *given: launch(*given, (2, 4, 16)))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kv_block", [16, 32, 64, 128])
@pytest.mark.parametrize("tile_q", [16, 64])
def test_the_attention_of_a_mixed_batch_is_right(kv_block, tile_q):
    assert decoder_model.Decoder(256, 4).fault({**PARAMS, "kv_block": kv_block, "tile_q": tile_q}) is None


def test_the_reference_is_that_of_pytorch():
    q, k, v = torch.randn(5, 8, 16), torch.randn(9, 2, 16), torch.randn(9, 2, 16)
    sees = torch.arange(9) <= torch.arange(5)[:, None] + 4
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(x.transpose(0, 1)[None] for x in (q, k, v)), sees, enable_gqa=True
    )
    assert torch.allclose(paged_attention.reference_attention(q, k, v), expected[0].transpose(0, 1), atol=1e-5)


@pytest.mark.usefixtures("small")
def test_a_wrong_or_too_large_program_is_told(monkeypatch):
    model = decoder_model.Decoder(256, 4)
    monkeypatch.setattr(paged_attention, "paged_attention", lambda *given: given[4].zero_())
    assert model.fault(PARAMS) == "wrong result"

    def too_large(*_):
        raise paged_attention.triton.OutOfResources(300_000, 232_448, "shared memory")

    monkeypatch.setattr(paged_attention, "paged_attention", too_large)
    assert "shared memory" in model.fault(PARAMS)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("budget", "together", "kv_block"), [(64, 3, 16), (7, 3, 16), (64, 1, 64)])
def test_the_cache_holds_what_a_whole_prompt_gives(budget, together, kv_block):
    """However requests are batched and cut: keys and values are those of the sequence read at once, without a cache."""
    torch.manual_seed(1)
    model = decoder_model.Decoder(512, 3)
    model._layers = [{name: weight.float() for name, weight in layer.items()} for layer in model._layers]
    model._words, model._cache = model._words.float(), model._cache.float()
    model._known[:] = torch.randint(97, model._known.shape)
    scheduler = Scheduler(together, budget, kv_block, 512 // kv_block)
    params = {**PARAMS, "kv_block": kv_block}
    seen = []

    def step(chunks):
        model.step(chunks, params)
        for chunk in chunks:
            sequence = chunk.of
            if chunk.gives_token and sequence.answered + 1 == sequence.request.answer:  # before its blocks are reused
                position = np.arange(chunk.first + chunk.count)
                places = np.array(sequence.blocks)[position // kv_block] * kv_block + position % kv_block
                tokens = model._known[sequence.slot * 160 :][: len(position) + 1].clone()
                seen.append((tokens, model._cache[:, places].clone()))

    ticks = iter(range(1000))
    serve([Request(0.0, 20, 3), Request(0.0, 33, 2), Request(1.0, 5, 6)], scheduler, step, lambda: next(ticks))
    assert len(seen) == 3
    for tokens, cache in seen:
        values, following = whole(model, tokens[:-1])
        assert torch.allclose(cache, values, rtol=1e-3, atol=1e-3)
        assert following == tokens[-1]


def whole(model, tokens):
    """Keys and values of all layers, and the next token."""
    x, found = model._words[tokens], []
    for layer in model._layers:
        qkv = decoder_model._norm(x) @ layer["qkv"]
        found.append(qkv[:, 128:])
        k, v = found[-1].view(-1, 2, 2, 16).unbind(1)
        x = x + paged_attention.reference_attention(qkv[:, :128].view(-1, 8, 16), k, v).flatten(1) @ layer["o"]
        gate, up = (decoder_model._norm(x) @ layer["up"]).chunk(2, dim=1)
        x = x + (torch.nn.functional.silu(gate) * up) @ layer["down"]
    return torch.stack(found), (decoder_model._norm(x[-1:]) @ model._words.T).argmax()


@pytest.mark.usefixtures("small")
def test_the_warm_up_leaves_a_clean_cache():
    model = decoder_model.Decoder(256, 3)
    model.warm_up()
    assert not model._cache.any()
