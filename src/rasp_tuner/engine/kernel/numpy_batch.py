"""NumpyBatch: the reference in NumPy, on a state; what compiled code is compared with."""

from rasp_tuner.base.numerics import Array
from rasp_tuner.engine.kernel.batch import BesideDefault, ExpectedLosses, HostBatch
from rasp_tuner.engine.kernel.belief import SlotBelief
from rasp_tuner.engine.kernel.believe import believe
from rasp_tuner.engine.kernel.choose import best, choose, draws_needed
from rasp_tuner.engine.kernel.draws import DrawKeys, draws
from rasp_tuner.engine.kernel.learn import learn
from rasp_tuner.engine.kernel.masks import Flags, span
from rasp_tuner.engine.kernel.predict import against, forecast, predict
from rasp_tuner.engine.kernel.state import Places, State


class NumpyBatch(HostBatch):
    """Computes the rows of a call as a state of their own."""

    def believe(self, contexts: Array, rows: Places | None = None) -> "NumpyBeliefs":
        return NumpyBeliefs(self, rows, believe(self.dims, self.part(rows)[0], self.default, contexts))

    def ask(
        self, contexts: Array, keys: DrawKeys, rows: Places | None = None
    ) -> tuple["NumpyBeliefs", Array, BesideDefault]:
        beliefs = self.believe(contexts, rows)
        points = beliefs.choose(draws(keys, draws_needed(self.dims)))
        return beliefs, points, beliefs.versus_default(points)

    def part(self, rows: Places | None) -> tuple[State, bool]:
        """The state of these rows, and whether it is a copy; that of neighbours is a view."""
        if rows is None:
            return self.state, False
        at = span(rows)
        return self.state.map(lambda array: array[at]), not isinstance(at, slice)


class NumpyBeliefs:
    def __init__(self, batch: NumpyBatch, rows: Places | None, belief: SlotBelief) -> None:
        self._batch, self._rows, self._belief = batch, rows, belief
        self._dims, self._default = batch.dims, batch.default

    def noise(self) -> Array:
        belief = self._belief
        noise: Array = (belief.weights * belief.noises).sum(axis=1) * belief.a**2
        return noise

    def predict(self, points: Array) -> tuple[Array, Array]:
        return predict(self._dims, self._state, self._belief, self._default, points)

    def versus_default(self, points: Array) -> BesideDefault:
        return BesideDefault(*against(self._dims, self._state, self._belief, self._default, points))

    def choose(self, drawn: Array) -> Array:
        """Points [n, d] to try next, by draws [n, d + candidates]."""
        return choose(self._dims, self._state, self._belief, self._default, drawn)[0]

    def best(self) -> Array:
        return best(self._dims, self._state, self._belief, self._default)

    def tell(self, points: Array, contexts: Array, losses: Array, failed: Array | Flags, y: Array) -> ExpectedLosses:
        state, copied = self._batch.part(self._rows)
        own = self._dims, state, self._belief, self._default
        versus = BesideDefault(*against(*own, points))
        mean, variance, logs = forecast(*own, points, y)
        learn(*own, points, contexts, losses, failed, logs)
        if copied and self._rows is not None:
            self._batch.put(self._rows, state)
        return ExpectedLosses(versus, mean, variance)

    def some(self, places: Places) -> "NumpyBeliefs":
        rows = places if self._rows is None else self._rows[places]
        return NumpyBeliefs(self._batch, rows, self._belief.some(places))

    @property
    def _state(self) -> State:
        return self._batch.part(self._rows)[0]
