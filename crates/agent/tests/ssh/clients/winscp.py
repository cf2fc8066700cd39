"""Sends the SFTP requests of WinSCP under its version string. Exits with a traceback if a response is not as it expects.

WinSCP offers version 6 and uses version 3 here. With servers other than OpenSSH it sends a link before its target. It
uploads to a temporary name, sets times and permissions, and renames; an interrupted upload is resumed.

Arguments: port of the server, directory with its keys. In the home, `full` has a capacity of 1 MiB.
"""

import pathlib
import struct
import sys

import paramiko

PORT, DIR = int(sys.argv[1]), pathlib.Path(sys.argv[2])
TIMEOUT = 60

INIT, VERSION, OPEN, CLOSE, READ, WRITE, LSTAT, FSTAT, SETSTAT = range(1, 10)
OPENDIR, READDIR, REMOVE, MKDIR, RMDIR, REALPATH, STAT, RENAME, READLINK, SYMLINK = range(11, 21)
STATUS, HANDLE, DATA, NAME, ATTRS = range(101, 106)
EXTENDED, EXTENDED_REPLY = 200, 201
OK, EOF, NO_SUCH_FILE, PERMISSION_DENIED, FAILURE, BAD_MESSAGE, NO_CONNECTION, CONNECTION_LOST, UNSUPPORTED = range(9)
READ_FLAG, WRITE_FLAG, APPEND_FLAG, CREATE_FLAG, TRUNCATE_FLAG = 1, 2, 4, 8, 16
SIZE, OWNER, PERMISSIONS, TIMES = 1, 2, 4, 8

CHUNK_SIZE = 32 << 10
CONTENT = bytes(range(256)) * 1000
MTIME = 1_000_000_000


def connect():
    transport = paramiko.Transport(("127.0.0.1", PORT))
    transport.local_version = "SSH-2.0-WinSCP_release_6.5.3"
    transport.start_client(timeout=TIMEOUT)
    kind, key = (DIR / "keys/host_key.pub").read_text().split()[:2]
    assert transport.get_remote_server_key().get_base64() == key
    transport.auth_publickey("dev", paramiko.Ed25519Key.from_private_key_file(str(DIR / "id")))
    channel = transport.open_session(timeout=TIMEOUT)
    channel.settimeout(TIMEOUT)
    channel.invoke_subsystem("sftp")
    return transport, channel


def string(text):
    data = text.encode() if isinstance(text, str) else text
    return struct.pack(">I", len(data)) + data


def permissions(mode):
    return struct.pack(">II", PERMISSIONS, mode)


NO_ATTRS = struct.pack(">I", 0)


class Response:
    def __init__(self, kind, body):
        self.kind, self.body = kind, body

    def number(self, form=">I"):
        size = struct.calcsize(form)
        value, self.body = struct.unpack(form, self.body[:size])[0], self.body[size:]
        return value

    def string(self):
        length = self.number()
        value, self.body = self.body[:length], self.body[length:]
        return value

    def attributes(self):
        flags, found = self.number(), {}
        if flags & SIZE:
            found["size"] = self.number(">Q")
        if flags & OWNER:
            found["owner"] = self.number(), self.number()
        if flags & PERMISSIONS:
            found["mode"] = self.number()
        if flags & TIMES:
            found["times"] = self.number(), self.number()
        return found


class Client:
    def __init__(self, channel):
        self.channel, self.last = channel, 0
        self.send(INIT, struct.pack(">I", 6))
        response = self.receive()
        assert (response.kind, response.number()) == (VERSION, 3), "version 3 is negotiated"
        self.extensions = {}
        while response.body:
            name = response.string().decode()
            self.extensions[name] = response.string()

    def send(self, kind, body):
        self.channel.sendall(struct.pack(">IB", len(body) + 1, kind) + body)

    def receive(self):
        def exactly(count):
            data = b""
            while len(data) < count:
                chunk = self.channel.recv(count - len(data))
                assert chunk, "the server closed the channel"
                data += chunk
            return data

        data = exactly(struct.unpack(">I", exactly(4))[0])
        return Response(data[0], data[1:])

    def request(self, kind, body):
        self.last += 1
        self.send(kind, struct.pack(">I", self.last) + body)
        return self.last

    def response(self, number):
        response = self.receive()
        assert response.number() == number, "responses are in the sequence of the requests"
        return response

    def call(self, kind, body, expect):
        response = self.response(self.request(kind, body))
        assert response.kind == expect, (kind, response.kind, response.body)
        return response

    def status(self, kind, body):
        response = self.call(kind, body, STATUS)
        code, text = response.number(), response.string().decode()
        response.string()  # The language tag; WinSCP requires it.
        return code, text

    def expect_ok(self, kind, body):
        code, text = self.status(kind, body)
        assert code == OK, (kind, code, text)

    def open(self, path, flags, attributes=NO_ATTRS):
        return self.call(OPEN, string(path) + struct.pack(">I", flags) + attributes, HANDLE).string()

    def write(self, handle, content, offset=0):
        """Sends all requests before it reads the responses."""
        chunks = [(at, content[at : at + CHUNK_SIZE]) for at in range(0, len(content), CHUNK_SIZE)]
        numbers = [
            self.request(WRITE, string(handle) + struct.pack(">Q", offset + at) + string(chunk)) for at, chunk in chunks
        ]
        responses = [self.response(number) for number in numbers]
        return [(response.number(), response.string().decode()) for response in responses if response.kind == STATUS]

    def read(self, path):
        handle = self.open(path, READ_FLAG)
        # Beyond the end, because WinSCP does not rely on the size.
        offsets = range(0, len(CONTENT) + 3 * CHUNK_SIZE, CHUNK_SIZE)
        numbers = [self.request(READ, string(handle) + struct.pack(">QI", at, CHUNK_SIZE)) for at in offsets]
        content = b""
        for response in [self.response(number) for number in numbers]:
            if response.kind == DATA:
                content += response.string()
            else:
                assert (response.kind, response.number()) == (STATUS, EOF)
        self.expect_ok(CLOSE, string(handle))
        return content

    def extended(self, name, body):
        return string(name) + body


def start(client):
    home = client.call(REALPATH, string("."), NAME)
    assert home.number() == 1
    home = home.string().decode()
    assert home == str((DIR / "home").resolve()), home
    # WinSCP resolves paths before it creates them.
    for path, expect in [(home + "/", home), (home + "/new", home + "/new"), ("./../home", home)]:
        assert client.call(REALPATH, string(path), NAME).body[4:].startswith(string(expect)), path
    assert client.call(LSTAT, string(home), ATTRS).attributes()["mode"] & 0o170000 == 0o040000
    assert client.status(LSTAT, string(home + "/nothing"))[0] == NO_SUCH_FILE
    return home


def space(client, home):
    assert client.extensions["statvfs@openssh.com"] == b"2"
    response = client.call(EXTENDED, client.extended("statvfs@openssh.com", string(home + "/full")), EXTENDED_REPLY)
    size, fragment, blocks, free, available = (response.number(">Q") for _ in range(5))
    assert blocks * fragment == 1 << 20 and 0 < available <= free <= blocks and size > 0
    rest = [response.number(">Q") for _ in range(6)]
    assert rest[5] == 255 and not response.body
    code, _ = client.status(EXTENDED, client.extended("space-available", string(home)))
    assert code == UNSUPPORTED


def upload(client, home, name):
    """Uploads to a temporary name and renames."""
    part = f"{home}/{name}.filepart"
    assert client.status(LSTAT, string(f"{home}/{name}"))[0] == NO_SUCH_FILE
    handle = client.open(part, WRITE_FLAG | CREATE_FLAG | TRUNCATE_FLAG, permissions(0o644))
    assert {code for code, _ in client.write(handle, CONTENT)} == {OK}
    client.expect_ok(CLOSE, string(handle))
    attributes = struct.pack(">IIII", PERMISSIONS | TIMES, 0o640, MTIME, MTIME + 1)
    client.expect_ok(SETSTAT, string(part) + attributes)
    client.expect_ok(RENAME, string(part) + string(f"{home}/{name}"))
    found = client.call(LSTAT, string(f"{home}/{name}"), ATTRS).attributes()
    assert (found["size"], found["mode"] & 0o777, found["times"]) == (len(CONTENT), 0o640, (MTIME, MTIME + 1)), found
    assert client.read(f"{home}/{name}") == CONTENT


def replace(client, home):
    """SSH_FXP_RENAME does not replace a file; WinSCP removes it first, or uses posix-rename."""
    old, new = f"{home}/file", f"{home}/newer"
    for text in [b"second", b"third"]:
        handle = client.open(new, WRITE_FLAG | CREATE_FLAG | TRUNCATE_FLAG)
        client.write(handle, text)
        client.expect_ok(CLOSE, string(handle))
        code, message = client.status(RENAME, string(new) + string(old))
        assert code == FAILURE and "exists" in message, (code, message)
        if text == b"second":
            client.expect_ok(REMOVE, string(old))
            client.expect_ok(RENAME, string(new) + string(old))
        else:
            assert client.extensions["posix-rename@openssh.com"] == b"1"
            client.expect_ok(EXTENDED, client.extended("posix-rename@openssh.com", string(new) + string(old)))
        assert client.read(old) == text
        assert client.status(LSTAT, string(new))[0] == NO_SUCH_FILE


def resume(client, home):
    part, half = f"{home}/interrupted.filepart", 3 * CHUNK_SIZE + 7
    handle = client.open(part, WRITE_FLAG | CREATE_FLAG | TRUNCATE_FLAG, permissions(0o644))
    client.write(handle, CONTENT[:half])
    client.expect_ok(CLOSE, string(handle))
    # Resumes at the end of the file.
    handle = client.open(part, WRITE_FLAG)
    size = client.call(FSTAT, string(handle), ATTRS).attributes()["size"]
    assert size == half
    assert {code for code, _ in client.write(handle, CONTENT[size:], size)} == {OK}
    client.expect_ok(CLOSE, string(handle))
    assert client.read(part) == CONTENT
    # With the append flag, the offset is ignored.
    handle = client.open(part, WRITE_FLAG | APPEND_FLAG)
    client.write(handle, b"more", 0)
    client.expect_ok(CLOSE, string(handle))
    assert client.read(part) == CONTENT + b"more"
    client.expect_ok(REMOVE, string(part))


def links(client, home):
    client.expect_ok(SYMLINK, string(f"{home}/link") + string("file"))
    assert client.call(READLINK, string(f"{home}/link"), NAME).body[4:].startswith(string("file"))
    assert client.call(LSTAT, string(f"{home}/link"), ATTRS).attributes()["mode"] & 0o170000 == 0o120000
    assert client.call(STAT, string(f"{home}/link"), ATTRS).attributes()["mode"] & 0o170000 == 0o100000
    hard = client.extended("hardlink@openssh.com", string(f"{home}/file") + string(f"{home}/hard"))
    client.expect_ok(EXTENDED, hard)
    assert client.read(f"{home}/hard") == client.read(f"{home}/file")


def directories(client, home):
    path = f"{home}/Grüße"
    client.expect_ok(MKDIR, string(path) + permissions(0o755))
    assert client.status(MKDIR, string(path) + NO_ATTRS)[0] == FAILURE
    handle = client.call(OPENDIR, string(home), HANDLE).string()
    names = set()
    while True:
        response = client.response(client.request(READDIR, string(handle)))
        if response.kind == STATUS:
            assert response.number() == EOF
            break
        for _ in range(response.number()):
            names.add(response.string().decode())
            line = response.string()
            assert response.attributes()["mode"] and line
    client.expect_ok(CLOSE, string(handle))
    assert names == {".", "..", "full", "file", "link", "hard", "Grüße"}, names
    client.expect_ok(RMDIR, string(path))


def full_disk(client, home):
    handle = client.open(f"{home}/full/file", WRITE_FLAG | CREATE_FLAG | TRUNCATE_FLAG)
    responses = client.write(handle, bytes(2 << 20))
    assert len(responses) == (2 << 20) // CHUNK_SIZE
    # WinSCP shows the message of the last response.
    assert responses[0][0] == OK and responses[-1] == (FAILURE, "No space left on device"), responses[-1]
    client.expect_ok(CLOSE, string(handle))
    client.expect_ok(REMOVE, string(f"{home}/full/file"))


transport, channel = connect()
with transport:
    client = Client(channel)
    home = start(client)
    space(client, home)
    upload(client, home, "file")
    replace(client, home)
    resume(client, home)
    links(client, home)
    directories(client, home)
    full_disk(client, home)
