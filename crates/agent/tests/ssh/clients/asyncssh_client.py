"""Tests asyncssh: commands, files, forwarded ports and a terminal. Exits with a traceback on failure.

Arguments: port of the server, directory with its keys, port of an echo server.
"""

import asyncio
import pathlib
import sys

import asyncssh

PORT, DIR, ECHO_PORT = int(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
TIMEOUT = 60
NAME = "Grüße 世界 🙂.txt"
DATA = bytes(range(256)) * 4096


def connect():
    return asyncssh.connect(
        "127.0.0.1",
        PORT,
        username="dev",
        client_keys=[str(DIR / "id")],
        known_hosts=([asyncssh.read_public_key(DIR / "keys/host_key.pub")], [], []),
        agent_path=None,
        config=None,
    )


async def commands(client):
    done = await client.run("cat; echo error >&2; exit 42", input="data")
    assert (done.stdout, done.stderr, done.exit_status) == ("data", "error\n", 42), done


async def files(client):
    here, back = DIR / "here", DIR / "back"
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
    listener = await client.forward_local_port("127.0.0.1", 0, "127.0.0.1", ECHO_PORT)
    await exchange(listener.get_port())
    listener.close()
    listener = await client.forward_remote_port("127.0.0.1", 0, "127.0.0.1", ECHO_PORT)
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
    # Input is echoed, so the output must differ from it.
    shell.stdin.write("echo $(stty size) $TERM $((6*7))\n")
    await shell.stdout.readuntil("33 101 vt220 42\r\n")
    shell.change_terminal_size(200, 50)
    shell.stdin.write("until [ \"$(stty size)\" = '50 200' ]; do sleep 0.1; done; echo re''sized\n")
    await shell.stdout.readuntil("resized\r\n")
    shell.stdin.write("exit 5\n")
    assert (await shell.wait()).exit_status == 5


async def main():
    async with connect() as client:
        for test in [commands, files, ports, terminal]:
            await asyncio.wait_for(test(client), TIMEOUT)


asyncio.run(main())
