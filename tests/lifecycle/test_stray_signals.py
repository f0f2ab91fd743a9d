"""Signals of what handlers left behind, which nobody handles, do not end a process; all others do what they did."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import faulthandler, os, resource, signal, sys, time
from holdfast.lifecycle.stray_signals import StraySignals, mend_stray_signals
said = []
strays = StraySignals(lambda call: said.append(call))
numbers = [signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGUSR1, signal.SIGUSR2, signal.SIGIO,
           signal.SIGRTMIN, signal.SIGRTMIN + 3, signal.SIGRTMAX]
"""

CASES = {
    "they end nothing, and are told once a minute": """
with strays:
    for number in numbers * 2:
        os.kill(os.getpid(), number)
assert len(said) == len(numbers), said
assert all(signal.getsignal(number) == signal.SIG_DFL for number in numbers)
""",
    "a timer that repeats comes once": """
strays.begin()
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
signal.pause()
assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
assert len(said) == 1
""",
    "the default is replaced again": """
strays.begin()
signal.signal(signal.SIGALRM, signal.SIG_DFL)
mend_stray_signals()
os.kill(os.getpid(), signal.SIGALRM)
assert len(said) == 1
""",
    "handlers that are there stay, also those of C": """
faulthandler.register(signal.SIGUSR1, file=open(os.devnull, "w"))
signal.signal(signal.SIGUSR2, mine := lambda *_: said.append("mine"))
signal.signal(signal.SIGIO, signal.SIG_IGN)
with strays:
    faulthandler.register(signal.SIGALRM, file=open(os.devnull, "w"))
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGIO, signal.SIGALRM):
        os.kill(os.getpid(), number)
    mend_stray_signals()
    assert signal.getsignal(signal.SIGUSR2) is mine and signal.getsignal(signal.SIGIO) == signal.SIG_IGN
for number in (signal.SIGUSR1, signal.SIGALRM):
    os.kill(os.getpid(), number)
assert said == ["mine"], said
""",
    "they do not end a process that is ending": """
strays.begin()
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
strays.ignore()
class Late:
    def __del__(self, kill=os.kill, process=os.getpid(), numbers=tuple(numbers)):
        for number in numbers:
            kill(process, number)
sys.late = Late()
""",
    "they end copies": """
strays.begin()
for number in numbers:
    if (copy := os.fork()) == 0:
        os.kill(os.getpid(), number)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]) == -number
""",
    "a limit of processor time that was lowered is raised": """
before, hard = resource.getrlimit(resource.RLIMIT_CPU)
strays.begin()
resource.setrlimit(resource.RLIMIT_CPU, (100, hard))
os.kill(os.getpid(), signal.SIGXCPU)
assert resource.getrlimit(resource.RLIMIT_CPU)[0] == before and len(said) == 1
""",
    "the limit that it began with ends a process": """
if (copy := os.fork()) == 0:
    strays = StraySignals(said.append)
    strays.begin()
    os.kill(os.getpid(), signal.SIGXCPU)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]) == -signal.SIGXCPU
""",
}


@pytest.mark.skipif(sys.platform != "linux", reason="real-time signals")
@pytest.mark.parametrize("case", CASES)
def test_stray_signals(case: str) -> None:
    """In a process of its own, which would end."""
    done = subprocess.run([sys.executable, "-c", PROGRAM + CASES[case]], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
