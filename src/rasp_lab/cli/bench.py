"""`rasp demo`, `bench`, `bench-report`, `results`: compare agents on domains."""

import json
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rasp_lab.cli import table as of_table
from rasp_lab.cli.common import PANEL, lab_errors
from rasp_lab.progress import progress_bar
from rasp_tuner.cli.common import Json, app, busy, echo, flag, say
from rasp_tuner.errors import InvalidValue

if TYPE_CHECKING:
    from rasp_lab.bench.analysis.metrics import Runs

DEFAULT_AGENTS = "static,random,cma-es,rasp"
PUBLIC = "Public tables"


@app.command("demo", rich_help_panel=PANEL)
def run_demo(
    seeds: Annotated[int, typer.Option(min=1, max=1_000, help="Runs of each agent on each domain.")] = 5,
    out: Annotated[Path, typer.Option(help="Folder for the results; the report is OUT/demo/report.html.")] = Path(
        "out"
    ),
    as_json: Json = False,
) -> None:
    """Run four agents on ten simulated domains and tune gzip here; print both, and write a report (about a minute).

    Example: rasp demo --seeds 5 --out out
    """
    with lab_errors():
        with busy("loading"):
            from rasp_lab.bench.analysis import metrics, summary
            from rasp_lab.bench.report import demo
            from rasp_lab.real.gzip_demo import tune_gzip

        folder, cells = out / "demo", demo.cells(seeds)
        folder.mkdir(parents=True, exist_ok=True)
        with _progress_of(cells, 0, as_json) as finished:
            runs = demo.play(cells, folder, finished)
        said, page = demo.verdict(runs), folder / "report.html"
        with busy("tuning gzip on this machine"):
            real = tune_gzip(folder)
        if as_json:
            facts: dict[str, Any] = {"ratios": metrics.ratios(runs, demo.HORIZON), "verdict": said, "report": str(page)}
            facts["gzip"] = None if real is None else real.verdict.words
            echo(summary.to_json(facts))
            return
        _print_ratios(runs)
        echo(said)
        echo(page)
        if real is not None:
            echo(f"\nAnd a real program, gzip on this machine, at most 5% larger files:\n{real}")


@app.command("bench", rich_help_panel=PANEL)
def run_bench(
    name: Annotated[str | None, typer.Argument(metavar="[SUITE]", help="The same as --suite.")] = None,
    suite: Annotated[
        str | None,
        typer.Option(
            help="paper, long, streams, beyond, worlds, sensitivity or all; separate several by commas. Or public.",
            show_default="paper",
        ),
    ] = None,
    domains: Annotated[
        str, typer.Option(help="Domains instead of a suite, your own as module:Name; 'list' prints the names.")
    ] = "",
    harder: Annotated[str, typer.Option(help="Make every domain harder: noise=0.5, outliers, delay=5, ...")] = "",
    agents: Annotated[
        str,
        typer.Option(help="Agents separated by commas, your own as module:Factory; 'all', or 'list' for the names."),
    ] = DEFAULT_AGENTS,
    seeds: Annotated[int, typer.Option(min=1, max=10_000, help="Runs of each agent on each domain.")] = 5,
    horizon: Annotated[
        int | None, typer.Option(min=1, help="Steps of each run; by default the suite's own, or 300 with a table.")
    ] = None,
    half: Annotated[
        str | None,
        typer.Option(
            help="Seeds of random worlds: develop (even) to choose constants on, or report (odd).",
            show_default="report",
        ),
    ] = None,
    first_seed: Annotated[
        int, typer.Option(min=0, help="The first of the seeds; others are for results that nothing was chosen on.")
    ] = 0,
    jobs: Annotated[int, typer.Option(help="Number of processes; -1 means one for each core.")] = -1,
    out: Annotated[
        Path, typer.Option(help="Folder for the results; runs already finished in it are not repeated.")
    ] = Path("out/bench"),
    engine: Annotated[str, typer.Option(help="joblib for this machine, ray for a cluster.")] = "joblib",
    address: Annotated[
        str | None, typer.Option(help="Address of the Ray cluster; by default a local one is started.")
    ] = None,
    memory: Annotated[bool, flag("--memory", "Also measure memory growth (takes longer).")] = False,
    as_json: Json = False,
    table: of_table.File = None,
    knobs: of_table.Knobs = None,
    context: of_table.Context = None,
    metrics: of_table.Metrics = None,
    loss: of_table.Loss = None,
    noise: of_table.Noise = None,
    context_noise: of_table.ContextNoise = None,
    block: of_table.Block = None,
    default: of_table.Default = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder with the public tables (docs/PUBLIC.md).", rich_help_panel=PUBLIC)
    ] = None,
    page: Annotated[
        Path | None, typer.Option(help="Also write a page of the public results.", rich_help_panel=PUBLIC)
    ] = None,
    page_only: Annotated[
        bool,
        typer.Option(
            "--page-only", help="Run nothing: --page of what has run so far.", metavar="", rich_help_panel=PUBLIC
        ),
    ] = False,
    download: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Get the files from below this address into --data, and stop.", rich_help_panel=PUBLIC
        ),
    ] = None,
) -> None:
    """Run agents on domains and write OUT/steps.csv and OUT/summary.json. Run it again to continue where it stopped.

    Example: rasp bench --suite paper --agents static,random,cma-es,rasp --seeds 5 --out out/bench
    Or: rasp bench --table runs.csv --knobs threads,codec --context machine --metrics time_ms:min --horizon 300
    Or: rasp bench public --data DIR --seeds 20 --page docs/PUBLIC.md
    """
    with lab_errors():
        if name is not None and suite is not None:
            raise InvalidValue("name the suite once: rasp bench SUITE, or --suite SUITE")
        suite = suite if name is None else name
        if suite == "public":
            _run_public(data, agents, seeds, jobs, out, page, page_only, download, as_json)
            return
        if data is not None or page is not None or page_only or download is not None:
            said = "--data, --page, --page-only and --download are for the suite public"
            raise InvalidValue(f"{said}: rasp bench public --data DIR")
        with busy("loading"):
            from rasp_lab.bench import agents as registry
            from rasp_lab.bench import domains as worlds
            from rasp_lab.bench.analysis import metrics as steps_table
            from rasp_lab.bench.analysis import summary
            from rasp_lab.bench.domains.worlds import is_world
            from rasp_lab.bench.runner import memory_growth as heap
            from rasp_lab.bench.runner import protocol, run, suites
            from rasp_tuner.files.snapshot import write

        if "list" in (agents, domains):
            echo("\n".join(sorted(registry.AGENTS) if agents == "list" else list(worlds.DOMAINS)))
            return
        sys.path.insert(0, str(Path.cwd()))  # where one's own agents and domains are
        names = list(registry.AGENTS) if agents == "all" else _names(agents)
        options: dict[str, str | float | None] = {"knobs": knobs, "context": context, "metrics": metrics, "loss": loss}
        options |= {"noise": noise, "context_noise": context_noise, "block": block, "default": default}
        file = of_table.read_options(table, options)
        if suite is not None and domains:
            raise InvalidValue("choose --suite or --domains: a run takes one of them")
        if file is None:
            chosen = [name.strip() for name in domains.split(",") if name.strip()]
            cells = suites.cells(
                suite or "paper",
                names,
                seeds,
                horizon,
                domains=chosen,
                harder=harder,
                half=half or "report",
                first_seed=first_seed,
            )
            if half is not None and not any(is_world(cell.domain) for cell in cells):
                raise InvalidValue("--half is for random worlds: use it with --suite worlds")
        elif suite is not None or domains or harder or half is not None or first_seed:
            raise InvalidValue(
                "choose --table or --suite, --domains, --harder, --half and --first-seed: a run takes one of them"
            )
        elif memory:
            raise InvalidValue("--memory needs --suite: it measures memory growth on a domain of the suite")
        else:
            cells = protocol.plan_table(file, names, seeds, horizon or 300)
        out.mkdir(parents=True, exist_ok=True)
        with busy("looking for finished runs"):
            kept = sum(run.is_finished(cell, out) for cell in cells)
        with _resumable(), _progress_of(cells, kept, as_json) as finished:
            steps = run.run_plan(cells, out, jobs=jobs, engine=engine, address=address, finished=finished)
        with busy("summarising"):
            runs = steps_table.load(steps)
            facts = summary.to_json(summary.summarise(runs))
            write(out / "summary.json", facts.encode())
        if memory:
            each = list(dict.fromkeys(cell.agent for cell in cells))
            _follow_memory(heap.measure(out, each, cells[0].domain, cells[0].horizon), len(each), as_json)
        if as_json:
            echo(facts)
            return
        if plain := [r for r in runs if not is_world(r.domain)]:
            _print_ratios(plain)
        _print_worlds(runs)
        echo(f"Steps: {steps}   Summary: {out / 'summary.json'}   Next: rasp bench-report {out}")


def _run_public(
    data: Path | None,
    agents: str,
    seeds: int,
    jobs: int,
    out: Path,
    page: Path | None,
    page_only: bool,
    download: str | None,
    as_json: bool,
) -> None:
    """The public tables: docs/PUBLIC.md."""
    with busy("loading"):
        from rasp_lab.public import files, measures, peer_totals, protocols, public_page, runs

    if data is None:
        raise InvalidValue("the public tables are not part of this package: name their folder with --data DIR")
    if download is not None:
        count = files.download(download, data, say)
        echo(f"{count} files were got, {len(files.SHA256) - count} were there. Next: rasp bench public --data {data}")
        return
    files.check(data)
    if find_spec("kernel_tuner") is None:
        say("the GPU kernel is left out: it needs pip install 'rasp-tuner[kernel-tuner]'")
    chosen = None if agents == DEFAULT_AGENTS else _names(agents)
    cells = protocols.plan(seeds, chosen)
    table = None if page is None else page.parent / peer_totals.PLACE
    known = {} if table is None else peer_totals.read(table)
    wanted = [cell for cell in cells if cell not in known]
    done = [cell for cell in wanted if runs.finished(cell, out) is not None]
    kept = len(cells) - len(wanted) + len(done)
    if page_only and not kept:
        raise InvalidValue(f"{out} holds no finished runs: leave out --page-only")
    with _resumable(), _progress_of(cells, kept, as_json) as finished:
        ran = runs.run_cells(done if page_only else wanted, data, out, jobs, finished)
    with busy("summarising"):
        own = {cell: measures.totals(cell, rows) for cell, rows in ran.items()}
        found = {cell: own.get(cell, known.get(cell, {})) for cell in cells if cell in own or cell in known}
        if table is not None:
            peer_totals.write(found, table)
        lines = public_page.summary(found, data)
        if page is not None:
            lines = public_page.with_earlier(lines, page.with_suffix(".csv"), {cell.agent for cell in cells})
        public_page.write_csv(lines, out / "public.csv")
    if page is not None:
        public_page.write_page(lines, page)
    if as_json:
        echo(json.dumps([line._asdict() for line in lines]))
        return
    _print_table(public_page.HEAD, public_page.rows_of(lines))
    echo(f"Table: {out / 'public.csv'}" + (f"   Page: {page}" if page is not None else ""))


@app.command("bench-report", rich_help_panel=PANEL)
def write_report(folder: Annotated[Path, typer.Argument(help="The OUT folder of `rasp bench`.")]) -> None:
    """Write report.html and report.md from the results of `rasp bench`.

    Example: rasp bench-report out/bench
    """
    with lab_errors():
        with busy(f"writing the report of {folder}"):
            from rasp_lab.bench.report import html_report

            page, text = html_report.write(folder)
        echo(f"Page: {page}   Markdown: {text}")


@app.command("results", rich_help_panel=PANEL)
def write_results(
    out: Annotated[
        Path, typer.Option(help="Folder for the results; runs already finished in it are not repeated.")
    ] = Path("out/results"),
    markdown: Annotated[Path | None, typer.Option(help="The page to write; by default OUT/RESULTS.md.")] = None,
    seeds: Annotated[int, typer.Option(min=1, max=10_000, help="Runs of each agent on each domain.")] = 5,
    jobs: Annotated[int, typer.Option(help="Number of processes; -1 means one for each core.")] = -1,
    peers: Annotated[
        bool, flag("--peers", "Also run the peers that are not on file, or that other versions made (hours).")
    ] = False,
    page_only: Annotated[
        bool, flag("--page-only", "Run nothing; write the page from finished runs and list the missing ones.")
    ] = False,
) -> None:
    """Run our own agents beside the peers on file and write the page of results. Run it again to continue.

    Example: rasp results --out out/results --markdown docs/RESULTS.md
    """
    with lab_errors():
        with busy("loading"):
            from rasp_lab.bench import agents
            from rasp_lab.bench.report import results
            from rasp_lab.bench.runner import run, timing

        target, names = markdown or out / "RESULTS.md", [a for a in agents.AGENTS if a not in agents.OF_PAPER_PAGE]
        cells = results.plan(seeds)
        rows = results.on_file(cells, target, peers)
        missing = [] if page_only else results.to_run(cells, rows, peers)
        if missing:
            with busy("looking for finished runs"):
                results.forget_older(cells, out)
                kept = sum(run.is_finished(cell, out) for cell in missing)
            with _resumable(), _progress_of(missing, kept) as finished:
                run.run_plan(missing, out, jobs=jobs, finished=finished)
            with progress_bar() as progress:
                wanted = timing.plan(names)
                task = progress.add_task("step times", total=sum(map(len, wanted.values())) * timing.STEPS)
                for name, steps in timing.measure(out, wanted):
                    progress.update(task, advance=steps, description=f"step times of {name}")
        with busy("writing the page"):
            results.write(cells, out, target, rows)
        echo(f"Markdown: {target}")


def _follow_memory(measured: "Iterator[str]", total: int, as_json: bool = False) -> None:
    """Show how far the measurement of memory growth is."""
    with progress_bar(as_json) as progress:
        task = progress.add_task("memory growth", total=total)
        for agent in measured:
            progress.update(task, advance=1, description=f"memory growth of {agent}")


def _print_ratios(runs: "Sequence[Runs]") -> None:
    """Print a table for each horizon, relative to the static default, with the longer side as rows."""
    from rasp_lab.bench.report import tables

    for horizon in sorted({r.horizon for r in runs}):
        content = tables.ratio_table(runs, horizon)
        head, rows = content if len(content[1]) >= len(content[0]) else tables.transposed(content, "domain")
        echo(f"Regret relative to the static default, T = {horizon:,}: below 1 beats doing nothing")
        _print_table(head, rows)
        if any(text.startswith("(") for row in rows for text in row):
            echo("In brackets: the regret itself, because the static default has none.")
    if all(r.agent != "static" for r in runs):
        echo("No ratios without the static default: add static to --agents.")


def _print_worlds(runs: "Sequence[Runs]") -> None:
    """Print what random worlds are scored by, if there are any."""
    from rasp_lab.bench.report import tables, world_tables

    for words, (head, rows) in world_tables.told(runs):
        echo(words)
        _print_table(*tables.transposed((head, rows), "world"))


def _print_table(head: "Sequence[str]", rows: "Sequence[Sequence[str]]") -> None:
    table = Table()
    for i, name in enumerate(head):
        table.add_column(escape(name), justify="right" if i else "left", no_wrap=not i)
    for row in rows:
        table.add_row(*map(escape, row))  # the brackets of rasp-paper[top_k=1] are no style
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def _names(agents: str) -> list[str]:
    """Names separated by commas; a comma inside brackets belongs to an agent's settings."""
    return [name.strip() for name in re.split(r",(?![^\[]*\])", agents)]


@contextmanager
def _resumable() -> "Iterator[None]":
    """After Ctrl-C, say that finished runs are not lost."""
    try:
        yield
    except KeyboardInterrupt:
        echo("rasp: stopped; finished runs are kept, and the same command continues from there", err=True)
        raise


@contextmanager
def _progress_of(cells: "Sequence[Any]", kept: int, as_json: bool = False) -> "Iterator[Callable[[Any], None]]":
    """A progress bar over the cells, `kept` of them done before; yields what to call with each finished cell.

    SIGTERM stops like Ctrl-C, so that worker processes end, too.
    """

    def finished(cell: Any) -> None:
        progress.advance(task)
        last = progress.tasks[0].finished  # what the caller makes of the runs may take seconds
        progress.update(task, description="writing results" if last else f"{cell.agent} on {cell.domain}")

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        say(f"{len(cells):,} runs" + (f", {kept:,} finished before" if kept else ""), as_json)
        with progress_bar(as_json) as progress:
            task = progress.add_task("runs", total=len(cells), completed=kept)
            yield finished
    finally:
        signal.signal(signal.SIGTERM, before)
