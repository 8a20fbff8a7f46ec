"""A mail server that prints what it receives, as `python -m aiosmtpd -n` does: `python -m tests.smtpserver PORT`."""

from __future__ import annotations

import socketserver
import sys


class Session(socketserver.StreamRequestHandler):
    """One connection, with the commands of RFC 5321 that Python's smtplib sends."""

    def handle(self) -> None:
        self.reply("220 tests")
        while line := self.rfile.readline().decode().strip():
            match line.split(maxsplit=1)[0].upper():
                case "DATA":
                    self.reply("354 End with a dot.")
                    while (text := self.rfile.readline().decode().rstrip("\r\n")) != ".":
                        print(text)
                    self.reply("250 OK")
                case "QUIT":
                    self.reply("221 Bye")
                    return
                case _:
                    self.reply("250 OK")

    def reply(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


if __name__ == "__main__":
    with Server(("127.0.0.1", int(sys.argv[1])), Session) as server:
        server.serve_forever()
