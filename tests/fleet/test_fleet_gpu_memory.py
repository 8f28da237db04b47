"""What surrounds the C on a GPU: here its memory is torch's on the CPU, and the library stands in for the functions."""

import ctypes
from contextlib import nullcontext

import numpy as np
import pytest

from rasp_tuner.engine.kernel import native
from rasp_tuner.engine.kernel.draws import DrawKeys
from rasp_tuner.engine.kernel.learn import start
from rasp_tuner.engine.kernel.native_batch import NativeBatch
from rasp_tuner.engine.kernel.state import Dims, blank
from rasp_tuner.errors import InvalidSpace
from rasp_tuner.fleet import Fleet
from rasp_tuner.fleet.device import Device
from tests.later import Later

torch, gpu = Later("torch"), Later("rasp_tuner.engine.kernel.gpu")
pytestmark = pytest.mark.skipif(not native.available(), reason=f"the native kernel is {native.why_not()}")

DIMS, DEFAULT = Dims(2, 1, 1), np.array([0.4, 0.5])


def launched(batch, name, rows, *given):
    """Does what the GPU's function of this name does, by the library."""
    dims = native.dims_struct(batch.dims, batch.default)
    at = [given_.data_ptr() if isinstance(given_, torch.Tensor) else given_ for given_ in given]
    if name == "draw":
        seed, numbers, asks, drawn = at
        run = native.function(
            "rasp_draws", [ctypes.c_uint64, native.NUMBER, *[native.POINTER] * 2, native.NUMBER, native.POINTER]
        )
        run(seed, len(rows), numbers, asks, given[3].shape[1], drawn)
        return
    arguments = [native.POINTER] * 3 + [native.NUMBER, *native.ARGUMENTS[name]]
    native.function(f"rasp_{name}", arguments)(
        dims.address, ctypes.addressof(batch._struct), rows.data_ptr(), len(rows), *at
    )


@pytest.fixture
def on_cpu(monkeypatch):
    cpu = torch.device("cpu")
    monkeypatch.setattr("rasp_tuner.engine.kernel.gpu._functions", lambda *_: {})
    monkeypatch.setattr("rasp_tuner.engine.kernel.gpu._device", lambda _: cpu)
    monkeypatch.setattr(gpu.GpuBatch, "launch", launched)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(Device, "queue", lambda _: nullcontext())  # there are no streams


def taught(batch, steps=12, seed=0):
    rng = np.random.default_rng(seed)
    for step in range(steps):
        contexts = rng.normal(size=(batch.size, 1))
        beliefs, points, _ = batch.ask(contexts, DrawKeys(0, np.arange(4.0), np.full(4, float(step))))
        losses = ((points - 0.3) ** 2).sum(axis=1, keepdims=True)
        beliefs.tell(points, contexts, losses, np.zeros(batch.size), losses[:, 0])
    return batch


@pytest.mark.usefixtures("on_cpu")
def test_it_is_the_batch_of_the_cpu():
    one = taught(NativeBatch(DIMS, DEFAULT, blank(DIMS, 4, start(DIMS))))
    other = taught(gpu.blank_batch(DIMS, DEFAULT, 4, "cuda"))
    rows, rng = np.array([2, 0]), np.random.default_rng(1)
    for name, array in one.state.items():
        np.testing.assert_array_equal(other.read(name, rows), array[rows], err_msg=name)
    contexts, points, places = rng.normal(size=(2, 1)), rng.random((2, 3, 2)), np.array([1])
    mine, theirs = (batch.believe(contexts, rows) for batch in (one, other))
    for ours, others in ((mine, theirs), (mine.some(places), theirs.some(places))):
        np.testing.assert_array_equal(ours.noise(), others.noise())
        np.testing.assert_array_equal(ours.best(), others.best())
        at = points[: len(ours.noise())]
        np.testing.assert_array_equal(ours.predict(at), others.predict(at))
        np.testing.assert_array_equal(ours.versus_default(at[:, 0]), others.versus_default(at[:, 0]))
    losses = rng.random((2, 1))
    for beliefs in (mine, theirs):
        beliefs.tell(points[:, 0], contexts, losses, np.array([0.0, 1.0]), losses[:, 0])
    every = np.arange(4)
    for name, array in one.state.items():
        np.testing.assert_array_equal(other.read(name, every), array, err_msg=name)


@pytest.mark.usefixtures("on_cpu")
def test_tuners_are_moved_added_and_removed():
    one = taught(NativeBatch(DIMS, DEFAULT, blank(DIMS, 4, start(DIMS))))
    other = gpu.blank_batch(DIMS, DEFAULT, 3, "cuda")
    other.put(np.array([2, 1]), one.take(np.array([0, 3])))
    other = other.grown(2).kept(np.array([1, 2, 4]))
    other.write("level", np.array([0, 2]), 7.0)
    fresh = blank(DIMS, 1, start(DIMS))
    for name, array in other.take(np.arange(3)).items():
        wanted = np.concatenate([getattr(one.state, name)[[3, 0]], getattr(fresh, name)])
        if name == "level":
            wanted[[0, 2]] = 7.0
        np.testing.assert_array_equal(array, wanted, err_msg=name)
    with pytest.raises(ValueError, match="rows below 3"):
        other.read("level", np.array([3]))


@pytest.mark.usefixtures("on_cpu")
def test_a_fleet_there_goes_the_way_of_one_on_the_cpu(tmp_path):
    from fleet_worlds import Worlds, fleet, teach

    own, there = (fleet(5, device=device, share=True) for device in ("cpu", "cuda"))
    tried = [teach(taught, Worlds(5, levels=True), 40, failures=0.1) for taught in (own, there)]
    np.testing.assert_allclose(tried[0], tried[1], rtol=0.0, atol=1e-9)
    there.add(4)
    own.add(4)
    there.remove([1])
    own.remove([1])
    there[0] = there[2]
    own[0] = own[2]
    there.save(tmp_path / "fleet")
    again = Fleet.load(tmp_path / "fleet")
    contexts = Worlds(8).contexts()
    np.testing.assert_allclose(there.ask(contexts).points, own.ask(contexts).points, rtol=0.0, atol=1e-9)
    # the second ask of one fleet, the first of the other: directions that are searched begin at other random numbers
    np.testing.assert_allclose(again.ask(contexts).points, own.ask(contexts).points, rtol=0.0, atol=1e-6)


@pytest.mark.parametrize(
    ("knobs", "environment", "reason"),
    [(65, {}, "up to 64 knobs"), (2, {"RASP_NATIVE": "0"}, "turned off by RASP_NATIVE=0"), (2, {}, "no GPU of NVIDIA")],
)
def test_where_there_can_be_none_the_reason_is_told(monkeypatch, knobs, environment, reason):
    from rasp_tuner import Float

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.version, "cuda", None)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    space = {f"x{i}": Float(0.0, 1.0) for i in range(knobs)}
    with pytest.raises(InvalidSpace, match=f"device='cuda': .*{reason}.*device='cpu' works"):
        Fleet(space, {"ms": "min"}, size=2, device="cuda")
