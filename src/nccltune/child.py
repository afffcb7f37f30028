# SPDX-License-Identifier: Apache-2.0
"""Child processes that may be waited for while signals interrupt."""

import contextlib
import os
import subprocess
import time

_FIRST_STEP_S = 0.0005
_LONGEST_STEP_S = 0.05


class Child(subprocess.Popen[bytes]):
    """A `Popen` whose `poll` and `wait` may be interrupted. Where a signal handler raises in those
    of `Popen` itself, as Ctrl-C does, their lock may stay taken (seen with Python 3.11: between its
    `acquire` and the `try` behind it), and whoever waits then waits for ever."""

    def poll(self) -> int | None:
        """The status, as `returncode` has it; None while it runs."""
        return self._look(os.WNOHANG)

    def wait(self, timeout: float | None = None) -> int:
        """The status once it has ended. Raises TimeoutExpired after `timeout` seconds."""
        if timeout is None:
            status = self._look(0)
            assert status is not None
            return status
        until = time.monotonic() + timeout
        step_s = _FIRST_STEP_S
        while (status := self.poll()) is None:
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(min(step_s, left_s))
            step_s = min(2 * step_s, _LONGEST_STEP_S)
        return status

    def _look(self, how: int) -> int | None:
        if self.returncode is not None:
            return self.returncode
        # It is collected once its status is known here, so that an interruption loses none.
        try:
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | how)
        except ChildProcessError:
            # Somebody else has collected it, who ignores SIGCHLD for example; as Popen has it.
            self.returncode = 0
            return self.returncode
        if ended is None:
            return None
        exited = ended.si_code == os.CLD_EXITED
        self.returncode = ended.si_status if exited else -ended.si_status
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        return self.returncode
