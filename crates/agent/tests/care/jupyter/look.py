"""Somebody with a notebook open: starts a kernel, has it compute for long, and looks at it until the standard input ends.

Arguments: port and token of the notebook server. Says `busy` when the kernel computes.
"""

import json
import sys
import urllib.request
import uuid

import websocket

PORT, TOKEN = sys.argv[1:]
LIMIT = 120

start = urllib.request.Request(
    f"http://127.0.0.1:{PORT}/api/kernels",
    data=b"{}",
    headers={"Authorization": f"token {TOKEN}", "Content-Type": "application/json"},
)
with urllib.request.urlopen(start, timeout=LIMIT) as answer:
    kernel = json.load(answer)["id"]
channels = websocket.create_connection(
    f"ws://127.0.0.1:{PORT}/api/kernels/{kernel}/channels?token={TOKEN}", timeout=LIMIT
)
number = uuid.uuid4().hex
message = {
    "channel": "shell",
    "header": {"msg_id": number, "msg_type": "execute_request", "session": number, "username": "", "version": "5.3"},
    "parent_header": {},
    "metadata": {},
    "content": {"code": "import time; time.sleep(1000)", "silent": False, "store_history": False, "user_expressions": {}},
}
channels.send(json.dumps(message))
while True:
    heard = json.loads(channels.recv())
    ours = heard["parent_header"].get("msg_id") == number
    if ours and heard["msg_type"] == "status" and heard["content"]["execution_state"] == "busy":
        break
print("busy", flush=True)
sys.stdin.read()
