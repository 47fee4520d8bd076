"""`pumphouse run service:app`: an app until a signal, in this process or in several.

====================  ==============================================================================
`options.py`          what the command line said; `loading.py` finds the app that it names
`process.py`          the app in one process, and what goes along with it
`supervised.py`       the parent process of `--workers` and `--reload`
`supervisor.py`       which processes it has, and for how long; `reload.py` what has changed
`workers.py`          one of those processes, as the supervisor sees it
`worker.py`           the same, as it sees itself; `reports.py` what they say to each other
`view.py`             what a terminal shows; `display.py` how it gets there, `logs.py` beside it
`local.py`            the account of `--local`
====================  ==============================================================================
"""

from __future__ import annotations

from pumphouse.cli.run.loading import load
from pumphouse.cli.run.options import Options

__all__ = ["Options", "load", "run"]


def run(options: Options) -> int:
    """Run an app until a signal; its exit code, which is one of `cli/exit_codes.py`.

    Raises `UsageError` for options that can't be, or where there is no such app.
    """
    options.check()
    if options.supervised:
        from pumphouse.cli.run.supervised import run_supervised

        return run_supervised(options)
    from pumphouse.cli.run.process import run_here

    return run_here(options)
