"""What the parts and constants of the engine are worth, in one table: `python -m rasp_lab.ablations --help`."""
