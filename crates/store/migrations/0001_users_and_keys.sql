-- Users and their API keys.

-- A copy of each DevServerUser. The row remains when the user is deleted, because keys, usage and audit entries refer to
-- it by name.
CREATE TABLE users (
    name         text PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 59),
    uid          uuid,
    display_name text CHECK (length(display_name) <= 128),
    github_user  text CHECK (length(github_user) <= 39),
    role         text NOT NULL DEFAULT 'User' CHECK (role IN ('User', 'Admin', 'Auditor')),
    created_at   timestamptz NOT NULL DEFAULT now(),
    deleted_at   timestamptz,
    observed_at  timestamptz NOT NULL DEFAULT now()
);

-- Only the SHA-256 hash of a key is stored. A key has 256 random bits, so a slow hash would add nothing but load.
CREATE TABLE api_keys (
    id           text PRIMARY KEY CHECK (id ~ '^[0-9a-z]{12}$'),
    user_name    text NOT NULL REFERENCES users (name),
    hash         bytea NOT NULL CHECK (octet_length(hash) = 32),
    description  text NOT NULL CHECK (length(description) <= 256),
    scopes       text[] NOT NULL CHECK (cardinality(scopes) BETWEEN 1 AND 16),
    created_at   timestamptz NOT NULL DEFAULT now(),
    created_by   text NOT NULL,
    expires_at   timestamptz NOT NULL,
    last_used_at timestamptz,
    revoked_at   timestamptz,
    CHECK (expires_at > created_at AND expires_at <= created_at + interval '90 days')
);

CREATE INDEX api_keys_by_user ON api_keys (user_name, created_at DESC, id);

-- Replicas of the API cache keys. The notification makes a revocation effective on all of them, also if it is made with
-- SQL.
CREATE FUNCTION notify_key_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('odc_api_key', COALESCE(NEW.id, OLD.id));
    RETURN NULL;
END
$$;

CREATE TRIGGER api_key_changed
    AFTER DELETE OR UPDATE OF hash, scopes, expires_at, revoked_at ON api_keys
    FOR EACH ROW EXECUTE FUNCTION notify_key_changed();

-- The keys of a deleted user are not accepted. The worker, which marks users as deleted, has no access to keys.
CREATE FUNCTION notify_user_deleted() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM pg_notify('odc_api_key', id) FROM api_keys WHERE user_name = NEW.name;
    RETURN NULL;
END
$$;

CREATE TRIGGER user_deleted AFTER UPDATE OF deleted_at ON users
    FOR EACH ROW WHEN (OLD.deleted_at IS DISTINCT FROM NEW.deleted_at) EXECUTE FUNCTION notify_user_deleted();
