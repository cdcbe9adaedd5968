"""Runs a program of a comparison: what it printed, or the end of the comparison with what it complained of."""
import subprocess, sys


def run(words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stderr[-3000:]}")
    return done.stdout
