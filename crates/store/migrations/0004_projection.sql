-- Copies of the custom resources, and the history that Kubernetes does not keep. Written by the projection of the worker.

-- The columns are those that are filtered, sorted or reported; `object` is the resource without managed fields.
CREATE TABLE devservers (
    uid                uuid PRIMARY KEY,
    namespace          text NOT NULL,
    name               text NOT NULL,
    user_name          text NOT NULL,
    team               text,
    flavor             text,
    devices            int NOT NULL CHECK (devices >= 0),
    nodes              int NOT NULL CHECK (nodes >= 1),
    phase              text NOT NULL,
    disk_name          text,
    request_id         uuid,
    requested_by       text,
    created_at         timestamptz NOT NULL,
    started_at         timestamptz,
    expires_at         timestamptz,
    finished_at        timestamptz,
    deleted_at         timestamptz,
    failure_reason     text,
    oom_kills          bigint NOT NULL DEFAULT 0,
    generation         bigint NOT NULL,
    -- The highest generation with an entry in the audit log.
    audited_generation bigint NOT NULL DEFAULT 0,
    observed_at        timestamptz NOT NULL,
    object             jsonb NOT NULL
);

CREATE INDEX devservers_by_user ON devservers (user_name, created_at DESC, uid);
CREATE INDEX devservers_by_creation ON devservers (created_at DESC, uid);
CREATE INDEX devservers_live ON devservers (namespace, name) WHERE deleted_at IS NULL;
CREATE INDEX devservers_by_phase ON devservers (phase, flavor) WHERE deleted_at IS NULL;
CREATE INDEX devservers_by_expiry ON devservers (expires_at) WHERE deleted_at IS NULL;

-- All phase transitions. The status of a server has the last 20.
CREATE TABLE devserver_timeline (
    server_uid uuid NOT NULL REFERENCES devservers (uid) ON DELETE CASCADE,
    at         timestamptz NOT NULL,
    phase      text NOT NULL,
    reason     text NOT NULL,
    PRIMARY KEY (server_uid, at, phase)
);

-- The times during which a server holds its devices. One row per run; the row of the current run has no end.
CREATE TABLE usage_intervals (
    server_uid                         uuid NOT NULL REFERENCES devservers (uid) ON DELETE CASCADE,
    started_at                         timestamptz NOT NULL,
    ended_at                           timestamptz,
    user_name                          text NOT NULL,
    team                               text,
    flavor                             text NOT NULL,
    -- On all nodes.
    devices                            int NOT NULL CHECK (devices >= 0),
    nodes                              int NOT NULL CHECK (nodes >= 1),
    -- In millionths of the currency of the cluster; the price at the start of the interval.
    price_per_device_hour_millionths   bigint NOT NULL DEFAULT 0 CHECK (price_per_device_hour_millionths >= 0),
    PRIMARY KEY (server_uid, started_at),
    CHECK (ended_at >= started_at)
);

CREATE UNIQUE INDEX usage_intervals_open ON usage_intervals (server_uid) WHERE ended_at IS NULL;
CREATE INDEX usage_intervals_by_user ON usage_intervals (user_name, started_at);
CREATE INDEX usage_intervals_by_team ON usage_intervals (team, started_at) WHERE team IS NOT NULL;
CREATE INDEX usage_intervals_by_start ON usage_intervals (started_at);

CREATE TABLE disks (
    uid                uuid PRIMARY KEY,
    namespace          text NOT NULL,
    name               text NOT NULL,
    display_name       text,
    user_name          text NOT NULL,
    phase              text NOT NULL,
    size_bytes         bigint NOT NULL CHECK (size_bytes >= 0),
    used_bytes         bigint CHECK (used_bytes >= 0),
    storage_class      text,
    claim              text,
    holder             text,
    points             int NOT NULL DEFAULT 0,
    last_point_at      timestamptz,
    last_used_at       timestamptz,
    -- Soft delete: spec.deleted.
    is_deleted         boolean NOT NULL DEFAULT false,
    request_id         uuid,
    requested_by       text,
    created_at         timestamptz NOT NULL,
    deleted_at         timestamptz,
    generation         bigint NOT NULL,
    audited_generation bigint NOT NULL DEFAULT 0,
    observed_at        timestamptz NOT NULL,
    object             jsonb NOT NULL
);

CREATE INDEX disks_by_user ON disks (user_name, created_at DESC, uid);
CREATE INDEX disks_live ON disks (namespace, name) WHERE deleted_at IS NULL;

CREATE TABLE disk_operations (
    uid                uuid PRIMARY KEY,
    namespace          text NOT NULL,
    name               text NOT NULL,
    user_name          text NOT NULL,
    disk_name          text NOT NULL,
    action             text NOT NULL,
    phase              text NOT NULL,
    message            text,
    request_id         uuid,
    requested_by       text,
    created_at         timestamptz NOT NULL,
    finished_at        timestamptz,
    deleted_at         timestamptz,
    generation         bigint NOT NULL,
    audited_generation bigint NOT NULL DEFAULT 0,
    observed_at        timestamptz NOT NULL,
    object             jsonb NOT NULL
);

CREATE INDEX disk_operations_by_user ON disk_operations (user_name, created_at DESC, uid);
CREATE INDEX disk_operations_by_disk ON disk_operations (namespace, disk_name, created_at DESC, uid);

-- The last known capacity of each flavor, for reports without access to the cluster.
CREATE TABLE flavors (
    name        text PRIMARY KEY,
    deleted_at  timestamptz,
    observed_at timestamptz NOT NULL,
    object      jsonb NOT NULL
);
