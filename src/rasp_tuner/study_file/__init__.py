"""What studies in files have in common, of `rasp tune` and `rasp watch`: knobs as words, placeholders, the journal."""
