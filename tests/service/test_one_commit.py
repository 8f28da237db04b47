"""Asks of several studies in one commit."""

import asyncio

from serving import SPACES, STUDY

from rasp_tuner.errors import RaspError
from rasp_tuner.service.auth import Caller
from rasp_tuner.service.limits import Limits
from rasp_tuner.service.service import Answer, Service
from rasp_tuner.service.service_errors import as_service_error
from rasp_tuner.service.storage.store import Store, sqlite_url

NAMES = [f"s{i}" for i in range(6)]
WIRE = {**STUDY, "space": SPACES["smooth"], "default": dict.fromkeys(SPACES["smooth"], 0.5)}


class Commits:
    """A service whose jobs run when the test says so: all that wait in one commit, or each in one of its own."""

    def __init__(self, folder, monkeypatch):
        folder.mkdir()
        self.service = Service(Store(sqlite_url(folder)), Limits(), open_without_keys=True)
        monkeypatch.setattr(self.service.writer, "is_alive", lambda: True)

    def run(self, *calls, together):
        """What each call answered, or its error."""

        async def commit():
            tasks = [asyncio.ensure_future(call) for call in calls]
            await asyncio.sleep(0.0)
            writer, jobs = self.service.writer, []
            while not writer._inbox.empty():
                jobs.append(writer._inbox.get_nowait())
            assert sum(job.future is not None for job in jobs) == len(calls)  # the others store snapshots
            for part in [jobs] if together else [[job] for job in jobs]:
                for job in part:
                    writer.put(job)
                writer._receive(0.0)
                while writer._waiting:
                    writer._round()
            return await asyncio.gather(*tasks, return_exceptions=True)

        return [
            as_service_error(said).to_json() if isinstance(said, RaspError) else said for said in asyncio.run(commit())
        ]

    def log(self, name):
        """All events, without their times."""
        rows = self.service.store.events_after(self.service.writer.cache.rows[name].id, 0)
        return [(event.seq, event.kind, event.body, event.ask) for event in rows]


def test_one_commit_answers_as_many_commits_do(tmp_path, monkeypatch):
    one, many = Commits(tmp_path / "one", monkeypatch), Commits(tmp_path / "many", monkeypatch)
    seen = {}
    for commits, together in ((one, True), (many, False)):
        service, said = commits.service, []
        commits.run(*(service.create({**WIRE, "name": name}, Caller("me", "admin")) for name in NAMES), together=False)
        for t in range(15):
            contexts = [{"qps": float(i * t % 7)} for i in range(len(NAMES))]
            asks = [service.ask(name, [c]) for name, c in zip(NAMES, contexts, strict=True)]
            asks += [service.ask("s0", [{"qps": 3.0}, {"qps": 4.0}]), service.ask("gone", [{"qps": 1.0}])]
            asks.insert(0, service.ask("s1", [{"rps": 1.0}]))
            answers = commits.run(*asks, together=together)
            for answer in answers:
                for suggestion in answer if isinstance(answer, list) else []:
                    del suggestion["expires_at"]
            said.append(answers)
            given = zip(NAMES, answers[1:], strict=False)
            tells = [
                service.tell(name, Answer(a[0]["id"], {"p99_ms": sum(a[0]["params"].values()) + t}))
                for name, a in given
            ]
            said.append(commits.run(*tells, together=together))
        seen[together] = said, [commits.log(name) for name in NAMES]
    assert seen[True] == seen[False]
    assert seen[True][0][-2][0]["error"]["code"] == "invalid_value"
    assert "error" in seen[True][0][-2][-1]  # there is no such study
