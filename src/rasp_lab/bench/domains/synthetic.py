"""The ten domains of the paper's Appendix A. What the paper leaves open is a constant here, with its reason.

No constant depends on the run's seed, which moves only contexts and noise. `WORLD_SEED` draws the large arrays.
Optima written "in the unit box" lie in 0.15 .. 0.85, away from its middle, where the static default sits.
NOISE of a domain is about 5% of the mean loss of that default, unless the paper says noise-free.
"""

from itertools import pairwise

import numpy as np

from rasp_lab.bench.domains.schedules import segments
from rasp_lab.bench.domains.target import (
    Condition,
    Shape,
    TargetDomain,
    cube,
    natural,
    saturating,
    squares,
    visits,
    widths,
)
from rasp_tuner.base.numerics import Array

WORLD_SEED = 2024  # seed, together with the domain's number, of what is drawn once for all runs

# 1_LLM_Inference
LLM_BOX = {  # ranges that serving engines accept; whole-number knobs are relaxed, as in the paper's box in R^4
    "temperature": (0.0, 2.0),
    "top_k": (1.0, 100.0),
    "batch_size": (1.0, 64.0),
    "draft_length": (1.0, 16.0),
}
LLM_OPTIMA = np.array(  # in the unit box: chat, code, summaries differ in every knob
    [[0.65, 0.70, 0.30, 0.35], [0.20, 0.25, 0.40, 0.80], [0.35, 0.45, 0.80, 0.60]]
)
LLM_CENTRES = np.random.default_rng([WORLD_SEED, 1]).normal(0.0, 768**-0.5, (3, 768))  # norm about 1, as encoders give
LLM_SPREAD = 0.02  # of each coordinate: neighbours of one cluster have cosine 0.77, of two clusters 0
LLM_NOISE = 0.007

# 2_AutoML_HPO
HPO_BLOCK = 100  # steps until the next dataset, as the paper writes
HPO_MAP = np.random.default_rng([WORLD_SEED, 2]).normal(
    size=(6, 10)
)  # logits of spread 3: datasets differ in most knobs
HPO_RANGE = (0.15, 0.85)  # the sigmoid is stretched to this, so the optimum stays inside the box
HPO_VALLEY = 10.0  # gentler than Rosenbrock's 100, so that the floor of the valley slopes by more than the noise
HPO_SCALE = 0.05  # the default's loss is then about 0.8: the size of a validation error
HPO_NOISE = 0.02

# 3_Robot_ISP_Tuning
ISP_SEGMENTS = (0, 1, 0, 2, 3)  # day, tunnel, day, fog, night, each a fifth of the horizon
ISP_OPTIMA = np.array(
    [
        [0.25, 0.20, 0.60, 0.40, 0.70, 0.35, 0.55, 0.65],  # day: short exposure, low gain
        [0.70, 0.65, 0.30, 0.75, 0.40, 0.60, 0.25, 0.35],  # tunnel
        [0.45, 0.30, 0.80, 0.20, 0.25, 0.75, 0.70, 0.50],  # fog: contrast and dehazing up
        [0.85, 0.80, 0.40, 0.85, 0.55, 0.20, 0.35, 0.20],  # night: long exposure, high gain
    ]
)
ISP_CONTEXTS = np.array(  # brightness, contrast, saturation, sharpness of the four modes
    [[0.80, 0.60, 0.70, 0.70], [0.25, 0.40, 0.30, 0.50], [0.60, 0.15, 0.20, 0.25], [0.10, 0.30, 0.15, 0.40]]
)
ISP_WEIGHTS = np.array([2.0, 2.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5])  # exposure and gain matter most
ISP_SPREAD = 0.05  # of the context: a fifth of the distance between near modes
ISP_NOISE = 0.02

# 4_Wafer_Etching_Drift
WAFER_BOX = {  # usual ranges of an inductively coupled plasma etcher
    "pressure_mtorr": (5.0, 50.0),
    "source_power_w": (200.0, 1500.0),
    "bias_power_w": (10.0, 300.0),
    "gas_flow_sccm": (20.0, 200.0),
    "chuck_temperature_c": (-10.0, 60.0),
}
WAFER_NEW = np.array([0.20, 0.25, 0.80, 0.75, 0.30])  # optimum in the unit box at wear 0
WAFER_WORN = np.array([0.70, 0.65, 0.35, 0.75, 0.30])  # at wear 1: pressure and plasma power moved, the rest did not
WAFER_NOISE = 0.008

# 5_Switching_LQR
LQR_BLOCK = 100  # steps until the other mode, as the paper writes
LQR_TARGETS = np.array([[2.0, -1.5, 3.0, -2.5, 1.0, -3.0], [-2.5, 2.0, -1.0, 3.0, -3.5, 1.5]])  # far apart, well inside

# 6_Smooth_Quadratic
SMOOTH_W = np.array(  # rows of norm about 0.8: the optimum leaves [-2, 2] in about 1% of the draws
    [[0.7, -0.3, 0.2], [-0.4, 0.6, 0.3], [0.2, 0.5, -0.6], [-0.5, -0.4, -0.5], [0.3, -0.2, 0.7]]
)

# 7_Regime_Switch_Simple
SIMPLE_TARGETS = np.array([[1.0, -0.8, 0.5, -1.2, 0.7], [-0.9, 1.1, -1.3, 0.6, -0.5]])  # opposite quadrants
SIMPLE_NOISE = 0.2

# 8_Server_Flash_Crowd
CROWD_OPTIMA = np.array(
    [[0.30, 0.40, 0.25, 0.65, 0.35], [0.80, 0.75, 0.85, 0.20, 0.70]]
)  # normal; panic: all up but batching
CROWD_PANIC = ((0.30, 0.45), (0.70, 0.85))  # the two windows, as shares of the horizon: 30% of the steps
CROWD_PERIOD = 50  # steps of one day: T = 100 sees two
CROWD_LOAD = (0.4, 0.15, 0.5)  # mean, swing, and what a flash crowd adds; shares of capacity
CROWD_SPREAD = 0.03  # of the load: well below the jump of a flash crowd
CROWD_SCALE = 10.0  # "scaled": latencies of a few milliseconds
CROWD_NOISE = 0.12

# 9_Real_Trace_Replay
TRACE_LENGTH = 2000  # as the paper writes
TRACE_LEVEL = np.array([1.2, -0.9, 0.8, -1.2, -0.7])  # logits around which the optimum moves
TRACE_PERIODS = np.array([100, 200, 250, 400, 500])  # steps; divisors of the length, so the waves join
TRACE_SWING = 0.6  # amplitude of the sinusoids, in logits
TRACE_WALK = (0.98, 0.08)  # memory and step of the random walk, in logits: spread 0.4, so it stays inside the box
TRACE_SHOCKS = np.random.default_rng([WORLD_SEED, 9]).normal(size=(TRACE_LENGTH, 5))  # what moves the walk
TRACE_VIEW = np.array(  # the context sees three mixtures of the five optima: enough to follow, not to read off
    [[1.0, 0.5, 0.0, 0.0, -0.5], [0.0, 1.0, -0.5, 0.5, 0.0], [0.5, 0.0, 0.5, 1.0, -1.0]]
)
TRACE_BLUR = (0.9, 0.05)  # memory and step of the context's correlated noise: spread 0.11
TRACE_SCALE = 5.0  # "scaled": makes the mean over five knobs a sum
TRACE_NOISE = 0.01

# A1_Adversarial_Context
ADVERSARIAL_NOISE = 0.02  # 5% of the mean loss of a random point; the default itself is optimal here


def llm_inference() -> TargetDomain:
    """Three workload clusters, the first of which returns in the last quarter."""
    targets = natural(LLM_BOX, LLM_OPTIMA)

    def stream(horizon: int, rng: np.random.Generator) -> list[Condition]:
        cluster = segments((0, 1, 2, 0), horizon)
        return visits(cluster, LLM_CENTRES[cluster] + LLM_SPREAD * rng.normal(size=(horizon, 768)), targets)

    shape = saturating(1.0 / widths(LLM_BOX) ** 2)
    return TargetDomain("1_LLM_Inference", LLM_BOX, "neg_reward", shape, LLM_NOISE, stream)


def automl_hpo() -> TargetDomain:
    """A new dataset every 100 steps; its features set the optimum of a Rosenbrock valley."""
    low, high = HPO_RANGE

    def stream(horizon: int, rng: np.random.Generator) -> list[Condition]:
        features = rng.normal(size=(-(-horizon // HPO_BLOCK), 10))
        dataset = [step // HPO_BLOCK for step in range(horizon)]
        return visits(dataset, features[dataset], low + (high - low) * sigmoid(features @ HPO_MAP.T))

    return TargetDomain("2_AutoML_HPO", cube(6), "val_err", rosenbrock(HPO_VALLEY, HPO_SCALE), HPO_NOISE, stream)


def robot_isp(noise: float = ISP_NOISE) -> TargetDomain:
    """Day, tunnel, day, fog, night, told apart by noisy image statistics."""

    def stream(horizon: int, rng: np.random.Generator) -> list[Condition]:
        mode = segments(ISP_SEGMENTS, horizon)
        return visits(mode, ISP_CONTEXTS[mode] + ISP_SPREAD * rng.normal(size=(horizon, 4)), ISP_OPTIMA)

    return TargetDomain("3_Robot_ISP_Tuning", cube(8), "image_quality_loss", squares(ISP_WEIGHTS), noise, stream)


def wafer_etching() -> TargetDomain:
    """Wear grows from 0 to 1 and moves the optimum along a line."""
    new, worn = natural(WAFER_BOX, WAFER_NEW), natural(WAFER_BOX, WAFER_WORN)

    def stream(horizon: int, _rng: np.random.Generator) -> list[Condition]:
        return [Condition(np.array([wear]), new + wear * (worn - new)) for wear in np.linspace(0.0, 1.0, horizon)]

    shape = squares(1.0 / widths(WAFER_BOX) ** 2)
    return TargetDomain("4_Wafer_Etching_Drift", WAFER_BOX, "bias", shape, WAFER_NOISE, stream)


def switching_lqr() -> TargetDomain:
    """Two modes that alternate every 100 steps."""

    def stream(horizon: int, _rng: np.random.Generator) -> list[Condition]:
        mode = [step // LQR_BLOCK % 2 for step in range(horizon)]
        return visits(mode, np.array(mode, dtype=np.float64)[:, None], LQR_TARGETS)

    return TargetDomain("5_Switching_LQR", cube(6, -5.0, 5.0), "cost", squares(np.full(6, 1 / 6)), 0.0, stream)


def smooth_quadratic() -> TargetDomain:
    """A fresh context at every step; the optimum is W c."""

    def stream(horizon: int, rng: np.random.Generator) -> list[Condition]:
        return [Condition(context, SMOOTH_W @ context) for context in rng.normal(size=(horizon, 3))]

    return TargetDomain("6_Smooth_Quadratic", cube(5, -2.0, 2.0), "mse", squares(np.ones(5)), 0.0, stream)


def regime_switch_simple() -> TargetDomain:
    """Two regimes; the second replaces the first halfway. The one-hot symbol in the context means nothing."""

    def stream(horizon: int, rng: np.random.Generator) -> list[Condition]:
        regime = segments((0, 1), horizon)
        symbol = np.eye(3)[rng.integers(3, size=horizon)]
        return visits(regime, np.column_stack([symbol, regime]), SIMPLE_TARGETS)

    box = cube(5, -2.0, 2.0)
    return TargetDomain("7_Regime_Switch_Simple", box, "err", squares(np.ones(5)), SIMPLE_NOISE, stream)


def server_flash_crowd() -> TargetDomain:
    """A daily wave of load with two flash crowds; the context is the load and a panic bit."""
    mean, swing, crowd = CROWD_LOAD

    def stream(horizon: int, rng: np.random.Generator) -> list[Condition]:
        share = np.arange(horizon) / horizon
        panic = np.any([(start <= share) & (share < end) for start, end in CROWD_PANIC], axis=0).astype(int)
        load = mean + swing * np.sin(2 * np.pi * np.arange(horizon) / CROWD_PERIOD) + crowd * panic
        load += CROWD_SPREAD * rng.normal(size=horizon)
        return visits(panic.tolist(), np.column_stack([load, panic]), CROWD_OPTIMA)

    shape = squares(np.full(5, CROWD_SCALE))
    return TargetDomain("8_Server_Flash_Crowd", cube(5), "latency", shape, CROWD_NOISE, stream)


def real_trace_replay() -> TargetDomain:
    """A fixed trace of 2,000 optima, replayed in a circle; the context sees mixtures of them, blurred."""
    steps = np.arange(TRACE_LENGTH)[:, None]
    waves = TRACE_SWING * np.sin(2 * np.pi * steps / TRACE_PERIODS)
    trace = sigmoid(TRACE_LEVEL + waves + correlated(TRACE_SHOCKS, *TRACE_WALK))

    def stream(horizon: int, rng: np.random.Generator) -> list[Condition]:
        targets = trace[np.arange(horizon) % TRACE_LENGTH]
        contexts = targets @ TRACE_VIEW.T + correlated(rng.normal(size=(horizon, 3)), *TRACE_BLUR)
        return [Condition(context, target) for context, target in zip(contexts, targets, strict=True)]

    shape = squares(np.full(5, TRACE_SCALE / 5))
    return TargetDomain("9_Real_Trace_Replay", cube(5), "log_latency", shape, TRACE_NOISE, stream)


def adversarial_context(name: str = "A1_Adversarial_Context", optimum: tuple[float, ...] = (0.5,) * 5) -> TargetDomain:
    """One optimum for ever; the context is noise that says nothing about it (paper, Appendix B)."""

    def stream(horizon: int, rng: np.random.Generator) -> list[Condition]:
        return [Condition(context, np.array(optimum)) for context in rng.normal(size=(horizon, 5))]

    return TargetDomain(name, cube(5), "loss", squares(np.ones(5)), ADVERSARIAL_NOISE, stream)


def rosenbrock(valley: float, scale: float) -> Shape:
    """Rosenbrock's curved valley, shifted so that its one minimum, 0, lies at 0."""

    def shape(x: Array) -> float:
        y = 1.0 + x
        return scale * float(np.sum(valley * (y[1:] - y[:-1] ** 2) ** 2 + x[:-1] ** 2))

    return shape


def sigmoid(x: Array) -> Array:
    y: Array = 1.0 / (1.0 + np.exp(-x))
    return y


def correlated(shocks: Array, memory: float, step: float) -> Array:
    """The walk [T, d] that keeps the share `memory` of itself and takes `step` of each shock [T, d]."""
    walk = step * shocks
    for before, after in pairwise(walk):
        after += memory * before
    return walk
