"""Guardian process of an MCP server: when the program ends, no process of the server survives.

Run as a script, between the program and the server: `process_guard.py LIFELINE COMMAND ARGUMENT...`. LIFELINE is one
end of a socket; only the program holds the other. When the program ends in any way (`kill -9` included), the kernel
closes that end, and the guardian kills the whole process group: the server and all its children. A server that hangs,
or ignores the end of its input, cannot survive, as it could if only its pipes closed. When the server ends by itself,
the guardian reports its exit status and kills its remaining children.

It imports next to nothing and is started with `-I -S`, because it runs before every server. Rejected: Linux' death
signal, which reaches one process and not its children, and knows threads where we mean programs.
"""

import os
import select
import signal
import sys

PASSED_ON = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))
# These reach the whole group, server included; the guardian itself only ends when the server has.


def main() -> None:
    """Start the server, then wait for its end or for the program's."""
    lifeline, command = int(sys.argv[1]), sys.argv[2:]
    for number in PASSED_ON:
        signal.signal(number, lambda *_: None)  # a handler, because an ignored signal would stay ignored after exec
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    server = os.fork()
    if server == 0:
        _become(command, lifeline)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for pipe in (0, 1):  # else the server's end would not close its output
        os.dup2(nowhere, pipe)
    poll = select.poll()
    poll.register(lifeline, select.POLLIN)
    poll.register(woken, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poll.poll()}
        if lifeline in ready:  # nothing is ever sent this way: it was closed
            break
        os.read(woken, 4096)
        ended, status = os.waitpid(server, os.WNOHANG)
        if ended:
            os.write(lifeline, str(os.waitstatus_to_exitcode(status)).encode())
            break
    os.killpg(0, signal.SIGKILL)


def _become(command: list[str], lifeline: int) -> None:
    """Replace this process by the server; exit with 127, like a shell, if impossible."""
    try:
        os.close(lifeline)
        os.execvp(command[0], command)
    except OSError:
        os._exit(127)


if __name__ == "__main__":
    main()
