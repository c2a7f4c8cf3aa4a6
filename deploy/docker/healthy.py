#!/usr/bin/env -S python3 -IS
"""Is the service on a port of this container well? For health checks in the image, which has no curl.

    healthy PORT [PATH]       GET PATH (/health) is answered with 200
    healthy PORT --listens    something takes connections; for programs without a health route

Exit status 0: it is; 1: it is not, or does not say so within 3 s.
"""

import socket
import sys

SECONDS_MAX = 3.0


def healthy(port: int, path: str = "/health") -> bool:
    """False where nothing listens on 127.0.0.1, or what listens answers late or with anything but 200."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX) as conn:
            if path == "--listens":
                return True
            conn.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
            with conn.makefile("rb") as answer:
                return answer.readline(256).split(b" ")[1:2] == [b"200"]
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(not healthy(int(sys.argv[1]), *sys.argv[2:3]))
