"""`rasp what-if`: what settings are expected to give, beside the default and the recommendation."""

from typing import Annotated

import typer

from rasp_tuner.cli.common import app, echo
from rasp_tuner.cli.remote import URL, Json, Key, Name, Url, context_of, emit, plain, settings, talking


@app.command("what-if")
def what_if(
    name: Name,
    context: Annotated[
        list[str] | None, typer.Argument(help="By name, as in qps=420 region=eu, or values in the order of the study.")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", help="A knob, as in pool=16; may be repeated. Others are as in the default."),
    ] = None,
    url: Url = URL,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Print what settings are expected to give in a situation, and how sure that is; changes nothing.

    Example: rasp what-if checkout qps=420 --set pool=16
    """
    with talking(url, key) as client:
        study = client.study(name, default={})
        params = settings(setting, study.view()["space"], "--set") if setting else None
        found = study.what_if(context_of(context or []), params)
        if as_json:
            emit({**found.to_json(), "words": str(found)})
            return
        for line in str(found).splitlines():
            echo(plain(line))
