"""Tests paramiko: commands, files, forwarded ports and a terminal. Exits with a traceback on failure.

Arguments: port of the server, directory with its keys, port of an echo server.
"""

import io
import pathlib
import socket
import sys

import paramiko

PORT, DIR, ECHO_PORT = int(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
TIMEOUT = 60
NAME = "Grüße 世界 🙂.txt"
DATA = bytes(range(256)) * 4096


def connect():
    client = paramiko.SSHClient()
    kind, key = (DIR / "keys/host_key.pub").read_text().split()[:2]
    known = paramiko.hostkeys.HostKeyEntry.from_line(f"server {kind} {key}").key
    client.get_host_keys().add(f"[127.0.0.1]:{PORT}", kind, known)
    client.connect(
        "127.0.0.1", PORT, "dev", key_filename=str(DIR / "id"), allow_agent=False, look_for_keys=False, timeout=TIMEOUT
    )
    return client


def commands(client):
    stdin, stdout, stderr = client.exec_command("cat; echo error >&2; exit 42", timeout=TIMEOUT)
    stdin.write("data")
    stdin.channel.shutdown_write()
    assert (stdout.read(), stderr.read()) == (b"data", b"error\n")
    assert stdout.channel.recv_exit_status() == 42


def files(client):
    with client.open_sftp() as sftp:
        sftp.get_channel().settimeout(TIMEOUT)
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
            raise AssertionError("the file still exists")
        except FileNotFoundError:
            pass


def ports(client):
    transport = client.get_transport()
    channel = transport.open_channel("direct-tcpip", ("127.0.0.1", ECHO_PORT), ("127.0.0.1", 1), timeout=TIMEOUT)
    exchange(channel, lambda: channel.shutdown_write())
    port = transport.request_port_forward("127.0.0.1", 0)
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT) as far:
        near = transport.accept(TIMEOUT)
        far.sendall(b"to the client")
        near.settimeout(TIMEOUT)
        assert near.recv(100) == b"to the client"
        near.sendall(b"to the server")
        assert far.recv(100) == b"to the server"
        near.close()
    transport.cancel_port_forward("127.0.0.1", port)


def exchange(channel, send_eof):
    channel.settimeout(TIMEOUT)
    channel.sendall(DATA[:100_000])
    send_eof()
    back = b""
    while chunk := channel.recv(32768):
        back += chunk
    assert back == DATA[:100_000]
    channel.close()


def terminal(client):
    shell = client.invoke_shell(term="vt220", width=101, height=33)
    shell.settimeout(TIMEOUT)
    output = b""

    def wait_for(text):
        nonlocal output
        while text not in output:
            chunk = shell.recv(32768)
            assert chunk, f"{text} was not among {output}"
            output += chunk

    # Input is echoed, so the output must differ from it.
    shell.sendall(b"echo $(stty size) $TERM $((6*7))\n")
    wait_for(b"33 101 vt220 42\r\n")
    shell.resize_pty(width=200, height=50)
    shell.sendall(b"until [ \"$(stty size)\" = '50 200' ]; do sleep 0.1; done; echo re''sized\n")
    wait_for(b"resized\r\n")
    shell.sendall(b"exit 5\n")
    assert shell.recv_exit_status() == 5


with connect() as client:
    for test in [commands, files, ports, terminal]:
        test(client)
