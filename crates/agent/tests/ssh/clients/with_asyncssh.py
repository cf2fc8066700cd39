"""asyncssh as a client: commands, files, forwarded ports and a terminal. Ends with a traceback if anything is amiss.

Arguments: port of the server, directory with its keys, port of something that sends everything back.
"""

import asyncio
import pathlib
import sys

import asyncssh

PORT, PLACE, MIRROR = int(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
LIMIT = 20
NAME = "Grüße 世界 🙂.txt"
DATA = bytes(range(256)) * 4096


def connect():
    return asyncssh.connect(
        "127.0.0.1",
        PORT,
        username="dev",
        client_keys=[str(PLACE / "id")],
        known_hosts=([asyncssh.read_public_key(PLACE / "keys/host_key.pub")], [], []),
        agent_path=None,
        config=None,
    )


async def commands(client):
    done = await client.run("cat; echo complaint >&2; exit 42", input="there and back")
    assert (done.stdout, done.stderr, done.exit_status) == ("there and back", "complaint\n", 42), done


async def files(client):
    here, back = PLACE / "here", PLACE / "back"
    here.write_bytes(DATA)
    async with client.start_sftp_client() as sftp:
        await sftp.mkdir("asyncssh")
        await sftp.chdir("asyncssh")
        await sftp.put(here, NAME)
        assert [name for name in await sftp.listdir() if name not in (".", "..")] == [NAME]
        await sftp.get(NAME, back)
        assert back.read_bytes() == DATA
        await sftp.posix_rename(NAME, "renamed")
        assert (await sftp.stat("renamed")).size == len(DATA)
        await sftp.symlink("renamed", "link")
        assert await sftp.readlink("link") == "renamed"
        assert (await sftp.stat("link")).size == len(DATA)
        await sftp.chdir("..")
        await sftp.rmtree("asyncssh")
        assert not await sftp.exists("asyncssh")


async def ports(client):
    listener = await client.forward_local_port("127.0.0.1", 0, "127.0.0.1", MIRROR)
    await exchange(listener.get_port())
    listener.close()
    listener = await client.forward_remote_port("127.0.0.1", 0, "127.0.0.1", MIRROR)
    await exchange(listener.get_port())
    listener.close()


async def exchange(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(DATA[:100_000])
    writer.write_eof()
    back = await reader.read()
    assert back == DATA[:100_000], len(back)
    writer.close()


async def terminal(client):
    shell = await client.create_process(term_type="vt220", term_size=(101, 33))
    # What is typed is shown too, so the answer must differ from the question.
    shell.stdin.write("echo $(stty size) $TERM $((6*7))\n")
    await shell.stdout.readuntil("33 101 vt220 42\r\n")
    shell.stdin.write("trap 'echo now $(stty size)' WINCH; echo re''ady\n")
    await shell.stdout.readuntil("ready\r\n")
    shell.change_terminal_size(200, 50)
    await shell.stdout.readuntil("now 50 200\r\n")
    shell.stdin.write("exit 5\n")
    assert (await shell.wait()).exit_status == 5


async def main():
    async with connect() as client:
        for what in [commands, files, ports, terminal]:
            await asyncio.wait_for(what(client), LIMIT)


asyncio.run(main())
