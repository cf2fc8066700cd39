-- Accepted requests and the queues from which the worker executes them.

CREATE TABLE requests (
    id              uuid PRIMARY KEY,
    -- The user on whose behalf the request is executed, and the caller: the same user, or an administrator.
    user_name       text NOT NULL,
    actor           text NOT NULL,
    -- The API key, or null for a Kubernetes token.
    key_id          text,
    queue           text NOT NULL CHECK (queue IN ('gpu_reservations', 'disk_operations', 'admin_operations')),
    action          text NOT NULL CHECK (length(action) <= 64),
    object_kind     text NOT NULL CHECK (length(object_kind) <= 64),
    object_name     text NOT NULL CHECK (length(object_name) <= 253),
    payload         jsonb NOT NULL CHECK (octet_length(payload::text) <= 131072),
    idempotency_key text CHECK (length(idempotency_key) BETWEEN 1 AND 255),
    -- SHA-256 of method, path and body. A repeated key with another body is an error of the client.
    body_hash       bytea NOT NULL CHECK (octet_length(body_hash) = 32),
    client_version  text CHECK (length(client_version) <= 64),
    state           text NOT NULL DEFAULT 'Pending' CHECK (state IN ('Pending', 'Succeeded', 'Rejected', 'Failed')),
    reason          text CHECK (length(reason) <= 128),
    message         text CHECK (length(message) <= 4096),
    -- HTTP status of the API server, if it rejected the request.
    status_code     smallint CHECK (status_code BETWEEN 400 AND 599),
    created_at      timestamptz NOT NULL DEFAULT now(),
    repeated_at     timestamptz,
    finished_at     timestamptz,
    CHECK ((state = 'Pending') = (finished_at IS NULL))
);

-- Of concurrent requests with the same key, one is inserted and the others return its row.
CREATE UNIQUE INDEX requests_by_idempotency_key ON requests (actor, idempotency_key);
CREATE INDEX requests_by_user ON requests (user_name, created_at DESC, id);
CREATE INDEX requests_pending ON requests (created_at) WHERE state = 'Pending';
CREATE INDEX requests_by_creation ON requests (created_at);

SELECT pgmq.create('gpu_reservations');
SELECT pgmq.create('disk_operations');
SELECT pgmq.create('admin_operations');

-- Wakes the worker. The notifications of PGMQ itself depend on rows of an unlogged table, which is empty after a crash of
-- the server, so that no notification would be sent any more.
CREATE FUNCTION notify_message_sent() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('odc_queue', substring(TG_TABLE_NAME FROM 3));
    RETURN NULL;
END
$$;

CREATE TRIGGER message_sent AFTER INSERT ON pgmq.q_gpu_reservations
    FOR EACH STATEMENT EXECUTE FUNCTION notify_message_sent();
CREATE TRIGGER message_sent AFTER INSERT ON pgmq.q_disk_operations
    FOR EACH STATEMENT EXECUTE FUNCTION notify_message_sent();
CREATE TRIGGER message_sent AFTER INSERT ON pgmq.q_admin_operations
    FOR EACH STATEMENT EXECUTE FUNCTION notify_message_sent();
