-- Tables of the peers.
CREATE SCHEMA peer;

CREATE TABLE peer.api_users (
    user_id   serial PRIMARY KEY,
    username  text NOT NULL UNIQUE,
    is_active boolean NOT NULL DEFAULT true
);

CREATE TABLE peer.api_keys (
    key_id       serial PRIMARY KEY,
    user_id      int NOT NULL REFERENCES peer.api_users,
    key_hash     text NOT NULL UNIQUE,
    is_active    boolean NOT NULL DEFAULT true,
    expires_at   timestamptz NOT NULL DEFAULT now() + interval '1 day',
    last_used_at timestamptz
);

CREATE TABLE peer.reservations (
    reservation_id uuid PRIMARY KEY,
    user_id        int NOT NULL REFERENCES peer.api_users,
    name           text NOT NULL,
    spec           jsonb NOT NULL,
    status         text NOT NULL DEFAULT 'pending',
    created_at     timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX reservations_by_name ON peer.reservations (user_id, name);

-- Of the commit rate.
CREATE TABLE peer.commits (number int NOT NULL);

SELECT pgmq.create('peer_reservations');
