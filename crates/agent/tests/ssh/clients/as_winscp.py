"""The requests that WinSCP makes, packet by packet, under its name. Ends with a traceback if an answer is not as it needs it.

It speaks version 3 of the protocol here, and offers 6. To servers that do not call themselves OpenSSH it names a link before
its target. It uploads under another name, sets times and permissions, and renames; a broken upload is continued.

Arguments: port of the server, directory with its keys. In the home, `full` has room for a mebibyte.
"""

import pathlib
import struct
import sys

import paramiko

PORT, PLACE = int(sys.argv[1]), pathlib.Path(sys.argv[2])
LIMIT = 20

INIT, VERSION, OPEN, CLOSE, READ, WRITE, LSTAT, FSTAT, SETSTAT = range(1, 10)
OPENDIR, READDIR, REMOVE, MKDIR, RMDIR, REALPATH, STAT, RENAME, READLINK, SYMLINK = range(11, 21)
STATUS, HANDLE, DATA, NAME, ATTRS = range(101, 106)
EXTENDED, EXTENDED_REPLY = 200, 201
OK, END, NO_SUCH_FILE, PERMISSION_DENIED, FAILURE, BAD_MESSAGE, NO_CONNECTION, CONNECTION_LOST, UNSUPPORTED = range(9)
FOR_READING, FOR_WRITING, APPENDING, CREATING, TRUNCATING = 1, 2, 4, 8, 16
SIZE, OWNER, PERMISSIONS, TIMES = 1, 2, 4, 8

PIECE = 32 << 10
CONTENT = bytes(range(256)) * 1000
WHEN = 1_000_000_000


def connect():
    transport = paramiko.Transport(("127.0.0.1", PORT))
    transport.local_version = "SSH-2.0-WinSCP_release_6.5.3"
    transport.start_client(timeout=LIMIT)
    kind, key = (PLACE / "keys/host_key.pub").read_text().split()[:2]
    assert transport.get_remote_server_key().get_base64() == key
    transport.auth_publickey("dev", paramiko.Ed25519Key.from_private_key_file(str(PLACE / "id")))
    channel = transport.open_session(timeout=LIMIT)
    channel.settimeout(LIMIT)
    channel.invoke_subsystem("sftp")
    return transport, channel


def string(text):
    data = text.encode() if isinstance(text, str) else text
    return struct.pack(">I", len(data)) + data


def permissions(mode):
    return struct.pack(">II", PERMISSIONS, mode)


NOTHING = struct.pack(">I", 0)


class Answer:
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
        answer = self.receive()
        assert (answer.kind, answer.number()) == (VERSION, 3), "the older of both versions is spoken"
        self.extensions = {}
        while answer.body:
            name = answer.string().decode()
            self.extensions[name] = answer.string()

    def send(self, kind, body):
        self.channel.sendall(struct.pack(">IB", len(body) + 1, kind) + body)

    def receive(self):
        def exactly(count):
            data = b""
            while len(data) < count:
                piece = self.channel.recv(count - len(data))
                assert piece, "the server hung up"
                data += piece
            return data

        data = exactly(struct.unpack(">I", exactly(4))[0])
        return Answer(data[0], data[1:])

    def request(self, kind, body):
        self.last += 1
        self.send(kind, struct.pack(">I", self.last) + body)
        return self.last

    def answer(self, number):
        answer = self.receive()
        assert answer.number() == number, "answers come in the order of the requests"
        return answer

    def ask(self, kind, body, expect):
        answer = self.answer(self.request(kind, body))
        assert answer.kind == expect, (kind, answer.kind, answer.body)
        return answer

    def status(self, kind, body):
        answer = self.ask(kind, body, STATUS)
        code, text = answer.number(), answer.string().decode()
        answer.string()  # The language, without which WinSCP would not read the message.
        return code, text

    def must(self, kind, body):
        code, text = self.status(kind, body)
        assert code == OK, (kind, code, text)

    def open(self, path, flags, attributes=NOTHING):
        return self.ask(OPEN, string(path) + struct.pack(">I", flags) + attributes, HANDLE).string()

    def write(self, handle, content, offset=0):
        """All at once, as it does; the answers are read afterwards."""
        pieces = [(at, content[at : at + PIECE]) for at in range(0, len(content), PIECE)]
        numbers = [
            self.request(WRITE, string(handle) + struct.pack(">Q", offset + at) + string(piece)) for at, piece in pieces
        ]
        answers = [self.answer(number) for number in numbers]
        return [(answer.number(), answer.string().decode()) for answer in answers if answer.kind == STATUS]

    def read(self, path):
        handle = self.open(path, FOR_READING)
        # More than there is, because it does not believe in sizes.
        offsets = range(0, len(CONTENT) + 3 * PIECE, PIECE)
        numbers = [self.request(READ, string(handle) + struct.pack(">QI", at, PIECE)) for at in offsets]
        content = b""
        for answer in [self.answer(number) for number in numbers]:
            if answer.kind == DATA:
                content += answer.string()
            else:
                assert (answer.kind, answer.number()) == (STATUS, END)
        self.must(CLOSE, string(handle))
        return content

    def extended(self, name, body):
        return string(name) + body


def begin(client):
    home = client.ask(REALPATH, string("."), NAME)
    assert home.number() == 1
    home = home.string().decode()
    assert home == str((PLACE / "home").resolve()), home
    # It also asks where it would be, before it makes something there.
    for asked, expect in [(home + "/", home), (home + "/new", home + "/new"), ("./../home", home)]:
        assert client.ask(REALPATH, string(asked), NAME).body[4:].startswith(string(expect)), asked
    assert client.ask(LSTAT, string(home), ATTRS).attributes()["mode"] & 0o170000 == 0o040000
    assert client.status(LSTAT, string(home + "/nothing"))[0] == NO_SUCH_FILE
    return home


def space(client, home):
    assert client.extensions["statvfs@openssh.com"] == b"2"
    answer = client.ask(EXTENDED, client.extended("statvfs@openssh.com", string(home + "/full")), EXTENDED_REPLY)
    size, fragment, blocks, free, available = (answer.number(">Q") for _ in range(5))
    assert blocks * fragment == 1 << 20 and 0 < available <= free <= blocks and size > 0
    rest = [answer.number(">Q") for _ in range(6)]
    assert rest[5] == 255 and not answer.body
    code, _ = client.status(EXTENDED, client.extended("space-available", string(home)))
    assert code == UNSUPPORTED


def upload(client, home, name):
    """Under another name first, so that nobody takes half a file for a whole one."""
    part = f"{home}/{name}.filepart"
    assert client.status(LSTAT, string(f"{home}/{name}"))[0] == NO_SUCH_FILE
    handle = client.open(part, FOR_WRITING | CREATING | TRUNCATING, permissions(0o644))
    assert {code for code, _ in client.write(handle, CONTENT)} == {OK}
    client.must(CLOSE, string(handle))
    attributes = struct.pack(">IIII", PERMISSIONS | TIMES, 0o640, WHEN, WHEN + 1)
    client.must(SETSTAT, string(part) + attributes)
    client.must(RENAME, string(part) + string(f"{home}/{name}"))
    found = client.ask(LSTAT, string(f"{home}/{name}"), ATTRS).attributes()
    assert (found["size"], found["mode"] & 0o777, found["times"]) == (len(CONTENT), 0o640, (WHEN, WHEN + 1)), found
    assert client.read(f"{home}/{name}") == CONTENT


def replace(client, home):
    """The protocol's own renaming replaces nothing; it takes the old one away first, or asks for the other way."""
    old, new = f"{home}/file", f"{home}/newer"
    for text in [b"second", b"third"]:
        handle = client.open(new, FOR_WRITING | CREATING | TRUNCATING)
        client.write(handle, text)
        client.must(CLOSE, string(handle))
        code, said = client.status(RENAME, string(new) + string(old))
        assert code == FAILURE and "exists" in said, (code, said)
        if text == b"second":
            client.must(REMOVE, string(old))
            client.must(RENAME, string(new) + string(old))
        else:
            assert client.extensions["posix-rename@openssh.com"] == b"1"
            client.must(EXTENDED, client.extended("posix-rename@openssh.com", string(new) + string(old)))
        assert client.read(old) == text
        assert client.status(LSTAT, string(new))[0] == NO_SUCH_FILE


def resume(client, home):
    part, half = f"{home}/broken.filepart", 3 * PIECE + 7
    handle = client.open(part, FOR_WRITING | CREATING | TRUNCATING, permissions(0o644))
    client.write(handle, CONTENT[:half])
    client.must(CLOSE, string(handle))
    # It goes on where the file ends.
    handle = client.open(part, FOR_WRITING)
    size = client.ask(FSTAT, string(handle), ATTRS).attributes()["size"]
    assert size == half
    assert {code for code, _ in client.write(handle, CONTENT[size:], size)} == {OK}
    client.must(CLOSE, string(handle))
    assert client.read(part) == CONTENT
    # Or it has the server append, whatever the offset says.
    handle = client.open(part, FOR_WRITING | APPENDING)
    client.write(handle, b"more", 0)
    client.must(CLOSE, string(handle))
    assert client.read(part) == CONTENT + b"more"
    client.must(REMOVE, string(part))


def links(client, home):
    client.must(SYMLINK, string(f"{home}/link") + string("file"))
    assert client.ask(READLINK, string(f"{home}/link"), NAME).body[4:].startswith(string("file"))
    assert client.ask(LSTAT, string(f"{home}/link"), ATTRS).attributes()["mode"] & 0o170000 == 0o120000
    assert client.ask(STAT, string(f"{home}/link"), ATTRS).attributes()["mode"] & 0o170000 == 0o100000
    hard = client.extended("hardlink@openssh.com", string(f"{home}/file") + string(f"{home}/hard"))
    client.must(EXTENDED, hard)
    assert client.read(f"{home}/hard") == client.read(f"{home}/file")


def directories(client, home):
    path = f"{home}/Grüße"
    client.must(MKDIR, string(path) + permissions(0o755))
    assert client.status(MKDIR, string(path) + NOTHING)[0] == FAILURE
    handle = client.ask(OPENDIR, string(home), HANDLE).string()
    names = set()
    while True:
        answer = client.answer(client.request(READDIR, string(handle)))
        if answer.kind == STATUS:
            assert answer.number() == END
            break
        for _ in range(answer.number()):
            names.add(answer.string().decode())
            line = answer.string()
            assert answer.attributes()["mode"] and line
    client.must(CLOSE, string(handle))
    assert names == {".", "..", "full", "file", "link", "hard", "Grüße"}, names
    client.must(RMDIR, string(path))


def full_disk(client, home):
    handle = client.open(f"{home}/full/file", FOR_WRITING | CREATING | TRUNCATING)
    answers = client.write(handle, bytes(2 << 20))
    assert len(answers) == (2 << 20) // PIECE
    # The end of what was told is what it shows to people.
    assert answers[0][0] == OK and answers[-1] == (FAILURE, "No space left on device"), answers[-1]
    client.must(CLOSE, string(handle))
    client.must(REMOVE, string(f"{home}/full/file"))


transport, channel = connect()
with transport:
    client = Client(channel)
    home = begin(client)
    space(client, home)
    upload(client, home, "file")
    replace(client, home)
    resume(client, home)
    links(client, home)
    directories(client, home)
    full_disk(client, home)
