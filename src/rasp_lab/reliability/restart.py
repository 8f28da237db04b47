"""Restart equality: a run with many restarts against one without, and against the library alone, ask by ask.

The same seed, contexts and answers; up to five suggestions are out at a time and answered out of order, one in forty
by a failure, and now and then a run is observed that nobody asked for. Half of the restarts are clean (SIGTERM), half
kill -9; of those every second hits an answer on its way, which is then sent again.
"""

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

from rasp_lab.reliability.harness import (
    STUDY,
    ExportedLog,
    Link,
    Progress,
    ServerProcess,
    Verdict,
    context_at,
    create,
    folder,
    good,
    main,
    metrics_of,
    parser,
    percentile,
)
from rasp_tuner import Float, Int, Tuner

OUT = 5


def plan(steps: int, seed: int) -> Iterator[tuple[str, int]]:
    """("ask", step), ("tell", step) and ("observe", step) in an order that leaves up to five suggestions out."""
    rng, out = random.Random(seed), []
    for step in range(steps):
        yield "ask", step
        out.append(step)
        if step % 50 == 7:
            yield "observe", step
        while out and (len(out) >= OUT or rng.random() < 0.6):
            yield "tell", out.pop(rng.randrange(len(out)))
    for step in out:
        yield "tell", step


def through(
    server: ServerProcess, steps: int, seed: int, before: Callable[[int, Link, Any], Link], said: Progress
) -> list[Any]:
    """(id, params) of every step; `before` is called before each tell, and may restart the server."""
    link = server.link()
    create(link)
    asked: dict[int, tuple[str, dict[str, Any]]] = {}
    for number, (order, step) in enumerate(plan(steps, seed)):
        if order == "ask":
            answer = good(link.post("/v1/studies/web/ask", {"context": context_at(step)}))
            asked[step] = answer["id"], answer["params"]
            said.to(step + 1)
        elif order == "observe":
            good(link.post("/v1/studies/web/observe", {"key": f"run {step}", **seen(step)}))
        else:
            path, answer = answer_to(step, *asked[step])
            link = before(number, link, (path, answer))
            good(link.post(path, answer))
    return [asked[step] for step in range(steps)]


def seen(step: int) -> dict[str, Any]:
    """A run nobody asked for."""
    params = {"pool": 1 + step % 64, "timeout": 0.1 + 0.1 * (step % 90)}
    return {"context": context_at(step), "params": params, "metrics": metrics_of(step, params)}


def answer_to(step: int, id: str, params: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Path and body of what is told of a step."""
    if fails(step):
        return "/v1/studies/web/tell_failed", {"id": id, "reason": "crash"}
    return "/v1/studies/web/tell", {"id": id, "metrics": metrics_of(step, params)}


def fails(step: int) -> bool:
    return step % 40 == 33


def library(steps: int, seed: int) -> list[Any]:
    tuner = Tuner(
        space={"pool": Int(1, 64, log=True), "timeout": Float(0.1, 10.0)},
        metrics={"p99_ms": "min"},
        context=["qps"],
        default=STUDY["default"],
        seed=0,
    )
    asked = {}
    for order, step in plan(steps, seed):
        if order == "ask":
            suggestion = tuner.ask(context_at(step))
            asked[step] = suggestion.id, suggestion.params
        elif order == "observe":
            tuner.observe(**seen(step))
        elif fails(step):
            tuner.tell_failed(asked[step][0], "crash")
        else:
            tuner.tell(asked[step][0], metrics_of(step, asked[step][1]))
    return [asked[step] for step in range(steps)]


def run() -> int:
    args = parser(__doc__, "python -m rasp_lab.reliability.restart --steps 10000 --restarts 100")
    args.add_argument("--steps", type=int, default=300)
    args.add_argument("--restarts", type=int, default=6)
    args.add_argument("--plant", choices=["replay-twice"], help="a fault this must be seen to fail on")
    args.add_argument("--seed", type=int, default=0)
    given = args.parse_args()
    rng, verdict = random.Random(given.seed), Verdict("restart")
    tells = [number for number, (order, _) in enumerate(plan(given.steps, given.seed)) if order == "tell"]
    when = {number: i for i, number in enumerate(sorted(rng.sample(tells, given.restarts)))}
    ready: list[float] = []
    kinds = {"clean": 0, "kill -9": 0, "kill -9 with an answer on its way": 0}

    with folder() as home:
        one, many = ServerProcess(home / "one"), ServerProcess(home / "many", given.plant)

        def restart(number: int, link: Link, answer: Any) -> Link:
            if number not in when:
                return link
            if when[number] % 2 == 0:
                kinds["clean"] += 1
                link.close()
                many.stop()
            else:
                on_its_way = when[number] % 4 == 1
                kinds["kill -9 with an answer on its way" if on_its_way else "kill -9"] += 1
                if on_its_way:
                    link.send("POST", *answer)
                    time.sleep(rng.uniform(0.0, 0.006))
                many.kill()
                link.close()
            ready.append(many.start())
            return many.link()

        try:
            one.start()
            plain = through(one, given.steps, given.seed, lambda _, link, __: link, Progress("without", given.steps))
            plain_log = ExportedLog.of(one.link(), "web")
            one.stop()
            many.start()
            broken = through(many, given.steps, given.seed, restart, Progress("with restarts", given.steps))
            broken_log = ExportedLog.of(many.link(), "web")
            views = many.link().get("/v1/studies/web")[1]
        finally:
            one.kill()
            many.kill()
    alone = library(given.steps, given.seed)
    differ = [step for step in range(given.steps) if plain[step] != broken[step]]
    differ_alone = [step for step in range(given.steps) if plain[step] != alone[step]]
    verdict.figure("steps", given.steps)
    for kind, count in kinds.items():
        verdict.figure(f"restarts, {kind}", count)
    verdict.figure("asks that differ", len(differ))
    verdict.figure("first that differs", differ[0] if differ else "none")
    verdict.figure("asks that differ from the library's", len(differ_alone))
    verdict.figure("answers in the log", sum(map(len, broken_log.tells().values())))
    verdict.figure("ready again, median, s", percentile(ready, 0.5))
    verdict.figure("ready again, max, s", percentile(ready, 1.0))
    verdict.promise("equal to one uninterrupted run, ask by ask", not differ)
    verdict.promise("equal to the library alone, ask by ask", not differ_alone)
    verdict.promise("the two logs are equal but for the times", timeless(plain_log) == timeless(broken_log))
    answers = views["tells"] + views["failures"]
    verdict.promise("counts are exact", views["asks"] == answers == given.steps and views["pending"] == 0)
    return verdict.end(given.json)


def timeless(log: ExportedLog) -> list[Any]:
    return [[event["seq"], event["kind"], event.get("ask"), event["body"]] for event in log.events]


if __name__ == "__main__":
    main(run)
