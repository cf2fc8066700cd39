"""paramiko as a client: commands, files, forwarded ports and a terminal. Ends with a traceback if anything is amiss.

Arguments: port of the server, directory with its keys, port of something that sends everything back.
"""

import io
import pathlib
import socket
import sys

import paramiko

PORT, PLACE, MIRROR = int(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
LIMIT = 20
NAME = "Grüße 世界 🙂.txt"
DATA = bytes(range(256)) * 4096


def connect():
    client = paramiko.SSHClient()
    kind, key = (PLACE / "keys/host_key.pub").read_text().split()[:2]
    known = paramiko.hostkeys.HostKeyEntry.from_line(f"server {kind} {key}").key
    client.get_host_keys().add(f"[127.0.0.1]:{PORT}", kind, known)
    client.connect(
        "127.0.0.1", PORT, "dev", key_filename=str(PLACE / "id"), allow_agent=False, look_for_keys=False, timeout=LIMIT
    )
    return client


def commands(client):
    stdin, stdout, stderr = client.exec_command("cat; echo complaint >&2; exit 42", timeout=LIMIT)
    stdin.write("there and back")
    stdin.channel.shutdown_write()
    assert (stdout.read(), stderr.read()) == (b"there and back", b"complaint\n")
    assert stdout.channel.recv_exit_status() == 42


def files(client):
    with client.open_sftp() as sftp:
        sftp.get_channel().settimeout(LIMIT)
        sftp.mkdir("paramiko")
        sftp.chdir("paramiko")
        assert sftp.putfo(io.BytesIO(DATA), NAME).st_size == len(DATA)
        assert sftp.listdir() == [NAME]
        back = io.BytesIO()
        sftp.getfo(NAME, back)
        assert back.getvalue() == DATA
        sftp.chmod(NAME, 0o640)
        sftp.posix_rename(NAME, "renamed")
        assert [(entry.filename, entry.st_mode & 0o777) for entry in sftp.listdir_attr()] == [("renamed", 0o640)]
        sftp.symlink("renamed", "link")
        assert sftp.readlink("link") == "renamed"
        assert sftp.stat("link").st_size == len(DATA)
        sftp.remove("link")
        sftp.remove("renamed")
        try:
            sftp.stat("renamed")
            raise AssertionError("it is still there")
        except FileNotFoundError:
            pass


def ports(client):
    transport = client.get_transport()
    there = transport.open_channel("direct-tcpip", ("127.0.0.1", MIRROR), ("127.0.0.1", 1), timeout=LIMIT)
    exchange(there, lambda: there.shutdown_write())
    port = transport.request_port_forward("127.0.0.1", 0)
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as far:
        near = transport.accept(LIMIT)
        far.sendall(b"to the client")
        near.settimeout(LIMIT)
        assert near.recv(100) == b"to the client"
        near.sendall(b"to the server")
        assert far.recv(100) == b"to the server"
        near.close()
    transport.cancel_port_forward("127.0.0.1", port)


def exchange(channel, end):
    channel.settimeout(LIMIT)
    channel.sendall(DATA[:100_000])
    end()
    back = b""
    while piece := channel.recv(32768):
        back += piece
    assert back == DATA[:100_000]
    channel.close()


def terminal(client):
    shell = client.invoke_shell(term="vt220", width=101, height=33)
    shell.settimeout(LIMIT)
    seen = b""

    def sees(text):
        nonlocal seen
        while text not in seen:
            piece = shell.recv(32768)
            assert piece, f"{text} was not among {seen}"
            seen += piece

    # What is typed is shown too, so the answer must differ from the question.
    shell.sendall(b"echo $(stty size) $TERM $((6*7))\n")
    sees(b"33 101 vt220 42\r\n")
    shell.sendall(b"trap 'echo now $(stty size)' WINCH; echo re''ady\n")
    sees(b"ready\r\n")
    shell.resize_pty(width=200, height=50)
    sees(b"now 50 200\r\n")
    shell.sendall(b"exit 5\n")
    assert shell.recv_exit_status() == 5


with connect() as client:
    for what in [commands, files, ports, terminal]:
        what(client)
