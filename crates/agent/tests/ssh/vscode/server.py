"""Stub of the editor's server: an echo server on a free port, which is printed to standard output."""

import socketserver


class EchoHandler(socketserver.BaseRequestHandler):
    def handle(self):
        while chunk := self.request.recv(65536):
            self.request.sendall(chunk)


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True


with Server(("127.0.0.1", 0), EchoHandler) as server:
    print("Extension host agent listening on", server.server_address[1], flush=True)
    server.serve_forever()
