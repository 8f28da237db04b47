"""Policies: what a tuner would recommend, as a small tree in a file that needs no tuner (docs/POLICY.md)."""

from rasp_tuner.policy.c_table import c_table as c_table
from rasp_tuner.policy.report import PolicyReport as PolicyReport
