"""From a tuner to a policy: contexts -> recommendations and forecasts -> a tree -> its loss on contexts held out.

Nothing here learns or draws from the tuner's generator.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from rasp_tuner.base.checks import show
from rasp_tuner.base.numerics import Array
from rasp_tuner.errors import InvalidValue
from rasp_tuner.optimizer.optimizer import Optimizer
from rasp_tuner.policy.evaluate import WEIGHTS, Value, read_context, walk
from rasp_tuner.policy.explore import Explore, Setting, settings_of, version_of
from rasp_tuner.policy.report import Explored, PolicyLoss, PolicyReport
from rasp_tuner.policy.tree import Column, Node, grow, leaves_of, refine
from rasp_tuner.space import Space
from rasp_tuner.types import LIMIT_KEPT

FORMAT, VERSION = "rasp-policy", 1
MOST_LEAVES = 1024
LEAST_TREE_CONTEXTS = 8  # half of them to grow from, half to measure on
MOST_TREE_CONTEXTS = 512
MOST_CANDIDATES = 64  # settings that a leaf may hold; each is tried in every context to grow from
RESAMPLES = 2000
MOST_EXPLORED_CONTEXTS = 256  # of a policy that explores, which is made every few seconds
MOST_SITUATIONS = 64  # leaves of a policy that explores
TOLD_APART = 0.01  # of the width of a forecast's interval, on average: a split that gains less is noise
UNNAMED = float("inf")  # a text of which only the hash is known: no test names it

Situation = tuple[Array, Mapping[str, Value]]  # a context as models see it [d_c], and as a policy reads it


@dataclass(frozen=True)
class Source:
    """What a policy is made of."""

    space: Space
    default: Array  # [d]
    optimizer: Optimizer
    recommended: Callable[[Array], Array]  # a context [d_c] -> a legal point [d]
    fields: Sequence[Mapping[str, Any]]  # of the context
    learned: int
    explore: Explore | None = None


def fields_of(schema: Mapping[str, Mapping[str, Any]] | Sequence[str] | int | None) -> list[dict[str, Any]]:
    """The fields of a context from what an encoder's `to_json` says of it."""
    if isinstance(schema, Mapping):
        return [{"name": name, **kind} for name, kind in schema.items()]
    names = [f"context[{i}]" for i in range(schema or 0)] if isinstance(schema, int | None) else schema
    return [{"name": name, "kind": "number"} for name in names]


def given_situation(fields: Sequence[Mapping[str, Any]], encoded: Array, context: Any) -> Situation:
    """A context that a caller gave, which the tuner takes."""
    try:
        return encoded, read_context(fields, context)
    except ValueError as reason:
        raise InvalidValue(f"contexts: a policy cannot read {show(context)}: {reason} (docs/POLICY.md)") from None


def seen_situation(
    fields: Sequence[Mapping[str, Any]], encoded: Array, decoded: Any, texts: Mapping[str, Any]
) -> Situation:
    """A context on record; of texts only those are known that are usual values or among `texts`."""
    values = read_context(fields, decoded)
    for field in fields:
        name, value = field["name"], values[field["name"]]
        if field["kind"] in ("category", "name") and value is not None:
            known = field.get("values", texts.get(name, ()))
            values[name] = value if value in known else UNNAMED
    return encoded, values


def policy_of(source: Source, situations: Sequence[Situation], leaves: int) -> PolicyReport:
    """The report, with the policy in it."""
    rng = np.random.default_rng(0)  # of its own: the same split every time, and the tuner's is not touched
    if source.fields and source.explore is not None and len(situations) < LEAST_TREE_CONTEXTS:
        grown_from = held_out = list(situations)  # the first of many exports: what is known is enough to begin with
    elif source.fields:
        if len(situations) < LEAST_TREE_CONTEXTS:
            raise InvalidValue(
                f"a policy needs at least {LEAST_TREE_CONTEXTS} contexts, and there are {len(situations)}:"
                " give more, as in export(path, contexts=[...])"
            )
        most = MOST_TREE_CONTEXTS if source.explore is None else MOST_EXPLORED_CONTEXTS
        shuffled = [situations[i] for i in rng.permutation(len(situations))[:most]]
        grown_from, held_out = shuffled[::2], shuffled[1::2]
    else:
        grown_from = held_out = [(np.zeros(0), {})]
    model = _Forecasts(source)
    own = [model.recommended(context) for context, _ in grown_from]
    candidates = _candidates(source.default, own)
    places = {point.tobytes(): k for k, point in enumerate(candidates)}
    columns = [Column(field, [values[field["name"]] for _, values in grown_from]) for field in source.fields]
    tree: Node = {"candidate": 0, "share": 1.0}  # the default, while no context is known
    if grown_from:
        contexts = [context for context, _ in grown_from]
        costs, least = model.costs(contexts, own, candidates), model.least_gain(contexts, own)
        tree = grow(columns, costs, [places.get(point.tobytes(), 0) for point in own], leaves, least)
    points = []
    for number, leaf in enumerate(leaves_of(tree)):
        points.append(candidates[leaf.pop("candidate")])
        leaf |= {"leaf": number, "params": source.space.from_unit(points[-1])}
    policy = {
        "format": FORMAT,
        "version": VERSION,
        "learned": source.learned,
        "context": [dict(field) for field in source.fields],
        "knobs": source.space.to_json(),
        "constraints": source.space.constraints,
        "default": source.space.from_unit(source.default),
        "tree": tree,
    }
    explored = None
    if source.explore is not None:
        points = _refined(source, tree, points, columns, [context for context, _ in grown_from])
        explored = _with_settings(source, source.explore, tree, points, grown_from, rng)
        policy["explore"] = {"version": version_of(policy), "salt": source.explore.salt}
    loss = _measured(model, tree, points, held_out, rng) if held_out else None
    metric = source.optimizer.model.own_metric
    report = PolicyReport(len(points), len(grown_from), len(held_out), metric, loss, _notes(source.fields, grown_from))
    report = replace(report, explored=explored)
    said = {"metric": metric, "contexts": len(held_out), **asdict(loss)} if loss is not None else None
    return replace(report, policy={**policy, "loss": said, "words": str(report)})


def _refined(
    source: Source, tree: Node, points: Sequence[Array], columns: Sequence[Column], contexts: Sequence[Array]
) -> list[Array]:
    """Tell situations apart within leaves, which are numbered anew; their points."""
    if contexts:
        given, relevance = np.array(contexts), source.optimizer.model.relevance()
        counts = 1.0 if relevance is None or len(relevance) != given.shape[1] else np.sqrt(relevance)
        spread = given.std(axis=0)
        refine(tree, columns, counts * given / np.where(spread > 0.0, spread, 1.0), MOST_SITUATIONS)
    found = []
    for number, leaf in enumerate(leaves_of(tree)):
        found.append(points[leaf["leaf"]])
        leaf["leaf"] = number
        leaf.setdefault("whole", leaf["share"])
    return found


def _with_settings(
    source: Source,
    how: Explore,
    tree: Node,
    points: Sequence[Array],
    situations: Sequence[Situation],
    rng: np.random.Generator,
) -> Explored:
    """Give every leaf its settings; what exploring comes to on average."""
    met: dict[int, list[Array]] = {}
    for context, values in situations:
        met.setdefault(walk(tree, values)["leaf"], []).append(context)
    others = stake = 0.0
    leaf: Node
    for leaf, point in zip(leaves_of(tree), points, strict=True):
        found = settings_of(how, met.get(leaf["leaf"], []), leaf.pop("whole"), point, source.default, rng)
        leaf["settings"] = [_setting_json(source.space, one) for one in found]
        others += leaf["share"] * sum(one.weight for one in found[1:]) / WEIGHTS
        stake += leaf["share"] * sum(one.weight * one.stake for one in found[1:]) / WEIGHTS
    return Explored(others, stake)


def _setting_json(space: Space, setting: Setting) -> dict[str, Any]:
    return {"params": space.from_unit(setting.point), "weight": setting.weight, "stake": round(setting.stake, 6)}


class _Forecasts:
    """What the tuner expects of points in contexts; each context is asked once, since most come back."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._points: dict[bytes, Array] = {}
        self.in_units = source.optimizer.model.own_metric is not None  # whether losses are in units of a metric

    def recommended(self, context: Array) -> Array:
        key = context.tobytes()
        if key not in self._points:
            self._points[key] = self._source.recommended(context)
        return self._points[key]

    def expected(self, context: Array, points: Sequence[Array]) -> tuple[Array, Array] | None:
        """Losses [k] of points, and which of them break a limit [k]; None where nothing is forecast."""
        optimizer = self._source.optimizer
        found = [optimizer.model.expect(context, point) for point in points]
        means = np.array([np.nan if one is None else one.mean for one in found])
        if not np.isfinite(means).all():
            return None
        margins = [optimizer.margins(context, point).values() for point in points]
        return means, np.array([any(margin.kept < LIMIT_KEPT for margin in own) for own in margins])

    def least_gain(self, contexts: Sequence[Array], own: Sequence[Array]) -> float:
        """What a split must gain over these contexts to be more than the forecasts could tell apart."""
        found = [
            self._source.optimizer.model.expect(context, point) for context, point in zip(contexts, own, strict=True)
        ]
        return TOLD_APART * sum(one.high - one.low for one in found if one is not None)

    def costs(self, contexts: Sequence[Array], own: Sequence[Array], candidates: Sequence[Array]) -> Array:
        """[n, K] what each candidate loses against the recommendation; without forecasts, how far it is from it."""
        rows: dict[bytes, Array] = {}
        broken: dict[bytes, Array] = {}
        for context, point in zip(contexts, own, strict=True):
            key = context.tobytes()
            if key in rows:
                continue
            found = self.expected(context, [point, *candidates])
            if found is None:
                rows[key] = np.square(np.array(candidates) - point).sum(axis=1)
                broken[key] = np.zeros(len(candidates), dtype=bool)
            else:
                rows[key] = np.maximum(
                    found[0][1:] - found[0][0], 0.0
                )  # a forecast gain over what is proven is no gain
                broken[key] = found[1][1:] & ~found[1][0]
        costs = np.array([rows[context.tobytes()] for context in contexts])
        breaks = np.array([broken[context.tobytes()] for context in contexts])
        dear = 1.0 + float(costs.sum(axis=0).max())  # no saving makes up for a limit that breaks
        priced: Array = costs + dear * breaks
        return priced


def _candidates(default: Array, own: Sequence[Array]) -> list[Array]:
    """The default and what is recommended, the most frequent first if there are too many."""
    counts: dict[bytes, int] = {}
    points = {point.tobytes(): point for point in (default, *own)}
    for point in own:
        counts[point.tobytes()] = counts.get(point.tobytes(), 0) + 1
    others = sorted((key for key in points if key != default.tobytes()), key=lambda key: -counts[key])
    return [default, *(points[key] for key in others[: MOST_CANDIDATES - 1])]


def _measured(
    model: _Forecasts,
    tree: Node,
    points: Sequence[Array],
    held_out: Sequence[Situation],
    rng: np.random.Generator,
) -> PolicyLoss | None:
    """The loss of a tree, whose leaves have these points, on contexts that it was not grown from."""
    lost, levels, breaks = [], [], []
    for context, values in held_out:
        found = model.expected(context, [model.recommended(context), points[walk(tree, values)["leaf"]]])
        if found is None:
            return None
        (level, reached), (own_breaks, its_breaks) = found
        lost.append(max(reached - level, 0.0))
        levels.append(level)
        breaks.append(its_breaks and not own_breaks)
    losses = np.array(lost)
    means = losses[rng.integers(len(losses), size=(RESAMPLES, len(losses)))].mean(axis=1)
    mean, bound = float(losses.mean()), float(np.quantile(means, 0.95))
    one_sign = model.in_units and (min(levels) > 0.0 or max(levels) < 0.0)
    level = abs(float(np.mean(levels))) if one_sign else None
    return PolicyLoss(
        mean,
        max(bound, mean),
        float(np.quantile(losses, 0.95)),
        None if level is None else mean / level,
        None if level is None else max(bound, mean) / level,
        float(np.mean(breaks)),
    )


def _notes(fields: Sequence[Mapping[str, Any]], situations: Sequence[Situation]) -> tuple[str, ...]:
    """Which texts no test can name, so that they share their settings, and what to do."""
    hashed = {
        field["name"]: field["kind"]
        for field in fields
        if field["kind"] in ("category", "name") and "values" not in field
    }
    unnamed = [name for name in hashed if any(values[name] == UNNAMED for _, values in situations)]
    if not unnamed:
        return ()
    categories = [name for name in unnamed if hashed[name] == "category"]
    declare = f", or declare {' and '.join(categories)} as Category([...])" if categories else ""
    return (
        f"Of some texts of {', '.join(unnamed)} only a hash is on record: it cannot tell them apart, so all of them get"
        f" the same settings. Name them by texts={{{unnamed[0]!r}: [...]}} (rasp export --texts"
        f" {unnamed[0]}=...){declare}.",
    )
