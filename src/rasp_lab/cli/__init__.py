"""The laboratory's commands of `rasp`: demo, bench, report, results and theory. The entry point imports this."""

from rasp_lab.cli import bench as bench
from rasp_lab.cli import theory as theory
