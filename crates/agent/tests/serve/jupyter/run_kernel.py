"""Starts a kernel, runs code in it, and keeps its channels open until standard input is closed.

Arguments: port and token of the Jupyter server. Prints `busy` when the kernel is busy.
"""

import json
import sys
import urllib.request
import uuid

import websocket

PORT, TOKEN = sys.argv[1:]
TIMEOUT = 120

start = urllib.request.Request(
    f"http://127.0.0.1:{PORT}/api/kernels",
    data=b"{}",
    headers={"Authorization": f"token {TOKEN}", "Content-Type": "application/json"},
)
with urllib.request.urlopen(start, timeout=TIMEOUT) as response:
    kernel = json.load(response)["id"]
channels = websocket.create_connection(
    f"ws://127.0.0.1:{PORT}/api/kernels/{kernel}/channels?token={TOKEN}", timeout=TIMEOUT
)
message_id = uuid.uuid4().hex
message = {
    "channel": "shell",
    "header": {"msg_id": message_id, "msg_type": "execute_request", "session": message_id, "username": "", "version": "5.3"},
    "parent_header": {},
    "metadata": {},
    "content": {"code": "import time; time.sleep(1000)", "silent": False, "store_history": False, "user_expressions": {}},
}
channels.send(json.dumps(message))
while True:
    received = json.loads(channels.recv())
    is_reply = received["parent_header"].get("msg_id") == message_id
    if is_reply and received["msg_type"] == "status" and received["content"]["execution_state"] == "busy":
        break
print("busy", flush=True)
sys.stdin.read()
