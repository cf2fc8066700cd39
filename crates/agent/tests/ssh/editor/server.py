"""Stands for the editor's server: a free port, told on the standard output, where everything comes back as it is sent."""

import socketserver


class Mirror(socketserver.BaseRequestHandler):
    def handle(self):
        while piece := self.request.recv(65536):
            self.request.sendall(piece)


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True


with Server(("127.0.0.1", 0), Mirror) as server:
    print("Extension host agent listening on", server.server_address[1], flush=True)
    server.serve_forever()
