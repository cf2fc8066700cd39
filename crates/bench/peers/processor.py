"""The peer of `odc worker`: reads a message with PGMQ's functions, handles it and deletes it, one after the other.

Prints `ready`, waits for a line, and consumes messages. Without POLL_INTERVAL_SECONDS it stops when the queue is empty,
prints the number of messages, and waits for the end of its input, so that its CPU time can be read. Without KUBE_SERVER
it handles no message: it only deletes them.
"""

import http.client
import json
import os
import ssl
import sys
import time
from urllib.parse import urlsplit

import psycopg2

QUEUE = "peer_reservations"
VISIBILITY_SECONDS = 300
BATCH_SIZE = 1


class Creator:
    """Creates the DevServer of a message, with a connection that is kept."""

    def __init__(self) -> None:
        address = urlsplit(os.environ["KUBE_SERVER"])
        context = ssl.create_default_context(cafile=os.environ["KUBE_CA"])
        self.connection = http.client.HTTPSConnection(address.hostname, address.port, context=context)
        self.headers = {"Authorization": f"Bearer {os.environ['KUBE_TOKEN']}", "Content-Type": "application/json"}
        self.template = json.loads(os.environ["KUBE_OBJECT"])

    def create(self, message: dict) -> None:
        body = self.template | {"metadata": self.template["metadata"] | {"name": message["name"]}}
        path = f"/apis/odc.dev/v1alpha1/namespaces/dev-{message['user']}/devservers"
        self.connection.request("POST", path, json.dumps(body), self.headers)
        response = self.connection.getresponse()
        text = response.read()
        if response.status != 201:
            raise RuntimeError(f"cannot create {message['name']}: {response.status} {text!r}")


def consume(connection, creator: Creator | None, poll_interval: float | None) -> int:
    """Consumes messages and returns their number."""
    consumed = 0
    with connection.cursor() as cursor:
        while True:
            cursor.execute("SELECT msg_id, message FROM pgmq.read(%s, %s, %s)", (QUEUE, VISIBILITY_SECONDS, BATCH_SIZE))
            messages = cursor.fetchall()
            if not messages:
                if poll_interval is None:
                    return consumed
                time.sleep(poll_interval)
            for msg_id, message in messages:
                if creator is not None:
                    creator.create(message)
                cursor.execute("SELECT pgmq.delete(%s, %s::bigint)", (QUEUE, msg_id))
                consumed += 1


def main() -> None:
    connection = psycopg2.connect(os.environ["DATABASE_URL"])
    connection.autocommit = True
    creator = Creator() if "KUBE_SERVER" in os.environ else None
    poll_interval = os.environ.get("POLL_INTERVAL_SECONDS")
    print("ready", flush=True)
    sys.stdin.readline()
    print(consume(connection, creator, float(poll_interval) if poll_interval else None), flush=True)
    sys.stdin.read()


main()
