"""Print the 99th percentile of requests on one connection, in seconds: `pings PORT COUNT`.

It is a separate process with real-time priority where that is allowed: the clients that load the
server, and the scheduler's choice among them, must not delay its measurement. The server has no
such priority.
"""

import os
import socket
import sys
import time
from contextlib import suppress

REQUEST = b"GET /load/ping HTTP/1.1\r\nHost: x\r\n\r\n"


def main(port: int, count: int) -> None:
    with suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    times: list[float] = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for _ in range(count):
            start = time.perf_counter()
            connection.sendall(REQUEST)
            received = b""
            while b"\r\n\r\n" not in received or received.endswith(b"\r\n\r\n"):
                received += connection.recv(65_536)
            times.append(time.perf_counter() - start)
            time.sleep(0.005)
    print(sorted(times)[count * 99 // 100])


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
